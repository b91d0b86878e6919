//! `mpquic record`, `mpquic advise`, and the policies that these lead to.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::{Server, assert_exit, data, directories, run, stderr, stdout};

/// The value of a key of each path of a scenario.
fn of_paths(scenario: &str, key: &str) -> Vec<String> {
    let start = format!("{key} = ");
    let values = scenario
        .lines()
        .filter_map(|line| line.strip_prefix(&start));
    values
        .map(|value| value.trim_matches('"').to_owned())
        .collect()
}

#[test]
fn recorded_scenario_can_be_run() {
    let server = Server::perf(&["--client-rate", "20M"]);
    let target = tempfile::tempdir().unwrap();
    let file = target.path().join("here.toml");
    let file = file.to_str().unwrap();
    let address = server.address.to_string();
    let two = [
        "--local",
        "127.0.0.1",
        "--local",
        "127.0.0.2",
        "--pin",
        &server.pin,
    ];
    let recorded = [
        "record", &address, "--time", "0.8", "--size", "1", "-o", file,
    ];
    let output = run(&[&recorded[..], &two].concat());
    assert_exit(&output, 0);
    assert!(
        stderr(&output).contains("measuring 127.0.0.2"),
        "{output:?}"
    );
    assert!(
        !stderr(&output).contains("no round trip came back"),
        "{output:?}"
    );
    let scenario = fs::read_to_string(file).unwrap();
    assert_eq!(of_paths(&scenario, "name"), ["127-0-0-1", "127-0-0-2"]);
    for rate in of_paths(&scenario, "rate_mbit") {
        let rate: f64 = rate.parse().unwrap();
        // The limit is 20, but who was kept from running catches up.
        assert!((1.0..200.0).contains(&rate), "{scenario}");
    }
    let output = run(&["lab", "run", file, "--runs", "1", "-q"]);
    assert_exit(&output, 0);
    assert!(
        stdout(&output).contains("1 MB over 127-0-0-1 and"),
        "{output:?}"
    );
}

#[test]
fn a_log_shows_the_paths_of_a_download() {
    let (served, target) = directories(&data(1_500_000));
    let server = Server::start(served.path(), &[]);
    let logs = target.path().join("logs");
    let file = target.path().join("file");
    let [logs, file] = [&logs, &file].map(|path| path.to_str().unwrap());
    let more = ["--rate", "16M", "--qlog-dir", logs, "-o", file];
    assert_exit(&server.get("/file", &more), 0);
    let entry = fs::read_dir(logs).unwrap().next().unwrap().unwrap().path();
    let output = run(&["record", "--log", entry.to_str().unwrap()]);
    assert_exit(&output, 0);
    let scenario = stdout(&output);
    let rates = of_paths(&scenario, "rate_mbit");
    // How fast that is depends on the machine. Below, a log is measured to the bit.
    let is_rate = |rate: &String| rate.parse::<f64>().is_ok_and(|rate| rate > 0.0);
    assert!(!rates.is_empty() && rates.iter().all(is_rate), "{scenario}");

    for (content, expected) in [
        ("hello", "not a qlog file (JSON-SEQ): line 1"),
        ("", "not the log of a client"),
        (
            "{\"trace\":{\"vantage_point\":{\"type\":\"server\"}}}",
            "not the log of a client",
        ),
        (
            "{\"trace\":{\"vantage_point\":{\"type\":\"client\"}}}",
            "it shows no download",
        ),
    ] {
        fs::write(file, content).unwrap();
        let output = run(&["record", "--log", file]);
        assert_exit(&output, 3);
        assert!(stderr(&output).contains(expected), "{output:?}");
    }
    let output = run(&["record"]);
    assert_exit(&output, 2);
    assert!(stderr(&output).contains("<SERVER>"), "{output:?}");
}

/// A record of a log that tells of a packet.
fn packet(time: u64, path: u64, number: u64, bytes: u64) -> String {
    format!(
        "{{\"time\":{time},\"name\":\"quic:packet_received\",\"data\":{{\"raw\":{{\"length\":{bytes}}},\
         \"header\":{{\"packet_type\":\"1RTT\",\"path_id\":{path},\"packet_number\":{number}}}}}}}"
    )
}

