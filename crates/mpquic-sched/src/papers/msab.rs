//! MSAB: scheduling by an adversarial multi-armed bandit.

use std::time::{Duration, Instant};

use mpquic_core::PathMap;
use mpquic_core::sched::{
    DataSelection, Decision, Needs, PacketInfo, PathView, Scheduler, SchedulerEvent, View,
};

use crate::choice::{carriers, is_measured, lowest_rtt};
use crate::papers::choice::uniform;
use crate::plain_cases::PlainCases;

/// Weight of the loss rate in a cost.
const LOSS_WEIGHT: f64 = 0.1;
/// Weight of the used part of the window in a cost.
const USED_WEIGHT: f64 = 0.1;
/// Share of the probability that is spread evenly.
const EXPLORATION: f64 = 0.05;
/// The upper end of the RTT scale is the largest sample of this many seconds.
const SCALE_SECONDS: usize = 10;
/// Marks packets of this scheduler in their tags.
const OURS: u64 = 1 << 62;
/// The largest epoch number; the learning rate is close to zero long before.
const MAX_EPOCH: u32 = 62;

/// How [`Msab`] turns probabilities into packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MsabMode {
    /// Draws a path for every packet; only the drawn path learns from the packet.
    Sample,
    /// Splits the packets in proportion, so that every path is observed all the time.
    Split,
}

/// Learns which paths to prefer from the cost of packets (RTT, loss, use of the window), without
/// assuming a distribution of the costs: Exp3 with delayed feedback and restarts.
///
/// Source: Shu, "Multipath QUIC Implementation and Scheduling with Adversarial Multi-Armed
/// Bandits", 2023, chapter 4. Inputs: minimum RTT, window, bytes in flight; RTT samples and losses
/// of packets. Constants: 0.1 for loss and use of the window as in the published code. Our own
/// constants are an even spread of 5 per cent, and an RTT scale from the minimum RTT to the largest
/// sample of the last ten seconds.
///
/// Differences from the thesis:
///
/// - Costs are scaled to 0 to 1.
/// - Each path counts its own feedback.
/// - Feedback counts with the probability at the time of sending, and for the path that was used.
/// - All estimates restart with an epoch.
/// - A full path leaves its probability to the others.
/// - Each packet is a report of its own; a lost packet costs as much as the largest RTT.
///
/// The published figures do not come from this algorithm: the published code overwrites values that
/// it should add up.
#[derive(Debug)]
pub struct Msab {
    mode: MsabMode,
    cases: PlainCases,
    arms: PathMap<Arm>,
    epoch: u32,
    /// Sum over all packets: the number of packets without feedback at the time the packet left.
    missing_sum: u64,
    largest_rtt: WindowedMax,
}

#[derive(Debug, Clone, Copy)]
struct Arm {
    /// Accumulated estimate of the cost.
    cost: f64,
    probability: f64,
    /// Packets that the path still has to get of the split.
    credit: f64,
    /// Packets without feedback.
    missing: u64,
}

/// The cost of a packet, as three numbers between 0 and 1.
#[derive(Debug, Clone, Copy)]
struct Observation {
    /// The position of the RTT on the scale.
    rtt: f64,
    lost: f64,
    /// The used part of the window.
    used: f64,
}

impl Observation {
    fn cost(self) -> f64 {
        let weights = 1.0 + LOSS_WEIGHT + USED_WEIGHT;
        (self.rtt + LOSS_WEIGHT * self.lost + USED_WEIGHT * self.used) / weights
    }
}

/// The position of `rtt` between `low` and `high`, 0 to 1.
fn on_scale(rtt: Duration, low: Duration, high: Duration) -> f64 {
    if high <= low {
        return 0.0;
    }
    let above = rtt.saturating_sub(low);
    (above.as_secs_f64() / (high - low).as_secs_f64()).min(1.0)
}

/// A tag with the epoch and the probability, which the feedback needs.
fn tag(epoch: u32, probability: f64) -> u64 {
    let probability = (probability * f64::from(u32::MAX)).round() as u32;
    OURS | u64::from(epoch) << 32 | u64::from(probability.max(1))
}

