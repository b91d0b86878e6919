//! [`TransportConfig`]: what one connection may use and how it behaves.

use std::sync::Arc;
use std::time::Duration;

use crate::congestion::ControllerFactory;
use crate::qlog;
use crate::sched::SchedulerFactory;

/// The longest delay of acknowledgements that can be announced or asked for (RFC 9000 section 18.2).
pub(crate) const MAX_ACK_DELAY: Duration = Duration::from_millis((1 << 14) - 1);

/// How rarely we want to be acknowledged (draft-ietf-quic-ack-frequency-14): for fast paths, where
/// acknowledgements cost CPU, and for asymmetric ones, where they take the way back from others.
///
/// The frame names no path, so that the peer acknowledges all of them so. We never ask for less
/// than one acknowledgement per round trip of the fastest path, nor for less than four per window
/// of the path with the smallest one. Rare acknowledgements overrate small round-trip times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AckFrequencyConfig {
    /// Ack-eliciting packets that may arrive without an acknowledgement, at most; at least 1, which
    /// is what peers do when they are not asked.
    pub ack_eliciting_threshold: u64,
    /// Longest delay of an acknowledgement, at most; `None` for the peer's `max_ack_delay`.
    pub max_ack_delay: Option<Duration>,
    /// Distance, in packets, at which a missing packet is reported at once; 0 for never, `None` for
    /// `packet_threshold`.
    pub reordering_threshold: Option<u64>,
}

impl Default for AckFrequencyConfig {
    /// One acknowledgement for ten packets.
    fn default() -> Self {
        Self {
            ack_eliciting_threshold: 9,
            max_ack_delay: None,
            reordering_threshold: None,
        }
    }
}

/// Parameters of a connection. There is no default scheduler or controller: the crates above the
/// core choose them.
#[derive(Debug, Clone)]
pub struct TransportConfig {
    /// Chooses the path of each packet.
    pub scheduler: Arc<dyn SchedulerFactory>,
    /// Limits what each path has in flight.
    pub controller: Arc<dyn ControllerFactory>,
    /// How many paths may be open at once; 0 turns multipath off. One less is announced as
    /// `initial_max_path_id`, and as paths close, MAX_PATH_ID rises so that this many can be open
    /// again.
    pub max_concurrent_paths: u32,
    /// `active_connection_id_limit`, per path (MP-016). At least 2.
    pub active_connection_id_limit: u64,
    /// Concurrent bidirectional streams the peer may open.
    pub max_concurrent_bidi_streams: u64,
    /// Concurrent unidirectional streams the peer may open.
    pub max_concurrent_uni_streams: u64,
    /// Receive window of a stream at the start, bytes. It grows to four times the bandwidth-delay
    /// product of all paths as long as `max_receive_window` allows.
    pub initial_stream_receive_window: u64,
    /// Receive window of the connection at the start, bytes.
    pub initial_receive_window: u64,
    /// Hard cap of every receive window and so of reorder memory, bytes.
    pub max_receive_window: u64,
    /// Unacknowledged and unsent stream bytes buffered for the connection before writes block.
    pub send_window: u64,
    /// Connection-wide idle timeout; `None` turns ours off (the peer's still counts).
    pub max_idle_timeout: Option<Duration>,
    /// Send a PING on every path that was silent for this long; `None` for never.
    pub keep_alive_interval: Option<Duration>,
    /// RTT assumed before the first sample (RFC 9002 section 6.2.2).
    pub initial_rtt: Duration,
    /// UDP payload assumed to pass every path; at least 1200.
    pub initial_mtu: u16,
    /// Largest UDP payload DPLPMTUD looks for, once a packet was full or DATAGRAMs are in use; equal to
    /// `initial_mtu` turns discovery off.
    pub max_mtu: u16,
    /// Longest delay of our acknowledgements, announced as `max_ack_delay`.
    pub max_ack_delay: Duration,
    /// Ack-eliciting packets received before an acknowledgement is sent at once (RFC 9000 section
    /// 13.2.2 asks for 2; larger values save CPU on fast paths).
    pub ack_eliciting_threshold: u64,
    /// Shortest delay of acknowledgements that the peer may ask for, at most `max_ack_delay`; `None`
    /// lets it ask for nothing (draft-ietf-quic-ack-frequency-14).
    pub min_ack_delay: Option<Duration>,
    /// What we ask of peers that let us; `None` asks for nothing.
    pub ack_frequency: Option<AckFrequencyConfig>,
    /// Reordering, in packets, before a packet counts as lost (RFC 9002 section 6.1.1).
    pub packet_threshold: u64,
    /// Factor of the RTT before a packet counts as lost (RFC 9002 section 6.1.2).
    pub time_threshold: f64,
    /// Mark packets ECT(0) and react to ECN-CE where the path supports it.
    pub ecn: bool,
    /// Let the peer reset streams and still deliver their beginning
    /// (draft-ietf-quic-reliable-stream-reset-11).
    pub reset_stream_at: bool,
    /// Bytes of DATAGRAM payload buffered for the application; `None` refuses DATAGRAM frames.
    pub datagram_receive_buffer: Option<usize>,
    /// Bytes of DATAGRAM payload buffered for sending.
    pub datagram_send_buffer: usize,
    /// Bytes of CRYPTO data buffered out of order; at least 4096 (RFC 9000 section 7.5).
    pub crypto_buffer: usize,
    /// Largest number of datagrams one `poll_transmit` call may fill.
    pub max_transmit_segments: usize,
    /// Go on without a scheduler or controller that panicked, in place of unwinding through the
    /// connection's methods. Off for experiments, whose results would be another policy's.
    pub contain_panics: bool,
    /// Pace packets instead of sending whole windows at once.
    pub pacing: bool,
    /// Spin the latency spin bit (RFC 9000 section 17.4).
    pub spin_bit: bool,
    /// Gives connections a log; `None` for none.
    pub qlog: Option<Arc<dyn qlog::Factory>>,
}

