//! Processes acknowledgements (RFC 9002 A.7).

use std::time::{Duration, Instant};

use super::outcome::{AckContext, AckOutcome};
use super::space::PacketNumberSpace;
use super::state::Recovery;
use crate::congestion::{Acked, CongestionEvent, CongestionKind};
use crate::error::{Fault, TransportError};
use crate::ids::SpaceId;
use crate::space::LostPacket;
use crate::wire::frame::Ack;

/// Lost packets are remembered for this many probe timeouts.
const LOSS_MEMORY: u32 = 3;

/// Sums over newly acknowledged packets.
#[derive(Debug, Default)]
struct Totals {
    /// Bytes that were in flight.
    bytes: u64,
    /// Packets that were sent with a mark.
    marked: u64,
    /// Packets for which ECN-CE is newly reported.
    ce: u64,
    ack_eliciting: bool,
    /// Index of the packet with the largest number.
    newest: usize,
}

impl Recovery {
    /// ACK or PATH_ACK for `space`. Clears `out` first.
    ///
    /// The cost depends on the number of newly acknowledged packets and of ranges above the oldest
    /// packet in flight, not on how many numbers the frame names.
    ///
    /// # Errors
    /// PROTOCOL_VIOLATION if the frame acknowledges a packet that was never sent (MP-055).
    pub(crate) fn on_ack(
        &mut self,
        space: &mut PacketNumberSpace,
        ack: &Ack,
        cx: &AckContext,
        out: &mut AckOutcome,
    ) -> Result<(), TransportError> {
        out.clear();
        // RFC 9000 section 13.1, MP-055
        if ack.largest_acknowledged >= space.next_packet_number() {
            return Err(unsent());
        }
        self.take_acknowledged(space, ack, cx, out)?;
        let is_largest = space
            .largest_acked
            .is_none_or(|largest| ack.largest_acknowledged > largest);
        space.largest_acked = space.largest_acked.max(Some(ack.largest_acknowledged));
        if out.acked.is_empty() && out.late.is_empty() {
            return Ok(());
        }
        let mut totals = self.add_up(cx, out);
        self.take_rtt_sample(space, ack, &totals, cx, out);
        // RFC 9000 section 13.4.2.1: ECN counts of a reordered acknowledgement are ignored
        if is_largest {
            totals.ce = self.check_ecn(space, ack, &totals, cx, out);
        }
        self.summarise(&totals, cx, out);
        self.find_lost(space, cx, out);
        self.restart_wait(space, cx.now);
        // RFC 9002 section 6.2.1: not while a client is unsure whether the server has validated its
        // address
        if cx.peer_validated_address {
            self.pto_count = 0;
            self.last_probe_timeout = None;
        }
        space.probes = 0;
        space.waiting_since = Some(cx.now);
        self.last_activity = cx.now;
        Ok(())
    }

    /// From when on the peer owes the next acknowledgement: the packet that has waited longest left
    /// then (as in RFC 7765), but half a round trip ago the path still worked. After probe
    /// timeouts, from now on, because older packets are late already.
    fn restart_wait(&mut self, space: &mut PacketNumberSpace, now: Instant) {
        let half = self.rtt.smoothed() / 2;
        let worked = match self.pto_count {
            0 => now.checked_sub(half).unwrap_or(now),
            _ => now,
        };
        self.owed_from = self.owed_from.max(Some(worked));
        let oldest = space
            .sent
            .front()
            .filter(|(_, packet)| packet.ack_eliciting);
        let left = oldest.map_or(now, |(_, packet)| packet.time_sent);
        space.owed_since = self.owed_from.max(Some(left));
    }

    /// Moves the packets that the frame acknowledges into `out`.
    fn take_acknowledged(
        &mut self,
        space: &mut PacketNumberSpace,
        ack: &Ack,
        cx: &AckContext,
        out: &mut AckOutcome,
    ) -> Result<(), TransportError> {
        if let Some(time) = cx.now.checked_sub(self.loss_memory(cx)) {
            space.lost.expire(time);
        }
        let first_sent = space.sent.first_number().unwrap_or(u64::MAX);
        let first_lost = space.lost.first_number().unwrap_or(u64::MAX);
        let first = first_sent.min(first_lost);
        for range in ack.ranges() {
            // RFC 9000 section 21.4: a peer that acknowledges a skipped number acknowledges packets
            // it has not seen
            if space.skipped.is_some_and(|number| range.contains(&number)) {
                return Err(unsent());
            }
            if *range.end() < first {
                break;
            }
            space.sent.acknowledge(&range, &mut out.acked);
            if *range.end() >= first_lost {
                for lost in space.lost.take(&range) {
                    self.on_late_packet(&lost, cx.now, out);
                    let LostPacket { number, packet, .. } = lost;
                    out.late.push((number, packet));
                }
            }
        }
        Ok(())
    }

