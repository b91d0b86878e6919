//! A server's access log, and its metrics for Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mpquic_core::{ConnectionStats, EndpointStats, PathState};
use mpquic_tokio::Connection;

use crate::report::latency::nearest_rank;
use crate::report::state_name;
use crate::serve::access_log::{AccessLog, Entry};
use crate::serve::endpoints::Endpoints;

/// Methods with metrics of their own. All other methods share one metric, because each metric takes
/// memory and clients may send any method.
const METHODS: [&str; 6] = ["GET", "HEAD", "PUT", "MKCOL", "CONNECT", "CONNECT-UDP"];
/// Exported quantiles of path RTTs.
const QUANTILES: [f64; 3] = [0.5, 0.9, 1.0];

/// Records requests and connections.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    log: Option<AccessLog>,
    figures: Mutex<Figures>,
}

#[derive(Debug, Default)]
struct Figures {
    /// Number of requests by protocol, method and status.
    requests: BTreeMap<(&'static str, &'static str, Option<u16>), u64>,
    /// Bytes of the bodies of responses.
    response_bytes: u64,
    /// Open connections by number.
    connections: BTreeMap<u64, Connection>,
    /// Number of connections so far.
    count: u64,
    /// Sums over ended connections.
    ended: Carried,
}

/// Bytes that connections have carried.
#[derive(Debug, Default, Clone, Copy)]
struct Carried {
    /// Bytes of sent datagrams.
    sent: u64,
    /// Bytes of received datagrams.
    received: u64,
    /// See [`ConnectionStats::bytes_reinjected`].
    reinjected: u64,
}

impl Carried {
    fn add(&mut self, stats: &ConnectionStats) {
        self.sent += stats.bytes_sent;
        self.received += stats.bytes_received;
        self.reinjected += stats.bytes_reinjected;
    }
}

/// Counts a connection as open until this value is dropped.
pub(crate) struct Observed {
    observer: Arc<Observer>,
    number: u64,
}

impl Drop for Observed {
    fn drop(&mut self) {
        let mut figures = self.observer.figures();
        if let Some(connection) = figures.connections.remove(&self.number) {
            figures.ended.add(&connection.stats());
        }
    }
}

impl Observer {
    pub(crate) fn new(log: Option<AccessLog>) -> Arc<Self> {
        Arc::new(Self {
            log,
            figures: Mutex::default(),
        })
    }

    /// Writes the waiting lines of the access log.
    pub(crate) fn finish(&self) {
        if let Some(log) = &self.log {
            log.finish();
        }
    }

    /// Opens the access log's file again, after another program has renamed the file.
    pub(crate) fn reopen_log(&self) {
        if let Some(log) = &self.log {
            log.reopen();
        }
    }

