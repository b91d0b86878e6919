//! [`Balancer`]: decides which server gets a datagram (section 4).

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mpquic_core::{ConnectionId, FourTuple};

use crate::config::{Config, ConfigError, ServerId};

mod recent;

use recent::Recent;

/// The length of the longest connection ID that is remembered, bytes. It is the limit of QUIC
/// versions 1 and 2.
const MAX_CONNECTION_ID: usize = 20;

/// Chooses the server for each datagram from a client.
///
/// - A datagram with a connection ID that a server of the pool made goes to this server.
/// - A datagram with any other connection ID begins a new connection. It goes to a server chosen by
///   the datagram's addresses.
/// - Later datagrams with the same connection ID or from the same address go to the same server, so
///   that a client may begin a connection from several addresses at once. While this server is
///   drained, further connections from the same address go to another server.
///
/// The balancer remembers only the choices for new connections, and only a limited number of them.
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
    /// The configurations, by rotation.
    configs: BTreeMap<u8, Config>,
    /// The address of each server, by rotation and server ID.
    ids: BTreeMap<(u8, ServerId), SocketAddr>,
    /// All servers, and whether each gets new connections.
    servers: BTreeMap<SocketAddr, bool>,
    by_first_id: Recent<ConnectionId>,
    by_addresses: Recent<FourTuple>,
    secret: [u8; 32],
    counts: Counts,
}

/// The server that gets a datagram, and the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Routed {
    /// The server's address.
    pub server: SocketAddr,
    /// True if the datagram's connection ID led to the server, false if the datagram's addresses or
    /// an earlier choice did.
    pub by_connection_id: bool,
}

/// The number of datagrams by the way in which their server was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Datagrams sent to the server whose ID their connection ID contains.
    pub by_connection_id: u64,
    /// Datagrams sent to the server of earlier datagrams with the same connection ID or addresses.
    pub remembered: u64,
    /// Datagrams for which the balancer chose a new server.
    pub chosen: u64,
    /// Datagrams dropped, because they are not QUIC or because no server takes new connections.
    pub dropped: u64,
}

impl Balancer {
    /// The time for which the choice of a server is remembered after the last datagram that needed
    /// it. The choice is forgotten between once and twice this time.
    pub const REMEMBERED: Duration = Duration::from_secs(30);

    /// A balancer without servers. It remembers the server of at least `capacity` new connections,
    /// and of at most twice as many.
    ///
    /// If more clients begin connections, the datagrams of the additional clients are sent by their
    /// addresses and the secret only. The server of an address may change when servers are added or
    /// removed. A random secret keeps clients from choosing their server. All balancers of a pool
    /// have the same secret, because the network may move a client between them.
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

    /// Reads connection IDs with the rotation of this configuration by this configuration.
    ///
    /// Replaces an earlier configuration with the same rotation, and forgets its server IDs.
    pub fn set_config(&mut self, config: Config) {
        self.remove_config(config.rotation());
        self.configs.insert(config.rotation(), config);
    }

    /// Stops reading connection IDs with this rotation.
    pub fn remove_config(&mut self, rotation: u8) {
        self.configs.remove(&rotation);
        self.ids.retain(|(other, _), _| *other != rotation);
    }

    /// Adds a server, or a further ID of a known server. Connection IDs with this rotation and
    /// server ID lead to the server. A new server also gets new connections; a drained server stays
    /// drained.
    ///
    /// # Errors
    ///
    /// If there is no configuration with this rotation, or the server ID does not have the length
    /// of this configuration.
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

    /// Sends no new connections to the server. Its existing connections continue. Returns false if
    /// there is no such server.
    pub fn drain(&mut self, server: SocketAddr) -> bool {
        let entry = self.servers.get_mut(&server);
        entry.map(|takes_new| *takes_new = false).is_some()
    }

    /// Sends new connections to the server again. Returns false if there is no such server.
    pub fn resume(&mut self, server: SocketAddr) -> bool {
        let entry = self.servers.get_mut(&server);
        entry.map(|takes_new| *takes_new = true).is_some()
    }

    /// Sends no more datagrams to the server.
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

    /// The number of datagrams by the way in which their server was found.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The server that gets a datagram from a client which arrived at `now`; `None` if no server
    /// gets it. `tuple` has our address and the address of the client.
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
            // A datagram with a long header may begin another connection. A draining server must
            // not get it.
            let begins = destination.has_length;
            (*takes_new || !begins).then_some(server)
        })
    }

    fn by_connection_id(&self, connection_id: &[u8]) -> Option<SocketAddr> {
        let rotation = connection_id.first()? >> 5;
        let id = self.configs.get(&rotation)?.server_id(connection_id)?;
        self.ids.get(&(rotation, id)).copied()
    }

    /// Chooses the server for a new connection by rendezvous hashing: it is the server with the
    /// greatest hash of its address, the client's addresses and the secret.
    ///
    /// When a server is added or removed, only the clients of this server change their
    /// server.
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
    /// The connection ID. If the header does not contain its length, the rest of the datagram
    /// follows.
    bytes: &'a [u8],
    has_length: bool,
}

impl<'a> Destination<'a> {
    /// Finds the connection ID by the invariants of QUIC (RFC 8999); `None` if the datagram is too
    /// short for them.
    fn of(datagram: &'a [u8]) -> Option<Self> {
        let (first, rest) = datagram.split_first()?;
        let has_length = first & 0x80 != 0;
        let bytes = if has_length {
            let (length, rest) = rest.get(4..)?.split_first()?;
            rest.get(..usize::from(*length))?
        } else {
            rest
        };
        Some(Self { bytes, has_length })
    }

    /// The connection ID without any following bytes, if its length is known and from 1 to 20
    /// bytes.
    ///
    /// The client or a server unknown to us made this connection ID. Versions of QUIC other than 1
    /// and 2 may have longer connection IDs.
    fn whole(&self) -> Option<ConnectionId> {
        let told = self.has_length && (1..=MAX_CONNECTION_ID).contains(&self.bytes.len());
        told.then(|| ConnectionId::new(self.bytes))
    }
}

#[cfg(test)]
mod tests;