    fn loss_memory(&self, cx: &AckContext) -> Duration {
        self.pto(cx.peer_max_ack_delay) * LOSS_MEMORY
    }

    fn add_up(&mut self, cx: &AckContext, out: &AckOutcome) -> Totals {
        let mut totals = Totals::default();
        let mut largest = 0;
        for (index, (number, packet)) in out.acked.iter().enumerate() {
            if *number >= largest {
                largest = *number;
                totals.newest = index;
            }
            totals.ack_eliciting |= packet.ack_eliciting;
            totals.marked += u64::from(packet.ecn_marked);
            if packet.in_flight {
                totals.bytes += u64::from(packet.bytes);
                self.loss_rate.on_packet(false);
                self.delivery_rate.on_packet_acked(cx.now, packet);
            }
        }
        self.bytes_in_flight -= totals.bytes;
        totals
    }

    /// RFC 9002 section 5.1: a sample needs the largest number to be newly acknowledged, and at
    /// least one ack-eliciting packet.
    fn take_rtt_sample(
        &mut self,
        space: &PacketNumberSpace,
        ack: &Ack,
        totals: &Totals,
        cx: &AckContext,
        out: &mut AckOutcome,
    ) {
        let Some((number, newest)) = out.acked.get(totals.newest) else {
            return;
        };
        self.silent_since = self.silent_since.filter(|since| newest.time_sent < *since);
        let was_sent_to_old_address = self
            .address_since
            .is_some_and(|since| newest.time_sent < since);
        let counts = totals.ack_eliciting && !was_sent_to_old_address && !self.is_silent();
        if *number != ack.largest_acknowledged || !counts {
            return;
        }
        let sample = cx.now.saturating_duration_since(newest.time_sent);
        if (self.kept).is_some_and(|kept| kept.spoils(sample, newest.time_sent)) {
            return self.rtt.on_bound(cx.now, sample);
        }
        self.rtt
            .on_sample(cx.now, sample, ack_delay(space.id(), ack, cx));
        out.rtt_restarted = self.ack_path.take_change();
        if out.rtt_restarted {
            self.rtt.restart_min();
        }
        out.rtt_sample = Some(sample);
    }

    /// Returns for how many packets ECN-CE is newly reported.
    fn check_ecn(
        &mut self,
        space: &mut PacketNumberSpace,
        ack: &Ack,
        totals: &Totals,
        cx: &AckContext,
        out: &mut AckOutcome,
    ) -> u64 {
        let ce = self.ecn.on_counts(space, ack.ecn_counts, totals.marked);
        let Some((number, newest)) = out.acked.get(totals.newest).filter(|_| ce > 0) else {
            return 0;
        };
        self.is_starting = false;
        out.congestion.push(CongestionEvent {
            kind: CongestionKind::Ecn,
            now: cx.now,
            sent_at: newest.time_sent,
            lost_bytes: 0,
            in_flight: self.bytes_in_flight,
            largest_lost: *number,
        });
        ce
    }

    fn summarise(&mut self, totals: &Totals, cx: &AckContext, out: &mut AckOutcome) {
        if totals.bytes == 0 {
            return;
        }
        let Some((largest, newest)) = out.acked.get(totals.newest) else {
            return;
        };
        out.summary = Some(Acked {
            now: cx.now,
            sent_at: newest.time_sent,
            largest: *largest,
            bytes: totals.bytes,
            packets: out.acked.len() as u64,
            marked: totals.ce,
            in_flight: self.bytes_in_flight,
            app_limited: self.is_app_limited,
            delivery_rate: self.delivery_rate.sample(cx.now, self.rtt.min()),
            rtt: self.rtt.snapshot(),
            rtt_restarted: out.rtt_restarted,
        });
    }
}

fn unsent() -> TransportError {
    TransportError::new(Fault::AckOfUnsent)
}

/// The peer's reported delay, within its limit (RFC 9002 section 5.3).
fn ack_delay(space: SpaceId, ack: &Ack, cx: &AckContext) -> Duration {
    if space == SpaceId::Initial {
        return Duration::ZERO;
    }
    let scale = 1 << cx.peer_ack_delay_exponent.min(20);
    let delay = Duration::from_micros(ack.ack_delay.saturating_mul(scale));
    if cx.handshake_confirmed {
        delay.min(cx.peer_max_ack_delay)
    } else {
        delay
    }
}

#[cfg(test)]
mod tests;
