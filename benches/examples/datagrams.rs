//! A server sends DATAGRAMs as fast as it can, over loopback. Prints the places at which DATAGRAMs
//! are lost.
//!
//! ```text
//! cargo run --release -p mpquic-benches --example datagrams -- [DATAGRAMS_PER_TRAIN [CONTROLLER]]
//! ```
//!
//! Client and server are processes of their own, each on one thread, with the windows and buffers
//! of `benches/compare`. The server counts DATAGRAMs that were lost on the way. The client counts
//! DATAGRAMs that its connection received and its application did not get. The kernel counts the
//! times when a socket's buffer had no room for a datagram or a train.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use mpquic_benches::process::{Failure, Process};
use mpquic_core::config::TransportConfig;
use mpquic_tokio::{ClientConfig, Endpoint, FrameKind, ServerConfig, TransportOptions};
use tokio::runtime::Builder;
use tokio::time::{Instant, timeout_at};

const ALPN: &[&[u8]] = &[b"datagrams"];
const SIZE: usize = 1000;
const WINDOW: u64 = 8 << 20;
const BUFFER: usize = 8 << 20;
const DURATION: Duration = Duration::from_secs(3);
const ROUNDS: usize = 3;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    match words[..] {
        ["server", train, controller] => runtime.block_on(serve(transport(train, controller)?)),
        [] | [_] | [_, _] => {
            let train = words.first().copied().unwrap_or("44");
            let controller = words.get(1).copied().unwrap_or("cubic");
            for _ in 0..ROUNDS {
                let mut server = Process::start(&["server", train, controller])?;
                let address = server.line()?.parse()?;
                let before = full_buffers()?;
                runtime.block_on(receive(address, transport(train, controller)?))?;
                println!("  kernel: no room {} times", full_buffers()? - before);
                println!("  server: {}", server.line()?);
            }
            Ok(())
        }
        _ => Err("expected DATAGRAMS_PER_TRAIN and CONTROLLER, or less".into()),
    }
}

fn transport(train: &str, controller: &str) -> Result<TransportConfig, Failure> {
    let controller = mpquic_cc::by_name(controller)?;
    let mut transport = TransportOptions::new(mpquic_sched::default(), controller);
    transport.initial_receive_window = WINDOW;
    transport.max_receive_window = WINDOW;
    transport.send_window = WINDOW;
    transport.max_mtu = 1452;
    transport.max_transmit_segments = train.parse()?;
    Ok(transport.build()?)
}

/// Sends numbers until the client closes the connection.
async fn serve(transport: TransportConfig) -> Result<(), Failure> {
    let (config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
    let builder = Endpoint::builder().server(config.transport_config(transport));
    let builder = builder.socket_buffer(BUFFER);
    let endpoint = builder.bind("127.0.0.1:0".parse()?).build()?;
    println!("{}", endpoint.local_addr()?);
    let connection = endpoint.accept().await.ok_or("closed")?.await?;
    for number in 0_u64.. {
        let mut data = BytesMut::with_capacity(SIZE);
        data.put_u64(number);
        data.put_bytes(0x5a, SIZE - 8);
        if connection.send_datagram_wait(data.freeze()).await.is_err() {
            break;
        }
    }
    let path = connection.path_stats().pop().ok_or("no path")?;
    let (sent, lost, rtt) = (path.packets_sent, path.packets_lost, path.rtt);
    let window = path.window >> 10;
    println!("{sent} packets sent, {lost} lost, window {window} KiB, {rtt:.1?}");
    Ok(())
}

async fn receive(server: SocketAddr, transport: TransportConfig) -> Result<(), Failure> {
    let config = ClientConfig::dangerous_insecure(ALPN)?.transport_config(transport);
    let builder = Endpoint::builder().client(config).socket_buffer(BUFFER);
    let endpoint = builder.bind("127.0.0.1:0".parse()?).build()?;
    let connection = endpoint.connect(server, "localhost")?.await?;
    let end = Instant::now() + DURATION;
    let (mut read, mut next, mut lost) = (0_u64, 0, 0);
    while let Ok(data) = timeout_at(end, connection.read_datagram()).await {
        let number = data?.get_u64();
        lost += number - next;
        next = number + 1;
        read += 1;
    }
    // DATAGRAMs that have arrived, and that the application has not read yet.
    let frames = connection.stats().frames_received[FrameKind::Datagram];
    let waiting = frames - read;
    println!("client: {read} read, {waiting} waiting or dropped by the connection, {lost} missing");
    connection.close(0u32.into(), b"");
    endpoint.wait_idle().await;
    Ok(())
}

/// The number of times that a datagram or a train found no room in a socket's buffer.
fn full_buffers() -> Result<u64, Failure> {
    let text = fs::read_to_string("/proc/net/snmp")?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next(), lines.next());
    let (names, values) = names.zip(values).ok_or("no figures of UDP")?;
    let mut figures = names.split(' ').zip(values.split(' '));
    let figure = figures.find(|(name, _)| *name == "RcvbufErrors");
    Ok(figure.ok_or("no such figure")?.1.parse()?)
}
