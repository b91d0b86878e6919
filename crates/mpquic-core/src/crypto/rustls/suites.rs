//! The provider of TLS, its suites, and whether they do for multipath QUIC.

use rustls::CipherSuite;
use rustls::crypto::CryptoProvider;
use rustls::quic::{self, Suite};

use crate::version::Version;

/// Enough for the transport parameters that we announce, bytes.
pub(super) const PARAMETERS_LENGTH: usize = 256;

/// Why a rustls configuration cannot be used for multipath QUIC.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TlsConfigError {
    /// Initial packets need this suite (RFC 9001 section 5), and no provider has it.
    #[error("no TLS provider has TLS13_AES_128_GCM_SHA256")]
    NoInitialSuite,
    /// The provider's keys of this suite do not know path IDs.
    #[error("the TLS provider's {0:?} does not support multipath QUIC")]
    NoMultipath(CipherSuite),
    /// rustls refuses the configuration.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// The compiled-in provider with the suites of TLS 1.3, AES-128-GCM first: it is the fastest where
/// the processor helps, and the keys of all suites are strong enough.
pub fn provider() -> CryptoProvider {
    #[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
    let mut provider = rustls::crypto::ring::default_provider();
    #[cfg(feature = "aws-lc-rs")]
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider
        .cipher_suites
        .retain(|suite| suite.tls13().is_some());
    provider
        .cipher_suites
        .sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    provider
}

/// A version as rustls names it.
pub(super) fn tls_version(version: Version) -> quic::Version {
    match version {
        Version::V1 => quic::Version::V1,
        Version::V2 => quic::Version::V2,
    }
}

/// The suite of Initial packets (RFC 9001 section 5), from the compiled-in provider if this one
/// does not have it. First checks that all suites support path IDs: rustls does not demand that of
/// a provider, and would fail at every packet.
pub(super) fn checked_initial_suite(wanted: &CryptoProvider) -> Result<Suite, TlsConfigError> {
    for suite in &wanted.cipher_suites {
        let Some(quic) = suite.tls13().and_then(|suite| suite.quic_suite()) else {
            continue;
        };
        let keys = quic.keys(&[], rustls::Side::Client, quic::Version::V1);
        if keys
            .local
            .packet
            .encrypt_in_place_for_path(1, 0, &[], &mut [0; 16])
            .is_err()
        {
            return Err(TlsConfigError::NoMultipath(suite.suite()));
        }
    }
    initial_suite(wanted)
        .or_else(|| initial_suite(&provider()))
        .ok_or(TlsConfigError::NoInitialSuite)
}

fn initial_suite(provider: &CryptoProvider) -> Option<Suite> {
    let mut suites = provider.cipher_suites.iter();
    let suite = suites.find(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256)?;
    suite.tls13()?.quic_suite()
}
