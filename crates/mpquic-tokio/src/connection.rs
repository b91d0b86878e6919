//! [`Connection`]: a handle to an established connection.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use bytes::Bytes;
use mpquic_core::congestion::ControllerFactory;
use mpquic_core::sched::SchedulerFactory;
use mpquic_core::{
    ConnectionError, DatagramOptions, Dir, FourTuple, PathEvent, PathId, PathState, PathStatus,
    SendDatagramError, StreamId, TransportErrorCode, VarInt, ZeroRtt,
};
use mpquic_paths::Event;
use thiserror::Error;

use crate::connection_ref::ConnectionRef;
use crate::connection_state::LockedConnection;
use crate::notifications::{Awaited, PollerId};
use crate::path::Path;
use crate::path_events::PathEvents;
use crate::recv_stream::RecvStream;
use crate::send_stream::SendStream;
use crate::start;

/// An established connection. A clone is another handle to the same connection.
///
/// Dropping the last handle, with all streams, closes the connection with code 0.
///
/// # Examples
///
/// A request, and a look at the paths that carried it:
///
/// ```
/// # use mpquic_tokio::Connection;
/// # async fn example(connection: Connection) -> Result<(), Box<dyn std::error::Error>> {
/// let (mut send, mut recv) = connection.open_bi().await?;
/// send.write_all(b"what is the time?").await?;
/// send.finish()?;
/// let answer = recv.read_to_end(1024).await?;
///
/// for path in connection.path_stats() {
///     println!("path {}: {} bytes, {:?}", path.id, path.bytes_received, path.rtt);
/// }
/// connection.close(0u32.into(), b"done");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Connection(
    pub(crate) ConnectionRef,
    /// Set once a task has waited on this handle.
    Option<PollerId>,
);

impl Clone for Connection {
    fn clone(&self) -> Self {
        Self::new(self.0.clone())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(poller) = self.1 {
            self.0.lock().pollers.forget(poller);
        }
    }
}

