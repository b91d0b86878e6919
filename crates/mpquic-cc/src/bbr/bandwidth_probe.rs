//! Probing for bandwidth: down, cruise, refill, up (draft-ietf-ccwg-bbr-06 section 5.3.3).

use std::time::Instant;

use super::company::Company;
use super::cycle::Feedback;
use super::model::{Bbr, Sample};
use super::phase::Phase;

/// Part of the long-term bound that is left free for other flows (`Headroom`).
const HEADROOM: f64 = 0.15;
/// Most round trips between two probes: as many as Reno would need to grow by a bandwidth-delay
/// product.
const MAX_WAIT_ROUNDS: f64 = 63.0;
/// How often the growth of the long-term bound may double.
const MAX_DOUBLINGS: u32 = 30;

impl Bbr {
    /// True if the path has been filled and is ready to go up.
    pub(crate) fn is_refilled(&self) -> bool {
        self.phase == Phase::Refill && self.cycle.is_refilled
    }

    /// True if a higher pacing rate no longer increases the delivery rate.
    pub(crate) fn is_saturated(&self) -> bool {
        self.phase == Phase::Up && self.full_pipe.is_full
    }

    fn start_up(&mut self, sample: &Sample, company: &Company) {
        self.cycle.feedback = Feedback::Starting;
        self.rounds.restart(sample.now);
        self.full_pipe.restart(sample.rate.unwrap_or(0.0));
        self.phase = Phase::Up;
        self.raise_slope(company);
    }

    pub(super) fn update_cycle(&mut self, sample: &Sample, company: &Company) {
        self.cycle.app_limited = sample.app_limited;
        if !self.full_pipe.was_full || self.adapt_long_term(sample, company) {
            return;
        }
        match self.phase {
            Phase::Down | Phase::Cruise
                if company.join
                    || (!company.wait && (company.hurry || self.is_time_to_probe(sample.now))) =>
            {
                self.start_refill(sample.now);
            }
            Phase::Down if self.is_time_to_cruise(sample) => self.phase = Phase::Cruise,
            Phase::Refill => {
                if self.rounds.just_ended {
                    self.cycle.is_probe_sample = true;
                    self.cycle.is_refilled = true;
                }
                if self.cycle.is_refilled && !company.hold_refill {
                    self.start_up(sample, company);
                }
            }
            Phase::Up => {
                let time = self.is_time_to_go_down(sample);
                if time && (!company.hold_up || self.cycle.was_precautionary) {
                    self.cycle.was_too_high = false;
                    self.start_down(sample.now);
                }
            }
            _ => {}
        }
    }

    fn is_time_to_probe(&self, now: Instant) -> bool {
        // Reno needs as many round trips to fill this path, or all paths of the bottleneck
        // together.
        let target = self.target_in_flight() * self.count;
        let reno_rounds = (target / self.mtu).min(MAX_WAIT_ROUNDS);
        now > self.cycle.began + self.cycle.wait || self.cycle.rounds as f64 >= reno_rounds
    }

    pub(super) fn long_term_with_headroom(&self) -> f64 {
        let long_term = self.bounds.long_term;
        if long_term.is_infinite() {
            return long_term;
        }
        let headroom = (HEADROOM * long_term).max(self.mtu);
        (long_term - headroom).max(self.min_pipe_window())
    }

    fn is_time_to_cruise(&self, sample: &Sample) -> bool {
        sample.in_flight <= self.long_term_with_headroom()
            && sample.in_flight <= self.in_flight_for_max_bandwidth()
    }

    /// The bandwidth-delay product of the largest bandwidth, bytes, without short-term bounds.
    fn in_flight_for_max_bandwidth(&self) -> f64 {
        let rtt = self.min_rtt.get().unwrap_or_default().as_secs_f64();
        let product = self.max_bandwidth() * rtt;
        product.max(self.quantum()).max(self.min_pipe_window())
    }

    fn is_time_to_go_down(&mut self, sample: &Sample) -> bool {
        let long_term = self.bounds.long_term;
        if self.cycle.was_too_high && sample.in_flight >= long_term {
            self.cycle.was_precautionary = true;
            return true;
        }
        if self.is_window_limited() && self.window >= long_term {
            // Our own bound limits the rate, not the path.
            self.full_pipe.restart(sample.rate.unwrap_or(0.0));
            return false;
        }
        self.full_pipe.is_full
    }

    fn raise_slope(&mut self, company: &Company) {
        let increments = f64::from(1u32 << self.cycle.doublings);
        self.cycle.doublings = (self.cycle.doublings + 1).min(MAX_DOUBLINGS);
        let acked = (self.window / increments).max(self.mtu);
        // Paths that probe together grow together as a single path would.
        self.cycle.acked_per_increment = acked * company.count;
    }

    /// Raises the long-term bound by a datagram for every `acked_per_increment` bytes acknowledged.
    fn probe_long_term_upward(&mut self, sample: &Sample, company: &Company) {
        if !self.is_window_limited() || self.window < self.bounds.long_term {
            return;
        }
        let cycle = &mut self.cycle;
        cycle.acked += sample.newly_acked;
        if cycle.acked >= cycle.acked_per_increment {
            let increments = (cycle.acked / cycle.acked_per_increment).floor();
            cycle.acked -= increments * cycle.acked_per_increment;
            self.bounds.long_term += increments * self.mtu;
        }
        if self.rounds.just_ended {
            self.raise_slope(company);
        }
    }

    /// Evaluates the feedback on a probe; true if it changed the phase (`AdaptLongTermModel`).
    fn adapt_long_term(&mut self, sample: &Sample, company: &Company) -> bool {
        let is_probing = self.phase.is_probe_bandwidth();
        if self.cycle.feedback == Feedback::Starting && self.rounds.just_ended {
            self.cycle.feedback = Feedback::Probing;
        }
        if self.cycle.feedback == Feedback::Stopping && self.rounds.just_ended {
            self.cycle.is_probe_sample = false;
            self.cycle.feedback = Feedback::None;
            if is_probing && !sample.app_limited {
                self.max_bandwidth.advance();
            }
            if is_probing && self.cycle.was_precautionary && !self.cycle.was_too_high {
                self.start_refill(sample.now);
                return true;
            }
        }
        if !self.is_in_flight_too_high(sample) && self.bounds.long_term.is_finite() {
            let at_departure = sample.at_departure.bytes;
            self.bounds.long_term = self.bounds.long_term.max(at_departure);
            if self.phase == Phase::Up {
                self.probe_long_term_upward(sample, company);
            }
        }
        false
    }
}

#[cfg(test)]
mod tests;
