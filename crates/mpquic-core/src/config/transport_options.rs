//! [`TransportOptions`]: limits and behaviour of one connection.

use std::sync::Arc;
use std::time::Duration;

use crate::congestion::ControllerFactory;
use crate::knowledge::Knowledge;
use crate::qlog;
use crate::sched::SchedulerFactory;

/// How often we want the peer to acknowledge our packets (draft-ietf-quic-ack-frequency-14). Fewer
/// acknowledgements help on fast paths, where they cost CPU time, and on asymmetric ones, where
/// they use up the slower direction.
///
/// The frame names no path and applies to all of them. We never ask for less than one
/// acknowledgement per round trip of the fastest path, nor for fewer than
/// [`Controller::acks_per_window`](crate::congestion::Controller::acks_per_window) in each window of
/// the path with the smallest window. With few acknowledgements, small round-trip times are
/// overestimated.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AckFrequencyOptions {
    /// Most ack-eliciting packets without an acknowledgement; from 1, a peer's default, to 2^62 -
    /// 1.
    pub ack_eliciting_threshold: u64,
    /// Longest delay of an acknowledgement, up to 16,383 ms; `None` for the peer's `max_ack_delay`.
    pub max_ack_delay: Option<Duration>,
    /// Distance, in packets, at which a missing packet is reported at once, up to 2^62 - 1; 0 for
    /// never, `None` for [`TransportOptions::packet_threshold`].
    pub reordering_threshold: Option<u64>,
}

impl Default for AckFrequencyOptions {
    /// Asks for one acknowledgement for twenty packets.
    fn default() -> Self {
        Self {
            ack_eliciting_threshold: 19,
            max_ack_delay: None,
            reordering_threshold: None,
        }
    }
}

