//! Acknowledgements, ECN, probes, key updates, and the bits of a header that are free.

use mpquic_core::unstable_wire::frame::{self, Ack, Frame, PathAck};
use mpquic_core::{EcnCodepoint, Fault, PathId, Side, SpaceId, TimeoutReason};

use super::harness::{Forgery, Kind, MS, Net, Options, Packet, SECOND, SIDES, Sent};

const ZERO: PathId = PathId::ZERO;

fn path_ack(numbers: std::ops::Range<u64>) -> Frame {
    super::harness::path_ack(ZERO, numbers)
}

fn packets(sent: &[Sent]) -> Vec<Packet> {
    sent.iter().flat_map(Sent::packets).collect()
}

fn acks(sent: &[Sent]) -> Vec<Ack> {
    let frames = sent.iter().flat_map(Sent::frames);
    let acks = frames.filter_map(|frame| match frame {
        Frame::Ack(ack) | Frame::PathAck(PathAck { ack, .. }) => Some(ack),
        _ => None,
    });
    acks.collect()
}

fn ping(net: &mut Net, from: Side) -> Vec<Sent> {
    net.connection(from).inject(SpaceId::Data(ZERO), &[1]);
    net.take(from)
}

/// Packets that cannot be opened are not acknowledged.
#[test]
fn rfc_9000_13_1_only_opened_packets_are_acknowledged() {
    let mut net = Net::connected(Options::default());
    let forged = net.forge(&Forgery {
        generation: 6,
        ..Forgery::new(Side::Client, Kind::OneRtt(ZERO), 900, &[Frame::Ping])
    });
    net.give(forged);
    for number in [901, 903] {
        let kind = Kind::OneRtt(ZERO);
        let forged = net.forge(&Forgery::new(Side::Client, kind, number, &[Frame::Ping]));
        net.give(forged);
    }
    let sent = net.take(Side::Server);
    let acked: Vec<_> = acks(&sent)
        .iter()
        .flat_map(|ack| ack.ranges().flatten().collect::<Vec<_>>())
        .collect();
    assert!(acked.contains(&901) && acked.contains(&903));
    assert!(!acked.contains(&900) && !acked.contains(&902));
}

/// A peer that acknowledges unseen packets is caught, on each path.
#[test]
fn rfc_9000_21_4_acknowledging_numbers_without_seeing_them_closes() {
    for side in SIDES {
        for path in [ZERO, PathId(1)] {
            let mut net = Net::with_two_paths(Options::default());
            let mut numbers = Vec::new();
            for _ in 0..70 {
                net.connection(side).inject(SpaceId::Data(path), &[1]);
                let sent = packets(&net.take(side));
                numbers.extend(sent.iter().map(|packet| packet.number));
            }
            let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
            let frames = [super::harness::path_ack(path, first..last + 1)];
            let forged = net.forge(&Forgery::new(!side, Kind::OneRtt(path), 700, &frames));
            net.give(forged);
            let expected = Some((Fault::AckOfUnsent, 0x3e));
            assert_eq!(net.fault(side), expected, "{side:?}, {path}");
        }
    }
}

#[test]
fn rfc_9000_13_2_1_handshake_packets_are_acknowledged_at_once() {
    let mut net = Net::with_flights(Options::default(), &[Side::Client]);
    let flight = net.take(Side::Server);
    assert!(packets(&flight)[0].has(|frame| matches!(frame, Frame::Ack(_))));
    // At both levels, with nothing else to send.
    for kind in [Kind::Initial, Kind::Handshake] {
        let forged = net.forge(&Forgery::new(Side::Client, kind, 20, &[Frame::Ping]));
        net.give(forged);
        let sent = net.take(Side::Server);
        let acked = packets(&sent).into_iter().any(|packet| {
            let level = match kind {
                Kind::Initial => packet.is_initial(),
                _ => packet.is_handshake(),
            };
            level
                && packet
                    .has(|frame| matches!(frame, Frame::Ack(ack) if ack.largest_acknowledged == 20))
        });
        assert!(acked, "{kind:?}");
    }
}

