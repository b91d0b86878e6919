//! Coupled BBR: rate control on every path; paths that share a bottleneck act as one flow.
//!
//! The way a BBR flow probes decides its share of a bottleneck. A flow that sends a quarter more
//! for a moment takes bandwidth from all other flows, including other paths of its own connection,
//! and these take the bandwidth back when they probe. So paths that probe one after the other get a
//! full share each. Paths that probe at the same moment do not take bandwidth from each other.
//! Together, they take only as much from other flows as a single flow of their total size. Coupling
//! therefore means synchronising: paths of one bottleneck refill, probe and stop together, at the
//! pace of the slowest, and all stop at once when one of them loses too much. Everything else stays
//! the same, and a path that was coupled by mistake still finds all of its bandwidth.
//!
//! [`detection`] finds the paths that share a bottleneck, [`rivals`] finds other flows.
//!
//! Each path runs [`Bbr`] with four differences:
//!
//! - Beside a loss-based flow, all paths of a bottleneck together have as much in flight as one
//!   such flow.
//! - Round trips with a smaller share of losses than probing tolerates (2 %) do not slow a path
//!   down: a full queue loses more, and on a long lossy path the reaction to such losses costs a
//!   tenth of the rate.
//! - Startup is quicker ([`Variant::QUICK`]): a path is full one and a half round trips sooner.
//! - While no other flow is seen, a path is not emptied to measure its minimum RTT if recent RTTs
//!   were as short: emptying costs a long path 3 % of its rate.

use std::time::{Duration, Instant};

use mpquic_core::congestion::{Acked, CongestionEvent, CongestionKind, Controller, Sent};
use mpquic_core::{PathId, PathMap};

mod detection;
mod rivals;

use crate::bbr::{Bbr, Company, MaxBandwidth, Phase, Variant};
use crate::careful_resume::{Found, Resumable};
use crate::uncoupled::{PathController, PathLimits};
use detection::{Detector, Observation};
use rivals::{Rivals, Round, Strangers};

/// One in this many probes of a bottleneck is made by one path alone, to check whether the other
/// paths still share the bottleneck.
const PROBES_PER_TRIAL: u32 = 4;
/// How long a path waits for other paths, at most, in round trips of the slowest.
const PATIENCE: u32 = 3;
/// A path that was application-limited within this time gives no useful rate samples. Its group
/// then keeps [`KEPT`] of the largest rate that any member had.
const LIMITED: Duration = Duration::from_millis(300);
/// The part of a member's largest rate that a group keeps while it has no useful rate samples. BBR
/// keeps the same part after losses (`Beta`).
const KEPT: f64 = 0.7;
/// A path without acknowledgements for this many of its round trips is not waited for.
const SILENCE: u32 = 2;
/// Rate samples need few acknowledgements, and windows do not grow by their number.
const ACKS_PER_WINDOW: u64 = 8;

/// The state of one path and its part in coupling.
#[derive(Debug)]
struct CoupledPath {
    bbr: Bbr,
    /// The lowest ID of the paths that share the bottleneck of this path, possibly its own.
    group: PathId,
    /// The group before the groups were last formed.
    former_group: PathId,
    /// Largest total delivery rate of the paths of the group. Only the leader of a group, the path
    /// whose ID names it, updates this value.
    joint_bandwidth: MaxBandwidth,
    /// The path probes together with other paths.
    is_joint: bool,
    /// When the path began to wait for other paths.
    waits_since: Option<Instant>,
    /// Number of probes that the path started by itself.
    probes: u32,
    last_ack: Instant,
    app_limited: bool,
    /// When the path was last application-limited.
    limited_at: Option<Instant>,
    smoothed_rtt: Duration,
    /// Bytes in flight.
    in_flight: u64,
    /// Other flows of the bottleneck. Only the leader of a group updates this value.
    rivals: Rivals,
    /// `RttSnapshot::samples` at the last RTT sample that was used.
    samples_seen: u64,
}

impl CoupledPath {
    fn new(path: PathId, now: Instant, mtu: u16) -> Self {
        Self {
            bbr: Bbr::with_variant(Variant::QUICK, now, mtu),
            group: path,
            former_group: path,
            joint_bandwidth: MaxBandwidth::default(),
            is_joint: false,
            waits_since: None,
            probes: 0,
            last_ack: now,
            app_limited: false,
            limited_at: None,
            smoothed_rtt: Duration::ZERO,
            in_flight: 0,
            rivals: Rivals::default(),
            samples_seen: 0,
        }
    }

