//! How connections end, and why attempts fail.

use std::sync::Arc;
use std::time::Duration;

use mpquic_quinn as quinn;
use quinn::crypto::rustls::{HandshakeData, QuicClientConfig};
use quinn::rustls::pki_types::CertificateDer;
use quinn::{
    ClientConfig, ConnectError, ConnectionError, Endpoint, TransportConfig, TransportErrorCode,
    VarInt, WriteError,
};

use crate::harness::{Identity, LOCAL, Pair, TestResult};

#[tokio::test]
async fn a_close_carries_code_and_reason() -> TestResult {
    let pair = Pair::new().await?;
    assert_eq!(pair.client.close_reason(), None);
    pair.client.close(VarInt::from_u32(7), b"done");
    let ConnectionError::ApplicationClosed(close) = pair.server.closed().await else {
        panic!("the application closed the connection");
    };
    assert_eq!(
        (close.error_code, &*close.reason),
        (VarInt::from_u32(7), &b"done"[..])
    );
    assert_eq!(pair.client.closed().await, ConnectionError::LocallyClosed);
    assert_eq!(
        pair.client.close_reason(),
        Some(ConnectionError::LocallyClosed)
    );
    assert_eq!(
        pair.client.open_uni().await.err(),
        Some(ConnectionError::LocallyClosed)
    );
    // Questions that quinn answers always.
    assert_eq!(
        pair.client.remote_address(),
        pair.server_endpoint.local_addr()?
    );
    assert!(pair.client.rtt() > Duration::ZERO);
    pair.client_endpoint.wait_idle().await;
    assert_eq!(pair.client_endpoint.open_connections(), 0);
    Ok(())
}

#[tokio::test]
async fn the_drop_of_the_last_handle_closes_with_code_0() -> TestResult {
    let Pair {
        client,
        server,
        client_endpoint,
        ..
    } = Pair::new().await?;
    let another = client.clone();
    let send = client.open_uni().await?;
    drop(client);
    drop(another);
    assert_eq!(server.close_reason(), None);
    drop(send);
    let ConnectionError::ApplicationClosed(close) = server.closed().await else {
        panic!("the application closed the connection");
    };
    assert_eq!(
        (close.error_code, &*close.reason),
        (VarInt::from_u32(0), &b""[..])
    );
    drop(client_endpoint);
    Ok(())
}

#[tokio::test]
async fn a_closed_endpoint_closes_its_connections() -> TestResult {
    let pair = Pair::new().await?;
    pair.server_endpoint.close(VarInt::from_u32(3), b"bye");
    assert!(pair.server_endpoint.accept().await.is_none());
    let ConnectionError::ApplicationClosed(close) = pair.client.closed().await else {
        panic!("the application closed the connection");
    };
    assert_eq!(close.error_code, VarInt::from_u32(3));
    let mut client = pair.client_endpoint.clone();
    client.close(VarInt::from_u32(0), b"");
    client.set_default_client_config(Identity::new()?.client()?);
    let refused = client.connect(pair.server_endpoint.local_addr()?, "localhost");
    assert_eq!(refused.err(), Some(ConnectError::EndpointStopping));
    Ok(())
}

/// A silent peer: its side of the socket reads no more.
#[tokio::test]
async fn silence_ends_a_connection() -> TestResult {
    let mut short = TransportConfig::default();
    short.max_idle_timeout(Some(Duration::from_millis(300).try_into()?));
    let pair = Pair::with(TransportConfig::default(), short).await?;
    let mut send = pair.client.open_uni().await?;
    assert_eq!(pair.client.closed().await, ConnectionError::TimedOut);
    let lost = WriteError::ConnectionLost(ConnectionError::TimedOut);
    assert_eq!(send.write(b"late").await, Err(lost));
    Ok(())
}

