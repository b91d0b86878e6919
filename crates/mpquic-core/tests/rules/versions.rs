//! Version negotiation: RFC 9368, and RFC 9369 section 4.

use bytes::{Bytes, BytesMut};
use mpquic_core::Version::{self, V1, V2};
use mpquic_core::unstable_wire::frame::Frame;
use mpquic_core::unstable_wire::header::{
    Header, PacketHeader, encode_retry, encode_version_negotiation,
};
use mpquic_core::{
    ConnectionError, ConnectionId, Event, Fault, PathId, Side, TransportParameters,
    VersionInformation,
};

use super::harness::{Forgery, Kind, MS, Net, Options, Packet, SECOND, SIDES, Sent, version_salt};
use super::messages::{
    certificate, client_hello, crypto, initial_header, message, parameters_in, server_cid,
};

const NOT_USED: Fault = Fault::ChosenVersionNotUsed;
const MISSING: Fault = Fault::VersionInformationMissing;
const FORGED: Fault = Fault::VersionNegotiationForged;
/// Both versions, each preferred.
const OLD_FIRST: &[Version] = &[V1, V2];
const NEW_FIRST: &[Version] = &[V2, V1];

/// What each side speaks; the client begins with `original`.
fn speaking(client: &[Version], original: Version, server: &[Version]) -> Options {
    let mut options = Options::default();
    options.client_endpoint.supported_versions = client.to_vec();
    options.server_endpoint.supported_versions = server.to_vec();
    options.version = Some(original);
    options
}

fn version(packet: &Packet) -> Option<Version> {
    match packet.header {
        Header::Initial { version, .. }
        | Header::ZeroRtt { version, .. }
        | Header::Handshake { version, .. }
        | Header::Retry { version, .. } => Some(version),
        Header::Short { .. } | Header::VersionNegotiation { .. } => None,
    }
}

fn has_crypto(packet: &Packet) -> bool {
    packet.has(|frame| matches!(frame, Frame::Crypto(_)))
}

fn information(chosen: Version, available: &[u32]) -> VersionInformation {
    VersionInformation {
        chosen: chosen.to_u32(),
        available: available.to_vec(),
    }
}

const NUMBERS: &[u32] = &[1, 0x6b33_43cf];

/// A server switches the connection to its preferred version, and the client follows: all packets
/// with CRYPTO of the server, and all Handshake packets, have that version.
#[test]
fn rfc_9369_4_1_a_server_chooses_among_the_clients_versions() {
    for (client, original, server, chosen) in [
        (OLD_FIRST, V1, OLD_FIRST, V1),
        (OLD_FIRST, V1, NEW_FIRST, V2),
        (NEW_FIRST, V2, OLD_FIRST, V1),
        (NEW_FIRST, V2, NEW_FIRST, V2),
        (&[V1], V1, NEW_FIRST, V1),
        (NEW_FIRST, V1, &[V1], V1),
        (&[V2], V2, OLD_FIRST, V2),
    ] {
        let mut net = Net::connecting(speaking(client, original, server));
        let log = net.exchange();
        let mut client_knows = false;
        for sent in &log {
            for packet in sent.packets() {
                let Some(version) = version(&packet) else {
                    continue;
                };
                let is_settled = !packet.is_initial()
                    || sent.from.is_server() && has_crypto(&packet)
                    || client_knows;
                let expected = if is_settled { chosen } else { original };
                assert_eq!(version, expected, "{packet:?}");
            }
            client_knows |= sent.from.is_server();
        }
        for side in SIDES {
            assert_eq!(net.connection(side).version(), chosen);
            assert!(net.connection(side).is_multipath());
        }
        assert!(
            net.events(Side::Client)
                .contains(&Event::HandshakeConfirmed)
        );
    }
}

