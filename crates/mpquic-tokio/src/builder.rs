//! [`EndpointBuilder`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use mpquic_core::Version;
use mpquic_core::config::{ConnectionIds, EndpointConfig, EndpointOptions, InvalidOption};

#[cfg(feature = "interfaces")]
use crate::awaited_addresses::Awaited;
use crate::backups::Backups;
use crate::config::{ClientConfig, ServerConfig, random};
use crate::connection_state::SharedEndpoint;
use crate::datagram_socket::DatagramSocket;
use crate::endpoint::Endpoint;
#[cfg(feature = "interfaces")]
use crate::interface::{self, Selection};
use crate::runtime::{Runtime, TokioRuntime};
use crate::socket::Socket;
use crate::start;
use crate::traffic::TrafficMeter;

/// Size of the kernel buffer requested for each socket, in bytes, per direction.
const SOCKET_BUFFER: usize = 8 << 20;

/// Builds an [`Endpoint`] from local addresses, interfaces, and the roles it plays.
///
/// Without a local address, interface or socket, one socket is bound to an address that the system
/// chooses.
#[derive(Debug)]
#[must_use = "call build"]
pub struct EndpointBuilder {
    addresses: Vec<SocketAddr>,
    bound: Vec<UdpSocket>,
    abstracts: Vec<Arc<dyn DatagramSocket>>,
    #[cfg(feature = "interfaces")]
    interfaces: Option<Selection>,
    #[cfg(feature = "interfaces")]
    excluded: Vec<String>,
    #[cfg(feature = "interfaces")]
    awaited: Vec<Awaited>,
    backups: Backups,
    meter: Option<TrafficMeter>,
    server: Option<ServerConfig>,
    client: Option<ClientConfig>,
    endpoint: Option<EndpointConfig>,
    connection_ids: Option<ConnectionIds>,
    versions: Option<Vec<Version>>,
    memory_limit: Option<u64>,
    socket_buffer: usize,
    receivers: usize,
    /// `None` stands for [`TokioRuntime`].
    runtime: Option<Arc<dyn Runtime>>,
}

impl Endpoint {
    /// An endpoint with several local addresses, interfaces, or both roles.
    pub fn builder() -> EndpointBuilder {
        EndpointBuilder::new()
    }

    /// A client with one socket. Use [`Self::builder`] for several local addresses.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// Errors of binding a socket.
    pub fn client(addr: SocketAddr) -> io::Result<Self> {
        Self::builder().bind(addr).build()
    }

    /// A server listening on one address. Use [`Self::builder`] for several.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// Errors of binding a socket.
    pub fn server(config: ServerConfig, addr: SocketAddr) -> io::Result<Self> {
        Self::builder().bind(addr).server(config).build()
    }
}

impl EndpointBuilder {
    fn new() -> Self {
        Self {
            addresses: Vec::new(),
            bound: Vec::new(),
            abstracts: Vec::new(),
            #[cfg(feature = "interfaces")]
            interfaces: None,
            #[cfg(feature = "interfaces")]
            excluded: Vec::new(),
            #[cfg(feature = "interfaces")]
            awaited: Vec::new(),
            backups: Backups::default(),
            meter: None,
            server: None,
            client: None,
            endpoint: None,
            connection_ids: None,
            versions: None,
            memory_limit: None,
            socket_buffer: SOCKET_BUFFER,
            receivers: 1,
            runtime: None,
        }
    }

    /// Adds a local address; call it again for more. Port 0 lets the system choose a free port.
    /// `[::]` includes all IPv4 addresses, unless one of IPv4 is added with the same port.
    pub fn bind(mut self, address: SocketAddr) -> Self {
        self.addresses.push(address);
        self
    }

    /// Adds a socket that the application has bound, for example one from a service manager or with
    /// special options; call it again for more. The socket becomes non-blocking.
    pub fn socket(mut self, socket: UdpSocket) -> Self {
        self.bound.push(socket);
        self
    }

    /// Adds an object that carries datagrams in place of a socket; call it again for more.
    pub fn abstract_socket(mut self, socket: Arc<dyn DatagramSocket>) -> Self {
        self.abstracts.push(socket);
        self
    }

