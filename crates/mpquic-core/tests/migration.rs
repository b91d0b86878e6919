//! A path whose addresses change: NAT rebinding and the client's own move (RFC 9000 section 9,
//! inside one path ID, MP-082).

use std::net::SocketAddr;
use std::time::Duration;

use mpquic_core::{Event, PathEvent, PathId};
use mpquic_sim::{Hop, LinkConfig, Pair, Setup, Side, Topology};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn natted() -> Topology {
    Topology::new()
        .natted_path("home", LinkConfig::new(20.0, 10 * MS))
        .natted_path("mobile", LinkConfig::new(20.0, 20 * MS))
}

/// The addresses a path of the server migrated to.
fn migrations(pair: &Pair, path: PathId) -> Vec<SocketAddr> {
    let events = pair.events(Side::Server).into_iter();
    let migrated = |event| match event {
        Event::Path(PathEvent::Migrated(id, four_tuple)) if id == path => Some(four_tuple.remote),
        _ => None,
    };
    events.filter_map(migrated).collect()
}

fn remote(pair: &mut Pair, path: PathId) -> SocketAddr {
    let stats = pair.server().path_stats(path).unwrap();
    stats.four_tuple.remote
}

#[test]
fn a_nat_gives_another_port_in_mid_transfer() {
    for (name, path, from) in [
        ("home", PathId(0), Side::Client),
        ("home", PathId(0), Side::Server),
        ("mobile", PathId(1), Side::Client),
        ("mobile", PathId(1), Side::Server),
    ] {
        let mut pair = Pair::connected(&natted(), Setup::new());
        pair.open_all_paths();
        let before = remote(&mut pair, path);
        pair.send(from, 6_000_000);
        pair.drive(300 * MS);
        pair.rebind(name, false);
        pair.run_transfers(10 * SECOND).unwrap();
        let after = remote(&mut pair, path);
        assert_eq!(before.ip(), after.ip());
        assert_ne!(before.port(), after.port());
        assert_eq!(migrations(&pair, path), [after]);
        let other = PathId(1 - path.0);
        assert_eq!(migrations(&pair, other), [], "only one path moved");
        assert_eq!(pair.server().paths().count(), 2);
        pair.close(Side::Client);
    }
}

#[test]
fn a_nat_gives_another_address() {
    let mut pair = Pair::connected(&natted(), Setup::new().tls());
    pair.open_all_paths();
    let before = remote(&mut pair, PathId(1));
    pair.send(Side::Server, 6_000_000);
    pair.drive(300 * MS);
    pair.rebind("mobile", true);
    pair.run_transfers(20 * SECOND).unwrap();
    let after = remote(&mut pair, PathId(1));
    assert_ne!(before.ip(), after.ip());
    assert_eq!(migrations(&pair, PathId(1)), [after]);
    pair.close(Side::Server);
}

/// A single path, so nothing else can carry the data meanwhile.
#[test]
fn the_only_path_survives_rebinding_again_and_again() {
    let topology = Topology::new().natted_path("home", LinkConfig::new(20.0, 10 * MS));
    let mut pair = Pair::connected(&topology, Setup::new());
    pair.send(Side::Client, 8_000_000);
    for _ in 0..5 {
        pair.drive(300 * MS);
        pair.rebind("home", false);
    }
    pair.run_transfers(20 * SECOND).unwrap();
    assert!(migrations(&pair, PathId::ZERO).len() >= 4);
    pair.close(Side::Client);
}

/// The server cannot reach a client that moved while idle; the client's next packet shows where
/// it is.
#[test]
fn rebinding_while_idle_is_noticed_with_the_next_packet() {
    let topology = Topology::new().natted_path("home", LinkConfig::new(20.0, 10 * MS));
    let mut pair = Pair::connected(&topology, Setup::new());
    pair.transfer(Side::Server, 100_000, SECOND);
    pair.drive(5 * SECOND);
    pair.rebind("home", false);
    pair.transfer(Side::Client, 10_000, SECOND);
    pair.transfer(Side::Server, 2_000_000, 5 * SECOND);
    assert_eq!(migrations(&pair, PathId::ZERO).len(), 1);
}

