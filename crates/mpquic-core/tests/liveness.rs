//! Answering and silent paths: application and scheduler hear of each change, and their last news
//! is true.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mpquic_core::sched::{Decision, Scheduler, SchedulerEvent, SchedulerFactory, View, factory};
use mpquic_core::{Event, PathEvent, PathId, PathState, PathStatus};
use mpquic_sim::{Hop, LinkConfig, Pair, Setup, Side, Topology};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const SIDES: [Side; 2] = [Side::Client, Side::Server];
const FIRST: PathId = PathId(0);

/// What a scheduler heard: the path, and whether it is suspect.
type Heard = Arc<Mutex<Vec<(PathId, bool)>>>;

/// Sends on any path with room, and writes down the answering paths.
#[derive(Debug)]
struct Listener(Heard);

impl Scheduler for Listener {
    fn select(&mut self, view: &View<'_>) -> Decision {
        let first = view.sendable().next();
        first.map_or(Decision::Blocked, |path| Decision::send(path.id))
    }

    fn on_event(&mut self, event: &SchedulerEvent, _: &View<'_>) {
        let news = match event {
            SchedulerEvent::PathSuspect(path) => (*path, true),
            SchedulerEvent::PathRecovered(path) => (*path, false),
            _ => return,
        };
        self.0.lock().unwrap().push(news);
    }

    fn name(&self) -> &'static str {
        "listener"
    }
}

fn listener() -> (Heard, Arc<dyn SchedulerFactory>) {
    let heard = Heard::default();
    let shared = heard.clone();
    let make = factory("listener", move || Box::new(Listener(shared.clone())));
    (heard, make)
}

/// A set-up with what the client's and the server's scheduler hear.
fn setup() -> (Setup, [Heard; 2]) {
    let ((client, for_client), (server, for_server)) = (listener(), listener());
    let mut setup = Setup::new();
    setup.client.scheduler = for_client;
    setup.server.scheduler = for_server;
    (setup, [client, server])
}

/// What an application was told of a path: each time, whether it is suspect.
fn told(pair: &Pair, side: Side, wanted: PathId) -> Vec<bool> {
    let news = |event| match event {
        Event::Path(PathEvent::Suspect(path)) if path == wanted => Some(true),
        Event::Path(PathEvent::Recovered(path)) if path == wanted => Some(false),
        _ => None,
    };
    pair.events(side).into_iter().filter_map(news).collect()
}

/// Checks that the application, the scheduler and the statistics agree on the first path; returns
/// what the application was told.
fn agreed(pair: &mut Pair, side: Side, heard: &[Heard; 2]) -> Vec<bool> {
    let news = told(pair, side, FIRST);
    let heard = heard[usize::from(side == Side::Server)].lock().unwrap();
    let of_first = heard.iter().filter(|(path, _)| *path == FIRST);
    let of_first: Vec<_> = of_first.map(|(_, suspect)| *suspect).collect();
    assert_eq!(of_first, news, "{side:?}: the scheduler hears the same");
    let is_suspect = |pair: &mut Pair| {
        let stats = pair.connection(side).path_stats(FIRST).unwrap();
        stats.state == PathState::Suspect
    };
    let last = news.last().copied().unwrap_or(false);
    assert_eq!(last, is_suspect(pair), "{side:?}: {news:?}");
    for pair in news.windows(2) {
        assert_ne!(pair[0], pair[1], "{side:?}: each time it is news");
    }
    news
}

/// Both sides lost sight of the first path; the second one carries the data.
fn silent(pair: &mut Pair, name: &str, heard: &[Heard; 2]) {
    pair.send(Side::Client, 40_000_000);
    pair.send(Side::Server, 40_000_000);
    pair.drive(300 * MS);
    pair.set_outage(name, true);
    pair.drive(700 * MS);
    for side in SIDES {
        assert_eq!(agreed(pair, side, heard).last(), Some(&true), "{side:?}");
    }
}

/// A path that moves to other addresses is no longer suspect, and everybody who heard of the
/// suspicion hears of its end.
#[test]
fn a_suspect_path_that_moves_has_recovered() {
    let topology = Topology::new()
        .path("old", LinkConfig::new(20.0, 10 * MS))
        .path("new", LinkConfig::new(20.0, 10 * MS))
        .path("other", LinkConfig::new(20.0, 20 * MS))
        .single_server_address();
    let (setup, heard) = setup();
    let mut pair = Pair::connected(&topology, setup);
    pair.open_path("other", PathStatus::Available).unwrap();
    pair.drive(200 * MS);
    silent(&mut pair, "old", &heard);
    let (now, local) = (pair.now(), pair.four_tuple(1).local);
    pair.client()
        .path_mut(FIRST)
        .unwrap()
        .set_local_address(now, local)
        .unwrap();
    pair.drive(SECOND);
    for side in SIDES {
        assert_eq!(agreed(&mut pair, side, &heard), [true, false], "{side:?}");
    }
}

