//! Tests of the key exchange on which two sessions agree.

use super::*;
use crate::key_exchange::KeyExchangeGroup;

/// Extensions of a ClientHello (RFC 8446 section 4.2).
const SUPPORTED_GROUPS: u16 = 10;
const KEY_SHARE: u16 = 51;

/// The groups that a ClientHello offers, and the groups with a key share.
fn offered(hello: &[u8]) -> [Vec<u16>; 2] {
    let number = |at: usize| u16::from_be_bytes([hello[at], hello[at + 1]]);
    // Header, version, random, session ID; cipher suites; compression methods.
    let mut at = 4 + 2 + 32 + 1 + usize::from(hello[38]);
    at += 2 + usize::from(number(at));
    at += 1 + usize::from(hello[at]) + 2;
    let mut groups = [Vec::new(), Vec::new()];
    while at < hello.len() {
        let (kind, end) = (number(at), at + 4 + usize::from(number(at + 2)));
        at += 6;
        while at < end && kind == SUPPORTED_GROUPS {
            groups[0].push(number(at));
            at += 2;
        }
        while at < end && kind == KEY_SHARE {
            groups[1].push(number(at));
            at += 4 + usize::from(number(at + 2));
        }
        at = end;
    }
    groups
}

fn client() -> QuicClientConfig {
    QuicClientConfig::dangerous_trusting_any_certificate(&[H3]).unwrap()
}

/// A server that takes only this group.
fn taking(group: KeyExchangeGroup) -> Server {
    let mut provider = provider();
    let is_it = |name: u16| KeyExchangeGroup(name) == group;
    provider
        .kx_groups
        .retain(|group| is_it(group.name().into()));
    let (certificate, key) = mpquic_sim::tls::certificate();
    let chain = vec![certificate.clone()];
    let config = QuicServerConfig::with_provider(Arc::new(provider), chain, key, &[H3]);
    Server {
        config: Arc::new(config.unwrap()),
        certificate,
    }
}

fn agreed(pair: &Pair) -> [Option<KeyExchangeGroup>; 2] {
    [&pair.client, &pair.server].map(|session| session.handshake_data().unwrap().key_exchange)
}

/// draft-ietf-tls-ecdhe-mlkem: a client prefers the hybrid group, whose key share makes the
/// ClientHello too long for one datagram.
#[cfg(feature = "aws-lc-rs")]
#[test]
fn clients_offer_the_hybrid_first_and_servers_take_it() {
    let hybrid = KeyExchangeGroup::X25519MLKEM768;
    let mut pair = Pair::new(&Arc::new(client()), &server(&[H3]));
    let hello = write_all(&mut *pair.client, &mut pair.client_keys).concat();
    assert!(hello.len() > 1200, "{}", hello.len());
    let [groups, shares] = offered(&hello);
    assert_eq!(groups[0], hybrid.0);
    // A server without the hybrid group finds a key share for X25519, so it sends no
    // HelloRetryRequest.
    assert_eq!(shares, [hybrid.0, KeyExchangeGroup::X25519.0]);
    pair.server.read_handshake(&hello).unwrap();
    pair.handshake().unwrap();
    assert_eq!(agreed(&pair), [Some(hybrid); 2]);
    assert!(KeyExchange::Hybrid.is_available());
}

#[test]
fn a_client_that_leaves_the_hybrid_out_offers_curves_only() {
    let classical = client().key_exchange(KeyExchange::Classical).unwrap();
    let mut pair = Pair::new(&Arc::new(classical), &server(&[H3]));
    let hello = write_all(&mut *pair.client, &mut pair.client_keys).concat();
    assert!(hello.len() < 600, "{}", hello.len());
    let [groups, shares] = offered(&hello);
    let groups: Vec<_> = groups.into_iter().map(KeyExchangeGroup).collect();
    assert!(
        groups.iter().all(|group| !group.is_post_quantum()),
        "{groups:?}"
    );
    assert_eq!(shares, [KeyExchangeGroup::X25519.0]);
    pair.server.read_handshake(&hello).unwrap();
    pair.handshake().unwrap();
    assert_eq!(agreed(&pair), [Some(KeyExchangeGroup::X25519); 2]);
    assert_eq!(
        KeyExchange::Classical.provider().kx_groups.len(),
        groups.len()
    );
    assert!(KeyExchange::Classical.is_available());
}

#[test]
fn a_server_that_leaves_the_hybrid_out_takes_a_curve_at_once() {
    let (config, certificate) = {
        let server = server(&[H3]);
        (server.config, server.certificate)
    };
    let config = Arc::new(config.key_exchange(KeyExchange::Classical).unwrap());
    let mut pair = Pair::new(
        &Arc::new(client()),
        &Server {
            config,
            certificate,
        },
    );
    for bytes in write_all(&mut *pair.client, &mut pair.client_keys) {
        pair.server.read_handshake(&bytes).unwrap();
    }
    assert!(
        pair.server.handshake_data().is_some(),
        "no second ClientHello"
    );
    pair.handshake().unwrap();
    assert_eq!(agreed(&pair), [Some(KeyExchangeGroup::X25519); 2]);
}

/// RFC 8446 section 4.1.4: after a HelloRetryRequest, the server reports its handshake data only
/// with the second ClientHello.
#[test]
fn server_reports_no_handshake_data_between_two_client_hellos() {
    let secp384r1 = KeyExchangeGroup(0x18);
    let client = Arc::new(client());
    let server = taking(secp384r1);
    let mut pair = Pair::new(&client, &server);
    let first = write_all(&mut *pair.client, &mut pair.client_keys).concat();
    pair.server.read_handshake(&first).unwrap();
    assert_eq!(pair.server.handshake_data(), None);
    pair.handshake().unwrap();
    assert_eq!(agreed(&pair), [Some(secp384r1); 2]);
    let data = pair.server.handshake_data().unwrap();
    assert_eq!(data.protocol.as_deref(), Some(H3));
    assert_eq!(data.server_name.as_deref(), Some(SERVER_NAME));
    // The next connection's ClientHello has a key share for the group that this server chose.
    let mut next = Pair::new(&client, &server);
    let hello = write_all(&mut *next.client, &mut next.client_keys).concat();
    assert_eq!(offered(&hello)[1], [secp384r1.0]);
    assert!(hello.len() < 1200, "{}", hello.len());
}

#[test]
fn the_key_exchange_of_a_given_configuration_is_its_own() {
    let rustls = (*client().v1).clone();
    let given = QuicClientConfig::new(Arc::new(rustls)).unwrap();
    let refused = given.key_exchange(KeyExchange::Classical).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "a TLS configuration that was made elsewhere keeps its key exchange: make it with \
         `KeyExchange::Classical.provider()`"
    );
}

/// A changed key exchange keeps the other settings of a configuration.
#[test]
fn a_server_keeps_its_tickets_when_its_key_exchange_changes() {
    let server = server(&[H3]);
    let early_data = |config: &QuicServerConfig| {
        let after = config.key_exchange(KeyExchange::Classical).unwrap();
        after.inner.max_early_data_size
    };
    assert_eq!(early_data(&server.config), u32::MAX);
    let shared = Arc::new(SharedTickets::new([7; 32]));
    let (certificate, key) = mpquic_sim::tls::certificate();
    let config = QuicServerConfig::with_certificate(vec![certificate], key, &[H3]);
    assert_eq!(early_data(&config.unwrap().with_shared_tickets(shared)), 0);
}
