//! Tables of the members of events and frames: those of draft-ietf-quic-qlog-quic-events-13, of
//! multipath and of other extensions.

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

const U16: Kind = Kind::Unsigned(16);
const U32: Kind = Kind::Unsigned(32);
const U64: Kind = Kind::Unsigned(64);
const TOKEN: Kind = Kind::HexOf(16);
const INITIATOR: Kind = Kind::OneOf(&["local", "remote"]);
const ECN_STATE: Kind = Kind::OneOf(&["testing", "unknown", "failed", "capable"]);
const RESUME_PHASE: Kind = Kind::OneOf(&[
    "reconnaissance",
    "unvalidated",
    "validating",
    "safe_retreat",
    "normal",
]);
const STREAM_TYPE: Kind = Kind::OneOf(&["unidirectional", "bidirectional"]);
const VERSIONS: Kind = Kind::List(&Kind::HexOf(4));
const RAW: Kind = Kind::Object(&[
    may("length", U64),
    may("payload_length", U64),
    may("data", Kind::Hex),
]);
const ADDRESS_TOKEN: Kind = Kind::Object(&[
    may("type", Kind::OneOf(&["retry", "resumption"])),
    may("raw", RAW),
]);
const ENDPOINT: Kind = Kind::Object(&[
    may("ip_v4", Kind::Text),
    may("port_v4", U16),
    may("ip_v6", Kind::Text),
    may("port_v6", U16),
    may("connection_ids", Kind::List(&Kind::Hex)),
]);
const KEY: Kind = Kind::OneOf(&[
    "server_initial_secret",
    "client_initial_secret",
    "server_handshake_secret",
    "client_handshake_secret",
    "client_0rtt_secret",
    "server_1rtt_secret",
    "client_1rtt_secret",
]);
const KEY_FIELDS: &[Field] = &[
    must("key_type", KEY),
    may("key_phase", U64),
    may(
        "trigger",
        Kind::OneOf(&["tls", "remote_update", "local_update"]),
    ),
];
const HEADER: Kind = Kind::Object(&[
    must(
        "packet_type",
        Kind::OneOf(&[
            "initial",
            "handshake",
            "0RTT",
            "1RTT",
            "retry",
            "version_negotiation",
            "unknown",
        ]),
    ),
    may("packet_number", U64),
    may("token", ADDRESS_TOKEN),
    may("version", Kind::HexOf(4)),
    may("scid", Kind::Hex),
    may("dcid", Kind::Hex),
    // multipath
    may("path_id", U32),
]);
const PACKET: &[Field] = &[
    must("header", HEADER),
    may("frames", Kind::List(&Kind::Frame)),
    may("supported_versions", VERSIONS),
    may("raw", RAW),
];
const PREFERRED_ADDRESS: Kind = Kind::Object(&[
    may("ip_v4", Kind::Text),
    may("port_v4", U16),
    may("ip_v6", Kind::Text),
    may("port_v6", U16),
    must("connection_id", Kind::Hex),
    must("stateless_reset_token", TOKEN),
]);

const ADDRESSES: Kind = Kind::List(&Kind::Object(&[
    must("ip", Kind::Text),
    must("port", U16),
    must("priority_hint", U64),
]));

/// The members of the first record.
pub(super) const HEAD: &[Field] = &[
    must(
        "file_schema",
        Kind::OneOf(&["urn:ietf:params:qlog:file:sequential"]),
    ),
    must(
        "serialization_format",
        Kind::OneOf(&["application/qlog+json-seq"]),
    ),
    may("title", Kind::Text),
    must(
        "trace",
        Kind::Object(&[
            must(
                "vantage_point",
                Kind::Object(&[must("type", Kind::OneOf(&["client", "server"]))]),
            ),
            must(
                "event_schemas",
                Kind::List(&Kind::OneOf(&[
                    "urn:ietf:params:qlog:events:quic-13",
                    "urn:ietf:params:qlog:events:loglevel",
                    PATH_EVENTS,
                ])),
            ),
            must(
                "common_fields",
                Kind::Object(&[
                    may("group_id", Kind::Hex),
                    must("time_format", Kind::OneOf(&["relative_to_epoch"])),
                    may("reference_time", Kind::Any),
                ]),
            ),
        ]),
    ),
];

/// The members of all records after the first.
pub(super) const EVENT: &[Field] = &[
    must("time", Kind::Number),
    must("name", Kind::Text),
    must("data", Kind::Any),
    may("tuple", Kind::Text),
    may("group_id", Kind::Hex),
];

