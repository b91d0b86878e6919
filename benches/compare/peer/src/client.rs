//! The client of each workload.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::options::{HANDSHAKE_CONCURRENCY, REQUEST_CONCURRENCY, REQUEST_SIZE, STREAMS};
use crate::report::Meter;
use crate::request::{DATAGRAMS, pieces, request};
use crate::{Connection, Options, ReceiveStream, Result, SendStream, Stack, Workload, tls};

/// Pieces read at a time.
const PIECES: usize = 64;

/// Runs a workload.
pub(crate) async fn run<S: Stack>(
    stack: S,
    server: SocketAddr,
    workload: Workload,
    options: &Options,
) -> Result<()> {
    let stack = Arc::new(stack);
    match workload {
        Workload::Handshakes | Workload::Resumed => {
            handshakes(stack, server, workload, options).await
        }
        Workload::Memory => idle(stack, server, options.connections).await,
        _ => {
            let connection = stack.connect(server).await?;
            let report = on_connection(&connection, workload, options).await;
            connection.close();
            // Time for the last packet to leave.
            tokio::time::sleep(Duration::from_millis(50)).await;
            report
        }
    }
}

async fn on_connection<C: Connection>(
    connection: &C,
    workload: Workload,
    options: &Options,
) -> Result<()> {
    match workload {
        Workload::Streams => parallel(connection, options.bytes()).await,
        Workload::Requests => requests(connection, options.requests).await,
        Workload::Datagrams => datagrams(connection, options.duration()).await,
        Workload::Upload => single(connection, 0, options.bytes()).await,
        _ => single(connection, options.bytes(), 0).await,
    }
}

async fn single<C: Connection>(connection: &C, down: u64, up: u64) -> Result<()> {
    let meter = Meter::start()?;
    exchange(connection, down, up).await?;
    meter.stop(down + up, &shares(&connection.received_by_path()))
}

/// The share of the bytes over each path.
fn shares(bytes: &[u64]) -> String {
    let total = bytes.iter().sum::<u64>().max(1) as f64;
    let percent = |bytes: &u64| format!("{:.0}%", 100.0 * *bytes as f64 / total);
    match bytes {
        [] | [_] => String::new(),
        _ => format!(
            "by path: {}",
            Vec::from_iter(bytes.iter().map(percent)).join(", ")
        ),
    }
}

/// One stream: sends eight bytes and `rest` more, receives `wanted` bytes.
async fn exchange<C: Connection>(connection: &C, wanted: u64, rest: u64) -> Result<()> {
    let (mut send, receive) = connection.open().await?;
    if rest <= REQUEST_SIZE {
        send.write(request(wanted, rest as usize)).await?;
    } else {
        send.write(request(wanted, 0)).await?;
        for piece in pieces(rest) {
            send.write(piece).await?;
        }
    }
    send.finish().await?;
    expect(receive, wanted).await
}

/// Reads a stream to its end.
async fn expect<R: ReceiveStream>(mut receive: R, wanted: u64) -> Result<()> {
    let mut received = 0;
    let mut buffer = [const { Bytes::new() }; PIECES];
    while let Some(count) = receive.read(&mut buffer).await? {
        for piece in &mut buffer[..count] {
            received += std::mem::take(piece).len() as u64;
        }
    }
    if received == wanted {
        Ok(())
    } else {
        Err(format!("received {received} bytes of {wanted}").into())
    }
}

async fn parallel<C: Connection>(connection: &C, bytes: u64) -> Result<()> {
    let meter = Meter::start()?;
    let mut streams = JoinSet::new();
    for _ in 0..STREAMS {
        let connection = connection.clone();
        streams.spawn(async move { exchange(&connection, bytes / STREAMS, 0).await });
    }
    all(streams).await?;
    meter.stop(bytes, "")
}

async fn requests<C: Connection>(connection: &C, count: u64) -> Result<()> {
    let meter = Meter::start()?;
    let mut workers = JoinSet::new();
    let each = count / REQUEST_CONCURRENCY;
    for _ in 0..REQUEST_CONCURRENCY {
        let connection = connection.clone();
        workers.spawn(async move {
            for _ in 0..each {
                exchange(&connection, REQUEST_SIZE, REQUEST_SIZE - 8).await?;
            }
            Ok(())
        });
    }
    all(workers).await?;
    meter.stop(each * REQUEST_CONCURRENCY, "")
}

async fn datagrams<C: Connection>(connection: &C, duration: Duration) -> Result<()> {
    let (mut send, receive) = connection.open().await?;
    send.write(request(DATAGRAMS, 0)).await?;
    send.finish().await?;
    let first = connection.receive_datagram().await?.get_u64();
    let meter = Meter::start()?;
    let end = Instant::now() + duration;
    let (mut received, mut last) = (0, first);
    while let Ok(data) = timeout_at(end, connection.receive_datagram()).await {
        last = data?.get_u64();
        received += 1;
    }
    drop(receive);
    let sent = last.saturating_sub(first).max(1);
    let lost = 100.0 * (1.0 - received as f64 / sent as f64);
    meter.stop(received, &format!("{lost:.1}% lost"))
}

/// Connects, has a byte sent in each direction, closes; again and again.
async fn handshakes<S: Stack>(
    stack: Arc<S>,
    server: SocketAddr,
    workload: Workload,
    options: &Options,
) -> Result<()> {
    // Warms up, and collects session tickets: each connection gives two and takes one.
    for _ in 0..2 * HANDSHAKE_CONCURRENCY {
        connect_once(&*stack, server).await?;
    }
    let verified = tls::verified();
    let meter = Meter::start()?;
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU64::new(0));
    let mut workers = JoinSet::new();
    for _ in 0..HANDSHAKE_CONCURRENCY {
        let (stack, stop, done) = (stack.clone(), stop.clone(), done.clone());
        workers.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                connect_once(&*stack, server).await?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
    }
    tokio::time::sleep(options.duration()).await;
    meter.stop(done.load(Ordering::Relaxed), "")?;
    stop.store(true, Ordering::Relaxed);
    all(workers).await?;
    if workload == Workload::Resumed && tls::verified() != verified {
        return Err("handshakes were full, not resumed".into());
    }
    Ok(())
}

async fn connect_once<S: Stack>(stack: &S, server: SocketAddr) -> Result<()> {
    let connection = stack.connect(server).await?;
    exchange(&connection, 1, 0).await?;
    connection.close();
    Ok(())
}

/// Keeps connections until the process is ended; another process reads the server's memory.
async fn idle<S: Stack>(stack: Arc<S>, server: SocketAddr, count: u64) -> Result<()> {
    let meter = Meter::start()?;
    let mut workers = JoinSet::<Result<()>>::new();
    for worker in 0..HANDSHAKE_CONCURRENCY {
        let stack = stack.clone();
        workers.spawn(async move {
            for _ in (worker..count).step_by(HANDSHAKE_CONCURRENCY as usize) {
                std::mem::forget(stack.connect(server).await?);
            }
            Ok(())
        });
    }
    all(workers).await?;
    meter.stop(count, "")?;
    std::future::pending().await
}

async fn all(mut tasks: JoinSet<Result<()>>) -> Result<()> {
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}