    fn figures(&self) -> MutexGuard<'_, Figures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn on_connection(self: &Arc<Self>, connection: &Connection) -> Observed {
        let mut figures = self.figures();
        figures.count += 1;
        let number = figures.count;
        figures.connections.insert(number, connection.clone());
        Observed {
            observer: self.clone(),
            number,
        }
    }

    /// The open connections, in order of their numbers.
    pub(crate) fn connections(&self) -> Vec<(u64, Connection)> {
        let figures = self.figures();
        let open = figures.connections.iter();
        open.map(|(number, connection)| (*number, connection.clone()))
            .collect()
    }

    pub(crate) fn on_request(&self, entry: Entry) {
        let method = METHODS.into_iter().find(|method| *method == entry.method);
        {
            let mut figures = self.figures();
            let kind = (entry.protocol, method.unwrap_or("other"), entry.status);
            *figures.requests.entry(kind).or_default() += 1;
            figures.response_bytes += entry.bytes;
        }
        if let Some(log) = &self.log {
            log.add(entry);
        }
    }

    /// All figures in the text format of Prometheus, summed over all endpoints.
    pub(crate) fn metrics(&self, endpoints: &Endpoints) -> String {
        let mut text = Text::default();
        let stats = endpoints.stats();
        let sum = |figure: fn(&EndpointStats) -> u64| stats.iter().map(figure).sum::<u64>();
        let open = endpoints.open_connections() as u64;
        text.figure("mpquic_connections", "gauge", "Open connections.", open);
        text.family("mpquic_handshakes_total", "counter", "Connection attempts.");
        for (result, count) in [
            ("accepted", sum(|it| it.accepted_handshakes)),
            ("refused", sum(|it| it.refused_handshakes)),
            (
                "refused_at_max_connections",
                sum(|it| it.refused_at_max_connections),
            ),
            (
                "refused_at_memory_limit",
                sum(|it| it.refused_at_memory_limit),
            ),
            (
                "dropped_at_max_half_open",
                sum(|it| it.dropped_at_max_half_open),
            ),
            (
                "dropped_at_max_attempt_lag",
                sum(|it| it.dropped_at_max_attempt_lag),
            ),
            ("ignored", sum(|it| it.ignored_handshakes)),
        ] {
            text.sample(&format!("{{result=\"{result}\"}}"), count as f64);
        }
        for (name, help, count) in [
            (
                "mpquic_retries_total",
                "Retry packets sent.",
                sum(|it| it.retries),
            ),
            (
                "mpquic_stateless_resets_total",
                "Stateless resets sent.",
                sum(|it| it.stateless_resets),
            ),
            (
                "mpquic_datagrams_dropped_total",
                "Dropped datagrams that belong to no connection.",
                sum(|it| it.datagrams_dropped),
            ),
        ] {
            text.figure(name, "counter", help, count);
        }
        let help = "Memory that connections keep.";
        text.figure("mpquic_memory_bytes", "gauge", help, sum(|it| it.memory));
        self.requests(&mut text);
        self.paths(&mut text);
        text.0
    }

    fn requests(&self, text: &mut Text) {
        let figures = self.figures();
        text.family(
            "mpquic_http_requests_total",
            "counter",
            "Requests, answered or given up.",
        );
        for ((protocol, method, status), count) in &figures.requests {
            let status = status.map_or("none".to_owned(), |status| status.to_string());
            let labels =
                format!("{{protocol=\"{protocol}\",method=\"{method}\",status=\"{status}\"}}");
            text.sample(&labels, *count as f64);
        }
        let (name, help) = (
            "mpquic_http_response_bytes_total",
            "Bytes of answers' bodies.",
        );
        text.figure(name, "counter", help, figures.response_bytes);
    }

    fn paths(&self, text: &mut Text) {
        let (open, mut carried) = {
            let figures = self.figures();
            let open: Vec<_> = figures.connections.values().cloned().collect();
            (open, figures.ended)
        };
        // Labels have the server's addresses instead of the clients', because a server has few.
        let mut states: BTreeMap<(IpAddr, &'static str), u64> = BTreeMap::new();
        let mut rtts: BTreeMap<IpAddr, Vec<Duration>> = BTreeMap::new();
        for connection in &open {
            carried.add(&connection.stats());
            for path in connection.path_stats() {
                let local = path.four_tuple.local.ip();
                *states.entry((local, state_name(path.state))).or_default() += 1;
                if path.state == PathState::Active {
                    rtts.entry(local).or_default().push(path.rtt);
                }
            }
        }
        for (name, help, bytes) in [
            (
                "mpquic_sent_bytes_total",
                "Bytes of datagrams sent.",
                carried.sent,
            ),
            (
                "mpquic_received_bytes_total",
                "Bytes of datagrams received.",
                carried.received,
            ),
            (
                "mpquic_reinjected_bytes_total",
                "Bytes of packets in flight whose content was sent again because their path fell silent or closed.",
                carried.reinjected,
            ),
        ] {
            text.figure(name, "counter", help, bytes);
        }
        text.family("mpquic_paths", "gauge", "Paths, by our address and state.");
        for ((local, state), count) in states {
            let labels = format!("{{local=\"{local}\",state=\"{state}\"}}");
            text.sample(&labels, count as f64);
        }
        let help = "Round trips of active paths, by our address.";
        text.family("mpquic_path_rtt_seconds", "gauge", help);
        for (local, rtts) in rtts {
            for (quantile, rtt) in quantiles(rtts) {
                let labels = format!("{{local=\"{local}\",quantile=\"{quantile}\"}}");
                text.sample(&labels, rtt.as_secs_f64());
            }
        }
    }
}

