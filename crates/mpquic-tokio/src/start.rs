//! Starts what needs a task: reading sockets, and connections of clients and servers.

use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use mpquic_core::{ConnectionError, FourTuple, Incoming};
use mpquic_paths::{Local, Managed, Start, address_pairs, second_choices, ways as known_ways};
use thiserror::Error;

use crate::automatic_paths::AutomaticPaths;
use crate::config::ClientConfig;
use crate::connection_ref::ConnectionRef;
use crate::connection_state::{ConnectionState, SharedEndpoint, message_of};
use crate::connection_task::ConnectionTask;
use crate::socket::Socket;
use crate::socket_task::read_socket;

/// Why a connection could not be started.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// [`Endpoint::close`](crate::Endpoint::close) was called.
    #[error("the endpoint is closed")]
    EndpointStopping,
    /// There is no client configuration.
    #[error("no client configuration: set a default one or use connect_with")]
    NoDefaultClientConfig,
    /// There is no address to connect to.
    #[error("no address to connect to")]
    NoAddress,
    /// No socket can reach the address.
    #[error("no local address is of the same family as {0}")]
    NoSocket(SocketAddr),
    /// The server name, the address or the version cannot be used to connect.
    #[error(transparent)]
    Invalid(#[from] mpquic_core::ConnectError),
}

/// Starts to read a socket, and lets connections use it.
pub(crate) fn read(endpoint: &Arc<SharedEndpoint>, socket: Arc<Socket>) {
    endpoint
        .runtime
        .spawn(Box::pin(read_socket(endpoint.clone(), socket.clone())));
    endpoint.sockets.insert(socket);
}

/// Binds a socket and starts to read it.
pub(crate) fn bind(
    endpoint: &Arc<SharedEndpoint>,
    local: SocketAddr,
    interface: Option<&str>,
) -> io::Result<SocketAddr> {
    let socket = Arc::new(endpoint.sockets.bind(local, interface)?);
    let local = socket.local();
    read(endpoint, socket);
    Ok(local)
}

/// The local addresses from which a connection may start.
fn starting_places(endpoint: &SharedEndpoint, config: &ClientConfig) -> Vec<Local> {
    let places = endpoint.sockets.places();
    let may_start =
        |place: &&Local| !config.automatic_paths || config.path_manager.may_start(place);
    places.iter().filter(may_start).cloned().collect()
}

/// The pairs of local address and server address to try, the most promising first; a single pair if
/// the configuration wants no more. Where an interface has several addresses, those that do not
/// come first for a server are tried last, unless something came back to them before.
pub(crate) fn ways(
    endpoint: &SharedEndpoint,
    config: &ClientConfig,
    remotes: &[SocketAddr],
) -> Vec<FourTuple> {
    let places = starting_places(endpoint, config);
    let mut ways = address_pairs(&places, remotes);
    // The preferred address comes first, even where a socket of the other IP version was bound
    // before.
    let is_preferred = |way: &FourTuple| Some(&way.remote) == remotes.first();
    if let Some(first) = ways.iter().position(is_preferred) {
        ways[..=first].rotate_right(1);
    }
    if config.automatic_paths {
        let mut spare = second_choices(&places, remotes);
        if let Some(knowledge) = &config.core.transport.knowledge {
            let is_heard = |way: &FourTuple| known_ways::has_answered(knowledge, *way);
            let (heard, silent): (Vec<_>, _) = spare.into_iter().partition(is_heard);
            spare = silent;
            ways.extend(heard);
            known_ways::sort(knowledge, &mut ways);
        }
        ways.extend(spare);
        ways.sort_by_key(|way| endpoint.sockets.is_backup(way.local));
    } else {
        ways.truncate(1);
    }
    ways
}

/// Further pairs of addresses from which the first flight of a connection leaves: those of all
/// interfaces from which a path to the same address of the server would open, without backups.
pub(crate) fn further_starts(
    endpoint: &SharedEndpoint,
    config: &ClientConfig,
    first: FourTuple,
) -> Vec<FourTuple> {
    if !config.automatic_paths || endpoint.sockets.is_backup(first.local) {
        return Vec::new();
    }
    let mut places = starting_places(endpoint, config);
    places.retain(|place| !place.is_backup());
    let mut pairs = address_pairs(&places, &[first.remote]);
    pairs.retain(|pair| *pair != first);
    pairs
}

