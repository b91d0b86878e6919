//! Tables of the members of events and frames: those of draft-ietf-quic-qlog-quic-events-13, of
//! multipath and of other extensions.

use Kind::{
    Any, Bool, Error, Frame, Hex, HexOf, List, Number, Object, OneOf, Ranges, Text, Unsigned,
};

use crate::writer::PATH_EVENTS;

/// The type of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Any,
    Bool,
    Text,
    /// A number that is not negative.
    Number,
    /// An unsigned integer of at most this many bits.
    Unsigned(u32),
    Hex,
    /// Hexadecimal digits of this number of bytes.
    HexOf(usize),
    OneOf(&'static [&'static str]),
    /// The name of a transport error.
    Error,
    /// Ranges of packet numbers.
    Ranges,
    List(&'static Self),
    Frame,
    Object(&'static [Field]),
}

/// A member of an object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) required: bool,
    pub(super) kind: Kind,
}

const fn must(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        required: true,
        kind,
    }
}

const fn may(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        required: false,
        kind,
    }
}

/// Members of an object: `must` or `may`, then name and kind of each; or a constant with such
/// members.
macro_rules! members {
    ($members:ident) => { $members };
    ($($need:ident $name:ident: $kind:expr),* $(,)?) => {
        &[$($need(stringify!($name), $kind)),*]
    };
}

/// A table of names, each with its members.
macro_rules! table {
    ($($name:literal $members:tt)*) => { &[$(($name, members! $members)),*] };
}

const U8: Kind = Unsigned(8);
const U16: Kind = Unsigned(16);
const U32: Kind = Unsigned(32);
const U64: Kind = Unsigned(64);
const TOKEN: Kind = HexOf(16);
const INITIATOR: Kind = OneOf(&["local", "remote"]);
const ECN_STATE: Kind = OneOf(&["testing", "unknown", "failed", "capable"]);
const RESUME_PHASE: Kind = OneOf(&[
    "reconnaissance",
    "unvalidated",
    "validating",
    "safe_retreat",
    "normal",
]);
const STREAM_TYPE: Kind = OneOf(&["unidirectional", "bidirectional"]);
const VERSIONS: Kind = List(&HexOf(4));
const UNKNOWN: Kind = OneOf(&["unknown"]);
const RAW: Kind = Object(members! { may length: U64, may payload_length: U64, may data: Hex });
const ADDRESS_TOKEN: Kind = Object(members! {
    may type: OneOf(&["retry", "resumption"]), may raw: RAW
});
const ENDPOINT: Kind = Object(members! {
    may ip_v4: Text, may port_v4: U16, may ip_v6: Text, may port_v6: U16,
    may connection_ids: List(&Hex),
});
const HEADER: Kind = Object(members! {
    must packet_type: OneOf(&[
        "initial", "handshake", "0RTT", "1RTT", "retry", "version_negotiation", "unknown",
    ]),
    may packet_number: U64, may token: ADDRESS_TOKEN, may version: HexOf(4),
    may scid: Hex, may dcid: Hex,
    // multipath
    may path_id: U32,
});
const PREFERRED_ADDRESS: Kind = Object(members! {
    may ip_v4: Text, may port_v4: U16, may ip_v6: Text, may port_v6: U16,
    must connection_id: Hex, must stateless_reset_token: TOKEN,
});
const ADDRESSES: Kind = List(&Object(members! {
    must ip: Text, must port: U16, must priority_hint: U64
}));
const TRACE: Kind = Object(members! {
    must vantage_point: Object(members! { must type: OneOf(&["client", "server"]) }),
    must event_schemas: List(&OneOf(&[
        "urn:ietf:params:qlog:events:quic-13", "urn:ietf:params:qlog:events:loglevel", PATH_EVENTS,
    ])),
    must common_fields: Object(members! {
        may group_id: Hex, must time_format: OneOf(&["relative_to_epoch"]), may reference_time: Any,
    }),
});

/// The members of the first record.
pub(super) const HEAD: &[Field] = members! {
    must file_schema: OneOf(&["urn:ietf:params:qlog:file:sequential"]),
    must serialization_format: OneOf(&["application/qlog+json-seq"]),
    may title: Text,
    must trace: TRACE,
};

