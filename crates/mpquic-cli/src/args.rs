//! The command line.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, IF_RANGE, RANGE, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderName, HeaderValue, Method, Uri};
use mpquic_core::Version;
use mpquic_core::config::TransportOptions;
use mpquic_core::congestion::ControllerFactory;
use mpquic_core::sched::SchedulerFactory;
use mpquic_qlog::Directory;
use rustls::CipherSuite;
use rustls::crypto::CryptoProvider;

use crate::drill::Step;
use crate::failure::Failure;
use crate::hex;
use crate::put::Put;
use crate::reach::Reach;
use crate::serve_limits::LimitArgs;
use crate::trust::{Fingerprint, Trust};

/// Transfers over several network paths at once, by multipath QUIC (RFC 10069).
///
/// Try `mpquic demo` first: it needs no arguments. Then `mpquic serve DIR` on one machine and
/// `mpquic get URL` on another.
///
/// Exit codes: 0 done, 2 the command line is wrong, 3 a file cannot be read or written, 4 the
/// server's name has no address, 5 no connection, 6 the server is not trusted, 7 it refused the
/// request, 8 the transfer broke off, 9 the content is not what was expected, 1 all else. SSLKEYLOGFILE names a
/// file for TLS secrets, so that Wireshark can decrypt; RUST_LOG sets the log level (to stderr).
#[derive(Debug, Parser)]
#[command(name = "mpquic", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(Serve),
    Get(Get),
    Put(Put),
    Demo(Demo),
    Lab(mpquic_lab::Lab),
    /// List the built-in packet schedulers, with their sources
    Schedulers,
    /// List the built-in congestion controllers, with their sources
    Controllers,
}

/// Serve the files of a directory
///
/// Over HTTP/3, with a page for each directory that has no index.html, and over HTTP/0.9.
///
/// Prints `listening on ADDR:PORT` for each address on stdout, then the SHA-256 fingerprint of a
/// self-signed certificate, for the --pin option of `mpquic get`. Runs until SIGINT or SIGTERM, then
/// lets open requests finish (--drain-timeout). A client, where an option limits one, is an address.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Directory to serve; nothing outside it is ever sent
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Serve files and directories whose names begin with a dot, too
    #[arg(long)]
    pub(crate) dot_files: bool,
    /// Address and port to listen on; repeat for several [default: [::]:4433, IPv4 included]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Vec<SocketAddr>,
    /// Certificate chain; without it a self-signed certificate is made
    #[arg(long, value_name = "PEM", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of the certificate
    #[arg(long, value_name = "PEM", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Application protocols to offer, the preferred one first
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "h3,hq-interop"
    )]
    pub(crate) alpn: Vec<Alpn>,
    /// Most paths a client may have open at a time; 0 turns multipath off
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(0..=64))]
    pub(crate) max_paths: u32,
    /// Ask clients to move to this address of the server once they are connected, for example if
    /// many servers share the address that clients connect to; once for IPv4, once for IPv6
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) preferred_address: Vec<SocketAddr>,
    /// Make clients prove their address (with a Retry packet) before anything else is done for
    /// them; costs a round trip
    #[arg(long)]
    pub(crate) retry: bool,
    /// Take files, too: PUT creates and replaces files in the directory. Anybody who can reach the
    /// server may do that
    #[arg(long)]
    pub(crate) allow_put: bool,
    /// Take no file that is larger than this, MiB
    #[arg(long, value_name = "MIB", requires = "allow_put", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub(crate) max_put_size: u64,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) connections: Connections,
}

