//! A long download over one or several paths: its hash, and the memory of both sides, over
//! loopback.
//!
//! ```text
//! cargo run --profile bench -p mpquic-benches --example long_transfer -- [GIB] [PATHS]
//! ```
//!
//! The server is a process of its own and generates the data; the client keeps no data. Both
//! compute the SHA-256 of the data. Their resident memory is read each second.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::id;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use mpquic_benches::now;
use mpquic_benches::process::{Failure, Process, cpu_seconds, resident};
use mpquic_tokio::{ClientConfig, Connection, Endpoint, ServerConfig};
use sha2::{Digest, Sha256};
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

/// Bytes written at a time.
const PIECE: usize = 256 << 10;
/// Pieces read at a time.
const PIECES: usize = 64;
/// Samples to skip at the beginning, while memory grows with the windows.
const WARM: usize = 3;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "server") {
        return runtime()?.block_on(serve());
    }
    let gib: u64 = words.first().map_or(Ok(16), |word| word.parse())?;
    let paths: u8 = words.get(1).map_or(Ok(1), |word| word.parse())?;
    let mut server = Process::start(&["server"])?;
    let address: SocketAddr = server.line()?.parse()?;
    runtime()?.block_on(run(&mut server, address, gib << 30, paths))
}

fn runtime() -> Result<Runtime, Failure> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

fn hex(hash: Sha256) -> String {
    let hash = hash.finalize();
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Serves one download, and prints the SHA-256 of its data.
async fn serve() -> Result<(), Failure> {
    let (config, _) = ServerConfig::self_signed(&["localhost"], &[b"long"])?;
    let endpoint = Endpoint::server(config, "127.0.0.1:0".parse()?)?;
    println!("{}", endpoint.local_addr()?);
    let connection = endpoint.accept().await.ok_or("no endpoint")?.await?;
    let (mut send, mut receive) = connection.accept_bi().await?;
    let mut wanted = [0; 8];
    receive.read_exact(&mut wanted).await?;
    let wanted = u64::from_be_bytes(wanted);
    let mut hash = Sha256::new();
    for number in 0..wanted.div_ceil(PIECE as u64) {
        let rest = wanted - number * PIECE as u64;
        let piece = piece(number, rest.min(PIECE as u64) as usize);
        hash.update(&piece);
        send.write_chunk(piece).await?;
    }
    send.finish()?;
    println!("{}", hex(hash));
    connection.closed().await;
    Ok(())
}

/// The data of a piece: number and place determine each byte.
fn piece(number: u64, length: usize) -> Bytes {
    let mut piece = BytesMut::with_capacity(length + 8);
    for index in 0..length.div_ceil(8) as u64 {
        piece.put_u64((number << 32 | index).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
    piece.truncate(length);
    piece.freeze()
}

async fn run(
    server: &mut Process,
    address: SocketAddr,
    bytes: u64,
    paths: u8,
) -> Result<(), Failure> {
    let config = ClientConfig::dangerous_insecure(&[b"long"])?;
    let mut builder = Endpoint::builder().client(config);
    for path in 1..=paths {
        builder = builder.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, path), 0)));
    }
    let endpoint = builder.build()?;
    let connection = endpoint.connect(address, "localhost")?.await?;
    let begin = now();
    let mut samples = Vec::new();
    let hash = tokio::select! {
        hash = download(&connection, bytes) => hex(hash?),
        ended = sample([server.id(), id()], &mut samples) => return Err(ended),
    };
    let time = begin.elapsed().as_secs_f64();
    let cpu = (cpu_seconds(server.id())?, cpu_seconds(id())?);
    println!(
        "{bytes} bytes in {time:.1} s: {:.2} Gbit/s",
        bytes as f64 * 8e-9 / time
    );
    let each = |cpu: f64| cpu * 1e9 / bytes as f64;
    println!(
        "CPU s/GB, hash included: server {:.2}, client {:.2}",
        each(cpu.0),
        each(cpu.1)
    );
    for path in connection.path_stats() {
        println!(
            "path from {}: {} bytes",
            path.four_tuple.local, path.bytes_received
        );
    }
    for (index, side) in ["server", "client"].into_iter().enumerate() {
        let samples: Vec<_> = samples.iter().map(|sample| sample[index]).collect();
        print(side, &samples);
    }
    let expected = server.line()?;
    println!("SHA-256 {hash}");
    connection.close(0u32.into(), b"");
    if hash == expected {
        Ok(())
    } else {
        Err(format!("the server's hash is {expected}").into())
    }
}

async fn download(connection: &Connection, bytes: u64) -> Result<Sha256, Failure> {
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(&bytes.to_be_bytes()).await?;
    send.finish()?;
    let mut hash = Sha256::new();
    let mut pieces = [const { Bytes::new() }; PIECES];
    let mut received = 0;
    while let Some(count) = receive.read_chunks(&mut pieces).await? {
        for piece in &mut pieces[..count] {
            hash.update(&piece);
            received += piece.len() as u64;
            piece.clear();
        }
    }
    if received == bytes {
        Ok(hash)
    } else {
        Err(format!("received {received} bytes").into())
    }
}

/// Reads the memory of both sides each second; returns only after a failure to read it.
async fn sample(processes: [u32; 2], samples: &mut Vec<[u64; 2]>) -> Failure {
    loop {
        sleep(Duration::from_secs(1)).await;
        match (resident(processes[0]), resident(processes[1])) {
            (Ok(server), Ok(client)) => samples.push([server, client]),
            (Err(failure), _) | (_, Err(failure)) => return failure,
        }
    }
}

/// Prints the largest memory, and its growth by least squares.
fn print(side: &str, samples: &[u64]) {
    let most = samples.iter().copied().max().unwrap_or_default() as f64 / f64::from(1 << 20);
    let warm = samples.get(WARM..).unwrap_or_default();
    let count = warm.len() as f64;
    let middle = (count - 1.0) / 2.0;
    let mean = warm.iter().sum::<u64>() as f64 / count;
    let (mut both, mut squares) = (0.0, 0.0);
    for (second, bytes) in warm.iter().enumerate() {
        both += (second as f64 - middle) * (*bytes as f64 - mean);
        squares += (second as f64 - middle).powi(2);
    }
    let slope = both / squares / 1024.0;
    println!("{side}: at most {most:.1} MiB resident; slope after {WARM} s {slope:.1} KiB/s");
    let each = samples
        .iter()
        .map(|bytes| format!("{:.1}", *bytes as f64 / f64::from(1 << 20)));
    println!("{side}, each second: {}", Vec::from_iter(each).join(" "));
}
