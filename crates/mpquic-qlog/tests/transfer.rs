//! Logs of transfers in the laboratory, read back.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mpquic_qlog::Directory;
use mpquic_sim::{LinkConfig, Pair, Setup, Side, Topology};
use serde_json::Value;

const MS: Duration = Duration::from_millis(1);

fn logged(setup: Setup, directory: &Path) -> Setup {
    let directory = Arc::new(Directory::create(directory).unwrap());
    setup.transport(|transport| transport.qlog = Some(directory.clone()))
}

fn topology() -> Topology {
    Topology::new()
        .path("wifi", LinkConfig::new(40.0, 8 * MS).loss(0.01))
        .path("lte", LinkConfig::new(20.0, 30 * MS))
}

/// The only log of one side, a record per line.
fn read(directory: &Path, role: &str) -> Vec<Value> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(&format!("_{role}.sqlog")))
        .collect();
    assert_eq!(names.len(), 1);
    let content = fs::read(names.remove(0)).unwrap();
    let mut records = content.split(|byte| *byte == 0x1e);
    // RFC 7464: nothing stands before the first separator, and a line ends each record.
    assert_eq!(records.next(), Some(&[][..]));
    records
        .map(|record| {
            assert_eq!(record.last(), Some(&b'\n'));
            serde_json::from_slice(record).unwrap()
        })
        .collect()
}

fn of<'a>(records: &'a [Value], name: &'a str) -> impl Iterator<Item = &'a Value> {
    let name = format!("quic:{name}");
    records.iter().filter(move |record| record["name"] == *name)
}

fn frame_types(records: &[Value]) -> BTreeSet<&str> {
    of(records, "packet_sent")
        .chain(of(records, "packet_received"))
        .flat_map(|record| record["data"]["frames"].as_array().unwrap())
        .map(|frame| frame["frame_type"].as_str().unwrap())
        .collect()
}

fn on_path(path: u32) -> impl Fn(&&Value) -> bool {
    move |record| record["data"]["header"]["path_id"] == path
}

#[test]
fn a_transfer_over_two_paths_is_logged_packet_by_packet() {
    let directory = tempfile::tempdir().unwrap();
    let setup = logged(Setup::new().tls(), directory.path());
    let mut pair = Pair::connected(&topology(), setup);
    pair.open_all_paths();
    pair.transfer(Side::Server, 3_000_000, Duration::from_secs(20));
    let mut expected = Vec::new();
    for side in [Side::Client, Side::Server] {
        let connection = pair.connection(side);
        let paths: Vec<_> = connection.paths().collect();
        assert_eq!(paths.len(), 2);
        let stats: Vec<_> = paths
            .into_iter()
            .map(|path| connection.path_stats(path).unwrap())
            .collect();
        expected.push((stats, connection.stats()));
    }
    drop(pair);
    for (role, (paths, connection)) in ["client", "server"].into_iter().zip(expected) {
        let records = read(directory.path(), role);
        check_head(&records[0], role);
        check_events(&records[1..]);
        let records = &records[1..];
        for path in paths {
            let on = on_path(path.id.0);
            let count = |name| of(records, name).filter(&on).count() as u64;
            assert_eq!(
                count("packet_sent"),
                path.packets_sent,
                "{role} {}",
                path.id
            );
            assert_eq!(count("packet_received"), path.packets_received, "{role}");
            assert_eq!(count("packet_lost"), path.packets_lost, "{role}");
            assert!(path.packets_sent > 0 && path.packets_received > 0);
        }
        let dropped = of(records, "packet_dropped")
            .filter(|record| record["data"]["trigger"] != "duplicate")
            .count();
        assert_eq!(dropped as u64, connection.packets_dropped);
        let types = frame_types(records);
        for name in [
            "crypto",
            "stream",
            "path_ack",
            "path_challenge",
            "path_response",
            "path_new_connection_id",
            "handshake_done",
            "padding",
        ] {
            assert!(types.contains(name), "{role}: no {name} in {types:?}");
        }
    }
}

fn check_head(head: &Value, role: &str) {
    assert_eq!(head["file_schema"], "urn:ietf:params:qlog:file:sequential");
    assert_eq!(head["serialization_format"], "application/qlog+json-seq");
    let trace = &head["trace"];
    assert_eq!(trace["vantage_point"]["type"], role);
    assert_eq!(
        trace["event_schemas"],
        serde_json::json!(["urn:ietf:params:qlog:events:quic"])
    );
    assert!(trace["common_fields"]["group_id"].is_string());
}

