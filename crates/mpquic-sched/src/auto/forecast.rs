//! [`Forecast`]: the time at which a path would deliver its next bytes.

use std::time::{Duration, Instant};

use mpquic_core::sched::{PathView, Sendable, View};
use mpquic_core::{PathId, PathMap};

use super::bottleneck::{Drain, QUEUED, bottleneck};
use crate::choice::{carriers, seconds};

/// Most round trips for which a window in slow start counts as growing. On a path with a queue, the
/// window counts as growing for one round trip.
const GROWING_ROUNDS: f64 = 4.0;
/// Longest expected one-way delay, seconds. The limit also bounds the wait for a path.
const LONGEST_DELAY: f64 = 10.0;
/// Shortest use of the first path, seconds, even if another path would deliver sooner after a
/// shorter use. A decision for each datagram would take longer than sending the datagram.
const GRAIN: f64 = 0.001;
/// The share of lost packets above which a path's bytes in flight count as mostly lost.
const HEAVY: f64 = 0.2;
/// The least number of acknowledged or lost datagrams for a share of losses.
const SAMPLE: u64 = 10;
/// DATAGRAMs wait here, instead of in the queue of a link, while all paths together could send the
/// waiting DATAGRAMs in less than this time, seconds.
const HELD: f64 = 0.15;
/// The length of a link's queue that DATAGRAMs may always fill, seconds.
const SMALL_QUEUE: f64 = 0.02;

/// The forecast for a path; times are seconds from now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Forecast {
    pub(super) path: PathId,
    /// The time at which the next datagram on the path would leave.
    pub(super) departure: f64,
    /// The time at which the next datagram on the path would arrive.
    pub(super) arrival: f64,
    /// The part of `arrival` due to losses, because a loss stops flow control.
    pub(super) stall: f64,
    pub(super) can_send: bool,
    /// The rate of the path's bottleneck, bytes per second, if a queue shows the rate.
    pub(super) bottleneck: Option<f64>,
    /// Sending rate while the window has room, bytes per second.
    pub(super) pace: f64,
    /// Free bytes of the window.
    room: f64,
    /// Bytes acknowledged per second.
    rate: f64,
    /// Factor by which `rate` grows in a round trip, 1 to 2.
    growth: f64,
    /// Smoothed RTT, seconds.
    round_trip: f64,
}

impl Forecast {
    fn new(path: &PathView, bottleneck: Option<f64>, growth: f64) -> Self {
        let round_trip = seconds(path.rtt.smoothed);
        let window = path.window.max(1) as f64;
        let in_slow_start = growth > 1.5;
        let per_round_trip = window / round_trip;
        let paced = path
            .pacing_rate
            .map_or(per_round_trip, |rate| (rate as f64).max(1.0));
        let (pace, rate) = match bottleneck {
            Some(rate) => (rate.min(paced), rate),
            None if in_slow_start => (paced.max(2.0 * per_round_trip), per_round_trip),
            None => (paced, paced),
        };
        Self {
            path: path.id,
            departure: 0.0,
            arrival: one_way_delay(path, bottleneck),
            bottleneck,
            stall: 0.0,
            can_send: path.can_send(),
            pace,
            room: path.available_window() as f64,
            rate,
            growth,
            round_trip,
        }
    }

    /// Adds the expected delay by losses: a loss among `at_risk` bytes stops all paths until the
    /// repair, a round trip later.
    fn stops_at_losses(&mut self, path: &PathView, at_risk: u64) {
        let packets = at_risk as f64 / f64::from(path.mtu) + 1.0;
        let any_lost = 1.0 - (1.0 - path.loss_rate).powf(packets);
        self.stall = any_lost * self.round_trip;
        self.arrival += self.stall;
    }

    fn is_queued(&self) -> bool {
        self.bottleneck.is_some()
    }

    fn leaves_after(&mut self, wait: f64) {
        self.departure += wait;
        self.arrival += wait;
    }

    /// Bytes that would have arrived after `time` seconds, if the path got only new bytes from now
    /// on.
    pub(super) fn delivered(&self, time: f64) -> f64 {
        let elapsed = (time - self.arrival).max(0.0);
        let most = if self.is_queued() {
            1.0
        } else {
            GROWING_ROUNDS
        };
        let growing = (elapsed / self.round_trip).min(most);
        let factor = self.growth.powf(growing);
        let while_growing = if self.growth > 1.01 {
            self.round_trip * (factor - 1.0) / self.growth.ln()
        } else {
            self.round_trip * growing
        };
        let seconds = while_growing + factor * (elapsed - growing * self.round_trip);
        (self.pace * seconds).min(self.room + self.rate * seconds)
    }
}

