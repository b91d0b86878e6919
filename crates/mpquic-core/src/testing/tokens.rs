//! A door to address validation tokens.

use std::time::{Duration, SystemTime};

use crate::crypto::tokens::{self, TokenKey};
pub use crate::crypto::tokens::{ProvenAddress, Token as TokenContent};

/// Seals and opens tokens.
#[derive(Debug)]
pub struct Tokens(TokenKey);

impl Tokens {
    /// With keys made of this secret.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(TokenKey::new(secret))
    }

    /// A token that says this.
    pub fn seal(&self, nonce: [u8; 16], content: TokenContent) -> Vec<u8> {
        content.seal(&self.0, nonce)
    }

    /// A token's random bytes and content; `None` for a token of another key.
    pub fn open(&self, token: &[u8]) -> Option<(u128, TokenContent)> {
        TokenContent::open(&self.0, token)
    }

    /// Any text, sealed like a token.
    pub fn seal_text(&self, nonce: [u8; 16], text: &[u8]) -> Vec<u8> {
        self.0.seal(nonce, text)
    }

    /// The text of a token.
    pub fn open_text(&self, token: &[u8]) -> Option<Vec<u8>> {
        self.0.open(token).map(|(_, text)| text)
    }
}

/// True for an age of a token up to `lifetime`.
pub fn is_fresh(issued: SystemTime, lifetime: Duration, now: SystemTime) -> bool {
    tokens::is_fresh(issued, lifetime, now)
}