/// Options of a connection. [`Self::build`] checks them. There is no default scheduler or
/// controller: the crates above the core choose them.
///
/// Values announced to the peer have to fit a variable-length integer: at most 2^62 - 1 (RFC 9000
/// section 16).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TransportOptions {
    /// Chooses the path of each packet.
    pub scheduler: Arc<dyn SchedulerFactory>,
    /// Limits what each path has in flight.
    pub controller: Arc<dyn ControllerFactory>,
    /// Most open paths; 0 turns multipath off. One less is announced as `initial_max_path_id`, and
    /// MAX_PATH_ID rises with each closed path.
    pub max_concurrent_paths: u32,
    /// `active_connection_id_limit`, per path (MP-016). From 2 (RFC 9000 section 18.2) to 2^32 - 1.
    pub active_connection_id_limit: u64,
    /// Most open bidirectional streams of the peer, at most 2^59: over a connection's life, streams
    /// must stay below 2^60 (RFC 9000 section 4.6).
    pub max_concurrent_bidi_streams: u64,
    /// Concurrent unidirectional streams the peer may open, at most 2^59.
    pub max_concurrent_uni_streams: u64,
    /// Receive window of a stream at the start, bytes; at most `max_receive_window`. It grows up to
    /// six times the bandwidth-delay product of all paths, within `max_stream_receive_window` and
    /// `max_receive_window`, but not while the application leaves unread what it could read.
    pub initial_stream_receive_window: u64,
    /// Limit of the receive window of a stream, in bytes; at least `initial_stream_receive_window`.
    /// `None`, the default, is `max_receive_window`: then one unread stream may take the
    /// connection's whole window, and other streams wait.
    pub max_stream_receive_window: Option<u64>,
    /// Receive window of the connection at the start, bytes; at most `max_receive_window`.
    pub initial_receive_window: u64,
    /// Limit of every receive window, and so of the memory for data out of order, bytes; at most
    /// 2^62 - 1.
    pub max_receive_window: u64,
    /// The most unacknowledged and unsent stream bytes buffered for the connection before writes
    /// block; at least 1. The window grows up to six times the bandwidth-delay product of all
    /// paths. Streams whose writers want more have equal shares. Up to one and a half windows, each
    /// stream may have 4 KiB of unsent bytes (in windows below 32 KiB, an eighth of the window).
    pub send_window: u64,
    /// The send window at the start, bytes; at least 1, and `send_window` if that is less. A peer
    /// that acknowledges nothing makes the connection keep this much, so a server of strangers
    /// sets less than the default of 4 MiB. Acknowledgements let the window grow to twice the
    /// congestion windows of all paths, and with the rate.
    pub initial_send_window: u64,
    /// Limits the stream bytes that wait to be sent, besides `send_window`, to the bytes that all
    /// paths send in this time and in the longest round trip; at most 1 hour. The limit follows the
    /// current rate, and is at least 16 KiB. From 64 KiB on, the limit also stays within twice the
    /// rate of acknowledged bytes. A short time lets a writer notice early that the paths are
    /// slower than the writer. `None`, the default, leaves `send_window` as the only limit.
    pub send_queue_time: Option<Duration>,
    /// With `true`, more urgent data cannot starve less urgent data. Streams of each lower priority
    /// get at least a tenth of the bytes, as long as at most four priorities wait; each further
    /// priority makes the part smaller. Streams get a tenth beside DATAGRAMs, and a stream that
    /// begins to wait goes ahead of DATAGRAMs with one packet. With `false`, the default, more
    /// urgent data goes first as long as any waits.
    pub priority_floor: bool,
    /// Limit of the connection's memory, in bytes: at least 1 MiB, and at least four times
    /// `initial_receive_window`. `None`, the default, leaves room for full windows, buffers and
    /// streams with their bookkeeping; no honest peer reaches this limit.
    ///
    /// [`ConnectionStats::memory`](crate::ConnectionStats::memory) lists the counted memory. No
    /// receive window grows beyond a quarter of the limit. Above half of it, windows do not grow.
    /// Above three quarters, the peer gets no further credit until the application has read data,
    /// and the peer's DATAGRAMs are dropped. Above the limit, the connection ends with
    /// [`Fault::TooMuchMemory`](crate::Fault::TooMuchMemory); data written by the application does
    /// not count towards this end.
    pub memory_limit: Option<u64>,
    /// Idle timeout of the connection, from 1 ms to 2^62 - 1 ms (RFC 9000 section 18.2); `None` for
    /// none of ours (the peer's still applies).
    pub max_idle_timeout: Option<Duration>,
    /// How long a handshake may take, whatever arrives meanwhile; from 1 ms to 2^62 - 1 ms. A
    /// connection whose handshake is not complete by then ends silently, with
    /// [`ConnectionError::HandshakeTimedOut`](crate::ConnectionError::HandshakeTimedOut). A client
    /// counts from its first packet, a server from when it accepts. The default of 20 s is enough
    /// for almost every handshake that loses a third of its packets.
    pub max_handshake_duration: Duration,
    /// Send a PING on every path that was silent for this long, from 1 ms to 2^62 - 1 ms; `None`
    /// for never.
    pub keep_alive_interval: Option<Duration>,
    /// RTT assumed before the first sample, from 1 ms to 1 hour (RFC 9002 section 6.2.2).
    pub initial_rtt: Duration,
    /// UDP payload that every path is assumed to carry, bytes; from 1200 to 65527 (RFC 9000
    /// sections 14 and 18.2).
    pub initial_mtu: u16,
    /// Largest UDP payload that MTU discovery tries, bytes; from `initial_mtu`, which turns
    /// discovery off, to 65527. Discovery on a path starts once a packet was full or DATAGRAMs are
    /// in use.
    pub max_mtu: u16,
    /// Longest delay of our acknowledgements, announced as `max_ack_delay`; at most 16,383 ms (RFC
    /// 9000 section 18.2).
    pub max_ack_delay: Duration,
    /// How late the timers of the driver may fire. An acknowledgement that waits is due this much
    /// before `max_ack_delay` is over, because the peer's probe timeout has no room for a late
    /// acknowledgement (RFC 9000 section 18.2). Zero by default; mpquic-tokio sets 4 ms.
    pub timer_lateness: Duration,
    /// Ack-eliciting packets received before an acknowledgement is sent at once, at least 1 (RFC
    /// 9000 section 13.2.2 asks for 2; larger values save CPU on fast paths).
    pub ack_eliciting_threshold: u64,
    /// Shortest delay of acknowledgements that the peer may ask for, at most `max_ack_delay`;
    /// `None` lets it ask for nothing (draft-ietf-quic-ack-frequency-14 section 3).
    pub min_ack_delay: Option<Duration>,
    /// Acknowledgements of a path travel on another path with at most a quarter of its round trip,
    /// as long as the other path answers; otherwise always on the acknowledged path (RFC 10069
    /// section 5.4).
    pub ack_on_fastest_path: bool,
    /// How often supporting peers are asked to acknowledge; `None` for no request. The first
    /// request waits until many packets are in flight and the windows no longer grow fast.
    pub ack_frequency: Option<AckFrequencyOptions>,
    /// A packet counts as lost after the acknowledgement of a packet sent this many packets later;
    /// from 3 (RFC 9002 section 6.1.1) to 2^62 - 1.
    pub packet_threshold: u64,
    /// Age in RTTs at which a packet counts as lost, once a later packet is acknowledged; from 1 to
    /// 16, rounded to the nearest 64th (RFC 9002 section 6.1.2).
    pub time_threshold: f64,
    /// Mark packets ECT(0), or ECT(1) if the controller is
    /// [scalable](crate::congestion::scalable), and react to ECN-CE where the path supports it.
    pub ecn: bool,
    /// Allow the peer to reset streams after their beginning, which is still delivered
    /// (draft-ietf-quic-reliable-stream-reset-11).
    pub reset_stream_at: bool,
    /// Bytes of DATAGRAM payload buffered for the application, at least 1; `None` refuses DATAGRAM
    /// frames. Up to 65535, it is also the size of the largest frame we take (RFC 9221 section 3).
    pub datagram_receive_buffer: Option<usize>,
    /// Bytes of DATAGRAM payload buffered for sending.
    pub datagram_send_buffer: usize,
    /// How much may be sent a second time because the application asks for copies
    /// ([`DatagramOptions::copy`](crate::DatagramOptions::copy),
    /// [`SendStream::set_redundant`](crate::SendStream::set_redundant)): in percent of the bytes of
    /// streams and DATAGRAMs that are sent for the first time, at most 100, with 64 KiB to begin
    /// with and at most 1 MiB saved up. 100 by default; 0 turns copies off.
    pub max_redundancy: u8,
    /// Bytes of CRYPTO data buffered out of order; at least 4096 (RFC 9000 section 7.5).
    pub crypto_buffer: usize,
    /// Largest number of datagrams one `poll_transmit` call may fill; at least 1.
    pub max_transmit_segments: usize,
    /// Continues without a scheduler or controller that panics, instead of unwinding through the
    /// connection's methods. Turn it off for experiments, which would otherwise measure another
    /// policy.
    pub contain_panics: bool,
    /// Pace packets instead of sending whole windows at once.
    pub pacing: bool,
    /// Where connections leave address validation tokens, capacities of paths and round-trip times
    /// for later connections. All connections with this configuration, and with its clones, share
    /// it; by default it is in memory. `None` keeps nothing.
    pub knowledge: Option<Knowledge>,
    /// Starts paths with the capacity that a path between the same addresses had (Careful Resume,
    /// RFC 9959), if [`Self::knowledge`] has that capacity. On by default; if off, capacities are
    /// not saved either.
    pub careful_resume: bool,
    /// Use the latency spin bit (RFC 9000 section 17.4).
    pub spin_bit: bool,
    /// Makes a log for each connection; `None` for none.
    pub qlog: Option<Arc<dyn qlog::Factory>>,
}

