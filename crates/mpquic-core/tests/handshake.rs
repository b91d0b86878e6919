//! The handshake over good and bad networks, with and without multipath.

use std::time::Duration;

use mpquic_core::config::ConnectionIds;
use mpquic_core::crypto::ExportError;
use mpquic_core::{
    ConnectionError, Event, OpenPathError, PathEvent, PathStatus, TransportErrorCode, VarInt,
    Version::{V1, V2},
    ZeroRtt,
};
use mpquic_sim::{AcceptPolicy, Change, LinkConfig, Pair, Setup, Side, Topology};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn one_path() -> Topology {
    Topology::new().path("only", LinkConfig::new(100.0, 10 * MS))
}

fn setups() -> [Setup; 2] {
    [Setup::new(), Setup::new().tls()]
}

/// Why a side's connection ended, if it did.
fn lost(pair: &Pair, side: Side) -> Option<ConnectionError> {
    pair.events(side).into_iter().find_map(|event| match event {
        Event::ConnectionLost { reason } => Some(reason),
        _ => None,
    })
}

#[test]
fn takes_one_round_trip_and_agrees_on_multipath() {
    for setup in setups() {
        let mut pair = Pair::new(&one_path(), setup);
        pair.connect();
        let connected = Event::Connected { multipath: true };
        let took = pair
            .run_until(SECOND, |pair| pair.has_event(Side::Client, &connected))
            .unwrap();
        assert!(took < 22 * MS, "{took:?}");
        pair.run_until(SECOND, |pair| pair.has_event(Side::Server, &connected))
            .unwrap();
        // RFC 9001 section 4.1.2: the server confirms at once and tells the client.
        pair.run_until_confirmed(SECOND).unwrap();
        assert!(pair.elapsed() < 45 * MS, "{:?}", pair.elapsed());
        assert!(pair.has_event(Side::Server, &Event::HandshakeConfirmed));
        assert!(pair.client().is_multipath() && pair.server().is_multipath());
        assert!(!pair.client().is_handshaking() && !pair.server().is_handshaking());
        pair.close(Side::Client);
    }
}

#[test]
fn protocol_and_server_name_are_known() {
    let mut pair = Pair::connected(&one_path(), Setup::new().tls());
    let data = pair.server().handshake_data().unwrap();
    assert_eq!(data.protocol.as_deref(), Some(&b"mpquic-sim"[..]));
    assert_eq!(data.server_name.as_deref(), Some("server.test"));
    let data = pair.client().handshake_data().unwrap();
    assert_eq!(data.protocol.as_deref(), Some(&b"mpquic-sim"[..]));
    let (certificate, _) = mpquic_sim::tls::certificate();
    assert_eq!(pair.client().peer_certificates(), Some(vec![certificate]));
    assert!(pair.has_event(Side::Client, &Event::HandshakeDataReady));
}

/// RFC 8446 section 7.5.
#[test]
fn keying_material_can_be_exported_once_the_handshake_is_complete() {
    fn export(pair: &mut Pair, side: Side, label: &[u8]) -> Result<[u8; 48], ExportError> {
        let mut output = [0; 48];
        pair.connection(side)
            .export_keying_material(&mut output, label, b"context")
            .map(|()| output)
    }
    for setup in setups() {
        let mut pair = Pair::new(&one_path(), setup);
        pair.connect();
        let incomplete = Err(ExportError::HandshakeIncomplete);
        assert_eq!(export(&mut pair, Side::Client, b"a"), incomplete);
        pair.run_until(SECOND, |pair| pair.hosted(Side::Server).is_some())
            .unwrap();
        assert_eq!(export(&mut pair, Side::Server, b"a"), incomplete);

        pair.run_until_confirmed(SECOND).unwrap();
        let first = export(&mut pair, Side::Client, b"a").unwrap();
        assert_eq!(export(&mut pair, Side::Server, b"a"), Ok(first));
        assert_ne!(export(&mut pair, Side::Server, b"b"), Ok(first));

        pair.transfer(Side::Server, 100_000, SECOND);
        pair.drive(20 * SECOND);
        for side in [Side::Client, Side::Server] {
            assert_eq!(export(&mut pair, side, b"a"), Ok(first), "{side:?}");
        }
    }
}

