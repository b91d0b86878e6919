//! What may name what. The tests beside say how each table is read; a row that is missing, not true
//! or no longer needed is a fault.

/// A room, and the rooms it names. A room is a file or a folder; `mod` is a folder's own file.
/// Rooms come after the rooms they name, so no arrow leads up.
pub(crate) type Row = (&'static str, &'static str);

/// Folders, and the rooms in each.
pub(crate) const ROOMS: &[(&str, &[Row])] = &[
    (
        "mpquic-core/src",
        &[
            ("peer_text", ""),
            ("error", "peer_text"),
            ("ids", ""),
            ("key_exchange", ""),
            ("memory", ""),
            ("named", ""),
            ("congestion", "ids named"),
            ("path_map", "ids"),
            ("random", ""),
            ("range_set", ""),
            ("rate", ""),
            ("server_address", "ids"),
            ("sched", "congestion ids named"),
            ("version", ""),
            ("knowledge", "congestion ids version"),
            ("wire", "error ids range_set version"),
            ("unstable_wire", "range_set wire"),
            ("crypto", "error ids key_exchange version wire"),
            ("packet", "crypto error ids sched version wire"),
            ("cid", "error ids packet random range_set wire"),
            ("connection_state", "error packet wire"),
            ("qlog", "congestion error ids key_exchange version wire"),
            (
                "config",
                "cid congestion crypto error ids knowledge qlog sched version wire",
            ),
            ("guarded", "config congestion ids path_map sched"),
            ("recorder", "config ids packet qlog version wire"),
            ("space", "config ids packet range_set wire"),
            (
                "recovery",
                "config congestion error ids packet random space wire",
            ),
            (
                "protect",
                "crypto error ids packet qlog recovery version wire",
            ),
            (
                "stream",
                "config error ids memory packet range_set rate sched wire",
            ),
            (
                "event",
                "congestion error ids key_exchange memory qlog server_address stream wire",
            ),
            (
                "outbox",
                "cid congestion error event guarded ids packet qlog recorder sched space",
            ),
            (
                "handshake",
                "config crypto error event ids knowledge memory outbox packet protect qlog random recorder recovery space stream version wire",
            ),
            (
                "path",
                "cid config congestion crypto error event ids knowledge outbox packet qlog random range_set rate recovery sched server_address space wire",
            ),
            ("account", "error handshake memory outbox path stream"),
            ("unacked", "ids packet path sched stream"),
            (
                "scheduling",
                "config congestion guarded ids outbox packet path random sched stream unacked",
            ),
            (
                "connection",
                "account config congestion connection_state crypto error event guarded handshake ids outbox packet path protect qlog random recorder recovery sched scheduling server_address space stream version wire",
            ),
            (
                "endpoint",
                "cid config connection crypto error event handshake ids memory packet protect qlog rate version wire",
            ),
            (
                "testing",
                "cid config crypto error ids packet recovery space stream wire",
            ),
        ],
    ),
    (
        "mpquic-core/src/path",
        &[
            ("advisory_frame_limit", ""),
            ("amplification", ""),
            ("capacity", ""),
            ("first_flight", ""),
            ("ids", ""),
            ("liveness", ""),
            ("mtu", ""),
            ("server_addresses", ""),
            ("shared", "first_flight server_addresses"),
            ("status", ""),
            ("validation", ""),
            ("tuple", "amplification validation"),
            ("ack_carrier", ""),
            ("mod", "capacity liveness mtu tuple validation ack_carrier"),
            ("resumption", "capacity mod"),
            ("slot", "mod status tuple"),
            ("migration", "mod shared slot tuple validation"),
            ("preferred_address", "migration shared slot tuple"),
            ("set", "advisory_frame_limit ids mod shared slot"),
            ("ack_frequency", "mod set"),
            ("admission", "set slot"),
            ("failover", "mod set slot"),
            ("handle", "set slot"),
            ("life", "mod set shared slot"),
            ("frames", "life mod set"),
            ("outcome", "mod set"),
            ("parameters", "set shared"),
            ("planning", "mod set"),
            ("receiving", "set"),
            ("report", "mod set"),
            ("sending", "mod set"),
            ("timers", "life mod set shared slot"),
            ("view", "mod set"),
        ],
    ),
    (
        "mpquic-paths/src",
        &[
            ("interface_name", ""),
            ("source_address", ""),
            ("local", "interface_name source_address"),
            ("pairs", "local"),
            ("view", ""),
            ("ways", ""),
            ("manager", "local view"),
            ("managed", "local manager view"),
            ("plan", "local manager pairs view"),
            ("stand_by", "local manager view"),
            ("cost", "local manager view"),
            ("shares", "local manager view"),
            ("steering", "cost local manager view"),
        ],
    ),
    (
        "mpquic-tokio/src",
        &[
            ("address_flags", ""),
            ("addresses", ""),
            ("automatic_paths", ""),
            ("config", "addresses"),
            ("datagram_socket", ""),
            ("device", ""),
            ("error_queue", ""),
            ("file_store", ""),
            ("memory_link", ""),
            ("memory_network", "datagram_socket memory_link"),
            ("notifications", ""),
            ("path_events", ""),
            ("polling", ""),
            ("receive_buffers", ""),
            ("registered_socket", ""),
            (
                "kernel_socket",
                "error_queue receive_buffers registered_socket",
            ),
            ("send_queues", ""),
            ("traffic", ""),
            ("worker_socket", "kernel_socket"),
            (
                "socket_io",
                "datagram_socket error_queue kernel_socket worker_socket",
            ),
            ("runtime", "datagram_socket kernel_socket socket_io"),
            (
                "socket",
                "addresses datagram_socket device error_queue runtime send_queues socket_io traffic worker_socket",
            ),
            ("backups", "socket"),
            ("sockets", "backups runtime send_queues socket traffic"),
            ("departures", "socket sockets"),
            ("metrics", ""),
            ("closed_ports", ""),
            ("icmp_listeners", ""),
            ("ended_paths", ""),
            ("path_spans", ""),
            (
                "endpoint_state",
                "config icmp_listeners metrics runtime socket sockets",
            ),
            ("sending", "socket sockets"),
            (
                "connection_state",
                "automatic_paths closed_ports departures ended_paths endpoint_state metrics notifications path_events path_spans polling receive_buffers runtime sending",
            ),
            ("icmp", "connection_state error_queue socket"),
            ("connection_ref", "connection_state"),
            ("connection_task", "connection_state"),
            ("local_addresses", "connection_state socket sockets"),
            ("path", "connection_ref connection_state"),
            ("recv_stream", "connection_ref"),
            ("send_stream", "connection_ref"),
            ("futures_io", "recv_stream send_stream"),
            (
                "socket_task",
                "connection_state endpoint_state error_queue polling receive_buffers runtime socket",
            ),
            (
                "start",
                "automatic_paths config connection_ref connection_state connection_task socket socket_task",
            ),
            (
                "connection",
                "connection_ref connection_state notifications path path_events recv_stream send_stream start",
            ),
            (
                "connecting",
                "config connection connection_ref connection_state runtime start",
            ),
            ("connection_properties", "connection connection_state"),
            ("port_watch", "connection connection_ref icmp"),
            (
                "incoming",
                "config connecting connection connection_state start",
            ),
            ("handover", "connection_state local_addresses socket start"),
            (
                "endpoint",
                "addresses config connecting connection_state datagram_socket handover incoming local_addresses metrics socket start",
            ),
            ("interface_changes", "runtime"),
            ("own_network", ""),
            (
                "awaited_addresses",
                "connection_state local_addresses start",
            ),
            (
                "interface",
                "address_flags awaited_addresses connection_state device interface_changes local_addresses own_network start",
            ),
            (
                "builder",
                "awaited_addresses backups config connection_state datagram_socket endpoint interface runtime socket start traffic",
            ),
            ("stream_watch", "connection connection_ref send_stream"),
            (
                "workers",
                "builder config endpoint runtime socket worker_socket",
            ),
        ],
    ),
    (
        "mpquic-h3/src",
        &[
            ("body", ""),
            ("error", ""),
            ("huffman", ""),
            ("priority", ""),
            ("static_table", ""),
            ("qpack", "huffman static_table"),
            ("fields", "qpack"),
            ("message", "fields"),
            ("varint", ""),
            ("connect", "fields message qpack varint"),
            ("priorities", "priority varint"),
            ("units", "varint"),
            ("control", "priorities units varint"),
            (
                "streams",
                "body connect control error fields message priorities units",
            ),
            ("qpack_streams", "error streams"),
            ("connection", "error priorities qpack_streams streams"),
            ("datagrams", "connection error varint"),
            ("words", "error"),
        ],
    ),
    (
        "mpquic-proxy/src",
        &[
            ("capsule", ""),
            ("credential", ""),
            ("giving_way", ""),
            ("hashed_password", "credential"),
            ("credentials", "credential hashed_password"),
            ("ip", ""),
            ("ip_capsule", "capsule"),
            ("kernel_queue", ""),
            ("listening", ""),
            ("order_window", ""),
            ("rules", ""),
            ("shares", "giving_way"),
            ("gate", "credentials shares"),
            ("streams", ""),
            ("target", ""),
            ("bound", "capsule target"),
            ("class", "rules target"),
            ("flow_table", "class giving_way target"),
            ("ip_scope", "ip ip_capsule target"),
            ("peers", "bound"),
            ("relay", "flow_table kernel_queue streams"),
            ("strangers", "flow_table giving_way shares"),
            ("reverse", "bound capsule target"),
            ("transport", "class"),
            ("copies", "capsule class flow_table transport"),
            ("arrivals", "copies order_window"),
            ("datagrams", "capsule copies"),
            (
                "client",
                "arrivals bound capsule class copies credential datagrams flow_table giving_way ip ip_capsule ip_scope kernel_queue listening peers relay reverse shares streams strangers target transport",
            ),
            (
                "server",
                "arrivals bound capsule class copies credentials datagrams flow_table gate giving_way ip ip_capsule ip_scope listening peers relay reverse rules shares streams strangers target transport",
            ),
        ],
    ),
    (
        "mpquic-proxy/src/client",
        &[
            ("http_body", ""),
            ("http_proxy", "http_body"),
            ("http_exchange", "http_body http_proxy"),
            ("knocking", ""),
            ("large", ""),
            ("bound", "large"),
            ("flows", "large"),
            ("datagram_flow", "bound flows large"),
            ("datagram_flows", "datagram_flow flows"),
            ("forward", "datagram_flow datagram_flows flows"),
            ("reverse", "flows"),
            ("socks", ""),
            ("association", "datagram_flow datagram_flows flows socks"),
            ("transparent", ""),
            (
                "entrances",
                "association flows forward http_exchange http_proxy knocking socks transparent",
            ),
            ("tun", "datagram_flow datagram_flows flows"),
            ("mod", "entrances flows reverse tun"),
        ],
    ),
    (
        "mpquic-proxy/src/server",
        &[
            ("capsule_stream", ""),
            ("echo_filter", ""),
            ("ip", "capsule_stream echo_filter"),
            ("refusal", ""),
            ("request_memory", ""),
            ("accounts", ""),
            ("outwards", "accounts refusal"),
            ("reverse", "accounts outwards refusal"),
            ("udp", "capsule_stream"),
            ("windows", ""),
            (
                "mod",
                "accounts outwards refusal request_memory reverse windows",
            ),
            ("bound", "accounts capsule_stream mod"),
            (
                "carrying",
                "accounts bound ip mod outwards refusal reverse udp",
            ),
        ],
    ),
    (
        "mpquic-sim/src",
        &[
            ("application", ""),
            ("arrived", ""),
            ("invariants", ""),
            ("learnt", ""),
            ("nat", ""),
            ("null_crypto", ""),
            ("observer", ""),
            ("packet", ""),
            ("link", "packet"),
            ("pattern", ""),
            ("policies", ""),
            ("random", ""),
            ("record", ""),
            ("scenario", "link policies"),
            ("socket_buffer", "packet"),
            ("tls", ""),
            ("traffic", ""),
            ("network", "link nat packet record traffic"),
            (
                "host",
                "application invariants network observer packet socket_buffer",
            ),
            ("lab", "application host network"),
            ("topology", "link network"),
            ("transfers", "application arrived pattern"),
            ("agreement", "transfers"),
            (
                "pair",
                "agreement host lab learnt link network null_crypto tls topology transfers",
            ),
            (
                "experiment",
                "application host lab link network packet pair pattern random scenario tls topology traffic",
            ),
        ],
    ),
    (
        "mpquic-lab/src",
        &[
            ("failure", ""),
            ("figures", "failure"),
            ("numbers", ""),
            ("claims", "numbers"),
            ("changes", "claims failure numbers"),
            ("progress", ""),
            ("recording", "failure"),
            ("results", "failure"),
            ("select", "failure"),
            ("today", "select"),
            ("table", "claims numbers"),
            ("tell", ""),
            ("terminal", "failure"),
            (
                "advise",
                "failure numbers progress results select table terminal",
            ),
            ("compare", "changes failure numbers results table terminal"),
            (
                "markdown",
                "claims failure figures numbers results table terminal today",
            ),
            (
                "report",
                "changes claims compare failure numbers results tell terminal",
            ),
            ("output", "failure report results tell"),
            ("trace", "failure terminal"),
        ],
    ),
    (
        "mpquic-cli/src",
        &[
            ("process", ""),
            ("rate", ""),
            ("text", "process"),
            ("files", "process text"),
            ("options", "process text"),
            ("pages", "text"),
            ("report", "process text"),
            ("client", "files options process rate report text"),
            ("paths", "client options process report text"),
            ("perf", "client options process rate report text"),
            ("get", "client files options perf process rate report text"),
            ("put", "client files options process rate report text"),
            ("qlog", "files pages process report"),
            ("record", "client options paths perf process"),
            (
                "serve",
                "client files options pages perf process rate report text",
            ),
            (
                "demo",
                "client files get options process rate report serve text",
            ),
            ("proxy", "client options process report serve text"),
            (
                "cli",
                "demo get paths perf process proxy put qlog record serve",
            ),
            (
                "main",
                "cli demo get paths perf process proxy put qlog record serve text",
            ),
        ],
    ),
];

