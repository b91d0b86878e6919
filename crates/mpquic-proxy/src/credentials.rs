//! [`Credentials`]: the users of a proxy.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::credential::{Credential, Scheme};
use crate::hashed_password::HashedPassword;

/// The users of a proxy.
///
/// Only hashes are kept. Each comparison covers every user, in constant time. A comparison with a
/// [`HashedPassword`] takes milliseconds, except for the user's last right password.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    users: Vec<User>,
    hashed: Vec<HashedPassword>,
    /// The hash of the last right value of each user in `hashed`. Clones share it.
    right: Arc<Mutex<BTreeMap<usize, [u8; 32]>>>,
}

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
        Self {
            users: users.collect(),
            ..Self::default()
        }
    }

    /// With further users, whose passwords are hashed.
    #[must_use]
    pub fn with_hashed(mut self, users: impl IntoIterator<Item = HashedPassword>) -> Self {
        self.hashed.extend(users);
        self
    }

    /// True without any user.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.hashed.is_empty()
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
        let hash: [u8; 32] = Sha256::digest(shown.trim()).into();
        let mut found = None;
        for user in &self.users {
            let is_equal = bool::from(user.shown.ct_eq(&hash));
            if is_equal && user.scheme == scheme {
                found = Some(user.name.as_str());
            }
        }
        match scheme {
            Scheme::Basic => found.or_else(|| self.hashed_user(shown, hash)),
            Scheme::Bearer => found,
        }
    }

    /// The name of the user with a hashed password who shows this name and password, in base64.
    /// `hash` is the hash of the text.
    fn hashed_user(&self, shown: &str, hash: [u8; 32]) -> Option<&str> {
        let shown = STANDARD.decode(shown.trim()).ok()?;
        let colon = shown.iter().position(|byte| *byte == b':')?;
        let (name, password) = (&shown[..colon], &shown[colon + 1..]);
        let is_named = |user: &HashedPassword| user.name().as_bytes() == name;
        let Some(index) = self.hashed.iter().position(is_named) else {
            // The time of the answer does not tell whether the name exists.
            let _ = self.hashed.first()?.is_right(password);
            return None;
        };
        let known = || self.right.lock().unwrap_or_else(PoisonError::into_inner);
        let right = known().get(&index).copied();
        let is_right = right.is_some_and(|right| right.ct_eq(&hash).into());
        let user = self.hashed.get(index)?;
        if !is_right && !user.is_right(password) {
            return None;
        }
        known().insert(index, hash);
        Some(user.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credential::InvalidCredential;

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
    fn users_with_hashed_passwords_are_recognised() {
        let credential = |text: &str| text.parse::<Credential>().unwrap();
        let hashed = ["basic alice:a:b", "basic bob:secret"]
            .map(|text| HashedPassword::new(&credential(text), [3; 16]).unwrap());
        let users = Credentials::new([credential("basic carol:c")]).with_hashed(hashed);
        assert!(!users.is_empty());
        let user = |text: &str| users.user(&credential(text).to_field());
        // The second time from memory.
        for _ in 0..2 {
            assert_eq!(user("basic alice:a:b"), Some("alice"));
            assert_eq!(user("basic bob:secret"), Some("bob"));
            assert_eq!(user("basic carol:c"), Some("carol"));
            for wrong in [
                "alice:a",
                "alice:secret",
                "bob:a:b",
                "dora:secret",
                "carol:d",
            ] {
                assert_eq!(user(&format!("basic {wrong}")), None, "{wrong}");
            }
        }
        let right = users.right.lock().unwrap();
        assert_eq!(right.keys().collect::<Vec<_>>(), [&0, &1]);
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
