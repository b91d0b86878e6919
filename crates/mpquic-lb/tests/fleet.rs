//! Three servers behind the balancer of the example, on loopback: each connection has three paths
//! from three addresses, and none of their packets reaches another server.

use std::collections::BTreeSet;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mpquic_lb::{Balancer, Config, Server, ServerId};
use mpquic_tokio::{
    ClientConfig, Connection, ConnectionError, Endpoint, EndpointOptions, RetryTokenKey,
    RetryTokens, ServerConfig, default_transport,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

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
    /// A server with this ID. Numbers tell those apart that have one ID one after the other.
    fn start(accepting: &ServerConfig, id: ServerId, ids: Server, number: u8) -> TestResult<Self> {
        // A server that starts again ends what its predecessor has left.
        let shared = EndpointOptions::new([6; 32]).build()?;
        let endpoint = Endpoint::builder()
            .endpoint_config(shared)
            .connection_ids(ids.connection_ids())
            .bind("127.0.0.1:0".parse()?)
            .server(accepting.clone())
            .build()?;
        let address = endpoint.local_addr()?;
        tokio::spawn(echo(endpoint.clone(), number));
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

/// Says its number on a stream, then answers each stream with what came, to clients who have proven
/// their address: the answer to a Retry finds the server that sent it.
async fn echo(endpoint: Endpoint, number: u8) {
    while let Some(incoming) = endpoint.accept().await {
        if !incoming.remote_address_validated() {
            incoming.retry().expect("it was not asked before");
            continue;
        }
        tokio::spawn(async move {
            let connection = incoming.await?;
            let mut name = connection.open_uni().await?;
            name.write_all(&[number]).await?;
            name.finish()?;
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
        Self::of(servers, accepting.token_key([5; 32])).await
    }

    /// Servers that accept connections like this.
    async fn of(servers: u8, accepting: ServerConfig) -> TestResult<Self> {
        let mut balancer = Balancer::new(1000, [9; 32]);
        balancer.set_config(config(0)?);
        let mut backends = Vec::new();
        for number in 0..servers {
            let id = ServerId::new(&[7, number])?;
            let ids = Server::new(config(0)?, id, u64::from(number) << 20)?;
            let backend = Backend::start(&accepting, id, ids, number)?;
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

async fn exchange(connection: Connection, byte: u8, size: usize) -> TestResult {
    let (mut send, mut recv) = connection.open_bi().await?;
    send.write_all(&vec![byte; size]).await?;
    send.finish()?;
    let answer = recv.read_to_end(size).await?;
    assert!(answer.len() == size && answer.iter().all(|it| *it == byte));
    Ok(())
}

/// A message each way on all connections at once.
async fn exchange_all(connections: &[(Endpoint, Connection)]) -> TestResult {
    let mut tasks = JoinSet::new();
    for (number, (_, connection)) in connections.iter().enumerate() {
        tasks.spawn(exchange(connection.clone(), number as u8, SIZE));
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

fn retry_tokens(sequences: &[u8]) -> TestResult<RetryTokens> {
    let key = |sequence: &u8| RetryTokenKey {
        sequence: *sequence,
        key: [*sequence; 16],
        iv: [9; 12],
    };
    let keys: Vec<_> = sequences.iter().map(key).collect();
    Ok(RetryTokens::new(&keys)?)
}

/// Servers ask who has not proven its address: nobody, while the balancer does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_balancer_has_clients_prove_their_address() -> TestResult {
    let (accepting, _) = ServerConfig::self_signed(&["localhost"], &[b"echo"])?;
    let accepting = accepting.retry_tokens(Arc::new(retry_tokens(&[1, 2])?));
    let fleet = Fleet::of(3, accepting).await?;
    let retries = || {
        let of_servers = fleet.backends.iter();
        let of_servers: u64 = of_servers.map(|it| it.endpoint.stats().retries).sum();
        (of_servers, fleet.forwarder.retries())
    };
    // It makes its tokens with a key that the servers take, and have for none of their own.
    fleet.forwarder.set_retry_tokens(Some(retry_tokens(&[2])?));
    let connections = within("connecting", fleet.connect(10)).await??;
    within("messages", exchange_all(&connections)).await??;
    let (of_servers, of_balancer) = retries();
    assert!(of_servers == 0 && of_balancer >= 10, "{:?}", retries());

    // Without it, servers make the tokens.
    fleet.forwarder.set_retry_tokens(None);
    let later = within("connecting", fleet.connect(10)).await??;
    within("messages", exchange_all(&later)).await??;
    assert!(
        retries().0 >= 10 && retries().1 == of_balancer,
        "{:?}",
        retries()
    );
    // Those who are connected need no other proof when it begins again.
    fleet.forwarder.set_retry_tokens(Some(retry_tokens(&[1])?));
    within("messages", exchange_all(&later)).await??;
    fleet.assert_none_misrouted();
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
    // By now clients have what the servers issued; and after this, what they sent before has
    // arrived.
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

/// A server that starts again ends what it no longer knows of, also where its predecessor could
/// not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_starts_again_resets_old_connections() -> TestResult {
    let mut fleet = Fleet::new(1).await?;
    let connections = within("connecting", fleet.connect(3)).await??;
    let old = fleet.backends.remove(0);
    let new = Backend::start(&fleet.accepting, old.id, old.ids.clone(), 1)?;
    fleet.forwarder.with_balancer(|balancer| {
        // What the old one says reaches nobody.
        balancer.remove_server(old.address);
        balancer.add_server(0, new.id, new.address)
    })?;
    old.endpoint.close(0_u32.into(), b"unheard");
    for (_, connection) in &connections {
        let asked = within("the reset", exchange(connection.clone(), 1, SIZE)).await?;
        assert!(asked.is_err(), "by whom was it answered?");
        assert_eq!(connection.close_reason(), Some(ConnectionError::Reset));
    }
    assert!(new.endpoint.stats().stateless_resets >= 3);
    let later = within("connecting", fleet.connect(3)).await??;
    within("messages", exchange_all(&later)).await??;
    Ok(())
}

/// How many connections ask while servers restart, unless `FLEET_CONNECTIONS` says another number.
const ASKING: usize = 60;
/// How many of them connect at a time.
const WAVE: usize = 30;
/// Of one of their messages, bytes: what all send at once fits into the buffer of the balancer's
/// socket.
const REQUEST: usize = 200;
/// Between the requests of a connection: all together leave time for handshakes, also on a busy
/// machine.
const PAUSE: Duration = Duration::from_millis(100);

/// What clients are told of a restart.
#[derive(Debug, Clone, Default)]
struct Restart {
    /// All are connected.
    has_begun: bool,
    /// The numbers of servers that were stopped, or are being stopped.
    stopped: BTreeSet<u8>,
    is_over: bool,
}

/// What became of the requests of one connection, and of those after it.
#[derive(Debug, Default)]
struct Asked {
    answered: usize,
    lost: usize,
    /// Attempts to connect that failed: at a server that stopped meanwhile, or because all was
    /// busy.
    unconnected: usize,
}

/// Asks all the time from when the restart begins until it is over, and once more then. What is
/// lost was at a server that stopped: then it goes on with a new connection from the same address.
async fn ask(
    address: SocketAddr,
    restart: watch::Receiver<Restart>,
    connected: mpsc::Sender<()>,
) -> TestResult<Asked> {
    let mut transport = default_transport();
    // On a busy machine, nothing may be heard for long.
    transport.max_idle_timeout = None;
    let config = ClientConfig::dangerous_insecure(&[b"echo"])?;
    let client = Endpoint::client("127.0.0.1:0".parse()?)?;
    client.set_default_client_config(config.transport_config(transport.build()?));
    let told = || restart.borrow().clone();
    let mut asked = Asked::default();
    loop {
        let before = told();
        let (connection, number) = match connect_and_name(&client, address).await {
            Ok(named) => named,
            Err(_) => {
                asked.unconnected += 1;
                sleep(PAUSE).await;
                continue;
            }
        };
        assert!(!before.stopped.contains(&number), "{number} was drained");
        // Later on, nobody wants to know.
        connected.send(()).await.ok();
        restart.clone().wait_for(|it| it.has_begun).await?;
        loop {
            let is_last = told().is_over;
            if let Err(error) = exchange(connection.clone(), number, REQUEST).await {
                let is_stopped = told().stopped.contains(&number);
                assert!(is_stopped, "a request to server {number} was lost: {error}");
                asked.lost += 1;
                break;
            }
            asked.answered += 1;
            if is_last {
                return Ok(asked);
            }
            sleep(PAUSE).await;
        }
    }
}

/// A new connection, and the number of its server.
async fn connect_and_name(client: &Endpoint, address: SocketAddr) -> TestResult<(Connection, u8)> {
    let connection = client.connect(address, "localhost")?.await?;
    let mut name = connection.accept_uni().await?;
    let number = name.read_to_end(1).await?;
    Ok((connection, *number.first().ok_or("no number")?))
}

/// One after the other, each server is drained, stopped, and started again with the same ID at
/// another address. No request is lost but on the server that stops.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_restart_one_after_the_other() -> TestResult {
    let count = match std::env::var("FLEET_CONNECTIONS") {
        Ok(number) => number.parse()?,
        Err(_) => ASKING,
    };
    let mut fleet = Fleet::new(3).await?;
    let restart = watch::Sender::new(Restart::default());
    let (connected, mut are_connected) = mpsc::channel(count);
    let mut clients = JoinSet::new();
    // The balancer's socket has no room for the first datagrams of all at once.
    while clients.len() < count {
        let wave = WAVE.min(count - clients.len());
        for _ in 0..wave {
            let address = fleet.forwarder.local_addr();
            clients.spawn(ask(address, restart.subscribe(), connected.clone()));
        }
        for _ in 0..wave {
            let first = async {
                tokio::select! {
                    first = are_connected.recv() => first.ok_or("nobody is left".into()),
                    Some(ended) = clients.join_next() => Err(match ended? {
                        Ok(_) => "a client ended early".into(),
                        Err(error) => error,
                    }),
                }
            };
            within("connecting", first).await??;
        }
    }
    // What they connect to later is not counted.
    drop(are_connected);
    restart.send_modify(|restart| restart.has_begun = true);
    let mut had = 0;
    for number in 0..3 {
        let old = fleet.backends.remove(0);
        let drained = |balancer: &mut Balancer| balancer.drain(old.address);
        assert!(fleet.forwarder.with_balancer(drained));
        had += old.endpoint.open_connections();
        restart.send_modify(|restart| {
            restart.stopped.insert(number);
        });
        old.endpoint.close(0_u32.into(), b"restart");
        within("the end", old.endpoint.wait_idle()).await?;
        let new = Backend::start(&fleet.accepting, old.id, old.ids.clone(), number + 3)?;
        fleet.forwarder.with_balancer(|balancer| {
            balancer.remove_server(old.address);
            balancer.add_server(0, new.id, new.address)
        })?;
        fleet.backends.push(new);
    }
    restart.send_modify(|restart| restart.is_over = true);
    let mut sum = Asked::default();
    while let Some(done) = within("the last requests", clients.join_next()).await? {
        let asked = done??;
        sum.answered += asked.answered;
        sum.lost += asked.lost;
        sum.unconnected += asked.unconnected;
    }
    println!("{count} connections: {sum:?}");
    // One at a time is under way on a connection, and each was at a server that stopped.
    assert!(count <= had && sum.lost <= had, "{sum:?} of {had}");
    assert!(sum.answered >= count, "{sum:?}");
    Ok(())
}
