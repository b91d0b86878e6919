//! The output of `mpquic perf`: lines for people, or JSON objects.

use std::fmt::Write as _;

use mpquic_core::PathStats;
use serde::Serialize;

use crate::process::screen;
use crate::report::latency::{Bufferbloat, Latencies, Spread};
use crate::report::{Amount, rate, size, state_name};
use crate::text::count::count;
use crate::text::json;

/// A line or JSON object to print.
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
    pub(crate) key_exchange: Option<String>,
}

/// The figures of an interval, or of a whole measurement.
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

#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Datagrams {
    pub(crate) sent: u64,
    /// Returned DATAGRAMs.
    pub(crate) returned: u64,
    /// Lost parts, from 0 to 1; null if nothing returned.
    pub(crate) upload_loss: Option<f64>,
    pub(crate) download_loss: Option<f64>,
    pub(crate) upload_jitter_ms: f64,
    pub(crate) download_jitter_ms: f64,
}

/// The figures of one path.
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
    /// Round trips, sampled now and then.
    pub(crate) rtt: Option<Spread>,
    /// Sent packets, and lost packets among them.
    pub(crate) packets_sent: u64,
    pub(crate) packets_lost: u64,
    pub(crate) mtu: u16,
    pub(crate) state: &'static str,
}

impl PathFigures {
    /// A path's figures between two readings. The earlier reading may be missing.
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
        json::print(event);
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
        figures.push(format!(
            "{returned} of {} came back",
            count(sent, "datagram")
        ));
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::report::live::tests::seen;

    fn spread(median: u64) -> Spread {
        let mut latencies = Latencies::default();
        for micros in [median - 1, median, median + 10] {
            latencies.add(Duration::from_micros(micros));
        }
        latencies.spread().unwrap()
    }

    /// The figures of a path over two seconds.
    fn path(id: u32, rtts: &Latencies) -> PathFigures {
        let before = seen(0, id, 1000).stats;
        let mut after = seen(0, id, 1000 + 5_000_000 * (u64::from(id) + 1)).stats;
        after.bytes_sent = 250_000;
        after.packets_sent = 1400;
        after.packets_lost = 15;
        after.mtu = 1452;
        PathFigures::new(Some(&before), &after, 2.0, rtts)
    }

    fn measured(test: &'static str) -> Measured {
        let mut rtts = Latencies::default();
        for millis in [30, 10, 20] {
            rtts.add(Duration::from_millis(millis));
        }
        Measured {
            test,
            start: 1.0,
            end: 3.5,
            download: Some(Amount::new(10_000_000, 2.0)),
            upload: Some(Amount::new(1_000_000, 2.0)),
            requests_per_second: Some(1234.5),
            datagrams: Some(Datagrams {
                sent: 200,
                returned: 150,
                upload_loss: Some(0.125),
                download_loss: None,
                upload_jitter_ms: 0.25,
                download_jitter_ms: 1.5,
            }),
            latency: Some(spread(4000)),
            bufferbloat: Some(Bufferbloat {
                added_ms: 31.25,
                grade: "B",
            }),
            paths: vec![path(0, &rtts), path(1, &Latencies::default())],
        }
    }

    /// A measurement with times only.
    fn nothing(test: &'static str) -> Measured {
        Measured {
            download: None,
            upload: None,
            requests_per_second: None,
            datagrams: None,
            latency: None,
            bufferbloat: None,
            paths: vec![],
            ..measured(test)
        }
    }

    #[test]
    fn a_line_tells_how_it_goes() {
        assert_eq!(
            interval(&measured("download")),
            "download     3.5 s  down 40.0 Mbit/s, up 4.0 Mbit/s, 1234 requests/s, \
             150 of 200 datagrams came back  latency 4.00 ms  \
             | 0: 20.0 Mbit/s down, 1.0 Mbit/s up  | 1: 40.0 Mbit/s down, 1.0 Mbit/s up"
        );
        assert_eq!(interval(&nothing("both")), "both         3.5 s  ");
    }

    #[test]
    fn text_result_has_all_figures() {
        assert_eq!(
            result(&measured("download")),
            "
download: down 40.0 Mbit/s, up 4.0 Mbit/s, 1234 requests/s, 150 of 200 datagrams came back, 10.5 MiB in 2.50 s
  latency: median 4.00 ms, 90 % 4.01 ms, 99 % 4.01 ms, max 4.01 ms
  bufferbloat: B (the load adds 31.25 ms)
  there: 12.50 % lost, jitter 0.250 ms; back: all lost, jitter 1.500 ms
  path  local            remote                  down             up          rtt          max    up lost    mtu  state
     0  192.0.2.10:5000  192.0.2.1:443    20.0 Mbit/s     1.0 Mbit/s     20.00 ms     30.00 ms     2.50 %   1452  active
     1  192.0.2.11:5000  192.0.2.1:443    40.0 Mbit/s     1.0 Mbit/s            -            -     2.50 %   1452  active
"
        );
        let expected = "
latency in 2.50 s
  path  local  remote           down             up          rtt          max    up lost    mtu  state
";
        assert_eq!(result(&nothing("latency")), expected);
    }

    #[test]
    fn json_result_has_only_measured_figures() {
        let json = |event: &Event| serde_json::to_value(event).unwrap();
        let told = json(&Event::Interval(nothing("latency")));
        let expected = serde_json::json!(
            { "event": "interval", "test": "latency", "start": 1.0, "end": 3.5, "paths": [] }
        );
        assert_eq!(told, expected);
        let told = json(&Event::Result(measured("both")));
        assert_eq!(told["event"], "result");
        let amount = serde_json::json!({ "bytes": 10_000_000, "bits_per_second": 40e6 });
        assert_eq!(told["download"], amount);
        assert_eq!(told["datagrams"]["download_loss"], serde_json::Value::Null);
        let path = &told["paths"][0];
        assert_eq!(path["bytes_received"], 5_000_000);
        assert_eq!(path["received_bits_per_second"], 20e6);
        assert_eq!(path["sent_bits_per_second"], 1e6);
        assert_eq!(
            (&path["packets_sent"], &path["packets_lost"]),
            (&400.into(), &10.into())
        );
        assert_eq!(path["rtt"]["p50_ms"], 20.0);
        // All bytes of a new path count.
        let new = PathFigures::new(None, &seen(0, 7, 3000).stats, 1.0, &Latencies::default());
        assert_eq!((new.bytes_received, new.packets_sent), (3000, 1000));
        assert_eq!(Amount::new(0, 0.0).bits_per_second, 0.0);
        assert_eq!(Amount::new(1, 0.5).bits_per_second, 16.0);
    }

    /// A path without sent packets lost none.
    #[test]
    fn a_path_without_packets_has_lost_none() {
        let mut stats = seen(0, 0, 0).stats;
        (stats.packets_sent, stats.packets_lost) = (1, 1);
        let row = |stats: &PathStats| {
            let path = PathFigures::new(None, stats, 1.0, &Latencies::default());
            table(&[path]).lines().nth(1).unwrap().to_owned()
        };
        assert!(row(&stats).contains(" 100.00 %"), "{}", row(&stats));
        (stats.packets_sent, stats.packets_lost) = (0, 0);
        assert!(row(&stats).contains("   0.00 %"), "{}", row(&stats));
    }
}