/// The same for the server's preferred address, proven while the path is suspect.
#[test]
fn a_suspect_path_that_moves_to_the_preferred_address_has_recovered() {
    let topology = Topology::new()
        .path("shared", LinkConfig::new(20.0, 5 * MS))
        .path("other", LinkConfig::new(20.0, 5 * MS));
    let (mut setup, heard) = setup();
    setup.preferred_address = Some("10.9.9.9:8443".parse().unwrap());
    let mut pair = Pair::new(&topology, setup);
    let (server, client) = (pair.host_id(Side::Server), pair.host_id(Side::Client));
    let ip = "10.9.9.9".parse().unwrap();
    // Far away: the proof takes longer than it takes to suspect the path.
    let up = LinkConfig::new(20.0, 600 * MS);
    let up = Hop::Link(pair.network.add_link(up));
    let down = LinkConfig::new(20.0, 5 * MS);
    let down = Hop::Link(pair.network.add_link(down));
    let from = pair.links()[0].client;
    pair.network.add_route(from, ip, vec![up], server);
    pair.network.add_route(ip, from, vec![down], client);
    pair.connect();
    pair.run_until_confirmed(10 * SECOND).unwrap();
    pair.open_all_paths();
    pair.drive(200 * MS);
    // Only the client sends: the server does not learn of its lost acknowledgements.
    pair.set_outage("shared", true);
    pair.client().path_mut(FIRST).unwrap().ping();
    pair.drive(300 * MS);
    let before = agreed(&mut pair, Side::Client, &heard);
    assert_eq!(before.last(), Some(&true));
    let has_moved = |pair: &mut Pair| {
        let is_move = |event: &Event| matches!(event, Event::Path(PathEvent::Migrated(FIRST, _)));
        pair.events(Side::Client).iter().any(is_move)
    };
    assert!(!has_moved(&mut pair));
    pair.run_until(3 * SECOND, has_moved).unwrap();
    let after = agreed(&mut pair, Side::Client, &heard);
    assert_eq!(after.strip_prefix(&before[..]), Some(&[false][..]));
}

/// The driver says that the interface is gone: what is still acknowledged does not bring it back.
#[test]
fn an_acknowledgement_does_not_bring_back_a_path_whose_interface_is_gone() {
    let topology = Topology::new()
        .path("first", LinkConfig::new(50.0, 10 * MS))
        .path("second", LinkConfig::new(50.0, 20 * MS));
    let (setup, heard) = setup();
    let mut pair = Pair::connected(&topology, setup);
    pair.open_all_paths();
    pair.send(Side::Client, 30_000_000);
    pair.drive(500 * MS);
    let now = pair.now();
    pair.client().set_path_usable(now, FIRST, false).unwrap();
    let sent_before = pair.client().path_stats(FIRST).unwrap().in_flight;
    assert!(sent_before > 0);
    pair.drive(200 * MS);
    assert!(pair.client().path_stats(FIRST).unwrap().in_flight < sent_before);
    assert_eq!(agreed(&mut pair, Side::Client, &heard), [true]);
    let now = pair.now();
    pair.client().set_path_usable(now, FIRST, true).unwrap();
    pair.drive(200 * MS);
    let news = agreed(&mut pair, Side::Client, &heard);
    assert_eq!(news, [true, false], "it answered");
}

/// A backup that stood in for a path is a backup again once that path works elsewhere (MP-115).
#[test]
fn mp_115_a_backup_no_longer_stands_in_for_a_path_that_moved() {
    let topology = Topology::new()
        .path("old", LinkConfig::new(20.0, 10 * MS))
        .path("new", LinkConfig::new(20.0, 10 * MS))
        .path("other", LinkConfig::new(20.0, 20 * MS))
        .single_server_address();
    let (setup, heard) = setup();
    let mut pair = Pair::connected(&topology, setup);
    let backup = pair.open_path("other", PathStatus::Backup).unwrap();
    pair.drive(500 * MS);
    silent(&mut pair, "old", &heard);
    let status = |pair: &mut Pair| pair.server().path_mut(backup).unwrap().status().1;
    assert_eq!(status(&mut pair), Some(PathStatus::Available));
    let (now, local) = (pair.now(), pair.four_tuple(1).local);
    pair.client()
        .path_mut(FIRST)
        .unwrap()
        .set_local_address(now, local)
        .unwrap();
    pair.drive(SECOND);
    assert_eq!(agreed(&mut pair, Side::Client, &heard), [true, false]);
    assert_eq!(status(&mut pair), Some(PathStatus::Backup));
}
