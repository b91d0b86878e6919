//! What connections tell of themselves and let be changed.

use std::net::SocketAddr;

use bytes::Bytes;
use mpquic_tokio::{
    Connection, ConnectionError, Endpoint, ExportError, ServerConfig, default_transport,
};
use rustls::pki_types::CertificateDer;

use crate::harness::{ALPN, Net, TestResult, address_with, client, exchange, within};

#[tokio::test]
async fn both_sides_export_the_same_keying_material() -> TestResult {
    fn export(connection: &Connection, label: &[u8]) -> Result<[u8; 32], ExportError> {
        let mut output = [0; 32];
        connection
            .export_keying_material(&mut output, label, b"context")
            .map(|()| output)
    }
    let net = Net::two_paths()?;
    let (client, server) = net.connect().await?;
    let first = export(&client, b"EXPERIMENTAL a")?;
    assert_eq!(export(&server, b"EXPERIMENTAL a")?, first);
    assert_ne!(export(&server, b"EXPERIMENTAL b")?, first);
    assert_eq!(export(&server, b""), Err(ExportError::LabelLength));
    within("the exchange", exchange(&client, &server, 100_000)).await??;
    for connection in [&client, &server] {
        assert_eq!(export(connection, b"EXPERIMENTAL a")?, first);
    }

    let connecting = net.client.connect(net.server.local_addr()?, "localhost")?;
    let Ok((early, accepted)) = connecting.into_0rtt() else {
        return Err("no 0-RTT".into());
    };
    let incomplete = Err(ExportError::HandshakeIncomplete);
    assert_eq!(export(&early, b"EXPERIMENTAL a"), incomplete);
    let server = within("accepting", net.server.accept()).await?;
    let server = server.ok_or("closed")?.await?;
    assert!(within("handshake", accepted).await?);
    let second = export(&early, b"EXPERIMENTAL a")?;
    assert_eq!(export(&server, b"EXPERIMENTAL a")?, second);
    assert_ne!(second, first);
    Ok(())
}

#[tokio::test]
async fn the_datagram_buffer_tells_its_space() -> TestResult {
    let mut transport = default_transport();
    transport.datagram_send_buffer = 10_000;
    let one = ["127.0.0.1"];
    let net = Net::new(&one, &one, client(transport)?)?;
    let (a, b) = net.connect().await?;
    assert_eq!(a.datagram_send_buffer_space(), 10_000);
    // Nobody else runs on this thread until something is awaited.
    a.send_datagram(Bytes::from(vec![1; 1000]))?;
    let space = a.datagram_send_buffer_space();
    assert!((8_000..=9_000).contains(&space), "{space}");
    within("datagram", b.read_datagram()).await??;
    assert_eq!(a.datagram_send_buffer_space(), 10_000);
    Ok(())
}

#[tokio::test]
async fn both_sides_learn_that_the_handshake_is_confirmed() -> TestResult {
    let net = Net::two_paths()?;
    let (a, b) = net.connect().await?;
    for connection in [&a, &b] {
        within("confirmation", connection.handshake_confirmed()).await??;
        // And again.
        connection.handshake_confirmed().await?;
    }
    // Not with a server that never answers.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0")?;
    let connecting = net.client.connect(silent.local_addr()?, "localhost")?;
    drop(connecting);
    a.close(0u32.into(), b"");
    assert_eq!(a.handshake_confirmed().await, Ok(()), "it was");
    let reason = within("end", b.closed()).await?;
    assert!(matches!(reason, ConnectionError::ApplicationClosed(_)));
    Ok(())
}

#[tokio::test]
async fn a_connection_tells_addresses_and_identities() -> TestResult {
    let (config, certificate) = ServerConfig::self_signed(&["localhost"], ALPN)?;
    let net = Net {
        server: Endpoint::server(config, "127.0.0.1:0".parse()?)?,
        client: Endpoint::client(address_with("127.0.0.2")?)?,
    };
    net.client
        .set_default_client_config(client(default_transport())?);
    let (a, b) = net.connect().await?;
    let identity = a.peer_identity().ok_or("no identity")?;
    let identity = identity.downcast::<Vec<CertificateDer<'static>>>();
    let identity = identity.map_err(|_| "another type")?;
    assert_eq!(*identity, [certificate]);
    assert!(b.peer_identity().is_none(), "clients show no certificate");
    assert_eq!(a.local_ip(), Some([127, 0, 0, 2].into()));
    assert_eq!(b.local_ip(), Some([127, 0, 0, 1].into()));
    Ok(())
}

/// A socket for all addresses learns from each datagram which one it was sent to.
#[tokio::test]
async fn a_server_on_all_addresses_knows_which_one_is_used() -> TestResult {
    let (config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
    let server = Endpoint::server(config, "0.0.0.0:0".parse()?)?;
    let to = SocketAddr::new(address_with("127.0.0.5")?.ip(), server.local_addr()?.port());
    let client_endpoint = Endpoint::client("127.0.0.1:0".parse()?)?;
    let config = client(default_transport())?;
    let connecting = client_endpoint.connect_with(config, to, "localhost")?;
    let incoming = within("attempt", server.accept()).await?.ok_or("closed")?;
    assert_eq!(incoming.local_ip(), Some([127, 0, 0, 5].into()));
    let accepting = incoming.accept()?;
    assert_eq!(accepting.local_ip(), Some([127, 0, 0, 5].into()));
    assert_eq!(connecting.local_ip(), Some([127, 0, 0, 1].into()));
    let (_a, b) = within("handshake", async {
        tokio::try_join!(connecting, accepting)
    })
    .await??;
    assert_eq!(b.local_ip(), Some([127, 0, 0, 5].into()));
    Ok(())
}

#[tokio::test]
async fn keys_can_be_updated() -> TestResult {
    let net = Net::two_paths()?;
    let (a, b) = net.connect().await?;
    within("confirmation", a.handshake_confirmed()).await??;
    assert!(a.force_key_update());
    assert!(!a.force_key_update(), "the first one is not acknowledged");
    exchange(&a, &b, 1 << 20).await
}