/// What both sides announce: RFC 9368 section 3.
#[test]
fn rfc_9368_3_both_sides_announce_their_versions() {
    let mut net = Net::connecting(speaking(NEW_FIRST, V1, NEW_FIRST));
    let first = net.take(Side::Client);
    let frames: Vec<_> = first.iter().flat_map(Sent::frames).collect();
    let client = parameters_in(&frames, 1, Side::Client).unwrap();
    let client = client.version_information.unwrap();
    assert_eq!(client.chosen, 1);
    assert_eq!(client.available[..2], [0x6b33_43cf, 1]);
    // RFC 9000 section 15: what is reserved is to be ignored.
    assert_eq!(client.available[2] & 0x0f0f_0f0f, 0x0a0a_0a0a);
    net.give_all(first);
    let flight = net.take(Side::Server);
    let frames: Vec<_> = flight.iter().flat_map(Sent::frames).collect();
    let server = parameters_in(&frames, 11, Side::Server).unwrap();
    let server = server.version_information.unwrap();
    assert_eq!(server.chosen, 0x6b33_43cf);
    assert!(server.available.contains(&1) && server.available.contains(&0x6b33_43cf));
}

/// A client's first Initial packets, with its ClientHello in pieces.
fn pieces(net: &Net, count: usize, change: impl Fn(&mut TransportParameters)) -> Vec<Sent> {
    let dcid = ConnectionId::new(&[0xd; 8]);
    let scid = ConnectionId::new(&[0xc; 8]);
    let mut parameters = TransportParameters::default();
    parameters.initial_source_connection_id = Some(scid);
    parameters.version_information = Some(information(V1, NUMBERS));

    change(&mut parameters);
    let hello = client_hello(&parameters);
    let size = hello.len().div_ceil(count);
    let numbered = hello.chunks(size).zip(0..);
    let forged = numbered.map(|(piece, index)| {
        net.forge(&Forgery {
            dcid: Some(dcid),
            scid: Some(scid),
            initial_dcid: Some(dcid),
            ..Forgery::new(
                Side::Client,
                Kind::Initial,
                index,
                &[crypto(index * size as u64, piece)],
            )
        })
    });
    forged.collect()
}

/// Before the whole ClientHello, a server acknowledges in the client's version and sends no CRYPTO.
/// Packets of the client's version count until the server is sure of the client's switch.
#[test]
fn rfc_9369_4_1_a_server_answers_in_the_original_version_until_it_has_chosen() {
    let mut net = Net::new(speaking(OLD_FIRST, V1, NEW_FIRST));
    let mut pieces = pieces(&net, 2, |_| {});
    net.give(pieces.remove(0));
    let acks = net.wait(30 * MS);
    let packets: Vec<_> = acks.iter().flat_map(Sent::packets).collect();
    assert!(packets.iter().all(|packet| version(packet) == Some(V1)));
    assert!(
        packets
            .iter()
            .any(|packet| packet.has(|frame| matches!(frame, Frame::Ack(_))))
    );
    assert!(!packets.iter().any(has_crypto));

    net.give(pieces.remove(0));
    let flight = net.take(Side::Server);
    let packets: Vec<_> = flight.iter().flat_map(Sent::packets).collect();
    assert!(packets.iter().all(|packet| version(packet) == Some(V2)));
    assert!(packets[0].is_initial() && has_crypto(&packets[0]));
    let dropped = net.server().stats().packets_dropped;
    for (version, number) in [(V1, 7), (V2, 8)] {
        let dcid = initial_header(&flight[0]).1;
        let ping = net.forge(&Forgery {
            version,
            dcid: Some(dcid),
            scid: Some(ConnectionId::new(&[0xc; 8])),
            initial_dcid: Some(ConnectionId::new(&[0xd; 8])),
            ..Forgery::new(Side::Client, Kind::Initial, number, &[Frame::Ping])
        });
        net.give(ping);
    }
    assert_eq!(net.server().stats().packets_dropped, dropped);
}

