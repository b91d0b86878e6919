//! BLEST: blocking estimation.

use std::time::{Duration, Instant};

use mpquic_core::PathMap;
use mpquic_core::sched::{Decision, PathView, Scheduler, SchedulerEvent, View};

use crate::choice::{is_measured, seconds, send_batch, wait_for};
use crate::plain_cases::PlainCases;

/// Most rounds of slow start for which the kernel form looks ahead.
const MAX_SLOW_START_ROUNDS: i32 = 16;
/// A window that grows by more than this factor in a round trip is in slow start.
const DOUBLING: f64 = 1.5;

/// The estimate of the fast path's traffic that [`Blest`] uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlestForm {
    /// As published: linear growth over the ratio of the RTTs.
    Paper,
    /// As in Multipath TCP's kernel: RTT extremes instead of means, slow start, whole rounds.
    Kernel,
}

/// Lowest RTT first, but leaves a slower path idle if its data could occupy the connection's flow
/// control window for so long that the fastest path would run out of data to send.
///
/// Source: Ferlin, Alay, Mehani and Boreli, "BLEST: Blocking estimation-based MPTCP scheduler for
/// heterogeneous networks", IFIP Networking 2016; `mptcp_blest.c`. Inputs: RTT, window, bytes in
/// flight, slow start threshold, flow control window and send buffer. Constants of the correction
/// factor, from the kernel: 1.2 at first (1 in the paper's form), between 1 and 1.3, +0.04 after
/// blocking, -0.01 without blocking, at most once per minimum RTT of the slow path.
///
/// A path without a slow start threshold counts as in slow start only if its controller doubles the
/// window. Rate-based controllers never have a threshold, so their windows would otherwise count as
/// doubling for ever. Windows are counted in packets where the formula adds packets. Every path is
/// compared with the fastest path, even if the fastest path has no room.
#[derive(Debug)]
pub struct Blest {
    form: BlestForm,
    cases: PlainCases,
    /// Smallest and largest smoothed RTT of each path.
    extremes: PathMap<(Duration, Duration)>,
    correction: f64,
    /// True if flow control blocked sending since the last change of the correction.
    blocked: bool,
    corrected_at: Option<Instant>,
}

impl Blest {
    /// A scheduler with this estimate.
    pub fn new(form: BlestForm) -> Self {
        Self {
            form,
            cases: PlainCases::default(),
            extremes: PathMap::default(),
            correction: match form {
                BlestForm::Paper => 1.0,
                BlestForm::Kernel => 1.2,
            },
            blocked: false,
            corrected_at: None,
        }
    }

    fn note_rtts(&mut self, view: &View<'_>) {
        for path in view.paths.iter().filter(|path| is_measured(path)) {
            let rtt = path.rtt.smoothed;
            let (least, most) = self.extremes.get_or_insert_with(path.id, || (rtt, rtt));
            *least = rtt.min(*least);
            *most = rtt.max(*most);
        }
    }

    fn extremes(&self, path: &PathView) -> (f64, f64) {
        let rtt = path.rtt.smoothed;
        let (least, most) = self.extremes.get(path.id).copied().unwrap_or((rtt, rtt));
        (seconds(least), seconds(most))
    }

    fn correct(&mut self, now: Instant, slow: &PathView) {
        let interval = Duration::from_secs_f64(self.extremes(slow).0);
        let since = self
            .corrected_at
            .map(|at| now.saturating_duration_since(at));
        if since.is_some_and(|since| since < interval) {
            return;
        }
        if since.is_some() {
            let step = if self.blocked { 0.04 } else { -0.01 };
            self.correction = (self.correction + step).clamp(1.0, 1.3);
        }
        self.corrected_at = Some(now);
        self.blocked = false;
    }

    /// Bytes that the fast path could send while a packet is in flight on the slow path.
    fn fast_traffic(&self, view: &View<'_>, fast: &PathView, slow: &PathView) -> f64 {
        let mtu = f64::from(fast.mtu.max(1));
        let window = fast.window as f64;
        if self.form == BlestForm::Paper {
            let rounds = seconds(slow.rtt.smoothed) / seconds(fast.rtt.smoothed);
            return mtu * (window / mtu + (rounds - 1.0) / 2.0) * rounds;
        }
        let (least, most) = self.extremes(slow);
        let filled = (slow.in_flight + u64::from(slow.mtu)) as f64 / slow.window.max(1) as f64;
        let linger = seconds(slow.rtt.smoothed).max(least + (most - least) * filled.min(1.0));
        let (least, most) = self.extremes(fast);
        let rounds = (linger / ((least + most) / 2.0)).floor() + 1.0;
        if is_in_slow_start(view, fast) {
            let doublings = rounds.min(f64::from(MAX_SLOW_START_ROUNDS)) as i32;
            return window * (2f64.powi(doublings) - 1.0);
        }
        let threshold = fast.slow_start_threshold.unwrap_or(0);
        let window = (window + mtu).max(threshold as f64);
        mtu * (window / mtu + (rounds - 1.0) / 2.0) * rounds
    }