#[test]
fn rfc_9000_13_2_1_one_packet_is_acknowledged_within_the_announced_delay() {
    for side in SIDES {
        let mut net = Net::connected(Options::default());
        let sent = ping(&mut net, !side);
        let number = packets(&sent)[0].number;
        net.give_all(sent);
        assert!(net.take(side).is_empty());
        let arrived = net.now;
        let answer = net.fire(side);
        assert!(net.now - arrived <= 25 * MS);
        assert_eq!(acks(&answer)[0].largest_acknowledged, number);
        assert_eq!(answer.len(), 1, "once");
        assert!(net.take(side).is_empty());
    }
}

/// A driver with timers that may fire 4 ms late sets them 4 ms earlier.
#[test]
fn rfc_9000_18_2_the_delay_leaves_time_for_late_timers() {
    for (lateness, expected) in [(0, 25), (4, 21), (30, 0)] {
        let options = Options::default();
        let options = options.transport(|transport| transport.timer_lateness = lateness * MS);
        let mut net = Net::connected(options);
        let sent = ping(&mut net, Side::Client);
        let number = packets(&sent)[0].number;
        net.give_all(sent);
        let arrived = net.now;
        let answer = match expected {
            0 => net.take(Side::Server),
            _ => net.fire(Side::Server),
        };
        assert_eq!(acks(&answer)[0].largest_acknowledged, number);
        assert_eq!(net.now - arrived, expected * MS);
    }
}

/// Packets with only acknowledgements or padding are not acknowledged on their own.
#[test]
fn rfc_9000_13_2_1_packets_that_elicit_no_ack_get_no_answer() {
    for side in SIDES {
        let mut net = Net::connected(Options::default());
        // Gaps, too.
        for number in [3000, 3001, 3007, 3020] {
            let kind = Kind::OneRtt(ZERO);
            let forged = net.forge(&Forgery::new(!side, kind, number, &[Frame::Padding]));
            net.give(forged);
            assert!(net.take(side).is_empty());
        }
        let timeout = net.connection(side).poll_timeout().unwrap().1;
        assert!(
            !matches!(timeout, TimeoutReason::AckDelay(_)),
            "{timeout:?}"
        );
    }
}

/// Marks are reported at every level, whether or not we mark packets ourselves.
#[test]
fn rfc_9000_13_4_1_ecn_marks_are_reported() {
    let options = Options::default().transport(|transport| transport.ecn = false);
    let mut net = Net::connecting(options);
    let mark = |sent: Vec<Sent>| {
        let marked = |sent| Sent {
            ecn: Some(EcnCodepoint::Ect0),
            ..sent
        };
        sent.into_iter().map(marked).collect::<Vec<_>>()
    };
    let reported = |sent: &[Sent], wanted: fn(&Packet) -> bool| {
        let of_level = packets(sent).into_iter().filter(wanted);
        of_level.flat_map(|packet| packet.frames).any(|frame| {
            matches!(frame, Frame::Ack(ack) | Frame::PathAck(PathAck { ack, .. })
                if ack.ecn_counts.is_some_and(|counts| counts.ect0 > 0))
        })
    };
    let first = net.take(Side::Client);
    assert!(first.iter().all(|sent| sent.ecn.is_none()));
    net.give_all(mark(first));
    let flight = net.take(Side::Server);
    assert!(reported(&flight, Packet::is_initial));
    net.give_all(mark(flight));
    let finished = net.take(Side::Client);
    assert!(reported(&finished, Packet::is_handshake));
    net.give_all(mark(finished));
    net.exchange();
    for _ in 0..2 {
        net.client().inject(SpaceId::Data(ZERO), &[1]);
    }
    let pings = net.take(Side::Client);
    net.give_all(mark(pings));
    let answer = net.take(Side::Server);
    assert!(reported(&answer, Packet::is_one_rtt));
}