/// RFC 9369 section 4.1: Handshake packets of another version are dropped, and so are Initial
/// packets once a client knows the version.
#[test]
fn rfc_9369_4_1_packets_of_other_versions_are_dropped() {
    for (server, chosen, other) in [(OLD_FIRST, V1, V2), (NEW_FIRST, V2, V1)] {
        let mut net = Net::with_flights(speaking(OLD_FIRST, V1, server), &[Side::Client]);
        let flight = net.take(Side::Server);
        net.give_all(flight.into_iter().take(1));
        assert_eq!(net.client().version(), chosen);
        for (from, kind, version, is_dropped) in [
            (Side::Server, Kind::Initial, chosen, false),
            (Side::Server, Kind::Initial, other, true),
            (Side::Server, Kind::Handshake, chosen, false),
            (Side::Server, Kind::Handshake, other, true),
            (Side::Client, Kind::Handshake, other, true),
            (Side::Client, Kind::Handshake, chosen, false),
        ] {
            let dropped = net.connection(!from).stats().packets_dropped;
            let ping = net.forge(&Forgery {
                version,
                ..Forgery::new(from, kind, 90 + u64::from(is_dropped), &[Frame::Ping])
            });
            net.give(ping);
            let dropped = net.connection(!from).stats().packets_dropped - dropped;
            assert_eq!(
                dropped,
                u64::from(is_dropped),
                "{from:?} {kind:?} {version}"
            );
        }
    }
}

/// A client given a server's answer in a version, with this version_information.
fn client_given(net: &mut Net, answer: Version, announced: Option<VersionInformation>) {
    let first = net.take(Side::Client).pop().expect("a first flight");
    let (original, client_scid, _) = initial_header(&first);
    let mut parameters = TransportParameters::default();
    parameters.original_destination_connection_id = Some(original);
    parameters.initial_source_connection_id = Some(server_cid());
    parameters.version_information = announced;

    for (kind, frame) in [
        (Kind::Initial, crypto(0, &message(2, &[]))),
        (Kind::Handshake, crypto(0, &certificate(&parameters))),
    ] {
        let sent = net.forge(&Forgery {
            version: answer,
            dcid: Some(client_scid),
            scid: Some(server_cid()),
            ..Forgery::new(Side::Server, kind, 0, &[frame])
        });
        net.give(sent);
    }
}

/// RFC 9368 section 4: a server's announced choice must be its used version.
#[test]
fn rfc_9368_4_a_client_checks_the_servers_choice() {
    for (answer, announced, fault) in [
        (V1, Some(information(V1, NUMBERS)), None),
        (V1, Some(information(V1, &[])), None),
        (V2, Some(information(V2, NUMBERS)), None),
        (V1, Some(information(V2, NUMBERS)), Some(NOT_USED)),
        (V2, Some(information(V1, NUMBERS)), Some(NOT_USED)),
        // Only a server of version 1 alone may be silent.
        (V1, None, None),
        (V2, None, Some(MISSING)),
    ] {
        let mut net = Net::connecting(speaking(OLD_FIRST, V1, OLD_FIRST));
        client_given(&mut net, answer, announced.clone());
        let found = net.fault(Side::Client).map(|(fault, _)| fault);
        assert_eq!(found, fault, "{answer} {announced:?}");
        assert_eq!(net.client().is_handshaking(), fault.is_some());
    }
}

/// A client follows to no version outside of its offer.
#[test]
fn rfc_9368_4_a_client_follows_to_no_version_it_did_not_offer() {
    let mut net = Net::connecting(speaking(&[V1], V1, OLD_FIRST));
    client_given(&mut net, V2, Some(information(V2, NUMBERS)));
    assert!(net.client().is_handshaking());
    assert_eq!(net.client().version(), V1);
}

