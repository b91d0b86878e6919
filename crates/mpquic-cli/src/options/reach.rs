//! The options of clients that say how a server is reached, and trusted.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::options::hosts::parse_address;
use crate::options::{Connections, Local, TrustArgs, parse_interface, parse_local};

// (A doc comment here would replace the help text of the command.)
#[derive(Debug, Args)]
pub(crate) struct Reach {
    /// Open a path from this local address or interface, once it is there; repeat for several. In
    /// the names of interfaces, * stands for any characters and ? for one, here and in other
    /// options
    #[arg(long, value_name = "ADDR|IFACE", value_parser = parse_local)]
    pub(crate) local: Vec<Local>,
    /// Open no path over this interface; repeat for several. Tunnels, bridges to containers, and a
    /// router's bridge to its own network are always left out unless --local names them
    #[arg(long, value_name = "IFACE", conflicts_with = "local", value_parser = parse_interface)]
    pub(crate) exclude: Vec<String>,
    /// Connect to this address instead of the address of the URL's host; repeat for further
    /// addresses of the same server
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_address)]
    pub(crate) server_addr: Vec<SocketAddr>,
    /// Open at most this many paths
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) paths: Option<u32>,
    /// Give up if the handshake with the server takes longer than this
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) connect_timeout: u64,
    #[command(flatten)]
    pub(crate) connections: Connections,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    /// Client certificate for servers that ask for one: a chain, the client's own certificate first
    #[arg(long, value_name = "PEM", requires = "client_key")]
    pub(crate) client_cert: Option<PathBuf>,
    /// Private key of the client certificate
    #[arg(long, value_name = "PEM", requires = "client_cert")]
    pub(crate) client_key: Option<PathBuf>,
    /// File of servers trusted by --first-use, with a line of HOST:PORT and fingerprint for each
    /// [default: known_hosts in $XDG_STATE_HOME/mpquic or ~/.local/state/mpquic]
    #[arg(long, value_name = "FILE", requires = "first_use")]
    pub(crate) known_hosts: Option<PathBuf>,
}

// How long a transfer is kept up. (See above.)
#[derive(Debug, Args)]
pub(crate) struct Patience {
    /// After a lost connection, retry over new connections until no new data has arrived for this
    /// time; 0 to fail at once
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(0..=31_536_000))]
    pub(crate) retry_time: u64,
    #[command(flatten)]
    pub(crate) stall: Stall,
}

#[derive(Debug, Args)]
pub(crate) struct Stall {
    /// Treat a connection without progress for this time as lost
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    stall_timeout: u64,
}

impl Stall {
    /// The longest time without progress.
    pub(crate) fn limit(&self) -> Duration {
        Duration::from_secs(self.stall_timeout)
    }
}
