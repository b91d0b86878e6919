//! Reports to the recorder of the facade `metrics`. A test compares the table here with the table
//! in `docs/observability.md`.
//!
//! Labels are few on purpose: a recorder keeps a series for each value of a label. All connections
//! of a side share a value, and each path has the local address that the path starts from.

use std::collections::BTreeMap;

use ::metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use mpquic_core::{ConnectionStats, EndpointStats, PathId, PathState, PathStats, Side};

/// Name, description, and the function that reads the figure.
type Figures<S> = &'static [(&'static str, &'static str, fn(&S) -> u64)];

/// Counters of an endpoint, without labels.
const ENDPOINT: Figures<EndpointStats> = &[
    (
        "mpquic_endpoint_outgoing_handshakes_total",
        "connections started",
        |stats| stats.outgoing_handshakes,
    ),
    (
        "mpquic_endpoint_accepted_handshakes_total",
        "connections accepted",
        |stats| stats.accepted_handshakes,
    ),
    (
        "mpquic_endpoint_refused_handshakes_total",
        "clients refused",
        |stats| stats.refused_handshakes,
    ),
    (
        "mpquic_endpoint_ignored_handshakes_total",
        "clients that got no answer",
        |stats| stats.ignored_handshakes,
    ),
    (
        "mpquic_endpoint_retries_total",
        "clients asked to prove their address",
        |stats| stats.retries,
    ),
    (
        "mpquic_endpoint_stateless_resets_total",
        "stateless resets sent",
        |stats| stats.stateless_resets,
    ),
    (
        "mpquic_endpoint_datagrams_dropped_total",
        "datagrams that belonged to nothing",
        |stats| stats.datagrams_dropped,
    ),
];

/// Counters of connections, with the label `side`.
const CONNECTION: Figures<ConnectionStats> = &[
    (
        "mpquic_connection_bytes_repeated_total",
        "bytes of datagrams that repeated data in flight",
        |stats| stats.bytes_repeated,
    ),
    (
        "mpquic_connection_bytes_reinjected_total",
        "bytes of packets in flight on a silent or closed path, sent again on other paths",
        |stats| stats.bytes_reinjected,
    ),
    (
        "mpquic_connection_streams_expired_total",
        "streams reset at their deadline",
        |stats| stats.streams_expired,
    ),
    (
        "mpquic_connection_datagram_frames_expired_total",
        "DATAGRAMs dropped at their deadline",
        |stats| stats.datagram_frames_expired,
    ),
    (
        "mpquic_connection_packets_dropped_total",
        "packets received that could not be used",
        |stats| stats.packets_dropped,
    ),
];

/// Counters of paths, with the label `local`.
const PATH: Figures<PathStats> = &[
    (
        "mpquic_path_bytes_sent_total",
        "datagram bytes sent",
        |stats| stats.bytes_sent,
    ),
    (
        "mpquic_path_bytes_received_total",
        "datagram bytes received",
        |stats| stats.bytes_received,
    ),
    ("mpquic_path_packets_sent_total", "packets sent", |stats| {
        stats.packets_sent
    }),
    (
        "mpquic_path_packets_received_total",
        "packets received",
        |stats| stats.packets_received,
    ),
    (
        "mpquic_path_packets_lost_total",
        "packets declared lost",
        |stats| stats.packets_lost,
    ),
    (
        "mpquic_path_congestion_events_total",
        "losses and ECN marks that cut the window",
        |stats| stats.congestion_events,
    ),
    (
        "mpquic_path_probe_timeouts_total",
        "probe timeouts",
        |stats| stats.probe_timeouts,
    ),
];

/// Open connections, a gauge.
const OPEN: (&str, &str) = ("mpquic_endpoint_connections", "connections that are open");
/// Histograms of paths in use, with the label `local`: each report adds a value for each path.
const RTT: (&str, &str) = ("mpquic_path_rtt_seconds", "smoothed round-trip time");
const WINDOW: (&str, &str) = ("mpquic_path_window_bytes", "congestion window");

