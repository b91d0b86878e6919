//! [`View`]: a connection, as its path manager sees it.

use std::time::{Duration, Instant};

use mpquic_core::{Connection, FourTuple, PathId, PathState, PathStats, PathStatus};

/// A connection at a moment. The view copies nothing: each method reads the connection when called.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The time now.
    pub now: Instant,
    source: Source<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Source<'a> {
    Connection(&'a Connection),
    Snapshot(&'a Snapshot),
}

/// One path, as a path manager sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathView {
    /// The path.
    pub id: PathId,
    /// The path's addresses.
    pub four_tuple: FourTuple,
    /// Whether the path works.
    pub state: PathState,
    /// Our status of the path.
    pub status: PathStatus,
    /// The peer's status of the path, if the peer announced one.
    pub peer_status: Option<PathStatus>,
    /// The smoothed RTT, or the assumed one before the first sample.
    pub rtt: Duration,
    /// Bytes of datagrams sent.
    pub bytes_sent: u64,
    /// Bytes of datagrams received.
    pub bytes_received: u64,
}

impl From<PathStats> for PathView {
    fn from(stats: PathStats) -> Self {
        Self {
            id: stats.id,
            four_tuple: stats.four_tuple,
            state: stats.state,
            status: stats.status,
            peer_status: stats.peer_status,
            rtt: stats.rtt,
            bytes_sent: stats.bytes_sent,
            bytes_received: stats.bytes_received,
        }
    }
}

/// A connection made up for a test of a path manager.
///
/// ```
/// use std::time::Instant;
/// use mpquic_core::{FourTuple, PathId, PathStats};
/// use mpquic_paths::{Snapshot, View};
///
/// let now = Instant::now();
/// let four_tuple = FourTuple::new("192.0.2.1:5".parse()?, "203.0.113.1:443".parse()?);
/// let mut connection = Snapshot::default();
/// connection.paths.push(PathStats::new(PathId::ZERO, four_tuple).into());
/// let view = View::of_snapshot(&connection, now);
/// assert_eq!(view.paths().count(), 1);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The paths, abandoned ones included until the connection forgets them.
    pub paths: Vec<PathView>,
    /// See [`View::is_multipath`]; true by default.
    pub is_multipath: bool,
    /// See [`View::is_confirmed`]; true by default.
    pub is_confirmed: bool,
}

impl Default for Snapshot {
    fn default() -> Self {
        Self {
            paths: Vec::new(),
            is_multipath: true,
            is_confirmed: true,
        }
    }
}

impl<'a> View<'a> {
    /// A connection as it is now.
    pub fn new(connection: &'a Connection, now: Instant) -> Self {
        let source = Source::Connection(connection);
        Self { now, source }
    }

    /// A connection made up for a test.
    pub fn of_snapshot(snapshot: &'a Snapshot, now: Instant) -> Self {
        let source = Source::Snapshot(snapshot);
        Self { now, source }
    }

    /// The paths in the order of their IDs, abandoned paths included until the connection forgets
    /// them.
    pub fn paths(&self) -> impl Iterator<Item = PathView> + 'a {
        let (live, fixed) = match self.source {
            Source::Connection(connection) => (Some(connection), None),
            Source::Snapshot(snapshot) => (None, Some(snapshot)),
        };
        let live = live.into_iter().flat_map(|connection| {
            let stats = connection.paths();
            stats.filter_map(|id| connection.path_stats(id).map(PathView::from))
        });
        let fixed = fixed.into_iter().flat_map(|snapshot| &snapshot.paths);
        live.chain(fixed.copied())
    }

    /// A path, unless it is forgotten.
    pub fn path(&self, id: PathId) -> Option<PathView> {
        match self.source {
            Source::Connection(connection) => connection.path_stats(id).map(PathView::from),
            Source::Snapshot(snapshot) => snapshot.paths.iter().find(|path| path.id == id).copied(),
        }
    }

    /// True if both sides speak multipath QUIC. Known once the handshake is complete.
    pub fn is_multipath(&self) -> bool {
        match self.source {
            Source::Connection(connection) => connection.is_multipath(),
            Source::Snapshot(snapshot) => snapshot.is_multipath,
        }
    }

    /// True if the handshake is confirmed: paths can move from then on (RFC 9000 section 9).
    pub fn is_confirmed(&self) -> bool {
        match self.source {
            Source::Connection(connection) => connection.is_handshake_confirmed(),
            Source::Snapshot(snapshot) => snapshot.is_confirmed,
        }
    }

    /// Datagram bytes sent and received by the connection.
    pub fn bytes_carried(&self) -> u64 {
        match self.source {
            Source::Connection(connection) => {
                let stats = connection.stats();
                stats.bytes_sent + stats.bytes_received
            }
            Source::Snapshot(snapshot) => {
                let paths = snapshot.paths.iter();
                paths
                    .map(|path| path.bytes_sent + path.bytes_received)
                    .sum()
            }
        }
    }
}
