//! [`Pair`]: a server and a client on a [`Network`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use mpquic_core::TimeSource;
use mpquic_core::config::EndpointConfig;
use mpquic_sim::null_crypto::NullCrypto;
use tokio::time::Instant;

use super::network::{Network, Port};
use crate::config::{ClientConfig, ServerConfig};
use crate::connection_state::{ConnectionState, SharedEndpoint};
use crate::endpoint::Endpoint;
use crate::runtime::TokioRuntime;
use crate::socket::Socket;
use crate::{Connection, TransportOptions, local_addresses, start};

pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type TestResult = Result<(), Error>;

pub(crate) const ALPN: &[&[u8]] = &[b"test"];

/// A clock that always shows the same time of day.
#[derive(Debug)]
struct Noon;

impl TimeSource for Noon {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }
}

/// An endpoint, and the state that the endpoint shares with its tasks.
pub(crate) struct Host {
    pub(crate) endpoint: Endpoint,
    pub(crate) state: Arc<SharedEndpoint>,
    network: Network,
}

impl Host {
    /// An endpoint without sockets. Equal keys make equal tokens for stateless resets.
    pub(crate) fn new(
        network: &Network,
        server: Option<ServerConfig>,
        client: Option<ClientConfig>,
        key: u8,
    ) -> Result<Self, Error> {
        Self::with_config(network, server, client, EndpointConfig::new([key; 32]))
    }

    /// An endpoint without sockets.
    pub(crate) fn with_config(
        network: &Network,
        server: Option<ServerConfig>,
        client: Option<ClientConfig>,
        config: EndpointConfig,
    ) -> Result<Self, Error> {
        let server = server.map(|server| server.checked()).transpose()?;
        let seed = [if server.is_some() { 1 } else { 2 }; 32];
        let core = mpquic_core::Endpoint::new(Arc::new(config), server, seed);
        let state = Arc::new(SharedEndpoint::new(core, client, 0, Arc::new(TokioRuntime)));
        Ok(Self {
            endpoint: Endpoint::new(state.clone()),
            state,
            network: network.clone(),
        })
    }

    /// Binds a socket like [`Endpoint::add_local`].
    pub(crate) fn bind(&self, local: &str) -> Result<Arc<Port>, Error> {
        let port = self.network.bind(local.parse()?);
        start::read(&self.state, Arc::new(Socket::simulated(&port)));
        local_addresses::follow(&self.state);
        Ok(port)
    }

    /// Replaces a socket by a socket with another address.
    pub(crate) fn replace(&self, old: SocketAddr, new: &str) -> Result<Arc<Port>, Error> {
        let port = self.network.bind(new.parse()?);
        let socket = Arc::new(Socket::simulated(&port));
        let removed = self.state.sockets.remove(|socket| socket.local() == old);
        start::read(&self.state, socket.clone());
        local_addresses::move_paths(&self.state, &removed, &socket);
        Ok(port)
    }

    /// The state of the first connection that has not ended.
    pub(crate) fn connection(&self) -> Result<Arc<ConnectionState>, Error> {
        let connections = self.state.lock().connections();
        Ok(connections.into_iter().next().ok_or("no connection")?)
    }
}

/// A server and a client, and their sockets.
pub(crate) struct Pair {
    pub(crate) network: Network,
    pub(crate) server: Host,
    pub(crate) client: Host,
    /// The sockets of server and client.
    pub(crate) at_server: Vec<Arc<Port>>,
    pub(crate) at_client: Vec<Arc<Port>>,
}

impl Pair {
    /// A pair with sockets on these addresses. The client knows all addresses of the server.
    pub(crate) fn new(
        server: (ServerConfig, &[&str]),
        client: (ClientConfig, &[&str]),
    ) -> Result<Self, Error> {
        Self::on(Network::default(), server, client)
    }

    fn on(
        network: Network,
        (server, at_server): (ServerConfig, &[&str]),
        (client, at_client): (ClientConfig, &[&str]),
    ) -> Result<Self, Error> {
        let addresses: Result<Vec<SocketAddr>, _> = at_server.iter().map(|a| a.parse()).collect();
        let client = client.server_addresses(addresses?);
        let server = Host::new(&network, Some(server), None, 1)?;
        let client = Host::new(&network, None, Some(client), 2)?;
        let bind = |host: &Host, addresses: &[&str]| -> Result<Vec<_>, Error> {
            addresses.iter().map(|address| host.bind(address)).collect()
        };
        Ok(Self {
            at_server: bind(&server, at_server)?,
            at_client: bind(&client, at_client)?,
            network,
            server,
            client,
        })
    }