/// The reason why a path could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenPathError {
    /// Only clients open paths.
    #[error("only the client opens paths")]
    ServerSide,
    /// The peer does not support multipath.
    #[error("the peer does not support multipath")]
    NotNegotiated,
    /// The peer accepts no further paths to this address.
    #[error("the peer accepts no further paths to this address")]
    AddressForbidden,
    /// The local address cannot be used.
    #[error("cannot use the local address {0}")]
    Local(SocketAddr, #[source] io::Error),
    /// The path was abandoned before its validation. The code is `PATH_UNSTABLE_OR_POOR` if the
    /// peer never answered on the path.
    #[error("the {} abandoned the path: {error_code}", if *by_peer { "peer" } else { "client" })]
    Failed {
        /// The code of PATH_ABANDON.
        error_code: TransportErrorCode,
        /// True if the peer was the first to abandon the path.
        by_peer: bool,
    },
    /// The connection ended.
    #[error("connection lost")]
    ConnectionLost(#[from] ConnectionError),
}

impl Connection {
    pub(crate) fn new(connection: ConnectionRef) -> Self {
        Self(connection, None)
    }

    /// Opens a bidirectional stream; waits while the peer's limit of streams is reached. The peer
    /// learns of the stream from its first frame. Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the connection ended.
    pub async fn open_bi(&self) -> Result<(SendStream, RecvStream), ConnectionError> {
        let (id, as_zero_rtt) = self.open(Dir::Bi).await?;
        Ok(self.opened_bi(id, as_zero_rtt))
    }

    /// Opens a unidirectional stream; waits while the peer's limit of streams is reached.
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the connection ended.
    pub async fn open_uni(&self) -> Result<SendStream, ConnectionError> {
        let (id, as_zero_rtt) = self.open(Dir::Uni).await?;
        Ok(SendStream::new(self.0.clone(), id, as_zero_rtt))
    }

    /// Waits for the next bidirectional stream that the peer opens. Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the connection ended and the application has accepted every stream from before.
    pub async fn accept_bi(&self) -> Result<(SendStream, RecvStream), ConnectionError> {
        let (id, is_0rtt) = self.accept(Dir::Bi).await?;
        Ok(self.accepted_bi(id, is_0rtt))
    }

    /// Waits for the next unidirectional stream that the peer opens. Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the connection ended and the application has accepted every stream from before.
    pub async fn accept_uni(&self) -> Result<RecvStream, ConnectionError> {
        let (id, is_0rtt) = self.accept(Dir::Uni).await?;
        Ok(RecvStream::accepted(self.0.clone(), id, is_0rtt))
    }

    /// Like [`Self::open_bi`], for hand-written futures. Only the last task that polls a handle
    /// wakes up; each clone of a handle wakes a task of its own.
    ///
    /// # Errors
    ///
    /// If the connection ended.
    pub fn poll_open_bi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(SendStream, RecvStream), ConnectionError>> {
        let opened = self.poll(cx, Awaited::Available(Dir::Bi), |engine| {
            try_open(engine, Dir::Bi)
        });
        opened.map_ok(|(id, as_zero_rtt)| self.opened_bi(id, as_zero_rtt))
    }

    /// Like [`Self::open_uni`], for hand-written futures. Only the last task that polls a handle
    /// wakes up; each clone of a handle wakes a task of its own.
    ///
    /// # Errors
    ///
    /// If the connection ended.
    pub fn poll_open_uni(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<SendStream, ConnectionError>> {
        let opened = self.poll(cx, Awaited::Available(Dir::Uni), |engine| {
            try_open(engine, Dir::Uni)
        });
        opened.map_ok(|(id, as_zero_rtt)| SendStream::new(self.0.clone(), id, as_zero_rtt))
    }

    /// Like [`Self::accept_bi`], for hand-written futures. Only the last task that polls a handle
    /// wakes up; each clone of a handle wakes a task of its own.
    ///
    /// # Errors
    ///
    /// Errors of [`Self::accept_bi`].
    pub fn poll_accept_bi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(SendStream, RecvStream), ConnectionError>> {
        let accepted = self.poll(cx, Awaited::Opened(Dir::Bi), |engine| {
            try_accept(engine, Dir::Bi)
        });
        accepted.map_ok(|(id, is_0rtt)| self.accepted_bi(id, is_0rtt))
    }

    /// Like [`Self::accept_uni`], for hand-written futures. Only the last task that polls a handle
    /// wakes up; each clone of a handle wakes a task of its own.
    ///
    /// # Errors
    ///
    /// Errors of [`Self::accept_uni`].
    pub fn poll_accept_uni(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<RecvStream, ConnectionError>> {
        let accepted = self.poll(cx, Awaited::Opened(Dir::Uni), |engine| {
            try_accept(engine, Dir::Uni)
        });
        accepted.map_ok(|(id, is_0rtt)| RecvStream::accepted(self.0.clone(), id, is_0rtt))
    }

    /// Like [`Self::read_datagram`], for hand-written futures. Only the last task that polls a
    /// handle wakes up; each clone of a handle wakes a task of its own.
    ///
    /// # Errors
    ///
    /// Errors of [`Self::read_datagram`].
    pub fn poll_read_datagram(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Bytes, ConnectionError>> {
        self.poll(cx, Awaited::DatagramReceived, try_read_datagram)
    }

    /// Calls `attempt`; without a result, registers the task to wake up.
    fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        awaited: Awaited,
        attempt: impl FnOnce(&mut LockedConnection<'_>) -> Option<T>,
    ) -> Poll<T> {
        let mut engine = self.0.lock();
        if let Some(result) = attempt(&mut engine) {
            return Poll::Ready(result);
        }
        let pollers = &mut engine.pollers;
        let id = *self.1.get_or_insert_with(|| pollers.next_id());
        pollers.wait(id, awaited, cx.waker());
        if !matches!(awaited, Awaited::Opened(_)) {
            engine.on_waits();
        }
        Poll::Pending
    }

    /// Opens a stream; true for a stream opened as 0-RTT.
    async fn open(&self, dir: Dir) -> Result<(StreamId, bool), ConnectionError> {
        let notify = self.0.notifications.available(dir);
        self.0.until(notify, |engine| try_open(engine, dir)).await
    }

    /// Accepts a stream of the peer; true for a stream that may be 0-RTT.
    async fn accept(&self, dir: Dir) -> Result<(StreamId, bool), ConnectionError> {
        let notify = self.0.notifications.opened(dir);
        let accept = |engine: &mut LockedConnection<'_>| try_accept(engine, dir);
        self.0.until_told(notify, accept).await
    }

    fn opened_bi(&self, id: StreamId, as_zero_rtt: bool) -> (SendStream, RecvStream) {
        (
            SendStream::new(self.0.clone(), id, as_zero_rtt),
            RecvStream::opened(self.0.clone(), id, as_zero_rtt),
        )
    }

    fn accepted_bi(&self, id: StreamId, is_0rtt: bool) -> (SendStream, RecvStream) {
        (
            SendStream::new(self.0.clone(), id, false),
            RecvStream::accepted(self.0.clone(), id, is_0rtt),
        )
    }

    /// Waits for the next datagram. Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the connection ended and the application has read every datagram from before.
    pub async fn read_datagram(&self) -> Result<Bytes, ConnectionError> {
        self.0
            .until(&self.0.notifications.datagram_received, try_read_datagram)
            .await
    }

    /// Sends a datagram, unreliably and unordered, at most [`Self::max_datagram_size`] bytes.
    ///
    /// # Errors
    ///
    /// If the peer accepts no datagrams, the datagram is too large, the send buffer is full, or the
    /// connection ended.
    pub fn send_datagram(&self, data: Bytes) -> Result<(), SendDatagramError> {
        self.send_datagram_with(data, DatagramOptions::default())
    }

    /// Sends a datagram on a chosen path, on two paths, or only until a deadline. A datagram bound
    /// to a path may have the path's [`Path::max_datagram_size`].
    ///
    /// # Errors
    ///
    /// Errors of [`Self::send_datagram`], and [`SendDatagramError::ClosedPath`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use mpquic_tokio::{Connection, DatagramOptions};
    /// # fn example(connection: Connection) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::{Duration, Instant};
    ///
    /// // A key press is small, and useless after 50 ms: it travels on two paths.
    /// let soon = Instant::now() + Duration::from_millis(50);
    /// let options = DatagramOptions::default().with_copy().with_deadline(soon);
    /// connection.send_datagram_with("jump".into(), options)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn send_datagram_with(
        &self,
        data: Bytes,
        options: DatagramOptions,
    ) -> Result<(), SendDatagramError> {
        try_send_datagram(&mut self.0.lock(), data, options)
    }

    /// Sends a datagram as soon as the send buffer has room. Cancel-safe: a future dropped early
    /// has sent nothing.
    ///
    /// # Errors
    ///
    /// Errors of [`Self::send_datagram`], except for a full buffer.
    pub async fn send_datagram_wait(&self, data: Bytes) -> Result<(), SendDatagramError> {
        let attempt = |engine: &mut LockedConnection<'_>| match try_send_datagram(
            engine,
            data.clone(),
            DatagramOptions::default(),
        ) {
            Err(SendDatagramError::Blocked) => None,
            result => Some(result),
        };
        let notify = &self.0.notifications.datagrams_unblocked;
        self.0.until(notify, attempt).await
    }

    /// Size of the largest datagram that may leave now, in bytes; `None` if the peer accepts no
    /// datagrams. The size changes with the MTU and the set of paths. From the first call on, MTU
    /// discovery runs on all paths, even without any full packet.
    pub fn max_datagram_size(&self) -> Option<usize> {
        self.0.lock().core.datagrams().max_size()
    }

    /// Size of the largest datagram for which the send buffer has room now, in bytes.
    pub fn datagram_send_buffer_space(&self) -> usize {
        self.0.lock().core.datagrams().send_buffer_space()
    }

    /// Waiting bytes of a flow ([`DatagramOptions::flow`](crate::DatagramOptions::flow)) for any
    /// path, with 64 bytes more for each datagram; and the number of waiting flows, `flow`
    /// included.
    pub fn datagram_flow_share(&self, flow: Option<u64>) -> (usize, usize) {
        self.0.lock().core.datagrams().flow_share(flow)
    }

    /// Closes the connection at once; the peer's application receives code and reason.
    /// Unacknowledged data may be lost: first wait for the peer's answer, or for
    /// [`SendStream::stopped`](crate::SendStream::stopped).
    pub fn close(&self, error_code: VarInt, reason: &[u8]) {
        self.0.close(error_code, Bytes::copy_from_slice(reason));
    }

    /// Waits until the handshake is confirmed (RFC 9001 section 4.1.2): both sides know of its end,
    /// and further paths can open. Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the connection ended before.
    pub async fn handshake_confirmed(&self) -> Result<(), ConnectionError> {
        let attempt = |engine: &mut LockedConnection<'_>| match &engine.error {
            _ if engine.core.is_handshake_confirmed() => Some(Ok(())),
            Some(error) => Some(Err(error.clone())),
            None => None,
        };
        self.0
            .until(&self.0.notifications.connection, attempt)
            .await
    }

    /// Waits until the connection ends, and tells why. Cancel-safe.
    pub async fn closed(&self) -> ConnectionError {
        let attempt = |engine: &mut LockedConnection<'_>| engine.error.clone();
        self.0
            .until(&self.0.notifications.connection, attempt)
            .await
    }

    /// Why the connection ended; `None` for an open connection.
    pub fn close_reason(&self) -> Option<ConnectionError> {
        self.0.lock().error.clone()
    }

    /// Opens a path and waits for its validation (client only). Binds a socket unless the endpoint
    /// has a socket with the IP address of `local`. Waits while the peer allows no further path.
    ///
    /// Clients open paths from all local addresses on their own unless
    /// [`ClientConfig::automatic_paths`](crate::ClientConfig::automatic_paths) is off.
    ///
    /// Not cancel-safe: without the future, an opening path carries on, and only
    /// [`Self::path_events`] reports its end.
    ///
    /// # Errors
    ///
    /// If the connection allows no such path or ended, the system refuses the local address, or the
    /// peer does not answer on the path.
    pub async fn open_path(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<Path, OpenPathError> {
        let status = PathStatus::Available;
        self.open_path_with(local, remote, status).await
    }

    /// Like [`Self::open_path`], with a status from the start. With [`PathStatus::Backup`], no data
    /// travels on the path before another path fails, only the frames that open the path.
    ///
    /// Not cancel-safe, as [`Self::open_path`].
    ///
    /// # Errors
    ///
    /// Errors of [`Self::open_path`].
    pub async fn open_path_with(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        status: PathStatus,
    ) -> Result<Path, OpenPathError> {
        let endpoint = &self.0.endpoint;
        let local = match endpoint.sockets.owner(local) {
            Some(socket) => socket.local_towards(remote),
            _ => match endpoint.sockets.with_ip(local.ip()) {
                Some(bound) => bound,
                None => start::bind(endpoint, local, None)
                    .map_err(|error| OpenPathError::Local(local, error))?,
            },
        };
        let four_tuple = FourTuple::new(local, remote);
        let mut events = self.path_events();
        let open =
            |engine: &mut LockedConnection<'_>| open_path(engine, four_tuple, status).transpose();
        let id = self.0.until(&self.0.notifications.connection, open).await?;
        while let Some(event) = events.next().await {
            if let PathEvent::Abandoned {
                path,
                error_code,
                by_peer,
            } = event
                && path == id
            {
                return Err(OpenPathError::Failed {
                    error_code,
                    by_peer,
                });
            }
            let stats = self.0.lock().core.path_stats(id);
            let state = stats.map(|stats| stats.state);
            if let Some(PathState::Active | PathState::Suspect) = state {
                return Ok(Path::new(self.0.clone(), id));
            }
        }
        Err(self.closed().await.into())
    }

    /// Waits until at least `count` paths are in use: validated, and not suspect. Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the connection ended before.
    ///
    /// # Examples
    ///
    /// ```
    /// # use mpquic_tokio::Endpoint;
    /// # async fn example(client: Endpoint) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tokio::time::timeout;
    ///
    /// let connection = client.connect_to("example.com", 4433).await?.await?;
    /// // Two links are better than one, but one is better than waiting.
    /// if timeout(Duration::from_secs(1), connection.wait_for_paths(2)).await.is_err() {
    ///     println!("only {} path", connection.paths().len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_for_paths(&self, count: usize) -> Result<(), ConnectionError> {
        let attempt = |engine: &mut LockedConnection<'_>| {
            if let Some(error) = &engine.error {
                return Some(Err(error.clone()));
            }
            let core = &engine.core;
            let paths = core.paths().filter_map(|id| core.path_stats(id));
            let active = paths.filter(|path| path.state == PathState::Active).count();
            (active >= count).then_some(Ok(()))
        };
        self.0
            .until(&self.0.notifications.connection, attempt)
            .await
    }

    /// All known paths by ascending ID, abandoned paths included.
    pub fn paths(&self) -> Vec<Path> {
        let engine = self.0.lock();
        let paths = engine.core.paths();
        paths.map(|id| Path::new(self.0.clone(), id)).collect()
    }

    /// The path with this ID, if it exists.
    pub fn path(&self, id: PathId) -> Option<Path> {
        let engine = self.0.lock();
        let exists = engine.core.paths().any(|path| path == id);
        exists.then(|| Path::new(self.0.clone(), id))
    }

    /// Lets another scheduler decide which path carries the data of this side from now on. The
    /// scheduler hears of the open paths, but of no earlier event. Later connections are not
    /// affected.
    pub fn set_scheduler(&self, scheduler: &dyn SchedulerFactory) {
        let mut connection = self.0.lock();
        connection.contain(|engine| {
            engine.core.policies().set_scheduler(scheduler);
            engine.wake_task();
        });
    }

    /// Lets another congestion controller limit the data of this side from now on. The controller
    /// treats each open path as a new path. Later connections are not affected.
    ///
    /// Returns false, and changes nothing, if the controller needs another ECN codepoint on packets
    /// ([`ControllerFactory::ecn_codepoint`]).
    pub fn set_controller(&self, controller: &dyn ControllerFactory) -> bool {
        let mut connection = self.0.lock();
        let now = connection.now();
        let set = connection.contain(|engine| {
            engine.wake_task();
            engine.core.policies().set_controller(now, controller)
        });
        set.unwrap_or(false)
    }

    /// Gives the connection's path manager a turn now, for a manager whose rules the application
    /// has changed ([`Steering`](crate::path_managers::Steering)). A server's connection has no
    /// path manager.
    pub fn review_paths(&self) {
        let mut connection = self.0.lock();
        let now = connection.now();
        connection.contain(|engine| {
            engine.manage_paths(now);
            engine.wake_task();
        });
    }

    /// Subscribes to the events of paths from now on.
    pub fn path_events(&self) -> PathEvents {
        self.0.lock().subscribe()
    }
}

