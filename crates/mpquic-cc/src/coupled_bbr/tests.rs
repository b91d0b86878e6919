//! Groups and joint probes, and their robustness. Shares of bottlenecks are tested in the
//! laboratory, `mpquic-sim`.

use mpquic_core::congestion::DeliveryRate;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::testing::{acked, congestion, sent, start};

const MS: Duration = Duration::from_millis(1);
const RTT: Duration = Duration::from_millis(40);

/// Paths that deliver 1 MB/s each, with an acknowledgement per millisecond.
struct Paths {
    controller: CoupledBbr,
    now: Instant,
    delivered: u64,
    /// Bytes in flight that acknowledgements report.
    in_flight: u64,
    /// Delivery rate that acknowledgements report, bytes per second.
    rate: u64,
    /// Acknowledgements report that the application was the limit.
    app_limited: bool,
    /// The round trip time that acknowledgements report.
    rtt: Duration,
    /// The next acknowledgement reports that acknowledgements return on another path.
    rtt_restarted: bool,
}

impl Paths {
    /// `count` cruising paths; if `shared`, all of them are known to share a bottleneck.
    fn new(count: u32, shared: bool) -> Self {
        let now = start();
        let mut controller = CoupledBbr::default();
        for path in 0..count {
            controller.on_path_opened(PathId(path), now, 1200);
        }
        let mut paths = Self {
            controller,
            now,
            delivered: 0,
            in_flight: 20_000,
            rate: 1_000_000,
            app_limited: false,
            rtt: RTT,
            rtt_restarted: false,
        };
        let cruises = |paths: &Self| {
            let mut phases = (0..count).map(|path| paths.phase(path));
            phases.all(|phase| phase == Phase::Cruise)
        };
        for _ in 0..2000 {
            if cruises(&paths) {
                break;
            }
            paths.step();
        }
        assert!(cruises(&paths));
        if shared {
            for path in 1..count {
                paths.join(path - 1, path);
            }
        }
        paths
    }

    /// Makes two paths share a bottleneck, as if trials had shown it.
    fn join(&mut self, a: u32, b: u32) {
        self.controller.detector.assume_shared(PathId(a), PathId(b));
        self.controller.regroup();
    }

    fn phase(&self, path: u32) -> Phase {
        self.controller.paths.get(PathId(path)).unwrap().bbr.phase()
    }

    fn phases(&self) -> Vec<Phase> {
        let paths = self.controller.paths.iter();
        paths.map(|(_, path)| path.bbr.phase()).collect()
    }

    fn groups(&self) -> Vec<u32> {
        let paths = self.controller.paths.iter();
        paths.map(|(_, path)| path.group.0).collect()
    }

    fn acknowledge(&mut self, path: PathId) {
        let mut ack = acked(self.now, self.now - RTT, 1000);
        ack.in_flight = self.in_flight;
        ack.rtt = crate::testing::rtt(self.rtt);
        ack.rtt_restarted = std::mem::take(&mut self.rtt_restarted);
        ack.rtt.samples = self.delivered + 1;
        let before = self.delivered.saturating_sub(40_000);
        let mut rate = DeliveryRate::new(self.rate, before, self.delivered);
        rate.app_limited = self.app_limited;
        ack.delivery_rate = Some(rate);
        ack.app_limited = self.app_limited;
        self.controller
            .on_packet_sent(path, &sent(self.now, 1200, self.in_flight));
        self.controller.on_ack(path, &ack);
    }

    /// A millisecond with an acknowledgement on every path.
    fn step(&mut self) {
        self.now += MS;
        self.delivered += 1000;
        let ids: Vec<_> = self.controller.paths.iter().map(|(id, _)| id).collect();
        for path in ids {
            self.acknowledge(path);
        }
    }

    /// Steps until the first path is in this phase.
    fn until(&mut self, phase: Phase) {
        for _ in 0..8000 {
            if self.phase(0) == phase {
                return;
            }
            self.step();
        }
        panic!("{phase:?} was not reached: {:?}", self.phases());
    }

