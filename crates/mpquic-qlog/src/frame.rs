//! The qlog form of frames.

use std::time::Duration;

use mpquic_core::qlog::frame::{
    Ack, AddressEntry, AlternativeAddress, Close, Frame, NewConnectionId, PathAck,
};
use mpquic_core::{PathId, PathStatus, TransportErrorCode};
use serde_json::{Value, json};

use crate::words::{Members, hex, milliseconds, stream_type, transport_error};

/// The qlog form of a frame. `ack_delay_exponent` is the exponent of the endpoint that sent the
/// frame.
pub(crate) fn value(frame: &Frame, ack_delay_exponent: u8) -> Value {
    match frame {
        Frame::Padding => json!({ "frame_type": "padding" }),
        Frame::Ping => json!({ "frame_type": "ping" }),
        Frame::ImmediateAck => json!({ "frame_type": "immediate_ack" }),
        Frame::AckFrequency(request) => json!({
            "frame_type": "ack_frequency",
            "sequence_number": request.sequence_number,
            "ack_eliciting_threshold": request.ack_eliciting_threshold,
            "requested_max_ack_delay": request.requested_max_ack_delay,
            "reordering_threshold": request.reordering_threshold,
        }),
        Frame::AlternativeAddress(frame) => alternative_address(frame),
        Frame::HandshakeDone => json!({ "frame_type": "handshake_done" }),
        Frame::Ack(ack) => acknowledgement("ack", None, ack, ack_delay_exponent),
        Frame::PathAck(PathAck { path_id, ack }) => {
            acknowledgement("path_ack", Some(*path_id), ack, ack_delay_exponent)
        }
        Frame::Stream(stream) => json!({
            "frame_type": "stream",
            "stream_id": u64::from(stream.stream_id),
            "offset": stream.offset,
            "fin": stream.fin,
            "raw": raw(stream.data.len()),
        }),
        Frame::Crypto(crypto) => json!({
            "frame_type": "crypto",
            "offset": crypto.offset,
            "raw": raw(crypto.data.len()),
        }),
        Frame::Datagram(data) => json!({
            "frame_type": "datagram",
            "raw": raw(data.len()),
        }),
        Frame::ResetStream(reset) => json!({
            "frame_type": "reset_stream",
            "stream_id": u64::from(reset.stream_id),
            "error": "unknown",
            "error_code": reset.error_code,
            "final_size": reset.final_size,
        }),
        Frame::ResetStreamAt(reset) => json!({
            "frame_type": "reset_stream_at",
            "stream_id": u64::from(reset.stream_id),
            "error": "unknown",
            "error_code": reset.error_code,
            "final_size": reset.final_size,
            "reliable_size": reset.reliable_size,
        }),
        Frame::StopSending(stop) => json!({
            "frame_type": "stop_sending",
            "stream_id": u64::from(stop.stream_id),
            "error": "unknown",
            "error_code": stop.error_code,
        }),
        Frame::NewToken(token) => json!({
            "frame_type": "new_token",
            "token": { "raw": { "length": token.len(), "data": hex(token) } },
        }),
        Frame::ConnectionClose(close) => connection_close(close),
        Frame::PathChallenge(data) => probe("path_challenge", data),
        Frame::PathResponse(data) => probe("path_response", data),
        Frame::MaxData(_)
        | Frame::MaxStreamData(_)
        | Frame::MaxStreams(_)
        | Frame::DataBlocked(_)
        | Frame::StreamDataBlocked(_)
        | Frame::StreamsBlocked(_) => limit(frame),
        Frame::NewConnectionId(_)
        | Frame::RetireConnectionId(_)
        | Frame::PathNewConnectionId(_)
        | Frame::PathRetireConnectionId(_) => connection_id(frame),
        Frame::PathAbandon(_)
        | Frame::PathStatus(_)
        | Frame::MaxPathId(_)
        | Frame::PathsBlocked(_)
        | Frame::PathCidsBlocked(_) => path(frame),
        _ => json!({ "frame_type": "unknown", "frame_type_bytes": frame.frame_type() }),
    }
}

