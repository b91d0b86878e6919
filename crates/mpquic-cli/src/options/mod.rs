//! The options that several commands share.

pub(crate) mod cost;
pub(crate) mod credentials;
pub(crate) mod drill;
pub(crate) mod examples;
pub(crate) mod hosts;
pub(crate) mod identity;
mod local;
pub(crate) mod origin;
pub(crate) mod policy_file;
pub(crate) mod preference;
pub(crate) mod quota;
pub(crate) mod reach;
pub(crate) mod trust;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use http::Uri;
use http::uri::Authority;
use mpquic_core::Version;
use mpquic_core::config::TransportOptions;
use mpquic_core::congestion::ControllerFactory;
use mpquic_core::crypto::rustls::KeyExchange;
use mpquic_core::sched::SchedulerFactory;
use mpquic_qlog::Directory;
use rustls::CipherSuite;
use rustls::crypto::CryptoProvider;

pub(crate) use crate::options::local::{Local, parse_interface, parse_local};

use crate::options::drill::Step;
use crate::options::hosts::Unusable;
use crate::options::policy_file::PolicyFile;
use crate::options::trust::{Fingerprint, Trust};
use crate::process::failure::Failure;
use crate::text::url;

// Options of connections that `serve` and `get` share. (A doc comment on a flattened struct would
// replace the help text of the command, here and below.)
#[derive(Debug, Args)]
pub(crate) struct Connections {
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
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
    /// The names of the scheduler and the controller.
    pub(crate) fn policies(&self) -> (String, String) {
        let (scheduler, controller) = self.policy.chosen();
        let (scheduler, controller) = (scheduler.build(), controller.build());
        (scheduler.name().to_owned(), controller.name().to_owned())
    }

    /// Transport options for at most `max_paths` paths, with qlog if it is turned on.
    pub(crate) fn transport(&self, max_paths: u32) -> Result<TransportOptions, Failure> {
        let mut transport = self.policy.transport(max_paths);
        self.qlog.apply(&mut transport)?;
        Ok(transport)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Policy {
    /// Packet scheduler; `mpquic schedulers` lists them
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = parse_scheduler)]
    pub(crate) scheduler: Scheduler,
    /// Congestion controller; `mpquic controllers` lists them
    #[arg(long, value_name = "NAME", default_value = "coupled-bbr", value_parser = parse_controller)]
    pub(crate) cc: Controller,
    /// Take scheduler and controller from this file, which `mpquic advise` writes. They affect the
    /// data that this side sends
    #[arg(long = "policy", value_name = "FILE", conflicts_with_all = ["scheduler", "cc"])]
    pub(crate) file: Option<PolicyFile>,
    /// Ignore the rates that paths had in the last hour. By default a path with a remembered rate
    /// starts faster (Careful Resume, RFC 9959)
    #[arg(long)]
    pub(crate) no_path_memory: bool,
}

/// Bytes of received DATAGRAMs that may wait for an application that reads them.
pub(crate) const DATAGRAM_BUFFER: usize = 1 << 20;

impl Policy {
    fn chosen(&self) -> (&Arc<dyn SchedulerFactory>, &Arc<dyn ControllerFactory>) {
        match &self.file {
            Some(file) => (&file.scheduler, &file.controller),
            None => (&self.scheduler.0, &self.cc.0),
        }
    }

    pub(crate) fn transport(&self, max_paths: u32) -> TransportOptions {
        let (scheduler, controller) = self.chosen();
        let mut transport = TransportOptions::new(scheduler.clone(), controller.clone());
        transport.max_concurrent_paths = max_paths;
        transport.careful_resume = !self.no_path_memory;
        // Most programs read no DATAGRAMs, so peers should not send any.
        transport.datagram_receive_buffer = None;
        transport
    }
}

#[derive(Debug, Args)]
pub(crate) struct Versions {
    /// Supported QUIC versions (v1, v2), the preferred one first. A client starts with the lowest
    /// version, and the server may switch to another one: the first of its versions that the client
    /// supports
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

/// Largest value of --qlog-max-size, MiB.
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
    /// Turns on qlog if the options ask for it.
    pub(crate) fn apply(&self, transport: &mut TransportOptions) -> Result<(), Failure> {
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
    /// Trust a new server, and afterwards only the certificate that it showed then (see
    /// --known-hosts)
    #[arg(long)]
    first_use: bool,
    /// Trust every server: an attacker on the network can read and change the data
    #[arg(long)]
    insecure: bool,
}

impl TrustArgs {
    pub(crate) fn trust(&self) -> Trust {
        // At most one of them is given.
        match (&self.ca, self.pin) {
            (Some(path), _) => Trust::Authorities(path.clone()),
            (None, Some(pin)) => Trust::Pin(pin),
            (None, None) if self.first_use => Trust::FirstUse,
            (None, None) if self.insecure => Trust::Anybody,
            (None, None) => Trust::System,
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
    /// The QUIC performance protocol, for `mpquic perf` and `mpquic serve --perf`
    #[value(skip)]
    Perf,
}

impl Alpn {
    pub(crate) const fn bytes(self) -> &'static [u8] {
        match self {
            Self::H3 => b"h3",
            Self::HqInterop => b"hq-interop",
            Self::Perf => b"perf",
        }
    }
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
}

/// How client and server agree on the secrets of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Exchange {
    /// X25519MLKEM768 first, which quantum computers do not break, and elliptic curves for peers
    /// that do not have it
    #[cfg(feature = "aws-lc-rs")]
    Hybrid,
    /// Elliptic curves only, whose handshakes take less time and smaller packets
    Classical,
}

/// What of TLS can be chosen.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct TlsArgs {
    /// Use only this cipher suite
    #[arg(long, value_name = "NAME")]
    cipher: Option<Cipher>,
    /// Agree on the secrets of connections this way: `hybrid` (the default, if this build has it)
    /// or `classical`
    #[arg(long, value_name = "NAME")]
    key_exchange: Option<Exchange>,
}

