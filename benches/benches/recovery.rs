//! The cost of acknowledgements for the receiver that writes them, and for the sender. An element
//! is one packet.

use std::hint::black_box;
use std::iter;
use std::ops::Range;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use mpquic_core::testing::{Receiver, Sender};
use mpquic_core::unstable_wire::RangeSet;
use mpquic_core::unstable_wire::frame::Ack;

const BYTES: u16 = 1200;
const MICROSECOND: Duration = Duration::from_micros(1);

#[expect(
    clippy::disallowed_methods,
    reason = "the clock is what a benchmark is about"
)]
fn start() -> Instant {
    Instant::now()
}

fn ack(ranges: impl IntoIterator<Item = Range<u64>>) -> Ack {
    let received: RangeSet = ranges.into_iter().collect();
    Ack::new(&received, 0, None).expect("the ranges are not empty")
}

fn sender_with(packets: u64, now: Instant) -> Sender {
    let mut sender = Sender::new(now);
    for _ in 0..packets {
        sender.send(now, BYTES);
    }
    sender
}

/// Send two packets and take an acknowledgement of the two oldest, with a window of packets under
/// way.
fn steady(c: &mut Criterion) {
    let mut group = c.benchmark_group("send_and_ack");
    group.throughput(Throughput::Elements(2));
    for window in [200, 10_000] {
        let mut now = start();
        let mut sender = sender_with(window, now);
        // The peer repeats the last 100 numbers; only the largest moves.
        let mut ack = ack(iter::once(0..100));
        let _counts = sender.on_ack(now, &ack);
        group.bench_function(format!("window_{window}"), |b| {
            b.iter(|| {
                now += MICROSECOND;
                sender.send(now, BYTES);
                sender.send(now, BYTES);
                ack.largest_acknowledged += 2;
                black_box(sender.on_ack(now, &ack))
            });
        });
    }
    group.finish();
}

/// Acknowledgements of 1,000 ranges. One acknowledges 2,000 packets and declares 1,000 lost. The
/// other repeats old ranges, after an acknowledgement of one packet.
fn many_ranges(c: &mut Criterion) {
    let mut group = c.benchmark_group("ack_1000_ranges");
    let now = start();
    let later = now + Duration::from_millis(50);
    let ranges = || (0..1000).map(|n| n * 3..n * 3 + 2);
    let fresh = ack(ranges());
    let mut newest = fresh.clone();
    let mut sender = Sender::new(now);
    group.bench_function("all_new", |b| {
        b.iter_custom(|iterations| {
            let mut elapsed = Duration::ZERO;
            for _ in 0..iterations {
                for _ in 0..3000 {
                    sender.send(now, BYTES);
                }
                let before = start();
                black_box(sender.on_ack(later, &newest)).expect("all was sent");
                elapsed += before.elapsed();
                newest.largest_acknowledged += 3000;
            }
            elapsed
        });
    });

    let mut sender = sender_with(3000, now);
    let mut time = later;
    let _counts = sender.on_ack(time, &fresh);
    let mut one = ack(iter::once(0..1));
    group.bench_function("one_new", |b| {
        b.iter(|| {
            time += MICROSECOND;
            one.largest_acknowledged = sender.send(time, BYTES);
            black_box((sender.on_ack(time, &one), sender.on_ack(time, &fresh)))
        });
    });
    group.finish();
}

/// Take two packets and write the acknowledgement that is then due.
fn receive(c: &mut Criterion) {
    let mut group = c.benchmark_group("receive_and_write_ack");
    group.throughput(Throughput::Elements(2));
    for (name, ranges) in [("in_order", 1), ("after_255_gaps", 256)] {
        let now = start();
        let mut receiver = Receiver::default();
        let mut next = 0;
        for _ in 0..ranges {
            next += 2;
            receiver.on_packet(now, next);
        }
        let mut buf = Vec::with_capacity(1200);
        group.bench_function(name, |b| {
            b.iter(|| {
                receiver.on_packet(now, next + 1);
                receiver.on_packet(now, next + 2);
                next += 2;
                buf.clear();
                black_box(receiver.write_ack(now, &mut buf, 1200))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, steady, many_ranges, receive);
criterion_main!(benches);
