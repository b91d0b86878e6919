//! Many connections to one server, each with a request a second, over loopback.
//!
//! ```text
//! cargo run --profile bench -p mpquic-benches --example many_connections -- [CONNECTIONS] [SECONDS]
//! ```
//!
//! The server is a process of its own; both run on one thread. Requests are spread evenly over the
//! second. A request and its response have 1 KiB each, on a stream of their own. Prints the number
//! of failures, the times of responses, and the server's memory and processor time.

use std::net::SocketAddr;
use std::process::id;
use std::sync::Arc;
use std::time::Duration;

use mpquic_benches::now;
use mpquic_benches::process::{Failure, Process, cpu_seconds, resident};
use mpquic_tokio::{
    ClientConfig, Connection, Endpoint, RecvStream, SendStream, ServerConfig, default_transport,
};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Handshakes under way at a time.
const CONCURRENCY: usize = 50;
/// Time between the last handshake and the first request.
const REST: Duration = Duration::from_secs(2);
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of a request and of a response.
const SIZE: usize = 1024;
/// A request without a response for this time has failed.
const PATIENCE: Duration = Duration::from_secs(10);
const PERIOD: Duration = Duration::from_secs(1);

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "server") {
        return runtime()?.block_on(serve());
    }
    let connections = words.first().map_or(Ok(10_000), |word| word.parse())?;
    let seconds = words.get(1).map_or(Ok(60), |word| word.parse())?;
    let mut server = Process::start(&["server"])?;
    let address: SocketAddr = server.line()?.parse()?;
    runtime()?.block_on(run(&server, address, connections, seconds))
}

fn runtime() -> Result<Runtime, Failure> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Answers every request until the process is ended.
async fn serve() -> Result<(), Failure> {
    let (config, _) = ServerConfig::self_signed(&["localhost"], &[b"many"])?;
    let mut transport = default_transport();
    transport.max_idle_timeout = Some(IDLE_TIMEOUT);
    let endpoint = Endpoint::server(
        config.transport_config(transport.build()?),
        "127.0.0.1:0".parse()?,
    )?;
    println!("{}", endpoint.local_addr()?);
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            let Ok(connection) = incoming.await else {
                return;
            };
            while let Ok((send, receive)) = connection.accept_bi().await {
                // The client reports failures.
                tokio::spawn(async move { answer(send, receive).await });
            }
        });
    }
    Ok(())
}

async fn answer(mut send: SendStream, mut receive: RecvStream) -> Result<(), Failure> {
    let request = receive.read_to_end(SIZE).await?;
    send.write_all(&request).await?;
    Ok(send.finish()?)
}

/// The time of one response.
#[derive(Clone, Copy)]
struct Latency {
    /// Time since the request left.
    sent: Duration,
    /// Time since the request was due.
    due: Duration,
}

