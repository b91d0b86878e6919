//! The data of each event.

use mpquic_core::congestion::ResumePhase;
use mpquic_core::qlog::PacketType;
use mpquic_core::qlog::{
    DropReason, EcnValidation, Initiator, KeyTrigger, Metrics, PathChange, Unnumbered,
    UnnumberedKind,
};
use mpquic_core::{ConnectionError, PathId, PathStatus, SpaceId, Version};
use serde_json::{Value, json};

use crate::frame;
use crate::words::{Members, hex, milliseconds, packet_type, version};

/// packet_sent or packet_received for a Retry or Version Negotiation packet.
pub(crate) fn unnumbered(packet: &Unnumbered<'_>) -> Value {
    let mut header = json!({
        "scid": hex(packet.source),
        "dcid": hex(packet.destination),
    });
    let mut data = json!({ "raw": { "length": packet.size } });
    match packet.kind {
        UnnumberedKind::Retry {
            version: chosen,
            token,
        } => {
            header["packet_type"] = "retry".into();
            header["version"] = version(chosen.to_u32()).into();
            header["token"] = json!({
                "type": "retry",
                "raw": { "length": token.len(), "data": hex(token) },
            });
        }
        UnnumberedKind::VersionNegotiation { versions, .. } => {
            header["packet_type"] = "version_negotiation".into();
            header["version"] = version(0).into();
            data["supported_versions"] = versions.iter().map(|number| version(*number)).collect();
        }
    }
    data["header"] = header;
    data
}

/// version_information for a client that received a Version Negotiation packet.
pub(crate) fn negotiated(packet: &Unnumbered<'_>) -> Option<Members> {
    let UnnumberedKind::VersionNegotiation {
        versions,
        spoken,
        chosen,
    } = packet.kind
    else {
        return None;
    };
    let name = |known: &Version| version(known.to_u32());
    let mut data = Members::new();
    let offered = versions.iter().map(|number| version(*number)).collect();
    data.insert("server_versions".to_owned(), offered);
    data.insert(
        "client_versions".to_owned(),
        spoken.iter().map(name).collect(),
    );
    if let Some(chosen) = chosen {
        data.insert("chosen_version".to_owned(), name(&chosen).into());
    }
    Some(data)
}

/// The data of the event path_updated, which is not in any draft.
pub(crate) fn path_change(path: PathId, change: PathChange) -> Value {
    let word = match change {
        PathChange::Established => "established",
        PathChange::Suspect => "suspect",
        PathChange::Recovered => "recovered",
        PathChange::Abandoned { .. } => "abandoned",
        PathChange::Discarded => "discarded",
        PathChange::PeerStatus(PathStatus::Available) => "peer_available",
        PathChange::PeerStatus(PathStatus::Backup) => "peer_backup",
        _ => "unknown",
    };
    let mut data = match change {
        PathChange::Abandoned {
            error_code,
            initiator,
        } => {
            let mut data = frame::error("error", error_code);
            data.insert("error_code".to_owned(), error_code.to_u64().into());
            let initiator = match initiator {
                Initiator::Local => "local",
                Initiator::Remote => "remote",
            };
            data.insert("initiator".to_owned(), initiator.into());
            data
        }
        _ => Members::new(),
    };
    data.insert("path_id".to_owned(), path.0.into());
    data.insert("change".to_owned(), word.into());
    Value::Object(data)
}

/// mtu_updated.
pub(crate) fn mtu(path: PathId, old: Option<u16>, new: u16, done: bool) -> Value {
    let mut data = json!({ "new": new, "done": done, "path_id": path.0 });
    if let Some(old) = old {
        data["old"] = old.into();
    }
    data
}

/// The data of careful_resume_phase_updated (draft-ietf-tsvwg-careful-resume-qlog-02). It lacks the
/// members that only the congestion controller knows.
pub(crate) fn resume_phase(path: PathId, old: ResumePhase, new: ResumePhase) -> Value {
    json!({ "old": phase(old), "new": phase(new), "path_id": path.0 })
}