/// MP-001: both sides must announce the parameter.
#[test]
fn without_multipath_on_one_side_there_is_one_path() {
    for off in [Side::Client, Side::Server] {
        let mut setup = Setup::new();
        match off {
            Side::Client => setup.client.max_concurrent_paths = 0,
            Side::Server => setup.server.max_concurrent_paths = 0,
        }
        let topology = one_path().path("other", LinkConfig::new(100.0, 10 * MS));
        let mut pair = Pair::connected(&topology, setup);
        let connected = Event::Connected { multipath: false };
        assert!(pair.has_event(Side::Client, &connected));
        assert!(pair.has_event(Side::Server, &connected));
        assert_eq!(
            pair.open_path("other", PathStatus::Available),
            Err(OpenPathError::NotNegotiated)
        );
        pair.transfer(Side::Client, 100_000, SECOND);
        pair.transfer(Side::Server, 100_000, SECOND);
        pair.close(Side::Server);
    }
}

/// MP-071: not at its confirmation, a round trip later.
#[test]
fn a_path_is_opened_as_soon_as_the_handshake_is_complete() {
    for setup in setups() {
        let link = LinkConfig::new(100.0, 50 * MS);
        let topology = Topology::new().path("only", link.clone());
        let mut pair = Pair::new(&topology.path("other", link), setup);
        pair.connect();
        let available = Event::Path(PathEvent::Available);
        let is_available = |pair: &mut Pair| pair.has_event(Side::Client, &available);
        pair.run_until(105 * MS, is_available).unwrap();
        let id = pair.open_path("other", PathStatus::Available).unwrap();
        let established = Event::Path(PathEvent::Established(id));
        for (side, limit) in [(Side::Client, 205 * MS), (Side::Server, 255 * MS)] {
            let left = limit - pair.elapsed();
            pair.run_until(left, |pair| pair.has_event(side, &established))
                .unwrap();
        }
        pair.close(Side::Client);
    }
}

/// The client's last message of the handshake is lost with the first link, as are its connection
/// IDs for the other path.
#[test]
fn rfc_9001_4_1_2_a_client_whose_first_link_dies_is_confirmed_on_another() {
    for setup in setups() {
        let link = LinkConfig::new(100.0, 50 * MS);
        let topology = Topology::new().path("only", link.clone());
        let mut pair = Pair::new(&topology.path("other", link), setup);
        pair.connect();
        pair.run_until(60 * MS, |_| false).unwrap_err();
        let [up, down] = pair.links()[0].links();
        pair.network.change_link(up, &Change::Outage(true));
        let available = Event::Path(PathEvent::Available);
        pair.run_until(SECOND, |pair| pair.has_event(Side::Client, &available))
            .unwrap();
        pair.network.change_link(down, &Change::Outage(true));
        let id = pair.open_path("other", PathStatus::Available).unwrap();
        // Before more samples, a probe timeout is three round trips.
        pair.run_until_confirmed(700 * MS).unwrap();
        let established = Event::Path(PathEvent::Established(id));
        assert!(pair.has_event(Side::Client, &established));
        pair.close(Side::Client);
    }
}

/// RFC 9001 section 5.7: a server keeps packets from a shorter path until the end of the handshake.
/// The time of keeping is no part of that path's round trip.
#[test]
fn a_path_that_waited_for_the_handshake_has_its_own_round_trip() {
    let both = setups()
        .into_iter()
        .flat_map(|setup| [(setup.clone(), false), (setup, true)]);
    for (setup, is_uneven) in both {
        let slow = LinkConfig::new(100.0, 100 * MS);
        let topology = Topology::new().path("only", slow);
        let topology = topology.path("other", LinkConfig::new(100.0, 10 * MS));
        let mut pair = Pair::new(&topology, setup);
        if is_uneven {
            // The end of the handshake takes nearly the whole round trip, as behind a full queue of
            // uploads.
            let [up, down] = pair.links()[0].links();
            pair.network.change_link(up, &Change::Delay(199 * MS));
            pair.network.change_link(down, &Change::Delay(MS));
        }
        pair.connect();
        let available = Event::Path(PathEvent::Available);
        pair.run_until(SECOND, |pair| pair.has_event(Side::Client, &available))
            .unwrap();
        let id = pair.open_path("other", PathStatus::Available).unwrap();
        pair.run_until(SECOND, |pair| pair.is_established(id))
            .unwrap();
        // Two packets, so that an acknowledgement does not wait.
        pair.send(Side::Client, 2000);
        pair.drive(300 * MS);
        let stats = pair.client().path_stats(id).unwrap();
        assert!(stats.rtt < 25 * MS && stats.min_rtt < 21 * MS, "{stats:?}");
        pair.close(Side::Client);
    }
}

