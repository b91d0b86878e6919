//! [`Server`]: makes the connection IDs of one server.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mpquic_core::config::ConnectionIds;
use mpquic_core::{ConnectionId, ConnectionIdGenerator};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::config::{Config, ConfigError, ServerId};

/// Makes connection IDs that lead to one server. Clones make connection IDs of the same server.
///
/// All endpoints with the same server ID must use clones of one `Server`. With a key, a `Server`
/// numbers its connection IDs, and two that use the same numbers could give two clients the same
/// connection ID.
///
/// # Examples
///
/// ```
/// use mpquic_core::config::EndpointOptions;
/// use mpquic_lb::{Config, Server, ServerId};
///
/// let config = Config::new(0, 2, 6)?.with_key([7; 16]);
/// let number = rand::random();
/// let server = Server::new(config, ServerId::new(&[0, 17])?, number)?;
/// let mut options = EndpointOptions::new([1; 32]);
/// options.connection_ids = server.connection_ids();
///
/// // The key changes: further connection IDs are made with the new key.
/// server.change(Config::new(1, 2, 6)?.with_key([8; 16]), ServerId::new(&[0, 17])?)?;
/// # Ok::<(), mpquic_lb::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Server(Arc<Mutex<Numbering>>);

#[derive(Debug)]
struct Numbering {
    config: Config,
    id: ServerId,
    /// The nonce of the next encrypted connection ID.
    next: u64,
    /// For each encrypted configuration so far: its connection ID with nonce 0, which identifies
    /// the configuration, and the nonce that it began with.
    begun: Vec<(ConnectionId, u64)>,
}

impl Server {
    /// A server with this ID.
    ///
    /// The nonces of encrypted connection IDs count up from `first_nonce`. Draw it at random: with
    /// a fixed value, a restarted server would repeat its connection IDs.
    ///
    /// # Errors
    ///
    /// If the server ID does not have the length that the configuration says.
    pub fn new(config: Config, id: ServerId, first_nonce: u64) -> Result<Self, ConfigError> {
        config.check(id)?;
        Ok(Self(Arc::new(Mutex::new(Numbering {
            config,
            id,
            next: first_nonce,
            begun: Vec::new(),
        }))))
    }

    /// The generator of connection IDs for the options of an endpoint.
    ///
    /// # Panics
    ///
    /// Never, because endpoints accept connection IDs of every length that a configuration can
    /// have.
    pub fn connection_ids(&self) -> ConnectionIds {
        let server = self.clone();
        let made = ConnectionIds::new(move |seed| Generator {
            server: server.clone(),
            random: StdRng::from_seed(seed),
        });
        made.expect("from 6 to 20 bytes are allowed")
    }

    /// Makes all further connection IDs by this configuration (section 3.1).
    ///
    /// Connection IDs in use stay the same. Load balancers must know the old configuration until
    /// these are no longer used. Give them the new configuration before this call. To replace the
    /// connection IDs of clients, see
    /// [`Connection::replace_connection_ids`](mpquic_core::Connection::replace_connection_ids).
    ///
    /// # Errors
    ///
    /// If the server ID does not have the length that the configuration says, or if the length of
    /// connection IDs would change.
    pub fn change(&self, config: Config, id: ServerId) -> Result<(), ConfigError> {
        config.check(id)?;
        let mut numbering = self.numbering();
        let expected = numbering.config.connection_id_length();
        let found = config.connection_id_length();
        if found != expected {
            return Err(ConfigError::OtherLength { found, expected });
        }
        numbering.config = config;
        numbering.id = id;
        Ok(())
    }

    /// The number of connection IDs that can be encrypted before nonces repeat. Connection IDs made
    /// after that lead to no server (section 8.4). A configuration that returns, or is read again,
    /// continues with its own count.
    ///
    /// `None` without a key, and with nonces of eight bytes or more, because these do not run out.
    pub fn nonces_left(&self) -> Option<u64> {
        self.numbering().nonces_left()
    }

    fn numbering(&self) -> MutexGuard<'_, Numbering> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Numbering {
    fn nonces_left(&self) -> Option<u64> {
        let nonces = self.config.nonces();
        let counted = self.config.is_encrypted() && nonces != u64::MAX;
        let used = self.next.wrapping_sub(self.begun_with());
        counted.then(|| nonces.saturating_sub(used))
    }

    /// The nonce that this configuration began with. Since then, nonces of other configurations
    /// count as its own, because the numbers go on.
    fn begun_with(&self) -> u64 {
        let mark = self.config.connection_id(self.id, 0, 0);
        let known = self.begun.iter().find(|(of, _)| *of == mark);
        known.map_or(self.next, |(_, nonce)| *nonce)
    }

    fn connection_id(&mut self, random: &mut StdRng) -> ConnectionId {
        if !self.config.is_encrypted() {
            // Without encryption, counted nonces would show that two connection IDs belong to one
            // connection.
            return self
                .config
                .connection_id(self.id, random.random(), random.random());
        }
        if self.nonces_left() == Some(0) {
            return self.config.unroutable(random.random());
        }
        let nonce = self.next;
        let mark = self.config.connection_id(self.id, 0, 0);
        if !self.begun.iter().any(|(of, _)| *of == mark) {
            self.begun.push((mark, nonce));
        }
        self.next = nonce.wrapping_add(1);
        self.config
            .connection_id(self.id, nonce.into(), random.random())
    }
}

