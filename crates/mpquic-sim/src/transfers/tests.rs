//! Transfers on streams that end early, wait, or are read out of order.

use std::time::Duration;

use mpquic_core::Side;

use super::*;
use crate::link::LinkConfig;
use crate::pair::tests::on;
use crate::pair::{Pair, Setup};
use crate::topology::Topology;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn pair_of(link: LinkConfig, setup: Setup) -> Pair {
    Pair::connected(&Topology::new().path("a", link), setup)
}

/// A pair on a link of 8 Mbit/s and 10 ms.
fn pair() -> Pair {
    pair_of(LinkConfig::new(8.0, 10 * MS), Setup::new())
}

fn application(pair: &Pair, side: Side) -> &Transfers {
    &pair.hosted(side).unwrap().application
}

#[test]
fn both_sides_report_the_progress_of_a_stream() {
    let mut pair = pair();
    let begun = pair.now();
    let id = pair.send(Side::Client, 100_000).unwrap();
    pair.drive(50 * MS);
    let out = application(&pair, Side::Client).outgoing()[&id];
    assert_eq!(
        (out.size, out.started, out.finished),
        (100_000, begun, None)
    );
    assert!(out.is_whole() && !application(&pair, Side::Client).is_all_acknowledged());
    let read = application(&pair, Side::Server).incoming()[&id].clone();
    assert!(read.received > 0 && read.received < 100_000, "{read:?}");
    assert!(!read.is_over() && read.started > begun && read.finished.is_none());
    pair.run_transfers(SECOND).unwrap();
    let end = pair.now();
    let read = &application(&pair, Side::Server).incoming()[&id];
    assert_eq!((read.received, read.finished), (100_000, Some(end)));
    assert!(read.is_over());
    pair.drive(SECOND);
    let out = application(&pair, Side::Client).outgoing()[&id];
    assert_eq!(out.written, 100_000);
    assert!(
        out.finished > Some(end),
        "the acknowledgement is on the way"
    );
    assert!(application(&pair, Side::Client).is_all_acknowledged());
    assert_eq!(application(&pair, Side::Server).received(), 100_000);
    assert_eq!(application(&pair, Side::Client).received(), 0);
}

#[test]
fn streams_over_the_limit_are_opened_later_in_order() {
    let setup = Setup::new().transport(|transport| transport.max_concurrent_uni_streams = 1);
    let mut pair = pair_of(LinkConfig::new(8.0, 10 * MS), setup);
    assert!(pair.send(Side::Client, 1000).is_some());
    assert_eq!(pair.send(Side::Client, 2000), None);
    assert_eq!(pair.send(Side::Client, 3000), None);
    // Bidirectional streams do not wait for unidirectional streams.
    assert!(pair.ask(Side::Client, 10, 10).is_some());
    assert!(!application(&pair, Side::Client).is_all_opened());
    assert!(!pair.is_delivered(Side::Client));
    pair.run_transfers(SECOND).unwrap();
    assert!(application(&pair, Side::Client).is_all_opened());
    let outgoing = application(&pair, Side::Client).outgoing();
    let uni = outgoing.iter().filter(|(id, _)| id.dir() == Dir::Uni);
    let sizes: Vec<_> = uni.map(|(id, out)| (id.index(), out.size)).collect();
    assert_eq!(sizes, [(0, 1000), (1, 2000), (2, 3000)]);
}

#[test]
fn paused_side_reads_only_after_resuming() {
    let mut pair = pair();
    let id = pair.send(Side::Client, 1000).unwrap();
    pair.run_transfers(SECOND).unwrap();
    on(&mut pair, Side::Server, |application, _, _| {
        application.pause()
    });
    let other = pair.send(Side::Client, 50_000).unwrap();
    assert!(pair.run_transfers(SECOND).is_err());
    assert_eq!(application(&pair, Side::Server).received(), 1000);
    on(&mut pair, Side::Server, |application, connection, now| {
        application.resume(now, connection);
    });
    assert_eq!(pair.run_transfers(SECOND), Ok(Duration::ZERO));
    let incoming = application(&pair, Side::Server).incoming();
    let received = [id, other].map(|id| incoming[&id].received);
    assert_eq!(received, [1000, 50_000]);
    // After resuming, later data is read as well.
    pair.transfer(Side::Client, 2000, SECOND);
    assert_eq!(application(&pair, Side::Server).received(), 53_000);
}

