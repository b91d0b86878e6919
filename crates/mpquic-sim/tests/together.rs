//! What several paths give together, beside the sum of what each gives alone.

use crate::random_paths::{Drawn, asked, download};

/// How long the bytes of each path take over it alone, about.
const SECONDS: f64 = 10.0;

/// Mbit/s, ms of a round trip, and which part of the packets is lost in each direction.
type Path = (f64, f64, f64);

/// Two to five paths, equal and not, whose round trips differ by up to twenty times.
const SETS: [&[Path]; 14] = [
    &[(20.0, 40.0, 0.0); 2],
    &[(20.0, 40.0, 0.0); 3],
    &[(20.0, 40.0, 0.0); 4],
    &[(20.0, 40.0, 0.0); 5],
    &[(10.0, 40.0, 0.0), (40.0, 40.0, 0.0)],
    &[(50.0, 20.0, 0.0), (5.0, 20.0, 0.0)],
    &[(20.0, 20.0, 0.0), (20.0, 400.0, 0.0)],
    &[(40.0, 10.0, 0.0), (10.0, 200.0, 0.0)],
    &[(10.0, 20.0, 0.0), (40.0, 400.0, 0.0)],
    &[(50.0, 20.0, 0.01), (50.0, 60.0, 0.01)],
    &[(50.0, 20.0, 0.0), (20.0, 50.0, 0.0), (10.0, 300.0, 0.0)],
    &[
        (30.0, 30.0, 0.005),
        (30.0, 90.0, 0.005),
        (30.0, 300.0, 0.005),
    ],
    &[
        (40.0, 15.0, 0.0),
        (30.0, 30.0, 0.0),
        (20.0, 60.0, 0.0),
        (10.0, 240.0, 0.0),
    ],
    &[
        (50.0, 10.0, 0.0),
        (40.0, 20.0, 0.0),
        (30.0, 40.0, 0.0),
        (20.0, 80.0, 0.001),
        (10.0, 200.0, 0.001),
    ],
];

fn size(&(mbit, ..): &Path) -> u64 {
    (mbit * 1e6 / 8.0 * SECONDS) as u64
}

/// Bytes each second, from the first packet on.
fn goodput(paths: &[Path], seed: u64) -> f64 {
    let with_queue = |&(mbit, rtt_ms, loss): &Path| Drawn {
        mbit,
        rtt: rtt_ms / 1000.0,
        loss,
        queue: 1.0,
    };
    let size = paths.iter().map(size).sum();
    let paths: Vec<_> = paths.iter().map(with_queue).collect();
    size as f64 / download(seed, &paths, size)
}

/// `SEEDS=20` prints the table of docs/defaults.md.
#[test]
fn paths_give_together_nearly_what_each_gives_alone() {
    for paths in SETS {
        let share = |seed| {
            let alone = paths.iter().map(|path| goodput(&[*path], seed));
            goodput(paths, seed) / alone.sum::<f64>()
        };
        let mut shares: Vec<_> = (1..=asked("SEEDS", 1)).map(share).collect();
        shares.sort_by(f64::total_cmp);
        let median = shares[shares.len() / 2];
        let list = |of: fn(&Path) -> f64| {
            let texts: Vec<_> = paths.iter().map(|path| of(path).to_string()).collect();
            texts.join(", ")
        };
        println!(
            "| {} | {} | {} | {:.1} % | {:.1} % |",
            list(|path| path.0),
            list(|path| path.1),
            list(|path| 100.0 * path.2),
            100.0 * median,
            100.0 * shares[0]
        );
        assert!(median >= 0.93, "{paths:?}: {shares:?}");
    }
}