fn untag(tag: u64) -> Option<(u32, f64)> {
    let epoch = (tag & !OURS) >> 32;
    let probability = f64::from(tag as u32) / f64::from(u32::MAX);
    (tag & OURS != 0).then_some((epoch as u32, probability))
}

impl Msab {
    /// A scheduler that has learned nothing yet.
    pub fn new(mode: MsabMode) -> Self {
        Self {
            mode,
            cases: PlainCases::default(),
            arms: PathMap::default(),
            epoch: 0,
            missing_sum: 0,
            largest_rtt: WindowedMax::default(),
        }
    }

    /// Computes the probabilities of all paths that carry data.
    fn distribute(&mut self, view: &View<'_>) {
        let known = carriers(view).filter_map(|path| self.arms.get(path.id));
        let (sum, count) = known.fold((0.0, 0u32), |(sum, n), arm| (sum + arm.cost, n + 1));
        let mean = sum / f64::from(count.max(1));
        let (mut least, mut arms) = (f64::INFINITY, 0.0);
        for path in carriers(view) {
            // A new path starts with the mean cost.
            let arm = self.arms.get_or_insert_with(path.id, || Arm {
                cost: mean,
                probability: 0.0,
                credit: 0.0,
                missing: 0,
            });
            least = least.min(arm.cost);
            arms += 1.0;
        }
        let mut total = 0.0;
        for path in carriers(view) {
            if let Some(arm) = self.arms.get_mut(path.id) {
                arm.probability = (least - arm.cost).exp();
                total += arm.probability;
            }
        }
        for path in carriers(view) {
            if let Some(arm) = self.arms.get_mut(path.id) {
                let learned = (1.0 - EXPLORATION) * arm.probability / total;
                arm.probability = learned + EXPLORATION / arms;
            }
        }
    }

    fn probability(&self, path: &PathView) -> f64 {
        self.arms.get(path.id).map_or(0.0, |arm| arm.probability)
    }

    /// Draws a path with its probability; `total` is the sum over the paths that can send.
    fn draw<'a>(&self, view: &View<'a>, total: f64) -> Option<&'a PathView> {
        let mut at = uniform(view.random) * total;
        let mut drawn = None;
        for path in view.sendable().filter(|path| is_measured(path)) {
            drawn = Some(path);
            at -= self.probability(path);
            if at < 0.0 {
                break;
            }
        }
        drawn
    }

    /// Gives every path its part, and returns the path with the largest credit.
    fn next_in_split<'a>(&mut self, view: &View<'a>, total: f64) -> Option<&'a PathView> {
        let mut next: Option<(&PathView, f64)> = None;
        for path in view.sendable().filter(|path| is_measured(path)) {
            let part = self.probability(path) / total;
            if let Some(arm) = self.arms.get_mut(path.id) {
                arm.credit += part;
                if next.is_none_or(|(_, credit)| arm.credit > credit) {
                    next = Some((path, arm.credit));
                }
            }
        }
        let (path, _) = next?;
        self.arms.get_mut(path.id)?.credit -= 1.0;
        Some(path)
    }

    fn on_sent(&mut self, packet: &PacketInfo) {
        if untag(packet.tag).is_none() {
            return;
        }
        if let Some(arm) = self.arms.get_mut(packet.path) {
            arm.missing += 1;
        }
        let missing: u64 = self.arms.values().map(|arm| arm.missing).sum();
        self.missing_sum = self.missing_sum.saturating_add(missing);
        while self.epoch < MAX_EPOCH && self.missing_sum >= 1 << self.epoch {
            self.epoch += 1;
            self.arms.values_mut().for_each(|arm| arm.cost = 0.0);
        }
    }

    /// A packet was acknowledged, or lost if `rtt` is `None`.
    fn on_feedback(&mut self, packet: &PacketInfo, rtt: Option<Duration>, view: &View<'_>) {
        let Some((epoch, probability)) = untag(packet.tag) else {
            return;
        };
        let measured = view.paths.iter().filter(|path| is_measured(path));
        let low = measured.map(|path| path.rtt.min).min().unwrap_or_default();
        if let Some(rtt) = rtt {
            self.largest_rtt.insert(view.now, rtt);
        }
        let high = self.largest_rtt.max(view.now);
        let arms = self.arms.len() as f64;
        let Some(arm) = self.arms.get_mut(packet.path) else {
            return;
        };
        arm.missing = arm.missing.saturating_sub(1);
        let Some(path) = view.path(packet.path).filter(|_| epoch == self.epoch) else {
            return;
        };
        let used = path.in_flight as f64 / path.window.max(1) as f64;
        let observation = Observation {
            rtt: rtt.map_or(1.0, |rtt| on_scale(rtt, low, high)),
            lost: f64::from(u8::from(rtt.is_none())),
            used: used.min(1.0),
        };
        let learning_rate = (arms.ln() / 2f64.powi(self.epoch as i32)).sqrt();
        arm.cost += learning_rate
            * match self.mode {
                MsabMode::Sample => observation.cost() / probability,
                MsabMode::Split => observation.cost(),
            };
    }
}