#[test]
fn unordered_reading_gets_bytes_earlier() {
    let losing = LinkConfig::new(8.0, 10 * MS).loss(0.1);
    let link = Topology::new().asymmetric_path("a", losing, LinkConfig::new(8.0, 10 * MS));
    // The time at which the stream was complete, and the sum over all instants before of the bytes
    // read.
    let read = |unordered: bool| {
        let mut pair = Pair::connected(&link, Setup::new());
        if unordered {
            on(&mut pair, Side::Server, |application, _, _| {
                application.read_unordered();
            });
        }
        let id = pair.send(Side::Client, 200_000).unwrap();
        let mut sum = 0;
        pair.run_until(20 * SECOND, |pair| {
            let server = application(pair, Side::Server);
            sum += server.received();
            server.incoming().get(&id).is_some_and(Incoming::is_over)
        })
        .unwrap();
        let read = &application(&pair, Side::Server).incoming()[&id];
        assert_eq!((read.received, read.corrupt_at), (200_000, None));
        assert_eq!(read.unordered.is_some(), unordered);
        (pair.elapsed(), sum)
    };
    let (ordered, unordered) = (read(false), read(true));
    assert_eq!(ordered.0, unordered.0, "it ends at the same time");
    assert!(ordered.1 < unordered.1, "{ordered:?} {unordered:?}");
}

#[test]
fn repeated_or_unexpected_bytes_are_corruption() {
    let start = crate::lab::epoch();
    let id = StreamId::new(Side::Client, Dir::Uni, 3);
    let origin = Origin::of(id, Side::Client);
    let bytes = |offset| pattern::chunk(origin, offset, 10);
    let mut ordered = Incoming::new(start);
    assert!(ordered.on_bytes(origin, 0, &bytes(0)));
    assert!(!ordered.on_bytes(origin, 20, &bytes(20)), "ten are missing");
    let mut ordered = Incoming::new(start);
    assert!(!ordered.on_bytes(origin, 0, &bytes(1)), "others");
    let mut unordered = Incoming::new(start);
    unordered.unordered = Some(Arrived::default());
    assert!(unordered.on_bytes(origin, 20, &bytes(20)));
    assert!(unordered.on_bytes(origin, 0, &bytes(0)));
    assert!(!unordered.on_bytes(origin, 25, &bytes(25)), "again");
    assert!(!unordered.on_bytes(origin, 40, &bytes(41)), "others");
    assert_eq!(unordered.received, 40);
}

#[test]
fn reset_at_half_delivers_the_first_half() {
    for at_half in [false, true] {
        let mut pair = pair();
        let id = pair.send(Side::Client, 100_000).unwrap();
        pair.drive(20 * MS);
        on(&mut pair, Side::Client, |application, connection, _| {
            let code = VarInt::from_u32(7);
            if at_half {
                application.reset_at_half(connection, id, code)
            } else {
                application.reset(connection, id, code)
            }
            // A reset of an unknown stream has no effect.
            application.reset(connection, StreamId::new(Side::Client, Dir::Uni, 9), code);
        });
        pair.run_transfers(SECOND).unwrap();
        let out = application(&pair, Side::Client).outgoing()[&id];
        let half = if at_half { out.written / 2 } else { 0 };
        let reset = Reset {
            code: VarInt::from_u32(7),
            reliable_size: half,
        };
        assert_eq!((out.reset, out.is_whole()), (Some(reset), false));
        let read = &application(&pair, Side::Server).incoming()[&id];
        assert_eq!(read.reset, Some(reset.code));
        assert!(read.is_over() && read.finished.is_none());
        assert!(read.received >= half && read.received < 100_000);
        assert_eq!(application(&pair, Side::Client).outgoing().len(), 1);
    }
}

