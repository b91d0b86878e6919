//! [`Credentials`]: the users of a proxy.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
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
    scheme: Scheme,
    /// The part of the field after the scheme.
    shown: String,
    name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
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
            return match is_name && !rest.chars().any(char::is_control) {
                true => Ok(Self {
                    scheme: Scheme::Basic,
                    shown: STANDARD.encode(rest),
                    name: name.to_owned(),
                }),
                false => Err(InvalidCredential),
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

/// The users of a proxy.
///
/// Only hashes are kept. A comparison covers all users and takes the same time for any of them.
#[derive(Debug, Clone, Default)]
pub struct Credentials(Vec<User>);

#[derive(Debug, Clone)]
struct User {
    scheme: Scheme,
    shown: [u8; 32],
    name: String,
}

impl Credentials {
    /// The users of the proxy.
    pub fn new(users: impl IntoIterator<Item = Credential>) -> Self {
        let users = users.into_iter().map(|credential| User {
            scheme: credential.scheme,
            shown: Sha256::digest(&credential.shown).into(),
            name: credential.name,
        });
        Self(users.collect())
    }

    /// True without any user.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The user name in a value of `Proxy-Authorization`, right or wrong; empty without a name.
    pub(crate) fn claimed(field: &HeaderValue) -> String {
        let shown = || {
            let (scheme, shown) = field.to_str().ok()?.split_once(' ')?;
            let shown = STANDARD.decode(shown.trim()).ok()?;
            let name = shown.split(|byte| *byte == b':').next()?;
            let name = String::from_utf8_lossy(name).into_owned();
            scheme.eq_ignore_ascii_case("basic").then_some(name)
        };
        shown().unwrap_or_default()
    }

    /// The name of the user who shows this value of `Proxy-Authorization`.
    pub fn user(&self, field: &HeaderValue) -> Option<&str> {
        let (scheme, shown) = field.to_str().ok()?.split_once(' ')?;
        let scheme = match scheme {
            _ if scheme.eq_ignore_ascii_case("basic") => Scheme::Basic,
            _ if scheme.eq_ignore_ascii_case("bearer") => Scheme::Bearer,
            _ => return None,
        };
        let shown: [u8; 32] = Sha256::digest(shown.trim()).into();
        let mut found = None;
        for user in &self.0 {
            let is_equal = bool::from(user.shown.ct_eq(&shown));
            if is_equal && user.scheme == scheme {
                found = Some(user.name.as_str());
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_known_is_a_user() {
        let users = ["basic a:b:c", "Bearer abc.def=", "basic ü"].map(str::parse::<Credential>);
        let [Ok(basic), Ok(bearer), Err(InvalidCredential)] = users else {
            panic!("{users:?}");
        };
        let credentials = Credentials::new([basic, bearer]);
        let user = |field: &'static str| credentials.user(&HeaderValue::from_static(field));
        // The base64 of `a:b:c`.
        assert_eq!(user("Basic YTpiOmM="), Some("a"));
        assert_eq!(user("bAsIc  YTpiOmM= "), Some("a"));
        assert!(user("Bearer abc.def=").unwrap().starts_with("token-"));
        for wrong in [
            "",
            "Basic",
            "Basic ",
            "Basic YTpiOmQ=",
            "Basic a:b:c",
            "Bearer YTpiOmM=",
            "Bearer abc.def",
            "Digest YTpiOmM=",
        ] {
            assert_eq!(user(wrong), None, "{wrong}");
        }
        assert_eq!(
            Credentials::default().user(&HeaderValue::from_static("Basic YTpiOmM=")),
            None
        );
    }

    #[test]
    fn secrets_are_not_printed() {
        let credential: Credential = "basic name:secret".parse().unwrap();
        let field = credential.to_field();
        assert_eq!(field.as_bytes(), b"Basic bmFtZTpzZWNyZXQ=");
        let printed = format!(
            "{credential:?} {field:?} {:?}",
            Credentials::new([credential.clone()])
        );
        assert!(
            !printed.contains("secret") && !printed.contains("bmFtZTpzZWNyZXQ"),
            "{printed}"
        );
        for wrong in [
            "",
            "basic",
            "basic name",
            "basic :x",
            "bearer ",
            "bearer a b",
            "digest a",
            "basic a b:c",
        ] {
            assert_eq!(
                wrong.parse::<Credential>(),
                Err(InvalidCredential),
                "{wrong}"
            );
        }
    }

    #[test]
    fn names_are_claimed_whether_or_not_they_are_right() {
        let claimed = |text: &'static str| Credentials::claimed(&HeaderValue::from_static(text));
        assert_eq!(claimed("basic YWxpY2U6d29uZGVybGFuZA=="), "alice");
        for nameless in ["Bearer YWxpY2U6", "Basic", "Basic !", ""] {
            assert_eq!(claimed(nameless), "", "{nameless}");
        }
    }
}
