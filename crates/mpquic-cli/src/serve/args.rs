//! The options of `mpquic serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::options::Alpn;
use crate::options::examples;
use crate::report::live_terminal::LiveArgs;
use crate::serve::limit_args::LimitArgs;
use crate::serve::listening::Listening;

/// Serve the files of a directory
///
/// Over HTTP/3, with a page for each directory that has no index.html, and over HTTP/0.9.
///
/// Prints `listening on ADDR:PORT` for each address on stdout, then the SHA-256 fingerprint of the
/// self-signed certificate that it made when it first ran, for the --pin option of `mpquic get`.
/// Runs until SIGINT or SIGTERM, then lets open requests finish (--drain-timeout). A client, where
/// an option limits one, is an address.
#[derive(Debug, Args)]
#[command(after_help = examples::SERVE)]
pub(crate) struct Serve {
    /// Directory to serve; nothing outside it is ever sent
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Answer measurements (`mpquic perf`, and other tools that speak the QUIC performance
    /// protocol), and serve no files. Anybody who can reach the server may load it as they like:
    /// see --client-rate
    #[arg(long, conflicts_with_all = ["dir", "dot_files", "alpn", "allow_put"])]
    pub(crate) perf: bool,
    /// Serve files and directories whose names begin with a dot, too
    #[arg(long)]
    pub(crate) dot_files: bool,
    #[command(flatten)]
    pub(crate) listening: Listening,
    /// Give clients to this many threads, each with sockets of its own: for many clients with little each.
    /// A connection stays on its thread. Limits and figures are for all together, but --max-connections is
    /// divided among the threads [default: one socket for each --listen, and all processors for all clients]
    #[arg(long, value_name = "N", conflicts_with_all = ["announce", "preferred_address"], value_parser = clap::value_parser!(u32).range(1..=128))]
    pub(crate) workers: Option<u32>,
    /// Application protocols to offer, the preferred one first
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "h3,hq-interop"
    )]
    pub(crate) alpn: Vec<Alpn>,
    /// Serve the same files over TCP, by HTTP/1.1 and HTTP/2, and tell whoever comes that HTTP/3 is
    /// here (Alt-Svc): browsers ask for that only then [default: the addresses of --listen]
    #[arg(
        long,
        value_name = "ADDR:PORT",
        num_args = 0..=1,
        require_equals = true,
        conflicts_with = "perf"
    )]
    pub(crate) alt_svc: Option<Option<SocketAddr>>,
    /// Take files, too: PUT creates and replaces files in the directory. Anybody who can reach the
    /// server may do that
    #[arg(long)]
    pub(crate) allow_put: bool,
    /// Take no file that is larger than this, MiB
    #[arg(long, value_name = "MIB", requires = "allow_put", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub(crate) max_put_size: u64,
    /// Let clients store this much in all while the server runs, MiB: files, and 4 KiB for each name of a
    /// file or directory; beyond it they get 507 Insufficient Storage [default: no limit]
    #[arg(long, value_name = "MIB", requires = "allow_put", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub(crate) max_put_total: Option<u64>,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}
