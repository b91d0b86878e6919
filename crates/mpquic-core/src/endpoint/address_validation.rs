//! Address validation with the token of a client's first Initial (RFC 9000 section 8.1).

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use quinn_proto::ConnectionId;

use super::initial::FirstInitial;
use super::server::Server;
use crate::crypto::tokens::{Token, is_fresh};
use crate::crypto::{Opened, is_of_retry};

/// How long an address and port count as the client's for further paths. It is what RFC 9000 section 9.3 calls
/// recent; the port may be somebody else's later.
const PROVEN_FOR: Duration = Duration::from_secs(600);

/// What the token in a client's first Initial tells about the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Admission {
    /// Destination connection ID of the client's very first Initial.
    pub(super) original_dcid: ConnectionId,
    /// Source connection ID of our Retry, if there was one.
    pub(super) retry_scid: Option<ConnectionId>,
    /// The client has proven that it receives at its address.
    pub(super) address_validated: bool,
    /// Where the client has received not long ago, on an earlier connection.
    pub(super) proven: Vec<SocketAddr>,
}

/// The token is from a Retry but not valid. The attempt is closed then: a client that answers a
/// Retry needs a valid token (RFC 9000 section 8.1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InvalidToken;

impl Admission {
    /// Checks the token of a client's first Initial. A token that is not ours, or an invalid one
    /// from a NEW_TOKEN frame, counts as none (RFC 9000 section 8.1.3).
    pub(super) fn new(
        initial: &FirstInitial,
        token: &[u8],
        remote: SocketAddr,
        server: &Server,
        used: &mut UsedTokens,
    ) -> Result<Self, InvalidToken> {
        let FirstInitial { version, dcid, .. } = *initial;
        let config = &server.config;
        let now = config.time_source.now();
        let shared = config.retry_tokens.as_deref();
        match shared.and_then(|tokens| tokens.open(token, remote, &dcid, now)) {
            Some(Opened::Valid(original_dcid)) => {
                return Ok(Self {
                    original_dcid,
                    retry_scid: Some(dcid),
                    address_validated: true,
                    proven: Vec::new(),
                });
            }
            Some(Opened::Invalid) => return Err(InvalidToken),
            None => {}
        }
        match Token::open(&server.token_key, token) {
            Some((
                _,
                Token::Retry {
                    version: issued_in,
                    address,
                    original_dcid,
                    retry_scid,
                    issued,
                },
            )) => {
                // The version stays after a Retry (RFC 9369 section 4.1).
                let is_good = address == remote
                    && issued_in == version
                    && retry_scid == dcid
                    && is_fresh(issued, config.retry_token_lifetime, now);
                is_good
                    .then_some(Self {
                        original_dcid,
                        retry_scid: Some(dcid),
                        address_validated: true,
                        proven: Vec::new(),
                    })
                    .ok_or(InvalidToken)
            }
            // A second Retry would be ignored, and without one the client would miss the connection ID of the first.
            None if shared.is_some() && is_of_retry(token) => Err(InvalidToken),
            validation => {
                let addresses = validation.and_then(|(nonce, token)| match token {
                    Token::Validation {
                        version: issued_in,
                        addresses,
                        issued,
                    } => {
                        // RFC 9369 section 5
                        let is_good = issued_in == version
                            && addresses.iter().any(|it| it.ip() == remote.ip())
                            && is_fresh(issued, config.token_lifetime, now)
                            && used.insert(nonce, issued);
                        is_good.then_some((addresses, is_fresh(issued, PROVEN_FOR, now)))
                    }
                    Token::Retry { .. } => None,
                });
                Ok(Self {
                    original_dcid: dcid,
                    retry_scid: None,
                    address_validated: addresses.is_some(),
                    proven: match addresses {
                        Some((addresses, true)) => addresses,
                        _ => Vec::new(),
                    },
                })
            }
        }
    }
}

/// Remembers used NEW_TOKEN tokens, so that each is accepted only once (RFC 9000 section 8.1.4).
/// When it is full, the older half is forgotten, and all tokens as old as the forgotten ones are
/// refused from then on.
#[derive(Debug)]
pub(super) struct UsedTokens {
    newer: HashSet<u128>,
    older: HashSet<u128>,
    newest_issued: [SystemTime; 2],
    /// Tokens issued up to this time are refused.
    floor: SystemTime,
    capacity: usize,
}

impl UsedTokens {
    /// Remembers up to twice `capacity` tokens.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            newer: HashSet::new(),
            older: HashSet::new(),
            newest_issued: [SystemTime::UNIX_EPOCH; 2],
            floor: SystemTime::UNIX_EPOCH,
            capacity,
        }
    }

    /// Marks a token as used; false if it was used before, or may have been.
    fn insert(&mut self, nonce: u128, issued: SystemTime) -> bool {
        if issued <= self.floor || self.older.contains(&nonce) || self.newer.contains(&nonce) {
            return false;
        }
        if self.newer.len() >= self.capacity {
            let [newer, older] = self.newest_issued;
            self.floor = self.floor.max(older);
            self.newest_issued = [SystemTime::UNIX_EPOCH, newer];
            self.older = std::mem::take(&mut self.newer);
            if issued <= self.floor {
                return false;
            }
        }
        self.newest_issued[0] = self.newest_issued[0].max(issued);
        self.newer.insert(nonce)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn no_token_is_good_twice_even_when_memory_runs_out() {
        let at = |second: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(1 + second);
        let mut used = UsedTokens::new(10);
        for token in 0..1000 {
            assert!(used.insert(token.into(), at(token)), "{token}");
            assert!(used.newer.len() <= 10 && used.older.len() <= 10);
            for old in 0..=token {
                assert!(!used.insert(old.into(), at(old)), "{old} after {token}");
            }
        }
    }
}
