//! [`Endpoint`]: sockets, and the connections that use them.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use bytes::Bytes;
use mpquic_core::config::TransportConfig;
use mpquic_core::{ConnectionHandle, EndpointEvent, FourTuple, Transmit, VarInt};
use thiserror::Error;
use tokio::sync::Notify;

use crate::builder::EndpointBuilder;
use crate::config::{ClientConfig, ServerConfig};
use crate::connecting::{Connecting, Incoming};
use crate::connection::ConnectionRef;
use crate::driver::{ConnectionTask, read_socket};
use crate::path_plan::{PathPlan, wanted};
use crate::send_queues::SendQueues;
use crate::shared::Shared;
use crate::socket::{NoSending, Socket};

/// Largest payload of a UDP datagram over IPv4, and so of one train handed to the kernel.
const MAX_TRAIN: usize = 65_507;

/// A QUIC endpoint: any number of sockets, and connections as client, server or both.
///
/// Cloning gives another handle to the same endpoint. Once the last handle is dropped, no further
/// connections are accepted, and the sockets are closed when the last connection has ended.
#[derive(Debug, Clone)]
pub struct Endpoint {
    handle: Arc<EndpointHandle>,
}

/// Dropped with the last [`Endpoint`].
#[derive(Debug)]
struct EndpointHandle(Arc<EndpointShared>);

impl Drop for EndpointHandle {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.handles_gone = true;
        let waiting = std::mem::take(&mut state.waiting);
        for incoming in waiting {
            state.core.ignore(incoming);
        }
        let idle = state.is_idle();
        drop(state);
        if idle {
            self.0.close_sockets();
        }
    }
}

/// What the endpoint's handles and tasks share.
pub(crate) struct EndpointShared {
    state: Mutex<EndpointState>,
    sockets: RwLock<Vec<Arc<Socket>>>,
    socket_buffer: usize,
    send_queues: Mutex<SendQueues>,
    pub(crate) incoming: Notify,
    idle: Notify,
}

impl fmt::Debug for EndpointShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("local_addrs", &self.local_addrs())
            .finish_non_exhaustive()
    }
}

/// What the endpoint's lock protects. Locked after a connection's lock, never before it.
pub(crate) struct EndpointState {
    pub(crate) core: mpquic_core::Endpoint,
    connections: Vec<Option<Arc<Shared>>>,
    open: usize,
    /// Connection attempts nobody accepted yet.
    waiting: VecDeque<mpquic_core::Incoming>,
    /// Connections accepted that are not among `connections` yet.
    starting: usize,
    default_client: Option<ClientConfig>,
    closed: Option<(VarInt, Bytes)>,
    handles_gone: bool,
    /// Set while somebody must learn that no connection is left.
    became_idle: bool,
}

/// Why a connection could not be started.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConnectError {
    /// [`Endpoint::close`] was called.
    #[error("the endpoint is closed")]
    EndpointClosed,
    /// There is no client configuration.
    #[error("no client configuration: set a default one or use connect_with")]
    NoClientConfig,
    /// No socket can reach the address.
    #[error("no local address is of the same family as {0}")]
    NoSocket(SocketAddr),
    /// The name or the address is invalid.
    #[error(transparent)]
    Invalid(#[from] mpquic_core::ConnectError),
}

impl Endpoint {
    /// An endpoint with several local addresses, interfaces, or both roles.
    pub fn builder() -> EndpointBuilder {
        EndpointBuilder::new()
    }

    /// A client with one socket. Use [`Self::builder`] for several local addresses.
    ///
    /// Must be called within a tokio runtime.
    pub fn client(addr: SocketAddr) -> io::Result<Self> {
        Self::builder().bind(addr).build()
    }

    /// A server listening on one address. Use [`Self::builder`] for several.
    ///
    /// Must be called within a tokio runtime.
    pub fn server(config: ServerConfig, addr: SocketAddr) -> io::Result<Self> {
        Self::builder().bind(addr).server(config).build()
    }

