//! The options of `mpquic get`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, IF_RANGE, RANGE, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderName, HeaderValue, Method, Uri};

use crate::get::json::Json;
use crate::options::examples;
use crate::options::preference::Preference;
use crate::options::reach::{Patience, Reach};
use crate::options::{Alpn, parse_url};
use crate::perf::args::parse_interval;
use crate::rate::Rate;
use crate::report::live_terminal::LiveArgs;
use crate::text::hex;

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
