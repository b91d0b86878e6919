//! What every controller allows in worlds that are always the same, as it was recorded in `recorded.txt`.
//!
//! The other tests say what is right; this one says whether anything is different, down to a byte of a
//! window: who changes a controller sees which others change with it, and accepts that on purpose.
//!
//!     ACCEPT_WINDOWS=1 cargo test -p mpquic-cc recorded
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
// Cube roots and powers are those of the system's library, and may differ in their last bit elsewhere.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mpquic_core::PathId;
use mpquic_core::congestion::{
    Acked, CongestionEvent, CongestionKind, Controller, SavedPath, Sent,
};

use mpquic_sim::SplitMix64;
use mpquic_sim::record::{self, Hash};

use crate::testing::start;
use crate::testing_link::{Flow, MTU, Steer};
use crate::uncoupled::PathLimits;
use crate::{NewReno, Uncoupled, by_name, experimental, list, published};

/// How often what is allowed is recorded.
const PERIOD: Duration = Duration::from_millis(10);
/// Links take turns of this length.
const TURN: Duration = Duration::from_millis(1);

/// A connection's controller as the link of one path sees it.
struct OnPath {
    controller: Rc<RefCell<Box<dyn Controller>>>,
    path: PathId,
}

impl OnPath {
    /// Opens a path.
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

/// Mbit/s, round trip in ms, queue in round trips.
type Link = (f64, u64, f64);

/// What happens to the links of a world, and when, in turns.
struct World {
    links: &'static [Link],
    /// Whether the first two are one link.
    one_queue: bool,
    /// Whether another sender, with a window, is on the first one.
    rival: bool,
    turns: u64,
    change: fn(u64, &mut [Flow<OnPath>]),
}

const WORLDS: [World; 12] = [
    World {
        links: &[(10.0, 20, 1.0), (20.0, 60, 1.0)],
        one_queue: false,
        rival: false,
        turns: 6_000,
        change: |_, _| {},
    },
    World {
        links: &[(8.0, 40, 4.0), (5.0, 10, 0.3), (12.0, 120, 1.0)],
        one_queue: false,
        rival: false,
        turns: 6_000,
        change: |turn, links| match turn {
            0 => links[0].lose_every = Some(250),
            2_000 => links[2].set_rate(300_000.0),
            3_500 => links[0].lose_every = None,
            4_000 => links[2].set_rate(2_000_000.0),
            _ => {}
        },
    },
    World {
        links: &[(15.0, 30, 2.0), (15.0, 30, 2.0)],
        one_queue: false,
        rival: false,
        turns: 5_000,
        change: |turn, links| match turn {
            0 => links[0].mark_above = Some(Duration::from_millis(8)),
            1_500 => links[1].application = Some(200_000.0),
            3_000 => links[1].application = None,
            _ => {}
        },
    },
    World {
        links: &[(30.0, 25, 1.0)],
        one_queue: false,
        rival: false,
        turns: 4_000,
        change: |turn, links| {
            let kind = match turn {
                500 | 1_700 => CongestionKind::Loss,
                505 | 2_500 => CongestionKind::Spurious,
                1_800 => CongestionKind::Ecn,
                2_000 => CongestionKind::Persistent,
                _ => return,
            };
            let link = &mut links[0];
            let mut event = CongestionEvent::new(kind, link.now, link.now - 10 * TURN);
            event.lost_bytes = 3 * MTU;
            event.in_flight = link.in_flight();
            link.controller.on_congestion_event(&event);
        },
    },
    World {
        links: &[(25.0, 80, 1.0), (10.0, 300, 1.0)],
        one_queue: false,
        rival: false,
        turns: 5_000,
        change: |turn, links| {
            let OnPath { controller, path } = &links[(turn / 1_500 % 2) as usize].controller;
            let now = links[0].now;
            match turn {
                0 => {
                    let saved = SavedPath {
                        window: 200_000,
                        rtt: 80 * TURN,
                    };
                    controller.borrow_mut().resume(*path, now, saved);
                }
                1_000 => controller.borrow_mut().on_mtu_update(*path, 1400),
                2_000 => {
                    controller.borrow_mut().on_path_closed(*path);
                    controller
                        .borrow_mut()
                        .on_path_opened(*path, now, MTU as u16);
                }
                _ => {}
            }
        },
    },
    World {
        links: &[(3.0, 15, 8.0), (40.0, 15, 0.2), (6.0, 200, 0.5)],
        one_queue: false,
        rival: false,
        turns: 4_000,
        change: |turn, links| {
            // A link falls silent for half a second.
            match turn {
                1_500 => links[1].lose_every = Some(1),
                2_000 => links[1].lose_every = None,
                _ => {}
            }
        },
    },
    World {
        links: &[(4.0, 30, 2.0), (2.0, 60, 1.0)],
        one_queue: false,
        rival: false,
        turns: 25_000,
        change: |turn, links| match turn {
            8_000 => links[0].application = Some(20_000.0),
            9_500 => links[0].application = None,
            14_000 => links[1].rtt = 20 * TURN,
            18_000 => links[0].rtt = 70 * TURN,
            18_001 => links[0].rtt_restarts = true,
            _ => {}
        },
    },
    World {
        links: &[(6.0, 30, 1.0), (6.0, 50, 1.0), (4.0, 20, 1.0)],
        one_queue: true,
        rival: false,
        turns: 15_000,
        change: |_, _| {},
    },
    World {
        links: &[(6.0, 30, 1.5), (3.0, 40, 1.0)],
        one_queue: false,
        rival: true,
        turns: 15_000,
        change: |turn, links| {
            if turn == 12_000 {
                links[1].set_rate(1_000_000.0);
            }
        },
    },
    World {
        links: &[(700.0, 2, 1.0)],
        one_queue: false,
        rival: false,
        turns: 120,
        change: |_, _| {},
    },
    World {
        links: &[(10.0, 40, 1.0)],
        one_queue: false,
        rival: false,
        turns: 5_000,
        change: |turn, links| {
            // Losses that were none, in every phase.
            let kind = match turn % 270 {
                100 | 105 => CongestionKind::Loss,
                130 => CongestionKind::Spurious,
                _ => return,
            };
            let link = &mut links[0];
            let mut event = CongestionEvent::new(kind, link.now, link.now - 5 * TURN);
            event.lost_bytes = 4 * MTU;
            event.in_flight = link.in_flight();
            link.controller.on_congestion_event(&event);
        },
    },
    World {
        links: &[(12.0, 50, 0.5), (12.0, 50, 0.5)],
        one_queue: true,
        rival: true,
        turns: 12_000,
        change: |turn, links| match turn {
            3_000 => links[1].application = Some(100_000.0),
            6_000 => links[1].application = None,
            9_000 => links[0].lose_every = Some(100),
            _ => {}
        },
    },
];

fn add_limits(hash: &mut Hash, limits: &PathLimits) {
    hash.add(limits.window);
    hash.add(limits.slow_start_threshold.unwrap_or(u64::MAX));
    hash.add(limits.pacing_rate.unwrap_or(u64::MAX));
    hash.add(u64::from(limits.in_recovery));
}

/// How many worlds are drawn, and how long each lasts, in turns.
const DRAWN: u64 = 32;
const DRAWN_TURNS: u64 = 4_000;

/// A world that nobody has thought of, and what happens to a link of it now and then.
struct Drawn {
    links: Vec<Link>,
    one_queue: bool,
    rival: bool,
    numbers: SplitMix64,
}

impl Drawn {
    fn new(seed: u64) -> Self {
        let mut numbers = SplitMix64::new(seed);
        let count = 1 + numbers.below(3);
        let mut link = || {
            let mbit = [1, 2, 5, 10, 20, 40][numbers.below(6) as usize] as f64;
            let rtt = [2, 10, 25, 60, 150, 400][numbers.below(6) as usize] + numbers.below(5);
            (
                mbit,
                rtt,
                [0.2, 0.5, 1.0, 1.5, 4.0][numbers.below(5) as usize],
            )
        };
        Self {
            links: (0..count).map(|_| link()).collect(),
            one_queue: numbers.below(3) == 0,
            rival: numbers.below(3) == 0,
            numbers,
        }
    }

