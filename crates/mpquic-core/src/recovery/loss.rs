//! Lost packets (RFC 9002 sections 6.1 and 7.6), and spurious losses.

use std::time::{Duration, Instant};

use super::outcome::{AckContext, AckOutcome};
use super::reordering::LossEvent;
use super::rtt::GRANULARITY;
use super::space::PacketNumberSpace;
use super::state::Recovery;
use crate::congestion::{CongestionEvent, CongestionKind};
use crate::space::{LostPacket, SentPacket};

/// RFC 9002 section 7.6.1, `kPersistentCongestionThreshold`.
const PERSISTENT_CONGESTION_THRESHOLD: u32 = 3;

/// Losses detected at the same time.
#[derive(Debug, Default)]
struct Batch {
    bytes: u64,
    newest: Option<(u64, Instant)>,
    persistent: bool,
}

impl Recovery {
    /// Declares packets lost when the loss timer of `space` fires (RFC 9002 section 6.1). Clears
    /// `out` first.
    pub(crate) fn detect_lost(
        &mut self,
        space: &mut PacketNumberSpace,
        cx: &AckContext,
        out: &mut AckOutcome,
    ) {
        out.clear();
        self.find_lost(space, cx, out);
    }

    /// Declares packets lost. Lost packets are older than all others, so only the front of the ring
    /// must be searched.
    pub(super) fn find_lost(
        &mut self,
        space: &mut PacketNumberSpace,
        cx: &AckContext,
        out: &mut AckOutcome,
    ) {
        space.loss_time = None;
        let largest_acked = space.largest_acked.unwrap_or(0);
        let loss_delay = self.loss_delay();
        let mut batch = Batch::default();
        loop {
            if space.sent.pop_resolved() {
                space.lost_since = None;
            }
            let Some((number, packet)) = space.sent.front() else {
                break;
            };
            if number >= largest_acked {
                break;
            }
            let lost_at = packet.time_sent + loss_delay;
            if largest_acked - number < self.thresholds.current.packets && lost_at > cx.now {
                space.loss_time = Some(lost_at);
                break;
            }
            let Some((number, packet)) = space.sent.pop_front() else {
                break;
            };
            self.on_packet_lost(space, number, &packet, cx, &mut batch);
            // ACK-only packets carry no content to repair, so their loss is not reported.
            if packet.ack_eliciting || packet.in_flight {
                out.lost.push((number, packet));
            }
        }
        self.report_losses(&batch, cx.now, out);
    }

    /// RFC 9002 section 6.1.2
    fn loss_delay(&self) -> Duration {
        let rtt = self.rtt.latest().max(self.rtt.smoothed());
        (rtt * self.thresholds.current.time / 64).max(GRANULARITY)
    }

    fn on_packet_lost(
        &mut self,
        space: &mut PacketNumberSpace,
        number: u64,
        packet: &SentPacket,
        cx: &AckContext,
        batch: &mut Batch,
    ) {
        if packet.ecn_marked {
            self.ecn.on_marked_packet_lost();
        }
        if packet.in_flight {
            self.bytes_in_flight -= u64::from(packet.bytes);
        }
        if packet.ack_eliciting {
            space.lost.insert(LostPacket {
                number,
                declared: cx.now,
                packet: packet.clone(),
            });
        }
        // RFC 9000 section 14.4: the loss of an MTU probe is no sign of congestion
        if packet.mtu_probe || !packet.in_flight {
            return;
        }
        self.loss_rate.on_packet(true);
        batch.bytes += u64::from(packet.bytes);
        batch.newest = Some((number, packet.time_sent));
        self.add_to_loss_event(number, packet, cx.now);
        if packet.ack_eliciting {
            batch.persistent |= self.extend_lost_run(space, packet.time_sent, cx);
        }
    }

    fn add_to_loss_event(&mut self, number: u64, packet: &SentPacket, now: Instant) {
        let bytes = u64::from(packet.bytes);
        match &mut self.loss_event {
            Some(event) if packet.time_sent <= event.started => {
                event.sent_at = event.sent_at.max(packet.time_sent);
                event.largest_lost = event.largest_lost.max(number);
                event.bytes += bytes;
                event.missing += 1;
            }
            event => {
                self.thresholds.on_loss_event();
                *event = Some(LossEvent {
                    started: now,
                    sent_at: packet.time_sent,
                    largest_lost: number,
                    bytes,
                    missing: 1,
                    raised: false,
                });
            }
        }
    }

    /// Another ack-eliciting packet in an unbroken run of losses; true if the run now means
    /// persistent congestion (RFC 9002 section 7.6.2).
    fn extend_lost_run(
        &mut self,
        space: &mut PacketNumberSpace,
        time_sent: Instant,
        cx: &AckContext,
    ) -> bool {
        // The run cannot start before the first RTT sample.
        if self
            .rtt
            .first_sample()
            .is_none_or(|first| time_sent <= first)
        {
            return false;
        }
        let since = *space.lost_since.get_or_insert(time_sent);
        let limit = self.pto(cx.peer_max_ack_delay) * PERSISTENT_CONGESTION_THRESHOLD;
        let is_persistent = time_sent.saturating_duration_since(since) > limit;
        if is_persistent {
            space.lost_since = Some(time_sent);
        }
        is_persistent
    }

    fn report_losses(&mut self, batch: &Batch, now: Instant, out: &mut AckOutcome) {
        let Some((largest_lost, sent_at)) = batch.newest else {
            return;
        };
        let event = CongestionEvent {
            kind: CongestionKind::Loss,
            now,
            sent_at,
            lost_bytes: batch.bytes,
            in_flight: self.bytes_in_flight,
            largest_lost,
        };
        self.is_starting = false;
        out.congestion.push(event);
        if batch.persistent {
            // RFC 9002 section 5.2
            self.rtt.restart_min();
            out.congestion.push(CongestionEvent {
                kind: CongestionKind::Persistent,
                ..event
            });
        }
    }

    /// A packet declared lost was acknowledged: tolerates more reordering from now on, and reports
    /// a loss event without a real loss.
    pub(super) fn on_late_packet(&mut self, lost: &LostPacket, now: Instant, out: &mut AckOutcome) {
        if lost.packet.mtu_probe || !lost.packet.in_flight {
            return;
        }
        self.delivery_rate.on_late_packet(&lost.packet);
        let Some(event) = &mut self.loss_event else {
            return;
        };
        if lost.declared < event.started {
            return;
        }
        if !std::mem::replace(&mut event.raised, true) {
            self.thresholds.raise();
        }
        event.missing = event.missing.saturating_sub(1);
        if event.missing == 0 {
            out.congestion.push(CongestionEvent {
                kind: CongestionKind::Spurious,
                now,
                sent_at: event.sent_at,
                lost_bytes: event.bytes,
                in_flight: self.bytes_in_flight,
                largest_lost: event.largest_lost,
            });
            self.loss_event = None;
        }
    }
}

#[cfg(test)]
mod tests;
