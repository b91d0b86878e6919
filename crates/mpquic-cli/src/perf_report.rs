//! What `mpquic perf` prints: lines for people, or JSON objects.

use std::fmt::Write as _;

use mpquic_core::PathStats;
use serde::Serialize;

use crate::perf_latency::{Bufferbloat, Latencies, Spread};
use crate::report::{rate, size, state_name};
use crate::screen;

/// Something to print.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event {
    Connected(Connected),
    Interval(Measured),
    Result(Measured),
}

#[derive(Debug, Serialize)]
pub(crate) struct Connected {
    pub(crate) server: String,
    pub(crate) seconds: f64,
    pub(crate) multipath: bool,
    pub(crate) quic_version: String,
}

/// What was measured in a part of the time, or in all of it.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) test: &'static str,
    /// Seconds since the measurement began.
    pub(crate) start: f64,
    pub(crate) end: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) download: Option<Amount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) upload: Option<Amount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) requests_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) datagrams: Option<Datagrams>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) latency: Option<Spread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bufferbloat: Option<Bufferbloat>,
    pub(crate) paths: Vec<PathFigures>,
}

/// Bytes of streams.
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

#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Datagrams {
    pub(crate) sent: u64,
    /// Those that came back.
    pub(crate) returned: u64,
    /// Parts that were lost, from 0 to 1; null if nothing came back.
    pub(crate) upload_loss: Option<f64>,
    pub(crate) download_loss: Option<f64>,
    pub(crate) upload_jitter_ms: f64,
    pub(crate) download_jitter_ms: f64,
}

/// A path's part.
#[derive(Debug, Serialize)]
pub(crate) struct PathFigures {
    pub(crate) id: u32,
    pub(crate) local: String,
    pub(crate) remote: String,
    /// Datagrams, packet headers included.
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) sent_bits_per_second: f64,
    pub(crate) received_bits_per_second: f64,
    /// Round trips, as they were looked at now and then.
    pub(crate) rtt: Option<Spread>,
    /// Packets sent, and those of them that were lost.
    pub(crate) packets_sent: u64,
    pub(crate) packets_lost: u64,
    pub(crate) mtu: u16,
    pub(crate) state: &'static str,
}

impl PathFigures {
    /// What a path did between two readings, the earlier of which may be missing.
    pub(crate) fn new(
        before: Option<&PathStats>,
        after: &PathStats,
        seconds: f64,
        rtts: &Latencies,
    ) -> Self {
        let since = |counter: fn(&PathStats) -> u64| {
            counter(after).saturating_sub(before.map_or(0, counter))
        };
        let (sent, received) = (
            since(|path| path.bytes_sent),
            since(|path| path.bytes_received),
        );
        Self {
            id: after.id.0,
            local: after.four_tuple.local.to_string(),
            remote: after.four_tuple.remote.to_string(),
            bytes_sent: sent,
            bytes_received: received,
            sent_bits_per_second: Amount::new(sent, seconds).bits_per_second,
            received_bits_per_second: Amount::new(received, seconds).bits_per_second,
            rtt: rtts.spread(),
            packets_sent: since(|path| path.packets_sent),
            packets_lost: since(|path| path.packets_lost),
            mtu: after.mtu,
            state: state_name(after.state),
        }
    }
}

/// Prints an event.
pub(crate) fn tell(event: &Event, json: bool) {
    if json {
        screen::print(serde_json::to_string(event).unwrap_or_default());
        return;
    }
    match event {
        Event::Connected(connected) => screen::print(format_args!(
            "connected to {} in {:.2} ms, QUIC {}, {}",
            connected.server,
            connected.seconds * 1e3,
            connected.quic_version,
            if connected.multipath {
                "multipath"
            } else {
                "no multipath"
            },
        )),
        Event::Interval(measured) => screen::print(interval(measured)),
        Event::Result(measured) => screen::print(result(measured).trim_end()),
    }
}

fn bits(bits_per_second: f64) -> String {
    rate(bits_per_second / 8.0)
}

