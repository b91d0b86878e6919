//! Any frames of a peer between any calls of an application: no panic, and totals stay the sums of
//! their parts.

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::wire::frame::{ResetStream, ResetStreamAt, StopSending};

fn stream_id(rng: &mut StdRng) -> StreamId {
    let side = if rng.random() {
        Side::Client
    } else {
        Side::Server
    };
    let dir = if rng.random() { Dir::Bi } else { Dir::Uni };
    StreamId::new(side, dir, rng.random_range(0..5))
}

/// Mostly small numbers, so that frames meet each other; sometimes absurd ones.
fn number(rng: &mut StdRng) -> u64 {
    match rng.random_range(0..20) {
        0 => rng.random_range(0..1 << 62),
        _ => rng.random_range(0..300),
    }
}

fn frame(rng: &mut StdRng) -> Frame {
    let id = stream_id(rng);
    let (error_code, dir) = (number(rng), id.dir());
    match rng.random_range(0..15) {
        0 => Frame::ResetStream(ResetStream {
            stream_id: id,
            error_code,
            final_size: number(rng),
        }),
        8 => {
            let final_size = number(rng);
            Frame::ResetStreamAt(ResetStreamAt {
                stream_id: id,
                error_code: error_code % 2,
                final_size,
                reliable_size: number(rng).min(final_size),
            })
        }
        1 => Frame::StopSending(StopSending {
            stream_id: id,
            error_code,
        }),
        2 => Frame::MaxData(number(rng)),
        3 => max_stream_data(id, number(rng)),
        4 => max_streams(dir, number(rng)),
        5 => Frame::DataBlocked(number(rng)),
        6 => stream_data_blocked(id, number(rng)),
        7 => streams_blocked(dir, number(rng)),
        _ => {
            let data = bytes_of(0..rng.random_range(0..60));
            let offset = number(rng).min((1 << 62) - 100);
            stream_frame(id, offset, &data, rng.random_range(0..6) == 0)
        }
    }
}

fn application(streams: &mut StreamSet, rng: &mut StdRng) {
    let id = stream_id(rng);
    let length = rng.random_range(0..200);
    match rng.random_range(0..14) {
        0 => drop(streams.open(id.dir())),
        1 => drop(streams.accept(id.dir())),
        2 => drop(streams.send_stream(id).finish()),
        3 => drop(streams.send_stream(id).reset(code(1))),
        4 => drop(streams.recv_stream(id).stop(code(2))),
        12 => drop(streams.send_stream(id).reset_at(code(1), length as u64)),
        5 => drop(streams.send_stream(id).set_priority(length as i32 % 3)),
        13 => drop(streams.send_stream(id).set_incremental(length % 2 == 0)),
        6 => streams.set_receive_window_target(number(rng)),
        7 => drop(streams.recv_stream(id).read_chunk(length, false)),
        8 | 9 => drop(streams.recv_stream(id).read_chunk(length, true)),
        _ => drop(streams.send_stream(id).write(&vec![0; length])),
    }
}

fn network(streams: &mut StreamSet, sent: &mut Vec<Packet>, rng: &mut StdRng) {
    let id = stream_id(rng);
    let offset = number(rng);
    let selection = match rng.random_range(0..6) {
        0 => DataSelection::Stream(id),
        1 => DataSelection::StreamAt { id, offset },
        2 => DataSelection::Range {
            id,
            offsets: offset..offset + 50,
        },
        _ => DataSelection::Next,
    };
    let room = rng.random_range(0..150);
    sent.extend(packet(room, |writer| {
        streams.write_control(writer);
        streams.write_data(writer, &selection, rng.random_range(0..200));
    }));
    if !sent.is_empty() {
        let fate = if rng.random() {
            Fate::Acked
        } else {
            Fate::Lost
        };
        sent[rng.random_range(0..sent.len())].report(streams, fate);
    }
}

fn check(streams: &StreamSet) {
    let halves = streams.sends.iter().map(|(_, send)| send.backlog());
    let (mut buffered, mut unsent, mut lost) = (0, 0, 0);
    for half in halves {
        buffered += half.buffered;
        unsent += half.unsent;
        lost += half.lost;
    }
    let total = streams.backlogs.all;
    assert_eq!(
        (total.buffered, total.unsent, total.lost),
        (buffered, unsent, lost)
    );
    for (key, send) in &streams.sends {
        assert_eq!(
            streams.ready.free.resend.contains(key as u32),
            send.can_resend()
        );
        assert_eq!(
            streams.ready.free.fresh.contains(key as u32),
            send.has_new()
        );
        assert_eq!(
            streams.send_control.contains(key as u32),
            send.wants_control()
        );
        assert!(!send.is_done());
    }
    for (key, recv) in &streams.recvs {
        assert_eq!(
            streams.recv_control.contains(key as u32),
            recv.wants_control()
        );
        assert!(!recv.is_done());
    }
    let held: u64 = (streams.recvs.iter())
        .map(|(_, recv)| recv.credit.held())
        .sum();
    assert_eq!(streams.receive_windows.credit.held(), held);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn no_operation_panics_and_totals_are_sums(
        seed in any::<u64>(),
        narrow in any::<bool>(),
    ) {
        let mut rng = StdRng::seed_from_u64(seed);
        let config = if narrow {
            checked(TransportOptions {
                initial_stream_receive_window: 250,
                initial_receive_window: 600,
                max_receive_window: 2000,
                max_concurrent_bidi_streams: 4,
                max_concurrent_uni_streams: 4,
                send_window: 500,
                ..options()
            })
        } else {
            config()
        };
        let mut streams = client(&config);
        let mut sent = Vec::new();
        for _ in 0..300 {
            match rng.random_range(0..3) {
                0 => {
                    // A refused frame changes nothing.
                    let _refused = give(&mut streams, frame(&mut rng));
                }
                1 => application(&mut streams, &mut rng),
                _ => network(&mut streams, &mut sent, &mut rng),
            }
            check(&streams);
            if rng.random_range(0..10) == 0 {
                events(&mut streams);
            }
        }
    }
}