#[test]
fn paths_cannot_be_opened_early_or_by_the_server() {
    let topology = one_path().path("other", LinkConfig::new(100.0, 10 * MS));
    let mut pair = Pair::new(&topology, Setup::new());
    pair.connect();
    assert_eq!(
        pair.open_path("other", PathStatus::Available),
        Err(OpenPathError::HandshakeIncomplete)
    );
    pair.run_until_confirmed(SECOND).unwrap();
    let (now, four_tuple) = (pair.now(), pair.four_tuple(1));
    let opened = pair
        .server()
        .open_path(now, four_tuple, PathStatus::Available);
    assert_eq!(opened, Err(OpenPathError::ServerSide), "MP-070");
}

#[test]
fn retry_proves_the_address_and_costs_one_round_trip() {
    for mut setup in setups() {
        setup.accept = AcceptPolicy::Retry;
        let mut pair = Pair::connected(&one_path(), setup);
        assert!(pair.elapsed() > 55 * MS && pair.elapsed() < 70 * MS);
        pair.transfer(Side::Server, 50_000, SECOND);
        pair.close(Side::Client);
    }
}

#[test]
fn a_refused_client_learns_of_the_refusal_at_once() {
    for mut setup in setups() {
        setup.accept = AcceptPolicy::Refuse;
        let mut pair = Pair::new(&one_path(), setup);
        pair.connect();
        pair.run_until(SECOND, |pair| lost(pair, Side::Client).is_some())
            .unwrap();
        match lost(&pair, Side::Client) {
            Some(ConnectionError::ConnectionClosed(close)) => {
                assert_eq!(close.code, TransportErrorCode::CONNECTION_REFUSED);
            }
            other => panic!("{other:?}"),
        }
        pair.run_until_drained(10 * SECOND);
        assert_eq!(pair.open_connections(Side::Server), 0);
    }
}

#[test]
fn an_ignored_client_times_out() {
    let mut setup = Setup::new().transport(|transport| {
        transport.max_idle_timeout = Some(10 * SECOND);
        transport.max_handshake_duration = 20 * SECOND;
    });
    setup.accept = AcceptPolicy::Ignore;
    let mut pair = Pair::new(&one_path(), setup);
    pair.connect();
    pair.run_until_drained(30 * SECOND);
    assert_eq!(lost(&pair, Side::Client), Some(ConnectionError::TimedOut));
    assert_eq!(pair.open_connections(Side::Server), 0);
    // Probes backed off: a handful of Initials, not a stream of them.
    let [up, _] = pair.counters("only");
    assert!((3..30).contains(&up.packets_in), "{}", up.packets_in);
}

#[test]
fn first_flights_lost_are_sent_again() {
    for setup in setups() {
        let link = LinkConfig::new(100.0, 10 * MS).outage(Duration::ZERO, 500 * MS);
        let topology = Topology::new().path("only", link);
        let mut pair = Pair::connected(&topology, setup);
        assert!(pair.elapsed() < 2 * SECOND, "{:?}", pair.elapsed());
        pair.close(Side::Client);
    }
}

/// A NAT box forgets the client while only the HANDSHAKE_DONE is missing. The server, for which the
/// handshake is over, can open no Handshake packets any more, so the client's probes show it the
/// new address in a 1-RTT packet.
#[test]
fn a_nat_gives_another_port_before_the_client_has_its_confirmation() {
    for setup in setups() {
        let topology = Topology::new().natted_path("home", LinkConfig::new(100.0, 10 * MS));
        let mut pair = Pair::new(&topology, setup);
        pair.connect();
        pair.run_until(SECOND, |pair| {
            let server = pair.hosted(Side::Server);
            server.is_some() && pair.has_event(Side::Server, &Event::HandshakeConfirmed)
        })
        .unwrap();
        assert!(!pair.has_event(Side::Client, &Event::HandshakeConfirmed));
        pair.rebind("home", false);
        pair.run_until_confirmed(3 * SECOND).unwrap();
        pair.transfer(Side::Server, 100_000, SECOND);
        pair.close(Side::Client);
    }
}

