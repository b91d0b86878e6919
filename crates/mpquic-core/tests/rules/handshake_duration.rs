//! How long a handshake may take.

use mpquic_core::unstable_wire::frame::Frame;
use mpquic_core::{ConnectionError, Side};
use mpquic_sim::{LinkConfig, Pair, Setup, Topology};

use super::harness::{Forgery, Kind, MS, Net, Options, SECOND};

/// Checks that a side's connection ends in silence 20 s after it was made.
fn assert_ends(net: &mut Net, side: Side) {
    assert_eq!(net.lost(side), None);
    net.wait(MS);
    assert_eq!(net.lost(side), Some(ConnectionError::HandshakeTimedOut));
    assert!(net.connection(side).is_drained());
    assert!(net.take(side).is_empty());
    assert_eq!(net.node(side).endpoint.open_connections(), 0);
}

/// A client that says something now and then keeps the connection from idling, but no longer than
/// that.
#[test]
fn a_server_waits_for_the_handshake_only_so_long() {
    let mut net = Net::with_flights(Options::default(), &[Side::Client]);
    net.delivers = |_| false;
    let start = net.now;
    for number in 10..19 {
        net.wait(start + (number - 9) as u32 * 2 * SECOND - net.now);
        let ping = Forgery::new(Side::Client, Kind::Initial, number, &[Frame::Ping]);
        let dropped = net.server().stats().packets_dropped;
        net.give(net.forge(&ping));
        assert_eq!(net.server().stats().packets_dropped, dropped);
    }
    net.wait(start + 20 * SECOND - MS - net.now);
    assert_ends(&mut net, Side::Server);
}

#[test]
fn a_client_waits_for_the_handshake_only_so_long() {
    let mut net = Net::connecting(Options::default());
    net.delivers = |_| false;
    net.wait(20 * SECOND - MS);
    assert_ends(&mut net, Side::Client);

    // The server answers, but its Handshake packets never come.
    let mut net = Net::connecting(Options::default());
    let start = net.now;
    let is_initial =
        |sent: &super::harness::Sent| sent.packets().iter().all(|packet| !packet.is_handshake());
    net.delivers = is_initial;
    net.wait(start + 20 * SECOND - MS - net.now);
    assert!(net.client().stats().datagrams_received > 0);
    assert_ends(&mut net, Side::Client);
}

/// An option that the handshake of a connection is bound by, and nothing later.
#[test]
fn the_duration_is_that_of_the_handshake_alone() {
    let options = Options::default().transport(|transport| {
        transport.max_handshake_duration = 300 * MS;
        transport.max_idle_timeout = None;
    });
    let mut net = Net::connected(options.clone());
    net.wait(600 * SECOND);
    for side in [Side::Client, Side::Server] {
        assert_eq!(net.lost(side), None);
        assert!(!net.connection(side).is_closed());
    }
    let mut net = Net::connecting(options);
    net.delivers = |_| false;
    net.wait(300 * MS - MS);
    assert_ends(&mut net, Side::Client);
}

/// A round trip takes 2 s, and all that either side sends within a second is lost.
#[test]
fn slow_handshakes_that_lose_packets_end_in_time() {
    for lost in [Side::Client, Side::Server] {
        for half in 0..10 {
            let good = LinkConfig::new(1.0, SECOND);
            let from = half * 500 * MS;
            let bad = good.clone().outage(from, from + SECOND);
            let (up, down) = match lost {
                Side::Client => (bad, good),
                Side::Server => (good, bad),
            };
            let topology = Topology::new().asymmetric_path("satellite", up, down);
            let mut pair = Pair::new(&topology, Setup::new().tls());
            pair.connect();
            let confirmed = pair.run_until_confirmed(20 * SECOND);
            assert!(confirmed.is_ok(), "{lost:?}, {from:?}");
            assert!(!pair.server().is_handshaking(), "{lost:?}, {from:?}");
        }
    }
}
