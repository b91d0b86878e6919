//! The common part of all window-based controllers: limits of the window, slow start, recovery
//! periods, and undoing the reaction to a spurious loss (RFC 9002 section 7).

use std::time::Instant;

use mpquic_core::congestion::{Acked, CongestionEvent, CongestionKind, Sent};

use crate::careful_resume::Found;
use crate::prr::RateReduction;
use crate::slow_start::{SlowStart, Step};
use crate::uncoupled::PathLimits;

/// Largest initial window, bytes (RFC 9002 section 7.2).
const MAX_INITIAL_WINDOW: f64 = 14_720.0;

/// The effect of a congestion event on a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// No effect: the event belongs to the current recovery period, or there was nothing to undo.
    None,
    /// The window was cut and a recovery period began.
    Cut,
    /// Persistent congestion: the window fell to the minimum.
    Collapsed,
    /// The last cut was undone.
    Restored,
}

/// The window before the last cut.
#[derive(Debug, Clone, Copy)]
struct Snapshot {
    bytes: f64,
    slow_start_threshold: f64,
    /// When the recovery period before the last one began.
    previous_recovery: Option<Instant>,
}

/// A congestion window in bytes, including fractions.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub(crate) bytes: f64,
    /// Slow start threshold, bytes; infinite until slow start has ended once.
    pub(crate) slow_start_threshold: f64,
    mtu: f64,
    slow_start: SlowStart,
    recovery_start: Option<Instant>,
    recovering: bool,
    /// Brings the bytes in flight down to the window during a recovery period.
    reduction: Option<RateReduction>,
    /// When bytes were last acknowledged, and their number.
    last_acked: Option<(Instant, f64)>,
    snapshot: Option<Snapshot>,
}

impl Window {
    pub(crate) fn new(mtu: u16) -> Self {
        let mtu = f64::from(mtu);
        Self {
            bytes: initial(mtu),
            slow_start_threshold: f64::INFINITY,
            mtu,
            slow_start: SlowStart::new(),
            recovery_start: None,
            recovering: false,
            reduction: None,
            last_acked: None,
            snapshot: None,
        }
    }

    /// Largest datagram, bytes.
    pub(crate) fn mtu(&self) -> f64 {
        self.mtu
    }

    /// Bytes that may be in flight now, rounded down: the window, or during a recovery period the
    /// limit on the way to the window (RFC 9937).
    pub(crate) fn limit(&self) -> u64 {
        let limit = self.reduction.map_or(self.bytes, |prr| prr.limit());
        limit.max(self.minimum()) as u64
    }

    /// The limits of the path.
    pub(crate) fn limits(&self) -> PathLimits {
        let mut limits = PathLimits::new(self.limit());
        limits.slow_start_threshold = self.threshold();
        limits.in_recovery = self.recovering;
        limits
    }

    /// The window in whole bytes.
    #[cfg(test)]
    pub(crate) fn rounded(&self) -> u64 {
        self.bytes as u64
    }

    /// The smallest window, bytes (RFC 9002 section 7.2).
    pub(crate) fn minimum(&self) -> f64 {
        2.0 * self.mtu
    }

    pub(crate) fn threshold(&self) -> Option<u64> {
        let threshold = self.slow_start_threshold;
        threshold.is_finite().then_some(threshold as u64)
    }

    pub(crate) fn in_slow_start(&self) -> bool {
        self.bytes < self.slow_start_threshold
    }

    pub(crate) fn in_recovery(&self) -> bool {
        self.recovering
    }

    pub(crate) fn on_mtu_update(&mut self, mtu: u16) {
        // RFC 9002 section 7.2: the initial window follows the datagram size.
        let untouched = self.bytes == initial(self.mtu);
        self.mtu = f64::from(mtu);
        if untouched {
            self.bytes = initial(self.mtu);
        }
        self.bytes = self.bytes.max(self.minimum());
    }

    pub(crate) fn on_packet_sent(&mut self, sent: &Sent) {
        if let Some(reduction) = &mut self.reduction {
            reduction.on_packet_sent(sent);
        }
    }

