//! Encoding and decoding frames.

use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use mpquic_core::unstable_wire::RangeSet;
use mpquic_core::unstable_wire::frame::{Ack, Frame, FrameIter, PathAck, StreamHeader, encode_ack};
use mpquic_core::{Dir, PathId, Side, StreamId};

/// Bytes in a packet of a bulk transfer.
const DATA: usize = 1400;
/// A packet with room for every acknowledgement here.
const ROOM: usize = 65_535;

fn header() -> StreamHeader {
    StreamHeader {
        stream_id: StreamId::new(Side::Client, Dir::Bi, 4),
        offset: 1 << 34,
        fin: false,
        length: Some(DATA as u64),
    }
}

/// A STREAM frame: the header and a copy of the data one way, a slice of the packet the other.
fn stream(c: &mut Criterion) {
    let mut group = c.benchmark_group("stream_frame");
    group.throughput(Throughput::Elements(1));
    let data = [0x5a; DATA];
    let mut packet = Vec::with_capacity(2 * DATA);
    group.bench_function("encode", |b| {
        b.iter(|| {
            packet.clear();
            black_box(header()).encode(&mut packet);
            packet.extend_from_slice(&data);
            black_box(&packet);
        });
    });
    let packet = Bytes::from(packet);
    group.bench_function("decode", |b| {
        b.iter(|| {
            for frame in FrameIter::new(packet.clone(), true) {
                black_box(frame).expect("the frame is valid");
            }
        });
    });
    group.finish();
}

fn path_ack(c: &mut Criterion) {
    let mut group = c.benchmark_group("path_ack");
    for count in [3, 1000] {
        group.throughput(Throughput::Elements(count));
        let received: RangeSet = (0..count).map(|n| n * 70..n * 70 + 60).collect();
        let mut packet = Vec::with_capacity(ROOM);
        group.bench_function(format!("encode/ranges_{count}"), |b| {
            b.iter(|| {
                packet.clear();
                let path = Some(PathId(1));
                black_box(encode_ack(&mut packet, path, &received, 125, None, ROOM))
            });
        });
        let packet = Bytes::from(packet);
        group.bench_function(format!("decode/ranges_{count}"), |b| {
            b.iter(|| {
                for frame in FrameIter::new(packet.clone(), true) {
                    let Ok(Frame::PathAck(PathAck { ack, .. })) = frame else {
                        panic!("{frame:?}");
                    };
                    black_box(walk(&ack));
                }
            });
        });
    }
    group.finish();
}

fn walk(ack: &Ack) -> u64 {
    ack.ranges().map(|range| range.end() - range.start()).sum()
}

criterion_group!(benches, stream, path_ack);
criterion_main!(benches);
