//! Real TLS for the lab: configurations with a self-signed certificate of constant size.

use std::sync::Arc;

use mpquic_core::config::{ClientConfig, ServerConfig, TransportConfig};
use mpquic_core::crypto::rustls::{
    KeyExchange, QuicClientConfig, QuicServerConfig, TlsConfigError,
};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// The name in the certificate.
pub const SERVER_NAME: &str = "server.test";

/// An Ed25519 key in PKCS #8: a fixed prefix and 32 bytes of seed. The key protects no secret. A
/// constant key makes handshakes equally long in every run.
const KEY: [u8; 48] = {
    let prefix = [
        0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04,
        0x20,
    ];
    let mut key = [0x6d; 48];
    let mut index = 0;
    while index < prefix.len() {
        key[index] = prefix[index];
        index += 1;
    }
    key
};

/// A certificate for [`KEY`], valid until the year 4096. The certificate is part of the source, so
/// that simulations need no library to make certificates.
const CERTIFICATE: &[u8] = include_bytes!("certificate.der");

/// TLS configuration of both sides: the client trusts the server's certificate.
#[derive(Debug, Clone)]
pub struct Tls {
    client: Arc<QuicClientConfig>,
    server: Arc<QuicServerConfig>,
}

impl Tls {
    /// A configuration that negotiates this application protocol.
    pub fn new(alpn: &[u8]) -> Self {
        let (certificate, key) = certificate();
        let mut roots = RootCertStore::empty();
        let client = roots.add(certificate.clone()).map(|()| roots);
        let client = client.map(|roots| QuicClientConfig::with_roots(roots, &[alpn]));
        let server = QuicServerConfig::with_certificate(vec![certificate], key, &[alpn]);
        match (client, server) {
            (Ok(Ok(client)), Ok(server)) => Self {
                client: Arc::new(client),
                server: Arc::new(server),
            },
            (client, server) => {
                panic!("the test certificate does not work: {client:?}, {server:?}")
            }
        }
    }

    /// The same, with these key exchanges instead of [`KeyExchange::Hybrid`].
    ///
    /// # Errors
    ///
    /// If the server's TLS is not from [`Self::new`].
    pub fn key_exchange(&self, wanted: KeyExchange) -> Result<Self, TlsConfigError> {
        Ok(Self {
            client: Arc::new(self.client.key_exchange(wanted)?),
            server: Arc::new(self.server.key_exchange(wanted)?),
        })
    }

    /// Keeps the client, and replaces the server's TLS configuration.
    #[must_use]
    pub fn with_server(&self, server: Arc<QuicServerConfig>) -> Self {
        Self {
            client: self.client.clone(),
            server,
        }
    }

    /// The same server, with the client of another configuration.
    #[must_use]
    pub fn with_client_of(&self, other: &Self) -> Self {
        Self {
            client: other.client.clone(),
            server: self.server.clone(),
        }
    }

    /// The same client, with a new server that cannot read its session tickets.
    #[must_use]
    pub fn with_fresh_server(&self, alpn: &[u8]) -> Self {
        Self {
            client: self.client.clone(),
            ..Self::new(alpn)
        }
    }

    /// A core client configuration. All configurations of one `Tls` share session tickets.
    pub fn client(&self, transport: Arc<TransportConfig>) -> ClientConfig {
        ClientConfig::new(self.client.clone(), transport)
    }

    /// A core server configuration.
    pub fn server(&self, transport: Arc<TransportConfig>) -> ServerConfig {
        ServerConfig::new(self.server.clone(), transport, [7; 32])
    }
}

/// A self-signed certificate for [`SERVER_NAME`] and its key, the same in each call.
pub fn certificate() -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let key = PrivatePkcs8KeyDer::from(KEY.to_vec());
    (CertificateDer::from(CERTIFICATE), key.into())
}
