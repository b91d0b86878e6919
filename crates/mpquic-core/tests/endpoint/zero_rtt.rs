//! 0-RTT: what arrives early, and what must not be remembered.

use mpquic_core::config::ServerConfig;
use mpquic_core::crypto::rustls::QuicServerConfig;
use rustls::server::{ServerSessionMemoryCache, StoresServerSessions};

use super::*;

#[test]
fn rfc_9001_4_6_early_data_arrives_with_the_first_flight() {
    let mut test = Test::new();
    test.visit();
    let mut client = test.connect();
    assert_eq!(client.1.zero_rtt(), ZeroRtt::Offered);
    let text: Vec<u8> = (0..5000).map(|index| index as u8).collect();
    let id = write(&mut client.1, &text);

    let mut server = None;
    let flight = test.datagrams(&mut client.1);
    assert!(flight.len() >= 5);
    for data in flight {
        assert!(test.give_server(&mut server, data).is_none());
    }
    let accepted = &mut server.as_mut().unwrap().1;
    assert!(accepted.is_handshaking());
    assert_eq!(accepted.zero_rtt(), ZeroRtt::Accepted);
    assert_eq!(accepted.streams().accept(Dir::Uni), Some(id));
    assert_eq!(read(accepted, id), (text, true));

    test.exchange(&mut client, &mut server);
    assert_eq!(client.1.zero_rtt(), ZeroRtt::Accepted);
    assert!(client.1.is_multipath());
    // All packets were acknowledged: no data was sent twice.
    assert_eq!(
        client
            .1
            .path_stats(mpquic_core::PathId::ZERO)
            .unwrap()
            .packets_lost,
        0
    );
    assert_eq!(lost(&mut client.1), None);
}

/// RFC 9001 section 5.6: a client opens no 0-RTT packet, though it has the keys.
#[test]
fn rfc_9001_5_6_a_client_drops_zero_rtt_packets() {
    let mut test = Test::new();
    test.visit();
    let mut client = test.connect();
    write(&mut client.1, &[7; 3000]);
    let flight = test.datagrams(&mut client.1);
    let before = client.1.stats().packets_dropped;
    // The first datagram begins with an Initial packet, the second with 0-RTT.
    let datagram = Datagram {
        now: test.now,
        four_tuple: FourTuple::new(client_address(), server_address()),
        ecn: None,
        path: mpquic_core::PathId::ZERO,
        data: flight[1].clone(),
    };
    client.1.handle_datagram(datagram);
    assert_eq!(client.1.stats().packets_dropped, before + 1);
    assert_eq!(client.1.streams().accept(Dir::Uni), None);
    assert_eq!(lost(&mut client.1), None);
}

/// RFC 9001 section 9.2, RFC 8446 section 8: each ticket is good once, so a repeated first flight
/// brings no data again.
#[test]
fn rfc_9001_9_2_replayed_early_data_is_not_taken() {
    let mut test = Test::new();
    test.visit();
    let mut client = test.connect();
    write(&mut client.1, &[7; 3000]);
    let flight = test.datagrams(&mut client.1);
    for expected in [ZeroRtt::Accepted, ZeroRtt::NotOffered] {
        // Another endpoint with the same tickets: only TLS can tell the attempts apart.
        let config = Arc::new(test.tls.server(test.transport.clone()));
        let endpoint = Arc::new(EndpointConfig::new([2; 32]));
        test.server = Endpoint::new(endpoint, Some(config), [5; 32]);
        let mut server = None;
        for data in &flight {
            test.give_server(&mut server, data.clone());
        }
        let accepted = &mut server.as_mut().unwrap().1;
        assert_eq!(accepted.zero_rtt(), expected);
        let stream = accepted.streams().accept(Dir::Uni);
        assert_eq!(stream.is_some(), expected == ZeroRtt::Accepted);
    }
}

#[test]
fn rfc_9001_4_6_lost_early_data_is_sent_again_as_one_rtt() {
    let mut test = Test::new();
    test.visit();
    let mut client = test.connect();
    let id = write(&mut client.1, b"early");
    let mut server = None;
    let mut flight = test.datagrams(&mut client.1);
    // The ClientHello without the data.
    flight.pop();
    for data in flight {
        test.give_server(&mut server, data);
    }
    test.exchange(&mut client, &mut server);
    assert_eq!(client.1.zero_rtt(), ZeroRtt::Accepted);
    for _ in 0..3 {
        if let Some((time, _)) = client.1.poll_timeout() {
            test.now = test.now.max(time);
            client.1.handle_timeout(test.now);
        }
        test.exchange(&mut client, &mut server);
    }
    let server = &mut server.as_mut().unwrap().1;
    assert_eq!(read(server, id), (b"early".to_vec(), true));
}