    /// Steps until the first path is in the up phase of a joint probe.
    fn until_joint_up(&mut self) {
        for _ in 0..20 {
            self.until(Phase::Refill);
            self.until(Phase::Up);
            self.step();
            if self.controller.paths.get(PathId(0)).unwrap().is_joint {
                return;
            }
            self.until(Phase::Down);
        }
        panic!("no joint probe");
    }
}

/// The round trip is longer because acknowledgements return on a longer path, which looks like a
/// queue of other flows to a path that compares round trips before and after.
#[test]
fn longer_way_back_of_acknowledgements_is_no_queue_of_rivals() {
    for is_told in [true, false] {
        let mut paths = Paths::new(1, false);
        paths.rtt = 3 * RTT;
        paths.rtt_restarted = is_told;
        (0..200).for_each(|_| paths.step());
        let leader = paths.controller.paths.get(PathId(0)).unwrap();
        assert_eq!(leader.rivals.has_queue(), !is_told);
    }
}

#[test]
fn paths_of_one_bottleneck_go_up_and_down_together() {
    let mut paths = Paths::new(3, true);
    assert_eq!(paths.groups(), [0, 0, 0]);
    paths.until_joint_up();
    assert_eq!(paths.phases(), [Phase::Up; 3]);
    paths.until(Phase::Down);
    paths.step();
    paths.step();
    let is_down = |phase: &Phase| matches!(phase, Phase::Down | Phase::Cruise);
    assert!(paths.phases().iter().all(is_down), "{:?}", paths.phases());
}

#[test]
fn one_in_four_probes_is_a_trial() {
    let mut paths = Paths::new(2, true);
    let mut alone = 0;
    for _ in 0..12 {
        paths.until(Phase::Up);
        paths.step();
        let is_alone = paths.phase(1) != Phase::Up;
        assert!(is_alone || paths.controller.detector.prober().is_none());
        alone += u32::from(is_alone);
        for _ in 0..8000 {
            if paths.phase(0) != Phase::Up {
                break;
            }
            paths.step();
        }
    }
    assert_eq!(alone, 3);
}

#[test]
fn too_many_losses_on_one_path_stop_the_joint_probe() {
    let mut paths = Paths::new(2, true);
    paths.until_joint_up();
    let mut event = congestion(CongestionKind::Loss, paths.now, paths.now);
    event.lost_bytes = 12_000;
    paths.controller.on_congestion_event(PathId(1), &event);
    assert_eq!(paths.phases(), [Phase::Down; 2]);
    assert!(paths.controller.paths.values().all(|path| !path.is_joint));
}

#[test]
fn paths_of_separate_bottlenecks_probe_separately() {
    let mut paths = Paths::new(2, false);
    assert_eq!(paths.groups(), [0, 1]);
    paths.until(Phase::Up);
    assert_ne!(paths.phase(1), Phase::Up);
    assert!(paths.controller.detector.prober().is_some());
}

#[test]
fn joint_probe_does_not_wait_for_a_silent_path() {
    let mut paths = Paths::new(2, true);
    for _ in 0..6 {
        for _ in 0..8000 {
            paths.now += MS;
            paths.delivered += 1000;
            paths.acknowledge(PathId(0));
            if paths.phase(0) == Phase::Up {
                break;
            }
        }
        assert_eq!(paths.phase(0), Phase::Up);
        for _ in 0..8000 {
            paths.now += MS;
            paths.delivered += 1000;
            paths.acknowledge(PathId(0));
            if paths.phase(0) != Phase::Up {
                break;
            }
        }
        assert_ne!(paths.phase(0), Phase::Up);
    }
}