    /// True if the application does not limit the path and acknowledgements still arrive.
    fn is_active(&self, now: Instant) -> bool {
        let silence = now.saturating_duration_since(self.last_ack);
        !self.app_limited && silence <= self.smoothed_rtt * SILENCE
    }

    fn is_steady(&self) -> bool {
        matches!(self.bbr.phase(), Phase::Down | Phase::Cruise)
    }
}

/// BBR on every path; the paths that share a bottleneck take one fair share of it together.
#[derive(Debug, Default)]
pub struct CoupledBbr {
    paths: PathMap<CoupledPath>,
    detector: Detector,
}

impl CoupledBbr {
    fn limits(&self, path: PathId) -> Option<PathLimits> {
        self.paths.get(path).map(|path| path.bbr.limits())
    }

    /// The other active paths of the bottleneck of `path`.
    fn others(
        &self,
        path: PathId,
        now: Instant,
    ) -> impl Iterator<Item = (PathId, &CoupledPath)> + Clone {
        let group = self.group_of(path);
        self.paths.iter().filter(move |(id, other)| {
            *id != path && Some(other.group) == group && other.is_active(now)
        })
    }

    /// Collects the requests of the other paths to `path`.
    fn company(&self, path: PathId, now: Instant) -> Company {
        let Some(state) = self.paths.get(path) else {
            return Company::NONE;
        };
        let others = self.others(path, now);
        let joint = others.clone().filter(|(_, other)| other.is_joint);
        let refilling =
            |other: &CoupledPath| other.bbr.phase() == Phase::Refill && !other.bbr.is_refilled();
        let longest_rtt = others.clone().map(|(_, other)| other.smoothed_rtt);
        let longest_rtt = longest_rtt.fold(state.smoothed_rtt, Duration::max);
        let is_patient = state
            .waits_since
            .is_none_or(|since| now.saturating_duration_since(since) <= longest_rtt * PATIENCE);
        // These paths join the probe at their next acknowledgement.
        let is_awaited =
            |other: &CoupledPath| refilling(other) || (!other.is_joint && other.is_steady());
        let hold = state.is_joint && is_patient;
        Company {
            wait: self.must_wait(path, now),
            hurry: state.rivals.is_probe_due(),
            others: self
                .group_of(path)
                .and_then(|group| self.paths.get(group))
                .is_some_and(|leader| !leader.rivals.is_alone(now)),
            bound: self.bound(path),
            join: joint
                .clone()
                .any(|(_, other)| other.bbr.phase() == Phase::Refill),
            hold_refill: hold && others.clone().any(|(_, other)| is_awaited(other)),
            hold_up: hold
                && joint
                    .clone()
                    .any(|(_, other)| other.bbr.phase() == Phase::Up && !other.bbr.is_saturated()),
            count: 1.0 + others.clone().count() as f64,
            share: self.share(path, now),
        }
    }

    /// The share of `path` in the bytes that its group may have in flight beside a loss-based flow.
    fn bound(&self, path: PathId) -> Option<f64> {
        let group = self.group_of(path)?;
        let bound = self.paths.get(group)?.rivals.bound()?;
        let own = self.paths.get(path)?.bbr.largest_bandwidth();
        Some(bound * own / self.sum(group, Bbr::largest_bandwidth).max(1.0))
    }

    /// True if a path outside the group may share the bottleneck of the group: too few trials have
    /// tested it, or a queue is standing on the path as well.
    fn may_share(&self, group: PathId, path: PathId) -> bool {
        let leader = self.group_of(path).and_then(|other| self.paths.get(other));
        let has_queue = |leader: &CoupledPath| leader.rivals.has_queue();
        self.detector.is_open(group, path) || leader.is_some_and(has_queue)
    }

    /// Whether active paths outside a group may share its bottleneck.
    fn strangers(&self, group: PathId, now: Instant) -> Strangers {
        let mut others = self
            .paths
            .iter()
            .filter(|(_, path)| path.group != group && path.is_active(now))
            .peekable();
        if others.peek().is_none() {
            Strangers::None
        } else if others.any(|(id, _)| self.may_share(group, id)) {
            Strangers::Open
        } else {
            Strangers::Separate
        }
    }

