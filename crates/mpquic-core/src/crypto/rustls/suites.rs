//! The provider of TLS, its cipher suites and key exchanges, and the checks that they suit
//! multipath QUIC.

use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::quic::{self, Suite};
use rustls::{CipherSuite, NamedGroup};

use crate::key_exchange::KeyExchangeGroup;
use crate::version::Version;

/// Enough for the transport parameters that we announce, bytes.
pub(super) const PARAMETERS_LENGTH: usize = 256;

/// Why a rustls configuration cannot be used for multipath QUIC.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TlsConfigError {
    /// No provider has the suite of Initial packets (RFC 9001 section 5).
    #[error("no TLS provider has TLS13_AES_128_GCM_SHA256")]
    NoInitialSuite,
    /// The provider's keys of this suite cannot use a path ID.
    #[error("the TLS provider's {0:?} does not support multipath QUIC")]
    NoMultipath(CipherSuite),
    /// The configuration was built outside this crate, and its provider has fixed the key
    /// exchanges.
    #[error(
        "a TLS configuration that was made elsewhere keeps its key exchange: make it with `KeyExchange::{0:?}.provider()`"
    )]
    KeyExchangeOfProvider(KeyExchange),
    /// rustls refuses the configuration.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// The key exchanges that a client offers or a server accepts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum KeyExchange {
    /// Prefers X25519MLKEM768 (draft-ietf-tls-ecdhe-mlkem), and falls back to elliptic curves for
    /// older peers. A quantum computer cannot decrypt recordings of such a connection later. A
    /// client's ClientHello takes two datagrams.
    ///
    /// X25519MLKEM768 needs the feature `aws-lc-rs`. With `ring` alone, this variant equals
    /// [`Self::Classical`].
    #[default]
    Hybrid,
    /// Elliptic curves only. A client's ClientHello fits one datagram.
    Classical,
}

impl KeyExchange {
    /// The compiled-in provider of TLS with these key exchanges; otherwise as [`provider`].
    pub fn provider(self) -> CryptoProvider {
        let mut provider = provider();
        self.restrict(&mut provider);
        provider
    }

    /// False for [`Self::Hybrid`] if the compiled-in provider lacks X25519MLKEM768.
    pub fn is_available(self) -> bool {
        match self {
            Self::Hybrid => provider().kx_groups.into_iter().any(is_post_quantum),
            Self::Classical => true,
        }
    }

    /// Sorts or removes the key exchanges of a provider accordingly.
    pub(super) fn restrict(self, provider: &mut CryptoProvider) {
        match self {
            Self::Hybrid => {
                (provider.kx_groups).sort_by_key(|group| group.name() != NamedGroup::X25519MLKEM768)
            }
            Self::Classical => provider.kx_groups.retain(|group| !is_post_quantum(*group)),
        }
    }
}

fn is_post_quantum(group: &dyn SupportedKxGroup) -> bool {
    KeyExchangeGroup(group.name().into()).is_post_quantum()
}

/// The compiled-in provider with the suites of TLS 1.3, AES-128-GCM first: it is the fastest where
/// the processor helps, and the keys of all suites are strong enough. Its key exchanges are those
/// of [`KeyExchange::Hybrid`].
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
    KeyExchange::Hybrid.restrict(&mut provider);
    provider
}

/// A version as rustls names it.
pub(super) fn tls_version(version: Version) -> quic::Version {
    match version {
        Version::V1 => quic::Version::V1,
        Version::V2 => quic::Version::V2,
    }
}

/// The suite of Initial packets (RFC 9001 section 5), from `wanted` or else from the compiled-in
/// provider. First checks that all suites support path IDs: rustls accepts a provider without this
/// support, and would fail at every packet.
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
