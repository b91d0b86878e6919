//! The methods of a pair, and the mistakes that a pair notices.

use bytes::{Bytes, BytesMut};
use mpquic_core::{ConnectionError, Dir};

use super::*;
use crate::link::LinkConfig;
use crate::packet::Packet;
use crate::pattern::{self, Origin};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const SIDES: [Side; 2] = [Side::Client, Side::Server];

/// A link of 8 Mbit/s and 10 ms: 1000 bytes take 1 ms.
fn link() -> LinkConfig {
    LinkConfig::new(8.0, 10 * MS)
}

fn two_paths() -> Topology {
    Topology::new().path("a", link()).path("b", link())
}

fn connected() -> Pair {
    Pair::connected(&two_paths(), Setup::new())
}

/// Calls the application of a side with its connection.
pub(crate) fn on<R>(
    pair: &mut Pair,
    side: Side,
    call: impl FnOnce(&mut Transfers, &mut Connection, Instant) -> R,
) -> R {
    let now = pair.time(side);
    let hosted = pair.hosted_mut(side);
    call(&mut hosted.application, &mut hosted.connection, now)
}

/// Why a side's connection ended.
fn lost(pair: &Pair, side: Side) -> Option<ConnectionError> {
    pair.events(side).into_iter().find_map(|event| match event {
        Event::ConnectionLost { reason } => Some(reason),
        _ => None,
    })
}

#[test]
fn a_setup_is_made_for_both_sides() {
    let setup = Setup::new();
    assert_eq!((setup.seed, setup.migration, setup.checks), (1, true, true));
    assert!(matches!(setup.crypto, Crypto::Null));
    assert_eq!(setup.client_versions, Version::ALL);
    assert_eq!(setup.server_versions, Version::ALL);
    let (v1, v2) = (Version::V1, Version::V2);
    let mut setup = setup
        .seed(7)
        .tls()
        .versions(&[v2], &[v2, v1])
        .transport(|transport| transport.max_concurrent_uni_streams = 33);
    assert_eq!(setup.seed, 7);
    assert!(matches!(setup.crypto, Crypto::Tls(_)));
    for transport in [&setup.client, &setup.server] {
        assert_eq!(transport.max_concurrent_uni_streams, 33);
    }
    assert_eq!(setup.client_versions, [v2]);
    assert_eq!(setup.server_versions, [v2, v1]);
    let migrates = |setup: &Setup| setup.server_config().options().migration;
    assert!(migrates(&setup));
    setup.migration = false;
    assert!(!migrates(&setup));
    let preferred = "10.1.2.3:4".parse().unwrap();
    setup.preferred_address = Some(preferred);
    let config = setup.server_config();
    assert_eq!(config.options().preferred_address_v4, Some(preferred));
    // Every run dates its tokens with the same constant day.
    let day = config.options().time_source.now();
    let since = day.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(since.as_secs(), 1_800_000_000);
}

