//! [`Rescue`]: sends again what blocks, on a path that has nothing else to do, within a budget.

use std::time::Instant;

use mpquic_core::sched::{Decision, PathView, UnackedRange, View};
use mpquic_core::{PathId, PathMap};

use super::forecast::{Forecast, Forecasts, one_way_delay, patience};
use crate::repeats::Repeats;

/// Datagrams that may be repeated before any were earned, where a copy is likely to arrive first.
const FREE_DATAGRAMS: f64 = 10.0;

/// Copies of bytes in flight, each made at most once.
#[derive(Debug)]
pub(super) struct Rescue {
    /// Bytes of copies for each byte sent.
    share: f64,
    repeats: Repeats,
    /// Bytes sent on each path, as far as they were counted.
    counted: PathMap<u64>,
    sent: u64,
    spent: u64,
    /// When bytes in flight become overdue.
    pub(super) due: Option<Instant>,
}

impl Rescue {
    pub(super) fn new(share: f64) -> Self {
        Self {
            share,
            repeats: Repeats::default(),
            counted: PathMap::default(),
            sent: 0,
            spent: 0,
            due: None,
        }
    }

    pub(super) fn remove(&mut self, path: PathId) {
        self.repeats.remove(path);
        self.counted.remove(path);
    }

    /// Bytes of copies that the bytes sent so far have earned, less those made.
    fn allowance(&mut self, view: &View<'_>) -> f64 {
        for path in view.paths {
            let counted = self.counted.get_or_insert_with(path.id, || 0);
            self.sent += path.bytes_sent.saturating_sub(*counted);
            *counted = path.bytes_sent;
        }
        self.sent as f64 * self.share - self.spent as f64
    }

    /// The copy that gains most, if it gains more time than it takes; otherwise notes when to ask
    /// again.
    pub(super) fn copy(&mut self, view: &View<'_>, forecasts: &Forecasts) -> Option<Decision> {
        self.due = None;
        let allowance = self.allowance(view);
        let in_flight = view.paths.iter().map(|path| path.in_flight);
        let under_way = in_flight.sum::<u64>() as f64;
        let mut best: Option<(f64, UnackedRange, PathId)> = None;
        for holder in view.paths {
            let mut targets = forecasts.paths().iter().filter(|to| to.can_send);
            let Some(target) = targets.find(|to| to.path != holder.id) else {
                continue;
            };
            let is_due = |range: &UnackedRange| self.repeats.is_due(range.path, range);
            let Some(range) = view.find_unacked(holder.id, is_due) else {
                continue;
            };
            let length = f64::from(holder.mtu);
            let gain = Gain::new(&range, holder, target, view);
            let cost = f64::from(holder.mtu) / target.pace;
            let free = FREE_DATAGRAMS * f64::from(holder.mtu);
            // A copy in case of a loss helps only if all that is under way can be copied: the last
            // loss counts.
            let is_affordable = if gain.is_likely {
                length <= allowance + free
            } else {
                under_way <= allowance
            };
            let overdue = range.sent_at + patience(holder);
            if gain.seconds > cost && is_affordable {
                if best
                    .as_ref()
                    .is_none_or(|(most, ..)| gain.seconds - cost > *most)
                {
                    best = Some((gain.seconds - cost, range, target.path));
                }
                continue;
            }
            if overdue > view.now {
                self.due = Some(self.due.map_or(overdue, |due| due.min(overdue)));
            }
        }
        let (_, range, target) = best?;
        self.spent += view.path(target).map_or(0, |path| u64::from(path.mtu));
        Some(self.repeats.repeat(range.path, &range, target))
    }
}

/// How much sooner bytes are expected to arrive if they are sent again.
struct Gain {
    seconds: f64,
    /// The copy is at least as likely as not to arrive first.
    is_likely: bool,
}

impl Gain {
    fn new(range: &UnackedRange, holder: &PathView, to: &Forecast, view: &View<'_>) -> Self {
        let age = view.now.saturating_duration_since(range.sent_at);
        let patience = patience(holder);
        let is_overdue = age >= patience;
        // Once the acknowledgement is overdue, the packet is as likely lost as not.
        let lost = holder.loss_rate.max(if is_overdue { 0.5 } else { 0.0 });
        let arrival = (one_way_delay(holder) - age.as_secs_f64()).max(0.0);
        let overtakes = (arrival - (to.arrival - to.stall)).max(0.0);
        // A loss is noticed a probe timeout after the packet left, and if that is past, a round trip
        // later.
        let repair = if is_overdue {
            holder.rtt.smoothed
        } else {
            patience - age
        };
        Self {
            seconds: (1.0 - lost) * overtakes + lost * repair.as_secs_f64(),
            is_likely: is_overdue || overtakes > 0.0,
        }
    }
}
