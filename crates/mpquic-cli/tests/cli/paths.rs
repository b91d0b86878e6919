//! `mpquic paths`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::{Server, assert_exit, directories, mpquic, run, stderr, stdout};

#[test]
fn paths_lists_addresses_and_reasons() {
    let output = run(&["paths"]);
    assert_exit(&output, 0);
    let text = stdout(&output);
    let loopback = text.lines().find(|line| line.contains(" 127.0.0.1 "));
    assert!(loopback.unwrap().ends_with("left out: loopback"), "{text}");
    let output = run(&["paths", "--json"]);
    assert_exit(&output, 0);
    let rows: Vec<Value> = stdout(&output)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let loopback = rows.iter().find(|row| row["address"] == "127.0.0.1");
    assert_eq!(loopback.unwrap()["left_out"], "loopback");
    assert!(
        rows.iter()
            .all(|row| row["error"].is_null() && row["server"].is_null())
    );
}

#[test]
fn a_server_is_tried_from_each_address() {
    let (served, _) = directories(b"x");
    let server = Server::start(served.path(), &["--max-paths", "0"]);
    let perf = Server::perf(&[]);
    for (server, protocol, multipath) in [(&server, "h3", false), (&perf, "perf", true)] {
        let url = server.url("");
        let two = ["--local", "127.0.0.1", "--local", "127.0.0.2", "--json"];
        let output = run(&[&["paths", &url, "--pin", &server.pin], &two[..]].concat());
        assert_exit(&output, 0);
        let text = stdout(&output);
        let rows: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let addresses: Vec<_> = rows.iter().map(|row| &row["address"]).collect();
        assert_eq!(addresses, ["127.0.0.1", "127.0.0.2"], "{text}");
        for row in &rows {
            assert_eq!(row["server"], server.address.to_string());
            assert_eq!(row["protocol"], protocol);
            assert_eq!(row["multipath"], multipath);
            assert_eq!(row["ecn"], "capable", "{row}");
            assert_eq!(row["quic_version"], "v1", "{row}");
            assert!(row["mtu"].as_u64().unwrap() >= 1200, "{row}");
            let millis = |name: &str| row[name].as_f64().unwrap();
            assert!(millis("min_rtt_ms") > 0.0 && millis("min_rtt_ms") <= millis("rtt_ms"));
            assert!(millis("handshake_ms") > 0.0, "{row}");
            assert!(row["error"].is_null() && row["left_out"].is_null());
        }
    }
    // On this machine, interfaces do not matter.
    let output = run(&["paths", &server.url(""), "--insecure"]);
    assert_exit(&output, 0);
    let text = stdout(&output);
    let reached = format!("reached {} in ", server.address);
    assert_eq!(text.matches(&reached).count(), 1, "{text}");
    assert!(text.contains("no multipath, QUIC v1, h3"), "{text}");
}

#[test]
fn paths_reports_unreachable_addresses() {
    let server = Server::perf(&[]);
    let url = server.url("");
    let output = run(&["paths", &url, "--local", "127.0.0.1"]);
    assert_exit(&output, 6);
    assert_eq!(stderr(&output).lines().count(), 1, "{output:?}");
    assert!(stdout(&output).contains("not reached: the server's certificate"));
    let output = run(&["paths", &url, "--insecure", "--local", "::1"]);
    assert_exit(&output, 5);
    assert!(stderr(&output).contains("no address of this IP version"));
    for (wrong, told) in [
        (
            &["--exclude", "lo", "--local", "lo"][..],
            "cannot be used with",
        ),
        (
            &["--exclude", "no name"],
            "neither an address nor the name of an interface; there are: ",
        ),
        (
            &["--exclude", "127.0.0.1"],
            "expected the name of an interface",
        ),
        (&["--watch=0"], "0 is not in 1..=86400"),
        // Each connection is tried once.
        (&["--retry-time", "1"], "unexpected argument '--retry-time'"),
        (&["http://x"], "QUIC URLs start with https://"),
    ] {
        let output = run(&[&["paths"], wrong].concat());
        assert_exit(&output, 2);
        assert!(stderr(&output).contains(told), "{told}: {output:?}");
    }
}

#[test]
fn watch_repeats_the_test() {
    let server = Server::perf(&[]);
    let url = server.url("");
    let mut watching = mpquic(&["paths", &url, "--insecure", "--json", "--watch=1"])
        .args(["--local", "127.0.0.1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    for (expected, line) in (0..2).zip(lines) {
        let row: Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert_eq!(row["round"], expected);
        assert_eq!(row["protocol"], "perf");
    }
    watching.kill().unwrap();
    watching.wait().unwrap();
}
