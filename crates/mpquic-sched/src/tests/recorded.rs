//! The decisions of every scheduler in repeatable worlds. `recorded.txt` holds the results of an
//! earlier run.
//!
//! Other tests check that decisions are right. The test here shows every changed decision, down to
//! a single packet. So a change to a scheduler shows all affected schedulers, and a person accepts
//! the new results on purpose:
//!
//!     tools/accept decisions
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
// Exponentials come from the library of the system, and may differ in the last bit elsewhere.

use std::time::{Duration, Instant};

use mpquic_core::congestion::RttSnapshot;
use mpquic_core::sched::{DataSelection, Decision, PathView, Sendable};
use mpquic_core::{PathId, PathStatus};

use mpquic_sim::SplitMix64;
use mpquic_sim::record::{self, Hash};

use super::world::{Fates, Step, World};
use crate::testing::{MTU, path, start, unmeasured};
use crate::{by_name, list, published, reinjections};

const WORLDS: u64 = 20;
const STEPS: usize = 250;

/// Pseudo-random numbers.
struct Numbers(SplitMix64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// A number of at least `from` and less than `to`.
    fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.0.below(to - from)
    }

    /// True once in `times` calls, on average.
    fn one_in(&mut self, times: u64) -> bool {
        self.next().is_multiple_of(times)
    }
}

/// A path that changes slowly.
struct Link {
    id: PathId,
    round_trip: Duration,
    /// Window, datagrams.
    window: u64,
    /// Steps until the path is measured.
    unmeasured: u64,
    /// Steps until the path is no longer suspect.
    suspect: u64,
    paced: bool,
    /// Delay of the queue, tenths of the RTT.
    queue: u32,
    /// Whether the kernel reports the local queue.
    local: bool,
    /// Loss rate of the path's history, in thousandths.
    losses: u64,
    /// Return delay in tenths of the RTT, if known.
    way_back: Option<u32>,
    /// Whether the controller sets a pacing rate besides the window.
    rated: bool,
    status: PathStatus,
}

impl Link {
    fn new(id: u32, numbers: &mut Numbers) -> Self {
        let round_trips = [5, 10, 20, 60, 150, 300];
        let millis = round_trips[numbers.within(0, 6) as usize] + numbers.within(0, 5);
        Self {
            id: PathId(id),
            round_trip: Duration::from_millis(millis),
            window: numbers.within(10, 40),
            unmeasured: numbers.within(0, 8),
            suspect: 0,
            paced: numbers.one_in(3),
            queue: 0,
            local: numbers.one_in(2),
            losses: [0, 0, 2, 10, 50][numbers.within(0, 5) as usize],
            way_back: numbers.one_in(2).then(|| numbers.within(1, 10) as u32),
            rated: numbers.one_in(2),
            status: if numbers.one_in(6) {
                PathStatus::Backup
            } else {
                PathStatus::Available
            },
        }
    }

    fn advance(&mut self, numbers: &mut Numbers) {
        self.window = match numbers.within(0, 20) {
            0 => (self.window / 2).max(4),
            1..8 => (self.window + 1).min(150),
            _ => self.window,
        };
        self.unmeasured = self.unmeasured.saturating_sub(1);
        if numbers.one_in(30) {
            self.queue = [0, 0, 4, 12, 30][numbers.within(0, 5) as usize];
        }
        self.suspect = if numbers.one_in(120) {
            numbers.within(3, 20)
        } else {
            self.suspect.saturating_sub(1)
        };
    }

    fn view(&self, numbers: &mut Numbers) -> PathView {
        if self.unmeasured > 0 {
            return unmeasured(self.id.0);
        }
        let mut view = path(self.id.0, 0);
        let jitter = self.round_trip / 10;
        let sample = |numbers: &mut Numbers| {
            self.round_trip + jitter * self.queue + jitter * numbers.within(0, 9) as u32 / 8
        };
        view.rtt = RttSnapshot::new(sample(numbers));
        view.rtt.latest = sample(numbers);
        view.rtt.min = self.round_trip;
        view.rtt.variance = jitter;
        view.window = self.window * u64::from(MTU);
        let each_second = (view.window as f64 / self.round_trip.as_secs_f64()) as u64;
        view.delivery_rate = Some(each_second / numbers.within(1, 6));
        view.in_recovery = numbers.one_in(15);
        view.slow_start_threshold = (self.window > 25).then_some(view.window.saturating_sub(5000));
        view.suspect = self.suspect > 0;
        view.usable = !view.suspect;
        view.loss_rate = self.losses as f64 / 1000.0;
        view.return_delay = self.way_back.map(|tenths| self.round_trip / 10 * tenths);
        view.pacing_rate = self.rated.then_some(each_second + each_second / 8);
        view.status = self.status;
        if self.local {
            view.local_queue = Some(numbers.within(0, 30_000));
            view.local_drain_rate = Some(each_second);
        }
        view.sendable = match (view.suspect, self.paced && numbers.one_in(4)) {
            (true, _) => Sendable::Unusable,
            (false, true) => Sendable::At(start()),
            (false, false) => Sendable::Now,
        };
        view
    }
}