/// The history of a path, as far as forecasts need the history.
#[derive(Debug, Clone, Copy)]
struct Clock {
    /// Bytes sent.
    sent: u64,
    /// The time at which all sent bytes will have left, paced and not as a burst.
    free_at: Instant,
    /// Bytes acknowledged or lost.
    resolved: u64,
    /// When `resolved` last changed.
    heard_at: Instant,
    drain: Drain,
}

impl Clock {
    /// Seconds until the bytes handed to the path have left.
    fn busy(&self, now: Instant) -> f64 {
        self.free_at.saturating_duration_since(now).as_secs_f64()
    }

    /// Seconds until the path can send. The acknowledgement of the oldest packet opens a full
    /// window. The forecast expects a late acknowledgement after the lateness so far, once more. So
    /// a wait never lasts much longer than the time of its gain.
    fn opens_after(&self, path: &PathView, view: &View<'_>) -> f64 {
        let since = |time| view.now.saturating_duration_since(time);
        match path.sendable {
            Sendable::At(time) => time.saturating_duration_since(view.now).as_secs_f64(),
            Sendable::WindowFull => {
                let oldest = view.find_unacked(path.id, |_| true);
                let wait = match oldest {
                    Some(range) => since(range.sent_at).abs_diff(path.rtt.smoothed),
                    None => since(self.heard_at),
                };
                wait.as_secs_f64()
            }
            _ => 0.0,
        }
    }
}

/// Forecasts of all paths that carry data, the earliest arrival first.
#[derive(Debug, Default)]
pub(super) struct Forecasts {
    paths: Vec<Forecast>,
    windows: Vec<(PathId, u64)>,
    clocks: PathMap<Clock>,
}

impl Forecasts {
    pub(super) fn update(&mut self, view: &View<'_>) {
        self.paths.clear();
        self.windows.clear();
        self.paths.reserve(view.paths.len());
        self.windows.reserve(view.paths.len());
        self.windows
            .extend(carriers(view).map(|path| (path.id, path.window)));
        let at_risk = self.at_risk(view);
        for path in carriers(view) {
            let grown = view.controller.window_after_round(path.id, &self.windows);
            let growth = grown as f64 / path.window.max(1) as f64;
            let bottleneck = self.bottleneck(path, view.now);
            let mut forecast = Forecast::new(path, bottleneck, growth.clamp(1.0, 2.0));
            if let Some(bytes) = at_risk {
                forecast.stops_at_losses(path, bytes);
            }
            let clock = self.clock(path, &forecast, view.now);
            forecast.leaves_after(clock.busy(view.now).max(clock.opens_after(path, view)));
            self.paths.push(forecast);
        }
        if is_only_datagrams(view) {
            self.spare_queues(view);
        }
        self.paths
            .sort_unstable_by(|a, b| a.arrival.total_cmp(&b.arrival).then(a.path.cmp(&b.path)));
        tracing::trace!(paths = ?self.paths, "forecast");
    }

    /// Bytes that have to arrive before flow control lets later bytes follow: the bytes in flight
    /// and the next bytes to send. `None` if the windows limit the bytes in flight more than flow
    /// control.
    fn at_risk(&self, view: &View<'_>) -> Option<u64> {
        if is_only_datagrams(view) {
            // Flow control does not apply to DATAGRAMs.
            return None;
        }
        let queue = &view.queue;
        let under_way: u64 = view.paths.iter().map(|path| path.in_flight).sum();
        let windows = self.windows.iter().map(|(_, window)| window).sum();
        let is_limit = under_way.saturating_add(queue.flow_credit) < windows;
        is_limit.then(|| under_way + queue.unsent.min(queue.flow_credit))
    }

    /// Keeps DATAGRAMs from filling the queue of a link while few DATAGRAMs wait. Waiting DATAGRAMs
    /// may still take another path, and are not lost.
    fn spare_queues(&mut self, view: &View<'_>) {
        let rate: f64 = self.paths.iter().map(|forecast| forecast.rate).sum();
        if view.queue.datagrams as f64 > HELD * rate {
            return;
        }
        for forecast in self
            .paths
            .iter_mut()
            .filter(|forecast| forecast.is_queued())
        {
            let Some(path) = view.path(forecast.path) else {
                continue;
            };
            let least = seconds(path.rtt.min.min(path.rtt.smoothed));
            let queue = ((QUEUED - 1.0) * least).max(SMALL_QUEUE);
            forecast.can_send &= path.in_flight as f64 <= forecast.rate * (least + queue);
        }
    }