#[test]
fn rfc_9001_4_6_2_rejected_early_data_never_happened() {
    let mut test = Test::new();
    test.visit();
    // Another server with the same name and certificate knows nothing of the ticket.
    let other = Tls::new(b"test").server(test.transport.clone());
    test.server.set_server_config(Some(Arc::new(other)));
    let mut client = test.connect();
    assert_eq!(client.1.zero_rtt(), ZeroRtt::Offered);
    let id = write(&mut client.1, &[7; 3000]);
    let mut server = None;
    test.exchange(&mut client, &mut server);
    assert_eq!(client.1.zero_rtt(), ZeroRtt::Rejected);
    assert!(!client.1.is_handshaking());
    let path = client.1.path_stats(mpquic_core::PathId::ZERO).unwrap();
    assert_eq!((path.in_flight, path.packets_lost), (0, 0));
    assert!(client.1.send_stream(id).write(b"more").is_err());

    let accepted = &mut server.as_mut().unwrap().1;
    assert_eq!(accepted.zero_rtt(), ZeroRtt::NotOffered);
    assert_eq!(accepted.streams().accept(Dir::Uni), None);
    // The same stream ID is free again.
    assert_eq!(test.write_again(&mut client, &mut server), id);
    assert_eq!(lost(&mut client.1), None);
}

/// RFC 9369 sections 4.1 and 5: 0-RTT keeps its first version; a server with another choice does
/// not take the ticket.
#[test]
fn rfc_9369_5_a_change_of_the_version_rejects_early_data() {
    let mut test = Test::new();
    test.visit();
    test.restart_server_with(&[Version::V2, Version::V1]);
    let mut client = test.connect();
    assert_eq!(client.1.zero_rtt(), ZeroRtt::Offered);
    write(&mut client.1, &[7; 3000]);
    let mut server = None;
    test.exchange(&mut client, &mut server);
    assert_eq!(client.1.zero_rtt(), ZeroRtt::Rejected);
    assert_eq!(client.1.version(), Version::V2);
    assert!(!client.1.is_handshaking());
    let accepted = &mut server.as_mut().unwrap().1;
    assert_eq!(accepted.zero_rtt(), ZeroRtt::NotOffered);
    test.write_again(&mut client, &mut server);
}

/// The same after Version Negotiation.
#[test]
fn rfc_9368_2_1_starting_over_rejects_early_data() {
    let mut test = Test::new();
    test.visit();
    test.restart_server_with(&[Version::V2]);
    let mut client = test.connect();
    let id = write(&mut client.1, &[7; 3000]);
    let mut server = None;
    test.exchange(&mut client, &mut server);
    assert_eq!(client.1.zero_rtt(), ZeroRtt::Rejected);
    assert_eq!(client.1.version(), Version::V2);
    assert_eq!(test.write_again(&mut client, &mut server), id);
    assert_eq!(lost(&mut client.1), None);
}

#[test]
fn rfc_9000_17_2_5_3_early_data_is_sent_again_after_a_retry() {
    let mut test = Test::new();
    test.visit();
    test.tokens.0.lock().unwrap().clear();
    test.retry = true;
    let mut client = test.connect();
    let id = write(&mut client.1, &[7; 3000]);
    let mut server = None;
    let flight = test.datagrams(&mut client.1);
    let mut retry = None;
    for data in flight {
        retry = retry.or(test.give_server(&mut server, data));
    }
    test.give_client(&mut client, retry.unwrap());
    let flight = test.datagrams(&mut client.1);
    assert!(flight.len() >= 3);
    for data in flight {
        test.give_server(&mut server, data);
    }
    let accepted = &mut server.as_mut().unwrap().1;
    assert!(accepted.is_handshaking());
    assert_eq!(read(accepted, id), (vec![7; 3000], true));
    test.exchange(&mut client, &mut server);
    assert_eq!(client.1.zero_rtt(), ZeroRtt::Accepted);
    assert_eq!(lost(&mut client.1), None);
}

