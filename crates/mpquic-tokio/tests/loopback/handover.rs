//! A server gives its addresses to another one, and keeps its connections.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use mpquic_tokio::{ClientConfig, Connection, Endpoint, ServerConfig};
use tokio::time::timeout;

type Error = Box<dyn std::error::Error + Send + Sync>;

const ALPN: &[&[u8]] = &[b"test"];
const SOON: Duration = Duration::from_secs(10);

fn server(address: SocketAddr) -> Result<Endpoint, Error> {
    let (config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
    Ok(Endpoint::server(config, address)?)
}

/// Both sides of a new connection, from new ports.
async fn connect(
    server: &Endpoint,
    address: SocketAddr,
) -> Result<(Connection, Connection), Error> {
    let client = Endpoint::builder()
        .bind("127.0.0.1:0".parse()?)
        .bind("127.0.0.2:0".parse()?)
        .client(ClientConfig::dangerous_insecure(ALPN)?)
        .build()?;
    let connecting = client.connect(address, "localhost")?;
    let accepted = async {
        let incoming = server.accept().await.ok_or("closed")?;
        Ok::<_, Error>(incoming.await?)
    };
    let both = async { tokio::try_join!(async { Ok(connecting.await?) }, accepted) };
    timeout(SOON, both).await?
}

/// Bytes in each direction, more than a few packets.
async fn exchange(a: &Connection, b: &Connection) -> Result<(), Error> {
    let echo = async {
        let (mut send, mut recv) = b.accept_bi().await?;
        let heard = recv.read_to_end(1 << 20).await?;
        send.write_all(&heard).await?;
        send.finish()?;
        Ok::<_, Error>(())
    };
    let ask = async {
        let (mut send, mut recv) = a.open_bi().await?;
        send.write_all(&[7; 500_000]).await?;
        send.finish()?;
        assert_eq!(recv.read_to_end(1 << 20).await?.len(), 500_000);
        Ok::<_, Error>(())
    };
    timeout(SOON, async { tokio::try_join!(echo, ask) }).await??;
    Ok(())
}

async fn hands_over(at: &str, to: fn(u16) -> SocketAddr) -> Result<(), Error> {
    let old = server(at.parse()?)?;
    let listened = old.local_addr()?;
    let address = to(listened.port());
    let mut before = Vec::new();
    for _ in 0..3 {
        let (a, b) = connect(&old, address).await?;
        b.wait_for_paths(2).await?;
        exchange(&a, &b).await?;
        before.push((a, b));
    }
    let taken = server(listened).err().ok_or("a server goes on")?;
    let kind = |error: Error| error.downcast::<std::io::Error>().map(|error| error.kind());
    assert_eq!(kind(taken).ok(), Some(ErrorKind::AddrInUse));
    old.release_addresses()?;
    for (a, b) in &before {
        exchange(a, b).await?;
    }
    // New clients reach the other server, and a third one does not get the address.
    let new = server(listened)?;
    let taken = server(listened).err().ok_or("the other one has it")?;
    assert_eq!(kind(taken).ok(), Some(ErrorKind::AddrInUse));
    for _ in 0..2 {
        let (a, b) = connect(&new, address).await?;
        b.wait_for_paths(2).await?;
        exchange(&a, &b).await?;
    }
    for (a, b) in &before {
        exchange(a, b).await?;
        let moved = a
            .path_stats()
            .iter()
            .filter(|path| path.packets_lost > 50)
            .count();
        assert_eq!(moved, 0, "both paths work");
    }
    // The next one as well, while the first still has its connections.
    new.release_addresses()?;
    // The tasks of the sockets close them.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let newest = server(listened)?;
    let (a, b) = connect(&newest, address).await?;
    exchange(&a, &b).await?;
    for (a, b) in &before {
        exchange(a, b).await?;
        a.close(0u32.into(), b"");
    }
    timeout(SOON, old.wait_idle()).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_go_on_beside_the_next_server() -> Result<(), Error> {
    hands_over("127.0.0.1:0", |port| ([127, 0, 0, 1], port).into()).await?;
    // A socket for all addresses of both IP versions.
    hands_over("[::]:0", |port| ([127, 0, 0, 1], port).into()).await
}