/// The prober is silent, or has no data to send and fills no queue.
#[test]
fn trial_of_an_inactive_path_does_not_delay_other_probes() {
    for is_silent in [true, false] {
        let mut paths = Paths::new(2, false);
        paths.until(Phase::Refill);
        let prober = paths.controller.detector.prober().unwrap();
        let other = PathId(1 - prober.0);
        let mut has_probed = false;
        for _ in 0..4000 {
            paths.now += MS;
            paths.delivered += 1000;
            paths.app_limited = true;
            if !is_silent {
                paths.acknowledge(prober);
            }
            paths.app_limited = false;
            paths.acknowledge(other);
            has_probed |= paths.phase(other.0) == Phase::Up;
        }
        assert!(has_probed, "{is_silent}");
    }
}

#[test]
fn groups_change_when_paths_open_and_close() {
    let mut paths = Paths::new(4, true);
    assert_eq!(paths.groups(), [0; 4]);
    // Trials joined paths 0 and 1, 1 and 2, 2 and 3. So path 0 is alone when path 1 closes.
    paths.controller.on_path_closed(PathId(1));
    assert_eq!(paths.groups(), [0, 2, 2]);
    paths.controller.on_path_opened(PathId(5), paths.now, 1200);
    assert_eq!(paths.groups(), [0, 2, 2, 5]);
    // The joint bandwidth of the new group is the sum of the bandwidths of its two paths.
    let controller = &paths.controller;
    assert_eq!(controller.share(PathId(0), paths.now), 1.0);
    assert!((controller.share(PathId(3), paths.now) - 1.0).abs() < 1e-9);
    assert_eq!(controller.company(PathId(3), paths.now).count, 2.0);
}

#[test]
fn share_is_the_joint_bandwidth_divided_by_the_sum() {
    let mut paths = Paths::new(2, true);
    let path = paths.controller.paths.get_mut(PathId(0)).unwrap();
    path.joint_bandwidth = MaxBandwidth::starting_from(1.5e6, path.bbr.cycles());
    // The largest bandwidths are 1 MB/s each, the largest total 1.5 MB/s.
    assert!((paths.controller.share(PathId(1), paths.now) - 0.75).abs() < 1e-9);
}

/// The application is the limit half of the time. At other times few bytes arrive, as in a round
/// trip that ends in a burst of losses, or with a handful of packets.
#[test]
fn application_limited_paths_keep_most_of_their_bandwidth() {
    for (count, shared) in [(1, false), (2, true)] {
        let mut paths = Paths::new(count, shared);
        let before = paths.controller.pacing_rate(PathId(0)).unwrap() as f64;
        for step in 0..20_000 {
            paths.app_limited = step % 100 < 50;
            paths.rate = if paths.app_limited { 1_000_000 } else { 20_000 };
            paths.step();
        }
        let after = paths.controller.pacing_rate(PathId(0)).unwrap() as f64;
        assert!(
            after > 0.65 * before / f64::from(count),
            "{before} {after} {count}"
        );
    }
}

/// The bandwidth of a path that is application-limited or silent is available to the other paths.
#[test]
fn idle_path_takes_no_share() {
    let mut paths = Paths::new(2, true);
    let leader = paths.controller.paths.get_mut(PathId(0)).unwrap();
    let cycles = leader.bbr.cycles();
    leader.joint_bandwidth = MaxBandwidth::starting_from(1e6, cycles);
    assert_eq!(paths.controller.share(PathId(0), paths.now), 0.5);
    paths.app_limited = true;
    paths.now += MS;
    paths.acknowledge(PathId(1));
    assert_eq!(paths.controller.share(PathId(0), paths.now), 1.0);
}

/// An application-limited rate counts for the path if it is larger than the maximum, but never for
/// the joint bandwidth. A path that is alone in its group need not share.
#[test]
fn path_alone_in_its_group_keeps_all_its_bandwidth() {
    let mut paths = Paths::new(1, false);
    let path = paths.controller.paths.get_mut(PathId(0)).unwrap();
    path.joint_bandwidth = MaxBandwidth::starting_from(5e5, path.bbr.cycles());
    path.limited_at = Some(paths.now);
    let share = |after| paths.controller.share(PathId(0), paths.now + after);
    assert_eq!(share(Duration::ZERO), 1.0);
    assert_eq!(share(300 * MS), 1.0);
    assert_eq!(share(301 * MS), 0.5, "it has not been limited for a while");
}

