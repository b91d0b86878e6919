//! A load balancer for QUIC with any number of paths: it forwards datagrams to the server that
//! their connection ID names, and knows nothing of connections.
//!
//! ```text
//! cargo run -p mpquic-lb --example balancer -- pool.toml
//! ```
//!
//! The file says where to listen, how connection IDs are read, and which servers there are. SIGHUP
//! reads it again: with `drain = true` a server gets no new connections, and one that is gone gets
//! nothing. With a `retry_key`, clients have to prove their address before a server hears of them.

use std::collections::BTreeSet;
use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use mpquic_core::crypto::{RetryTokenKey, RetryTokens};
use mpquic_lb::{Balancer, Config, ServerId};
use serde::Deserialize;
use tokio::signal::unix::{SignalKind, signal};

mod forward;

use forward::Forwarder;

/// Forwards datagrams to the server that their connection ID names.
#[derive(Parser)]
struct Args {
    /// Where to listen, the configurations and the servers
    file: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pool {
    listen: SocketAddr,
    config: Vec<Read>,
    server: Vec<Backend>,
    /// Those of tokens: made with the first, taken with all.
    #[serde(default)]
    retry_key: Vec<RetryKey>,
}

/// How connection IDs of one rotation are read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    rotation: u8,
    server_id_length: usize,
    nonce_length: usize,
    /// 32 hexadecimal digits.
    key: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RetryKey {
    sequence: u8,
    /// 32 hexadecimal digits.
    key: String,
    /// 24 hexadecimal digits.
    iv: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Backend {
    /// The same for each configuration.
    id: String,
    address: SocketAddr,
    #[serde(default)]
    drain: bool,
}

/// How many addresses of clients that begin connections are remembered.
const REMEMBERED: usize = 100_000;

impl Pool {
    fn read(file: &Path) -> Result<Self, Box<dyn Error>> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let pool = toml::from_str(&text);
        Ok(pool.map_err(|error| format!("{}: {error}", file.display()))?)
    }

    fn apply(&self, balancer: &mut Balancer) -> Result<(), Box<dyn Error>> {
        let rotations: BTreeSet<_> = self.config.iter().map(|config| config.rotation).collect();
        for gone in (0..7).filter(|rotation| !rotations.contains(rotation)) {
            balancer.remove_config(gone);
        }
        for read in &self.config {
            let config = Config::new(read.rotation, read.server_id_length, read.nonce_length)?;
            balancer.set_config(match &read.key {
                Some(key) => config.with_key(bytes(key)?),
                None => config,
            });
        }
        let present: BTreeSet<_> = self.server.iter().map(|server| server.address).collect();
        for gone in balancer
            .servers()
            .filter(|server| !present.contains(server))
            .collect::<Vec<_>>()
        {
            balancer.remove_server(gone);
        }
        for server in &self.server {
            let id: ServerId = server.id.parse()?;
            for rotation in &rotations {
                balancer.add_server(*rotation, id, server.address)?;
            }
            if server.drain {
                balancer.drain(server.address)
            } else {
                balancer.resume(server.address)
            };
        }
        Ok(())
    }

    /// If clients are to prove their address.
    fn retry_tokens(&self) -> Result<Option<RetryTokens>, Box<dyn Error>> {
        let key = |read: &RetryKey| {
            Ok(RetryTokenKey {
                sequence: read.sequence,
                key: bytes(&read.key)?,
                iv: bytes(&read.iv)?,
            })
        };
        let keys = self.retry_key.iter().map(key);
        let keys = keys.collect::<Result<Vec<_>, Box<dyn Error>>>()?;
        match keys[..] {
            [] => Ok(None),
            _ => Ok(Some(RetryTokens::new(&keys)?)),
        }
    }
}

fn bytes<const N: usize>(text: &str) -> Result<[u8; N], String> {
    let wrong = || {
        format!(
            "a key or an iv has not the {} hexadecimal digits it needs",
            2 * N
        )
    };
    if text.len() != 2 * N || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate() {
        let pair = &text[2 * index..2 * index + 2];
        *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
    }
    Ok(bytes)
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let pool = Pool::read(&args.file)?;
    let mut balancer = Balancer::new(REMEMBERED, rand::random());
    pool.apply(&mut balancer)?;
    let tokens = pool.retry_tokens()?;
    let forwarder = Forwarder::bind(pool.listen, balancer).await?;
    forwarder.set_retry_tokens(tokens);
    println!("listening on {}", forwarder.local_addr());
    let mut again = signal(SignalKind::hangup())?;
    let reading = async {
        while again.recv().await.is_some() {
            let read = Pool::read(&args.file).and_then(|pool| {
                forwarder.set_retry_tokens(pool.retry_tokens()?);
                forwarder.with_balancer(|balancer| pool.apply(balancer))
            });
            match read {
                Ok(()) => eprintln!("{} was read again", args.file.display()),
                Err(error) => eprintln!("{error}; nothing was changed after that place"),
            }
        }
    };
    tokio::select! {
        () = forwarder.run() => {}
        () = reading => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    println!("Retry packets: {}", forwarder.retries());
    println!(
        "{:?}",
        forwarder.with_balancer(|balancer| balancer.counts())
    );
    Ok(())
}