/// Fetch files over all paths at once
///
/// Paths run from every usable interface, or from the addresses given with --local, to every
/// address of the server. A file appears once it is whole; until then there is FILE.part, and a
/// connection that is lost is made anew.
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// What to fetch, as https://HOST[:PORT]/FILE
    #[arg(required = true, value_name = "URL", value_parser = parse_url)]
    pub(crate) urls: Vec<Uri>,
    /// Where to write; `-` is standard output [default: the URL's last part, in this directory]
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["remote_name", "output_dir"])]
    pub(crate) output: Option<PathBuf>,
    /// Go on with the FILE.part that an earlier `mpquic get` left, if the file on the server is
    /// still the same; else start over
    #[arg(long)]
    pub(crate) r#continue: bool,
    /// Fail, and leave no file, unless it has this SHA-256
    #[arg(long, value_name = "HEX")]
    pub(crate) sha256: Option<Sum>,
    /// Add this field to requests, or replace it; repeat for several
    #[arg(short = 'H', long, value_name = "NAME: VALUE", value_parser = parse_field)]
    pub(crate) header: Vec<(HeaderName, HeaderValue)>,
    /// Method of the requests; HEAD prints status and fields. What is no GET or HEAD is not tried
    /// again
    #[arg(short = 'X', long, value_name = "NAME", default_value = "GET")]
    pub(crate) method: Method,
    /// Follow so many redirections; 0 for none
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(crate) max_redirects: u32,
    /// Name the file as the URL does, in this directory (the default)
    #[arg(short = 'O', long)]
    pub(crate) remote_name: bool,
    /// Name the file as the URL does, in this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,
    /// Fetch up to this many files at a time; files of one server share a connection
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) parallel: u16,
    /// Use more than one connection, each resuming the TLS session of the one before: a new one for
    /// each URL, or a second one after the first URL
    #[arg(
        long,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "each"
    )]
    pub(crate) reconnect: Option<Reconnect>,
    /// Send requests to a known server with the first packets (0-RTT); an attacker on the network
    /// can replay them
    #[arg(long, requires = "reconnect")]
    pub(crate) early_data: bool,
    /// Application protocols to offer, the preferred one first
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "h3,hq-interop"
    )]
    pub(crate) alpn: Vec<Alpn>,
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// Print one JSON object per URL when done (to stderr if the file goes to stdout)
    #[arg(long)]
    pub(crate) json: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Watch a download over two paths, all in this process
///
/// A server and a client run on loopback, with paths from 127.0.0.1 and 127.0.0.2, and transfer
/// generated data. Each path is limited to a rate, as a link would be; what arrives is checked.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// How much to transfer, MiB
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub(crate) mib: u64,
    /// Rate of each path, Mbit/s; 0 for as fast as this machine can
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub(crate) rate: u64,
    #[command(flatten)]
    pub(crate) policy: Policy,
    /// Print a JSON object instead of the table
    #[arg(long)]
    pub(crate) json: bool,
}

// Options of connections that `serve` and `get` share. (A doc comment on a flattened struct would
// replace the help text of the command, here and below.)
#[derive(Debug, Args)]
pub(crate) struct Connections {
    /// Use this cipher suite and no other
    #[arg(long, value_name = "NAME")]
    pub(crate) cipher: Option<Cipher>,
    #[command(flatten)]
    pub(crate) drill: DrillArgs,
    #[command(flatten)]
    pub(crate) versions: Versions,
    #[command(flatten)]
    policy: Policy,
    #[command(flatten)]
    qlog: Qlog,
}

