//! draft-ietf-quic-ack-frequency-14: a peer's requests about our acknowledgements, and our
//! requests.

use std::time::Duration;

use mpquic_core::config::AckFrequencyOptions;
use mpquic_core::unstable_wire::frame::{AckFrequency, Frame, PathAck};
use mpquic_core::{EcnCodepoint, Fault, PathId, Side, SpaceId};

use super::harness::{Forgery, Kind, MS, Net, Options, SECOND, SIDES, Sent};

const ZERO: PathId = PathId::ZERO;
const ONE: PathId = PathId(1);

/// A request with its sequence number, threshold and delay in milliseconds.
fn request(sequence: u64, ack_eliciting_threshold: u64, delay: u64) -> AckFrequency {
    AckFrequency {
        sequence_number: sequence,
        ack_eliciting_threshold,
        requested_max_ack_delay: delay * 1000,
        reordering_threshold: 1,
    }
}

/// Gives a side one packet of its peer.
fn give(net: &mut Net, to: Side, path: PathId, number: u64, frames: &[Frame]) {
    let forged = net.forge(&Forgery::new(!to, Kind::OneRtt(path), number, frames));
    net.give(forged);
}

/// The paths and largest numbers that are acknowledged.
fn acked(sent: &[Sent]) -> Vec<(PathId, u64)> {
    let frames = sent.iter().flat_map(Sent::frames);
    let acks = frames.filter_map(|frame| match frame {
        Frame::Ack(ack) => Some((ZERO, ack.largest_acknowledged)),
        Frame::PathAck(PathAck { path_id: path, ack }) => Some((path, ack.largest_acknowledged)),
        _ => None,
    });
    acks.collect()
}

/// Packets a side takes on a path before it acknowledges one at once; none at all for 99.
fn packets_until_acked(net: &mut Net, side: Side, path: PathId, first: u64) -> u64 {
    for number in first..first + 99 {
        give(net, side, path, number, &[Frame::Ping]);
        if !acked(&net.take(side)).is_empty() {
            return number + 1 - first;
        }
    }
    99
}

#[test]
fn section_4_the_threshold_and_the_delay_are_kept_on_all_paths() {
    for side in SIDES {
        let mut net = Net::with_two_paths(Options::default());
        for path in [ZERO, ONE] {
            // What is missing before these numbers is reported first.
            give(&mut net, side, path, 3000, &[Frame::Ping]);
            assert!(!net.take(side).is_empty());
            assert_eq!(packets_until_acked(&mut net, side, path, 3001), 2);
        }
        let asked = Frame::AckFrequency(request(0, 9, 60));
        give(&mut net, side, ZERO, 3003, &[asked]);
        let arrived = net.now;
        // The delay counts for that packet, too.
        let sent = net.fire(side);
        assert_eq!(acked(&sent), [(ZERO, 3003)]);
        assert_eq!(net.now - arrived, 60 * MS);
        for path in [ZERO, ONE] {
            let first = if path == ZERO { 3004 } else { 3003 };
            assert_eq!(packets_until_acked(&mut net, side, path, first), 10);
        }
    }
}

/// A threshold of 0: each packet.
#[test]
fn section_4_every_packet_may_be_asked_for() {
    let mut net = Net::connected(Options::default());
    let asked = Frame::AckFrequency(request(0, 0, 25));
    give(&mut net, Side::Server, ZERO, 3000, &[asked]);
    assert_eq!(acked(&net.take(Side::Server)), [(ZERO, 3000)]);
    for number in 3001..3005 {
        assert_eq!(packets_until_acked(&mut net, Side::Server, ZERO, number), 1);
    }
}

#[test]
fn section_4_old_requests_are_ignored() {
    let mut net = Net::connected(Options::default());
    let mut number = 3000;
    // Sequence number, threshold asked for, threshold that holds.
    for (sequence, asked, kept) in [(5, 7, 7), (5, 3, 7), (4, 3, 7), (6, 3, 3), (0, 9, 3)] {
        let asked = Frame::AckFrequency(request(sequence, asked, 25));
        give(
            &mut net,
            Side::Server,
            ZERO,
            number,
            &[asked, Frame::ImmediateAck],
        );
        assert!(!net.take(Side::Server).is_empty());
        let packets = packets_until_acked(&mut net, Side::Server, ZERO, number + 1);
        assert_eq!(packets, kept + 1, "{sequence}");
        number += 1 + packets;
    }
}