/// Opens a stream; true for a stream opened as 0-RTT. `None` while the peer allows no further
/// stream.
fn try_open(
    engine: &mut LockedConnection<'_>,
    dir: Dir,
) -> Option<Result<(StreamId, bool), ConnectionError>> {
    if let Some(error) = &engine.error {
        return Some(Err(error.clone()));
    }
    let as_zero_rtt = engine.core.zero_rtt() == ZeroRtt::Offered;
    let id = engine.core.streams().open(dir);
    id.map(|id| Ok((id, as_zero_rtt)))
}

/// Accepts a stream of the peer; true if the stream may be 0-RTT. `None` while the peer has opened
/// no stream.
fn try_accept(
    engine: &mut LockedConnection<'_>,
    dir: Dir,
) -> Option<Result<(StreamId, bool), ConnectionError>> {
    if let Some(error) = engine.broken() {
        return Some(Err(error));
    }
    // The application can still accept streams from before the end.
    if let Some(id) = engine.core.streams().accept(dir) {
        let is_0rtt = engine.core.is_handshaking();
        return Some(Ok((id, is_0rtt)));
    }
    engine.error.clone().map(Err)
}

fn try_read_datagram(engine: &mut LockedConnection<'_>) -> Option<Result<Bytes, ConnectionError>> {
    if let Some(error) = engine.broken() {
        return Some(Err(error));
    }
    // The application can still read datagrams from before the end.
    match engine.core.datagrams().recv() {
        Some(data) => Some(Ok(data)),
        None => engine.error.clone().map(Err),
    }
}

