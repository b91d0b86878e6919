//! How the secrets of connections are agreed on: `--key-exchange`, and what is told of it.

use std::fs;

use serde_json::Value;

use crate::{Server, assert_exit, directories, names, run, stderr, stdout};

const HYBRID: &str = "X25519MLKEM768";
const CURVE: &str = "x25519";

fn objects(text: &str) -> Vec<Value> {
    let objects = text.lines().map(serde_json::from_str);
    objects.map(Result::unwrap).collect()
}

/// Either side may leave the hybrid out; each command tells what was agreed on, and so do logs.
#[test]
fn the_hybrid_is_used_unless_either_side_leaves_it_out() {
    let (served, other) = directories(b"content");
    let logs = tempfile::tempdir().unwrap();
    let classical = ["--key-exchange", "classical"];
    for (at_server, at_client, expected) in [
        (&[][..], &[][..], HYBRID),
        (
            &["--key-exchange", "hybrid"],
            &["--key-exchange", "hybrid"],
            HYBRID,
        ),
        (&classical, &[], CURVE),
        (&[], &classical, CURVE),
    ] {
        let logs = logs.path().join(format!("{at_server:?} {at_client:?}"));
        let server = Server::start(served.path(), &[&["--allow-put"], at_server].concat());
        let logged = ["-o", "-", "--json", "--qlog-dir", logs.to_str().unwrap()];
        let got = server.get("/file", &[&logged, at_client].concat());
        assert_exit(&got, 0);
        assert_eq!(objects(&stderr(&got))[0]["key_exchange"], expected);
        let log = fs::read_to_string(logs.join(&names(&logs)[0])).unwrap();
        let event = format!("\"data\":{{\"chosen_group\":\"{expected}\"}}");
        assert!(log.contains(&event), "{log}");

        let file = other.path().join("sent");
        fs::write(&file, b"content").unwrap();
        let to = [server.url("/sent"), file.to_str().unwrap().to_owned()];
        let put = ["put", "--json", "--pin", &server.pin, &to[0], &to[1]];
        let put = run(&[&put, at_client].concat());
        assert_exit(&put, 0);
        assert_eq!(objects(&stdout(&put))[0]["key_exchange"], expected);

        let paths = ["paths", &server.url(""), "--pin", &server.pin, "--json"];
        let paths = run(&[&paths, at_client].concat());
        assert_exit(&paths, 0);
        let reached = objects(&stdout(&paths)).into_iter();
        let reached: Vec<_> = reached.filter(|row| !row["server"].is_null()).collect();
        assert!(!reached.is_empty());
        assert!(reached.iter().all(|row| row["key_exchange"] == expected));
    }
}

#[test]
fn measurements_and_the_demo_tell_the_key_exchange() {
    let server = Server::perf(&["--key-exchange", "classical"]);
    let address = server.address.to_string();
    let short = ["--json", "--test", "latency", "--time", "0.1"];
    let output = run(&[&["perf", &address, "--pin", &server.pin], &short[..]].concat());
    assert_exit(&output, 0);
    let connected = &objects(&stdout(&output))[0];
    assert_eq!(connected["key_exchange"], CURVE, "{connected}");

    let output = run(&["demo", "--mib", "1", "--rate", "0", "--steady", "--json"]);
    assert_exit(&output, 0);
    assert_eq!(objects(&stdout(&output))[0]["key_exchange"], HYBRID);
}

#[test]
fn other_key_exchanges_are_refused_by_name() {
    let output = run(&["get", "https://localhost/", "--key-exchange", "quantum"]);
    assert_exit(&output, 2);
    let text = stderr(&output);
    assert!(
        text.contains("'quantum'") && text.contains("--key-exchange"),
        "{text}"
    );
    assert!(text.contains("hybrid, classical"), "{text}");
}
