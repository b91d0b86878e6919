//! [`Rescue`]: sends again what blocks, on a path that has nothing else to do, within a budget.

use std::time::Instant;

use mpquic_core::sched::{Decision, PathView, UnackedRange, View};
use mpquic_core::{PathId, PathMap};

use super::forecast::{Forecast, Forecasts, heavy_loss, one_way_back, one_way_delay, patience};
use crate::repeats::{Copied, repeat};

/// Datagrams that may be repeated before any were earned, where a copy is likely to arrive first.
const FREE_DATAGRAMS: f64 = 10.0;

/// Copies of bytes in flight, each made at most once for either reason.
#[derive(Debug)]
pub(super) struct Rescue {
    /// Bytes of copies for each byte sent.
    share: f64,
    /// What was copied to overtake it, because it is late for its turn,
    overtaken: Copied,
    /// and what was copied because it may be lost.
    covered: Copied,
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
            overtaken: Copied::default(),
            covered: Copied::default(),
            counted: PathMap::default(),
            sent: 0,
            spent: 0,
            due: None,
        }
    }

    pub(super) fn remove(&mut self, path: PathId) {
        self.overtaken.remove(path);
        self.covered.remove(path);
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
        let mut best: Option<Candidate> = None;
        for holder in view.paths {
            let mut others = forecasts.paths().iter().filter(|to| to.path != holder.id);
            // The one that would deliver first, or none: it is worth a wait.
            let Some(target) = others.next().filter(|to| to.can_send) else {
                continue;
            };
            let bottleneck = forecasts.bottleneck_of(holder);
            let length = f64::from(holder.mtu);
            let is_affordable = length <= allowance + FREE_DATAGRAMS * length;
            let overtaking = is_affordable
                .then(|| self.overtaking(holder, bottleneck, target, view))
                .flatten();
            let covering = self.covering(holder, target, view).filter(|candidate| {
                // A copy in case of a loss helps only if all that is under way can be copied: the
                // last loss counts.
                let is_affordable = match candidate.is_likely {
                    true => is_affordable,
                    false => under_way <= allowance,
                };
                let is_chosen = is_affordable && candidate.gain > 0.0;
                let overdue = candidate.range.sent_at + patience(holder);
                if !is_chosen && overdue > view.now {
                    self.due = Some(self.due.map_or(overdue, |due| due.min(overdue)));
                }
                is_chosen
            });
            for candidate in overtaking.into_iter().chain(covering) {
                if best.as_ref().is_none_or(|best| candidate.gain > best.gain) {
                    best = Some(candidate);
                }
            }
        }
        let Candidate {
            range,
            target,
            overtakes,
            ..
        } = best?;
        self.spent += cost(view, range.path, target);
        let repeats = match overtakes {
            true => &mut self.overtaken,
            false => &mut self.covered,
        };
        repeats.insert(&range, view);
        Some(repeat(&range, target))
    }

    /// The oldest bytes on a path that a copy would overtake by more time than it takes. Those that
    /// are older arrive soon.
    fn overtaking(
        &self,
        holder: &PathView,
        bottleneck: Option<f64>,
        to: &Forecast,
        view: &View<'_>,
    ) -> Option<Candidate> {
        let cost = f64::from(holder.mtu) / to.pace;
        let copy = to.arrival - to.stall + cost;
        if one_way_delay(holder, bottleneck) <= copy {
            return None;
        }
        let (mut ahead, mut gain) = (0, 0.0);
        let range = view.find_unacked(holder.id, |range| {
            ahead += range.offsets.end - range.offsets.start;
            if !self.overtaken.is_due(range) {
                return false;
            }
            gain = arrival(range, ahead, holder, bottleneck, view) - copy;
            gain > 0.0
        })?;
        Some(Candidate {
            gain: (1.0 - holder.loss_rate) * gain,
            range,
            target: to.path,
            overtakes: true,
            is_likely: true,
        })
    }

    /// The oldest bytes on a path: those that are lost first if it loses any.
    fn covering(&self, holder: &PathView, to: &Forecast, view: &View<'_>) -> Option<Candidate> {
        let patience = patience(holder);
        let age = |range: &UnackedRange| view.now.saturating_duration_since(range.sent_at);
        let range = view.find_unacked(holder.id, |range| {
            let is_copied = !self.overtaken.is_due(range);
            self.covered.is_due(range) && (!is_copied || age(range) >= patience)
        })?;
        let age = age(&range);
        let is_overdue = age >= patience;
        // Once the acknowledgement is overdue, the packet is as likely lost as not.
        let lost = holder.loss_rate.max(if is_overdue { 0.5 } else { 0.0 });
        // A loss is noticed a probe timeout after the packet left, and if that is past, a round trip
        // later.
        let repair = if is_overdue {
            holder.rtt.smoothed
        } else {
            patience - age
        };
        let cost = f64::from(holder.mtu) / to.pace;
        Some(Candidate {
            gain: lost * repair.as_secs_f64() - cost,
            range,
            target: to.path,
            overtakes: false,
            is_likely: lost >= 0.5,
        })
    }
}

/// What a copy takes of the budget: the bytes that it is expected to send in vain. What is on a path
/// that loses much is lost already, as likely as not.
fn cost(view: &View<'_>, holder: PathId, target: PathId) -> u64 {
    let lost = view.path(holder).and_then(heavy_loss).unwrap_or(0.0);
    let bytes = view.path(target).map_or(0.0, |path| f64::from(path.mtu));
    ((1.0 - lost) * bytes) as u64
}

/// Bytes in flight that could be sent again.
struct Candidate {
    /// Seconds by which they are expected to arrive sooner, less those that the copy takes.
    gain: f64,
    range: UnackedRange,
    target: PathId,
    /// The copy would arrive first.
    overtakes: bool,
    /// The copy is at least as likely as not to arrive first.
    is_likely: bool,
}

/// Seconds until bytes in flight arrive, with so many in flight up to their end. Where a queue shows
/// the bottleneck's rate, they wait for those ahead of them.
fn arrival(
    range: &UnackedRange,
    ahead: u64,
    holder: &PathView,
    bottleneck: Option<f64>,
    view: &View<'_>,
) -> f64 {
    let age = view.now.saturating_duration_since(range.sent_at);
    match bottleneck {
        Some(rate) => ahead as f64 / rate - one_way_back(holder),
        None => one_way_delay(holder, None) - age.as_secs_f64(),
    }
}
