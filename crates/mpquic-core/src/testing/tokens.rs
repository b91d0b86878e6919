//! A door to address validation tokens.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use quinn_proto::ConnectionId;

use crate::crypto::tokens::{self, Token, TokenKey};
use crate::version::Version;

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenContent {
    /// One of a Retry packet.
    Retry {
        /// Version it is good in.
        version: Version,
        /// The client's address.
        address: SocketAddr,
        /// Destination of the client's first Initial.
        original_dcid: ConnectionId,
        /// Source of the Retry.
        retry_scid: ConnectionId,
        /// When it was made; whole seconds.
        issued: SystemTime,
    },
    /// One of a NEW_TOKEN frame.
    Validation {
        /// Version it is good in.
        version: Version,
        /// The addresses it is good from; at most eight.
        addresses: Vec<IpAddr>,
        /// When it was made; whole seconds.
        issued: SystemTime,
    },
}

impl From<Token> for TokenContent {
    fn from(token: Token) -> Self {
        match token {
            Token::Retry {
                version,
                address,
                original_dcid,
                retry_scid,
                issued,
            } => Self::Retry {
                version,
                address,
                original_dcid,
                retry_scid,
                issued,
            },
            Token::Validation {
                version,
                addresses,
                issued,
            } => Self::Validation {
                version,
                addresses,
                issued,
            },
        }
    }
}

impl From<TokenContent> for Token {
    fn from(content: TokenContent) -> Self {
        match content {
            TokenContent::Retry {
                version,
                address,
                original_dcid,
                retry_scid,
                issued,
            } => Self::Retry {
                version,
                address,
                original_dcid,
                retry_scid,
                issued,
            },
            TokenContent::Validation {
                version,
                addresses,
                issued,
            } => Self::Validation {
                version,
                addresses,
                issued,
            },
        }
    }
}

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
        Token::from(content).seal(&self.0, nonce)
    }

    /// What a token says, and which random bytes it was sealed with; `None` if it is not ours.
    pub fn open(&self, token: &[u8]) -> Option<(u128, TokenContent)> {
        let (nonce, token) = Token::open(&self.0, token)?;
        Some((nonce, token.into()))
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

/// True if a token made then is no older than `lifetime`.
pub fn is_fresh(issued: SystemTime, lifetime: Duration, now: SystemTime) -> bool {
    tokens::is_fresh(issued, lifetime, now)
}
