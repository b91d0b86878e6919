//! The tables, and the units of their figures.

use std::fmt;

use clap::ValueEnum;
use compare_peer::Workload;

use crate::contestant::Contestant;
use crate::measure::Sample;

/// A table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Subject {
    /// One stream of 1 GiB from the server, beside limits of the machine
    Bulk,
    /// Eight streams at a time
    Streams,
    /// 100,000 requests and responses of 1 KiB, 100 at a time
    Requests,
    /// Full handshakes, 64 at a time
    Handshakes,
    /// Handshakes with a session ticket
    Resumed,
    /// 5,000 idle connections
    Memory,
    /// One stream over one, two and four paths
    Paths,
    /// DATAGRAM frames
    Datagrams,
    /// One stream of 1 GiB to the server
    Upload,
}

impl Subject {
    /// The rows: contestants with their workloads.
    pub(crate) fn rows(self, contestants: &[Contestant]) -> Vec<(Contestant, Workload)> {
        let workloads: &[Workload] = match self {
            Self::Bulk => &[Workload::Bulk],
            Self::Streams => &[Workload::Streams],
            Self::Requests => &[Workload::Requests],
            Self::Handshakes => &[Workload::Handshakes],
            Self::Resumed => &[Workload::Resumed],
            Self::Memory => &[Workload::Memory],
            Self::Paths => &[Workload::Bulk, Workload::TwoPaths, Workload::FourPaths],
            Self::Datagrams => &[Workload::Datagrams],
            Self::Upload => &[Workload::Upload],
        };
        let contestants = contestants.iter().copied();
        let contestants = contestants.filter(|who| self == Self::Bulk || !who.is_limit());
        Vec::from_iter(contestants.flat_map(|who| workloads.iter().map(move |what| (who, *what))))
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Bulk => "One stream, download",
            Self::Streams => "Eight streams, download",
            Self::Requests => "Requests and responses of 1 KiB, 100 at a time",
            Self::Handshakes => "Full handshakes, 64 at a time",
            Self::Resumed => "Resumed handshakes, 64 at a time",
            Self::Memory => "Memory of the server per idle connection",
            Self::Paths => "One stream over several paths, download",
            Self::Datagrams => "DATAGRAM frames of 1000 bytes received",
            Self::Upload => "One stream, upload",
        }
    }

    pub(crate) fn figures(self) -> &'static Figures {
        match self {
            Self::Requests | Self::Handshakes | Self::Resumed | Self::Datagrams => &EACH,
            Self::Memory => &MEMORY,
            _ => &BYTES,
        }
    }
}

/// The name in options.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// A column.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) decimals: usize,
    pub(crate) of: fn(&Sample) -> f64,
    /// True if a larger figure is better.
    pub(crate) more: bool,
}

/// The columns of a table, the main figure first.
pub(crate) type Figures = [Figure];

const BYTES: [Figure; 6] = [
    Figure {
        name: "Gbit/s",
        decimals: 2,
        of: |sample| sample.report.count as f64 * 8e-9 / sample.report.seconds,
        more: true,
    },
    Figure {
        name: "server CPU s/GB",
        decimals: 3,
        of: |sample| sample.server_cpu * 1e9 / sample.report.count as f64,
        more: false,
    },
    Figure {
        name: "client CPU s/GB",
        decimals: 3,
        of: |sample| sample.report.cpu * 1e9 / sample.report.count as f64,
        more: false,
    },
    Figure {
        name: "Gbit/s per CPU",
        decimals: 2,
        of: |sample| sample.report.count as f64 * 8e-9 / sample.busier(),
        more: true,
    },
    Figure {
        name: "server wake-ups/MB",
        decimals: 1,
        of: |sample| sample.server_sleeps as f64 * 1e6 / sample.report.count as f64,
        more: false,
    },
    Figure {
        name: "client wake-ups/MB",
        decimals: 1,
        of: |sample| sample.report.sleeps as f64 * 1e6 / sample.report.count as f64,
        more: false,
    },
];

const EACH: [Figure; 4] = [
    Figure {
        name: "per second",
        decimals: 0,
        of: |sample| sample.report.count as f64 / sample.report.seconds,
        more: true,
    },
    Figure {
        name: "server CPU µs",
        decimals: 2,
        of: |sample| sample.server_cpu * 1e6 / sample.report.count as f64,
        more: false,
    },
    Figure {
        name: "client CPU µs",
        decimals: 2,
        of: |sample| sample.report.cpu * 1e6 / sample.report.count as f64,
        more: false,
    },
    Figure {
        name: "per CPU second",
        decimals: 0,
        of: |sample| sample.report.count as f64 / sample.busier(),
        more: true,
    },
];

const MEMORY: [Figure; 1] = [Figure {
    name: "KiB",
    decimals: 1,
    of: |sample| sample.memory as f64 / 1024.0 / sample.report.count as f64,
    more: false,
}];