/// RFC 9368 section 4: a client's announced choice must be its used version, and on its list.
#[test]
fn rfc_9368_4_a_server_checks_the_clients_choice() {
    for (announced, fault) in [
        (None, None),
        (Some(information(V1, NUMBERS)), None),
        (Some(information(V2, NUMBERS)), Some(NOT_USED)),
        (
            Some(information(V1, &[0x6b33_43cf])),
            Some(Fault::ChosenVersionNotAvailable),
        ),
    ] {
        let mut net = Net::new(speaking(OLD_FIRST, V1, NEW_FIRST));
        let pieces = pieces(&net, 1, |parameters| {
            parameters.version_information.clone_from(&announced);
        });
        net.give_all(pieces);
        let found = net.fault(Side::Server).map(|(fault, _)| fault);
        assert_eq!(found, fault, "{announced:?}");
    }
}

/// A Version Negotiation packet that answers a client's first packet.
fn version_negotiation(first: &Sent, offered: &[u32]) -> Sent {
    let (dcid, scid, _) = initial_header(first);
    let mut data = Vec::new();
    encode_version_negotiation(&mut data, &scid, &dcid, offered);
    first.answered(BytesMut::from(&data[..]))
}

/// RFC 9368 section 2.1: the client tries again with a version both speak, as with a new
/// connection.
#[test]
fn rfc_9368_2_1_a_client_starts_over_in_a_version_the_server_speaks() {
    let mut net = Net::connecting(speaking(OLD_FIRST, V1, &[V2]));
    let first = net.take(Side::Client).remove(0);
    let answer = net.give(first.clone()).expect("Version Negotiation");
    let answer = first.answered(answer);
    assert!(matches!(
        answer.packets()[0].header,
        Header::VersionNegotiation { ref versions, .. } if versions[0] == 0x6b33_43cf
    ));
    net.give(answer.clone());
    let second = net.take(Side::Client).remove(0);
    let packet = &second.packets()[0];
    assert_eq!((version(packet), packet.number), (Some(V2), 0));
    assert_ne!(initial_header(&second).0, initial_header(&first).0);
    let announced = parameters_in(&packet.frames, 1, Side::Client).unwrap();
    assert_eq!(announced.version_information.unwrap().chosen, 0x6b33_43cf);
    // Packets of the first attempt, and further such answers, no longer count.
    net.give(answer);
    net.give(version_negotiation(&second, &[1]));
    assert!(net.take(Side::Client).is_empty());
    net.give(second);
    net.wait(SECOND);
    for side in SIDES {
        assert_eq!(net.connection(side).version(), V2);
        assert!(!net.connection(side).is_handshaking());
    }
}

/// What is no answer to our packet, or no reason to change the version, is ignored.
#[test]
fn rfc_9368_4_version_negotiation_that_makes_no_sense_is_ignored() {
    let mut net = Net::connecting(speaking(OLD_FIRST, V1, OLD_FIRST));
    let first = net.take(Side::Client).remove(0);
    // The version attempted is on the list.
    net.give(version_negotiation(&first, &[0x6b33_43cf, 1]));
    // RFC 8999 section 6: connection IDs that are not those of our packet.
    let (dcid, scid, _) = initial_header(&first);
    for (to, from) in [(scid, server_cid()), (dcid, scid)] {
        let mut data = Vec::new();
        encode_version_negotiation(&mut data, &to, &from, &[0x6b33_43cf]);
        net.give(first.answered(BytesMut::from(&data[..])));
    }
    assert!(net.take(Side::Client).is_empty());
    assert_eq!(net.client().version(), V1);
    assert_eq!(net.lost(Side::Client), None);
    // None that we speak: the end.
    net.give(version_negotiation(&first, &[0x709a_50c4]));
    assert_eq!(
        net.lost(Side::Client),
        Some(ConnectionError::VersionMismatch)
    );
}

