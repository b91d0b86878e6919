//! The end of a connection.

use mpquic_core::unstable_wire::frame::Frame;
use mpquic_core::{ConnectionError, PathId, Side, SpaceId, VarInt};

use super::harness::{Forgery, Kind, MS, Net, Options, SECOND, SIDES, Sent};

fn only_closes(sent: &[Sent]) -> bool {
    let is_close = |frame: &Frame| matches!(frame, Frame::ConnectionClose(_) | Frame::Padding);
    sent.iter().all(|sent| sent.frames().iter().all(is_close))
}

/// A closing side sends CONNECTION_CLOSE and nothing else: once, then in answer to what arrives,
/// ever more rarely.
#[test]
fn rfc_9000_10_2_1_a_closing_side_only_repeats_its_close() {
    for side in SIDES {
        let mut net = Net::with_two_paths(Options::default());
        net.write(side, 100_000);
        net.close(side);
        let first = net.take(side);
        assert_eq!(first.len(), 1);
        assert!(only_closes(&first));
        let mut answers = Vec::new();
        for number in 0..64 {
            let kind = Kind::OneRtt(PathId::ZERO);
            let forged = net.forge(&Forgery::new(!side, kind, 6000 + number, &[Frame::Ping]));
            net.give(forged);
            let answer = net.take(side);
            assert!(
                !answer.is_empty() || number > 0,
                "the first one is answered"
            );
            answers.extend(answer);
        }
        assert!(only_closes(&answers));
        assert!((2..=8).contains(&answers.len()), "{}", answers.len());
        // RFC 9000 section 10.2: for three probe timeouts.
        let start = net.now;
        while !net.connection(side).is_drained() {
            assert!(net.fire(side).is_empty());
        }
        let took = net.now - start;
        assert!(took >= 3 * 27 * MS && took < SECOND, "{took:?}");
    }
}

/// A peer that acknowledges late has a long probe timeout. It keeps nobody's state for longer than
/// a minute after the end.
#[test]
fn a_late_acknowledgement_does_not_prolong_the_end() {
    for side in SIDES {
        let mut net = Net::connected(Options::default());
        net.write(side, 5000);
        let sent = net.take(side);
        net.now += 100 * SECOND;
        net.give_all(sent);
        let answers = net.take(!side);
        net.give_all(answers);
        let rtt = net.connection(side).path_stats(PathId::ZERO).unwrap().rtt;
        assert!(rtt > 10 * SECOND, "{rtt:?}");
        net.close(side);
        net.take(side);
        let start = net.now;
        while !net.connection(side).is_drained() {
            assert!(net.fire(side).is_empty());
        }
        assert!(net.now - start <= 60 * SECOND, "{:?}", net.now - start);
    }
}

/// RFC 9000 section 10.2: the closing period began with the close. A peer that has lost its state
/// meanwhile, or somebody who repeats its reset, does not begin another period.
#[test]
fn rfc_9000_10_2_a_stateless_reset_does_not_prolong_the_closing_period() {
    for side in SIDES {
        let mut net = Net::connected(Options::default());
        net.close(side);
        net.take(side);
        let end = net.connection(side).poll_timeout().map(|(time, _)| time);
        for _ in 0..3 {
            net.now += 10 * MS;
            let now = net.now;
            net.connection(side).handle_stateless_reset(now);
            let still = net.connection(side).poll_timeout().map(|(time, _)| time);
            assert_eq!(still, end, "{side:?}");
        }
        assert!(net.fire(side).is_empty());
        assert!(net.connection(side).is_drained());
    }
}

/// RFC 9000 section 10.2.2: a closing side that hears of the peer's close has nothing to repeat.
#[test]
fn rfc_9000_10_2_2_both_sides_close_and_are_silent() {
    for side in SIDES {
        let mut net = Net::connected(Options::default());
        SIDES.into_iter().for_each(|side| net.close(side));
        assert_eq!(net.take(side).len(), 1);
        let close = net.take(!side);
        net.give_all(close);
        for number in 0..64 {
            let kind = Kind::OneRtt(PathId::ZERO);
            let forged = net.forge(&Forgery::new(!side, kind, 6000 + number, &[Frame::Ping]));
            net.give(forged);
            assert!(net.take(side).is_empty(), "{side:?} answers {number}");
        }
    }
}