#[test]
fn first_code_and_smallest_size_of_several_resets_count() {
    let mut out = Outgoing::new(10, crate::lab::epoch());
    let reset = |code, reliable_size| Reset {
        code: VarInt::from_u32(code),
        reliable_size,
    };
    for (code, size, expected) in [
        (1, 8, reset(1, 8)),
        (2, 5, reset(1, 5)),
        (3, 9, reset(1, 5)),
    ] {
        out.on_reset(VarInt::from_u32(code), size);
        assert_eq!(out.reset, Some(expected));
    }
}

#[test]
fn stopped_stream_is_over_on_both_sides() {
    let mut pair = pair();
    let id = pair.send(Side::Client, 1_000_000).unwrap();
    pair.drive(50 * MS);
    let code = VarInt::from_u32(3);
    on(&mut pair, Side::Server, |application, connection, _| {
        application.stop(connection, id, code);
    });
    let took = pair.run_transfers(SECOND).unwrap();
    assert!(took < 200 * MS, "{took:?}");
    pair.drive(SECOND);
    let out = application(&pair, Side::Client).outgoing()[&id];
    assert_eq!((out.stopped, out.is_whole()), (Some(code), false));
    let read = &application(&pair, Side::Server).incoming()[&id];
    assert_eq!(read.stopped, Some(code));
    assert!(read.is_over() && read.received < 1_000_000);
}

#[test]
fn a_stream_is_over_when_it_ends_is_reset_or_stopped() {
    let start = crate::lab::epoch();
    let code = Some(VarInt::from_u32(1));
    let begun = Incoming::new(start);
    assert_eq!((begun.received, begun.is_over()), (0, false));
    let ends: [fn(&mut Incoming, Option<VarInt>); 3] = [
        |incoming, _| incoming.finished = Some(incoming.started),
        |incoming, code| incoming.reset = code,
        |incoming, code| incoming.stopped = code,
    ];
    for end in ends {
        let mut incoming = Incoming::new(start);
        end(&mut incoming, code);
        assert!(incoming.is_over(), "{incoming:?}");
    }
    let mut out = Outgoing::new(10, start);
    assert!(out.is_whole() && out.written == 0);
    out.stopped = code;
    assert!(!out.is_whole());
    (out.stopped, out.reset) = (None, None);
    out.on_reset(VarInt::from_u32(1), 0);
    assert!(!out.is_whole());
}

#[test]
fn rejected_early_data_is_sent_again_before_waiting_streams() {
    let setup = Setup::new().tls();
    let link = Topology::new().path("a", LinkConfig::new(8.0, 10 * MS));
    let mut pair = Pair::connected(&link, setup);
    pair.drive(SECOND);
    // The server has lost its session tickets, so it refuses early data.
    pair.restart_server();
    let streams = |pair: &Pair| {
        let outgoing = application(pair, Side::Client).outgoing().iter();
        let streams: Vec<_> = outgoing.map(|(id, out)| (id.index(), out.size)).collect();
        streams
    };
    pair.connect();
    for size in [1000, 2000] {
        assert!(pair.send(Side::Client, size).is_some());
    }
    assert_eq!(streams(&pair), [(0, 1000), (1, 2000)]);
    pair.run_until_confirmed(SECOND).unwrap();
    assert_eq!(pair.client().zero_rtt(), ZeroRtt::Rejected);
    pair.run_transfers(SECOND).unwrap();
    assert_eq!(streams(&pair), [(0, 1000), (1, 2000)]);
    assert_eq!(application(&pair, Side::Server).received(), 3000);
}
