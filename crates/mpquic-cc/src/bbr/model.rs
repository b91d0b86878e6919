//! [`Bbr`]: the model of a path, the values derived from it, and the changes of phase.

use std::time::{Duration, Instant};

use mpquic_core::congestion::Acked;

use super::aggregation::Aggregation;
use super::bandwidth::{FullPipe, Latest, MaxBandwidth};
use super::collapse::Collapse;
use super::cycle::{Cycle, Feedback};
use super::losses::{LOSS_THRESHOLD, LossRound, Losses, WITHOUT_QUEUE};
use super::min_rtt::{MinRtt, ProbeRtt};
use super::own_losses::OwnLosses;
use super::phase::Phase;
use super::rounds::Rounds;
use super::send_log::{Flight, SendLog};
use super::trains::Trains;
use super::variant::Variant;

/// Pacing stays slightly below the estimated bandwidth (`PacingMarginPercent`).
const PACING_MARGIN: f64 = 0.99;
/// Smallest window that keeps a path busy, datagrams (`MinPipeCwnd`).
const MIN_PIPE: f64 = 4.0;
/// Largest burst, bytes (`send_quantum`).
const MAX_QUANTUM: f64 = 65_536.0;
/// Shortest time between two probes, seconds.
const MIN_WAIT: f64 = 2.0;
/// Range of the random time that is added to [`MIN_WAIT`], seconds.
const WAIT_SPREAD: f64 = 1.0;

/// Losses of the link itself may exceed their mean by this many standard deviations by chance.
const DEVIATIONS: f64 = 2.0;

/// Bounds that result from losses; infinite while there are none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Bytes in flight that the last probe found too many, or found safe (`inflight_longterm`).
    pub(super) long_term: f64,
    /// Bytes in flight until the next probe (`inflight_shortterm`).
    pub(super) short_term: f64,
    /// Bytes per second until the next probe (`bw_shortterm`).
    pub(super) short_term_bandwidth: f64,
}

impl Bounds {
    pub(super) const NONE: Self = Self {
        long_term: f64::INFINITY,
        short_term: f64::INFINITY,
        short_term_bandwidth: f64::INFINITY,
    };

    pub(super) fn forget_short_term(&mut self) {
        self.short_term = f64::INFINITY;
        self.short_term_bandwidth = f64::INFINITY;
    }
}

/// The state to restore if losses prove spurious.
#[derive(Debug, Clone, Copy)]
pub(super) struct Undo {
    pub(super) bounds: Bounds,
    /// The phase that ended because of the losses.
    pub(super) phase: Option<Phase>,
}

impl Default for Undo {
    fn default() -> Self {
        Self {
            bounds: Bounds {
                long_term: 0.0,
                short_term: 0.0,
                short_term_bandwidth: 0.0,
            },
            phase: None,
        }
    }
}

/// The state at an acknowledgement (`RS`).
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) now: Instant,
    /// Delivery rate, bytes per second, if there is a sample.
    pub(super) rate: Option<f64>,
    /// Bytes delivered since the newest acknowledged packet left.
    pub(super) delivered: f64,
    pub(super) app_limited: bool,
    pub(super) newly_acked: f64,
    /// Bytes in flight now.
    pub(super) in_flight: f64,
    /// The state of the path when the newest acknowledged packet left.
    pub(super) at_departure: Flight,
    pub(super) rtt: Option<Duration>,
}

/// BBRv3 on one path.
#[derive(Debug, Clone)]
pub struct Bbr {
    pub(super) variant: Variant,
    pub(super) mtu: f64,
    pub(super) phase: Phase,
    pub(super) window: f64,
    /// The last window that neither `ProbeRtt` nor a loss had reduced.
    pub(super) prior_window: f64,
    /// Bytes per second; `None` before the first RTT sample.
    pub(super) pacing_rate: Option<f64>,
    pub(super) rounds: Rounds,
    pub(super) log: SendLog,
    pub(super) max_bandwidth: MaxBandwidth,
    pub(super) full_pipe: FullPipe,
    pub(super) latest: Latest,
    pub(super) trains: Trains,
    pub(super) bounds: Bounds,
    pub(super) min_rtt: MinRtt,
    pub(super) aggregation: Aggregation,
    pub(super) losses: Losses,
    pub(super) own_losses: OwnLosses,
    pub(super) collapse: Collapse,
    pub(super) undo: Undo,
    pub(super) cycle: Cycle,
    pub(super) probe_rtt: ProbeRtt,
    /// Bytes delivered on this path.
    pub(super) delivered: f64,
    pub(super) smoothed_rtt: Duration,
    /// `RttSnapshot::samples` at the last RTT sample that was used.
    pub(super) samples_seen: u64,
    /// Sending resumed after an idle time.
    pub(super) is_idle_restart: bool,
    /// When draining began, as a number of round trips.
    pub(super) drain_began: u64,
    /// Whether the window was used up: in this round trip, and in the last.
    pub(super) window_limited: [bool; 2],
    pub(super) noise: u64,
    /// Number of paths that share the bottleneck, this path included.
    pub(super) count: f64,
    /// The part of its largest bandwidth that this path had when the total of all paths was
    /// largest.
    pub(super) share: f64,
    /// A loss-based flow shares the bottleneck, and a bound limits the bytes in flight beside it.
    pub(super) is_bounded: bool,
    /// The last delivery rate of a sample that was not application-limited, bytes per second.
    pub(super) last_rate: f64,
}