/// A loss-based flow beside the group of paths 0 and 1; path 2 has another bottleneck.
fn beside_a_loss_based_flow() -> Paths {
    let mut paths = Paths::new(3, false);
    paths.join(0, 1);
    let path = paths.controller.paths.get_mut(PathId(0)).unwrap();
    path.rivals = rivals::tests::bound();
    paths
}

#[test]
fn bound_is_divided_in_proportion_to_bandwidths() {
    let paths = beside_a_loss_based_flow();
    let leader = paths.controller.paths.get(PathId(0)).unwrap();
    let half = leader.rivals.bound().map(|whole| whole / 2.0);
    let bounds = [0, 1, 2].map(|path| paths.controller.bound(PathId(path)));
    assert_eq!(bounds, [half, half, None]);
}

#[test]
fn acknowledgements_on_any_path_of_the_group_raise_the_bound() {
    let mut paths = beside_a_loss_based_flow();
    let bound = |paths: &Paths| paths.controller.bound(PathId(1)).unwrap();
    let before = bound(&paths);
    paths.now += MS;
    paths.delivered += 1000;
    paths.acknowledge(PathId(2));
    assert_eq!(bound(&paths), before);
    paths.acknowledge(PathId(1));
    assert!(bound(&paths) > before);
}

#[test]
fn loss_beside_a_loss_based_flow_ages_the_rates_of_the_whole_group() {
    for (path, aged) in [(0, [1, 1, 0]), (1, [1, 1, 0]), (2, [0, 0, 0])] {
        let mut paths = beside_a_loss_based_flow();
        let cycles = |paths: &Paths| {
            let paths = paths.controller.paths.values();
            paths.map(|path| path.bbr.cycles()).collect::<Vec<_>>()
        };
        let before = cycles(&paths);
        // Later than all events that showed the other flow.
        let now = paths.now + Duration::from_secs(1000);
        let event = congestion(CongestionKind::Loss, now, now);
        paths.controller.on_congestion_event(PathId(path), &event);
        let after = cycles(&paths);
        let grown: Vec<u64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
        assert_eq!(grown, aged, "{path}");
    }
}

#[test]
fn new_groups_know_nothing_about_rivals() {
    let mut paths = beside_a_loss_based_flow();
    paths.controller.regroup();
    assert!(
        paths.controller.bound(PathId(0)).is_some(),
        "the same groups"
    );
    paths.join(1, 2);
    assert_eq!(paths.controller.bound(PathId(0)), None);
}

#[test]
fn strangers_are_active_paths_of_other_groups() {
    let mut paths = Paths::new(3, false);
    let strangers = |paths: &Paths, now| paths.controller.strangers(PathId(0), now);
    assert_eq!(strangers(&paths, paths.now), Strangers::Open);
    assert_eq!(
        strangers(&paths, paths.now + 3 * RTT),
        Strangers::None,
        "silent ones may be gone"
    );
    paths.join(0, 1);
    assert_eq!(strangers(&paths, paths.now), Strangers::Open, "path 2");
    paths.join(1, 2);
    assert_eq!(strangers(&paths, paths.now), Strangers::None);
}

#[test]
fn joint_probe_waits_for_paths_that_may_still_join() {
    let mut paths = Paths::new(2, true);
    let hold = |paths: &Paths| paths.controller.company(PathId(0), paths.now).hold_refill;
    let join = |paths: &mut Paths, path| {
        let path = paths.controller.paths.get_mut(PathId(path));
        path.unwrap().is_joint = true;
    };
    assert!(!hold(&paths), "not a joint one");
    join(&mut paths, 0);
    assert!(hold(&paths), "path 1 cruises, and joins next");
    join(&mut paths, 1);
    assert!(!hold(&paths), "it has joined, and does not refill");

    // A path in startup does not join a probe.
    let mut paths = Paths::new(1, false);
    let now = paths.now;
    paths.controller.on_path_opened(PathId(1), now, 1200);
    paths.join(0, 1);
    join(&mut paths, 0);
    assert!(!hold(&paths));
}

