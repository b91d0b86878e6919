//! Tests of the status of a proxy.

use super::*;
use crate::text::json;

fn path(id: u32, bytes: u64) -> PathReport {
    PathReport {
        id,
        local: format!("10.0.0.{id}:1"),
        remote: "192.0.2.1:443".to_owned(),
        bytes_received: 10 * bytes,
        bytes_sent: bytes,
        rtt_ms: 12.34,
        lost: 3,
        cwnd: 0,
        state: "active".into(),
        resumed: false,
        resume_failed: false,
    }
}

fn flow(number: u64, bytes: u64) -> FlowRow {
    FlowRow {
        number,
        protocol: "tcp".to_owned(),
        target: "*".to_owned(),
        user: (number == 2).then(|| "somebody".to_owned()),
        class: "bulk".to_owned(),
        bytes_sent: bytes,
        bytes_received: 2 * bytes,
        seconds: 1.6,
    }
}

fn status(bytes: u64) -> Status {
    let connection = |peer: &str, paths| ConnectionRow {
        peer: Some(peer.to_owned()),
        multipath: paths != 1,
        key_exchange: Some("x25519".to_owned()),
        paths: (0..paths).map(|id| path(id, bytes)).collect(),
    };
    Status {
        role: Role::Client,
        connections: vec![connection("a", 2), connection("b", 1)],
        flows: vec![flow(1, bytes), flow(2, 3 * bytes)],
        tunnel: None,
        interfaces: Vec::new(),
    }
}

#[test]
fn closed_and_limited_interfaces_have_a_line() {
    let row = |name: &str, paused, quota| InterfaceRow {
        name: name.to_owned(),
        cost: 0,
        backup: false,
        paused,
        quota,
    };
    let quota = crate::proxy::quota::QuotaRow {
        used: 20_000_000_000,
        limit: 20_000_000_000,
        until: Some("2026-12-01".to_owned()),
        used_up: true,
    };
    let rows = vec![
        row("eth0", false, None),
        row("eth1", true, None),
        row("wwan0", false, Some(quota)),
    ];
    let status = Status::new(Role::Client, &[], &[]).with_interfaces(rows);
    let table = status.table(None);
    let lines: Vec<_> = table.lines().skip(1).take(3).collect();
    let expected = [
        "eth1: paused",
        "wwan0: quota used up; quota: 20.00 GB of 20.00 GB until 2026-12-01",
    ];
    assert_eq!(lines[..2], expected);
    assert!(lines[2].starts_with("connection"), "{}", lines[2]);
}

#[test]
fn a_device_has_a_line() {
    let tunnel = TunnelRow {
        device: "tun0".to_owned(),
        kill_switch: true,
        routes_refused: 2,
        routes_past: 1,
    };
    let status = Status::new(Role::Client, &[], &[]).with(Some(tunnel));
    let line = "tun0: kill switch closed; routes past the tunnel: 2 refused, 1 used";
    assert_eq!(status.table(None).lines().nth(1), Some(line));
}

#[test]
fn a_row_for_each_path_and_flow() {
    assert_eq!(
        status(500).table(None),
        "\
client: 2 connections, 2 flows
connection        path  local       remote         state   rtt ms  sent  received  lost
0                 0     10.0.0.0:1  192.0.2.1:443  active  12.3    500   5000      3
0                 1     10.0.0.1:1  192.0.2.1:443  active  12.3    500   5000      3
1 (no multipath)  0     10.0.0.0:1  192.0.2.1:443  active  12.3    500   5000      3
flow  target  user      class  sent  received  seconds
tcp   *                 bulk   500   1000      2
tcp   *       somebody  bulk   1500  3000      2
"
    );
}

