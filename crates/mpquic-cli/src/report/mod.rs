//! The result of a transfer: as JSON for programs, as a table for people.

pub(crate) mod latency;
pub(crate) mod links;
pub(crate) mod live;
pub(crate) mod live_terminal;
pub(crate) mod live_view;
pub(crate) mod progress;

use std::borrow::Cow;
use std::fmt::Write as _;

use mpquic_core::{ConnectionStats, PathState, PathStats};
use mpquic_tokio::Connection;
use serde::{Deserialize, Serialize};

use crate::report::links::LinkReport;
use crate::text::count::count;

/// A number of bytes and their rate.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Amount {
    pub(crate) bytes: u64,
    pub(crate) bits_per_second: f64,
}

impl Amount {
    pub(crate) fn new(bytes: u64, seconds: f64) -> Self {
        Self {
            bytes,
            bits_per_second: 8.0 * bytes as f64 / seconds.max(1e-9),
        }
    }
}

/// One finished transfer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Report {
    pub(crate) url: String,
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    pub(crate) sha256: String,
    pub(crate) paths: Vec<PathReport>,
    /// The bytes of each link, over all connections of the transfer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) links: Vec<LinkReport>,
    /// Bytes sent again while the first copy was still under way and not known as lost.
    pub(crate) extra_bytes_sent: u64,
    /// Received bytes that had arrived before.
    pub(crate) extra_bytes_received: u64,
    /// True if both sides support multipath.
    pub(crate) multipath: bool,
    /// True if the request travelled as 0-RTT data, and the server accepted the data.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) early_data: bool,
    /// Bytes of the file from an earlier transfer.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) resumed_at: u64,
    /// Number of retries.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) retries: u64,
    /// Longest time without new bytes of the file, between its first and its last bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) longest_gap_ms: Option<f64>,
    pub(crate) quic_version: String,
    pub(crate) key_exchange: Option<String>,
    pub(crate) protocol: String,
    /// The path of the written file; absent for standard output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
    /// True for a sent file.
    #[serde(skip)]
    pub(crate) is_sent: bool,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A path's part in a transfer. After several connections, the part in the last connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PathReport {
    pub(crate) id: u32,
    pub(crate) local: String,
    pub(crate) remote: String,
    /// Bytes of datagrams during the transfer.
    pub(crate) bytes_received: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) rtt_ms: f64,
    /// Lost packets of this side.
    pub(crate) lost: u64,
    /// Congestion window, bytes.
    pub(crate) cwnd: u64,
    pub(crate) state: Cow<'static, str>,
    /// True if the path started with the capacity that an earlier connection measured (RFC 9959).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) resumed: bool,
    /// True if this capacity was too much.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) resume_failed: bool,
}

/// A reading of the counters of a connection.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) paths: Vec<PathStats>,
    extra_sent: u64,
    extra_received: u64,
}

impl Counters {
    /// The present counters of a connection.
    pub(crate) fn of(connection: &Connection) -> Self {
        Self::new(path_counters(connection), &connection.stats())
    }

    fn new(paths: Vec<PathStats>, stats: &ConnectionStats) -> Self {
        Self {
            paths,
            extra_sent: stats.bytes_reinjected + stats.bytes_repeated,
            extra_received: stats.bytes_received_again,
        }
    }

    /// Bytes sent again, and bytes received again, since an earlier reading.
    pub(crate) fn extra_since(&self, earlier: &Self) -> (u64, u64) {
        (
            self.extra_sent.saturating_sub(earlier.extra_sent),
            self.extra_received.saturating_sub(earlier.extra_received),
        )
    }
}

/// The name of the group of the key exchange.
pub(crate) fn key_exchange(connection: &Connection) -> Option<String> {
    let group = connection.stats().key_exchange;
    group.map(|group| group.to_string())
}

/// A path's state in one word.
pub(crate) fn state_name(state: PathState) -> &'static str {
    match state {
        PathState::Validating => "validating",
        PathState::Active => "active",
        PathState::Suspect => "suspect",
        PathState::Abandoned => "abandoned",
        _ => "unknown",
    }
}