    /// Handles an acknowledgement, and grows the window if it is in slow start. Returns the
    /// acknowledged bytes that count for congestion avoidance. None count in slow start, in a
    /// recovery period, or if the window did not limit sending (RFC 9002 sections 7.3.2 and 7.8).
    pub(crate) fn on_ack(&mut self, ack: &Acked) -> Option<f64> {
        self.last_acked = Some((ack.now, ack.bytes as f64));
        if self
            .recovery_start
            .is_some_and(|start| ack.sent_at <= start)
        {
            if let Some(reduction) = &mut self.reduction {
                reduction.on_ack(ack, self.bytes, self.mtu);
            }
            return None;
        }
        self.recovering = false;
        self.reduction = None;
        if ack.app_limited {
            return None;
        }
        let bytes = ack.bytes as f64;
        if !self.in_slow_start() {
            return Some(bytes);
        }
        let mut growth = bytes;
        if self.slow_start_threshold.is_infinite() {
            match self.slow_start.on_ack(ack) {
                Step::Grow(share) => growth *= share,
                Step::Exit => {
                    self.slow_start_threshold = self.bytes;
                    return Some(bytes);
                }
            }
        }
        let room = self.slow_start_threshold - self.bytes;
        self.bytes += growth.min(room);
        (growth > room).then_some(growth - room)
    }

    /// Reacts to a congestion event; a cut leaves `factor` of the window.
    pub(crate) fn on_congestion_event(&mut self, event: &CongestionEvent, factor: f64) -> Reaction {
        match event.kind {
            CongestionKind::Loss | CongestionKind::Ecn => {
                if self.cut(event, factor) {
                    Reaction::Cut
                } else {
                    Reaction::None
                }
            }
            // RFC 9002 section 7.6.2
            CongestionKind::Persistent => {
                self.cut(event, factor);
                self.bytes = self.minimum();
                self.reduction = None;
                self.snapshot = None;
                Reaction::Collapsed
            }
            CongestionKind::Spurious => self.restore(event),
            _ => Reaction::None,
        }
    }

    /// Begins a recovery period unless the event belongs to the last one. Returns true if it began.
    fn cut(&mut self, event: &CongestionEvent, factor: f64) -> bool {
        let previous_recovery = self.recovery_start;
        // RFC 9002 section 7.3.2: one cut per round trip.
        if previous_recovery.is_some_and(|start| event.sent_at <= start) {
            if let Some(reduction) = &mut self.reduction {
                reduction.on_loss(event, self.bytes, self.mtu);
            }
            return false;
        }
        self.snapshot = Some(Snapshot {
            bytes: self.bytes,
            slow_start_threshold: self.slow_start_threshold,
            previous_recovery,
        });
        self.recovery_start = Some(event.now);
        self.recovering = true;
        self.slow_start_threshold = (self.bytes * factor).max(self.minimum());
        self.bytes = self.slow_start_threshold;
        let acked = self.last_acked.filter(|(time, _)| *time == event.now);
        let delivered = acked.map_or(0.0, |(_, bytes)| bytes);
        let reduction = RateReduction::new(event, delivered, self.bytes, self.mtu);
        self.reduction = Some(reduction);
        true
    }

    fn restore(&mut self, event: &CongestionEvent) -> Reaction {
        // A packet of an earlier recovery period did not cause the last cut.
        let concerns_last_cut = |snapshot: &mut Snapshot| {
            let previous = snapshot.previous_recovery;
            previous.is_none_or(|start| event.sent_at > start)
        };
        let Some(snapshot) = self.snapshot.take_if(concerns_last_cut) else {
            return Reaction::None;
        };
        self.bytes = self.bytes.max(snapshot.bytes);
        self.slow_start_threshold = self.slow_start_threshold.max(snapshot.slow_start_threshold);
        self.recovery_start = snapshot.previous_recovery;
        self.recovering = false;
        self.reduction = None;
        Reaction::Restored
    }

    /// Goes on from a result of resuming (RFC 9959 section 3).
    pub(crate) fn adopt(&mut self, found: Found) {
        match found {
            Found::AtLeast(bytes) => self.bytes = self.bytes.max(bytes as f64),
            Found::TooMuch { window, now } => {
                self.set(window as f64);
                self.slow_start_threshold = self.bytes;
                // Packets that left earlier neither let the window grow nor cause another cut.
                self.recovery_start = Some(now);
                self.recovering = true;
                self.reduction = None;
                self.snapshot = None;
            }
            Found::Arrived(bytes) => {
                let half = (bytes as f64 / 2.0).max(self.minimum());
                self.slow_start_threshold = self.slow_start_threshold.max(half);
            }
        }
    }