async fn run(
    server: &Process,
    address: SocketAddr,
    count: usize,
    seconds: u32,
) -> Result<(), Failure> {
    let before = resident(server.id())?;
    let each = |bytes: u64| bytes.saturating_sub(before) as f64 / 1024.0 / count as f64;
    let begin = Instant::now();
    let (_endpoint, connections) = connect(address, count).await?;
    let time = begin.elapsed().as_secs_f64();
    println!("{count} connections in {time:.1} s");
    sleep(REST).await;
    let idle = resident(server.id())?;
    println!("server, idle: {:.1} KiB per connection", each(idle));
    let used = (cpu_seconds(server.id())?, cpu_seconds(id())?);
    let start = Instant::now() + PERIOD;
    let mut clients = JoinSet::new();
    for (index, connection) in connections.iter().cloned().enumerate() {
        let start = start + PERIOD * index as u32 / count as u32;
        clients.spawn(requests(connection, start, seconds));
    }
    let mut memory = Vec::new();
    for second in 1..=seconds {
        sleep_until(start + second * PERIOD).await;
        memory.push(resident(server.id())?);
    }
    let server_cpu = cpu_seconds(server.id())? - used.0;
    let client_cpu = cpu_seconds(id())? - used.1;
    let mut latencies = Vec::new();
    let mut failures = Vec::new();
    for result in clients.join_all().await {
        let (mut done, failure) = result;
        latencies.append(&mut done);
        failures.extend(failure);
    }
    let expected = count * seconds as usize;
    let done = latencies.len();
    println!("{done} of {expected} requests answered");
    if let Some(first) = failures.first() {
        println!("{} connections failed: {first}", failures.len());
    }
    print("since sent", latencies.iter().map(|it| it.sent).collect());
    print("since due", latencies.iter().map(|it| it.due).collect());
    for (second, bytes) in memory
        .iter()
        .enumerate()
        .step_by(10)
        .chain([(memory.len() - 1, memory.last().ok_or("no measurement")?)])
    {
        let second = second + 1;
        println!(
            "server after {second} s: {:.1} KiB per connection",
            each(*bytes)
        );
    }
    let most = memory.iter().copied().max().unwrap_or_default();
    println!("server, most: {:.1} KiB per connection", each(most));
    let share = |cpu: f64| 100.0 * cpu / f64::from(seconds);
    let (server, client) = (share(server_cpu), share(client_cpu));
    println!("CPU: server {server:.0} %, client {client:.0} %");
    if failures.is_empty() && done == expected {
        Ok(())
    } else {
        Err("not every request was answered".into())
    }
}

async fn connect(server: SocketAddr, count: usize) -> Result<(Endpoint, Vec<Connection>), Failure> {
    let mut transport = default_transport();
    transport.max_idle_timeout = Some(IDLE_TIMEOUT);
    let config = ClientConfig::dangerous_insecure(&[b"many"])?.transport_config(transport.build()?);
    let endpoint = Endpoint::client("127.0.0.1:0".parse()?)?;
    endpoint.set_default_client_config(config);
    let room = Arc::new(Semaphore::new(CONCURRENCY));
    let mut handshakes = JoinSet::new();
    for _ in 0..count {
        let permit = room.clone().acquire_owned().await?;
        let connecting = endpoint.connect(server, "localhost")?;
        handshakes.spawn(async move {
            let connection = connecting.await;
            drop(permit);
            connection
        });
    }
    let made: Result<Vec<_>, _> = handshakes.join_all().await.into_iter().collect();
    Ok((endpoint, made?))
}

/// Sends a request each period. Stops at the first failure.
async fn requests(
    connection: Connection,
    start: Instant,
    count: u32,
) -> (Vec<Latency>, Option<Failure>) {
    let mut latencies = Vec::with_capacity(count as usize);
    for number in 0..count {
        let due = start + number * PERIOD;
        sleep_until(due).await;
        let sent = now();
        match timeout(PATIENCE, request(&connection)).await {
            Ok(Ok(())) => latencies.push(Latency {
                sent: sent.elapsed(),
                due: due.elapsed(),
            }),
            Ok(Err(failure)) => return (latencies, Some(failure)),
            Err(_) => return (latencies, Some("no response".into())),
        }
    }
    (latencies, None)
}

async fn request(connection: &Connection) -> Result<(), Failure> {
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(&[0x5a; SIZE]).await?;
    send.finish()?;
    match receive.read_to_end(SIZE).await?.len() {
        SIZE => Ok(()),
        other => Err(format!("a response of {other} bytes").into()),
    }
}

fn print(since: &str, mut latencies: Vec<Duration>) {
    latencies.sort_unstable();
    let at = |share: f64| {
        let index = (latencies.len() as f64 * share).ceil() as usize;
        let latency = latencies.get(index.saturating_sub(1));
        latency.map_or(0.0, |latency| latency.as_secs_f64() * 1e3)
    };
    println!(
        "ms {since}: p50 {:.2}, p99 {:.2}, p99.9 {:.2}, most {:.2}",
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}