/// RFC 9000 section 9.4: measurements of the old path do not hold on the new one.
#[test]
fn moving_to_another_address_starts_congestion_control_over() {
    let mut pair = Pair::connected(&natted(), Setup::new());
    let mut controller = mpquic_cc::default().build();
    controller.on_path_opened(PathId::ZERO, pair.now(), 1200);
    let first = controller.window(PathId::ZERO);
    pair.send(Side::Server, 50_000_000);
    pair.drive(2 * SECOND);
    let before = pair.server().path_stats(PathId::ZERO).unwrap();
    assert!(before.window > 2 * first, "{before:?}");
    pair.rebind("home", true);
    pair.run_until(SECOND, |pair| !migrations(pair, PathId::ZERO).is_empty())
        .unwrap();
    let after = pair.server().path_stats(PathId::ZERO).unwrap();
    // A few packets may have been acknowledged since.
    assert!(after.window <= first + first / 2, "{after:?}");
}

/// RFC 9000 section 9.2: a client that moves by itself validates the new path.
#[test]
fn the_client_moves_a_path_to_another_local_address() {
    let topology = Topology::new()
        .path("old", LinkConfig::new(20.0, 10 * MS))
        .path("new", LinkConfig::new(20.0, 10 * MS))
        .single_server_address();
    let mut pair = Pair::connected(&topology, Setup::new());
    pair.send(Side::Client, 4_000_000);
    pair.send(Side::Server, 4_000_000);
    pair.drive(300 * MS);
    pair.set_outage("old", true);
    let (now, local) = (pair.now(), pair.four_tuple(1).local);
    pair.client()
        .path_mut(PathId::ZERO)
        .unwrap()
        .set_local_address(now, local)
        .unwrap();
    pair.run_transfers(20 * SECOND).unwrap();
    assert_eq!(remote(&mut pair, PathId::ZERO), local);
    assert_eq!(pair.client().paths().collect::<Vec<_>>(), [PathId::ZERO]);
    pair.close(Side::Client);
}

/// Two addresses of a client; nothing passes between the second one and the server.
fn dead_end() -> Pair {
    let topology = Topology::new()
        .path("old", LinkConfig::new(20.0, 10 * MS))
        .path("new", LinkConfig::new(20.0, 10 * MS))
        .single_server_address();
    let mut pair = Pair::connected(&topology, Setup::new());
    pair.drive(SECOND);
    pair.set_outage("new", true);
    pair
}

fn move_to(pair: &mut Pair, path: usize) {
    let (now, local) = (pair.now(), pair.four_tuple(path).local);
    let mut path = pair.client().path_mut(PathId::ZERO).unwrap();
    path.set_local_address(now, local).unwrap();
}

fn local(pair: &mut Pair) -> SocketAddr {
    let stats = pair.client().path_stats(PathId::ZERO).unwrap();
    stats.four_tuple.local
}

/// RFC 9000 section 9.3.2: after the new address fails, the old address is used again, with its
/// connection ID.
#[test]
fn a_client_that_moves_where_nothing_passes_returns() {
    let mut pair = dead_end();
    let old = pair.four_tuple(0).local;
    for _ in 0..3 {
        move_to(&mut pair, 1);
        pair.send(Side::Client, 100_000);
        pair.drive(500 * MS);
        assert_ne!(local(&mut pair), old);
        pair.run_transfers(5 * SECOND).unwrap();
        assert_eq!(local(&mut pair), old);
    }
    pair.set_outage("new", false);
    move_to(&mut pair, 1);
    pair.transfer(Side::Client, 100_000, 5 * SECOND);
    assert_ne!(local(&mut pair), old);
    pair.close(Side::Client);
}

/// The application need not wait for that.
#[test]
fn a_client_may_return_before_validation_fails() {
    let mut pair = dead_end();
    let old = pair.four_tuple(0).local;
    for _ in 0..3 {
        move_to(&mut pair, 1);
        pair.drive(100 * MS);
        move_to(&mut pair, 0);
        assert_eq!(local(&mut pair), old);
        pair.transfer(Side::Client, 100_000, SECOND);
    }
    pair.close(Side::Client);
}

