//! Careful Resume (RFC 9959): a path starts with half of what an earlier connection found it to carry.
//!
//! A path that is remembered starts as any other one does. Once as much as ten datagrams have arrived
//! without a loss, in a round trip like the one that is remembered, it may have half of the remembered
//! bytes in flight, paced over a round trip. What it had in flight when the first of them is
//! acknowledged becomes the window of the algorithm, which goes on from there. If too much of it is
//! lost, the window is half of what arrived, the start of the algorithm is over, and what was remembered
//! is forgotten.

use std::fmt;
use std::time::{Duration, Instant};

use mpquic_core::congestion::{
    Acked, CongestionEvent, CongestionKind, Controller, ResumePhase, SavedPath, Sent,
};
use mpquic_core::{PathId, PathMap};

/// Datagrams that have to arrive before (the initial window of RFC 9002 section 7.2),
const CONFIRMING: u64 = 10;
/// and their bytes, if that is less.
const CONFIRMING_BYTES: u64 = 14_720;
/// The part of what is remembered that is used.
const USED_PART: u64 = 2;
/// A round trip shorter than this part of the remembered one, or this many times as long, is that of
/// another path.
const SHORTEST: u32 = 2;
const LONGEST: u32 = 10;

/// What resuming found out about a path, for an algorithm to go on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// So many bytes in flight are acknowledged one after the other.
    AtLeast(u64),
    /// What was in flight at a time was too much.
    TooMuch {
        /// Bytes to have in flight instead.
        window: u64,
        /// The time.
        now: Instant,
    },
    /// So many bytes of it arrived in the end.
    Arrived(u64),
}

/// A controller that can go on from what resuming found out.
pub trait Resumable: Controller {
    /// Share of losses, 0 to 1, up to which the algorithm sees no congestion when it starts.
    const TOLERATED_LOSS: f64;

    /// Goes on with what was found.
    fn adopt(&mut self, path: PathId, found: Found);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// So many bytes have arrived.
    Reconnaissance { arrived: u64 },
    /// As much may be in flight, bytes, and leaves at this rate, bytes per second.
    Unvalidated { window: u64, rate: u64 },
    /// What left until then has to be acknowledged; what follows is paced at this rate at least.
    Validating { until: Instant, rate: u64 },
    /// The same after too many losses.
    SafeRetreat { until: Instant },
}

/// A path that is remembered, until its start is over.
#[derive(Debug)]
struct Start {
    saved: SavedPath,
    phase: Phase,
    mtu: u64,
    /// When the Unvalidated Phase began, and the algorithm's own window then, bytes.
    began: Instant,
    own_window: u64,
    /// When more was in flight than that for the first time.
    used: Option<Instant>,
    /// Bytes in flight then, and all that was acknowledged since (`PipeSize`).
    pipe: u64,
    /// Bytes sent and lost since then.
    sent: u64,
    lost: u64,
    in_flight: u64,
    last_sent: Instant,
}

/// What follows from an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Stay,
    Adopt(Found),
    /// The same, and the start is over.
    Finish(Option<Found>),
}

impl Start {
    /// What may be in flight, if the path is the remembered one. Where a round trip is shorter now,
    /// because acknowledgements take another path, less is in flight at the same rate.
    fn usable_window(&self, rtt: Duration) -> Option<u64> {
        let SavedPath { window, rtt: saved } = self.saved;
        let is_same = rtt > saved / SHORTEST && rtt < saved.saturating_mul(LONGEST);
        let part = rtt.as_secs_f64() / saved.as_secs_f64().max(1e-9);
        is_same
            .then(|| (window / USED_PART) as f64 * part.min(1.0))
            .map(|bytes| bytes as u64)
    }

    fn on_sent(&mut self, sent: &Sent) {
        (self.in_flight, self.last_sent) = (sent.in_flight, sent.now);
        self.sent += sent.bytes;
        if sent.in_flight > self.own_window {
            self.used.get_or_insert(sent.now);
        }
    }