#[test]
fn damaged_logs_are_refused_at_the_line() {
    let target = tempfile::tempdir().unwrap();
    let file = target.path().join("client.sqlog");
    let record = |records: &[String]| {
        let head = "{\"trace\":{\"vantage_point\":{\"type\":\"client\"}}}".to_owned();
        let rtt =
            "{\"time\":0,\"name\":\"quic:recovery_metrics_updated\",\"data\":{\"latest_rtt\":20}}";
        let load = (0..2000).map(|number| packet(number, 0, number, 1222));
        let lines = [head, rtt.to_owned()].into_iter().chain(load);
        let lines: Vec<_> = lines.chain(records.iter().cloned()).collect();
        fs::write(&file, lines.join("\n\u{1e}")).unwrap();
        run(&["record", "--log", file.to_str().unwrap()])
    };
    let cut = || "{\"time\":2000,\"na".to_owned();
    // Only the last line may be cut short.
    for whole in [&[][..], &[cut()], &[cut(), "\n".to_owned()]] {
        let output = record(whole);
        assert_exit(&output, 0);
        assert_eq!(of_paths(&stdout(&output), "rate_mbit"), ["10.000"]);
    }
    let many: Vec<_> = (0..65).map(|path| packet(2000, path, 5000, 1222)).collect();
    let rtt = packet(2000, 0, 5000, 1)
        .replace("packet_received", "recovery_metrics_updated")
        .replace("\"raw\"", "\"latest_rtt\":-1,\"raw\"");
    for (records, expected) in [
        (
            &[cut(), packet(2000, 0, 2000, 1222)][..],
            "line 2003 is damaged",
        ),
        (
            &[
                packet(2000, 0, 2000, 1 << 63),
                packet(2000, 0, 2001, 1 << 63),
            ],
            "line 2003: a packet of",
        ),
        (
            &[packet(2000, 0, 2000, 65_536)],
            "line 2003: a packet of 65536 bytes",
        ),
        (
            &[packet(3_600_001, 0, 2000, 1222)],
            "line 2003: its time, 3600001 ms",
        ),
        (&[rtt], "line 2003: a round trip of -1 ms"),
        (&many, "line 2067: path 64"),
    ] {
        let output = record(records);
        assert_exit(&output, 3);
        assert!(stderr(&output).contains(expected), "{output:?}");
    }
}

/// Two links, of which the second is hardly worth having, or is the only good one.
fn scenario(directory: &Path, rates: [f64; 2]) -> String {
    let [first, second] = rates;
    let file = directory.join("two.toml");
    let text = format!(
        "schedulers = [\"lrf\"]\nruns = 3\nworkload = {{ kind = \"file\", size_kb = 500 }}\n\
         [[path]]\nname = \"wifi\"\nrate_mbit = {first}\nrtt_ms = 20\n\
         [[path]]\nname = \"lte\"\nrate_mbit = {second}\nrtt_ms = 30\n"
    );
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn advice_is_given_in_words_and_as_a_policy() {
    let (served, target) = directories(b"x");
    let policy = target.path().join("policy.toml");
    let policy = policy.to_str().unwrap();
    let few = ["--schedulers", "lrf", "--controllers", "cubic", "-q"];
    let file = scenario(target.path(), [20.0, 20.0]);
    let output = run(&[&["advise", &file, "-o", policy], &few[..]].concat());
    assert_exit(&output, 0);
    let words = stdout(&output);
    for expected in [
        "Use the scheduler ",
        "times as good as the best over a single path",
        "% of all",
    ] {
        assert!(words.contains(expected), "{words}");
    }
    // The default was tried, too: two schedulers over both paths, one over each, two controllers.
    assert_eq!(
        words
            .lines()
            .filter(|line| line.starts_with("  auto, "))
            .count(),
        6,
        "{words}"
    );
    assert_eq!(
        words
            .lines()
            .filter(|line| line.starts_with("  lrf, "))
            .count(),
        2,
        "{words}"
    );

    // Who sends uses it, or says what is wrong with it.
    let server = Server::start(served.path(), &["--policy", policy]);
    let fetched = target.path().join("fetched");
    let fetched = fetched.to_str().unwrap();
    assert_exit(
        &server.get("/file", &["--policy", policy, "-o", fetched]),
        0,
    );
    let output = server.get("/file", &["--policy", policy, "--cc", "olia"]);
    assert_exit(&output, 2);
    assert!(
        stderr(&output).contains("cannot be used with"),
        "{output:?}"
    );
    for (content, expected) in [
        ("scheduler = \"lrf\"", "expected `scheduler` and `cc`"),
        ("scheduler = \"lrv\"\ncc = \"olia\"", "lrv"),
        ("scheduler = \"lrf\"\ncc = \"cubik\"", "cubik"),
    ] {
        fs::write(policy, content).unwrap();
        let output = server.get("/file", &["--policy", policy]);
        assert_exit(&output, 2);
        assert!(stderr(&output).contains(expected), "{output:?}");
    }
}

#[test]
fn one_good_path_is_enough() {
    let target = tempfile::tempdir().unwrap();
    let few = ["--schedulers", "auto", "--controllers", "coupled-bbr", "-q"];
    let file = scenario(target.path(), [50.0, 0.05]);
    let output = run(&[&["advise", &file, "--json"], &few[..]].concat());
    assert_exit(&output, 0);
    let advice: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(advice["one_path"], "wifi", "{advice}");
    let words = stdout(&run(&[&["advise", &file], &few[..]].concat()));
    // A path's name in a scenario need not be one that `--local` takes.
    assert!(
        words.contains("to wifi. A client uses only this one if its `--local` names"),
        "{words}"
    );
    assert_eq!(advice["tried"].as_array().unwrap().len(), 3);

    let file = target.path().join("two.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("rtt_ms = 30", "rtt_ms = [30, 40]")).unwrap();
    let output = run(&[&["advise", file.to_str().unwrap()], &few[..]].concat());
    assert_exit(&output, 2);
    assert!(stderr(&output).contains("lists of values"), "{output:?}");
}
