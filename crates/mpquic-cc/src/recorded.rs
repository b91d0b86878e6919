//! The limits of every controller in simulated worlds that are always the same. `recorded.txt`
//! holds the results of an earlier run.
//!
//! Other tests check that results are right. This test shows whether any result changed, down to a
//! byte of a window. So a change to one controller shows all controllers that it affects, and the
//! new results have to be accepted on purpose:
//!
//!     tools/accept windows
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
// Cube roots and powers come from the library of the system, and may differ in the last bit
// elsewhere.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mpquic_core::PathId;
use mpquic_core::congestion::{Acked, CongestionEvent, Controller, Sent};

use mpquic_sim::record::{self, Hash};

use crate::testing::start;
use crate::testing_link::{Flow, MTU, Steer};
use crate::uncoupled::PathLimits;
use crate::{by_name, experimental, list, published};

mod drawn;
mod events;
mod worlds;

use drawn::Drawn;
use worlds::{WORLDS, World};

/// Number of drawn worlds for every controller.
const DRAWN: u64 = 32;
/// Length of a drawn world, turns.
const DRAWN_TURNS: u64 = 4_000;
/// For each controller, a second line of the record has the drawn worlds from number [`DRAWN`] up
/// to this number.
const MORE: u64 = 80;
/// Number of long drawn worlds for each rate-based controller. Probing cycles take seconds, so
/// short worlds do not show them.
const BY_RATE: [(&str, u64); 2] = [("coupled-bbr", 36), ("bbr", 8)];
/// Length of a long drawn world, turns.
const LONG_TURNS: u64 = 80_000;

/// Time between two recorded samples of the limits.
const PERIOD: Duration = Duration::from_millis(10);
/// Length of a turn; links run for one turn after another.
const TURN: Duration = Duration::from_millis(1);

/// A connection's controller as the link of one path calls it.
struct OnPath {
    controller: Rc<RefCell<Box<dyn Controller>>>,
    path: PathId,
}

impl OnPath {
    /// Opens a path on the controller of a connection.
    fn open(controller: &Rc<RefCell<Box<dyn Controller>>>, path: PathId, now: Instant) -> Self {
        controller
            .borrow_mut()
            .on_path_opened(path, now, MTU as u16);
        let controller = controller.clone();
        Self { controller, path }
    }
}

impl Steer for OnPath {
    fn on_packet_sent(&mut self, sent: &Sent) {
        self.controller.borrow_mut().on_packet_sent(self.path, sent);
    }

    fn on_ack(&mut self, ack: &Acked) {
        self.controller.borrow_mut().on_ack(self.path, ack);
    }

    fn on_congestion_event(&mut self, event: &CongestionEvent) {
        self.controller
            .borrow_mut()
            .on_congestion_event(self.path, event);
    }

    fn limits(&self) -> PathLimits {
        let controller = self.controller.borrow();
        let mut limits = PathLimits::new(controller.window(self.path));
        limits.pacing_rate = controller.pacing_rate(self.path);
        limits.slow_start_threshold = controller.slow_start_threshold(self.path);
        limits.in_recovery = controller.in_recovery(self.path);
        limits
    }
}

/// A link: Mbit/s, RTT in ms, queue in round trips.
type Link = (f64, u64, f64);

/// Another sender on the first link, present in the turns `from` up to `until`.
#[derive(Clone, Copy)]
struct Rival {
    name: &'static str,
    from: u64,
    until: u64,
}

/// A sender that halves its window after a loss, present in all turns.
const NEW_RENO: Rival = Rival {
    name: "newreno",
    from: 0,
    until: u64::MAX,
};

fn add_limits(hash: &mut Hash, limits: &PathLimits) {
    hash.add(limits.window);
    hash.add(limits.slow_start_threshold.unwrap_or(u64::MAX));
    hash.add(limits.pacing_rate.unwrap_or(u64::MAX));
    hash.add(u64::from(limits.in_recovery));
}

/// The links of a world with one controller, and optionally another sender on the first link.
struct Run {
    controller: Rc<RefCell<Box<dyn Controller>>>,
    links: Vec<Flow<OnPath>>,
    /// The other sender, and the turns in which it is present.
    rival: Option<(Flow<OnPath>, Range<u64>)>,
    in_one_queue: usize,
    turn: u64,
    hash: Hash,
}

impl Run {
    fn new(name: &str, links: &[Link], in_one_queue: usize, rival: Option<Rival>) -> Self {
        let begin = start();
        let connection = |name| Rc::new(RefCell::new(by_name(name).expect("a name").build()));
        let controller = connection(name);
        let link = |(id, (mbit, rtt, queue)): (u32, &Link)| {
            let steered = OnPath::open(&controller, PathId(id), begin);
            Flow::steered_by(steered, begin, *mbit, *rtt, *queue)
        };
        let flows = (0..).zip(links).map(link).collect();
        let (mbit, rtt, queue) = links[0];
        let rival = rival.map(|Rival { name, from, until }| {
            let begin = begin + TURN * from as u32;
            let steered = OnPath::open(&connection(name), PathId(0), begin);
            let flow = Flow::steered_by(steered, begin, mbit, rtt, queue);
            (flow, from..until)
        });
        Self {
            controller,
            links: flows,
            rival,
            in_one_queue,
            turn: 0,
            hash: Hash::default(),
        }
    }

