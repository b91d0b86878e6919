//! The default plan in virtual time: paths that fail, interfaces that come and go.

use std::time::{Duration, Instant};

use mpquic_core::{Event, FourTuple, PathEvent, PathId, PathState, TransportErrorCode};
use mpquic_sim::{LinkConfig, Pair, Setup, Side, Topology};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// One-way delay of each link.
const DELAY: Duration = Duration::from_millis(10);
const NAMES: [&str; 3] = ["a", "b", "c"];

/// A server with one address, and a client with one interface per path. The client has just begun
/// its handshake over the first interface.
fn pair(paths: usize, setup: Setup) -> Pair {
    let names = NAMES.iter().take(paths);
    let topology = Topology::new().single_server_address();
    let topology = names.fold(topology, |topology, name| {
        topology.path(name, LinkConfig::new(20.0, DELAY))
    });
    let mut pair = Pair::new(&topology, setup);
    pair.connect();
    pair.manage_paths(&*mpquic_paths::default());
    pair
}

/// The paths of the client that are not abandoned: the index in the topology, the path, its state.
fn open_paths(pair: &mut Pair) -> Vec<(usize, PathId, PathState)> {
    let locals: Vec<_> = (0..pair.links().len())
        .map(|index| pair.four_tuple(index).local)
        .collect();
    let client = pair.client();
    let paths: Vec<_> = client.paths().collect();
    let stats = paths.iter().filter_map(|path| client.path_stats(*path));
    let open = stats.filter(|path| path.state != PathState::Abandoned);
    let mut all: Vec<_> = open
        .map(|path| {
            let FourTuple { local, .. } = path.four_tuple;
            let index = locals.iter().position(|of| *of == local);
            (
                index.expect("an address of the client"),
                path.id,
                path.state,
            )
        })
        .collect();
    all.sort_by_key(|path| path.0);
    all
}

/// The topology's indices of the active paths.
fn working(pair: &mut Pair) -> Vec<usize> {
    let open = open_paths(pair).into_iter();
    let working = open.filter(|path| path.2 == PathState::Active);
    working.map(|path| path.0).collect()
}

/// The times of the client's path events for which `is_it` is true.
fn times(pair: &Pair, is_it: impl Fn(&PathEvent) -> bool) -> Vec<Instant> {
    let events = pair.hosted(Side::Client).expect("a connection").events();
    let found = events.iter().filter(|(_, event)| match event {
        Event::Path(event) => is_it(event),
        _ => false,
    });
    found.map(|(time, _)| *time).collect()
}

fn abandonments(pair: &Pair) -> Vec<Instant> {
    times(pair, |event| matches!(event, PathEvent::Abandoned { .. }))
}

fn establishments(pair: &Pair) -> Vec<Instant> {
    times(pair, |event| matches!(event, PathEvent::Established(_)))
}

#[test]
fn a_path_opens_from_every_interface_as_soon_as_the_handshake_is_complete() {
    let mut pair = pair(3, Setup::new());
    pair.drive(SECOND);
    assert_eq!(working(&mut pair), [0, 1, 2]);
    let connected = pair.hosted(Side::Client).expect("a connection").events();
    let connected = connected
        .iter()
        .find(|(_, event)| matches!(event, Event::Connected { .. }));
    let connected = connected.expect("a handshake").0;
    for established in establishments(&pair) {
        // Paths may have to wait for a connection ID of the server, and validation takes a round
        // trip.
        let took = established - connected;
        assert!(took <= 2 * 2 * DELAY + 5 * MS, "{took:?}");
    }
}

/// Each time the server closes the path, the client opens it again.
#[test]
fn a_path_that_worked_is_opened_again_after_a_second() {
    let mut pair = pair(2, Setup::new());
    pair.drive(SECOND);
    for _ in 0..4 {
        let (_, path, _) = open_paths(&mut pair)[1];
        let now = pair.time(Side::Server);
        let code = TransportErrorCode::APPLICATION_ABANDON_PATH;
        let closed = pair.server().close_path(now, path, code);
        assert_eq!(closed, Ok(()));
        pair.drive(3 * SECOND / 2);
        assert_eq!(working(&mut pair), [0, 1]);
        let abandoned = *abandonments(&pair).last().expect("it was abandoned");
        let opened = *establishments(&pair).last().expect("it was opened");
        let rest = opened.saturating_duration_since(abandoned);
        assert!(rest >= SECOND + 2 * DELAY, "{rest:?}");
        assert!(rest <= SECOND + 3 * DELAY, "{rest:?}");
    }
}

