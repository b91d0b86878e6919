//! How both sides agree on the secrets of a connection, and what changes for attempts when a
//! ClientHello takes two datagrams.

use std::sync::Arc;
use std::time::Duration;

use mpquic_core::crypto::rustls::provider;
use mpquic_core::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use tokio::time::Instant;

use crate::testing::{ALPN, DELAY, Pair, TestResult, client, server, transfer};
use crate::{
    ClientConfig, Connection, KeyExchange, KeyExchangeGroup, ServerConfig, default_transport,
};

fn agreed(connections: [&Connection; 2]) -> [Option<KeyExchangeGroup>; 2] {
    connections.map(|connection| connection.stats().key_exchange)
}

#[tokio::test(start_paused = true)]
async fn the_hybrid_is_used_unless_either_side_leaves_it_out() -> TestResult {
    use KeyExchange::{Classical, Hybrid};
    let curve = KeyExchangeGroup::X25519;
    let hybrid = if Hybrid.is_available() {
        KeyExchangeGroup::X25519MLKEM768
    } else {
        curve
    };
    for (at_client, at_server, expected) in [
        (None, None, hybrid),
        (Some(Hybrid), Some(Hybrid), hybrid),
        (Some(Classical), None, curve),
        (None, Some(Classical), curve),
    ] {
        let mut from = client(default_transport())?;
        if let Some(wanted) = at_client {
            from = from.key_exchange(wanted)?;
        }
        let mut to = server(default_transport())?;
        if let Some(wanted) = at_server {
            to = to.key_exchange(wanted)?;
        }
        let pair = Pair::new((to, &["10.0.0.1:443"]), (from, &["10.0.1.1:1"]))?;
        let start = Instant::now();
        let (a, b) = pair.connect().await?;
        // No side had to ask for another ClientHello.
        assert!(start.elapsed() < 4 * DELAY, "{:?}", start.elapsed());
        assert_eq!(agreed([&a, &b]), [Some(expected); 2]);
        transfer(&a, &b, 1000).await?;
    }
    Ok(())
}

/// The maker of a TLS configuration has already chosen the key exchange.
#[test]
fn a_given_tls_configuration_keeps_its_key_exchange() {
    let tls = QuicClientConfig::dangerous_trusting_any_certificate(ALPN).unwrap();
    let config = ClientConfig::new(Arc::new(tls));
    let refused = config.key_exchange(KeyExchange::Classical).unwrap_err();
    let expected = "a TLS configuration that was made elsewhere keeps its key exchange: \
                    make it with `KeyExchange::Classical.provider()`";
    assert_eq!(refused.to_string(), expected);
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let chain = vec![certified.cert.der().clone()];
    let key = certified.signing_key.serialize_der().try_into().unwrap();
    let tls = QuicServerConfig::with_provider(Arc::new(provider()), chain, key, ALPN).unwrap();
    let config = ServerConfig::new(Arc::new(tls)).unwrap();
    let refused = config.key_exchange(KeyExchange::Classical).unwrap_err();
    assert_eq!(refused.to_string(), expected);
}

/// Both datagrams leave for the second address, too, with another connection. The late answers of
/// the first address do no harm.
#[tokio::test(start_paused = true)]
async fn the_second_address_of_a_server_gets_a_whole_client_hello() -> TestResult {
    for silent in [[true, false], [false, true]] {
        let pair = Pair::new(
            (
                server(default_transport())?,
                &["10.0.0.1:443", "10.0.0.2:443"],
            ),
            (client(default_transport())?, &["10.0.1.1:1"]),
        )?;
        for (socket, silent) in pair.at_server.iter().zip(silent) {
            socket.silence(silent);
        }
        let start = Instant::now();
        let (a, b) = pair.connect().await?;
        let wait = Duration::from_millis(300) * u32::from(silent[0]);
        let expected = wait + 2 * DELAY..wait + 5 * DELAY;
        assert!(expected.contains(&start.elapsed()), "{:?}", start.elapsed());
        let at = pair.at_server[usize::from(silent[0])].local();
        assert_eq!(a.remote_address(), Some(at));
        transfer(&a, &b, 100_000).await?;
        let stats = pair.server.endpoint.stats();
        assert_eq!(stats.accepted_handshakes, 1);
    }
    Ok(())
}