    /// `room` is the algorithm's own window.
    fn on_ack(&mut self, ack: &Acked, room: u64) -> Step {
        let before = self.in_flight.max(ack.in_flight + ack.bytes);
        self.in_flight = ack.in_flight;
        self.pipe += ack.bytes;
        match &mut self.phase {
            Phase::Reconnaissance { arrived } => {
                *arrived += ack.bytes;
                let needed = (CONFIRMING * self.mtu).min(CONFIRMING_BYTES.max(2 * self.mtu));
                let is_confirmed = *arrived >= needed && ack.rtt.samples > 0;
                if is_confirmed && !ack.app_limited {
                    self.jump(ack, room)
                } else {
                    Step::Stay
                }
            }
            // RFC 9959 section 3.3: a round trip, even if it takes longer until something arrives.
            Phase::Unvalidated { rate, .. } => {
                // What the algorithm would have sent by itself tells nothing. A server may have to wait until a
                // path is validated before it sends more.
                let has_arrived = self.used.is_some_and(|used| ack.sent_at >= used);
                let since = self.used.unwrap_or(self.began);
                let time = ack.now.saturating_duration_since(since);
                if !has_arrived && time <= ack.rtt.smoothed {
                    return Step::Stay;
                }
                let (until, rate) = (self.last_sent, *rate);
                self.phase = Phase::Validating { until, rate };
                Step::Adopt(Found::AtLeast(before))
            }
            Phase::Validating { until, .. } if ack.sent_at >= *until => Step::Finish(None),
            Phase::Validating { .. } => Step::Stay,
            Phase::SafeRetreat { until } if ack.sent_at >= *until => {
                Step::Finish(Some(Found::Arrived(self.pipe)))
            }
            Phase::SafeRetreat { .. } => Step::Stay,
        }
    }

    /// Begins to use what is remembered, if it is of use.
    fn jump(&mut self, ack: &Acked, room: u64) -> Step {
        let window = self.usable_window(ack.rtt.min);
        let Some(window) = window.filter(|window| *window > room) else {
            return Step::Finish(None);
        };
        // The smoothed round trip may yet contain some from before acknowledgements took another path.
        let rate = window as f64 / ack.rtt.latest.as_secs_f64().max(1e-6);
        let rate = rate as u64;
        self.phase = Phase::Unvalidated { window, rate };
        self.began = ack.now;
        (self.own_window, self.used) = (room, None);
        (self.pipe, self.sent, self.lost) = (ack.in_flight, ack.in_flight, 0);
        Step::Stay
    }

    fn on_congestion(&mut self, event: &CongestionEvent, tolerated: f64) -> Step {
        if event.kind == CongestionKind::Spurious {
            return Step::Stay;
        }
        self.lost += event.lost_bytes;
        let is_tolerated =
            event.kind == CongestionKind::Loss && self.lost as f64 <= tolerated * self.sent as f64;
        let until = match self.phase {
            // The path is not as it was.
            Phase::Reconnaissance { .. } => return Step::Finish(None),
            _ if is_tolerated => return Step::Stay,
            Phase::SafeRetreat { .. } => return Step::Stay,
            Phase::Unvalidated { .. } => self.last_sent,
            Phase::Validating { until, .. } => until,
        };
        self.phase = Phase::SafeRetreat { until };
        let window = (self.pipe / 2).max(2 * self.mtu);
        let now = event.now;
        Step::Adopt(Found::TooMuch { window, now })
    }

    fn phase(&self) -> ResumePhase {
        match self.phase {
            Phase::Reconnaissance { .. } => ResumePhase::Reconnaissance,
            Phase::Unvalidated { .. } => ResumePhase::Unvalidated,
            Phase::Validating { .. } => ResumePhase::Validating,
            Phase::SafeRetreat { .. } => ResumePhase::SafeRetreat,
        }
    }
}

/// Any controller of this crate, with a quicker start on paths that are remembered.
#[derive(Debug, Default)]
pub struct CarefulResume<C> {
    inner: C,
    mtus: PathMap<u16>,
    starts: PathMap<Start>,
}