    pub(crate) fn start(shared: Arc<EndpointShared>, sockets: Vec<Socket>) -> Self {
        for socket in sockets {
            shared.add_socket(socket);
        }
        Self {
            handle: Arc::new(EndpointHandle(shared)),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<EndpointShared> {
        &self.handle.0
    }

    /// The configuration [`Self::connect`] uses.
    pub fn set_default_client_config(&self, config: ClientConfig) {
        self.shared().lock().default_client = Some(config);
    }

    /// Replaces the server configuration for connections to come; `None` refuses them.
    pub fn set_server_config(&self, config: Option<ServerConfig>) {
        let mut state = self.shared().lock();
        state
            .core
            .set_server_config(config.map(|config| Arc::new(config.core)));
    }

    /// Connects with the default client configuration. `server_name` is what the server's
    /// certificate must be for.
    pub fn connect(&self, addr: SocketAddr, server_name: &str) -> Result<Connecting, ConnectError> {
        let config = self.shared().lock().default_client.clone();
        self.connect_with(
            config.ok_or(ConnectError::NoClientConfig)?,
            addr,
            server_name,
        )
    }

    /// Connects. The handshake runs from the first local address of `addr`'s family; while nothing
    /// comes back, other local addresses and server addresses are tried beside it. Further paths
    /// open on their own once the handshake is confirmed. With
    /// [`ClientConfig::automatic_paths`] off, there is one attempt and one path.
    ///
    /// Must be called within a tokio runtime.
    pub fn connect_with(
        &self,
        config: ClientConfig,
        addr: SocketAddr,
        server_name: &str,
    ) -> Result<Connecting, ConnectError> {
        let shared = self.shared();
        let mut remotes = vec![addr];
        if config.automatic_paths {
            remotes.extend(
                config
                    .server_addresses
                    .iter()
                    .filter(|other| **other != addr),
            );
        }
        let mut tuples = VecDeque::from(wanted(&shared.locals(), &remotes));
        let first = tuples.pop_front().ok_or(ConnectError::NoSocket(addr))?;
        if !config.automatic_paths {
            tuples.clear();
        }
        let first = shared.connect(config.clone(), first, server_name)?;
        Ok(Connecting::new(first).or_else(shared, config, tuples, server_name))
    }

    /// The next client that wants to connect; `None` once the endpoint is closed.
    pub async fn accept(&self) -> Option<Incoming> {
        let shared = self.shared();
        loop {
            let notified = shared.incoming.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            {
                let mut state = shared.lock();
                if state.closed.is_some() {
                    return None;
                }
                if let Some(incoming) = state.waiting.pop_front() {
                    if !state.waiting.is_empty() {
                        shared.incoming.notify_one();
                    }
                    return Some(Incoming::new(incoming, shared.clone()));
                }
            }
            notified.await;
        }
    }

    /// Closes all connections and accepts no more. Wait with [`Self::wait_idle`] so that the peers
    /// hear of it.
    pub fn close(&self, error_code: VarInt, reason: &[u8]) {
        let reason = Bytes::copy_from_slice(reason);
        let shared = self.shared();
        let mut state = shared.lock();
        state.closed = Some((error_code, reason.clone()));
        state.core.set_server_config(None);
        let connections: Vec<_> = state.connections.iter().flatten().cloned().collect();
        drop(state);
        shared.incoming.notify_waiters();
        for connection in connections {
            connection.close(error_code, reason.clone());
        }
    }

    /// Waits until no connection is left, including the time the protocol waits after a close.
    pub async fn wait_idle(&self) {
        let shared = self.shared();
        loop {
            let notified = shared.idle.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if shared.lock().is_idle() {
                return;
            }
            notified.await;
        }
    }

    /// The addresses of the sockets, each once.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        let mut addresses = self.shared().local_addrs();
        addresses.dedup(); // Sockets that share an address stand side by side.
        addresses
    }

    /// The address of the first socket.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.local_addrs()
            .first()
            .copied()
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Connections that are not over yet.
    pub fn open_connections(&self) -> usize {
        self.shared().lock().open
    }

    /// Binds one more local address; client connections open paths from it. Port 0 takes any.
    ///
    /// Must be called within a tokio runtime.
    pub fn add_local(&self, addr: SocketAddr) -> io::Result<SocketAddr> {
        let shared = self.shared();
        let local = shared.add_socket(Socket::bind(addr, None, shared.socket_buffer)?);
        shared.locals_changed();
        Ok(local)
    }

    /// Closes the socket with this address. Paths from it are abandoned; a connection's last path
    /// stays and moves to the next local address that appears. False if there is no such socket.
    pub fn remove_local(&self, addr: SocketAddr) -> bool {
        let shared = self.shared();
        let mut removed = false;
        while shared.remove_socket(|socket| socket.local() == addr) {
            removed = true;
        }
        if removed {
            shared.locals_changed();
        }
        removed
    }
}

/// Datagrams one transmit may hold, so that even the largest ones fit one call to the kernel.
fn max_datagrams(transport: &TransportConfig) -> usize {
    let largest = transport.max_mtu.max(transport.initial_mtu).max(1200);
    (MAX_TRAIN / usize::from(largest)).max(1)
}

/// Starts the task of a connection that is in its endpoint's table.
fn start_connection(connection: Arc<Shared>) -> ConnectionRef {
    connection.lock().run(Instant::now());
    tokio::spawn(ConnectionTask::new(connection.clone()).run());
    ConnectionRef::new(connection)
}

impl EndpointShared {
    pub(crate) fn new(
        core: mpquic_core::Endpoint,
        default_client: Option<ClientConfig>,
        socket_buffer: usize,
    ) -> Self {
        Self {
            state: Mutex::new(EndpointState {
                core,
                connections: Vec::new(),
                open: 0,
                waiting: VecDeque::new(),
                starting: 0,
                default_client,
                closed: None,
                handles_gone: false,
                became_idle: false,
            }),
            sockets: RwLock::new(Vec::new()),
            socket_buffer,
            send_queues: Mutex::default(),
            incoming: Notify::new(),
            idle: Notify::new(),
        }
    }