/// The members of all records after the first.
pub(super) const EVENT: &[Field] = members! {
    must time: Number, must name: Text, must data: Any, may tuple: Text, may group_id: Hex,
};

const KEY: &[Field] = members! {
    must key_type: OneOf(&[
        "server_initial_secret", "client_initial_secret", "server_handshake_secret",
        "client_handshake_secret", "client_0rtt_secret", "server_1rtt_secret", "client_1rtt_secret",
    ]),
    may key_phase: U64,
    may trigger: OneOf(&["tls", "remote_update", "local_update"]),
};
const PACKET: &[Field] = members! {
    must header: HEADER, may frames: List(&Frame), may supported_versions: VERSIONS, may raw: RAW,
};
const PARAMETERS: &[Field] = members! {
    may initiator: INITIATOR,
    may original_destination_connection_id: Hex,
    may initial_source_connection_id: Hex,
    may retry_source_connection_id: Hex,
    may stateless_reset_token: TOKEN,
    may disable_active_migration: Bool,
    may max_idle_timeout: U64,
    may max_udp_payload_size: U64,
    may ack_delay_exponent: U64,
    may max_ack_delay: U64,
    may active_connection_id_limit: U64,
    may initial_max_data: U64,
    may initial_max_stream_data_bidi_local: U64,
    may initial_max_stream_data_bidi_remote: U64,
    may initial_max_stream_data_uni: U64,
    may initial_max_streams_bidi: U64,
    may initial_max_streams_uni: U64,
    may preferred_address: PREFERRED_ADDRESS,
    may max_datagram_frame_size: U64,
    may grease_quic_bit: Bool,
    may reset_stream_at: Bool,
    // RFC 10069
    may initial_max_path_id: U32,
    // draft-ietf-quic-ack-frequency-14
    may min_ack_delay: U64,
    // draft-munizaga-quic-alternative-server-address-01
    may alternative_address: Bool,
};
const RESTORED: &[Field] = members! {
    may disable_active_migration: Bool,
    may max_idle_timeout: U64,
    may max_udp_payload_size: U64,
    may active_connection_id_limit: U64,
    may initial_max_data: U64,
    may initial_max_stream_data_bidi_local: U64,
    may initial_max_stream_data_bidi_remote: U64,
    may initial_max_stream_data_uni: U64,
    may initial_max_streams_bidi: U64,
    may initial_max_streams_uni: U64,
    may max_datagram_frame_size: U64,
    may grease_quic_bit: Bool,
};

/// The members of the data of each event.
pub(super) const EVENTS: &[(&str, &[Field])] = table! {
    "loglevel:warning" { may message: Text }
    "mpquic:path_updated" {
        must path_id: U32,
        must change: OneOf(&[
            "established", "suspect", "recovered", "abandoned", "discarded",
            "peer_available", "peer_backup",
        ]),
        may initiator: INITIATOR, may error: Error, may error_code: U64,
    }
    "mpquic:key_exchange_information" { must chosen_group: Text }
    "quic:connection_started" { must local: ENDPOINT, must remote: ENDPOINT }
    "quic:connection_closed" {
        may initiator: INITIATOR, may connection_error: Error, may application_error: UNKNOWN,
        may error_code: U64, may reason: Text,
        may trigger: OneOf(&[
            "idle_timeout", "application", "error", "version_mismatch", "stateless_reset",
        ]),
    }
    "quic:tuple_assigned" {
        must tuple_id: Text, may tuple_remote: ENDPOINT, may tuple_local: ENDPOINT,
        may path_id: U32,
    }
    "quic:careful_resume_phase_updated" {
        must old: RESUME_PHASE, must new: RESUME_PHASE, may path_id: U32
    }
    "quic:mtu_updated" { may old: U32, must new: U32, may done: Bool, may path_id: U32 }
    "quic:version_information" {
        may server_versions: VERSIONS, may client_versions: VERSIONS, may chosen_version: HexOf(4),
    }
    "quic:alpn_information" {
        may chosen_alpn: Object(members! { may byte_value: Hex, may string_value: Text })
    }
    "quic:parameters_set" (PARAMETERS)
    "quic:parameters_restored" (RESTORED)
    "quic:packet_sent" (PACKET)
    "quic:packet_received" (PACKET)
    "quic:packet_dropped" {
        may header: HEADER, may raw: RAW,
        may trigger: OneOf(&[
            "rejected", "unsupported", "invalid", "duplicate", "connection_unknown",
            "decryption_failure", "key_unavailable", "general",
        ]),
    }
    "quic:packet_lost" { may header: HEADER }
    "quic:key_updated" (KEY)
    "quic:key_discarded" (KEY)
    // `path_id` here and below is of multipath.
    "quic:ecn_state_updated" { may old: ECN_STATE, must new: ECN_STATE, must path_id: U32 }
    "quic:recovery_metrics_updated" {
        may min_rtt: Number, may smoothed_rtt: Number, may latest_rtt: Number,
        may rtt_variance: Number, may pto_count: U16, may congestion_window: U64,
        may bytes_in_flight: U64, may pacing_rate: U64, must path_id: U32,
    }
};