/// RFC 9000 section 7.4.1: a client hears of raised limits at the end of the handshake; early data
/// keeps to the remembered limits.
#[test]
fn rfc_9000_7_4_1_early_data_keeps_to_the_remembered_limits() {
    let mut test = Test::new();
    let mut transport = test.transport.options().clone();
    transport.initial_stream_receive_window = 1000;
    transport.initial_receive_window = 1500;
    let client = std::mem::replace(&mut test.transport, built(transport.clone()));
    let server = test.tls.server(test.transport.clone());
    test.server.set_server_config(Some(Arc::new(server)));
    test.visit();
    transport.initial_stream_receive_window = 4000;
    transport.initial_receive_window = 4000;
    let server = test.tls.server(built(transport));
    test.server.set_server_config(Some(Arc::new(server)));
    test.transport = client;

    let mut client = test.connect();
    let streams = [(); 2].map(|()| client.1.streams().open(Dir::Uni).unwrap());
    for id in streams {
        assert_eq!(client.1.send_stream(id).write(&[7; 9000]), Ok(1000));
    }
    let mut server = None;
    for data in test.datagrams(&mut client.1) {
        test.give_server(&mut server, data);
    }
    let accepted = &mut server.as_mut().unwrap().1;
    assert!(accepted.is_handshaking());
    let early = streams.map(|id| read(accepted, id).0.len());
    assert_eq!(early, [1000, 500]);
    test.exchange(&mut client, &mut server);
    assert_eq!(client.1.zero_rtt(), ZeroRtt::Accepted);
    let more = client.1.send_stream(streams[0]).write(&[7; 9000]).unwrap();
    assert!(more >= 2500, "{more}");
    assert_eq!(lost(&mut client.1), None);
}

/// MP-012: what the earlier connection said about paths counts for nothing.
#[test]
fn mp_012_the_path_limit_is_not_remembered() {
    let mut test = Test::new();
    test.visit();
    // The same server, without multipath by now.
    let mut transport = test.transport.options().clone();
    transport.max_concurrent_paths = 0;
    let server = test.tls.server(built(transport));
    test.server.set_server_config(Some(Arc::new(server)));
    let mut client = test.connect();
    assert_eq!(client.1.zero_rtt(), ZeroRtt::Offered);
    assert!(!client.1.is_multipath());
    write(&mut client.1, &[7; 3000]);
    let mut server = None;
    test.exchange(&mut client, &mut server);
    assert_eq!(client.1.zero_rtt(), ZeroRtt::Accepted);
    assert!(!client.1.is_multipath() && !server.unwrap().1.is_multipath());
    assert_eq!(lost(&mut client.1), None);
}

/// draft-ietf-quic-reliable-stream-reset-11 section 3: remembered, so that 0-RTT may use it.
#[test]
fn a_reset_after_the_beginning_may_be_early_data() {
    let mut test = Test::new();
    test.visit();
    let mut client = test.connect();
    let id = client.1.streams().open(Dir::Uni).unwrap();
    let mut stream = client.1.send_stream(id);
    stream.write(b"early words").unwrap();
    stream.reset_at(VarInt::from_u32(4), 5).unwrap();
    let mut server = None;
    let first = test.datagrams(&mut client.1);
    for data in first {
        test.give_server(&mut server, data);
    }
    let (_, accepted) = server.as_mut().unwrap();
    assert!(accepted.is_handshaking());
    let mut stream = accepted.recv_stream(id);
    let chunk = stream.read_chunk(100, true).unwrap().unwrap();
    assert_eq!(chunk.bytes[..], b"early"[..]);
    let reset = mpquic_core::ReadStreamError::Reset(VarInt::from_u32(4));
    assert_eq!(stream.read_chunk(100, true).map(|_| ()), Err(reset));
}

/// draft-ietf-quic-ack-frequency-14 section 3: whether a server takes requests is not remembered.
#[test]
fn the_smallest_acknowledgement_delay_is_not_remembered() {
    let mut test = Test::new();
    let mut transport = test.transport.options().clone();
    transport.ack_frequency = Some(AckFrequencyOptions::default());
    test.transport = built(transport.clone());
    test.visit();
    // The same server without the extension: it would close at the first such frame.
    transport.min_ack_delay = None;
    let server = test.tls.server(built(transport));
    test.server.set_server_config(Some(Arc::new(server)));
    let mut client = test.connect();
    write(&mut client.1, &[7; 3000]);
    test.exchange(&mut client, &mut None);
    assert_eq!(client.1.zero_rtt(), ZeroRtt::Accepted);
    assert_eq!(lost(&mut client.1), None);
}