    /// A pair with defaults: a server with one address, and a client with `paths` addresses.
    pub(crate) fn with_paths(paths: usize) -> Result<Self, Error> {
        let defaults = crate::default_transport;
        let configs = (server(defaults())?, client(defaults())?);
        Self::with_configs(Network::default(), configs, paths)
    }

    /// A pair with defaults, but without cryptography and with a fixed time of day, so that a run
    /// repeats the run before to the last bit.
    pub(crate) fn recorded(network: &Network, paths: usize) -> Result<Self, Error> {
        Self::with_configs(network.clone(), without_cryptography()?, paths)
    }

    /// A pair with defaults and sockets on these addresses.
    pub(crate) fn quick(at_server: &[&str], at_client: &[&str]) -> Result<Self, Error> {
        let (server, client) = without_cryptography()?;
        Self::new((server, at_server), (client, at_client))
    }

    fn with_configs(
        network: Network,
        (server, client): (ServerConfig, ClientConfig),
        paths: usize,
    ) -> Result<Self, Error> {
        let locals = ["10.0.1.1:1", "10.0.2.1:1", "10.0.3.1:1"];
        let locals = locals.get(..paths).ok_or("more addresses than there are")?;
        Self::on(network, (server, &["10.0.0.1:443"]), (client, locals))
    }

    /// Puts another server in place of the present server, on its first address.
    pub(crate) fn restart_server(
        &mut self,
        server: ServerConfig,
        config: EndpointConfig,
    ) -> TestResult {
        let address = self.at_server[0].local().to_string();
        self.server = Host::with_config(&self.network, Some(server), None, config)?;
        self.at_server = vec![self.server.bind(&address)?];
        Ok(())
    }

    pub(crate) async fn connect(&self) -> Result<(Connection, Connection), Error> {
        let to = self.server.endpoint.local_addr()?;
        let connecting = self.client.endpoint.connect(to, "localhost")?;
        let connect = async { Ok::<_, Error>(connecting.await?) };
        tokio::try_join!(connect, self.accept())
    }

    /// The server's next connection.
    pub(crate) async fn accept(&self) -> Result<Connection, Error> {
        let incoming = self.server.endpoint.accept().await.ok_or("closed")?;
        Ok(incoming.await?)
    }

    /// Connects and waits until `paths` paths carry data in both directions.
    pub(crate) async fn connect_over(
        &self,
        paths: usize,
    ) -> Result<(Connection, Connection), Error> {
        let (a, b) = self.connect().await?;
        for connection in [&a, &b] {
            connection.wait_for_paths(paths).await?;
        }
        Ok((a, b))
    }
}

/// Configurations that cost little, at a fixed time of day.
fn without_cryptography() -> Result<(ServerConfig, ClientConfig), Error> {
    let crypto = NullCrypto::new(ALPN[0]);
    let mut server = ServerConfig::new(crypto.clone())?;
    server.core.token_key = [3; 32];
    server.core.time_source = Arc::new(Noon);
    Ok((server, ClientConfig::new(crypto)))
}

/// A client that trusts every certificate.
pub(crate) fn client(transport: TransportOptions) -> Result<ClientConfig, Error> {
    Ok(ClientConfig::dangerous_insecure(ALPN)?.transport_config(transport.build()?))
}

pub(crate) fn server(transport: TransportOptions) -> Result<ServerConfig, Error> {
    let (config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
    Ok(config.transport_config(transport.build()?))
}

/// Bytes that differ at every position, cheap to make.
pub(crate) fn pattern(length: usize) -> Bytes {
    let numbers = (0_u32..).map(|number| number.wrapping_mul(0x9e37_79b9));
    numbers.flat_map(u32::to_le_bytes).take(length).collect()
}

/// Sends `length` bytes from `a` to `b` and checks the received bytes. Returns the time until the
/// last byte.
pub(crate) async fn transfer(
    a: &Connection,
    b: &Connection,
    length: usize,
) -> Result<Duration, Error> {
    let start = Instant::now();
    let data = pattern(length);
    let send = async {
        let mut stream = a.open_uni().await?;
        stream.write_all(&data).await?;
        stream.finish()?;
        Ok::<_, Error>(())
    };
    let receive = async {
        let mut stream = b.accept_uni().await?;
        Ok(stream.read_to_end(length).await?)
    };
    let ((), received) = tokio::try_join!(send, receive)?;
    assert!(received == data, "something else arrived");
    Ok(start.elapsed())
}
