//! The options of `mpquic get`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, IF_RANGE, RANGE, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderName, HeaderValue, Method, Uri};

use crate::client::secrets::SecretsArgs;
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
/// Paths start from every usable interface, or from the addresses of --local, and lead to every
/// address of the server. A file appears under its name when it is complete; until then it is
/// FILE.part. A lost connection is made again.
#[derive(Debug, Args)]
#[command(after_help = examples::GET)]
pub(crate) struct Get {
    /// URLs to fetch, as https://HOST[:PORT]/FILE
    #[arg(required = true, value_name = "URL", value_parser = parse_url)]
    pub(crate) urls: Vec<Uri>,
    /// Output file; `-` is standard output. A symbolic link to a file is replaced by the file
    /// [default: the last part of the URL, in this directory; two URLs with the same file name are
    /// refused]
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["remote_name", "output_dir"])]
    pub(crate) output: Option<PathBuf>,
    /// Continue a FILE.part of an earlier `mpquic get` if the file on the server is unchanged,
    /// and if that run checked the server as strictly as this run; otherwise start over
    #[arg(long)]
    pub(crate) r#continue: bool,
    /// Fail, and keep no file, unless the file has this SHA-256
    #[arg(long, value_name = "HEX")]
    pub(crate) sha256: Option<Sum>,
    /// Send this header field with each request, in place of a default field of this name; repeat
    /// for several
    #[arg(short = 'H', long, value_name = "NAME: VALUE", value_parser = parse_field)]
    pub(crate) header: Vec<(HeaderName, HeaderValue)>,
    #[command(flatten)]
    pub(crate) secrets: SecretsArgs,
    /// Method of the requests; HEAD prints status and header fields. Only GET and HEAD are retried
    #[arg(short = 'X', long, value_name = "NAME", default_value = "GET")]
    pub(crate) method: Method,
    /// Follow up to N redirections; 0 for none
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(crate) max_redirects: u32,
    /// Name the file as the URL does, in this directory (the default)
    #[arg(short = 'O', long)]
    pub(crate) remote_name: bool,
    /// Name the file as the URL does, in this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) output_dir: Option<PathBuf>,
    /// Fetch up to N files at a time; files of one server share a connection [default: 1, or 64
    /// with --recursive]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) parallel: Option<u16>,
    /// Fetch directories with everything below them; each URL must end with a slash. Works with
    /// `mpquic serve`, and other servers that list directories as JSON. With --continue, local
    /// files with the server's length and time are skipped
    #[arg(short, long, conflicts_with_all = ["sha256", "method", "reconnect", "remote_name"])]
    pub(crate) recursive: bool,
    /// With --recursive, replace local files. Without this option, local files are kept and
    /// reported; --continue replaces files that differ in length or time
    #[arg(long, requires = "recursive")]
    pub(crate) overwrite: bool,
    /// With --recursive, also fetch files and directories whose names begin with a dot. Without
    /// this option, they are skipped and reported
    #[arg(long, requires = "recursive")]
    pub(crate) dot_files: bool,
    /// With --recursive, give files and directories the permissions that the server names, without
    /// regard to the umask; never setuid, setgid or sticky bits
    #[arg(long, requires = "recursive")]
    pub(crate) preserve_permissions: bool,
    /// Descend at most N levels; deeper directories are skipped and reported
    #[arg(long, value_name = "N", requires = "recursive", default_value_t = 32, value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub(crate) max_depth: u16,
    /// Make a new connection for each URL, or one for all URLs after the first. Each new connection
    /// resumes the TLS session of the previous connection
    #[arg(
        long,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "each"
    )]
    pub(crate) reconnect: Option<Reconnect>,
    /// Send requests to a known server with the first packets (0-RTT). An attacker on the network
    /// can replay these requests
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
    /// Receive at most at this rate, all files together, in bits per second with a unit, such as
    /// 800k, 20M or 1.5G
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Rate>,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
    /// Print a JSON line for each finished file. --json=events also prints a line for each path
    /// that opens, changes or ends, for progress and for retries. If the file goes to standard
    /// output, the lines go to standard error
    #[arg(long, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "result")]
    pub(crate) json: Option<Json>,
    /// Seconds between progress lines of --json=events; 0 for none
    #[arg(long, value_name = "SECONDS", requires = "json", default_value = "1", value_parser = parse_interval)]
    pub(crate) interval: Duration,
    /// Print nothing but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// When `mpquic get` makes a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Reconnect {
    /// For each URL
    Each,
    /// After the first URL
    Once,
}

/// The SHA-256 of a file.
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
    let name: HeaderName = name
        .trim()
        .parse()
        .map_err(|_| "the header name is not valid")?;
    let value = value
        .trim()
        .parse()
        .map_err(|_| "the header value is not valid")?;
    // Fields that RFC 9114 section 4.2 forbids, and fields that the tool sets itself.
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
    if is_ours {
        Err(format!(
            "cannot set header `{name}`: HTTP/3 forbids it, or the tool sets it"
        ))
    } else {
        Ok((name, value))
    }
}