    /// Exclusive access; whoever waits for idleness is told when it is released.
    pub(crate) fn lock(&self) -> EndpointLocked<'_> {
        EndpointLocked {
            guard: self.state.lock().unwrap_or_else(PoisonError::into_inner),
            shared: self,
            _no_sending: NoSending::new(),
        }
    }

    /// What waits behind the sockets. Locked after a connection's lock.
    pub(crate) fn send_queues(&self) -> MutexGuard<'_, SendQueues> {
        self.send_queues
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The socket that datagrams from `local` leave by.
    pub(crate) fn socket(&self, local: SocketAddr) -> Option<Arc<Socket>> {
        let sockets = self.sockets.read().unwrap_or_else(PoisonError::into_inner);
        let exact = sockets.iter().find(|socket| socket.local() == local);
        exact
            .or_else(|| sockets.iter().find(|socket| socket.owns(local)))
            .cloned()
    }

    /// The socket whose address has this IP, if any.
    pub(crate) fn local_with_ip(&self, ip: std::net::IpAddr) -> Option<SocketAddr> {
        let locals = self.local_addrs();
        locals.into_iter().find(|local| local.ip() == ip)
    }

    /// Which local addresses there are, for path plans.
    pub(crate) fn locals(&self) -> Vec<Arc<Socket>> {
        let sockets = self.sockets.read().unwrap_or_else(PoisonError::into_inner);
        sockets.clone()
    }

    fn local_addrs(&self) -> Vec<SocketAddr> {
        let sockets = self.sockets.read().unwrap_or_else(PoisonError::into_inner);
        sockets.iter().map(|socket| socket.local()).collect()
    }

    /// Reads a socket from now on.
    pub(crate) fn add_socket(self: &Arc<Self>, socket: Socket) -> SocketAddr {
        let socket = Arc::new(socket);
        let local = socket.local();
        tokio::spawn(read_socket(self.clone(), socket.clone()));
        let mut sockets = self.sockets.write().unwrap_or_else(PoisonError::into_inner);
        sockets.push(socket);
        local
    }

    /// Binds a socket for a path that is to start at `local`.
    pub(crate) fn bind(
        self: &Arc<Self>,
        local: SocketAddr,
        interface: Option<&str>,
    ) -> io::Result<SocketAddr> {
        Ok(self.add_socket(Socket::bind(local, interface, self.socket_buffer)?))
    }