    /// Reports an acknowledgement on `path` to the leader of its group.
    fn update_rivals(&mut self, path: PathId, ack: &Acked, rtt: Option<Duration>) {
        let Some(group) = self.group_of(path) else {
            return;
        };
        let ended = (path == group).then(|| self.ended_round(path, ack));
        let Some(leader) = self.paths.get_mut(group) else {
            return;
        };
        let mtu = leader.bbr.mtu();
        leader.rivals.on_ack(ack.bytes as f64, mtu, ack.app_limited);
        if path != group {
            return;
        }
        if ack.rtt_restarted {
            leader.rivals.forget_round_trips();
        }
        if let Some(rtt) = rtt {
            leader.rivals.on_rtt(ack.now, rtt);
        }
        if let Some(round) = ended.flatten() {
            leader.rivals.on_round(&round);
        }
    }

    /// The round trip of a leading path, if the current acknowledgement ended one.
    fn ended_round(&self, leader: PathId, ack: &Acked) -> Option<Round> {
        let state = self.paths.get(leader)?;
        if !state.bbr.has_round_ended() {
            return None;
        }
        let in_flight: u64 = self.members(leader).map(|path| path.in_flight).sum();
        Some(Round {
            now: ack.now,
            is_cruising: state.bbr.phase() == Phase::Cruise,
            app_limited: ack.app_limited,
            strangers: self.strangers(leader, ack.now),
            in_flight: in_flight as f64,
            rate: self.sum(leader, Bbr::last_rate),
            mtu: state.bbr.mtu(),
            since_probe: state.bbr.since_probe(ack.now),
        })
    }

    fn group_of(&self, path: PathId) -> Option<PathId> {
        self.paths.get(path).map(|path| path.group)
    }

    fn members(&self, group: PathId) -> impl Iterator<Item = &CoupledPath> {
        self.paths.values().filter(move |path| path.group == group)
    }

    /// The sum of a value over all paths of a group.
    fn sum(&self, group: PathId, value: impl Fn(&Bbr) -> f64) -> f64 {
        self.members(group).map(|path| value(&path.bbr)).sum()
    }

    /// `path` and the other active paths of its bottleneck.
    fn company_of(&self, path: PathId, now: Instant) -> impl Iterator<Item = &CoupledPath> {
        let own = self.paths.get(path).into_iter();
        own.chain(self.others(path, now).map(|(_, other)| other))
    }

    /// The factor that scales down the largest bandwidths of a group, because its paths may have
    /// reached them at different times.
    fn share(&self, path: PathId, now: Instant) -> f64 {
        let largest = self.company_of(path, now);
        let largest = largest.map(|path| path.bbr.largest_bandwidth());
        let (sum, most) = largest.fold((0.0_f64, 0.0_f64), |(sum, most), rate| {
            (sum + rate, most.max(rate))
        });
        let leader = self.group_of(path).and_then(|group| self.paths.get(group));
        let is_alone = leader.is_some_and(|leader| self.members(leader.group).nth(1).is_none());
        let limited = |path: &CoupledPath| path.limited_at.is_some_and(|at| now <= at + LIMITED);
        let was_limited = self.paths.get(path).is_some_and(limited);
        if was_limited && is_alone {
            // The path was alone in its group, so its bandwidth was not shared.
            return 1.0;
        }
        let mut joint = leader.map_or(0.0, |leader| leader.joint_bandwidth.get());
        if was_limited {
            joint = joint.max(KEPT * most);
        }
        if joint > 0.0 && sum > joint {
            joint / sum
        } else {
            1.0
        }
    }

    /// Updates the largest total delivery rate of the active paths of a bottleneck.
    fn update_joint_bandwidth(&mut self, path: PathId, ack: &Acked) {
        let Some(group) = self.group_of(path).filter(|_| !ack.app_limited) else {
            return;
        };
        let company = self.company_of(path, ack.now);
        let rate = company.map(|path| path.bbr.last_rate()).sum();
        if let Some(first) = self.paths.get_mut(group) {
            let joint = &mut first.joint_bandwidth;
            joint.follow(first.bbr.cycles());
            joint.on_sample(rate, false);
        }
    }

