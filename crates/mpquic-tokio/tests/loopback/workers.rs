//! Servers of several workers, a thread each.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mpquic_tokio::{
    ConnectionId, ConnectionIdGenerator, ConnectionIds, Endpoint, EndpointBuilder, MemoryNetwork,
    ServerConfig, TokioRuntime, Worker, default_transport,
};
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::harness::{ALPN, Error, TestResult, address_like, client, within};

const WORKERS: usize = 3;

fn server() -> Result<EndpointBuilder, Error> {
    let (config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
    Ok(Endpoint::builder()
        .bind(address_like("127.0.0.1")?)
        .server(config))
}

/// A worker that was started, and its thread.
type Running = (Endpoint, JoinHandle<io::Result<()>>);

/// Echoes on a thread of its own until it is closed. Its endpoint comes out of the channel.
fn run(worker: Worker, started: mpsc::Sender<Endpoint>) -> JoinHandle<io::Result<()>> {
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let endpoint = worker.start()?;
            started.send(endpoint.clone()).await.expect("received");
            while let Some(incoming) = endpoint.accept().await {
                // A proof of the address: the token reaches the worker that gave it, by whatever
                // socket.
                if !incoming.remote_address_validated() {
                    incoming.retry().expect("it was not asked before");
                    continue;
                }
                tokio::spawn(async move {
                    let connection = incoming.await?;
                    while let Ok((mut send, mut recv)) = connection.accept_bi().await {
                        send.write_all(&recv.read_to_end(1 << 16).await?).await?;
                        send.finish()?;
                    }
                    Ok::<(), Error>(())
                });
            }
            endpoint.wait_idle().await;
            Ok(())
        })
    })
}

/// Connects over two paths and gets a message back, and another one after the first socket has
/// changed.
async fn echo(server: SocketAddr) -> TestResult {
    let client = Endpoint::builder()
        .bind(address_like("127.0.0.1")?)
        .bind(address_like("127.0.0.2")?)
        .client(client(default_transport())?)
        .build()?;
    let connection = client.connect(server, "localhost")?.await?;
    connection.wait_for_paths(2).await?;
    for size in [1 << 16, 1 << 10] {
        let (mut send, mut recv) = connection.open_bi().await?;
        let message = vec![7; size];
        send.write_all(&message).await?;
        send.finish()?;
        assert!(recv.read_to_end(1 << 16).await? == message);
        let local = client.local_addr()?;
        client.rebind_local(
            local,
            std::net::UdpSocket::bind(address_like("127.0.0.1")?)?,
        )?;
    }
    connection.close(0u32.into(), b"");
    client.wait_all_draining().await;
    Ok(())
}

/// Runs workers on threads of their own, and returns their endpoints.
async fn run_all(workers: impl Iterator<Item = Worker>) -> Result<Vec<Running>, Error> {
    let mut running = Vec::new();
    for worker in workers {
        let (started, mut endpoint) = mpsc::channel(1);
        let thread = run(worker, started);
        running.push((endpoint.recv().await.ok_or("a worker failed")?, thread));
    }
    Ok(running)
}

/// As many clients at a time.
async fn echoes(server: SocketAddr, count: usize) -> TestResult {
    let mut clients = JoinSet::new();
    for _ in 0..count {
        clients.spawn(async move { within("an echo", echo(server)).await? });
    }
    while let Some(done) = clients.join_next().await {
        done??;
    }
    Ok(())
}

#[tokio::test]
async fn connections_stay_with_their_workers() -> TestResult {
    let workers = server()?.workers(WORKERS)?;
    let address = workers[0].local_addrs()?[0];
    let running = run_all(workers.into_iter()).await?;
    echoes(address, 40).await?;
    for (server, _) in &running {
        let stats = server.stats();
        // By chance, a worker has none in one of three million runs.
        assert!(stats.accepted_handshakes > 0, "{stats:?}");
        assert_eq!((stats.stateless_resets, stats.datagrams_dropped), (0, 0));
        server.close(0u32.into(), b"");
    }
    for (_, thread) in running {
        thread.join().expect("no panic")?;
    }
    Ok(())
}