#[test]
fn a_path_that_never_works_is_tried_after_1_2_and_4_seconds() {
    let mut pair = pair(2, Setup::new());
    pair.set_outage("b", true);
    for (count, rest) in [(1, 1), (2, 2), (3, 4)] {
        let limit = 60 * SECOND;
        let is_abandoned = |pair: &mut Pair| abandonments(pair).len() == count;
        pair.run_until(limit, is_abandoned).expect("it fails");
        let sent = |pair: &Pair| pair.counters("b")[0].packets_in;
        let before = sent(&pair);
        pair.drive(SECOND * rest - MS);
        assert_eq!(sent(&pair), before, "before {rest} s");
        pair.drive(2 * MS);
        assert!(sent(&pair) > before, "after {rest} s");
    }
    assert_eq!(working(&mut pair), [0]);
}

/// When an interface goes, its path closes at once. When an interface comes, a path opens at once.
#[test]
fn paths_go_and_come_with_their_interfaces() {
    for (first, left) in [(0, 1), (1, 0)] {
        let mut pair = pair(2, Setup::new());
        pair.drive(SECOND);
        for _ in 0..3 {
            pair.set_interfaces(&[NAMES[left]]);
            let elapsed = pair.transfer(Side::Server, 10_000, SECOND);
            assert!(elapsed <= 6 * DELAY, "{elapsed:?}");
            assert_eq!(working(&mut pair), [left], "not {first}");
            pair.drive(SECOND);
            let now = pair.now();
            pair.set_interfaces(&NAMES[..2]);
            pair.drive(SECOND);
            assert_eq!(working(&mut pair), [0, 1]);
            let opened = *establishments(&pair).last().expect("it was opened");
            let took = opened - now;
            assert!(took <= 2 * DELAY + 5 * MS, "{took:?}");
        }
    }
}

/// After the move, the plan opens no second path at the new address.
#[test]
fn the_last_path_moves_to_an_interface_that_comes_later() {
    let mut pair = pair(2, Setup::new());
    pair.set_interfaces(&["a"]);
    pair.drive(SECOND);
    assert_eq!(working(&mut pair), [0]);
    pair.set_interfaces(&[]);
    pair.drive(3 * SECOND);
    assert_eq!(working(&mut pair), []);
    pair.set_interfaces(&["b"]);
    let elapsed = pair.transfer(Side::Client, 10_000, SECOND);
    assert!(elapsed <= 6 * DELAY, "{elapsed:?}");
    pair.drive(30 * SECOND);
    let expected = [(1, PathId::ZERO, PathState::Active)];
    assert_eq!(open_paths(&mut pair), expected);
}

/// If all addresses go at once, no path is left that could carry PATH_ABANDON. So all paths wait,
/// and close after one of them has an address again.
#[test]
fn paths_that_all_lose_their_addresses_at_once_wait_for_another() {
    let mut pair = pair(3, Setup::new());
    pair.set_interfaces(&["a", "b"]);
    pair.drive(SECOND);
    assert_eq!(working(&mut pair), [0, 1]);
    pair.set_interfaces(&[]);
    pair.drive(SECOND);
    let states: Vec<_> = open_paths(&mut pair).iter().map(|path| path.2).collect();
    assert_eq!(states, [PathState::Suspect; 2]);
    pair.set_interfaces(&["c"]);
    pair.transfer(Side::Client, 10_000, SECOND);
    pair.drive(SECOND);
    let open: Vec<_> = open_paths(&mut pair).iter().map(|path| path.0).collect();
    assert_eq!(open, [2]);
    assert_eq!(working(&mut pair), [2]);
}

/// The server allows two paths: the third opens when one of them has closed.
#[test]
fn paths_wait_until_the_server_allows_them() {
    let mut setup = Setup::new();
    setup.server.max_concurrent_paths = 2;
    let mut pair = pair(3, setup);
    pair.drive(10 * SECOND);
    assert_eq!(working(&mut pair), [0, 1]);
    pair.set_interfaces(&["a", "c"]);
    pair.drive(SECOND);
    assert_eq!(working(&mut pair), [0, 2]);
}