#[test]
fn paths_have_addresses_by_their_place() {
    let four_tuple = |topology: Topology, path| {
        let pair = Pair::new(&topology, Setup::new());
        let FourTuple { local, remote } = pair.four_tuple(path);
        format!("{local} {remote}")
    };
    for (topology, expected) in [
        (two_paths(), "10.0.1.1:50000 10.0.1.2:4433"),
        (
            two_paths().single_server_address(),
            "10.0.1.1:50000 10.0.0.2:4433",
        ),
        (two_paths().ipv6(), "[fd00:0:1::1]:50000 [fd00:0:1::2]:4433"),
    ] {
        assert_eq!(four_tuple(topology, 1), expected);
    }
    let pair = Pair::new(&two_paths(), Setup::new());
    assert_eq!((pair.index_of("a"), pair.index_of("b")), (0, 1));
    let names: Vec<_> = pair.links().iter().map(|path| path.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(two_paths().names().collect::<Vec<_>>(), names);
}

#[test]
#[should_panic(expected = "the topology has no path c")]
fn a_path_that_is_not_there_is_named() {
    Pair::new(&two_paths(), Setup::new()).set_outage("c", true);
}

#[test]
#[should_panic(expected = "path a has no NAT box")]
fn only_a_nat_box_can_be_rebound() {
    Pair::new(&two_paths(), Setup::new()).rebind("a", false);
}

#[test]
fn a_nat_box_takes_another_port_or_another_address() {
    let topology = Topology::new().path("a", link()).natted_path("b", link());
    let mut pair = Pair::connected(&topology, Setup::new());
    let path = pair.open_all_paths()[1];
    let seen = |pair: &mut Pair| {
        pair.transfer(Side::Client, 5000, SECOND);
        let stats = pair.server().path_stats(path).unwrap();
        stats.four_tuple.remote.to_string()
    };
    assert_eq!(seen(&mut pair), "10.0.1.100:40000");
    pair.rebind("b", false);
    assert_eq!(seen(&mut pair), "10.0.1.100:40001");
    pair.rebind("b", true);
    assert_eq!(seen(&mut pair), "10.0.1.101:40002");
}

#[test]
fn all_paths_go_through_a_shared_bottleneck() {
    let narrow = LinkConfig::new(8.0, 30 * MS);
    let wide = LinkConfig::new(1000.0, 10 * MS);
    let topology = Topology::new()
        .path("a", wide.clone())
        .path("b", wide)
        .shared_bottleneck(narrow);
    let mut pair = Pair::connected(&topology, Setup::new());
    pair.open_all_paths();
    let rtt = pair.client().path_stats(PathId::ZERO).unwrap().min_rtt;
    assert!((80 * MS..85 * MS).contains(&rtt), "{rtt:?}");
    // Both paths together carry the rate of the bottleneck.
    for from in SIDES {
        let took = pair.transfer(from, 1_000_000, 3 * SECOND);
        assert!(took > SECOND, "{took:?}");
    }
}

#[test]
fn drops_and_corruption_on_links_are_counted() {
    let up = [link().corrupt(1.0), link().loss(1.0), link()];
    let mut topology = Topology::new();
    for (name, up) in ["a", "b", "c"].into_iter().zip(up) {
        topology = topology.asymmetric_path(name, up, link());
    }
    let mut pair = Pair::new(&topology, Setup::new());
    assert_eq!((pair.damaged(), pair.longest_loss()), (0, 0));
    pair.set_outage("c", true);
    for (path, count) in [(0, 3), (1, 4), (2, 1)] {
        for _ in 0..count {
            let FourTuple { local, remote } = pair.four_tuple(path);
            // Such a short datagram gets no answer.
            let packet = Packet::new(local, remote, None, BytesMut::zeroed(10));
            let now = pair.now();
            pair.network.send(now, packet);
        }
    }
    pair.drive(SECOND);
    assert_eq!((pair.damaged(), pair.longest_loss()), (8, 4));
    let counted = ["a", "b", "c"].map(|name| {
        let [up, down] = pair.counters(name);
        (
            up.corrupted,
            up.dropped_loss,
            up.dropped_outage,
            down.dropped(),
        )
    });
    assert_eq!(counted, [(3, 0, 0, 0), (0, 4, 0, 0), (0, 0, 1, 0)]);
}

#[test]
fn change_applies_to_both_directions_of_one_path() {
    let mut pair = Pair::new(&two_paths(), Setup::new());
    pair.change("b", Change::Rate(2.0));
    let rates: Vec<_> = pair.links().iter().flat_map(PathLinks::links).collect();
    let rates = rates
        .into_iter()
        .map(|link| pair.network.link(link).config().rate);
    let expected = [8e6, 8e6, 2e6, 2e6].map(Some);
    assert_eq!(rates.collect::<Vec<_>>(), expected);
}

#[test]
fn time_passes_up_to_a_limit_and_no_further() {
    let mut pair = Pair::new(&two_paths(), Setup::new());
    assert!(!pair.step(), "nothing ever happens");
    pair.drive(3 * SECOND);
    assert_eq!(pair.elapsed(), 3 * SECOND);
    assert_eq!(
        pair.run_until(SECOND, |_| false),
        Err(TimedOut { limit: SECOND })
    );
    assert_eq!(pair.run_until(SECOND, |_| true), Ok(Duration::ZERO));
    pair.connect();
    // The first datagram is 1228 bytes on the wire.
    let arrival = 10 * MS + Duration::from_micros(1228);
    let start = pair.now();
    let moved = |pair: &mut Pair| pair.now() > start;
    let limit = arrival - Duration::from_nanos(1);
    assert_eq!(pair.run_until(limit, moved), Err(TimedOut { limit }));
    assert_eq!(pair.run_until(arrival, moved), Ok(arrival));
    assert!(pair.step());
    let now = pair.now();
    pair.drive(SECOND);
    assert_eq!(pair.now(), now + SECOND);
}

#[test]
fn each_side_has_a_clock_and_can_stop() {
    let mut pair = connected();
    pair.jump_clock(Side::Client, 5 * MS);
    let now = pair.now();
    assert_eq!(
        SIDES.map(|side| pair.time(side) - now),
        [5 * MS, Duration::ZERO]
    );
    pair.stop(Side::Server);
    pair.send(Side::Client, 5000);
    assert!(pair.run_transfers(100 * MS).is_err());
    let server = pair.host_id(Side::Server);
    assert!(pair.host(server).is_stopped());
    assert!(!pair.host(pair.host_id(Side::Client)).is_stopped());
    pair.resume(Side::Server, OnResume::Packets);
    assert!(!pair.host(server).is_stopped());
    // Packets that waited in the socket are delivered at once.
    let took = pair.run_transfers(SECOND).unwrap();
    assert!(took < 100 * MS, "{took:?}");
}

#[test]
fn methods_refer_to_the_newest_connection() {
    let mut pair = connected();
    assert_eq!(
        pair.send(Side::Client, 1),
        Some(StreamId::new(Side::Client, Dir::Uni, 0))
    );
    pair.run_transfers(SECOND).unwrap();
    pair.connect_over(1);
    assert!(
        pair.hosted(Side::Server).is_none(),
        "its Initial is on the way"
    );
    assert!(!pair.is_delivered(Side::Client) && pair.events(Side::Client).is_empty());
    assert_eq!(pair.progress(Side::Server), "no connection");
    pair.run_until_confirmed(SECOND).unwrap();
    for side in SIDES {
        let path = pair.connection(side).path_stats(PathId::ZERO).unwrap();
        assert!(path.four_tuple.local.to_string().starts_with("10.0.1."));
        let host = pair.host_id(side);
        assert_eq!(pair.host(host).connections().len(), 2);
        assert_eq!(pair.open_connections(side), 2);
        assert_eq!(pair.routes(side).connections, 2);
    }
    pair.close(Side::Server);
    assert_eq!(SIDES.map(|side| pair.open_connections(side)), [1, 1]);
}

#[test]
fn into_endpoints_returns_client_and_server() {
    let mut pair = Pair::new(&two_paths(), Setup::new());
    pair.connect();
    let [client, server] = pair.into_endpoints();
    assert_eq!(
        (client.open_connections(), server.open_connections()),
        (1, 0)
    );
}

#[test]
fn events_are_kept_for_both_sides() {
    let mut pair = connected();
    let connected = Event::Connected { multipath: true };
    for side in SIDES {
        assert!(pair.has_event(side, &connected));
        assert!(pair.events(side).contains(&connected));
        let events = pair.events(side).into_iter();
        assert_eq!(events.filter(|event| *event == connected).count(), 1);
    }
    let path = pair.open_path("b", PathStatus::Backup).unwrap();
    assert!(!pair.is_established(path) && pair.is_established(PathId::ZERO));
    pair.run_until(SECOND, |pair| pair.is_established(path))
        .unwrap();
    let established = PathEvent::Established(path);
    assert!(
        SIDES
            .into_iter()
            .all(|side| pair.has_path_event(side, &established))
    );
    assert!(!pair.has_path_event(Side::Client, &PathEvent::Established(PathId(9))));
    assert!(!pair.has_event(Side::Client, &Event::DatagramsUnblocked));
}

#[test]
fn all_paths_are_opened_in_order() {
    let topology = two_paths().path("c", link());
    let mut pair = Pair::connected(&topology, Setup::new());
    let ids = pair.open_all_paths();
    assert_eq!(ids, [PathId(0), PathId(1), PathId(2)]);
    for (path, id) in ids.into_iter().enumerate() {
        let stats = pair.client().path_stats(id).unwrap();
        assert_eq!(stats.four_tuple, pair.four_tuple(path));
    }
}

#[test]
fn a_question_is_answered_by_either_side() {
    let mut pair = connected();
    for from in SIDES {
        for number in 0..2 {
            let id = pair.ask(from, 3000, 7000 + number);
            assert_eq!(id, Some(StreamId::new(from, Dir::Bi, number)));
        }
    }
    assert!(!pair.is_delivered(Side::Client) && !pair.is_delivered(Side::Server));
    let took = pair.run_transfers(SECOND).unwrap();
    assert!(took > 20 * MS, "{took:?}");
    for from in SIDES {
        let hosted = pair.hosted(from).unwrap();
        let read: Vec<_> = hosted.application.incoming().values().collect();
        // By stream: first the streams of the client, then the streams of the server.
        let expected = match from {
            Side::Client => [7000, 3000, 7001, 3000],
            Side::Server => [3000, 7000, 3000, 7001],
        };
        let received: Vec<_> = read.iter().map(|read| read.received).collect();
        assert_eq!(received, expected);
        assert_eq!(hosted.application.received(), received.iter().sum());
        assert_eq!(hosted.application.asked(), 2);
    }
}

#[test]
fn a_transfer_takes_its_time() {
    let mut pair = connected();
    let took = pair.transfer(Side::Server, 1_000_000, 3 * SECOND);
    assert!((SECOND..2 * SECOND).contains(&took), "{took:?}");
    let progress = pair.progress(Side::Client);
    assert!(progress.contains("received 1000000 bytes"), "{progress}");
    pair.set_outage("a", true);
    pair.send(Side::Client, 1000);
    assert!(pair.run_transfers(SECOND).is_err());
    assert!(pair.is_delivered(Side::Server) && !pair.is_delivered(Side::Client));
}

#[test]
#[should_panic(expected = "transfer from Server: it did not happen within 100ms")]
fn a_transfer_that_takes_too_long_panics() {
    connected().transfer(Side::Server, 1_000_000, 100 * MS);
}

#[test]
fn closed_pair_has_no_state_left() {
    let mut pair = connected();
    pair.close(Side::Client);
    let Some(ConnectionError::ApplicationClosed(close)) = lost(&pair, Side::Server) else {
        panic!("{:?}", pair.events(Side::Server));
    };
    assert_eq!(close.error_code, VarInt::from_u32(0));
    for side in SIDES {
        assert!(pair.hosted(side).unwrap().is_drained());
        assert_eq!(pair.open_connections(side), 0);
        assert_eq!(pair.routes(side), RouteCounts::default());
    }
}

#[test]
#[should_panic(expected = "state is left: it did not happen within 10ms")]
fn remaining_state_after_a_close_is_reported() {
    connected().run_until_drained(10 * MS);
}

#[test]
fn restarted_server_has_no_state_and_accepts_new_connections() {
    let mut pair = connected();
    pair.restart_server();
    assert_eq!(pair.open_connections(Side::Server), 0);
    let now = pair.now();
    let hosted = pair.hosted_mut(Side::Client);
    hosted.application.send(now, &mut hosted.connection, 100);
    pair.run_until(SECOND, |pair| lost(pair, Side::Client).is_some())
        .unwrap();
    assert_eq!(lost(&pair, Side::Client), Some(ConnectionError::Reset));
    pair.connect();
    pair.run_until_confirmed(SECOND).unwrap();
    pair.transfer(Side::Server, 1000, SECOND);
}

#[test]
fn accept_policy_decides_on_connection_attempts() {
    let pair = |accept| {
        let mut setup = Setup::new();
        setup.accept = accept;
        Pair::new(&two_paths(), setup)
    };
    let confirmed = |accept| {
        let mut pair = pair(accept);
        pair.connect();
        pair.run_until_confirmed(SECOND).unwrap()
    };
    let (once, twice) = (
        confirmed(AcceptPolicy::Accept),
        confirmed(AcceptPolicy::Retry),
    );
    assert!(
        (20 * MS..25 * MS).contains(&(twice - once)),
        "{once:?} {twice:?}"
    );
    let mut refusing = pair(AcceptPolicy::Refuse);
    refusing.connect();
    assert!(refusing.run_until_confirmed(SECOND).is_err());
    assert!(lost(&refusing, Side::Client).is_some());
    let mut silent = pair(AcceptPolicy::Ignore);
    silent.connect();
    assert!(silent.run_until_confirmed(SECOND).is_err());
    assert_eq!(lost(&silent, Side::Client), None);
    assert_eq!(silent.counters("a")[1].packets_in, 0);
    assert_eq!(silent.routes(Side::Server), RouteCounts::default());
    assert!(silent.counters("a")[0].packets_out > 0);
}

#[test]
#[should_panic(expected = "the Server read wrong bytes on stream")]
fn bytes_that_were_not_generated_are_noticed() {
    let mut pair = connected();
    let client = pair.client();
    let id = client.streams().open(Dir::Uni).unwrap();
    client.send_stream(id).write(b"what is this?").unwrap();
    pair.drive(SECOND);
}

/// A stream of the client with correct bytes that its application does not know.
fn unknown_stream(pair: &mut Pair) -> StreamId {
    let client = pair.client();
    let id = client.streams().open(Dir::Uni).unwrap();
    let bytes = pattern::chunk(Origin::Opener(id), 0, 100);
    client.send_stream(id).write(&bytes).unwrap();
    id
}

#[test]
#[should_panic(expected = "ended after Some(100) bytes: None")]
fn unexpected_end_of_a_stream_is_noticed() {
    let mut pair = connected();
    let id = unknown_stream(&mut pair);
    pair.client().send_stream(id).finish().unwrap();
    pair.drive(SECOND);
}

#[test]
#[should_panic(expected = "was reset: None")]
fn unexpected_reset_is_noticed() {
    let mut pair = connected();
    let id = unknown_stream(&mut pair);
    let code = VarInt::from_u32(5);
    pair.client().send_stream(id).reset(code).unwrap();
    pair.drive(SECOND);
}

#[test]
#[should_panic(expected = "was stopped: None")]
fn unexpected_stop_is_noticed() {
    let mut pair = connected();
    let id = pair.send(Side::Client, 1_000_000).unwrap();
    pair.drive(50 * MS);
    let code = VarInt::from_u32(5);
    pair.server().recv_stream(id).stop(code).unwrap();
    pair.drive(SECOND);
}

#[test]
#[should_panic(expected = "this datagram was not sent")]
fn datagram_that_was_not_sent_is_noticed() {
    let mut pair = connected();
    on(&mut pair, Side::Client, |application, connection, _| {
        application.send_datagram(connection, 20).unwrap();
        let other = Bytes::from_static(&[1; 21]);
        connection.datagrams().send(other).unwrap();
    });
    pair.drive(SECOND);
}

#[test]
#[should_panic(expected = "20 bytes of datagrams came again, but only 0 were repeated")]
fn repeated_datagram_is_noticed() {
    let mut pair = connected();
    on(&mut pair, Side::Client, |application, connection, _| {
        application.send_datagram(connection, 20).unwrap();
        let same = application.sent_datagram(&[0; 8]).unwrap();
        connection.datagrams().send(same).unwrap();
    });
    pair.drive(SECOND);
}

#[test]
fn datagrams_arrive_as_they_were_sent() {
    let mut pair = connected();
    // DATAGRAMs without numbers are not compared.
    on(&mut pair, Side::Client, |_, connection, _| {
        connection
            .datagrams()
            .send(Bytes::from_static(b"hello"))
            .unwrap();
    });
    let sizes = [8, 9, 500];
    for size in sizes {
        on(&mut pair, Side::Server, |application, connection, _| {
            application.send_datagram(connection, size).unwrap();
        });
    }
    pair.drive(SECOND);
    let received = |side| pair.hosted(side).unwrap().application.datagrams();
    assert_eq!(received(Side::Server), ["hello"]);
    let numbered = received(Side::Client).iter().zip(0..).zip(sizes);
    for ((datagram, number), size) in numbered {
        assert_eq!(datagram.len(), size);
        assert_eq!(datagram[..8], u64::to_be_bytes(number));
        assert!(pattern::matches(
            Origin::Datagram(number),
            0,
            &datagram[8..]
        ));
    }
    assert_eq!(received(Side::Client).len(), 3);
}
