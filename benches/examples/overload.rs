//! A server with more new connections than it can take, and a server under a flood of forged
//! attempts to connect, over loopback.
//!
//! ```text
//! cargo run --release -p mpquic-benches --example overload -- [SECONDS [MICROSECONDS]]
//! ```
//!
//! Four programs run as processes of their own, each on one thread: the server; a client with
//! established connections, which sends a thousand requests per second and measures the times of
//! answers; a client that makes new connections; and a sender of forged packets. First, new
//! connections come as fast as the server takes them: the server's capacity. Then they come at half
//! of the capacity, at one and a half times the capacity, and at half of it again. Last, a client
//! makes one connection after the other, without and with a flood of 4000 forged Initials per
//! second from addresses that never answer. Each phase takes SECONDS.
//!
//! With the small key of this program, a handshake takes a client longer than the server. The
//! server therefore computes MICROSECONDS longer in each handshake (1000 by default), as with a
//! large RSA key, so that the server is the bottleneck.

use std::io::{BufRead, stdin};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use mpquic_benches::now;
use mpquic_benches::process::{Failure, Process, cpu_seconds};
use mpquic_core::FourTuple;
use mpquic_core::config::{EndpointOptions, TransportConfig};
use mpquic_sim::Tls;
use mpquic_tokio::{
    ClientConfig, Connection, ConnectionError, Endpoint, EndpointStats, RecvStream, SendStream,
    ServerConfig, default_transport,
};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

const ALPN: &[u8] = b"overload";
/// Established connections, and requests a second on each.
const ESTABLISHED: usize = 50;
const REQUESTS: u32 = 20;
/// Bytes of a request and of an answer.
const SIZE: usize = 1024;
/// Handshakes under way at a time while capacity is measured.
const CONCURRENCY: usize = 64;
/// An attempt or a request without an answer for this time has failed.
const PATIENCE: Duration = Duration::from_secs(5);
/// Forged attempts a second, and addresses they come from.
const FLOOD: u32 = 4000;
const FORGED_FROM: u32 = 250;
/// Time between two phases, in which the state of the earlier phase disappears.
const REST: Duration = Duration::from_secs(3);

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["server", more] => runtime()?.block_on(serve(Duration::from_micros(more.parse()?))),
        ["established", server] => runtime()?.block_on(ask_all(server.parse()?)),
        ["flood", server, seconds] => flood(server.parse()?, seconds.parse()?),
        ["run"] | [] => run(10, "1000"),
        [seconds] => run(seconds.parse()?, "1000"),
        [seconds, more, ..] => run(seconds.parse()?, more),
    }
}

fn runtime() -> Result<Runtime, Failure> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Lines of the standard input.
fn lines() -> UnboundedReceiver<()> {
    let (sender, lines) = unbounded_channel();
    std::thread::spawn(move || {
        for _ in stdin().lock().lines() {
            if sender.send(()).is_err() {
                return;
            }
        }
    });
    lines
}

/// Answers every request. Reports the endpoint's counters at each line of the input, until the
/// input ends.
async fn serve(more: Duration) -> Result<(), Failure> {
    let name = std::str::from_utf8(ALPN)?;
    let (config, _) = ServerConfig::self_signed(&["localhost"], &[name.as_bytes()])?;
    let endpoint = Endpoint::server(config, "127.0.0.1:0".parse()?)?;
    println!("{}", endpoint.local_addr()?);
    let accepting = endpoint.clone();
    tokio::spawn(async move {
        while let Some(incoming) = accepting.accept().await {
            tokio::spawn(async move {
                let start = now();
                while start.elapsed() < more {}
                if let Ok(connection) = incoming.await {
                    while let Ok((send, receive)) = connection.accept_bi().await {
                        tokio::spawn(answer(send, receive));
                    }
                }
            });
        }
    });
    let mut lines = lines();
    let mut before = EndpointStats::default();
    while lines.recv().await.is_some() {
        let stats = endpoint.stats();
        println!(
            "accepted {}, Retry {}, refused {}, dropped {}, memory {} KiB",
            stats.accepted_handshakes - before.accepted_handshakes,
            stats.retries - before.retries,
            stats.refused_handshakes - before.refused_handshakes,
            dropped(&stats) - dropped(&before),
            stats.memory >> 10
        );
        before = stats;
    }
    Ok(())
}

/// Attempts that got no answer.
fn dropped(stats: &EndpointStats) -> u64 {
    stats.dropped_at_max_half_open + stats.dropped_at_max_attempt_lag
}

async fn answer(mut send: SendStream, mut receive: RecvStream) -> Result<(), Failure> {
    let request = receive.read_to_end(SIZE).await?;
    send.write_all(&request).await?;
    Ok(send.finish()?)
}

