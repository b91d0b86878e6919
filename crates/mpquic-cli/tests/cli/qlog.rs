//! `mpquic qlog`, and the page of a running server.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::operating::ask;
use crate::{Server, assert_exit, data, directories, mpquic, run, stderr, stdout, wait_for_bytes};

/// A log of these records.
fn log(records: &[Value]) -> String {
    let head = json!({
        "file_schema": "urn:ietf:params:qlog:file:sequential",
        "title": "</script><script>alert(0)</script>",
        "trace": { "vantage_point": { "type": "server" } },
    });
    let records = [&[head], records].concat();
    records.iter().map(|it| format!("\u{1e}{it}\n")).collect()
}

fn sent(time: f64) -> Value {
    json!({
        "time": time,
        "name": "quic:packet_sent",
        "data": {
            "header": { "packet_type": "1RTT", "packet_number": 7, "path_id": 1, "dcid": "c0ffee" },
            "frames": [
                { "frame_type": "path_challenge", "data": "5ec7e75ec7e7" },
                { "frame_type": "new_token", "token": { "raw": { "data": "70ce70ce" } } },
            ],
            "raw": { "length": 1200 },
        },
    })
}

/// The logs in a page, by name.
fn embedded(page: &str) -> Vec<(String, Vec<Value>)> {
    let mut parts = page.split("<script type=\"application/qlog+json-seq\" data-name=\"");
    parts.next();
    let logs = parts.map(|part| {
        let (name, rest) = part.split_once("\">\n").unwrap();
        let (text, _) = rest.split_once("</script>").unwrap();
        let records = text.lines().map(|line| serde_json::from_str(line).unwrap());
        (name.to_owned(), records.collect())
    });
    logs.collect()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_page_shows_the_log_of_a_download() {
    let (served, target) = directories(&data(300_000));
    let server = Server::start(served.path(), &[]);
    let (logs, file) = (target.path().join("logs"), target.path().join("file"));
    let more = ["--qlog-dir", text(&logs), "-o", text(&file)];
    assert_exit(&server.get("/file", &more), 0);
    let entry = fs::read_dir(&logs).unwrap().next().unwrap().unwrap().path();
    let page = target.path().join("page.html");
    assert_exit(&run(&["qlog", text(&entry), "-o", text(&page)]), 0);
    let page = fs::read_to_string(page).unwrap();
    let logs = embedded(&page);
    assert_eq!(logs.len(), 1);
    let (name, records) = &logs[0];
    // The file's own name has a connection ID in it.
    assert_eq!(name, "log 1, client");
    let file_name = entry.file_name().unwrap().to_str().unwrap();
    let (id, _) = file_name.split_once('_').unwrap();
    assert!(id.len() >= 16 && !page.contains(id), "{id}");
    let count = |name: &str| records.iter().filter(|it| it["name"] == name).count();
    let original = fs::read_to_string(&entry).unwrap();
    let received = original.matches("\"quic:packet_received\"").count();
    assert_eq!(count("quic:packet_received"), received);
    assert!(received > 200, "{received}");
    for event in [
        "quic:recovery_metrics_updated",
        "quic:tuple_assigned",
        "quic:connection_closed",
    ] {
        assert!(count(event) > 0, "{event}");
    }
    for secret in ["dcid", "stateless_reset_token", "connection_ids"] {
        assert!(original.contains(secret), "{secret}");
        assert!(!page.contains(&format!("\"{secret}\"")), "{secret}");
    }
}

// Other systems have no such names.
#[cfg(unix)]
#[test]
fn text_of_peers_is_never_markup() {
    let target = tempfile::tempdir().unwrap();
    let evil = "</script><img src=x onerror=alert(1)><script>alert(2)</script><!--";
    let closed = json!({
        "time": 2.0,
        "name": "quic:connection_closed",
        "data": { "trigger": "application", "reason": evil },
    });
    let frame = json!({
        "time": 1.5,
        "name": "quic:packet_received",
        "data": {
            "header": { "packet_type": evil },
            "frames": [{ "frame_type": "connection_close", "reason": evil }],
        },
    });
    let file = target.path().join("<img src=x onerror=alert(3)>\".sqlog");
    fs::write(&file, log(&[sent(1.0), frame, closed])).unwrap();
    let output = run(&["qlog", text(&file), "-o", "-"]);
    assert_exit(&output, 0);
    let page = stdout(&output);
    assert!(!page.contains("<img"), "no element");
    assert_eq!(
        page.matches("<script").count(),
        2,
        "the log and the page's own"
    );
    assert_eq!(page.matches("</script>").count(), 2);
    for secret in ["c0ffee", "5ec7e7", "70ce"] {
        assert!(!page.contains(secret), "{secret}");
    }
    let (_, records) = &embedded(&page)[0];
    assert_eq!(records.len(), 4);
    assert_eq!(records[3]["data"]["reason"], evil);
    assert_eq!(records[1]["data"]["header"]["packet_number"], 7);
}

#[test]
fn a_log_in_one_object_is_taken_as_well() {
    let target = tempfile::tempdir().unwrap();
    let file = target.path().join("others.qlog");
    let trace =
        |kind: &str| json!({ "vantage_point": { "type": kind }, "events": [sent(1.0), sent(2.0)] });
    let whole = json!({ "qlog_version": "0.4", "traces": [trace("client"), trace("server")] });
    fs::write(&file, serde_json::to_string_pretty(&whole).unwrap()).unwrap();
    let page = stdout(&run(&["qlog", text(&file), "-o", "-"]));
    let logs = embedded(&page);
    assert_eq!(logs.len(), 2);
    assert_eq!(logs[1].1[0]["trace"]["vantage_point"]["type"], "server");
    assert_eq!(logs[1].1.len(), 3);
}

#[test]
fn unreadable_log_is_named_and_no_page_written() {
    let target = tempfile::tempdir().unwrap();
    let page = target.path().join("page.html");
    fs::write(&page, "as it was").unwrap();
    let file = target.path().join("x");
    let damaged = log(&[sent(1.0)]) + "\u{1e}{\"time\": oops}\n" + &log(&[]);
    for (content, expected) in [
        ("", "not a qlog: it is empty"),
        (
            "hello\n",
            "a .qlog is one JSON object, a .sqlog has one in each line",
        ),
        ("{\"a\":\n1}", "it has no `traces`"),
        (&damaged, "line 3 is damaged"),
        ("\u{1e}[1]\n\u{1e}{}\n", "line 1 is damaged"),
    ] {
        fs::write(&file, content).unwrap();
        let output = run(&["qlog", text(&file), "-o", text(&page)]);
        assert_exit(&output, 3);
        let told = stderr(&output);
        assert!(
            told.contains(text(&file)) && told.contains(expected),
            "{told}"
        );
        assert_eq!(fs::read_to_string(&page).unwrap(), "as it was");
    }
    let missing = run(&["qlog", text(&target.path().join("none")), "-o", text(&page)]);
    assert_exit(&missing, 3);
    fs::write(&file, log(&[sent(1.0)])).unwrap();
    let nowhere = target.path().join("no").join("page.html");
    let output = run(&["qlog", text(&file), "-o", text(&nowhere)]);
    assert_exit(&output, 3);
    assert!(stderr(&output).contains(text(&nowhere)), "{output:?}");
    // The last line of a log that is still written may be cut short.
    fs::write(&file, log(&[sent(1.0)]) + "\u{1e}{\"time\": 3, \"na").unwrap();
    assert_exit(&run(&["qlog", text(&file), "-o", text(&page)]), 0);
    let names = fs::read_dir(target.path()).unwrap().count();
    assert_eq!(names, 2, "nothing else is left");
}

#[test]
fn a_line_without_an_end_is_not_read() {
    let target = tempfile::tempdir().unwrap();
    let file = target.path().join("large.sqlog");
    fs::write(&file, log(&[]) + &"x".repeat(9 << 20)).unwrap();
    let output = run(&["qlog", text(&file), "-o", "-"]);
    assert_exit(&output, 3);
    assert!(
        stderr(&output).contains("line 2 is longer than 8.0 MiB"),
        "{output:?}"
    );
}

#[test]
fn without_a_log_the_page_is_empty() {
    let page = stdout(&run(&["qlog", "-o", "-"]));
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert!(embedded(&page).is_empty());
}

#[cfg(unix)]
#[test]
fn a_server_shows_its_paths_if_asked_to() {
    let (served, target) = directories(&data(600_000));
    let metrics = ["--metrics", "127.0.0.1:0", "--client-rate", "8M"];
    let server = Server::start(served.path(), &[&metrics[..], &["--live-page"]].concat());
    let mut lines = server.lines.iter();
    let address = lines.find_map(|line| line.strip_prefix("paths on http://"));
    let address = address.unwrap().strip_suffix("/paths").unwrap();
    let (status, page) = ask(address, "GET /paths");
    assert_eq!(status, 200);
    assert!(page.starts_with("<!DOCTYPE html>"), "{page}");
    let now = || -> Value {
        let (status, text) = ask(address, "GET /paths.json");
        assert_eq!(status, 200);
        serde_json::from_str(&text).unwrap()
    };
    assert_eq!(now(), json!({ "open": 0, "connections": [] }));
    // More than half a second.
    let (url, file) = (server.url("/file"), target.path().join("copy"));
    let get = ["get", &url, "--insecure", "-q", "-o", text(&file)];
    let get = mpquic(&get).spawn().unwrap();
    wait_for_bytes(&target.path().join("copy.part"), 100_000);
    let told = now();
    assert_exit(&get.wait_with_output().unwrap(), 0);
    assert_eq!(told["open"], 1);
    let path = &told["connections"][0]["paths"][0];
    assert_eq!((&path["id"], &path["state"]), (&json!(0), &json!("active")));
    assert!(path["bytes_sent"].as_u64().unwrap() > 100_000, "{told}");
    // Not the client's address.
    assert_eq!(path["network"], "127.0.0.0/24");
    assert!(path.get("remote").is_none(), "{told}");

    let without = Server::start(served.path(), &["--metrics", "127.0.0.1:0"]);
    let mut lines = without.lines.iter();
    let address = lines.find_map(|line| line.strip_prefix("metrics on http://"));
    let address = address.unwrap().strip_suffix("/metrics").unwrap();
    for path in ["/paths", "/paths.json"] {
        assert_eq!(ask(address, &format!("GET {path}")).0, 404);
    }
    assert_exit(&run(&["serve", "--live-page"]), 2);
}
