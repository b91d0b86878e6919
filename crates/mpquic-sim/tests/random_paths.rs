//! Pairs and triples of paths drawn at random: is using all of them ever slower than the best one
//! alone?

use std::time::Duration;

use mpquic_core::PathStatus;
use mpquic_sim::{Backlog, LinkConfig, Pair, Setup, Side, Topology};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const SIZES: [u64; 3] = [1_000, 100_000, 10_000_000];
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
/// Draws whose first path is much slower than another one, and has a short queue.
const DRAWS: [u64; 4] = [17, 23, 27, 36];
const LIMIT: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone, Copy)]
pub(super) struct Drawn {
    pub(super) mbit: f64,
    /// In seconds.
    pub(super) rtt: f64,
    /// Which part of the packets, in each direction.
    pub(super) loss: f64,
    /// In bandwidth-delay products.
    pub(super) queue: f64,
}

impl Drawn {
    fn new(random: &mut StdRng) -> Self {
        let mut between = |low: f64, high: f64| low * (high / low).powf(random.random::<f64>());
        Self {
            mbit: between(0.5, 1000.0),
            rtt: between(0.002, 0.7),
            queue: between(0.2, 5.0),
            loss: random.random_range(0.0..0.03),
        }
    }

    /// Its queue holds four datagrams at least.
    fn link(&self) -> LinkConfig {
        let product = self.mbit * 1e6 / 8.0 * self.rtt;
        let queue = (self.queue * product).max(6000.0) as u64;
        LinkConfig::new(self.mbit, Duration::from_secs_f64(self.rtt / 2.0))
            .loss(self.loss)
            .queue(Backlog::bytes(queue))
    }
}

/// Paths that differ from these by at most a twentieth. Where a queue holds but a few packets, the
/// same path all over again would have the same packet overflow it each time.
fn like(paths: &[Drawn], seed: u64) -> Vec<Drawn> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut near = |value: f64| value * random.random_range(0.95..1.05);
    let near = |path: &Drawn| Drawn {
        mbit: near(path.mbit),
        rtt: near(path.rtt),
        ..*path
    };
    paths.iter().map(near).collect()
}

/// Two or three paths.
fn draw(seed: u64) -> Vec<Drawn> {
    let mut random = StdRng::seed_from_u64(seed);
    let count = random.random_range(2..=3);
    (0..count).map(|_| Drawn::new(&mut random)).collect()
}

/// A connection over the first of these paths, as far as the handshake goes for the client, and the
/// seconds it takes.
fn connect(seed: u64, paths: &[Drawn]) -> (Pair, f64) {
    let named = paths.iter().zip(NAMES);
    let topology = named.fold(Topology::new(), |topology, (path, name)| {
        topology.path(name, path.link())
    });
    let mut setup = Setup::new().seed(seed);
    setup.checks = false;
    let mut pair = Pair::new(&topology, setup);
    pair.connect();
    let connected =
        |pair: &mut Pair| !pair.client().is_handshaking() && pair.hosted(Side::Server).is_some();
    let took = pair.run_until(LIMIT, connected).unwrap();
    (pair, took.as_secs_f64())
}

/// Seconds from the first packet until the client has `size` bytes that it asked for.
pub(super) fn download(seed: u64, paths: &[Drawn], size: u64) -> f64 {
    let (mut pair, handshake) = connect(seed, paths);
    let begin = pair.now();
    pair.ask(Side::Client, 100, size);
    let mut unopened = &NAMES[1..paths.len()];
    let received = |pair: &Pair| {
        let client = pair.hosted(Side::Client);
        client.map_or(0, |hosted| hosted.application.received())
    };
    while received(&pair) < size {
        let goes_on = pair.now() < begin + LIMIT && pair.step();
        assert!(goes_on, "{seed} {paths:?}");
        if let [name, rest @ ..] = unopened
            && pair.open_path(name, PathStatus::Available).is_ok()
        {
            unopened = rest;
        }
    }
    handshake + (pair.now() - begin).as_secs_f64()
}

/// The median of several downloads, which differ in what is lost, and but for the first one a
/// little in the paths.
fn median(seed: u64, runs: u64, paths: &[Drawn], size: u64) -> f64 {
    let download = |run: u64| match run {
        0 => download(seed, paths, size),
        _ => download(seed + 1000 * run, &like(paths, run), size),
    };
    let mut times: Vec<_> = (0..runs).map(download).collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// The time with all paths, that of the best one alone, and that of the one with the shortest
/// handshake: a client that tries all of its addresses goes on with the one over which it is
/// answered first.
fn times(seed: u64, runs: u64, size: u64) -> [f64; 3] {
    let mut paths = draw(seed);
    paths.sort_by_cached_key(|path| Duration::from_secs_f64(connect(seed, &[*path]).1));
    let alone = paths.iter().map(|path| median(seed, runs, &[*path], size));
    let alone: Vec<_> = alone.collect();
    let best = alone.iter().copied().fold(f64::INFINITY, f64::min);
    [median(seed, runs, &paths, size), best, alone[0]]
}

pub(super) fn asked(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().unwrap())
}

/// `PAIRS=200 RUNS=3` prints the table of docs/defaults.md, which pairs and triples are slower, and
/// what `benches/random_paths` draws.
#[test]
fn all_paths_are_hardly_ever_slower_than_the_best_one() {
    let (count, runs) = (asked("PAIRS", 20), asked("RUNS", 1));
    println!(
        "| bytes | 1 % | 10 % | median | 90 % | 99 % | worst | at most 1.02 | of the first | mean time |"
    );
    for size in SIZES {
        let mut ratios = Vec::new();
        let (mut product, mut useful) = (0.0, 0);
        for seed in 1..=count {
            let [all, best, first] = times(seed, runs, size);
            product += all.ln();
            useful += u64::from(all <= 1.02 * first);
            ratios.push((all / best, seed));
        }
        ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
        let at = |part: f64| ratios[((count - 1) as f64 * part).round() as usize].0;
        let good = ratios.iter().filter(|(ratio, _)| *ratio <= 1.02).count();
        let parts = [0.01, 0.1, 0.5, 0.9, 0.99, 1.0].map(|part| format!("{:.2}", at(part)));
        println!(
            "| {size} | {} | {:.1} % | {:.1} % | {:.4} s |",
            parts.join(" | "),
            good as f64 / count as f64 * 100.0,
            useful as f64 / count as f64 * 100.0,
            (product / count as f64).exp(),
        );
        let all: Vec<_> = ratios.iter().map(|it| format!("{:.3}", it.0)).collect();
        println!("  all of {size}: {}", all.join(" "));
        let slower = ratios.iter().rev().filter(|(ratio, _)| *ratio > 1.02);
        for (ratio, seed) in slower.take(8) {
            println!("  {ratio:.3} {seed} {:.3?}", draw(*seed));
        }
        assert!(at(0.5) <= 1.02, "{size} {ratios:?}");
    }
}

/// Where the handshake goes over a path that overflows, what it holds by the time that another one
/// is open is mostly lost, and not worth waiting for.
#[test]
fn small_objects_do_not_wait_for_a_path_that_overflows() {
    let mut product = 0.0;
    for seed in DRAWS {
        let [all, best, first] = times(seed, 11, 100_000);
        assert!(
            all <= 1.02 * first,
            "{seed}: {all} s, {first} s over the first"
        );
        product += (all / best).ln();
    }
    let mean = (product / DRAWS.len() as f64).exp();
    // About 1.5 before copies of what is most likely lost cost the budget less.
    assert!(mean < 1.35, "{mean}");
}
