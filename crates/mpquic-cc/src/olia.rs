//! OLIA, the opportunistic linked increases algorithm (Khalili et al., CoNEXT 2012;
//! draft-khalili-mptcp-congestion-control-05).

use std::time::Instant;

use mpquic_core::PathId;
use mpquic_core::congestion::{Acked, CongestionEvent, Controller, Sent};

use crate::path_map::PathMap;
use crate::window::{Reaction, Window};

/// What a loss leaves of the window.
const LOSS_FACTOR: f64 = 0.5;
/// Shortest RTT in calculations, seconds; nothing divides by zero.
const MIN_RTT: f64 = 1e-6;

/// Bytes acknowledged between losses.
#[derive(Debug, Clone, Copy, Default)]
struct LossInterval {
    /// Between the last two losses.
    previous: f64,
    /// Since the last one, or since the start.
    current: f64,
}

#[derive(Debug)]
struct OliaPath {
    window: Window,
    interval: LossInterval,
    interval_before_cut: LossInterval,
    /// Smoothed RTT in seconds; `None` before the first sample.
    rtt: Option<f64>,
    in_flight: u64,
    app_limited: bool,
}

impl OliaPath {
    fn new(mtu: u16) -> Self {
        Self {
            window: Window::new(mtu),
            interval: LossInterval::default(),
            interval_before_cut: LossInterval::default(),
            rtt: None,
            in_flight: 0,
            app_limited: false,
        }
    }

    /// The part of the window in use: a path that idles must not count with a window it once had.
    fn effective_window(&self) -> f64 {
        let bytes = self.window.bytes;
        if self.app_limited || self.in_flight == 0 {
            bytes.min((self.in_flight as f64).max(self.window.minimum()))
        } else {
            bytes
        }
    }

    /// Ranks paths by the rate Reno would reach on them. The kernel's form: that rate grows with
    /// the root of the loss interval over the RTT, so its square is interval / RTT². (The draft's
    /// interval² / RTT ranks by something else.)
    fn quality(&self, rtt: f64) -> f64 {
        self.interval.previous.max(self.interval.current) / (rtt * rtt)
    }

    fn packets(&self, bytes: f64) -> u64 {
        (bytes / self.window.mtu()) as u64
    }

    fn on_congestion_event(&mut self, event: &CongestionEvent) {
        match self.window.on_congestion_event(event, LOSS_FACTOR) {
            Reaction::None => {}
            Reaction::Cut => {
                self.interval_before_cut = self.interval;
                // Two losses with nothing delivered between them are one.
                if self.interval.current > 0.0 {
                    self.interval.previous = self.interval.current;
                    self.interval.current = 0.0;
                }
            }
            Reaction::Collapsed => self.interval = LossInterval::default(),
            Reaction::Restored => {
                let delivered_since = self.interval.current;
                self.interval = self.interval_before_cut;
                self.interval.current += delivered_since;
            }
        }
    }
}

/// A path of the coupled set with the windows to calculate with, bytes.
struct Member<'a> {
    id: PathId,
    path: &'a OliaPath,
    rtt: f64,
    own: f64,
    effective: f64,
}

/// Coupled congestion avoidance: all paths together grow about as fast as one Reno flow on the
/// best of them, and traffic moves to the best paths. A path that others outdo may shrink without
/// a loss. Slow start and the reaction to losses are Reno's, path by path.
#[derive(Debug, Default)]
pub struct Olia {
    paths: PathMap<OliaPath>,
}

impl Olia {
    /// The paths that are coupled, those with an RTT sample, at their present windows.
    fn members(&self) -> impl Iterator<Item = Member<'_>> + Clone {
        self.paths.iter().filter_map(|(id, path)| {
            Some(Member {
                id,
                path,
                rtt: path.rtt?,
                own: path.window.bytes,
                effective: path.effective_window(),
            })
        })
    }
}

