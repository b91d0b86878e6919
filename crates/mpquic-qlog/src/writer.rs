//! [`Writer`]: events to a JSON text sequence.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::time::{Instant, SystemTime};

use mpquic_core::qlog::{
    ConnectionStart, DropReason, Event, Initiator, KeyTrigger, Metrics, Packet, Sink,
};
use mpquic_core::wire::frame::PacketType;
use mpquic_core::wire::transport_parameters::VersionInformation;
use mpquic_core::{ConnectionError, FourTuple, PathId, Side, SpaceId, Version};
use serde_json::{Value, json};

use crate::words::{Members, date_time, endpoint, hex, milliseconds, packet_type, version};
use crate::{frame, parameters};

/// Begins every record (RFC 7464).
const RECORD_SEPARATOR: u8 = 0x1e;

/// Writes the events of one connection. It ends with the first error.
pub struct Writer<W> {
    /// `None` after an error.
    out: Option<W>,
    start: Instant,
    side: Side,
    paths: BTreeMap<PathId, Logged>,
    local_ack_delay_exponent: u8,
    peer_ack_delay_exponent: u8,
    /// Memory for records.
    record: Vec<u8>,
}

/// What the log says of a path so far.
#[derive(Debug, Default)]
struct Logged {
    tuple_id: String,
    /// Address changes.
    changes: u32,
    four_tuple: Option<FourTuple>,
    metrics: Members,
}

impl<W> fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("side", &self.side)
            .finish_non_exhaustive()
    }
}

impl<W: Write> Writer<W> {
    /// Writes the head of the file; times are relative to the start of the connection, at which
    /// `wall_clock` is noted.
    pub fn new(out: W, connection: &ConnectionStart, wall_clock: SystemTime) -> Self {
        let mut writer = Self {
            out: Some(out),
            start: connection.now,
            side: connection.side,
            paths: BTreeMap::new(),
            local_ack_delay_exponent: 3,
            peer_ack_delay_exponent: 3,
            record: Vec::new(),
        };
        let vantage_point = match connection.side {
            Side::Client => "client",
            Side::Server => "server",
        };
        writer.write_record(&json!({
            "file_schema": "urn:ietf:params:qlog:file:sequential",
            "serialization_format": "application/qlog+json-seq",
            "title": format!("mpquic {vantage_point}"),
            "trace": {
                "vantage_point": { "type": vantage_point },
                "event_schemas": ["urn:ietf:params:qlog:events:quic"],
                "common_fields": {
                    "group_id": connection.original_dcid.to_string(),
                    "time_format": "relative_to_epoch",
                    "reference_time": {
                        "clock_type": "monotonic",
                        "epoch": "unknown",
                        "wall_clock_time": date_time(wall_clock),
                    },
                },
            },
        }));
        writer
    }

    fn write_record(&mut self, record: &Value) {
        let Some(out) = &mut self.out else { return };
        self.record.clear();
        self.record.push(RECORD_SEPARATOR);
        let written = serde_json::to_writer(&mut self.record, record)
            .map_err(io::Error::from)
            .and_then(|()| {
                self.record.push(b'\n');
                out.write_all(&self.record)
            });
        self.end_on_error(written);
    }

    fn flush(&mut self) {
        let flushed = self.out.as_mut().map_or(Ok(()), W::flush);
        self.end_on_error(flushed);
    }

