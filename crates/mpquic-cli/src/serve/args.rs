//! The options of `mpquic serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::options::Alpn;
use crate::options::examples;
use crate::options::hosts::parse_address;
use crate::report::live_terminal::LiveArgs;
use crate::serve::limit_args::LimitArgs;
use crate::serve::listening::Listening;
use crate::serve::rights::RightsArgs;

/// Serve the files of a directory
///
/// Serves HTTP/3, with a page for each directory without an index.html, and HTTP/0.9.
///
/// Prints `listening on ADDR:PORT` for each address to standard output. Without --cert it then
/// prints the SHA-256 fingerprint of its self-signed certificate, for the option --pin of `mpquic
/// get`. SIGINT or SIGTERM stops the server after its open requests (--drain-timeout). Options that
/// limit a client count each client address.
#[derive(Debug, Args)]
#[command(after_help = examples::SERVE)]
pub(crate) struct Serve {
    /// Directory to serve; files outside it are never sent
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Answer measurements (`mpquic perf`, and other tools with the QUIC performance protocol), and
    /// serve no files. Everybody who can reach the server can load it; --client-rate limits that
    #[arg(long, conflicts_with_all = ["dir", "dot_files", "alpn", "allow_put"])]
    pub(crate) perf: bool,
    /// Also serve files and directories whose names begin with a dot
    #[arg(long)]
    pub(crate) dot_files: bool,
    #[command(flatten)]
    pub(crate) listening: Listening,
    /// Spread clients over N threads, each with its own sockets, for many clients with small
    /// transfers. A connection stays on its thread. Limits and metrics count all threads together;
    /// --max-connections is divided among them [default: one socket for each --listen, all
    /// processors for all clients]
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
    /// Also serve the files over TCP, by HTTP/1.1 and HTTP/2, and announce HTTP/3 there (Alt-Svc),
    /// as browsers need it [default: the addresses of --listen]
    #[arg(
        long,
        value_name = "ADDR:PORT",
        num_args = 0..=1,
        require_equals = true,
        value_parser = parse_address,
        conflicts_with = "perf"
    )]
    pub(crate) alt_svc: Option<Option<SocketAddr>>,
    /// Accept only clients with a certificate that one of the certificates in this file has issued,
    /// or that is in the file itself (`mpquic get --client-cert`). Each client is a user, called
    /// `certificate-` and the first 8 digits of the SHA-256 of its certificate
    #[arg(long, value_name = "PEM")]
    pub(crate) client_ca: Option<PathBuf>,
    /// Let PUT create and replace files in the directory. Everybody who can reach the server may do
    /// that, or only users if there are users (--credentials, --client-ca, --allow)
    #[arg(long)]
    pub(crate) allow_put: bool,
    /// Refuse larger files, MiB
    #[arg(long, value_name = "MIB", requires = "allow_put", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub(crate) max_put_size: u64,
    /// Limit all uploads together while the server runs, MiB: the bytes of files, and 4 KiB for
    /// each name of a file or directory. A replaced file is subtracted after an upload to this
    /// server. Beyond the limit, clients get 507 Insufficient Storage [default: no limit]
    #[arg(long, value_name = "MIB", requires = "allow_put", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub(crate) max_put_total: Option<u64>,
    /// Limit what each user, or all strangers of one address, may store while the server runs, MiB,
    /// counted like --max-put-total, but a replaced file is not subtracted. Beyond the limit,
    /// clients get 507 Insufficient Storage [default: no limit]
    #[arg(long, value_name = "MIB", requires = "allow_put", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub(crate) put_quota: Option<u64>,
    #[command(flatten)]
    pub(crate) rights: RightsArgs,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}
