//! Loss recovery of one path (RFC 9002): what was acknowledged, what is lost, when to probe.

pub(crate) mod delivery_rate;
pub(crate) mod ecn;
pub(crate) mod loss;
pub(crate) mod pacer;
pub(crate) mod pto;
pub(crate) mod rtt;

use std::time::{Duration, Instant};

use smallvec::SmallVec;

pub(crate) use ecn::EcnState;
pub(crate) use pacer::Pacer;
pub(crate) use pto::{RecoveryTimeout, TimeoutContext, TimeoutKind};
pub(crate) use rtt::RttEstimator;

use crate::config::TransportConfig;
use crate::congestion::{Acked, CongestionEvent};
use crate::error::TransportError;
use crate::space::{PacketNumberSpace, SentPacket};
use crate::wire::frame::Ack;

/// What the connection knows when it processes an acknowledgement or a loss timer.
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

/// What an acknowledgement or a timeout changed. Reused: call [`Self::clear`] when done.
#[derive(Debug, Default)]
pub(crate) struct AckOutcome {
    /// Newly acknowledged packets.
    pub(crate) acked: Vec<(u64, SentPacket)>,
    /// Packets declared lost, oldest first.
    pub(crate) lost: Vec<(u64, SentPacket)>,
    /// Packets declared lost earlier and acknowledged now: the loss was spurious. They are already
    /// out of every count; their frames are delivered.
    pub(crate) late: Vec<(u64, SentPacket)>,
    /// For the controller, if packets in flight were newly acknowledged.
    pub(crate) summary: Option<Acked>,
    /// For the controller, in this order, after `summary`.
    pub(crate) congestion: SmallVec<[CongestionEvent; 2]>,
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
        self.rtt_sample = None;
    }
}

/// Recovery state of one path. Path 0's also serves the Initial and Handshake spaces.
#[derive(Debug)]
pub(crate) struct Recovery {
    /// Round-trip time.
    pub(crate) rtt: RttEstimator,
    /// Token bucket.
    pub(crate) pacer: Pacer,
    /// ECN validation.
    pub(crate) ecn: EcnState,
    bytes_in_flight: u64,
    pto_count: u32,
}

impl Recovery {
    /// A path nothing was sent on.
    pub(crate) fn new(config: &TransportConfig, now: Instant) -> Self {
        Self {
            rtt: RttEstimator::new(config.initial_rtt),
            pacer: Pacer::new(now),
            ecn: EcnState::new(config.ecn),
            bytes_in_flight: 0,
            pto_count: 0,
        }
    }

    /// Bytes in flight in all spaces of the path.
    pub(crate) fn bytes_in_flight(&self) -> u64 {
        self.bytes_in_flight
    }

    /// Probe timeouts since the last acknowledgement.
    pub(crate) fn pto_count(&self) -> u32 {
        self.pto_count
    }

    /// Share of packets lost among the last 1000 resolved: (lost + 1/2) / (resolved + 1).
    pub(crate) fn loss_rate(&self) -> f64 {
        todo!()
    }

    /// Largest delivery rate of the last ten round trips, bytes per second.
    pub(crate) fn delivery_rate(&self) -> Option<u64> {
        todo!()
    }

    /// The connection has nothing more to send on this path although its window has room. Holds
    /// until the next packet in flight leaves; acknowledgements that arrive meanwhile are reported
    /// as `app_limited`. Being held by the pacer or by flow control of another kind is not this.
    pub(crate) fn set_app_limited(&mut self) {
        todo!()
    }

    /// The rate for [`Pacer::available`]: the controller's, or 1.25 windows per smoothed RTT.
    pub(crate) fn pacing_rate(&self, _window: u64, _controller_rate: Option<u64>) -> u64 {
        todo!()
    }

    /// A packet left with a number from this space's `take_packet_number`. Every packet is
    /// reported, also those that only acknowledge (RFC 9002 A.5).
    pub(crate) fn on_packet_sent(
        &mut self,
        _space: &mut PacketNumberSpace,
        _packet_number: u64,
        _packet: SentPacket,
    ) {
        todo!()
    }

    /// An ACK or PATH_ACK for `space` arrived. `out` must be clear.
    ///
    /// # Errors
    /// PROTOCOL_VIOLATION if it names a packet that was never sent (MP-055).
    pub(crate) fn on_ack(
        &mut self,
        _space: &mut PacketNumberSpace,
        _ack: &Ack,
        _cx: &AckContext,
        _out: &mut AckOutcome,
    ) -> Result<(), TransportError> {
        todo!()
    }

    /// Declares packets lost when the loss timer of `space` fires (RFC 9002 section 6.1). `out`
    /// must be clear.
    pub(crate) fn detect_lost(
        &mut self,
        _space: &mut PacketNumberSpace,
        _cx: &AckContext,
        _out: &mut AckOutcome,
    ) {
        todo!()
    }

    /// Forgets all packets sent in `space`, because its keys are discarded, 0-RTT was rejected, a
    /// Retry arrived or the path is gone. They are appended to `drained`, neither acknowledged nor
    /// lost; the space itself remains usable.
    pub(crate) fn discard_space(
        &mut self,
        _space: &mut PacketNumberSpace,
        _drained: &mut Vec<(u64, SentPacket)>,
    ) {
        todo!()
    }

    /// The path's address changed: RTT, ECN and pacing start over, and packets sent before count
    /// neither for the RTT nor for congestion control (RFC 9000 section 9.4).
    pub(crate) fn reset_for_new_address(
        &mut self,
        _space: &mut PacketNumberSpace,
        _config: &TransportConfig,
        _now: Instant,
    ) {
        todo!()
    }
}