    fn change(&mut self, links: &mut [Flow<OnPath>]) {
        let numbers = &mut self.numbers;
        if numbers.below(150) > 0 {
            return;
        }
        let link = &mut links[numbers.below(self.links.len() as u64) as usize];
        let OnPath { controller, path } = &link.controller;
        let (controller, path, now) = (controller.clone(), *path, link.now);
        let report = |kind, lost| {
            let mut event = CongestionEvent::new(kind, now, now - 20 * TURN);
            event.lost_bytes = lost;
            event.in_flight = link.in_flight();
            controller.borrow_mut().on_congestion_event(path, &event);
        };
        match numbers.below(14) {
            0 => link.set_rate(link.rate * [0.3, 0.7, 1.5, 3.0][numbers.below(4) as usize]),
            1 => link.rtt = link.rtt * [5, 8, 15, 25][numbers.below(4) as usize] / 10,
            2 => link.rtt_restarts = true,
            3 => link.application = Some(1e3 * (5 + numbers.below(500)) as f64),
            4 | 5 => link.application = None,
            6 => link.lose_every = Some(10 + numbers.below(500)),
            7 => link.lose_every = None,
            8 => link.mark_above = Some(link.rtt / 4),
            9 => link.mark_above = None,
            10 => {
                report(CongestionKind::Loss, 3 * MTU);
                report(CongestionKind::Spurious, 3 * MTU);
            }
            11 => report(CongestionKind::Persistent, 20 * MTU),
            12 => {
                let mtu = 1200 + 10 * numbers.below(30) as u16;
                controller.borrow_mut().on_mtu_update(path, mtu);
            }
            _ => {
                let mut controller = controller.borrow_mut();
                controller.on_path_closed(path);
                controller.on_path_opened(path, now, MTU as u16);
                let saved = SavedPath {
                    window: 20_000 * (1 + numbers.below(20)),
                    rtt: link.rtt,
                };
                controller.resume(path, now, saved);
            }
        }
    }
}

/// The links of a world with a controller of this name, and perhaps another sender on the first one.
struct Run {
    controller: Rc<RefCell<Box<dyn Controller>>>,
    links: Vec<Flow<OnPath>>,
    rival: Option<Flow<OnPath>>,
    one_queue: bool,
    turn: u64,
    hash: Hash,
}

impl Run {
    fn new(name: &str, links: &[Link], one_queue: bool, rival: bool) -> Self {
        let begin = start();
        let controller = Rc::new(RefCell::new(by_name(name).expect("a listed name").build()));
        let link = |(id, (mbit, rtt, queue)): (u32, &Link)| {
            let steered = OnPath::open(&controller, PathId(id), begin);
            Flow::steered_by(steered, begin, *mbit, *rtt, *queue)
        };
        let flows = (0..).zip(links).map(link).collect();
        let (mbit, rtt, queue) = links[0];
        let new_reno = Uncoupled::<NewReno>::default();
        let rival = rival.then(|| {
            let controller = Rc::new(RefCell::new(Box::new(new_reno) as Box<dyn Controller>));
            let steered = OnPath::open(&controller, PathId(0), begin);
            Flow::steered_by(steered, begin, mbit, rtt, queue)
        });
        Self {
            controller,
            links: flows,
            rival,
            one_queue,
            turn: 0,
            hash: Hash::default(),
        }
    }

