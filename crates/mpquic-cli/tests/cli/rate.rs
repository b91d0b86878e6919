//! `--rate`: files pass no faster, whoever limits them. Least times only: a machine with much to do
//! may take longer.

use std::fs;

use tokio::time::Instant;

use crate::{Server, assert_exit, data, directories, mpquic, reports, run, stderr};

/// Bytes of the files, their rate, and the least time that takes, of which a burst of a tenth of a
/// second is left out.
const BYTES: usize = 400_000;
const RATE: &str = "4M";
const SECONDS: f64 = 0.7;

#[test]
fn downloads_are_no_faster() {
    let content = data(BYTES);
    let (served, target) = directories(&content);
    let server = Server::start(served.path(), &[]);
    let two = ["--local", "127.0.0.1", "--local", "127.0.0.2"];
    for alpn in ["h3", "hq-interop"] {
        let file = target.path().join(alpn);
        let file = file.to_str().unwrap();
        let rate = ["-o", file, "--json", "--rate", RATE, "--alpn", alpn];
        let output = server.get("/file", &[&rate[..], &two].concat());
        assert_exit(&output, 0);
        assert!(fs::read(file).unwrap() == content);
        let report = &reports(&output)[0];
        assert!(report["seconds"].as_f64().unwrap() >= SECONDS, "{report}");
    }
    // All files together.
    let directory = target.path().to_str().unwrap();
    let half = &content[..BYTES / 2];
    for name in ["a", "b"] {
        fs::write(served.path().join(name), half).unwrap();
    }
    let began = Instant::now();
    let more = server.url("/b");
    let parallel = ["--parallel", "2", "--output-dir", directory, &more];
    let output = server.get("/a", &[&parallel[..], &["--rate", RATE]].concat());
    assert_exit(&output, 0);
    assert!(began.elapsed().as_secs_f64() >= SECONDS);
}

#[test]
fn uploads_are_no_faster() {
    let content = data(BYTES);
    let (served, _) = directories(&content);
    let server = Server::start(served.path(), &["--allow-put"]);
    let file = served.path().join("file");
    let (url, file) = (server.url("/copy"), file.to_str().unwrap());
    let put = ["put", &url, file, "--pin", &server.pin, "--json"];
    let output = run(&[&put[..], &["--rate", RATE]].concat());
    assert_exit(&output, 0);
    assert!(fs::read(served.path().join("copy")).unwrap() == content);
    let report = &reports(&output)[0];
    assert!(report["seconds"].as_f64().unwrap() >= SECONDS, "{report}");
}

#[test]
fn servers_send_no_faster_to_all_together() {
    let (served, target) = directories(&data(BYTES / 2));
    let server = Server::start(served.path(), &["--rate", RATE]);
    let began = Instant::now();
    let url = server.url("/file");
    let clients = ["a", "b"].map(|name| {
        let file = target.path().join(name);
        let file = file.to_str().unwrap();
        let get = ["get", "--insecure", "--quiet", &url, "-o", file];
        mpquic(&get).spawn().unwrap()
    });
    for client in clients {
        assert_exit(&client.wait_with_output().unwrap(), 0);
    }
    assert!(began.elapsed().as_secs_f64() >= SECONDS);
}

#[test]
fn rates_without_a_unit_are_refused() {
    for command in [
        &["get", "https://localhost/", "--rate"][..],
        &["put", "https://localhost/", "file", "--rate"],
        &["serve", "--rate"],
        &["demo", "--rate"],
        &["perf", "localhost", "--datagram-rate"],
    ] {
        let option = command.last().unwrap();
        for value in ["20", "20MB", "1k"] {
            let output = run(&[command, &[value]].concat());
            assert_exit(&output, 2);
            let told = stderr(&output);
            let named = told.contains(option) && told.contains(&format!("'{value}'"));
            assert!(
                named && told.contains("such as 800k, 20M or 1.5G"),
                "{told}"
            );
        }
    }
}