    /// Sets the window in bytes, but not below the minimum.
    pub(crate) fn set(&mut self, bytes: f64) {
        self.bytes = bytes.max(self.minimum());
    }

    /// Limits the window to this many datagrams.
    pub(crate) fn cap(&mut self, datagrams: f64) {
        self.bytes = self.bytes.min(datagrams * self.mtu);
    }

    /// Adds `bytes` to the window in congestion avoidance; negative numbers shrink it.
    pub(crate) fn grow(&mut self, bytes: f64) {
        self.set(self.bytes + bytes);
        if bytes < 0.0 {
            // A smaller window must not restart slow start.
            self.slow_start_threshold = self.slow_start_threshold.min(self.bytes);
        }
    }

    /// The window after a loss-free round of slow start, if it was `bytes` before; `None` in
    /// congestion avoidance.
    pub(crate) fn slow_start_round(&self, bytes: f64) -> Option<f64> {
        (bytes < self.slow_start_threshold)
            .then(|| (2.0 * bytes).min(self.slow_start_threshold.max(bytes)))
    }
}

/// The initial window, bytes (RFC 9002 section 7.2).
fn initial(mtu: f64) -> f64 {
    (10.0 * mtu).min(MAX_INITIAL_WINDOW.max(2.0 * mtu))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::{acked, congestion, start};

    const RTT: Duration = Duration::from_millis(20);

    #[test]
    fn initial_window_follows_the_datagram_size() {
        for (mtu, expected) in [
            (1200, 12_000),
            (1472, 14_720),
            (1500, 14_720),
            (9000, 18_000),
        ] {
            assert_eq!(Window::new(mtu).rounded(), expected);
            let mut window = Window::new(1200);
            window.on_mtu_update(mtu);
            assert_eq!(window.rounded(), expected);
        }
    }

    #[test]
    fn slow_start_grows_by_acknowledged_bytes_up_to_the_threshold() {
        let now = start();
        let mut window = Window::new(1200);
        assert_eq!(window.on_ack(&acked(now + RTT, now, 2400)), None);
        assert_eq!(window.rounded(), 14_400);
        window.slow_start_threshold = 15_000.0;
        assert_eq!(window.on_ack(&acked(now + RTT, now, 2400)), Some(1800.0));
        assert_eq!(window.rounded(), 15_000);
    }

    #[test]
    fn one_cut_per_round_trip() {
        let now = start();
        let mut window = Window::new(1200);
        let loss = congestion(CongestionKind::Loss, now + RTT, now);
        assert_eq!(window.on_congestion_event(&loss, 0.5), Reaction::Cut);
        assert_eq!(window.rounded(), 6_000);
        assert!(window.in_recovery());

        // This packet was sent before the cut: it belongs to the same period, and its
        // acknowledgement does not grow the window.
        let ecn = congestion(CongestionKind::Ecn, now + RTT * 3 / 2, now + RTT);
        assert_eq!(window.on_congestion_event(&ecn, 0.5), Reaction::None);
        assert_eq!(
            window.on_ack(&acked(now + RTT * 3 / 2, now + RTT, 1200)),
            None
        );
        assert!(window.in_recovery());

        let sent_at = now + RTT * 3 / 2;
        let ack = acked(sent_at + RTT, sent_at, 1200);
        assert_eq!(window.on_ack(&ack), Some(1200.0));
        assert!(!window.in_recovery());
        let loss = congestion(CongestionKind::Loss, sent_at + RTT, sent_at);
        assert_eq!(window.on_congestion_event(&loss, 0.5), Reaction::Cut);
        assert_eq!(window.rounded(), 3_000);
    }

    #[test]
    fn never_below_two_datagrams() {
        let mut now = start();
        let mut window = Window::new(1200);
        for _ in 0..10 {
            let loss = congestion(CongestionKind::Loss, now + RTT, now);
            window.on_congestion_event(&loss, 0.5);
            now += 2 * RTT;
        }
        assert_eq!(window.rounded(), 2_400);
        window.on_mtu_update(1400);
        assert_eq!(window.rounded(), 2_800);
    }

    #[test]
    fn no_growth_while_the_application_is_the_limit() {
        let now = start();
        let mut window = Window::new(1200);
        let mut ack = acked(now + RTT, now, 12_000);
        ack.app_limited = true;
        assert_eq!(window.on_ack(&ack), None);
        assert_eq!(window.rounded(), 12_000);
    }

    #[test]
    fn persistent_congestion_collapses_whichever_event_comes_first() {
        let now = start();
        let loss = congestion(CongestionKind::Loss, now + RTT, now);
        let persistent = congestion(CongestionKind::Persistent, now + RTT, now);
        for events in [[loss, persistent], [persistent, loss]] {
            let mut window = Window::new(1200);
            for event in &events {
                window.on_congestion_event(event, 0.5);
            }
            assert_eq!(window.rounded(), 2_400);
            assert_eq!(window.threshold(), Some(6_000));
        }
    }

    #[test]
    fn a_spurious_loss_is_taken_back_once() {
        let now = start();
        let mut window = Window::new(1200);
        let loss = congestion(CongestionKind::Loss, now + RTT, now);
        let spurious = congestion(CongestionKind::Spurious, now + 2 * RTT, now);
        window.on_congestion_event(&loss, 0.5);
        assert_eq!(
            window.on_congestion_event(&spurious, 0.5),
            Reaction::Restored
        );
        assert_eq!((window.rounded(), window.threshold()), (12_000, None));
        assert!(!window.in_recovery());
        assert_eq!(window.on_congestion_event(&spurious, 0.5), Reaction::None);
    }

    #[test]
    fn spurious_older_loss_does_not_undo_a_newer_cut() {
        let now = start();
        let mut window = Window::new(1200);
        let first = congestion(CongestionKind::Loss, now + RTT, now);
        window.on_congestion_event(&first, 0.5);
        let second = congestion(CongestionKind::Loss, now + 3 * RTT, now + 2 * RTT);
        window.on_congestion_event(&second, 0.5);
        let spurious = congestion(CongestionKind::Spurious, now + 4 * RTT, now);
        assert_eq!(window.on_congestion_event(&spurious, 0.5), Reaction::None);
        assert_eq!(window.rounded(), 3_000);
    }

    #[test]
    fn spurious_loss_undoes_the_last_cut_if_sent_after_the_cut_before() {
        let now = start();
        let restored = |sent_at| {
            let mut window = Window::new(1200);
            let first = congestion(CongestionKind::Loss, now + RTT, now);
            window.on_congestion_event(&first, 0.5);
            let second = congestion(CongestionKind::Loss, now + 3 * RTT, now + 2 * RTT);
            window.on_congestion_event(&second, 0.5);
            let spurious = congestion(CongestionKind::Spurious, now + 4 * RTT, sent_at);
            let reaction = window.on_congestion_event(&spurious, 0.5);
            (reaction, window.rounded(), window.threshold())
        };
        let none = (Reaction::None, 3_000, Some(3_000));
        assert_eq!(restored(now + RTT), none);
        let all = (Reaction::Restored, 6_000, Some(6_000));
        assert_eq!(restored(now + RTT + Duration::from_nanos(1)), all);
    }

    #[test]
    fn restored_window_is_no_smaller_than_the_current_one() {
        let now = start();
        let mut window = Window::new(1200);
        window.slow_start_threshold = 12_000.0;
        let loss = congestion(CongestionKind::Loss, now + RTT, now);
        window.on_congestion_event(&loss, 0.5);
        window.set(50_000.0);
        window.slow_start_threshold = 40_000.0;
        let spurious = congestion(CongestionKind::Spurious, now + 2 * RTT, now);
        window.on_congestion_event(&spurious, 0.5);
        assert_eq!(
            (window.rounded(), window.threshold()),
            (50_000, Some(40_000))
        );
    }

    /// RFC 9002 section 7.3.2: with the cut, its recovery period is taken back.
    #[test]
    fn packets_of_a_recovery_taken_back_grow_and_cut_the_window() {
        let now = start();
        let spurious = congestion(CongestionKind::Spurious, now + 2 * RTT, now);
        let restored = || {
            let mut window = Window::new(1200);
            let loss = congestion(CongestionKind::Loss, now + RTT, now);
            window.on_congestion_event(&loss, 0.5);
            window.on_congestion_event(&spurious, 0.5);
            assert_eq!(window.rounded(), 12_000);
            window
        };
        // Sent before the cut that was taken back.
        let sent_at = now + RTT / 2;
        let mut window = restored();
        window.on_ack(&acked(now + 3 * RTT, sent_at, 1200));
        assert_eq!(window.rounded(), 13_200);
        let mut window = restored();
        let loss = congestion(CongestionKind::Loss, now + 3 * RTT, sent_at);
        assert_eq!(window.on_congestion_event(&loss, 0.5), Reaction::Cut);
        assert_eq!(window.rounded(), 6_000);
    }

    /// RFC 9002 section 7.6.2: a late packet does not show that the others arrived.
    #[test]
    fn persistent_congestion_is_never_taken_back() {
        let now = start();
        let loss = congestion(CongestionKind::Loss, now + RTT, now);
        let persistent = congestion(CongestionKind::Persistent, now + RTT, now);
        let spurious = congestion(CongestionKind::Spurious, now + 2 * RTT, now);
        for events in [&[loss, persistent][..], &[persistent]] {
            let mut window = Window::new(1200);
            for event in events {
                window.on_congestion_event(event, 0.5);
            }
            assert_eq!(window.on_congestion_event(&spurious, 0.5), Reaction::None);
            assert_eq!(window.rounded(), 2_400);
            assert_eq!(window.threshold(), Some(6_000));
        }
    }

    /// RFC 9959 section 3
    #[test]
    fn result_of_resuming_sets_window_and_threshold() {
        let now = start();
        let mut window = Window::new(1200);
        window.adopt(Found::AtLeast(50_000));
        window.adopt(Found::AtLeast(20_000));
        assert_eq!((window.rounded(), window.threshold()), (50_000, None));
        window.adopt(Found::TooMuch {
            window: 30_000,
            now,
        });
        assert_eq!(
            (window.rounded(), window.threshold()),
            (30_000, Some(30_000))
        );
        assert!(window.in_recovery());
        let loss = congestion(CongestionKind::Loss, now + RTT, now);
        assert_eq!(window.on_congestion_event(&loss, 0.5), Reaction::None);
        assert_eq!(window.on_ack(&acked(now + RTT, now, 1200)), None);
        window.adopt(Found::Arrived(50_000));
        assert_eq!(window.threshold(), Some(30_000));
        window.adopt(Found::Arrived(90_000));
        assert_eq!(window.threshold(), Some(45_000));
        window.adopt(Found::TooMuch { window: 1, now });
        assert_eq!((window.rounded(), window.threshold()), (2_400, Some(2_400)));
        window.slow_start_threshold = 0.0;
        window.adopt(Found::Arrived(1));
        assert_eq!(window.threshold(), Some(2_400));
    }

    #[test]
    fn a_window_that_shrinks_takes_the_threshold_with_it() {
        let mut window = Window::new(1200);
        window.slow_start_threshold = 12_000.0;
        window.grow(600.0);
        assert_eq!(
            (window.rounded(), window.threshold()),
            (12_600, Some(12_000))
        );
        window.grow(-2_600.0);
        assert_eq!(
            (window.rounded(), window.threshold()),
            (10_000, Some(10_000))
        );
        window.slow_start_threshold = 12_000.0;
        window.grow(0.0);
        assert_eq!(window.threshold(), Some(12_000));
        window.grow(-1e6);
        assert_eq!(window.rounded(), 2_400);
        window.cap(1.5);
        assert_eq!((window.rounded(), window.limit()), (1_800, 2_400));
    }

    #[test]
    fn a_round_of_slow_start_doubles_up_to_the_threshold() {
        let mut window = Window::new(1200);
        assert_eq!(window.slow_start_round(7_000.0), Some(14_000.0));
        window.slow_start_threshold = 12_000.0;
        for (bytes, next) in [
            (5_000.0, Some(10_000.0)),
            (7_000.0, Some(12_000.0)),
            (12_000.0, None),
        ] {
            assert_eq!(window.slow_start_round(bytes), next);
        }
        assert!(!window.in_slow_start());
    }

    /// RFC 9937: bytes delivered by the acknowledgement that revealed the loss count.
    #[test]
    fn reduction_counts_bytes_delivered_at_the_time_of_the_loss() {
        let limit = |after: Duration| {
            let now = start();
            let mut window = Window::new(1200);
            window.on_ack(&acked(now + RTT, now, 6_000));
            let mut loss = congestion(CongestionKind::Loss, now + RTT + after, now);
            loss.in_flight = 4_800;
            window.on_congestion_event(&loss, 0.5);
            window.limit()
        };
        assert_eq!(limit(Duration::ZERO), 9_000, "up to the window");
        assert_eq!(limit(Duration::from_nanos(1)), 6_000, "the repair alone");
    }
}
