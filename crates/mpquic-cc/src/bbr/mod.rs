//! BBRv3 (draft-ietf-ccwg-bbr-06).
//!
//! BBR models a path by its delivery rate and its minimum RTT. The model yields the pacing rate and
//! the bytes in flight. To keep the model up to date, the path sometimes sends a little faster or
//! slower. Names are those of the draft, in whole words: `inflight_longterm` is
//! `Bounds::long_term`, for example.
//!
//! In some places the draft leaves a choice, or needs values that a
//! [`Controller`](mpquic_core::congestion::Controller) does not get. There this module decides:
//!
//! - ECN-CE (section 3.8): the number of marked packets is not known. While probing, a mark counts
//!   like too many losses. At other times, a round trip with a mark multiplies the short-term bound
//!   on bytes in flight by `ECN_FACTOR`. Two marked round trips in a row end startup.
//! - Losses are reported in batches. As in Linux, a batch counts as one of the six losses that may
//!   end startup.
//! - Randomness: waiting times are drawn from the nanoseconds of RTT samples.

use std::time::Instant;

use mpquic_core::congestion::{Acked, CongestionEvent, CongestionKind, Sent};

mod aggregation;
mod bandwidth;
mod bandwidth_probe;
mod batches;
mod collapse;
mod company;
mod congestion;
mod cycle;
mod losses;
mod min_rtt;
mod model;
mod own_losses;
mod phase;
mod probe_rtt;
mod rounds;
mod send_log;
mod trains;
mod variant;

use crate::careful_resume::Found;
use crate::uncoupled::{PathController, PathLimits};
use aggregation::Round;
use bandwidth::Latest;
use model::Sample;
use send_log::Flight;

pub(crate) use bandwidth::MaxBandwidth;
pub(crate) use company::Company;
pub use model::Bbr;
pub(crate) use phase::Phase;
pub(crate) use variant::Variant;

/// Longest duration of the drain phase, round trips.
const DRAIN_ROUNDS: u64 = 3;
/// If the smoothed RTT is above the minimum RTT times this factor, packets wait in a queue.
const QUEUED: f64 = 1.25;
/// Pacing gain while a window is the limit. The core paces controllers without a rate with the same
/// gain.
const WINDOW_PACING_GAIN: f64 = 1.25;

impl Bbr {
    /// Section 5.2.3, `UpdateModelAndState`.
    fn update_model(&mut self, sample: &Sample, ack: &Acked, company: &Company) {
        self.rounds.on_ack(ack.now, ack.sent_at);
        if self.rounds.just_ended {
            self.cycle.rounds += 1;
            self.window_limited = [false, self.window_limited[0]];
            self.min_rtt.on_round_end();
        }
        self.losses.on_ack(ack);
        self.trains.on_ack(ack);
        let latest = Latest {
            bandwidth: sample.rate.unwrap_or(0.0),
            in_flight: sample.delivered,
        };
        self.latest = self.latest.max(latest);
        if let Some(rate) = sample.rate {
            self.max_bandwidth.on_sample(rate, sample.app_limited);
            if !sample.app_limited {
                self.last_rate = rate;
            }
        }
        let losses_of_round = self.losses.end_round();
        if let Some(losses) = losses_of_round {
            self.adapt_short_term(&losses);
            self.check_collapse(sample.now, &losses);
            if self.sees_no_queue() {
                self.own_losses.on_round(&losses, self.mtu);
            }
        }
        let round = Round {
            count: self.rounds.count,
            is_starting: !self.full_pipe.was_full,
            window: self.window,
        };
        let bandwidth = self.bandwidth();
        self.aggregation
            .on_ack(sample.now, sample.newly_acked, bandwidth, round);
        if let Some(rate) = sample.rate
            && self.rounds.just_ended
            && !sample.app_limited
        {
            self.full_pipe.on_round(rate);
        }
        if let Some(losses) = losses_of_round {
            self.check_startup_losses(sample, &losses);
        }
        self.check_startup_and_drain(sample);
        self.update_cycle(sample, company);
        // Beside other flows, only a shorter RTT spares the path a measurement of the minimum RTT:
        // all flows have to leave the queue now and then, so that each flow can measure.
        let confirmation = if company.others {
            1.0
        } else {
            self.variant.rtt_confirmation
        };
        if ack.rtt_restarted {
            self.min_rtt.on_new_way_back(sample.now, sample.rtt);
        }
        self.min_rtt.on_ack(sample.now, sample.rtt, confirmation);
        self.check_probe_rtt(sample, ack);
        if losses_of_round.is_some() {
            self.latest = latest;
        }
    }

