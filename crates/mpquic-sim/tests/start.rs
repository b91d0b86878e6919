//! How paths start: as fast as they can, and without queues that overflow.

use std::time::Duration;

use mpquic_core::PathId;
use mpquic_sim::{Backlog, LinkConfig, Pair, Setup, Side, Topology};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const SIZE: u64 = 3_000_000;

/// Trains of packets find the rate, and nothing or next to nothing is lost on the way there, if the
/// queue takes 5 ms (10 to 22 % when the rate was doubled until the queue overflowed).
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

/// Bytes that a server sends in a millisecond, at most, of the first two round trips of data.
fn most_at_once() -> u64 {
    let link = LinkConfig::new(100.0, 50 * MS);
    let mut pair = Pair::connected(&Topology::new().path("only", link), Setup::new());
    pair.drive(200 * MS);
    pair.send(Side::Server, 3_000_000);
    let (begin, mut log) = (pair.now(), Vec::new());
    while pair.now() < begin + 190 * MS && pair.step() {
        let sent = pair.server().path_stats(PathId::ZERO).unwrap().bytes_sent;
        log.push((pair.now(), sent));
    }
    let within = |at| {
        log.iter()
            .find(|(later, _)| *later > at + MS)
            .map(|it| it.1)
    };
    let since = |(at, sent): &(_, u64)| Some(within(*at)? - sent);
    log.iter().filter_map(since).max().unwrap()
}

/// Trains leave much faster than what follows them, which must not take their rate (52,800 bytes
/// when it did).
#[test]
fn no_more_than_a_train_leaves_at_once() {
    let most = most_at_once();
    assert!(most < 12 * 1452, "{most}");
}
