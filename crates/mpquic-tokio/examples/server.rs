//! Listens on one or more addresses and sends every stream back.
//!
//! `cargo run --example server -- 127.0.0.1:4433 127.0.0.3:4433`

use std::error::Error;

use mpquic_tokio::{Connection, Endpoint, ServerConfig, certificate_fingerprint};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (config, certificate) = ServerConfig::self_signed(&["localhost"], &[b"echo"])?;
    let mut builder = Endpoint::builder().server(config);
    for address in std::env::args().skip(1) {
        builder = builder.bind(address.parse()?);
    }
    let endpoint = builder.build()?;
    let pin = certificate_fingerprint(&certificate).map(|byte| format!("{byte:02x}"));
    println!(
        "listening on {:?}, certificate {}",
        endpoint.local_addrs(),
        pin.concat()
    );
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            let result = match incoming.await {
                Ok(connection) => echo(connection).await,
                Err(error) => Err(error.into()),
            };
            if let Err(error) = result {
                println!("{error}");
            }
        });
    }
    Ok(())
}

async fn echo(connection: Connection) -> Result<(), Box<dyn Error + Send + Sync>> {
    loop {
        let (mut send, mut recv) = connection.accept_bi().await?;
        tokio::spawn(async move {
            while let Some(chunk) = recv.read_chunk(usize::MAX, true).await? {
                send.write_chunk(chunk.bytes).await?;
            }
            send.finish()?;
            Ok::<_, Box<dyn Error + Send + Sync>>(())
        });
    }
}