    /// True if `path` should not probe now: the probe would disturb a trial, the leader holds back
    /// probes, or another path should start the probe. A trial of a path that is silent or
    /// application-limited gives no result and is not protected.
    fn must_wait(&self, path: PathId, now: Instant) -> bool {
        let is_active = |path| self.paths.get(path).is_some_and(|path| path.is_active(now));
        let spoils = self.detector.prober().is_some_and(|prober| {
            prober != path
                && is_active(prober)
                && (self.detector.is_open(path, prober)
                    || self.group_of(path) == self.group_of(prober))
        });
        let is_patient = |path: &CoupledPath| path.rivals.is_patient();
        let leader = self.group_of(path).and_then(|group| self.paths.get(group));
        spoils || leader.is_some_and(is_patient) || self.others(path, now).any(|(id, _)| id < path)
    }

    /// Reacts to a change of the phase of `path` from `before`.
    fn on_phase(&mut self, path: PathId, before: Phase, now: Instant) {
        let has_others = self.others(path, now).next().is_some();
        let joins = self.company(path, now).join;
        let Some(state) = self.paths.get_mut(path) else {
            return;
        };
        let after = state.bbr.phase();
        let waits = state.bbr.is_refilled() || state.bbr.is_saturated();
        state.waits_since = waits.then(|| state.waits_since.unwrap_or(now));
        if before == after {
            return;
        }
        match after {
            Phase::Refill if joins => state.is_joint = true,
            Phase::Refill => {
                state.rivals.on_probe();
                state.probes = state.probes.wrapping_add(1);
                state.is_joint = has_others && !state.probes.is_multiple_of(PROBES_PER_TRIAL);
                if !state.is_joint {
                    self.detector.begin(path, now);
                }
            }
            Phase::Up => self.detector.on_up(path),
            Phase::Down => {
                state.is_joint = false;
                self.detector.on_down(path, now);
            }
            Phase::Cruise => {}
            Phase::Startup | Phase::Drain | Phase::ProbeRtt => {
                state.is_joint = false;
                self.detector.on_disturbed(path);
            }
        }
    }

    /// Forms the groups again: paths that share a bottleneck, directly or through other paths,
    /// share a group.
    fn regroup(&mut self) {
        for (id, path) in self.paths.iter_mut() {
            path.former_group = std::mem::replace(&mut path.group, id);
        }
        while let Some((from, to)) = self.first_to_join() {
            for path in self.paths.values_mut() {
                if path.group == from {
                    path.group = to;
                }
            }
        }
        if self
            .paths
            .iter()
            .any(|(_, path)| path.group != path.former_group)
        {
            self.restart_joint_bandwidths();
            for path in self.paths.values_mut() {
                path.rivals.restart();
            }
        }
    }

    /// Finds two groups with paths that share a bottleneck. The first of the two is to be renamed
    /// to the second.
    fn first_to_join(&self) -> Option<(PathId, PathId)> {
        self.paths.iter().find_map(|(a, path)| {
            let mut others = self.paths.iter();
            let other = others
                .find(|(b, other)| path.group < other.group && self.detector.is_shared(a, *b));
            other.map(|(_, other)| (other.group, path.group))
        })
    }

    /// Sets the joint bandwidth of each group to the sum of the bandwidths of its paths.
    fn restart_joint_bandwidths(&mut self) {
        let ids: Vec<_> = self.paths.iter().map(|(id, _)| id).collect();
        for id in ids {
            let sum = self.sum(id, Bbr::largest_bandwidth);
            if let Some(first) = self.paths.get_mut(id) {
                first.joint_bandwidth = MaxBandwidth::starting_from(sum, first.bbr.cycles());
            }
        }
    }

    /// Forgets old delivery rates of a group that does not probe.
    fn age_bandwidths(&mut self, group: PathId) {
        for path in self.paths.values_mut() {
            if path.group == group {
                path.bbr.age_bandwidth();
            }
        }
    }

    /// Stops the joint probe of the group of `path`, because `path` lost too much.
    fn stop_others(&mut self, path: PathId, event: &CongestionEvent) {
        let Some(group) = self.group_of(path) else {
            return;
        };
        for (id, other) in self.paths.iter_mut() {
            if id != path && other.group == group && other.is_joint {
                other.bbr.on_others_too_high(event);
                other.is_joint = false;
            }
        }
    }
}

impl Resumable for CoupledBbr {
    const TOLERATED_LOSS: f64 = Bbr::TOLERATED_LOSS;

