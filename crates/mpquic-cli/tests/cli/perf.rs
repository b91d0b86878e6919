//! `mpquic perf`, and what other tools that speak the QUIC performance protocol get.

use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};
use std::time::Duration;

use mpquic_tokio::{ClientConfig, Connection, Endpoint};
use serde_json::Value;
use tokio::time::Instant;

use crate::{Server, assert_exit, directories, mpquic, run, stderr, stdout};

/// A measurement over two paths.
fn perf(server: &Server, more: &[&str]) -> Output {
    let address = server.address.to_string();
    let two = ["--local", "127.0.0.1", "--local", "127.0.0.2"];
    let command = [&["perf", &address, "--pin", &server.pin], &two[..], more].concat();
    run(&command)
}

fn events(output: &Output) -> Vec<Value> {
    let text = stdout(output);
    let events = text.lines().map(|line| serde_json::from_str(line).unwrap());
    events.collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

/// The one result of a measurement.
fn result<'a>(events: &'a [Value], test: &str) -> &'a Value {
    let is_result = |event: &&Value| event["event"] == "result" && event["test"] == test;
    let found: Vec<_> = events.iter().filter(is_result).collect();
    let [result] = found[..] else {
        panic!("{test}: {events:?}");
    };
    let paths = result["paths"].as_array().unwrap();
    let ids: Vec<_> = paths.iter().map(|path| &path["id"]).collect();
    assert_eq!(ids, [0, 1], "{result}");
    for path in paths {
        assert!(path["rtt"]["count"].as_u64().unwrap() > 0, "{result}");
        // A machine with much to do may let one fall silent.
        let state = path["state"].as_str().unwrap();
        assert!(["active", "suspect"].contains(&state), "{result}");
    }
    result
}

