//! The options of `mpquic perf`.

use std::time::Duration;

use clap::Args;
use http::Uri;

use crate::options::examples;
use crate::options::parse_url;
use crate::options::preference::Preference;
use crate::options::reach::{Reach, Stall};
use crate::rate::Rate;
use crate::report::live_terminal::LiveArgs;

/// Port of a server without a port in its name, as in `mpquic serve`.
const DEFAULT_PORT: u16 = 4433;

/// Measure the paths to a server under load
///
/// The server runs `mpquic serve --perf`, or another program with the QUIC performance protocol
/// (draft-banks-quic-performance, ALPN `perf`). Paths are those of `mpquic get`. The bufferbloat
/// grade is the growth of the median latency under load, in ms: A+ below 5, A below 30, B below 60,
/// C below 200, D below 400, otherwise F.
#[derive(Debug, Args)]
#[command(after_help = examples::PERF)]
pub(crate) struct Perf {
    /// The server, as HOST[:PORT] or https://HOST[:PORT]; the default port is 4433
    #[arg(value_name = "SERVER", value_parser = parse_server)]
    pub(crate) server: Uri,
    /// Tests to run, in this order: latency without load, download, upload, both at once, requests
    /// per second, DATAGRAMs (which need `mpquic serve --perf`)
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "latency,download,upload"
    )]
    pub(crate) test: Vec<Test>,
    /// Duration of each test
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = parse_seconds)]
    pub(crate) time: Duration,
    /// Seconds between progress lines; 0 for none
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    pub(crate) interval: Duration,
    /// Streams of a download or upload at a time, in each direction
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) streams: u16,
    /// Requests at a time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) parallel: u16,
    /// Bytes of each request, 8 or more
    #[arg(long, value_name = "BYTES", default_value_t = 8, value_parser = clap::value_parser!(u32).range(8..=1 << 24))]
    pub(crate) request_size: u32,
    /// Bytes of each answer
    #[arg(long, value_name = "BYTES", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(0..=1 << 24))]
    pub(crate) response_size: u32,
    /// Bytes of each DATAGRAM
    #[arg(long, value_name = "BYTES", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(32..=65_000))]
    pub(crate) datagram_size: u32,
    /// Rate of DATAGRAMs in each direction, in bits per second with a unit, such as 800k, 20M or
    /// 1.5G
    #[arg(long, value_name = "RATE", default_value = "2M")]
    pub(crate) datagram_rate: Rate,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
    #[command(flatten)]
    pub(crate) reach: Reach,
    #[command(flatten)]
    pub(crate) preference: Preference,
    #[command(flatten)]
    pub(crate) stall: Stall,
    /// Print JSON lines: `connected`, an `interval` for each progress line, and the `result` of
    /// each test
    #[arg(long)]
    pub(crate) json: bool,
}

/// A measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Test {
    /// Round trips of small requests, without load
    Latency,
    /// Received bytes, and latency under this load
    Download,
    /// Sent bytes, and latency under this load
    Upload,
    /// Download and upload at once
    Both,
    /// Requests per second, and their latency
    Requests,
    /// Loss and jitter of DATAGRAMs in both directions
    Datagrams,
}

impl Test {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Download => "download",
            Self::Upload => "upload",
            Self::Both => "both",
            Self::Requests => "requests",
            Self::Datagrams => "datagrams",
        }
    }
}

pub(crate) fn parse_server(text: &str) -> Result<Uri, String> {
    let expected = "expected HOST[:PORT] or https://HOST[:PORT]";
    let url = match text.contains("://") {
        true => text.to_owned(),
        false => format!("https://{text}"),
    };
    let url = parse_url(&url).map_err(|error| format!("{error}; {expected}"))?;
    if !matches!(url.path(), "" | "/") || url.query().is_some() {
        return Err(format!("the server has no path; {expected}"));
    }
    let authority = url.authority().ok_or(expected)?;
    match authority.port_u16() {
        Some(_) => Ok(url),
        None => {
            let host = authority.host();
            let url = format!("https://{host}:{DEFAULT_PORT}/");
            url.parse().map_err(|_| expected.to_owned())
        }
    }
}

pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    duration(text, 0.1..=86_400.0)
}

pub(crate) fn parse_interval(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(0.0) => Ok(Duration::ZERO),
        _ => duration(text, 0.1..=3600.0).map_err(|error| format!("{error}, or 0")),
    }
}

fn duration(text: &str, range: std::ops::RangeInclusive<f64>) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| range.contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("expected seconds, {} to {}", range.start(), range.end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read() {
        for (text, url) in [
            ("example.org", "https://example.org:4433/"),
            ("example.org:1", "https://example.org:1/"),
            ("https://example.org", "https://example.org:4433/"),
            ("192.0.2.1", "https://192.0.2.1:4433/"),
            ("[2001:db8::1]", "https://[2001:db8::1]:4433/"),
        ] {
            assert_eq!(
                parse_server(text).map(|url| url.to_string()),
                Ok(url.into())
            );
        }
        for wrong in ["", "http://a", "a/b", "a?b", "2001:db8::1", "a:x", "b@a"] {
            let error = parse_server(wrong).unwrap_err();
            assert!(error.contains("expected HOST"), "{wrong}: {error}");
        }
    }

    #[test]
    fn times_have_ranges() {
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_interval("0"), Ok(Duration::ZERO));
        for wrong in ["0", "-1", "x", "inf", "nan", "1e9", ""] {
            let error = parse_seconds(wrong).unwrap_err();
            assert_eq!(error, "expected seconds, 0.1 to 86400");
        }
        assert!(parse_interval("0.01").unwrap_err().ends_with(", or 0"));
    }

    #[test]
    fn measurements_are_named_as_on_the_command_line() {
        use clap::ValueEnum;

        for test in Test::value_variants() {
            let value = test.to_possible_value().unwrap();
            assert_eq!(value.get_name(), test.name());
        }
        assert_eq!(parse_interval("0.1"), Ok(Duration::from_millis(100)));
        assert_eq!(parse_interval("3600"), Ok(Duration::from_secs(3600)));
        assert!(parse_interval("3601").is_err());
        assert_eq!(parse_seconds("86400"), Ok(Duration::from_secs(86_400)));
        assert!(parse_seconds("86401").is_err() && parse_seconds("0.09").is_err());
    }
}
