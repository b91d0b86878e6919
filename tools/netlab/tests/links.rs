//! The whole program, with links between network namespaces. Needs root, iproute2 and ping.

use std::process::Command;

use serde_json::Value;

/// Runs a client over the links of a scenario: the JSON line and the client's output.
fn run(scenario: &str, client: &str) -> (Value, String) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
    let out = Command::new(env!("CARGO_BIN_EXE_netlab"))
        .args(["run", &format!("{folder}/{scenario}.toml")])
        .args(["--capture", "--client", client])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    let line: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {out:?}"));
    let output = line["client_stdout"].as_str().unwrap().to_string();
    (line, output)
}

fn counter(line: &Value, link: usize, name: &str) -> u64 {
    line["links"][link][name].as_u64().unwrap()
}

/// The shortest round trip that `ping` saw, in milliseconds.
fn shortest(output: &str) -> f64 {
    let figures = output.split("min/avg/max/mdev = ").nth(1).unwrap();
    figures.split('/').next().unwrap().parse().unwrap()
}

#[test]
#[ignore = "needs root, iproute2 and ping"]
fn a_ping_over_either_path_takes_the_round_trip_of_the_path() {
    let client = "ping -c 5 -i 0.2 10.100.0.2 && ping -c 3 -i 0.2 10.101.0.2";
    let (line, output) = run("two-equal", client);
    assert_eq!(line["exit"], 0, "{line}");
    assert!(shortest(&output) >= 20.0, "{output}");
    // Path 0 to the server and back, path 1 to the server and back.
    for (link, packets) in [(0, 5), (1, 5), (2, 3), (3, 3)] {
        assert_eq!(counter(&line, link, "in_packets"), packets, "{line}");
        assert_eq!(counter(&line, link, "delivered_packets"), packets, "{line}");
    }
}

#[test]
#[ignore = "needs root, iproute2 and ping"]
fn an_outage_of_the_schedule_drops_packets_of_its_path_only() {
    let client = "sleep 3.2; ping -c 3 -i 0.2 -W 1 10.100.0.2; ping -c 3 -i 0.2 10.101.0.2";
    let (line, output) = run("handover-wifi-lte", client);
    assert_eq!(line["exit"], 0, "{line}");
    assert!(
        output.contains("3 packets transmitted, 0 received"),
        "{output}"
    );
    assert_eq!(counter(&line, 0, "dropped_blackhole"), 3, "{line}");
    assert_eq!(counter(&line, 3, "delivered_packets"), 3, "{line}");
}

#[test]
#[ignore = "needs root, iproute2 and ping"]
fn a_command_has_the_environment_and_its_exit_code_is_netlabs() {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/two-equal.toml");
    let script = "[ $NETLAB_SERVER_ADDRS = 10.100.0.2,10.101.0.2 ] && exit 7";
    let out = Command::new(env!("CARGO_BIN_EXE_netlab"))
        .args(["up", scenario, "--", "sh", "-c", script])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(7), "{out:?}");
    let line: Value = serde_json::from_slice(&out.stderr).unwrap();
    assert_eq!(line["exit"], 7);
}
