//! Options that both sides of a measurement need.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::Role;

/// The measured work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// One stream, from server to client
    Bulk,
    /// Eight streams at a time, from server to client
    Streams,
    /// Requests and responses of 1 KiB, 100 at a time on one connection
    Requests,
    /// Full handshakes, 64 at a time, each with a byte in each direction
    Handshakes,
    /// Handshakes with a session ticket
    Resumed,
    /// Idle connections, thousands
    Memory,
    /// One stream over two paths
    TwoPaths,
    /// One stream over four paths
    FourPaths,
    /// DATAGRAM frames of 1000 bytes, from server to client
    Datagrams,
    /// One stream, from client to server
    Upload,
}

impl Workload {
    /// Paths between client and server: one for each local address of the client.
    pub fn paths(self) -> u8 {
        match self {
            Self::TwoPaths => 2,
            Self::FourPaths => 4,
            _ => 1,
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// The amount of work, and its conditions.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// MiB to transfer
    #[arg(long, default_value_t = 1024)]
    pub size: u64,
    /// Requests to make
    #[arg(long, default_value_t = 100_000)]
    pub requests: u64,
    /// Connections to keep for the figure of memory
    #[arg(long, default_value_t = 5000)]
    pub connections: u64,
    /// Seconds for workloads that have no end of their own: handshakes and datagrams
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// Receive window of the connection and of each stream, and send window, in KiB
    #[arg(long, default_value_t = 8192)]
    pub window: u64,
    /// Buffers of each socket, in KiB
    #[arg(long, default_value_t = 8192)]
    pub buffer: usize,
    /// Largest UDP payload to discover, in bytes
    #[arg(long, default_value_t = 1452)]
    pub datagram: u16,
    /// Most datagrams in a train (a call to the kernel), for stacks with such an option; quinn, noq
    /// and s2n-quic send 10 at most
    #[arg(long, default_value_t = 44)]
    pub train: usize,
    /// Each stack with its own defaults: controller, windows, packet sizes and buffers
    #[arg(long)]
    pub defaults: bool,
    /// Address of servers
    #[arg(long, default_value_t = Ipv4Addr::LOCALHOST)]
    pub server_address: Ipv4Addr,
    /// Address of clients; further paths have the addresses after it
    #[arg(long, default_value_t = Ipv4Addr::LOCALHOST)]
    pub client_address: Ipv4Addr,
    /// Addresses of clients for further paths, separated by commas, in place of the addresses after
    /// the first
    #[arg(long, value_delimiter = ',')]
    pub further_address: Vec<Ipv4Addr>,
    /// BBR instead of CUBIC; only noq has this option
    #[arg(long)]
    pub bbr: bool,
    /// Over HTTP/3
    #[arg(long, hide = true)]
    pub http3: bool,
    /// The variant of a program that has several
    #[arg(long, hide = true)]
    pub variant: Option<String>,
    /// Directory of cert.pem and key.pem
    #[arg(long, hide = true, default_value = ".")]
    pub credentials: PathBuf,
}

impl Options {
    /// Bytes to transfer.
    pub fn bytes(&self) -> u64 {
        self.size << 20
    }

    /// Receive and send windows, bytes.
    pub fn window_bytes(&self) -> u64 {
        self.window << 10
    }

    /// Size of socket buffers, bytes.
    pub fn buffer_bytes(&self) -> usize {
        self.buffer << 10
    }

    /// The time of workloads without an end of their own.
    pub fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// The address to which server sockets are bound.
    pub fn server_socket(&self) -> SocketAddr {
        SocketAddr::new(self.server_address.into(), 0)
    }

    /// The address to which the only socket of a side is bound.
    pub fn socket(&self, role: Role) -> SocketAddr {
        match role {
            Role::Server => self.server_socket(),
            Role::Client { .. } => self.client_socket(1),
        }
    }

    /// The address of a server at this port.
    pub fn server(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.server_address.into(), port)
    }

    /// The client's address for path `path`, counted from 1.
    pub fn client_socket(&self, path: u8) -> SocketAddr {
        let further = usize::from(path).checked_sub(2);
        let given = further.and_then(|index| self.further_address.get(index));
        let address = given.copied().unwrap_or_else(|| {
            let first = u32::from(self.client_address);
            Ipv4Addr::from(first + u32::from(path) - 1)
        });
        SocketAddr::new(address.into(), 0)
    }

    /// These options as command line arguments.
    pub fn arguments(&self) -> Vec<String> {
        let named = [
            ("size", self.size.to_string()),
            ("requests", self.requests.to_string()),
            ("connections", self.connections.to_string()),
            ("seconds", self.seconds.to_string()),
            ("window", self.window.to_string()),
            ("buffer", self.buffer.to_string()),
            ("datagram", self.datagram.to_string()),
            ("train", self.train.to_string()),
            ("server-address", self.server_address.to_string()),
            ("client-address", self.client_address.to_string()),
            ("further-address", join(&self.further_address)),
            ("credentials", self.credentials.display().to_string()),
        ];
        let variant = self.variant.iter().cloned();
        let named = named.into_iter().filter(|(_, value)| !value.is_empty());
        let named = named.chain(variant.map(|variant| ("variant", variant)));
        let named = named.flat_map(|(name, value)| [format!("--{name}"), value]);
        let defaults = self.defaults.then(|| "--defaults".to_owned());
        let http3 = self.http3.then(|| "--http3".to_owned());
        let bbr = self.bbr.then(|| "--bbr".to_owned());
        named.chain(defaults).chain(http3).chain(bbr).collect()
    }
}

fn join(addresses: &[Ipv4Addr]) -> String {
    let texts: Vec<_> = addresses.iter().map(Ipv4Addr::to_string).collect();
    texts.join(",")
}

/// Idle timeout of connections: longer than any measurement.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Streams that a peer may have open.
pub const MAX_STREAMS: u32 = 1000;
/// Requests at a time.
pub const REQUEST_CONCURRENCY: u64 = 100;
/// Handshakes at a time.
pub const HANDSHAKE_CONCURRENCY: u64 = 64;
/// Streams of [`Workload::Streams`].
pub const STREAMS: u64 = 8;
/// Bytes of a request and of a response.
pub const REQUEST_SIZE: u64 = 1024;
/// Payload of a DATAGRAM frame, bytes: each packet has room for one frame, and no packet for two.
pub const DATAGRAM_SIZE: usize = 1000;
