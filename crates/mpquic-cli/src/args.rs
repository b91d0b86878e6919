//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, IF_RANGE, RANGE, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderName, HeaderValue, Method, Uri};

use crate::json_output::Json;
use crate::listening::Listening;
use crate::live_terminal::LiveArgs;
use crate::manual::{Completions, Man};
use crate::options::{Alpn, Policy, Qlog, parse_url};
use crate::paths::Paths;
use crate::perf_args::{Perf, parse_interval};
use crate::preference::Preference;
use crate::proxy_args::Proxy;
use crate::put::Put;
use crate::qlog::QlogPage;
use crate::rate::{Limit, Rate};
use crate::reach::{Patience, Reach};
use crate::record::Record;
use crate::serve_limits::LimitArgs;
use crate::{examples, hex};

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
    Perf(Perf),
    Paths(Paths),
    Record(Record),
    Advise(mpquic_lab::Advise),
    #[command(subcommand)]
    Proxy(Proxy),
    Qlog(QlogPage),
    Demo(Demo),
    Lab(mpquic_lab::Lab),
    /// List the built-in packet schedulers, with their sources
    Schedulers(List),
    /// List the built-in congestion controllers, with their sources
    Controllers(List),
    Completions(Completions),
    Man(Man),
}

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

/// Fetch files over all paths at once
///
/// Paths run from every usable interface, or from the addresses given with --local, to every
/// address of the server. A file appears once it is whole; until then there is FILE.part, and a
/// connection that is lost is made anew.
#[derive(Debug, Args)]
#[command(after_help = examples::GET)]
pub(crate) struct Get {
    /// What to fetch, as https://HOST[:PORT]/FILE
    #[arg(required = true, value_name = "URL", value_parser = parse_url)]
    pub(crate) urls: Vec<Uri>,
    /// Where to write; `-` is standard output [default: the URL's last part, in this directory; two
    /// URLs that would have one file are refused]
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
    /// Fetch up to this many files at a time; files of one server share a connection [default: 1, or
    /// 64 with --recursive]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) parallel: Option<u16>,
    /// Fetch directories, with all that is in them: each URL ends with a slash. `mpquic serve` lists
    /// them, and other servers that answer with JSON. With --continue, files that are here with the
    /// same length and time are not fetched again
    #[arg(short, long, conflicts_with_all = ["sha256", "method", "reconnect", "remote_name"])]
    pub(crate) recursive: bool,
    /// With --recursive, replace files that are here already. Without it only --continue does: others
    /// are left as they are, and told
    #[arg(long, requires = "recursive")]
    pub(crate) overwrite: bool,
    /// With --recursive, fetch also files and directories whose names begin with a dot; without it they
    /// are left out, and told
    #[arg(long, requires = "recursive")]
    pub(crate) dot_files: bool,
    /// Directories in directories, at most; what is deeper is left out, and told
    #[arg(long, value_name = "N", requires = "recursive", default_value_t = 32, value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub(crate) max_depth: u16,
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
    #[command(flatten)]
    pub(crate) preference: Preference,
    #[command(flatten)]
    pub(crate) patience: Patience,
    /// Receive at this rate at most, all files together, in bits per second with a unit, such as
    /// 800k, 20M or 1.5G
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Rate>,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
    /// Print a JSON object on a line for each file when it is done; with --json=events also for what
    /// happens until then: paths that come, change and go, progress, new tries (to stderr if the file
    /// goes to stdout)
    #[arg(long, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "result")]
    pub(crate) json: Option<Json>,
    /// How often --json=events tells how it goes; 0 for never
    #[arg(long, value_name = "SECONDS", requires = "json", default_value = "1", value_parser = parse_interval)]
    pub(crate) interval: Duration,
    /// Print nothing but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Watch a download over two paths, all in this process
///
/// A server and a client run on loopback, with paths from 127.0.0.1 and 127.0.0.2, and transfer
/// generated data. Each path is limited to a rate, as a link would be; what arrives is checked. After
/// 40 % one path is cut, without a word to either side, and it is back after 70 %: the other one
/// carries all of it meanwhile.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// How much to transfer, MiB
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub(crate) mib: u64,
    /// Rate of each path, in bits per second with a unit, such as 20M or 1.5G; 0 for as fast as this
    /// machine can
    #[arg(long, value_name = "RATE", default_value = "300M")]
    pub(crate) rate: Limit,
    /// Cut no path
    #[arg(long)]
    pub(crate) steady: bool,
    #[command(flatten)]
    pub(crate) policy: Policy,
    #[command(flatten)]
    pub(crate) qlog: Qlog,
    /// Print a JSON object instead of the table
    #[arg(long)]
    pub(crate) json: bool,
}

/// How policies are listed.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct List {
    /// Print a JSON object for each: name, description and source
    #[arg(long)]
    pub(crate) json: bool,
}

/// When a client makes a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Reconnect {
    /// For each URL
    Each,
    /// After the first URL
    Once,
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
    let is_ours =
        ours.contains(&name) || matches!(name.as_str(), "keep-alive" | "proxy-connection");
    match is_ours {
        true => Err(format!("`{name}` is not for users to set")),
        false => Ok((name, value)),
    }
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
    fn examples_are_command_lines() {
        use examples::{GET, PATHS, PERF, PUT, SERVE};
        for examples in [SERVE, GET, PUT, PERF, PATHS] {
            let lines = examples.lines().map(str::trim_start);
            let commands = lines.filter(|line| line.starts_with("mpquic "));
            // Interfaces have to be there.
            let here = |word| match word {
                "eth0" | "wlan0" | "wwan0" => "127.0.0.1",
                other => other,
            };
            let parsed = commands.map(|line| Cli::try_parse_from(line.split(' ').map(here)));
            let parsed: Vec<_> = parsed.collect::<Result<_, _>>().unwrap();
            assert!(parsed.len() >= 2, "{examples}");
        }
    }
}