/// "down 940.1 Mbit/s, up 40.0 Mbit/s, median 3.2 ms"
fn figures(measured: &Measured) -> Vec<String> {
    let mut figures = Vec::new();
    if let Some(amount) = measured.download {
        figures.push(format!("down {}", bits(amount.bits_per_second)));
    }
    if let Some(amount) = measured.upload {
        figures.push(format!("up {}", bits(amount.bits_per_second)));
    }
    if let Some(requests) = measured.requests_per_second {
        figures.push(format!("{requests:.0} requests/s"));
    }
    if let Some(datagrams) = measured.datagrams {
        let Datagrams { sent, returned, .. } = datagrams;
        figures.push(format!("{returned} of {sent} datagrams came back"));
    }
    figures
}

fn interval(measured: &Measured) -> String {
    let mut line = format!(
        "{:9} {:6.1} s  {}",
        measured.test,
        measured.end,
        figures(measured).join(", ")
    );
    if let Some(latency) = measured.latency {
        let _ = write!(line, "  latency {:.2} ms", latency.p50_ms);
    }
    for path in &measured.paths {
        let _ = write!(
            line,
            "  | {}: {} down, {} up",
            path.id,
            bits(path.received_bits_per_second),
            bits(path.sent_bits_per_second)
        );
    }
    line
}

fn result(measured: &Measured) -> String {
    let mut text = format!("\n{}", measured.test);
    let bytes = [measured.download, measured.upload].into_iter().flatten();
    let bytes: u64 = bytes.map(|amount| amount.bytes).sum();
    let figures = figures(measured);
    if !figures.is_empty() {
        let _ = write!(text, ": {}", figures.join(", "));
    }
    if bytes > 0 {
        let _ = write!(text, ", {}", size(bytes));
    }
    let _ = writeln!(text, " in {:.2} s", measured.end - measured.start);
    if let Some(latency) = measured.latency {
        let _ = writeln!(text, "  latency: {latency}");
    }
    if let Some(Bufferbloat { added_ms, grade }) = measured.bufferbloat {
        let _ = writeln!(
            text,
            "  bufferbloat: {grade} (the load adds {added_ms:.2} ms)"
        );
    }
    if let Some(datagrams) = measured.datagrams {
        let part = |loss: Option<f64>| {
            loss.map_or("all".to_owned(), |loss| format!("{:.2} %", 100.0 * loss))
        };
        let _ = writeln!(
            text,
            "  there: {} lost, jitter {:.3} ms; back: {} lost, jitter {:.3} ms",
            part(datagrams.upload_loss),
            datagrams.upload_jitter_ms,
            part(datagrams.download_loss),
            datagrams.download_jitter_ms
        );
    }
    text + &table(&measured.paths)
}

/// A row per path.
fn table(paths: &[PathFigures]) -> String {
    let width = |cell: fn(&PathFigures) -> &str, title: &str| {
        let widths = paths.iter().map(|path| cell(path).len());
        widths.max().unwrap_or(0).max(title.len())
    };
    let local = width(|path| &path.local, "local");
    let remote = width(|path| &path.remote, "remote");
    let mut table = format!(
        "  path  {:local$}  {:remote$}  {:>13}  {:>13}  {:>11}  {:>11}  {:>9}  {:>5}  state\n",
        "local", "remote", "down", "up", "rtt", "max", "up lost", "mtu"
    );
    for path in paths {
        let millis = |value: fn(Spread) -> f64| {
            let value = path.rtt.map(value);
            value.map_or("-".to_owned(), |millis| format!("{millis:.2} ms"))
        };
        let lost = 100.0 * path.packets_lost as f64 / path.packets_sent.max(1) as f64;
        let _ = writeln!(
            table,
            "  {:>4}  {:local$}  {:remote$}  {:>13}  {:>13}  {:>11}  {:>11}  {lost:>7.2} %  {:>5}  {}",
            path.id,
            path.local,
            path.remote,
            bits(path.received_bits_per_second),
            bits(path.sent_bits_per_second),
            millis(|rtt| rtt.p50_ms),
            millis(|rtt| rtt.max_ms),
            path.mtu,
            path.state
        );
    }
    table
}
