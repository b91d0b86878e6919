//! [`Writer`]: writes events to a JSON text sequence.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::time::{Instant, SystemTime};

use mpquic_core::congestion::ResumePhase;
use mpquic_core::qlog::PacketType;
use mpquic_core::qlog::{
    ConnectionStart, EcnValidation, Event, Initiator, Metrics, Packet, PathChange, Sink, Unnumbered,
};
use mpquic_core::{FourTuple, PathId, Side, Version, VersionInformation};
use serde_json::{Value, json};

use crate::words::{Members, date_time, endpoint, hex, milliseconds, packet_type, version};
use crate::{event, frame, parameters};

/// The byte that begins every record (RFC 7464).
pub(crate) const RECORD_SEPARATOR: u8 = 0x1e;

/// The schema of the events of our own, which are not in any draft.
pub(crate) const PATH_EVENTS: &str = "https://github.com/mpquic/mpquic#qlog-paths";

/// The default number of bytes after which a log ends early.
pub(crate) const DEFAULT_LIMIT: u64 = 1 << 30;

/// Writes the events of one connection, or of a server's endpoint. After an error, nothing more is
/// written.
///
/// When the log reaches 1 GiB, or the size set with [`Self::limit`], it ends early. After that,
/// only the reason why the connection ended is added.
pub struct Writer<W> {
    /// Where records go; `None` after an error.
    out: Option<W>,
    start: Instant,
    side: Side,
    paths: BTreeMap<PathId, Logged>,
    local_ack_delay_exponent: u8,
    peer_ack_delay_exponent: u8,
    /// The bytes of records that are not yet written.
    record: Vec<u8>,
    written: u64,
    limit: u64,
}

/// The last values of a path that are in the log.
#[derive(Debug, Default)]
struct Logged {
    tuple_id: String,
    /// The number of times that the addresses of the path have changed.
    changes: u32,
    four_tuple: Option<FourTuple>,
    metrics: Members,
    ecn: Option<EcnValidation>,
    /// The MTU of the path, and whether MTU discovery is finished.
    mtu: Option<(u16, bool)>,
}

impl<W> fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("side", &self.side)
            .finish_non_exhaustive()
    }
}

impl<W: Write> Writer<W> {
    /// Writes the head of the file for a connection. Times of events are relative to the start of
    /// the connection. The head contains `wall_clock` as the time of this start.
    pub fn new(out: W, connection: &ConnectionStart, wall_clock: SystemTime) -> Self {
        let mut writer = Self::empty(out, connection.now, connection.side);
        let vantage_point = match connection.side {
            Side::Client => "client",
            Side::Server => "server",
        };
        let group = connection.original_dcid.to_string();
        writer.write_head(vantage_point, vantage_point, Some(group), wall_clock);
        writer
    }

    /// Writes the head of the file for a server's endpoint, which sends packets before a connection
    /// exists. The group ID of an event is the destination connection ID that the client chose for
    /// its first packet.
    pub fn for_endpoint(out: W, now: Instant, wall_clock: SystemTime) -> Self {
        let mut writer = Self::empty(out, now, Side::Server);
        writer.write_head("endpoint", "server", None, wall_clock);
        writer
    }

    /// Sets the number of bytes after which the log ends early.
    #[must_use]
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    fn empty(out: W, start: Instant, side: Side) -> Self {
        Self {
            out: Some(out),
            start,
            side,
            paths: BTreeMap::new(),
            local_ack_delay_exponent: 3,
            peer_ack_delay_exponent: 3,
            record: Vec::new(),
            written: 0,
            limit: DEFAULT_LIMIT,
        }
    }

