//! `mpquic get` that is interrupted, and goes on.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use crate::{
    Server, assert_exit, data, directories, mpquic, names, reports, sha256, stderr, stdout,
};

/// A download to `copy` in a directory.
struct Get {
    child: Child,
    part: PathBuf,
}

impl Get {
    fn start(server: &Server, target: &Path, more: &[&str]) -> Self {
        Self::start_trusting(&["--pin", &server.pin], server, target, more)
    }

    fn start_trusting(trust: &[&str], server: &Server, target: &Path, more: &[&str]) -> Self {
        let url = server.url("/file");
        let child = mpquic(&["get", &url, "--json"])
            .args(trust)
            .args(more)
            .args(["-o", target.join("copy").to_str().unwrap()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let part = target.join("copy.part");
        Self { child, part }
    }

    /// Waits until so many bytes are there.
    fn wait_for(&self, bytes: u64) {
        let mut waits = std::iter::repeat_n(Duration::from_millis(10), 3000);
        let arrived = waits.any(|wait| {
            std::thread::sleep(wait);
            fs::metadata(&self.part).is_ok_and(|part| part.len() >= bytes)
        });
        assert!(arrived, "too slow");
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn end(self) -> Output {
        self.child.wait_with_output().unwrap()
    }
}

/// Kills a download of 8 MB of which about 3 MB are there, and noted.
fn kill_one(server: &Server, target: &Path) {
    kill(Get::start(server, target, &[]), target);
}

fn kill(get: Get, target: &Path) {
    let note = target.join("copy.part.json");
    let noted = || -> Option<u64> {
        let note: serde_json::Value = serde_json::from_slice(&fs::read(&note).ok()?).ok()?;
        note["bytes"].as_u64()
    };
    let mut waits = std::iter::repeat_n(Duration::from_millis(10), 3000);
    let is_noted = waits.any(|wait| {
        std::thread::sleep(wait);
        noted().is_some_and(|bytes| bytes > 2_000_000)
    });
    assert!(is_noted, "too slow");
    get.kill();
    assert_eq!(names(target), ["copy.part", "copy.part.json"]);
}

/// The same server without its limit.
fn fast(server: Server, directory: &Path) -> Server {
    let address = server.address.to_string();
    drop(server);
    Server::start_on(&address, directory, &[])
}

#[test]
fn existing_files_are_not_fetched_again() {
    let content = data(8_000_000);
    let (served, target) = directories(&content);
    let server = Server::start(served.path(), &["--client-rate", "24M"]);
    kill_one(&server, target.path());
    let server = fast(server, served.path());
    let output = Get::start(&server, target.path(), &["--continue"]).end();
    assert_exit(&output, 0);
    assert!(
        stderr(&output).contains("continuing after the"),
        "{output:?}"
    );
    assert!(fs::read(target.path().join("copy")).unwrap() == content);
    assert_eq!(names(target.path()), ["copy"]);
    let report = &reports(&output)[0];
    let there = report["resumed_at"].as_u64().unwrap();
    assert!(there > 2_000_000, "{report}");
    assert_eq!(report["bytes"], content.len());
    let received = report["paths"][0]["bytes_received"].as_u64().unwrap();
    assert!(received < (8_000_000 - there) * 11 / 10, "{report}");
}

/// A file that is gone has no rest that `--continue` could fetch.
#[test]
fn a_file_that_is_gone_is_not_offered() {
    let (served, target) = directories(&data(8_000_000));
    let server = Server::start(served.path(), &["--client-rate", "24M"]);
    kill_one(&server, target.path());
    fs::remove_file(served.path().join("file")).unwrap();
    let output = Get::start(&server, target.path(), &["--continue"]).end();
    assert_exit(&output, 7);
    let told = stderr(&output);
    assert!(told.ends_with(": not found on the server\n"), "{told}");
    assert_eq!(names(target.path()), ["copy.part", "copy.part.json"]);
}

#[test]
fn another_version_is_begun_anew() {
    let (served, target) = directories(&data(8_000_000));
    let server = Server::start(served.path(), &["--client-rate", "24M"]);
    kill_one(&server, target.path());
    let server = fast(server, served.path());
    let newer = [b"new".to_vec(), data(4_000_000)].concat();
    fs::write(served.path().join("file"), &newer).unwrap();
    let output = Get::start(&server, target.path(), &["--continue"]).end();
    assert_exit(&output, 0);
    let told = stderr(&output);
    assert!(
        told.contains("the file has changed on the server: starting over"),
        "{told}"
    );
    assert!(fs::read(target.path().join("copy")).unwrap() == newer);
    assert_eq!(names(target.path()), ["copy"]);
    assert_eq!(reports(&output)[0].get("resumed_at"), None);
}

#[test]
fn a_damaged_part_is_begun_anew() {
    let content = data(8_000_000);
    let (served, target) = directories(&content);
    let server = Server::start(served.path(), &["--client-rate", "24M"]);
    kill_one(&server, target.path());
    let server = fast(server, served.path());
    let part = target.path().join("copy.part");
    let mut damaged = fs::read(&part).unwrap();
    damaged[5] ^= 1;
    fs::write(&part, damaged).unwrap();
    let copy = target.path().join("copy");
    let events = ["--continue", "--json=events", "-o", copy.to_str().unwrap()];
    let output = server.get("/file", &events);
    assert_exit(&output, 0);
    let why = "the existing part cannot be continued, it was changed";
    let told = format!("{why}: starting over");
    assert!(stderr(&output).contains(&told), "{output:?}");
    let events = reports(&output);
    let mut restarts = events.iter().filter(|event| event["event"] == "restart");
    let restart = restarts.next().unwrap();
    assert_eq!((&restart["why"], restarts.next()), (&why.into(), None));
    assert!(fs::read(target.path().join("copy")).unwrap() == content);
}

/// A server that ends, once in order and once not, and one that starts in its place.
#[cfg(unix)]
#[test]
fn a_restarted_server_is_asked_for_the_rest() {
    let content = data(8_000_000);
    let (served, target) = directories(&content);
    for (end, told) in [("-TERM", "the server ends"), ("-KILL", "nobody listens")] {
        let slow = ["--client-rate", "24M", "--drain-timeout", "0"];
        let mut server = Server::start(served.path(), &slow);
        let mut get = Get::start(&server, target.path(), &[]);
        get.wait_for(3_000_000);
        let id = server.child.id().to_string();
        let killed = std::process::Command::new("kill").args([end, &id]).status();
        assert!(killed.unwrap().success());
        server.child.wait().unwrap();
        let mut line = String::new();
        let mut lines = BufReader::new(get.child.stderr.take().unwrap());
        lines.read_line(&mut line).unwrap();
        assert!(
            line.contains(told) && line.contains("trying again"),
            "{line}"
        );
        // Now a server is there again.
        let address = server.address.to_string();
        let _server = Server::start_on(&address, served.path(), &[]);
        let output = get.end();
        assert_exit(&output, 0);
        let mut rest = String::new();
        lines.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "", "said more than once");
        assert!(fs::read(target.path().join("copy")).unwrap() == content);
        assert_eq!(names(target.path()), ["copy"]);
        let report = &reports(&output)[0];
        assert!(report["retries"].as_u64().unwrap() > 0, "{report}");
        let received = report["paths"][0]["bytes_received"].as_u64().unwrap();
        assert!(received < 6_000_000, "all of it again: {report}");
        fs::remove_file(target.path().join("copy")).unwrap();
    }
}

/// It is not the server that sends nothing.
#[test]
fn slow_reader_of_standard_output_is_awaited() {
    let content = data(3_000_000);
    let (served, _target) = directories(&content);
    let server = Server::start(served.path(), &[]);
    let get = ["get", &server.url("/file"), "--insecure", "-o", "-"];
    let patience = ["--stall-timeout", "1", "--retry-time", "0"];
    let mut child = mpquic(&[&get[..], &patience].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 1000]).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).unwrap();
    assert_exit(&child.wait_with_output().unwrap(), 0);
    assert!(rest == content[1000..]);
}