    fn end_on_error(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            tracing::warn!(%error, "the log of a connection ends early");
            self.out = None;
        }
    }

    /// Writes an event, of a path or of the whole connection.
    fn write(&mut self, now: Instant, path: Option<PathId>, name: &str, data: impl Into<Value>) {
        let mut record = json!({
            "time": milliseconds(now.saturating_duration_since(self.start)),
            "name": name,
            "data": data.into(),
        });
        if let Some(logged) = path.and_then(|path| self.paths.get(&path)) {
            record["tuple"] = logged.tuple_id.as_str().into();
        }
        self.write_record(&record);
    }

    fn packet(&self, packet: &Packet, ack_delay_exponent: u8) -> Value {
        let mut header = json!({
            "packet_type": packet_type(packet.packet_type),
            "packet_number": packet.packet_number,
            "path_id": packet.path.0,
            "dcid": packet.destination.to_string(),
        });
        if let Some(known) = packet.version {
            header["version"] = version(known.to_u32()).into();
        }
        if let Some(source) = packet.source {
            header["scid"] = source.to_string().into();
        }
        // What follows a malformed frame cannot be read.
        let frames: Vec<_> = packet
            .frames
            .clone()
            .map_while(Result::ok)
            .map(|frame| frame::value(&frame, ack_delay_exponent))
            .collect();
        json!({ "header": header, "frames": frames, "raw": { "length": packet.size } })
    }

    fn on_tuple(&mut self, now: Instant, path: PathId, four_tuple: FourTuple) {
        let logged = self.paths.entry(path).or_default();
        if logged.four_tuple == Some(four_tuple) {
            return;
        }
        logged.tuple_id = match logged.four_tuple.replace(four_tuple) {
            None => path.to_string(),
            Some(_) => {
                logged.changes += 1;
                format!("{path}.{}", logged.changes)
            }
        };
        let data = json!({
            "tuple_id": logged.tuple_id,
            "tuple_local": endpoint(four_tuple.local),
            "tuple_remote": endpoint(four_tuple.remote),
            "path_id": path.0,
        });
        self.write(now, Some(path), "quic:tuple_assigned", data);
    }

    /// Writes what changed.
    fn on_metrics(&mut self, now: Instant, path: PathId, metrics: &Metrics) {
        let logged = self.paths.entry(path).or_default();
        let mut changed = measured(metrics);
        changed.retain(|name, value| logged.metrics.get(name) != Some(value));
        if changed.is_empty() {
            return;
        }
        for (name, value) in &changed {
            logged.metrics.insert(name.clone(), value.clone());
        }
        changed.insert("path_id".to_owned(), path.0.into());
        self.write(now, Some(path), "quic:recovery_metrics_updated", changed);
    }

    fn on_parameters(&mut self, initiator: Initiator, exponent: u8) -> &'static str {
        match initiator {
            Initiator::Local => {
                self.local_ack_delay_exponent = exponent;
                "local"
            }
            Initiator::Remote => {
                self.peer_ack_delay_exponent = exponent;
                "remote"
            }
        }
    }

    /// Writes an event for the keys of each side.
    fn on_keys(&mut self, now: Instant, name: &str, of: PacketType, more: &Members) {
        let level = packet_type(of).to_ascii_lowercase();
        for side in ["client", "server"] {
            let mut data = more.clone();
            let key = format!("{side}_{level}_secret");
            data.insert("key_type".to_owned(), key.into());
            self.write(now, None, name, data);
        }
    }

    fn on_version(
        &mut self,
        now: Instant,
        sides: [Option<&VersionInformation>; 2],
        chosen: Version,
    ) {
        let names = match self.side {
            Side::Client => ["client_versions", "server_versions"],
            Side::Server => ["server_versions", "client_versions"],
        };
        let mut data = Members::new();
        for (name, side) in names.into_iter().zip(sides) {
            if let Some(side) = side {
                let numbers = side.available.iter().map(|number| version(*number));
                data.insert(name.to_owned(), numbers.collect());
            }
        }
        let chosen = version(chosen.to_u32());
        data.insert("chosen_version".to_owned(), chosen.into());
        self.write(now, None, "quic:version_information", data);
    }

    /// Writes the first event.
    fn on_started(&mut self, now: Instant, four_tuple: FourTuple, cids: [String; 2]) {
        let [mut local, mut remote] = [four_tuple.local, four_tuple.remote].map(endpoint);
        let [local_cid, peer_cid] = cids;
        local["connection_ids"] = json!([local_cid]);
        remote["connection_ids"] = json!([peer_cid]);
        let data = json!({ "local": local, "remote": remote });
        self.write(now, None, "quic:connection_started", data);
    }
}