    /// Closes the first socket that `matches`.
    pub(crate) fn remove_socket(&self, matches: impl Fn(&Socket) -> bool) -> bool {
        let mut sockets = self.sockets.write().unwrap_or_else(PoisonError::into_inner);
        let Some(index) = sockets.iter().position(|socket| matches(socket)) else {
            return false;
        };
        sockets.remove(index).close();
        true
    }

    /// Lets every connection look at the local addresses again.
    pub(crate) fn locals_changed(&self) {
        let locals = self.locals();
        let connections: Vec<_> = {
            let state = self.lock();
            state.connections.iter().flatten().cloned().collect()
        };
        let now = Instant::now();
        for connection in connections {
            let mut state = connection.lock();
            let state = &mut *state;
            if let Some(plan) = &mut state.plan {
                plan.set_locals(locals.clone());
                plan.follow(&mut state.core, now);
                state.wake_task();
            }
        }
    }

    /// True once no handle and no connection is left.
    #[cfg(feature = "interfaces")]
    pub(crate) fn is_over(&self) -> bool {
        let state = self.lock();
        state.handles_gone && state.is_idle()
    }

    fn close_sockets(&self) {
        let mut sockets = self.sockets.write().unwrap_or_else(PoisonError::into_inner);
        for socket in sockets.drain(..) {
            socket.close();
        }
    }

    /// Sends a datagram that belongs to no connection.
    pub(crate) fn respond(&self, transmit: &Transmit, contents: &[u8]) {
        if let Some(socket) = self.socket(transmit.four_tuple.local) {
            socket.send(transmit, contents.get(..transmit.size).unwrap_or(contents));
        }
    }

    /// Starts a connection between these addresses.
    pub(crate) fn connect(
        self: &Arc<Self>,
        config: ClientConfig,
        four_tuple: FourTuple,
        server_name: &str,
    ) -> Result<ConnectionRef, ConnectError> {
        let plan = config.automatic_paths.then(|| {
            let mut plan = PathPlan::new(four_tuple, &config.server_addresses);
            plan.set_locals(self.locals());
            plan
        });
        let max = max_datagrams(&config.core.transport);
        let now = Instant::now();
        let mut state = self.lock();
        if state.closed.is_some() {
            return Err(ConnectError::EndpointClosed);
        }
        let (handle, core) = state
            .core
            .connect(now, config.core, four_tuple, server_name)?;
        let connection = Arc::new(Shared::new(handle, core, self.clone(), max, plan));
        state.insert(connection.clone());
        drop(state);
        Ok(start_connection(connection))
    }

    /// Accepts a connection attempt. The endpoint is not locked while the connection starts, as
    /// that takes as long as TLS's first flight.
    pub(crate) fn accept(
        self: &Arc<Self>,
        incoming: mpquic_core::Incoming,
    ) -> Result<ConnectionRef, mpquic_core::ConnectionError> {
        let max = max_datagrams(&incoming.server_config().transport);
        let mut response = Vec::new();
        let mut state = self.lock();
        let accepting = state
            .core
            .begin_accept(Instant::now(), incoming, &mut response);
        let accepting = match accepting {
            Ok(accepting) => accepting,
            Err(error) => {
                drop(state);
                if let Some(transmit) = error.response {
                    self.respond(&transmit, &response);
                }
                return Err(error.cause);
            }
        };
        state.starting += 1;
        drop(state);
        let starting = Starting(self);
        let (core, accepted) = accepting.start();
        let handle = accepted.handle();
        let connection = Arc::new(Shared::new(handle, core, self.clone(), max, None));
        // Datagrams that come from here on wait for those that came while it started.
        let mut locked = connection.lock();
        let now = Instant::now();
        let mut state = self.lock();
        let late = state.core.finish_accept(now, accepted);
        state.insert(connection.clone());
        let closed = state.closed.clone();
        drop(state);
        drop(starting);
        for datagram in late {
            locked.core.handle_datagram(datagram);
        }
        drop(locked);
        let started = start_connection(connection);
        if let Some((error_code, reason)) = closed {
            started.close(error_code, reason);
        }
        Ok(started)
    }
}