/// For new paths and flows, the earlier status counts as zero.
#[test]
fn rates_count_from_the_last_status() {
    let mut before = Before {
        status: status(125_000),
        seconds: 2.0,
    };
    before.status.connections.pop();
    before.status.flows.remove(0);
    let now = Status {
        role: Role::Server,
        ..status(375_000)
    };
    assert_eq!(now.table(Some(&before)), "\
server: 2 connections, 2 flows
connection        path  local       remote         state   rtt ms  sent    received  lost  sends       receives
0                 0     10.0.0.0:1  192.0.2.1:443  active  12.3    375000  3750000   3     1.0 Mbit/s  10.0 Mbit/s
0                 1     10.0.0.1:1  192.0.2.1:443  active  12.3    375000  3750000   3     1.0 Mbit/s  10.0 Mbit/s
1 (no multipath)  0     10.0.0.0:1  192.0.2.1:443  active  12.3    375000  3750000   3     1.5 Mbit/s  15.0 Mbit/s
flow  target  user      class  sent     received  seconds  sends       receives
tcp   *                 bulk   375000   750000    2        1.5 Mbit/s  3.0 Mbit/s
tcp   *       somebody  bulk   1125000  2250000   2        3.0 Mbit/s  6.0 Mbit/s
");
}

/// A path is matched by connection and ID, and a flow by number.
#[test]
fn earlier_status_rows_are_matched() {
    let mut then = status(5);
    then.connections[1].paths = vec![path(1, 7), path(0, 9)];
    let before = Before {
        status: then,
        seconds: 1.0,
    };
    let now = status(100);
    let of = |connection: usize, path: usize| {
        let connection = &now.connections[connection];
        before.of_path(connection, &connection.paths[path])
    };
    assert_eq!([of(0, 0), of(0, 1), of(1, 0)], [[5, 50], [5, 50], [9, 90]]);
    let stranger = ConnectionRow {
        peer: Some("c".to_owned()),
        multipath: true,
        key_exchange: None,
        paths: Vec::new(),
    };
    assert_eq!(before.of_path(&stranger, &path(0, 1)), [0, 0]);
    assert_eq!(before.of_path(&now.connections[0], &path(7, 1)), [0, 0]);
    let flows = [1, 2, 3].map(|number| before.of_flow(&flow(number, 1)));
    assert_eq!(flows, [[5, 10], [15, 30], [0, 0]]);
}

#[test]
fn the_busiest_flows_come_first() {
    let before = Before {
        status: status(100),
        seconds: 1.0,
    };
    // The second flow had carried 900 bytes before, the first flow 300, and the third flow is
    // new.
    let mut flows = [flow(1, 110), flow(2, 310), flow(3, 20)];
    flows[0].bytes_sent = 125;
    before.put_busiest_first(&mut flows);
    assert_eq!(flows.map(|flow| flow.number), [3, 1, 2]);
    let mut flows = [flow(1, 110), flow(2, 320), flow(3, 15)];
    before.put_busiest_first(&mut flows);
    assert_eq!(flows.map(|flow| flow.number), [2, 3, 1]);
}

#[tokio::test]
async fn a_path_that_stands_by_is_told_as_such() {
    let pair = crate::testing::pair(crate::options::Alpn::H3).await;
    let state = || connection_row(&pair.client).paths[0].state.clone();
    assert_ne!(state(), "backup");
    let path = pair.client.path(mpquic_tokio::PathId(0)).unwrap();
    path.set_status(mpquic_core::PathStatus::Backup).unwrap();
    assert_eq!(state(), "backup");
}

/// A name from a user of the proxy adds no row and no control character; programs read the exact
/// name.
#[test]
fn names_of_users_stay_in_their_cell() {
    let name = "a\ntcp forged\u{1b}]0;b\u{7}\u{9b}31m\u{202e}";
    let mut status = status(5);
    status.flows[0].target = name.to_owned();
    let table = status.table(None);
    assert_eq!(table.lines().count(), 8, "{table}");
    assert!(table.contains("a tcp forged ]0;b  31m "), "{table}");
    let json = json::line(&status);
    let plain = |text: &str| text.chars().all(mpquic_core::PeerText::is_plain);
    assert!(plain(&json) && table.lines().all(plain));
    let read: Status = serde_json::from_str(&json).unwrap();
    assert_eq!(read.flows[0].target, name);
}

#[test]
fn programs_can_read_what_is_told() {
    let json = serde_json::to_string(&status(5)).unwrap();
    let read: Status = serde_json::from_str(&json).unwrap();
    assert_eq!(read.table(None), status(5).table(None));
    assert!(json.starts_with("{\"role\":\"client\","), "{json}");
}
