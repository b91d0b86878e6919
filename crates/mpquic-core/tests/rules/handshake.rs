//! The handshake: levels, CRYPTO, keys, sizes, Retry.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use mpquic_core::unstable_wire::frame::{Ack, Frame, PacketType};
use mpquic_core::unstable_wire::header::Header;
use mpquic_core::{
    ConnectionError, ConnectionId, Event, Fault, PathId, Side, SpaceId, TransportErrorCode,
    TransportParameters, Version,
};

use mpquic_sim::{LinkConfig, Pair, Setup, Topology};

use super::harness::{Forgery, Kind, MS, Net, Options, Packet, SECOND, SIDES, Sent};
use super::messages::{certificate, client_given, crypto, initial_header, message, server_cid};

/// True if the client knows of the server's completed handshake.
fn is_confirmed(net: &mut Net) -> bool {
    let events = net.events(Side::Client);
    events.contains(&Event::HandshakeConfirmed)
}

/// RFC 9000 section 17.2.2: a server's Initial has no token.
#[test]
fn rfc_9000_17_2_2_a_servers_initial_with_a_token_is_dropped() {
    for token in [&b""[..], b"token"] {
        let mut net = Net::with_flights(Options::default(), &[Side::Client]);
        let flight = net.take(Side::Server);
        let (dcid, _, _) = initial_header(&flight[0]);
        let forged = net.forge(&Forgery {
            dcid: Some(dcid),
            token: Bytes::copy_from_slice(token),
            ..Forgery::new(Side::Server, Kind::Initial, 9, &[Frame::Ping])
        });
        let dropped = net.client().stats().packets_dropped;
        net.give(forged);
        let dropped = net.client().stats().packets_dropped - dropped;
        assert_eq!(dropped, u64::from(!token.is_empty()));
    }
}

/// RFC 9000 section 8.1: before the client's address is proven, a server sends at most three times
/// the received bytes, and leaves a datagram to the handshake.
#[test]
fn rfc_9000_8_1_early_data_stays_within_three_times_the_received_bytes() {
    let mut net = Net::with_flights(Options::default(), &[Side::Client]);
    net.write(Side::Server, 30_000);
    let early = net.take(Side::Server);
    let is_stream = |frame: &Frame| matches!(frame, Frame::Stream(_));
    assert!(early.iter().any(|sent| sent.has(is_stream)));
    let sent: usize = early.iter().map(|sent| sent.data.len()).sum();
    assert!((1200..=2 * 1200).contains(&sent), "{sent}");
    net.give_all(early);
    net.exchange();
    assert!(is_confirmed(&mut net));
}

/// RFC 9000 section 14.1: not the first one alone.
#[test]
fn rfc_9000_14_1_a_server_drops_every_initial_in_a_small_datagram() {
    for size in [1199, 1200] {
        let mut net = Net::with_flights(Options::default(), &[Side::Client]);
        let forged = net.forge(&Forgery {
            size,
            ..Forgery::new(Side::Client, Kind::Initial, 9, &[Frame::Ping])
        });
        assert_eq!(forged.data.len(), size);
        let dropped = net.server().stats().packets_dropped;
        net.give(forged);
        let dropped = net.server().stats().packets_dropped - dropped;
        assert_eq!(dropped, u64::from(size < 1200));
    }
}

