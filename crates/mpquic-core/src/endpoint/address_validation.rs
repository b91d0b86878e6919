//! Address validation with the token of a client's first Initial (RFC 9000 section 8.1).

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, SystemTime};

use quinn_proto::ConnectionId;

use super::initial::FirstInitial;
use super::server::Server;
use crate::crypto::tokens::{ProvenAddress, Token, is_fresh};
use crate::crypto::{Opened, is_of_retry};

/// For this time, an address and port count as the client's for further paths ("recently" in RFC
/// 9000 section 9.3). Later, another host may have the port.
const PROVEN_FOR: Duration = Duration::from_secs(600);
/// Bits of an IPv6 address given by its network; one client may have all addresses of a network.
const IPV6_NETWORK: u32 = 64;

/// The content of the token in a client's first Initial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Admission {
    /// Destination connection ID of the client's very first Initial.
    pub(super) original_dcid: ConnectionId,
    /// Source connection ID of our Retry.
    pub(super) retry_scid: Option<ConnectionId>,
    /// The client has proven its address.
    pub(super) address_validated: bool,
    /// Addresses where the client received data recently, on an earlier connection: one per
    /// network, each with an unspent proof.
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
        spent: &mut SpentProofs,
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
            // The client would ignore a second Retry, and without a Retry it would miss the
            // connection ID of the first one.
            None if shared.is_some() && is_of_retry(token) => Err(InvalidToken),
            validation => {
                let token = validation.map(|(_, token)| token);
                let proven = token.and_then(|token| spent.take(token, initial, remote, server));
                Ok(Self {
                    original_dcid: dcid,
                    retry_scid: None,
                    address_validated: proven.is_some(),
                    proven: proven.unwrap_or_default(),
                })
            }
        }
    }
}

/// Spent proofs of the tokens from NEW_TOKEN frames.
///
/// A client may receive at an address, collect tokens there, and leave the address to somebody
/// else, to whom the server would then send the client's data (RFC 9000 section 21.3). So each
/// proof in a token has a time, and counts only if it is newer than the last spent proof: of the
/// same connection for the client's own address, of the same network for a further path. A new
/// proof of the address counts again.
#[derive(Debug)]
pub(super) struct SpentProofs {
    /// By the random number of the connection that a token is from.
    connections: Spent<u64>,
    /// By the network of an address that a token vouched for.
    networks: Spent<IpAddr>,
}

impl SpentProofs {
    /// Remembers up to twice `capacity` connections, and as many networks.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            connections: Spent::new(capacity),
            networks: Spent::new(capacity),
        }
    }

    /// The addresses where the client received data recently, by a valid token for its present
    /// address; `None` if the token is invalid.
    fn take(
        &mut self,
        token: Token,
        initial: &FirstInitial,
        remote: SocketAddr,
        server: &Server,
    ) -> Option<Vec<SocketAddr>> {
        let Token::Validation {
            version,
            connection,
            addresses,
            issued,
        } = token
        else {
            return None;
        };
        let config = &server.config;
        let now = config.time_source.now();
        let of_client = addresses.iter().filter(|it| it.address.ip() == remote.ip());
        let proven = of_client.map(|it| it.proven).max()?;
        // RFC 9369 section 5
        let is_good = version == initial.version
            && is_fresh(issued, config.token_lifetime, now)
            && self.connections.spend(connection, proven, now);
        if !is_good {
            return None;
        }
        let counts = |it: &ProvenAddress| {
            is_fresh(it.proven, PROVEN_FOR, now)
                && self
                    .networks
                    .spend(network(it.address.ip()), it.proven, now)
        };
        let vouched = addresses.into_iter().filter(counts);
        Some(vouched.map(|it| it.address).collect())
    }
}

/// The network of an address: one client may have all addresses of its network.
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => {
            let host = u128::MAX >> IPV6_NETWORK;
            Ipv6Addr::from_bits(ip.to_bits() & !host).into()
        }
        ip @ IpAddr::V4(_) => ip,
    }
}

/// Remembers until when proofs are spent, to count each proof once (RFC 9000 section 8.1.4). A full
/// memory forgets its older half, and from then on all proofs up to the age of the forgotten ones
/// are refused.
#[derive(Debug)]
struct Spent<K> {
    newer: HashMap<K, SystemTime>,
    older: HashMap<K, SystemTime>,
    /// The latest time in each half.
    latest: [SystemTime; 2],
    /// All proofs up to this time are refused.
    floor: SystemTime,
    capacity: usize,
}

impl<K: Eq + Hash> Spent<K> {
    /// Remembers up to twice `capacity` keys.
    fn new(capacity: usize) -> Self {
        Self {
            newer: HashMap::new(),
            older: HashMap::new(),
            latest: [SystemTime::UNIX_EPOCH; 2],
            floor: SystemTime::UNIX_EPOCH,
            capacity,
        }
    }

    /// Spends all proofs for a key up to now. False if the proof was spent before, or if the log no
    /// longer knows.
    fn spend(&mut self, key: K, proven: SystemTime, now: SystemTime) -> bool {
        let until = self.newer.get(&key).or_else(|| self.older.get(&key));
        if proven <= self.floor || until.is_some_and(|until| proven <= *until) {
            return false;
        }
        if self.newer.len() >= self.capacity && !self.newer.contains_key(&key) {
            let [newer, older] = self.latest;
            self.floor = self.floor.max(older);
            self.latest = [SystemTime::UNIX_EPOCH, newer];
            self.older = std::mem::take(&mut self.newer);
            if proven <= self.floor {
                return false;
            }
        }
        // The clock may have been set back.
        let until = now.max(proven);
        self.latest[0] = self.latest[0].max(until);
        self.newer.insert(key, until);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn no_proof_counts_twice_even_when_memory_runs_out() {
        let at = |second: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(1 + second);
        let mut spent = Spent::new(10);
        for proof in 0..1000 {
            assert!(spent.spend(proof, at(proof), at(proof)), "{proof}");
            assert!(spent.newer.len() <= 10 && spent.older.len() <= 10);
            for old in 0..=proof {
                assert!(!spent.spend(old, at(old), at(proof)), "{old} after {proof}");
            }
        }
    }

    #[test]
    fn only_a_new_proof_counts_again() {
        let at = |second: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        let mut spent = Spent::new(10);
        assert!(spent.spend(1, at(5), at(9)));
        assert!(!spent.spend(1, at(9), at(10)));
        assert!(spent.spend(1, at(10), at(10)));
        // The clock is set back.
        assert!(!spent.spend(1, at(10), at(3)));
        assert!(spent.spend(1, at(11), at(3)));
        assert!(!spent.spend(1, at(11), at(12)));
    }

    #[test]
    fn the_addresses_of_an_ipv6_network_count_as_one() {
        let network = |ip: &str| network(ip.parse().unwrap());
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:0:0:2"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
        assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.1"));
    }
}