/// Starts a connection as a client between these addresses.
pub(crate) fn connect(
    endpoint: &Arc<SharedEndpoint>,
    config: ClientConfig,
    four_tuple: FourTuple,
    server_name: &str,
) -> Result<ConnectionRef, ConnectError> {
    endpoint.sockets.watch_errors();
    endpoint.lock().icmp_listeners.add_all();
    let now = endpoint.now();
    let paths = config.automatic_paths.then(|| {
        let start = Start::new(four_tuple, endpoint.sockets.places())
            .remotes(&config.server_addresses)
            .possible(&config.possible_addresses);
        let managed = Managed::new(&*config.path_manager, &start);
        AutomaticPaths::new(managed, config.core.transport.knowledge.clone(), now)
    });
    let transport = config.core.transport.clone();
    let mut registry = endpoint.lock();
    if registry.closed().is_some() {
        return Err(ConnectError::EndpointStopping);
    }
    let core = &mut registry.core;
    let (handle, core) = core.connect(now, config.core, four_tuple, server_name)?;
    let connection = ConnectionState::new(handle, core, endpoint.clone(), &transport, paths);
    let connection = Arc::new(connection);
    registry.insert(handle, connection.clone());
    drop(registry);
    connection.lock().begin(now);
    Ok(start_task(connection))
}

/// Accepts a connection attempt. The endpoint is not locked while the connection starts, because
/// TLS computes its first flight then.
pub(crate) fn accept(
    endpoint: &Arc<SharedEndpoint>,
    incoming: Incoming,
) -> Result<ConnectionRef, ConnectionError> {
    let transport = incoming.server_config().transport.clone();
    let mut response = Vec::new();
    let mut registry = endpoint.lock();
    let core = &mut registry.core;
    let accepting = match core.begin_accept(endpoint.now(), incoming, &mut response) {
        Ok(accepting) => accepting,
        Err(error) => {
            drop(registry);
            if let Some(transmit) = error.response {
                endpoint.respond(&transmit, &response);
            }
            return Err(error.cause);
        }
    };
    registry.begin_start();
    drop(registry);
    let starting = Starting(endpoint);
    let handle = accepting.handle();
    let started = catch_unwind(AssertUnwindSafe(|| accepting.start()));
    let (core, accepted) = started.map_err(|panic| {
        let message = message_of(&*panic);
        tracing::error!(connection = handle.0, message, "panicked, not accepted");
        endpoint.lock().on_panicked_start();
        ConnectionError::Panicked
    })?;
    let connection = ConnectionState::new(handle, core, endpoint.clone(), &transport, None);
    let connection = Arc::new(connection);
    // Locked before the endpoint knows the connection: later datagrams wait until earlier ones are
    // handled.
    let mut engine = connection.lock();
    let now = endpoint.now();
    let mut registry = endpoint.lock();
    let late = registry.core.finish_accept(now, accepted);
    registry.insert(handle, connection.clone());
    let closed = registry.closed().cloned();
    let announces = !registry.announced.is_empty();
    drop(registry);
    drop(starting);
    if announces {
        engine.announce_addresses();
    }
    engine.contain(|engine| {
        for datagram in late {
            engine.core.handle_datagram(datagram);
        }
    });
    if closed.is_none() {
        engine.run(now);
    }
    drop(engine);
    let started = start_task(connection);
    if let Some((error_code, reason)) = closed {
        started.close(error_code, reason);
    }
    Ok(started)
}

/// Spawns the task of a connection that its endpoint knows.
fn start_task(connection: Arc<ConnectionState>) -> ConnectionRef {
    let task = ConnectionTask::new(connection.clone());
    connection.endpoint.runtime.spawn(Box::pin(task.run()));
    ConnectionRef::new(connection)
}

/// While it exists, the endpoint does not count as idle, even after a panic.
struct Starting<'a>(&'a SharedEndpoint);

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        self.0.lock().end_start();
    }
}

#[cfg(test)]
mod tests {
    use mpquic_core::ConnectionHandle;

    use super::*;
    use crate::config::ServerConfig;
    use crate::runtime::TokioRuntime;
    use crate::sending::Sending;

    type TestResult = Result<(), Box<dyn std::error::Error>>;

