//! [`Balancer`]: which server a datagram goes to (section 4).

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mpquic_core::{ConnectionId, FourTuple};

use crate::config::{Config, ConfigError, ServerId};

mod recent;

use recent::Recent;

/// Longest connection ID that is remembered, bytes: that of QUIC versions 1 and 2.
const MAX_CONNECTION_ID: usize = 20;

/// Decides for each datagram of clients which server gets it.
///
/// A datagram with a connection ID that a server of the pool made goes to that server. Others, which
/// begin a connection, go to a server chosen by their addresses; those that follow with the same
/// connection ID or from there go to the same one, so that a client may begin from several addresses at
/// once; but not what begins another connection while that server is drained. Only for these the balancer remembers anything, and at most so much.
///
/// # Examples
///
/// ```
/// use std::time::Instant;
///
/// use mpquic_core::FourTuple;
/// use mpquic_lb::{Balancer, Config, ServerId};
///
/// let mut balancer = Balancer::new(1000, rand::random());
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
    by_first_id: Recent<ConnectionId>,
    by_addresses: Recent<FourTuple>,
    secret: [u8; 32],
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
    /// To the server to which others with their connection ID or addresses went before.
    pub remembered: u64,
    /// To a server chosen now.
    pub chosen: u64,
    /// Nowhere: they are not QUIC, or there is no server.
    pub dropped: u64,
}

impl Balancer {
    /// For how long a choice is remembered after a datagram that needed it: at least so long, and at most
    /// twice.
    pub const REMEMBERED: Duration = Duration::from_secs(30);

    /// A balancer without servers, which remembers the choice for `capacity` new connections at least, and
    /// for twice as many at most. If more clients begin connections, those beyond are sent where their
    /// addresses lead, which may change when servers come and go. Where that is depends on the secret, so that clients
    /// cannot choose their server: it should be random, and the same in all balancers of a pool, between which
    /// the network may move a client.
    pub fn new(capacity: usize, secret: [u8; 32]) -> Self {
        Self {
            configs: BTreeMap::new(),
            ids: BTreeMap::new(),
            servers: BTreeMap::new(),
            by_first_id: Recent::new(capacity, Self::REMEMBERED),
            by_addresses: Recent::new(capacity, Self::REMEMBERED),
            secret,
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

    /// The servers, in order of address.
    pub fn servers(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.servers.keys().copied()
    }

    /// True if this is the address of a server.
    pub fn has_server(&self, server: SocketAddr) -> bool {
        self.servers.contains_key(&server)
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
        let destination = Destination::of(datagram)?;
        if let Some(server) = self.by_connection_id(destination.bytes) {
            self.counts.by_connection_id += 1;
            return Some(Routed {
                server,
                by_connection_id: true,
            });
        }
        let server = match self.remembered(now, tuple, &destination) {
            Some(server) => {
                self.counts.remembered += 1;
                server
            }
            None => {
                let server = self.choose(tuple)?;
                self.counts.chosen += 1;
                server
            }
        };
        self.by_addresses.insert(now, tuple, server);
        if let Some(id) = destination.whole() {
            self.by_first_id.insert(now, id, server);
        }
        Some(Routed {
            server,
            by_connection_id: false,
        })
    }

    fn remembered(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        destination: &Destination<'_>,
    ) -> Option<SocketAddr> {
        let by_id = destination
            .whole()
            .and_then(|id| self.by_first_id.get(now, id));
        let known = by_id.filter(|server| self.servers.contains_key(server));
        known.or_else(|| {
            let server = self.by_addresses.get(now, tuple)?;
            let takes_new = self.servers.get(&server)?;
            // It may begin another connection, which is none of a server that is about to end.
            let begins = destination.has_length;
            (*takes_new || !begins).then_some(server)
        })
    }

    fn by_connection_id(&self, connection_id: &[u8]) -> Option<SocketAddr> {
        let rotation = connection_id.first()? >> 5;
        let id = self.configs.get(&rotation)?.server_id(connection_id)?;
        self.ids.get(&(rotation, id)).copied()
    }

    /// The server with the greatest hash of its address and the client's, behind the secret: when a server comes or goes,
    /// only clients that go to it or went to it change.
    fn choose(&self, tuple: FourTuple) -> Option<SocketAddr> {
        let takes_new = self.servers.iter().filter(|(_, takes_new)| **takes_new);
        let servers = takes_new.map(|(server, _)| *server);
        servers.max_by_key(|server| {
            let mut hasher = DefaultHasher::new();
            (self.secret, tuple, server).hash(&mut hasher);
            hasher.finish()
        })
    }
}

/// The destination connection ID of a datagram's first packet.
struct Destination<'a> {
    /// With what follows, if its length is not in the header.
    bytes: &'a [u8],
    has_length: bool,
}

impl<'a> Destination<'a> {
    /// `None` if it is not QUIC (RFC 8999).
    fn of(datagram: &'a [u8]) -> Option<Self> {
        let (first, rest) = datagram.split_first()?;
        let has_length = first & 0x80 != 0;
        let bytes = match has_length {
            true => {
                let (length, rest) = rest.get(4..)?.split_first()?;
                rest.get(..usize::from(*length))?
            }
            false => rest,
        };
        Some(Self { bytes, has_length })
    }

    /// The whole of it, and no more, if that can be told. The client made it, or a server of which we
    /// do not know; those of other versions may be too long.
    fn whole(&self) -> Option<ConnectionId> {
        let told = self.has_length && (1..=MAX_CONNECTION_ID).contains(&self.bytes.len());
        told.then(|| ConnectionId::new(self.bytes))
    }
}

#[cfg(test)]
mod tests;