#[test]
fn joint_probe_waits_three_round_trips_of_the_slowest_path() {
    let mut paths = Paths::new(2, true);
    paths.controller.paths.get_mut(PathId(0)).unwrap().is_joint = true;
    paths
        .controller
        .paths
        .get_mut(PathId(1))
        .unwrap()
        .smoothed_rtt = 2 * RTT;
    for (waited, hold) in [(6 * RTT, true), (6 * RTT + MS, false)] {
        let now = paths.now;
        let path = paths.controller.paths.get_mut(PathId(0)).unwrap();
        path.waits_since = Some(now - waited);
        assert_eq!(paths.controller.company(PathId(0), now).hold_refill, hold);
    }
}

#[test]
fn joint_probe_stays_up_while_another_path_finds_more_bandwidth() {
    let mut paths = Paths::new(2, true);
    paths.until_joint_up();
    let hold = |paths: &Paths, path| paths.controller.company(PathId(path), paths.now).hold_up;
    assert!(hold(&paths, 0) && hold(&paths, 1));
    let is_saturated = |paths: &Paths| {
        let path = paths.controller.paths.get(PathId(0)).unwrap();
        path.bbr.is_saturated()
    };
    let mut step = 0;
    while !is_saturated(&paths) {
        paths.now += MS;
        paths.delivered += 1000;
        paths.rate = 1_000_000;
        paths.acknowledge(PathId(0));
        step += 1;
        paths.rate = (1e6 * 1.3_f64.powi(step / 20)) as u64;
        paths.acknowledge(PathId(1));
        assert!(step < 1000);
    }
    assert_eq!(paths.phases(), [Phase::Up; 2]);
    assert!(hold(&paths, 0), "path 1 finds more");
    assert!(!hold(&paths, 1), "path 0 does not");
    let waits = |path| {
        paths
            .controller
            .paths
            .get(PathId(path))
            .unwrap()
            .waits_since
    };
    assert!(waits(0).is_some() && waits(1).is_none());
    let path = paths.controller.paths.get_mut(PathId(1)).unwrap();
    path.is_joint = false;
    assert!(!hold(&paths, 0), "that of another probe is none of its own");
}

/// The queue is too short to delay packets noticeably.
#[test]
fn losses_during_a_probe_show_paths_that_share_its_bottleneck() {
    let groups = |lost: u64| {
        let mut paths = Paths::new(2, false);
        for _ in 0..20_000 {
            paths.step();
            if paths.controller.detector.prober().is_none() || lost == 0 {
                continue;
            }
            for path in 0..2 {
                let mut event = congestion(CongestionKind::Loss, paths.now, paths.now - RTT);
                event.lost_bytes = lost;
                paths.controller.on_congestion_event(PathId(path), &event);
            }
        }
        paths.groups()
    };
    assert_eq!(groups(0), [0, 1]);
    assert_eq!(groups(100), [0, 0]);
}

#[test]
fn new_group_starts_with_the_sum_of_the_bandwidths() {
    let paths = Paths::new(3, true);
    let leader = paths.controller.paths.get(PathId(0)).unwrap();
    assert_eq!(leader.joint_bandwidth.get(), 3e6);
    assert_eq!(leader.joint_bandwidth.cycles(), leader.bbr.cycles());
}

#[test]
fn limited_paths_keep_seven_tenths_of_the_largest_bandwidth() {
    let mut paths = Paths::new(2, true);
    let now = paths.now;
    let leader = paths.controller.paths.get_mut(PathId(0)).unwrap();
    let cycles = leader.bbr.cycles();
    leader.joint_bandwidth = MaxBandwidth::starting_from(2e5, cycles);
    leader.limited_at = Some(now);
    let share = |path, after| paths.controller.share(PathId(path), now + after);
    assert!((share(0, Duration::ZERO) - 0.35).abs() < 1e-9);
    assert!((share(1, Duration::ZERO) - 0.1).abs() < 1e-9, "it was not");
}