    /// Adds a local address with any free port, on this machine now or later; call it again for
    /// more. Paths start from the address once it is there. A link-local address (`fe80::/10`) is
    /// that of the interface named `link`, or of any interface.
    #[cfg(feature = "interfaces")]
    pub fn bind_awaited(mut self, ip: IpAddr, link: Option<&str>) -> Self {
        let link = link.map(str::to_owned);
        self.awaited.push(Awaited { ip, link });
        self
    }

    /// Adds a network interface, or all with names that fit a pattern such as `wwan*`
    /// ([`fits_interface`](crate::path_managers::fits_interface)); call it again for more. Paths
    /// start from its [`usable_addresses`](crate::usable_addresses), one path for each address of a
    /// server, and follow changes of the interface's addresses. An interface that does not exist
    /// yet, or has no address, is used once it has an address.
    #[cfg(feature = "interfaces")]
    pub fn bind_interface(mut self, name: &str) -> Self {
        let mut names = match self.interfaces {
            Some(Selection::Named(names)) => names,
            Some(Selection::AllBut(_)) | None => Vec::new(),
        };
        names.push(name.to_owned());
        self.interfaces = Some(Selection::Named(names));
        self
    }

    /// Uses every network interface that is up and leads beyond this machine, and follows
    /// interfaces as they appear and disappear. Tunnels (which lead over another interface),
    /// bridges to containers and virtual machines, and a router's bridge to its own network are
    /// left out; [`Self::bind_interface`] adds them. A machine whose interfaces are all down gets
    /// its first socket once an interface has an address ([`Endpoint::local_addrs`]).
    #[cfg(feature = "interfaces")]
    pub fn all_interfaces(mut self) -> Self {
        self.interfaces = Some(Selection::AllBut(Vec::new()));
        self
    }

    /// Leaves an interface, or all that fit a pattern, out of [`Self::all_interfaces`]; call it
    /// again for more.
    #[cfg(feature = "interfaces")]
    pub fn exclude_interface(mut self, name: &str) -> Self {
        self.excluded.push(name.to_owned());
        self
    }

    /// Makes paths from this interface, or from all that fit a pattern, backups: they open like
    /// other paths, but carry data only while no other path works
    /// ([`PathStatus::Backup`](crate::PathStatus::Backup)). The handshake uses other interfaces if
    /// it can. Call it again for more.
    pub fn backup_interface(mut self, name: &str) -> Self {
        self.backups.interfaces.push(name.to_owned());
        self
    }

    /// Like [`Self::backup_interface`], for paths from this address.
    pub fn backup_address(mut self, address: IpAddr) -> Self {
        self.backups.addresses.push(address);
        self
    }

    /// Counts the bytes that the endpoint's sockets send and receive.
    pub fn traffic_meter(mut self, meter: &TrafficMeter) -> Self {
        self.meter = Some(meter.clone());
        self
    }

    /// Accepts connections.
    pub fn server(mut self, config: ServerConfig) -> Self {
        self.server = Some(config);
        self
    }

    /// The configuration [`Endpoint::connect`] uses.
    pub fn client(mut self, config: ClientConfig) -> Self {
        self.client = Some(config);
        self
    }

    /// Connection ID length, stateless reset key and the like.
    pub fn endpoint_config(mut self, config: EndpointConfig) -> Self {
        self.endpoint = Some(config);
        self
    }

    /// The generator of connection IDs, for example for a load balancer that reads them; 8 random
    /// bytes by default. See [`EndpointOptions::connection_ids`].
    pub fn connection_ids(mut self, connection_ids: ConnectionIds) -> Self {
        self.connection_ids = Some(connection_ids);
        self
    }

    /// The versions of QUIC to speak, the preferred one first; version 1, then version 2, by
    /// default. See [`EndpointOptions::supported_versions`].
    pub fn supported_versions(mut self, versions: Vec<Version>) -> Self {
        self.versions = Some(versions);
        self
    }