impl<C: Resumable> CarefulResume<C> {
    fn follow(&mut self, path: PathId, step: Step) {
        let found = match step {
            Step::Stay => None,
            Step::Adopt(found) => Some(found),
            Step::Finish(found) => {
                self.starts.remove(path);
                found
            }
        };
        if let Some(found) = found {
            self.inner.adopt(path, found);
        }
    }
}

impl<C: Resumable + fmt::Debug> Controller for CarefulResume<C> {
    fn on_path_opened(&mut self, path: PathId, now: Instant, mtu: u16) {
        self.starts.remove(path);
        self.mtus.insert(path, mtu);
        self.inner.on_path_opened(path, now, mtu);
    }

    fn on_path_closed(&mut self, path: PathId) {
        self.starts.remove(path);
        self.mtus.remove(path);
        self.inner.on_path_closed(path);
    }

    fn resume(&mut self, path: PathId, now: Instant, saved: SavedPath) {
        let Some(mtu) = self.mtus.get(path) else {
            return;
        };
        let start = Start {
            saved,
            phase: Phase::Reconnaissance { arrived: 0 },
            mtu: u64::from(*mtu),
            began: now,
            own_window: 0,
            used: None,
            pipe: 0,
            sent: 0,
            lost: 0,
            in_flight: 0,
            last_sent: now,
        };
        self.starts.insert(path, start);
    }

    fn resume_phase(&self, path: PathId) -> ResumePhase {
        let start = self.starts.get(path);
        start.map_or(ResumePhase::Normal, Start::phase)
    }

    fn on_mtu_update(&mut self, path: PathId, mtu: u16) {
        self.inner.on_mtu_update(path, mtu);
    }

    fn on_packet_sent(&mut self, path: PathId, sent: &Sent) {
        self.inner.on_packet_sent(path, sent);
        if let Some(start) = self.starts.get_mut(path) {
            start.on_sent(sent);
        }
    }

    fn on_ack(&mut self, path: PathId, ack: &Acked) {
        self.inner.on_ack(path, ack);
        if let Some(start) = self.starts.get_mut(path) {
            let step = start.on_ack(ack, self.inner.window(path));
            self.follow(path, step);
        }
    }

    fn on_congestion_event(&mut self, path: PathId, event: &CongestionEvent) {
        self.inner.on_congestion_event(path, event);
        if let Some(start) = self.starts.get_mut(path) {
            let step = start.on_congestion(event, C::TOLERATED_LOSS);
            self.follow(path, step);
        }
    }

    fn window(&self, path: PathId) -> u64 {
        let own = self.inner.window(path);
        match self.starts.get(path).map(|start| start.phase) {
            Some(Phase::Unvalidated { window, .. }) => own.max(window),
            _ => own,
        }
    }

    fn slow_start_threshold(&self, path: PathId) -> Option<u64> {
        self.inner.slow_start_threshold(path)
    }

    fn in_recovery(&self, path: PathId) -> bool {
        self.inner.in_recovery(path)
    }

    fn pacing_rate(&self, path: PathId) -> Option<u64> {
        let own = self.inner.pacing_rate(path);
        match self.starts.get(path).map(|start| start.phase) {
            // The algorithm may have found out by itself that the path carries more.
            Some(Phase::Unvalidated { rate, .. }) => Some(own.unwrap_or(0).max(rate)),
            Some(Phase::Validating { rate, .. }) => own.map(|own| own.max(rate)),
            _ => own,
        }
    }

    fn burst(&self, path: PathId) -> Option<u64> {
        let burst = self.inner.burst(path)?;
        (self.pacing_rate(path) == self.inner.pacing_rate(path)).then_some(burst)
    }

    fn window_after_round(&self, path: PathId, windows: &[(PathId, u64)]) -> u64 {
        self.inner.window_after_round(path, windows)
    }

    fn memory(&self) -> u64 {
        self.inner.memory()
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }
}

#[cfg(test)]
mod tests;
