//! `mpquic get --json=events`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::{Server, assert_exit, data, directories, mpquic, reports, sha256};

const EVENTS: [&str; 3] = ["--json=events", "--interval", "0.1"];

/// Reads lines until one is what is looked for, and returns all of them.
fn until(lines: &mut impl Iterator<Item = Value>, found: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut all = Vec::new();
    for line in lines {
        let is_it = found(&line);
        all.push(line);
        if is_it {
            return all;
        }
    }
    panic!("not found in {all:#?}");
}

fn is_path(line: &Value, id: u64, state: &str) -> bool {
    line["event"] == "path" && line["id"] == id && line["state"] == state
}

fn bytes(line: &Value) -> u64 {
    line["files"][0]["bytes"].as_u64().unwrap_or(0)
}

/// A path is closed, then the server dies and another one takes its place.
#[test]
fn events_are_printed_at_once() {
    let content = data(3_000_000);
    let (served, target) = directories(&content);
    let slow = ["--client-rate", "8M", "--scheduler", "round-robin"];
    let server = Server::start(served.path(), &slow);
    let file = target.path().join("copy");
    let get = ["get", &server.url("/file"), "--insecure", "--drill=close=1"];
    let two = ["--local", "127.0.0.1", "--local", "127.0.0.2"];
    let mut child = mpquic(&[&get[..], &two, &EVENTS].concat())
        .arg("-o")
        .arg(&file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap());

    let opened = until(&mut lines, |line| is_path(line, 1, "active"));
    assert!(opened.iter().any(|line| is_path(line, 0, "active")));
    let running = until(&mut lines, |line| bytes(line) > 200_000);
    assert!(!file.exists(), "told when it was over: {running:#?}");
    let line = running.last().unwrap();
    assert_eq!(line["event"], "progress");
    assert_eq!(line["files"][0]["length"], content.len());
    assert!(line["files"][0]["bits_per_second"].as_f64().unwrap() > 0.0);
    let path = &line["paths"][0];
    assert!(path["bytes_received"].as_u64().unwrap() > 0, "{line}");
    until(&mut lines, |line| {
        is_path(line, 1, "abandoned") || is_path(line, 1, "closed")
    });

    let address = server.address.to_string();
    drop(server);
    let retry = until(&mut lines, |line| line["event"] == "retry");
    let there = retry.last().unwrap()["bytes"].as_u64().unwrap();
    assert!(there > 200_000, "{retry:#?}");
    until(&mut lines, |line| is_path(line, 0, "closed"));
    let _server = Server::start_on(&address, served.path(), &[]);
    let rest = until(&mut lines, |line| line["event"] == "result");
    let again = |line: &Value| is_path(line, 0, "active") && line["connection"] == 2;
    assert!(rest.iter().any(again), "{rest:#?}");
    let result = rest.last().unwrap();
    assert_eq!(result["sha256"], sha256(&content));
    assert_eq!(lines.next(), None);
    assert!(child.wait().unwrap().success());
}

#[track_caller]
fn assert_path_before(lines: &[Value], event: &str) {
    let path = lines.iter().position(|line| is_path(line, 0, "active"));
    let event = lines.iter().position(|line| line["event"] == event);
    assert!(path.is_some() && path < event, "{lines:#?}");
}

#[test]
fn failures_are_events() {
    let (served, target) = directories(b"content");
    let server = Server::start(served.path(), &[]);
    let into = ["--output-dir", target.path().to_str().unwrap()];
    let other = server.url("/other");
    let output = server.get("/file", &[&EVENTS[..], &into, &[&other]].concat());
    assert_exit(&output, 7);
    let lines = reports(&output);
    // However quick it was, a path is told before what came over it.
    assert_path_before(&lines, "result");
    let is_it = |line: &&Value| line["event"] == "failed";
    let failed = lines.iter().find(is_it).unwrap();
    assert_eq!(failed["url"], other);
    assert_eq!(failed["error"], "not found on the server");
    assert_eq!(failed["code"], 7);
    let results = lines.iter().filter(|line| line["event"] == "result");
    assert_eq!(results.count(), 1);

    let output = server.get("/other", &[&EVENTS[..], &into].concat());
    assert_exit(&output, 7);
    let lines = reports(&output);
    assert_path_before(&lines, "failed");
    assert_eq!(lines.last().unwrap()["event"], "failed");
}