#[test]
fn survives_heavy_loss_in_each_direction() {
    for seed in 0..60 {
        let good = LinkConfig::new(10.0, 20 * MS);
        let bad = good.clone().loss(0.4);
        let topology = if seed % 2 == 0 {
            Topology::new().asymmetric_path("only", good, bad)
        } else {
            Topology::new().asymmetric_path("only", bad, good)
        };
        let setup = Setup::new().seed(seed);
        let setup = if seed % 4 < 2 { setup } else { setup.tls() };
        let mut pair = Pair::connected(&topology, setup);
        pair.transfer(Side::Client, 1000, 60 * SECOND);
        pair.transfer(Side::Server, 1000, 60 * SECOND);
        pair.close(Side::Server);
    }
}

/// RFC 9000 section 8.1: three times what arrived, until the address is proven.
#[test]
fn a_server_sends_at_most_three_times_the_received_bytes() {
    let good = LinkConfig::new(100.0, 10 * MS);
    let silent = good.clone().outage(5 * MS, 3600 * SECOND);
    // The client's first flight arrives; nothing later does, and no answer comes back.
    let topology = Topology::new().asymmetric_path("only", silent.clone(), silent);
    for setup in setups() {
        let mut pair = Pair::new(&topology, setup);
        pair.connect();
        pair.drive(5 * SECOND);
        let [up, down] = pair.counters("only");
        assert!(up.bytes_out >= 1200, "{up:?}");
        let payload = |bytes: u64, packets: u64| bytes - 28 * packets;
        let received = payload(up.bytes_out, up.packets_out);
        let sent = payload(down.bytes_in, down.packets_in);
        assert!(sent > 1200 && sent <= 3 * received, "{sent} for {received}");
    }
}

#[test]
fn works_over_ipv6_and_with_any_connection_id_length() {
    for length in [4, 8, 20] {
        let mut setup = Setup::new().tls();
        setup.connection_ids = ConnectionIds::random(length).unwrap();
        let topology = one_path()
            .path("other", LinkConfig::new(100.0, 10 * MS))
            .ipv6();
        let mut pair = Pair::connected(&topology, setup);
        pair.open_all_paths();
        pair.transfer(Side::Client, 300_000, SECOND);
        pair.close(Side::Client);
    }
}

#[test]
fn many_connections_share_a_host() {
    let mut pair = Pair::new(&one_path(), Setup::new());
    for _ in 0..20 {
        pair.connect();
    }
    pair.drive(SECOND);
    assert_eq!(pair.open_connections(Side::Server), 20);
    for host in [pair.host_id(Side::Client), pair.host_id(Side::Server)] {
        let now = pair.now();
        for index in 0..20 {
            let hosted = pair.host_mut(host).connection_mut(index);
            assert!(!hosted.connection.is_handshaking());
            let sent = hosted.application.send(now, &mut hosted.connection, 20_000);
            assert!(sent.is_some());
        }
    }
    pair.drive(2 * SECOND);
    for host in [pair.host_id(Side::Client), pair.host_id(Side::Server)] {
        let now = pair.now();
        for index in 0..20 {
            let hosted = pair.host_mut(host).connection_mut(index);
            assert_eq!(hosted.application.received(), 20_000);
            assert!(hosted.application.is_all_acknowledged());
            let code = VarInt::from_u32(0);
            hosted.connection.close(now, code, "done".into());
        }
    }
    pair.drive(5 * SECOND);
    assert_eq!(pair.open_connections(Side::Client), 0);
    assert_eq!(pair.open_connections(Side::Server), 0);
    assert_eq!(pair.next_event(), None, "something is still going on");
}

/// RFC 9001 section 4.6: a client that resumes sends before the server has answered. MP-012: paths
/// wait for the new handshake all the same.
#[test]
fn a_resumed_client_sends_with_its_first_flight() {
    for loss in [0.0, 0.2] {
        for seed in 0..20 {
            let link = LinkConfig::new(100.0, 10 * MS).loss(loss);
            let topology = Topology::new()
                .path("only", link.clone())
                .path("other", link);
            let mut pair = Pair::connected(&topology, Setup::new().tls().seed(seed));
            // Until the session ticket is there.
            pair.transfer(Side::Server, 10_000, 20 * SECOND);
            pair.drive(SECOND);
            pair.close(Side::Client);

            let start = pair.now();
            pair.connect();
            assert_eq!(pair.client().zero_rtt(), ZeroRtt::Offered);
            pair.send(Side::Client, 5_000).unwrap();
            assert_eq!(
                pair.open_path("other", PathStatus::Available),
                Err(OpenPathError::HandshakeIncomplete)
            );
            pair.run_transfers(20 * SECOND).unwrap();
            let took = pair.now() - start;
            assert!(took < 12 * MS || loss > 0.0, "{took:?}");
            pair.run_until_confirmed(20 * SECOND).unwrap();
            assert_eq!(pair.client().zero_rtt(), ZeroRtt::Accepted);
            pair.open_all_paths();
            pair.transfer(Side::Client, 100_000, 60 * SECOND);
            pair.close(Side::Server);
        }
    }
}

