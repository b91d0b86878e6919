//! MSAB as the ns-3 module ran it.

use std::time::Instant;

use mpquic_core::sched::{
    DataSelection, Decision, Needs, PacketInfo, PathView, Scheduler, SchedulerEvent, View,
};
use mpquic_core::{PathId, PathMap};

use crate::choice::{batch_bytes, fastest_sendable, seconds, send_batch};
use crate::plain_cases::PlainCases;

/// Part of lost bytes, and of the used part of the window, in a cost.
const PART: f64 = 0.1;
/// Marks packets of this scheduler in their tags; the other bits are the number of the turn.
const OURS: u64 = 1 << 62;
/// The largest epoch number; the learning rate is close to zero long before.
const MAX_EPOCH: u32 = 62;

/// Splits the buffer over all paths when an acknowledgement arrives, in the proportions that a
/// bandit learned. Each path gets its part of what the paths before it left, in whole packets and
/// up to its window.
///
/// Source: `MabDelay` and `UpdateRewardMab` in `mp-quic-scheduler.cc`, and `SendPendingData` in
/// `quic-socket-base.cc`, of the ns-3 module by Shu et al., branch `mpquic-msab`, which the figures
/// of Shu's thesis of 2023 come from. Properties of that code, in which it differs from the thesis
/// and from [`Msab`](crate::papers::Msab):
///
/// - A cost replaces the costs before it; nothing is added up.
/// - A cost is the latest RTT in seconds, a tenth of the lost bytes and a tenth of the used part of
///   the window, at most 1. So every loss costs 1.
/// - A cost is divided by the probability at the time of the acknowledgement.
/// - An epoch ends when the mean number of turns between a packet and its acknowledgement reaches
///   two to the power of the epoch, over the whole connection.
/// - A part of a large buffer exceeds the window of its path, so all paths send full windows with
///   any probabilities.
///
/// Constants: 0.1 for lost bytes and use of the window.
///
/// Differences: lost data waits for the next turn like other data. A rest that is less than a
/// packet for every path leaves at once; the module never sends it.
#[derive(Debug)]
pub struct MsabNs3 {
    cases: PlainCases,
    arms: PathMap<Arm>,
    epoch: u32,
    /// The number of the turn.
    turns: u64,
    /// The sum and the number of turns between packets and their acknowledgements.
    missing: (u64, u64),
    /// A packet was acknowledged or lost since the turn began.
    woken: bool,
    /// The path that is served in this turn, and the bytes that are left for it.
    serving: Option<(PathId, u64)>,
    /// The path and the time of the last acknowledgement.
    last: Option<(PathId, Instant)>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Arm {
    /// The last cost, weighed.
    cost: f64,
    probability: f64,
    /// Bytes that were lost since the last acknowledgement.
    lost: u64,
}

impl MsabNs3 {
    /// A scheduler that has learned nothing yet.
    pub fn new() -> Self {
        Self {
            cases: PlainCases::without_copies(),
            arms: PathMap::default(),
            epoch: 0,
            turns: 0,
            missing: (0, 0),
            woken: true,
            serving: None,
            last: None,
        }
    }

    fn arms<'a>(&self, view: &View<'a>) -> impl Iterator<Item = (&'a PathView, Arm)> {
        let known = |path: &'a PathView| Some((path, *self.arms.get(path.id)?));
        view.usable().filter_map(known)
    }

    /// Probabilities of all usable paths, from their costs.
    fn distribute(&mut self, view: &View<'_>) {
        for path in view.usable() {
            self.arms.get_or_insert_with(path.id, Arm::default);
        }
        let total: f64 = self.arms(view).map(|(_, arm)| (-arm.cost).exp()).sum();
        for path in view.usable() {
            if let Some(arm) = self.arms.get_mut(path.id) {
                arm.probability = (-arm.cost).exp() / total;
            }
        }
    }

