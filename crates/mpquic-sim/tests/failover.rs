//! What the failure of a path costs a download, and how soon the path is back to work; in virtual
//! time, with default options.
//!
//! `FAILOVER=20` sets the number of seeds, `OUTAGES=1000` that of random schedules of outages from
//! `SEED` on; by default they are few, to be quick. With `--nocapture`, the
//! tests print what they measure: `docs/reliability.md` has the figures.

use std::time::Duration;

use mpquic_core::{Event, PathState, PathStats, PathStatus};
use mpquic_sim::{Backlog, Change, LinkConfig, LinkId, Loss, Pair, Setup, Side, Topology};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// Of each path.
const RATE_MBIT: f64 = 5.0;

/// Which scheduler, and the round trips of the path that fails and of the other one.
#[derive(Debug, Clone, Copy)]
struct Case {
    scheduler: &'static str,
    dying: u32,
    other: u32,
}

fn number(variable: &str, default: u64) -> u64 {
    let given = std::env::var(variable);
    given.map_or(default, |value| value.parse().unwrap())
}

impl Case {
    /// Both schedulers with each of these pairs of round trips in ms.
    fn all(round_trips: &[(u32, u32)]) -> impl Iterator<Item = Self> {
        let of_scheduler = move |scheduler| {
            round_trips.iter().map(move |&(dying, other)| Self {
                scheduler,
                dying,
                other,
            })
        };
        ["auto", "lrf"].into_iter().flat_map(of_scheduler)
    }

    fn setup(&self, seed: u64) -> Setup {
        let scheduler = mpquic_sched::by_name(self.scheduler).unwrap();
        let controller = mpquic_cc::by_name("coupled-bbr").unwrap();
        let mut setup = Setup::with_policies(scheduler, controller).seed(seed);
        setup.checks = false;
        setup
    }

    fn topology(&self) -> Topology {
        Topology::new()
            .path("dying", LinkConfig::new(RATE_MBIT, MS * self.dying / 2))
            .path("other", LinkConfig::new(RATE_MBIT, MS * self.other / 2))
    }

    /// A download over both paths, for a second and not exactly.
    fn downloading(&self, seed: u64) -> Pair {
        let mut pair = Pair::connected(&self.topology(), self.setup(seed));
        pair.open_all_paths();
        pair.send(Side::Server, 1 << 40);
        let seed = u32::try_from(seed).unwrap();
        pair.drive(SECOND + 17 * MS * seed + 10 * MS * (self.dying + self.other));
        pair
    }
}

fn received(pair: &Pair) -> u64 {
    let client = pair.hosted(Side::Client).unwrap();
    client.application.received()
}

/// What the server knows of both paths.
fn path_stats(pair: &mut Pair) -> [PathStats; 2] {
    let server = pair.server();
    let mut paths = server.paths().filter_map(|path| server.path_stats(path));
    [paths.next().unwrap(), paths.next().unwrap()]
}

/// The longest time within `duration` in which the application got nothing.
fn longest_gap(pair: &mut Pair, duration: Duration) -> Duration {
    let end = pair.now() + duration;
    let (mut last, mut bytes) = (pair.now(), received(pair));
    let mut longest = Duration::ZERO;
    while pair.next_event().is_some_and(|time| time <= end) {
        pair.step();
        let now = received(pair);
        if now > bytes {
            longest = longest.max(pair.now() - last);
            (last, bytes) = (pair.now(), now);
        }
    }
    let rest = end - pair.now();
    pair.drive(rest);
    longest.max(end - last)
}

fn median<T: Ord + Copy>(values: &mut [T]) -> T {
    values.sort();
    values[values.len() / 2]
}

