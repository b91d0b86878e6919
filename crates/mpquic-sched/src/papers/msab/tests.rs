use mpquic_core::PathId;
use proptest::prelude::*;

use super::*;
use crate::testing::{Scene, chosen, packet, path, sent};

const MS: Duration = Duration::from_millis(1);

fn cost(rtt_ms: u32) -> f64 {
    let observation = Observation {
        rtt: on_scale(rtt_ms * MS, 20 * MS, 100 * MS),
        lost: 0.0,
        used: 0.9,
    };
    (observation.cost() * 1000.0).round() / 1000.0
}

#[test]
fn t11_costs_are_scaled() {
    assert_eq!([cost(20), cost(100)], [0.075, 0.908]);
    assert_eq!(on_scale(5 * MS, 20 * MS, 20 * MS), 0.0);
}

#[test]
fn tags_carry_epoch_and_probability() {
    for (epoch, probability) in [(0, 1.0), (7, 0.025), (62, 0.5)] {
        let (e, p) = untag(tag(epoch, probability)).unwrap();
        assert_eq!(e, epoch);
        assert!((p - probability).abs() < 1e-9);
    }
    assert_eq!(untag(0), None);
    // Costs are divided by the probability, so it must not be zero.
    let (_, probability) = untag(tag(3, 0.0)).unwrap();
    assert!(probability > 0.0 && probability < 1e-9, "{probability}");
}

/// Sends and acknowledges packets; path 1 is worse. Returns how many packets of the last half path
/// 0 carried.
fn learn(mode: MsabMode, packets: u32) -> u32 {
    let mut scene = Scene::new(vec![path(0, 20), path(1, 20)]);
    let mut msab = Msab::new(mode);
    let mut good = 0;
    for count in 0..packets {
        scene.random = scene.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scene.now += MS;
        let Decision::Send { path, tag, .. } = msab.select(&scene.view()) else {
            panic!("both paths have room");
        };
        msab.on_event(&sent(path, 1200, tag), &scene.view());
        let rtt = if path == PathId(0) { 20 * MS } else { 100 * MS };
        let acked = SchedulerEvent::Acked(packet(path, tag), Some(rtt));
        msab.on_event(&acked, &scene.view());
        good += u32::from(path == PathId(0) && count >= packets / 2);
    }
    good
}

#[test]
fn the_better_path_is_learned() {
    for mode in [MsabMode::Sample, MsabMode::Split] {
        let good = learn(mode, 2000);
        assert!(good > 700, "{mode:?}: {good} of 1000");
    }
}

#[test]
fn epochs_end_when_feedback_was_missing_for_long() {
    let scene = Scene::new(vec![path(0, 20), path(1, 20)]);
    let mut msab = Msab::default();
    msab.distribute(&scene.view());
    msab.arms.get_mut(PathId(0)).unwrap().cost = 1.0;
    // 1 + 2 + 3 packets are missing: beyond 1, 2 and 4.
    for _ in 0..3 {
        msab.on_event(&sent(PathId(0), 1200, tag(0, 0.5)), &scene.view());
    }
    assert_eq!((msab.epoch, msab.missing_sum), (3, 6));
    assert_eq!(msab.arms.get(PathId(0)).unwrap().cost, 0.0);
    // Feedback from an earlier epoch is not used.
    let acked = SchedulerEvent::Acked(packet(PathId(0), tag(0, 0.5)), Some(MS));
    msab.on_event(&acked, &scene.view());
    let arm = msab.arms.get(PathId(0)).unwrap();
    assert_eq!((arm.missing, arm.cost), (2, 0.0));
}

#[test]
fn new_path_starts_with_the_mean_cost() {
    let mut scene = Scene::new(vec![path(0, 20), path(1, 20)]);
    let mut msab = Msab::default();
    msab.distribute(&scene.view());
    msab.arms.get_mut(PathId(0)).unwrap().cost = 1.0;
    scene.paths.push(path(2, 20));
    msab.distribute(&scene.view());
    assert_eq!(msab.arms.get(PathId(2)).unwrap().cost, 0.5);
}

#[test]
fn a_split_is_proportional() {
    let scene = Scene::new(vec![path(0, 20), path(1, 20)]);
    let mut msab = Msab::new(MsabMode::Split);
    msab.distribute(&scene.view());
    msab.arms.get_mut(PathId(0)).unwrap().cost = 1.0;
    let picks = (0..1000).map(|_| chosen(&msab.select(&scene.view())));
    let first = picks.filter(|pick| *pick == Some(0)).count() as f64;
    let expected = 1000.0 * (0.95 / (1.0 + 1f64.exp()) + 0.025);
    assert!((first - expected).abs() < 2.0, "{first} {expected}");
}

#[test]
fn the_scale_forgets_old_samples() {
    let mut max = WindowedMax::default();
    let start = crate::testing::start();
    max.insert(start, 500 * MS);
    max.insert(start + 3000 * MS, 200 * MS);
    assert_eq!(max.max(start + 9900 * MS), 500 * MS);
    assert_eq!(max.max(start + 10_100 * MS), 200 * MS);
    assert_eq!(max.max(start + 60_000 * MS), Duration::ZERO);
}

proptest! {
    #[test]
    fn probabilities_sum_up_and_explore(costs in proptest::collection::vec(0.0..1e6f64, 2..8)) {
        let paths = (0..costs.len() as u32).map(|id| path(id, 20)).collect();
        let scene = Scene::new(paths);
        let mut msab = Msab::default();
        msab.distribute(&scene.view());
        for (arm, cost) in msab.arms.values_mut().zip(&costs) {
            arm.cost = *cost;
        }
        msab.distribute(&scene.view());
        let probabilities: Vec<_> = msab.arms.iter().map(|(_, arm)| arm.probability).collect();
        let least = EXPLORATION / costs.len() as f64;
        prop_assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        prop_assert!(probabilities.iter().all(|p| *p >= least - 1e-12));
    }

    #[test]
    fn costs_stay_between_zero_and_one(rtt in 0u32..1000, low in 0u32..500, high in 0u32..500,
        lost in 0.0..=1.0f64, used in 0.0..=1.0f64) {
        let rtt = on_scale(rtt * MS, low * MS, high * MS);
        let cost = Observation { rtt, lost, used }.cost();
        prop_assert!((0.0..=1.0).contains(&cost), "{cost}");
    }
}
