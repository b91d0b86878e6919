//! Memory of a server with idle connections, over loopback.
//!
//! ```text
//! cargo run --profile bench -p mpquic-benches --example idle_connections -- [CONNECTIONS]
//! ```
//!
//! The server is a process of its own. Prints the growth of its resident memory per connection.

use std::io::Read;
use std::net::SocketAddr;
use std::time::Duration;

use mpquic_benches::process::{Failure, Process, resident};
use mpquic_tokio::{ClientConfig, Endpoint, ServerConfig, default_transport};
use tokio::runtime::{Builder, Runtime};

/// Handshakes under way at a time.
const CONCURRENCY: usize = 50;
/// Time until acknowledgements, session tickets and MTU probes have ended.
const REST: Duration = Duration::from_secs(3);
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "server") {
        return serve();
    }
    let connections = words.first().map_or(Ok(5000), |word| word.parse())?;
    let mut server = Process::start(&["server"])?;
    let address: SocketAddr = server.line()?.parse()?;
    let runtime = runtime()?;
    let _first = runtime.block_on(connect(address, 1))?;
    let mut report = || -> Result<u64, Failure> {
        server.ask()?;
        Ok(server.line()?.parse()?)
    };
    let before = report()?;
    let _rest = runtime.block_on(connect(address, connections))?;
    let after = report()?;
    let each = (after as f64 - before as f64) / f64::from(connections);
    println!("resident: {each:.0} bytes per connection");
    server.end()
}

fn runtime() -> Result<Runtime, Failure> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Serves until the standard input ends; reports at each line of the input.
fn serve() -> Result<(), Failure> {
    let (sender, mut lines) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin();
        while stdin.read_exact(&mut [0]).is_ok() && sender.send(()).is_ok() {}
    });
    let runtime = runtime()?;
    let _within = runtime.enter();
    let (config, _) = ServerConfig::self_signed(&["localhost"], &[b"idle"])?;
    let mut transport = default_transport();
    transport.max_idle_timeout = Some(IDLE_TIMEOUT);
    let endpoint = Endpoint::server(
        config.transport_config(transport.build()?),
        "127.0.0.1:0".parse()?,
    )?;
    println!("{}", endpoint.local_addr()?);
    runtime.spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            tokio::spawn(async move {
                if let Ok(connection) = incoming.await {
                    connection.closed().await;
                }
            });
        }
    });
    runtime.block_on(async {
        while lines.recv().await.is_some() {
            println!("{}", resident(std::process::id())?);
        }
        std::process::exit(0)
    })
}

/// Opens connections, and keeps them idle.
async fn connect(
    server: SocketAddr,
    count: u32,
) -> Result<(Endpoint, Vec<mpquic_tokio::Connection>), Failure> {
    let mut transport = default_transport();
    transport.max_idle_timeout = Some(IDLE_TIMEOUT);
    let config = ClientConfig::dangerous_insecure(&[b"idle"])?.transport_config(transport.build()?);
    let endpoint = Endpoint::client("127.0.0.1:0".parse()?)?;
    endpoint.set_default_client_config(config);
    let mut connections = Vec::new();
    while connections.len() < count as usize {
        let batch = CONCURRENCY.min(count as usize - connections.len());
        let started: Result<Vec<_>, _> = (0..batch)
            .map(|_| endpoint.connect(server, "localhost"))
            .collect();
        for connecting in started? {
            connections.push(connecting.await?);
        }
    }
    tokio::time::sleep(REST).await;
    Ok((endpoint, connections))
}