#[tokio::test]
async fn attempts_fail_with_quinns_errors() -> TestResult {
    let identity = Identity::new()?;
    let server = Endpoint::server(identity.server()?, LOCAL)?;
    let addr = server.local_addr()?;
    let mut client = Endpoint::client(LOCAL)?;
    let without = client.connect(addr, "localhost").err();
    assert_eq!(without, Some(ConnectError::NoDefaultClientConfig));
    client.set_default_client_config(identity.client()?);
    let name = client.connect(addr, "not a name").err();
    assert_eq!(
        name,
        Some(ConnectError::InvalidServerName("not a name".to_owned()))
    );
    for wrong in ["127.0.0.1:0".parse()?, "[::1]:1".parse()?] {
        let address = client.connect(wrong, "localhost").err();
        assert_eq!(address, Some(ConnectError::InvalidRemoteAddress(wrong)));
    }
    let mut draft = identity.client()?;
    draft.version(0xff00_001d);
    let version = client.connect_with(draft, addr, "localhost").err();
    assert_eq!(version, Some(ConnectError::UnsupportedVersion));

    let refuse = async {
        server.accept().await.ok_or("no client")?.refuse();
        Ok::<_, &str>(())
    };
    let (refused, done) = tokio::join!(client.connect(addr, "localhost")?, refuse);
    done?;
    let Err(ConnectionError::ConnectionClosed(close)) = refused else {
        panic!("the server refused: {refused:?}");
    };
    assert_eq!(close.error_code, TransportErrorCode::CONNECTION_REFUSED);

    let stranger = Identity::new()?.client()?;
    let accept = async {
        server
            .accept()
            .await
            .ok_or("no client")?
            .await
            .map_err(|_| "refused")
    };
    let (failed, _) = tokio::join!(client.connect_with(stranger, addr, "localhost")?, accept);
    let Err(ConnectionError::TransportError(error)) = failed else {
        panic!("the certificate is not trusted: {failed:?}");
    };
    // An alert of TLS.
    assert!((0x100..0x200).contains(&u64::from(error.code)), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_closed_port_counts_as_silence() -> TestResult {
    let socket = std::net::UdpSocket::bind(LOCAL)?;
    let closed = socket.local_addr()?;
    drop(socket);
    let mut config = Identity::new()?.client()?;
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(Some(VarInt::from_u32(500).into()));
    config.transport_config(Arc::new(transport));
    let attempt = Endpoint::client(LOCAL)?
        .connect_with(config, closed, "localhost")?
        .await;
    assert_eq!(attempt.err(), Some(ConnectionError::TimedOut));
    Ok(())
}

#[tokio::test]
async fn a_handshake_tells_its_data_in_quinns_types() -> TestResult {
    let identity = Identity::new()?;
    let chain = vec![identity.certificate.clone()];
    let provider = Arc::new(quinn::mpquic_tokio::crypto::rustls::provider());
    let versions = &[&quinn::rustls::version::TLS13];
    let mut tls = quinn::rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)?
        .with_no_client_auth()
        .with_single_cert(chain, identity.key())?;
    tls.alpn_protocols = vec![b"one".to_vec()];
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(tls)?;
    let server = Endpoint::server(quinn::ServerConfig::with_crypto(Arc::new(crypto)), LOCAL)?;
    let mut roots = quinn::rustls::RootCertStore::empty();
    roots.add(identity.certificate.clone())?;
    let mut tls = quinn::rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"two".to_vec(), b"one".to_vec()];
    let mut client = Endpoint::client(LOCAL)?;
    let crypto = Arc::new(QuicClientConfig::try_from(Arc::new(tls))?);
    client.set_default_client_config(ClientConfig::new(crypto));

    let connecting = client.connect(server.local_addr()?, "localhost")?;
    let accept = async {
        let mut accepted = server.accept().await.ok_or("no client")?.accept()?;
        let data = accepted.handshake_data().await?;
        let data = data
            .downcast::<HandshakeData>()
            .map_err(|_| "another type")?;
        assert_eq!(data.server_name.as_deref(), Some("localhost"));
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(accepted.await?)
    };
    let (client, server) = tokio::join!(connecting, accept);
    let (client, server) = (client?, server?);
    let data = client.handshake_data().ok_or("no data")?;
    let data = data
        .downcast::<HandshakeData>()
        .map_err(|_| "another type")?;
    assert_eq!(data.protocol.as_deref(), Some(&b"one"[..]));
    let certificates = client.peer_identity().ok_or("no certificates")?;
    let certificates = certificates.downcast::<Vec<CertificateDer<'static>>>();
    assert_eq!(
        *certificates.map_err(|_| "another type")?,
        [identity.certificate]
    );
    assert!(server.peer_identity().is_none());
    let (mut here, mut there) = ([0; 32], [0; 32]);
    client
        .export_keying_material(&mut here, b"label", b"")
        .map_err(|_| "no export")?;
    server
        .export_keying_material(&mut there, b"label", b"")
        .map_err(|_| "no export")?;
    assert_eq!(here, there);
    Ok(())
}
