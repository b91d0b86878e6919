//! The reaction to losses and ECN marks (draft-ietf-ccwg-bbr-06 sections 5.3.1.3, 5.5.10 and
//! 5.5.11).

use std::time::Instant;

use mpquic_core::congestion::CongestionEvent;

use super::bandwidth::MaxBandwidth;
use super::losses::LossRound;
use super::model::{Bbr, Sample, Undo};
use super::phase::Phase;

/// Factor that a round trip with losses leaves of the bounds, at least (`Beta`).
const BETA: f64 = 0.7;
/// Factor that a round trip with ECN marks leaves of the bounds, as in RFC 8511 for CUBIC.
pub(super) const ECN_FACTOR: f64 = 0.85;
/// Number of loss batches in a round trip that may end startup (`StartupFullLossCnt`).
const STARTUP_LOSSES: u32 = 6;
/// Share of a round trip's bytes whose loss ends startup.
const OVERFLOW: f64 = 0.25;
/// Number of consecutive round trips with ECN marks that ends startup.
const STARTUP_MARKED_ROUNDS: u32 = 2;

impl Bbr {
    /// Adapts the short-term bounds to a round trip with losses or marks, unless the phase expects
    /// them (`AdaptLowerBoundsFromCongestion`).
    pub(super) fn adapt_short_term(&mut self, round: &LossRound) {
        let is_lossy = self.is_lossy(round);
        if self.phase.is_accelerating() || !(is_lossy || round.marked) {
            return;
        }
        let max_bandwidth = self.max_bandwidth();
        let bounds = &mut self.bounds;
        if bounds.short_term_bandwidth.is_infinite() {
            bounds.short_term_bandwidth = max_bandwidth;
        }
        if bounds.short_term.is_infinite() {
            bounds.short_term = self.window;
        }
        let marked = bounds.short_term * ECN_FACTOR;
        let bandwidth = bounds.short_term_bandwidth * BETA;
        bounds.short_term_bandwidth = self.latest.bandwidth.max(bandwidth);
        if is_lossy {
            bounds.short_term = self.latest.in_flight.max(bounds.short_term * BETA);
        }
        if round.marked {
            bounds.short_term = bounds.short_term.min(marked);
        }
    }

    /// Section 5.3.1.3. A round trip for counting losses begins with the first loss, so it lies
    /// completely within recovery.
    pub(super) fn check_startup_losses(&mut self, sample: &Sample, round: &LossRound) {
        if self.full_pipe.was_full {
            return;
        }
        // While the delivery rate still grows, no queue overflows yet.
        let may_overflow = !self.variant.looks_for_queues || !self.full_pipe.grows();
        let lossy = self.has_overflowed(round)
            || round.events >= STARTUP_LOSSES && may_overflow && self.is_in_flight_too_high(sample);
        if lossy || self.losses.marked_rounds >= STARTUP_MARKED_ROUNDS {
            self.undo.phase = Some(Phase::Startup);
            self.full_pipe.was_full = true;
            let product = self.bandwidth_delay_product().unwrap_or(0.0);
            self.bounds.long_term = product.max(self.latest.in_flight);
        }
    }

    /// Takes bandwidth and bytes in flight from the last round trip alone if the path collapsed.
    pub(super) fn check_collapse(&mut self, now: Instant, round: &LossRound) {
        let shows_queue =
            self.variant.looks_for_queues && self.min_rtt.shows_queue(self.batch_time());
        if !self.collapse.on_round(round, shows_queue, self.mtu) {
            return;
        }
        let latest = self.latest;
        if latest.bandwidth > 0.0 && latest.bandwidth < self.max_bandwidth() {
            let cycles = self.max_bandwidth.cycles();
            self.max_bandwidth = MaxBandwidth::starting_from(latest.bandwidth, cycles);
        }
        self.bounds.long_term = self.bounds.long_term.min(latest.in_flight);
        match self.phase {
            Phase::Startup => self.full_pipe.was_full = true,
            Phase::Refill | Phase::Up => self.start_down(now),
            _ => {}
        }
    }

