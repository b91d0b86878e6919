//! [`Recovery`]: the state of loss recovery, congestion measurement and pacing of one path.

use std::time::{Duration, Instant};

use super::ack_path::AckPath;
use super::delivery_rate::DeliveryRateEstimator;
use super::ecn::EcnState;
use super::loss_rate::LossRate;
use super::pacer::Pacer;
use super::reordering::{LossEvent, Thresholds};
use super::rtt::RttEstimator;
use super::space::PacketNumberSpace;
use crate::config::TransportConfig;
use crate::ids::PathId;
use crate::space::SentPacket;

/// However low the controller's rate is, two datagrams may leave in this time, or in a round trip
/// if the round trip is longer.
const SLOWEST_PACE: Duration = Duration::from_millis(100);

/// Recovery state of one path. The state of path 0 also serves the Initial and Handshake spaces.
#[derive(Debug)]
pub(crate) struct Recovery {
    /// Round-trip time.
    pub(crate) rtt: RttEstimator,
    /// Paces packets.
    pub(crate) pacer: Pacer,
    /// ECN validation.
    pub(crate) ecn: EcnState,
    pub(super) bytes_in_flight: u64,
    pub(super) pto_count: u32,
    pub(super) last_probe_timeout: Option<Instant>,
    /// The path still worked at this time, so no acknowledgement counts as owed before it.
    pub(super) owed_from: Option<Instant>,
    /// See [`Self::is_silent`].
    pub(super) silent_since: Option<Instant>,
    /// The last time at which an ack-eliciting packet left, a packet was newly acknowledged, or a
    /// probe timeout passed.
    pub(super) last_activity: Instant,
    pub(super) delivery_rate: DeliveryRateEstimator,
    pub(super) loss_rate: LossRate,
    /// See [`Self::set_app_limited`].
    pub(super) is_app_limited: bool,
    /// No congestion was detected yet.
    pub(super) is_starting: bool,
    pub(super) thresholds: Thresholds,
    pub(super) loss_event: Option<LossEvent>,
    /// When the path's addresses last changed.
    pub(super) address_since: Option<Instant>,
    /// Set if the peer may have kept packets until the end of the handshake.
    pub(super) kept: Option<Kept>,
    /// The path on which acknowledgements arrive.
    pub(super) ack_path: AckPath,
}

/// Packets that the peer may have kept until the end of the handshake reached it (RFC 9001 section
/// 5.7).
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    /// Round-trip time of the handshake's path.
    round_trip: Duration,
    /// Packets that left from this time on were not kept. `None` while the peer may keep packets.
    until: Option<Instant>,
}

impl Kept {
    /// True if an RTT sample may include the time for which the peer kept the packet. The peer
    /// keeps a packet for at most one round trip of the handshake's path, and the packet's own path
    /// has a shorter round trip. A sample of two handshake round trips or more is therefore of a
    /// packet that was not kept.
    pub(super) fn spoils(&self, sample: Duration, sent: Instant) -> bool {
        sample < 2 * self.round_trip && self.until.is_none_or(|until| sent < until)
    }
}

impl Recovery {
    /// The state of a path on which no packet was sent yet.
    pub(crate) fn new(config: &TransportConfig, now: Instant) -> Self {
        Self {
            rtt: RttEstimator::new(config.initial_rtt),
            pacer: Pacer::new(now),
            ecn: EcnState::new(config.ecn.then(|| config.controller.ecn_codepoint())),
            bytes_in_flight: 0,
            pto_count: 0,
            last_probe_timeout: None,
            owed_from: None,
            silent_since: None,
            last_activity: now,
            delivery_rate: DeliveryRateEstimator::new(now),
            loss_rate: LossRate::default(),
            is_app_limited: false,
            is_starting: true,
            thresholds: Thresholds::new(config),
            loss_event: None,
            address_since: None,
            kept: None,
            ack_path: AckPath::default(),
        }
    }

    /// From now on, the peer may keep packets until the end of the handshake reaches the peer, over
    /// a path with this round-trip time.
    pub(crate) fn await_handshake(&mut self, round_trip: Duration) {
        self.kept = Some(Kept {
            round_trip,
            until: None,
        });
    }

