//! The cost of one decision of each scheduler, and of one acknowledgement in each controller.
//!
//! Times are CPU time of the thread, so other work of the machine hardly counts.

use std::hint::black_box;
use std::time::{Duration, Instant};

use cpu_time::ThreadTime;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{Criterion, criterion_group, criterion_main};
use mpquic_benches::now;
use mpquic_core::congestion::{
    Acked, CongestionEvent, CongestionKind, Controller, DeliveryRate, RttSnapshot, Sent,
};
use mpquic_core::sched::{PathView, SchedulerEvent, StreamView, UnackedRange, View};
use mpquic_core::{Dir, PathId, Side, StreamId};

const MTU: u16 = 1452;
const PATHS: [u32; 3] = [2, 4, 8];
/// Streams with data to send. The core shows schedulers the 64 most urgent ones.
const STREAMS: [usize; 3] = [1, 32, 1000];
const SHOWN_STREAMS: usize = 64;
const MS: Duration = Duration::from_millis(1);

fn rtt(path: u32) -> RttSnapshot {
    let rtt = (10 + 15 * path) * MS;
    let mut snapshot = RttSnapshot::new(rtt);
    snapshot.variance = rtt / 8;
    snapshot.samples = 100;
    snapshot
}

/// Every path is in use and has room for some datagrams.
fn path(id: u32) -> PathView {
    let mut path = PathView::new(PathId(id));
    path.rtt = rtt(id);
    path.window = 200_000;
    path.in_flight = 150_000;
    path.slow_start_threshold = Some(100_000);
    path.mtu = MTU;
    path.packets_sent = 10_000;
    path.bytes_sent = 14_520_000;
    path.bytes_acked = 14_300_000;
    path.bytes_lost = 70_000;
    path.loss_rate = 0.005;
    path.delivery_rate = Some(5_000_000);
    path
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

fn stream(index: u64) -> StreamView {
    let id = StreamId::new(Side::Server, Dir::Uni, index);
    let end = (1 << 24) + (1 << 22);
    let mut stream = StreamView::new(id, 1 << 24..end);
    stream.priority = (index % 5) as i32;
    stream.finished = index.is_multiple_of(2);
    stream.size = stream.finished.then_some(end);
    stream
}

fn unacked(paths: u32, streams: u64) -> Vec<UnackedRange> {
    (0..64)
        .map(|n| {
            let path = PathId((n % u64::from(paths)) as u32);
            let stream = stream(n % streams).id;
            UnackedRange::new(stream, n * 1400..(n + 1) * 1400, path, now())
        })
        .collect()
}

fn select(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("select");
    for info in mpquic_sched::list() {
        for count in PATHS {
            for streams in STREAMS {
                let name = format!("{}/paths_{count}/streams_{streams}", info.name);
                group.bench_function(name, |b| {
                    let mut case = Case::new(count, streams);
                    let mut scheduler = mpquic_sched::by_name(info.name)
                        .expect("it is listed")
                        .build();
                    case.with_view(|view| {
                        for path in view.paths {
                            scheduler.on_event(&SchedulerEvent::PathAdded(path.id), view);
                        }
                        b.iter(|| {
                            view.now += Duration::from_micros(10);
                            view.random = view.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
                            black_box(scheduler.select(view))
                        });
                    });
                });
            }
        }
    }
    group.finish();
}

/// The input of a scheduler.
struct Case {
    paths: Vec<PathView>,
    streams: Vec<StreamView>,
    unacked: Vec<UnackedRange>,
    controller: Box<dyn Controller>,
}

impl Case {
    fn new(paths: u32, streams: usize) -> Self {
        let shown = streams.min(SHOWN_STREAMS) as u64;
        let mut controller = mpquic_cc::default().build();
        for id in 0..paths {
            controller.on_path_opened(PathId(id), now(), MTU);
        }
        let mut streams: Vec<_> = (0..shown).map(stream).collect();
        streams.sort_by_key(|stream| -stream.priority);
        Self {
            paths: (0..paths).map(path).collect(),
            streams,
            unacked: unacked(paths, shown),
            controller,
        }
    }

    fn with_view(&mut self, f: impl FnOnce(&mut View<'_>)) {
        let unsent = self.streams.iter().map(|stream| stream.unsent).sum();
        let mut view = View::new(now(), &self.paths, &*self.controller);
        view.queue.unsent = unsent;
        view.queue.flow_credit = 1 << 22;
        view.queue.flow_window = 1 << 23;
        view.queue.send_buffer = 1 << 23;
        view.streams = &self.streams;
        view = view.with_unacked(&self.unacked);
        f(&mut view);
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
