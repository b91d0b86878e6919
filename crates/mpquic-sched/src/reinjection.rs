//! Re-injection: sends bytes in flight again on another path, together with any scheduler.

use std::time::{Duration, Instant};

use mpquic_core::sched::{
    Decision, Needs, PathView, Scheduler, SchedulerEvent, SchedulerFactory, Sendable, UnackedRange,
    View,
};
use mpquic_core::{PathId, PathMap};

use crate::choice::{is_measured, lowest_rtt};
use crate::repeats::{REPEATED, Repeats};

/// Smallest age of a range for a repeat, for any RTT.
const MIN_DEADLINE: Duration = Duration::from_millis(20);
/// Largest age of a range without a repeat, for any RTT.
const MAX_DEADLINE: Duration = Duration::from_millis(500);

/// The cases in which bytes leave again on another path although the bytes are not lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReinjectionPolicies {
    /// Flow control blocks new data, and the path of the oldest bytes has a window of at most four
    /// datagrams or more than four times the RTT of another path (opportunistic retransmission of
    /// Multipath TCP).
    pub opportunistic: bool,
    /// Together with `opportunistic`, for any ratio of the RTTs: if another path with a lower RTT
    /// can send, the scheduler sees only half of the window of the path with the oldest bytes. The
    /// window is halved at most once per round trip, and not while the path recovers from a loss.
    /// The visible window grows by a datagram per round trip. Congestion control keeps its full
    /// window.
    pub penalise: bool,
    /// Bytes are older than 1.1 times the lowest RTT, limited to 20 to 500 ms (xquic).
    pub deadline: bool,
    /// No new data is left to send (xquic).
    pub after_schedule: bool,
}

/// A re-injection policy, described for lists.
#[derive(Debug, Clone, Copy)]
pub struct ReinjectionInfo {
    /// The name that follows a scheduler's name and a `+`, as in `blest+deadline`.
    pub name: &'static str,
    /// A description of one line.
    pub description: &'static str,
    /// The system that the policy comes from.
    pub source: &'static str,
    select: fn(&mut ReinjectionPolicies),
}

static POLICIES: [ReinjectionInfo; 4] = [
    ReinjectionInfo {
        name: "opportunistic",
        description: "when flow control blocks, repeats the oldest bytes on a much better path",
        source: "Raiciu et al., \"How Hard Can It Be?\", NSDI 2012",
        select: |policies| policies.opportunistic = true,
    },
    ReinjectionInfo {
        name: "penalise",
        description: "with opportunistic: schedulers see half the window of the path that blocked",
        source: "Raiciu et al., \"How Hard Can It Be?\", NSDI 2012",
        select: |policies| {
            policies.opportunistic = true;
            policies.penalise = true;
        },
    },
    ReinjectionInfo {
        name: "deadline",
        description: "repeats bytes older than 1.1 times the lowest RTT on another path",
        source: "xquic",
        select: |policies| policies.deadline = true,
    },
    ReinjectionInfo {
        name: "after-schedule",
        description: "repeats what is in flight on other paths when nothing else is left to send",
        source: "xquic",
        select: |policies| policies.after_schedule = true,
    },
];

/// All re-injection policies.
pub fn reinjections() -> &'static [ReinjectionInfo] {
    &POLICIES
}

impl ReinjectionPolicies {
    /// Adds the policy with this name; `false` for an unknown name.
    pub(crate) fn add(&mut self, name: &str) -> bool {
        let policy = POLICIES.iter().find(|policy| policy.name == name);
        if let Some(policy) = policy {
            (policy.select)(self);
        }
        policy.is_some()
    }
}

/// Repeats unacknowledged bytes on better paths, each packet at most once. An inner scheduler makes
/// all other decisions.
///
/// Sources: `mptcp_sched.c` (opportunistic retransmission and penalisation), xquic (deadline, after
/// schedule). Inputs: unacknowledged ranges, RTT, window, flow control credit. The core itself
/// moves the data of a path that fails or is abandoned.
///
/// Bit 63 of a tag belongs to this layer. The inner scheduler must not set the bit, and gets no
/// events of packets with the bit.
#[derive(Debug)]
pub struct Reinjecting {
    inner: Box<dyn Scheduler>,
    policies: ReinjectionPolicies,
    repeats: Repeats,
    deadline: Option<Instant>,
    penalties: PathMap<Penalty>,
    /// The paths as the inner scheduler sees them.
    shown: Vec<PathView>,
}

