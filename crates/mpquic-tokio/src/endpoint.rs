//! [`Endpoint`]: a handle to a set of sockets and their connections.

use std::io;
use std::iter;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
#[cfg(feature = "metrics")]
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use mpquic_core::{AnnounceError, EndpointStats, ServerAddress, VarInt};
use thiserror::Error;
use tokio::runtime::Handle;

use crate::addresses::{by_turns, canonical};
use crate::config::{ClientConfig, ConfigError, ServerConfig};
use crate::connecting::Connecting;
use crate::connection_state::SharedEndpoint;
use crate::datagram_socket::DatagramSocket;
use crate::handover;
use crate::incoming::Incoming;
use crate::local_addresses;
#[cfg(feature = "metrics")]
use crate::metrics;
use crate::socket::Socket;
use crate::start::{self, ConnectError};

/// A QUIC endpoint: any number of sockets, and connections as client, server or both.
///
/// A clone is another handle to the same endpoint. After the drop of the last handle, the endpoint
/// accepts no further connections, and closes the sockets at the end of the last connection.
///
/// # Examples
///
/// A server and a client that knows its certificate, each with an endpoint of its own:
///
/// ```
/// use mpquic_tokio::{ClientConfig, Endpoint, ServerConfig, certificate_fingerprint};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (config, certificate) = ServerConfig::self_signed(&["localhost"], &[b"example"])?;
/// let server = Endpoint::server(config, "127.0.0.1:0".parse()?)?;
/// let address = server.local_addr()?;
///
/// let client = Endpoint::client("127.0.0.1:0".parse()?)?;
/// let pin = certificate_fingerprint(&certificate);
/// client.set_default_client_config(ClientConfig::with_pin(pin, &[b"example"])?);
///
/// let connecting = client.connect(address, "localhost")?;
/// let incoming = server.accept().await.ok_or("the endpoint is closed")?;
/// let (at_client, at_server) = tokio::try_join!(connecting, async { incoming.await })?;
/// assert_eq!(at_client.remote_address(), Some(address));
/// assert_eq!(server.stats().accepted_handshakes, 1);
///
/// at_client.close(0u32.into(), b"done");
/// at_server.closed().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Endpoint {
    handle: Arc<EndpointHandle>,
}

/// The work of an endpoint's driver, apart from the protocol, from the endpoint's start on.
/// Counters only rise; `receive_memory` is no counter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverStats {
    /// Connections that a panic has ended, in the core or in code given to the core; see
    /// [`ConnectionError::Panicked`](crate::ConnectionError::Panicked).
    pub panicked_connections: u64,
    /// Bytes of receive memory that sockets have allocated so far. The driver reuses memory after
    /// its content was read or copied, so the number normally stops growing.
    pub receive_memory_allocated: u64,
    /// Bytes of receive memory that sockets hold now; part of [`EndpointStats::memory`].
    pub receive_memory: u64,
}

