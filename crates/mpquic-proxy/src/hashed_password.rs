//! [`HashedPassword`]: a user's name with a hash of the password, for files of a server.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use pbkdf2::pbkdf2_hmac;
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::credential::{Credential, InvalidCredential};

/// Rounds of a new hash: some milliseconds for each guess. A server computes a hash for each wrong
/// password, in the thread of its connections.
const ROUNDS: u32 = 20_000;
/// Most rounds of a hash in a file.
const MOST_ROUNDS: u32 = 1_000_000;
/// The first word of the text.
const SCHEME: &str = "basic-hash";

/// A user's name, and PBKDF2-HMAC-SHA-256 of the password with a salt (RFC 8018).
///
/// As text `basic-hash NAME:ROUNDS:SALT:HASH`, with salt and hash in base64. Readers of the text
/// can guess a short password: use a long and random password.
///
/// ```
/// use mpquic_proxy::{Credential, Credentials, HashedPassword};
///
/// let credential: Credential = "basic alice:wonderland".parse()?;
/// let hashed = HashedPassword::new(&credential, [7; 16])?;
/// assert!(hashed.to_string().starts_with("basic-hash alice:20000:"));
/// let users = Credentials::default().with_hashed([hashed.to_string().parse()?]);
/// assert_eq!(users.user(&credential.to_field()), Some("alice"));
/// # Ok::<_, mpquic_proxy::InvalidCredential>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct HashedPassword {
    name: String,
    rounds: u32,
    salt: [u8; 16],
    hash: [u8; 32],
}

impl HashedPassword {
    /// Hashes the password of a credential. `salt` is random, and different for each user.
    ///
    /// # Errors
    ///
    /// If the credential is a token.
    pub fn new(credential: &Credential, salt: [u8; 16]) -> Result<Self, InvalidCredential> {
        let password = credential.password().ok_or(InvalidCredential)?;
        Ok(Self {
            name: credential.name().to_owned(),
            rounds: ROUNDS,
            salt,
            hash: hash(&password, &salt, ROUNDS),
        })
    }

    /// The name of the user.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True for the user's password.
    pub(crate) fn is_right(&self, password: &[u8]) -> bool {
        let shown = hash(password, &self.salt, self.rounds);
        shown.ct_eq(&self.hash).into()
    }
}

fn hash(password: &[u8], salt: &[u8], rounds: u32) -> [u8; 32] {
    let mut hash = [0; 32];
    pbkdf2_hmac::<Sha256>(password, salt, rounds, &mut hash);
    hash
}

impl FromStr for HashedPassword {
    type Err = InvalidCredential;

    fn from_str(text: &str) -> Result<Self, InvalidCredential> {
        let parse = || {
            let (scheme, rest) = text.split_once(' ')?;
            let [hash, salt, rounds, name] = {
                let mut parts = rest.trim().rsplitn(4, ':');
                [parts.next()?, parts.next()?, parts.next()?, parts.next()?]
            };
            // The name has the form of a credential's name.
            let name: Credential = format!("basic {name}:").parse().ok()?;
            let rounds = rounds.parse().ok()?;
            let is_valid =
                scheme.eq_ignore_ascii_case(SCHEME) && (1..=MOST_ROUNDS).contains(&rounds);
            is_valid.then_some(Self {
                name: name.name().to_owned(),
                rounds,
                salt: STANDARD_NO_PAD.decode(salt).ok()?.try_into().ok()?,
                hash: STANDARD_NO_PAD.decode(hash).ok()?.try_into().ok()?,
            })
        };
        parse().ok_or(InvalidCredential)
    }
}

impl fmt::Display for HashedPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, rounds, .. } = self;
        let [salt, hash] = [&self.salt[..], &self.hash].map(|bytes| STANDARD_NO_PAD.encode(bytes));
        write!(f, "{SCHEME} {name}:{rounds}:{salt}:{hash}")
    }
}

impl fmt::Debug for HashedPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HashedPassword({})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7914 section 11.
    #[test]
    fn the_hash_is_that_of_the_standard() {
        let found = hash(b"passwd", b"salt", 1);
        assert_eq!(found[..8], [0x55, 0xac, 0x04, 0x6e, 0x56, 0xe3, 0x08, 0x9f]);
        let found = hash(b"Password", b"NaCl", 80_000);
        assert_eq!(found[..8], [0x4d, 0xdc, 0xd8, 0xf6, 0x0b, 0x98, 0xbe, 0x21]);
    }

    #[test]
    fn hashes_are_read_as_they_are_written() {
        let credential: Credential = "basic alice:a:b".parse().unwrap();
        let hashed = HashedPassword::new(&credential, [9; 16]).unwrap();
        assert!(hashed.is_right(b"a:b") && !hashed.is_right(b"a:c") && !hashed.is_right(b""));
        let text = hashed.to_string();
        assert!(!text.contains("a:b"), "{text}");
        assert_eq!(text.parse(), Ok(hashed.clone()));
        assert_eq!(format!("{hashed:?}"), "HashedPassword(alice)");
        for wrong in [
            "basic-hash alice",
            &text.replace("basic-hash", "basic"),
            &text.replace("20000", "0"),
            &text.replace("20000", "1000001"),
            &text.replace("alice", "al ice"),
            &text[..text.len() - 1],
            &format!("{text}A"),
        ] {
            assert_eq!(
                wrong.parse::<HashedPassword>(),
                Err(InvalidCredential),
                "{wrong}"
            );
        }
        let token: Credential = "bearer token".parse().unwrap();
        assert!(HashedPassword::new(&token, [9; 16]).is_err());
    }
}
