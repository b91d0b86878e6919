//! The send buffer against a model that knows the state of every byte.

use bytes::Bytes;
use proptest::prelude::*;

use super::{byte_at, bytes_of};
use crate::stream::send_buffer::SendBuffer;

#[test]
fn chunks_are_kept_and_short_writes_gathered() {
    let mut buffer = SendBuffer::default();
    buffer.write(&bytes_of(0..10));
    buffer.write_chunk(Bytes::from(bytes_of(10..5000)));
    buffer.write_chunk(Bytes::from(bytes_of(5000..5005)));
    buffer.write(&bytes_of(5005..200_000));
    assert_eq!((buffer.end(), buffer.unsent()), (200_000, 200_000));
    let mut out = Vec::new();
    for start in (0..200_000).step_by(1234) {
        buffer.copy_to(start..200_000.min(start + 1234), &mut out);
    }
    assert_eq!(out, bytes_of(0..200_000));
}

#[test]
fn passing_over_bytes_leaves_them_to_be_sent() {
    let mut buffer = SendBuffer::default();
    buffer.write(&bytes_of(0..100));
    assert_eq!(buffer.on_sent(60..80), 80, "the highest offset counts");
    assert_eq!((buffer.unsent(), buffer.first_unsent()), (80, 0));
    assert_eq!(buffer.next_resend(), Some(0..60));
    assert_eq!(buffer.next_new(), Some(80..100));
    assert_eq!(buffer.in_flight_in(0..100), Some(60..80));
    assert_eq!(buffer.on_sent(0..30), 0);
    assert_eq!(buffer.next_resend(), Some(30..60));
    buffer.on_acked(60..80);
    buffer.on_acked(0..30);
    assert_eq!(buffer.base(), 30);
    assert_eq!(buffer.unacked_in(0..100), Some(30..60));
    assert_eq!(buffer.unacked_in(65..100), Some(80..100));
    assert_eq!(buffer.in_flight_in(0..100), None);
}

#[test]
fn lost_then_acked_is_not_sent_again() {
    let mut buffer = SendBuffer::default();
    buffer.write(&bytes_of(0..100));
    buffer.on_sent(0..100);
    buffer.on_lost(20..60);
    assert_eq!((buffer.lost(), buffer.next_resend()), (40, Some(20..60)));
    buffer.on_acked(30..40);
    assert_eq!((buffer.lost(), buffer.next_resend()), (30, Some(20..30)));
    buffer.on_lost(20..60);
    assert_eq!(buffer.lost(), 30);
    buffer.on_acked(0..60);
    assert_eq!((buffer.lost(), buffer.base()), (0, 60));
    buffer.on_lost(0..60);
    assert_eq!(buffer.lost(), 0);
    buffer.on_acked(0..60);
    assert_eq!(buffer.base(), 60);
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Byte {
    Unsent,
    Sent,
    Lost,
    Acked,
}

#[derive(Debug, Clone)]
enum Operation {
    Write(usize),
    Chunk(usize),
    SendNext(u64),
    SendAt(u64, u64),
    Ack(usize),
    Lose(usize),
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        1 => (0usize..3000).prop_map(Operation::Write),
        1 => (0usize..3000).prop_map(Operation::Chunk),
        4 => (1u64..700).prop_map(Operation::SendNext),
        1 => (0u64..8000, 1u64..700).prop_map(|(at, length)| Operation::SendAt(at, length)),
        3 => any::<usize>().prop_map(Operation::Ack),
        3 => any::<usize>().prop_map(Operation::Lose),
    ];
    prop::collection::vec(operation, 1..150)
}

fn send(
    buffer: &mut SendBuffer,
    model: &mut [Byte],
    sent: &mut Vec<std::ops::Range<u64>>,
    range: std::ops::Range<u64>,
) {
    let mut out = Vec::new();
    buffer.copy_to(range.clone(), &mut out);
    assert_eq!(out, bytes_of(range.clone()));
    buffer.on_sent(range.clone());
    for byte in &mut model[range.start as usize..range.end as usize] {
        assert_ne!(*byte, Byte::Acked);
        *byte = Byte::Sent;
    }
    sent.push(range);
}

fn check(buffer: &SendBuffer, model: &[Byte]) {
    let count = |what| model.iter().filter(|&&byte| byte == what).count() as u64;
    assert_eq!(buffer.unsent(), count(Byte::Unsent));
    assert_eq!(buffer.lost(), count(Byte::Lost));
    let base = model
        .iter()
        .take_while(|&&byte| byte == Byte::Acked)
        .count() as u64;
    assert_eq!(buffer.base(), base);
    assert_eq!(buffer.end(), model.len() as u64);
    let first = |wanted: &[Byte]| model.iter().position(|byte| wanted.contains(byte));
    assert_eq!(
        buffer.unacked_in(0..u64::MAX).map(|r| r.start as usize),
        first(&[Byte::Unsent, Byte::Sent, Byte::Lost])
    );
    assert_eq!(
        buffer.in_flight_in(0..u64::MAX).map(|r| r.start as usize),
        first(&[Byte::Sent, Byte::Lost])
    );
    assert_eq!(
        first(&[Byte::Unsent]).map_or(buffer.end(), |at| at as u64),
        buffer.first_unsent()
    );
}

proptest! {
    #[test]
    fn every_byte_is_in_the_state_the_model_says(operations in operations()) {
        let mut buffer = SendBuffer::default();
        let mut model: Vec<Byte> = Vec::new();
        // Every range ever sent; fates come in any order and more than once.
        let mut sent: Vec<std::ops::Range<u64>> = Vec::new();
        for operation in operations {
            match operation {
                Operation::Write(length) | Operation::Chunk(length) => {
                    let end = model.len() as u64;
                    let data: Vec<u8> = (end..end + length as u64).map(byte_at).collect();
                    if matches!(operation, Operation::Write(_)) {
                        buffer.write(&data);
                    } else {
                        buffer.write_chunk(data.into());
                    }
                    model.resize(model.len() + length, Byte::Unsent);
                }
                Operation::SendNext(length) => {
                    if let Some(range) = buffer.next_resend().or_else(|| buffer.next_new()) {
                        let range = range.start..range.end.min(range.start + length);
                        send(&mut buffer, &mut model, &mut sent, range);
                    }
                }
                Operation::SendAt(at, length) => {
                    if let Some(range) = buffer.unacked_in(at..at + length) {
                        send(&mut buffer, &mut model, &mut sent, range);
                    }
                }
                Operation::Ack(which) if !sent.is_empty() => {
                    let range = sent[which % sent.len()].clone();
                    buffer.on_acked(range.clone());
                    model[range.start as usize..range.end as usize].fill(Byte::Acked);
                }
                Operation::Lose(which) if !sent.is_empty() => {
                    let range = sent[which % sent.len()].clone();
                    buffer.on_lost(range.clone());
                    for byte in &mut model[range.start as usize..range.end as usize] {
                        if *byte == Byte::Sent {
                            *byte = Byte::Lost;
                        }
                    }
                }
                Operation::Ack(_) | Operation::Lose(_) => {}
            }
            check(&buffer, &model);
        }
    }
}