/// RFC 9000 section 13.4.2, MP-056: a path that erases marks carries no more marks; other paths do.
#[test]
fn rfc_9000_13_4_2_marks_are_validated_for_each_path() {
    let mut net = Net::with_two_paths(Options::default());
    let marked = |sent: &[Sent], path: PathId| {
        let of_path = sent.iter().filter(|sent| sent.from.is_client());
        let mut of_path = of_path.filter(|sent| sent.path() == Some(path));
        of_path.next_back().map(|sent| sent.ecn.is_some())
    };
    let mut last = [None, None];
    for round in 0..40 {
        // More than path 0 takes at once.
        net.write(Side::Client, 100_000);
        loop {
            let mut flight = net.take(Side::Client);
            for path in [ZERO, PathId(1)] {
                last[path.0 as usize] = marked(&flight, path).or(last[path.0 as usize]);
            }
            for sent in &mut flight {
                if sent.path() == Some(PathId(1)) {
                    sent.ecn = None;
                }
            }
            let back = net.take(Side::Server);
            if flight.is_empty() && back.is_empty() {
                break;
            }
            net.now += MS;
            net.give_all(flight);
            net.give_all(back);
        }
        net.wait(100 * MS);
        assert!(round < 40);
    }
    assert_eq!(last, [Some(true), Some(false)]);
}

/// A probe timeout sends something that must be acknowledged, at least once and at most twice,
/// although the window is full; it counts as in flight.
#[test]
fn rfc_9002_6_2_4_a_probe_leaves_although_the_window_is_full() {
    let mut net = Net::connected(Options::default());
    net.write(Side::Client, 300_000);
    net.take(Side::Client);
    // Until the window is full; then the timeout.
    let mut probes = Vec::new();
    let before = |net: &mut Net| net.client().path_stats(ZERO).unwrap();
    while before(&mut net).probe_timeouts == 0 {
        let stats = before(&mut net);
        assert!(stats.in_flight <= stats.window);
        probes = net.fire(Side::Client);
    }
    let stats = before(&mut net);
    assert!((1..=2).contains(&probes.len()), "{}", probes.len());
    for packet in packets(&probes) {
        assert!(packet.has(Frame::is_ack_eliciting));
    }
    assert!(
        stats.in_flight + 1452 > stats.window,
        "it was full: {stats:?}"
    );
    let bytes: usize = probes.iter().map(|sent| sent.data.len()).sum();
    assert!(bytes > 0 && stats.in_flight >= bytes as u64);
}

fn phase(packet: &Packet) -> bool {
    packet.first & 0x04 != 0
}

#[test]
fn rfc_9001_6_1_no_key_update_before_the_handshake_is_confirmed() {
    let mut net = Net::with_flights(Options::default(), &SIDES);
    assert!(!net.client().is_handshaking());
    let now = net.now;
    assert!(!net.client().initiate_key_update(now));
    let sent = net.take(Side::Client);
    net.give_all(sent);
    net.exchange();
    net.wait(SECOND);
    let now = net.now;
    assert!(net.client().initiate_key_update(now));
    let pings = ping(&mut net, Side::Client);
    assert!(phase(&packets(&pings)[0]));
}

/// A peer's update is followed before the next packet, with all acknowledgements.
#[test]
fn rfc_9001_6_2_a_key_update_is_followed_at_once() {
    for side in SIDES {
        let mut net = Net::connected(Options::default());
        let now = net.now;
        assert!(net.connection(side).initiate_key_update(now));
        let updated = ping(&mut net, side);
        net.give_all(updated);
        let answer = net.fire(!side);
        assert!(packets(&answer).iter().all(phase));
        assert!(!acks(&answer).is_empty());
        net.give_all(answer);
        let id = net.write(side, 10_000);
        net.wait(SECOND);
        assert_eq!(net.read(!side, id), 10_000);
    }
}

/// A peer that acknowledges a packet of the new phase goes on with the old one.
#[test]
fn rfc_9001_6_2_an_old_packet_may_not_acknowledge_a_newer_one() {
    for side in SIDES {
        let mut net = Net::connected(Options::default());
        let old = packets(&ping(&mut net, side))[0].number;
        let now = net.now;
        assert!(net.connection(side).initiate_key_update(now));
        let new = packets(&ping(&mut net, side))[0].number;
        let give = |net: &mut Net, number, acked: std::ops::Range<u64>| {
            let kind = Kind::OneRtt(ZERO);
            let forged = net.forge(&Forgery::new(!side, kind, number, &[path_ack(acked)]));
            net.give(forged);
        };
        give(&mut net, 700, old..old + 1);
        assert_eq!(net.fault(side), None);
        give(&mut net, 701, new..new + 1);
        let expected = (Fault::AckedInOldPhase, 0x3e);
        assert_eq!(net.fault(side), Some(expected));
    }
}

