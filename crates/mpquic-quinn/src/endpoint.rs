//! [`Endpoint`]: sockets and their connections.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use mpquic_tokio as mp;
use quinn_proto::{ConnectError, VarInt};

use crate::config::{ClientConfig, EndpointConfig, ServerConfig};
use crate::connecting::Connecting;
use crate::convert::connect_error;
use crate::drivers::{default_runtime, driver_of};
use crate::incoming::Accept;
use crate::interfaces::Interfaces;
use crate::runtime::{AsyncUdpSocket, Runtime};
use crate::sockets::Adapted;
use crate::stats::EndpointStats;

/// A set of sockets, with the connections of clients and servers over them. A clone is another
/// handle to the same endpoint, with a default client configuration of its own.
#[derive(Debug, Clone)]
pub struct Endpoint {
    pub(crate) inner: mp::Endpoint,
    default_client_config: Option<ClientConfig>,
    /// True if the sockets are those of interfaces, and not of the address that the program asked
    /// for.
    on_interfaces: bool,
}

impl Endpoint {
    /// An endpoint for connections to servers, bound to this address. If [`Interfaces`] are chosen
    /// and the address is unspecified (`0.0.0.0` or `[::]`), the endpoint has a socket for each
    /// interface instead. `[::]` also reaches IPv4 servers where the system allows it.
    ///
    /// # Errors
    ///
    /// If no socket can be bound, and outside of a runtime.
    pub fn client(addr: SocketAddr) -> io::Result<Self> {
        let interfaces = Interfaces::in_force();
        if interfaces.replace(addr, false) {
            return Self::client_on(&interfaces);
        }
        let builder = prepare(EndpointConfig::default(), None, runtime()?)?;
        Self::build(builder.bind(addr), false)
    }

    /// An endpoint for connections to servers, with a socket for each of these interfaces. The
    /// endpoint follows the interfaces as they come and go.
    ///
    /// # Errors
    ///
    /// If no socket can be bound, and outside of a runtime.
    pub fn client_on(interfaces: &Interfaces) -> io::Result<Self> {
        let builder = prepare(EndpointConfig::default(), None, runtime()?)?;
        Self::build(interfaces.add_to(builder), true)
    }

    /// An endpoint for connections from clients, bound to this address, which can also connect to
    /// servers.
    ///
    /// # Errors
    ///
    /// If no socket can be bound, and outside of a runtime.
    pub fn server(config: ServerConfig, addr: SocketAddr) -> io::Result<Self> {
        let builder = prepare(EndpointConfig::default(), Some(config), runtime()?)?;
        Self::build(builder.bind(addr), false)
    }

    /// An endpoint over a bound socket. Without a server configuration, a socket that is bound to
    /// an unspecified address gives way to sockets of [`Interfaces`], as in [`Self::client`].
    ///
    /// # Errors
    ///
    /// If the socket or the configuration cannot be used.
    pub fn new(
        config: EndpointConfig,
        server_config: Option<ServerConfig>,
        socket: UdpSocket,
        runtime: Arc<dyn Runtime>,
    ) -> io::Result<Self> {
        let interfaces = Interfaces::in_force();
        let replaced = interfaces.replace(socket.local_addr()?, server_config.is_some());
        let builder = prepare(config, server_config, runtime)?;
        let builder = if replaced {
            interfaces.add_to(builder)
        } else {
            builder.socket(socket)
        };
        Self::build(builder, replaced)
    }

    /// An endpoint over anything that carries datagrams.
    ///
    /// # Errors
    ///
    /// If the socket or the configuration cannot be used.
    pub fn new_with_abstract_socket(
        config: EndpointConfig,
        server_config: Option<ServerConfig>,
        socket: Arc<dyn AsyncUdpSocket>,
        runtime: Arc<dyn Runtime>,
    ) -> io::Result<Self> {
        let builder = prepare(config, server_config, runtime)?;
        Self::build(
            builder.abstract_socket(Arc::new(Adapted::new(socket))),
            false,
        )
    }

    fn build(builder: mp::EndpointBuilder, on_interfaces: bool) -> io::Result<Self> {
        Ok(Self {
            inner: builder.build()?,
            default_client_config: None,
            on_interfaces,
        })
    }

    /// The endpoint of mpquic below, which has more methods: local addresses that come and go,
    /// announced addresses.
    pub fn as_mpquic(&self) -> &mp::Endpoint {
        &self.inner
    }

    /// Counts of the endpoint.
    pub fn stats(&self) -> EndpointStats {
        EndpointStats::new(&self.inner.stats())
    }

