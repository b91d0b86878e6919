//! BBRv3 (draft-ietf-ccwg-bbr-06).
//!
//! It models a path by the rate it delivers and its round-trip time without queues. The model gives
//! the sending rate and the bytes in flight; to keep it up to date, the path sometimes sends a
//! little faster or slower. Names are the draft's, in whole words: `inflight_longterm` is
//! [`Bounds::long_term`], and so on.
//!
//! Where the draft leaves a choice, or needs what a
//! [`Controller`](mpquic_core::congestion::Controller) cannot see:
//!
//! - ECN-CE (section 3.8): a round trip with a mark counts like one with too many losses while
//!   probing, and costs [`ECN_FACTOR`] of what may be in flight otherwise. How many packets were
//!   marked is not known.
//! - Losses come in batches; a batch counts as one of the six losses that may end startup, as in
//!   Linux.
//! - Randomness: waits are drawn from the nanoseconds of RTT samples.

use std::time::{Duration, Instant};

use mpquic_core::congestion::{Acked, CongestionEvent, CongestionKind, Sent};

mod aggregation;
mod bandwidth;
mod cycle;
mod losses;
mod min_rtt;
mod probe_rtt;
mod rounds;
mod send_log;

use crate::uncoupled::{PathController, PathLimits};
use aggregation::{Aggregation, Round};
use bandwidth::{FullPipe, Latest};
use cycle::Cycle;
use losses::{Losses, Undo};
use min_rtt::MinRtt;
use probe_rtt::ProbeRtt;
use rounds::Rounds;
use send_log::{Flight, SendLog};

pub(crate) use bandwidth::MaxBandwidth;
pub(crate) use cycle::Company;
pub(crate) use losses::LOSS_THRESHOLD;

/// Doubles the rate per round trip (`StartupPacingGain`).
const STARTUP_GAIN: f64 = 2.77;
/// Empties the queue startup left (`DrainPacingGain`).
const DRAIN_GAIN: f64 = 0.5;
/// Round trips draining may take.
const DRAIN_ROUNDS: u64 = 3;
const DOWN_GAIN: f64 = 0.9;
const UP_GAIN: f64 = 1.25;
/// Windows, in bandwidth-delay products (`DefaultCwndGain`).
const WINDOW_GAIN: f64 = 2.0;
const UP_WINDOW_GAIN: f64 = 2.25;
/// Pacing stays a little below the estimated bandwidth (`PacingMarginPercent`).
const PACING_MARGIN: f64 = 0.99;
/// The smallest window that keeps a path busy, datagrams (`MinPipeCwnd`).
const MIN_PIPE: f64 = 4.0;
/// Bytes of the largest initial window (RFC 9002 section 7.2).
const MAX_INITIAL_WINDOW: f64 = 14_720.0;
/// Bytes of the largest burst (`send_quantum`).
const MAX_QUANTUM: f64 = 65_536.0;

/// Where the path is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Doubles the rate until it no longer helps.
    Startup,
    /// Empties the queue that startup left.
    Drain,
    /// Sends slower than delivered.
    Down,
    /// Sends as fast as delivered.
    Cruise,
    /// Fills the path for a round trip.
    Refill,
    /// Sends faster than delivered, to see whether there is more.
    Up,
    /// Keeps little in flight, to measure the round-trip time without queues.
    ProbeRtt,
}

impl Phase {
    fn is_probe_bandwidth(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// True if more is in flight than the model allows, so that losses are expected.
    fn is_accelerating(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }

    fn pacing_gain(self) -> f64 {
        match self {
            Self::Startup => STARTUP_GAIN,
            Self::Drain => DRAIN_GAIN,
            Self::Down => DOWN_GAIN,
            Self::Cruise | Self::Refill | Self::ProbeRtt => 1.0,
            Self::Up => UP_GAIN,
        }
    }

    fn window_gain(self) -> f64 {
        match self {
            Self::Up => UP_WINDOW_GAIN,
            Self::ProbeRtt => probe_rtt::WINDOW_GAIN,
            _ => WINDOW_GAIN,
        }
    }
}

/// Bounds that follow from losses; infinite while there are none.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Bytes in flight, from the last probe: where it found too much, or what it found to be safe
    /// (`inflight_longterm`).
    long_term: f64,
    /// Bytes in flight until the next probe (`inflight_shortterm`).
    short_term: f64,
    /// Bytes per second until the next probe (`bw_shortterm`).
    short_term_bandwidth: f64,
}