/// Files with methods of `Connection`, and the files whose methods they call. Files come after the
/// files they call.
pub(crate) const CALLS: &[Row] = &[
    ("close_packets", ""),
    ("settle", ""),
    ("closing", "settle"),
    ("handshake", "closing settle"),
    ("handshake_packets", "handshake settle"),
    ("egress", "close_packets handshake_packets"),
    ("ingress", "closing handshake settle"),
    ("mod", "closing settle"),
    ("timers", "closing settle"),
];

/// Crates, and our crates that each names outside of its tests.
pub(crate) const CRATES: &[Row] = &[
    ("mpquic-core", ""),
    ("mpquic-sched", "mpquic_core"),
    ("mpquic-cc", "mpquic_core"),
    ("mpquic-paths", "mpquic_core"),
    ("mpquic-qlog", "mpquic_core"),
    (
        "mpquic-sim",
        "mpquic_cc mpquic_core mpquic_paths mpquic_sched",
    ),
    ("mpquic-lab", "mpquic_sim"),
    ("mpquic-lb", "mpquic_core"),
    (
        "mpquic-tokio",
        "mpquic_cc mpquic_core mpquic_paths mpquic_qlog mpquic_sched",
    ),
    ("mpquic-h3", "mpquic_tokio"),
    (
        "mpquic",
        "mpquic_cc mpquic_h3 mpquic_paths mpquic_sched mpquic_tokio",
    ),
    ("mpquic-web-transport", "mpquic_tokio"),
    ("mpquic-quinn", "mpquic_core mpquic_tokio"),
    ("mpquic-proxy", "mpquic_h3 mpquic_tokio"),
    (
        "mpquic-cli",
        "mpquic_cc mpquic_core mpquic_h3 mpquic_lab mpquic_lb mpquic_proxy mpquic_qlog mpquic_sched mpquic_tokio",
    ),
];

