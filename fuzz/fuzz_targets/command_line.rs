//! Command lines of a client: accepted options are within the documented ranges and make a valid
//! transport; refused options get a message and exit code 2.

#![no_main]

use arbitrary::Arbitrary;
use clap::Parser;
use clap::error::ErrorKind;
use http::Uri;
use libfuzzer_sys::fuzz_target;

#[expect(dead_code, reason = "options are read, not used")]
#[path = "../../crates/mpquic-cli/src/options/mod.rs"]
mod options;
#[expect(dead_code, reason = "options are read, not used")]
#[path = "../../crates/mpquic-cli/src/process/mod.rs"]
mod process;
#[expect(dead_code, reason = "options are read, not used")]
#[path = "../../crates/mpquic-cli/src/rate/mod.rs"]
mod rate;
#[expect(dead_code, reason = "options are read, not used")]
#[path = "../../crates/mpquic-cli/src/text/mod.rs"]
mod text;

use options::drill::Step;
use options::reach::{Patience, Reach};
use options::trust::{Fingerprint, Trust};
use options::{Alpn, parse_url};
use process::failure::one_line;

/// A client's command line, with the options that all commands share.
#[derive(Debug, Parser)]
#[command(name = "client")]
struct Line {
    #[arg(required = true, value_parser = parse_url)]
    urls: Vec<Uri>,
    #[arg(long, value_delimiter = ',', default_value = "h3,hq-interop")]
    alpn: Vec<Alpn>,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    patience: Patience,
}

const OPTIONS: [&str; 16] = [
    "--alpn",
    "--server-addr",
    "--paths",
    "--connect-timeout",
    "--retry-time",
    "--stall-timeout",
    "--cipher",
    "--drill",
    "--quic-version",
    "--scheduler",
    "--cc",
    "--qlog-max-size",
    "--ca",
    "--pin",
    "--insecure",
    "--help",
];

const VALUES: [&str; 32] = [
    "https://localhost/a",
    "https://[::1]:4433/b?c",
    "http://localhost/",
    "[::]:4433",
    "127.0.0.1:0",
    "0",
    "1",
    "64",
    "65",
    "-1",
    "18446744073709551615",
    "18446744073709551616",
    "h3",
    "hq-interop",
    "h3,hq-interop",
    "v1",
    "v2,v1",
    "v3",
    "lrf",
    "blest",
    "olia",
    "cubic",
    "aes128",
    "chacha20",
    "each",
    "once",
    "=each",
    "wait,update-keys,renew",
    "move=127.0.0.2",
    "close=0,backup=1,available=4294967295",
    "all",
    "-",
];

#[derive(Debug, Arbitrary)]
enum Word {
    Option(u8),
    Value(u8),
    /// An option and its value in one word.
    Both(u8, u8),
    Number(u8, i64),
    Pin([u8; 32], bool),
    Any(String),
}

#[derive(Debug, Arbitrary)]
struct Input {
    words: Vec<Word>,
    step: String,
    fingerprint: String,
    message: String,
}

fuzz_target!(|input: Input| {
    let words = input.words.iter().take(16).map(write);
    let words: Vec<String> = words.filter(|word| !touches_system(word)).collect();
    let written = || std::iter::once("client").chain(words.iter().map(String::as_str));
    match (
        Line::try_parse_from(written()),
        Line::try_parse_from(written()),
    ) {
        (Ok(line), Ok(again)) => {
            assert_eq!(format!("{line:?}"), format!("{again:?}"));
            check(&line);
        }
        (Err(error), Err(_)) => {
            let is_help = matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            );
            assert_eq!(error.exit_code(), if is_help { 0 } else { 2 });
            assert!(!error.to_string().is_empty());
        }
        _ => panic!("it depends"),
    }
    check_values(&input);
});

/// True for options whose values are files or interfaces: reading them asks the system.
fn touches_system(word: &str) -> bool {
    ["--local", "--loc", "--qlog"]
        .iter()
        .any(|option| word.starts_with(option))
        && !word.starts_with("--qlog-m")
}

fn write(word: &Word) -> String {
    let option = |index: u8| OPTIONS[usize::from(index) % OPTIONS.len()];
    let value = |index: u8| VALUES[usize::from(index) % VALUES.len()];
    match word {
        Word::Option(index) => option(*index).to_owned(),
        Word::Value(index) => value(*index).to_owned(),
        Word::Both(index, other) => format!("{}={}", option(*index), value(*other)),
        Word::Number(index, number) => format!("{}={number}", option(*index)),
        Word::Pin(bytes, is_long) => {
            let separator = if *is_long { ":" } else { "" };
            let digits: Vec<_> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
            format!("--pin=sha256:{}", digits.join(separator))
        }
        Word::Any(text) => text.clone(),
    }
}

fn check(line: &Line) {
    assert!(!line.urls.is_empty() && !line.alpn.is_empty());
    for url in &line.urls {
        assert_eq!(url.scheme_str(), Some("https"));
        assert!(url.host().is_some_and(|host| !host.is_empty()));
    }
    let reach = &line.reach;
    assert!(reach.paths.is_none_or(|paths| (1..=64).contains(&paths)));
    assert!((1..=3600).contains(&reach.connect_timeout));
    assert!((1..=86_400).contains(&line.patience.stall.limit().as_secs()));
    let _one_of: Trust = reach.trust.trust();
    assert!(!reach.connections.versions.list().is_empty());
    let transport = reach.connections.transport(reach.paths.unwrap_or(8));
    let transport = transport.expect("no logs were asked for");
    transport.build().expect("a transport");
}

fn check_values(input: &Input) {
    if let Ok(step) = input.step.parse::<Step>() {
        assert_eq!(input.step.parse::<Step>(), Ok(step));
    }
    if let Ok(fingerprint) = input.fingerprint.parse::<Fingerprint>() {
        assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
    }
    // A text of a peer must not reach the terminal unchanged.
    let line = one_line(&input.message);
    assert_eq!(line.chars().count(), input.message.chars().count());
    assert!(!line.chars().any(char::is_control));
}
