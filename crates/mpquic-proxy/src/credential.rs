//! [`Credential`]: the secret of one user.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use sha2::{Digest, Sha256};
use thiserror::Error;

/// Longest name in bytes, because names stand in logs.
const MAX_NAME: usize = 64;

/// The secret of one user: a name and a password (RFC 7617), or a token (RFC 6750).
///
/// As text `basic NAME:PASSWORD` or `bearer TOKEN`. Never printed.
///
/// ```
/// use mpquic_proxy::{Credential, Credentials};
///
/// let credential: Credential = "basic alice:wonderland".parse()?;
/// let credentials = Credentials::new([credential.clone()]);
/// assert_eq!(credentials.user(&credential.to_field()), Some("alice"));
/// let other: Credential = "basic alice:looking-glass".parse()?;
/// assert_eq!(credentials.user(&other.to_field()), None);
/// # Ok::<_, mpquic_proxy::InvalidCredential>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    pub(crate) scheme: Scheme,
    /// The part of the field after the scheme.
    pub(crate) shown: String,
    pub(crate) name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Basic,
    Bearer,
}

/// A text other than a [`Credential`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "expected `basic NAME:PASSWORD` or `bearer TOKEN`: a name of at most 64 printable ASCII characters, a token of \
     letters, digits and -._~+/="
)]
pub struct InvalidCredential;

impl FromStr for Credential {
    type Err = InvalidCredential;

    fn from_str(text: &str) -> Result<Self, InvalidCredential> {
        let (scheme, rest) = text.split_once(' ').ok_or(InvalidCredential)?;
        let rest = rest.trim();
        if scheme.eq_ignore_ascii_case("basic") {
            let (name, _) = rest.split_once(':').ok_or(InvalidCredential)?;
            let is_name = (1..=MAX_NAME).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_graphic());
            return if is_name && !rest.chars().any(char::is_control) {
                Ok(Self {
                    scheme: Scheme::Basic,
                    shown: STANDARD.encode(rest),
                    name: name.to_owned(),
                })
            } else {
                Err(InvalidCredential)
            };
        }
        // RFC 6750 section 2.1
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        if scheme.eq_ignore_ascii_case("bearer") && !rest.is_empty() && rest.bytes().all(is_token) {
            let hash = Sha256::digest(rest);
            let digits = hash.iter().take(4).map(|byte| format!("{byte:02x}"));
            return Ok(Self {
                scheme: Scheme::Bearer,
                shown: rest.to_owned(),
                // The name tells tokens apart in logs, and reveals nothing of the token.
                name: format!("token-{}", digits.collect::<String>()),
            });
        }
        Err(InvalidCredential)
    }
}

impl Credential {
    /// The name of the user. The user of a token is `token-` and the first 8 digits of its SHA-256.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The password; `None` for a token.
    pub(crate) fn password(&self) -> Option<Vec<u8>> {
        let shown = STANDARD.decode(&self.shown).ok();
        let shown = shown.filter(|_| self.scheme == Scheme::Basic)?;
        Some(shown.get(self.name.len() + 1..)?.to_vec())
    }

    /// True for a token, without a password.
    pub fn is_token(&self) -> bool {
        self.scheme == Scheme::Bearer
    }

    /// The value of `Proxy-Authorization`, marked as sensitive.
    pub fn to_field(&self) -> HeaderValue {
        let scheme = match self.scheme {
            Scheme::Basic => "Basic",
            Scheme::Bearer => "Bearer",
        };
        // Both are ASCII without control characters.
        let value = HeaderValue::try_from(format!("{scheme} {}", self.shown));
        let mut value = value.unwrap_or(HeaderValue::from_static(""));
        value.set_sensitive(true);
        value
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credential({})", self.name)
    }
}