    /// True if a packet on the slow path would leave the fast path too little flow control window.
    fn would_block(&self, view: &View<'_>, fast: &PathView, slow: &PathView) -> bool {
        let window = view.queue.flow_window.min(view.queue.send_buffer);
        let room = window.saturating_sub(slow.in_flight + u64::from(slow.mtu));
        self.fast_traffic(view, fast, slow) * self.correction > room as f64
    }
}

/// True if the window is below its slow start threshold. Without a threshold, as with rate-based
/// controllers, true if the window would double in a round trip.
fn is_in_slow_start(view: &View<'_>, path: &PathView) -> bool {
    match path.slow_start_threshold {
        Some(threshold) => path.window < threshold,
        None => {
            let windows = [(path.id, path.window)];
            let grown = view.controller.window_after_round(path.id, &windows);
            grown as f64 > DOUBLING * path.window as f64
        }
    }
}

impl Default for Blest {
    fn default() -> Self {
        Self::new(BlestForm::Kernel)
    }
}

impl Scheduler for Blest {
    fn select(&mut self, view: &View<'_>) -> Decision {
        let (fast, chosen) = match self.cases.fast_and_chosen(view) {
            Ok(paths) => paths,
            Err(decision) => return decision,
        };
        self.note_rtts(view);
        if fast.id == chosen.id {
            return send_batch(chosen);
        }
        self.correct(view.now, chosen);
        if self.would_block(view, fast, chosen)
            && let Some(wait) = wait_for(fast)
        {
            return wait;
        }
        // Only one packet, because the bytes in flight on this path change the estimate.
        Decision::send(chosen.id)
    }

    fn on_event(&mut self, event: &SchedulerEvent, _: &View<'_>) {
        self.cases.on_event(event);
        match event {
            SchedulerEvent::FlowControlBlocked => self.blocked = true,
            SchedulerEvent::PathRemoved(path) => {
                self.extremes.remove(*path);
            }
            _ => {}
        }
    }

    fn name(&self) -> &'static str {
        match self.form {
            BlestForm::Paper => "blest-paper",
            BlestForm::Kernel => "blest",
        }
    }
}

#[cfg(test)]
mod tests {
    use mpquic_core::PathId;

    use super::*;
    use crate::testing::{Growth, Scene, chosen, full, path};

    fn scene() -> Scene {
        let mut scene = Scene::new(vec![full(path(0, 20)), path(1, 100)]);
        scene.paths[1].in_flight = 6_000;
        scene
    }

    const WAIT: Decision = Decision::Wait {
        on: PathId(0),
        until: None,
    };

    #[test]
    fn t8_the_published_estimate() {
        let mut scene = scene();
        let mut blest = Blest::new(BlestForm::Paper);
        assert_eq!(
            blest.fast_traffic(&scene.view(), &scene.paths[0], &scene.paths[1]),
            72_000.0
        );
        scene.queue.flow_window = 65_536;
        assert_eq!(blest.select(&scene.view()), WAIT);
        scene.queue.flow_window = 1_000_000;
        assert_eq!(chosen(&blest.select(&scene.view())), Some(1));
        // The send buffer limits the window as well.
        scene.queue.send_buffer = 65_536;
        assert_eq!(blest.select(&scene.view()), WAIT);
    }

    #[test]
    fn the_kernel_estimate() {
        let mut scene = scene();
        let mut blest = Blest::new(BlestForm::Kernel);
        blest.note_rtts(&scene.view());
        // Six rounds of 20 ms begin within 100 ms; slow start doubles the window in each round.
        let traffic =
            |scene: &Scene| blest.fast_traffic(&scene.view(), &scene.paths[0], &scene.paths[1]);
        let (doubled, added) = (12_000.0 * 63.0, 1200.0 * (11.0 + 2.5) * 6.0);
        scene.controller = Growth::Double;
        assert_eq!(traffic(&scene), doubled);
        scene.paths[0].slow_start_threshold = Some(6_000);
        assert_eq!(traffic(&scene), added);
        scene.paths[0].slow_start_threshold = Some(20_000);
        assert_eq!(traffic(&scene), doubled);
        // A rate-based controller has no threshold, and its window does not grow for ever.
        scene.paths[0].slow_start_threshold = None;
        scene.controller = Growth::None;
        assert_eq!(traffic(&scene), added);
    }

    #[test]
    fn blocking_raises_the_correction_factor() {
        let mut scene = scene();
        let mut blest = Blest::default();
        blest.select(&scene.view());
        scene.now += Duration::from_millis(99);
        blest.select(&scene.view());
        assert_eq!(blest.correction, 1.2);
        scene.now += Duration::from_millis(1);
        blest.select(&scene.view());
        assert_eq!(blest.correction, 1.2 - 0.01);
        for _ in 0..4 {
            blest.on_event(&SchedulerEvent::FlowControlBlocked, &scene.view());
            scene.now += Duration::from_millis(100);
            blest.select(&scene.view());
        }
        assert_eq!(blest.correction, 1.3);
    }

    #[test]
    fn fastest_path_with_room_is_used_regardless_of_flow_control() {
        let mut scene = scene();
        scene.paths[0].in_flight = 0;
        scene.paths[0].sendable = mpquic_core::sched::Sendable::Now;
        scene.queue.flow_window = 1200;
        assert_eq!(chosen(&Blest::default().select(&scene.view())), Some(0));
    }
}
