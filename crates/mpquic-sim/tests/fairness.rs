//! What connections over several paths take of a bottleneck their paths share with a connection
//! over one path, and what they reach on long and lossy paths of their own.
//!
//! `SEEDS=5 cargo test --release -p mpquic-sim --test all fairness -- --nocapture` prints the
//! figures of `docs/congestion.md`. Without `SEEDS` each is taken with two seeds, to be quick.

use std::time::Duration;

use mpquic_sim::{Backlog, LinkConfig, Pair, Side, Topology};

use crate::duel::{Duel, connected, received};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Figures that vary are taken with so many seeds.
fn seeds() -> u64 {
    std::env::var("SEEDS").map_or(2, |seeds| {
        seeds.parse().expect("SEEDS is a number of seeds")
    })
}

/// And with so many those that hardly do, and those that ours are compared with.
fn fewer_seeds() -> u64 {
    seeds().div_ceil(2)
}

/// Delays of the links before the bottleneck, path by path.
const ACCESS: [Duration; 5] = [
    Duration::from_millis(4),
    Duration::from_millis(6),
    Duration::from_millis(5),
    Duration::from_millis(7),
    Duration::from_millis(5),
];

/// A connection over all paths but the last beside one over the last, all through one link.
struct Contest {
    multipath: &'static str,
    single: &'static str,
    /// Of the connection over several.
    paths: usize,
    rate_mbit: f64,
}

impl Contest {
    /// Two paths, 10 Mbit/s.
    fn two_paths(multipath: &'static str, single: &'static str) -> Self {
        Self {
            multipath,
            single,
            paths: 2,
            rate_mbit: 10.0,
        }
    }

    /// Four paths, 20 Mbit/s: windows should stay well above the smallest ones.
    fn four_paths(multipath: &'static str, single: &'static str) -> Self {
        Self {
            paths: 4,
            rate_mbit: 20.0,
            ..Self::two_paths(multipath, single)
        }
    }

    fn topology(&self) -> Topology {
        let bottleneck = LinkConfig::new(self.rate_mbit, 15 * MS).queue(Backlog::time(60 * MS));
        // Without some packets' worth of jitter a full queue hits the same flow each time.
        let jitter = 4 * MS * 10 / self.rate_mbit as u32;
        let paths = ACCESS[..=self.paths].iter().zip(0..);
        paths.fold(
            Topology::new().shared_bottleneck(bottleneck),
            |topology, (delay, index)| {
                let access = LinkConfig::new(f64::INFINITY, *delay).jitter(jitter);
                topology.path(&format!("path {index}"), access)
            },
        )
    }

    /// How many times the single path's share the other connection took, in a minute.
    fn run(&self, seed: u64) -> f64 {
        let duel = Duel {
            multipath: self.multipath,
            single: self.single,
            paths: self.paths,
            settling: 15 * SECOND,
            counted: 60 * SECOND,
        };
        duel.run(&self.topology(), seed)
    }

    /// The mean over seeds, and its lowest and highest values.
    fn run_all(&self, seeds: u64) -> Spread {
        let ratios: Vec<_> = (1..=seeds).map(|seed| self.run(seed)).collect();
        let spread = Spread::of(&ratios);
        println!(
            "{} paths of {} beside {}: {spread}",
            self.paths, self.multipath, self.single
        );
        spread
    }
}

/// Values over several seeds.
#[derive(Debug, Clone, Copy)]
struct Spread {
    mean: f64,
    lowest: f64,
    highest: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Self {
        Self {
            mean: values.iter().sum::<f64>() / values.len() as f64,
            lowest: values.iter().copied().fold(f64::INFINITY, f64::min),
            highest: values.iter().copied().fold(0.0, f64::max),
        }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            mean,
            lowest,
            highest,
        } = self;
        write!(f, "{mean:.2} ({lowest:.2} to {highest:.2})")
    }
}

/// Links of a connection, each with its rate in Mbit/s.
fn links(rates_mbit: [f64; 2], delay: Duration, loss: f64) -> [(f64, LinkConfig); 2] {
    rates_mbit.map(|rate| (rate, LinkConfig::new(rate, delay).loss(loss)))
}