    /// Memory that all connections and socket buffers may keep together, in bytes; 4 GiB by
    /// default. See [`EndpointOptions::memory_limit`]; [`EndpointStats::memory`] has the current
    /// value.
    ///
    /// [`EndpointStats::memory`]: crate::EndpointStats::memory
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Size of the kernel buffer to request for each socket (sockets of [`Self::socket`] included),
    /// in bytes, for each direction; 8 MiB by default. The kernel may grant less.
    pub fn socket_buffer(mut self, bytes: usize) -> Self {
        self.socket_buffer = bytes;
        self
    }

    /// Number of sockets for each address of [`Self::bind`], at least 1, 1 by default. Each socket
    /// has a task that runs the connections of its datagrams, and the kernel spreads clients over
    /// the sockets. Use more on servers with more clients than one processor can serve. More than 1
    /// needs `SO_REUSEPORT`.
    pub fn receivers(mut self, count: usize) -> Self {
        self.receivers = count;
        self
    }

    /// Runs the endpoint on another runtime; its methods then need no tokio runtime. See
    /// [`Runtime`] for an example.
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Binds the sockets and starts to read them. Must be called within a tokio runtime, unless
    /// another one is set ([`Self::runtime`]).
    ///
    /// # Errors
    ///
    /// If a socket cannot be bound, if the system does not list its interfaces, if an option has an
    /// invalid value ([`InvalidInput`](io::ErrorKind::InvalidInput), with an [`InvalidOption`]
    /// inside), or if the system provides no randomness.
    pub fn build(mut self) -> io::Result<Endpoint> {
        let config = self.endpoint_options()?.build().map_err(refused)?;
        if let Some(server) = &self.server {
            server.check_before_binding().map_err(refused)?;
        }
        #[cfg(feature = "interfaces")]
        if let Some(Selection::AllBut(excluded)) = &mut self.interfaces {
            excluded.append(&mut self.excluded);
        }
        let tokio = || Arc::new(TokioRuntime) as Arc<dyn Runtime>;
        let runtime = self.runtime.take().unwrap_or_else(tokio);
        let mut sockets = Vec::new();
        for address in &self.addresses {
            self.bind_receivers(&*runtime, *address, &mut sockets)?;
        }
        for socket in self.bound.drain(..) {
            sockets.push(Socket::adopt(&*runtime, socket, self.socket_buffer)?);
        }
        for socket in self.abstracts.drain(..) {
            sockets.push(Socket::of(socket)?);
        }
        #[cfg(feature = "interfaces")]
        self.bind_interfaces(&*runtime, &mut sockets)?;
        #[cfg(feature = "interfaces")]
        let waits = self.interfaces.is_some() || !self.awaited.is_empty();
        #[cfg(not(feature = "interfaces"))]
        let waits = false;
        if sockets.is_empty() && !waits {
            sockets.push(bind_any(&*runtime, self.socket_buffer)?);
        }
        self.bind_preferred(&*runtime, &mut sockets)?;
        let state = state(
            config,
            self.server.as_ref(),
            self.client,
            self.socket_buffer,
            runtime,
        )?;
        state.sockets.set_backups(self.backups);
        if let Some(meter) = self.meter {
            state.sockets.set_meter(meter);
        }
        read(&state, sockets);
        // After the sockets are there; earlier, it would find interfaces without sockets and bind
        // again.
        #[cfg(feature = "interfaces")]
        if waits {
            let watch = interface::watch(state.clone(), self.interfaces, self.awaited);
            state.runtime.spawn(Box::pin(watch));
        }
        Ok(Endpoint::new(state))
    }
}

/// An endpoint without sockets.
pub(crate) fn state(
    config: EndpointConfig,
    server: Option<&ServerConfig>,
    client: Option<ClientConfig>,
    socket_buffer: usize,
    runtime: Arc<dyn Runtime>,
) -> io::Result<Arc<SharedEndpoint>> {
    let server = server.map(ServerConfig::checked);
    let server = server.transpose().map_err(refused)?;
    let seed = random().map_err(io::Error::other)?;
    let core = mpquic_core::Endpoint::new(Arc::new(config), server, seed);
    let state = SharedEndpoint::new(core, client, socket_buffer, runtime);
    Ok(Arc::new(state))
}

