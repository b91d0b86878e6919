//! Basic types: path IDs, path status, addresses, packet number spaces.

use std::fmt;
use std::net::SocketAddr;

/// Identifies a path for the life of a connection (RFC 10069 section 1).
///
/// Path 0 is the path of the handshake. An ID is never used twice in one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PathId(pub u32);

impl PathId {
    /// The path the handshake runs on.
    pub const ZERO: Self = Self(0);

    /// The ID after this one, or `None` at the end of the 32-bit space.
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

impl fmt::Display for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<PathId> for u64 {
    fn from(path: PathId) -> Self {
        path.0.into()
    }
}

/// How a sender should treat a path (RFC 10069 section 3.3). It is advice to the peer's sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PathStatus {
    /// Use the path whenever it is useful.
    #[default]
    Available,
    /// Use the path only while no available one works.
    Backup,
}

/// The two addresses datagrams of a path travel between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FourTuple {
    /// Our address. The IP is unspecified while the operating system still chooses it.
    pub local: SocketAddr,
    /// The peer's address.
    pub remote: SocketAddr,
}

impl FourTuple {
    /// Joins two addresses.
    pub fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self { local, remote }
    }

    /// True if a datagram between `other`'s addresses belongs to this four-tuple; an unspecified
    /// local IP on either side matches any.
    pub fn matches(&self, other: &Self) -> bool {
        self.remote == other.remote
            && self.local.port() == other.local.port()
            && (self.local.ip() == other.local.ip()
                || self.local.ip().is_unspecified()
                || other.local.ip().is_unspecified())
    }
}

impl fmt::Display for FourTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.local, self.remote)
    }
}

/// A packet number space (RFC 9000 section 12.3; RFC 10069 section 2.4 for one per path).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpaceId {
    /// Initial packets.
    Initial,
    /// Handshake packets.
    Handshake,
    /// 0-RTT (path 0 only) and 1-RTT packets of one path.
    Data(PathId),
}

impl SpaceId {
    /// The path that carries packets of this space: path 0 for the handshake's spaces.
    pub fn path(self) -> PathId {
        match self {
            Self::Initial | Self::Handshake => PathId::ZERO,
            Self::Data(path) => path,
        }
    }

    /// The space that a plain ACK frame in this space acknowledges: in the application space, ACK
    /// always means path 0 (MP-060).
    pub(crate) fn for_plain_ack(self) -> Self {
        match self {
            Self::Initial | Self::Handshake => self,
            Self::Data(_) => Self::Data(PathId::ZERO),
        }
    }
}
