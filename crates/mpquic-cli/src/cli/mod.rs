//! The command line.

pub(crate) mod config_file;
pub(crate) mod manual;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::cli::manual::{Completions, Man};
use crate::demo::args::Demo;
use crate::get::args::Get;
use crate::paths::Paths;
use crate::perf::args::Perf;
use crate::proxy::args::Proxy;
use crate::put::Put;
use crate::qlog::QlogPage;
use crate::record::Record;
use crate::serve::args::Serve;

/// Transfers over several network paths at once, by multipath QUIC (RFC 10069).
///
/// Try `mpquic demo` first: it needs no arguments. Then `mpquic serve DIR` on one machine and
/// `mpquic get URL` on another.
///
/// Exit codes: 0 success, 2 wrong command line, 3 a file cannot be read or written, 4 the server's
/// name has no address, 5 no connection, 6 the server is not trusted, 7 the server refused the
/// request, 8 the transfer broke off, 9 the content differs from the expected one, 1 other
/// failures. SSLKEYLOGFILE names a file for TLS secrets, so that Wireshark can decrypt packets.
/// RUST_LOG sets the level of the log on standard error.
#[derive(Debug, Parser)]
#[command(name = "mpquic", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The command of a command line: the names of commands come first.
pub(crate) fn command_in(words: impl Iterator<Item = String>) -> String {
    let root = Cli::command();
    let (mut found, mut name) = (&root, root.get_name().to_owned());
    for word in words.skip(1) {
        let Some(inner) = found.find_subcommand(&word) else {
            break;
        };
        found = inner;
        name = format!("{name} {word}");
    }
    name
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

/// Options of the commands that list policies.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct List {
    /// Print a JSON object for each policy: name, description and source
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::examples;

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
            // Interfaces in examples must exist.
            let here = |word| match word {
                "eth0" | "wlan0" | "wwan0" => "127.0.0.1",
                other => other,
            };
            let parsed = commands.map(|line| Cli::try_parse_from(line.split(' ').map(here)));
            let parsed: Vec<_> = parsed.collect::<Result<_, _>>().unwrap();
            assert!(parsed.len() >= 2, "{examples}");
        }
    }

    #[test]
    fn command_is_named_by_its_first_words() {
        for (line, expected) in [
            ("mpquic", "mpquic"),
            ("mpquic --version", "mpquic"),
            ("mpquic get https://host/ -o put", "mpquic get"),
            ("mpquic proxy client --pin x", "mpquic proxy client"),
            ("/usr/bin/mpquic lab run all-two-equal", "mpquic lab run"),
        ] {
            let words = line.split(' ').map(str::to_owned);
            assert_eq!(command_in(words), expected);
        }
    }
}