    fn adopt(&mut self, path: PathId, found: Found) {
        if let Some(path) = self.paths.get_mut(path) {
            path.bbr.adopt(found);
        }
    }
}

impl Controller for CoupledBbr {
    fn on_path_opened(&mut self, path: PathId, now: Instant, mtu: u16) {
        self.detector.remove(path);
        self.paths.insert(path, CoupledPath::new(path, now, mtu));
        self.regroup();
    }

    fn on_path_closed(&mut self, path: PathId) {
        self.detector.remove(path);
        self.paths.remove(path);
        self.regroup();
    }

    fn on_mtu_update(&mut self, path: PathId, mtu: u16) {
        if let Some(path) = self.paths.get_mut(path) {
            path.bbr.on_mtu_update(mtu);
        }
    }

    fn on_packet_sent(&mut self, path: PathId, sent: &Sent) {
        if let Some(path) = self.paths.get_mut(path) {
            path.bbr.on_packet_sent(sent);
        }
    }

    fn on_ack(&mut self, path: PathId, ack: &Acked) {
        let company = self.company(path, ack.now);
        let Some(state) = self.paths.get_mut(path) else {
            return;
        };
        state.last_ack = ack.now;
        state.app_limited = ack.app_limited;
        if ack.app_limited {
            state.limited_at = Some(ack.now);
        }
        state.in_flight = ack.in_flight;
        state.smoothed_rtt = ack.rtt.smoothed;
        let before = state.bbr.phase();
        state.bbr.on_ack_in(ack, &company);
        let is_new = std::mem::replace(&mut state.samples_seen, ack.rtt.samples) != ack.rtt.samples;
        let seen = Observation {
            now: ack.now,
            rtt: is_new.then_some(ack.rtt.latest),
            smoothed_rtt: ack.rtt.smoothed,
            acked: ack.bytes,
            is_steady: state.is_steady(),
        };
        self.update_joint_bandwidth(path, ack);
        self.update_rivals(path, ack, seen.rtt);
        self.on_phase(path, before, ack.now);
        if self.detector.on_ack(path, &seen) {
            self.regroup();
        }
    }

    fn on_congestion_event(&mut self, path: PathId, event: &CongestionEvent) {
        let Some(state) = self.paths.get_mut(path) else {
            return;
        };
        let (before, was_joint) = (state.bbr.phase(), state.is_joint);
        state.bbr.on_congestion_event(event);
        let has_stopped = before != Phase::Down && state.bbr.phase() == Phase::Down;
        if event.kind == CongestionKind::Loss {
            self.detector.on_loss(path, event.lost_bytes);
        }
        if event.kind == CongestionKind::Loss
            && let Some(group) = self.group_of(path)
            && let Some(leader) = self.paths.get_mut(group)
            && leader.rivals.on_loss(event.now, event.sent_at)
        {
            self.age_bandwidths(group);
        }
        self.on_phase(path, before, event.now);
        if was_joint && has_stopped {
            self.stop_others(path, event);
        }
    }

    fn window(&self, path: PathId) -> u64 {
        self.limits(path).map_or(0, |limits| limits.window)
    }

    fn in_recovery(&self, path: PathId) -> bool {
        self.limits(path).is_some_and(|limits| limits.in_recovery)
    }

    fn pacing_rate(&self, path: PathId) -> Option<u64> {
        self.limits(path)?.pacing_rate
    }

    fn burst(&self, path: PathId) -> Option<u64> {
        self.limits(path)?.burst
    }

    fn send_quantum(&self, path: PathId) -> Option<u64> {
        self.limits(path)?.send_quantum
    }

    fn acks_per_window(&self) -> u64 {
        ACKS_PER_WINDOW
    }

    fn window_after_round(&self, path: PathId, windows: &[(PathId, u64)]) -> u64 {
        let index = windows.binary_search_by_key(&path, |(id, _)| *id);
        let window = index.map_or(0, |index| windows[index].1);
        self.paths
            .get(path)
            .map_or(window, |path| path.bbr.window_after_round(window))
    }

    fn memory(&self) -> u64 {
        let paths = self.paths.iter().map(|(_, path)| path.bbr.memory());
        paths.sum::<u64>() + self.detector.memory()
    }

    fn name(&self) -> &'static str {
        "coupled-bbr"
    }
}

#[cfg(test)]
mod tests;