    fn advance(&mut self) {
        for index in 0..self.links.len() {
            self.links[index].run(TURN);
            let (first, others) = self.links.split_first_mut().expect("a link");
            for other in &mut others[..self.in_one_queue - 1] {
                first.share_queue(other);
            }
        }
        if let Some((rival, turns)) = &mut self.rival
            && turns.contains(&self.turn)
        {
            rival.share_queue(&mut self.links[0]);
            rival.run(TURN);
            rival.share_queue(&mut self.links[0]);
        }
        if self.turn.is_multiple_of(PERIOD.as_millis() as u64) {
            self.record();
        }
        self.turn += 1;
    }

    fn record(&mut self) {
        let windows: Vec<_> = self
            .links
            .iter()
            .map(|link| (link.controller.path, link.controller.limits().window))
            .collect();
        for link in &self.links {
            add_limits(&mut self.hash, &link.controller.limits());
            let path = link.controller.path;
            let controller = self.controller.borrow();
            self.hash.add(controller.window_after_round(path, &windows));
            self.hash.add(controller.resume_phase(path) as u64);
        }
    }

    /// The hash of all limits, delivered bytes and lost bytes.
    fn end(mut self) -> Hash {
        for link in &self.links {
            self.hash.add(link.delivered);
            self.hash.add(link.lost);
        }
        self.hash
    }
}

/// A line of the record: delivered bytes and final window of each path, and the hash.
fn line(name: &str, number: usize, world: &World) -> String {
    let mut run = Run::new(name, world.links, world.in_one_queue, world.rival);
    for turn in 0..world.turns {
        (world.change)(turn, &mut run.links);
        run.advance();
    }
    let mut line = format!("{name}, {number}:");
    for link in &run.links {
        let (delivered, window) = (link.delivered, link.controller.limits().window);
        write!(line, " {delivered} ({window})").expect("a string");
    }
    format!("{line} {:016x}\n", run.end().value())
}

/// Delivered bytes in a drawn world, and the hash.
fn run_drawn(name: &str, mut world: Drawn, turns: u64) -> (u64, Hash) {
    let mut run = Run::new(name, &world.links, world.in_one_queue, world.rival);
    for _ in 0..turns {
        world.change(&mut run.links);
        run.advance();
    }
    let delivered = run.links.iter().map(|link| link.delivered).sum();
    (delivered, run.end())
}

/// A line of the record for several drawn worlds: total delivered bytes, and the hash.
fn drawn(name: &str, which: &str, seeds: Range<u64>) -> String {
    let (mut sum, mut all) = (0, Hash::default());
    for seed in seeds {
        let (delivered, hash) = run_drawn(name, Drawn::new(seed), DRAWN_TURNS);
        sum += delivered;
        all.add(hash.value());
    }
    format!("{name}, {which}: {sum} {:016x}\n", all.value())
}

/// The names of all controllers.
fn names() -> impl Iterator<Item = &'static str> {
    let infos = list().iter().chain(published()).chain(experimental());
    infos.map(|info| info.name)
}

/// Compares `now` with a recorded file of this directory.
fn assert_recorded(file: &str, now: &str) {
    let file = format!("{}/src/{file}", env!("CARGO_MANIFEST_DIR"));
    let compared = record::compare(file, now);
    compared.unwrap_or_else(|changes| panic!("{changes}"));
}

#[test]
fn windows_are_those_recorded() {
    let mut now = String::from(
        "Controller, world: bytes delivered and the window at the end of each path; a hash of all limits.\n",
    );
    for name in names() {
        for (number, world) in WORLDS.iter().enumerate() {
            now += &line(name, number, world);
        }
        now += &drawn(name, "drawn", 0..DRAWN);
        now += &drawn(name, "more drawn", DRAWN..MORE);
    }
    assert_recorded("recorded.txt", &now);
}

#[test]
fn windows_of_long_worlds_are_those_recorded() {
    let mut now = String::from("Controller, drawn world: bytes delivered; a hash of all limits.\n");
    for (name, seeds) in BY_RATE {
        for seed in 0..seeds {
            let (delivered, hash) = run_drawn(name, Drawn::long(seed), LONG_TURNS);
            writeln!(now, "{name}, {seed}: {delivered} {:016x}", hash.value()).expect("a string");
        }
    }
    assert_recorded("recorded/long.txt", &now);
}