#[test]
fn a_dead_path_costs_a_probe_timeout_and_a_round_trip() {
    let round_trips_ms = [
        (20, 20),
        (20, 60),
        (60, 20),
        (100, 100),
        (40, 200),
        (200, 40),
    ];
    let mut failed = Vec::new();
    for case in Case::all(&round_trips_ms) {
        let (mut gaps, mut limits) = (Vec::new(), Vec::new());
        for seed in 1..=number("FAILOVER", 5) {
            let mut pair = case.downloading(seed);
            let [dying, other] = path_stats(&mut pair);
            limits.push((other.rtt * 3 / 2 + dying.probe_timeout).max(100 * MS));
            pair.set_outage("dying", true);
            gaps.push(longest_gap(&mut pair, SECOND));
        }
        let (gap, limit) = (median(&mut gaps), median(&mut limits));
        println!(
            "{case:?}: {gap:.0?} of {limit:.0?}, worst {:.0?}",
            gaps.last().unwrap()
        );
        if gap > limit {
            failed.push((case, gap, limit));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn a_path_that_is_back_carries_its_share_within_two_seconds() {
    let mut failed = Vec::new();
    for case in Case::all(&[(20, 20), (20, 60), (60, 20), (200, 40)]) {
        let mut shares = Vec::new();
        for seed in 1..=number("FAILOVER", 1) {
            let outage = SECOND + 730 * MS * u32::try_from(seed).unwrap();
            let mut pair = case.downloading(seed);
            let carried = |pair: &mut Pair| {
                let before = pair.counters("dying")[1].bytes_out;
                pair.drive(SECOND);
                pair.counters("dying")[1].bytes_out - before
            };
            let before = carried(&mut pair);
            pair.set_outage("dying", true);
            pair.drive(outage);
            pair.set_outage("dying", false);
            pair.drive(2 * SECOND);
            let after = carried(&mut pair);
            shares.push(after * 100 / before);
        }
        let share = median(&mut shares);
        println!("{case:?}: {share} %, worst {} %", shares[0]);
        // With a long round trip, the rate is found again only with the next probe for more.
        let least = if case.dying > 100 { 50 } else { 80 };
        if share < least {
            failed.push((case, share));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn after_an_outage_of_all_paths_bytes_flow_again_soon() {
    let mut failed = Vec::new();
    for case in Case::all(&[(20, 20), (20, 60)]) {
        for back in ["dying", "other"] {
            let mut waits = Vec::new();
            for seed in 1..=number("FAILOVER", 7) {
                let mut pair = case.downloading(seed);
                pair.set_outage("dying", true);
                pair.set_outage("other", true);
                // Probes of a silent path leave 0.5 to 1.5 s apart: the outage ends at a random time
                // between two probes.
                pair.drive(20 * SECOND + MS * 290 * seed as u32);
                pair.set_outage(back, false);
                let before = received(&pair);
                let wait = pair.run_until(20 * SECOND, |pair| received(pair) > before);
                waits.push(wait.unwrap_or(20 * SECOND));
            }
            let wait = median(&mut waits);
            println!(
                "{case:?}, {back}: {} ms, worst {} ms",
                wait.as_millis(),
                waits.last().unwrap().as_millis()
            );
            if wait > SECOND * 3 / 2 {
                failed.push((case, back, wait));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// How a helper fails.
#[derive(Debug, Clone, Copy)]
enum Failure {
    /// Of the links from the client and to it.
    Outage([bool; 2]),
    Changes(&'static [Change]),
    /// It is there for so long and then not, all the time.
    Flaps(Duration),
}

impl Failure {
    const ALL: [Self; 11] = [
        Self::Outage([true, true]),
        Self::Outage([true, false]),
        Self::Outage([false, true]),
        Self::Changes(&[Change::Loss(Loss::Bernoulli(0.5))]),
        Self::Changes(&[
            Change::Rate(0.02),
            Change::Queue(Backlog::time(Duration::from_secs(5))),
        ]),
        Self::Changes(&[Change::Delay(Duration::from_secs(3))]),
        Self::Changes(&[Change::Mtu(600)]),
        Self::Flaps(Duration::from_millis(100)),
        Self::Flaps(Duration::from_millis(300)),
        Self::Flaps(Duration::from_secs(1)),
        Self::Flaps(Duration::from_secs(2)),
    ];

    /// Lets the path "dying" fail for so long. Returns the longest time without data.
    fn strike(self, pair: &mut Pair, duration: Duration) -> Duration {
        let links = pair.links()[pair.index_of("dying")].links();
        match self {
            Self::Outage(directions) => {
                for (link, is_out) in links.into_iter().zip(directions) {
                    pair.network.change_link(link, &Change::Outage(is_out));
                }
            }
            Self::Changes(changes) => {
                changes
                    .iter()
                    .for_each(|change| pair.change("dying", *change));
            }
            Self::Flaps(period) => {
                let mut longest = Duration::ZERO;
                let end = pair.now() + duration;
                let mut is_out = false;
                while pair.now() < end {
                    is_out = !is_out;
                    pair.set_outage("dying", is_out);
                    let rest = end - pair.now();
                    longest = longest.max(longest_gap(pair, period.min(rest)));
                }
                return longest;
            }
        }
        longest_gap(pair, duration)
    }
}

/// Whatever happens to a helper: the other path carries the transfer on.
#[test]
fn a_failing_helper_never_stops_a_download() {
    let length = 3 * SECOND;
    let mut failed = Vec::new();
    let (auto, lrf) = (Case::all(&[(20, 40)]), Case::all(&[(60, 20)]));
    for case in auto.take(1).chain(lrf.skip(1)) {
        let seeds = 1..=number("FAILOVER", 9);
        let alone = |seed| {
            let mut alone = case.downloading(seed);
            alone.set_outage("dying", true);
            alone.drive(SECOND);
            let before = received(&alone);
            alone.drive(length);
            received(&alone) - before
        };
        let alone = median(&mut seeds.clone().map(alone).collect::<Vec<_>>());
        for failure in Failure::ALL {
            let (mut gaps, mut parts) = (Vec::new(), Vec::new());
            // A link that becomes very slow answers now and then, and is used again each time: how
            // often varies much with the seed.
            let is_slow = matches!(failure, Failure::Changes([Change::Rate(_), ..]));
            let repeats = if is_slow { 10 } else { 1 };
            for seed in 1..=repeats * seeds.end() {
                let mut pair = case.downloading(seed);
                let before = received(&pair);
                gaps.push(failure.strike(&mut pair, length));
                parts.push((received(&pair) - before) * 100 / alone);
            }
            let (gap, part) = (median(&mut gaps), median(&mut parts));
            println!("{case:?}, {failure:?}: {part} % of the other path alone, gap {gap:.0?}");
            let (least, longest) = if is_slow {
                (40, 3 * SECOND)
            } else {
                (98, 300 * MS)
            };
            if part < least || gap > longest {
                failed.push((case, failure, part, gap));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Outages of random links at random times, of all paths at once among them: all that both sides
/// send arrives, and no connection is lost.
#[test]
fn outages_at_random_cost_time_and_nothing_else() {
    let count = number("OUTAGES", 6);
    let failed: Vec<_> = (number("SEED", 0)..)
        .take(usize::try_from(count).unwrap())
        .filter_map(|seed| Some((seed, Outages::new(seed).pass()?)))
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

/// A connection on two to four paths that fail.
struct Outages {
    pair: Pair,
    random: Xoshiro256PlusPlus,
    names: Vec<String>,
    /// When an outage of a link begins or ends.
    changes: Vec<(Duration, LinkId, bool)>,
}

impl Outages {
    /// How long links fail.
    const LENGTH: Duration = Duration::from_secs(20);
    /// How long it may take then until everything has arrived.
    const REST: Duration = Duration::from_secs(20);
    const TICK: Duration = Duration::from_millis(500);

    fn new(seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut topology = Topology::new();
        let mut names = Vec::new();
        for index in 0..random.random_range(2..5) {
            let rtt = MS * random.random_range(5..200);
            let link = LinkConfig::new(random.random_range(1.0..20.0), rtt / 2);
            let link = link.loss(random.random_range(0.0..0.02));
            names.push(format!("path {index}"));
            topology = topology.path(&names[index], link);
        }
        let scheduler = ["auto", "lrf"][random.random_range(0..2)];
        let case = Case {
            scheduler,
            dying: 0,
            other: 0,
        };
        let mut setup = case.setup(seed);
        setup.checks = true;
        let mut pair = Pair::connected(&topology, setup);
        pair.open_all_paths();
        let mut changes = Vec::new();
        for _ in 0..random.random_range(1..20) {
            let path = &pair.links()[random.random_range(0..names.len())];
            let links = match random.random_range(0..4) {
                0 => vec![path.up],
                1 => vec![path.down],
                2 => path.links().to_vec(),
                _ => pair.links().iter().flat_map(|path| path.links()).collect(),
            };
            let from = Self::LENGTH.mul_f64(random.random_range(0.0..1.0));
            let longest = [0.3, 3.0, 10.0][random.random_range(0..3)];
            let to = from + SECOND.mul_f64(random.random_range(0.05..longest));
            for link in links {
                changes.push((from, link, true));
                changes.push((to.min(Self::LENGTH), link, false));
            }
        }
        changes.sort_by_key(|change| change.0);
        Self {
            pair,
            random,
            names,
            changes,
        }
    }

    /// Sends a little all the time while links fail. What went wrong, if anything did.
    fn pass(&mut self) -> Option<String> {
        let start = self.pair.now();
        let (mut elapsed, mut tick) = (Duration::ZERO, Duration::ZERO);
        let changes = std::mem::take(&mut self.changes);
        let mut changes = changes.into_iter().peekable();
        while elapsed < Self::LENGTH {
            if elapsed >= tick {
                tick += Self::TICK;
                for side in [Side::Client, Side::Server] {
                    let size = self.random.random_range(1..60_000);
                    self.pair.send(side, size);
                }
                self.open_paths();
            }
            let next = changes.peek().map_or(Self::LENGTH, |change| change.0);
            self.pair.drive(next.min(tick).min(Self::LENGTH) - elapsed);
            elapsed = self.pair.now() - start;
            while let Some((_, link, is_out)) = changes.next_if(|change| change.0 <= elapsed) {
                self.pair.network.change_link(link, &Change::Outage(is_out));
            }
        }
        let complete = self.pair.run_transfers(Self::REST);
        let mut events = [Side::Client, Side::Server]
            .into_iter()
            .flat_map(|side| self.pair.events(side));
        let lost = events.find(|event| matches!(event, Event::ConnectionLost { .. }));
        match (complete, lost) {
            (_, Some(lost)) => Some(format!("{lost:?}")),
            (Err(error), None) => Some(error.to_string()),
            (Ok(_), None) => None,
        }
    }

    /// As a client does: a path that was given up is opened again.
    fn open_paths(&mut self) {
        for index in 0..self.names.len() {
            let local = self.pair.four_tuple(index).local;
            let client = self.pair.client();
            let is_there = |path: PathStats| {
                path.four_tuple.local == local && path.state != PathState::Abandoned
            };
            let is_open = client
                .paths()
                .any(|path| client.path_stats(path).is_some_and(is_there));
            if !is_open {
                let _may_be_refused = self
                    .pair
                    .open_path(&self.names[index], PathStatus::Available);
            }
        }
    }
}

/// Jitter and losses make acknowledgements late: that a path is suspect after one probe timeout
/// must not cost anything.
#[test]
fn jitter_and_losses_cost_no_throughput() {
    let mut failed = Vec::new();
    // One run alone is anything from 66 to 93 %.
    let seeds = number("FAILOVER", 5);
    for case in Case::all(&[(40, 40), (20, 60)]) {
        let link = |rtt| {
            LinkConfig::new(RATE_MBIT, MS * rtt / 2)
                .loss(0.01)
                .jitter(20 * MS)
        };
        let topology = Topology::new()
            .path("dying", link(case.dying))
            .path("other", link(case.other));
        let (mut parts, mut again, mut timeouts) = (Vec::new(), Vec::new(), 0);
        for seed in 1..=seeds {
            let mut pair = Pair::connected(&topology, case.setup(seed));
            pair.open_all_paths();
            pair.send(Side::Server, 1 << 40);
            pair.drive(2 * SECOND);
            let before = received(&pair);
            pair.drive(4 * SECOND);
            let most = 2.0 * RATE_MBIT * 1e6 / 8.0 * 4.0;
            parts.push(((received(&pair) - before) as f64 / most * 100.0) as u64);
            let client = pair.client().stats().bytes_received_again * 1000;
            again.push(client / received(&pair));
            timeouts += path_stats(&mut pair)
                .iter()
                .map(|path| path.probe_timeouts)
                .sum::<u64>();
        }
        let (part, again) = (median(&mut parts), median(&mut again));
        println!(
            "{case:?}: {part} % of both links, {again} of 1000 bytes twice, {timeouts} timeouts"
        );
        if part < 70 || again > 30 || timeouts > 2 * seeds {
            failed.push((case, part, again));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