/// Describes all figures.
pub(crate) fn describe() {
    let endpoint = ENDPOINT.iter().map(|(name, what, _)| (*name, *what));
    let connection = CONNECTION.iter().map(|(name, what, _)| (*name, *what));
    let path = PATH.iter().map(|(name, what, _)| (*name, *what));
    for (name, what) in endpoint.chain(connection).chain(path) {
        describe_counter!(name, what);
    }
    describe_gauge!(OPEN.0, OPEN.1);
    for (name, what) in [RTT, WINDOW] {
        describe_histogram!(name, what);
    }
}

/// The last reported values: a counter rises by the difference.
#[derive(Debug, Default)]
struct Before(Vec<u64>);

impl Before {
    fn tell<S>(&mut self, figures: Figures<S>, label: Option<(&'static str, String)>, stats: &S) {
        self.0.resize(figures.len(), 0);
        for ((name, _, of), before) in figures.iter().zip(&mut self.0) {
            let now = of(stats);
            let more = now.saturating_sub(*before);
            *before = now;
            match &label {
                _ if more == 0 => {}
                Some((key, value)) => counter!(*name, *key => value.clone()).increment(more),
                None => counter!(*name).increment(more),
            }
        }
    }
}

/// The last reported values of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct EndpointTold {
    before: Before,
    open: f64,
}

impl EndpointTold {
    /// Reports the changes.
    pub(crate) fn tell(&mut self, stats: &EndpointStats, open: usize) {
        self.before.tell(ENDPOINT, None, stats);
        let open = open as f64;
        gauge!(OPEN.0).increment(open - self.open);
        self.open = open;
    }
}

/// The last reported values of a connection and its paths.
#[derive(Debug, Default)]
pub(crate) struct ConnectionTold {
    before: Before,
    paths: BTreeMap<PathId, Before>,
}

impl ConnectionTold {
    /// Reports the changes after the last report. With `samples`, also reports the round trip and
    /// the window of each path.
    pub(crate) fn tell(&mut self, core: &mpquic_core::Connection, samples: bool) {
        let side = match core.side() {
            Side::Client => "client",
            Side::Server => "server",
        };
        let label = Some(("side", side.to_owned()));
        self.before.tell(CONNECTION, label, &core.stats());
        for stats in core.paths().filter_map(|id| core.path_stats(id)) {
            let local = stats.four_tuple.local.ip().to_string();
            if samples && stats.state == PathState::Active {
                histogram!(RTT.0, "local" => local.clone()).record(stats.rtt.as_secs_f64());
                histogram!(WINDOW.0, "local" => local.clone()).record(stats.window as f64);
            }
            let before = self.paths.entry(stats.id).or_default();
            before.tell(PATH, Some(("local", local)), &stats);
        }
    }

    /// Reports the last changes of a discarded path.
    pub(crate) fn discarded(&mut self, last: &PathStats) {
        let local = last.four_tuple.local.ip().to_string();
        let mut before = self.paths.remove(&last.id).unwrap_or_default();
        before.tell(PATH, Some(("local", local)), last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The documentation has exactly these names.
    #[test]
    fn all_figures_are_documented() {
        let document = include_str!("../../../docs/observability.md");
        let named = document
            .split('`')
            .filter(|word| word.starts_with("mpquic_"));
        let mut named = Vec::from_iter(named.filter(|word| !word.contains([':', '='])));
        let mut all = vec![OPEN.0, RTT.0, WINDOW.0];
        all.extend(ENDPOINT.iter().map(|figure| figure.0));
        all.extend(CONNECTION.iter().map(|figure| figure.0));
        all.extend(PATH.iter().map(|figure| figure.0));
        named.sort_unstable();
        all.sort_unstable();
        assert_eq!(named, all);
    }
}
