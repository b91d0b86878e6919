//! OLIA, the opportunistic linked increases algorithm (Khalili et al., CoNEXT 2012;
//! draft-khalili-mptcp-congestion-control-05).

use mpquic_core::PathId;
use mpquic_core::congestion::Acked;

use crate::coupled::{Coupled, Coupling, Member, Members};
use crate::window::{Reaction, Window};

/// Coupled congestion avoidance: all paths together grow about as fast as one Reno flow on the best
/// path, and traffic moves to the best paths. The window of a worse path may shrink without a loss.
/// Slow start and the reaction to losses are those of Reno on each path.
pub type Olia = Coupled<OpportunisticLinkedIncreases>;

/// The rules of [`Olia`].
#[derive(Debug)]
pub enum OpportunisticLinkedIncreases {}

/// Bytes acknowledged between losses.
#[derive(Debug, Clone, Copy, Default)]
pub struct LossIntervals {
    now: LossInterval,
    before_cut: LossInterval,
}

#[derive(Debug, Clone, Copy, Default)]
struct LossInterval {
    /// Bytes between the last two losses.
    previous: f64,
    /// Bytes since the last loss, or since the start.
    current: f64,
}

impl LossIntervals {
    /// Bytes were acknowledged.
    pub(crate) fn count(&mut self, bytes: u64) {
        self.now.current += bytes as f64;
    }

    /// The larger of the last interval and the running one, bytes.
    pub(crate) fn longest(&self) -> f64 {
        self.now.previous.max(self.now.current)
    }

    /// The window reacted to a congestion event.
    pub(crate) fn on_reaction(&mut self, reaction: Reaction) {
        let Self { now, before_cut } = self;
        match reaction {
            Reaction::None => {}
            Reaction::Cut => {
                *before_cut = *now;
                // Two losses without a delivered byte between them count as one loss.
                if now.current > 0.0 {
                    now.previous = now.current;
                    now.current = 0.0;
                }
            }
            Reaction::Collapsed => *now = LossInterval::default(),
            Reaction::Restored => {
                let delivered_since = now.current;
                *now = *before_cut;
                now.current += delivered_since;
            }
        }
    }
}

type OliaMember<'a> = Member<'a, LossIntervals>;

/// Ranks paths by the rate that Reno would reach on them. As in the kernel: that rate grows with
/// the square root of the loss interval divided by the RTT, so its square is interval / RTT². The
/// draft's interval² / RTT gives another order.
fn quality(member: &OliaMember<'_>) -> f64 {
    member.state.longest() / (member.rtt * member.rtt)
}

/// The window in whole packets. In bytes, no two windows would ever be equal.
fn packets(member: &OliaMember<'_>) -> u64 {
    (member.window / member.mtu) as u64
}

/// The share of growth moved to or from `path`: from the paths with the largest windows to the best
/// paths with smaller windows. The sum over all paths is 0.
fn alpha(path: PathId, members: Members<'_, OpportunisticLinkedIncreases>) -> f64 {
    let mut best = 0.0f64;
    let mut largest = 0u64;
    for member in members.iter() {
        best = best.max(quality(&member));
        largest = largest.max(packets(&member));
    }
    let (mut count, mut largest_count, mut collected_count) = (0.0, 0.0, 0.0);
    let (mut is_largest, mut is_collected) = (false, false);
    for member in members.iter() {
        count += 1.0;
        let largest_window = packets(&member) == largest;
        let best_quality = quality(&member) >= best * (1.0 - 1e-9);
        let collected = best_quality && !largest_window;
        largest_count += f64::from(u8::from(largest_window));
        collected_count += f64::from(u8::from(collected));
        if member.id == path {
            (is_largest, is_collected) = (largest_window, collected);
        }
    }
    if is_collected {
        1.0 / (count * collected_count)
    } else if is_largest && collected_count > 0.0 {
        -1.0 / (count * largest_count)
    } else {
        0.0
    }
}

impl Coupling for OpportunisticLinkedIncreases {
    const NAME: &'static str = "olia";
    type State = LossIntervals;

    fn on_ack(state: &mut LossIntervals, _: &mut Window, ack: &Acked) {
        state.count(ack.bytes);
    }

    fn growth(path: &OliaMember<'_>, acked: f64, members: Members<'_, Self>) -> f64 {
        let rate: f64 = members
            .iter()
            .map(|member| member.effective_window / member.rtt)
            .sum();
        let coupled = path.window / (path.rtt * path.rtt) / (rate * rate);
        acked * path.mtu * (coupled + alpha(path.id, members) / path.window)
    }

    fn on_reaction(state: &mut LossIntervals, reaction: Reaction) {
        state.on_reaction(reaction);
    }
}

#[cfg(test)]
mod tests;
