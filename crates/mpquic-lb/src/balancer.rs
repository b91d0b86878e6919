//! [`Balancer`]: which server a datagram goes to (section 4).

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mpquic_core::FourTuple;

use crate::config::{Config, ConfigError, ServerId};

mod recent;

use recent::Recent;

/// Longest connection ID of any version of QUIC that may come, bytes (RFC 8999 section 5.1).
const MAX_CONNECTION_ID: usize = 255;

/// Decides for each datagram of clients which server gets it.
///
/// A datagram with a connection ID that a server of the pool made goes to that server. Others, which
/// begin a connection, go to a server chosen by their addresses, and so do those that follow from
/// there; only for them the balancer remembers anything, and at most so much.
///
/// # Examples
///
/// ```
/// use std::time::Instant;
///
/// use mpquic_core::FourTuple;
/// use mpquic_lb::{Balancer, Config, ServerId};
///
/// let mut balancer = Balancer::new(1000);
/// balancer.set_config(Config::new(0, 1, 7)?);
/// for number in 1..=3 {
///     let address = ([10, 0, 0, number], 4433).into();
///     balancer.add_server(0, ServerId::new(&[number])?, address)?;
/// }
/// let client = FourTuple::new(([192, 0, 2, 1], 443).into(), ([198, 51, 100, 7], 5000).into());
/// // A short header, and a connection ID that server 2 made.
/// let datagram = [0x40, 0x00, 2, 1, 2, 3, 4, 5, 6, 7, 0xff, 0xff];
/// let routed = balancer.route(Instant::now(), client, &datagram).unwrap();
/// assert_eq!(routed.server, ([10, 0, 0, 2], 4433).into());
/// # Ok::<(), mpquic_lb::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct Balancer {
    /// By rotation.
    configs: BTreeMap<u8, Config>,
    ids: BTreeMap<(u8, ServerId), SocketAddr>,
    /// All servers, and whether new connections go there.
    servers: BTreeMap<SocketAddr, bool>,
    recent: Recent,
    counts: Counts,
}

/// Where a datagram goes, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Routed {
    /// The server's address.
    pub server: SocketAddr,
    /// True if its connection ID said so, false if its addresses did.
    pub by_connection_id: bool,
}

/// How many datagrams went which way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// To the server that made their connection ID.
    pub by_connection_id: u64,
    /// To the server to which others with their addresses went before.
    pub by_addresses: u64,
    /// To a server chosen now.
    pub chosen: u64,
    /// Nowhere: they are not QUIC, or there is no server.
    pub dropped: u64,
}

impl Balancer {
    /// For how long the choice for a client's address is remembered after a datagram that needed it:
    /// at least so long, and at most twice.
    pub const REMEMBERED: Duration = Duration::from_secs(30);

    /// A balancer without servers, which remembers the choice for `capacity` clients' addresses at
    /// least, and for twice as many at most. If more clients begin connections, those beyond are sent
    /// where their addresses lead, which may change when servers come and go.
    pub fn new(capacity: usize) -> Self {
        Self {
            configs: BTreeMap::new(),
            ids: BTreeMap::new(),
            servers: BTreeMap::new(),
            recent: Recent::new(capacity, Self::REMEMBERED),
            counts: Counts::default(),
        }
    }

    /// Connection IDs with its rotation are read by this configuration. What was known of the servers
    /// of another configuration with this rotation is forgotten.
    pub fn set_config(&mut self, config: Config) {
        self.remove_config(config.rotation());
        self.configs.insert(config.rotation(), config);
    }

    /// Connection IDs with this rotation are no longer read.
    pub fn remove_config(&mut self, rotation: u8) {
        self.configs.remove(&rotation);
        self.ids.retain(|(other, _), _| *other != rotation);
    }

    /// Adds a server, or another of its IDs: connection IDs with this rotation and server ID lead to
    /// it, and new connections may.
    ///
    /// # Errors
    ///
    /// If there is no configuration with this rotation, or the server ID is not as long as it says.
    pub fn add_server(
        &mut self,
        rotation: u8,
        id: ServerId,
        server: SocketAddr,
    ) -> Result<(), ConfigError> {
        let config = self.configs.get(&rotation);
        config.ok_or(ConfigError::Rotation(rotation))?.check(id)?;
        self.ids.insert((rotation, id), server);
        self.servers.entry(server).or_insert(true);
        Ok(())
    }

    /// The server gets no new connections, and goes on with those it has. Returns false if there is no
    /// such server.
    pub fn drain(&mut self, server: SocketAddr) -> bool {
        let entry = self.servers.get_mut(&server);
        entry.map(|takes_new| *takes_new = false).is_some()
    }

    /// The server gets new connections again. Returns false if there is no such server.
    pub fn resume(&mut self, server: SocketAddr) -> bool {
        let entry = self.servers.get_mut(&server);
        entry.map(|takes_new| *takes_new = true).is_some()
    }

    /// The server gets nothing any more.
    pub fn remove_server(&mut self, server: SocketAddr) {
        self.servers.remove(&server);
        self.ids.retain(|_, other| *other != server);
    }

    /// How many datagrams went which way.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Where a datagram goes that came from a client at `now`; `None` if nowhere. `tuple` has our
    /// address and the client's.
    pub fn route(&mut self, now: Instant, tuple: FourTuple, datagram: &[u8]) -> Option<Routed> {
        let routed = self.decide(now, tuple, datagram);
        if routed.is_none() {
            self.counts.dropped += 1;
        }
        routed
    }

    fn decide(&mut self, now: Instant, tuple: FourTuple, datagram: &[u8]) -> Option<Routed> {
        if let Some(server) = self.by_connection_id(destination(datagram)?) {
            self.counts.by_connection_id += 1;
            return Some(Routed {
                server,
                by_connection_id: true,
            });
        }
        let known = self.recent.get(now, tuple);
        let server = match known.filter(|server| self.servers.contains_key(server)) {
            Some(server) => {
                self.counts.by_addresses += 1;
                server
            }
            None => {
                let server = self.choose(tuple)?;
                self.counts.chosen += 1;
                self.recent.insert(now, tuple, server);
                server
            }
        };
        Some(Routed {
            server,
            by_connection_id: false,
        })
    }

    fn by_connection_id(&self, connection_id: &[u8]) -> Option<SocketAddr> {
        let rotation = connection_id.first()? >> 5;
        let id = self.configs.get(&rotation)?.server_id(connection_id)?;
        self.ids.get(&(rotation, id)).copied()
    }

    /// The server with the greatest hash of its address and the client's: when a server comes or goes,
    /// only clients that go to it or went to it change.
    fn choose(&self, tuple: FourTuple) -> Option<SocketAddr> {
        let takes_new = self.servers.iter().filter(|(_, takes_new)| **takes_new);
        let servers = takes_new.map(|(server, _)| *server);
        servers.max_by_key(|server| {
            let mut hasher = DefaultHasher::new();
            (tuple, server).hash(&mut hasher);
            hasher.finish()
        })
    }
}

/// The destination connection ID of a datagram's first packet, with what follows if its length is not
/// in the header; `None` if it is not QUIC (RFC 8999).
fn destination(datagram: &[u8]) -> Option<&[u8]> {
    let (first, rest) = datagram.split_first()?;
    if first & 0x80 == 0 {
        let longest = rest.len().min(MAX_CONNECTION_ID);
        return Some(&rest[..longest]);
    }
    let (length, rest) = rest.get(4..)?.split_first()?;
    rest.get(..usize::from(*length))
}

#[cfg(test)]
mod tests;