/// Files outside the core that name rustls: they load or hand out certificates, decide whom to
/// trust, or implement the core's crypto traits. Nobody else names it, and nobody names
/// quinn_proto.
pub(crate) const RUSTLS: &[&str] = &[
    "mpquic-cli/src/serve/tcp.rs",
    "mpquic-cli/src/options/identity.rs",
    "mpquic-cli/src/options/mod.rs",
    "mpquic-cli/src/options/trust.rs",
    "mpquic-sim/src/tls.rs",
    "mpquic-tokio/src/config.rs",
    "mpquic-tokio/src/connection_properties.rs",
];

/// A count that may only fall. A limit above the count by more than the slack is a fault: lower the
/// limit with each improvement.
pub(crate) struct Limit {
    pub(crate) limit: usize,
    pub(crate) slack: usize,
}

/// A type that joins others, and its size.
pub(crate) struct Joint {
    pub(crate) name: &'static str,
    /// Where its methods are.
    pub(crate) folder: &'static str,
    pub(crate) fields: Limit,
    /// Public methods among them.
    pub(crate) methods: Limit,
}

/// The types that would grow if nobody looked. The aim for `Connection`: 14 fields, 90 methods.
pub(crate) const JOINTS: &[Joint] = &[
    joint("Connection", "connection", 14, 81),
    joint("StreamSet", "stream", 22, 99),
    joint("Paths", "path", 4, 106),
    joint("Handshake", "handshake", 22, 93),
];

const fn joint(name: &'static str, folder: &'static str, fields: usize, methods: usize) -> Joint {
    Joint {
        name,
        folder,
        fields: Limit {
            limit: fields,
            slack: 0,
        },
        methods: Limit {
            limit: methods,
            slack: 4,
        },
    }
}

/// Lines of `connection/` without tests. The aim: 3000.
pub(crate) const LINES: Limit = Limit {
    limit: 2400,
    slack: 200,
};
/// Lines of the longest file there. The aim: 450.
pub(crate) const LONGEST: Limit = Limit {
    limit: 410,
    slack: 50,
};
