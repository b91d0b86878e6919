//! Statistics: sent and received frames are counted by type.

use std::collections::BTreeMap;

use bytes::Bytes;
use mpquic_core::unstable_wire::frame::Frame;
use mpquic_core::{FrameCounts, FrameKind, PathId, PathStatus, Side};

use super::harness::{MS, Net, Options, SECOND, SIDES, Sent};

type Counts = BTreeMap<String, u64>;

/// The name of a frame's type, without `FrameKind` having a say; PADDING is not counted.
fn name(frame: &Frame) -> Option<String> {
    let text = match frame {
        Frame::Padding => return None,
        Frame::PathStatus(frame) => format!("PathStatus{:?}", frame.status),
        other => format!("{other:?}"),
    };
    let end = text.find(|c: char| !c.is_alphanumeric());
    Some(text[..end.unwrap_or(text.len())].to_owned())
}

/// What a side has put on the wire.
fn on_the_wire(log: &[Sent], from: Side) -> Counts {
    let mut counts = Counts::new();
    let frames = log.iter().filter(|sent| sent.from == from);
    for name in frames.flat_map(Sent::frames).filter_map(|it| name(&it)) {
        *counts.entry(name).or_default() += 1;
    }
    counts
}

fn counted(counts: &FrameCounts) -> Counts {
    let named = counts
        .iter()
        .map(|(kind, count)| (format!("{kind:?}"), count));
    named.collect()
}

#[test]
fn frames_are_counted_as_they_are_sent_and_received() {
    let mut net = Net::connecting(Options::default());
    let mut log = net.exchange();
    net.open_path(1).unwrap();
    log.extend(net.wait(SECOND));
    let second = PathId(1);
    let mut path = net.client().path_mut(second).unwrap();
    path.set_status(PathStatus::Backup);
    let sent = net.write(Side::Client, 30_000);
    let datagram = Bytes::from_static(b"datagram");
    net.server().datagrams().send(datagram).unwrap();
    log.extend(net.wait(SECOND));
    assert_eq!(net.read(Side::Server, sent), 30_000);
    log.extend(net.wait(100 * MS));
    for side in SIDES {
        let expected = on_the_wire(&log, side);
        let sent = counted(&net.connection(side).stats().frames_sent);
        assert_eq!(sent, expected, "sent by {side:?}");
        let received = counted(&net.connection(!side).stats().frames_received);
        assert_eq!(received, expected, "received from {side:?}");
    }
    // Some numbers are known beforehand.
    let client = net.client().stats();
    assert_eq!(client.frames_sent[FrameKind::PathStatusBackup], 1);
    assert_eq!(client.frames_sent[FrameKind::PathStatusAvailable], 1);
    assert_eq!(client.frames_sent[FrameKind::HandshakeDone], 0);
    assert_eq!(client.frames_received[FrameKind::HandshakeDone], 1);
    assert_eq!(client.frames_received[FrameKind::Datagram], 1);
    assert!(client.frames_sent[FrameKind::PathAck] > 0);
    assert!(client.frames_sent[FrameKind::Stream] > 20);
}

/// What one short stream costs.
#[test]
fn a_short_stream_is_one_frame_and_one_acknowledgement() {
    let mut net = Net::connected(Options::default());
    net.wait(SECOND);
    let before = SIDES.map(|side| net.connection(side).stats());
    net.write(Side::Client, 10);
    net.wait(SECOND);
    let after = SIDES.map(|side| net.connection(side).stats());
    for kind in FrameKind::ALL {
        let is = |counts: fn(&mpquic_core::ConnectionStats) -> &FrameCounts, side: usize| {
            counts(&after[side])[*kind] - counts(&before[side])[*kind]
        };
        let client = usize::from(SIDES[0] != Side::Client);
        let expected = match kind {
            FrameKind::Stream => (1, 0),
            FrameKind::PathAck => (0, 1),
            _ => (0, 0),
        };
        let sent = (
            is(|it| &it.frames_sent, client),
            is(|it| &it.frames_sent, 1 - client),
        );
        assert_eq!(sent, expected, "{kind} sent");
        let received = (
            is(|it| &it.frames_received, 1 - client),
            is(|it| &it.frames_received, client),
        );
        assert_eq!(received, expected, "{kind} received");
    }
}

/// Only packets of the peer count, on any path.
#[test]
fn the_last_packet_of_the_peer_has_its_time() {
    let mut net = Net::connected(Options::default());
    net.wait(SECOND);
    let before = net.server().stats().last_received;
    net.wait(5 * SECOND);
    assert_eq!(
        net.server().stats().last_received,
        before,
        "nothing was sent"
    );
    net.write(Side::Server, 100);
    let sent = net.take(Side::Server);
    assert!(!sent.is_empty());
    assert_eq!(
        net.server().stats().last_received,
        before,
        "the client has not answered"
    );
    net.give_all(sent);
    net.wait(SECOND);
    let after = net.server().stats().last_received;
    assert!(after >= before + 5 * SECOND, "{after:?} after {before:?}");
}

/// The names are those of the RFCs.
#[test]
fn kinds_have_the_names_of_the_rfcs() {
    for kind in FrameKind::ALL {
        let words = kind.name().split('_').map(|word| {
            let (first, rest) = word.split_at(1);
            first.to_owned() + &rest.to_lowercase()
        });
        assert_eq!(words.collect::<String>(), format!("{kind:?}"));
    }
    assert_eq!(FrameKind::PathCidsBlocked.to_string(), "PATH_CIDS_BLOCKED");
}