impl TlsArgs {
    /// The TLS provider with what was chosen.
    pub(crate) fn provider(self) -> CryptoProvider {
        let exchange = match self.key_exchange {
            Some(Exchange::Classical) => KeyExchange::Classical,
            _ => KeyExchange::Hybrid,
        };
        let mut provider = exchange.provider();
        if let Some(wanted) = self.cipher {
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

/// True for a colon with a port or without, and for an empty text.
fn is_port_or_none(text: &str) -> bool {
    let port = text.strip_prefix(':').unwrap_or(text);
    let has_colon = port.len() < text.len() || text.is_empty();
    has_colon && port.bytes().all(|byte| byte.is_ascii_digit())
}

pub(crate) fn parse_url(text: &str) -> Result<Uri, String> {
    if !text.contains("://") && text.starts_with(|c: char| c.is_alphanumeric() || c == '[') {
        return Err(format!("the URL has no scheme; expected https://{text}"));
    }
    let expected = "expected https://HOST[:PORT]/FILE";
    let escaped = url::escaped(text.as_bytes());
    let uri: Uri = escaped.parse().map_err(|error| format!("{error}"))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("https"), Some(host)) if !host.is_empty() => {}
        (Some(scheme), _) if scheme != "https" => {
            return Err(format!(
                "`{scheme}` is not supported; QUIC URLs start with https://"
            ));
        }
        _ => return Err(expected.to_owned()),
    }
    let authority = uri.authority().map_or("", Authority::as_str);
    if authority.contains('@') {
        return Err(
            "a URL takes no name and no password, which other users of this machine could read; \
             --credentials of `get`, `put` and `proxy client` takes them from a file"
                .to_owned(),
        );
    }
    if let Err(Unusable::Wrong(told)) = hosts::literal(uri.host().unwrap_or_default()) {
        return Err(told);
    }
    // RFC 3986 section 3.2.2: brackets are around the whole host. The parser takes `[::1]host` for
    // `[::1]`.
    let behind = match authority.split_once(']') {
        None if !authority.contains('[') => authority,
        Some((literal, port)) if literal.starts_with('[') && is_port_or_none(port) => port,
        _ => return Err(expected.to_owned()),
    };
    match behind.rsplit_once(':') {
        None => Ok(uri),
        // RFC 3986 section 3.2.3: no port means the default one.
        Some((_, "")) => {
            let authority = authority.trim_end_matches(':').to_owned();
            let mut parts = uri.into_parts();
            parts.authority = authority.parse().ok();
            Uri::from_parts(parts).map_err(|_| expected.to_owned())
        }
        Some((_, port)) => hosts::parse_port(port)
            .map(|_| uri)
            .ok_or_else(|| expected.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn urls_need_a_scheme_and_a_host() {
        assert!(parse_url("https://example.org:4433/file").is_ok());
        assert!(parse_url("https://[::1]:4433/file").is_ok());
        // As people write them.
        let host = parse_url("https://b\u{fc}cher.example:1/gr\u{fc}n [1]?a|b").unwrap();
        let expected = "https://xn--bcher-kva.example:1/gr%C3%BCn%20%5B1%5D?a%7Cb";
        assert_eq!(host, expected);
        let told = parse_url("example.org/x").unwrap_err();
        assert_eq!(
            told,
            "the URL has no scheme; expected https://example.org/x"
        );
        for wrong in [
            "http://example.org/",
            "https://example.org:x/",
            "https://example.org:65536/",
            "https://example.org:+4433/",
            "https://[::1]:x/",
            "https://[::1]:+5/",
            "https://[::1]host/",
            "https://[::1]6/",
            "https://[::1]6:443/",
            "https://host[::1]/",
            "https://a:1b:2[::1]/",
            "example.org/file",
            "https:///file",
            "https://:5/",
            "/file",
            "",
        ] {
            assert!(parse_url(wrong).is_err(), "{wrong}");
        }
    }

    /// RFC 3986 section 3.2.3.
    #[test]
    fn an_empty_port_is_the_default_one() {
        for (text, same) in [
            ("https://example.org:/x?y", "https://example.org/x?y"),
            ("https://[::1]:/", "https://[::1]/"),
            ("https://example.org:", "https://example.org"),
        ] {
            assert_eq!(parse_url(text), parse_url(same), "{text}");
            assert!(parse_url(same).is_ok());
        }
    }

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        connections: Connections,
        #[command(flatten)]
        trust: TrustArgs,
    }

    fn line(options: &[&str]) -> Line {
        let line = ["x"].iter().chain(options);
        Line::try_parse_from(line).unwrap()
    }

    #[test]
    fn errors_of_urls_are_named() {
        let told = |text: &str| parse_url(text).unwrap_err();
        let expected = "`http` is not supported; QUIC URLs start with https://";
        assert_eq!(told("http://example.org/"), expected);
        for wrong in ["https://example.org:x/", "https://[::1]:x/", "/file"] {
            assert_eq!(told(wrong), "expected https://HOST[:PORT]/FILE", "{wrong}");
        }
        for user in ["user", "user:secret", "user:", ":secret"] {
            let told = told(&format!("https://{user}@example.org/"));
            assert!(told.contains("--credentials"), "{user}: {told}");
            assert!(!told.contains("secret"), "{user}: {told}");
        }
        // A sign behind the host is part of the name of a file.
        assert!(parse_url("https://example.org/@user").is_ok());
        let link = "fe80::1 is a link-local address: name its link, as in [fe80::1%25eth0]";
        assert_eq!(told("https://[fe80::1]/"), link);
        let link = told("https://[fe80::1%4294967295]/");
        assert!(link.contains("no link `4294967295`"), "{link}");
        // A link with this name may come later.
        assert!(parse_url("https://[fe80::1%25absent0]/").is_ok());
    }

    #[test]
    fn options_reach_connections() {
        let transport = |options: &[&str]| line(options).connections.transport(5).unwrap();
        let usual = transport(&[]);
        assert_eq!(usual.max_concurrent_paths, 5);
        assert_eq!(usual.datagram_receive_buffer, None);
        assert!(usual.careful_resume);
        assert!(!transport(&["--no-path-memory"]).careful_resume);
        let directory = tempfile::tempdir().unwrap();
        let logs = directory.path().join("logs");
        let logs = logs.to_str().unwrap();
        let logged = transport(&["--qlog-dir", logs, "--qlog-max-size", "3"]);
        let qlog = format!("{:?}", logged.qlog.unwrap());
        assert!(qlog.contains(logs) && qlog.contains("3145728"), "{qlog}");
        assert!(std::fs::metadata(logs).unwrap().is_dir());
        let failure = line(&["--qlog-dir", "/dev/null/x"])
            .connections
            .transport(5);
        let failure = failure.err().unwrap();
        let told = "cannot write logs to /dev/null/x: ";
        assert!(failure.message().starts_with(told), "{}", failure.message());
    }

    #[test]
    fn named_cipher_suite_is_the_only_one() {
        assert_eq!(TlsArgs::default().provider().cipher_suites.len(), 3);
        for cipher in [Cipher::Aes128, Cipher::Aes256, Cipher::Chacha20] {
            let tls = TlsArgs {
                cipher: Some(cipher),
                key_exchange: None,
            };
            let suites = tls.provider().cipher_suites;
            let suites: Vec<_> = suites.iter().map(|suite| suite.suite()).collect();
            assert_eq!(suites, [cipher.suite()]);
        }
    }

    #[cfg(feature = "aws-lc-rs")]
    #[test]
    fn the_hybrid_key_exchange_can_be_left_out() {
        use rustls::NamedGroup;
        let groups = |options: &[&str]| {
            let provider = line(options).connections.tls.provider();
            let groups = provider.kx_groups.iter().map(|group| group.name());
            groups.collect::<Vec<_>>()
        };
        let hybrid = NamedGroup::X25519MLKEM768;
        assert_eq!(groups(&[])[0], hybrid);
        assert_eq!(groups(&["--key-exchange", "hybrid"])[0], hybrid);
        let classical = groups(&["--key-exchange", "classical"]);
        assert!(classical[0] == NamedGroup::X25519 && !classical.contains(&hybrid));
    }

    #[test]
    fn whom_to_trust() {
        let pin = format!("sha256:{}", "01".repeat(32));
        for (options, expected) in [
            (&[][..], Trust::System),
            (&["--ca", "a.pem"], Trust::Authorities("a.pem".into())),
            (&["--pin", &pin], Trust::Pin(Fingerprint([1; 32]))),
            (&["--first-use"], Trust::FirstUse),
            (&["--insecure"], Trust::Anybody),
        ] {
            assert_eq!(line(options).trust.trust(), expected);
        }
        let both = ["x", "--insecure", "--first-use"];
        assert!(Line::try_parse_from(both).is_err());
    }
}