    /// Ends startup once the pipe is full, and the drain phase once the queue is empty, after at
    /// most [`DRAIN_ROUNDS`].
    fn check_startup_and_drain(&mut self, sample: &Sample) {
        if self.phase == Phase::Startup && self.full_pipe.was_full {
            self.phase = Phase::Drain;
            self.drain_began = self.rounds.count;
        }
        if self.phase == Phase::Drain
            && (sample.in_flight <= self.in_flight_for(1.0, 0.0)
                || self.rounds.count > self.drain_began + DRAIN_ROUNDS)
        {
            self.start_down(sample.now);
        }
    }

    /// Sections 5.6.2 and 5.6.4, `UpdateControlParameters`.
    fn update_controls(&mut self, sample: &Sample) {
        if self.pacing_rate.is_none() && !self.smoothed_rtt.is_zero() {
            let nominal = self.variant.initial_window(self.mtu) / self.smoothed_rtt.as_secs_f64();
            self.pacing_rate = Some(self.variant.startup_gain * nominal);
        }
        self.set_pacing_rate(self.phase.pacing_gain(self.variant.startup_gain));
        if self.phase == Phase::Startup && self.follow_trains(sample) {
            return;
        }
        let wanted = self.in_flight_for(
            self.phase.window_gain(),
            self.aggregation.excess() / self.count,
        );
        let grown = self.window + sample.newly_acked;
        if self.full_pipe.was_full {
            self.window = grown.min(wanted);
        } else if self.window < wanted || self.delivered < self.variant.initial_window(self.mtu) {
            self.window += self.variant.startup_growth * sample.newly_acked;
        }
        self.window = self.window.max(self.min_pipe_window());
        if self.phase == Phase::ProbeRtt {
            self.window = self.window.min(self.probe_rtt_window());
        }
        let mut cap = match self.phase {
            Phase::Startup | Phase::Drain => f64::INFINITY,
            Phase::Down | Phase::Refill | Phase::Up => self.bounds.long_term,
            Phase::Cruise | Phase::ProbeRtt => self.long_term_with_headroom(),
        };
        cap = cap.min(self.bounds.short_term).max(self.min_pipe_window());
        self.window = self.window.min(cap);
    }

    /// Sends the next train, and sets rate and window by the capacity that earlier trains have
    /// shown. False if the variant sends no trains, or if no train has a result yet.
    fn follow_trains(&mut self, sample: &Sample) -> bool {
        if !self.variant.sends_trains || self.smoothed_rtt.is_zero() {
            return false;
        }
        let initial = self.variant.initial_window(self.mtu);
        let rtt = self
            .min_rtt
            .get()
            .unwrap_or(self.smoothed_rtt)
            .as_secs_f64();
        let rate = self.bandwidth().max(initial / rtt);
        let train = self.trains.start(rate, rate * rtt, self.mtu);
        let is_queued = self.smoothed_rtt.as_secs_f64() > QUEUED * rtt;
        let grows = self.full_pipe.grows();
        let Some(plan) = self.trains.plan(rate, grows, is_queued) else {
            return false;
        };
        self.full_pipe.was_full |= plan.is_filled;
        self.pacing_rate = Some(plan.pacing * rate);
        let wanted = plan.window * rate * rtt + self.aggregation.excess() / self.count;
        let grown = self.window + plan.growth * sample.newly_acked;
        self.window = (grown.min(wanted) + train).max(self.window);
        true
    }