/// The counters of the paths of a connection. Paths that have ended come first.
pub(crate) fn path_counters(connection: &Connection) -> Vec<PathStats> {
    let mut paths = connection.ended_path_stats();
    paths.extend(connection.path_stats());
    paths
}

/// The paths of a reading of their counters, each with its part in an earlier reading. A path that
/// had ended before the earlier reading is left out.
pub(crate) fn with_earlier<'a>(
    before: &'a [PathStats],
    after: &'a [PathStats],
) -> impl Iterator<Item = (Option<&'a PathStats>, &'a PathStats)> {
    let bytes = |path: &PathStats| path.bytes_received + path.bytes_sent;
    let paths = after.iter().map(|path| {
        let earlier = before.iter().find(|earlier| earlier.id == path.id);
        (earlier, path)
    });
    paths.filter(move |(earlier, path)| {
        path.state != PathState::Abandoned || bytes(path) != earlier.map_or(0, bytes)
    })
}

/// Figures of the paths between two readings of their counters. A path that had ended before is
/// left out.
pub(crate) fn paths(before: &[PathStats], after: &[PathStats]) -> Vec<PathReport> {
    let report = |(earlier, path): (Option<&PathStats>, &PathStats)| {
        let since = |counter: fn(&PathStats) -> u64| {
            counter(path).saturating_sub(earlier.map_or(0, counter))
        };
        PathReport {
            id: path.id.0,
            local: path.four_tuple.local.to_string(),
            remote: path.four_tuple.remote.to_string(),
            bytes_received: since(|path| path.bytes_received),
            bytes_sent: since(|path| path.bytes_sent),
            rtt_ms: path.rtt.as_secs_f64() * 1e3,
            lost: since(|path| path.packets_lost),
            cwnd: path.window,
            state: state_name(path.state).into(),
            resumed: path.resumption.used,
            resume_failed: path.resumption.retreated,
        }
    };
    with_earlier(before, after).map(report).collect()
}

impl Report {
    /// Bytes that a path carried in the direction of the file, packet headers included.
    fn carried(&self, path: &PathReport) -> u64 {
        if self.is_sent {
            path.bytes_sent
        } else {
            path.bytes_received
        }
    }

    /// "512.0 MiB in 1.20 s, 3.58 Gbit/s, over 2 paths"
    pub(crate) fn summary(&self) -> String {
        let used = self.paths.iter().filter(|path| self.carried(path) > 0);
        let used = count(used.count(), "path");
        let fetched = self.bytes.saturating_sub(self.resumed_at);
        let more = match (self.resumed_at, self.retries) {
            (0, 0) => String::new(),
            (0, tries) => format!(", tried again {}", count(tries, "time")),
            (there, 0) => format!(", {} were there", size(there)),
            (there, tries) => {
                let (there, tries) = (size(there), count(tries, "time"));
                format!(", {there} were there, tried again {tries}")
            }
        };
        format!(
            "{} in {:.2} s, {}, over {used}{more}",
            size(fetched),
            self.seconds,
            rate(fetched as f64 / self.seconds.max(1e-9)),
        )
    }

    /// A row per path.
    pub(crate) fn table(&self) -> String {
        let widest = |cell: fn(&PathReport) -> &str| {
            self.paths
                .iter()
                .map(|path| cell(path).len())
                .max()
                .unwrap_or(0)
        };
        let local = widest(|path| &path.local).max("local".len());
        let remote = widest(|path| &path.remote).max("remote".len());
        let mut table = format!(
            "path  {:local$}  {:remote$}  {:>9}  share       rtt     cwnd  lost  state\n",
            "local",
            "remote",
            if self.is_sent { "sent" } else { "received" }
        );
        let all: u64 = self.paths.iter().map(|path| self.carried(path)).sum();
        for path in &self.paths {
            let share = 100 * self.carried(path) / all.max(1);
            let _ = writeln!(
                table,
                "{:>4}  {:local$}  {:remote$}  {:>9}  {share:>3} %  {:>5.2} ms  {:>7}  {:>4}  {}",
                path.id,
                path.local,
                path.remote,
                size(self.carried(path)),
                path.rtt_ms,
                size(path.cwnd),
                path.lost,
                path.state
            );
        }
        if let Some(links) = on_the_wire(&self.links) {
            let _ = writeln!(table, "{links}");
        }
        table
    }
}