impl Default for Msab {
    fn default() -> Self {
        Self::new(MsabMode::Sample)
    }
}

impl Scheduler for Msab {
    fn select(&mut self, view: &View<'_>) -> Decision {
        if let Some(decision) = self.cases.decide(view) {
            return decision;
        }
        self.distribute(view);
        let sendable = view.sendable().filter(|path| is_measured(path));
        let total: f64 = sendable.map(|path| self.probability(path)).sum();
        let chosen = match self.mode {
            MsabMode::Sample => self.draw(view, total),
            MsabMode::Split => self.next_in_split(view, total),
        };
        let Some(path) = chosen.or_else(|| lowest_rtt(view.sendable())) else {
            return Decision::Blocked;
        };
        Decision::Send {
            path: path.id,
            data: DataSelection::Next,
            max_bytes: 0,
            tag: tag(self.epoch, (self.probability(path) / total).min(1.0)),
        }
    }

    fn on_event(&mut self, event: &SchedulerEvent, view: &View<'_>) {
        self.cases.on_event(event);
        match event {
            SchedulerEvent::Sent(packet) => self.on_sent(packet),
            SchedulerEvent::Acked(packet, sample) => {
                let since = || view.now.saturating_duration_since(packet.sent_at);
                self.on_feedback(packet, Some(sample.unwrap_or_else(since)), view);
            }
            SchedulerEvent::Lost(packet) => self.on_feedback(packet, None, view),
            SchedulerEvent::PathRemoved(path) => {
                self.arms.remove(*path);
            }
            _ => {}
        }
    }

    fn needs(&self) -> Needs {
        Needs::default().with_packet_events()
    }

    fn name(&self) -> &'static str {
        match self.mode {
            MsabMode::Sample => "msab",
            MsabMode::Split => "msab-split",
        }
    }
}

/// The largest RTT of the last seconds, one value per second.
#[derive(Debug, Default)]
struct WindowedMax {
    /// When the newest second began, and the slot of that second.
    newest: Option<(Instant, usize)>,
    seconds: [Duration; SCALE_SECONDS],
}

impl WindowedMax {
    fn advance(&mut self, now: Instant) -> usize {
        let (mut began, mut slot) = self.newest.unwrap_or((now, 0));
        let passed = now.saturating_duration_since(began).as_secs();
        for _ in 0..passed.min(SCALE_SECONDS as u64) {
            slot = (slot + 1) % SCALE_SECONDS;
            self.seconds[slot] = Duration::ZERO;
        }
        began += Duration::from_secs(passed);
        self.newest = Some((began, slot));
        slot
    }

    fn insert(&mut self, now: Instant, rtt: Duration) {
        let slot = self.advance(now);
        self.seconds[slot] = self.seconds[slot].max(rtt);
    }

    fn max(&mut self, now: Instant) -> Duration {
        self.advance(now);
        self.seconds.iter().copied().max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