    /// The peer has answered: packets that leave from now on are not kept.
    pub(crate) fn on_peer_ready(&mut self, now: Instant) {
        if let Some(kept) = &mut self.kept {
            kept.until.get_or_insert(now);
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

    /// True from the second probe timeout in a row until a packet is acknowledged that left after
    /// the first of these timeouts. An acknowledgement of earlier packets shows neither a working
    /// path nor the length of a round trip, because an earlier acknowledgement may have been lost.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent_since.is_some()
    }

    /// Share of lost packets among the last 1000 packets that were acknowledged or lost: (lost +
    /// 1/2) / (packets + 1).
    pub(crate) fn loss_rate(&self) -> f64 {
        self.loss_rate.share()
    }

    /// Largest delivery rate of the last ten round trips, bytes per second; `None` before the first
    /// sample.
    pub(crate) fn delivery_rate(&self) -> Option<u64> {
        self.delivery_rate.max()
    }

    /// The connection has no more data for this path although its window has room. This state lasts
    /// until the next packet that counts as in flight; meanwhile, acknowledgements are reported as
    /// `app_limited`. A path limited by its window or its pacer is not application-limited (RFC
    /// 9002 section 7.8).
    pub(crate) fn set_app_limited(&mut self) {
        if !self.is_app_limited {
            self.is_app_limited = true;
            self.delivery_rate.set_app_limited(self.bytes_in_flight);
        }
    }

    /// The rate for [`Pacer::available`], bytes per second: the controller's rate, but at least two
    /// datagrams in [`SLOWEST_PACE`] or in a longer round trip. Without a rate of the controller,
    /// 1.25 windows per smoothed RTT (RFC 9002 section 7.7), or 2 windows before the first
    /// congestion, so that slow start can double the window.
    pub(crate) fn pacing_rate(&self, window: u64, controller_rate: Option<u64>, mtu: u16) -> u64 {
        let smoothed = self.rtt.smoothed();
        if let Some(rate) = controller_rate {
            let longest = smoothed.max(SLOWEST_PACE).as_millis();
            let least = 2000 * u128::from(mtu) / longest;
            return rate.max(u64::try_from(least).unwrap_or(u64::MAX));
        }
        let quarters = if self.is_starting { 8 } else { 5 };
        let nanos = smoothed.as_nanos().max(1);
        let rate = u128::from(window) * quarters * 250_000_000 / nanos;
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    /// A packet was sent with a number from this space's `take_packet_number`. Every packet must be
    /// reported here, ACK-only ones included (RFC 9002 A.5).
    pub(crate) fn on_packet_sent(
        &mut self,
        space: &mut PacketNumberSpace,
        packet_number: u64,
        mut packet: SentPacket,
    ) {
        let now = packet.time_sent;
        if packet.in_flight {
            packet.rate = self.delivery_rate.on_packet_sent(now, self.bytes_in_flight);
            self.bytes_in_flight += u64::from(packet.bytes);
            self.is_app_limited = false;
        }
        if packet.ack_eliciting {
            space.last_ack_eliciting_sent = Some(now);
            if space.sent.ack_eliciting() == 0 {
                space.waiting_since = Some(now);
                space.owed_since = Some(now);
            }
            space.probes = space.probes.saturating_sub(1);
            self.last_activity = now;
        }
        if packet.ecn_marked {
            space.ecn.marked += 1;
            self.ecn.on_marked_packet_sent();
        }
        space.sent.insert(packet_number, packet);
    }

    /// The next reported acknowledgement came on the path `path`; `is_own` is true if the
    /// acknowledged packets left on this path.
    pub(crate) fn on_ack_path(&mut self, path: PathId, is_own: bool) {
        self.ack_path.on_ack(path, is_own, self.rtt.smoothed());
    }

    /// The other path that carried the last acknowledgement; `None` if this path carried it.
    pub(crate) fn ack_carrier(&self) -> Option<PathId> {
        self.ack_path.carrier()
    }

    /// Forgets all packets sent in `space`, because its keys are discarded, 0-RTT was rejected, a
    /// Retry arrived or the path is gone. The packets are appended to `drained` and count neither
    /// as acknowledged nor as lost. The space remains usable (RFC 9002 A.11).
    pub(crate) fn discard_space(
        &mut self,
        space: &mut PacketNumberSpace,
        drained: &mut Vec<(u64, SentPacket)>,
    ) {
        self.bytes_in_flight -= space.sent.bytes_in_flight();
        drained.extend(space.sent.drain());
        space.lost.clear();
        space.lost_since = None;
        space.loss_time = None;
        space.last_ack_eliciting_sent = None;
        space.waiting_since = None;
        space.owed_since = None;
        space.probes = 0;
        self.pto_count = 0;
        self.last_probe_timeout = None;
        self.silent_since = None;
    }

    /// The path's addresses changed: RTT, ECN and pacing start over, and packets sent before do not
    /// count for the RTT or for congestion control (RFC 9000 section 9.4).
    pub(crate) fn reset_for_new_address(
        &mut self,
        space: &mut PacketNumberSpace,
        config: &TransportConfig,
        now: Instant,
    ) {
        self.bytes_in_flight -= space.sent.bytes_in_flight();
        space.sent.leave_flight();
        space.waiting_since = Some(now);
        space.owed_since = Some(now);
        space.lost_since = None;
        *self = Self {
            bytes_in_flight: self.bytes_in_flight,
            address_since: Some(now),
            ..Self::new(config, now)
        };
    }
}