/// RFC 9368 section 4: an attacker who forges Version Negotiation is found out by what the server
/// announces.
#[test]
fn rfc_9368_4_forged_version_negotiation_is_found_out() {
    for (client, forged, is_found) in [(NEW_FIRST, 1, true), (OLD_FIRST, 1, false)] {
        let mut net = Net::connecting(speaking(client, V2, NEW_FIRST));
        let first = net.take(Side::Client).remove(0);
        net.give(version_negotiation(&first, &[forged]));
        net.exchange();
        let fault = net.fault(Side::Client).map(|(fault, _)| fault);
        assert_eq!(fault, is_found.then_some(FORGED), "{client:?}");
    }
}

/// The same checks, for a server with few or no announced versions.
#[test]
fn rfc_9368_4_the_second_attempt_needs_the_servers_versions() {
    for (original, attempted, announced, fault) in [
        (V1, V2, Some(information(V2, &[0x6b33_43cf])), None),
        (V1, V2, Some(information(V2, &[])), Some(FORGED)),
        (V1, V2, None, Some(MISSING)),
        (V2, V1, Some(information(V1, &[])), Some(FORGED)),
        // RFC 9368 section 8
        (V2, V1, None, None),
    ] {
        let mut net = Net::connecting(speaking(OLD_FIRST, original, OLD_FIRST));
        let first = net.take(Side::Client).remove(0);
        net.give(version_negotiation(&first, &[attempted.to_u32()]));
        client_given(&mut net, attempted, announced.clone());
        let found = net.fault(Side::Client).map(|(fault, _)| fault);
        assert_eq!(found, fault, "{attempted} {announced:?}");
    }
}

/// RFC 9369 section 4.1: Retry comes in the client's version, which stays until the server has seen
/// its token.
#[test]
fn rfc_9369_4_1_retry_is_in_the_original_version() {
    let mut net = Net::connecting(speaking(OLD_FIRST, V1, NEW_FIRST));
    net.retry = true;
    let first = net.take(Side::Client).remove(0);
    let (original, client_scid, _) = initial_header(&first);
    // A Retry in another version is ignored, even with a right tag.
    let mut data = Vec::new();
    encode_retry(&mut data, V2, &client_scid, &server_cid(), b"token");
    let digest = |bytes: &[u8]| {
        bytes.iter().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        })
    };
    let mut tag = [0; 16];
    tag[..4].copy_from_slice(&(digest(&original) ^ version_salt(V2)).to_be_bytes());
    tag[4..8].copy_from_slice(&digest(&data).to_be_bytes());
    data.extend_from_slice(&tag);
    net.give(first.answered(BytesMut::from(&data[..])));
    assert!(net.take(Side::Client).is_empty());

    let retry = net.give(first.clone()).expect("a Retry");
    let retry = first.answered(retry);
    assert_eq!(version(&retry.packets()[0]), Some(V1));
    net.give(retry);
    let second = net.take(Side::Client).remove(0);
    let packet = &second.packets()[0];
    assert_eq!(version(packet), Some(V1));
    // The token in a packet of another version is not good.
    let (dcid, scid, token) = initial_header(&second);
    let mut switched = net.forge(&Forgery {
        version: V2,
        dcid: Some(dcid),
        scid: Some(scid),
        initial_dcid: Some(dcid),
        token,
        ..Forgery::new(Side::Client, Kind::Initial, 1, &packet.frames)
    });
    switched.source = second.source;
    let refused = net.give(switched.clone()).expect("a close");
    let refused = switched.answered(refused);
    assert!(refused.has(|frame| matches!(frame, Frame::ConnectionClose(_))));

    net.give(second);
    net.wait(SECOND);
    for side in SIDES {
        assert_eq!(net.connection(side).version(), V2);
        assert!(!net.connection(side).is_handshaking(), "{side:?}");
    }
}