fn phase(phase: ResumePhase) -> &'static str {
    match phase {
        ResumePhase::Reconnaissance => "reconnaissance",
        ResumePhase::Unvalidated => "unvalidated",
        ResumePhase::Validating => "validating",
        ResumePhase::SafeRetreat => "safe_retreat",
        _ => "normal",
    }
}

/// ecn_state_updated.
pub(crate) fn ecn(path: PathId, old: Option<EcnValidation>, new: EcnValidation) -> Value {
    let mut data = json!({ "new": ecn_state(new), "path_id": path.0 });
    if let Some(old) = old {
        data["old"] = ecn_state(old).into();
    }
    data
}

fn ecn_state(validation: EcnValidation) -> &'static str {
    match validation {
        EcnValidation::Testing => "testing",
        EcnValidation::Unknown => "unknown",
        EcnValidation::Failed => "failed",
        EcnValidation::Capable => "capable",
    }
}

/// packet_lost.
pub(crate) fn lost_packet(space: SpaceId, packet_number: u64) -> Value {
    json!({ "header": {
        "packet_type": packet_type(space_packets(space)),
        "packet_number": packet_number,
        "path_id": space.path().0,
    } })
}

/// The data of key_updated, without the type of the key.
pub(crate) fn updated_keys(
    packet_type: PacketType,
    generation: u32,
    trigger: KeyTrigger,
) -> Members {
    let mut data = Members::new();
    data.insert("trigger".to_owned(), key_trigger(trigger).into());
    if packet_type == PacketType::OneRtt {
        data.insert("key_phase".to_owned(), generation.into());
    }
    data
}

/// Returns the packet type that stands for a space. The space that 0-RTT and 1-RTT packets share is
/// named after 1-RTT packets.
fn space_packets(space: SpaceId) -> PacketType {
    match space {
        SpaceId::Initial => PacketType::Initial,
        SpaceId::Handshake => PacketType::Handshake,
        SpaceId::Data(_) => PacketType::OneRtt,
    }
}

/// packet_dropped.
pub(crate) fn dropped(
    path: PathId,
    of: Option<PacketType>,
    size: usize,
    reason: DropReason,
) -> Value {
    let trigger = match reason {
        DropReason::Unsupported => "unsupported",
        DropReason::Invalid => "invalid",
        DropReason::Duplicate => "duplicate",
        DropReason::ConnectionUnknown => "connection_unknown",
        DropReason::DecryptionFailure => "decryption_failure",
        DropReason::KeyUnavailable => "key_unavailable",
        DropReason::Rejected => "rejected",
        _ => "general",
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

/// recovery_metrics_updated with all members.
pub(crate) fn measured(metrics: &Metrics) -> Members {
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

/// The data of connection_closed, if an application closed the connection.
pub(crate) fn closed_by_application(initiator: &str, error_code: u64, reason: &[u8]) -> Value {
    json!({
        "initiator": initiator,
        "application_error": "unknown",
        "error_code": error_code,
        "reason": String::from_utf8_lossy(reason),
        "trigger": "application",
    })
}

/// The data of connection_closed, if the connection ended without a close by the local application.
pub(crate) fn lost(error: &ConnectionError) -> Value {
    let mut data = match error {
        ConnectionError::ApplicationClosed(close) => {
            let code = close.error_code.into_inner();
            return closed_by_application("remote", code, &close.reason);
        }
        ConnectionError::TransportError(error) => frame::error("connection_error", error.code()),
        ConnectionError::ConnectionClosed(close) => frame::error("connection_error", close.code),
        _ => Members::new(),
    };
    let is_remote = matches!(
        error,
        ConnectionError::ConnectionClosed(_) | ConnectionError::Reset
    );
    let initiator = if is_remote { "remote" } else { "local" };
    data.insert("initiator".to_owned(), initiator.into());
    let trigger = match error {
        ConnectionError::VersionMismatch => "version_mismatch",
        ConnectionError::TimedOut => "idle_timeout",
        ConnectionError::Reset => "stateless_reset",
        ConnectionError::LocallyClosed | ConnectionError::ApplicationClosed(_) => "application",
        _ => "error",
    };
    data.insert("trigger".to_owned(), trigger.into());
    data.insert("reason".to_owned(), error.to_string().into());
    Value::Object(data)
}
