//! Certificates that lead to one of an own list, or stand in it themselves.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme,
};

/// Where each section of a PEM text begins.
const BEGIN: &str = "-----BEGIN ";

/// The certificates of a PEM text as roots, and for each one that cannot be used its number in the text,
/// from 1, and the reason: one broken certificate does not make the others useless.
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
    // Each section by itself: one without an end would take the next one with it.
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

/// Whether `refusal` says no more than that `certificate` is one of an authority, and that authority is among
/// `roots`: whoever has its key could sign another certificate with the same names. `openssl req -x509`
/// makes such certificates for servers.
fn stands_in(
    roots: &RootCertStore,
    certificate: &CertificateDer<'_>,
    refusal: &rustls::Error,
) -> bool {
    // Names of servers are not looked at yet, the time is: a test would see another order.
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

/// Trusts servers whose certificate leads to one of some roots, or is one of them itself, and is for the name
/// and the time.
///
/// [`QuicClientConfig::with_roots`](super::QuicClientConfig::with_roots) is the short way; this is for
/// rustls configurations of one's own.
#[derive(Debug)]
pub struct ServerAuthorities {
    roots: Arc<RootCertStore>,
    inner: Arc<WebPkiServerVerifier>,
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
        let inner = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider).build()?;
        Ok(Self { roots, inner })
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

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Trusts clients whose certificate leads to one of some roots, or is one of them itself, and is for the time.
/// A client without a certificate is refused.
#[derive(Debug)]
pub struct ClientAuthorities {
    roots: Arc<RootCertStore>,
    inner: Arc<dyn ClientCertVerifier>,
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
        let inner = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider).build()?;
        Ok(Self { roots, inner })
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

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