impl Connections {
    /// Transport parameters for at most this many paths, with logs if they were asked for.
    pub(crate) fn transport(&self, max_paths: u32) -> Result<TransportOptions, Failure> {
        let mut transport = self.policy.transport(max_paths);
        self.qlog.apply(&mut transport)?;
        Ok(transport)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Policy {
    /// Packet scheduler; `mpquic schedulers` lists them
    #[arg(long, value_name = "NAME", default_value = "lrf", value_parser = parse_scheduler)]
    pub(crate) scheduler: Scheduler,
    /// Congestion controller; `mpquic controllers` lists them
    #[arg(long, value_name = "NAME", default_value = "olia", value_parser = parse_controller)]
    pub(crate) cc: Controller,
}

impl Policy {
    pub(crate) fn transport(&self, max_paths: u32) -> TransportOptions {
        let mut transport = TransportOptions::new(self.scheduler.0.clone(), self.cc.0.clone());
        transport.max_concurrent_paths = max_paths;
        // Nothing here reads DATAGRAMs, so peers need not send any.
        transport.datagram_receive_buffer = None;
        transport
    }
}

#[derive(Debug, Args)]
pub(crate) struct Versions {
    /// Versions of QUIC to speak (v1, v2), the preferred one first. A client starts with the
    /// lowest, and the server may switch to another; a server switches to the first of its versions
    /// that the client speaks too
    #[arg(
        long = "quic-version",
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "v1,v2"
    )]
    list: Vec<Version>,
}

impl Versions {
    pub(crate) fn list(&self) -> Vec<Version> {
        self.list.clone()
    }
}

/// Largest size of a qlog file that can be asked for, MiB.
const MAX_QLOG_SIZE: u64 = 1 << 24;

#[derive(Debug, Args)]
pub(crate) struct Qlog {
    /// Write a qlog file for each connection to this directory [default: $QLOGDIR if it is set]
    #[arg(long, value_name = "DIR")]
    qlog_dir: Option<PathBuf>,
    /// Cut each qlog file short at this size in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=MAX_QLOG_SIZE))]
    qlog_max_size: u64,
}

impl Qlog {
    /// Makes connections write logs, if that was asked for.
    fn apply(&self, transport: &mut TransportOptions) -> Result<(), Failure> {
        let from_environment = || {
            let directory = std::env::var_os("QLOGDIR")?;
            (!directory.is_empty()).then(|| directory.into())
        };
        if let Some(path) = self.qlog_dir.clone().or_else(from_environment) {
            let directory = Directory::create(&path).map_err(|error| {
                Failure::usage(format!("cannot write logs to {}: {error}", path.display()))
            })?;
            let directory = directory.max_file_size(self.qlog_max_size << 20);
            transport.qlog = Some(Arc::new(directory));
        }
        Ok(())
    }
}

#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct TrustArgs {
    /// Trust only servers whose certificate was issued by one of the certificates in this file
    #[arg(long, value_name = "PEM")]
    ca: Option<PathBuf>,
    /// Trust only the certificate with this SHA-256 fingerprint
    #[arg(long, value_name = "sha256:HEX")]
    pin: Option<Fingerprint>,
    /// Trust every server: an attacker on the network can read and change the data
    #[arg(long)]
    insecure: bool,
}

impl TrustArgs {
    pub(crate) fn trust(&self) -> Trust {
        match (&self.ca, self.pin, self.insecure) {
            (Some(path), ..) => Trust::Authorities(path.clone()),
            (None, Some(pin), _) => Trust::Pin(pin),
            (None, None, true) => Trust::Anybody,
            (None, None, false) => Trust::System,
        }
    }
}

/// An application protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Alpn {
    /// HTTP/3
    H3,
    /// HTTP/0.9 over QUIC, as used by interoperability tests
    HqInterop,
}

impl Alpn {
    pub(crate) fn bytes(self) -> &'static [u8] {
        match self {
            Self::H3 => b"h3",
            Self::HqInterop => b"hq-interop",
        }
    }
}

/// When a client makes a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Reconnect {
    /// For each URL
    Each,
    /// After the first URL
    Once,
}

/// A cipher suite of TLS 1.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Cipher {
    /// TLS_AES_128_GCM_SHA256
    Aes128,
    /// TLS_AES_256_GCM_SHA384
    Aes256,
    /// TLS_CHACHA20_POLY1305_SHA256
    Chacha20,
}

