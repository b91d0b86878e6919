//! One decision of each scheduler, one acknowledgement taken by each controller.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use mpquic_benches::now;
use mpquic_core::congestion::{Acked, CongestionEvent, CongestionKind, RttSnapshot};
use mpquic_core::sched::{
    PathView, QueueView, SchedulerEvent, Sendable, StreamView, UnackedRange, View,
};
use mpquic_core::{Dir, PathId, PathStatus, Side, StreamId};

const MTU: u16 = 1452;
const PATHS: [u32; 2] = [2, 8];
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
        one_way_delay: None,
        local_queue: None,
        local_drain_rate: None,
    }
}

fn select(c: &mut Criterion) {
    let mut group = c.benchmark_group("select");
    let now = now();
    let stream = StreamId::new(Side::Server, Dir::Uni, 0);
    for info in mpquic_sched::list() {
        for count in PATHS {
            let paths: Vec<_> = (0..count).map(path).collect();
            let mut controller = mpquic_cc::default().build();
            for path in &paths {
                controller.on_path_opened(path.id, now, MTU);
            }
            let streams = [StreamView {
                id: stream,
                priority: 0,
                size: None,
                unsent: 1 << 22,
                offset: 1 << 24,
                end: (1 << 24) + (1 << 22),
                finished: false,
            }];
            let unacked: Vec<_> = (0..64)
                .map(|n| UnackedRange {
                    stream,
                    offsets: n * 1400..(n + 1) * 1400,
                    path: PathId((n % u64::from(count)) as u32),
                    sent_at: now,
                    reinjected: false,
                    tag: 0,
                })
                .collect();
            let queue = QueueView {
                unsent: 1 << 22,
                flow_credit: 1 << 22,
                flow_window: 1 << 23,
                send_buffer: 1 << 23,
                ..QueueView::default()
            };
            let mut view = View {
                now,
                paths: &paths,
                queue,
                streams: &streams,
                unacked: &unacked,
                controller: &*controller,
                random: 0,
            };
            let mut scheduler = mpquic_sched::by_name(info.name)
                .expect("it is listed")
                .build();
            for path in &paths {
                scheduler.on_event(&SchedulerEvent::PathAdded(path.id), &view);
            }
            group.bench_function(format!("{}/paths_{count}", info.name), |b| {
                b.iter(|| {
                    view.now += Duration::from_micros(10);
                    view.random = view.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
                    black_box(scheduler.select(&view))
                });
            });
        }
    }
    group.finish();
}

/// In congestion avoidance, with the window in use, as in a long transfer.
fn on_ack(c: &mut Criterion) {
    let mut group = c.benchmark_group("on_ack");
    for info in mpquic_cc::list() {
        for count in PATHS {
            let mut controller = mpquic_cc::by_name(info.name).expect("it is listed").build();
            let mut now = now();
            for id in 0..count {
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
            let mut next = 0;
            let mut largest = 0;
            group.bench_function(format!("{}/paths_{count}", info.name), |b| {
                b.iter(|| {
                    next = (next + 1) % count;
                    largest += 2;
                    now += Duration::from_micros(100);
                    let rtt = rtt(next);
                    let ack = Acked {
                        now,
                        sent_at: now - rtt.latest,
                        largest,
                        bytes: 2 * u64::from(MTU),
                        in_flight: controller.window(PathId(next)),
                        app_limited: false,
                        delivery_rate: None,
                        rtt,
                    };
                    controller.on_ack(PathId(next), &ack);
                    black_box(controller.window(PathId(next)))
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, select, on_ack);
criterion_main!(benches);