/// The part of the links' rates, headers included, that arrived in 40 seconds.
fn utilisation(controller: &str, links: &[(f64, LinkConfig); 2], seed: u64) -> f64 {
    let names = ["path 0", "path 1"];
    let paths = names.iter().zip(links);
    let topology = paths.fold(Topology::new(), |topology, (name, (_, link))| {
        topology.path(name, link.clone())
    });
    let mut pair = connected(&topology, controller, seed);
    pair.open_all_paths();
    pair.send(Side::Client, 1 << 40);
    pair.drive(10 * SECOND);
    let carried = |pair: &Pair| -> u64 {
        let bytes = names.map(|name| pair.counters(name)[0].bytes_out);
        bytes.iter().sum()
    };
    let (before, data_before) = (carried(&pair), received(&pair)[0]);
    pair.drive(40 * SECOND);
    let bytes = (carried(&pair) - before) as f64;
    // No flood of repetitions: headers, acknowledgements and losses take less than 6 %.
    let data = (received(&pair)[0] - data_before) as f64;
    assert!(data >= 0.94 * bytes, "{controller}: {data} of {bytes}");
    let rate: f64 = links.iter().map(|(rate, _)| rate * 1e6 / 8.0).sum();
    bytes / (40.0 * rate)
}

fn utilisations(controller: &str, links: &[(f64, LinkConfig); 2], seeds: u64) -> Spread {
    let values: Vec<_> = (1..=seeds)
        .map(|seed| utilisation(controller, links, seed))
        .collect();
    let spread = Spread::of(&values);
    println!("{controller} on {:?}: {spread}", links[0].1.loss);
    spread
}

/// The mean over the seeds is one share; no seed is far from it.
fn assert_one_share(contest: &Contest) {
    let spread = contest.run_all(seeds());
    let name = contest.multipath;
    assert!((0.8..=1.25).contains(&spread.mean), "{name}: {spread}");
    assert!(
        spread.lowest > 0.6 && spread.highest < 1.6,
        "{name}: {spread}"
    );
}

/// Uncoupled paths take a share each, give or take a fifth.
fn assert_share_each(contest: &Contest) {
    let spread = contest.run_all(fewer_seeds());
    let (name, paths) = (contest.multipath, contest.paths as f64);
    let shares = spread.mean / paths;
    assert!((0.8..=1.25).contains(&shares), "{name}: {spread}");
}

#[test]
fn olia_takes_one_share_of_a_shared_bottleneck() {
    assert_one_share(&Contest::two_paths("olia", "newreno"));
}

#[test]
fn lia_takes_one_share_of_a_shared_bottleneck() {
    assert_one_share(&Contest::two_paths("lia", "newreno"));
}

#[test]
fn balia_takes_one_share_of_a_shared_bottleneck() {
    assert_one_share(&Contest::two_paths("balia", "newreno"));
}

#[test]
fn wvegas_takes_one_share_of_a_shared_bottleneck() {
    assert_one_share(&Contest::two_paths("wvegas", "wvegas"));
}

#[test]
fn coupled_bbr_takes_one_share_of_a_shared_bottleneck() {
    assert_one_share(&Contest::two_paths("coupled-bbr", "bbr"));
    assert_one_share(&Contest::two_paths("coupled-bbr", "coupled-bbr"));
}

#[test]
fn coupled_bbr_takes_one_share_on_four_paths() {
    assert_one_share(&Contest::four_paths("coupled-bbr", "bbr"));
}

/// Coupling by losses takes far less than four shares. Seeds differ by as much as 0.7 to 2.0; the
/// mean of twenty is 1.2 to 1.5.
fn assert_far_less_than_four_shares(name: &'static str) {
    let spread = Contest::four_paths(name, "newreno").run_all(4 * seeds());
    assert!((0.8..=1.6).contains(&spread.mean), "{name}: {spread}");
}

#[test]
fn olia_takes_far_less_than_four_shares_on_four_paths() {
    assert_far_less_than_four_shares("olia");
}