/// Returns each quantile with its RTT.
fn quantiles(mut rtts: Vec<Duration>) -> [(f64, Duration); 3] {
    rtts.sort();
    QUANTILES.map(|part| (part, nearest_rank(&rtts, part).unwrap_or_default()))
}

/// The text of metrics so far, and the name of the current family. Callers escape the values of
/// labels.
#[derive(Debug, Default)]
pub(crate) struct Text(pub(crate) String, &'static str);

impl Text {
    /// Begins a family of figures.
    pub(crate) fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.1 = name;
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a family of one figure.
    pub(crate) fn figure(&mut self, name: &'static str, kind: &str, help: &str, value: u64) {
        self.family(name, kind, help);
        self.sample("", value as f64);
    }

    /// Adds a figure to the current family.
    pub(crate) fn sample(&mut self, labels: &str, value: f64) {
        let _ = writeln!(self.0, "{}{labels} {value}", self.1);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::files::Directory;
    use crate::options::Alpn;
    use crate::process::clock;
    use crate::serve::Service;
    use crate::serve::access_log::Format;
    use crate::testing::{Served, soon};

    fn entry(method: &str, protocol: &'static str, status: Option<u16>, bytes: u64) -> Entry {
        Entry {
            time: clock::time_of_day(),
            client: [192, 0, 2, 1].into(),
            user: None,
            method: method.to_owned(),
            target: "/".to_owned(),
            protocol,
            status,
            bytes,
            cut: false,
            seconds: Duration::ZERO,
        }
    }

    #[test]
    fn bytes_of_connections_add_up() {
        let mut carried = Carried::default();
        let mut stats = ConnectionStats::default();
        (
            stats.bytes_sent,
            stats.bytes_received,
            stats.bytes_reinjected,
        ) = (5, 70, 900);
        carried.add(&stats);
        carried.add(&stats);
        let sums = (carried.sent, carried.received, carried.reinjected);
        assert_eq!(sums, (10, 140, 1800));
    }

    #[test]
    fn quantiles_of_round_trips_are_nearest_ranks() {
        let millis = Duration::from_millis;
        let rtts = [50, 10, 40, 20, 30].map(millis).to_vec();
        let expected = [(0.5, millis(30)), (0.9, millis(50)), (1.0, millis(50))];
        assert_eq!(quantiles(rtts), expected);
        let rtts = (1..=20).rev().map(millis).collect();
        let expected = [(0.5, millis(10)), (0.9, millis(18)), (1.0, millis(20))];
        assert_eq!(quantiles(rtts), expected);
    }

    #[test]
    fn finished_log_has_the_requests_before_its_end_and_no_later_ones() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let log = AccessLog::open(&path, Format::Common).unwrap();
        let observer = Observer::new(Some(log));
        for method in ["GET", "PUT"] {
            observer.on_request(entry(method, "HTTP/3", Some(200), 5));
        }
        observer.finish();
        let text = std::fs::read_to_string(&path).unwrap();
        let methods: Vec<_> = text
            .lines()
            .filter_map(|line| line.split('"').nth(1))
            .collect();
        assert_eq!(methods, ["GET / HTTP/3", "PUT / HTTP/3"]);
        observer.on_request(entry("GET", "HTTP/3", Some(200), 5));
        observer.finish();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }

    /// The value of the figure whose name and labels are `name`.
    fn figure(text: &str, name: &str) -> f64 {
        let mut found = text.lines().filter_map(|line| line.strip_prefix(name));
        let value = found.find_map(|rest| rest.strip_prefix(' '));
        let value = value.unwrap_or_else(|| panic!("no {name} in {text}"));
        value.parse().unwrap()
    }

    #[tokio::test]
    async fn metrics_cover_open_and_ended_connections() {
        let observer = Observer::new(None);
        let root = Directory::new(Path::new("."), false).unwrap();
        let service = Service {
            observer: observer.clone(),
            ..Service::new(Arc::new(root))
        };
        let served = Served::of(service, Alpn::Perf);
        let number = || {
            observer
                .connections()
                .iter()
                .map(|it| it.0)
                .collect::<Vec<_>>()
        };
        let until = async |expected: &[u64]| {
            let there = async {
                while number() != expected {
                    tokio::task::yield_now().await;
                }
            };
            soon(there).await;
        };
        let first = served.connect(1 << 16).await;
        until(&[1]).await;
        let second = served.connect(1 << 16).await;
        until(&[1, 2]).await;
        let sides: Vec<_> = observer.connections();
        let sums = || {
            let stats = || sides.iter().map(|(_, side)| side.stats());
            let sent: u64 = stats().map(|stats| stats.bytes_sent).sum();
            let received: u64 = stats().map(|stats| stats.bytes_received).sum();
            [sent as f64, received as f64]
        };
        let told = |text: &str| {
            let names = ["mpquic_sent_bytes_total", "mpquic_received_bytes_total"];
            names.map(|name| figure(text, name))
        };
        let before = sums();
        let text = observer.metrics(&served.endpoints);
        let (after, now) = (sums(), told(&text));
        for direction in 0..2 {
            let between = before[direction]..=after[direction];
            assert!(between.contains(&now[direction]) && now[direction] > 2000.0);
        }
        for (name, value) in [
            ("mpquic_connections", 2.0),
            ("mpquic_handshakes_total{result=\"accepted\"}", 2.0),
            ("mpquic_handshakes_total{result=\"refused\"}", 0.0),
            (
                "mpquic_handshakes_total{result=\"dropped_at_max_attempt_lag\"}",
                0.0,
            ),
            ("mpquic_retries_total", 0.0),
            ("mpquic_stateless_resets_total", 0.0),
            ("mpquic_reinjected_bytes_total", 0.0),
            ("mpquic_paths{local=\"127.0.0.1\",state=\"active\"}", 2.0),
            ("mpquic_http_response_bytes_total", 0.0),
        ] {
            assert_eq!(figure(&text, name), value, "{name}");
        }
        assert!(figure(&text, "mpquic_memory_bytes") > 0.0);
        let rtt = |part| {
            let labels = format!("{{local=\"127.0.0.1\",quantile=\"{part}\"}}");
            figure(&text, &format!("mpquic_path_rtt_seconds{labels}"))
        };
        assert!(rtt("0.5") > 0.0 && rtt("0.5") <= rtt("1"), "{text}");
        for family in ["mpquic_paths gauge", "mpquic_path_rtt_seconds gauge"] {
            assert!(text.contains(&format!("# TYPE {family}\n")), "{text}");
        }
        // The bytes of the closed connection still count.
        first.close(0u32.into(), b"");
        until(&[2]).await;
        second.close(0u32.into(), b"");
        until(&[]).await;
        let text = observer.metrics(&served.endpoints);
        assert_eq!(told(&text), sums());
        assert!(!text.contains("mpquic_paths{"), "{text}");
    }

    #[test]
    fn requests_are_counted_by_protocol_method_and_status() {
        let observer = Observer::new(None);
        let request = |method: &str, protocol, status, bytes| {
            observer.on_request(entry(method, protocol, status, bytes));
        };
        request("GET", "HTTP/3", Some(200), 1000);
        request("GET", "HTTP/3", Some(200), 500);
        request("GET", "HTTP/2", Some(404), 10);
        request("PUT", "HTTP/3", None, 0);
        // Unknown methods and methods in small letters share the metric `other`.
        request("BREW", "HTTP/3", Some(405), 20);
        request("get", "HTTP/3", Some(405), 20);
        let mut text = Text::default();
        observer.requests(&mut text);
        let labels = |protocol: &str, method: &str, status: &str| {
            format!(
                "mpquic_http_requests_total{{protocol=\"{protocol}\",method=\"{method}\",status=\"{status}\"}}"
            )
        };
        let expected = [
            "# HELP mpquic_http_requests_total Requests, answered or given up.".to_owned(),
            "# TYPE mpquic_http_requests_total counter".to_owned(),
            format!("{} 1", labels("HTTP/2", "GET", "404")),
            format!("{} 2", labels("HTTP/3", "GET", "200")),
            format!("{} 1", labels("HTTP/3", "PUT", "none")),
            format!("{} 2", labels("HTTP/3", "other", "405")),
            "# HELP mpquic_http_response_bytes_total Bytes of answers' bodies.".to_owned(),
            "# TYPE mpquic_http_response_bytes_total counter".to_owned(),
            "mpquic_http_response_bytes_total 1550".to_owned(),
        ];
        assert_eq!(text.0.lines().collect::<Vec<_>>(), expected);
    }
}
