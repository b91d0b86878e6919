//! Logs of transfers in the laboratory, read back.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mpquic_core::crypto::rustls::KeyExchange;
use mpquic_core::{PathId, PathStatus, TransportErrorCode, Version};
use mpquic_qlog::Directory;
use mpquic_qlog::schema::{self, Summary};
use mpquic_sim::{AcceptPolicy, LinkConfig, Pair, Setup, Side, Topology};
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

/// The only log of one side, a record per line. It keeps to the schema.
fn read(directory: &Path, role: &str) -> Vec<Value> {
    read_checked(directory, role).0
}

fn read_checked(directory: &Path, role: &str) -> (Vec<Value>, Summary) {
    let mut logs = read_all(directory, role);
    assert_eq!(logs.len(), 1);
    logs.remove(0)
}

fn read_all(directory: &Path, role: &str) -> Vec<(Vec<Value>, Summary)> {
    let suffix = format!("_{role}.sqlog");
    fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(&suffix))
        .filter(|path| !path.ends_with("endpoint_server.sqlog"))
        .map(|path| {
            let content = fs::read(path).unwrap();
            let summary = schema::check(&content).unwrap();
            (records(&content), summary)
        })
        .collect()
}

fn records(content: &[u8]) -> Vec<Value> {
    let mut records = content.split(|byte| *byte == 0x1e);
    // RFC 7464: nothing stands before the first separator, and a line ends each record.
    assert_eq!(records.next(), Some(&[][..]));
    let records = records.map(|record| {
        assert_eq!(record.last(), Some(&b'\n'));
        serde_json::from_slice(record).unwrap()
    });
    records.collect()
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
        let (records, summary) = read_checked(directory.path(), role);
        let both = BTreeSet::from([0, 1]);
        assert_eq!((&summary.sent_on, &summary.received_on), (&both, &both));
        check_head(&records[0], role);
        check_events(&records[1..]);
        let records = &records[1..];
        if role == "server" {
            // It sends enough to find out.
            for path in ["0", "1"] {
                let states =
                    of(records, "ecn_state_updated").filter(|event| event["tuple"] == path);
                assert_eq!(states.last().unwrap()["data"]["new"], "capable");
            }
        }
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
        serde_json::json!([
            "urn:ietf:params:qlog:events:quic-13",
            "urn:ietf:params:qlog:events:loglevel",
            "https://github.com/mpquic/mpquic#qlog-paths",
        ])
    );
    assert!(trace["common_fields"]["group_id"].is_string());
}

