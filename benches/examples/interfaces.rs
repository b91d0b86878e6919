//! A download over all network interfaces, which prints events of its paths and gaps in its data.
//! `benches/interfaces` and `benches/fleet` run the download while links and addresses change.
//!
//! ```text
//! interfaces server PORT
//! interfaces client ADDRESS [ADDRESS..]
//! ```
//!
//! The server sends to each client until the client goes away. Each line of the server's standard
//! input has all addresses to announce from then on, separated by spaces. The arguments of the
//! client are the server's addresses; the client connects to the first one, and stops at the end of
//! its standard input. Each line of its output begins with the seconds since 1970:
//!
//! ```text
//! 1.5 event PATH LOCAL EVENT          an event of a path
//! 1.5 gap SECONDS                     a time without data, of more than 10 ms
//! 1.5 ended BYTES                     the download ended without an error
//! ```

use std::io::{BufRead, Read};
use std::net::{Ipv6Addr, SocketAddr};
use std::time::{Duration, SystemTime};

use mpquic_benches::process::Failure;
use mpquic_tokio::{ClientConfig, Connection, Endpoint, ServerAddress, ServerConfig};
use tokio::runtime::Builder;
use tokio::time::Instant;

const ALPN: &[&[u8]] = &[b"interfaces"];
/// Shorter gaps are not printed.
const SHORT: Duration = Duration::from_millis(10);

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    match &words[..] {
        ["server", port] => runtime.block_on(serve(port.parse()?)),
        ["client", addresses @ ..] if !addresses.is_empty() => {
            let addresses = addresses.iter().map(|address| address.parse());
            let addresses = addresses.collect::<Result<Vec<SocketAddr>, _>>()?;
            runtime.block_on(download(addresses))
        }
        _ => Err("interfaces server PORT | client ADDRESS [ADDRESS..]".into()),
    }
}

async fn serve(port: u16) -> Result<(), Failure> {
    let (config, _) = ServerConfig::self_signed(&["localhost"], ALPN)?;
    let server = Endpoint::server(config, (Ipv6Addr::UNSPECIFIED, port).into())?;
    println!("{}", server.local_addr()?);
    let announcing = server.clone();
    // A thread of its own: a runtime would wait for the end of the input.
    std::thread::spawn(move || announce(&announcing));
    while let Some(incoming) = server.accept().await {
        tokio::spawn(async move {
            let connection = incoming.await?;
            let mut stream = connection.open_uni().await?;
            let block = vec![7; 1 << 16];
            // The task ends with the connection.
            while stream.write_all(&block).await.is_ok() {}
            Ok::<_, Failure>(())
        });
    }
    Ok(())
}

/// Announces the addresses of each line of the input, until the input ends.
fn announce(server: &Endpoint) -> Result<(), Failure> {
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let addresses = line
            .split_whitespace()
            .map(|address| Ok(ServerAddress::new(address.parse()?)));
        let addresses = addresses.collect::<Result<Vec<_>, Failure>>()?;
        server.announce_addresses(&addresses)?;
    }
    Ok(())
}

async fn download(addresses: Vec<SocketAddr>) -> Result<(), Failure> {
    let first = *addresses.first().ok_or("no address")?;
    let config = ClientConfig::dangerous_insecure(ALPN)?
        .server_addresses(addresses)
        .use_alternative_addresses(true);
    let client = Endpoint::builder()
        .all_interfaces()
        .client(config)
        .build()?;
    let connection = client.connect(first, "localhost")?.await?;
    let events = tokio::spawn(tell(connection.clone()));
    let mut stream = connection.accept_uni().await?;
    let end = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let mut total = 0;
    let receive = async {
        let mut last = Instant::now();
        while let Some(chunk) = stream.read_chunk(usize::MAX, true).await? {
            let gap = last.elapsed();
            if gap > SHORT {
                println!("{:.6} gap {:.6}", now()?, gap.as_secs_f64());
            }
            last = Instant::now();
            total += chunk.bytes.len();
        }
        Ok::<_, Failure>(())
    };
    tokio::select! {
        received = receive => return received.and(Err("the server ended it".into())),
        end = end => end??,
    };
    println!("{:.6} ended {total}", now()?);
    connection.close(0u32.into(), b"done");
    client.wait_idle().await;
    events.await?
}

/// Prints events of paths.
async fn tell(connection: Connection) -> Result<(), Failure> {
    let mut events = connection.path_events();
    while let Some(event) = events.next().await {
        let id = event.path();
        let path = id.and_then(|id| connection.path(id));
        let local = path.and_then(|path| path.local_address());
        let local = local.map_or("-".to_owned(), |local| local.ip().to_string());
        let id = id.map_or("-".to_owned(), |id| id.to_string());
        println!("{:.6} event {id} {local} {event:?}", now()?);
    }
    match events.missed() {
        0 => Ok(()),
        missed => Err(format!("{missed} events missed").into()),
    }
}

fn now() -> Result<f64, Failure> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the script compares it with its own clock"
    )]
    let now = SystemTime::now();
    Ok(now.duration_since(SystemTime::UNIX_EPOCH)?.as_secs_f64())
}
