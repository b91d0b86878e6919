//! Three servers behind the balancer of the example, on loopback: each connection has three paths from
//! three addresses, and none of their packets reaches another server.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use mpquic_lb::{Balancer, Config, Server, ServerId};
use mpquic_tokio::{
    ClientConfig, Connection, ConnectionError, Endpoint, EndpointOptions, ServerConfig,
};
use tokio::task::JoinSet;
use tokio::time::timeout;

#[path = "../examples/balancer/forward.rs"]
mod forward;

use forward::Forwarder;

type TestResult<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);
/// Of one message each way.
const SIZE: usize = 20_000;

struct Backend {
    id: ServerId,
    ids: Server,
    endpoint: Endpoint,
    address: SocketAddr,
}

impl Backend {
    fn start(accepting: &ServerConfig, id: ServerId, ids: Server) -> TestResult<Self> {
        // A server that starts again ends what its predecessor has left.
        let shared = EndpointOptions::new([6; 32]).build()?;
        let endpoint = Endpoint::builder()
            .endpoint_config(shared)
            .connection_ids(ids.connection_ids())
            .bind("127.0.0.1:0".parse()?)
            .server(accepting.clone())
            .build()?;
        let address = endpoint.local_addr()?;
        tokio::spawn(echo(endpoint.clone()));
        Ok(Self {
            id,
            ids,
            endpoint,
            address,
        })
    }
}

struct Fleet {
    /// What all servers share.
    accepting: ServerConfig,
    backends: Vec<Backend>,
    forwarder: Forwarder,
}

fn config(rotation: u8) -> TestResult<Config> {
    Ok(Config::new(rotation, 2, 6)?.with_key([rotation + 1; 16]))
}

/// Answers each stream with what came, to clients who have proven their address: the answer to a Retry
/// finds the server that sent it.
async fn echo(endpoint: Endpoint) {
    while let Some(incoming) = endpoint.accept().await {
        if !incoming.remote_address_validated() {
            incoming.retry().expect("it was not asked before");
            continue;
        }
        tokio::spawn(async move {
            let connection = incoming.await?;
            while let Ok((mut send, mut recv)) = connection.accept_bi().await {
                let message = recv.read_to_end(SIZE).await?;
                send.write_all(&message).await?;
                send.finish()?;
            }
            TestResult::Ok(())
        });
    }
}

impl Fleet {
    async fn new(servers: u8) -> TestResult<Self> {
        let (accepting, _) = ServerConfig::self_signed(&["localhost"], &[b"echo"])?;
        let accepting = accepting.token_key([5; 32]);
        let mut balancer = Balancer::new(1000);
        balancer.set_config(config(0)?);
        let mut backends = Vec::new();
        for number in 0..servers {
            let id = ServerId::new(&[7, number])?;
            let ids = Server::new(config(0)?, id, u64::from(number) << 20)?;
            let backend = Backend::start(&accepting, id, ids)?;
            balancer.add_server(0, id, backend.address)?;
            backends.push(backend);
        }
        let forwarder = Forwarder::bind("127.0.0.1:0".parse()?, balancer).await?;
        let running = forwarder.clone();
        tokio::spawn(async move { running.run().await });
        Ok(Self {
            accepting,
            backends,
            forwarder,
        })
    }

    /// So many clients at once, each with three paths.
    async fn connect(&self, count: usize) -> TestResult<Vec<(Endpoint, Connection)>> {
        let mut tasks = JoinSet::new();
        for _ in 0..count {
            tasks.spawn(connect(self.forwarder.local_addr()));
        }
        let mut connected = Vec::new();
        while let Some(done) = tasks.join_next().await {
            connected.push(done??);
        }
        Ok(connected)
    }

    fn open(&self) -> Vec<usize> {
        let open = |backend: &Backend| backend.endpoint.open_connections();
        self.backends.iter().map(open).collect()
    }

    /// No server was given a packet that is not its own.
    fn assert_none_misrouted(&self) {
        for backend in &self.backends {
            let stats = backend.endpoint.stats();
            assert_eq!(
                (stats.stateless_resets, stats.datagrams_dropped),
                (0, 0),
                "{:?}",
                backend.id
            );
        }
    }
}

/// A client with a path from each of three addresses, once all are in use.
async fn connect(address: SocketAddr) -> TestResult<(Endpoint, Connection)> {
    let mut builder = Endpoint::builder().client(ClientConfig::dangerous_insecure(&[b"echo"])?);
    for local in ["127.0.0.1:0", "127.0.0.2:0", "127.0.0.3:0"] {
        builder = builder.bind(local.parse()?);
    }
    let client = builder.build()?;
    let connection = client.connect(address, "localhost")?.await?;
    connection.wait_for_paths(3).await?;
    Ok((client, connection))
}

async fn exchange(connection: Connection, byte: u8) -> TestResult {
    let (mut send, mut recv) = connection.open_bi().await?;
    send.write_all(&vec![byte; SIZE]).await?;
    send.finish()?;
    let answer = recv.read_to_end(SIZE).await?;
    assert!(answer.len() == SIZE && answer.iter().all(|it| *it == byte));
    Ok(())
}