#[test]
fn without_retries_the_kept_part_is_reported() {
    let (served, target) = directories(&data(8_000_000));
    let slow = ["--client-rate", "24M", "--drain-timeout", "0"];
    let mut server = Server::start(served.path(), &slow);
    let get = Get::start(&server, target.path(), &["--retry-time", "0"]);
    get.wait_for(3_000_000);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let output = get.end();
    assert_exit(&output, 8);
    let told = stderr(&output);
    assert!(told.contains("--continue fetches the rest"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert_eq!(stdout(&output), "");
    assert_eq!(names(target.path()), ["copy.part", "copy.part.json"]);
}

/// A limit of the system stands for a disk that is full: two MiB, of which a last piece may not
/// fit.
#[cfg(unix)]
#[test]
fn download_continues_after_a_full_disk() {
    let content = data(8_000_000);
    let (served, target) = directories(&content);
    let server = Server::start(served.path(), &[]);
    let copy = target.path().join("copy");
    let tool = mpquic(&["get", &server.url("/file"), "--pin", &server.pin, "-o"]);
    let output = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 4096; exec \"$@\"", "sh"])
        .arg(tool.get_program())
        .args(tool.get_args())
        .arg(&copy)
        .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .env_remove("QLOGDIR")
        .env_remove("RUST_LOG")
        .output()
        .unwrap();
    assert_exit(&output, 3);
    let note = fs::read(target.path().join("copy.part.json")).unwrap();
    let note: serde_json::Value = serde_json::from_slice(&note).unwrap();
    let there = note["bytes"].as_u64().unwrap();
    let told = format!("{:.1} MiB are in", there as f64 / f64::from(1 << 20));
    assert!(stderr(&output).contains(&told), "{there}: {output:?}");
    let output = Get::start(&server, target.path(), &["--continue"]).end();
    assert_exit(&output, 0);
    assert!(fs::read(&copy).unwrap() == content);
    assert_eq!(reports(&output)[0]["resumed_at"], there);
}

