//! The cost of one decision of each scheduler, and of one acknowledgement in each controller.
//!
//! Times are CPU time of the thread, so other work of the machine hardly counts.

use std::hint::black_box;
use std::time::{Duration, Instant};

use cpu_time::ThreadTime;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{Criterion, criterion_group, criterion_main};
use mpquic_benches::decisions::{Record, Replay};
use mpquic_benches::now;
use mpquic_core::PathId;
use mpquic_core::congestion::{
    Acked, CongestionEvent, CongestionKind, Controller, DeliveryRate, RttSnapshot, Sent,
};

const MTU: u16 = 1452;
const PATHS: [u32; 3] = [2, 4, 8];
/// Streams with data to send. The core shows schedulers the 64 most urgent ones.
const STREAMS: [u64; 3] = [1, 32, 1000];
/// Decisions that are measured, over and over.
const DECISIONS: usize = 4096;
const MS: Duration = Duration::from_millis(1);

fn rtt(path: u32) -> RttSnapshot {
    let rtt = (10 + 15 * path) * MS;
    let mut snapshot = RttSnapshot::new(rtt);
    snapshot.variance = rtt / 8;
    snapshot.samples = 100;
    snapshot
}

/// Measures the CPU time of the thread.
struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = ThreadTime;
    type Value = Duration;

    fn start(&self) -> ThreadTime {
        ThreadTime::now()
    }

    fn end(&self, start: ThreadTime) -> Duration {
        start.elapsed()
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

/// One decision, with the events before it, of a transfer over busy paths. `replay` is the part
/// without the scheduler, which depends on the parts of the view that the scheduler asks for.
fn select(c: &mut Criterion<CpuTime>) {
    for info in mpquic_sched::list() {
        let factory = mpquic_sched::by_name(info.name).expect("it is listed");
        for paths in PATHS {
            for streams in STREAMS {
                let record = Record::new(&*factory, paths, streams, DECISIONS);
                let name = format!("{}/paths_{paths}/streams_{streams}", info.name);
                c.bench_function(&format!("replay/{name}"), |b| {
                    let mut replay = Replay::new(&record, &*factory);
                    b.iter(|| black_box(replay.skip()));
                });
                c.bench_function(&format!("select/{name}"), |b| {
                    let mut replay = Replay::new(&record, &*factory);
                    b.iter(|| black_box(replay.decide()));
                });
            }
        }
    }
}

/// A connection in congestion avoidance, with its windows in use, as in a long transfer.
struct Transfer {
    controller: Box<dyn Controller>,
    paths: u32,
    now: Instant,
    next: u32,
    number: u64,
}

impl Transfer {
    fn new(name: &str, paths: u32) -> Self {
        let mut controller = mpquic_cc::by_name(name).expect("it is listed").build();
        let now = now();
        for id in 0..paths {
            controller.on_path_opened(PathId(id), now, MTU);
            let mut event = CongestionEvent::new(CongestionKind::Loss, now, now);
            event.lost_bytes = MTU.into();
            event.in_flight = 100_000;
            controller.on_congestion_event(PathId(id), &event);
        }
        Self {
            controller,
            paths,
            now,
            next: 0,
            number: 0,
        }
    }

    /// Two packets leave on the next path and two are acknowledged.
    fn step(&mut self) -> u64 {
        self.next = (self.next + 1) % self.paths;
        self.number += 2;
        self.now += Duration::from_micros(100);
        let (path, rtt, bytes) = (PathId(self.next), rtt(self.next), u64::from(MTU));
        let in_flight = self.controller.window(path);
        for _ in 0..2 {
            let sent = Sent::new(self.now, self.number, bytes, in_flight);
            self.controller.on_packet_sent(path, &sent);
        }
        let delivered = self.number * bytes;
        let before = delivered.saturating_sub(100_000);
        let mut snapshot = rtt;
        snapshot.samples = self.number;
        let mut ack = Acked::new(self.now, self.now - rtt.latest, 2 * bytes, snapshot);
        ack.largest = self.number;
        ack.in_flight = in_flight;
        ack.delivery_rate = Some(DeliveryRate::new(5_000_000, before, delivered));
        self.controller.on_ack(path, &ack);
        self.controller.window(path)
    }
}

fn on_ack(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("on_ack");
    for info in mpquic_cc::list() {
        for count in PATHS {
            group.bench_function(format!("{}/paths_{count}", info.name), |b| {
                let mut transfer = Transfer::new(info.name, count);
                b.iter(|| black_box(transfer.step()));
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(CpuTime);
    targets = select, on_ack
}
criterion_main!(benches);
