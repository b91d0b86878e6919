//! Connection IDs and transport parameters of the handshake.

use mpquic_core::unstable_wire::frame::{Frame, NewConnectionId, PathRetireConnectionId};
use mpquic_core::{ConnectionId, Fault, PathId, PreferredAddress, Side, TransportParameters};

use super::harness::{Forgery, Kind, Net, Options, SECOND, Sent};
use super::messages::{
    client_given, crypto, initial_header, message, parameters_in, server_cid, server_given,
};

#[test]
fn rfc_9000_7_2_the_first_connection_id_is_unpredictable_and_long() {
    let mut net = Net::connecting(Options::default());
    let first = net.take(Side::Client).remove(0);
    net.connect();
    let second = net.take(Side::Client).remove(0);
    let (one, other) = (initial_header(&first).0, initial_header(&second).0);
    assert!(one.len() >= 8 && other.len() >= 8);
    assert_ne!(one, other);
}

/// Until the server answered, the client keeps the connection ID it made up; then it takes the
/// server's, and no other.
#[test]
fn rfc_9000_7_2_destination_connection_ids_are_learned_once() {
    let mut net = Net::connecting(Options::default());
    let first = net.take(Side::Client);
    let made_up = initial_header(&first[0]).0;
    let repeated = net.fire(Side::Client);
    assert_eq!(initial_header(&repeated[0]).0, made_up);

    net.give_all(first);
    let flight = net.take(Side::Server);
    let chosen = initial_header(&flight[0]).1;
    // Another Initial, with another source connection ID, changes nothing.
    net.give_all(flight);
    let other = net.forge(&Forgery {
        scid: Some(server_cid()),
        ..Forgery::new(Side::Server, Kind::Initial, 50, &[Frame::Ping])
    });
    net.give(other);
    let answers = net.take(Side::Client);
    let of_answers: Vec<_> = answers.iter().flat_map(Sent::packets).collect();
    assert!(!of_answers.is_empty());
    for packet in of_answers {
        assert_eq!(*packet.header.dcid(), chosen);
    }
}

/// A server keeps to the source connection ID of the client's first Initial, a client to that of
/// the server's: other packets are dropped, whatever their type.
#[test]
fn rfc_9000_7_2_packets_with_another_source_connection_id_are_dropped() {
    for (from, kind) in [
        (Side::Client, Kind::Initial),
        (Side::Server, Kind::Initial),
        (Side::Client, Kind::Handshake),
        (Side::Server, Kind::Handshake),
    ] {
        for scid in [None, Some(server_cid())] {
            let mut net = Net::with_flights(Options::default(), &[Side::Client]);
            let flight = net.take(Side::Server);
            if from.is_server() {
                // ServerHello only, for both levels.
                let (dcid, _, _) = initial_header(&flight[0]);
                let hello = net.forge(&Forgery {
                    dcid: Some(dcid),
                    ..Forgery::new(
                        Side::Server,
                        Kind::Initial,
                        40,
                        &[crypto(0, &message(2, &[]))],
                    )
                });
                net.give(hello);
            }
            let dropped = net.connection(!from).stats().packets_dropped;
            let forged = net.forge(&Forgery {
                scid,
                ..Forgery::new(from, kind, 50, &[Frame::Ping])
            });
            net.give(forged);
            let dropped = net.connection(!from).stats().packets_dropped - dropped;
            assert_eq!(dropped, u64::from(scid.is_some()), "{from:?} {kind:?}");
        }
    }
}

/// RFC 9000 section 7.3: connection IDs of the handshake are authenticated.
#[test]
fn rfc_9000_7_3_parameters_must_name_the_connection_ids_of_the_handshake() {
    type Change = fn(&mut TransportParameters);
    let own: [Change; 2] = [
        |parameters| parameters.initial_source_connection_id = None,
        |parameters| {
            parameters.initial_source_connection_id = Some(ConnectionId::new(&[0xbb; 8]));
        },
    ];
    let scid = ConnectionId::new(&[0xc; 8]);
    for change in own {
        let (mut net, _) = server_given(scid, change);
        assert_eq!(
            net.fault(Side::Server).unwrap().0,
            Fault::InitialSourceMismatch
        );
        let mut net = client_given(server_cid(), false, change);
        assert_eq!(
            net.fault(Side::Client).unwrap().0,
            Fault::InitialSourceMismatch
        );
    }
    let (mut net, _) = server_given(scid, |_| {});
    assert_eq!(net.fault(Side::Server), None);
    for retry in [false, true] {
        let mut net = client_given(server_cid(), retry, |_| {});
        assert_eq!(net.fault(Side::Client), None);
        assert!(!net.client().is_handshaking());
        let absent: Change = |parameters| parameters.original_destination_connection_id = None;
        let another: Change = |parameters| {
            parameters.original_destination_connection_id = Some(ConnectionId::new(&[0xbb; 8]));
        };
        // Absent after a Retry, present without one.
        let retry_source: Change = |parameters| {
            parameters.retry_source_connection_id = match parameters.retry_source_connection_id {
                Some(_) => None,
                None => Some(ConnectionId::new(&[0xbb; 8])),
            };
        };
        for (change, fault) in [
            (absent, Fault::OriginalDestinationMismatch),
            (another, Fault::OriginalDestinationMismatch),
            (retry_source, Fault::RetrySourceMismatch),
        ] {
            let mut net = client_given(server_cid(), retry, change);
            assert_eq!(net.fault(Side::Client).unwrap().0, fault);
        }
    }
    let mut net = client_given(server_cid(), true, |parameters| {
        parameters.retry_source_connection_id = Some(ConnectionId::new(&[0xbb; 8]));
    });
    assert_eq!(
        net.fault(Side::Client).unwrap().0,
        Fault::RetrySourceMismatch
    );
}

