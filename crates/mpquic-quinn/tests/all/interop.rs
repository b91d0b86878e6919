//! quinn as the peer: the connection has one path, and everything else works.

use std::sync::Arc;

use mpquic_quinn::rustls::RootCertStore;

use crate::harness::{Identity, LOCAL, TestResult};

/// A server and a client that echoes, each of its own crate.
macro_rules! echo {
    ($client:ident, $server:ident) => {{
        let identity = Identity::new()?;
        let chain = vec![identity.certificate.clone()];
        let config = $server::ServerConfig::with_single_cert(chain, identity.key())?;
        let server = $server::Endpoint::server(config, LOCAL)?;
        let mut roots = RootCertStore::empty();
        roots.add(identity.certificate.clone())?;
        let config = $client::ClientConfig::with_root_certificates(Arc::new(roots))?;
        let mut client = $client::Endpoint::client(LOCAL)?;
        client.set_default_client_config(config);
        let connecting = client.connect(server.local_addr()?, "localhost")?;
        let accept = async {
            server
                .accept()
                .await
                .ok_or("no client")?
                .await
                .map_err(|_| "failed")
        };
        let (connection, accepted) = tokio::join!(connecting, accept);
        let (connection, accepted) = (connection?, accepted?);
        let ask = async {
            let (mut send, mut recv) = connection.open_bi().await?;
            send.write_all(&[7; 100_000]).await?;
            send.finish()?;
            let answer = recv.read_to_end(100_000).await?;
            connection.send_datagram("over".into())?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(answer)
        };
        let answer = async {
            let (mut send, mut recv) = accepted.accept_bi().await?;
            let question = recv.read_to_end(100_000).await?;
            send.write_all(&question).await?;
            send.finish()?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(accepted.read_datagram().await?)
        };
        let (asked, answered) = tokio::join!(ask, answer);
        assert_eq!((asked?, &answered?[..]), (vec![7; 100_000], &b"over"[..]));
        connection.close(9u32.into(), b"bye");
        let end = accepted.closed().await.to_string();
        assert!(end.contains("bye"), "{end}");
        (connection, client, server)
    }};
}

#[tokio::test]
async fn quinn_is_a_server() -> TestResult {
    let (connection, ..) = echo!(mpquic_quinn, quinn);
    assert!(!connection.as_mpquic().is_multipath());
    Ok(())
}

#[tokio::test]
async fn quinn_is_a_client() -> TestResult {
    let _ = echo!(quinn, mpquic_quinn);
    Ok(())
}
