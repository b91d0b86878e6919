//! `mpquic serve --workers`: clients on several threads, and one server.

use std::fs;

use crate::operating::ask;
use crate::{Server, assert_exit, data, directories, run, stderr, wait_until};

/// Every client gets its file over two paths, whichever worker it has; what is counted is counted
/// for all.
#[test]
fn workers_act_as_one_server() {
    const CLIENTS: u64 = 8;
    let content = data(300_000);
    let (served, target) = directories(&content);
    let options = ["--workers", "2", "--metrics", "127.0.0.1:0"];
    let server = Server::start(served.path(), &options);
    let figures = server.lines[0].strip_prefix("metrics on http://").unwrap();
    let figures = figures.strip_suffix("/metrics").unwrap();
    for client in 0..CLIENTS {
        let file = target.path().join(client.to_string());
        let more = ["--local", "127.0.0.1", "--local", "127.0.0.2", "-o"];
        let output = server.get("/file", &[&more[..], &[file.to_str().unwrap()]].concat());
        assert_exit(&output, 0);
        assert!(fs::read(&file).unwrap() == content);
    }
    wait_until("all requests are counted", || {
        let (_, text) = ask(figures, "GET /metrics");
        let accepted = "mpquic_handshakes_total{result=\"accepted\"} ";
        let accepted = text.lines().find_map(|line| line.strip_prefix(accepted));
        // A client may begin from both of its addresses.
        let accepted: u64 = accepted.unwrap().parse().unwrap();
        let answered =
            "mpquic_http_requests_total{protocol=\"HTTP/3\",method=\"GET\",status=\"200\"} 8\n";
        accepted >= CLIENTS && text.contains(answered)
    });
    #[cfg(target_os = "linux")]
    for worker in ["worker 1\n", "worker 2\n"] {
        let threads = fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap();
        let mut names =
            threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("comm")));
        assert!(names.any(|name| name.unwrap() == worker), "no {worker}");
    }
}

/// The limit of an address is that of all workers, and that of all connections is divided.
#[test]
fn limits_hold_over_all_workers() {
    let (served, target) = directories(b"x");
    let directory = target.path().to_str().unwrap();
    let options = ["--workers", "2", "--client-requests", "2"];
    let server = Server::start(served.path(), &options);
    let urls: Vec<_> = (0..20).map(|_| server.url("/file")).collect();
    let mut more: Vec<_> = urls.iter().map(String::as_str).collect();
    more.extend(["--output-dir", directory, "--quiet", "--reconnect"]);
    more.extend(["--retry-time", "0"]);
    let output = server.get("/file", &more);
    assert_exit(&output, 7);
    let told = "the server answered 429 Too Many Requests";
    let refused = stderr(&output).matches(told).count();
    assert!((10..=19).contains(&refused), "{refused}: {output:?}");

    for (options, told) in [
        (
            ["--max-connections", "1"],
            "--max-connections is 1, but must be at least as many as --workers, which divide them",
        ),
        (
            ["--preferred-address", "127.0.0.1:4433"],
            "'--workers <N>' cannot be used with '--preferred-address",
        ),
    ] {
        let output = run(&[&["serve", directory, "--workers", "2"], &options[..]].concat());
        assert_exit(&output, 2);
        assert!(stderr(&output).contains(told), "{output:?}");
    }
}
