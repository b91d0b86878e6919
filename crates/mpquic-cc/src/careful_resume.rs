//! Careful Resume (RFC 9959): a path starts with half of the bytes in flight that an earlier
//! connection found it to carry.
//!
//! A saved path first starts like any other path. Once ten datagrams have arrived without a loss,
//! and the RTT is similar to the saved one, the path may have half of the saved window in flight,
//! paced over a round trip. When the first of these packets is acknowledged, the bytes in flight
//! become the window of the algorithm. If too many of these packets are lost, the window becomes
//! half of the acknowledged bytes, the startup of the algorithm ends, and the saved window is
//! forgotten.

use std::fmt;
use std::time::{Duration, Instant};

use mpquic_core::congestion::{
    Acked, CongestionEvent, CongestionKind, Controller, ControllerWrapper, ResumePhase,
    SavedCapacity, Sent,
};
use mpquic_core::{PathId, PathMap};

/// Datagrams that have to arrive first (the initial window of RFC 9002 section 7.2).
const CONFIRMING: u64 = 10;
/// Upper limit of the bytes that have to arrive first, unless two datagrams are larger.
const CONFIRMING_BYTES: u64 = 14_720;
/// The saved window is divided by this number.
const USED_PART: u64 = 2;
/// An RTT at or below the saved RTT divided by this number belongs to another path.
const SHORTEST: u32 = 2;
/// An RTT at or above the saved RTT times this number belongs to another path.
const LONGEST: u32 = 10;

/// A result of resuming, from which an algorithm goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The path carries this many bytes in flight: their acknowledgements are arriving.
    AtLeast(u64),
    /// More was in flight than the path carries.
    TooMuch {
        /// Bytes to have in flight instead.
        window: u64,
        /// When the losses showed it.
        now: Instant,
    },
    /// This many bytes arrived in the end, after [`Found::TooMuch`].
    Arrived(u64),
}

/// A controller that can go on from the result of resuming.
pub trait Resumable: Controller {
    /// Share of losses, 0 to 1, up to which the startup of the algorithm sees no congestion.
    const TOLERATED_LOSS: f64;

    /// Goes on from a result.
    fn adopt(&mut self, path: PathId, found: Found);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The path behaves like a new path; `arrived` bytes were acknowledged so far.
    Reconnaissance { arrived: u64 },
    /// The path may have `window` bytes in flight, paced at `rate` bytes per second.
    Unvalidated { window: u64, rate: u64 },
    /// The packets that left up to `until` still have to be acknowledged. Later packets are paced
    /// at `rate` bytes per second or more.
    Validating { until: Instant, rate: u64 },
    /// Too many packets were lost. Packets sent up to `until` still have to be acknowledged.
    SafeRetreat { until: Instant },
}

/// The startup of a saved path.
#[derive(Debug)]
struct Start {
    saved: SavedCapacity,
    phase: Phase,
    mtu: u64,
    /// When the Unvalidated Phase began.
    began: Instant,
    /// The algorithm's own window at [`Self::began`], bytes.
    own_window: u64,
    /// When more than [`Self::own_window`] was first in flight.
    used: Option<Instant>,
    /// Bytes in flight at [`Self::began`], plus all bytes acknowledged since (`PipeSize`).
    pipe: u64,
    /// Bytes in flight at [`Self::began`], plus all bytes sent since.
    sent: u64,
    /// Bytes lost since [`Self::began`].
    lost: u64,
    in_flight: u64,
    last_sent: Instant,
}

/// The consequence of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Stay,
    Adopt(Found),
    /// Startup is over; adopts a result if there is one.
    Finish(Option<Found>),
}

impl Start {
    /// The window to resume with, bytes; `None` if the RTT belongs to another path. If the RTT is
    /// shorter than the saved one, because acknowledgements take another path, fewer bytes are in
    /// flight at the same rate.
    fn usable_window(&self, rtt: Duration) -> Option<u64> {
        let SavedCapacity { window, rtt: saved } = self.saved;
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

    /// Handles an acknowledgement. `room` is the algorithm's own window, bytes.
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
            // RFC 9959 section 3.3: the phase ends after a round trip, even if no acknowledgement
            // of its packets comes earlier.
            Phase::Unvalidated { rate, .. } => {
                // Packets that fit into the algorithm's own window confirm nothing. A server may
                // have to wait for the validation of the path before it sends more.
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

    /// Begins to use the saved window, if it is larger than the algorithm's own window `room`.
    fn jump(&mut self, ack: &Acked, room: u64) -> Step {
        let window = self.usable_window(ack.rtt.min);
        let Some(window) = window.filter(|window| *window > room) else {
            return Step::Finish(None);
        };
        // The smoothed RTT may still contain samples from before acknowledgements changed to
        // another path.
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
            // The path has changed.
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

/// Adds to a controller of this crate a quicker start of saved paths.
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

impl<C: Resumable + fmt::Debug> ControllerWrapper for CarefulResume<C> {
    fn inner(&self) -> &dyn Controller {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut dyn Controller {
        &mut self.inner
    }

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

    fn resume(&mut self, path: PathId, now: Instant, saved: SavedCapacity) {
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

    fn pacing_rate(&self, path: PathId) -> Option<u64> {
        let own = self.inner.pacing_rate(path);
        match self.starts.get(path).map(|start| start.phase) {
            // The algorithm may have found a higher rate by itself.
            Some(Phase::Unvalidated { rate, .. }) => Some(own.unwrap_or(0).max(rate)),
            Some(Phase::Validating { rate, .. }) => own.map(|own| own.max(rate)),
            _ => own,
        }
    }

    fn burst(&self, path: PathId) -> Option<u64> {
        let burst = self.inner.burst(path)?;
        (Controller::pacing_rate(self, path) == self.inner.pacing_rate(path)).then_some(burst)
    }
}

#[cfg(test)]
mod tests;
