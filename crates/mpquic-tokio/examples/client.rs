//! Sends 64 MiB over all paths, gets them back, and shows what each path carried.
//!
//! `cargo run --example client -- 127.0.0.1:4433 127.0.0.1 127.0.0.2`: a server's address, then
//! local addresses; without local addresses, every network interface is used.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};

use mpquic_tokio::{ClientConfig, Endpoint};

const LENGTH: usize = 64 << 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let server: SocketAddr = arguments.next().ok_or("which server?")?.parse()?;
    let locals: Vec<IpAddr> = arguments.map(|ip| ip.parse()).collect::<Result<_, _>>()?;
    let mut builder = Endpoint::builder().client(ClientConfig::dangerous_insecure(&[b"echo"])?);
    if locals.is_empty() {
        builder = builder.all_interfaces();
    }
    for ip in locals {
        builder = builder.bind(SocketAddr::new(ip, 0));
    }
    let endpoint = builder.build()?;
    let connection = endpoint.connect(server, "localhost")?.await?;
    let mut events = connection.path_events();
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            println!("{event:?}");
        }
    });

    let (mut send, mut recv) = connection.open_bi().await?;
    tokio::spawn(async move {
        let data = vec![7; LENGTH];
        if let Err(error) = send.write_all(&data).await {
            println!("{error}");
        }
    });
    let mut received = 0;
    while let Some(chunk) = recv.read_chunk(usize::MAX, true).await? {
        received += chunk.bytes.len();
    }
    println!("{received} bytes came back");
    for path in connection.path_stats() {
        println!(
            "path {} from {}: {} bytes sent, {} received, RTT {:?}",
            path.id, path.four_tuple.local, path.bytes_sent, path.bytes_received, path.rtt
        );
    }
    connection.close(0u32.into(), b"done");
    endpoint.wait_idle().await;
    Ok(())
}
