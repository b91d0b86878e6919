//! What a qlog file shows of the paths of a download.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::path::Path;

use mpquic_lab::PathRecording;
use serde_json::Value;

use crate::failure::{Cause, Failure};

/// Begins every record (RFC 7464).
const RECORD_SEPARATOR: u8 = 0x1e;
/// A packet of so many bytes is one of bulk data, with which the load begins.
const BULK: u64 = 1000;
/// More paths than this, larger packets (bytes), and events (ms) that are further from the first or took
/// longer than this are in no log that is whole: they would take memory without bound.
const MAX_PATHS: usize = 64;
const MAX_PACKET: u64 = 65_535;
const MAX_TIME: f64 = 3_600_000.0;

/// The paths as far as the file is read.
#[derive(Default)]
struct Log {
    /// When the first event was, milliseconds.
    first: Option<f64>,
    paths: BTreeMap<u64, Seen>,
}

/// A path while the file is read.
#[derive(Default)]
struct Seen {
    local: Option<IpAddr>,
    /// When, seconds; number; bytes.
    packets: Vec<(f64, u64, u64)>,
    /// When, seconds; milliseconds.
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
    // What is wrong with the line before, unless nothing follows: the last one may be cut short.
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
                let what = format!("no qlog file (JSON-SEQ): line {line}: {error}");
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
    match recordings.is_empty() {
        true => Err(about(&"it shows no download")),
        false => Ok(recordings),
    }
}

impl Log {
    /// Takes note of what an event tells.
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

    /// The path with this ID; without one, the first.
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
    /// What the load showed, if there was one.
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
            match at < began {
                true => recording.on_idle_rtt(rtt),
                false => recording.on_loaded_rtt(at - began, rtt),
            }
        }
        Some(recording)
    }
}