/// RFC 9001 section 4.6.2: a server without its old tickets takes no early data, and the connection
/// starts as if the client had sent none.
#[test]
fn rejected_early_data_can_be_sent_again() {
    let mut pair = Pair::connected(&one_path(), Setup::new().tls());
    pair.transfer(Side::Server, 10_000, SECOND);
    pair.close(Side::Client);
    pair.restart_server();
    pair.connect();
    assert_eq!(pair.client().zero_rtt(), ZeroRtt::Offered);
    pair.send(Side::Client, 5_000).unwrap();
    pair.run_until_confirmed(SECOND).unwrap();
    assert_eq!(pair.client().zero_rtt(), ZeroRtt::Rejected);
    pair.run_transfers(SECOND).unwrap();
    pair.close(Side::Client);
}

/// RFC 9001 section 6 and MP-036: one key update for all paths, with packets of both phases in
/// flight on each.
#[test]
fn keys_are_updated_in_mid_transfer_on_two_paths() {
    for setup in setups() {
        let topology = Topology::new()
            .path("fast", LinkConfig::new(20.0, 5 * MS))
            .path("slow", LinkConfig::new(20.0, 80 * MS).jitter(20 * MS));
        let mut pair = Pair::connected(&topology, setup);
        pair.open_all_paths();
        pair.send(Side::Client, 8_000_000);
        pair.send(Side::Server, 8_000_000);
        let mut updates = 0;
        for round in 0..20 {
            pair.drive(100 * MS);
            let side = if round % 2 == 0 {
                Side::Client
            } else {
                Side::Server
            };
            let now = pair.now();
            updates += u32::from(pair.connection(side).initiate_key_update(now));
        }
        assert!(updates >= 2, "{updates}");
        pair.run_transfers(30 * SECOND).unwrap();
        for side in [Side::Client, Side::Server] {
            assert_eq!(pair.connection(side).stats().packets_dropped, 0);
        }
        pair.close(Side::Client);
    }
}

/// RFC 9369 with real keys: both versions, chosen at once or after a change, carry two paths and
/// key updates.
#[test]
fn rfc_9369_version_2_protects_all_packets() {
    for (client, server, chosen) in [
        (&[V2][..], &[V1, V2][..], V2),
        (&[V1, V2], &[V2, V1], V2),
        (&[V1, V2], &[V2], V2),
        (&[V2, V1], &[V1, V2], V1),
    ] {
        let topology = Topology::new()
            .path("a", LinkConfig::new(20.0, 5 * MS).loss(0.01))
            .path("b", LinkConfig::new(20.0, 20 * MS));
        let mut pair = Pair::connected(&topology, Setup::new().tls().versions(client, server));
        pair.open_all_paths();
        pair.send(Side::Client, 1_000_000);
        pair.send(Side::Server, 1_000_000);
        pair.drive(200 * MS);
        let now = pair.now();
        assert!(pair.client().initiate_key_update(now));
        pair.run_transfers(30 * SECOND).unwrap();
        // Each datagram of the ClientHello is answered with a Version Negotiation packet, of which
        // one counts.
        let negotiations = u64::from(!server.contains(client.iter().min().unwrap()));
        for (side, dropped) in [(Side::Client, negotiations), (Side::Server, 0)] {
            assert_eq!(pair.connection(side).version(), chosen);
            assert_eq!(pair.connection(side).stats().packets_dropped, dropped);
        }
        pair.close(Side::Client);
    }
}

/// The core has no clock and no randomness of its own.
#[test]
fn equal_seeds_give_equal_runs() {
    let run = |seed| {
        let topology = Topology::new()
            .path("a", LinkConfig::new(20.0, 5 * MS).loss(0.02))
            .path("b", LinkConfig::new(10.0, 30 * MS).jitter(5 * MS));
        let mut pair = Pair::connected(&topology, Setup::new().seed(seed));
        pair.open_all_paths();
        let took = pair.transfer(Side::Server, 2_000_000, 60 * SECOND);
        let counters = ["a", "b"].map(|name| pair.counters(name).map(Clone::clone));
        (took, counters, pair.steps())
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3).0, run(4).0);
}