fn try_send_datagram(
    engine: &mut LockedConnection<'_>,
    data: Bytes,
    options: DatagramOptions,
) -> Result<(), SendDatagramError> {
    if let Some(error) = &engine.error {
        return Err(error.clone().into());
    }
    let bytes = data.len();
    engine.core.datagrams().send_with(data, options)?;
    engine.wrote_datagram(bytes);
    Ok(())
}

/// Opens a path; `None` while the path has to wait for the peer.
fn open_path(
    engine: &mut LockedConnection<'_>,
    four_tuple: FourTuple,
    status: PathStatus,
) -> Result<Option<PathId>, OpenPathError> {
    use mpquic_core::OpenPathError as E;
    if let Some(error) = &engine.error {
        return Err(error.clone().into());
    }
    let now = engine.now();
    match engine.core.open_path(now, four_tuple, status) {
        Ok(id) => {
            engine.tell_path_manager(&Event::Opened(id, four_tuple), now);
            engine.run(now);
            Ok(Some(id))
        }
        Err(E::PathsBlocked | E::NoConnectionId | E::HandshakeIncomplete) => {
            engine.run(now); // PATHS_BLOCKED may be due.
            Ok(None)
        }
        Err(E::ServerSide) => Err(OpenPathError::ServerSide),
        Err(E::NotNegotiated) => Err(OpenPathError::NotNegotiated),
        Err(E::AddressForbidden) => Err(OpenPathError::AddressForbidden),
        // The event with the reason of the close comes first.
        Err(_) => Err(ConnectionError::LocallyClosed.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::{ClientConfig, Endpoint, ServerConfig};

    /// The drop of a polled handle removes the wakers of the tasks that polled the handle.
    #[tokio::test]
    async fn a_dropped_handle_leaves_no_waker_behind() -> Result<(), Box<dyn std::error::Error>> {
        let (config, _) = ServerConfig::self_signed(&["localhost"], &[b"test"])?;
        let server = Endpoint::server(config, "127.0.0.1:0".parse()?)?;
        let client = Endpoint::client("127.0.0.1:0".parse()?)?;
        let config = ClientConfig::dangerous_insecure(&[b"test"])?;
        let connecting = client.connect_with(config, server.local_addr()?, "localhost")?;
        let incoming = server.accept().await.ok_or("closed")?;
        let (connection, _at_server) = tokio::try_join!(connecting, async { incoming.await })?;
        let mut cx = Context::from_waker(Waker::noop());
        let mut polled = connection.clone();
        for _ in 0..3 {
            assert!(polled.poll_accept_bi(&mut cx).is_pending());
            assert!(polled.poll_read_datagram(&mut cx).is_pending());
        }
        let mut other = polled.clone();
        assert!(other.poll_accept_bi(&mut cx).is_pending());
        let waiting = || connection.0.lock().pollers.len();
        assert_eq!(waiting(), 3);
        drop(polled);
        assert_eq!(waiting(), 1);
        drop(other);
        assert_eq!(waiting(), 0);
        Ok(())
    }
}
