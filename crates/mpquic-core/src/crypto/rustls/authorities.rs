//! Verifiers that trust a list of root certificates. A peer's certificate may be signed by a root,
//! or be a root itself.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme,
};

use super::verifier::check_signatures;

/// The start of each section of a PEM text.
const BEGIN: &str = "-----BEGIN ";

/// Reads the certificates of a PEM text as roots. Also returns, for each unusable certificate, its
/// number in the text (from 1) and the reason. A broken certificate does not affect the others.
///
/// ```
/// use mpquic_core::crypto::rustls::roots_in_pem;
///
/// let broken = b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
/// let (roots, left_out) = roots_in_pem(broken);
/// assert!(roots.is_empty());
/// assert_eq!(left_out, ["certificate 1: it is not base64"]);
/// ```
pub fn roots_in_pem(pem: &[u8]) -> (RootCertStore, Vec<String>) {
    let (mut roots, mut left_out) = (RootCertStore::empty(), Vec::new());
    let text = String::from_utf8_lossy(pem);
    // Each section is read alone: a section without an end would swallow the next section.
    let sections = text.split(BEGIN).skip(1);
    let certificates = sections.filter(|section| section.starts_with("CERTIFICATE-----"));
    for (section, number) in certificates.zip(1..) {
        let read = CertificateDer::from_pem_slice(format!("{BEGIN}{section}").as_bytes());
        let reason = match read.map(|certificate| roots.add(certificate)) {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error.to_string(),
            Err(pem::Error::MissingSectionEnd { .. }) => "it has no end".to_owned(),
            Err(pem::Error::Base64Decode(_)) => "it is not base64".to_owned(),
            Err(error) => error.to_string(),
        };
        left_out.push(format!("certificate {number}: {reason}"));
    }
    (roots, left_out)
}

/// True if `certificate` is among `roots`, and `refusal` only objects that it is a certificate of
/// an authority. The owner of a root's key could sign another certificate with the same names, so
/// the root itself is as good. `openssl req -x509` makes such certificates for servers.
fn stands_in(
    roots: &RootCertStore,
    certificate: &CertificateDer<'_>,
    refusal: &rustls::Error,
) -> bool {
    // webpki reports this error after it has checked the time and before the server's name.
    let rustls::Error::InvalidCertificate(CertificateError::Other(other)) = refusal else {
        return false;
    };
    let is_authority = matches!(
        other.0.downcast_ref(),
        Some(webpki::Error::CaUsedAsEndEntity)
    );
    let anchor = webpki::anchor_from_trusted_cert(certificate);
    is_authority && anchor.is_ok_and(|anchor| roots.roots.contains(&anchor))
}

/// Trusts a server whose certificate is valid now, names the server, and is signed by a root or is
/// a root itself.
///
/// For rustls configurations of your own; otherwise
/// [`QuicClientConfig::with_roots`](super::QuicClientConfig::with_roots) does the same.
#[derive(Debug)]
pub struct ServerAuthorities {
    roots: Arc<RootCertStore>,
    inner: Arc<WebPkiServerVerifier>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerAuthorities {
    /// Trusts these roots.
    ///
    /// # Errors
    ///
    /// If there are none.
    pub fn new(
        roots: RootCertStore,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        let roots = Arc::new(roots);
        let algorithms = provider.signature_verification_algorithms;
        let inner = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider).build()?;
        Ok(Self {
            roots,
            inner,
            algorithms,
        })
    }
}

impl ServerCertVerifier for ServerAuthorities {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let checked = self.inner.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match checked {
            Err(refusal) if stands_in(&self.roots, end_entity, &refusal) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            checked => checked,
        }
    }

    check_signatures!();
}

/// Trusts a client whose certificate is valid now, and is signed by a root or is a root itself. A
/// client without a certificate is refused.
#[derive(Debug)]
pub struct ClientAuthorities {
    roots: Arc<RootCertStore>,
    inner: Arc<dyn ClientCertVerifier>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientAuthorities {
    /// Trusts these roots.
    ///
    /// # Errors
    ///
    /// If there are none.
    pub fn new(
        roots: RootCertStore,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        let roots = Arc::new(roots);
        let algorithms = provider.signature_verification_algorithms;
        let inner = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider).build()?;
        Ok(Self {
            roots,
            inner,
            algorithms,
        })
    }
}

impl ClientCertVerifier for ClientAuthorities {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        match (self.inner).verify_client_cert(end_entity, intermediates, now) {
            Err(refusal) if stands_in(&self.roots, end_entity, &refusal) => {
                Ok(ClientCertVerified::assertion())
            }
            checked => checked,
        }
    }

    check_signatures!();
}
