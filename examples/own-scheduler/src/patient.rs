//! [`Patient`]: waits for the fast path if the wait delivers data sooner than a slow path.

use std::time::Duration;

use mpquic_core::PathId;
use mpquic_core::sched::{Decision, PathView, Scheduler, SchedulerEvent, Sendable, View};

/// Sends on the path with the lowest RTT. When this path is full, a slower path gets data only if
/// the fast path would take longer to deliver all waiting data.
#[derive(Debug, Default)]
pub struct Patient {
    /// The fastest path so far, which a rival must beat by a tenth.
    fastest: Option<PathId>,
}

impl Scheduler for Patient {
    fn select(&mut self, view: &View<'_>) -> Decision {
        let Some(fast) = self.fastest(view) else {
            return Decision::Blocked;
        };
        if fast.can_send() {
            return Decision::send_up_to(fast.id, fast.available_window() / 2);
        }
        let Some(slow) = view.sendable().min_by_key(|path| path.rtt.smoothed) else {
            return Decision::Blocked;
        };
        if slow.rtt.smoothed / 2 > time_on(fast, view) {
            return Decision::Wait {
                on: fast.id,
                until: None,
            };
        }
        Decision::send(slow.id)
    }

    fn on_event(&mut self, event: &SchedulerEvent, _: &View<'_>) {
        match event {
            SchedulerEvent::PathRemoved(path) | SchedulerEvent::PathSuspect(path)
                if self.fastest == Some(*path) =>
            {
                self.fastest = None;
            }
            _ => {}
        }
    }

    fn name(&self) -> &'static str {
        "patient"
    }
}

impl Patient {
    /// The path with the lowest RTT. Two paths with about equal RTTs do not take turns.
    fn fastest<'a>(&mut self, view: &View<'a>) -> Option<&'a PathView> {
        let rtt = |path: &&PathView| match self.fastest {
            Some(fastest) if fastest == path.id => path.rtt.smoothed.mul_f64(0.9),
            _ => path.rtt.smoothed,
        };
        let path = view.usable().min_by_key(rtt)?;
        self.fastest = Some(path.id);
        Some(path)
    }
}

/// The time in which a path that cannot send now delivers all waiting data: first the pacer or an
/// acknowledgement must let the path send again, then a window leaves in each round trip.
fn time_on(path: &PathView, view: &View<'_>) -> Duration {
    let ready = match path.sendable {
        Sendable::At(time) => time.saturating_duration_since(view.now),
        _ => path.rtt.smoothed,
    };
    let rounds = 0.5 + view.queue.unsent as f64 / path.window.max(1) as f64;
    ready + path.rtt.smoothed.mul_f64(rounds)
}
