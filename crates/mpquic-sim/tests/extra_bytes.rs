//! What is sent more than once is counted on both sides, and the default scheduler keeps to its
//! budget.

use std::time::Duration;

use mpquic_sim::{LinkConfig, Pair, Setup, Side, Topology};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Bytes repeated by the sender, received in vain, and sent in all.
fn extra(setup: Setup, topology: &Topology, sizes: &[u64]) -> [u64; 3] {
    let mut pair = Pair::connected(topology, setup);
    pair.open_all_paths();
    for size in sizes {
        pair.transfer(Side::Server, *size, 60 * SECOND);
    }
    pair.drive(SECOND);
    let received = pair.client().stats().bytes_received_again;
    let stats = pair.server().stats();
    [stats.bytes_repeated, received, stats.bytes_sent]
}

fn uneven(loss: f64) -> Topology {
    Topology::new()
        .path("near", LinkConfig::new(20.0, 10 * MS).loss(loss))
        .path("far", LinkConfig::new(5.0, 80 * MS).loss(loss))
}

fn with(scheduler: &str) -> Setup {
    let scheduler = mpquic_sched::by_name(scheduler).unwrap();
    Setup::with_policies(scheduler, mpquic_cc::default())
}

#[test]
fn both_sides_count_what_was_sent_twice() {
    let lossless = uneven(0.0);
    assert_eq!(extra(with("lrf"), &lossless, &[1_000_000])[..2], [0, 0]);
    let [repeated, again, sent] = extra(with("redundant"), &lossless, &[1_000_000]);
    // Much of it is copied; the receiver counts no headers.
    assert!(
        repeated > 200_000 && repeated < sent,
        "{repeated} of {sent}"
    );
    assert!(
        again as f64 > 0.8 * repeated as f64 && again <= repeated,
        "{again} of {repeated}"
    );
}

#[test]
fn the_default_sends_little_twice() {
    let mut some = 0;
    for loss in [0.0, 0.01] {
        for seed in 1..=4 {
            for sizes in [&[3_000_000][..], &[100_000; 20], &[10_000; 50]] {
                let setup = Setup::new().seed(seed);
                let [repeated, _, sent] = extra(setup, &uneven(loss), sizes);
                let budget = 0.03 * sent as f64 + 10.0 * 1_500.0;
                assert!(repeated as f64 <= budget, "{repeated} of {sent}");
                some += repeated;
            }
        }
    }
    assert!(some > 0, "nothing was ever repeated");
}
