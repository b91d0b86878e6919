//! [`Path`]: the application's view of a path.

use std::net::SocketAddr;

use mpquic_core::{
    ClosePathError, ClosedPath, FourTuple, PathId, PathMut, PathStats, PathStatus,
    TransportErrorCode,
};

use mpquic_paths::Event;

use crate::connection_ref::ConnectionRef;
use crate::connection_state::Engine;

/// A handle to a path of a connection. The handle keeps the connection open. The drop leaves the
/// path unchanged; [`Self::close`] closes the path.
///
/// # Examples
///
/// Opens a path over a second interface, for use if the first one fails:
///
/// ```
/// use mpquic_tokio::PathStatus;
/// # use std::net::SocketAddr;
/// # use mpquic_tokio::Connection;
/// # async fn example(connection: Connection) -> Result<(), Box<dyn std::error::Error>> {
/// # let (local, remote): (SocketAddr, SocketAddr) = ("192.0.2.7:0".parse()?, "198.51.100.1:443".parse()?);
/// let path = connection.open_path(local, remote).await?;
/// path.set_status(PathStatus::Backup)?;
///
/// let stats = path.stats().ok_or("the path is gone")?;
/// println!("{}: {:?}, window {}", path.id(), stats.rtt, stats.window);
/// path.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Path {
    connection: ConnectionRef,
    id: PathId,
}

impl Path {
    pub(crate) fn new(connection: ConnectionRef, id: PathId) -> Self {
        Self { connection, id }
    }

    /// The path in the core, if the path is open.
    fn open<'a>(&self, engine: &'a mut Engine) -> Result<PathMut<'a>, ClosedPath> {
        if engine.broken().is_some() {
            return Err(ClosedPath);
        }
        engine.core.path_mut(self.id)
    }

    /// The path ID. A connection never uses a path ID twice.
    pub fn id(&self) -> PathId {
        self.id
    }

    /// The status that we announced for the path, and the peer's announced status, if any.
    ///
    /// # Errors
    ///
    /// If the path is closed.
    pub fn status(&self) -> Result<(PathStatus, Option<PathStatus>), ClosedPath> {
        let mut engine = self.connection.lock();
        Ok(self.open(&mut engine)?.status())
    }

    /// Sets the status of the path: our scheduler follows the status, and the peer gets a request
    /// to follow the status too.
    ///
    /// # Errors
    ///
    /// If the path is closed.
    pub fn set_status(&self, status: PathStatus) -> Result<(), ClosedPath> {
        let mut engine = self.connection.lock();
        self.open(&mut engine)?.set_status(status);
        engine.wake_task();
        Ok(())
    }

    /// Counters and measurements; `None` after the path is discarded.
    pub fn stats(&self) -> Option<PathStats> {
        self.connection.lock().core.path_stats(self.id)
    }

    /// Size of the largest datagram that fits the path, in bytes; `None` if the path is closed or
    /// the peer accepts no datagrams. The scheduler chooses the path of each datagram: see
    /// [`Connection::max_datagram_size`](crate::Connection::max_datagram_size).
    pub fn max_datagram_size(&self) -> Option<usize> {
        self.connection.lock().core.datagrams().max_size_on(self.id)
    }

    /// Abandons the path. The connection sends data in flight again on other paths.
    ///
    /// # Errors
    ///
    /// If the path is closed, or no other path is left:
    /// [`Connection::close`](crate::Connection::close) ends the connection.
    pub fn close(&self) -> Result<(), ClosePathError> {
        self.close_with(TransportErrorCode::APPLICATION_ABANDON_PATH)
    }

    /// Like [`Self::close`], with an error code for the peer.
    ///
    /// # Errors
    ///
    /// Errors of [`Self::close`].
    pub fn close_with(&self, error_code: TransportErrorCode) -> Result<(), ClosePathError> {
        let mut engine = self.connection.lock();
        if engine.broken().is_some() {
            return Err(ClosePathError::NoSuchPath);
        }
        let stats = engine.core.path_stats(self.id);
        let now = engine.now();
        engine.core.close_path(now, self.id, error_code)?;
        if let Some(stats) = stats {
            engine.tell_path_manager(&Event::Closed(stats.four_tuple), now);
        }
        engine.run(now);
        Ok(())
    }

    /// Sends a PING on the path, to test the path.
    ///
    /// # Errors
    ///
    /// If the path is closed.
    pub fn ping(&self) -> Result<(), ClosedPath> {
        let mut engine = self.connection.lock();
        self.open(&mut engine)?.ping();
        engine.wake_task();
        Ok(())
    }

    /// The two addresses of the path.
    pub fn four_tuple(&self) -> Option<FourTuple> {
        self.stats().map(|stats| stats.four_tuple)
    }

    /// Our address.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.four_tuple().map(|tuple| tuple.local)
    }

    /// The peer's address.
    pub fn remote_address(&self) -> Option<SocketAddr> {
        self.four_tuple().map(|tuple| tuple.remote)
    }
}