/// The schema calls the length field of a frame `length`, and the length of its data
/// `payload_length`.
fn raw(length: usize) -> Value {
    json!({ "length": length, "payload_length": length })
}

fn probe(name: &str, data: &[u8; 8]) -> Value {
    json!({ "frame_type": name, "data": hex(data) })
}

/// The frame ALTERNATIVE_ADDRESS. The client should prefer the `preferred` addresses to the address
/// of the current path, and this address to the `backup` addresses.
fn alternative_address(frame: &AlternativeAddress) -> Value {
    let addresses = |entries: &[AddressEntry]| -> Vec<Value> {
        let entries = entries.iter().map(|entry| {
            json!({
                "ip": entry.address.ip().to_string(),
                "port": entry.address.port(),
                "priority_hint": entry.priority_hint,
            })
        });
        entries.collect()
    };
    json!({
        "frame_type": "alternative_address",
        "sequence_number": frame.sequence_number,
        "preferred": addresses(&frame.preferred),
        "backup": addresses(&frame.backup),
    })
}

fn acknowledgement(name: &str, path: Option<PathId>, ack: &Ack, exponent: u8) -> Value {
    // RFC 9000 section 18.2: the exponent is at most 20.
    let delay = Duration::from_micros(ack.ack_delay.saturating_mul(1 << exponent.min(20)));
    let ranges: Vec<_> = ack
        .ranges()
        .map(|range| {
            if range.start() == range.end() {
                json!([range.start()])
            } else {
                json!([range.start(), range.end()])
            }
        })
        .collect();
    let mut value = json!({
        "frame_type": name,
        "ack_delay": milliseconds(delay),
        "acked_ranges": ranges,
    });
    if let Some(path) = path {
        value["path_id"] = path.0.into();
    }
    if let Some(ecn) = &ack.ecn_counts {
        value["ect0"] = ecn.ect0.into();
        value["ect1"] = ecn.ect1.into();
        value["ce"] = ecn.ce.into();
    }
    value
}

fn connection_close(close: &Close) -> Value {
    let (mut members, reason) = match close {
        Close::Connection(close) => {
            let mut members = error("error", close.code);
            members.insert("error_space".to_owned(), "transport".into());
            if close.frame_type != 0 {
                let blamed = close.frame_type.into();
                members.insert("trigger_frame_type".to_owned(), blamed);
            }
            (members, &close.reason)
        }
        Close::Application(close) => {
            let mut members = Members::new();
            members.insert("error_space".to_owned(), "application".into());
            members.insert("error".to_owned(), "unknown".into());
            members.insert(
                "error_code".to_owned(),
                close.error_code.into_inner().into(),
            );
            (members, &close.reason)
        }
    };
    members.insert("frame_type".to_owned(), "connection_close".into());
    if !reason.is_empty() {
        let text = String::from_utf8_lossy(reason).into_owned();
        members.insert("reason".to_owned(), text.into());
    }
    Value::Object(members)
}

/// The code of a transport error as the member `name`. If the schema has no word for the error, its
/// numeric code is another member.
pub(crate) fn error(name: &str, code: TransportErrorCode) -> Members {
    let word = transport_error(code);
    let mut members = Members::new();
    if word.is_none() {
        members.insert("error_code".to_owned(), code.to_u64().into());
    }
    let word = word.unwrap_or_else(|| "unknown".to_owned());
    members.insert(name.to_owned(), word.into());
    members
}

/// The qlog form of frames about flow control.
fn limit(frame: &Frame) -> Value {
    match frame {
        Frame::MaxData(maximum) => json!({ "frame_type": "max_data", "maximum": maximum }),
        Frame::MaxStreamData(frame) => json!({
            "frame_type": "max_stream_data",
            "stream_id": u64::from(frame.stream_id),
            "maximum": frame.maximum_stream_data,
        }),
        Frame::MaxStreams(frame) => json!({
            "frame_type": "max_streams",
            "stream_type": stream_type(frame.dir),
            "maximum": frame.maximum_streams,
        }),
        Frame::DataBlocked(limit) => json!({ "frame_type": "data_blocked", "limit": limit }),
        Frame::StreamDataBlocked(frame) => json!({
            "frame_type": "stream_data_blocked",
            "stream_id": u64::from(frame.stream_id),
            "limit": frame.maximum_stream_data,
        }),
        Frame::StreamsBlocked(frame) => json!({
            "frame_type": "streams_blocked",
            "stream_type": stream_type(frame.dir),
            "limit": frame.maximum_streams,
        }),
        _ => Value::Null,
    }
}

