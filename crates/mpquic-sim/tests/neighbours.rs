//! What `coupled-bbr` takes of a bottleneck beside one flow of another kind, whatever the round
//! trip, the queue and the number of its own paths.
//!
//! `MATRIX=3 cargo test --release -p mpquic-sim --test all neighbours -- --nocapture` prints the
//! table of `docs/congestion.md`, means over three seeds. `CELLS=newreno-40ms,cubic-40ms` prints
//! only cells whose names contain one of these, `CONTROLLER=bbr` those of another controller.

use std::sync::Mutex;
use std::time::Duration;

use mpquic_sim::{Backlog, LinkConfig, Topology};

use crate::duel::Duel;

const SECOND: Duration = Duration::from_secs(1);

/// A connection over several paths beside one over one path, all through one link.
#[derive(Debug, Clone, Copy)]
struct Cell {
    competitor: &'static str,
    /// Without queues.
    rtt_ms: u32,
    /// In round trips.
    queue: f64,
    paths: usize,
}

impl Cell {
    fn all() -> Vec<Self> {
        let mut cells = Vec::new();
        for competitor in ["newreno", "cubic", "bbr"] {
            for rtt_ms in [10, 40, 100] {
                for queue in [0.5, 1.0, 3.0] {
                    cells.extend([1, 2, 4].map(|paths| Self {
                        competitor,
                        rtt_ms,
                        queue,
                        paths,
                    }));
                }
            }
        }
        cells
    }

    fn name(&self) -> String {
        let Self {
            competitor,
            rtt_ms,
            queue,
            paths,
        } = self;
        format!("{competitor}-{rtt_ms}ms-{queue}q-{paths}p")
    }

    /// About as many datagrams in a round trip at 10 ms as at 40 ms.
    fn rate_mbit(&self) -> f64 {
        if self.rtt_ms < 20 { 60.0 } else { 20.0 }
    }

    fn topology(&self) -> Topology {
        let rtt = Duration::from_millis(self.rtt_ms.into());
        let queue = Backlog::time(rtt.mul_f64(self.queue));
        let bottleneck = LinkConfig::new(self.rate_mbit(), rtt.mul_f64(0.3)).queue(queue);
        (0..=self.paths).fold(
            Topology::new().shared_bottleneck(bottleneck),
            |topology, path| {
                // Without some packets' worth of jitter a full queue hits the same flow each time.
                let delay = rtt.mul_f64([0.2, 0.19, 0.21, 0.18, 0.2][path]);
                let access = LinkConfig::new(f64::INFINITY, delay)
                    .jitter(Duration::from_millis(2).min(rtt / 20));
                topology.path(&format!("path {path}"), access)
            },
        )
    }

    /// How many times the single path's share the connection took.
    fn run(&self, controller: &str, seed: u64) -> f64 {
        let duel = Duel {
            multipath: controller,
            single: self.competitor,
            paths: self.paths,
            settling: 20 * SECOND,
            counted: 80 * SECOND,
        };
        duel.run(&self.topology(), seed)
    }
}

/// The shares of all cells, seed by seed, on two processors.
fn measure(cells: &[Cell], controller: &str, seeds: u64) -> Vec<Vec<f64>> {
    assert!(seeds > 0, "at least one seed");
    let results = Mutex::new(vec![Vec::new(); cells.len()]);
    let next = Mutex::new(0..cells.len());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(index) = next.lock().unwrap().next() else {
                        return;
                    };
                    let shares = (1..=seeds).map(|seed| cells[index].run(controller, seed));
                    let shares: Vec<_> = shares.collect();
                    results.lock().unwrap()[index] = shares;
                }
            });
        }
    });
    results.into_inner().unwrap()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn neighbours_matrix() {
    let Ok(seeds) = std::env::var("MATRIX") else {
        return;
    };
    let seeds = seeds.parse().expect("MATRIX is a number of seeds");
    let controller = std::env::var("CONTROLLER").unwrap_or("coupled-bbr".into());
    let wanted = std::env::var("CELLS").unwrap_or_default();
    let mut cells = Cell::all();
    cells.retain(|cell| wanted.split(',').any(|part| cell.name().contains(part)));
    let shares = measure(&cells, &controller, seeds);
    let mut row = String::new();
    for (cell, shares) in cells.iter().zip(&shares) {
        let Cell {
            competitor,
            rtt_ms,
            queue,
            paths,
        } = cell;
        let name = format!("| `{competitor}` | {rtt_ms} ms | {queue} |");
        if name != row {
            print!("\n{name}");
            row = name;
        }
        let lowest = shares.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = shares.iter().copied().fold(0.0, f64::max);
        print!(
            " {paths}: {:.2} ({lowest:.2} to {highest:.2}) |",
            mean(shares)
        );
    }
    println!();
}

/// The mean over two seeds of a cell with a queue of one round trip.
fn share(competitor: &'static str, rtt_ms: u32, paths: usize) -> f64 {
    let cell = Cell {
        competitor,
        rtt_ms,
        queue: 1.0,
        paths,
    };
    let share = mean(&measure(&[cell], "coupled-bbr", 2)[0]);
    println!("{}: {share:.2}", cell.name());
    share
}

/// The numbers of paths that are tried: two, and with `NEIGHBOURS=all`, as in CI, one and four as
/// well.
fn path_counts() -> &'static [usize] {
    match std::env::var("NEIGHBOURS").as_deref() {
        Ok("all") => &[1, 2, 4],
        Ok(other) => panic!("NEIGHBOURS is {other}, not all"),
        Err(_) => &[2],
    }
}

#[test]
fn a_loss_based_neighbour_keeps_its_share_whatever_the_number_of_paths() {
    let newreno = path_counts().iter().map(|paths| ("newreno", *paths));
    for (competitor, paths) in newreno.chain([("cubic", 2)]) {
        let share = share(competitor, 40, paths);
        assert!(
            (0.5..=1.5).contains(&share),
            "{competitor}, {paths}: {share}"
        );
    }
}

#[test]
fn a_neighbour_that_probes_is_not_taken_for_one_that_does_not() {
    for &paths in path_counts() {
        let share = share("bbr", 40, paths);
        assert!((0.8..=1.25).contains(&share), "{paths}: {share}");
    }
}