/// A reduced window of a path, shown to the inner scheduler.
#[derive(Debug, Clone, Copy)]
struct Penalty {
    window: u64,
    changed_at: Instant,
}

impl Reinjecting {
    /// Wraps a scheduler.
    pub fn new(inner: Box<dyn Scheduler>, policies: ReinjectionPolicies) -> Self {
        Self {
            inner,
            policies,
            repeats: Repeats::default(),
            deadline: None,
            penalties: PathMap::default(),
            shown: Vec::new(),
        }
    }

    fn repeat(&mut self, range: &UnackedRange, target: PathId) -> Decision {
        self.repeats.repeat(range.path, range, target)
    }

    /// Repeats the oldest of all bytes if flow control waits for the bytes on a bad path. Penalises
    /// the path even if the bytes are not worth a copy.
    fn opportunistic(&mut self, view: &View<'_>) -> Option<Decision> {
        let blocked = view.queue.flow_credit == 0 && view.queue.unsent > 0;
        let range = view.unacked().first().filter(|_| blocked)?;
        let (target, holder) = (best_other(view, range.path)?, view.path(range.path)?);
        if self.policies.penalise
            && !holder.in_recovery
            && target.rtt.smoothed < holder.rtt.smoothed
        {
            self.penalise(view.now, holder);
        }
        let bad = holder.window <= 4 * u64::from(holder.mtu)
            || 4 * target.rtt.smoothed < holder.rtt.smoothed;
        if !bad || !self.repeats.is_due(range.path, range) {
            return None;
        }
        Some(self.repeat(range, target.id))
    }

    fn penalise(&mut self, now: Instant, path: &PathView) {
        let known = self.penalties.get(path.id);
        let recent = |penalty: &Penalty| {
            now.saturating_duration_since(penalty.changed_at) < path.rtt.smoothed
        };
        if known.is_some_and(recent) {
            return;
        }
        let window = known.map_or(path.window, |penalty| penalty.window);
        let window = (window / 2).max(2 * u64::from(path.mtu));
        let changed_at = now;
        self.penalties
            .insert(path.id, Penalty { window, changed_at });
    }

    /// Repeats the oldest overdue bytes for which another path can send. Otherwise notes when the
    /// next bytes become overdue.
    fn overdue(&mut self, view: &View<'_>) -> Option<Decision> {
        self.deadline = None;
        let measured = view.usable().filter(|path| is_measured(path));
        let rtt = lowest_rtt(measured)?.rtt.smoothed;
        let age = (rtt + rtt / 10).clamp(MIN_DEADLINE, MAX_DEADLINE);
        for range in view.unacked() {
            if !self.repeats.is_due(range.path, range) {
                continue;
            }
            let due = range.sent_at + age;
            if due > view.now {
                self.deadline = Some(due);
                return None;
            }
            if let Some(target) = best_other(view, range.path) {
                return Some(self.repeat(range, target.id));
            }
        }
        None
    }

    /// Repeats the oldest bytes for which another path can send, once no new data is left.
    fn after_schedule(&mut self, view: &View<'_>) -> Option<Decision> {
        let done = view.queue.idle && view.queue.unsent == 0;
        let mut ranges = view.unacked().iter().filter(|_| done);
        let (range, target) = ranges.find_map(|range| {
            let due = self.repeats.is_due(range.path, range);
            Some((range, best_other(view, range.path).filter(|_| due)?))
        })?;
        Some(self.repeat(range, target.id))
    }