type Change = fn(&mut TransportOptions);

/// Each lowers a limit that 0-RTT data relies on.
const LOWER: [Change; 6] = [
    |transport| transport.initial_receive_window -= 1,
    |transport| transport.initial_stream_receive_window -= 1,
    |transport| transport.max_concurrent_bidi_streams -= 1,
    |transport| transport.max_concurrent_uni_streams -= 1,
    |transport| transport.active_connection_id_limit -= 1,
    // draft-ietf-quic-reliable-stream-reset-11 section 3
    |transport| transport.reset_stream_at = false,
];

/// A client's second visit, which begins with 0-RTT data, to a server with this TLS whose transport
/// options were changed in between.
fn visit_again(test: &mut Test, crypto: &Arc<QuicServerConfig>, change: Change) -> Connection {
    let server = |transport| ServerConfig::new(crypto.clone(), transport, [7; 32]);
    let before = server(test.transport.clone());
    test.server.set_server_config(Some(Arc::new(before)));
    test.visit();
    let mut transport = test.transport.options().clone();
    change(&mut transport);
    let after = server(built(transport));
    test.server.set_server_config(Some(Arc::new(after)));
    let mut client = test.connect();
    write(&mut client.1, b"early");
    test.exchange(&mut client, &mut None);
    client.1
}

/// The TLS of a server of [`Tls`], with a change to its configuration.
fn crypto(change: impl FnOnce(&mut rustls::ServerConfig)) -> Arc<QuicServerConfig> {
    let (certificate, key) = mpquic_sim::tls::certificate();
    let provider = Arc::new(mpquic_core::crypto::rustls::provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = vec![b"test".to_vec()];
    config.max_early_data_size = u32::MAX;
    change(&mut config);
    Arc::new(QuicServerConfig::new(Arc::new(config)).unwrap())
}

/// RFC 9000 section 7.4.1: a server that cannot keep to the limits its ticket was given with
/// rejects 0-RTT data; higher ones are no reason.
#[test]
fn rfc_9000_7_4_1_a_server_with_lower_limits_rejects_early_data() {
    let crypto = crypto(|_| {});
    for change in LOWER {
        let mut client = visit_again(&mut Test::new(), &crypto, change);
        assert_eq!(client.zero_rtt(), ZeroRtt::Rejected);
        assert_eq!(lost(&mut client), None);
    }
    let raise: Change = |transport| transport.initial_receive_window += 1;
    let mut client = visit_again(&mut Test::new(), &crypto, raise);
    assert_eq!(client.zero_rtt(), ZeroRtt::Accepted);
    assert_eq!(lost(&mut client), None);
}

/// Forgets which limits sessions were given with: takes all for nothing. They are the last 72 bytes
/// of what is stored.
#[derive(Debug)]
struct Forgetful(Arc<dyn StoresServerSessions>);

impl StoresServerSessions for Forgetful {
    fn put(&self, key: Vec<u8>, mut value: Vec<u8>) -> bool {
        let limits = value.len() - 72;
        value[limits..].fill(0);
        self.0.put(key, value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.get(key)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.take(key)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

/// RFC 9000 section 7.4.1: a server that takes 0-RTT may not lower what the client relied on.
#[test]
fn rfc_9000_7_4_1_lower_limits_after_early_data_are_a_violation() {
    let crypto = crypto(|config| {
        let all = ServerSessionMemoryCache::new(16);
        config.session_storage = Arc::new(Forgetful(all));
    });
    for change in LOWER {
        let mut client = visit_again(&mut Test::new(), &crypto, change);
        assert_eq!(client.zero_rtt(), ZeroRtt::Accepted);
        match lost(&mut client) {
            Some(ConnectionError::TransportError(error)) => {
                assert_eq!(error.fault, Fault::ZeroRttLimitsReduced);
            }
            other => panic!("{other:?}"),
        }
    }
    let mut client = visit_again(&mut Test::new(), &crypto, |_| {});
    assert_eq!(client.zero_rtt(), ZeroRtt::Accepted);
    assert_eq!(lost(&mut client), None);
}