impl TransportOptions {
    /// Defaults for bulk transfer and services alike, with these policies.
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
            max_stream_receive_window: None,
            max_receive_window: 64 << 20,
            send_window: 64 << 20,
            initial_send_window: 4 << 20,
            send_queue_time: None,
            priority_floor: false,
            memory_limit: None,
            max_idle_timeout: Some(Duration::from_secs(30)),
            max_handshake_duration: Duration::from_secs(20),
            keep_alive_interval: None,
            initial_rtt: Duration::from_millis(333),
            initial_mtu: 1200,
            max_mtu: 1452,
            max_ack_delay: Duration::from_millis(25),
            timer_lateness: Duration::ZERO,
            ack_eliciting_threshold: 2,
            min_ack_delay: Some(Duration::from_millis(1)),
            ack_on_fastest_path: true,
            ack_frequency: Some(AckFrequencyOptions::default()),
            packet_threshold: 3,
            time_threshold: 9.0 / 8.0,
            ecn: true,
            reset_stream_at: true,
            datagram_receive_buffer: Some(1 << 20),
            datagram_send_buffer: 1 << 20,
            max_redundancy: 100,
            crypto_buffer: 64 << 10,
            max_transmit_segments: 64,
            contain_panics: true,
            pacing: true,
            knowledge: Some(Knowledge::default()),
            careful_resume: true,
            spin_bit: false,
            qlog: None,
        }
    }
}

#[cfg(any(test, feature = "testing"))]
impl TransportOptions {
    /// Defaults with policies that cannot be built, for components without policies.
    pub(crate) fn without_policies() -> Self {
        Self::new(
            crate::sched::factory("none", || unreachable!("nothing is scheduled")),
            crate::congestion::factory("none", || unreachable!("nothing is controlled")),
        )
    }
}