impl Cipher {
    fn suite(self) -> CipherSuite {
        match self {
            Self::Aes128 => CipherSuite::TLS13_AES_128_GCM_SHA256,
            Self::Aes256 => CipherSuite::TLS13_AES_256_GCM_SHA384,
            Self::Chacha20 => CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        }
    }

    /// The TLS provider with only this cipher suite, or with all of them.
    pub(crate) fn provider(wanted: Option<Self>) -> CryptoProvider {
        let mut provider = mpquic_core::crypto::rustls::provider();
        if let Some(wanted) = wanted {
            let suites = &mut provider.cipher_suites;
            suites.retain(|suite| suite.suite() == wanted.suite());
        }
        provider
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DrillArgs {
    /// Steps to take in the middle of a transfer, for interoperability tests
    #[arg(
        long = "drill",
        value_name = "STEPS",
        value_delimiter = ',',
        hide = true
    )]
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug, Clone)]
pub(crate) struct Scheduler(Arc<dyn SchedulerFactory>);

fn parse_scheduler(name: &str) -> Result<Scheduler, mpquic_sched::UnknownScheduler> {
    mpquic_sched::by_name(name).map(Scheduler)
}

#[derive(Debug, Clone)]
pub(crate) struct Controller(Arc<dyn ControllerFactory>);

fn parse_controller(name: &str) -> Result<Controller, mpquic_cc::UnknownController> {
    mpquic_cc::by_name(name).map(Controller)
}

/// A SHA-256.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sum(pub(crate) [u8; 32]);

impl FromStr for Sum {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        hex::bytes(digits)
            .map(Self)
            .ok_or("expected 64 hexadecimal digits")
    }
}

fn parse_field(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("expected NAME: VALUE")?;
    let name: HeaderName = name.trim().parse().map_err(|_| "no name of a field")?;
    let value = value.trim().parse().map_err(|_| "no value of a field")?;
    // RFC 9114 section 4.2, and what the tool says by itself.
    let ours = [
        CONNECTION,
        CONTENT_LENGTH,
        HOST,
        IF_RANGE,
        RANGE,
        TE,
        TRANSFER_ENCODING,
        UPGRADE,
    ];
    match ours.contains(&name) {
        true => Err(format!("`{name}` is not for users to set")),
        false => Ok((name, value)),
    }
}

pub(crate) fn parse_url(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("https"), Some(host)) if !host.is_empty() => Ok(uri),
        (Some(scheme), _) if scheme != "https" => Err(format!(
            "`{scheme}` is not supported; QUIC URLs start with https://"
        )),
        _ => Err("expected https://HOST[:PORT]/FILE".to_owned()),
    }
}

/// Where a path starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Local {
    Address(IpAddr),
    Interface(String),
}

pub(crate) fn parse_local(text: &str) -> Result<Local, String> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let listed = || {
        let addresses = interfaces
            .iter()
            .map(|interface| format!("{} ({})", interface.ip(), interface.name));
        addresses.collect::<Vec<_>>().join(", ")
    };
    if let Ok(address) = text.parse::<IpAddr>() {
        // Loopback has more addresses than its interface lists, so the test is whether the system
        // binds a socket to it.
        return match UdpSocket::bind((address, 0)) {
            Ok(_) => Ok(Local::Address(address)),
            Err(_) => Err(format!(
                "not an address of this machine; there are: {}",
                listed()
            )),
        };
    }
    if interfaces.iter().any(|interface| interface.name == text) {
        return Ok(Local::Interface(text.to_owned()));
    }
    Err(format!(
        "no such address or interface; there are: {}",
        listed()
    ))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn urls_need_a_scheme_and_a_host() {
        assert!(parse_url("https://example.org:4433/file").is_ok());
        assert!(parse_url("https://[::1]:4433/file").is_ok());
        for wrong in [
            "http://example.org/",
            "example.org/file",
            "https:///file",
            "/file",
            "",
        ] {
            assert!(parse_url(wrong).is_err(), "{wrong}");
        }
    }
}