fn check_events(events: &[Value]) {
    let mut before = 0.0;
    for event in events {
        let time = event["time"].as_f64().unwrap();
        assert!(time >= before, "{event}");
        before = time;
        let name = event["name"].as_str().unwrap();
        let ours = ["mpquic:path_updated", "mpquic:key_exchange_information"];
        assert!(name.starts_with("quic:") || ours.contains(&name), "{name}");
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

/// Records of the endpoint's log, which keeps to the schema.
fn of_endpoint(directory: &Path) -> Vec<Value> {
    let content = fs::read(directory.join("endpoint_server.sqlog")).unwrap();
    schema::check(&content).unwrap();
    records(&content)
}

fn type_of(record: &Value) -> &str {
    record["data"]["header"]["packet_type"].as_str().unwrap()
}

#[test]
fn a_retry_is_logged_by_both_sides() {
    let directory = tempfile::tempdir().unwrap();
    let mut setup = logged(Setup::new().tls(), directory.path());
    setup.accept = AcceptPolicy::Retry;
    let mut pair = Pair::connected(&topology(), setup);
    pair.transfer(Side::Client, 10_000, Duration::from_secs(10));
    drop(pair);
    let endpoint = of_endpoint(directory.path());
    let sent: Vec<_> = of(&endpoint, "packet_sent").collect();
    // One for each datagram of the ClientHello, of which the client takes the first.
    let datagrams = 1 + usize::from(KeyExchange::Hybrid.is_available());
    assert_eq!(sent.len(), datagrams, "{sent:?}");
    let client = read(directory.path(), "client");
    let mut received = of(&client, "packet_received").filter(|record| type_of(record) == "retry");
    let received = received.next().unwrap();
    assert_eq!(sent[0]["data"], received["data"]);
    let group = &client[0]["trace"]["common_fields"]["group_id"];
    assert_eq!(&sent[0]["group_id"], group);
    // Initial keys follow from the server's connection ID now.
    let initial = of(&client, "key_updated")
        .filter(|event| event["data"]["key_type"] == "client_initial_secret");
    assert_eq!(initial.count(), 2);
    let server = read(directory.path(), "server");
    assert_eq!(&server[0]["trace"]["common_fields"]["group_id"], group);
}

#[test]
fn version_negotiation_is_logged_by_both_sides() {
    let directory = tempfile::tempdir().unwrap();
    let setup = logged(Setup::new().tls(), directory.path());
    let setup = setup.versions(&[Version::V1, Version::V2], &[Version::V2]);
    let mut pair = Pair::connected(&topology(), setup);
    pair.transfer(Side::Client, 10_000, Duration::from_secs(10));
    drop(pair);
    let endpoint = of_endpoint(directory.path());
    let client = read(directory.path(), "client");
    let is_negotiation = |record: &&Value| type_of(record) == "version_negotiation";
    let sent = of(&endpoint, "packet_sent").find(is_negotiation).unwrap();
    let received = of(&client, "packet_received").find(is_negotiation).unwrap();
    assert_eq!(sent["data"], received["data"]);
    assert_eq!(sent["data"]["supported_versions"][0], "6b3343cf");
    let chosen = of(&client, "version_information").next().unwrap();
    assert_eq!(chosen["data"]["chosen_version"], "6b3343cf");
    let offered = &chosen["data"]["server_versions"];
    assert_eq!(offered, &sent["data"]["supported_versions"]);
    let own = &chosen["data"]["client_versions"];
    assert_eq!(own, &serde_json::json!(["00000001", "6b3343cf"]));
}

/// RFC 9001 section 4.9.3.
#[test]
fn zero_rtt_keys_come_and_go() {
    let directory = tempfile::tempdir().unwrap();
    let setup = logged(Setup::new().tls(), directory.path());
    let mut pair = Pair::connected(&topology(), setup);
    pair.transfer(Side::Client, 10_000, Duration::from_secs(10));
    pair.connect();
    pair.transfer(Side::Client, 10_000, Duration::from_secs(10));
    // The connection goes on, so that the server has no other reason to forget its keys.
    for _ in 0..50 {
        pair.client().path_mut(PathId::ZERO).unwrap().ping();
        pair.drive(10 * MS);
    }
    drop(pair);
    for role in ["client", "server"] {
        let logs = read_all(directory.path(), role);
        let mut resumed = logs.into_iter().filter(|(records, _)| {
            let mut keys = of(records, "key_updated");
            keys.any(|event| event["data"]["key_type"] == "client_0rtt_secret")
        });
        let (records, _) = resumed.next().unwrap();
        let discarded: Vec<_> = of(&records, "key_discarded")
            .filter(|event| event["data"]["key_type"] == "client_0rtt_secret")
            .collect();
        assert_eq!(discarded.len(), 1, "{role}");
        let gone = discarded[0]["time"].as_f64().unwrap();
        let is_early = |record: &&Value| type_of(record) == "0RTT";
        match role {
            "client" => {
                assert_eq!(of(&records, "parameters_restored").count(), 1);
                assert!(of(&records, "packet_sent").any(|record| is_early(&record)));
            }
            _ => {
                assert!(of(&records, "packet_received").any(|record| is_early(&record)));
                let mut sent = of(&records, "packet_sent");
                let complete = sent.find(|record| {
                    let frames = record["data"]["frames"].as_array().unwrap();
                    let mut types = frames.iter().map(|frame| &frame["frame_type"]);
                    types.any(|name| name == "handshake_done")
                });
                let complete = complete.unwrap()["time"].as_f64().unwrap();
                // Three probe timeouts of a path with a round trip of 16 ms.
                assert!(
                    (40.0..400.0).contains(&(gone - complete)),
                    "{gone} {complete}"
                );
            }
        }
    }
}

#[test]
fn each_step_of_mtu_discovery_is_logged() {
    let directory = tempfile::tempdir().unwrap();
    let setup = logged(Setup::new(), directory.path());
    let mut pair = Pair::connected(&topology(), setup);
    pair.open_all_paths();
    pair.transfer(Side::Server, 3_000_000, Duration::from_secs(20));
    let found = [0, 1].map(|path| pair.server().path_stats(PathId(path)).unwrap().mtu);
    drop(pair);
    let records = read(directory.path(), "server");
    for (path, found) in found.into_iter().enumerate() {
        let of_path = |event: &&Value| event["data"]["path_id"] == path;
        let updates: Vec<_> = of(&records, "mtu_updated").filter(of_path).collect();
        assert!(updates.len() >= 2, "{updates:?}");
        assert_eq!(updates[0]["data"]["new"], 1200);
        let (last, before) = (updates[updates.len() - 1], updates[updates.len() - 2]);
        assert_eq!(last["data"]["new"], found);
        assert_eq!(last["data"]["old"], before["data"]["new"]);
        assert_eq!(last["data"]["done"], true);
        assert_eq!(last["tuple"], path.to_string());
    }
}

#[test]
fn a_full_log_ends_with_how_the_connection_ended() {
    let directory = tempfile::tempdir().unwrap();
    let limit = 50_000;
    let factory = Directory::create(directory.path()).unwrap();
    let factory = Arc::new(factory.max_file_size(limit));
    let setup = Setup::new().transport(|transport| transport.qlog = Some(factory.clone()));
    let mut pair = Pair::connected(&topology(), setup);
    pair.transfer(Side::Client, 1_000_000, Duration::from_secs(20));
    pair.close(Side::Client);
    pair.run_until_drained(Duration::from_secs(10));
    drop(pair);
    for role in ["client", "server"] {
        let records = read(directory.path(), role);
        let [.., notice, closed] = &records[..] else {
            panic!("{records:?}");
        };
        assert_eq!(notice["name"], "loglevel:warning");
        assert_eq!(closed["name"], "quic:connection_closed");
        let mut files = fs::read_dir(directory.path()).unwrap().map(Result::unwrap);
        let name = format!("_{role}.sqlog");
        let file = files.find(|file| file.file_name().to_string_lossy().ends_with(&name));
        let size = file.unwrap().metadata().unwrap().len();
        assert!((limit..limit + 4000).contains(&size), "{size}");
    }
}

/// The logs of client and server of a transfer over two paths, after what was done with it.
fn transferred(topology: &Topology, check: impl FnOnce(&mut Pair)) -> [Vec<Value>; 2] {
    let directory = tempfile::tempdir().unwrap();
    let setup = logged(Setup::new().tls(), directory.path());
    let mut pair = Pair::connected(topology, setup);
    pair.open_all_paths();
    pair.transfer(Side::Server, 3_000_000, Duration::from_secs(20));
    check(&mut pair);
    drop(pair);
    ["client", "server"].map(|role| read(directory.path(), role))
}

#[test]
fn losses_are_logged_on_their_path_once_each() {
    let topology = Topology::new()
        .path("wifi", LinkConfig::new(40.0, 8 * MS).loss(0.01))
        .path("lte", LinkConfig::new(20.0, 30 * MS).loss(0.01));
    let [client, server] = transferred(&topology, |_| {});
    let packet = |record: &Value| {
        let header = &record["data"]["header"];
        let [path, number] = ["path_id", "packet_number"].map(|name| header[name].as_u64());
        let kind = header["packet_type"].as_str().map(str::to_owned);
        (path, kind, number)
    };
    let arrived: BTreeSet<_> = of(&client, "packet_received").map(packet).collect();
    let mut under_way = BTreeSet::new();
    let mut lost_on = BTreeSet::new();
    for record in &server {
        match record["name"].as_str() {
            Some("quic:packet_sent") => assert!(under_way.insert(packet(record))),
            Some("quic:packet_lost") => {
                let lost = packet(record);
                assert!(under_way.remove(&lost), "{record}");
                // Nothing overtakes anything here.
                assert!(!arrived.contains(&lost), "{record}");
                assert_eq!(record["tuple"], lost.0.unwrap().to_string());
                lost_on.extend(lost.0);
            }
            _ => {}
        }
    }
    assert_eq!(lost_on, BTreeSet::from([0, 1]));
}

#[test]
fn lengths_add_up_to_what_was_sent_and_received() {
    let sum = |records: &[Value], names: &[&str]| -> u64 {
        let of_names = names.iter().flat_map(|name| of(records, name));
        let lengths = of_names.map(|record| record["data"]["raw"]["length"].as_u64().unwrap());
        lengths.sum()
    };
    let mut expected = Vec::new();
    let logs = transferred(&topology(), |pair| {
        for side in [Side::Client, Side::Server] {
            let stats = pair.connection(side).stats();
            expected.push((stats.bytes_sent, stats.bytes_received));
        }
    });
    for (records, (sent, received)) in logs.iter().zip(expected) {
        assert_eq!(sum(records, &["packet_sent"]), sent);
        assert_eq!(
            sum(records, &["packet_received", "packet_dropped"]),
            received
        );
    }
}

/// Values of events that are written when they change.
#[test]
fn unchanged_values_are_not_logged_again() {
    for records in transferred(&topology(), |_| {}) {
        assert_eq!(of(&records, "tuple_assigned").count(), 2);
        for path in [0, 1] {
            let of_path = |event: &&Value| event["data"]["path_id"] == path;
            let states: Vec<_> = of(&records, "ecn_state_updated").filter(of_path).collect();
            let tuple = path.to_string();
            assert!(states.iter().all(|event| event["tuple"] == tuple));
            let new = states.iter().map(|event| &event["data"]["new"]);
            let mut new: Vec<_> = new.collect();
            let count = new.len();
            new.dedup();
            assert_eq!((new.len(), new.is_empty()), (count, false));
            let mtus = of(&records, "mtu_updated").filter(of_path);
            let mut mtus: Vec<_> = mtus
                .map(|event| (&event["data"]["new"], &event["data"]["done"]))
                .collect();
            let count = mtus.len();
            mtus.dedup();
            assert_eq!(mtus.len(), count);
            let mut known = serde_json::Map::new();
            for event in of(&records, "recovery_metrics_updated").filter(of_path) {
                let mut data = event["data"].as_object().unwrap().clone();
                data.remove("path_id");
                assert!(!data.is_empty());
                for (name, value) in data {
                    assert_ne!(known.insert(name, value.clone()), Some(value), "{event}");
                }
            }
        }
    }
}

#[test]
fn packets_are_dropped_on_the_path_they_came_on() {
    let topology = Topology::new()
        .path("wifi", LinkConfig::new(40.0, 8 * MS))
        .path("lte", LinkConfig::new(20.0, 30 * MS).corrupt(0.02));
    let [records, _] = transferred(&topology, |_| {});
    let dropped = of(&records, "packet_dropped");
    let mut dropped = dropped.filter(|event| event["data"]["trigger"] == "decryption_failure");
    assert_eq!(dropped.next().unwrap()["tuple"], "1");
    assert!(dropped.all(|event| event["tuple"] == "1"));
}

#[test]
fn versions_are_those_of_either_side() {
    let directory = tempfile::tempdir().unwrap();
    let setup = logged(Setup::new().tls(), directory.path());
    let setup = setup.versions(&[Version::V1], &[Version::V2, Version::V1]);
    let mut pair = Pair::connected(&topology(), setup);
    pair.transfer(Side::Client, 10_000, Duration::from_secs(10));
    drop(pair);
    for role in ["client", "server"] {
        let records = read(directory.path(), role);
        let data = &of(&records, "version_information").last().unwrap()["data"];
        // But for those that mean nothing (RFC 9000 section 15).
        let known = |name: &str| -> Vec<&str> {
            let versions = data[name].as_array().unwrap().iter();
            let versions = versions.map(|version| version.as_str().unwrap());
            versions
                .filter(|version| version.bytes().skip(1).step_by(2).any(|it| it != b'a'))
                .collect()
        };
        assert_eq!(known("client_versions"), ["00000001"], "{role}");
        assert_eq!(known("server_versions"), ["6b3343cf", "00000001"], "{role}");
        assert_eq!(data["chosen_version"], "00000001");
    }
}

/// The changes of a path, in order, with who began them if that is told.
fn changes(records: &[Value], path: u32) -> Vec<String> {
    let changes = records.iter().filter(|record| {
        record["name"] == "mpquic:path_updated" && record["data"]["path_id"] == path
    });
    let words = changes.map(|record| {
        // The peer's wish may come before the path has addresses.
        if let Some(tuple) = record.get("tuple") {
            assert_eq!(tuple.as_str(), Some(path.to_string().as_str()), "{record}");
        }
        let word = |name: &str| record["data"][name].as_str();
        let more = [word("initiator"), word("error")];
        let words = word("change").into_iter().chain(more.into_iter().flatten());
        words.collect::<Vec<_>>().join(" ")
    });
    words.collect()
}

#[test]
fn changes_of_a_path_are_logged() {
    let [client, server] = transferred(&topology(), |pair| {
        let mut path = pair.client().path_mut(PathId(1)).unwrap();
        path.set_status(PathStatus::Backup);
        pair.set_outage("lte", true);
        pair.client().path_mut(PathId(1)).unwrap().ping();
        pair.drive(Duration::from_secs(2));
        pair.set_outage("lte", false);
        pair.drive(Duration::from_secs(10));
        let now = pair.now();
        pair.client()
            .close_path(now, PathId(1), TransportErrorCode::APPLICATION_ABANDON_PATH)
            .unwrap();
        pair.drive(Duration::from_secs(5));
    });
    let all = [
        "established",
        "suspect",
        "recovered",
        "abandoned local application_abandon_path",
        "discarded",
    ];
    assert_eq!(changes(&client, 1), all);
    let theirs = changes(&server, 1);
    assert!(theirs.contains(&"peer_backup".to_owned()), "{theirs:?}");
    let abandoned = "abandoned remote application_abandon_path".to_owned();
    assert!(theirs.contains(&abandoned), "{theirs:?}");
}

/// Only keys that can be updated have a phase.
#[test]
fn key_phases_are_of_1rtt_keys() {
    let [records, _] = transferred(&topology(), |_| {});
    let updates: Vec<_> = of(&records, "key_updated").collect();
    for event in &updates {
        let is_one_rtt = event["data"]["key_type"]
            .as_str()
            .unwrap()
            .contains("_1rtt_");
        assert_eq!(event["data"]["key_phase"].is_u64(), is_one_rtt, "{event}");
    }
    assert!(updates.len() >= 6);
}
