//! How `mpquic serve` and interrupted downloads end.
#![cfg(unix)]

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::{Server, assert_exit, data, directories, mpquic, names, stderr};

pub(crate) fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    let status = Command::new("kill").args([name, &id]).status().unwrap();
    assert!(status.success());
}

/// Starts a download to `copy` in a directory, and returns once some of it is there.
fn begin(server: &Server, target: &std::path::Path, alpn: &str) -> Child {
    let (file, part) = (target.join("copy"), target.join("copy.part"));
    let url = server.url("/file");
    let child = mpquic(&["get", "--pin", &server.pin, &url, "--alpn", alpn, "--quiet"])
        .args(["-o", file.to_str().unwrap(), "--retry-time", "0"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let is_there = || fs::metadata(&part).is_ok_and(|part| part.len() > 0);
    let mut waits = std::iter::repeat_n(Duration::from_millis(10), 2000);
    let begun = waits.any(|wait| {
        std::thread::sleep(wait);
        is_there()
    });
    assert!(begun, "no download");
    child
}

fn end(child: Child) -> Output {
    child.wait_with_output().unwrap()
}

#[test]
fn open_requests_are_answered_and_no_others() {
    let content = data(2 << 20);
    let (served, target) = directories(&content);
    for alpn in ["h3", "hq-interop"] {
        // One second for the file.
        let mut server = Server::start(served.path(), &["--client-rate", "16M"]);
        let child = begin(&server, target.path(), alpn);
        signal(&server.child, "-TERM");
        let output = end(child);
        assert_exit(&output, 0);
        assert!(fs::read(target.path().join("copy")).unwrap() == content);
        assert!(server.child.wait().unwrap().success());
        fs::remove_file(target.path().join("copy")).unwrap();
    }
}

#[test]
fn open_requests_have_a_limit_of_time_and_a_second_signal_waits_for_none() {
    // Forty seconds for the file.
    let (served, _) = directories(&data(5 << 20));
    for (limit, signals) in [("1", 1), ("3600", 2)] {
        let target = tempfile::tempdir().unwrap();
        let arguments = ["--client-rate", "1M", "--drain-timeout", limit];
        let mut server = Server::start(served.path(), &arguments);
        let child = begin(&server, target.path(), "h3");
        for _ in 0..signals {
            signal(&server.child, "-TERM");
            // Two at the same moment are one.
            std::thread::sleep(Duration::from_millis(200));
        }
        assert!(server.child.wait().unwrap().success());
        let output = end(child);
        assert_exit(&output, 8);
        assert!(stderr(&output).contains("the server ends"), "{output:?}");
        assert_eq!(names(target.path()), ["copy.part", "copy.part.json"]);
    }
}

#[test]
fn an_interrupted_server_ends_in_order() {
    let (served, _) = directories(b"x");
    let mut server = Server::start(served.path(), &[]);
    signal(&server.child, "-INT");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn an_interrupted_download_leaves_no_file_that_looks_whole() {
    let (served, target) = directories(b"");
    // Large, without taking up space.
    let large = fs::File::create(served.path().join("large")).unwrap();
    large.set_len(1 << 40).unwrap();
    let server = Server::start(served.path(), &[]);
    let file = target.path().join("copy");
    let url = server.url("/large");
    let mut child = mpquic(&[
        "get",
        "--pin",
        &server.pin,
        &url,
        "-o",
        file.to_str().unwrap(),
    ])
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    let part = target.path().join("copy.part");
    while fs::metadata(&part).map_or(0, |metadata| metadata.len()) < 1 << 20 {
        assert!(child.try_wait().unwrap().is_none(), "it ended early");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    signal(&child, "-INT");
    let mut told = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut told)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let (_, told) = told.split_once("mpquic: interrupted; ").unwrap();
    let kept = format!(
        " are in {}, and --continue fetches the rest\n",
        part.display()
    );
    assert!(told.ends_with(&kept), "{told}");
    assert_eq!(names(target.path()), ["copy.part", "copy.part.json"]);
}