fn check_events(events: &[Value]) {
    let mut before = 0.0;
    for event in events {
        let time = event["time"].as_f64().unwrap();
        assert!(time >= before, "{event}");
        before = time;
        assert!(event["name"].as_str().unwrap().starts_with("quic:"));
        assert!(event["data"].is_object());
        let header = &event["data"]["header"];
        assert!(header.is_null() || header["path_id"].is_u64(), "{event}");
    }
    for name in ["packet_sent", "recovery_metrics_updated", "tuple_assigned"] {
        let tuples: BTreeSet<_> = of(events, name)
            .map(|event| event["tuple"].as_str().unwrap())
            .collect();
        assert_eq!(tuples, BTreeSet::from(["0", "1"]), "{name}");
    }
    assert_eq!(of(events, "connection_started").count(), 1);
    let initiators: BTreeSet<_> = of(events, "parameters_set")
        .map(|event| event["data"]["initiator"].as_str().unwrap())
        .collect();
    assert_eq!(initiators, BTreeSet::from(["local", "remote"]));
    for event in of(events, "parameters_set") {
        assert!(event["data"]["initial_max_path_id"].is_u64());
    }
    let metrics: Vec<_> = of(events, "recovery_metrics_updated")
        .map(|event| &event["data"])
        .collect();
    assert!(metrics.iter().all(|data| data["path_id"].is_u64()));
    let measured = metrics.iter().filter(|data| data["smoothed_rtt"].is_f64());
    assert!(measured.count() > 10);
}

#[test]
fn the_end_and_key_updates_are_logged() {
    let directory = tempfile::tempdir().unwrap();
    let setup = logged(Setup::new().tls(), directory.path());
    let mut pair = Pair::connected(&topology(), setup);
    pair.open_all_paths();
    pair.transfer(Side::Client, 100_000, Duration::from_secs(10));
    let now = pair.now();
    assert!(pair.client().initiate_key_update(now));
    pair.transfer(Side::Client, 100_000, Duration::from_secs(10));
    pair.close(Side::Client);
    pair.run_until_drained(Duration::from_secs(10));
    drop(pair);
    for (role, initiator, trigger) in [
        ("client", "local", "local_update"),
        ("server", "remote", "remote_update"),
    ] {
        let records = read(directory.path(), role);
        let closed: Vec<_> = of(&records, "connection_closed").collect();
        assert_eq!(closed.len(), 1);
        assert_eq!(closed[0]["data"]["initiator"], initiator);
        assert_eq!(closed[0]["data"]["trigger"], "application");
        assert!(frame_types(&records).contains("connection_close"));
        let updates: Vec<_> = of(&records, "key_updated")
            .filter(|event| event["data"]["trigger"] == trigger)
            .map(|event| event["data"]["key_type"].as_str().unwrap())
            .collect();
        assert_eq!(updates, ["client_1rtt_secret", "server_1rtt_secret"]);
        let discarded: BTreeSet<_> = of(&records, "key_discarded")
            .map(|event| event["data"]["key_type"].as_str().unwrap())
            .collect();
        assert!(discarded.contains("server_handshake_secret"));
    }
}

#[test]
fn an_address_change_gives_the_path_another_tuple() {
    let directory = tempfile::tempdir().unwrap();
    let setup = logged(Setup::new(), directory.path());
    let topology = Topology::new().natted_path("wifi", LinkConfig::new(40.0, 8 * MS));
    let mut pair = Pair::connected(&topology, setup);
    pair.transfer(Side::Client, 50_000, Duration::from_secs(10));
    pair.rebind("wifi", true);
    pair.transfer(Side::Client, 50_000, Duration::from_secs(10));
    drop(pair);
    let records = read(directory.path(), "server");
    let assigned: Vec<_> = of(&records, "tuple_assigned").collect();
    let tuples: Vec<_> = assigned
        .iter()
        .map(|event| &event["data"]["tuple_id"])
        .collect();
    assert_eq!(tuples, ["0", "0.1"]);
    let remote = |index: usize| &assigned[index]["data"]["tuple_remote"];
    assert_ne!(remote(0), remote(1));
    let last = of(&records, "packet_sent").last().unwrap();
    assert_eq!(last["tuple"], "0.1");
    assert_eq!(last["data"]["header"]["path_id"], 0);
}