/// RFC 9000 section 8.2.4: without another path, a client may as well wait for one. After a
/// rebinding, the server's first challenge is small, so a second one must follow; an outage at that
/// moment ends no connection.
#[test]
fn an_outage_after_a_rebinding_leaves_the_only_path() {
    let topology = Topology::new().natted_path("home", LinkConfig::new(20.0, 10 * MS));
    let mut pair = Pair::connected(&topology, Setup::new());
    pair.drive(SECOND);
    pair.rebind("home", false);
    pair.client().path_mut(PathId::ZERO).unwrap().ping();
    pair.run_until(SECOND, |pair| !migrations(pair, PathId::ZERO).is_empty())
        .unwrap();
    pair.set_outage("home", true);
    pair.drive(15 * SECOND);
    pair.set_outage("home", false);
    pair.transfer(Side::Client, 100_000, 5 * SECOND);
    pair.transfer(Side::Server, 1_000_000, 5 * SECOND);
    pair.close(Side::Client);
}

/// RFC 9000 section 9: a server may not take migration; then the old address stays.
#[test]
fn a_server_that_takes_no_migration_stays_where_it_is() {
    let mut setup = Setup::new().transport(|transport| {
        transport.max_idle_timeout = Some(5 * SECOND);
    });
    setup.migration = false;
    let mut pair = Pair::connected(&natted(), setup);
    let before = remote(&mut pair, PathId::ZERO);
    pair.rebind("home", true);
    pair.send(Side::Client, 100_000);
    pair.drive(SECOND);
    assert_eq!(remote(&mut pair, PathId::ZERO), before);
    assert_eq!(migrations(&pair, PathId::ZERO), []);
}

/// RFC 9000 section 9.6 over links of their own, with loss, in mid transfer and with a second path:
/// path 0 moves to the server's preferred address, and the way to the old one may end.
#[test]
fn rfc_9000_9_6_a_transfer_moves_to_the_preferred_address() {
    for (seed, tls) in [(1, false), (2, false), (3, true)] {
        let topology = Topology::new()
            .path("shared", LinkConfig::new(20.0, 10 * MS).loss(0.02))
            .path("other", LinkConfig::new(20.0, 20 * MS));
        let mut setup = Setup::new().seed(seed);
        setup.preferred_address = Some("10.9.9.9:8443".parse().unwrap());
        let setup = if tls { setup.tls() } else { setup };
        let mut pair = Pair::new(&topology, setup);
        let (server, client) = (pair.host_id(Side::Server), pair.host_id(Side::Client));
        let ip = "10.9.9.9".parse().unwrap();
        let link = LinkConfig::new(20.0, 15 * MS).loss(0.02);
        let up = Hop::Link(pair.network.add_link(link.clone()));
        let down = Hop::Link(pair.network.add_link(link));
        let from = pair.links()[0].client;
        pair.network.add_route(from, ip, vec![up], server);
        pair.network.add_route(ip, from, vec![down], client);
        pair.connect();
        pair.run_until_confirmed(10 * SECOND).unwrap();
        pair.open_all_paths();
        pair.send(Side::Client, 3_000_000);
        pair.send(Side::Server, 3_000_000);
        pair.drive(SECOND);
        for side in [Side::Client, Side::Server] {
            let four_tuple = pair
                .connection(side)
                .path_stats(PathId(0))
                .unwrap()
                .four_tuple;
            let moved = Event::Path(PathEvent::Migrated(PathId(0), four_tuple));
            assert!(pair.has_event(side, &moved));
            assert_eq!(four_tuple.local.ip() == ip, side == Side::Server);
        }
        // Nothing but the preferred address is left.
        pair.set_outage("shared", true);
        pair.set_outage("other", true);
        pair.send(Side::Client, 500_000);
        pair.send(Side::Server, 500_000);
        pair.run_transfers(20 * SECOND).unwrap();
        pair.close(Side::Client);
    }
}
