//! Servers that a client trusts by the fingerprint of their certificate, or by their public key.

#[cfg(feature = "aws-lc-rs")]
use aws_lc_rs::digest;
#[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
use ring::digest;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, PeerIncompatible, SignatureScheme};

/// The methods of a verifier that check signatures of the handshake with `self.algorithms`.
macro_rules! check_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            rustls::crypto::verify_tls12_signature(
                message,
                certificate,
                signature,
                &self.algorithms,
            )
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            rustls::crypto::verify_tls13_signature(
                message,
                certificate,
                signature,
                &self.algorithms,
            )
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.algorithms.supported_schemes()
        }
    };
}
pub(super) use check_signatures;

/// SHA-256 of a certificate's DER encoding: what [`PinVerifier`] compares.
pub fn certificate_fingerprint(certificate: &CertificateDer<'_>) -> [u8; 32] {
    let mut fingerprint = [0; 32];
    fingerprint.copy_from_slice(digest::digest(&digest::SHA256, certificate).as_ref());
    fingerprint
}

/// Trusts servers by the fingerprint of their certificate, or all of them, whatever a certificate
/// says of name, issuer and dates. That a server holds the private key of its certificate is always
/// checked.
///
/// [`QuicClientConfig::with_pin`](super::QuicClientConfig::with_pin) is the short way; this is for
/// rustls configurations of one's own.
///
/// ```
/// use std::sync::Arc;
///
/// use mpquic_core::crypto::rustls::{PinVerifier, QuicClientConfig, provider};
///
/// let provider = Arc::new(provider());
/// let verifier = PinVerifier::new([0x5a; 32], &provider);
/// let config = rustls::ClientConfig::builder_with_provider(provider)
///     .with_protocol_versions(&[&rustls::version::TLS13])?
///     .dangerous()
///     .with_custom_certificate_verifier(Arc::new(verifier))
///     .with_no_client_auth();
/// let crypto = QuicClientConfig::new(Arc::new(config))?;
/// # Ok::<_, mpquic_core::crypto::rustls::TlsConfigError>(())
/// ```
#[derive(Debug)]
pub struct PinVerifier {
    /// `None` trusts any certificate.
    pin: Option<[u8; 32]>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl PinVerifier {
    /// Trusts the certificate with this SHA-256 (see [`certificate_fingerprint`]). Signatures are
    /// checked with the algorithms of `provider`.
    pub fn new(fingerprint: [u8; 32], provider: &CryptoProvider) -> Self {
        Self {
            pin: Some(fingerprint),
            algorithms: provider.signature_verification_algorithms,
        }
    }

    /// Trusts every certificate: encryption without authentication. For tests and measurements.
    pub fn dangerous_trusting_any_certificate(provider: &CryptoProvider) -> Self {
        Self {
            pin: None,
            algorithms: provider.signature_verification_algorithms,
        }
    }
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.pin {
            Some(pin) if pin != certificate_fingerprint(end_entity) => {
                Err(CertificateError::ApplicationVerificationFailure.into())
            }
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    check_signatures!();
}

/// Trusts the server with one public key, which it shows without a certificate (RFC 7250). That it
/// holds the private key is always checked.
///
/// [`QuicClientConfig::with_raw_public_key`](super::QuicClientConfig::with_raw_public_key) is the
/// short way; this is for rustls configurations of one's own.
#[derive(Debug)]
pub struct RawKeyVerifier {
    key: SubjectPublicKeyInfoDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl RawKeyVerifier {
    /// Trusts this key. Signatures are checked with the algorithms of `provider`.
    pub fn new(key: SubjectPublicKeyInfoDer<'static>, provider: &CryptoProvider) -> Self {
        Self {
            key,
            algorithms: provider.signature_verification_algorithms,
        }
    }
}

impl ServerCertVerifier for RawKeyVerifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if shown.as_ref() == self.key.as_ref() {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _shown: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerIncompatible::Tls13RequiredForQuic.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        _shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature_with_raw_key(message, &self.key, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