/// Two downloads with one destination: each has a part of its own, whose sum is told.
#[test]
fn downloads_of_one_name_do_not_mix() {
    let (served, target) = directories(b"");
    for (name, byte) in [("a", b'A'), ("b", b'B')] {
        fs::create_dir(served.path().join(name)).unwrap();
        fs::write(served.path().join(name).join("file"), vec![byte; 3_000_000]).unwrap();
    }
    let server = Server::start(served.path(), &["--client-rate", "24M"]);
    let start = |path: &str| {
        mpquic(&["get", &server.url(path), "--insecure", "--json"])
            .args(["-o", target.path().join("copy").to_str().unwrap()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let (first, mut second) = (start("/a/file"), start("/b/file"));
    let mut waits = std::iter::repeat_n(Duration::from_millis(10), 3000);
    let both = waits.any(|wait| {
        std::thread::sleep(wait);
        names(target.path()).contains(&"copy.2.part".to_owned())
    });
    assert!(both, "too slow");
    second.kill().unwrap();
    second.wait().unwrap();
    let output = first.wait_with_output().unwrap();
    assert_exit(&output, 0);
    let byte = match reports(&output)[0]["url"].as_str().unwrap() {
        url if url.contains("/a/") => b'A',
        _ => b'B',
    };
    assert!(fs::read(target.path().join("copy")).unwrap() == vec![byte; 3_000_000]);
}

#[test]
fn a_file_that_looks_like_a_part_is_not_touched() {
    let (served, target) = directories(b"content");
    let server = Server::start(served.path(), &[]);
    let theirs = target.path().join("copy.part");
    fs::write(&theirs, "precious").unwrap();
    for more in [&[][..], &["--continue"]] {
        assert_exit(&Get::start(&server, target.path(), more).end(), 0);
        assert_eq!(names(target.path()), ["copy", "copy.part"]);
        assert_eq!(fs::read(&theirs).unwrap(), b"precious");
    }
    // As long as a name may be.
    let long = "x".repeat(255);
    fs::rename(served.path().join("file"), served.path().join(&long)).unwrap();
    let into = ["--output-dir", target.path().to_str().unwrap()];
    assert_exit(&server.get(&format!("/{long}"), &into), 0);
    assert_eq!(fs::read(target.path().join(&long)).unwrap(), b"content");
}

/// A server of `get -r` may send a forged part of another server's file, and a note about the part.
#[test]
fn a_part_that_a_server_made_up_is_not_continued() {
    let content = data(100_000);
    let (served, target) = directories(&content);
    let server = Server::start(served.path(), &[]);
    let head = stdout(&server.get("/file", &["-X", "HEAD"]));
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: "));
    let forged = vec![b'x'; 50_000];
    let note = serde_json::json!({
        "url": server.url("/file"),
        "stamp": { "etag": tag.unwrap() },
        "length": content.len(),
        "bytes": forged.len(),
        "sha256": sha256(&forged),
        "checked": "certificate",
        "code": sha256(b"guessed"),
    });
    let planted = tempfile::tempdir().unwrap();
    fs::write(planted.path().join("copy.part"), forged).unwrap();
    fs::write(planted.path().join("copy.part.json"), note.to_string()).unwrap();
    let other = Server::start(planted.path(), &[]);
    let into = target.path().to_str().unwrap();
    assert_exit(&other.get("/", &["-r", "-o", into]), 0);
    assert_eq!(names(target.path()), ["copy.part", "copy.part.json"]);

    let output = Get::start(&server, target.path(), &["--continue"]).end();
    assert_exit(&output, 0);
    let told =
        "cannot be continued, the note about it is damaged, or not by this user's `mpquic get`";
    assert!(stderr(&output).contains(told), "{output:?}");
    assert!(fs::read(target.path().join("copy")).unwrap() == content);
    assert_eq!(reports(&output)[0].get("resumed_at"), None);
}

/// An attacker on the way to an unchecked server can send forged bytes with the version of the true
/// file.
#[test]
fn a_part_of_an_unchecked_server_is_begun_anew_with_a_check() {
    let content = data(8_000_000);
    let (served, target) = directories(&content);
    let server = Server::start(served.path(), &["--client-rate", "24M"]);
    let insecure = Get::start_trusting(&["--insecure"], &server, target.path(), &[]);
    kill(insecure, target.path());
    let server = fast(server, served.path());
    let output = Get::start(&server, target.path(), &["--continue"]).end();
    assert_exit(&output, 0);
    let told = "the existing part cannot be continued, it is of a server whose certificate was not checked: \
                starting over\n";
    assert!(stderr(&output).contains(told), "{output:?}");
    assert!(fs::read(target.path().join("copy")).unwrap() == content);
    assert_eq!(reports(&output)[0].get("resumed_at"), None);
    assert_eq!(names(target.path()), ["copy"]);
}

/// While the server sends it, the file changes: what is here is of no use, and the next run says so
/// once.
#[test]
fn after_a_change_the_same_command_fetches_the_new_version() {
    let (served, target) = directories(&data(8_000_000));
    let server = Server::start(served.path(), &["--client-rate", "24M"]);
    let get = Get::start(&server, target.path(), &[]);
    get.wait_for(2_000_000);
    let newer = [b"new".to_vec(), data(7_999_997)].concat();
    fs::write(served.path().join("file"), &newer).unwrap();
    let output = get.end();
    assert_exit(&output, 8);
    let told = stderr(&output);
    assert!(
        told.ends_with("may have changed there; the same command fetches the new version\n"),
        "{told}"
    );
    let server = fast(server, served.path());
    let output = Get::start(&server, target.path(), &["--continue"]).end();
    assert_exit(&output, 0);
    let told = stderr(&output);
    assert!(
        told.contains("the file has changed on the server: starting over"),
        "{told}"
    );
    assert!(!told.contains("continuing after"), "{told}");
    assert!(fs::read(target.path().join("copy")).unwrap() == newer);
}