/// RFC 9000 section 19.19: the reason is text. One too long for the packet ends after a character.
#[test]
fn a_reason_too_long_is_cut_between_characters() {
    for (side, start) in SIDES
        .into_iter()
        .flat_map(|side| [(side, ""), (side, "a"), (side, "ab")])
    {
        let mut net = Net::connected(Options::default());
        let words = start.to_owned() + &"\u{20ac}".repeat(1000);
        let now = net.now;
        net.connection(side)
            .close(now, VarInt::from_u32(3), words.clone().into());
        let close = net.take(side);
        net.give_all(close);
        let Some(ConnectionError::ApplicationClosed(close)) = net.lost(!side) else {
            panic!("not closed");
        };
        let heard = std::str::from_utf8(&close.reason).expect("text");
        assert!(words.starts_with(heard));
        assert!(heard.len() > 1000, "{}", heard.len());
    }
}

/// Who reads everything and closes at once leaves no doubt that everything arrived.
#[test]
fn the_close_acknowledges_arrived_packets() {
    for side in SIDES {
        let mut net = Net::with_two_paths(Options::default());
        let id = net.write(side, 5000);
        let data = net.take(side);
        net.give_all(data);
        net.close(!side);
        let close = net.take(!side);
        assert_eq!(close.len(), 1);
        assert!(close[0].has(|frame| matches!(frame, Frame::ConnectionClose(_))));
        assert_eq!(net.connection(side).send_stream(id).stopped(), Ok(None));
        net.give_all(close);
        // Acknowledged to its end, the stream is gone.
        assert!(net.connection(side).send_stream(id).stopped().is_err());
    }
}

/// A draining side sends nothing, whatever arrives.
#[test]
fn rfc_9000_10_2_2_a_draining_side_is_silent() {
    for side in SIDES {
        let mut net = Net::with_two_paths(Options::default());
        net.write(side, 100_000);
        net.close(!side);
        let close = net.take(!side);
        net.give_all(close);
        assert!(matches!(
            net.lost(side),
            Some(ConnectionError::ApplicationClosed(_))
        ));
        assert!(net.take(side).is_empty());
        for number in 0..10 {
            let kind = Kind::OneRtt(PathId::ZERO);
            let forged = net.forge(&Forgery::new(!side, kind, 6000 + number, &[Frame::Ping]));
            assert_eq!(net.give(forged), None, "no stateless reset either");
            assert!(net.take(side).is_empty());
        }
        while !net.connection(side).is_drained() {
            assert!(net.fire(side).is_empty());
        }
    }
}

/// Closing or not: three times what an unproven address sent.
#[test]
fn rfc_9000_10_2_1_a_close_keeps_to_the_limit_of_unproven_addresses() {
    let mut net = Net::connecting(Options::default());
    let first = net.take(Side::Client);
    let mut received: usize = first.iter().map(|sent| sent.data.len()).sum();
    net.give_all(first);
    net.close(Side::Server);
    let mut sent = net.take(Side::Server);
    for number in 0..200 {
        let forged = net.forge(&Forgery::new(
            Side::Client,
            Kind::Handshake,
            number,
            &[Frame::Ping],
        ));
        received += forged.data.len();
        net.give(forged);
        sent.extend(net.take(Side::Server));
    }
    let bytes: usize = sent.iter().map(|sent| sent.data.len()).sum();
    assert!(sent.len() > 1);
    assert!(bytes <= 3 * received, "{bytes} for {received}");
}

/// The idle timer counts from the last packet received, and from the first one sent since that
/// must be acknowledged.
#[test]
fn rfc_9000_10_1_the_idle_timer_restarts_with_arrivals_and_questions() {
    let options = Options::default().transport(|transport| {
        transport.max_idle_timeout = Some(3 * SECOND);
    });
    // Sending in vain extends it once.
    let mut net = Net::connected(options.clone());
    net.delivers = |_| false;
    net.wait(2 * SECOND);
    let start = net.now;
    net.client().inject(SpaceId::Data(PathId::ZERO), &[1]);
    while net.lost(Side::Client).is_none() {
        net.take(Side::Client);
        net.fire(Side::Client);
        // Further packets do not.
        net.client().inject(SpaceId::Data(PathId::ZERO), &[1]);
    }
    let took = net.now - start;
    assert!(took >= 3 * SECOND && took < 3100 * MS, "{took:?}");
    assert_eq!(net.lost(Side::Client), Some(ConnectionError::TimedOut));
    // RFC 9000 section 10.1: silently.
    assert!(net.take(Side::Client).is_empty());

    // The other side was alone for longer.
    let mut net = Net::connected(options);
    for _ in 0..5 {
        net.wait(2 * SECOND);
        net.client().inject(SpaceId::Data(PathId::ZERO), &[1]);
        net.exchange();
    }
    for side in SIDES {
        assert_eq!(net.lost(side), None);
    }
}
