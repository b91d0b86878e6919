//! One decision of each scheduler, one acknowledgement taken by each controller.
//!
//! Times are CPU time of the thread, so that what else the machine does hardly counts.

use std::hint::black_box;
use std::time::{Duration, Instant};

use cpu_time::ThreadTime;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{Criterion, criterion_group, criterion_main};
use mpquic_benches::now;
use mpquic_core::congestion::{
    Acked, CongestionEvent, CongestionKind, Controller, DeliveryRate, RttSnapshot, Sent,
};
use mpquic_core::sched::{
    PathView, QueueView, SchedulerEvent, Sendable, StreamView, UnackedRange, View,
};
use mpquic_core::{Dir, PathId, PathStatus, Side, StreamId};

const MTU: u16 = 1452;
const PATHS: [u32; 3] = [2, 4, 8];
/// Streams with data to send. The core shows schedulers the 64 most urgent ones.
const STREAMS: [usize; 3] = [1, 32, 1000];
const SHOWN_STREAMS: usize = 64;
const MS: Duration = Duration::from_millis(1);

fn rtt(path: u32) -> RttSnapshot {
    let rtt = (10 + 15 * path) * MS;
    RttSnapshot {
        latest: rtt,
        smoothed: rtt,
        variance: rtt / 8,
        min: rtt,
        samples: 100,
    }
}

/// Every path is in use and has room for some datagrams.
fn path(id: u32) -> PathView {
    PathView {
        id: PathId(id),
        status: PathStatus::Available,
        usable: true,
        suspect: false,
        sendable: Sendable::Now,
        rtt: rtt(id),
        window: 200_000,
        in_flight: 150_000,
        slow_start_threshold: Some(100_000),
        in_recovery: false,
        mtu: MTU,
        packets_sent: 10_000,
        bytes_sent: 14_520_000,
        bytes_acked: 14_300_000,
        bytes_lost: 70_000,
        loss_rate: 0.005,
        delivery_rate: Some(5_000_000),
        local_queue: None,
        local_drain_rate: None,
    }
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
    StreamView {
        id,
        priority: (index % 5) as i32,
        size: (index.is_multiple_of(2)).then_some((1 << 24) + (1 << 22)),
        unsent: 1 << 22,
        offset: 1 << 24,
        end: (1 << 24) + (1 << 22),
        finished: index.is_multiple_of(2),
    }
}

fn unacked(paths: u32, streams: u64) -> Vec<UnackedRange> {
    (0..64)
        .map(|n| UnackedRange {
            stream: stream(n % streams).id,
            offsets: n * 1400..(n + 1) * 1400,
            path: PathId((n % u64::from(paths)) as u32),
            sent_at: now(),
            reinjected: false,
            tag: 0,
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

/// What a scheduler looks at.
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
        f(&mut View {
            now: now(),
            paths: &self.paths,
            queue: QueueView {
                unsent,
                flow_credit: 1 << 22,
                flow_window: 1 << 23,
                send_buffer: 1 << 23,
                ..QueueView::default()
            },
            streams: &self.streams,
            unacked: &self.unacked,
            controller: &*self.controller,
            random: 0,
        });
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
            let event = CongestionEvent {
                kind: CongestionKind::Loss,
                now,
                sent_at: now,
                lost_bytes: MTU.into(),
                in_flight: 100_000,
                largest_lost: 0,
            };
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
            let sent = Sent {
                now: self.now,
                packet_number: self.number,
                bytes,
                in_flight,
            };
            self.controller.on_packet_sent(path, &sent);
        }
        let delivered = self.number * bytes;
        let ack = Acked {
            now: self.now,
            sent_at: self.now - rtt.latest,
            largest: self.number,
            bytes: 2 * bytes,
            in_flight,
            app_limited: false,
            delivery_rate: Some(DeliveryRate {
                bytes_per_second: 5_000_000,
                app_limited: false,
                prior_delivered: delivered.saturating_sub(100_000),
                delivered,
            }),
            rtt: RttSnapshot {
                samples: self.number,
                ..rtt
            },
        };
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
