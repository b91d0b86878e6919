//! Schedulers and controllers that answer nonsense, wait for ever or panic: they cost speed, and
//! the transfer ends all the same with the right bytes.

mod controllers;
mod schedulers;

use std::sync::Arc;
use std::time::Duration;

use mpquic_core::congestion::ControllerFactory;
use mpquic_core::sched::SchedulerFactory;
use mpquic_core::{PathId, PathStatus};
use mpquic_sim::{LinkConfig, Pair, Setup, Side, Topology};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// Bytes each side sends.
const SIZE: u64 = 60_000;

/// What a transfer cost.
#[derive(Debug)]
struct Cost {
    time: Duration,
    /// Packets and bytes that left either side.
    packets: u64,
    bytes: u64,
}

fn topology() -> Topology {
    Topology::new()
        .path("fast", LinkConfig::new(20.0, 5 * MS))
        .path("slow", LinkConfig::new(10.0, 20 * MS))
}

fn pair(
    scheduler: Arc<dyn SchedulerFactory>,
    controller: Arc<dyn ControllerFactory>,
    seed: u64,
) -> Pair {
    let setup = Setup::with_policies(scheduler, controller).seed(seed);
    let mut pair = Pair::connected(&topology(), setup);
    let slow = pair.open_path("slow", PathStatus::Available);
    assert_eq!(slow, Ok(PathId(1)));
    let established = pair.run_until(20 * SECOND, |pair| pair.is_established(PathId(1)));
    established.unwrap();
    pair
}

/// Lets both sides send and says what it cost. Time and the number of events are bounded: neither
/// clock nor loop runs away.
fn transfer(pair: &mut Pair, limit: Duration) -> Cost {
    let (start, before) = (pair.now(), traffic(pair));
    pair.send(Side::Client, SIZE);
    pair.send(Side::Server, SIZE);
    let mut events = 0;
    let done = pair.run_until(limit, |pair| {
        events += 1;
        assert!(events < 200_000, "too many events");
        pair.is_delivered(Side::Client) && pair.is_delivered(Side::Server)
    });
    if let Err(error) = done {
        panic!("{error}: {}", pair.progress(Side::Client));
    }
    let after = traffic(pair);
    Cost {
        time: pair.now() - start,
        packets: after[0] - before[0],
        bytes: after[1] - before[1],
    }
}

/// Packets and bytes that left either side.
fn traffic(pair: &Pair) -> [u64; 2] {
    let names = pair.links().iter().map(|links| links.name.clone());
    names.fold([0; 2], |sum, name| {
        let counters = pair.counters(&name);
        let packets: u64 = counters.iter().map(|link| link.packets_in).sum();
        let bytes: u64 = counters.iter().map(|link| link.bytes_in).sum();
        [sum[0] + packets, sum[1] + bytes]
    })
}
