//! A packet scheduler of one's own, written against the public API, at work on two loopback paths.
//!
//! `cargo run --example own_scheduler`

use std::error::Error;

use mpquic_tokio::sched::{Decision, Scheduler, View, factory};
use mpquic_tokio::{
    ClientConfig, Endpoint, ServerConfig, certificate_fingerprint, default_transport,
};

/// Sends on the path with the most room in its window.
#[derive(Debug)]
struct MostRoom;

impl Scheduler for MostRoom {
    fn select(&mut self, view: &View<'_>) -> Decision {
        match view.sendable().max_by_key(|path| path.available_window()) {
            Some(path) => Decision::send_up_to(path.id, path.available_window() / 2),
            None => Decision::Blocked,
        }
    }

    fn name(&self) -> &'static str {
        "most-room"
    }
}

const SIZE: usize = 32 << 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut transport = default_transport();
    transport.scheduler = factory("most-room", || Box::new(MostRoom));

    let (config, certificate) = ServerConfig::self_signed(&["localhost"], &[b"example"])?;
    let config = config.transport_config(transport.build()?);
    let server = Endpoint::server(config, "127.0.0.1:0".parse()?)?;
    let address = server.local_addr()?;
    tokio::spawn(async move {
        let connection = server.accept().await.ok_or("closed")?.await?;
        let mut stream = connection.open_uni().await?;
        stream.write_chunk(vec![7; SIZE].into()).await?;
        stream.finish()?;
        connection.closed().await;
        Ok::<(), Box<dyn Error + Send + Sync>>(())
    });

    let pin = certificate_fingerprint(&certificate);
    let client = Endpoint::builder()
        .bind("127.0.0.1:0".parse()?)
        .bind("127.0.0.2:0".parse()?)
        .client(ClientConfig::with_pin(pin, &[b"example"])?)
        .build()?;
    let connection = client.connect(address, "localhost")?.await?;
    let received = connection.accept_uni().await?.read_to_end(SIZE).await?;
    assert_eq!(received.len(), SIZE);
    for path in connection.path_stats() {
        let (local, bytes) = (path.four_tuple.local, path.bytes_received);
        println!("path {} from {local}: {bytes} bytes", path.id);
    }
    connection.close(0u32.into(), b"done");
    client.wait_idle().await;
    Ok(())
}
