//! QUIC keys from given traffic secrets, for a version other than that of the session's start.
//!
//! rustls fixes the QUIC version when a session starts. For other versions it only derives keys of
//! Initial packets, from a connection ID. [`suite_with_given_secrets`] returns a cipher suite that
//! makes this derivation use our traffic secrets instead.

use std::sync::{Mutex, PoisonError};

use rustls::crypto::CipherSuiteCommon;
use rustls::crypto::hmac::Tag;
use rustls::crypto::tls13::{Hkdf, HkdfExpander, OkmBlock, OutputLengthError};
use rustls::quic::{self, Algorithm, Version};
use rustls::{Side, Tls13CipherSuite};

/// Traffic secrets of both sides, of one encryption level and key generation.
pub(in crate::crypto) struct TrafficSecrets {
    pub(in crate::crypto) client: OkmBlock,
    pub(in crate::crypto) server: OkmBlock,
}

/// Derives keys from traffic secrets.
#[derive(Clone, Copy)]
pub(in crate::crypto) struct Derivation {
    suite: &'static Tls13CipherSuite,
    quic: &'static dyn Algorithm,
    side: Side,
    version: Version,
}

impl Derivation {
    /// For keys of a side in a version; `None` if the suite is not one for QUIC.
    pub(in crate::crypto) fn new(
        suite: &'static Tls13CipherSuite,
        side: Side,
        version: Version,
    ) -> Option<Self> {
        Some(Self {
            suite: suite_with_given_secrets(suite),
            quic: suite.quic?,
            side,
            version,
        })
    }

    /// The keys of a level (RFC 9001 section 5.1).
    pub(in crate::crypto) fn keys(&self, secrets: &TrafficSecrets) -> quic::Keys {
        let secrets = [secrets.client.as_ref(), secrets.server.as_ref()].concat();
        quic::Keys::initial(self.version, self.suite, self.quic, &secrets, self.side)
    }

    /// The secrets of the next key generation (RFC 9001 section 6.1).
    pub(in crate::crypto) fn next(&self, secrets: &TrafficSecrets) -> TrafficSecrets {
        let next = |secret| self.next_secret(secret);
        TrafficSecrets {
            client: next(&secrets.client),
            server: next(&secrets.server),
        }
    }

    fn next_secret(&self, secret: &OkmBlock) -> OkmBlock {
        let label: &[u8] = if matches!(self.version, Version::V2) {
            b"quicv2 ku"
        } else {
            b"quic ku"
        };
        let expander = self.suite.hkdf_provider.expander_for_okm(secret);
        with_label(label, &[], expander.hash_len(), |info| {
            expander.expand_block(info)
        })
    }
}

/// HKDF-Expand-Label (RFC 8446 section 7.1): builds the `HkdfLabel` and passes it to `expand`.
pub(super) fn with_label<T>(
    label: &[u8],
    context: &[u8],
    length: usize,
    expand: impl FnOnce(&[&[u8]]) -> T,
) -> T {
    let prefix = b"tls13 ";
    let length = (length as u16).to_be_bytes();
    let label_length = [(prefix.len() + label.len()) as u8];
    let context_length = [context.len() as u8];
    expand(&[
        &length,
        &label_length,
        prefix,
        label,
        &context_length,
        context,
    ])
}

/// A copy of a cipher suite that derives keys from the secrets of both sides, one after the other,
/// where `suite` derives them from a connection ID. Copies are never freed: a process has a
/// few suites, with one copy each.
fn suite_with_given_secrets(suite: &'static Tls13CipherSuite) -> &'static Tls13CipherSuite {
    type Copies = Vec<(&'static Tls13CipherSuite, &'static Tls13CipherSuite)>;
    static COPIES: Mutex<Copies> = Mutex::new(Vec::new());
    let mut copies = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, copy)) = copies.iter().find(|(known, _)| std::ptr::eq(*known, suite)) {
        return copy;
    }
    let copy: &'static Tls13CipherSuite = Box::leak(Box::new(Tls13CipherSuite {
        common: CipherSuiteCommon {
            suite: suite.common.suite,
            hash_provider: suite.common.hash_provider,
            confidentiality_limit: suite.common.confidentiality_limit,
        },
        hkdf_provider: Box::leak(Box::new(GivenSecrets(suite.hkdf_provider))),
        aead_alg: suite.aead_alg,
        quic: suite.quic,
    }));
    copies.push((suite, copy));
    copy
}

/// HKDF, except that the extraction for Initial packets returns the given secrets unchanged.
struct GivenSecrets(&'static dyn Hkdf);

impl Hkdf for GivenSecrets {
    fn extract_from_zero_ikm(&self, salt: Option<&[u8]>) -> Box<dyn HkdfExpander> {
        self.0.extract_from_zero_ikm(salt)
    }

    /// `secrets` are the client's and the server's, one after the other.
    fn extract_from_secret(&self, _: Option<&[u8]>, secrets: &[u8]) -> Box<dyn HkdfExpander> {
        let (client, server) = secrets.split_at(secrets.len() / 2);
        Box::new(Given {
            client: OkmBlock::new(client),
            server: OkmBlock::new(server),
        })
    }

    fn expander_for_okm(&self, okm: &OkmBlock) -> Box<dyn HkdfExpander> {
        self.0.expander_for_okm(okm)
    }

    fn hmac_sign(&self, key: &OkmBlock, message: &[u8]) -> Tag {
        self.0.hmac_sign(key, message)
    }
}

/// The result of the extraction: expanding the label `client in` returns the client's given secret,
/// any other label the server's.
struct Given {
    client: OkmBlock,
    server: OkmBlock,
}

impl HkdfExpander for Given {
    fn expand_slice(&self, _: &[&[u8]], _: &mut [u8]) -> Result<(), OutputLengthError> {
        Err(OutputLengthError)
    }

    fn expand_block(&self, info: &[&[u8]]) -> OkmBlock {
        let info = info.concat();
        let is_client = info.windows(9).any(|label| label == b"client in");
        let secret = if is_client {
            &self.client
        } else {
            &self.server
        };
        OkmBlock::new(secret.as_ref())
    }

    fn hash_len(&self) -> usize {
        self.client.as_ref().len()
    }
}
