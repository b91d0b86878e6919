//! How paths start: as fast as they can, and without queues that overflow.

use std::time::Duration;

use mpquic_sim::{Backlog, LinkConfig, Pair, Setup, Side, Topology};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const SIZE: u64 = 3_000_000;

/// Trains of packets find the rate, and nothing or next to nothing is lost on the way there, if the queue takes 5 ms (10 to 22 %
/// when the rate was doubled until the queue overflowed).
#[test]
fn a_path_finds_its_rate_before_its_queue_overflows() {
    for (mbit, delay, queue, seconds) in [
        (20.0, 75 * MS, 10 * MS, 1.9),
        (20.0, 75 * MS, 50 * MS, 1.9),
        (10.0, 300 * MS, 100 * MS, 4.7),
        (100.0, 10 * MS, 5 * MS, 0.35),
    ] {
        let link = LinkConfig::new(mbit, delay).queue(Backlog::time(queue));
        for seed in 1..=3 {
            let topology = Topology::new().path("only", link.clone());
            let mut pair = Pair::connected(&topology, Setup::new().seed(seed));
            let took = pair.transfer(Side::Server, SIZE, 20 * SECOND);
            let [_, down] = pair.counters("only");
            let lost = down.dropped_queue as f64 / down.packets_in as f64;
            println!(
                "{mbit} Mbit/s, {delay:?}, queue {queue:?}: {took:?}, {:.1} % lost",
                100.0 * lost
            );
            assert!(
                lost < 0.02 && took.as_secs_f64() < seconds,
                "{lost} {took:?}"
            );
        }
    }
}
