//! The paths of a download, read from a qlog file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::path::Path;

use mpquic_lab::PathRecording;
use serde_json::Value;

use crate::process::failure::{Cause, Failure};

/// The first byte of every record (RFC 7464).
const RECORD_SEPARATOR: u8 = 0x1e;
/// A packet of at least this size is bulk data, which begins the load.
const BULK: u64 = 1000;
/// Limits against unbounded memory: paths, packet sizes in bytes, and distance of events from the
/// first, in ms. A valid log stays below them.
const MAX_PATHS: usize = 64;
const MAX_PACKET: u64 = 65_535;
const MAX_TIME: f64 = 3_600_000.0;

/// The paths in the part of the file that was read.
#[derive(Default)]
struct Log {
    /// Time of the first event, in milliseconds.
    first: Option<f64>,
    paths: BTreeMap<u64, Seen>,
}

/// A path while the file is read.
#[derive(Default)]
struct Seen {
    local: Option<IpAddr>,
    /// Time in seconds, packet number, bytes.
    packets: Vec<(f64, u64, u64)>,
    /// Time in seconds, round trip in milliseconds.
    rtts: Vec<(f64, f64)>,
}

/// The paths of the connection that a client logged.
pub(crate) fn read(file: &Path) -> Result<Vec<PathRecording>, Failure> {
    let about = |what: &dyn std::fmt::Display| {
        Cause::File.failed(format_args!("{}: {what}", file.display()))
    };
    let lines = File::open(file).map_err(|error| about(&error))?;
    let mut log = Log::default();
    let mut is_client = None;
    // The error of the latest line. Without a further line, the error is no failure, because the
    // last line may be cut short.
    let mut damage = None;
    for (line, bytes) in (1..).zip(BufReader::new(lines).split(b'\n')) {
        let bytes = bytes.map_err(|error| about(&error))?;
        let text = bytes.trim_ascii();
        let text = text.strip_prefix(&[RECORD_SEPARATOR]).unwrap_or(text);
        if text.trim_ascii().is_empty() {
            continue;
        }
        if let Some(damage) = damage {
            return Err(about(&damage));
        }
        let record: Value = match serde_json::from_slice(text) {
            Ok(record) => record,
            Err(error) if is_client.is_some() => {
                damage = Some(format!("line {line} is damaged: {error}"));
                continue;
            }
            Err(error) => {
                let what = format!("not a qlog file (JSON-SEQ): line {line}: {error}");
                return Err(about(&what));
            }
        };
        if is_client.is_none() {
            is_client = Some(record["trace"]["vantage_point"]["type"] == "client");
            continue;
        }
        log.add(&record)
            .map_err(|what| about(&format_args!("line {line}: {what}")))?;
    }
    if is_client != Some(true) {
        return Err(about(
            &"not the log of a client; what arrives shows there (mpquic get --qlog-dir)",
        ));
    }
    let paths = log.paths.into_iter();
    let recordings = paths.filter_map(|(id, seen)| seen.recording(id));
    let recordings: Vec<_> = recordings.collect();
    if recordings.is_empty() {
        Err(about(&"it shows no download"))
    } else {
        Ok(recordings)
    }
}

