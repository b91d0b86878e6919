//! One program in quinn and in mpquic-tokio: `docs/embedding.md` says what else differs.

use std::sync::Arc;

use mpquic_tokio::crypto::rustls::{QuicClientConfig, QuicServerConfig, provider};
use mpquic_tokio::rustls::pki_types::PrivateKeyDer;
use mpquic_tokio::rustls::{self, RootCertStore};

use crate::harness::{Error, TestResult};

mod with_quinn {
    use quinn as quic;
    include!("program.in");
}

mod with_mpquic {
    use mpquic_tokio as quic;
    include!("program.in");
}

const QUESTION: &[u8] = b"is it the same?";

/// The TLS configuration of both: it is rustls' own.
fn tls() -> Result<(rustls::ServerConfig, rustls::ClientConfig), Error> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone())?;
    let versions = &[&rustls::version::TLS13];
    let mut server = rustls::ServerConfig::builder_with_provider(provider().into())
        .with_protocol_versions(versions)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    let mut client = rustls::ClientConfig::builder_with_provider(provider().into())
        .with_protocol_versions(versions)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    server.alpn_protocols = vec![b"echo".to_vec()];
    client.alpn_protocols = vec![b"echo".to_vec()];
    Ok((server, client))
}

/// Each talks to itself and to the other.
#[tokio::test]
async fn the_same_program_runs_with_quinn_and_with_mpquic() -> TestResult {
    let any = "127.0.0.1:0".parse()?;
    for server_is_quinn in [true, false] {
        let (server, client) = tls()?;
        let address = if server_is_quinn {
            let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(server)?;
            let config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
            let endpoint = quinn::Endpoint::server(config, any)?;
            let address = endpoint.local_addr()?;
            tokio::spawn(with_quinn::serve(endpoint));
            address
        } else {
            let crypto = QuicServerConfig::new(Arc::new(server))?;
            let config = mpquic_tokio::ServerConfig::new(Arc::new(crypto))?;
            let endpoint = mpquic_tokio::Endpoint::server(config, any)?;
            let address = endpoint.local_addr()?;
            tokio::spawn(with_mpquic::serve(endpoint));
            address
        };

        let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(client.clone())?;
        let config = quinn::ClientConfig::new(Arc::new(crypto));
        let endpoint = quinn::Endpoint::client(any)?;
        let answers = with_quinn::ask(endpoint, config, address, QUESTION).await?;
        assert_eq!(answers, [QUESTION; 2], "{server_is_quinn}");

        let crypto = QuicClientConfig::new(Arc::new(client))?;
        let config = mpquic_tokio::ClientConfig::new(Arc::new(crypto));
        let endpoint = mpquic_tokio::Endpoint::client(any)?;
        let answers = with_mpquic::ask(endpoint, config, address, QUESTION).await?;
        assert_eq!(answers, [QUESTION; 2], "{server_is_quinn}");
    }
    Ok(())
}