/// The members of the data of each event.
pub(super) const EVENTS: &[(&str, &[Field])] = &[
    ("loglevel:warning", &[may("message", Kind::Text)]),
    (
        "mpquic:path_updated",
        &[
            PATH,
            must(
                "change",
                Kind::OneOf(&[
                    "established",
                    "suspect",
                    "recovered",
                    "abandoned",
                    "discarded",
                    "peer_available",
                    "peer_backup",
                ]),
            ),
            may("initiator", INITIATOR),
            may("error", Kind::Error),
            may("error_code", U64),
        ],
    ),
    (
        "mpquic:key_exchange_information",
        &[must("chosen_group", Kind::Text)],
    ),
    (
        "quic:connection_started",
        &[must("local", ENDPOINT), must("remote", ENDPOINT)],
    ),
    (
        "quic:connection_closed",
        &[
            may("initiator", INITIATOR),
            may("connection_error", Kind::Error),
            may("application_error", Kind::OneOf(&["unknown"])),
            may("error_code", U64),
            may("reason", Kind::Text),
            may(
                "trigger",
                Kind::OneOf(&[
                    "idle_timeout",
                    "application",
                    "error",
                    "version_mismatch",
                    "stateless_reset",
                ]),
            ),
        ],
    ),
    (
        "quic:tuple_assigned",
        &[
            must("tuple_id", Kind::Text),
            may("tuple_remote", ENDPOINT),
            may("tuple_local", ENDPOINT),
            may("path_id", U32),
        ],
    ),
    (
        "quic:careful_resume_phase_updated",
        &[
            must("old", RESUME_PHASE),
            must("new", RESUME_PHASE),
            may("path_id", U32),
        ],
    ),
    (
        "quic:mtu_updated",
        &[
            may("old", U32),
            must("new", U32),
            may("done", Kind::Bool),
            may("path_id", U32),
        ],
    ),
    (
        "quic:version_information",
        &[
            may("server_versions", VERSIONS),
            may("client_versions", VERSIONS),
            may("chosen_version", Kind::HexOf(4)),
        ],
    ),
    (
        "quic:alpn_information",
        &[may(
            "chosen_alpn",
            Kind::Object(&[
                may("byte_value", Kind::Hex),
                may("string_value", Kind::Text),
            ]),
        )],
    ),
    ("quic:parameters_set", PARAMETERS),
    ("quic:parameters_restored", RESTORED),
    ("quic:packet_sent", PACKET),
    ("quic:packet_received", PACKET),
    (
        "quic:packet_dropped",
        &[
            may("header", HEADER),
            may("raw", RAW),
            may(
                "trigger",
                Kind::OneOf(&[
                    "rejected",
                    "unsupported",
                    "invalid",
                    "duplicate",
                    "connection_unknown",
                    "decryption_failure",
                    "key_unavailable",
                    "general",
                ]),
            ),
        ],
    ),
    ("quic:packet_lost", &[may("header", HEADER)]),
    ("quic:key_updated", KEY_FIELDS),
    ("quic:key_discarded", KEY_FIELDS),
    (
        "quic:ecn_state_updated",
        &[
            may("old", ECN_STATE),
            must("new", ECN_STATE),
            // multipath
            must("path_id", U32),
        ],
    ),
    (
        "quic:recovery_metrics_updated",
        &[
            may("min_rtt", Kind::Number),
            may("smoothed_rtt", Kind::Number),
            may("latest_rtt", Kind::Number),
            may("rtt_variance", Kind::Number),
            may("pto_count", U16),
            may("congestion_window", U64),
            may("bytes_in_flight", U64),
            may("pacing_rate", U64),
            // multipath
            must("path_id", U32),
        ],
    ),
];

const PARAMETERS: &[Field] = &[
    may("initiator", INITIATOR),
    may("original_destination_connection_id", Kind::Hex),
    may("initial_source_connection_id", Kind::Hex),
    may("retry_source_connection_id", Kind::Hex),
    may("stateless_reset_token", TOKEN),
    may("disable_active_migration", Kind::Bool),
    may("max_idle_timeout", U64),
    may("max_udp_payload_size", U64),
    may("ack_delay_exponent", U64),
    may("max_ack_delay", U64),
    may("active_connection_id_limit", U64),
    may("initial_max_data", U64),
    may("initial_max_stream_data_bidi_local", U64),
    may("initial_max_stream_data_bidi_remote", U64),
    may("initial_max_stream_data_uni", U64),
    may("initial_max_streams_bidi", U64),
    may("initial_max_streams_uni", U64),
    may("preferred_address", PREFERRED_ADDRESS),
    may("max_datagram_frame_size", U64),
    may("grease_quic_bit", Kind::Bool),
    may("reset_stream_at", Kind::Bool),
    // RFC 10069
    may("initial_max_path_id", U32),
    // draft-ietf-quic-ack-frequency-14
    may("min_ack_delay", U64),
    // draft-munizaga-quic-alternative-server-address-01
    may("alternative_address", Kind::Bool),
];

const RESTORED: &[Field] = &[
    may("disable_active_migration", Kind::Bool),
    may("max_idle_timeout", U64),
    may("max_udp_payload_size", U64),
    may("active_connection_id_limit", U64),
    may("initial_max_data", U64),
    may("initial_max_stream_data_bidi_local", U64),
    may("initial_max_stream_data_bidi_remote", U64),
    may("initial_max_stream_data_uni", U64),
    may("initial_max_streams_bidi", U64),
    may("initial_max_streams_uni", U64),
    may("max_datagram_frame_size", U64),
    may("grease_quic_bit", Kind::Bool),
];

