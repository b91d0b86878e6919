//! [`Rescue`]: repeats bytes that block other bytes, on a path without other data, within a budget.

use std::time::Instant;

use mpquic_core::sched::{Decision, PathView, UnackedRange, View};
use mpquic_core::{PathId, PathMap};

use super::forecast::{Forecast, Forecasts, heavy_loss, one_way_back, one_way_delay, patience};
use crate::repeats::{Copied, repeat};

/// Datagrams that the scheduler may repeat before the path earns any budget, for copies that are
/// likely to arrive first: the first datagrams of `coupled-bbr` on a path that turns out slow.
const FREE_DATAGRAMS: f64 = 32.0;

/// Copies of bytes in flight. A range is copied at most once for each of two reasons.
#[derive(Debug)]
pub(super) struct Rescue {
    /// Repeat budget that each sent byte earns, bytes.
    share: f64,
    /// Ranges copied because the range was late for its turn in the stream.
    overtaken: Copied,
    /// Ranges copied because the original may be lost.
    covered: Copied,
    /// Bytes sent on each path, as counted in [`Self::sent`].
    counted: PathMap<u64>,
    /// Bytes sent on all paths.
    sent: u64,
    /// Bytes of the budget that copies have used.
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

    /// Repeat budget that is left, bytes; negative after copies beyond the budget.
    fn allowance(&mut self, view: &View<'_>) -> f64 {
        for path in view.paths {
            let counted = self.counted.get_or_insert_with(path.id, || 0);
            self.sent += path.bytes_sent.saturating_sub(*counted);
            *counted = path.bytes_sent;
        }
        self.sent as f64 * self.share - self.spent as f64
    }

    /// The copy with the largest gain of time, if the gain exceeds the time of the copy. Otherwise
    /// notes the time of the next look.
    pub(super) fn copy(&mut self, view: &View<'_>, forecasts: &Forecasts) -> Option<Decision> {
        self.due = None;
        let allowance = self.allowance(view);
        let in_flight = view.paths.iter().map(|path| path.in_flight);
        let under_way = in_flight.sum::<u64>() as f64;
        let mut best: Option<Candidate> = None;
        for holder in view.paths {
            let mut others = forecasts.paths().iter().filter(|to| to.path != holder.id);
            // Only the path with the earliest arrival is a target. While the target cannot send,
            // the copy waits for the target.
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
                // A copy as insurance against a loss helps only if the budget covers all bytes in
                // flight, because the last lost packet decides.
                let is_affordable = if candidate.is_likely {
                    is_affordable
                } else {
                    under_way <= allowance
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
        let repeats = if overtakes {
            &mut self.overtaken
        } else {
            &mut self.covered
        };
        repeats.insert(&range, view);
        Some(repeat(&range, target))
    }

    /// The oldest range of `holder` that a copy would overtake by more time than the copy takes.
    /// Older ranges arrive soon.
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

    /// The oldest range of `holder`: the first range to get lost on a lossy path.
    fn covering(&self, holder: &PathView, to: &Forecast, view: &View<'_>) -> Option<Candidate> {
        let patience = patience(holder);
        let age = |range: &UnackedRange| view.now.saturating_duration_since(range.sent_at);
        let range = view.find_unacked(holder.id, |range| {
            let is_copied = !self.overtaken.is_due(range);
            self.covered.is_due(range) && (!is_copied || age(range) >= patience)
        })?;
        let age = age(&range);
        let is_overdue = age >= patience;
        // A packet with an overdue acknowledgement is lost with a probability of one half or more.
        let lost = holder.loss_rate.max(if is_overdue { 0.5 } else { 0.0 });
        // A probe timeout after its departure, a packet's loss is noticed. After the probe timeout,
        // the repair takes a further round trip.
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

/// The cost of a copy, bytes of the budget: the bytes that the copy probably sends in vain. Data on
/// a path with heavy losses is probably lost already, so its copy costs less.
fn cost(view: &View<'_>, holder: PathId, target: PathId) -> u64 {
    let lost = view.path(holder).and_then(heavy_loss).unwrap_or(0.0);
    let bytes = view.path(target).map_or(0.0, |path| f64::from(path.mtu));
    ((1.0 - lost) * bytes) as u64
}

/// A range of bytes in flight that could be sent again.
struct Candidate {
    /// Expected gain of time by a copy, less the time of the copy, seconds.
    gain: f64,
    range: UnackedRange,
    target: PathId,
    /// The copy would overtake the range.
    overtakes: bool,
    /// The copy arrives first with a probability of one half or more.
    is_likely: bool,
}

/// Seconds until a range in flight arrives; `ahead` bytes are in flight up to the end of the range.
/// At a known bottleneck rate, the range waits for the bytes ahead.
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