/// The members of each type of frame, without its type.
pub(super) const FRAMES: &[(&str, &[Field])] = table! {
    "unknown" { must frame_type_bytes: U64, may raw: RAW }
    "padding" { may raw: RAW }
    "ping" {}
    "ack" {
        may ack_delay: Number, may acked_ranges: Ranges, may ect1: U64, may ect0: U64, may ce: U64,
    }
    "reset_stream" {
        must stream_id: U64, must error: UNKNOWN, may error_code: U64, must final_size: U64,
    }
    "reset_stream_at" {
        must stream_id: U64, must error: UNKNOWN, may error_code: U64, must final_size: U64,
        must reliable_size: U64,
    }
    "stop_sending" { must stream_id: U64, must error: UNKNOWN, may error_code: U64 }
    "crypto" { must offset: U64, must raw: RAW }
    "new_token" { must token: ADDRESS_TOKEN }
    "stream" { must stream_id: U64, may offset: U64, may fin: Bool, may raw: RAW }
    "max_data" { must maximum: U64 }
    "max_stream_data" { must stream_id: U64, must maximum: U64 }
    "max_streams" { must stream_type: STREAM_TYPE, must maximum: U64 }
    "data_blocked" { must limit: U64 }
    "stream_data_blocked" { must stream_id: U64, must limit: U64 }
    "streams_blocked" { must stream_type: STREAM_TYPE, must limit: U64 }
    "new_connection_id" {
        must sequence_number: U64, must retire_prior_to: U64, may connection_id_length: U8,
        must connection_id: Hex, may stateless_reset_token: TOKEN,
    }
    "retire_connection_id" { must sequence_number: U64 }
    "path_challenge" { may data: HexOf(8) }
    "path_response" { may data: HexOf(8) }
    "connection_close" {
        may error_space: OneOf(&["transport", "application"]), may error: Error,
        may error_code: U64, may reason: Text, may trigger_frame_type: U64,
    }
    "handshake_done" {}
    "datagram" { may raw: RAW }
    // RFC 10069
    "path_ack" {
        must path_id: U32, may ack_delay: Number, may acked_ranges: Ranges,
        may ect1: U64, may ect0: U64, may ce: U64,
    }
    "path_abandon" { must path_id: U32, must error: Error, must error_code: U64 }
    "path_status_available" { must path_id: U32, must path_status_sequence_number: U64 }
    "path_status_backup" { must path_id: U32, must path_status_sequence_number: U64 }
    "path_new_connection_id" {
        must path_id: U32, must sequence_number: U64, must retire_prior_to: U64,
        may connection_id_length: U8, must connection_id: Hex, may stateless_reset_token: TOKEN,
    }
    "path_retire_connection_id" { must path_id: U32, must sequence_number: U64 }
    "max_path_id" { must maximum_path_id: U32 }
    "paths_blocked" { must maximum_path_id: U32 }
    "path_cids_blocked" { must path_id: U32, must next_sequence_number: U64 }
    // draft-ietf-quic-ack-frequency-14
    "ack_frequency" {
        must sequence_number: U64, must ack_eliciting_threshold: U64,
        must requested_max_ack_delay: U64, must reordering_threshold: U64,
    }
    "immediate_ack" {}
    // draft-munizaga-quic-alternative-server-address-01
    "alternative_address" {
        must sequence_number: U64, must preferred: ADDRESSES, must backup: ADDRESSES,
    }
};