/// Starts to read an endpoint's sockets.
pub(crate) fn read(endpoint: &Arc<SharedEndpoint>, sockets: Vec<Socket>) {
    for socket in sockets {
        start::read(endpoint, Arc::new(socket));
    }
}

/// The parts that workers share.
pub(crate) struct Common {
    pub(crate) server: ServerConfig,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) options: EndpointOptions,
    pub(crate) socket_buffer: usize,
}

impl EndpointBuilder {
    /// The parts for workers. Fails if workers lack an option that they need, or cannot have a
    /// given one.
    pub(crate) fn into_common(mut self) -> io::Result<Common> {
        let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        let options = self.endpoint_options()?;
        #[cfg(feature = "interfaces")]
        let interfaces = self.interfaces.is_some() || !self.awaited.is_empty();
        #[cfg(not(feature = "interfaces"))]
        let interfaces = false;
        if interfaces || !self.bound.is_empty() || !self.abstracts.is_empty() {
            return invalid("workers bind their sockets themselves: give them addresses");
        }
        if self.client.is_some() || self.backups.any() {
            return invalid("workers are servers: build another endpoint for clients");
        }
        if self.meter.is_some() {
            return invalid("workers have no traffic meter");
        }
        if self.runtime.is_some() {
            return invalid("workers run on tokio: give them no runtime");
        }
        if self.receivers != 1 {
            return invalid("receivers are for one endpoint: each worker has one");
        }
        if self.addresses.is_empty() {
            return invalid("workers need an address: call bind");
        }
        let Some(server) = self.server else {
            return invalid("workers are servers: call server");
        };
        server.check_before_binding().map_err(refused)?;
        if server.core.preferred_address_v4.is_some() || server.core.preferred_address_v6.is_some()
        {
            return invalid("workers have no preferred address");
        }
        Ok(Common {
            server,
            addresses: self.addresses,
            options,
            socket_buffer: self.socket_buffer,
        })
    }

    /// Options of the core's endpoint, which [`Self::build`] checks.
    fn endpoint_options(&mut self) -> io::Result<EndpointOptions> {
        if self.receivers == 0 {
            return Err(refused(InvalidOption::new("receivers", 0, "at least 1")));
        }
        let mut options = match &self.endpoint {
            Some(config) => config.options().clone(),
            None => EndpointOptions::new(random().map_err(io::Error::other)?),
        };
        if let Some(connection_ids) = self.connection_ids.take() {
            options.connection_ids = connection_ids;
        }
        if let Some(versions) = self.versions.take() {
            options.supported_versions = versions;
        }
        if let Some(bytes) = self.memory_limit {
            options.memory_limit = bytes;
        }
        Ok(options)
    }

    /// Binds the addresses that the selected interfaces have now.
    #[cfg(feature = "interfaces")]
    fn bind_interfaces(&self, runtime: &dyn Runtime, sockets: &mut Vec<Socket>) -> io::Result<()> {
        if !self.awaited.is_empty() {
            let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
            let places = self.awaited.iter().filter_map(|one| one.place(&interfaces));
            // Those that are not there are tried again.
            let bind = |place| Socket::bind(runtime, place, None, self.socket_buffer).ok();
            sockets.extend(places.filter_map(bind));
        }
        let Some(selection) = &self.interfaces else {
            return Ok(());
        };
        for address in interface::usable(selection)? {
            let local = SocketAddr::new(address.ip, 0);
            let name = Some(address.name.as_str());
            match Socket::bind(runtime, local, name, self.socket_buffer) {
                Ok(socket) => sockets.push(socket),
                // The address may have just gone, or belong to another machine. The task that
                // follows interfaces tries again.
                Err(error) => tracing::debug!(%error, %local, "an address of an interface"),
            }
        }
        Ok(())
    }