    fn endpoint(server: Option<ServerConfig>) -> std::io::Result<Arc<SharedEndpoint>> {
        let config = mpquic_core::config::EndpointConfig::new([1; 32]);
        let server = server.map(|server| server.checked().expect("defaults"));
        let core = mpquic_core::Endpoint::new(Arc::new(config), server, [2; 32]);
        let endpoint = Arc::new(SharedEndpoint::new(
            core,
            None,
            1 << 20,
            Arc::new(TokioRuntime),
        ));
        bind(&endpoint, SocketAddr::from(([127, 0, 0, 1], 0)), None)?;
        Ok(endpoint)
    }

    /// The kernel's choice on the loopback interface is 127.0.0.1.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn other_addresses_of_an_interface_are_tried_last() -> TestResult {
        let endpoint = endpoint(None)?;
        endpoint.sockets.remove(|_| true);
        for last in [2, 1] {
            bind(
                &endpoint,
                SocketAddr::from(([127, 0, 0, last], 0)),
                Some("lo"),
            )?;
        }
        let remotes = [4, 5].map(|last| SocketAddr::from(([127, 0, 0, last], 443)));
        let config = ClientConfig::dangerous_insecure(&[b"test"])?;
        let starts = || {
            let ways = ways(&endpoint, &config, &remotes).into_iter();
            let last = |address: SocketAddr| match address {
                SocketAddr::V4(v4) => v4.ip().octets()[3],
                SocketAddr::V6(_) => 0,
            };
            let starts = ways.map(|way| (last(way.local), last(way.remote)));
            starts.collect::<Vec<_>>()
        };
        assert_eq!(starts(), [(1, 4), (1, 5), (2, 4), (2, 5)]);
        // What is known counts more.
        let known = config.core.transport.knowledge.clone();
        let known = known.ok_or("no knowledge")?;
        let way = |local| FourTuple::new(SocketAddr::from(([127, 0, 0, local], 0)), remotes[0]);
        known.save_round_trip(way(1), std::time::Duration::MAX);
        known.save_round_trip(way(2), std::time::Duration::ZERO);
        assert_eq!(starts(), [(1, 5), (2, 4), (1, 4), (2, 5)]);
        Ok(())
    }

    /// The application may have closed an interface.
    #[tokio::test]
    async fn no_handshake_starts_at_an_address_that_the_path_manager_forbids() -> TestResult {
        let endpoint = endpoint(None)?;
        bind(&endpoint, SocketAddr::from(([127, 0, 0, 2], 0)), None)?;
        let remotes = [SocketAddr::from(([127, 0, 0, 4], 443))];
        let steering = mpquic_paths::Steering::default();
        let config = ClientConfig::dangerous_insecure(&[b"test"])?;
        let config = config.path_manager(steering.factory(mpquic_paths::default()));
        let starts = || {
            let ways = ways(&endpoint, &config, &remotes).into_iter();
            ways.map(|way| way.local.ip().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(starts(), ["127.0.0.1", "127.0.0.2"]);
        let mut rules = mpquic_paths::Rules::default();
        let closed = mpquic_paths::Origin::Address([127, 0, 0, 1].into());
        rules.closed.push(closed);
        steering.set(rules);
        assert_eq!(starts(), ["127.0.0.2"]);
        Ok(())
    }

    /// A client gets the configuration that was in force when it came.
    #[tokio::test]
    async fn an_attempt_keeps_the_configuration_it_came_under() -> TestResult {
        let (config, _) = ServerConfig::self_signed(&["localhost"], &[b"test"])?;
        let expected = Sending::new(&config.core.transport).max_datagrams;
        let server = endpoint(Some(config))?;
        let client = endpoint(None)?;
        let address = |endpoint: &SharedEndpoint| endpoint.sockets.addresses().pop();
        let local = address(&client).ok_or("no socket")?;
        let remote = address(&server).ok_or("no socket")?;
        let config = ClientConfig::dangerous_insecure(&[b"test"])?;
        let four_tuple = FourTuple::new(local, remote);
        let _connecting = connect(&client, config, four_tuple, "localhost")?;
        server.attempts.notified().await;
        let incoming = server.lock().next_attempt().ok_or("no attempt")?;
        server.lock().core.set_server_config(None);
        let _accepted = accept(&server, incoming)?;
        let registry = server.lock();
        let connection = registry.connection(ConnectionHandle(0));
        let connection = connection.ok_or("no connection")?.clone();
        drop(registry);
        assert_eq!(connection.lock().sending.max_datagrams, expected);
        Ok(())
    }
}