impl Bbr {
    pub(crate) fn with_variant(variant: Variant, now: Instant, mtu: u16) -> Self {
        let mtu = f64::from(mtu);
        Self {
            variant,
            mtu,
            phase: Phase::Startup,
            window: variant.initial_window(mtu),
            prior_window: 0.0,
            pacing_rate: None,
            rounds: Rounds::default(),
            log: SendLog::default(),
            max_bandwidth: MaxBandwidth::default(),
            full_pipe: FullPipe::default(),
            latest: Latest::default(),
            trains: Trains::default(),
            bounds: Bounds::NONE,
            min_rtt: MinRtt::new(now),
            aggregation: Aggregation::new(now),
            losses: Losses::default(),
            own_losses: OwnLosses::default(),
            collapse: Collapse::default(),
            undo: Undo::default(),
            cycle: Cycle::new(now),
            probe_rtt: ProbeRtt::default(),
            delivered: 0.0,
            smoothed_rtt: Duration::ZERO,
            samples_seen: 0,
            is_idle_restart: false,
            drain_began: 0,
            window_limited: [false; 2],
            noise: 0x9e37_79b9_7f4a_7c15,
            count: 1.0,
            share: 1.0,
            is_bounded: false,
            last_rate: 0.0,
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// The estimated bandwidth, bytes per second.
    pub(super) fn bandwidth(&self) -> f64 {
        self.max_bandwidth().min(self.bounds.short_term_bandwidth)
    }

    pub(super) fn max_bandwidth(&self) -> f64 {
        self.max_bandwidth.get() * self.share
    }

    /// The largest recent delivery rate, bytes per second.
    pub(crate) fn largest_bandwidth(&self) -> f64 {
        self.max_bandwidth.get()
    }

    /// The last delivery rate of a sample that was not application-limited, bytes per second.
    pub(crate) fn last_rate(&self) -> f64 {
        self.last_rate
    }

    /// Time since the last probe ended.
    pub(crate) fn since_probe(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.cycle.began)
    }

    /// True if the current acknowledgement ended a round trip.
    pub(crate) fn has_round_ended(&self) -> bool {
        self.rounds.just_ended
    }

    /// Forgets the delivery rates of the cycle before the last.
    pub(crate) fn age_bandwidth(&mut self) {
        self.max_bandwidth.advance();
    }

    pub(crate) fn mtu(&self) -> f64 {
        self.mtu
    }

    /// Number of probing cycles so far.
    pub(crate) fn cycles(&self) -> u64 {
        self.max_bandwidth.cycles()
    }

    /// Bandwidth-delay product with the minimum RTT, bytes; `None` before the first RTT sample.
    pub(super) fn bandwidth_delay_product(&self) -> Option<f64> {
        let rtt = self.min_rtt.get()?.as_secs_f64();
        Some(self.bandwidth() * rtt)
    }

    pub(super) fn in_flight_for(&self, gain: f64, extra: f64) -> f64 {
        let product = self.bandwidth_delay_product();
        let wanted = product.map_or(self.variant.initial_window(self.mtu), |product| {
            gain * product
        });
        let wanted = (wanted + extra)
            .max(self.quantum())
            .max(self.min_pipe_window());
        if self.phase == Phase::Up {
            wanted + 2.0 * self.mtu / self.count
        } else {
            wanted
        }
    }

    pub(super) fn min_pipe_window(&self) -> f64 {
        MIN_PIPE * self.mtu
    }

    /// Largest burst, bytes.
    pub(super) fn quantum(&self) -> f64 {
        let rate = self.pacing_rate.unwrap_or(0.0);
        (rate * 0.001).min(MAX_QUANTUM).max(2.0 * self.mtu)
    }

    pub(super) fn is_window_limited(&self) -> bool {
        self.window_limited[0] || self.window_limited[1]
    }

    /// A number from 0 to 1 that cannot be foreseen: the nanoseconds of RTT samples are random.
    pub(super) fn random(&mut self) -> f64 {
        let mixed = (self.noise ^ (self.noise >> 31)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.noise = mixed;
        (mixed >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn sample(&mut self, ack: &Acked) -> Sample {
        if ack.rtt.samples > 0 {
            self.smoothed_rtt = ack.rtt.smoothed;
        }
        let rtt = (ack.rtt.samples != self.samples_seen).then_some(ack.rtt.latest);
        self.samples_seen = ack.rtt.samples;
        let nanos = u64::from(ack.rtt.latest.subsec_nanos());
        self.noise = (self.noise.rotate_left(7) ^ nanos).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.delivered += ack.bytes as f64;
        let rate = ack.delivery_rate;
        let delivered = rate.map_or(0, |rate| {
            rate.delivered.saturating_sub(rate.prior_delivered)
        });
        let app_limited = rate.is_none_or(|rate| {
            // Low delivery rates after `ProbeRtt` are due to our own small window.
            rate.app_limited || rate.prior_delivered < self.probe_rtt.low_rate_until
        });
        Sample {
            now: ack.now,
            rate: rate.map(|rate| rate.bytes_per_second as f64),
            delivered: delivered as f64,
            app_limited,
            newly_acked: ack.bytes as f64,
            in_flight: ack.in_flight as f64,
            at_departure: self.log.at(ack.sent_at),
            rtt,
        }
    }

    pub(super) fn set_pacing_rate(&mut self, gain: f64) {
        // Without a queue, nothing has to be drained, so the pacing margin is not needed.
        let has_room = self.phase == Phase::Cruise
            && self.variant.looks_for_queues
            && self.min_rtt.is_confirmed(self.variant.rtt_confirmation);
        let margin = if has_room { 1.0 } else { PACING_MARGIN };
        let rate = gain * self.bandwidth() * margin;
        let is_faster = self.pacing_rate.is_some_and(|current| rate > current);
        if rate > 0.0 && (self.full_pipe.was_full || is_faster) {
            self.pacing_rate = Some(rate);
        }
    }

    pub(super) fn save_window(&mut self) {
        self.prior_window = if self.losses.in_recovery() || self.phase == Phase::ProbeRtt {
            self.prior_window.max(self.window)
        } else {
            self.window
        };
    }

    pub(super) fn restore_window(&mut self) {
        self.window = self.window.max(self.prior_window);
    }

    /// Bytes to have in flight: the estimated bandwidth-delay product, or the window if losses
    /// reduced it below that product.
    pub(super) fn target_in_flight(&self) -> f64 {
        let product = self.bandwidth_delay_product().unwrap_or(f64::INFINITY);
        product.min(self.window)
    }

    /// True if the variant looks for queues and no packet waited in a queue lately.
    pub(super) fn sees_no_queue(&self) -> bool {
        self.variant.looks_for_queues && !self.min_rtt.shows_queue(self.batch_time())
    }

    /// The share of lost packets above which too much was in flight. Losses of the link itself are
    /// tolerated.
    pub(super) fn tolerated_loss(&self) -> f64 {
        if self.sees_no_queue() {
            return WITHOUT_QUEUE;
        }
        (LOSS_THRESHOLD + self.own_losses.share(self.mtu)).min(WITHOUT_QUEUE)
    }

    /// Of `bytes` sent, the bytes that the link may lose by chance beyond its mean share.
    pub(super) fn lost_by_chance(&self, bytes: f64) -> f64 {
        DEVIATIONS * (self.own_losses.share(self.mtu) * bytes * self.mtu).sqrt()
    }

    /// Of `bytes` sent, the lost bytes that prove nothing.
    pub(super) fn tolerated_of(&self, bytes: f64) -> f64 {
        self.tolerated_loss() * bytes + self.lost_by_chance(bytes)
    }

    /// True if the path has to slow down because of the losses of a round trip.
    pub(super) fn is_lossy(&self, round: &LossRound) -> bool {
        let tolerated = if self.variant.looks_for_queues {
            self.tolerated_of(round.lost + round.acked)
        } else {
            0.0
        };
        round.events > 0 && round.lost > tolerated
    }

    /// True if too large a part of the bytes that were in flight when the newest acknowledged
    /// packet left has been lost since.
    pub(super) fn is_in_flight_too_high(&self, sample: &Sample) -> bool {
        let lost = self.losses.bytes() - sample.at_departure.lost;
        lost > self.tolerated_of(sample.at_departure.bytes)
    }

    pub(super) fn start_down(&mut self, now: Instant) {
        self.reset_congestion_signals();
        self.cycle.acked_per_increment = f64::INFINITY;
        self.cycle.rounds = u64::from(self.random() < 0.5);
        let wait = MIN_WAIT + WAIT_SPREAD * self.random();
        self.cycle.wait = Duration::from_secs_f64(wait);
        self.cycle.began = now;
        self.cycle.feedback = Feedback::Stopping;
        self.rounds.restart(now);
        self.phase = Phase::Down;
    }

    pub(super) fn start_refill(&mut self, now: Instant) {
        self.bounds.forget_short_term();
        self.cycle.doublings = 0;
        self.cycle.acked = 0.0;
        self.cycle.was_precautionary = false;
        self.cycle.is_refilled = false;
        self.cycle.feedback = Feedback::Refilling;
        self.rounds.restart(now);
        self.phase = Phase::Refill;
    }

    fn reset_congestion_signals(&mut self) {
        self.losses.restart_round();
        self.latest = Latest::default();
    }
}