const PATH: Field = must("path_id", U32);
const STREAM: Field = must("stream_id", U64);
const MAXIMUM: Field = must("maximum", U64);
const LIMIT: Field = must("limit", U64);
const SEQUENCE: Field = must("sequence_number", U64);
const MAXIMUM_PATH: Field = must("maximum_path_id", U32);
const STATUS: &[Field] = &[PATH, must("path_status_sequence_number", U64)];
const APPLICATION_ERROR: Field = must("error", Kind::OneOf(&["unknown"]));
const DELAY: Field = may("ack_delay", Kind::Number);
const RANGES: Field = may("acked_ranges", Kind::Ranges);
const RETIRE_PRIOR_TO: Field = must("retire_prior_to", U64);
const CID: Field = must("connection_id", Kind::Hex);
const CID_LENGTH: Field = may("connection_id_length", Kind::Unsigned(8));
const RESET_TOKEN: Field = may("stateless_reset_token", TOKEN);

/// The members of each type of frame, without its type.
pub(super) const FRAMES: &[(&str, &[Field])] = &[
    ("unknown", &[must("frame_type_bytes", U64), may("raw", RAW)]),
    ("padding", &[may("raw", RAW)]),
    ("ping", &[]),
    (
        "ack",
        &[
            DELAY,
            RANGES,
            may("ect1", U64),
            may("ect0", U64),
            may("ce", U64),
        ],
    ),
    (
        "reset_stream",
        &[
            STREAM,
            APPLICATION_ERROR,
            may("error_code", U64),
            must("final_size", U64),
        ],
    ),
    (
        "reset_stream_at",
        &[
            STREAM,
            APPLICATION_ERROR,
            may("error_code", U64),
            must("final_size", U64),
            must("reliable_size", U64),
        ],
    ),
    (
        "stop_sending",
        &[STREAM, APPLICATION_ERROR, may("error_code", U64)],
    ),
    ("crypto", &[must("offset", U64), must("raw", RAW)]),
    ("new_token", &[must("token", ADDRESS_TOKEN)]),
    (
        "stream",
        &[
            STREAM,
            may("offset", U64),
            may("fin", Kind::Bool),
            may("raw", RAW),
        ],
    ),
    ("max_data", &[MAXIMUM]),
    ("max_stream_data", &[STREAM, MAXIMUM]),
    ("max_streams", &[must("stream_type", STREAM_TYPE), MAXIMUM]),
    ("data_blocked", &[LIMIT]),
    ("stream_data_blocked", &[STREAM, LIMIT]),
    (
        "streams_blocked",
        &[must("stream_type", STREAM_TYPE), LIMIT],
    ),
    (
        "new_connection_id",
        &[SEQUENCE, RETIRE_PRIOR_TO, CID_LENGTH, CID, RESET_TOKEN],
    ),
    ("retire_connection_id", &[SEQUENCE]),
    ("path_challenge", &[may("data", Kind::HexOf(8))]),
    ("path_response", &[may("data", Kind::HexOf(8))]),
    (
        "connection_close",
        &[
            may("error_space", Kind::OneOf(&["transport", "application"])),
            may("error", Kind::Error),
            may("error_code", U64),
            may("reason", Kind::Text),
            may("trigger_frame_type", U64),
        ],
    ),
    ("handshake_done", &[]),
    ("datagram", &[may("raw", RAW)]),
    // RFC 10069
    (
        "path_ack",
        &[
            PATH,
            DELAY,
            RANGES,
            may("ect1", U64),
            may("ect0", U64),
            may("ce", U64),
        ],
    ),
    (
        "path_abandon",
        &[PATH, must("error", Kind::Error), must("error_code", U64)],
    ),
    ("path_status_available", STATUS),
    ("path_status_backup", STATUS),
    (
        "path_new_connection_id",
        &[
            PATH,
            SEQUENCE,
            RETIRE_PRIOR_TO,
            CID_LENGTH,
            CID,
            RESET_TOKEN,
        ],
    ),
    ("path_retire_connection_id", &[PATH, SEQUENCE]),
    ("max_path_id", &[MAXIMUM_PATH]),
    ("paths_blocked", &[MAXIMUM_PATH]),
    (
        "path_cids_blocked",
        &[PATH, must("next_sequence_number", U64)],
    ),
    // draft-ietf-quic-ack-frequency-14
    (
        "ack_frequency",
        &[
            SEQUENCE,
            must("ack_eliciting_threshold", U64),
            must("requested_max_ack_delay", U64),
            must("reordering_threshold", U64),
        ],
    ),
    ("immediate_ack", &[]),
    // draft-munizaga-quic-alternative-server-address-01
    (
        "alternative_address",
        &[
            SEQUENCE,
            must("preferred", ADDRESSES),
            must("backup", ADDRESSES),
        ],
    ),
];