/// Counts a connection that is being accepted, so that nobody takes the endpoint for idle.
struct Starting<'a>(&'a EndpointShared);

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.starting -= 1;
        state.became_idle = state.is_idle();
    }
}

impl EndpointState {
    fn insert(&mut self, connection: Arc<Shared>) {
        let index = connection.handle.0;
        if self.connections.len() <= index {
            self.connections.resize(index + 1, None);
        }
        if let Some(slot) = self.connections.get_mut(index) {
            *slot = Some(connection);
            self.open += 1;
        }
    }

    /// The connection with this handle.
    pub(crate) fn connection(&self, handle: ConnectionHandle) -> Option<Arc<Shared>> {
        self.connections.get(handle.0)?.clone()
    }

    /// Takes what a connection tells its endpoint.
    pub(crate) fn handle_event(&mut self, handle: ConnectionHandle, event: EndpointEvent) {
        if event.is_drained() {
            self.remove(handle);
        }
        self.core.handle_event(handle, event);
    }

    /// Drops a connection that nobody drives any more.
    pub(crate) fn forget(&mut self, connection: &Arc<Shared>) {
        let handle = connection.handle;
        if self
            .connections
            .get(handle.0)
            .and_then(Option::as_ref)
            .is_some_and(|known| Arc::ptr_eq(known, connection))
        {
            self.handle_event(handle, EndpointEvent::drained());
        }
    }

    fn remove(&mut self, handle: ConnectionHandle) {
        if let Some(slot) = self.connections.get_mut(handle.0)
            && slot.take().is_some()
        {
            self.open -= 1;
            self.became_idle = self.is_idle();
        }
    }

    fn is_idle(&self) -> bool {
        self.open == 0 && self.starting == 0
    }

    /// Keeps a connection attempt for `accept`, or refuses it: then the answer is in `response`.
    pub(crate) fn on_incoming(
        &mut self,
        incoming: mpquic_core::Incoming,
        response: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if self.closed.is_some() || self.handles_gone {
            return self.core.refuse(incoming, response);
        }
        self.waiting.push_back(incoming);
        None
    }
}

/// Exclusive access to an endpoint's state.
pub(crate) struct EndpointLocked<'a> {
    guard: MutexGuard<'a, EndpointState>,
    shared: &'a EndpointShared,
    /// Every task needs the lock to route datagrams: a call to the kernel takes too long.
    _no_sending: NoSending,
}

impl std::ops::Deref for EndpointLocked<'_> {
    type Target = EndpointState;
    fn deref(&self) -> &EndpointState {
        &self.guard
    }
}

impl std::ops::DerefMut for EndpointLocked<'_> {
    fn deref_mut(&mut self) -> &mut EndpointState {
        &mut self.guard
    }
}

impl Drop for EndpointLocked<'_> {
    fn drop(&mut self) {
        if std::mem::take(&mut self.guard.became_idle) {
            self.shared.idle.notify_waiters();
            if self.guard.handles_gone {
                self.shared.close_sockets();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type TestResult = Result<(), Box<dyn std::error::Error>>;

    /// What a client was offered when it came is what it gets.
    #[tokio::test]
    async fn an_attempt_keeps_the_configuration_it_came_under() -> TestResult {
        let (config, _) = ServerConfig::self_signed(&["localhost"], &[b"test"])?;
        let expected = max_datagrams(&config.core.transport);
        let server = Endpoint::server(config, "127.0.0.1:0".parse()?)?;
        let client = Endpoint::client("127.0.0.1:0".parse()?)?;
        client.set_default_client_config(ClientConfig::dangerous_insecure(&[b"test"])?);
        let connecting = client.connect(server.local_addr()?, "localhost")?;
        let incoming = server.accept().await.ok_or("closed")?;
        server.set_server_config(None);
        let _accepting = incoming.accept()?;
        let accepted = server.shared().lock().connection(ConnectionHandle(0));
        let max = accepted.ok_or("no connection")?.lock().max_datagrams;
        assert_eq!(max, expected);
        connecting.await?;
        Ok(())
    }
}