/// Longer than any `max_ack_delay`, or shorter than our `min_ack_delay`; also in an old request.
#[test]
fn section_4_delays_that_are_not_valid_are_violations() {
    for (delay, is_valid) in [
        (1000, true),
        (999, false),
        (0, false),
        (16_383_000, true),
        (16_384_000, false),
        ((1 << 62) - 1, false),
    ] {
        for sequence in [0, 9] {
            let mut net = Net::connected(Options::default());
            give(
                &mut net,
                Side::Server,
                ZERO,
                3000,
                &[Frame::AckFrequency(request(8, 1, 25))],
            );
            let asked = AckFrequency {
                requested_max_ack_delay: delay,
                ..request(sequence, 1, 25)
            };
            give(
                &mut net,
                Side::Server,
                ZERO,
                3001,
                &[Frame::AckFrequency(asked)],
            );
            let violation = (Fault::AckDelayNotValid, 0xaf);
            assert_eq!(
                net.fault(Side::Server),
                (!is_valid).then_some(violation),
                "{delay}"
            );
        }
    }
}

/// Who announces no `min_ack_delay` does not know the frames.
#[test]
fn section_3_the_frames_are_unknown_without_the_parameter() {
    for side in SIDES {
        let frames = [
            (Frame::ImmediateAck, 0x1f),
            (Frame::AckFrequency(request(0, 1, 25)), 0xaf),
        ];
        for (frame, frame_type) in frames {
            let options = Options::default().transport(|transport| transport.min_ack_delay = None);
            let mut net = Net::connected(options);
            give(&mut net, side, ZERO, 3000, &[frame]);
            let expected = (Fault::AckFrequencyNotAnnounced, frame_type);
            assert_eq!(net.fault(side), Some(expected));
        }
    }
}

/// The announced parameter alone changes nothing; its value may reach max_ack_delay, not exceed it.
#[test]
fn section_3_the_parameter_is_at_most_the_largest_delay() {
    let mut options = Options::default().transport(|transport| {
        transport.min_ack_delay = Some(6 * MS);
        transport.max_ack_delay = 5 * MS;
    });
    let refused = options.client.clone().build().unwrap_err();
    assert_eq!(refused.option(), "min_ack_delay");
    options = options.transport(|transport| transport.min_ack_delay = Some(5 * MS));
    let mut net = Net::connected(options);
    assert_eq!(
        packets_until_acked(&mut net, Side::Server, ZERO, 3000),
        1,
        "a gap"
    );
    assert_eq!(packets_until_acked(&mut net, Side::Server, ZERO, 3001), 2);
}

#[test]
fn section_5_an_acknowledgement_at_once_is_of_the_packets_path() {
    for side in SIDES {
        let mut net = Net::with_two_paths(Options::default());
        give(
            &mut net,
            side,
            ZERO,
            3000,
            &[Frame::AckFrequency(request(0, 50, 100))],
        );
        give(&mut net, side, ONE, 3000, &[Frame::Ping]);
        net.exchange();
        for (path, number) in [(ONE, 3001), (ZERO, 3001)] {
            give(&mut net, side, ZERO, number + 10, &[Frame::Ping]);
            net.take(side);
            give(&mut net, side, path, number, &[Frame::ImmediateAck]);
            let sent = net.take(side);
            assert!(
                acked(&sent).iter().all(|(acked, _)| *acked == path),
                "{path}"
            );
            assert!(!acked(&sent).is_empty());
        }
    }
}

#[test]
fn section_6_2_reordering_is_reported_as_asked() {
    let mut net = Net::connected(Options::default());
    let asked = AckFrequency {
        reordering_threshold: 3,
        ..request(0, 50, 100)
    };
    give(
        &mut net,
        Side::Server,
        ZERO,
        3000,
        &[Frame::AckFrequency(asked), Frame::ImmediateAck],
    );
    net.take(Side::Server);
    // What is missing before these numbers is reported first.
    for number in 3001..3004 {
        give(&mut net, Side::Server, ZERO, number, &[Frame::Ping]);
        net.take(Side::Server);
    }
    for (number, is_urgent) in [(3004, false), (3006, false), (3007, false), (3008, true)] {
        give(&mut net, Side::Server, ZERO, number, &[Frame::Ping]);
        assert_eq!(!net.take(Side::Server).is_empty(), is_urgent, "{number}");
    }
}

