//! What the options of `mpquic serve` limit.

#[cfg(target_os = "linux")]
use std::fs;
#[cfg(target_os = "linux")]
use std::io::{BufRead, BufReader};
#[cfg(target_os = "linux")]
use std::process::{Command, Stdio};

use tokio::time::Instant;

use crate::{Server, assert_exit, directories, run, stderr, wait_until};

#[test]
fn requests_of_one_address_are_limited() {
    let (served, target) = directories(b"x");
    let directory = target.path().to_str().unwrap();
    for (alpn, told) in [
        ("h3", "the server answered 429 Too Many Requests"),
        ("hq-interop", "the server refused the request (code 0x1ad)"),
    ] {
        // One that knows of no requests yet.
        let server = Server::start(served.path(), &["--client-requests", "1"]);
        let urls: Vec<_> = (0..20).map(|_| server.url("/file")).collect();
        let mut more: Vec<_> = urls.iter().map(String::as_str).collect();
        // A connection each: it is the address that counts.
        more.extend(["--output-dir", directory, "--quiet", "--reconnect"]);
        more.extend(["--alpn", alpn, "--retry-time", "0"]);
        let began = Instant::now();
        let output = server.get("/file", &more);
        assert_exit(&output, 7);
        let answered = 21 - stderr(&output).matches(told).count();
        // One at once, and one in each second, of which the last may have begun.
        let most = 2 + began.elapsed().as_secs() as usize;
        assert!((1..=most).contains(&answered), "{answered}: {output:?}");
    }
}

#[test]
fn connections_are_limited() {
    let (served, target) = directories(b"x");
    let directory = target.path().to_str().unwrap();
    let told = "too many connections from your address, or in all";
    for limit in ["--max-client-connections", "--max-connections"] {
        let server = Server::start(served.path(), &[limit, "1"]);
        let open = server.get("/file", &["--output-dir", directory]);
        assert_exit(&open, 0);
        let keep = tokio::runtime::Runtime::new().unwrap();
        // The server keeps a connection for three probe timeouts after its end.
        let connect = || keep.block_on(crate::http3::Client::try_new(&server)).ok();
        let mut open = None;
        wait_until("the end of a connection", || {
            open = connect();
            open.is_some()
        });
        // A client that reads the end of its handshake before the refusal would try again until
        // the other connection has ended.
        let more = ["--output-dir", directory, "--retry-time", "0"];
        let output = server.get("/file", &more);
        // The server closes the connection at once.
        let code = output.status.code();
        assert!(matches!(code, Some(5 | 8)), "{output:?}");
        assert!(stderr(&output).contains(told), "{output:?}");
    }
}

#[test]
fn limits_have_ranges() {
    for (option, value, range) in [
        ("--max-connections", "0", "1..="),
        ("--max-client-connections", "0", "1..="),
        ("--max-requests", "0", "1..="),
        ("--max-open-files", "60001", "1..=60000"),
        ("--client-requests", "0", "1..="),
        ("--client-rate", "20", "such as 800k, 20M or 1.5G"),
        ("--stall-timeout", "0", "1..=3600"),
        ("--drain-timeout", "86401", "0..=86400"),
        ("--workers", "129", "1..=128"),
    ] {
        let output = run(&["serve", option, value]);
        assert_exit(&output, 2);
        let told = stderr(&output);
        let named = told.contains(option) && told.contains(value) && told.contains(range);
        assert!(named, "{told}");
    }
}

/// The usual soft limit is for programs that call `select`; a server needs a descriptor for each
/// flow and file.
#[cfg(target_os = "linux")]
#[test]
fn the_limit_of_open_files_is_raised() {
    let (served, _) = directories(b"x");
    let line = "ulimit -Sn 64; exec \"$@\"";
    let mut child = Command::new("sh")
        .args(["-c", line, "sh", env!("CARGO_BIN_EXE_mpquic"), "serve"])
        .arg(served.path())
        .args(["--listen", "127.0.0.1:0"])
        .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut first).unwrap();
    let limits = fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(first.starts_with("listening on "), "{first}");
    let files = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let files: Vec<_> = files.unwrap().split_whitespace().collect();
    assert!(files[0] == files[1] && files[0] != "64", "{limits}");
}