/// The qlog form of frames about connection IDs.
fn connection_id(frame: &Frame) -> Value {
    let (name, path, sequence, new) = match frame {
        Frame::NewConnectionId(new) => ("new_connection_id", None, new.sequence_number, Some(new)),
        Frame::PathNewConnectionId(frame) => (
            "path_new_connection_id",
            Some(frame.path_id),
            frame.new_connection_id.sequence_number,
            Some(&frame.new_connection_id),
        ),
        Frame::RetireConnectionId(sequence) => ("retire_connection_id", None, *sequence, None),
        Frame::PathRetireConnectionId(frame) => (
            "path_retire_connection_id",
            Some(frame.path_id),
            frame.sequence_number,
            None,
        ),
        _ => return Value::Null,
    };
    let mut value = json!({ "frame_type": name, "sequence_number": sequence });
    if let Some(path) = path {
        value["path_id"] = path.0.into();
    }
    if let Some(NewConnectionId {
        retire_prior_to,
        connection_id,
        stateless_reset_token,
        ..
    }) = new
    {
        value["retire_prior_to"] = (*retire_prior_to).into();
        value["connection_id_length"] = connection_id.len().into();
        value["connection_id"] = connection_id.to_string().into();
        value["stateless_reset_token"] = hex(stateless_reset_token).into();
    }
    value
}

/// The qlog form of frames about paths (RFC 10069 section 4).
fn path(frame: &Frame) -> Value {
    match frame {
        Frame::PathAbandon(frame) => {
            let mut members = error("error", frame.error_code);
            members.insert("error_code".to_owned(), frame.error_code.to_u64().into());
            members.insert("frame_type".to_owned(), "path_abandon".into());
            members.insert("path_id".to_owned(), frame.path_id.0.into());
            Value::Object(members)
        }
        Frame::PathStatus(frame) => json!({
            "frame_type": match frame.status {
                PathStatus::Available => "path_status_available",
                PathStatus::Backup => "path_status_backup",
            },
            "path_id": frame.path_id.0,
            "path_status_sequence_number": frame.sequence_number,
        }),
        Frame::MaxPathId(path) => {
            json!({ "frame_type": "max_path_id", "maximum_path_id": path.0 })
        }
        Frame::PathsBlocked(path) => {
            json!({ "frame_type": "paths_blocked", "maximum_path_id": path.0 })
        }
        Frame::PathCidsBlocked(frame) => json!({
            "frame_type": "path_cids_blocked",
            "path_id": frame.path_id.0,
            "next_sequence_number": frame.next_sequence_number,
        }),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use mpquic_core::qlog::frame::FrameIter;

    use super::*;

    /// A frame of a type, with the same value in all its fields; `None` if neither 0 nor 1 makes a
    /// valid frame.
    fn frame(frame_type: u16) -> Option<Frame> {
        let frame_type = match frame_type {
            0..0x40 => vec![frame_type as u8],
            _ => (frame_type | 0x4000).to_be_bytes().to_vec(),
        };
        [0, 1].into_iter().find_map(|field| {
            let bytes = [&frame_type[..], &[field; 64]].concat();
            FrameIter::new(bytes.into(), true).next()?.ok()
        })
    }

    #[test]
    fn every_frame_has_a_name() {
        let mut frames: Vec<_> = (0..0x4000).filter_map(frame).collect();
        assert_eq!(frames.len(), 46);
        // Frame types of more than two bytes.
        frames.push(Frame::AlternativeAddress(AlternativeAddress {
            sequence_number: 0,
            preferred: Vec::new(),
            backup: Vec::new(),
        }));
        for frame in frames {
            let value = value(&frame, 3);
            assert_ne!(value["frame_type"], "unknown", "{frame:?}");
            assert!(value["frame_type"].is_string(), "{frame:?}");
        }
    }
}
