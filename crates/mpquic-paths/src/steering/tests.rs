//! Tests of changes while a connection runs.

use std::net::SocketAddr;
use std::time::Duration;

use mpquic_core::{FourTuple, PathEvent, PathState, PathStats, PathStatus};

use super::*;
use crate::Snapshot;
use crate::testing::epoch;

const SERVER: &str = "203.0.113.1:443";

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn interface(name: &str) -> Origin {
    Origin::Interface(name.to_owned())
}

/// A connection with a path from each of two interfaces, whose manager the application steers.
struct Steer {
    steering: Steering,
    factory: Arc<dyn PathManagerFactory>,
    manager: Box<dyn PathManager>,
    snapshot: Snapshot,
    now: Instant,
}

fn locals() -> [Local; 2] {
    let local = |text: &str, name: &str| Local::new(address(text)).on(name);
    [
        local("192.0.2.1:5", "eth0"),
        local("192.0.2.2:5", "wwan0").backup(),
    ]
}

impl Steer {
    fn new() -> Self {
        let steering = Steering::default();
        let factory = steering.factory(crate::default());
        let locals = locals();
        let tuple = |local: &Local| FourTuple::new(local.address(), address(SERVER));
        let manager = factory.build(&Start::new(tuple(&locals[0]), locals.clone()));
        let mut snapshot = Snapshot::default();
        (snapshot.is_multipath, snapshot.is_confirmed) = (true, true);
        let mut first: crate::PathView = PathStats::new(PathId(0), tuple(&locals[0])).into();
        first.state = PathState::Active;
        snapshot.paths.push(first);
        let mut steer = Self {
            steering,
            factory,
            manager,
            snapshot,
            now: epoch(),
        };
        steer.tell(&Event::Connected);
        steer.tell(&Event::Path(&PathEvent::Available));
        let opened = steer.act();
        let status = PathStatus::Available;
        let four_tuple = tuple(&locals[1]);
        // The rules name no backup, and they alone count.
        assert_eq!(opened, [Action::Open { four_tuple, status }]);
        let mut second: crate::PathView = PathStats::new(PathId(1), four_tuple).into();
        second.state = PathState::Active;
        steer.snapshot.paths.push(second);
        steer
    }

    fn tell(&mut self, event: &Event<'_>) {
        let view = View::of_snapshot(&self.snapshot, self.now);
        self.manager.on_event(event, &view);
    }

    /// The manager's actions, each applied without a fault. Opened paths have the ID 1.
    fn act(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        loop {
            let view = View::of_snapshot(&self.snapshot, self.now);
            let Some(action) = self.manager.poll(&view) else {
                return actions;
            };
            actions.push(action);
            assert!(actions.len() < 20, "{actions:?}");
            let outcome = match action {
                Action::Open { .. } => Outcome::Opened(PathId(1)),
                _ => Outcome::Done,
            };
            let view = View::of_snapshot(&self.snapshot, self.now);
            self.manager
                .on_event(&Event::Applied(action, outcome), &view);
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut Rules)) -> Vec<Action> {
        let mut rules = self.steering.rules();
        change(&mut rules);
        self.steering.set(rules);
        self.act()
    }

    fn is_used(&self, local: &Local) -> (bool, bool) {
        (self.factory.may_start(local), self.manager.may_use(local))
    }
}

fn set_status(path: u32, status: PathStatus) -> Vec<Action> {
    let path = PathId(path);
    vec![Action::SetStatus { path, status }]
}

#[test]
fn open_paths_become_backups_and_back() {
    let mut steer = Steer::new();
    assert!(steer.act().is_empty());
    let stand_by = steer.change(|rules| rules.backups.push(interface("wwan*")));
    assert_eq!(stand_by, set_status(1, PathStatus::Backup));
    // A driver's own mark does not count.
    let mut locals = locals();
    locals[0] = locals[0].clone().backup();
    steer.tell(&Event::Locals(&locals));
    assert!(steer.act().is_empty());
    let back = steer.change(|rules| rules.backups.clear());
    assert_eq!(back, set_status(1, PathStatus::Available));
    assert_eq!(steer.manager.next_timeout(), None, "no need to measure");
}