impl<W: Write + Send> Sink for Writer<W> {
    fn on_event(&mut self, now: Instant, event: &Event<'_>) {
        match *event {
            Event::ConnectionStarted {
                four_tuple,
                local_cid,
                peer_cid,
            } => {
                let cids = [local_cid, peer_cid].map(|cid| cid.to_string());
                self.on_started(now, four_tuple, cids);
            }
            Event::LocallyClosed { error_code, reason } => {
                let data = closed_by_application("local", error_code, reason);
                self.write(now, None, "quic:connection_closed", data);
                self.flush();
            }
            Event::ConnectionLost(error) => {
                self.write(now, None, "quic:connection_closed", lost(error));
                self.flush();
            }
            Event::ProtocolChosen(protocol) => {
                let name = String::from_utf8_lossy(protocol);
                let data = json!({
                    "chosen_alpn": { "byte_value": hex(protocol), "string_value": name },
                });
                self.write(now, None, "quic:alpn_information", data);
            }
            Event::VersionChosen {
                local,
                peer,
                version,
            } => self.on_version(now, [local, peer], version),
            Event::ParametersSet {
                initiator,
                parameters,
            } => {
                let initiator = self.on_parameters(initiator, parameters.ack_delay_exponent);
                let mut data = parameters::members(parameters);
                data.insert("initiator".to_owned(), initiator.into());
                self.write(now, None, "quic:parameters_set", data);
            }
            Event::TupleAssigned { path, four_tuple } => self.on_tuple(now, path, four_tuple),
            Event::PacketSent(packet) => {
                let data = self.packet(packet, self.local_ack_delay_exponent);
                self.write(now, Some(packet.path), "quic:packet_sent", data);
            }
            Event::PacketReceived(packet) => {
                let data = self.packet(packet, self.peer_ack_delay_exponent);
                self.write(now, Some(packet.path), "quic:packet_received", data);
            }
            Event::PacketDropped {
                path,
                packet_type,
                size,
                reason,
            } => {
                let data = dropped(path, packet_type, size, reason);
                self.write(now, Some(path), "quic:packet_dropped", data);
            }
            Event::PacketLost {
                space,
                packet_number,
            } => {
                let data = lost_packet(space, packet_number);
                self.write(now, Some(space.path()), "quic:packet_lost", data);
            }
            Event::MetricsUpdated { path, ref metrics } => self.on_metrics(now, path, metrics),
            Event::KeysUpdated {
                packet_type,
                generation,
                trigger,
            } => {
                let data = updated_keys(packet_type, generation, trigger);
                self.on_keys(now, "quic:key_updated", packet_type, &data);
            }
            Event::KeysDiscarded(packet_type) => {
                self.on_keys(now, "quic:key_discarded", packet_type, &Members::new());
            }
        }
    }
}

fn lost_packet(space: SpaceId, packet_number: u64) -> Value {
    json!({ "header": {
        "packet_type": packet_type(space_packets(space)),
        "packet_number": packet_number,
        "path_id": space.path().0,
    } })
}

fn updated_keys(packet_type: PacketType, generation: u32, trigger: KeyTrigger) -> Members {
    let mut data = Members::new();
    data.insert("trigger".to_owned(), key_trigger(trigger).into());
    if packet_type == PacketType::OneRtt {
        data.insert("key_phase".to_owned(), generation.into());
    }
    data
}

/// What 0-RTT and 1-RTT share is called after the latter.
fn space_packets(space: SpaceId) -> PacketType {
    match space {
        SpaceId::Initial => PacketType::Initial,
        SpaceId::Handshake => PacketType::Handshake,
        SpaceId::Data(_) => PacketType::OneRtt,
    }
}