#[test]
fn section_6_3_the_first_congestion_mark_is_reported_at_once() {
    let mut net = Net::connected(Options::default());
    let asked = Frame::AckFrequency(request(0, 50, 100));
    give(
        &mut net,
        Side::Server,
        ZERO,
        3000,
        &[asked, Frame::ImmediateAck],
    );
    net.take(Side::Server);
    let marks = [(true, true), (true, false), (false, false), (true, true)];
    for (number, (is_ce, is_urgent)) in (3001..).zip(marks) {
        let kind = Kind::OneRtt(ZERO);
        let mut forged = net.forge(&Forgery::new(Side::Client, kind, number, &[Frame::Ping]));
        forged.ecn = Some(if is_ce {
            EcnCodepoint::Ce
        } else {
            EcnCodepoint::Ect0
        });
        net.give(forged);
        assert_eq!(!net.take(Side::Server).is_empty(), is_urgent, "{number}");
    }
}

/// A client with requests, and a server that accepts them.
fn asking(config: AckFrequencyOptions) -> Options {
    let mut options = Options::default();
    options.client.ack_frequency = Some(config);
    options
}

fn requests(sent: &[Sent]) -> Vec<AckFrequency> {
    let frames = sent.iter().flat_map(Sent::frames);
    let requests = frames.filter_map(|frame| match frame {
        Frame::AckFrequency(request) => Some(request),
        _ => None,
    });
    requests.collect()
}

/// The client sends for many round trips, until its window no longer grows.
fn send_much(net: &mut Net) -> Vec<Sent> {
    let mut log = Vec::new();
    for _ in 0..20 {
        let id = net.write(Side::Client, 200_000);
        log.extend(net.wait(SECOND));
        assert_eq!(net.read(Side::Server, id), 200_000);
    }
    log
}

#[test]
fn section_8_1_the_peer_is_asked_once_for_a_fitting_rate() {
    // The figures below follow from a window that grows as in slow start.
    let options = asking(AckFrequencyOptions::default())
        .transport(|transport| transport.controller = mpquic_cc::by_name("newreno").unwrap());
    let mut net = Net::connecting(options);
    let mut log = net.exchange();
    log.extend(send_much(&mut net));
    let asked = requests(&log);
    assert_eq!(asked.first().map(|asked| asked.sequence_number), Some(0));
    for (before, after) in asked.iter().zip(&asked[1..]) {
        assert_eq!(before.sequence_number + 1, after.sequence_number);
        assert_ne!(
            request(0, before.ack_eliciting_threshold, 0),
            request(0, after.ack_eliciting_threshold, 0)
        );
    }
    // The round-trip time is 2 ms, the window some 270 packets by now.
    let last = asked.last().unwrap();
    assert!(
        (1000..4000).contains(&last.requested_max_ack_delay),
        "{last:?}"
    );
    assert_eq!(
        (last.ack_eliciting_threshold, last.reordering_threshold),
        (17, 3)
    );
    assert!(asked.len() < 5);
    let acks = |log: &[Sent]| log.iter().filter(|sent| sent.from.is_server()).count();
    let before = acks(&net.wait(SECOND));
    net.write(Side::Client, 200_000);
    let answers = acks(&net.wait(SECOND)) - before;
    assert!(answers < 40, "{answers} for 140 packets or more");
}

/// Messages with long pauses keep the peer's own rate of acknowledgements.
#[test]
fn section_8_1_a_side_that_sends_little_asks_for_nothing() {
    let mut net = Net::connecting(asking(AckFrequencyOptions::default()));
    let mut log = net.exchange();
    for _ in 0..20 {
        net.write(Side::Client, 15_000);
        log.extend(net.wait(SECOND));
    }
    assert_eq!(requests(&log), []);
    assert_ne!(requests(&send_much(&mut net)), []);
}

/// A peer without the parameter gets no request.
#[test]
fn section_3_only_a_peer_that_announced_it_is_asked() {
    let mut options = asking(AckFrequencyOptions::default());
    options.server.min_ack_delay = None;
    let mut net = Net::connecting(options);
    let mut log = net.exchange();
    net.write(Side::Client, 200_000);
    net.delivers = |sent| !sent.has(|frame| matches!(frame, Frame::Stream(_)));
    log.extend(net.wait(SECOND));
    assert_eq!(requests(&log), []);
    log.retain(|sent| sent.from.is_client());
    assert!(
        !log.iter()
            .any(|sent| sent.has(|frame| *frame == Frame::ImmediateAck))
    );
}