/// RFC 9369 section 5: a token counts in the version of the connection that brought it.
#[test]
fn rfc_9369_5_tokens_are_good_in_one_version() {
    for (begins_with, is_good) in [(V1, false), (V2, true)] {
        let mut net = Net::new(speaking(OLD_FIRST, V1, NEW_FIRST));
        net.connect();
        net.wait(SECOND);
        assert_eq!(net.validated, Some(false));
        assert_eq!(net.client().version(), V2);
        net.begin_with(begins_with);
        net.connect();
        let first = net.take(Side::Client).remove(0);
        assert_eq!(initial_header(&first).2.is_empty(), !is_good);
        net.give(first);
        assert_eq!(net.validated, Some(is_good));
    }

    // A server checks it, whatever the client does.
    let mut net = Net::new(speaking(OLD_FIRST, V1, OLD_FIRST));
    net.connect();
    net.wait(SECOND);
    net.connect();
    let first = net.take(Side::Client).remove(0);
    let (dcid, scid, token) = initial_header(&first);
    assert!(!token.is_empty());
    let mut forged = net.forge(&Forgery {
        version: V2,
        dcid: Some(dcid),
        scid: Some(scid),
        initial_dcid: Some(dcid),
        token,
        ..Forgery::new(Side::Client, Kind::Initial, 0, &first.frames())
    });
    forged.source = first.source;
    net.give(forged);
    assert_eq!(net.validated, Some(false));
}

/// Two paths in either version, whichever way it was chosen.
#[test]
fn mp_020_paths_work_in_every_version() {
    for (client, original, server) in [
        (&[V2][..], V2, &[V2][..]),
        (OLD_FIRST, V1, NEW_FIRST),
        (OLD_FIRST, V1, &[V2]),
    ] {
        let mut net = Net::with_two_paths(speaking(client, original, server));
        let id = net.write(Side::Client, 200_000);
        let log = net.exchange();
        assert_eq!(net.read(Side::Server, id), 200_000);
        for path in [0, 1] {
            assert!(log.iter().any(|sent| sent.path() == Some(PathId(path))));
        }
        let now = net.now;
        assert!(net.client().initiate_key_update(now));
        let id = net.write(Side::Client, 10_000);
        net.exchange();
        assert_eq!(net.read(Side::Server, id), 10_000);
    }
}

/// RFC 9000 section 6.1: a server offers its own versions in answer to an unknown one.
#[test]
fn rfc_9000_6_1_versions_not_configured_are_not_spoken() {
    for (server, attempted) in [(&[V1][..], V2), (&[V2], V1)] {
        let mut net = Net::new(speaking(OLD_FIRST, V1, server));
        let mut data = Vec::new();
        let header = PacketHeader::Initial {
            version: attempted,
            dcid: ConnectionId::new(&[1; 8]),
            scid: ConnectionId::new(&[2; 8]),
            token: Bytes::new(),
        };
        let encoded = header.encode(&mut data, 0, 4);
        data.resize(1200, 0);
        encoded.set_length(&mut data, 1200);
        let first = pieces(&net, 1, |_| {}).remove(0);
        let first = Sent {
            data: BytesMut::from(&data[..]),
            ..first
        };
        let answer = net.give(first.clone()).expect("Version Negotiation");
        match first.answered(answer).packets().remove(0).header {
            Header::VersionNegotiation {
                dcid,
                scid,
                versions,
            } => {
                assert_eq!(
                    (dcid, scid),
                    (ConnectionId::new(&[2; 8]), ConnectionId::new(&[1; 8]))
                );
                assert_eq!(versions[0], server[0].to_u32());
                assert_eq!(versions[1] & 0x0f0f_0f0f, 0x0a0a_0a0a);
                assert_eq!(versions.len(), 2);
            }
            other => panic!("{other:?}"),
        }
        // RFC 9368 section 2.1: servers ignore such packets.
        let mut negotiation = Vec::new();
        encode_version_negotiation(&mut negotiation, &[1; 8], &[2; 8], &[1]);
        negotiation.resize(1200, 1);
        let sent = Sent {
            data: BytesMut::from(&negotiation[..]),
            ..first
        };
        assert_eq!(net.give(sent), None);
    }
}