#[test]
fn first_path_of_a_group_starts_its_probes() {
    let mut paths = Paths::new(3, false);
    paths.join(0, 1);
    let waits =
        |paths: &Paths, now| [0, 1, 2].map(|path| paths.controller.company(PathId(path), now).wait);
    assert_eq!(waits(&paths, paths.now), [false, true, false]);
    assert_eq!(
        waits(&paths, paths.now + 3 * RTT),
        [false; 3],
        "nobody waits for silent ones"
    );
    let path = paths.controller.paths.get_mut(PathId(0)).unwrap();
    path.rivals = rivals::tests::bound();
    assert_eq!(waits(&paths, paths.now), [true, true, false], "patient");
}

#[test]
fn path_that_may_share_the_bottleneck_of_a_trial_does_not_probe() {
    let mut paths = Paths::new(3, false);
    let waits = |paths: &Paths| {
        [0, 1, 2].map(|path| paths.controller.company(PathId(path), paths.now).wait)
    };
    paths.controller.detector.begin(PathId(1), paths.now);
    assert_eq!(waits(&paths), [true, false, true]);
    // Two trials of a pair are enough, whatever they show: then the pair is no longer open.
    let detector = &mut paths.controller.detector;
    detector.assume_shared(PathId(1), PathId(2));
    assert_eq!(waits(&paths), [true, false, false]);
    paths.controller.regroup();
    assert_eq!(waits(&paths), [true, false, true]);
}

#[test]
fn first_path_of_a_group_tells_whether_other_flows_are_there() {
    let mut paths = beside_a_loss_based_flow();
    let company = |paths: &Paths, path| paths.controller.company(PathId(path), paths.now);
    let others = [0, 1, 2].map(|path| company(&paths, path).others);
    assert_eq!(others, [true, true, false]);
    assert!(!company(&paths, 0).hurry);
    let path = paths.controller.paths.get_mut(PathId(0)).unwrap();
    path.rivals = rivals::tests::left();
    assert!(company(&paths, 0).hurry && !company(&paths, 1).hurry);
    assert_eq!(company(&paths, 0).count, 2.0);
    assert_eq!(company(&paths, 2).count, 1.0);
    assert_eq!(company(&paths, 7), Company::NONE);
}

#[test]
fn path_is_inactive_after_two_round_trips_of_silence() {
    let mut paths = Paths::new(2, false);
    let strangers = |after| paths.controller.strangers(PathId(0), paths.now + after);
    assert_eq!(strangers(2 * RTT), Strangers::Open);
    assert_eq!(strangers(2 * RTT + MS), Strangers::None);
    let later = paths.now + 3 * RTT;
    paths.controller.on_path_opened(PathId(2), later, 1200);
    let strangers = paths.controller.strangers(PathId(0), later);
    assert_eq!(strangers, Strangers::Open, "it has just begun");
}

#[test]
fn separate_path_is_open_again_if_a_queue_stands_on_it() {
    let mut paths = Paths::new(2, false);
    let detector = &mut paths.controller.detector;
    detector.assume_shared(PathId(0), PathId(1));
    let strangers = |paths: &Paths| paths.controller.strangers(PathId(0), paths.now);
    assert_eq!(strangers(&paths), Strangers::Separate);
    let path = paths.controller.paths.get_mut(PathId(1)).unwrap();
    path.rivals = rivals::tests::bound();
    assert_eq!(strangers(&paths), Strangers::Open);
}

