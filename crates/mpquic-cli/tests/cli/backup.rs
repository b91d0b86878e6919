//! Which paths carry what: `--backup`, `--cost` and `--weight`.

use std::fs;

use serde_json::Value;

use crate::{Server, assert_exit, data, directories, reports, run, stderr};

const TWO: [&str; 4] = ["--local", "127.0.0.1", "--local", "127.0.0.2"];

/// Bytes of each path, from its address, and its state: on a busy machine what stands by may fall
/// silent for a moment, which is shown instead.
fn carried(report: &Value, counter: &str) -> [(String, u64, String); 2] {
    ["127.0.0.1:", "127.0.0.2:"].map(|address| {
        let mut paths = report["paths"].as_array().unwrap().iter();
        let of_it = |path: &&Value| path["local"].as_str().unwrap().starts_with(address);
        let path = paths.find(of_it).unwrap();
        let state = path["state"].as_str().unwrap().to_owned();
        (address.to_owned(), path[counter].as_u64().unwrap(), state)
    })
}

#[test]
fn backup_path_carries_nearly_nothing() {
    let content = data(24 << 20);
    let (served, target) = directories(&content);
    let server = Server::start(
        served.path(),
        &["--allow-put", "--scheduler", "round-robin"],
    );
    let file = target.path().join("copy");
    let file = file.to_str().unwrap();
    // The first one, where the handshake would run.
    let backup = [
        "--backup",
        "127.0.0.1",
        "--scheduler",
        "round-robin",
        "--json",
    ];
    let output = server.get("/file", &[&TWO[..], &backup, &["-o", file]].concat());
    assert_exit(&output, 0);
    assert!(fs::read(file).unwrap() == content);
    let url = server.url("/other");
    let put = ["put", "--pin", &server.pin, &url, file];
    let sent = run(&[&put[..], &TWO, &backup].concat());
    assert_exit(&sent, 0);
    for (output, counter) in [(output, "bytes_received"), (sent, "bytes_sent")] {
        let report = &reports(&output)[0];
        let [first, second] = carried(report, counter);
        assert!(second.1 >= content.len() as u64, "{report}");
        // Probes, and what it repeats at the end.
        assert!(first.1 < 2 << 20, "{report}");
        assert!(["backup", "suspect"].contains(&&*first.2), "{report}");
    }
}

#[test]
fn backup_must_name_a_used_address() {
    let url = "https://localhost/file";
    for (more, told) in [
        (
            &["--backup", "127.0.0.3"][..],
            "--backup 127.0.0.3: no path starts there",
        ),
        (
            &["--backup", "nothing"],
            "--backup nothing: no path starts there",
        ),
        (
            &["--backup", "a/b"],
            "neither an address nor the name of an interface",
        ),
    ] {
        let output = run(&[&["get", url, "-o", "-"], &TWO[..], more].concat());
        assert_exit(&output, 2);
        assert!(stderr(&output).contains(told), "{output:?}");
    }
    let output = run(&["paths", url, "--backup", "127.0.0.1"]);
    assert_exit(&output, 2);
}

/// Far from what the paths could carry.
#[test]
fn paths_carry_by_their_weights() {
    let content = data(1 << 20);
    let (served, _) = directories(&content);
    let server = Server::start(served.path(), &["--allow-put"]);
    let file = served.path().join("file");
    let (url, file) = (server.url("/copy"), file.to_str().unwrap());
    let put = ["put", "--pin", &server.pin, &url, file, "--json"];
    // Of how it comes out no more can be said here: the first path is alone at the beginning, and a
    // path gets less while it does not answer, as happens on a busy machine.
    for (heavy, is_second) in [("127.0.0.2=4", true), ("127.0.0.1=4", false)] {
        let slow = ["--rate", "8M", "--weight", heavy];
        let output = run(&[&put[..], &TWO, &slow].concat());
        assert_exit(&output, 0);
        assert!(fs::read(served.path().join("copy")).unwrap() == content);
        let report = &reports(&output)[0];
        let [first, second] = carried(report, "bytes_sent");
        assert_eq!(second.1 > first.1, is_second, "{report}");
    }

    for (more, told) in [
        (&["--weight", "127.0.0.2"][..], "expected IFACE=N or ADDR=N"),
        (
            &["--weight", "127.0.0.2=1", "--scheduler", "lrf"],
            "cannot be used with",
        ),
    ] {
        let output = run(&[&put[..], more].concat());
        assert_exit(&output, 2);
        assert!(stderr(&output).contains(told), "{output:?}");
    }
}