/// RFC 9001 section 6.4: no packet has older keys than a packet with a lower number.
#[test]
fn rfc_9001_6_4_older_keys_after_newer_ones_close() {
    for side in SIDES {
        let mut net = Net::connected(Options::default());
        let ping = |net: &Net, number, generation| {
            net.forge(&Forgery {
                generation,
                ..Forgery::new(!side, Kind::OneRtt(ZERO), number, &[Frame::Ping])
            })
        };
        let updated = ping(&net, 500, 1);
        net.give(updated);
        let late = ping(&net, 499, 0);
        let dropped = net.connection(side).stats().packets_dropped;
        net.give(late);
        assert_eq!(net.connection(side).stats().packets_dropped, dropped);
        assert_eq!(net.fault(side), None);
        let back = ping(&net, 501, 0);
        net.give(back);
        assert_eq!(net.fault(side), Some((Fault::OldKeysAfterNew, 0)));
    }
}

/// RFC 9001 section 5.5: a packet that looks like an update and is not authentic changes nothing.
#[test]
fn rfc_9001_5_5_a_false_key_update_is_discarded() {
    let mut net = Net::connected(Options::default());
    let mut sent = ping(&mut net, Side::Client).remove(0);
    sent.data[0] ^= 0x04;
    let dropped = net.server().stats().packets_dropped;
    net.give(sent);
    assert_eq!(net.server().stats().packets_dropped, dropped + 1);
    let answer = ping(&mut net, Side::Server);
    assert!(!phase(&packets(&answer)[0]));
    net.give_all(answer);
    let id = net.write(Side::Client, 1000);
    net.wait(SECOND);
    assert_eq!(net.read(Side::Server, id), 1000);
}

/// Packets a side sent with the spin bit set, after some talk.
fn spins(net: &mut Net) -> [usize; 2] {
    let mut log = Vec::new();
    for _ in 0..10 {
        for side in SIDES {
            net.connection(side).inject(SpaceId::Data(ZERO), &[1]);
        }
        log.extend(net.exchange());
    }
    SIDES.map(|side| {
        let of_side: Vec<_> = log
            .iter()
            .filter(|sent| sent.from == side)
            .cloned()
            .collect();
        let packets = packets(&of_side).into_iter();
        let spun = packets.filter(|packet| packet.is_one_rtt() && packet.first & 0x20 != 0);
        spun.count()
    })
}

/// The spin bit can be turned off, is off on about one path in sixteen, and starts over with each
/// connection ID.
#[test]
fn rfc_9000_17_4_the_spin_bit_is_off_now_and_then() {
    let mut net = Net::connected(Options::default());
    assert_eq!(spins(&mut net), [0, 0], "off by default");

    let options = Options::default().transport(|transport| transport.spin_bit = true);
    let mut net = Net::new(options);
    let mut silent = 0;
    for _ in 0..160 {
        net.connect();
        net.exchange();
        // A server only reflects what the client spins.
        silent += u32::from(spins(&mut net)[0] == 0);
        net.close(Side::Client);
        net.exchange();
    }
    assert!((3..=24).contains(&silent), "{silent} of 160");
}

#[test]
fn rfc_9000_17_4_the_spin_bit_starts_over_with_another_connection_id() {
    let options = Options::default().transport(|transport| transport.spin_bit = true);
    let mut net = Net::connected(options);
    // Until the client spins.
    let mut spun = false;
    for _ in 0..40 {
        let sent = ping(&mut net, Side::Client);
        spun = packets(&sent).iter().any(|packet| packet.first & 0x20 != 0);
        if spun {
            break;
        }
        net.give_all(sent);
        net.exchange();
    }
    assert!(spun, "this path spins");
    let (now, local) = (net.now, super::harness::address(Side::Client, 4));
    net.client()
        .path_mut(ZERO)
        .unwrap()
        .set_local_address(now, local)
        .unwrap();
    let moved = net.take(Side::Client);
    assert!(!moved.is_empty());
    for packet in packets(&moved) {
        assert_eq!(packet.first & 0x20, 0);
    }
}