/// RFC 9000 section 14.1: every datagram of a client with an Initial packet, of any other content
/// or purpose, and every ack-eliciting one of a server.
#[test]
fn rfc_9000_14_1_datagrams_with_initial_packets_are_full() {
    for close_after in [None, Some(0), Some(1), Some(2)] {
        let mut net = Net::connecting(Options::default());
        let mut log = Vec::new();
        for round in 0..6 {
            if close_after == Some(round) {
                net.close(Side::Client);
            }
            for side in SIDES {
                let flight = net.take(side);
                log.extend(flight.iter().cloned());
                net.now += 5 * MS;
                // The server's Handshake packets are late.
                let late = |sent: &Sent| {
                    side.is_server()
                        && round == 0
                        && sent.packets().iter().any(Packet::is_handshake)
                };
                let initials = flight.into_iter().map(|sent| {
                    if late(&sent) {
                        only_initial(&sent)
                    } else {
                        sent
                    }
                });
                let initials: Vec<_> = initials.collect();
                net.give_all(initials);
            }
        }
        let mut from_client = 0;
        for sent in &log {
            let packets = sent.packets();
            let mut initials = packets
                .iter()
                .filter(|packet| packet.is_initial())
                .peekable();
            if initials.peek().is_none() {
                continue;
            }
            let elicits = initials.any(|packet| packet.has(Frame::is_ack_eliciting));
            if sent.from.is_client() || elicits {
                assert!(sent.data.len() >= 1200, "{} {packets:?}", sent.data.len());
            }
            from_client += u32::from(sent.from.is_client());
        }
        assert!(from_client >= 1);
        if close_after == Some(1) {
            let closed =
                |sent: &&Sent| sent.has(|frame| matches!(frame, Frame::ConnectionClose(_)));
            let close = log.iter().find(closed).unwrap();
            assert!(close.packets()[0].is_initial(), "both levels were there");
        }
    }
}

/// A datagram without what follows its Initial packet.
fn only_initial(sent: &Sent) -> Sent {
    let mut rest = sent.data.clone();
    let packet = mpquic_core::unstable_wire::header::next_packet(&mut rest, 8).unwrap();
    Sent {
        data: packet.data,
        ..sent.clone()
    }
}

/// RFC 9001 section 4.1.3: bytes of TLS travel at the level they belong to.
#[test]
fn rfc_9001_4_1_3_crypto_data_of_a_past_level_is_a_violation() {
    // To a client that has Handshake keys: more at the Initial level.
    let mut net = Net::connecting(Options::default());
    let first = net.take(Side::Client);
    let (_, client_scid, _) = initial_header(&first[0]);
    let hello = message(2, &[]);
    let give = |net: &mut Net, number, frame| {
        let forged = net.forge(&Forgery {
            dcid: Some(client_scid),
            scid: Some(server_cid()),
            ..Forgery::new(Side::Server, Kind::Initial, number, &[frame])
        });
        net.give(forged);
    };
    give(&mut net, 0, crypto(0, &hello));
    // A repetition is harmless.
    give(&mut net, 1, crypto(0, &hello));
    assert_eq!(net.fault(Side::Client), None);
    let parameters = certificate(&TransportParameters::default());
    give(&mut net, 2, crypto(hello.len() as u64, &parameters));
    assert_eq!(
        net.fault(Side::Client),
        Some((Fault::CryptoAtPastLevel, 0x06))
    );
    assert!(net.client().is_handshaking());

    // Left over when the keys change: it was sent before, with a gap.
    let mut net = Net::connecting(Options::default());
    let first = net.take(Side::Client);
    let (_, client_scid, _) = initial_header(&first[0]);
    let give = |net: &mut Net, number, frame| {
        let forged = net.forge(&Forgery {
            dcid: Some(client_scid),
            scid: Some(server_cid()),
            ..Forgery::new(Side::Server, Kind::Initial, number, &[frame])
        });
        net.give(forged);
    };
    give(&mut net, 0, crypto(hello.len() as u64 + 10, &parameters));
    assert_eq!(net.fault(Side::Client), None);
    give(&mut net, 1, crypto(0, &hello));
    assert_eq!(net.fault(Side::Client).unwrap().0, Fault::CryptoLeftOver);

    // To a client whose handshake is complete: more at the Handshake level.
    let mut net = client_given(server_cid(), false, |_| {});
    let _finished = net.take(Side::Client);
    assert!(!net.client().is_handshaking());
    let forged = net.forge(&Forgery {
        scid: Some(server_cid()),
        ..Forgery::new(Side::Server, Kind::Handshake, 5, &[crypto(5000, b"more")])
    });
    net.give(forged);
    assert_eq!(
        net.fault(Side::Client),
        Some((Fault::CryptoAtPastLevel, 0x06))
    );
}