/// The cheap path is enough for the rate, or there is none.
#[test]
fn costly_paths_stand_by() {
    let content = data(1 << 20);
    let (served, target) = directories(&content);
    let server = Server::start(served.path(), &["--scheduler", "round-robin"]);
    let file = target.path().join("copy");
    let file = file.to_str().unwrap();
    let get = ["--cost", "127.0.0.1=1", "--json", "-o", file];
    for rate in [&[][..], &["--rate", "8M"]] {
        let output = server.get("/file", &[&TWO[..], &get, rate].concat());
        assert_exit(&output, 0);
        let report = &reports(&output)[0];
        let [first, second] = carried(report, "bytes_received");
        assert!(second.1 >= content.len() as u64, "{report}");
        assert!(first.1 < 300_000, "{report}");
        assert!(["backup", "suspect"].contains(&&*first.2), "{report}");
    }
    let url = server.url("/file");
    for (more, told) in [
        (&["--cost", "127.0.0.2"][..], "expected IFACE=N or ADDR=N"),
        (
            &["--cost", "127.0.0.3=1"],
            "--cost 127.0.0.3: no path starts there",
        ),
        (
            &["--cost", "127.0.0.2=1", "--backup", "127.0.0.1"],
            "cannot be used with",
        ),
    ] {
        let output = run(&[&["get", &url], &TWO[..], more].concat());
        assert_exit(&output, 2);
        assert!(stderr(&output).contains(told), "{output:?}");
    }
}

/// The server sends less than is wanted as long as it has the cheap path alone: two seconds later
/// more is paid.
#[test]
fn more_is_paid_where_the_rate_is_not_reached() {
    let content = data(1 << 20);
    let (served, target) = directories(&content);
    let server = Server::start(served.path(), &["--client-rate", "2M"]);
    let file = target.path().join("copy");
    let file = file.to_str().unwrap();
    let get = ["--cost", "127.0.0.1=1", "--rate", "8M", "-o", file];
    let events = ["--json=events", "--interval", "0"];
    let output = server.get("/file", &[&TWO[..], &get, &events].concat());
    assert_exit(&output, 0);
    let events = reports(&output);
    let states = events.iter().filter(|event| {
        let local = event["local"].as_str().unwrap_or_default();
        event["event"] == "path" && local.starts_with("127.0.0.1:")
    });
    let mut states: Vec<_> = states
        .map(|event| event["state"].as_str().unwrap())
        .collect();
    // A busy machine may let it fall silent for a moment.
    states.retain(|state| ["active", "backup"].contains(state));
    states.dedup();
    let at = states.iter().position(|state| *state == "backup");
    assert_eq!(states[at.unwrap()..], ["backup", "active"], "{events:?}");
}

/// A user who wants only errors still relies on the option that spares a link.
#[test]
fn options_that_spare_an_absent_link_are_told() {
    let (served, _) = directories(b"x");
    let server = Server::start(served.path(), &[]);
    for (option, value, told) in [
        (
            "--exclude",
            "absent0",
            "mpquic: --exclude absent0 has no address yet; no path starts there once it has one\n",
        ),
        (
            "--backup",
            "absent0",
            "mpquic: --backup absent0 has no address yet; its paths stand by once it has one\n",
        ),
        (
            "--cost",
            "absent0=3",
            "mpquic: --cost absent0 has no address yet; its paths have the cost once it has one\n",
        ),
    ] {
        let output = server.get("/file", &["-q", "-o", "-", option, value]);
        assert_exit(&output, 0);
        assert_eq!(stderr(&output), told);
    }
}

#[test]
fn measurements_show_which_path_stands_by() {
    let server = Server::perf(&[]);
    let address = server.address.to_string();
    let line = [
        "perf",
        &address,
        "--pin",
        &server.pin,
        "--test",
        "upload",
        "--time",
        "1",
    ];
    let more = ["--interval", "0", "--backup", "127.0.0.2", "--json"];
    let output = run(&[&line[..], &more, &TWO].concat());
    assert_exit(&output, 0);
    let reports = reports(&output);
    let [first, second] = carried(reports.last().unwrap(), "bytes_sent");
    assert_eq!(first.2, "active");
    assert!(["backup", "suspect"].contains(&&*second.2), "{second:?}");
}