#[test]
fn costs_of_open_paths_change() {
    let mut steer = Steer::new();
    let price = |name: &str, cost| Price::new(interface(name), cost);
    let dear = steer.change(|rules| rules.prices.push(price("wwan0", 5)));
    assert_eq!(dear, set_status(1, PathStatus::Backup));
    assert!(steer.manager.next_timeout().is_some());
    // The other interface is dearer still.
    let other = steer.change(|rules| rules.prices.push(price("eth0", 6)));
    let mut expected = set_status(0, PathStatus::Backup);
    expected.extend(set_status(1, PathStatus::Available));
    assert_eq!(other, expected);
    // A backup is dearer than all prices.
    let swapped = steer.change(|rules| rules.backups.push(interface("wwan0")));
    let mut expected = set_status(0, PathStatus::Available);
    expected.extend(set_status(1, PathStatus::Backup));
    assert_eq!(swapped, expected);
    let free = steer.change(|rules| *rules = Rules::default());
    assert_eq!(free, set_status(1, PathStatus::Available));
}

#[test]
fn paths_from_a_closed_interface_close_until_it_opens() {
    let mut steer = Steer::new();
    let [_, modem] = locals();
    assert_eq!(steer.is_used(&modem), (true, true));
    let closed = steer.change(|rules| rules.closed.push(interface("wwan0")));
    let path = PathId(1);
    assert_eq!(closed, [Action::Close { path }]);
    assert_eq!(steer.is_used(&modem), (false, false));
    steer.snapshot.paths.pop();
    // A new address of the interface changes nothing.
    let mut all = locals().to_vec();
    all.push(Local::new(address("192.0.2.3:5")).on("wwan0"));
    steer.tell(&Event::Locals(&all));
    steer.now += Duration::from_secs(3600);
    assert!(steer.act().is_empty());
    steer.tell(&Event::Locals(&all[..2]));
    let opened = steer.change(|rules| rules.closed.clear());
    let status = PathStatus::Available;
    let four_tuple = FourTuple::new(modem.address(), address(SERVER));
    assert_eq!(opened, [Action::Open { four_tuple, status }]);
    assert_eq!(steer.is_used(&modem), (true, true));
}

#[test]
fn the_last_path_rests_while_all_interfaces_are_closed() {
    let mut steer = Steer::new();
    let path = PathId(1);
    let closed = steer.change(|rules| rules.closed.push(interface("wwan0")));
    assert_eq!(closed, [Action::Close { path }]);
    steer.snapshot.paths.pop();
    let path = PathId(0);
    let closed = steer.change(|rules| rules.closed.push(interface("*")));
    assert_eq!(closed, [Action::Suspend { path }]);
    assert!(steer.act().is_empty());
    let opened = steer.change(|rules| rules.closed.truncate(1));
    assert_eq!(opened, [Action::Resume { path }]);
    assert!(steer.act().is_empty());
}

/// The first packets left before the change.
#[test]
fn a_handshake_from_an_interface_that_closed_moves_away() {
    let steering = Steering::default();
    let [cable, modem] = locals();
    let first = FourTuple::new(modem.address(), address(SERVER));
    let factory = steering.factory(crate::default());
    let mut rules = Rules::default();
    rules.closed.push(interface("wwan0"));
    steering.set(rules);
    let mut manager = factory.build(&Start::new(first, [cable.clone(), modem]));
    let mut snapshot = Snapshot::default();
    (snapshot.is_multipath, snapshot.is_confirmed) = (true, true);
    snapshot.paths.push(PathStats::new(PathId(0), first).into());
    let view = View::of_snapshot(&snapshot, epoch());
    manager.on_event(&Event::Connected, &view);
    let (path, local) = (PathId(0), cable.address());
    assert_eq!(manager.poll(&view), Some(Action::Move { path, local }));
}