impl Log {
    /// Adds the content of an event.
    fn add(&mut self, record: &Value) -> Result<(), String> {
        let data = &record["data"];
        let Some(milliseconds) = record["time"].as_f64() else {
            return Ok(());
        };
        let since = milliseconds - *self.first.get_or_insert(milliseconds);
        if since.abs() > MAX_TIME {
            return Err(format!(
                "its time, {milliseconds} ms, is more than an hour from the first"
            ));
        }
        let seconds = milliseconds / 1e3;
        match record["name"].as_str() {
            Some("quic:packet_received") if data["header"]["packet_type"] == "1RTT" => {
                let header = &data["header"];
                let number = header["packet_number"].as_u64();
                let bytes = data["raw"]["length"].as_u64();
                if let (Some(number), Some(bytes)) = (number, bytes) {
                    if bytes > MAX_PACKET {
                        return Err(format!(
                            "a packet of {bytes} bytes; {MAX_PACKET} is the most"
                        ));
                    }
                    let seen = self.path(&header["path_id"])?;
                    seen.packets.push((seconds, number, bytes));
                }
            }
            Some("quic:recovery_metrics_updated") => {
                if let Some(rtt) = data["latest_rtt"].as_f64() {
                    if !(0.0..=MAX_TIME).contains(&rtt) {
                        return Err(format!("a round trip of {rtt} ms; it is 0 to an hour"));
                    }
                    self.path(&data["path_id"])?.rtts.push((seconds, rtt));
                }
            }
            Some("quic:tuple_assigned") => {
                let local = &data["tuple_local"];
                let address = ["ip_v4", "ip_v6"].map(|key| local[key].as_str());
                let address = address.into_iter().flatten().next();
                if let Some(Ok(address)) = address.map(str::parse) {
                    self.path(&data["path_id"])?.local = Some(address);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The path with this ID. An event without an ID belongs to the first path.
    fn path(&mut self, id: &Value) -> Result<&mut Seen, String> {
        let id = id.as_u64().unwrap_or(0);
        if self.paths.len() == MAX_PATHS && !self.paths.contains_key(&id) {
            return Err(format!(
                "path {id} is one more than the {MAX_PATHS} that can be read"
            ));
        }
        Ok(self.paths.entry(id).or_default())
    }
}

impl Seen {
    /// The recording of the load; `None` without a load.
    fn recording(self, id: u64) -> Option<PathRecording> {
        let bulk = |(_, _, bytes): &&(f64, u64, u64)| *bytes >= BULK;
        let (began, ..) = *self.packets.iter().find(bulk)?;
        let name = self.local.map(|local| local.to_string());
        let name = name.unwrap_or_else(|| format!("path-{id}"));
        let is_ipv4 = self.local.is_none_or(|local| local.is_ipv4());
        let mut recording = PathRecording::new(&name, is_ipv4);
        for (at, number, bytes) in self.packets {
            if at >= began {
                recording.on_packet(at - began, number, bytes);
            }
        }
        for (at, rtt) in self.rtts {
            if at < began {
                recording.on_idle_rtt(rtt)
            } else {
                recording.on_loaded_rtt(at - began, rtt)
            }
        }
        Some(recording)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A log of a client with these events, at `at` milliseconds.
    fn log(events: &[(f64, &str, Value)]) -> Result<Log, String> {
        let mut log = Log::default();
        for (time, name, data) in events {
            let name = format!("quic:{name}");
            log.add(&json!({ "time": time, "name": name, "data": data }))?;
        }
        Ok(log)
    }

    fn packet(path: u64, number: u64, bytes: u64) -> Value {
        let header = json!(
            { "packet_type": "1RTT", "path_id": path, "packet_number": number }
        );
        json!({ "header": header, "raw": { "length": bytes } })
    }

    fn rtt(path: u64, millis: f64) -> Value {
        json!({ "path_id": path, "latest_rtt": millis })
    }

    /// Times count from the first event.
    #[test]
    fn log_gives_paths_of_a_download() {
        let local = json!({ "path_id": 1, "tuple_local": { "ip_v6": "::2", "port_v6": 5 } });
        let start = 5e6;
        let events = [
            (
                start,
                "recovery_metrics_updated",
                json!({ "latest_rtt": 20.0 }),
            ),
            (start, "packet_received", packet(0, 1, 999)),
            (start + 1.0, "tuple_assigned", local),
            (start + 2.0, "packet_received", packet(1, 7, MAX_PACKET)),
            (start + 3.0, "packet_received", packet(0, 2, 1000)),
            (start + 3.0, "recovery_metrics_updated", rtt(1, 0.0)),
            (start + 4.0, "packet_sent", packet(0, 3, 1000)),
            (
                start + MAX_TIME,
                "recovery_metrics_updated",
                rtt(1, MAX_TIME),
            ),
        ];
        let log = log(&events).unwrap();
        let [first, second] = [0, 1].map(|id| &log.paths[&id]);
        assert_eq!(
            (first.local, second.local),
            (None, Some([0, 0, 0, 0, 0, 0, 0, 2].into()))
        );
        assert_eq!(first.packets, [(5000.0, 1, 999), (5000.003, 2, 1000)]);
        assert_eq!(second.packets, [(5000.002, 7, MAX_PACKET)]);
        assert_eq!(first.rtts, [(5000.0, 20.0)]);
        assert_eq!(second.rtts, [(5000.003, 0.0), (8600.0, MAX_TIME)]);
    }

    /// Packets of the handshake, and events without an arrival, are ignored.
    #[test]
    fn packets_without_data_are_left_out() {
        let mut initial = packet(0, 1, 1200);
        initial["header"]["packet_type"] = "initial".into();
        let without_length = json!({ "header": packet(0, 1, 1)["header"] });
        let events = [
            (1.0, "packet_received", initial),
            (1.0, "packet_received", without_length),
            (
                1.0,
                "recovery_metrics_updated",
                json!({ "congestion_window": 5 }),
            ),
            (
                1.0,
                "tuple_assigned",
                json!({ "tuple_local": { "ip_v4": "nowhere" } }),
            ),
            (1.0, "metrics_updated", rtt(0, 1.0)),
        ];
        assert!(log(&events).unwrap().paths.is_empty());
        let mut log = Log::default();
        log.add(&json!({ "name": "quic:packet_received", "data": packet(0, 1, 1) }))
            .unwrap();
        assert!(log.paths.is_empty(), "without a time");
    }

    #[test]
    fn oversized_recordings_are_refused() {
        let start = 1e6;
        let one = |more: f64, name: &'static str, data: Value| {
            let begun = (start, "other", Value::Null);
            log(&[begun, (start + more, name, data)]).err()
        };
        assert_eq!(one(1.0, "packet_received", packet(0, 0, MAX_PACKET)), None);
        for (more, name, data) in [
            (1.0, "packet_received", packet(0, 0, MAX_PACKET + 1)),
            (MAX_TIME + 1.0, "other", Value::Null),
            (-MAX_TIME - 1.0, "other", Value::Null),
            (1.0, "recovery_metrics_updated", rtt(0, -0.5)),
            (1.0, "recovery_metrics_updated", rtt(0, MAX_TIME + 1.0)),
        ] {
            assert!(one(more, name, data).is_some(), "{more} {name}");
        }
        let paths = |count: u64| {
            let events = (0..count).chain([0]);
            let events = events.map(|path| (1.0, "packet_received", packet(path, 0, 1)));
            log(&events.collect::<Vec<_>>())
        };
        assert_eq!(paths(MAX_PATHS as u64).unwrap().paths.len(), MAX_PATHS);
        assert!(paths(MAX_PATHS as u64 + 1).is_err());
    }

    /// The load begins with the first large packet.
    #[test]
    fn before_the_load_a_path_is_idle() {
        let seen = || Seen {
            local: None,
            packets: vec![(1.0, 0, 100), (2.0, 1, BULK), (2.5, 2, 100), (3.0, 3, 1200)],
            rtts: vec![(1.5, 10.0), (2.0, 30.0), (2.5, 40.0)],
        };
        let mut expected = PathRecording::new("path-3", true);
        expected.on_packet(0.0, 1, BULK);
        expected.on_packet(0.5, 2, 100);
        expected.on_packet(1.0, 3, 1200);
        expected.on_idle_rtt(10.0);
        expected.on_loaded_rtt(0.0, 30.0);
        expected.on_loaded_rtt(0.5, 40.0);
        let told = |recording: &PathRecording| format!("{recording:?}");
        assert_eq!(told(&seen().recording(3).unwrap()), told(&expected));
        let mut small = seen();
        small.packets.retain(|(_, _, bytes)| *bytes < BULK);
        assert!(small.recording(3).is_none());
        let named = Seen {
            local: Some([0, 0, 0, 0, 0, 0, 0, 1].into()),
            ..seen()
        };
        let name = told(&named.recording(0).unwrap());
        assert!(name.contains("\"::1\""), "{name}");
    }

    #[test]
    fn a_file_is_read_line_by_line() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("x.sqlog");
        let head = |side: &str| json!({ "trace": { "vantage_point": { "type": side } } });
        let event = json!(
            { "time": 1, "name": "quic:packet_received", "data": packet(0, 0, 1200) }
        );
        let told = |lines: &[String]| {
            std::fs::write(&file, lines.join("\n")).unwrap();
            match read(&file) {
                Ok(recordings) => format!("{} paths", recordings.len()),
                Err(failure) => {
                    let message = failure.message().to_owned();
                    message.rsplit_once("sqlog: ").unwrap().1.to_owned()
                }
            }
        };
        let (client, server) = (head("client").to_string(), head("server").to_string());
        let event = event.to_string();
        let marked = format!("\u{1e} {event}");
        let wrong = "not the log of a client; what arrives shows there (mpquic get --qlog-dir)";
        assert_eq!(
            told(&[client.clone(), String::new(), event.clone()]),
            "1 paths"
        );
        assert_eq!(told(&[client.clone(), marked]), "1 paths");
        assert_eq!(told(&[server, event.clone()]), wrong);
        assert_eq!(told(&[]), wrong);
        assert_eq!(told(std::slice::from_ref(&client)), "it shows no download");
        let large = event.replace("1200", "70000");
        let refused = "line 2: a packet of 70000 bytes; 65535 is the most";
        assert_eq!(told(&[client.clone(), large]), refused);
        let first = told(&["{".to_owned(), event.clone()]);
        assert!(
            first.starts_with("not a qlog file (JSON-SEQ): line 1: "),
            "{first}"
        );
        assert_eq!(
            told(&[client.clone(), event.clone(), "{".to_owned()]),
            "1 paths"
        );
        let damaged = told(&[client, "{".to_owned(), event]);
        assert!(damaged.starts_with("line 2 is damaged: "), "{damaged}");
    }
}