impl Bounds {
    const NONE: Self = Self {
        long_term: f64::INFINITY,
        short_term: f64::INFINITY,
        short_term_bandwidth: f64::INFINITY,
    };

    fn forget_short_term(&mut self) {
        self.short_term = f64::INFINITY;
        self.short_term_bandwidth = f64::INFINITY;
    }
}

/// What an acknowledgement tells (`RS`).
#[derive(Debug, Clone, Copy)]
struct Sample {
    now: Instant,
    /// Delivery rate, bytes per second, if there is one.
    rate: Option<f64>,
    /// Delivered between sending the newest acknowledged packet and now, bytes.
    delivered: f64,
    app_limited: bool,
    newly_acked: f64,
    /// In flight now, bytes.
    in_flight: f64,
    /// The state of the path when the newest acknowledged packet left.
    at_departure: Flight,
    rtt: Option<Duration>,
}

/// BBRv3 on one path.
#[derive(Debug, Clone)]
pub struct Bbr {
    /// Share of losses in a round trip below which the short-term bounds stay; 0 in the draft.
    tolerated_loss: f64,
    mtu: f64,
    phase: Phase,
    window: f64,
    /// The last window that was not cut for `ProbeRtt` or by a loss.
    prior_window: f64,
    /// Bytes per second; `None` before the first RTT sample.
    pacing_rate: Option<f64>,
    rounds: Rounds,
    log: SendLog,
    max_bandwidth: MaxBandwidth,
    full_pipe: FullPipe,
    latest: Latest,
    bounds: Bounds,
    min_rtt: MinRtt,
    aggregation: Aggregation,
    losses: Losses,
    undo: Undo,
    cycle: Cycle,
    probe_rtt: ProbeRtt,
    /// Bytes delivered on this path.
    delivered: f64,
    smoothed_rtt: Duration,
    /// `RttSnapshot::samples` at the last sample taken.
    samples_seen: u64,
    /// Sending starts again after a pause.
    is_idle_restart: bool,
    /// When draining began, in round trips.
    drain_began: u64,
    /// The window was used up, in this and the last round trip.
    window_limited: [bool; 2],
    noise: u64,
    /// Paths that share the bottleneck, this one included.
    count: f64,
    /// The part of its largest bandwidth that this path had when the sum over the paths was
    /// largest.
    share: f64,
    /// The last delivery rate that the application did not limit, bytes per second.
    last_rate: f64,
}