/// A server that is killed says nothing. Nobody waits for the idle timeout of 30 s.
#[test]
fn a_server_that_is_killed_is_noticed() {
    for test in ["download", "upload", "latency"] {
        let mut server = Server::perf(&[]);
        let address = server.address.to_string();
        let command = ["perf", &address, "--pin", &server.pin, "--test", test];
        let mut child = mpquic(&[&command[..], &["--time", "60", "--interval", "0.1"]].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The server is connected, and measured.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for _ in 0..4 {
            lines.next().unwrap().unwrap();
        }
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        let killed = Instant::now();
        lines.for_each(|line| drop(line.unwrap()));
        let output = child.wait_with_output().unwrap();
        let took = killed.elapsed();
        assert_exit(&output, 8);
        let told = "the server is gone: nobody listens on its port";
        assert!(stderr(&output).contains(told), "{test}: {output:?}");
        assert!(took < Duration::from_secs(15), "{test}: {took:?}");
    }
}

/// A server of files does not answer measurements, and a server of measurements has no files.
#[test]
fn servers_of_another_protocol_are_told_in_words() {
    let (served, _) = directories(b"content");
    let output = perf(&Server::start(served.path(), &[]), &[]);
    assert_exit(&output, 5);
    assert!(
        stderr(&output).contains("started with --perf"),
        "{output:?}"
    );
    let output = Server::perf(&[]).get("/file", &["-o", "-"]);
    assert_exit(&output, 5);
    assert!(stderr(&output).contains("serves no files"), "{output:?}");
}

/// What is said of downloads and uploads.
fn loads_are_measured(events: &[Value]) {
    for (test, directions) in [
        ("download", &[("download", "bytes_received")][..]),
        ("upload", &[("upload", "bytes_sent")]),
        (
            "both",
            &[("download", "bytes_received"), ("upload", "bytes_sent")],
        ),
    ] {
        let result = result(events, test);
        assert!(number(&result["end"]) >= 0.25, "{result}");
        assert!(
            number(&result["bufferbloat"]["added_ms"]) >= 0.0,
            "{result}"
        );
        assert!(result["bufferbloat"]["grade"].is_string());
        for direction in ["download", "upload"] {
            let carried = directions.iter().find(|(name, _)| *name == direction);
            let Some((_, counter)) = carried else {
                assert!(result[direction].is_null(), "{result}");
                continue;
            };
            let bytes = number(&result[direction]["bytes"]);
            let rate = number(&result[direction]["bits_per_second"]);
            // One direction may end before the other one.
            let seconds = 8.0 * bytes / rate;
            let most = number(&result["end"]) + 1e-6;
            assert!(bytes > 100_000.0, "{result}");
            assert!((0.249..=most).contains(&seconds), "{result}");
            let paths = result["paths"].as_array().unwrap();
            let carried = paths.iter().map(|path| number(&path[counter]));
            assert!(
                carried.clone().all(|carried| carried > 10_000.0),
                "{result}"
            );
            assert!(carried.sum::<f64>() > bytes, "{result}");
            // Acknowledgements and probes are little.
            let back = match counter {
                &"bytes_sent" => "bytes_received",
                _ => "bytes_sent",
            };
            let back = paths.iter().map(|path| number(&path[back])).sum::<f64>();
            assert!(test == "both" || back < bytes / 2.0, "{result}");
        }
    }
}

#[test]
fn everything_is_measured_path_by_path() {
    let server = Server::perf(&["--scheduler", "round-robin"]);
    let tests = "latency,download,upload,both,requests,datagrams";
    let output = perf(
        &server,
        &[
            &[
                "--json",
                "--time",
                "0.25",
                "--interval",
                "0.1",
                "--test",
                tests,
            ],
            &["--scheduler", "round-robin", "--parallel", "4"][..],
        ]
        .concat(),
    );
    assert_exit(&output, 0);
    assert_eq!(stderr(&output), "");
    let events = events(&output);
    assert_eq!(events[0]["event"], "connected");
    assert_eq!(events[0]["multipath"], true);

    let latency = result(&events, "latency");
    assert!(number(&latency["latency"]["p50_ms"]) <= number(&latency["latency"]["max_ms"]));
    let count = number(&latency["latency"]["count"]);
    // One each 20 ms at most.
    let most = number(&latency["end"]) / 0.02 + 1.0;
    assert!(count > 1.0 && count <= most, "{latency}");
    assert!(latency["bufferbloat"].is_null() && latency["download"].is_null());
    loads_are_measured(&events);
    let requests = result(&events, "requests");
    let per_second = number(&requests["latency"]["count"]) / number(&requests["end"]);
    let told = number(&requests["requests_per_second"]);
    assert!((told / per_second - 1.0).abs() < 1e-6, "{requests}");
    let datagrams = &result(&events, "datagrams")["datagrams"];
    // 2 Mbit/s for a quarter of a second, which may begin a little late.
    let sent = number(&datagrams["sent"]);
    assert!((40.0..=63.0).contains(&sent), "{datagrams}");
    assert!(number(&datagrams["returned"]) > 30.0, "{datagrams}");
    for loss in ["upload_loss", "download_loss"] {
        assert!(
            (0.0..0.5).contains(&number(&datagrams[loss])),
            "{datagrams}"
        );
    }

    let is_interval = |event: &&Value| event["event"] == "interval" && event["test"] == "download";
    let intervals: Vec<_> = events.iter().filter(is_interval).collect();
    assert!(!intervals.is_empty());
    // Ten a second, and never more.
    let end = number(&result(&events, "download")["end"]);
    assert!(intervals.len() as f64 <= end / 0.1, "{intervals:?}");
    // The download may end a little before the last of them does, which then tells the rate until
    // its end.
    for part in &intervals[..intervals.len() - 1] {
        let seconds = number(&part["end"]) - number(&part["start"]);
        let rate = 8.0 * number(&part["download"]["bytes"]) / seconds;
        let told = number(&part["download"]["bits_per_second"]);
        assert!(seconds > 0.0 && (told / rate - 1.0).abs() < 1e-6, "{part}");
    }
    for pair in intervals.windows(2) {
        assert_eq!(pair[0]["end"], pair[1]["start"]);
    }
    let parts = intervals
        .iter()
        .map(|part| number(&part["download"]["bytes"]));
    let all = number(&result(&events, "download")["download"]["bytes"]);
    assert!(parts.sum::<f64>() <= all);
}

#[test]
fn people_get_lines_and_tables() {
    let server = Server::perf(&[]);
    let output = perf(&server, &["--time", "0.2", "--interval", "0.1"]);
    assert_exit(&output, 0);
    let text = stdout(&output);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with(&format!("connected to {}", server.address)));
    assert!(lines[0].ends_with("multipath"), "{text}");
    assert!(text.contains("\ndownload: down "), "{text}");
    assert!(text.contains("\nupload: up "), "{text}");
    assert_eq!(text.matches("  bufferbloat: ").count(), 2, "{text}");
    assert_eq!(text.matches("  path  local").count(), 3, "{text}");
    assert!(
        lines.iter().any(|line| line.starts_with("download ")),
        "{text}"
    );
}

