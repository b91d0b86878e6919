//! The qlog form of transport parameters.

use mpquic_core::{PreferredAddress, TransportParameters};
use serde_json::{Value, json};

use crate::words::{Members, hex};

/// All transport parameters. A parameter that is absent and has no default is left out.
pub(crate) fn members(parameters: &TransportParameters) -> Members {
    let mut members = Members::new();
    for (name, value) in numbers(parameters) {
        members.insert(name.to_owned(), value.into());
    }
    for (name, cid) in [
        (
            "original_destination_connection_id",
            parameters.original_destination_connection_id,
        ),
        (
            "initial_source_connection_id",
            parameters.initial_source_connection_id,
        ),
        (
            "retry_source_connection_id",
            parameters.retry_source_connection_id,
        ),
    ] {
        if let Some(cid) = cid {
            members.insert(name.to_owned(), cid.to_string().into());
        }
    }
    let flags = [
        (
            "disable_active_migration",
            parameters.disable_active_migration,
        ),
        ("grease_quic_bit", parameters.grease_quic_bit),
        ("reset_stream_at", parameters.reset_stream_at),
        ("alternative_address", parameters.alternative_address),
    ];
    for (name, value) in flags {
        members.insert(name.to_owned(), value.into());
    }
    if let Some(token) = &parameters.stateless_reset_token {
        members.insert("stateless_reset_token".to_owned(), hex(token).into());
    }
    if let Some(address) = &parameters.preferred_address {
        members.insert("preferred_address".to_owned(), preferred_address(address));
    }
    if let Some(delay) = parameters.min_ack_delay {
        let microseconds = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        members.insert("min_ack_delay".to_owned(), microseconds.into());
    }
    if let Some(path) = parameters.initial_max_path_id {
        members.insert("initial_max_path_id".to_owned(), path.0.into());
    }
    members
}

/// The parameters that a client remembers for 0-RTT.
pub(crate) fn restored(parameters: &TransportParameters) -> Members {
    let mut members = Members::new();
    let hidden = ["ack_delay_exponent", "max_ack_delay"];
    for (name, value) in numbers(parameters) {
        if !hidden.contains(&name) {
            members.insert(name.to_owned(), value.into());
        }
    }
    for (name, value) in [
        (
            "disable_active_migration",
            parameters.disable_active_migration,
        ),
        ("grease_quic_bit", parameters.grease_quic_bit),
    ] {
        members.insert(name.to_owned(), value.into());
    }
    members
}

fn numbers(parameters: &TransportParameters) -> [(&'static str, u64); 12] {
    let milliseconds = |duration: std::time::Duration| duration.as_millis() as u64;
    [
        (
            "max_idle_timeout",
            milliseconds(parameters.max_idle_timeout),
        ),
        ("max_udp_payload_size", parameters.max_udp_payload_size),
        ("ack_delay_exponent", parameters.ack_delay_exponent.into()),
        ("max_ack_delay", milliseconds(parameters.max_ack_delay)),
        (
            "active_connection_id_limit",
            parameters.active_connection_id_limit,
        ),
        ("initial_max_data", parameters.initial_max_data),
        (
            "initial_max_stream_data_bidi_local",
            parameters.initial_max_stream_data_bidi_local,
        ),
        (
            "initial_max_stream_data_bidi_remote",
            parameters.initial_max_stream_data_bidi_remote,
        ),
        (
            "initial_max_stream_data_uni",
            parameters.initial_max_stream_data_uni,
        ),
        (
            "initial_max_streams_bidi",
            parameters.initial_max_streams_bidi,
        ),
        (
            "initial_max_streams_uni",
            parameters.initial_max_streams_uni,
        ),
        (
            "max_datagram_frame_size",
            parameters.max_datagram_frame_size,
        ),
    ]
}

fn preferred_address(address: &PreferredAddress) -> Value {
    let mut value = json!({
        "connection_id": address.connection_id.to_string(),
        "stateless_reset_token": hex(&address.stateless_reset_token),
    });
    if let Some(v4) = address.ipv4 {
        value["ip_v4"] = v4.ip().to_string().into();
        value["port_v4"] = v4.port().into();
    }
    if let Some(v6) = address.ipv6 {
        value["ip_v6"] = v6.ip().to_string().into();
        value["port_v6"] = v6.port().into();
    }
    value
}