#[test]
fn loss_does_not_stop_paths_of_another_group() {
    let mut paths = Paths::new(3, false);
    paths.join(0, 1);
    paths.until_joint_up();
    paths.controller.paths.get_mut(PathId(2)).unwrap().is_joint = true;
    let mut event = congestion(CongestionKind::Loss, paths.now, paths.now);
    event.lost_bytes = 12_000;
    paths.controller.on_congestion_event(PathId(1), &event);
    let is_joint = [0, 1, 2].map(|path| paths.controller.paths.get(PathId(path)).unwrap().is_joint);
    assert_eq!(is_joint, [false, false, true]);
}

#[test]
fn memory_is_the_sum_over_paths_and_detector() {
    let paths = Paths::new(2, true);
    let CoupledBbr {
        paths: each,
        detector,
    } = &paths.controller;
    let of_paths: u64 = each.values().map(|path| path.bbr.memory()).sum();
    assert!(of_paths > 0 && detector.memory() > 0);
    assert_eq!(paths.controller.memory(), of_paths + detector.memory());
}

#[test]
fn return_to_startup_ends_the_trial_of_a_path() {
    let mut paths = Paths::new(1, false);
    let now = paths.now;
    paths.controller.on_path_opened(PathId(1), now, 1200);
    assert_eq!(paths.phase(1), Phase::Startup);
    paths.controller.detector.begin(PathId(1), now);
    paths.controller.on_phase(PathId(1), Phase::Startup, now);
    assert_eq!(paths.controller.detector.prober(), Some(PathId(1)));
    paths.controller.on_phase(PathId(1), Phase::Cruise, now);
    assert_eq!(paths.controller.detector.prober(), None);
}

#[test]
fn reopened_path_leaves_its_group() {
    let mut paths = Paths::new(2, true);
    assert_eq!(paths.groups(), [0, 0]);
    let now = paths.now;
    paths.controller.on_path_opened(PathId(0), now, 1200);
    assert_eq!(paths.groups(), [0, 1]);
}

#[test]
fn closed_path_is_forgotten() {
    let mut paths = Paths::new(2, true);
    paths.until(Phase::Refill);
    paths.controller.on_path_closed(PathId(0));
    assert!(!paths.controller.detector.is_shared(PathId(0), PathId(1)));
    assert_eq!(paths.controller.window(PathId(0)), 0);
    assert_eq!(paths.controller.pacing_rate(PathId(0)), None);
    assert_eq!(paths.groups(), [1]);
    assert!(paths.controller.detector.prober().is_none());
}

proptest! {
    /// After any sequence of events on any path, windows and rates stay usable.
    #[test]
    fn any_sequence_of_events_leaves_usable_limits(
        shared in any::<bool>(),
        events in vec((0u32..3, 0u8..10, 1u64..1 << 22, 0u64..2000), 1..400),
    ) {
        let mut paths = Paths::new(3, shared);
        for (path, what, bytes, ms) in events {
            let (id, sent_at) = (PathId(path), paths.now);
            paths.now += Duration::from_millis(ms);
            paths.in_flight = bytes;
            let now = paths.now;
            let event = |kind| congestion(kind, now, sent_at);
            let controller = &mut paths.controller;
            match what {
                0 => controller.on_congestion_event(id, &event(CongestionKind::Loss)),
                1 => controller.on_congestion_event(id, &event(CongestionKind::Ecn)),
                2 => controller.on_congestion_event(id, &event(CongestionKind::Persistent)),
                3 => controller.on_congestion_event(id, &event(CongestionKind::Spurious)),
                4 => controller.on_path_opened(id, now, 1200),
                5 => controller.on_packet_sent(id, &sent(now, bytes, bytes)),
                _ => {
                    paths.delivered += bytes;
                    paths.acknowledge(id);
                }
            }
            for (id, _) in paths.controller.paths.iter() {
                prop_assert!(paths.controller.window(id) >= 2400);
                prop_assert!(paths.controller.pacing_rate(id).is_none_or(|rate| rate > 0));
                let share = paths.controller.share(id, paths.now);
                prop_assert!(share > 0.0 && share <= 1.0, "{share}");
            }
        }
    }
}