/// RFC 9000 section 7.5: at least 4096 bytes are buffered; more than what is buffered closes.
#[test]
fn rfc_9000_7_5_crypto_data_is_buffered() {
    let options = Options::default().transport(|transport| transport.crypto_buffer = 4096);
    let mut net = Net::with_flights(options, &[Side::Client]);
    let _flight = net.take(Side::Server);
    let give = |net: &mut Net, number, offset| {
        let frame = crypto(offset, &[1; 4]);
        let forged = net.forge(&Forgery::new(
            Side::Client,
            Kind::Handshake,
            number,
            &[frame],
        ));
        net.give(forged);
    };
    give(&mut net, 0, 4092);
    assert_eq!(net.fault(Side::Server), None);
    give(&mut net, 1, 4093);
    assert_eq!(
        net.fault(Side::Server),
        Some((Fault::CryptoBeyondBuffer, 0x06))
    );
}

/// RFC 9001 section 5.7: a server processes no 1-RTT packet before the handshake is complete, and
/// acknowledges none; it keeps a few until then.
#[test]
fn rfc_9001_5_7_early_one_rtt_packets_wait_for_the_handshake() {
    let mut net = Net::with_flights(Options::default(), &SIDES);
    let frames = [Frame::Datagram(Bytes::from_static(b"early"))];
    let early = net.forge(&Forgery::new(
        Side::Client,
        Kind::OneRtt(PathId::ZERO),
        7,
        &frames,
    ));
    net.give(early);
    assert!(net.server().is_handshaking());
    assert_eq!(net.server().datagrams().recv(), None);
    for sent in net.take(Side::Server) {
        let packets = sent.packets();
        assert!(!packets.iter().any(Packet::is_one_rtt), "{packets:?}");
    }
    let finished = net.take(Side::Client);
    net.give_all(finished);
    assert!(!net.server().is_handshaking());
    assert_eq!(
        net.server().datagrams().recv().as_deref(),
        Some(&b"early"[..])
    );
}

/// RFC 9001 sections 4.9.1 and 4.9.2: unneeded keys are dropped, with all packets of their level,
/// sent or received.
#[test]
fn rfc_9001_4_9_keys_are_discarded() {
    let mut net = Net::with_flights(Options::default(), &SIDES);
    // The client's first Handshake packet ends its Initial level.
    let finished = net.take(Side::Client);
    let has_handshake = |sent: &Sent| sent.packets().iter().any(Packet::is_handshake);
    assert!(finished.iter().any(has_handshake));
    let ping = |net: &Net, from, kind| net.forge(&Forgery::new(from, kind, 70, &[Frame::Ping]));
    let is_dropped = |net: &mut Net, sent: Sent| {
        let to = !sent.from;
        let dropped = net.connection(to).stats().packets_dropped;
        net.give(sent);
        net.connection(to).stats().packets_dropped > dropped
    };
    let late = ping(&net, Side::Server, Kind::Initial);
    assert!(is_dropped(&mut net, late));
    // The server's ends with the first Handshake packet it opens, its Handshake level when the
    // handshake is complete.
    net.give_all(finished);
    for kind in [Kind::Initial, Kind::Handshake] {
        let late = ping(&net, Side::Client, kind);
        assert!(is_dropped(&mut net, late), "{kind:?}");
    }
    assert!(
        net.events(Side::Server)
            .contains(&Event::HandshakeConfirmed)
    );
    // The client's when it hears of that.
    let early = ping(&net, Side::Server, Kind::Handshake);
    assert!(!is_dropped(&mut net, early));
    let done = net.take(Side::Server);
    let is_done = |frame: &Frame| *frame == Frame::HandshakeDone;
    assert!(done.iter().any(|sent| sent.has(is_done)), "at once");
    net.give_all(done);
    let late = ping(&net, Side::Server, Kind::Handshake);
    assert!(is_dropped(&mut net, late));
    let log = net.wait(SECOND);
    let later: Vec<_> = log.iter().flat_map(Sent::packets).collect();
    assert!(later.iter().all(Packet::is_one_rtt));
}

