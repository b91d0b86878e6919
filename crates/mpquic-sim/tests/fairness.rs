//! What connections over several paths take of a bottleneck, beside one over a single path.

use std::time::Duration;

use mpquic_sim::{Backlog, LinkConfig, Pair, Setup, Side, Topology};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A connection over all paths but the last and one over the last path alone, all through one link.
struct Contest {
    multipath: &'static str,
    single: &'static str,
    paths: usize,
    rate_mbit: f64,
    /// One-way delay of the link they share.
    delay: Duration,
    /// Of the links before it, path by path.
    access: Vec<Duration>,
    queue: Duration,
    seed: u64,
}

/// Bytes a second each got while both ran.
#[derive(Debug)]
struct Outcome {
    multipath: f64,
    single: f64,
}

impl Outcome {
    fn ratio(&self) -> f64 {
        self.multipath / self.single
    }
}

impl Contest {
    fn new(multipath: &'static str, single: &'static str) -> Self {
        Self {
            multipath,
            single,
            paths: 2,
            rate_mbit: 20.0,
            delay: 15 * MS,
            access: vec![4 * MS, 6 * MS, 5 * MS],
            queue: 60 * MS,
            seed: 1,
        }
    }

    fn topology(&self) -> Topology {
        let bottleneck =
            LinkConfig::new(self.rate_mbit, self.delay).queue(Backlog::time(self.queue));
        let topology = Topology::new().shared_bottleneck(bottleneck);
        self.access
            .iter()
            .zip(0..)
            .fold(topology, |topology, (delay, index)| {
                let access = LinkConfig::new(f64::INFINITY, *delay).jitter(MS / 2);
                topology.path(&format!("path {index}"), access)
            })
    }

    fn run(&self, warm_up: Duration, duration: Duration) -> Outcome {
        let scheduler = mpquic_sched::by_name("lrf").unwrap();
        let controller = mpquic_cc::by_name(self.multipath).unwrap();
        let setup = Setup::with_policies(scheduler, controller).seed(self.seed);
        let mut pair = Pair::connected(
            &self.topology(),
            Setup {
                checks: false,
                ..setup
            },
        );
        for path in 1..self.paths {
            pair.open_path(&format!("path {path}"), mpquic_core::PathStatus::Available)
                .unwrap();
        }
        pair.send(Side::Client, 1 << 40);
        pair.setup_mut().client.controller = mpquic_cc::by_name(self.single).unwrap();
        pair.connect_over(self.paths);
        pair.run_until_confirmed(SECOND).unwrap();
        pair.send(Side::Client, 1 << 40);
        pair.drive(warm_up);
        let before = received(&pair);
        pair.drive(duration);
        let after = received(&pair);
        let rate = |index: usize| (after[index] - before[index]) as f64 / duration.as_secs_f64();
        let (multipath, single) = (rate(0), rate(1));
        Outcome { multipath, single }
    }
}

fn received(pair: &Pair) -> Vec<u64> {
    let server = pair.host(pair.host_id(Side::Server));
    let connections = server.connections().iter();
    connections
        .map(|hosted| hosted.application.received())
        .collect()
}

#[test]
fn table() {
    let list = |name: &str, default: &str| -> Vec<String> {
        std::env::var(name)
            .unwrap_or(default.into())
            .split(' ')
            .map(str::to_owned)
            .collect()
    };
    let num = |name: &str, default: u64| -> u64 {
        std::env::var(name).map_or(default, |v| v.parse().unwrap())
    };
    for single in list("SINGLE", "newreno") {
        for multi in list("MULTI", "olia") {
            let mut line = String::new();
            let mut ratios = vec![];
            for queue in list("QUEUE", "60") {
                for seed in 1..=num("SEEDS", 2) {
                    let mut contest = Contest::new(multi.clone().leak(), single.clone().leak());
                    contest.seed = seed;
                    contest.paths = num("PATHS", 2) as usize;
                    contest.rate_mbit = num("RATE", 20) as f64;
                    contest.queue = MS * queue.parse().unwrap();
                    contest.access = list("ACCESS", "5 5 5")
                        .iter()
                        .map(|a| MS * a.parse().unwrap())
                        .collect();
                    let outcome = contest.run(
                        SECOND * num("WARM", 20) as u32,
                        SECOND * num("TIME", 60) as u32,
                    );
                    ratios.push(outcome.ratio());
                    line += &format!(
                        " q{queue}:{:.2}({:.1}+{:.1})",
                        outcome.ratio(),
                        outcome.multipath * 8e-6,
                        outcome.single * 8e-6
                    );
                }
            }
            eprintln!(
                "{multi} vs {single}: {:.2}; {line}",
                ratios.iter().sum::<f64>() / ratios.len() as f64
            );
        }
    }
}
