//! Measures a bulk transfer over loopback: `cargo run --profile bench --example bulk -- [PATHS]
//! [MIB]`.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::time::Instant;

use bytes::Bytes;
use mpquic_tokio::{ClientConfig, Endpoint, ServerConfig};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let paths: u8 = arguments.next().map_or(Ok(2), |text| text.parse())?;
    let mib: usize = arguments.next().map_or(Ok(1024), |text| text.parse())?;
    let (config, _) = ServerConfig::self_signed(&["localhost"], &[b"bulk"])?;
    let server = Endpoint::server(config, "127.0.0.1:0".parse()?)?;
    let address = server.local_addr()?;
    let mut builder = Endpoint::builder().client(ClientConfig::dangerous_insecure(&[b"bulk"])?);
    for path in 0..paths {
        builder = builder.bind(SocketAddr::new(
            Ipv4Addr::new(127, 0, 0, path + 1).into(),
            0,
        ));
    }
    let client = builder.build()?;

    tokio::spawn(async move {
        let connection = server.accept().await.ok_or("closed")?.await?;
        let mut stream = connection.open_uni().await?;
        let piece = Bytes::from(vec![7; 1 << 20]);
        for _ in 0..mib {
            stream.write_chunk(piece.clone()).await?;
        }
        stream.finish()?;
        connection.closed().await;
        Ok::<_, Box<dyn Error + Send + Sync>>(())
    });

    let connection = client.connect(address, "localhost")?.await?;
    let mut stream = connection.accept_uni().await?;
    let start = Instant::now();
    let mut received = 0;
    let mut pieces: Vec<Bytes> = vec![Bytes::new(); 64];
    while let Some(count) = stream.read_chunks(&mut pieces).await? {
        for piece in &mut pieces[..count] {
            received += std::mem::take(piece).len();
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{received} bytes in {seconds:.2} s: {:.2} Gbit/s",
        received as f64 * 8e-9 / seconds
    );
    for path in connection.path_stats() {
        println!(
            "path {}: {} MB received, RTT {:?}, lost {}, MTU {}",
            path.id,
            path.bytes_received / 1_000_000,
            path.rtt,
            path.packets_lost,
            path.mtu
        );
    }
    connection.close(0u32.into(), b"done");
    client.wait_idle().await;
    Ok(())
}