/// RFC 9001 section 4: CRYPTO bytes belong to an encryption level, and are repeated at no other.
#[test]
fn rfc_9001_4_crypto_is_repeated_at_its_own_level() {
    let mut net = Net::with_flights(Options::default(), &[Side::Client]);
    // Both flights get lost, and everything else for a second.
    let mut log = net.take(Side::Server);
    net.delivers = |_| false;
    log.extend(net.wait(SECOND));
    net.delivers = |_| true;
    log.extend(net.wait(3 * SECOND));
    assert!(is_confirmed(&mut net));

    let mut seen = BTreeMap::new();
    let mut repeated = BTreeSet::new();
    for sent in &log {
        for packet in sent.packets() {
            let level = (
                sent.from.is_server(),
                packet.is_handshake(),
                packet.is_one_rtt(),
            );
            for frame in packet.frames {
                let Frame::Crypto(crypto) = frame else {
                    continue;
                };
                for (at, byte) in (crypto.offset..).zip(crypto.data) {
                    if seen
                        .insert((level, at), byte)
                        .is_some_and(|before| before == byte)
                    {
                        repeated.insert(level);
                    }
                    assert_eq!(seen[&(level, at)], byte, "{level:?} at {at}");
                }
            }
        }
    }
    // The server's, of both levels.
    assert!(repeated.contains(&(true, false, false)) && repeated.contains(&(true, true, false)));
}

/// RFC 9000 section 19.20, RFC 9001 section 4.1.2: HANDSHAKE_DONE is repeated until it arrives, and
/// not sent before the handshake is complete.
#[test]
fn rfc_9000_13_3_handshake_done_is_repeated_until_acknowledged() {
    let mut net = Net::connecting(Options::default());
    net.delivers = |sent| !sent.has(|frame| *frame == Frame::HandshakeDone);
    let log = net.exchange();
    assert!(log.iter().any(|sent| !(net.delivers)(sent)));
    let complete = log.iter().position(|sent| {
        let is_finished = |packet: &Packet| {
            packet.is_handshake() && packet.has(|frame| matches!(frame, Frame::Crypto(_)))
        };
        sent.from.is_client() && sent.packets().iter().any(is_finished)
    });
    let done = log.iter().position(|sent| !(net.delivers)(sent));
    assert!(done > complete);
    assert!(!is_confirmed(&mut net));
    net.delivers = |_| true;
    net.wait(2 * SECOND);
    assert!(is_confirmed(&mut net));
}

/// A server that will ask for a Retry, and the first datagram of a client.
fn asked_for_retry() -> (Net, Sent) {
    let mut net = Net::connecting(Options::default());
    net.retry = true;
    let first = net.take(Side::Client).remove(0);
    (net, first)
}