    /// Waits for the next client; `None` after the endpoint was closed.
    pub fn accept(&self) -> Accept<'_> {
        Accept::new(&self.inner)
    }

    /// Sets the configuration of [`Self::connect`], for this handle and later clones of it.
    pub fn set_default_client_config(&mut self, config: ClientConfig) {
        self.default_client_config = Some(config);
    }

    /// Connects to a server that proves this name, with the default configuration.
    ///
    /// # Errors
    ///
    /// If no attempt can start. [`Connecting`] returns errors of the handshake.
    pub fn connect(&self, addr: SocketAddr, server_name: &str) -> Result<Connecting, ConnectError> {
        let config = self.default_client_config.clone();
        let config = config.ok_or(ConnectError::NoDefaultClientConfig)?;
        self.connect_with(config, addr, server_name)
    }

    /// Connects to a server that proves this name.
    ///
    /// # Errors
    ///
    /// If no attempt can start. [`Connecting`] returns errors of the handshake.
    pub fn connect_with(
        &self,
        config: ClientConfig,
        addr: SocketAddr,
        server_name: &str,
    ) -> Result<Connecting, ConnectError> {
        self.reach_loopback(addr.ip());
        let config = config.to_mpquic()?;
        let connecting = self.inner.connect_with(config, addr, server_name);
        Ok(Connecting::new(connecting.map_err(connect_error)?, addr))
    }

    /// Sockets of interfaces do not reach servers of the same machine: they get a socket of the
    /// loopback interface.
    fn reach_loopback(&self, server: IpAddr) {
        let local = match server {
            IpAddr::V4(_) => IpAddr::from(Ipv4Addr::LOCALHOST),
            IpAddr::V6(_) => IpAddr::from(Ipv6Addr::LOCALHOST),
        };
        let has_socket = || {
            self.inner
                .local_addrs()
                .iter()
                .any(|addr| addr.ip() == local)
        };
        if self.on_interfaces
            && server.is_loopback()
            && !has_socket()
            && let Err(error) = self.inner.add_local(SocketAddr::new(local, 0))
        {
            tracing::warn!(%error, "no socket for servers of this machine");
        }
    }

    /// Replaces the sockets by this one. Connections of clients move their paths to the new socket.
    ///
    /// # Errors
    ///
    /// If the socket cannot be used.
    pub fn rebind(&self, socket: UdpSocket) -> io::Result<()> {
        self.inner.rebind(socket)
    }

    /// Replaces the sockets by this one. Connections of clients move to the new socket.
    ///
    /// # Errors
    ///
    /// If the socket cannot be used.
    pub fn rebind_abstract(&self, socket: Arc<dyn AsyncUdpSocket>) -> io::Result<()> {
        let old = self.inner.local_addrs();
        let socket = Adapted::new(socket);
        let new = mp::DatagramSocket::local_addr(&socket)?;
        if old.contains(&new) {
            // The removal names sockets by their address.
            self.inner.remove_local(new);
        }
        self.inner.add_abstract_socket(Arc::new(socket))?;
        for addr in old.into_iter().filter(|addr| *addr != new) {
            self.inner.remove_local(addr);
        }
        Ok(())
    }

    /// Sets the configuration for clients from now on; `None` refuses clients. A configuration that
    /// cannot be used changes nothing, and leaves an error in the log.
    pub fn set_server_config(&self, server_config: Option<ServerConfig>) {
        let config = server_config.map(|config| config.to_mpquic()).transpose();
        let set = config.and_then(|config| self.inner.set_server_config(config));
        if let Err(error) = set {
            tracing::error!(%error, "the server configuration cannot be used");
        }
    }

    /// The address of the first socket.
    ///
    /// # Errors
    ///
    /// Without a socket, while no interface has an address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// The number of open connections.
    pub fn open_connections(&self) -> usize {
        self.inner.open_connections()
    }

    /// Closes all connections, and refuses clients.
    pub fn close(&self, error_code: VarInt, reason: &[u8]) {
        self.inner.close(error_code, reason);
    }

    /// Waits until all connections have ended and their peers know.
    pub async fn wait_idle(&self) {
        self.inner.wait_idle().await;
    }
}

/// The runtime in which the caller runs.
fn runtime() -> io::Result<Arc<dyn Runtime>> {
    default_runtime().ok_or_else(|| io::Error::other("no async runtime: call inside of tokio"))
}

/// A builder with both configurations.
fn prepare(
    config: EndpointConfig,
    server: Option<ServerConfig>,
    runtime: Arc<dyn Runtime>,
) -> io::Result<mp::EndpointBuilder> {
    let refused = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
    let mut builder = mp::Endpoint::builder()
        .endpoint_config(config.to_mpquic()?)
        .runtime(driver_of(runtime));
    if let Some(server) = server {
        builder = builder.server(server.to_mpquic().map_err(refused)?);
    }
    Ok(builder)
}