#[test]
fn lia_takes_far_less_than_four_shares_on_four_paths() {
    assert_far_less_than_four_shares("lia");
}

#[test]
fn balia_takes_far_less_than_four_shares_on_four_paths() {
    assert_far_less_than_four_shares("balia");
}

#[test]
fn uncoupled_paths_take_a_share_each() {
    for name in ["newreno", "cubic", "bbr"] {
        assert_share_each(&Contest::two_paths(name, name));
    }
}

#[test]
fn uncoupled_paths_take_a_share_each_on_four_paths() {
    for name in ["newreno", "cubic", "bbr"] {
        assert_share_each(&Contest::four_paths(name, name));
    }
}

#[test]
fn coupled_bbr_fills_long_lossy_paths_of_its_own() {
    let links = links([20.0, 30.0], 75 * MS, 0.005);
    let ours = utilisations("coupled-bbr", &links, seeds());
    assert!(ours.lowest >= 0.95, "{ours}");
    for name in ["olia", "lia", "balia", "wvegas", "newreno", "cubic"] {
        let other = utilisations(name, &links, fewer_seeds());
        assert!(other.highest < 0.2, "{name}: {other}");
    }
}

#[test]
fn coupled_bbr_fills_clean_and_unequal_paths_of_its_own() {
    let short = links([20.0, 20.0], 20 * MS, 0.0);
    let long = links([30.0, 30.0], 75 * MS, 0.005);
    for links in [short.clone(), [short[0].clone(), long[0].clone()]] {
        let ours = utilisations("coupled-bbr", &links, fewer_seeds());
        assert!(ours.lowest >= 0.95, "{ours}");
    }
}

/// Pairs of links of its own, unequal in rate, delay, queue or losses.
fn unequal_pairs() -> Vec<(&'static str, [(f64, LinkConfig); 2])> {
    let link = |rate: f64, delay: u32, queue_ms: u32, loss: f64| {
        let queue = Backlog::time(queue_ms * MS);
        (
            rate,
            LinkConfig::new(rate, delay * MS).loss(loss).queue(queue),
        )
    };
    let short = link(20.0, 20, 50, 0.0);
    vec![
        ("equal", [short.clone(), short.clone()]),
        (
            "long and lossy",
            [short.clone(), link(30.0, 75, 150, 0.005)],
        ),
        ("long", [short.clone(), link(30.0, 75, 150, 0.0)]),
        ("slow", [short.clone(), link(3.0, 20, 50, 0.0)]),
        ("fast", [short.clone(), link(100.0, 10, 20, 0.0)]),
        (
            "thin queues",
            [link(20.0, 20, 20, 0.0), link(30.0, 50, 50, 0.0)],
        ),
        (
            "one round trip",
            [link(20.0, 20, 40, 0.0), link(30.0, 50, 100, 0.0)],
        ),
        ("deep queue", [short, link(10.0, 40, 400, 0.0)]),
    ]
}

/// `STEADY=20 cargo test --release -p mpquic-sim --test all steady -- --nocapture` prints the part
/// of their links' rates that they reach, over so many seeds. Without it some pairs do, twice.
#[test]
fn coupled_bbr_is_steady_on_unequal_paths_of_its_own() {
    let all = std::env::var("STEADY");
    let seeds = all.as_deref().map_or(2, |seeds| {
        seeds.parse().expect("STEADY is a number of seeds")
    });
    let mut pairs = unequal_pairs();
    if all.is_err() {
        pairs.retain(|(name, _)| ["long and lossy", "slow", "thin queues"].contains(name));
    }
    for (name, links) in pairs {
        let values = (1..=seeds).map(|seed| utilisation("coupled-bbr", &links, seed));
        let spread = Spread::of(&values.collect::<Vec<_>>());
        println!("{name}: {spread}");
        // The links are used, and no seed is far behind the others.
        assert!(spread.mean >= 0.95, "{name}: {spread}");
        assert!(spread.lowest >= 0.95 * spread.mean, "{name}: {spread}");
    }
}