/// A message each way on all connections at once.
async fn exchange_all(connections: &[(Endpoint, Connection)]) -> TestResult {
    let mut tasks = JoinSet::new();
    for (number, (_, connection)) in connections.iter().enumerate() {
        tasks.spawn(exchange(connection.clone(), number as u8));
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> TestResult<T> {
    let waited = timeout(PATIENCE, future).await;
    waited.map_err(|_| format!("{what} took longer than {PATIENCE:?}").into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_connections_with_three_paths_reach_their_servers() -> TestResult {
    let fleet = Fleet::new(3).await?;
    let connections = within("connecting", fleet.connect(100)).await??;
    within("messages", exchange_all(&connections)).await??;
    // A client that waits begins from a second address, and closes what comes second.
    let open = fleet.open();
    assert!(
        open.iter().sum::<usize>() >= 100 && open.iter().all(|count| *count >= 10),
        "{open:?}"
    );
    fleet.assert_none_misrouted();
    let counts = fleet.forwarder.with_balancer(|balancer| balancer.counts());
    assert!(counts.chosen >= 100 && counts.dropped == 0, "{counts:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_changes_while_connections_last() -> TestResult {
    let fleet = Fleet::new(2).await?;
    let connections = within("connecting", fleet.connect(10)).await??;
    // First the balancer learns the new key, then the servers use it, then the old one goes.
    fleet.forwarder.with_balancer(|balancer| {
        balancer.set_config(config(1)?);
        for backend in &fleet.backends {
            balancer.add_server(1, backend.id, backend.address)?;
        }
        TestResult::Ok(())
    })?;
    for backend in &fleet.backends {
        backend.ids.change(config(1)?, backend.id)?;
        backend.endpoint.replace_connection_ids();
    }
    within("messages", exchange_all(&connections)).await??;
    // By now clients have what the servers issued; and after this, what they sent before has arrived.
    within("messages", exchange_all(&connections)).await??;
    fleet
        .forwarder
        .with_balancer(|balancer| balancer.remove_config(0));
    let before = fleet.forwarder.with_balancer(|balancer| balancer.counts());
    within("messages", exchange_all(&connections)).await??;
    let after = fleet.forwarder.with_balancer(|balancer| balancer.counts());
    assert_eq!(after.chosen, before.chosen, "all connection IDs were read");
    fleet.assert_none_misrouted();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_drained_and_replaced() -> TestResult {
    let mut fleet = Fleet::new(3).await?;
    let connections = within("connecting", fleet.connect(30)).await??;
    let leaving = fleet.backends.remove(0);
    let had = leaving.endpoint.open_connections();
    fleet
        .forwarder
        .with_balancer(|balancer| balancer.drain(leaving.address));
    let later = within("connecting", fleet.connect(30)).await??;
    assert!(leaving.endpoint.open_connections() <= had, "no new ones");
    within("messages", exchange_all(&connections)).await??;
    leaving.endpoint.close(0_u32.into(), b"leaving");
    within("the end", leaving.endpoint.wait_idle()).await?;
    fleet
        .forwarder
        .with_balancer(|balancer| balancer.remove_server(leaving.address));
    // Those of the others do not notice.
    let lost = connections
        .iter()
        .filter(|(_, it)| it.close_reason().is_some());
    assert!(lost.count() <= had);
    let stay = |(_, connection): &&(Endpoint, Connection)| connection.close_reason().is_none();
    let stayed: Vec<_> = connections.iter().filter(stay).cloned().collect();
    within("messages", exchange_all(&stayed)).await??;
    within("messages", exchange_all(&later)).await??;
    assert!(stayed.len() >= 30 - had && had > 0);
    fleet.assert_none_misrouted();
    Ok(())
}

/// A server that starts again ends what it no longer knows of, also where its predecessor could not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_starts_again_resets_old_connections() -> TestResult {
    let mut fleet = Fleet::new(1).await?;
    let connections = within("connecting", fleet.connect(3)).await??;
    let old = fleet.backends.remove(0);
    let new = Backend::start(&fleet.accepting, old.id, old.ids.clone())?;
    fleet.forwarder.with_balancer(|balancer| {
        // What the old one says reaches nobody.
        balancer.remove_server(old.address);
        balancer.add_server(0, new.id, new.address)
    })?;
    old.endpoint.close(0_u32.into(), b"unheard");
    for (_, connection) in &connections {
        let asked = within("the reset", exchange(connection.clone(), 1)).await?;
        assert!(asked.is_err(), "by whom was it answered?");
        assert_eq!(connection.close_reason(), Some(ConnectionError::Reset));
    }
    assert!(new.endpoint.stats().stateless_resets >= 3);
    let later = within("connecting", fleet.connect(3)).await??;
    within("messages", exchange_all(&later)).await??;
    Ok(())
}
