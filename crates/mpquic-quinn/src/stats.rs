//! Figures of connections and endpoints in quinn's types.

use std::time::Duration;

use mpquic_tokio as mp;
use mpquic_tokio::{FrameCounts, FrameKind};
use quinn_proto::{ConnectionStats, FrameStats, PathStats};

/// Counts of an endpoint.
#[derive(Debug, Default, Copy, Clone)]
#[non_exhaustive]
pub struct EndpointStats {
    /// Handshakes that this endpoint accepted.
    pub accepted_handshakes: u64,
    /// Handshakes that this endpoint started.
    pub outgoing_handshakes: u64,
    /// Attempts of clients that this endpoint refused.
    pub refused_handshakes: u64,
    /// Attempts of clients that got no answer.
    pub ignored_handshakes: u64,
}

impl EndpointStats {
    pub(crate) fn new(stats: &mp::EndpointStats) -> Self {
        Self {
            accepted_handshakes: stats.accepted_handshakes,
            outgoing_handshakes: stats.outgoing_handshakes,
            refused_handshakes: stats.refused_handshakes,
            ignored_handshakes: stats.ignored_handshakes,
        }
    }
}

/// The figures of a connection, with its round trip and its smallest one.
pub(crate) fn connection(
    connection: &mp::Connection,
    (rtt, min_rtt): (Duration, Duration),
) -> ConnectionStats {
    let stats = connection.stats();
    let mut all = ConnectionStats::default();
    all.udp_tx.datagrams = stats.datagrams_sent;
    all.udp_tx.bytes = stats.bytes_sent;
    all.udp_rx.datagrams = stats.datagrams_received;
    all.udp_rx.bytes = stats.bytes_received;
    all.frame_tx = frames(&stats.frames_sent);
    all.frame_rx = frames(&stats.frames_received);
    all.path = paths(connection, (rtt, min_rtt));
    all
}

/// All paths, open and ended, as one.
fn paths(connection: &mp::Connection, (rtt, min_rtt): (Duration, Duration)) -> PathStats {
    let mut all = PathStats::default();
    (all.rtt, all.min_rtt) = (rtt, min_rtt);
    let open = connection.path_stats();
    for path in &open {
        all.cwnd += path.window;
        all.current_mtu = all.current_mtu.max(path.mtu);
    }
    for path in open.iter().chain(&connection.ended_path_stats()) {
        all.congestion_events += path.congestion_events;
        all.lost_packets += path.packets_lost;
        all.sent_packets += path.packets_sent;
    }
    all
}

fn frames(counts: &FrameCounts) -> FrameStats {
    use FrameKind as Kind;
    let mut frames = FrameStats::default();
    frames.acks = counts[Kind::Ack] + counts[Kind::PathAck];
    frames.ack_frequency = counts[Kind::AckFrequency];
    frames.crypto = counts[Kind::Crypto];
    frames.connection_close = counts[Kind::ConnectionClose];
    frames.data_blocked = counts[Kind::DataBlocked];
    frames.datagram = counts[Kind::Datagram];
    frames.handshake_done = counts[Kind::HandshakeDone].try_into().unwrap_or(u8::MAX);
    frames.immediate_ack = counts[Kind::ImmediateAck];
    frames.max_data = counts[Kind::MaxData];
    frames.max_stream_data = counts[Kind::MaxStreamData];
    // mpquic counts both directions together.
    frames.max_streams_bidi = counts[Kind::MaxStreams];
    frames.new_connection_id = counts[Kind::NewConnectionId] + counts[Kind::PathNewConnectionId];
    frames.new_token = counts[Kind::NewToken];
    frames.path_challenge = counts[Kind::PathChallenge];
    frames.path_response = counts[Kind::PathResponse];
    frames.ping = counts[Kind::Ping];
    frames.reset_stream = counts[Kind::ResetStream] + counts[Kind::ResetStreamAt];
    frames.retire_connection_id =
        counts[Kind::RetireConnectionId] + counts[Kind::PathRetireConnectionId];
    frames.stream_data_blocked = counts[Kind::StreamDataBlocked];
    frames.streams_blocked_bidi = counts[Kind::StreamsBlocked];
    frames.stop_sending = counts[Kind::StopSending];
    frames.stream = counts[Kind::Stream];
    frames
}