/// Never below the peer's `min_ack_delay`.
#[test]
fn section_3_the_shortest_delay_of_the_peer_is_respected() {
    let mut wanted = AckFrequencyOptions::default();
    wanted.max_ack_delay = Some(Duration::ZERO);
    let mut options = asking(wanted);
    options.server.min_ack_delay = Some(7 * MS);
    let mut net = Net::connecting(options);
    net.exchange();
    let log = send_much(&mut net);
    assert_eq!(requests(&log)[0].requested_max_ack_delay, 7000);
    assert_eq!(net.lost(Side::Server), None);
}

/// A lost request is sent again, unless a newer one exists.
#[test]
fn section_4_a_lost_request_is_repeated() {
    let mut net = Net::connecting(asking(AckFrequencyOptions::default()));
    net.delivers = |sent| !sent.has(|frame| matches!(frame, Frame::AckFrequency(_)));
    net.exchange();
    let lost = requests(&send_much(&mut net));
    assert!(
        lost.len() > 1 && lost.iter().all(|asked| *asked == lost[0]),
        "{lost:?}"
    );
    net.delivers = |_| true;
    net.wait(10 * SECOND);
    assert!(
        requests(&send_much(&mut net))
            .iter()
            .all(|asked| asked.sequence_number > 0)
    );
}

/// Section 7: until a request is acknowledged, the longer of the two delays is reckoned with.
#[test]
fn section_7_probe_timeouts_include_the_requested_delay() {
    let pto = |net: &mut Net| {
        net.client().inject(SpaceId::Data(ZERO), &[1]);
        assert!(!net.take(Side::Client).is_empty());
        let sent = net.now;
        net.fire(Side::Client);
        net.now - sent
    };
    // The peer's own 25 ms exceed the requested round trip.
    let mut net = Net::connected(Options::default());
    let unasked = pto(&mut net);
    let mut net = Net::connecting(asking(AckFrequencyOptions::default()));
    net.exchange();
    send_much(&mut net);
    let asked = pto(&mut net);
    assert!(asked + 15 * MS < unasked, "{asked:?}, {unasked:?}");

    // Not yet: the acknowledgement of the request is missing.
    let mut net = Net::connecting(asking(AckFrequencyOptions::default()));
    net.delivers = |sent| !sent.has(|frame| matches!(frame, Frame::AckFrequency(_)));
    net.exchange();
    send_much(&mut net);
    let in_flight = pto(&mut net);
    assert!(in_flight > 25 * MS, "{in_flight:?}");
}

/// Section 7: probes ask for an acknowledgement at once.
#[test]
fn section_7_probes_are_acknowledged_at_once() {
    let mut net = Net::connected(Options::default());
    net.client().inject(SpaceId::Data(ZERO), &[1]);
    let _lost = net.take(Side::Client);
    let probe = net.fire(Side::Client);
    assert!(
        probe
            .iter()
            .any(|sent| sent.has(|frame| *frame == Frame::ImmediateAck))
    );
    net.give_all(probe);
    assert!(!acked(&net.take(Side::Server)).is_empty());
}

/// A peer that asks for rare acknowledgements and reordering to be ignored still gets all of them.
#[test]
fn section_6_everything_is_acknowledged_in_the_end() {
    let mut net = Net::connected(Options::default());
    let asked = AckFrequency {
        reordering_threshold: 0,
        ..request(0, 1_000_000, 80)
    };
    give(
        &mut net,
        Side::Server,
        ZERO,
        3000,
        &[Frame::AckFrequency(asked)],
    );
    for number in (3002..3402).step_by(2) {
        give(&mut net, Side::Server, ZERO, number, &[Frame::Ping]);
    }
    assert!(net.take(Side::Server).is_empty());
    let sent = net.fire(Side::Server);
    let frames = sent.iter().flat_map(Sent::frames);
    let ranges: usize = frames
        .filter_map(|frame| match frame {
            Frame::PathAck(PathAck { ack, .. }) => Some(ack.ranges().count()),
            _ => None,
        })
        .sum();
    assert!(ranges >= 200, "{ranges}");
}
