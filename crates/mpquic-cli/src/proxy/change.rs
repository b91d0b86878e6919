//! [`Change`]: a change of a running client, as a line of words on its socket, and the [`Reply`].

use std::str::FromStr;

use clap::{Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::options::cost::{Cost, parse_cost};
use crate::options::quota::{Quota, parse_quota_or_none};
use crate::options::{Local, parse_local};
use crate::proxy::settings::Settings;

/// A change of a running client.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub(crate) enum Change {
    /// Set the cost of paths from an interface, as --cost does
    Cost {
        /// The interface, a pattern such as wwan*, or an address, and a cost from 0 to 1000
        #[arg(value_name = "IFACE=N", value_parser = parse_cost)]
        cost: Cost,
    },
    /// Let paths from an interface stand by, as --backup does, or no longer
    Backup {
        /// The interface, a pattern such as wwan*, or an address
        #[arg(value_name = "IFACE", value_parser = parse_local)]
        from: Local,
        /// Whether the paths stand by
        #[arg(value_name = "on|off")]
        state: Switch,
    },
    /// Close all paths from an interface, and open no new ones
    Pause {
        /// The interface, a pattern such as wwan*, or an address
        #[arg(value_name = "IFACE", value_parser = parse_local)]
        from: Local,
    },
    /// Open paths from a paused interface again
    Resume {
        /// The interface, pattern or address of `pause`
        #[arg(value_name = "IFACE", value_parser = parse_local)]
        from: Local,
    },
    /// Set the packet scheduler for the data that the client sends
    Scheduler {
        /// One of `mpquic schedulers`
        #[arg(value_name = "NAME", value_parser = parse_scheduler)]
        name: String,
    },
    /// Set the congestion controller for the data that the client sends
    Controller {
        /// One of `mpquic controllers`
        #[arg(value_name = "NAME", value_parser = parse_controller)]
        name: String,
    },
    /// Set the bytes a month on an interface, as --quota does, or none
    Quota {
        /// The interface or a pattern such as wwan*, a size such as 20G or none, and the day on
        /// which months begin
        #[arg(value_name = "IFACE=SIZE[,reset=DAY]", value_parser = parse_quota_or_none)]
        quota: Quota,
    },
    /// Show the present settings
    Show {
        /// Print a JSON object with `scheduler`, `controller`, `costs`, `backups`, `paused`,
        /// `quotas` and `interfaces`
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

fn parse_scheduler(name: &str) -> Result<String, String> {
    let known = mpquic_sched::by_name(name).map(|_| name.to_owned());
    known.map_err(|error| error.to_string())
}

fn parse_controller(name: &str) -> Result<String, String> {
    let known = mpquic_cc::by_name(name).map(|_| name.to_owned());
    known.map_err(|error| error.to_string())
}

impl Change {
    /// The line for the client.
    pub(crate) fn line(&self) -> String {
        match self {
            Self::Cost { cost } => format!("cost {}={}", cost.from, cost.cost),
            Self::Backup { from, state } => match state {
                Switch::On => format!("backup {from} on"),
                Switch::Off => format!("backup {from} off"),
            },
            Self::Pause { from } => format!("pause {from}"),
            Self::Resume { from } => format!("resume {from}"),
            Self::Scheduler { name } => format!("scheduler {name}"),
            Self::Controller { name } => format!("controller {name}"),
            Self::Quota { quota } => format!("quota {quota}"),
            Self::Show { .. } => "show".to_owned(),
        }
    }
}

/// A line of words as a command line.
#[derive(Debug, Parser)]
#[command(
    no_binary_name = true,
    disable_help_flag = true,
    disable_help_subcommand = true
)]
struct Line {
    #[command(subcommand)]
    change: Change,
}

impl FromStr for Change {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        match Line::try_parse_from(line.split_whitespace()) {
            Ok(line) => Ok(line.change),
            Err(error) => {
                let told = error.to_string();
                // What follows is advice for a command line.
                let told = told.split("\n\n").next().unwrap_or_default();
                let told = told.strip_prefix("error: ").unwrap_or(told);
                let words: Vec<_> = told.split_whitespace().collect();
                Err(if words.is_empty() {
                    EXPECTED.to_owned()
                } else {
                    format!("{}; {EXPECTED}", words.join(" "))
                })
            }
        }
    }
}

/// The commands of a line.
const EXPECTED: &str = "expected cost IFACE=N, backup IFACE on|off, pause IFACE, resume IFACE, scheduler NAME, \
                        controller NAME, quota IFACE=SIZE[,reset=DAY] or show";

/// The answer of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reply {
    /// The change is done, in words.
    Done(String),
    /// The answer to `show`.
    Settings(Box<Settings>),
    /// Nothing has changed, for this reason.
    Error(String),
}

/// The answer of a server to every change.
pub(crate) fn refuse_of_server(_: &str) -> Reply {
    let told = "this is the socket of a proxy server, and only a client can be changed";
    Reply::Error(told.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_travels_as_a_line() {
        for line in [
            "cost wwan*=5",
            "backup wwan0 on",
            "backup 127.0.0.1 off",
            "pause wwan0",
            "resume wwan?",
            "scheduler lrf",
            "controller cubic",
            "quota wwan0=500M,reset=15",
            "quota wwan0=none",
            "show",
        ] {
            let change: Change = line.parse().unwrap();
            assert_eq!(change.line(), line);
            assert_eq!(change.line().parse(), Ok(change));
        }
        let precise: Change = "quota wwan0=1.23456789G".parse().unwrap();
        assert_eq!(precise.line().parse(), Ok(precise));
        let spaced: Change = " \t pause   wwan0 ".parse().unwrap();
        assert_eq!(spaced.line(), "pause wwan0");
    }

    #[test]
    fn wrong_lines_are_told_on_one_line() {
        for (line, told) in [
            ("", EXPECTED),
            ("\u{0}\u{1b}[2J", "unrecognized subcommand"),
            ("stop", "unrecognized subcommand 'stop'"),
            ("pause", "<IFACE>"),
            ("pause a b", "unexpected argument 'b'"),
            ("pause --help", "unexpected argument '--help'"),
            ("--help", "unexpected argument '--help'"),
            ("help", "unrecognized subcommand 'help'"),
            ("backup wwan0 maybe", "[possible values: on, off]"),
            (
                "cost wwan0",
                "expected IFACE=N or ADDR=N, with N from 0 to 1000",
            ),
            ("quota wwan0=5", "such as 500M, 20G or 1.5T"),
            ("scheduler fast", "round-robin"),
            ("controller fast", "cubic"),
        ] {
            let error = line.parse::<Change>().unwrap_err();
            assert!(error.contains(told), "{line}: {error}");
            assert!(error.contains(EXPECTED), "{line}: {error}");
            assert!(!error.contains('\n') && !error.contains("Usage"), "{error}");
        }
    }
}
