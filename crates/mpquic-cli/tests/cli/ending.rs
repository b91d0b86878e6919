//! How `mpquic serve` ends.
#![cfg(unix)]

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::{Server, assert_exit, data, directories, mpquic, names, stderr};

fn signal(child: &Child, name: &str) {
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