    /// The bottleneck rate of a path with a visible queue: the recent maximum of the delivery rate,
    /// or the queue's present drain rate if the drain rate is lower.
    fn bottleneck(&mut self, path: &PathView, now: Instant) -> Option<f64> {
        let drains = self.known(path, now).drain.update(path, now);
        let rate = bottleneck(path)?;
        Some(drains.map_or(rate, |drains| rate.min(drains)))
    }

    fn known(&mut self, path: &PathView, now: Instant) -> &mut Clock {
        let resolved = path.bytes_acked + path.bytes_lost;
        self.clocks.get_or_insert_with(path.id, || Clock {
            sent: path.bytes_sent,
            free_at: now,
            resolved,
            heard_at: now,
            drain: Drain::default(),
        })
    }

    fn clock(&mut self, path: &PathView, forecast: &Forecast, now: Instant) -> Clock {
        let resolved = path.bytes_acked + path.bytes_lost;
        let clock = self.known(path, now);
        if clock.resolved != resolved {
            clock.resolved = resolved;
            clock.heard_at = now;
        }
        let new = path.bytes_sent.saturating_sub(clock.sent).min(path.window) as f64;
        clock.sent = path.bytes_sent;
        if forecast.is_queued() {
            // The bytes wait in the queue, and the forecast already counts the queue's delay.
            clock.free_at = now;
        } else {
            let busy = Duration::from_secs_f64((new / forecast.pace).min(1.0));
            clock.free_at = clock.free_at.max(now) + busy;
        }
        *clock
    }

    /// The bottleneck rate of a path if a queue is visible.
    pub(super) fn bottleneck_of(&self, path: &PathView) -> Option<f64> {
        let mut known = self.paths.iter();
        match known.find(|forecast| forecast.path == path.id) {
            Some(forecast) => forecast.bottleneck,
            None => bottleneck(path),
        }
    }

    /// All forecasts, the earliest arrival first.
    pub(super) fn paths(&self) -> &[Forecast] {
        &self.paths
    }

    pub(super) fn remove(&mut self, path: PathId) {
        self.clocks.remove(path);
    }

    /// Bytes that the paths before path `index` could deliver until the arrival of a datagram on
    /// path `index`. The number is the position in the send queue of the data for path `index`.
    pub(super) fn position(&self, index: usize) -> f64 {
        let arrival = self.paths[index].arrival;
        let earlier = self.paths[..index].iter();
        earlier.map(|path| path.delivered(arrival)).sum()
    }

    /// Bytes that the first path can take before another path would deliver sooner, but at least
    /// the bytes that the first path sends in [`GRAIN`].
    pub(super) fn lead(&self) -> f64 {
        match self.paths[..] {
            [first, second, ..] => (second.arrival - first.arrival).max(GRAIN) * first.pace,
            _ => f64::INFINITY,
        }
    }
}

/// The share of lost packets of a path, above [`HEAVY`]: the queue overflows, or the link is bad.
pub(super) fn heavy_loss(path: &PathView) -> Option<f64> {
    let resolved = path.bytes_acked + path.bytes_lost;
    let is_known = resolved >= SAMPLE * u64::from(path.mtu);
    Some(path.loss_rate).filter(|lost| is_known && *lost > HEAVY)
}

/// True if only DATAGRAMs and control frames wait to be sent.
fn is_only_datagrams(view: &View<'_>) -> bool {
    let queue = &view.queue;
    queue.datagrams > 0 && queue.unsent == 0 && queue.retransmit == 0
}

/// Seconds from the departure of a datagram to its arrival. Without a queue, the delay is the
/// smoothed RTT less the return delay. Queues build up in the direction of the data; the bytes in
/// flight determine the time in the bottleneck's queue (Little's law).
pub(super) fn one_way_delay(path: &PathView, bottleneck: Option<f64>) -> f64 {
    let least = seconds(path.rtt.min.min(path.rtt.smoothed));
    let round_trip = match bottleneck {
        Some(rate) => ((path.in_flight as f64 + f64::from(path.mtu)) / rate).max(least),
        None => seconds(path.rtt.smoothed),
    };
    (round_trip - one_way_back(path)).min(LONGEST_DELAY)
}

/// Seconds that an acknowledgement takes: the known return delay, or half of the minimum RTT.
pub(super) fn one_way_back(path: &PathView) -> f64 {
    let least = seconds(path.rtt.min.min(path.rtt.smoothed));
    path.return_delay.map_or(least / 2.0, seconds).min(least)
}

/// A probe timeout (RFC 9002 section 6.2.1). A later acknowledgement is overdue.
pub(super) fn patience(path: &PathView) -> Duration {
    /// The default of `max_ack_delay`.
    const ACK_DELAY: Duration = Duration::from_millis(25);
    path.rtt.smoothed + 4 * path.rtt.variance + ACK_DELAY
}