/// Why [`Endpoint::connect_to`] could not begin to connect.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectToError {
    /// The name has no address, or the system cannot tell.
    #[error("cannot find the address of {0}")]
    Name(String, #[source] io::Error),
    /// No connection could be started.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// Dropped with the last [`Endpoint`].
#[derive(Debug)]
struct EndpointHandle(Arc<SharedEndpoint>);

impl Drop for EndpointHandle {
    fn drop(&mut self) {
        self.0.on_handles_gone();
    }
}

impl Endpoint {
    pub(crate) fn new(state: Arc<SharedEndpoint>) -> Self {
        Self {
            handle: Arc::new(EndpointHandle(state)),
        }
    }

    pub(crate) fn state(&self) -> &Arc<SharedEndpoint> {
        &self.handle.0
    }

    /// Sets the configuration that [`Self::connect`] uses.
    pub fn set_default_client_config(&self, config: ClientConfig) {
        self.state().lock().default_client = Some(config);
    }

    /// Replaces the server configuration for connections to come; `None` refuses connections. An
    /// earlier attempt keeps the configuration of its arrival. Preferred addresses are not bound.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Option`] if an option has an invalid value; the configuration then stays
    /// unchanged.
    pub fn set_server_config(&self, config: Option<ServerConfig>) -> Result<(), ConfigError> {
        let core = config.map(|config| config.checked()).transpose()?;
        self.state().lock().core.set_server_config(core);
        Ok(())
    }

    /// Connects with the default client configuration. The server's certificate must be valid for
    /// `server_name`.
    ///
    /// Must be called within a tokio runtime, if the endpoint runs on tokio.
    ///
    /// # Errors
    ///
    /// [`ConnectError::NoDefaultClientConfig`] without a default configuration, and errors of
    /// [`Self::connect_with`].
    pub fn connect(&self, addr: SocketAddr, server_name: &str) -> Result<Connecting, ConnectError> {
        let config = self.state().lock().default_client.clone();
        let config = config.ok_or(ConnectError::NoDefaultClientConfig)?;
        self.connect_with(config, addr, server_name)
    }

    /// Connects. The first flight leaves from one address of each interface, backups excepted, and
    /// the handshake continues where the server answers first. With 0-RTT, it leaves from the first
    /// local address of `addr`'s family only. While the server is silent, attempts from other local addresses and to other server addresses run
    /// beside the first. The address with the first answer to an earlier connection of the same
    /// configuration comes first. Further paths open automatically after the handshake. With
    /// [`ClientConfig::automatic_paths`] off, the client makes a single attempt and a single path.
    ///
    /// Must be called within a tokio runtime, if the endpoint runs on tokio.
    ///
    /// # Errors
    ///
    /// If the endpoint is closed, no socket reaches the address, or `server_name` or the address is
    /// not valid. [`Connecting`] returns errors of the handshake.
    pub fn connect_with(
        &self,
        config: ClientConfig,
        addr: SocketAddr,
        server_name: &str,
    ) -> Result<Connecting, ConnectError> {
        let addr = canonical(addr);
        let others = config.server_addresses.iter().copied();
        let others = others.filter(|other| *other != addr);
        let remotes: Vec<_> = iter::once(addr).chain(others).collect();
        self.connect_to_some(config, &remotes, server_name)
    }

    /// Connects with the default client configuration to a host. The host is an IP address, or a
    /// name that the system resolves; the server's certificate must be valid for the name. Uses the
    /// address with the first answer. An address without an answer costs 0.3 s; an address without
    /// a server costs nothing, if ICMP reports the closed port.
    ///
    /// Afterwards, paths lead to the other addresses as well, as with [`Self::connect_any`].
    ///
    /// Must be called within a tokio runtime, even if the endpoint runs on another runtime: tokio
    /// resolves the name. Cancel-safe.
    ///
    /// # Errors
    ///
    /// [`ConnectToError::Name`] if the host has no address or the runtime is not tokio, and errors
    /// of [`Self::connect`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use mpquic_tokio::{ClientConfig, Endpoint};
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = Endpoint::builder()
    ///     .all_interfaces()
    ///     .client(ClientConfig::with_native_roots(&[b"hello"])?)
    ///     .build()?;
    /// let connection = client.connect_to("example.com", 4433).await?.await?;
    /// # drop(connection);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect_to(&self, host: &str, port: u16) -> Result<Connecting, ConnectToError> {
        let config = self.state().lock().default_client.clone();
        let config = config.ok_or(ConnectError::NoDefaultClientConfig)?;
        let failed = |error| ConnectToError::Name(host.to_owned(), error);
        Handle::try_current().map_err(|error| failed(io::Error::other(error)))?;
        let found = tokio::net::lookup_host((host, port)).await;
        let addresses = Vec::from_iter(found.map_err(failed)?);
        if addresses.is_empty() {
            return Err(failed(io::ErrorKind::NotFound.into()));
        }
        Ok(self.connect_any(config, &addresses, host)?)
    }

    /// Connects to the address with the first answer, for example among the addresses of one name.
    /// Give the best address first. An address without an answer delays the next address, of the
    /// other IP version if possible (RFC 8305), by 0.3 s. The address with the first answer to an
    /// earlier connection of the same configuration comes first.
    ///
    /// Afterwards, paths lead to the other addresses as well. Some addresses may belong to other
    /// machines, so paths to the given addresses open last, and the client gives them up after
    /// failures. An IPv4 address in IPv6 form counts as IPv4. A link-local address needs its scope,
    /// and a socket bound to that link or to `[::]`.
    ///
    /// Must be called within a tokio runtime, if the endpoint runs on tokio.
    ///
    /// # Errors
    ///
    /// [`ConnectError::NoAddress`] if the list is empty, and errors of [`Self::connect_with`].
    pub fn connect_any(
        &self,
        mut config: ClientConfig,
        addresses: &[SocketAddr],
        server_name: &str,
    ) -> Result<Connecting, ConnectError> {
        let mut remotes = by_turns(addresses);
        config.possible_addresses = remotes.clone();
        for address in &config.server_addresses {
            if !remotes.contains(address) {
                remotes.push(*address);
            }
        }
        self.connect_to_some(config, &remotes, server_name)
    }

    /// Connects to an address, and tries the other addresses while the first is silent.
    fn connect_to_some(
        &self,
        config: ClientConfig,
        remotes: &[SocketAddr],
        server_name: &str,
    ) -> Result<Connecting, ConnectError> {
        let preferred = *remotes.first().ok_or(ConnectError::NoAddress)?;
        let state = self.state();
        let first = start::ways(state, &config, remotes).first().copied();
        let first = first.ok_or(ConnectError::NoSocket(preferred))?;
        let mut everywhere = config.clone();
        everywhere.core.first_flight_from = start::further_starts(state, &config, first);
        let connection = start::connect(state, everywhere, first, server_name)?;
        let connecting = Connecting::new(connection);
        Ok(connecting.or_else(state, config, (first, remotes.to_vec()), server_name))
    }

    /// Waits for the next client that wants to connect; `None` after the endpoint is closed.
    /// Established connections come first: between two clients, other tasks have their turn. While
    /// many datagrams arrive, clients wait until the sockets are empty, or until at least 128
    /// messages were read.
    ///
    /// Cancel-safe.
    pub async fn accept(&self) -> Option<Incoming> {
        let state = self.state();
        // The work for the previous attempt, above all TLS, takes long.
        tokio::task::yield_now().await;
        loop {
            let notified = state.attempts.notified();
            {
                let mut registry = state.lock();
                if registry.closed().is_some() {
                    return None;
                }
                if registry.is_turn_of_attempts()
                    && let Some(incoming) = registry.next_attempt()
                {
                    if registry.has_attempts() {
                        state.attempts.notify_one();
                    }
                    return Some(Incoming::new(incoming, state.clone()));
                }
            }
            notified.await;
        }
    }

    /// Closes all connections and accepts no more connections; refuses clients that wait for
    /// [`Self::accept`]. Call [`Self::wait_idle`] afterwards, so that the peers hear of the close
    /// before the process ends.
    pub fn close(&self, error_code: VarInt, reason: &[u8]) {
        let reason = Bytes::copy_from_slice(reason);
        let state = self.state();
        let mut registry = state.lock();
        let refusals = registry.close(error_code, reason.clone());
        let connections = registry.connections();
        drop(registry);
        for (transmit, response) in refusals {
            state.respond(&transmit, &response);
        }
        state.attempts.notify_waiters();
        for connection in connections {
            connection.close(error_code, reason.clone());
        }
    }

    /// Makes new connection IDs for all connections and asks the peers to retire their old
    /// connection IDs (RFC 9000 section 5.1.2): for example after a change of the key for a load
    /// balancer that reads connection IDs.
    pub fn replace_connection_ids(&self) {
        let connections = self.state().lock().connections();
        for connection in connections {
            connection.replace_connection_ids();
        }
    }

    /// Server: announces all its further addresses, the best first, to the clients of current and
    /// future connections. The call withdraws announced addresses that `addresses` lacks. Clients
    /// that asked for addresses ([`ClientConfig::use_alternative_addresses`]) open paths to the
    /// addresses; the server tells other clients nothing.
    ///
    /// Each address needs a socket ([`Self::add_local`]), a socket for all addresses of the
    /// machine, or a forwarder whose datagrams arrive at a socket.
    ///
    /// # Errors
    ///
    /// [`AnnounceError::TooMany`] for more than [`ServerAddress::MAX`],
    /// [`AnnounceError::NotUsable`] and [`AnnounceError::Twice`] for an invalid address. The
    /// earlier announcement then stays.
    ///
    /// # Examples
    ///
    /// A second uplink comes, and goes:
    ///
    /// ```no_run
    /// # use mpquic_tokio::{Endpoint, ServerAddress};
    /// # async fn example(server: Endpoint) -> Result<(), Box<dyn std::error::Error>> {
    /// let uplink = server.add_local("198.51.100.7:443".parse()?)?;
    /// server.announce_addresses(&[ServerAddress::new(uplink)])?;
    /// // Later:
    /// server.announce_addresses(&[])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn announce_addresses(&self, addresses: &[ServerAddress]) -> Result<(), AnnounceError> {
        ServerAddress::check_all(addresses)?;
        let mut registry = self.state().lock();
        registry.announced = addresses.into();
        let connections = registry.connections();
        drop(registry);
        for connection in connections {
            connection.lock().announce_addresses();
        }
        Ok(())
    }

    /// Waits until no connection is left. A closed connection stays for three probe timeouts of its
    /// slowest path, to answer late packets: up to three seconds after a short connection.
    /// [`Self::wait_all_draining`] does not wait for late packets. Cancel-safe.
    pub async fn wait_idle(&self) {
        let state = self.state();
        loop {
            let notified = state.idle.notified();
            if state.lock().is_idle() {
                return;
            }
            notified.await;
        }
    }

    /// Waits until every connection of the endpoint has ended, and has sent CONNECTION_CLOSE to a
    /// peer that needed the frame. Closed connections answer late packets while the process lives;
    /// unlike [`Self::wait_idle`], this call does not wait for late packets. Cancel-safe.
    pub async fn wait_all_draining(&self) {
        let connections = self.state().lock().connections();
        for connection in connections {
            let ended = &connection.notifications.connection;
            let end = connection.until_told(ended, |engine| engine.error.is_some().then_some(()));
            end.await;
        }
    }

    /// The addresses of the sockets, without duplicates.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        let mut addresses = self.state().sockets.addresses();
        addresses.dedup(); // Sockets that share an address stand side by side.
        addresses
    }

    /// The address of the first socket.
    ///
    /// # Errors
    ///
    /// [`NotConnected`](io::ErrorKind::NotConnected) without a socket, for example while all
    /// interfaces are down.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let addresses = self.local_addrs();
        let first = addresses.first().copied();
        first.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Number of connections that have not ended yet.
    pub fn open_connections(&self) -> usize {
        self.state().lock().open()
    }

    /// Counters of the endpoint (connections started and accepted, attempts refused, and so on),
    /// and its memory.
    pub fn stats(&self) -> EndpointStats {
        self.state().lock().core.stats()
    }

    /// Counters of this driver, apart from the protocol.
    pub fn driver_stats(&self) -> DriverStats {
        let state = self.state();
        let registry = state.lock();
        DriverStats {
            panicked_connections: registry.panicked(),
            receive_memory: registry.receive_memory(),
            receive_memory_allocated: state.receive_memory.load(Ordering::Relaxed),
        }
    }

    /// Tells the recorder of the crate `metrics` about all changes after the last call: call it
    /// every few seconds, or before a reader asks for figures. `docs/observability.md` lists the
    /// figures, which are sums over the endpoints of a process. A connection reports its last
    /// changes itself when it ends.
    #[cfg(feature = "metrics")]
    pub fn report_metrics(&self) {
        metrics::describe();
        {
            let told = self.state().told.lock();
            let mut told = told.unwrap_or_else(PoisonError::into_inner);
            told.tell(&self.stats(), self.open_connections());
        }
        let connections = self.state().lock().connections();
        for connection in connections {
            connection
                .lock()
                .contain(|engine| engine.tell_metrics(true));
        }
    }

    /// Binds a further local address; client connections open paths from the address. Port 0 lets
    /// the system choose a free port. Returns the address with its port.
    ///
    /// Must be called within a tokio runtime, if the endpoint runs on tokio.
    ///
    /// # Errors
    ///
    /// If the system refuses to bind the socket, for example because the address belongs to another
    /// machine.
    pub fn add_local(&self, addr: SocketAddr) -> io::Result<SocketAddr> {
        let local = start::bind(self.state(), addr, None)?;
        local_addresses::follow(self.state());
        Ok(local)
    }

    /// Adds a socket that the application has bound, and returns the socket's address; client
    /// connections open paths from the address. [`Self::remove_local`] closes the socket.
    ///
    /// Must be called within a tokio runtime, if the endpoint runs on tokio.
    ///
    /// # Errors
    ///
    /// If the system refuses to use the socket.
    pub fn add_socket(&self, socket: UdpSocket) -> io::Result<SocketAddr> {
        self.insert(self.state().sockets.adopt(socket)?)
    }

    /// Like [`Self::add_socket`], with a carrier of datagrams in the place of a socket.
    ///
    /// # Errors
    ///
    /// If the socket has no address.
    pub fn add_abstract_socket(&self, socket: Arc<dyn DatagramSocket>) -> io::Result<SocketAddr> {
        self.insert(Socket::of(socket)?)
    }

    fn insert(&self, socket: Socket) -> io::Result<SocketAddr> {
        let local = socket.local();
        start::read(self.state(), Arc::new(socket));
        local_addresses::follow(self.state());
        Ok(local)
    }

    /// Closes the socket with this address and abandons its paths. A connection's last path stays,
    /// and moves to the next new local address. Returns false without such a socket. A connection
    /// must not leave its address before its handshake is confirmed: the connection keeps using the
    /// socket until its paths have moved.
    pub fn remove_local(&self, addr: SocketAddr) -> bool {
        let state = self.state();
        let removed = state.sockets.remove(|socket| socket.local() == addr);
        if !removed.is_empty() {
            local_addresses::follow(state);
        }
        !removed.is_empty()
    }

    /// Closes the server's sockets, so that another process of the same user can bind their
    /// addresses and get new clients. Open connections continue: each path gets a socket of its
    /// own, connected to the client. A path that the client opens later, or whose client gets
    /// another address, reaches the other process, so the path fails; the connection's other paths
    /// continue. A new connection from the address of an open connection reaches this endpoint, so
    /// clients should use new ports. The sockets close once their tasks have run.
    ///
    /// The other process must have another key for stateless resets
    /// ([`EndpointOptions::new`](mpquic_core::config::EndpointOptions::new)): otherwise it would
    /// end a connection whose datagrams it gets. The kernel searches all sockets of an address for
    /// each datagram, so a server with more than some thousand paths takes longer for each
    /// datagram.
    ///
    /// Must be called within a tokio runtime, if the endpoint runs on tokio.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](io::ErrorKind::Unsupported) on systems other than Linux, and if a socket is
    /// not the kernel's; the endpoint then stays unchanged.
    pub fn release_addresses(&self) -> io::Result<()> {
        handover::release(self.state())
    }

    /// Replaces all sockets by a socket that the application has bound. Every path of a client
    /// moves to the new socket after the handshake is confirmed, if the server allows migration;
    /// the old socket stays open until then. A server's paths continue only if the new socket has
    /// the address of the old socket, because the clients know no other address.
    ///
    /// To keep several local addresses, replace sockets one at a time with [`Self::rebind_local`].
    ///
    /// Must be called within a tokio runtime, if the endpoint runs on tokio.
    ///
    /// # Errors
    ///
    /// If the system refuses to use the socket; the endpoint then stays unchanged.
    pub fn rebind(&self, socket: UdpSocket) -> io::Result<()> {
        self.replace(socket, |_| true)
    }

    /// Replaces the socket with this address by a socket that the application has bound, as
    /// [`Self::rebind`] replaces all sockets.
    ///
    /// Must be called within a tokio runtime, if the endpoint runs on tokio.
    ///
    /// # Errors
    ///
    /// [`NotFound`](io::ErrorKind::NotFound) if no socket has the address, or an error of the new
    /// socket; the endpoint then stays unchanged.
    pub fn rebind_local(&self, addr: SocketAddr, socket: UdpSocket) -> io::Result<()> {
        if !self.local_addrs().contains(&addr) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.replace(socket, |old| old.local() == addr)
    }

    fn replace(&self, socket: UdpSocket, matches: impl Fn(&Socket) -> bool) -> io::Result<()> {
        let state = self.state();
        let socket = Arc::new(state.sockets.adopt(socket)?);
        let old = state.sockets.remove(matches);
        start::read(state, socket.clone());
        local_addresses::move_paths(state, &old, &socket);
        Ok(())
    }
}
