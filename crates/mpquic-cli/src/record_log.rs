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
const RECORD_SEPARATOR: char = '\u{1e}';
/// A packet of so many bytes is one of bulk data, with which the load begins.
const BULK: u64 = 1000;

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
    let mut paths = BTreeMap::new();
    let mut is_client = None;
    for (index, line) in BufReader::new(lines).lines().enumerate() {
        let line = line.map_err(|error| about(&error))?;
        let text = line.trim_matches(|c: char| c == RECORD_SEPARATOR || c.is_whitespace());
        if text.is_empty() {
            continue;
        }
        let record: Value = match serde_json::from_str(text) {
            Ok(record) => record,
            // The last one may be cut short.
            Err(_) if is_client.is_some() => continue,
            Err(error) => {
                let what = format!("no qlog file (JSON-SEQ): line {}: {error}", index + 1);
                return Err(about(&what));
            }
        };
        if is_client.is_none() {
            is_client = Some(record["trace"]["vantage_point"]["type"] == "client");
            continue;
        }
        add(&mut paths, &record);
    }
    if is_client != Some(true) {
        return Err(about(
            &"not the log of a client; what arrives shows there (mpquic get --qlog-dir)",
        ));
    }
    let recordings = paths
        .into_iter()
        .filter_map(|(id, seen)| seen.recording(id));
    let recordings: Vec<_> = recordings.collect();
    match recordings.is_empty() {
        true => Err(about(&"it shows no download")),
        false => Ok(recordings),
    }
}

/// Takes note of what an event tells.
fn add(paths: &mut BTreeMap<u64, Seen>, record: &Value) {
    let data = &record["data"];
    let Some(milliseconds) = record["time"].as_f64() else {
        return;
    };
    let seconds = milliseconds / 1e3;
    match record["name"].as_str() {
        Some("quic:packet_received") if data["header"]["packet_type"] == "1RTT" => {
            let header = &data["header"];
            let path = header["path_id"].as_u64().unwrap_or(0);
            let number = header["packet_number"].as_u64();
            let bytes = data["raw"]["length"].as_u64();
            if let (Some(number), Some(bytes)) = (number, bytes) {
                let seen = paths.entry(path).or_default();
                seen.packets.push((seconds, number, bytes));
            }
        }
        Some("quic:recovery_metrics_updated") => {
            let path = data["path_id"].as_u64().unwrap_or(0);
            if let Some(rtt) = data["latest_rtt"].as_f64() {
                paths.entry(path).or_default().rtts.push((seconds, rtt));
            }
        }
        Some("quic:tuple_assigned") => {
            let path = data["path_id"].as_u64().unwrap_or(0);
            let local = &data["tuple_local"];
            let address = ["ip_v4", "ip_v6"].map(|key| local[key].as_str());
            let address = address.into_iter().flatten().next();
            if let Some(Ok(address)) = address.map(str::parse) {
                paths.entry(path).or_default().local = Some(address);
            }
        }
        _ => {}
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