/// RFC 9287: the QUIC bit varies in 1-RTT packets to a peer that allows it, and only there.
#[test]
fn rfc_9287_3_the_quic_bit_is_greased_if_the_peer_allows_it() {
    for (client, server) in [(true, true), (true, false), (false, true)] {
        let mut options = Options::default();
        options.client_endpoint.grease_quic_bit = client;
        options.server_endpoint.grease_quic_bit = server;
        let mut net = Net::connecting(options);
        let mut log = net.exchange();
        for side in SIDES {
            net.write(side, 100_000);
        }
        log.extend(net.wait(2 * SECOND));
        for side in SIDES {
            let of_side: Vec<_> = log
                .iter()
                .filter(|sent| sent.from == side)
                .cloned()
                .collect();
            let (short, long): (Vec<_>, Vec<_>) =
                packets(&of_side).into_iter().partition(Packet::is_one_rtt);
            assert!(long.iter().all(|packet| packet.first & 0x40 != 0));
            let clear = short
                .iter()
                .filter(|packet| packet.first & 0x40 == 0)
                .count();
            if client && server {
                assert!(
                    clear * 4 > short.len() && clear * 4 < short.len() * 3,
                    "{clear}"
                );
            } else {
                assert_eq!(clear, 0, "{side:?}");
            }
        }
    }
}

/// MP-152: a sample is the way of the data and the way of its acknowledgement, whichever that took.
#[test]
fn mp_152_a_sample_ends_when_the_acknowledgement_comes_on_any_path() {
    let mut net = Net::with_two_paths(Options::default());
    let second = PathId(1);
    let rtt = |net: &mut Net| net.client().path_stats(second).unwrap().rtt;
    for (number, carrier) in [(4000, second), (4000, ZERO)] {
        let before = rtt(&mut net);
        net.client().inject(SpaceId::Data(second), &[1]);
        let sent = net.take(Side::Client);
        let pinged = packets(&sent)[0].number;
        net.now += 60 * MS;
        let ack = super::harness::path_ack(second, pinged..pinged + 1);
        let kind = Kind::OneRtt(carrier);
        let forged = net.forge(&Forgery::new(Side::Server, kind, number, &[ack]));
        net.give(forged);
        // RFC 9002 section 5.3
        let expected = (7 * before + 60 * MS) / 8;
        let difference = rtt(&mut net).abs_diff(expected);
        assert!(
            difference < MS / 100,
            "{before:?} {difference:?} on {carrier}"
        );
    }
}

/// MP-154: the smallest RTT belongs to the way there and the way back.
#[test]
fn mp_154_the_smallest_rtt_starts_over_when_acknowledgements_change_their_path() {
    let mut net = Net::with_two_paths(Options::default());
    let min_rtt = |net: &mut Net| net.client().path_stats(ZERO).unwrap().min_rtt;
    let low = min_rtt(&mut net);
    assert!(low <= 5 * MS);
    let mut forged_number = 4000;
    for (carrier, expected) in [
        (ZERO, low),
        (PathId(1), 60 * MS),
        (PathId(1), 60 * MS),
        (ZERO, 60 * MS),
    ] {
        let sent = ping(&mut net, Side::Client);
        let number = packets(&sent)[0].number;
        net.now += 60 * MS;
        forged_number += 1;
        let kind = Kind::OneRtt(carrier);
        let ack = path_ack(number..number + 1);
        let forged = net.forge(&Forgery::new(Side::Server, kind, forged_number, &[ack]));
        net.give(forged);
        assert_eq!(min_rtt(&mut net), expected, "on {carrier}");
    }
}

/// MP-175: advice is taken in moderation.
#[test]
fn mp_175_a_flood_of_advice_closes() {
    let mut net = Net::connected(Options::default());
    let mut sequence = 0;
    while net.fault(Side::Server).is_none() {
        let mut frames = Vec::new();
        for _ in 0..100 {
            sequence += 1;
            Frame::PathStatus(frame::PathStatus {
                path_id: ZERO,
                status: mpquic_core::PathStatus::Backup,
                sequence_number: sequence,
            })
            .encode(&mut frames);
        }
        net.client().inject(SpaceId::Data(ZERO), &frames);
        net.exchange();
        assert!(sequence < 5000);
    }
    let expected = (Fault::TooMuchAdvice, 0x3e76);
    assert_eq!(net.fault(Side::Server), Some(expected));
    assert!(sequence > 1000);
}