    /// The next path of the turn with room for its part, and the bytes for it.
    fn next_part<'a>(&mut self, view: &View<'a>) -> Option<(&'a PathView, u64)> {
        let unsent = view.queue.unsent.saturating_add(view.queue.retransmit);
        let from = self.serving.map_or(PathId(0), |(path, _)| path);
        for path in view.usable().filter(|path| path.id >= from) {
            let arm = self.arms.get(path.id).copied().unwrap_or_default();
            let mtu = u64::from(path.mtu.max(1));
            let left = match self.serving.filter(|(id, _)| *id == path.id) {
                Some((_, left)) => left,
                None => (unsent as f64 * arm.probability) as u64 / mtu * mtu,
            };
            self.serving = Some((path.id, left));
            if left >= mtu && path.can_send() {
                return Some((path, left));
            }
        }
        None
    }

    /// Learns from an acknowledgement on a path. `turn` is the turn of the acknowledged packet.
    fn learn(&mut self, path: &PathView, turn: u64, view: &View<'_>) {
        self.missing.0 += self.turns.saturating_sub(turn);
        self.missing.1 += 1;
        let mean = self.missing.0 as f64 / self.missing.1 as f64;
        if self.epoch < MAX_EPOCH && mean >= 2f64.powi(self.epoch as i32) {
            self.epoch += 1;
            self.arms.values_mut().for_each(|arm| arm.cost = 0.0);
        }
        let count = view.usable().count().max(1) as f64;
        let rate = (count.ln() / 2f64.powi(self.epoch as i32)).sqrt();
        let used = path.in_flight as f64 / path.window.max(1) as f64;
        if let Some(arm) = self.arms.get_mut(path.id) {
            let cost = seconds(path.rtt.latest) + PART * arm.lost as f64 + PART * used;
            arm.cost = rate * cost.min(1.0) / arm.probability;
            arm.lost = 0;
        }
        self.distribute(view);
    }

    fn on_acked(&mut self, packet: &PacketInfo, view: &View<'_>) {
        self.woken = true;
        // Several packets of one frame are one report.
        let report = Some((packet.path, view.now));
        if self.last == report || packet.tag & OURS == 0 {
            return;
        }
        self.last = report;
        if let Some(path) = view.path(packet.path).filter(|path| path.usable) {
            self.learn(path, packet.tag & !OURS, view);
        }
    }
}

impl Default for MsabNs3 {
    fn default() -> Self {
        Self::new()
    }
}

impl Scheduler for MsabNs3 {
    fn select(&mut self, view: &View<'_>) -> Decision {
        if let Some(decision) = self.cases.decide(view) {
            return decision;
        }
        if std::mem::take(&mut self.woken) || self.arms(view).count() != view.usable().count() {
            self.turns += 1;
            self.serving = None;
            self.distribute(view);
        }
        if let Some((path, left)) = self.next_part(view) {
            return Decision::Send {
                path: path.id,
                data: DataSelection::Next,
                max_bytes: batch_bytes(path).min(left),
                tag: OURS | self.turns,
            };
        }
        let unsent = view.queue.unsent.saturating_add(view.queue.retransmit);
        let whole = view.usable().any(|path| unsent >= 2 * u64::from(path.mtu));
        let mut flying = view.usable().filter(|path| path.in_flight > 0);
        match flying.next().filter(|_| whole) {
            Some(path) => Decision::Wait {
                on: path.id,
                until: None,
            },
            None => fastest_sendable(view).map_or(Decision::Blocked, send_batch),
        }
    }

    fn on_event(&mut self, event: &SchedulerEvent, view: &View<'_>) {
        self.cases.on_event(event);
        match event {
            SchedulerEvent::Sent(packet) => {
                if let Some((path, left)) = &mut self.serving
                    && *path == packet.path
                {
                    *left = left.saturating_sub(packet.bytes);
                }
            }
            SchedulerEvent::Acked(packet, _) => self.on_acked(packet, view),
            SchedulerEvent::Lost(packet) => {
                self.woken = true;
                if let Some(arm) = self.arms.get_mut(packet.path) {
                    arm.lost += packet.bytes;
                }
            }
            SchedulerEvent::PathRemoved(path) => {
                self.arms.remove(*path);
                self.woken = true;
            }
            _ => {}
        }
    }

    fn needs(&self) -> Needs {
        Needs::default().with_packet_events()
    }

    fn name(&self) -> &'static str {
        "msab-ns3"
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::{Scene, full, packet, path, sends, sent};