#[test]
fn errors_of_the_command_line_are_named() {
    let server = Server::perf(&["--client-requests", "3"]);
    let address = server.address.to_string();
    let quick = ["--time", "0.1"];
    for (more, code, told) in [
        (&["--time", "0"][..], 2, "expected seconds, 0.1 to 86400"),
        (
            &["--test", "speed"],
            2,
            "possible values: latency, download",
        ),
        (&["--datagram-size", "9"], 2, "9 is not in 32..=65000"),
        (
            &["--test", "datagrams", "--datagram-size", "60000"],
            2,
            "--datagram-size 60000 does not fit the paths; expected at most",
        ),
        (
            &["--test", "requests"],
            7,
            "refused a stream with the code 429",
        ),
    ] {
        let output = perf(
            &server,
            &[more, &quick[..2 * usize::from(code != 2)]].concat(),
        );
        assert_exit(&output, code);
        assert!(stderr(&output).contains(told), "{told}: {output:?}");
    }
    let output = run(&["perf", &address, "--test", "latency"]);
    assert_exit(&output, 6);
    // Files are another protocol.
    let output = server.get("/file", &["-o", "-"]);
    assert_exit(&output, 5);
    let (served, _) = directories(b"x");
    let files = Server::start(served.path(), &[]);
    let output = perf(&files, &[]);
    assert_exit(&output, 5);
    let told = stderr(&output);
    assert_eq!(told.lines().count(), 1, "{told}");
    let output = run(&["serve", "--perf", served.path().to_str().unwrap()]);
    assert_exit(&output, 2);
    // What is measured cannot go on over another connection.
    let output = perf(&server, &["--retry-time", "1"]);
    assert_exit(&output, 2);
    assert!(stderr(&output).contains("unexpected argument '--retry-time'"));
}

/// A server that dies in the middle.
#[test]
fn a_lost_server_is_told() {
    let mut server = Server::perf(&[]);
    let address = server.address.to_string();
    let mut child = mpquic(&["perf", &address, "--insecure", "--time", "600"])
        .args(["--test", "download", "--json", "--interval", "0.1"])
        .args(["--stall-timeout", "1"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains("connected"), "{first}");
    server.child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_exit(&output, 8);
    let told = stderr(&output);
    let all = ["nothing for 1 s", "connection lost", "the server is gone"];
    assert!(all.iter().any(|one| told.contains(one)), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
}

/// A connection of a tool that speaks the protocol, and no more.
async fn connect(server: &Server) -> (Endpoint, Connection) {
    let digits = server.pin.strip_prefix("sha256:").unwrap();
    let pin = std::array::from_fn(|index| {
        u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).unwrap()
    });
    let config = ClientConfig::with_pin(pin, &[b"perf"]).unwrap();
    let endpoint = Endpoint::builder().client(config).build().unwrap();
    let connecting = endpoint.connect(server.address, "localhost").unwrap();
    let connection = connecting.await.unwrap();
    (endpoint, connection)
}

#[tokio::test]
async fn streams_are_answered_as_the_protocol_says() {
    let server = Server::perf(&[]);
    let (_endpoint, connection) = connect(&server).await;
    for (wanted, upload) in [
        (0, 0),
        (1, 0),
        (100_000, 0),
        (0, 300_000),
        (70_000, 300_000),
    ] {
        let request = [&u64::to_be_bytes(wanted)[..], &vec![7; upload]].concat();
        let (mut send, mut recv) = connection.open_bi().await.unwrap();
        send.write_all(&request).await.unwrap();
        send.finish().unwrap();
        let answer = recv.read_to_end(1 << 20).await.unwrap();
        assert_eq!(answer.len() as u64, wanted);

        let mut send = connection.open_uni().await.unwrap();
        send.write_all(&request).await.unwrap();
        send.finish().unwrap();
        if wanted > 0 {
            let mut recv = connection.accept_uni().await.unwrap();
            let answer = recv.read_to_end(1 << 20).await.unwrap();
            assert_eq!(answer.len() as u64, wanted);
        }
    }
    // One that ends too early is ended, and nothing more.
    let (mut send, mut recv) = connection.open_bi().await.unwrap();
    send.write_all(&[0; 7]).await.unwrap();
    send.finish().unwrap();
    assert_eq!(recv.read_to_end(1).await.unwrap(), b"");
    // A download without end is sent until it is stopped.
    let (mut send, mut recv) = connection.open_bi().await.unwrap();
    send.write_all(&[0xff; 8]).await.unwrap();
    send.finish().unwrap();
    let mut got = 0;
    while got < 5_000_000 {
        let chunk = recv.read_chunk(usize::MAX, true).await.unwrap().unwrap();
        got += chunk.bytes.len();
    }
    recv.stop(0u32.into()).unwrap();
    let (mut send, mut recv) = connection.open_bi().await.unwrap();
    send.write_all(&u64::to_be_bytes(5)).await.unwrap();
    send.finish().unwrap();
    assert_eq!(recv.read_to_end(9).await.unwrap().len(), 5);
}