impl TransportConfig {
    /// Defaults for bulk transfer and services alike, with the given policies.
    pub fn new(
        scheduler: Arc<dyn SchedulerFactory>,
        controller: Arc<dyn ControllerFactory>,
    ) -> Self {
        Self {
            scheduler,
            controller,
            max_concurrent_paths: 8,
            active_connection_id_limit: 3,
            max_concurrent_bidi_streams: 100,
            max_concurrent_uni_streams: 100,
            initial_stream_receive_window: 1 << 20,
            initial_receive_window: 2 << 20,
            max_receive_window: 64 << 20,
            send_window: 16 << 20,
            max_idle_timeout: Some(Duration::from_secs(30)),
            keep_alive_interval: None,
            initial_rtt: Duration::from_millis(333),
            initial_mtu: 1200,
            max_mtu: 1452,
            max_ack_delay: Duration::from_millis(25),
            ack_eliciting_threshold: 2,
            min_ack_delay: Some(Duration::from_millis(1)),
            ack_frequency: None,
            packet_threshold: 3,
            time_threshold: 9.0 / 8.0,
            ecn: true,
            reset_stream_at: true,
            datagram_receive_buffer: Some(1 << 20),
            datagram_send_buffer: 1 << 20,
            crypto_buffer: 64 << 10,
            max_transmit_segments: 64,
            contain_panics: true,
            pacing: true,
            spin_bit: false,
            qlog: None,
        }
    }

    /// The probe timeout that follows from the initial RTT (RFC 9002 section 6.2.2).
    pub(crate) fn initial_pto(&self) -> Duration {
        3 * self.initial_rtt
    }

    /// The parameter of this name (RFC 9221 section 3).
    pub(crate) fn max_datagram_frame_size(&self) -> u64 {
        let buffer = self.datagram_receive_buffer.unwrap_or(0);
        buffer.min(usize::from(u16::MAX)) as u64
    }

    /// `max_ack_delay` as far as it can be announced (RFC 9000 section 18.2).
    pub(crate) fn valid_max_ack_delay(&self) -> Duration {
        self.max_ack_delay.min(MAX_ACK_DELAY)
    }
}

#[cfg(any(test, feature = "testing"))]
impl TransportConfig {
    /// Defaults with policies that must not be built, for parts that need none.
    pub(crate) fn without_policies() -> Self {
        Self::new(
            crate::sched::factory("none", || unreachable!("nothing is scheduled")),
            crate::congestion::factory("none", || unreachable!("nothing is controlled")),
        )
    }
}
