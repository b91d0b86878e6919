//! How connections end: close, idle timeout, stateless reset, no path left.

use std::time::Duration;

use mpquic_core::crypto::CryptoError;
use mpquic_core::{
    AcceptError, ConnectionClose, ConnectionError, Event, Fault, TransportError, VarInt,
};
use mpquic_sim::{LinkConfig, Pair, Setup, Side, Topology};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn two_paths() -> Topology {
    Topology::new()
        .path("a", LinkConfig::new(50.0, 10 * MS))
        .path("b", LinkConfig::new(50.0, 40 * MS))
}

fn lost(pair: &Pair, side: Side) -> Option<ConnectionError> {
    pair.events(side).into_iter().find_map(|event| match event {
        Event::ConnectionLost { reason } => Some(reason),
        _ => None,
    })
}

/// RFC 9000 section 10.2: the peer's application gets code and reason.
#[test]
fn close_tells_the_peer_and_leaves_nothing() {
    for side in [Side::Client, Side::Server] {
        let mut pair = Pair::connected(&two_paths(), Setup::new().tls());
        pair.open_all_paths();
        pair.transfer(!side, 200_000, SECOND);
        let now = pair.now();
        pair.connection(side)
            .close(now, VarInt::from_u32(42), "enough".into());
        assert!(pair.connection(side).is_closed());
        pair.run_until_drained(10 * SECOND);
        match lost(&pair, !side) {
            Some(ConnectionError::ApplicationClosed(close)) => {
                assert_eq!(close.error_code, VarInt::from_u32(42));
                assert_eq!(&close.reason[..], b"enough");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(pair.open_connections(Side::Client), 0);
        assert_eq!(pair.open_connections(Side::Server), 0);
        assert_eq!(pair.next_event(), None);
    }
}

/// RFC 9000 section 10.2 and MP-146: closing lasts three times the largest PTO.
#[test]
fn the_closing_period_covers_the_slowest_path() {
    let mut pair = Pair::connected(&two_paths(), Setup::new());
    pair.open_all_paths();
    pair.transfer(Side::Client, 2_000_000, 5 * SECOND);
    let start = pair.now();
    pair.close(Side::Client);
    let took = pair.now() - start;
    // PTO of the slower path: at least its RTT of 80 ms.
    assert!(took >= 240 * MS && took < 2 * SECOND, "{took:?}");
}

/// RFC 9000 section 10.2.1: the close may be lost; later packets are answered with it again.
#[test]
fn a_lost_close_is_repeated_when_the_peer_goes_on_sending() {
    let topology = Topology::new().path("only", LinkConfig::new(50.0, 10 * MS));
    let mut pair = Pair::connected(&topology, Setup::new());
    pair.send(Side::Server, 5_000_000);
    pair.drive(100 * MS);
    let up = pair.links()[0].up;
    pair.network
        .change_link(up, &mpquic_sim::Change::Outage(true));
    let now = pair.now();
    pair.client().close(now, VarInt::from_u32(1), "".into());
    pair.drive(5 * MS);
    pair.network
        .change_link(up, &mpquic_sim::Change::Outage(false));
    pair.drive(100 * MS);
    assert!(
        matches!(
            lost(&pair, Side::Server),
            Some(ConnectionError::ApplicationClosed(_))
        ),
        "{:?}",
        lost(&pair, Side::Server)
    );
    pair.run_until_drained(10 * SECOND);
    let [up, down] = pair.counters("only");
    assert!(up.packets_in < down.packets_in, "a close for each packet");
}

#[test]
fn both_sides_may_close_at_once() {
    let mut pair = Pair::connected(&two_paths(), Setup::new());
    for side in [Side::Client, Side::Server] {
        let now = pair.now();
        pair.connection(side)
            .close(now, VarInt::from_u32(7), "".into());
    }
    pair.run_until_drained(10 * SECOND);
}

/// RFC 9000 section 10.2.3: during the handshake too, in packets the peer can open.
#[test]
fn a_close_during_the_handshake_arrives() {
    for setup in [Setup::new(), Setup::new().tls()] {
        for wait in [0, 5, 12, 22] {
            let mut pair = Pair::new(&two_paths(), setup.clone());
            pair.connect();
            pair.drive(wait * MS);
            let now = pair.now();
            pair.client().close(now, VarInt::from_u32(5), "no".into());
            pair.run_until_drained(20 * SECOND);
            assert_eq!(pair.open_connections(Side::Client), 0);
            assert_eq!(pair.open_connections(Side::Server), 0);
        }
    }
}

/// RFC 9000 section 10.1 and MP-147: idle means on all paths.
#[test]
fn an_idle_connection_ends_silently_after_the_smaller_timeout() {
    let mut setup = Setup::new();
    setup.client.max_idle_timeout = Some(30 * SECOND);
    setup.server.max_idle_timeout = Some(3 * SECOND);
    let mut pair = Pair::connected(&two_paths(), setup);
    pair.open_all_paths();
    pair.drive(SECOND);
    let start = pair.now();
    pair.run_until_drained(10 * SECOND);
    let took = pair.now() - start;
    assert!(took > SECOND && took < 4 * SECOND, "{took:?}");
    for side in [Side::Client, Side::Server] {
        assert_eq!(lost(&pair, side), Some(ConnectionError::TimedOut));
    }
}

#[test]
fn keep_alive_keeps_an_idle_connection() {
    let setup = Setup::new().transport(|transport| {
        transport.max_idle_timeout = Some(3 * SECOND);
        transport.keep_alive_interval = Some(SECOND);
    });
    let mut pair = Pair::connected(&two_paths(), setup);
    pair.open_all_paths();
    pair.drive(30 * SECOND);
    for side in [Side::Client, Side::Server] {
        assert_eq!(lost(&pair, side), None);
    }
    pair.transfer(Side::Server, 10_000, SECOND);
    pair.close(Side::Client);
}

#[test]
fn a_dead_network_ends_in_a_timeout_not_in_a_storm() {
    let setup = Setup::new().transport(|transport| {
        transport.max_idle_timeout = Some(10 * SECOND);
    });
    let mut pair = Pair::connected(&two_paths(), setup);
    pair.open_all_paths();
    pair.send(Side::Client, 10_000_000);
    pair.drive(200 * MS);
    let before = pair.client().stats().datagrams_sent;
    pair.set_outage("a", true);
    pair.set_outage("b", true);
    pair.run_until_drained(60 * SECOND);
    assert_eq!(lost(&pair, Side::Client), Some(ConnectionError::TimedOut));
    assert_eq!(lost(&pair, Side::Server), Some(ConnectionError::TimedOut));
    let sent = pair.client().stats().datagrams_sent - before;
    assert!(sent < 1500, "{sent} datagrams into a dead network");
}

/// RFC 9000 section 10.3: a server that lost its state resets the connection.
#[test]
fn a_restarted_server_resets_the_connection() {
    let mut pair = Pair::connected(&two_paths(), Setup::new().tls());
    pair.open_all_paths();
    pair.transfer(Side::Client, 100_000, SECOND);
    pair.restart_server();
    pair.send(Side::Client, 100_000);
    pair.run_until(SECOND, |pair| lost(pair, Side::Client).is_some())
        .unwrap();
    assert_eq!(lost(&pair, Side::Client), Some(ConnectionError::Reset));
    pair.run_until(10 * SECOND, |pair| {
        pair.hosted(Side::Client).unwrap().is_drained()
    })
    .unwrap();
    assert_eq!(pair.open_connections(Side::Client), 0);
}

/// Every packet puts the probe timeout off (RFC 9002 section 6.2.1); what keeps a path alive must
/// not do so for ever, while the peer hears PINGs and waits for what was lost.
#[test]
fn keep_alive_does_not_hold_up_lost_data() {
    let topology = Topology::new().path("only", LinkConfig::new(50.0, 10 * MS));
    let setup = Setup::new().transport(|transport| {
        transport.keep_alive_interval = Some(SECOND / 2);
        transport.max_idle_timeout = Some(120 * SECOND);
    });
    let mut pair = Pair::connected(&topology, setup);
    let up = pair.links()[0].up;
    pair.set_outage("only", true);
    pair.send(Side::Client, 1000);
    pair.drive(20 * SECOND);
    let outage = mpquic_sim::Change::Outage(false);
    pair.network.change_link(up, &outage);
    pair.drive(SECOND);
    let server = pair.hosted(Side::Server).unwrap();
    assert_eq!(server.application.received(), 1000);
}

/// Every reason for the end of a connection, or of an attempt, can be passed on as an error.
#[test]
fn errors_tell_their_cause() {
    type Any = Box<dyn std::error::Error + Send + Sync>;
    let fault = TransportError::new(Fault::EmptyPacket).in_frame(6);
    let close = |reason: &'static str| ConnectionClose {
        code: fault.code(),
        frame_type: 6,
        reason: reason.into(),
    };
    let refused = AcceptError {
        cause: ConnectionError::CidsExhausted,
        response: None,
    };
    let cause = std::error::Error::source(&refused).map(ToString::to_string);
    assert_eq!(cause.as_deref(), Some("connection IDs are exhausted"));
    for (error, text) in [
        (
            Any::from(fault),
            "PROTOCOL_VIOLATION: packet without frames",
        ),
        (
            close("packet without frames").into(),
            "PROTOCOL_VIOLATION: packet without frames",
        ),
        (close("").into(), "PROTOCOL_VIOLATION"),
        (refused.into(), "the connection could not be accepted"),
        (CryptoError.into(), "the packet could not be authenticated"),
    ] {
        assert_eq!(error.to_string(), text);
    }
}