/// MP-040: three of the largest PTO of all paths, counted from the acknowledgement.
#[test]
fn mp_040_a_key_update_waits_for_the_slowest_path() {
    let topology = mpquic_sim::Topology::new()
        .path("fast", mpquic_sim::LinkConfig::new(50.0, 5 * MS))
        .path("slow", mpquic_sim::LinkConfig::new(50.0, 200 * MS));
    let mut pair = mpquic_sim::Pair::connected(&topology, mpquic_sim::Setup::new());
    pair.open_all_paths();
    pair.transfer(Side::Client, 3_000_000, 20 * SECOND);
    let update = |pair: &mut mpquic_sim::Pair| {
        let now = pair.now();
        pair.client().initiate_key_update(now)
    };
    assert!(update(&mut pair));
    let start = pair.now();
    // Both sides go on talking in the new phase.
    while !update(&mut pair) {
        pair.client().path_mut(ZERO).unwrap().ping();
        pair.drive(10 * MS);
        assert!(pair.now() - start < 20 * SECOND);
    }
    let took = pair.now() - start;
    assert!(took >= 3 * 400 * MS, "{took:?}");
}

/// RFC 9000 section 13.2.1: an acknowledgement travels with other frames. A lost one travels with
/// the replacement of its packet; otherwise, a peer with all data would go on probing.
#[test]
fn rfc_9000_13_2_1_a_lost_acknowledgement_goes_with_the_probe() {
    let is_ack = |frame: &Frame| matches!(frame, Frame::Ack(_) | Frame::PathAck(_));
    let mut net = Net::connected(Options::default());
    net.write(Side::Client, 100);
    let request = net.take(Side::Client);
    net.give_all(request);
    net.write(Side::Server, 100);
    let answer = net.take(Side::Server);
    assert!(answer.iter().any(|sent| sent.has(is_ack)));
    let probe = net.fire(Side::Server);
    assert!(probe.iter().any(|sent| sent.has(is_ack)));
}

/// RFC 9000 section 13.2.1: a possibly lost acknowledgement travels with the next PING, as of a
/// keep-alive; otherwise, the peer would hear the PING and go on waiting for its backed-off probe
/// timeout. A confirmed acknowledgement is not repeated.
#[test]
fn rfc_9000_13_2_1_a_lost_acknowledgement_goes_with_a_ping() {
    let is_ack = |frame: &Frame| matches!(frame, Frame::Ack(_) | Frame::PathAck(_));
    let mut net = Net::connected(Options::default());
    net.wait(SECOND);
    net.write(Side::Server, 100);
    let data = net.take(Side::Server);
    net.give_all(data);
    let lost = net.fire(Side::Client);
    assert!(lost.iter().any(|sent| sent.has(is_ack)));
    assert_ne!(net.server().path_stats(ZERO).unwrap().in_flight, 0);
    let repeated = ping(&mut net, Side::Client);
    assert!(repeated.iter().any(|sent| sent.has(is_ack)));
    net.give_all(repeated);
    assert_eq!(net.server().path_stats(ZERO).unwrap().in_flight, 0);
    net.wait(SECOND);
    let confirmed = ping(&mut net, Side::Client);
    assert!(!confirmed.is_empty());
    assert!(!confirmed.iter().any(|sent| sent.has(is_ack)));
}

/// The same for the handshake: a server's probe acknowledges the client's packets.
#[test]
fn rfc_9000_13_2_1_probes_of_the_handshake_acknowledge() {
    let is_ack = |frame: &Frame| matches!(frame, Frame::Ack(_));
    let mut net = Net::with_flights(Options::default(), &[Side::Client]);
    let lost = net.take(Side::Server);
    assert!(lost.iter().any(|sent| sent.has(is_ack)));
    let probe = net.fire(Side::Server);
    assert!(probe[0].has(is_ack));
}