/// RFC 9000 sections 8.1.2 and 17.2.5: the token of a Retry is in every Initial from then on,
/// numbers go on, and the ClientHello is the same.
#[test]
fn rfc_9000_17_2_5_after_a_retry_the_client_goes_on_with_its_token() {
    let (mut net, first) = asked_for_retry();
    let retry = net.give(first.clone()).unwrap();
    let Header::Retry { scid, token, .. } =
        first.answered(retry.clone()).packets().remove(0).header
    else {
        panic!("no Retry");
    };
    assert_ne!(scid, initial_header(&first).0, "RFC 9000 section 17.2.5.1");
    net.give(first.answered(retry));
    let mut initials = net.take(Side::Client);
    initials.extend(net.fire(Side::Client));
    assert!(initials.len() >= 2);
    let cryptos = |sent: &Sent| {
        let frames = sent.frames().into_iter();
        let cryptos = frames.filter(|frame| matches!(frame, Frame::Crypto(_)));
        cryptos.collect::<Vec<_>>()
    };
    let mut last = first.packets()[0].number;
    for sent in &initials {
        let (dcid, _, repeated) = initial_header(sent);
        assert_eq!((dcid, repeated), (scid, token.clone()));
        assert!(sent.packets()[0].number > last);
        last = sent.packets()[0].number;
    }
    assert_eq!(cryptos(&initials[0]), cryptos(&first));
    net.give(initials.remove(0));
    assert_eq!(net.validated, Some(true));
    net.wait(SECOND);
    assert!(is_confirmed(&mut net));
}

/// A Retry with a token of this length that the null cryptography takes for genuine.
fn forged_retry(first: &Sent, scid: ConnectionId, token: &[u8]) -> Sent {
    let (original, client, _) = initial_header(first);
    let mut data = Vec::new();
    mpquic_core::unstable_wire::header::encode_retry(&mut data, Version::V1, &client, &scid, token);
    // The null tag: digests of the connection ID and of the packet.
    let digest = |bytes: &[u8]| {
        bytes.iter().fold(0x811c_9dc5u32, |hash, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        })
    };
    let mut tag = [0; 16];
    tag[..4].copy_from_slice(&digest(&original).to_be_bytes());
    tag[4..8].copy_from_slice(&digest(&data).to_be_bytes());
    data.extend_from_slice(&tag);
    first.answered(BytesMut::from(&data[..]))
}

/// RFC 9000 section 17.2.5.1: a Retry whose source connection ID is the client's own choice.
#[test]
fn rfc_9000_17_2_5_a_retry_that_changes_no_connection_id_is_dropped() {
    let (mut net, first) = asked_for_retry();
    let (original, ..) = initial_header(&first);
    net.give(forged_retry(&first, original, b"token"));
    assert!(net.take(Side::Client).is_empty());
    // With another one it is followed: the tag is right.
    net.give(forged_retry(&first, server_cid(), b"token"));
    let second = net.take(Side::Client);
    assert_eq!(initial_header(&second[0]).0, server_cid());
}

/// RFC 9000 section 17.2.5.2: an empty token, or one too long for an Initial with a piece of the
/// ClientHello.
#[test]
fn rfc_9000_17_2_5_2_a_retry_with_an_unusable_token_is_dropped() {
    let (mut net, first) = asked_for_retry();
    for length in [0, 1001, 1100] {
        net.give(forged_retry(&first, server_cid(), &vec![7; length]));
        assert!(net.take(Side::Client).is_empty(), "{length}");
    }
    net.give(forged_retry(&first, server_cid(), &[7; 1000]));
    let second = net.take(Side::Client);
    assert_eq!(initial_header(&second[0]).2.len(), 1000);
}

/// MP-004: frames of RFC 10069 in Initial and Handshake packets are out of place.
#[test]
fn mp_004_multipath_frames_need_one_rtt_packets() {
    let frame = Frame::MaxPathId(PathId(9));
    assert!(!frame.is_allowed_in(PacketType::ZeroRtt));
    for (from, kind) in [
        (Side::Client, Kind::Initial),
        (Side::Client, Kind::Handshake),
        (Side::Server, Kind::Initial),
        (Side::Server, Kind::Handshake),
    ] {
        let mut net = Net::with_flights(Options::default(), &[Side::Client]);
        let flight = net.take(Side::Server);
        if from.is_server() && kind == Kind::Handshake {
            let initials: Vec<_> = flight.iter().map(only_initial).collect();
            net.give_all(initials);
        }
        let forged = net.forge(&Forgery::new(from, kind, 60, std::slice::from_ref(&frame)));
        net.give(forged);
        assert_eq!(
            net.fault(!from),
            Some((Fault::FrameNotAllowed, 0x3e7a)),
            "{from:?} {kind:?}"
        );
    }
}