/// "3 files, 1.5 MiB in 0.50 s, 25.2 Mbit/s"
pub(crate) fn of_files(number: usize, bytes: u64, seconds: f64) -> String {
    let speed = rate(bytes as f64 / seconds.max(1e-9));
    let (files, bytes) = (count(number, "file"), size(bytes));
    format!("{files}, {bytes} in {seconds:.2} s, {speed}")
}

/// "on the wire: wlan0 1.5 MiB received, 20.0 KiB sent; lte0 3.0 MiB received, 41.0 KiB sent", for
/// several links.
pub(crate) fn on_the_wire(links: &[LinkReport]) -> Option<String> {
    let told = |link: &LinkReport| {
        let (received, sent) = (size(link.bytes_received), size(link.bytes_sent));
        format!("{} {received} received, {sent} sent", link.link)
    };
    let all: Vec<_> = links.iter().map(told).collect();
    (all.len() > 1).then(|| format!("on the wire: {}", all.join("; ")))
}

/// "1.5 MiB"
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(unit > 0);
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// "2.51 Gbit/s"
pub(crate) fn rate(bytes_per_second: f64) -> String {
    let bits = bytes_per_second * 8.0;
    match bits {
        ..1e6 => format!("{:.0} kbit/s", bits / 1e3),
        1e6..1e9 => format!("{:.1} Mbit/s", bits / 1e6),
        _ => format!("{:.2} Gbit/s", bits / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use mpquic_tokio::Traffic;
    use mpquic_tokio::path_managers::Origin;

    use super::*;

    #[test]
    fn sizes_and_rates() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(1 << 20), "1.0 MiB");
        assert_eq!(size((1 << 20) - 1), "1.0 MiB");
        assert_eq!(size(u64::MAX), "16777216.0 TiB");
        assert_eq!(size(1024), "1.0 KiB");
        assert_eq!(size(1000 << 10), "1000.0 KiB");
        assert_eq!(size(5 << 30), "5.0 GiB");
        assert_eq!(size(3 << 40), "3.0 TiB");
        assert_eq!(rate(1000.0), "8 kbit/s");
        assert_eq!(rate(124_999.0), "1000 kbit/s");
        assert_eq!(rate(125_000.0), "1.0 Mbit/s");
        assert_eq!(rate(1e6), "8.0 Mbit/s");
        assert_eq!(rate(1.25e9), "10.00 Gbit/s");
    }

    #[test]
    fn files_share_one_rate() {
        let expected = "3 files, 1.5 MiB in 0.50 s, 25.2 Mbit/s";
        assert_eq!(of_files(3, 3 << 19, 0.5), expected);
        assert_eq!(of_files(0, 0, 0.0), "0 files, 0 B in 0.00 s, 0 kbit/s");
        let quick = "1 file, 125 B in 0.00 s, 1000.00 Gbit/s";
        assert_eq!(of_files(1, 125, 0.0), quick);
    }

    #[test]
    fn single_path_has_the_whole_share() {
        let mut only = path(1);
        (only.bytes_received, only.bytes_sent) = (1, 0);
        let table = report(vec![only]).table();
        assert!(
            table.lines().nth(1).unwrap().contains("  100 %  "),
            "{table}"
        );
    }

    #[test]
    fn links_are_told_without_earlier_bytes() {
        let wlan = || Origin::Interface("wlan0".to_owned());
        let address = || Origin::Address([192, 0, 2, 1].into());
        let before = [Traffic::new(wlan(), 10, 20), Traffic::new(address(), 1, 2)];
        let mut after = vec![Traffic::new(wlan(), 1034, 2068), before[1].clone()];
        let used = links::between(&before, &after);
        assert_eq!(on_the_wire(&used), None, "one link");
        let [link] = &used[..] else {
            panic!("{used:?}");
        };
        assert_eq!((link.bytes_sent, link.bytes_received), (1024, 2048));
        after[1] = Traffic::new(address(), 2, 2);
        let wanted =
            "on the wire: wlan0 2.0 KiB received, 1.0 KiB sent; 192.0.2.1 0 B received, 1 B sent";
        assert_eq!(
            on_the_wire(&links::between(&before, &after)).as_deref(),
            Some(wanted)
        );
    }

    #[test]
    fn a_path_that_ended_during_the_transfer_is_told() {
        let address = std::net::SocketAddr::from(([192, 0, 2, 1], 4433));
        let ended = |id: u32, received: u64| {
            let tuple = mpquic_core::FourTuple::new(address, address);
            let mut path = PathStats::new(mpquic_core::PathId(id), tuple);
            (path.bytes_received, path.state) = (received, PathState::Abandoned);
            path
        };
        let before = [ended(0, 5), ended(1, 7)];
        let told = paths(&before, &[ended(0, 5), ended(1, 9)]);
        let told: Vec<_> = told
            .iter()
            .map(|path| (path.id, path.bytes_received))
            .collect();
        assert_eq!(told, [(1, 2)], "path 0 had ended before the transfer");
    }

    fn path(id: u32) -> PathReport {
        PathReport {
            id,
            local: format!("127.0.0.{id}:1"),
            remote: "127.0.0.1:2".into(),
            bytes_received: 7,
            bytes_sent: 8,
            rtt_ms: 1.5,
            lost: 0,
            cwnd: 12_000,
            state: "active".into(),
            resumed: false,
            resume_failed: false,
        }
    }

    fn report(paths: Vec<PathReport>) -> Report {
        Report {
            url: "https://a/b".into(),
            bytes: 5,
            seconds: 0.5,
            sha256: "ab".repeat(32),
            paths,
            links: vec![],
            extra_bytes_sent: 3,
            extra_bytes_received: 4,
            multipath: false,
            early_data: false,
            resumed_at: 0,
            retries: 0,
            longest_gap_ms: Some(12.5),
            quic_version: "v1".to_owned(),
            key_exchange: Some("X25519MLKEM768".to_owned()),
            protocol: String::new(),
            file: None,
            is_sent: false,
        }
    }

    #[test]
    fn json_has_the_agreed_fields() {
        let report = report(vec![path(1)]);
        let sha256 = "ab".repeat(32);
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(
            json,
            format!(
                r#"{{"url":"https://a/b","bytes":5,"seconds":0.5,"sha256":"{sha256}","paths":[{{"id":1,"local":"127.0.0.1:1","remote":"127.0.0.1:2","bytes_received":7,"bytes_sent":8,"rtt_ms":1.5,"lost":0,"cwnd":12000,"state":"active"}}],"extra_bytes_sent":3,"extra_bytes_received":4,"multipath":false,"longest_gap_ms":12.5,"quic_version":"v1","key_exchange":"X25519MLKEM768","protocol":""}}"#
            )
        );
    }

    /// These fields are rare, and most programs need not know them.
    #[test]
    fn rare_json_fields_appear_only_when_set() {
        let mut report = report(vec![]);
        let has = |report: &Report, name: &str| {
            let json = serde_json::to_value(report).unwrap();
            json.get(name).is_some()
        };
        for name in ["early_data", "resumed_at", "retries", "file"] {
            assert!(!has(&report, name), "{name}");
        }
        report.early_data = true;
        report.resumed_at = 1;
        report.retries = 1;
        report.file = Some("f".to_owned());
        for name in ["early_data", "resumed_at", "retries", "file"] {
            assert!(has(&report, name), "{name}");
        }
    }

    #[test]
    fn people_get_a_line_and_a_row_for_each_path() {
        let slow = PathReport {
            bytes_received: 300 << 20,
            bytes_sent: 2 << 20,
            lost: 12,
            rtt_ms: 0.25,
            ..path(1)
        };
        let fast = PathReport {
            local: "[2001:db8::1]:50000".into(),
            bytes_received: 100 << 20,
            bytes_sent: 0,
            rtt_ms: 123.456,
            cwnd: 1 << 20,
            state: "backup".into(),
            ..path(20)
        };
        let idle = PathReport {
            bytes_received: 0,
            bytes_sent: 1 << 20,
            ..path(3)
        };
        let mut report = report(vec![slow, fast, idle]);
        report.bytes = 390 << 20;
        report.seconds = 2.0;
        assert_eq!(
            report.table(),
            "\
path  local                remote        received  share       rtt     cwnd  lost  state
   1  127.0.0.1:1          127.0.0.1:2  300.0 MiB   75 %   0.25 ms  11.7 KiB    12  active
  20  [2001:db8::1]:50000  127.0.0.1:2  100.0 MiB   25 %  123.46 ms  1.0 MiB     0  backup
   3  127.0.0.3:1          127.0.0.1:2        0 B    0 %   1.50 ms  11.7 KiB     0  active
"
        );
        let all = "390.0 MiB in 2.00 s, 1.64 Gbit/s, over 2 paths";
        assert_eq!(report.summary(), all);
        report.is_sent = true;
        report.paths.truncate(2);
        assert_eq!(
            report.table(),
            "\
path  local                remote            sent  share       rtt     cwnd  lost  state
   1  127.0.0.1:1          127.0.0.1:2    2.0 MiB  100 %   0.25 ms  11.7 KiB    12  active
  20  [2001:db8::1]:50000  127.0.0.1:2        0 B    0 %  123.46 ms  1.0 MiB     0  backup
"
        );
        let of_one = "390.0 MiB in 2.00 s, 1.64 Gbit/s, over 1 path";
        assert_eq!(report.summary(), of_one);
        report.resumed_at = 300 << 20;
        let rest = "90.0 MiB in 2.00 s, 377.5 Mbit/s, over 1 path, 300.0 MiB were there";
        assert_eq!(report.summary(), rest);
        report.retries = 3;
        assert_eq!(report.summary(), format!("{rest}, tried again 3 times"));
        report.resumed_at = 0;
        assert_eq!(report.summary(), format!("{of_one}, tried again 3 times"));
        report.paths.clear();
        report.retries = 0;
        report.seconds = 0.0;
        report.bytes = 0;
        assert_eq!(report.summary(), "0 B in 0.00 s, 0 kbit/s, over 0 paths");
        assert_eq!(report.table().lines().count(), 1);
    }

    #[test]
    fn counters_are_those_since_the_transfer_began() {
        let stats = |id, factor: u64| {
            let mut stats = crate::report::live::tests::seen(0, id, 1000 * factor).stats;
            stats.bytes_sent = 100 * factor;
            stats.packets_lost = 10 * factor;
            stats
        };
        let told = paths(&[stats(0, 1), stats(1, 2)], &[stats(1, 5), stats(2, 7)]);
        let numbers = |path: &PathReport| {
            (
                path.id,
                path.bytes_received,
                path.bytes_sent,
                path.lost,
                path.cwnd,
            )
        };
        let window = 120 << 10;
        assert_eq!(
            told.iter().map(numbers).collect::<Vec<_>>(),
            [(1, 3000, 300, 30, window), (2, 7000, 700, 70, window)]
        );
        assert_eq!(told[0].rtt_ms, 20.0);
        assert_eq!(
            (told[0].local.as_str(), told[0].remote.as_str()),
            ("192.0.2.11:5000", "192.0.2.1:443")
        );
        let reading = |factor| {
            let mut stats = ConnectionStats::default();
            stats.bytes_reinjected = factor;
            stats.bytes_repeated = 10 * factor;
            stats.bytes_received_again = 100 * factor;
            Counters::new(vec![], &stats)
        };
        assert_eq!(reading(5).extra_since(&reading(2)), (33, 300));
    }
}
