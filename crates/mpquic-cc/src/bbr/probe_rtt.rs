//! Emptying the path to measure its minimum RTT (draft-ietf-ccwg-bbr-06 section 5.3.4), and
//! restarting after an idle time (section 5.4).

use std::time::{Duration, Instant};

use mpquic_core::congestion::Acked;

use super::model::{Bbr, Sample};
use super::phase::{PROBE_RTT_WINDOW_GAIN, Phase};

/// Shortest time for which the path stays empty (`ProbeRTTDuration`).
const DURATION: Duration = Duration::from_millis(200);

impl Bbr {
    pub(super) fn probe_rtt_window(&self) -> f64 {
        let product = self.bandwidth_delay_product().unwrap_or(0.0);
        (PROBE_RTT_WINDOW_GAIN * product).max(self.min_pipe_window())
    }

    pub(super) fn check_probe_rtt(&mut self, sample: &Sample, ack: &Acked) {
        let may_probe = self.full_pipe.was_full || self.variant.probes_early;
        if self.phase != Phase::ProbeRtt
            && self.min_rtt.is_probe_due
            && may_probe
            && !self.is_idle_restart
            && !self.is_bounded
        {
            self.save_window();
            self.phase = Phase::ProbeRtt;
            self.probe_rtt.done_at = None;
            self.cycle.stop_feedback();
            self.rounds.restart(sample.now);
        }
        if self.phase == Phase::ProbeRtt {
            self.handle_probe_rtt(sample, ack);
        }
        if ack.bytes > 0 {
            self.is_idle_restart = false;
        }
    }

    fn handle_probe_rtt(&mut self, sample: &Sample, ack: &Acked) {
        let delivered = ack.delivery_rate.map_or(0, |rate| rate.delivered);
        let low_rate_until = delivered + ack.in_flight;
        self.probe_rtt.low_rate_until = self.probe_rtt.low_rate_until.max(low_rate_until);
        if self.probe_rtt.done_at.is_none() {
            if sample.in_flight <= self.probe_rtt_window() {
                self.probe_rtt.done_at = Some(sample.now + DURATION);
                self.probe_rtt.round_done = false;
                self.rounds.restart(sample.now);
            }
            return;
        }
        self.probe_rtt.round_done |= self.rounds.just_ended;
        if self.probe_rtt.round_done {
            self.check_probe_rtt_done(sample.now);
        }
    }

    fn check_probe_rtt_done(&mut self, now: Instant) {
        if self.probe_rtt.done_at.is_none_or(|done_at| now <= done_at) {
            return;
        }
        self.min_rtt.on_probed(now);
        self.restore_window();
        self.bounds.forget_short_term();
        if self.full_pipe.was_full {
            // Few bytes are in flight, so the path need not slow down first.
            self.start_down(now);
            self.phase = Phase::Cruise;
        } else {
            self.phase = Phase::Startup;
        }
    }

    /// A packet is sent while no other is in flight.
    pub(super) fn restart_from_idle(&mut self, now: Instant) {
        self.is_idle_restart = true;
        self.aggregation.restart(now);
        if self.phase.is_probe_bandwidth() {
            self.set_pacing_rate(1.0);
        } else if self.phase == Phase::ProbeRtt {
            self.check_probe_rtt_done(now);
        }
    }
}