    const MS: Duration = Duration::from_millis(1);

    fn acked(msab: &mut MsabNs3, scene: &mut Scene, path: u32, tag: u64) {
        scene.now += MS;
        let acked = SchedulerEvent::Acked(packet(PathId(path), tag), None);
        msab.on_event(&acked, &scene.view());
    }

    fn probability(msab: &MsabNs3, path: u32) -> f64 {
        let arm = msab.arms.get(PathId(path)).unwrap();
        (arm.probability * 1e4).round() / 1e4
    }

    /// The bytes that each path gets until no path gets any.
    fn turn(msab: &mut MsabNs3, scene: &mut Scene) -> Vec<(u32, u64)> {
        let mut parts = Vec::new();
        while scene.queue.unsent > 0
            && let Some((path, bytes)) = sends(&msab.select(&scene.view()))
        {
            let bytes = bytes.min(scene.queue.unsent);
            let tag = OURS | msab.turns;
            let place = &mut scene.paths[path.0 as usize];
            place.in_flight += bytes;
            if place.available_window() < u64::from(place.mtu) {
                *place = full(*place);
            }
            scene.queue.unsent -= bytes;
            msab.on_event(&sent(path, bytes, tag), &scene.view());
            parts.push((path.0, bytes));
        }
        parts
    }

    #[test]
    fn every_path_gets_its_part_of_what_is_left() {
        let mut scene = Scene::new(vec![path(0, 10), path(1, 50)]);
        let mut msab = MsabNs3::new();
        // Half of 12,000 bytes, and half of the rest; the next turn needs an acknowledgement.
        scene.queue.unsent = 12_000;
        assert_eq!(turn(&mut msab, &mut scene), [(0, 6_000), (1, 2_400)]);
        acked(&mut msab, &mut scene, 0, 0);
        // The last packet belongs to no path's part.
        let last = [(0, 1_200), (1, 1_200), (0, 1_200)];
        assert_eq!(turn(&mut msab, &mut scene), last);
        // Much data fills both windows of 12,000 bytes.
        let mut scene = Scene::new(vec![path(0, 10), path(1, 50)]);
        scene.queue.unsent = 100_000;
        let filled = turn(&mut MsabNs3::new(), &mut scene);
        assert_eq!(filled, [(0, 12_000), (1, 12_000)]);
    }

    /// RTTs of 20 and 100 ms and half a window in flight: costs of 0.07 and 0.15. The first turn's
    /// packets are acknowledged one turn later, so the epoch becomes 1, and the learning rate is
    /// the root of ln 2 / 2, 0.5887.
    #[test]
    fn the_last_cost_replaces_those_before() {
        let mut scene = Scene::new(vec![path(0, 20), path(1, 100)]);
        scene.queue.unsent = 1 << 20;
        for path in &mut scene.paths {
            path.in_flight = path.window / 2;
        }
        let mut msab = MsabNs3::new();
        msab.select(&scene.view());
        let tag = OURS | msab.turns;
        msab.turns += 1;
        acked(&mut msab, &mut scene, 0, tag);
        assert_eq!(msab.epoch, 1);
        // A weighed cost of 0.0824: 0.4794 for path 0.
        assert_eq!(probability(&msab, 0), 0.4794);
        acked(&mut msab, &mut scene, 1, tag);
        // 0.5887 * 0.15 / 0.5206 = 0.1696, against 0.0824.
        assert_eq!(probability(&msab, 0), 0.5218);
        // Again the same cost, divided by another probability.
        acked(&mut msab, &mut scene, 1, tag);
        // 0.5887 * 0.15 / 0.4782 = 0.1846.
        assert_eq!(probability(&msab, 0), 0.5255);
        // A loss costs 1, whatever was lost.
        msab.on_event(&SchedulerEvent::Lost(packet(PathId(0), tag)), &scene.view());
        acked(&mut msab, &mut scene, 0, tag);
        // 0.5887 / 0.5255 = 1.1203.
        assert_eq!(probability(&msab, 0), 0.2818);
        // Packets of the same frame count once.
        scene.now -= MS;
        acked(&mut msab, &mut scene, 0, tag);
        assert_eq!(probability(&msab, 0), 0.2818);
    }
}