/// RFC 9002 section 6.2.2.1: a client whose server may wait for its address to be proven goes on
/// probing, with a Handshake packet once it has keys, else with a full Initial.
#[test]
fn rfc_9002_6_2_2_1_a_client_keeps_probing_until_its_address_is_proven() {
    let mut net = Net::with_flights(Options::default(), &[Side::Client]);
    // Only the server's acknowledgement arrives: nothing is in flight any more.
    let ack = |number| {
        let received = std::iter::once(0..number + 1).collect();
        Frame::Ack(Ack::new(&received, 0, None).unwrap())
    };
    let scid = net.take(Side::Server)[0].packets()[0].header.clone();
    let Header::Initial { dcid, scid, .. } = scid else {
        panic!("no Initial");
    };
    let forged = net.forge(&Forgery {
        dcid: Some(dcid),
        scid: Some(scid),
        ..Forgery::new(Side::Server, Kind::Initial, 30, &[ack(0)])
    });
    net.give(forged);
    assert!(net.take(Side::Client).is_empty());
    let probe = net.fire(Side::Client);
    let packet = &probe[0].packets()[0];
    assert!(packet.is_initial() && packet.has(Frame::is_ack_eliciting));
    assert!(probe[0].data.len() >= 1200);

    // With Handshake keys, before anything was sent with them.
    let hello = net.forge(&Forgery {
        dcid: Some(dcid),
        scid: Some(scid),
        ..Forgery::new(
            Side::Server,
            Kind::Initial,
            31,
            &[ack(packet.number), crypto(0, &message(2, &[]))],
        )
    });
    net.give(hello);
    let _acks = net.take(Side::Client);
    let mut probes = Vec::new();
    for _ in 0..3 {
        probes.extend(net.fire(Side::Client));
    }
    let handshake = |sent: &Sent| {
        let packets = sent.packets();
        packets
            .iter()
            .any(|packet| packet.is_handshake() && packet.has(Frame::is_ack_eliciting))
    };
    assert!(probes.iter().any(handshake), "{probes:?}");
}

/// RFC 9000 section 6.2: another version in mid handshake means nothing.
#[test]
fn rfc_9000_5_2_1_packets_of_another_version_are_dropped() {
    let mut net = Net::with_flights(Options::default(), &[Side::Client]);
    for sent in net.take(Side::Server) {
        let mut changed = sent.clone();
        changed.data[1..5].copy_from_slice(&0x6b33_43cf_u32.to_be_bytes());
        net.give(changed);
    }
    assert!(net.client().is_handshaking());
    assert_eq!(net.lost(Side::Client), None);
    let handshaking = net.take(Side::Client);
    assert!(handshaking.is_empty());
}

/// A close by the application before the handshake is confirmed: its code and words stay secret
/// (RFC 9000 section 10.2.3), and every level the peer may read has one.
#[test]
fn rfc_9000_10_2_3_an_early_close_conceals_the_application() {
    let mut net = Net::with_flights(Options::default(), &[Side::Client]);
    let _flight = net.take(Side::Server);
    net.close(Side::Server);
    let closes = net.take(Side::Server);
    let packets: Vec<_> = closes.iter().flat_map(Sent::packets).collect();
    assert!(packets[0].is_initial() && packets[1].is_handshake());
    for packet in &packets {
        for frame in &packet.frames {
            let Frame::ConnectionClose(close) = frame else {
                continue;
            };
            match close {
                mpquic_core::unstable_wire::frame::Close::Connection(close) => {
                    assert!(!packet.is_one_rtt());
                    assert_eq!(close.code, TransportErrorCode::APPLICATION_ERROR);
                    assert!(close.reason.is_empty());
                }
                mpquic_core::unstable_wire::frame::Close::Application(_) => {
                    assert!(packet.is_one_rtt())
                }
            }
        }
        assert!(packet.has(|frame| matches!(frame, Frame::ConnectionClose(_))));
    }
    net.give_all(closes);
    match net.lost(Side::Client) {
        Some(ConnectionError::ConnectionClosed(close)) => {
            assert_eq!(close.code, TransportErrorCode::APPLICATION_ERROR);
        }
        other => panic!("{other:?}"),
    }
}

