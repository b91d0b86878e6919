//! Connections come and go for a long time, over loopback; memory, descriptors and tasks must not
//! grow.
//!
//! ```text
//! cargo run --release -p mpquic-benches --example soak -- [MINUTES]
//! ```
//!
//! Client and server are processes of their own, each on one thread. A connection has two paths
//! from the start, echoes a stream, closes one path, echoes another stream and is closed, by either
//! side or because its last handle is dropped. Meanwhile one of the client's two sockets is closed
//! and opened again, once a second. The time is divided into rounds. After each round, all
//! connections have ended, and a line shows the remaining memory, descriptors and tasks.
//! Connections that end because both processes were stopped for a while (the machine slept, or
//! other measurements needed it alone) are counted apart.

use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::process::id;
use std::time::Duration;

use mpquic_benches::process::{Failure, Process, resident};
use mpquic_tokio::{
    ClientConfig, Connection, Endpoint, RecvStream, SendStream, ServerConfig, default_transport,
};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

const ALPN: &[&[u8]] = &[b"soak"];
const ROUNDS: u32 = 12;
/// Number of connections at a time.
const WORKERS: u64 = 16;
/// A connection that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);
/// A process without processor time for this long was stopped, and may have lost connections to
/// idle timeouts.
const STOPPED: Duration = Duration::from_secs(10);
const LARGEST: usize = 300_000;
/// Asks the server to close the connection.
const CLOSE: &[u8] = b"close";
/// The allowed growth between rounds: parts of 1024, and bytes in addition.
const NOISE: (u64, u64) = (100, 2 << 20);

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "server") {
        return serve();
    }
    let minutes: f64 = words.first().map_or(Ok(5.0), |word| word.parse())?;
    let mut server = Process::start(&["server"])?;
    let address: SocketAddr = server.line()?.parse()?;
    let length = Duration::from_secs_f64(minutes * 60.0) / ROUNDS;
    runtime()?.block_on(run(&mut server, address, length))
}

fn runtime() -> Result<Runtime, Failure> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Serves until the standard input ends; reports at each byte of the input.
fn serve() -> Result<(), Failure> {
    let (sender, mut lines) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin();
        while stdin.read_exact(&mut [0]).is_ok() && sender.send(()).is_ok() {}
    });
    runtime()?.block_on(async {
        let (config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
        let endpoint = Endpoint::server(config, "127.0.0.1:0".parse()?)?;
        println!("{}", endpoint.local_addr()?);
        let accepting = endpoint.clone();
        tokio::spawn(async move {
            while let Some(incoming) = accepting.accept().await {
                tokio::spawn(async move {
                    if let Ok(connection) = incoming.await {
                        while let Ok((send, receive)) = connection.accept_bi().await {
                            tokio::spawn(answer(connection.clone(), send, receive));
                        }
                    }
                });
            }
        });
        while lines.recv().await.is_some() {
            endpoint.wait_idle().await;
            println!("{} {}", tasks(), kept(&endpoint));
        }
        std::process::exit(0)
    })
}

