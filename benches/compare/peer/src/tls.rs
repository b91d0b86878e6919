//! TLS of the stacks that use rustls: ring or aws-lc-rs; AES-128-GCM only, X25519, one certificate.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientSessionStore, Resumption, WebPkiServerVerifier};
use rustls::client::{Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::crypto::CryptoProvider;
use rustls::crypto::{aws_lc_rs, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CipherSuite, NamedGroup, RootCertStore, SignatureScheme};
use rustls::{ClientConfig, DigitallySignedStruct, ServerConfig};

use crate::{Options, Result, Workload};

/// The name in the certificate.
pub const SERVER_NAME: &str = "server.test";
/// The application protocol.
pub const ALPN: &[u8] = b"compare";
/// File of the authority's certificate, which clients trust.
pub const AUTHORITY: &str = "authority.pem";
/// File of the server's certificate.
pub const CERTIFICATE: &str = "cert.pem";
/// File of the server's key.
pub const KEY: &str = "key.pem";

/// The variant of a peer that has its cryptography from aws-lc-rs; ring otherwise.
pub const AWS_LC: &str = "aws-lc";

fn is_aws_lc(options: &Options) -> bool {
    options.variant.as_deref() == Some(AWS_LC)
}

/// A library with the cipher and the key exchange that all peers use.
pub fn provider(options: &Options) -> Arc<CryptoProvider> {
    let mut provider = if is_aws_lc(options) {
        aws_lc_rs::default_provider()
    } else {
        ring::default_provider()
    };
    let cipher = CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider
        .cipher_suites
        .retain(|suite| suite.suite() == cipher);
    provider
        .kx_groups
        .retain(|group| group.name() == NamedGroup::X25519);
    Arc::new(provider)
}

/// The server's side.
pub fn server(workload: Workload, options: &Options) -> Result<ServerConfig> {
    let key = PrivateKeyDer::from_pem_file(options.credentials.join(KEY))?;
    let mut config = ServerConfig::builder_with_provider(provider(options))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![read_certificate(options, CERTIFICATE)?], key)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    if workload == Workload::Resumed {
        // Stateless tickets, so that one ticket resumes many connections.
        config.ticketer = if is_aws_lc(options) {
            aws_lc_rs::Ticketer::new()?
        } else {
            ring::Ticketer::new()?
        };
    }
    Ok(config)
}

/// The client's side.
pub fn client(workload: Workload, options: &Options) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(read_certificate(options, AUTHORITY)?)?;
    let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider(options));
    let verifier = verifier.build()?;
    let mut config = ClientConfig::builder_with_provider(provider(options))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Counting(verifier)))
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = match workload {
        Workload::Resumed => Resumption::store(Arc::new(Tickets::default())),
        _ => Resumption::disabled(),
    };
    Ok(config)
}

/// The name of a file with credentials, for stacks that take the name as text.
pub fn file_name(options: &Options, name: &str) -> Result<String> {
    let path = options.credentials.join(name).into_os_string();
    Ok(path.into_string().map_err(|_| "not a name")?)
}

fn read_certificate(options: &Options, name: &str) -> Result<CertificateDer<'static>> {
    Ok(CertificateDer::from_pem_file(
        options.credentials.join(name),
    )?)
}

/// The number of certificates that this process has verified: its full handshakes as a client.
pub(crate) fn verified() -> u64 {
    VERIFIED.load(Ordering::Relaxed)
}

/// Counts a certificate that was verified without the verifier of [`client`].
pub fn count_verified() {
    VERIFIED.fetch_add(1, Ordering::Relaxed);
}

static VERIFIED: AtomicU64 = AtomicU64::new(0);

/// Verifies certificates as rustls does, and counts them.
#[derive(Debug)]
struct Counting(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for Counting {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        count_verified();
        let verifier = &self.0;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Keeps session tickets, of all connections together.
#[derive(Debug, Default)]
struct Tickets(Mutex<VecDeque<Tls13ClientSessionValue>>);

/// The largest number of kept tickets, above the need of every workload.
const MAX_TICKETS: usize = 1024;

impl Tickets {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Tls13ClientSessionValue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        Some(NamedGroup::X25519)
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut tickets = self.lock();
        tickets.push_back(value);
        if tickets.len() > MAX_TICKETS {
            tickets.pop_front();
        }
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.lock().pop_front()
    }
}