/// New connections go to workers that are there: not to one that was never started, nor to one that
/// has ended.
#[tokio::test]
async fn workers_that_are_gone_have_no_new_connections() -> TestResult {
    let mut workers = server()?.workers(WORKERS)?.into_iter();
    let unstarted = workers.next().ok_or("no worker")?;
    let address = unstarted.local_addrs()?[0];
    drop(unstarted);
    let mut running = run_all(workers).await?;
    echoes(address, 20).await?;
    while let Some((server, thread)) = running.pop() {
        server.close(0u32.into(), b"");
        drop(server);
        thread.join().expect("no panic")?;
        if !running.is_empty() {
            echoes(address, 20).await?;
        }
    }
    Ok(())
}

/// Always ends with the same byte.
struct Fixed(u8);

impl ConnectionIdGenerator for Fixed {
    fn generate_cid(&mut self) -> ConnectionId {
        self.0 = self.0.wrapping_add(1);
        ConnectionId::new(&[self.0, 1, 2, 3, 4, 0])
    }

    fn cid_len(&self) -> usize {
        6
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

fn assert_refused<const N: usize>(cases: [(EndpointBuilder, usize, &str); N]) -> TestResult {
    for (builder, count, expected) in cases {
        let error = builder.workers(count).err().ok_or("it was taken")?;
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(error.to_string(), expected);
    }
    Ok(())
}

#[tokio::test]
async fn options_without_workers_are_refused() -> TestResult {
    let fixed = ConnectionIds::new(|_| Fixed(0))?;
    let no_client = "workers are servers: build another endpoint for clients";
    assert_refused([
        (server()?, 0, "workers is 0, but must be from 1 to 128"),
        (server()?, 129, "workers is 129, but must be from 1 to 128"),
        (
            server()?.receivers(2),
            2,
            "receivers are for one endpoint: each worker has one",
        ),
        (server()?.client(client(default_transport())?), 2, no_client),
        (server()?.backup_address("192.0.2.1".parse()?), 2, no_client),
        (
            server()?.runtime(Arc::new(TokioRuntime)),
            2,
            "workers run on tokio: give them no runtime",
        ),
        (
            server()?.connection_ids(fixed),
            2,
            "connection_ids makes none of which the last byte, divided by 2, leaves 1",
        ),
    ])
}

#[tokio::test]
async fn workers_need_addresses_and_bind_them_themselves() -> TestResult {
    let address = address_like("127.0.0.1")?;
    let (config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
    let with = |config: ServerConfig| Endpoint::builder().bind(address).server(config);
    let v4 = |text: &str| Ok::<_, Error>(config.clone().preferred_address_v4(Some(text.parse()?)));
    let v6 = config
        .clone()
        .preferred_address_v6(Some("[2001:db8::1]:443".parse()?));
    let themselves = "workers bind their sockets themselves: give them addresses";
    let none_preferred = "workers have no preferred address";
    let in_memory = MemoryNetwork::new(Duration::ZERO).bind(address)?;
    assert_refused([
        (
            Endpoint::builder().bind(address),
            2,
            "workers are servers: call server",
        ),
        (
            Endpoint::builder().server(config.clone()),
            2,
            "workers need an address: call bind",
        ),
        (
            server()?.socket(UdpSocket::bind("127.0.0.1:0")?),
            2,
            themselves,
        ),
        (server()?.abstract_socket(in_memory), 2, themselves),
        (with(v4("192.0.2.1:443")?), 2, none_preferred),
        (with(v6), 2, none_preferred),
        (
            with(v4("0.0.0.0:443")?),
            2,
            "preferred_address_v4 is 0.0.0.0:443, but must be one address with a port",
        ),
    ])
}