fn dropped(path: PathId, of: Option<PacketType>, size: usize, reason: DropReason) -> Value {
    let trigger = match reason {
        DropReason::Unsupported => "unsupported",
        DropReason::Invalid => "invalid",
        DropReason::Duplicate => "duplicate",
        DropReason::ConnectionUnknown => "connection_unknown",
        DropReason::DecryptionFailure => "decryption_failure",
        DropReason::KeyUnavailable => "key_unavailable",
        DropReason::Rejected => "rejected",
    };
    json!({
        "header": { "packet_type": of.map_or("unknown", packet_type), "path_id": path.0 },
        "raw": { "length": size },
        "trigger": trigger,
    })
}

fn key_trigger(trigger: KeyTrigger) -> &'static str {
    match trigger {
        KeyTrigger::Tls => "tls",
        KeyTrigger::LocalUpdate => "local_update",
        KeyTrigger::RemoteUpdate => "remote_update",
    }
}

fn measured(metrics: &Metrics) -> Members {
    let mut members = Members::new();
    let rtt = &metrics.rtt;
    if rtt.samples > 0 {
        for (name, value) in [
            ("min_rtt", rtt.min),
            ("smoothed_rtt", rtt.smoothed),
            ("latest_rtt", rtt.latest),
            ("rtt_variance", rtt.variance),
        ] {
            members.insert(name.to_owned(), milliseconds(value).into());
        }
    }
    members.insert("pto_count".to_owned(), metrics.pto_count.into());
    let numbers = [
        ("congestion_window", Some(metrics.congestion_window)),
        ("bytes_in_flight", Some(metrics.bytes_in_flight)),
        // bits per second
        (
            "pacing_rate",
            metrics.pacing_rate.map(|rate| rate.saturating_mul(8)),
        ),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            members.insert(name.to_owned(), value.into());
        }
    }
    members
}

fn closed_by_application(initiator: &str, error_code: u64, reason: &[u8]) -> Value {
    json!({
        "initiator": initiator,
        "application_error": "unknown",
        "error_code": error_code,
        "reason": String::from_utf8_lossy(reason),
        "trigger": "application",
    })
}

/// Why a connection ended that its application did not close.
fn lost(error: &ConnectionError) -> Value {
    let mut data = match error {
        ConnectionError::ApplicationClosed(close) => {
            let code = close.error_code.into_inner();
            return closed_by_application("remote", code, &close.reason);
        }
        ConnectionError::TransportError(error) => {
            let mut data = frame::error("connection_error", error.code);
            data.insert("initiator".to_owned(), "local".into());
            data
        }
        ConnectionError::ConnectionClosed(close) => {
            let mut data = frame::error("connection_error", close.code);
            data.insert("initiator".to_owned(), "remote".into());
            data
        }
        ConnectionError::Reset => {
            let mut data = Members::new();
            data.insert("initiator".to_owned(), "remote".into());
            data
        }
        ConnectionError::VersionMismatch
        | ConnectionError::TimedOut
        | ConnectionError::LocallyClosed
        | ConnectionError::CidsExhausted => {
            let mut data = Members::new();
            data.insert("initiator".to_owned(), "local".into());
            data
        }
    };
    let trigger = match error {
        ConnectionError::VersionMismatch => "version_mismatch",
        ConnectionError::TimedOut => "idle_timeout",
        ConnectionError::Reset => "stateless_reset",
        ConnectionError::LocallyClosed | ConnectionError::ApplicationClosed(_) => "application",
        ConnectionError::TransportError(_)
        | ConnectionError::ConnectionClosed(_)
        | ConnectionError::CidsExhausted => "error",
    };
    data.insert("trigger".to_owned(), trigger.into());
    data.insert("reason".to_owned(), error.to_string().into());
    Value::Object(data)
}
