//! TLS of both stacks: ring, AES-128-GCM only, one certificate.

use std::sync::Arc;

use mpquic_sim::tls::certificate;
use rustls::crypto::{CryptoProvider, ring};
use rustls::{CipherSuite, ClientConfig, RootCertStore, ServerConfig};

use crate::Result;

pub(crate) use mpquic_sim::tls::SERVER_NAME;

/// The application protocol: a client sends a number, the server that many bytes.
const ALPN: &[u8] = b"bulk";

fn provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    provider
        .cipher_suites
        .retain(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

pub(crate) fn server() -> Result<Arc<ServerConfig>> {
    let (certificate, key) = certificate();
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(config))
}

pub(crate) fn client() -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate().0)?;
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(config))
}