    /// Binds the server's preferred addresses, unless a socket is bound to them already.
    fn bind_preferred(
        &mut self,
        runtime: &dyn Runtime,
        sockets: &mut Vec<Socket>,
    ) -> io::Result<()> {
        let Some(core) = self.server.as_ref().map(|server| &server.core) else {
            return Ok(());
        };
        let v4 = core.preferred_address_v4.map(SocketAddr::V4);
        let v6 = core.preferred_address_v6.map(SocketAddr::V6);
        for address in v4.into_iter().chain(v6) {
            if sockets.iter().any(|socket| socket.owns(address)) {
                continue;
            }
            self.bind_receivers(runtime, address, sockets)?;
            let bound = sockets.last().map(Socket::local);
            let core = self.server.as_mut().map(|server| &mut server.core);
            match (bound, core) {
                (Some(SocketAddr::V4(v4)), Some(core)) => core.preferred_address_v4 = Some(v4),
                (Some(SocketAddr::V6(v6)), Some(core)) => core.preferred_address_v6 = Some(v6),
                (None, _) | (_, None) => {}
            }
        }
        Ok(())
    }

    /// Binds the sockets of one address.
    fn bind_receivers(
        &self,
        runtime: &dyn Runtime,
        address: SocketAddr,
        sockets: &mut Vec<Socket>,
    ) -> io::Result<()> {
        let mut address = address;
        let options = (self.socket_buffer, self.receivers > 1);
        for _ in 0..self.receivers {
            let socket = Socket::bind_beside(runtime, address, &self.addresses, options)?;
            // The other sockets share the first one's port.
            address = socket.local();
            sockets.push(socket);
        }
        Ok(())
    }
}

/// The error for an option with an invalid value.
pub(crate) fn refused(error: InvalidOption) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

/// One socket for both IP versions, or for IPv4 where there is no IPv6.
fn bind_any(runtime: &dyn Runtime, buffer: usize) -> io::Result<Socket> {
    let v6 = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);
    let v4 = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    Socket::bind(runtime, v6, None, buffer).or_else(|_| Socket::bind(runtime, v4, None, buffer))
}

#[cfg(test)]
mod tests {
    #[cfg(all(feature = "interfaces", target_os = "linux"))]
    use std::task::{Context, Waker};

    use super::*;
    #[cfg(all(feature = "interfaces", target_os = "linux"))]
    use crate::testing::Hooked;
    use crate::testing::{ALPN, Error, TestResult};