/// A client whose idle connections do not stay, so that only the server's limits matter.
fn client() -> Result<Endpoint, Failure> {
    let mut transport = default_transport();
    transport.max_handshake_duration = PATIENCE;
    let config = ClientConfig::dangerous_insecure(&[ALPN])?.transport_config(transport.build()?);
    let endpoint = Endpoint::client("127.0.0.1:0".parse()?)?;
    endpoint.set_default_client_config(config);
    Ok(endpoint)
}

async fn connect(endpoint: Endpoint, server: SocketAddr) -> Result<Duration, Failure> {
    let start = now();
    let connection = timeout(PATIENCE, endpoint.connect(server, "localhost")?).await??;
    let time = start.elapsed();
    // If the connection closed at once, its handshake would never complete at the server.
    timeout(PATIENCE, connection.handshake_confirmed()).await??;
    connection.close(0u32.into(), b"");
    Ok(time)
}

/// Quantiles of times, in milliseconds.
fn shares(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |share: f64| {
        let index = (times.len() as f64 * share).ceil() as usize;
        let time = times.get(index.saturating_sub(1));
        time.map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    };
    let (p50, p99, most) = (at(0.5), at(0.99), at(1.0));
    format!("p50 {p50:.2} ms, p99 {p99:.2} ms, most {most:.2} ms")
}

/// Sends requests on established connections. At each line of the input, reports the times of
/// answers since the last report.
async fn ask_all(server: SocketAddr) -> Result<(), Failure> {
    let endpoint = client()?;
    let (sender, mut times) = unbounded_channel();
    for index in 0..ESTABLISHED {
        let connection = endpoint.connect(server, "localhost")?.await?;
        let sender = sender.clone();
        tokio::spawn(async move {
            let period = Duration::from_secs(1) / REQUESTS;
            sleep(period * index as u32 / ESTABLISHED as u32).await;
            let mut ticks = interval(period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let start = now();
                let answered = timeout(PATIENCE, ask(&connection)).await;
                let time = matches!(answered, Ok(Ok(()))).then(|| start.elapsed());
                if sender.send(time).is_err() {
                    return;
                }
            }
        });
    }
    println!("ready");
    let mut lines = lines();
    while lines.recv().await.is_some() {
        let mut all = Vec::new();
        while let Ok(time) = times.try_recv() {
            all.push(time);
        }
        let failed = all.iter().filter(|time| time.is_none()).count();
        let times: Vec<_> = all.into_iter().flatten().collect();
        println!(
            "{} answers, {failed} failed, {}",
            times.len(),
            shares(times)
        );
    }
    Ok(())
}

async fn ask(connection: &Connection) -> Result<(), Failure> {
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(&[0x5a; SIZE]).await?;
    send.finish()?;
    match receive.read_to_end(SIZE).await?.len() {
        SIZE => Ok(()),
        other => Err(format!("an answer of {other} bytes").into()),
    }
}

fn run(seconds: u32, more: &str) -> Result<(), Failure> {
    let mut server = Process::start(&["server", more])?;
    let line = server.line()?;
    let address: SocketAddr = line.parse()?;
    let mut established = Process::start(&["established", &line])?;
    established.line()?;
    let length = Duration::from_secs(seconds.into());
    let runtime = runtime()?;
    let mut report = |name: &str, load: &mut dyn FnMut() -> Result<String, Failure>| {
        server.ask()?;
        server.line()?;
        established.ask()?;
        established.line()?;
        let cpu = cpu_seconds(server.id())?;
        let start = now();
        let result = load()?;
        let cpu = (cpu_seconds(server.id())? - cpu) / start.elapsed().as_secs_f64();
        established.ask()?;
        server.ask()?;
        println!("{name}: {result}");
        println!("  established: {}", established.line()?);
        println!("  server: {}, CPU {:.0} %", server.line()?, cpu * 100.0);
        std::thread::sleep(REST);
        Ok::<_, Failure>(())
    };
    report("nothing else", &mut || {
        std::thread::sleep(length);
        Ok(String::new())
    })?;
    let mut capacity = 0.0;
    report("as many as it takes", &mut || {
        capacity = runtime.block_on(saturate(address, length))?;
        Ok(format!("{capacity:.0} connections a second"))
    })?;
    for share in [0.5, 1.5, 0.5] {
        let name = format!("{:.0} % of that", share * 100.0);
        report(&name, &mut || {
            runtime.block_on(offer(address, capacity * share, length))
        })?;
    }
    report("one at a time", &mut || {
        runtime.block_on(one_by_one(address, length))
    })?;
    report("one at a time, and a flood", &mut || {
        let seconds = (seconds + 1).to_string();
        let mut flood = Process::start(&["flood", &line, &seconds])?;
        // The flood's datagrams are made.
        flood.line()?;
        flood.ask()?;
        let result = runtime.block_on(one_by_one(address, length))?;
        let sent = flood.line()?;
        Ok(format!("{result}; {sent}"))
    })
}