    /// Asks the inner scheduler, which sees smaller windows on penalised paths.
    fn ask_inner(&mut self, view: &View<'_>) -> Decision {
        if self.penalties.is_empty() {
            return self.inner.select(view);
        }
        self.shown.clear();
        for path in view.paths {
            let mut shown = *path;
            if let Some(penalty) = self.penalties.get_mut(path.id) {
                let elapsed = view.now.saturating_duration_since(penalty.changed_at);
                let rounds = elapsed.as_nanos() / path.rtt.smoothed.as_nanos().max(1);
                if rounds > 0 {
                    let growth = (rounds as u64).saturating_mul(path.mtu.into());
                    penalty.window = penalty.window.saturating_add(growth);
                    penalty.changed_at = view.now;
                }
                shown.window = path.window.min(penalty.window);
                if penalty.window >= path.window {
                    self.penalties.remove(path.id);
                } else if shown.available_window() < path.mtu.into() {
                    shown.sendable = Sendable::WindowFull;
                }
            }
            self.shown.push(shown);
        }
        // With only penalised paths to send on, hidden windows gain no time.
        if !self.shown.iter().any(PathView::can_send) {
            return self.inner.select(view);
        }
        let mut shown = *view;
        shown.paths = &self.shown;
        self.inner.select(&shown)
    }
}

/// The measured path with the lowest RTT that can send, except `path`.
fn best_other<'a>(view: &View<'a>, path: PathId) -> Option<&'a PathView> {
    lowest_rtt(
        view.sendable()
            .filter(|other| other.id != path && is_measured(other)),
    )
}

impl Scheduler for Reinjecting {
    fn select(&mut self, view: &View<'_>) -> Decision {
        let ReinjectionPolicies {
            opportunistic,
            deadline,
            after_schedule,
            ..
        } = self.policies;
        let repeat = opportunistic
            .then(|| self.opportunistic(view))
            .flatten()
            .or_else(|| deadline.then(|| self.overdue(view)).flatten())
            .or_else(|| after_schedule.then(|| self.after_schedule(view)).flatten());
        match repeat {
            Some(repeat) => repeat,
            None if view.queue.idle && !self.inner.needs().unacked => Decision::Blocked,
            None => self.ask_inner(view),
        }
    }

    fn on_event(&mut self, event: &SchedulerEvent, view: &View<'_>) {
        match event {
            SchedulerEvent::PathRemoved(path) => {
                self.repeats.remove(*path);
                self.penalties.remove(*path);
            }
            SchedulerEvent::Sent(packet)
            | SchedulerEvent::Acked(packet, _)
            | SchedulerEvent::Lost(packet)
                if packet.tag & REPEATED != 0 =>
            {
                return;
            }
            SchedulerEvent::Timer => {
                self.deadline = self.deadline.filter(|deadline| *deadline > view.now);
                let inner = self.inner.next_timeout();
                if inner.is_none_or(|timeout| timeout > view.now) {
                    return;
                }
            }
            _ => {}
        }
        self.inner.on_event(event, view);
    }

    fn needs(&self) -> Needs {
        self.inner.needs().with_unacked()
    }

    fn next_timeout(&self) -> Option<Instant> {
        let timeouts = [self.deadline, self.inner.next_timeout()];
        timeouts.into_iter().flatten().min()
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }
}

/// Makes schedulers that are wrapped in [`Reinjecting`].
#[derive(Debug)]
pub(crate) struct ReinjectingFactory {
    pub(crate) inner: std::sync::Arc<dyn SchedulerFactory>,
    pub(crate) policies: ReinjectionPolicies,
}

impl SchedulerFactory for ReinjectingFactory {
    fn build(&self) -> Box<dyn Scheduler> {
        Box::new(Reinjecting::new(self.inner.build(), self.policies))
    }
}

/// Wraps every scheduler of a factory in [`Reinjecting`].
pub fn reinjecting(
    inner: std::sync::Arc<dyn SchedulerFactory>,
    policies: ReinjectionPolicies,
) -> std::sync::Arc<dyn SchedulerFactory> {
    std::sync::Arc::new(ReinjectingFactory { inner, policies })
}

/// Wraps every scheduler of a factory in the policies with these names. Without names, returns the
/// factory itself. `None` if a name is unknown.
pub fn with_reinjections<'a>(
    inner: std::sync::Arc<dyn SchedulerFactory>,
    mut names: impl Iterator<Item = &'a str>,
) -> Option<std::sync::Arc<dyn SchedulerFactory>> {
    let mut policies = ReinjectionPolicies::default();
    if !names.all(|name| policies.add(name)) {
        return None;
    }
    let wrapped = policies != ReinjectionPolicies::default();
    Some(if wrapped {
        reinjecting(inner, policies)
    } else {
        inner
    })
}

#[cfg(test)]
mod tests;