    fn write_head(
        &mut self,
        title: &str,
        vantage_point: &str,
        group: Option<String>,
        wall_clock: SystemTime,
    ) {
        let mut head = json!({
            "file_schema": "urn:ietf:params:qlog:file:sequential",
            "serialization_format": "application/qlog+json-seq",
            "title": format!("mpquic {title}"),
            "trace": {
                "vantage_point": { "type": vantage_point },
                "event_schemas": [
                    "urn:ietf:params:qlog:events:quic-13",
                    "urn:ietf:params:qlog:events:loglevel",
                    PATH_EVENTS,
                ],
                "common_fields": {
                    "time_format": "relative_to_epoch",
                    "reference_time": {
                        "clock_type": "monotonic",
                        "epoch": "unknown",
                        "wall_clock_time": date_time(wall_clock),
                    },
                },
            },
        });
        if let Some(group) = group {
            head["trace"]["common_fields"]["group_id"] = group.into();
        }
        self.write_record(&head);
    }

    fn write_record(&mut self, record: &Value) {
        let Some(out) = &mut self.out else { return };
        self.record.clear();
        self.record.push(RECORD_SEPARATOR);
        let written = serde_json::to_writer(&mut self.record, record)
            .map_err(io::Error::from)
            .and_then(|()| {
                self.record.push(b'\n');
                self.written += self.record.len() as u64;
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

    /// Writes an event of a path, or of the whole connection without a path, unless the log is
    /// full.
    fn write(&mut self, now: Instant, path: Option<PathId>, name: &str, data: impl Into<Value>) {
        if self.written < self.limit {
            self.write_anyway(now, path, name, data);
            if self.written >= self.limit {
                let notice = json!({ "message": "the log is full: events are left out" });
                self.write_anyway(now, None, "loglevel:warning", notice);
            }
        }
    }

    fn write_anyway(
        &mut self,
        now: Instant,
        path: Option<PathId>,
        name: &str,
        data: impl Into<Value>,
    ) {
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
        // The frames end at a malformed frame, because frames after it cannot be parsed.
        let frames: Vec<_> = packet
            .frames
            .clone()
            .map_while(Result::ok)
            .map(|frame| frame::value(&frame, ack_delay_exponent))
            .collect();
        json!({ "header": header, "frames": frames, "raw": { "length": packet.size } })
    }

    fn on_packet(&mut self, now: Instant, initiator: Initiator, packet: &Packet) {
        let (name, exponent) = match initiator {
            Initiator::Local => ("quic:packet_sent", self.local_ack_delay_exponent),
            Initiator::Remote => ("quic:packet_received", self.peer_ack_delay_exponent),
        };
        let data = self.packet(packet, exponent);
        self.write(now, Some(packet.path), name, data);
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

    /// Writes the metrics that have changed since the last event.
    fn on_metrics(&mut self, now: Instant, path: PathId, metrics: &Metrics) {
        self.on_ecn(now, path, metrics.ecn);
        let logged = self.paths.entry(path).or_default();
        let mut changed = event::measured(metrics);
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

    /// Writes the ECN state of the path, if it has changed.
    fn on_ecn(&mut self, now: Instant, path: PathId, ecn: EcnValidation) {
        let old = self.paths.entry(path).or_default().ecn.replace(ecn);
        if old != Some(ecn) {
            let data = event::ecn(path, old, ecn);
            self.write(now, Some(path), "quic:ecn_state_updated", data);
        }
    }

    fn on_change(&mut self, now: Instant, path: PathId, change: PathChange) {
        let data = event::path_change(path, change);
        self.write(now, Some(path), "mpquic:path_updated", data);
    }

    fn on_protocol(&mut self, now: Instant, protocol: &[u8]) {
        let name = String::from_utf8_lossy(protocol);
        let data = json!({
            "chosen_alpn": { "byte_value": hex(protocol), "string_value": name },
        });
        self.write(now, None, "quic:alpn_information", data);
    }

    /// Writes the MTU of the path, if it has changed.
    fn on_mtu(&mut self, now: Instant, path: PathId, mtu: u16, done: bool) {
        let logged = self.paths.entry(path).or_default();
        let old = logged.mtu.replace((mtu, done));
        if old != Some((mtu, done)) {
            let data = event::mtu(path, old.map(|(mtu, _)| mtu), mtu, done);
            self.write(now, Some(path), "quic:mtu_updated", data);
        }
    }

    fn on_resume(&mut self, now: Instant, path: PathId, old: ResumePhase, new: ResumePhase) {
        let data = event::resume_phase(path, old, new);
        self.write(now, Some(path), "quic:careful_resume_phase_updated", data);
    }

    /// Writes a packet that is sent without a connection.
    fn on_unnumbered_sent(&mut self, now: Instant, packet: &Unnumbered<'_>) {
        if self.written < self.limit {
            self.write_record(&json!({
                "time": milliseconds(now.saturating_duration_since(self.start)),
                "name": "quic:packet_sent",
                "group_id": hex(packet.original_dcid),
                "data": event::unnumbered(packet),
            }));
            self.flush();
        }
    }

    fn on_unnumbered_received(&mut self, now: Instant, packet: &Unnumbered<'_>) {
        let data = event::unnumbered(packet);
        self.write(now, Some(PathId::ZERO), "quic:packet_received", data);
        if let Some(data) = event::negotiated(packet) {
            self.write(now, None, "quic:version_information", data);
        }
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

    /// Writes an event for each side that has keys of this type.
    fn on_keys(&mut self, now: Instant, name: &str, of: PacketType, more: &Members) {
        let level = packet_type(of).to_ascii_lowercase();
        let sides = match of {
            PacketType::ZeroRtt => &["client"][..],
            PacketType::Initial | PacketType::Handshake | PacketType::OneRtt => {
                &["client", "server"]
            }
        };
        for side in sides {
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

    /// Writes the first event of the connection.
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
                let data = event::closed_by_application("local", error_code, reason);
                self.write_anyway(now, None, "quic:connection_closed", data);
                self.flush();
            }
            Event::ConnectionLost(error) => {
                self.write_anyway(now, None, "quic:connection_closed", event::lost(error));
                self.flush();
            }
            Event::ProtocolChosen(protocol) => self.on_protocol(now, protocol),
            Event::KeyExchangeChosen(group) => {
                let data = json!({ "chosen_group": group.to_string() });
                self.write(now, None, "mpquic:key_exchange_information", data);
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
            Event::PathChanged { path, change } => self.on_change(now, path, change),
            Event::PacketSent(packet) => self.on_packet(now, Initiator::Local, packet),
            Event::PacketReceived(packet) => self.on_packet(now, Initiator::Remote, packet),
            Event::UnnumberedSent(packet) => self.on_unnumbered_sent(now, packet),
            Event::UnnumberedReceived(packet) => self.on_unnumbered_received(now, packet),
            Event::PacketDropped {
                path,
                packet_type,
                size,
                reason,
            } => {
                let data = event::dropped(path, packet_type, size, reason);
                self.write(now, Some(path), "quic:packet_dropped", data);
            }
            Event::PacketLost {
                space,
                packet_number,
            } => {
                let data = event::lost_packet(space, packet_number);
                self.write(now, Some(space.path()), "quic:packet_lost", data);
            }
            Event::MtuUpdated { path, mtu, done } => self.on_mtu(now, path, mtu, done),
            Event::ResumePhaseChanged { path, old, new } => self.on_resume(now, path, old, new),
            Event::ParametersRestored(parameters) => {
                let data = parameters::restored(parameters);
                self.write(now, None, "quic:parameters_restored", data);
            }
            Event::MetricsUpdated { path, ref metrics } => self.on_metrics(now, path, metrics),
            Event::KeysUpdated {
                packet_type,
                generation,
                trigger,
            } => {
                let data = event::updated_keys(packet_type, generation, trigger);
                self.on_keys(now, "quic:key_updated", packet_type, &data);
            }
            Event::KeysDiscarded(packet_type) => {
                self.on_keys(now, "quic:key_discarded", packet_type, &Members::new());
            }
            // Other events of the core have no counterpart in the schema.
            _ => {}
        }
    }
}