/// The share of growth moved to or from `path`: towards the best paths whose windows are small,
/// away from those with the largest windows. The sum over all paths is 0.
fn alpha<'a>(path: PathId, members: impl Iterator<Item = Member<'a>> + Clone) -> f64 {
    let mut best = 0.0f64;
    let mut largest = 0u64;
    for member in members.clone() {
        best = best.max(member.path.quality(member.rtt));
        // In whole packets: in bytes no two windows would ever be equal.
        largest = largest.max(member.path.packets(member.own));
    }
    let (mut count, mut largest_count, mut collected_count) = (0.0, 0.0, 0.0);
    let (mut is_largest, mut is_collected) = (false, false);
    for member in members {
        count += 1.0;
        let largest_window = member.path.packets(member.own) == largest;
        let best_quality = member.path.quality(member.rtt) >= best * (1.0 - 1e-9);
        let collected = best_quality && !largest_window;
        largest_count += f64::from(u8::from(largest_window));
        collected_count += f64::from(u8::from(collected));
        if member.id == path {
            (is_largest, is_collected) = (largest_window, collected);
        }
    }
    if is_collected {
        1.0 / (count * collected_count)
    } else if is_largest && collected_count > 0.0 {
        -1.0 / (count * largest_count)
    } else {
        0.0
    }
}

/// Growth of the window of `path` in bytes for `acked` bytes; may be negative.
fn growth<'a>(
    path: PathId,
    acked: f64,
    members: impl Iterator<Item = Member<'a>> + Clone,
) -> Option<f64> {
    let rate: f64 = members
        .clone()
        .map(|member| member.effective / member.rtt)
        .sum();
    let alpha = alpha(path, members.clone());
    let member = { members }.find(|member| member.id == path)?;
    let coupled = member.own / (member.rtt * member.rtt) / (rate * rate);
    Some(acked * member.path.window.mtu() * (coupled + alpha / member.own))
}

impl Controller for Olia {
    fn on_path_opened(&mut self, path: PathId, _: Instant, mtu: u16) {
        self.paths.insert(path, OliaPath::new(mtu));
    }

    fn on_path_closed(&mut self, path: PathId) {
        self.paths.remove(path);
    }

    fn on_mtu_update(&mut self, path: PathId, mtu: u16) {
        if let Some(path) = self.paths.find_mut(path) {
            path.window.on_mtu_update(mtu);
        }
    }

    fn on_packet_sent(&mut self, path: PathId, sent: &Sent) {
        if let Some(path) = self.paths.find_mut(path) {
            path.in_flight = sent.in_flight;
        }
    }

    fn on_ack(&mut self, path: PathId, ack: &Acked) {
        let Some(state) = self.paths.find_mut(path) else {
            return;
        };
        if ack.rtt.samples > 0 {
            state.rtt = Some(ack.rtt.smoothed.as_secs_f64().max(MIN_RTT));
        }
        state.in_flight = ack.in_flight;
        state.app_limited = ack.app_limited;
        state.interval.current += ack.bytes as f64;
        let Some(acked) = state.window.on_ack(ack) else {
            return;
        };
        let Some(growth) = growth(path, acked, self.members()) else {
            return;
        };
        if let Some(state) = self.paths.find_mut(path) {
            let window = &mut state.window;
            window.set(window.bytes + growth);
            if growth < 0.0 {
                // Shrinking must not restart slow start.
                window.slow_start_threshold = window.slow_start_threshold.min(window.bytes);
            }
        }
    }

    fn on_congestion_event(&mut self, path: PathId, event: &CongestionEvent) {
        if let Some(path) = self.paths.find_mut(path) {
            path.on_congestion_event(event);
        }
    }

    fn window(&self, path: PathId) -> u64 {
        self.paths
            .find(path)
            .map_or(0, |path| path.window.rounded())
    }

    fn slow_start_threshold(&self, path: PathId) -> Option<u64> {
        self.paths
            .find(path)
            .and_then(|path| path.window.threshold())
    }

    fn in_recovery(&self, path: PathId) -> bool {
        self.paths
            .find(path)
            .is_some_and(|path| path.window.in_recovery())
    }

    fn window_after_round(&self, path: PathId, windows: &[(PathId, u64)]) -> u64 {
        let given = |id: PathId| {
            let index = windows.binary_search_by_key(&id, |(id, _)| *id).ok()?;
            Some(windows[index].1 as f64)
        };
        let Some(bytes) = given(path) else {
            return 0;
        };
        let Some(state) = self.paths.find(path) else {
            return bytes as u64;
        };
        if let Some(next) = state.window.slow_start_round(bytes) {
            return next as u64;
        }
        let members = self.members().map(|member| {
            let window = given(member.id).map(|bytes| bytes.max(1.0));
            Member {
                own: window.unwrap_or(member.own),
                effective: window.unwrap_or(member.effective),
                ..member
            }
        });
        let growth = growth(path, bytes, members).unwrap_or(0.0);
        (bytes + growth).max(state.window.minimum()) as u64
    }

    fn name(&self) -> &'static str {
        "olia"
    }
}

#[cfg(test)]
mod tests;