    fn advance(&mut self) {
        for index in 0..self.links.len() {
            self.links[index].run(TURN);
            if let ([first, second, ..], true) = (self.links.as_mut_slice(), self.one_queue) {
                first.share_queue(second);
            }
        }
        if let Some(rival) = &mut self.rival {
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

    /// The hash of all limits and of what came of them.
    fn end(mut self) -> Hash {
        for link in &self.links {
            self.hash.add(link.delivered);
            self.hash.add(link.lost);
        }
        self.hash
    }
}

/// A line of the record: bytes delivered and the window at the end on each path, and the hash.
fn line(name: &str, number: usize, world: &World) -> String {
    let mut run = Run::new(name, world.links, world.one_queue, world.rival);
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

/// The line of all worlds that are drawn: bytes delivered in all of them, and the hash.
fn drawn(name: &str) -> String {
    let (mut delivered, mut hash) = (0, Hash::default());
    for seed in 0..DRAWN {
        let mut world = Drawn::new(seed);
        let mut run = Run::new(name, &world.links, world.one_queue, world.rival);
        for _ in 0..DRAWN_TURNS {
            world.change(&mut run.links);
            run.advance();
        }
        delivered += run.links.iter().map(|link| link.delivered).sum::<u64>();
        hash.add(run.end().value());
    }
    format!("{name}, drawn: {delivered} {:016x}\n", hash.value())
}

#[test]
fn windows_are_those_recorded() {
    let mut now = String::from(
        "Controller, world: bytes delivered and the window at the end of each path; a hash of all limits.\n",
    );
    for info in list().iter().chain(published()).chain(experimental()) {
        for (number, world) in WORLDS.iter().enumerate() {
            now += &line(info.name, number, world);
        }
        now += &drawn(info.name);
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/recorded.txt");
    let compared = record::compare(file, "ACCEPT_WINDOWS", &now);
    compared.unwrap_or_else(|changes| panic!("{changes}"));
}