    /// Handles an acknowledgement and the requests of the other paths of the bottleneck.
    pub(crate) fn on_ack_in(&mut self, ack: &Acked, company: &Company) {
        self.count = company.count;
        self.share = company.share;
        self.is_bounded = company.bound.is_some();
        let sample = self.sample(ack);
        self.update_model(&sample, ack, company);
        self.update_controls(&sample);
        if let Some(bound) = company.bound {
            self.follow_bound(bound);
        }
    }

    /// Keeps `bound` bytes in flight, as a window-based flow does, unless a probe is under way.
    fn follow_bound(&mut self, bound: f64) {
        if !matches!(self.phase, Phase::Down | Phase::Cruise) {
            return;
        }
        self.window = bound.max(2.0 * self.mtu);
        let rtt = self.smoothed_rtt.as_secs_f64();
        if rtt > 0.0 {
            self.pacing_rate = Some(WINDOW_PACING_GAIN * self.window / rtt);
        }
    }
}

impl PathController for Bbr {
    const NAME: &'static str = "bbr";

    fn new(now: Instant, mtu: u16) -> Self {
        Self::with_variant(Variant::DRAFT, now, mtu)
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        // RFC 9002 section 7.2: the initial window follows the datagram size.
        let untouched = self.window == self.variant.initial_window(self.mtu);
        self.mtu = f64::from(mtu);
        if untouched {
            self.window = self.variant.initial_window(self.mtu);
        }
    }

    fn on_packet_sent(&mut self, sent: &Sent) {
        if sent.in_flight <= sent.bytes {
            self.restart_from_idle(sent.now);
        }
        self.trains.on_sent(sent);
        let bytes = sent.in_flight as f64;
        self.window_limited[0] |= bytes + self.mtu > self.window;
        let lost = self.losses.bytes();
        self.log
            .push(sent.now, self.smoothed_rtt, Flight { bytes, lost });
    }

    fn on_ack(&mut self, ack: &Acked) {
        self.on_ack_in(ack, &Company::NONE);
    }

    fn on_congestion_event(&mut self, event: &CongestionEvent) {
        match event.kind {
            CongestionKind::Loss => self.on_loss(event),
            CongestionKind::Ecn => self.on_ecn(event),
            CongestionKind::Spurious => self.on_spurious_loss(event),
            // RFC 9002 section 7.6.2
            CongestionKind::Persistent => {
                self.save_window();
                self.window = 2.0 * self.mtu;
            }
            _ => {}
        }
    }

    const TOLERATED_LOSS: f64 = losses::LOSS_THRESHOLD;

    fn adopt(&mut self, found: Found) {
        match found {
            Found::AtLeast(bytes) => self.window = self.window.max(bytes as f64),
            Found::TooMuch { window, .. } => self.end_startup(window as f64),
            // The rate samples of acknowledgements already show the rate of the arrivals.
            Found::Arrived(_) => {}
        }
    }

    fn limits(&self) -> PathLimits {
        let mut limits = PathLimits::new(self.window.max(2.0 * self.mtu) as u64);
        limits.in_recovery = self.losses.in_recovery();
        limits.pacing_rate = self.pacing_rate.map(|rate| rate.max(1.0) as u64);
        limits.send_quantum = self.batch().map(|batch| batch as u64);
        let train = (self.trains.leaving()).filter(|_| self.phase == Phase::Startup);
        if let (Some(rate), Some(train)) = (self.pacing_rate, train)
            && train.rate > rate
        {
            limits.pacing_rate = Some(train.rate as u64);
            limits.burst = Some(train.bytes.ceil() as u64);
        }
        limits
    }

    fn memory(&self) -> u64 {
        self.log.memory()
    }

    fn window_after_round(&self, window: u64) -> u64 {
        if self.phase == Phase::Startup {
            window.saturating_mul(2)
        } else {
            window
        }
    }
}

#[cfg(test)]
mod tests;