/// Connects as fast as the server answers; returns connections per second.
async fn saturate(server: SocketAddr, length: Duration) -> Result<f64, Failure> {
    let endpoint = client()?;
    let end = Instant::now() + length;
    let mut workers = JoinSet::new();
    for _ in 0..CONCURRENCY {
        let endpoint = endpoint.clone();
        workers.spawn(async move {
            let mut done = 0;
            while Instant::now() < end {
                done += u32::from(connect(endpoint.clone(), server).await.is_ok());
            }
            done
        });
    }
    let done: u32 = workers.join_all().await.into_iter().sum();
    Ok(f64::from(done) / length.as_secs_f64())
}

/// Begins connections at this rate per second, regardless of their success.
async fn offer(server: SocketAddr, rate: f64, length: Duration) -> Result<String, Failure> {
    let endpoint = client()?;
    let start = Instant::now();
    let mut attempts = JoinSet::new();
    let mut offered = 0u32;
    while start.elapsed() < length {
        let due = start.elapsed().as_secs_f64() * rate;
        while f64::from(offered) < due {
            attempts.spawn(connect(endpoint.clone(), server));
            offered += 1;
        }
        sleep(Duration::from_millis(1)).await;
    }
    let time = start.elapsed().as_secs_f64();
    let mut times = Vec::new();
    let (mut refused, mut failed) = (0, 0);
    for result in attempts.join_all().await {
        match result {
            Ok(time) => times.push(time),
            Err(error) => match error.downcast_ref::<ConnectionError>() {
                Some(ConnectionError::ConnectionClosed(_)) => refused += 1,
                _ => failed += 1,
            },
        }
    }
    let done = times.len();
    let rate = f64::from(offered) / time;
    let shares = shares(times);
    Ok(format!(
        "offered {rate:.0} a second; {done} connected, {refused} refused, {failed} not in time; {shares}"
    ))
}

/// Makes one connection after the other.
async fn one_by_one(server: SocketAddr, length: Duration) -> Result<String, Failure> {
    let endpoint = client()?;
    let start = Instant::now();
    let (mut times, mut failed) = (Vec::new(), 0);
    while start.elapsed() < length {
        match connect(endpoint.clone(), server).await {
            Ok(time) => times.push(time),
            Err(_) => failed += 1,
        }
        sleep(Duration::from_millis(5)).await;
    }
    let done = times.len();
    Ok(format!(
        "{done} connected, {failed} failed; {}",
        shares(times)
    ))
}

/// Sends first flights of clients that never answer.
fn flood(server: SocketAddr, seconds: u32) -> Result<(), Failure> {
    let sockets: Result<Vec<_>, _> = (0..FORGED_FROM)
        .map(|index| UdpSocket::bind(format!("127.1.0.{}:0", index + 1)))
        .collect();
    let sockets = sockets?;
    let count = FLOOD * seconds;
    let flights = first_flights(server, count)?;
    println!("ready");
    stdin().lock().read_line(&mut String::new())?;
    let start = now();
    let (mut sent, mut datagrams) = (0, 0);
    while sent < count {
        let due = (start.elapsed().as_secs_f64() * f64::from(FLOOD)) as u32;
        for number in sent..due.min(count) {
            let socket = &sockets[(number % FORGED_FROM) as usize];
            for datagram in &flights[number as usize] {
                // A datagram for which the kernel has no room is dropped.
                datagrams += u32::from(socket.send_to(datagram, server).is_ok());
            }
        }
        sent = due.min(count);
        std::thread::sleep(Duration::from_millis(1));
    }
    let rate = f64::from(sent) / start.elapsed().as_secs_f64();
    println!("{rate:.0} forged attempts a second in {datagrams} datagrams");
    Ok(())
}

fn first_flights(server: SocketAddr, count: u32) -> Result<Vec<Vec<Vec<u8>>>, Failure> {
    let transport = default_transport();
    let transport = TransportConfig::new(transport.scheduler, transport.controller);
    let config = Tls::new(ALPN).client(Arc::new(transport));
    let options = EndpointOptions::new([3; 32]).build()?;
    let options = Arc::new(options);
    let mut flights = Vec::with_capacity(count as usize);
    for number in 0..count {
        let mut seed = [0; 32];
        seed[..4].copy_from_slice(&number.to_le_bytes());
        let mut endpoint = mpquic_core::Endpoint::new(options.clone(), None, seed);
        let local = SocketAddr::from(([127, 1, 0, 1], 1));
        let four_tuple = FourTuple::new(local, server);
        let time = now();
        let (_, mut connection) =
            endpoint.connect(time, config.clone(), four_tuple, "localhost")?;
        let mut datagrams = Vec::new();
        let mut buffer = Vec::new();
        while connection.poll_transmit(time, 1, &mut buffer).is_some() {
            datagrams.push(std::mem::take(&mut buffer));
        }
        flights.push(datagrams);
    }
    Ok(flights)
}