/// Sends received bytes back. The client reports failures.
async fn answer(
    connection: Connection,
    mut send: SendStream,
    mut receive: RecvStream,
) -> Result<(), Failure> {
    let request = receive.read_to_end(LARGEST).await?;
    if request == CLOSE {
        connection.close(1u32.into(), b"as asked");
        return Ok(());
    }
    send.write_all(&request).await?;
    Ok(send.finish()?)
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Bytes that an endpoint keeps besides the buffers of its sockets.
fn kept(endpoint: &Endpoint) -> u64 {
    let buffers = endpoint.driver_stats().receive_memory;
    endpoint.stats().memory.saturating_sub(buffers)
}

fn descriptors(process: u32) -> Result<u64, Failure> {
    Ok(fs::read_dir(format!("/proc/{process}/fd"))?.count() as u64)
}

/// Use of both processes while no connection is open: of the client first, then of the server.
#[derive(Debug, Clone, Copy)]
struct Use {
    memory: [u64; 2],
    descriptors: [u64; 2],
    tasks: [u64; 2],
    /// Bytes that endpoints keep of ended connections.
    kept: [u64; 2],
}

async fn run(server: &mut Process, address: SocketAddr, length: Duration) -> Result<(), Failure> {
    let locals: [SocketAddr; 2] = ["127.0.0.1:0".parse()?, "127.0.0.2:0".parse()?];
    let config = ClientConfig::dangerous_insecure(ALPN)?
        .transport_config(default_transport().build()?)
        .server_addresses(vec![address]);
    let builder = Endpoint::builder().client(config);
    let endpoint = locals.into_iter().fold(builder, |it, local| it.bind(local));
    let endpoint = endpoint.build()?;
    println!("each: client, server");
    let mut rounds = Vec::new();
    let mut number = 0;
    for round in 1..=ROUNDS {
        let end = Instant::now() + length;
        let mut workers = JoinSet::new();
        for _ in 0..WORKERS {
            number += 1;
            let first = number * 1_000_000;
            workers.spawn(work(endpoint.clone(), address, first, end));
        }
        flap(&endpoint, locals[1], end).await?;
        let (mut done, mut stopped) = (0, 0);
        for result in workers.join_all().await {
            let counts = result?;
            done += counts.done;
            stopped += counts.stopped;
        }
        endpoint.wait_idle().await;
        let sample = sample(server, &endpoint)?;
        println!("round {round}: {done} connections, {stopped} stopped, {sample:?}");
        rounds.push(sample);
    }
    check(&rounds)
}

fn sample(server: &mut Process, endpoint: &Endpoint) -> Result<Use, Failure> {
    server.ask()?;
    let line = server.line()?;
    let (tasks_there, kept) = line.split_once(' ').ok_or("no report")?;
    Ok(Use {
        memory: [resident(id())?, resident(server.id())?],
        descriptors: [descriptors(id())?, descriptors(server.id())?],
        tasks: [tasks() as u64, tasks_there.parse()?],
        kept: [self::kept(endpoint), kept.parse()?],
    })
}

/// A figure: its name, its values for client and server, and its allowed growth: parts of 1024, and
/// an absolute number.
type Figure = (&'static str, fn(&Use) -> [u64; 2], (u64, u64));

/// Checks that the last third of the rounds uses no more than the first third. The first round, in
/// which pools fill, counts as well.
fn check(rounds: &[Use]) -> Result<(), Failure> {
    let (first, last) = (&rounds[..rounds.len() / 3], &rounds[rounds.len() * 2 / 3..]);
    let figures: [Figure; 4] = [
        ("memory", |it| it.memory, NOISE),
        ("descriptors", |it| it.descriptors, (0, 0)),
        ("tasks", |it| it.tasks, (0, 0)),
        ("what the endpoint keeps", |it| it.kept, (0, 0)),
    ];
    for (name, figure, (parts, bytes)) in figures {
        for (index, process) in ["client", "server"].into_iter().enumerate() {
            let most = |rounds: &[Use]| rounds.iter().map(|it| figure(it)[index]).max();
            let (first, last) = (most(first).unwrap_or(0), most(last).unwrap_or(0));
            println!("{name} of the {process}: at most {first} first, {last} last");
            if last > first + first * parts / 1024 + bytes {
                return Err(format!("{name} of the {process} grows").into());
            }
        }
    }
    Ok(())
}

/// Closes a socket and opens it again, over and over until `end`.
async fn flap(endpoint: &Endpoint, local: SocketAddr, end: Instant) -> Result<(), Failure> {
    while Instant::now() < end {
        sleep(Duration::from_millis(700)).await;
        let bound = endpoint.local_addrs();
        let bound = bound.into_iter().find(|it| it.ip() == local.ip());
        if !endpoint.remove_local(bound.ok_or("the socket is gone")?) {
            return Err("the socket cannot be closed".into());
        }
        sleep(Duration::from_millis(300)).await;
        endpoint.add_local(local)?;
    }
    Ok(())
}

/// The number of successful connections, and of connections that ended because processes were
/// stopped.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    done: u64,
    stopped: u64,
}

/// Makes one connection after the other, until a time.
async fn work(
    endpoint: Endpoint,
    server: SocketAddr,
    first: u64,
    end: Instant,
) -> Result<Counts, Failure> {
    let mut counts = Counts::default();
    while Instant::now() < end {
        let number = first + counts.done + counts.stopped;
        tokio::select! {
            biased;
            () = stopped() => counts.stopped += 1,
            result = session(&endpoint, server, number) => match result {
                Ok(()) => counts.done += 1,
                Err(error) => return Err(format!("connection {number}: {error}").into()),
            },
        }
    }
    Ok(counts)
}

/// Waits until this process got no time for [`STOPPED`].
async fn stopped() {
    let tick = Duration::from_secs(1);
    loop {
        let due = Instant::now() + tick;
        sleep(tick).await;
        if due.elapsed() > STOPPED {
            return;
        }
    }
}

async fn session(endpoint: &Endpoint, server: SocketAddr, number: u64) -> Result<(), Failure> {
    let connecting = endpoint.connect(server, "localhost")?;
    let connection = timeout(PATIENCE, connecting).await??;
    // A second handle, for reports of errors: `talk` drops its own handle.
    let watched = connection.clone();
    match timeout(PATIENCE, talk(connection, number)).await {
        Ok(result) => result,
        Err(_) => Err(format!("stuck: {:#?} {:#?}", watched.path_stats(), watched.stats()).into()),
    }
}

async fn talk(connection: Connection, number: u64) -> Result<(), Failure> {
    let size = (number.wrapping_mul(7919) % LARGEST as u64) as usize;
    echo(&connection, size).await?;
    let paths = connection.paths();
    let closed = paths.get(number as usize % paths.len().max(1));
    // The last path cannot be closed.
    let _may_be_refused = closed.map(mpquic_tokio::Path::close);
    echo(&connection, size / 2).await?;
    match number % 3 {
        0 => connection.close(0u32.into(), b"done"),
        1 => drop(connection),
        _ => {
            let (mut send, _receive) = connection.open_bi().await?;
            send.write_all(CLOSE).await?;
            send.finish()?;
            connection.closed().await;
        }
    }
    Ok(())
}

async fn echo(connection: &Connection, size: usize) -> Result<(), Failure> {
    let data: Vec<u8> = (0..size).map(|index| (index * 31 / 7) as u8).collect();
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(&data).await?;
    send.finish()?;
    if receive.read_to_end(LARGEST).await? == data {
        Ok(())
    } else {
        Err("something else came back".into())
    }
}
