//! The inputs for judging an acknowledgement or a timeout, and its results.

use std::time::{Duration, Instant};

use crate::congestion::{Acked, CongestionEvent};
use crate::space::SentPacket;

/// The connection's state for processing an acknowledgement or a loss timer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AckContext {
    /// The time.
    pub(crate) now: Instant,
    /// The peer's `ack_delay_exponent`; 3 until its parameters are known.
    pub(crate) peer_ack_delay_exponent: u8,
    /// The peer's `max_ack_delay`; 25 ms until its parameters are known.
    pub(crate) peer_max_ack_delay: Duration,
    /// The handshake is confirmed (RFC 9001 section 4.1.2).
    pub(crate) handshake_confirmed: bool,
    /// The peer has certainly validated our address: always true on a server; on a client once a
    /// Handshake packet was acknowledged or the handshake is confirmed (RFC 9002 section 6.2.1).
    pub(crate) peer_validated_address: bool,
}

/// The results of an acknowledgement or a timeout. The value is reused, to save allocations.
#[derive(Debug, Default)]
pub(crate) struct AckOutcome {
    /// Newly acknowledged packets: highest range first, numbers rising within a range.
    pub(crate) acked: Vec<(u64, SentPacket)>,
    /// Packets declared lost, oldest first.
    pub(crate) lost: Vec<(u64, SentPacket)>,
    /// Packets declared lost earlier and acknowledged now, so that the loss was spurious. They are
    /// no longer part of any count; their frames were delivered.
    pub(crate) late: Vec<(u64, SentPacket)>,
    /// For the controller, if packets in flight were newly acknowledged.
    pub(crate) summary: Option<Acked>,
    /// For the controller, in this order, after `summary`.
    pub(crate) congestion: Vec<CongestionEvent>,
    /// The sample is the first since acknowledgements come on another path.
    pub(crate) rtt_restarted: bool,
    /// The RTT sample taken, if any.
    pub(crate) rtt_sample: Option<Duration>,
}

impl AckOutcome {
    /// Empties it, keeping its memory.
    pub(crate) fn clear(&mut self) {
        self.acked.clear();
        self.lost.clear();
        self.late.clear();
        self.summary = None;
        self.congestion.clear();
        self.rtt_restarted = false;
        self.rtt_sample = None;
    }
}
