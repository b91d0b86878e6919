//! ECF: earliest completion first.

use mpquic_core::sched::{Decision, PathView, Scheduler, SchedulerEvent, View};

use crate::choice::{seconds, send_batch, wait_for};
use crate::papers::choice::backlog;
use crate::plain_cases::PlainCases;

/// After waiting has begun, it goes on until the wait would be longer by this share.
const HYSTERESIS: f64 = 0.25;

/// How [`Ecf`] counts the rounds that a backlog takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EcfForm {
    /// As published: the backlog divided by the window, with fractions.
    Paper,
    /// As in Multipath TCP's kernel: at least one round.
    Kernel,
}

/// Lowest RTT first, but waits for the fastest path if the backlog would be delivered earlier that
/// way. So no slow path holds the last bytes.
///
/// Source: Lim, Nahum, Towsley and Gibbens, "ECF: An MPTCP Path Scheduler to Manage Heterogeneous
/// Paths", CoNEXT 2017; `mptcp_ecf.c`. Inputs: RTT and its variation, window, backlog. Constants: a
/// quarter of hysteresis.
///
/// The margin is the larger RTT variation of both paths, without the kernel's lower limit of 100
/// ms. Numbers are not rounded to integers. The kernel's form, which counts a small backlog as a
/// whole round, is an option.
#[derive(Debug)]
pub struct Ecf {
    form: EcfForm,
    cases: PlainCases,
    waiting: bool,
}

impl Ecf {
    /// A scheduler that counts rounds in this form.
    pub fn new(form: EcfForm) -> Self {
        Self {
            form,
            cases: PlainCases::default(),
            waiting: false,
        }
    }
}

impl Default for Ecf {
    fn default() -> Self {
        Self::new(EcfForm::Paper)
    }
}

/// True if `bytes` are delivered earlier by waiting for `fast` than by using `slow` now. `waiting`
/// holds the hysteresis: whether the last answer was to wait.
pub(crate) fn waits(
    form: EcfForm,
    bytes: u64,
    fast: &PathView,
    slow: &PathView,
    waiting: &mut bool,
) -> bool {
    let rounds = |path: &PathView| {
        let window = path.window.max(1);
        let bytes = match form {
            EcfForm::Paper => bytes,
            EcfForm::Kernel => bytes.max(window),
        };
        bytes as f64 / window as f64
    };
    let (fast_rtt, slow_rtt) = (seconds(fast.rtt.smoothed), seconds(slow.rtt.smoothed));
    let margin = fast.rtt.variance.max(slow.rtt.variance).as_secs_f64();
    let patience = if *waiting { 1.0 + HYSTERESIS } else { 1.0 };
    if (1.0 + rounds(fast)) * fast_rtt >= patience * (slow_rtt + margin) {
        *waiting = false;
        return false;
    }
    let wait = rounds(slow) * slow_rtt >= 2.0 * fast_rtt + margin;
    *waiting |= wait;
    wait
}

impl Scheduler for Ecf {
    fn select(&mut self, view: &View<'_>) -> Decision {
        let (fast, chosen) = match self.cases.fast_and_chosen(view) {
            Ok(paths) => paths,
            Err(decision) => return decision,
        };
        if fast.id == chosen.id {
            return send_batch(chosen);
        }
        if waits(self.form, backlog(view), fast, chosen, &mut self.waiting)
            && let Some(wait) = wait_for(fast)
        {
            return wait;
        }
        // Only one packet, because the comparison holds only for this backlog.
        Decision::send(chosen.id)
    }

    fn on_event(&mut self, event: &SchedulerEvent, _: &View<'_>) {
        self.cases.on_event(event);
    }

    fn name(&self) -> &'static str {
        match self.form {
            EcfForm::Paper => "ecf",
            EcfForm::Kernel => "ecf-kernel",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mpquic_core::PathId;

    use super::*;
    use crate::testing::{Scene, chosen, full, path};

    fn scene(backlog: u64) -> Scene {
        let mut scene = Scene::new(vec![full(path(0, 10)), path(1, 100)]);
        scene.paths[0].rtt.variance = Duration::from_millis(2);
        scene.paths[1].rtt.variance = Duration::from_millis(10);
        scene.queue.unsent = backlog;
        scene
    }

    const WAIT: Decision = Decision::Wait {
        on: PathId(0),
        until: None,
    };

    #[test]
    fn t7_waits_when_the_fast_path_delivers_the_backlog_earlier() {
        let mut ecf = Ecf::default();
        assert_eq!(ecf.select(&scene(30_000).view()), WAIT);
        assert!(ecf.waiting);
        assert_eq!(chosen(&ecf.select(&scene(3_000_000).view())), Some(1));
        assert!(!ecf.waiting);
        assert_eq!(chosen(&ecf.select(&scene(1_200).view())), Some(1));
        assert!(!ecf.waiting);
    }

    #[test]
    fn t7_the_kernel_waits_with_little_left_too() {
        let mut ecf = Ecf::new(EcfForm::Kernel);
        assert_eq!(ecf.select(&scene(1_200).view()), WAIT);
    }

    #[test]
    fn hysteresis_prolongs_a_wait_that_has_begun() {
        // 121 ms against 110 ms, or 137.5 ms with hysteresis.
        let scene = scene(133_200);
        let mut ecf = Ecf::default();
        assert_eq!(chosen(&ecf.select(&scene.view())), Some(1));
        ecf.waiting = true;
        assert_eq!(ecf.select(&scene.view()), WAIT);
    }
}