impl Bbr {
    /// BBR that does not slow down while at most this share (0 to 1) of the packets of a round trip
    /// is lost, because such losses have other causes than a full queue.
    pub(crate) fn tolerating(tolerated_loss: f64, now: Instant, mtu: u16) -> Self {
        let mtu = f64::from(mtu);
        Self {
            tolerated_loss,
            mtu,
            phase: Phase::Startup,
            window: initial_window(mtu),
            prior_window: 0.0,
            pacing_rate: None,
            rounds: Rounds::default(),
            log: SendLog::default(),
            max_bandwidth: MaxBandwidth::default(),
            full_pipe: FullPipe::default(),
            latest: Latest::default(),
            bounds: Bounds::NONE,
            min_rtt: MinRtt::new(now),
            aggregation: Aggregation::new(now),
            losses: Losses::default(),
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
            last_rate: 0.0,
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// The estimated bandwidth, bytes per second.
    fn bandwidth(&self) -> f64 {
        self.max_bandwidth().min(self.bounds.short_term_bandwidth)
    }

    fn max_bandwidth(&self) -> f64 {
        self.max_bandwidth.get() * self.share
    }

    /// The largest recent delivery rate, bytes per second.
    pub(crate) fn largest_bandwidth(&self) -> f64 {
        self.max_bandwidth.get()
    }

    /// The last delivery rate that the application did not limit, bytes per second.
    pub(crate) fn last_rate(&self) -> f64 {
        self.last_rate
    }

    /// Cycles of probing so far.
    pub(crate) fn cycles(&self) -> u64 {
        self.max_bandwidth.cycles()
    }

    /// Bandwidth times the shortest round trip, bytes; `None` before there is a sample.
    fn bandwidth_delay_product(&self) -> Option<f64> {
        let rtt = self.min_rtt.get()?.as_secs_f64();
        Some(self.bandwidth() * rtt)
    }

    fn in_flight_for(&self, gain: f64, extra: f64) -> f64 {
        let product = self.bandwidth_delay_product();
        let wanted = product.map_or(initial_window(self.mtu), |product| gain * product);
        let wanted = (wanted + extra)
            .max(self.quantum())
            .max(self.min_pipe_window());
        if self.phase == Phase::Up {
            wanted + 2.0 * self.mtu / self.count
        } else {
            wanted
        }
    }

    fn min_pipe_window(&self) -> f64 {
        MIN_PIPE * self.mtu
    }

    /// The largest burst, bytes.
    fn quantum(&self) -> f64 {
        let rate = self.pacing_rate.unwrap_or(0.0);
        (rate * 0.001).min(MAX_QUANTUM).max(2.0 * self.mtu)
    }

    fn is_window_limited(&self) -> bool {
        self.window_limited[0] || self.window_limited[1]
    }

    /// A number from 0 to 1 that cannot be foreseen: the nanoseconds of RTT samples are random.
    fn random(&mut self) -> f64 {
        let mixed = (self.noise ^ (self.noise >> 31)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.noise = mixed;
        (mixed >> 11) as f64 / (1u64 << 53) as f64
    }

    fn sample(&mut self, ack: &Acked) -> Sample {
        self.smoothed_rtt = ack.rtt.smoothed;
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
            // Low rates after `ProbeRtt` do not come from the path.
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

    /// Section 5.2.3, `UpdateModelAndState`.
    fn update_model(&mut self, sample: &Sample, ack: &Acked, company: &Company) {
        self.rounds.on_ack(ack.now, ack.sent_at);
        if self.rounds.just_ended {
            self.cycle.rounds += 1;
            self.window_limited = [false, self.window_limited[0]];
        }
        self.losses.on_ack(ack);
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
        self.min_rtt.on_ack(sample.now, sample.rtt);
        self.check_probe_rtt(sample, ack);
        if losses_of_round.is_some() {
            self.latest = latest;
        }
    }

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
            let nominal = initial_window(self.mtu) / self.smoothed_rtt.as_secs_f64();
            self.pacing_rate = Some(STARTUP_GAIN * nominal);
        }
        self.set_pacing_rate(self.phase.pacing_gain());
        let wanted = self.in_flight_for(
            self.phase.window_gain(),
            self.aggregation.excess() / self.count,
        );
        let grown = self.window + sample.newly_acked;
        if self.full_pipe.was_full {
            self.window = grown.min(wanted);
        } else if self.window < wanted || self.delivered < initial_window(self.mtu) {
            self.window = grown;
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

    fn set_pacing_rate(&mut self, gain: f64) {
        let rate = gain * self.bandwidth() * PACING_MARGIN;
        let is_faster = self.pacing_rate.is_some_and(|current| rate > current);
        if rate > 0.0 && (self.full_pipe.was_full || is_faster) {
            self.pacing_rate = Some(rate);
        }
    }

    fn save_window(&mut self) {
        self.prior_window = if self.losses.in_recovery() || self.phase == Phase::ProbeRtt {
            self.prior_window.max(self.window)
        } else {
            self.window
        };
    }

    fn restore_window(&mut self) {
        self.window = self.window.max(self.prior_window);
    }

    /// Handles an acknowledgement, considering what other paths ask.
    pub(crate) fn on_ack_in(&mut self, ack: &Acked, company: &Company) {
        self.count = company.count;
        self.share = company.share;
        let sample = self.sample(ack);
        self.update_model(&sample, ack, company);
        self.update_controls(&sample);
    }
}

/// RFC 9002 section 7.2
fn initial_window(mtu: f64) -> f64 {
    (10.0 * mtu).min(MAX_INITIAL_WINDOW.max(2.0 * mtu))
}

impl PathController for Bbr {
    const NAME: &'static str = "bbr";

    fn new(now: Instant, mtu: u16) -> Self {
        Self::tolerating(0.0, now, mtu)
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        // RFC 9002 section 7.2: the initial window follows the datagram size.
        let untouched = self.window == initial_window(self.mtu);
        self.mtu = f64::from(mtu);
        if untouched {
            self.window = initial_window(self.mtu);
        }
    }

    fn on_packet_sent(&mut self, sent: &Sent) {
        if sent.in_flight <= sent.bytes {
            self.restart_from_idle(sent.now);
        }
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

    fn limits(&self) -> PathLimits {
        let mut limits = PathLimits::new(self.window.max(2.0 * self.mtu) as u64);
        limits.in_recovery = self.losses.in_recovery();
        limits.pacing_rate = self.pacing_rate.map(|rate| rate.max(1.0) as u64);
        limits
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