    /// True if a round trip lost so many bytes that a queue overflowed. In a short round trip few
    /// acknowledgements come, so that its losses make few batches and do not reach
    /// [`STARTUP_LOSSES`].
    fn has_overflowed(&self, round: &LossRound) -> bool {
        round.lost >= f64::from(STARTUP_LOSSES) * self.mtu
            && round.lost > OVERFLOW * (round.lost + round.acked)
    }

    /// Too much was in flight in startup: ends startup with a window of `window` bytes and drains
    /// the queue.
    pub(super) fn end_startup(&mut self, window: f64) {
        self.full_pipe.was_full = true;
        let product = self.bandwidth_delay_product().unwrap_or(0.0);
        self.bounds.long_term = product.max(self.latest.in_flight);
        self.window = window.max(self.min_pipe_window());
    }

    fn note_loss(&mut self, event: &CongestionEvent) {
        if self.losses.on_event(event) {
            self.save_window();
            self.undo = Undo {
                bounds: self.bounds,
                phase: None,
            };
        }
    }

    /// Section 5.5.10.2, `HandleLostPacket`, with a batch of packets in place of one packet.
    pub(super) fn on_loss(&mut self, event: &CongestionEvent) {
        self.note_loss(event);
        if !self.cycle.is_probe_sample {
            return;
        }
        let departure = self.log.at(event.sent_at);
        let lost = self.losses.bytes() - departure.lost;
        if lost <= self.tolerated_of(departure.bytes) {
            return;
        }
        let (tolerated, chance) = (self.tolerated_loss(), self.lost_by_chance(departure.bytes));
        // The point in the batch at which the losses became too many.
        let batch = event.lost_bytes as f64;
        let before = departure.bytes - batch;
        let lost_before = lost - batch;
        let prefix = (tolerated * before + chance - lost_before) / (1.0 - tolerated);
        self.on_in_flight_too_high(event.now, before + prefix);
    }

    /// An ECN mark while probing counts like too many losses.
    pub(super) fn on_ecn(&mut self, event: &CongestionEvent) {
        self.note_loss(event);
        if self.cycle.is_probe_sample {
            let departure = self.log.at(event.sent_at);
            self.on_in_flight_too_high(event.now, departure.bytes);
        }
    }

    /// Another path that probes together with this one lost too many of the packets that left
    /// around `event.sent_at`.
    pub(crate) fn on_others_too_high(&mut self, event: &CongestionEvent) {
        let departure = self.log.at(event.sent_at);
        self.on_in_flight_too_high(event.now, departure.bytes);
        if self.phase == Phase::Refill {
            self.start_down(event.now);
        }
    }

    fn on_in_flight_too_high(&mut self, now: Instant, in_flight: f64) {
        self.cycle.was_too_high = true;
        // Each probe causes only one reaction.
        self.cycle.is_probe_sample = false;
        if !self.cycle.app_limited {
            self.bounds.long_term = in_flight.max(self.target_in_flight() * BETA);
        }
        if self.phase == Phase::Up {
            self.undo.phase = Some(Phase::Up);
            self.start_down(now);
        }
    }

    /// Section 5.5.11.2
    pub(super) fn on_spurious_loss(&mut self, event: &CongestionEvent) {
        let Undo { bounds, phase } = self.undo;
        self.restore_window();
        self.losses.forgive();
        self.full_pipe.restart(0.0);
        let current = &mut self.bounds;
        current.long_term = current.long_term.max(bounds.long_term);
        current.short_term = current.short_term.max(bounds.short_term);
        current.short_term_bandwidth = current
            .short_term_bandwidth
            .max(bounds.short_term_bandwidth);
        self.undo.phase = None;
        match phase {
            Some(Phase::Startup) if self.phase != Phase::Startup => {
                self.full_pipe.was_full = false;
                if self.phase != Phase::ProbeRtt {
                    self.phase = Phase::Startup;
                }
            }
            Some(Phase::Up) if self.phase != Phase::Up && self.phase != Phase::ProbeRtt => {
                self.start_refill(event.now);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