/// The steps of a world with two to four paths. Now and then a path goes while another path comes.
fn steps(seed: u64) -> Vec<Step> {
    let mut numbers = Numbers(SplitMix64::new(seed));
    let count = 2 + (seed % 3) as u32;
    let mut links: Vec<_> = (0..count).map(|id| Link::new(id, &mut numbers)).collect();
    let mut next_id = count;
    let step = |_| {
        if numbers.one_in(150) {
            let which = numbers.within(0, links.len() as u64) as usize;
            links[which] = Link::new(next_id, &mut numbers);
            next_id += 1;
            links.sort_by_key(|link| link.id);
        }
        for link in &mut links {
            link.advance(&mut numbers);
        }
        let large = numbers.one_in(10);
        let bytes = numbers.within(1, if large { 150_000 } else { 6_000 });
        Step {
            paths: links.iter().map(|link| link.view(&mut numbers)).collect(),
            random: numbers.next(),
            after: Duration::from_micros(numbers.within(0, 6_000)),
            write: numbers.one_in(4).then(|| (numbers.within(0, 4), bytes)),
            fates: Fates::InTime(numbers.within(30, 60)),
            flow_credit: if numbers.one_in(12) {
                0
            } else {
                numbers.within(5_000, 900_000)
            },
            control: numbers.one_in(25),
            datagrams: if numbers.one_in(8) {
                numbers.within(1, 60_000)
            } else {
                0
            },
        }
    };
    (0..STEPS).map(step).collect()
}

/// The hash of all decisions, and the number of decisions of each kind.
struct Record {
    begin: Instant,
    hash: Hash,
    sent: [u32; 4],
    copies: u32,
    repeats: u32,
    waits: u32,
}

impl Record {
    fn add(&mut self, value: u64) {
        self.hash.add(value);
    }

    fn send(&mut self, path: PathId) {
        self.sent[path.0.min(3) as usize] += 1;
        self.add(u64::from(path.0));
    }

    fn select(&mut self, data: &DataSelection) {
        match data {
            DataSelection::Stream(id) => self.add(id.index()),
            DataSelection::DatagramsBehind(bytes) => self.add(u64::MAX - bytes),
            DataSelection::StreamAt { id, offset } => {
                self.add(id.index());
                self.add(*offset);
            }
            _ => self.add(u64::MAX),
        }
    }

    fn decision(&mut self, decision: &Decision) {
        match decision {
            Decision::Send {
                path,
                data,
                max_bytes,
                tag,
            } => {
                self.send(*path);
                self.select(data);
                self.add(*max_bytes);
                self.add(*tag);
            }
            Decision::Duplicate {
                path,
                copies,
                data,
                tag,
            } => {
                self.send(*path);
                self.select(data);
                self.copies += copies.len() as u32;
                for copy in copies {
                    self.add(u64::from(copy.0));
                }
                self.add(*tag);
            }
            Decision::Reinject {
                path,
                stream,
                offsets,
                tag,
            } => {
                self.send(*path);
                self.repeats += 1;
                self.add(stream.index());
                self.add(offsets.start);
                self.add(offsets.end);
                self.add(*tag);
            }
            Decision::Wait { on, until } => {
                self.waits += 1;
                self.add(u64::from(on.0));
                let after = until.map(|until| until - self.begin);
                self.add(after.map_or(u64::MAX, |after| after.as_nanos() as u64));
            }
            _ => self.add(u64::MAX - 1),
        }
    }
}

/// A line of the record.
fn line(name: &str, worlds: &[Vec<Step>]) -> String {
    let begin = start();
    let mut record = Record {
        begin,
        hash: Hash::default(),
        sent: [0; 4],
        copies: 0,
        repeats: 0,
        waits: 0,
    };
    for steps in worlds {
        let mut scheduler = by_name(name).expect("a listed name").build();
        let mut world = World::new(begin);
        for step in steps {
            let decisions = world.step(scheduler.as_mut(), step);
            for decision in decisions.unwrap_or_else(|error| panic!("{name}: {error}")) {
                record.decision(&decision);
            }
            let timeout = scheduler
                .next_timeout()
                .map(|at| at.saturating_duration_since(begin));
            record.add(timeout.map_or(0, |at| at.as_nanos() as u64));
        }
    }
    let Record {
        hash,
        sent: [a, b, c, later],
        copies,
        repeats,
        waits,
        ..
    } = record;
    let hash = hash.value();
    format!(
        "{name}: {a} {b} {c} {later}, copies {copies}, repeats {repeats}, waits {waits}, {hash:016x}\n"
    )
}

#[test]
fn decisions_are_those_recorded() {
    let worlds: Vec<_> = (0..WORLDS).map(steps).collect();
    let policies = reinjections()
        .iter()
        .map(|info| format!("lrf+{}", info.name));
    let names = list()
        .iter()
        .chain(published())
        .map(|info| info.name.to_string());
    let mut now = String::from(
        "Packets on paths 0, 1, 2 and all later ones; copies, repeats, waits; a hash of all decisions.\n",
    );
    for name in names.chain(policies) {
        now += &line(&name, &worlds);
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/recorded.txt");
    let compared = record::compare(file, &now);
    compared.unwrap_or_else(|changes| panic!("{changes}"));
}