struct Generator {
    server: Server,
    random: StdRng,
}

impl ConnectionIdGenerator for Generator {
    fn generate_cid(&mut self) -> ConnectionId {
        self.server.numbering().connection_id(&mut self.random)
    }

    fn cid_len(&self) -> usize {
        self.server.numbering().config.connection_id_length()
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn id(byte: u8) -> ServerId {
        ServerId::new(&[byte, byte]).unwrap()
    }

    fn generator(server: &Server, seed: u8) -> Generator {
        Generator {
            server: server.clone(),
            random: StdRng::from_seed([seed; 32]),
        }
    }

    #[test]
    fn connection_ids_of_two_generators_lead_to_the_server_and_never_repeat() {
        for config in [
            Config::new(0, 2, 6).unwrap(),
            Config::new(0, 2, 6).unwrap().with_key([3; 16]),
        ] {
            let server = Server::new(config.clone(), id(7), 5).unwrap();
            // One generator for the endpoint, and one for a connection.
            let mut generators = [generator(&server, 1), generator(&server, 2)];
            let mut seen = BTreeSet::new();
            for turn in 0..1000 {
                let made = generators[turn % 2].generate_cid();
                assert_eq!(config.server_id(&made), Some(id(7)));
                assert!(seen.insert(made[1..].to_vec()), "{made} came twice");
            }
        }
    }

    #[test]
    fn consecutive_connection_ids_show_no_relation() {
        let server = Server::new(Config::new(0, 2, 4).unwrap(), id(7), 5).unwrap();
        let mut generator = generator(&server, 1);
        let nonces: Vec<_> = (0..100)
            .map(|_| u32::from_be_bytes(generator.generate_cid()[3..].try_into().unwrap()))
            .collect();
        assert!(!nonces.is_sorted() && nonces.windows(2).all(|two| two[0] + 1 != two[1]));
    }

    #[test]
    fn nonces_wrap_around_and_are_never_used_again() {
        let config = Config::new(0, 2, 4).unwrap().with_key([3; 16]);
        let server = Server::new(config.clone(), id(7), u64::from(u32::MAX)).unwrap();
        let mut generator = generator(&server, 1);
        assert_eq!(server.nonces_left(), Some(1 << 32));
        // Nonces wrap around: the first connection ID has the last nonce, the second one the first
        // nonce.
        for left in [(1_u64 << 32) - 1, (1 << 32) - 2] {
            assert_eq!(config.server_id(&generator.generate_cid()), Some(id(7)));
            assert_eq!(server.nonces_left(), Some(left));
        }
        let first = u64::from(u32::MAX);
        server.numbering().next = first + (1 << 32);
        let made = generator.generate_cid();
        assert_eq!(
            (made.len(), made[0]),
            (7, 0xe6),
            "unroutable, with its length"
        );
        assert_ne!(made, generator.generate_cid());
        assert_eq!(server.nonces_left(), Some(0));
        let next = Config::new(1, 2, 4).unwrap().with_key([4; 16]);
        server.change(next.clone(), id(8)).unwrap();
        assert_eq!(next.server_id(&generator.generate_cid()), Some(id(8)));
    }

    /// A file that is read again without a change, and a key that was in use before.
    #[test]
    fn a_configuration_that_comes_again_has_no_more_nonces_than_before() {
        let config = |key| Config::new(0, 2, 4).unwrap().with_key([key; 16]);
        let server = Server::new(config(3), id(7), 5).unwrap();
        let mut generator = generator(&server, 1);
        generator.generate_cid();
        server.change(config(3), id(7)).unwrap();
        assert_eq!(server.nonces_left(), Some((1 << 32) - 1));
        server.change(config(4), id(7)).unwrap();
        assert_eq!(server.nonces_left(), Some(1 << 32));
        generator.generate_cid();
        server.change(config(3), id(7)).unwrap();
        assert_eq!(server.nonces_left(), Some((1 << 32) - 2));
        // The first connection ID would come again.
        server.numbering().next = 5 + (1 << 32);
        assert_eq!(server.nonces_left(), Some(0));
        assert_eq!(config(3).server_id(&generator.generate_cid()), None);
    }

    #[test]
    fn configurations_of_other_lengths_are_refused() {
        let config = |server_id, nonce| Config::new(0, server_id, nonce).unwrap();
        let refused = Server::new(config(3, 6), id(7), 0).unwrap_err();
        let expected = "the server ID 0707 has not the 3 bytes of its configuration";
        assert_eq!(refused.to_string(), expected);
        let server = Server::new(config(2, 6), id(7), 0).unwrap();
        assert_eq!(server.change(config(3, 6), id(7)).unwrap_err(), refused);
        let refused = server.change(config(2, 7), id(7)).unwrap_err();
        let expected = "connection IDs would have 10 bytes instead of 9";
        assert_eq!(refused.to_string(), expected);
        server
            .change(config(2, 6).with_key([1; 16]), id(9))
            .unwrap();
    }
}