/// A client that closes before its last flight has left sends the flight with the close, so its
/// server can read the application's code.
#[test]
fn rfc_9000_10_2_3_a_close_with_the_last_flight_tells_the_code() {
    let mut net = Net::with_flights(Options::default(), &[Side::Client]);
    let flight = net.take(Side::Server);
    net.give_all(flight);
    net.close(Side::Client);
    let closes = net.take(Side::Client);
    assert!(
        closes.iter().all(|sent| sent.data.len() >= 1200),
        "RFC 9000 section 14.1"
    );
    net.give_all(closes);
    let lost = net.lost(Side::Server);
    assert!(
        matches!(lost, Some(ConnectionError::ApplicationClosed(_))),
        "{lost:?}"
    );
}

/// RFC 9001 section 6: a key update of TLS is not one of QUIC.
#[test]
fn rfc_9001_6_unexpected_tls_messages_close() {
    let topology = Topology::new().path("only", LinkConfig::new(50.0, 5 * MS));
    let mut pair = Pair::connected(&topology, Setup::new().tls());
    let mut frames = Vec::new();
    crypto(0, &[24, 0, 0, 1, 0]).encode(&mut frames);
    pair.client().inject(SpaceId::Data(PathId::ZERO), &frames);
    pair.drive(100 * MS);
    let lost = pair
        .events(Side::Server)
        .into_iter()
        .find_map(|event| match event {
            Event::ConnectionLost {
                reason: ConnectionError::TransportError(error),
            } => Some(error.fault),
            _ => None,
        });
    assert_eq!(lost, Some(Fault::TlsAfterHandshake));
}

/// RFC 9000 section 12.2: packets in one datagram have one destination.
#[test]
fn rfc_9000_12_2_coalesced_packets_have_one_connection_id() {
    let mut net = Net::connecting(Options::default());
    let mut log = net.exchange();
    net.write(Side::Client, 20_000);
    let path = net.open_path(1).unwrap();
    log.extend(net.exchange());
    net.client().path_mut(path).unwrap().ping();
    net.write(Side::Server, 20_000);
    log.extend(net.wait(SECOND));
    let mut coalesced = 0;
    for sent in &log {
        let packets = sent.packets();
        coalesced += usize::from(packets.len() > 1);
        let first = packets[0].header.dcid();
        assert!(packets.iter().all(|packet| packet.header.dcid() == first));
    }
    assert!(coalesced > 0);
}

/// RFC 9002 section 6.2.4: a probe carries the data in flight at both levels, in one datagram if
/// there is room. Otherwise a lost Handshake packet would wait until the Initial packets are
/// acknowledged.
#[test]
fn rfc_9002_6_2_4_a_probe_carries_both_levels() {
    let mut net = Net::with_flights(Options::default(), &[Side::Client]);
    let lost = net.take(Side::Server);
    assert!(!lost.is_empty());
    let is_crypto = |frame: &Frame| matches!(frame, Frame::Crypto(_));
    let probe = net.fire(Side::Server).remove(0);
    for is_of_level in [Packet::is_initial, Packet::is_handshake] {
        let packets = probe.packets();
        let mut of_level = packets.iter().filter(|packet| is_of_level(packet));
        assert!(of_level.any(|packet| packet.has(is_crypto)));
    }
}
