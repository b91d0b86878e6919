//! CUBIC (RFC 9438).

use std::time::{Duration, Instant};

use mpquic_core::congestion::{Acked, CongestionEvent, Sent};

use crate::careful_resume::Found;
use crate::uncoupled::{PathController, PathLimits};
use crate::window::{Reaction, Window};

/// Factor that a loss leaves of the window (RFC 9438 section 4.6).
const BETA: f64 = 0.7;
/// Steepness of the curve, datagrams per second cubed (RFC 9438 section 5.1).
const C: f64 = 0.4;
/// Growth of the Reno-friendly estimate, datagrams per round trip (RFC 9438 section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// The window grows by at most this factor per round trip (RFC 9438 section 4.2).
const MAX_GROWTH_PER_ROUND: f64 = 1.5;

/// A stage of congestion avoidance, from the end of a recovery period (or of slow start) to the
/// next loss.
#[derive(Debug, Clone, Copy)]
struct Stage {
    /// Seconds from the beginning of the stage until the curve is back at [`Curve::w_max`].
    k: f64,
    /// Time in the stage during which the window was the limit (RFC 9438 section 5.8).
    elapsed: Duration,
    /// `elapsed` covers the time up to this instant.
    counted_until: Instant,
    /// Reno's window at this time, bytes.
    w_est: f64,
}

/// The state that is restored when a loss proves spurious.
#[derive(Debug, Clone, Copy)]
struct Curve {
    /// The window at which the curve levels off, bytes; 0 before the first loss.
    w_max: f64,
    /// The window before the last cut, bytes.
    prior_window: f64,
    stage: Option<Stage>,
}

/// The window follows a cubic curve of the time since the last loss: it grows quickly back towards
/// the window at which the loss happened, slowly around that window, then quickly again. While Reno
/// would have a larger window, the window follows Reno.
#[derive(Debug, Clone)]
pub struct Cubic {
    window: Window,
    curve: Curve,
    before_cut: Curve,
    smoothed_rtt: Duration,
}

impl Curve {
    /// The curve `seconds` after the stage began, bytes (RFC 9438 section 4.2).
    fn at(&self, k: f64, seconds: f64, mtu: f64) -> f64 {
        C * mtu * (seconds - k).powi(3) + self.w_max
    }

    fn begin_stage(&mut self, now: Instant, window: &Window) -> Stage {
        self.w_max = self.w_max.max(window.bytes);
        Stage {
            k: ((self.w_max - window.bytes) / (C * window.mtu())).cbrt(),
            elapsed: Duration::ZERO,
            counted_until: now,
            w_est: window.bytes,
        }
    }
}

impl Cubic {
    fn avoid_congestion(&mut self, acked: f64, ack: &Acked) {
        let (bytes, mtu) = (self.window.bytes, self.window.mtu());
        let mut stage = match self.curve.stage {
            Some(stage) => stage,
            None => self.curve.begin_stage(ack.now, &self.window),
        };
        stage.elapsed += ack.now.saturating_duration_since(stage.counted_until);
        stage.counted_until = ack.now;
        let time = stage.elapsed.as_secs_f64();
        let share = (acked / bytes).min(1.0);

        let caught_up = stage.w_est >= self.curve.prior_window;
        stage.w_est += if caught_up { 1.0 } else { ALPHA } * mtu * share;
        let next = if self.curve.at(stage.k, time, mtu) < stage.w_est {
            stage.w_est.max(bytes)
        } else {
            let ahead = time + ack.rtt.smoothed.as_secs_f64();
            let target = self.curve.at(stage.k, ahead, mtu);
            bytes + (target.clamp(bytes, MAX_GROWTH_PER_ROUND * bytes) - bytes) * share
        };
        self.window.set(next);
        self.curve.stage = Some(stage);
    }

    /// Excludes the time up to `now` from the stage.
    fn skip_until(&mut self, now: Instant) {
        if let Some(stage) = &mut self.curve.stage {
            stage.counted_until = now;
        }
    }
}

impl PathController for Cubic {
    const NAME: &'static str = "cubic";

    fn new(_: Instant, mtu: u16) -> Self {
        let curve = Curve {
            w_max: 0.0,
            prior_window: 0.0,
            stage: None,
        };
        Self {
            window: Window::new(mtu),
            curve,
            before_cut: curve,
            smoothed_rtt: Duration::ZERO,
        }
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.window.on_mtu_update(mtu);
    }

    fn on_packet_sent(&mut self, sent: &Sent) {
        self.window.on_packet_sent(sent);
        let was_idle = sent.in_flight <= sent.bytes;
        if was_idle {
            self.skip_until(sent.now);
        }
    }

    fn on_ack(&mut self, ack: &Acked) {
        self.smoothed_rtt = ack.rtt.smoothed;
        match self.window.on_ack(ack) {
            Some(acked) => self.avoid_congestion(acked, ack),
            None => self.skip_until(ack.now),
        }
    }

    fn on_congestion_event(&mut self, event: &CongestionEvent) {
        let bytes = self.window.bytes;
        match self.window.on_congestion_event(event, BETA) {
            Reaction::None => {}
            Reaction::Cut => {
                self.before_cut = self.curve;
                // RFC 9438 section 4.7: a flow whose window shrinks from loss to loss makes room
                // for other flows.
                let fast_convergence = bytes < self.curve.w_max;
                self.curve = Curve {
                    w_max: bytes
                        * if fast_convergence {
                            (1.0 + BETA) / 2.0
                        } else {
                            1.0
                        },
                    prior_window: bytes,
                    stage: None,
                };
            }
            // RFC 9438 section 4.8: the next stage starts at the level part of the curve.
            Reaction::Collapsed => {
                self.curve.w_max = 0.0;
                self.curve.stage = None;
            }
            Reaction::Restored => {
                self.curve = self.before_cut;
                self.skip_until(event.now);
            }
        }
    }

    fn adopt(&mut self, found: Found) {
        self.window.adopt(found);
    }

    fn limits(&self) -> PathLimits {
        self.window.limits()
    }

    fn window_after_round(&self, window: u64) -> u64 {
        let bytes = window as f64;
        if let Some(next) = self.window.slow_start_round(bytes) {
            return next as u64;
        }
        let mtu = self.window.mtu();
        let w_max = if self.curve.w_max > 0.0 {
            self.curve.w_max
        } else {
            bytes
        };
        // The position of this window on the curve, in seconds from its level part.
        let position = ((bytes - w_max) / (C * mtu)).cbrt();
        let ahead = position + self.smoothed_rtt.as_secs_f64();
        let cubic = C * mtu * ahead.powi(3) + w_max;
        cubic
            .clamp(bytes, MAX_GROWTH_PER_ROUND * bytes)
            .max(bytes + ALPHA * mtu) as u64
    }
}

#[cfg(test)]
mod tests;