    fn server() -> Result<EndpointBuilder, Error> {
        let (config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
        Ok(Endpoint::builder().server(config))
    }

    #[tokio::test]
    async fn each_receiver_has_a_socket_with_the_same_port() -> TestResult {
        for count in [1, 2, 3] {
            let builder = server()?.bind("127.0.0.1:0".parse()?).receivers(count);
            let endpoint = builder.build()?;
            let addresses = endpoint.state().sockets.addresses();
            assert_eq!(addresses, vec![endpoint.local_addr()?; count]);
        }
        Ok(())
    }

    #[tokio::test]
    async fn preferred_address_gets_a_socket_once() -> TestResult {
        let (config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let SocketAddr::V4(there) = socket.local_addr()? else {
            return Err("not IPv4".into());
        };
        let builder = Endpoint::builder().socket(socket);
        let builder = builder.server(config.clone().preferred_address_v4(Some(there)));
        assert_eq!(builder.build()?.state().sockets.addresses().len(), 1);
        let open = Some("127.0.0.1:0".parse()?);
        let builder = Endpoint::builder().bind("127.0.0.1:0".parse()?);
        let builder = builder.server(config.preferred_address_v4(open));
        assert_eq!(builder.build()?.state().sockets.addresses().len(), 2);
        Ok(())
    }

    #[tokio::test]
    async fn the_system_chooses_the_port_of_a_client() -> TestResult {
        let endpoint = Endpoint::builder().build()?;
        assert!(endpoint.local_addr()?.port() > 1023);
        Ok(())
    }

    /// Sockets of backup addresses come last.
    #[tokio::test]
    async fn the_sockets_of_backup_addresses_stand_by() -> TestResult {
        let network = crate::MemoryNetwork::new(std::time::Duration::ZERO);
        let [backup, first] = ["10.0.0.2:1", "10.0.0.1:1"].map(|local| local.parse());
        let (backup, first): (SocketAddr, SocketAddr) = (backup?, first?);
        let endpoint = Endpoint::builder()
            .abstract_socket(network.bind(backup)?)
            .abstract_socket(network.bind(first)?)
            .backup_address(backup.ip())
            .build()?;
        let all = endpoint.state().sockets.all();
        let all: Vec<_> = all.iter().map(|it| (it.local(), it.is_backup())).collect();
        assert_eq!(all, [(first, false), (backup, true)]);
        Ok(())
    }

    /// Options are checked before an address is bound, which might take it from another program.
    #[tokio::test]
    async fn options_are_checked_before_anything_is_bound() -> TestResult {
        let (config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
        let config = config.preferred_address_v4(Some("0.0.0.0:443".parse()?));
        // An address of no machine.
        let builder = Endpoint::builder()
            .server(config)
            .bind("192.0.2.1:443".parse()?);
        let error = builder.build().err().ok_or("it was taken")?;
        let expected = "preferred_address_v4 is 0.0.0.0:443, but must be one address with a port";
        assert_eq!(error.to_string(), expected);
        Ok(())
    }

    #[cfg(feature = "interfaces")]
    #[tokio::test]
    async fn all_interfaces_waits_for_an_address() -> TestResult {
        let mut builder = Endpoint::builder().all_interfaces();
        for address in crate::interface_addresses()? {
            builder = builder.exclude_interface(&address.name);
        }
        let endpoint = builder.build()?;
        assert!(endpoint.local_addrs().is_empty());
        Ok(())
    }

    #[cfg(all(feature = "interfaces", target_os = "linux"))]
    #[tokio::test]
    async fn the_system_chooses_the_port_of_an_interface() -> TestResult {
        let builder = Endpoint::builder().bind_interface("lo");
        let endpoint = builder.backup_interface("lo").build()?;
        let all = endpoint.state().sockets.all();
        assert!(all.iter().all(|socket| socket.is_backup()), "{all:?}");
        let addresses = endpoint.local_addrs();
        assert!(addresses.contains(&endpoint.local_addr()?));
        for address in addresses {
            assert!(
                address.ip().is_loopback() && address.port() > 1023,
                "{address}"
            );
        }
        let builder = Endpoint::builder().bind_interface("lo");
        let other = builder.backup_interface("other").build()?;
        let all = other.state().sockets.all();
        assert!(!all.iter().any(|socket| socket.is_backup()), "{all:?}");
        Ok(())
    }

    /// The interface may be plugged in later.
    #[cfg(feature = "interfaces")]
    #[tokio::test]
    async fn named_interface_may_be_absent() -> TestResult {
        let endpoint = Endpoint::builder().bind_interface("absent0").build()?;
        assert!(endpoint.local_addrs().is_empty());
        let bound = endpoint.add_local("127.0.0.1:0".parse()?)?;
        assert_eq!(endpoint.local_addrs(), [bound]);
        Ok(())
    }

    /// The task that follows interfaces may run before the rest of the builder.
    #[cfg(all(feature = "interfaces", target_os = "linux"))]
    #[tokio::test]
    async fn each_address_of_an_interface_has_one_socket() -> TestResult {
        // A spawned task runs at once, as it may with several threads.
        let runtime = Hooked {
            on_task: |mut task| {
                let mut cx = Context::from_waker(Waker::noop());
                task.as_mut().poll(&mut cx).is_pending().then_some(task)
            },
            ..Hooked::default()
        };
        let builder = Endpoint::builder().runtime(Arc::new(runtime));
        let endpoint = builder.bind_interface("lo").build()?;
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        let mut ips: Vec<_> = endpoint.local_addrs().iter().map(SocketAddr::ip).collect();
        ips.sort();
        let all = ips.len();
        ips.dedup();
        assert_eq!(ips.len(), all, "{:?}", endpoint.local_addrs());
        Ok(())
    }
}