/// What is announced: RFC 9000 sections 7.3 and 18.2, MP-005.
#[test]
fn rfc_9000_18_2_parameters_name_connection_ids_and_a_reset_token() {
    let mut net = Net::connecting(Options::default());
    let first = net.take(Side::Client);
    let (dcid, scid, _) = initial_header(&first[0]);
    let frames: Vec<_> = first.iter().flat_map(Sent::frames).collect();
    let client = parameters_in(&frames, 1, Side::Client).unwrap();
    assert_eq!(client.initial_source_connection_id, Some(scid));
    assert_eq!(client.initial_max_path_id, Some(PathId(7)));
    net.give_all(first);
    let flight = net.take(Side::Server);
    let (_, scid, token) = initial_header(&flight[0]);
    // RFC 9000 section 17.2.2
    assert!(token.is_empty(), "servers send no token");
    let frames: Vec<_> = flight.iter().flat_map(Sent::frames).collect();
    let server = parameters_in(&frames, 11, Side::Server).unwrap();
    assert_eq!(server.initial_source_connection_id, Some(scid));
    assert_eq!(server.original_destination_connection_id, Some(dcid));
    assert_eq!(server.retry_source_connection_id, None);
    assert!(server.stateless_reset_token.is_some());
    assert!(server.active_connection_id_limit >= 2);
    assert!(server.max_udp_payload_size >= 1200);
}

/// MP-009: the parameter in a packet with a zero-length connection ID. MP-010: a server does not
/// send it in one.
#[test]
fn mp_009_multipath_needs_connection_ids() {
    let empty = ConnectionId::new(&[]);
    let (mut net, _) = server_given(empty, |_| {});
    assert_eq!(
        net.fault(Side::Server).unwrap().0,
        Fault::MultipathWithoutConnectionId
    );
    let (mut net, sent) = server_given(empty, |parameters| parameters.initial_max_path_id = None);
    assert_eq!(net.fault(Side::Server), None);
    let frames: Vec<_> = sent.iter().flat_map(Sent::frames).collect();
    let announced = parameters_in(&frames, 11, Side::Server).unwrap();
    assert_eq!(announced.initial_max_path_id, None);

    let mut net = client_given(empty, false, |_| {});
    assert_eq!(
        net.fault(Side::Client).unwrap().0,
        Fault::MultipathWithoutConnectionId
    );
    let mut net = client_given(empty, false, |parameters| {
        parameters.initial_max_path_id = None;
    });
    assert_eq!(net.fault(Side::Client), None);
}

/// MP-018, RFC 9000 section 5.1.1: the connection ID of preferred_address is number 1 of path 0.
#[test]
fn mp_018_the_preferred_address_brings_a_connection_id() {
    let mut net = client_given(server_cid(), false, |parameters| {
        parameters.preferred_address = Some(PreferredAddress {
            ipv4: Some("192.0.2.200:443".parse().unwrap()),
            ipv6: None,
            connection_id: ConnectionId::new(&[0xaa; 8]),
            stateless_reset_token: [0xaa; 16],
        });
    });
    assert_eq!(net.fault(Side::Client), None);
    let _finished = net.take(Side::Client);
    let new = NewConnectionId {
        sequence_number: 2,
        retire_prior_to: 2,
        connection_id: ConnectionId::new(&[0xab; 8]),
        stateless_reset_token: [0xab; 16],
    };
    let frames = [Frame::HandshakeDone, Frame::NewConnectionId(new)];
    let forged = net.forge(&Forgery::new(
        Side::Server,
        Kind::OneRtt(PathId::ZERO),
        0,
        &frames,
    ));
    net.give(forged);
    let sent = net.take(Side::Client);
    for sequence in [0, 1] {
        let retired = Frame::PathRetireConnectionId(PathRetireConnectionId {
            path_id: PathId::ZERO,
            sequence_number: sequence,
        });
        assert!(sent.iter().any(|sent| sent.has(|frame| *frame == retired)));
    }
    assert_eq!(net.dcid(Side::Client, PathId::ZERO), new.connection_id);
}

/// RFC 9000 section 18.2: the peer's `max_udp_payload_size` holds on every path, also while larger
/// datagrams are tried.
#[test]
fn rfc_9000_18_2_no_path_carries_more_than_the_peer_takes() {
    let mut net = Net::with_two_paths(Options {
        // 1300
        client_parameters: vec![0x03, 0x02, 0x45, 0x14],
        ..Options::default()
    });
    net.write(Side::Server, 300_000);
    let log = net.wait(5 * SECOND);
    for path in [PathId(0), PathId(1)] {
        let sent = log.iter().filter(|sent| sent.from.is_server());
        let sizes = sent
            .filter(|sent| sent.path() == Some(path))
            .map(|sent| sent.data.len());
        assert_eq!(sizes.max(), Some(1300), "{path}");
    }
}
