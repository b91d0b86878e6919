//! Rules that every scheduler must keep, and the purpose of each scheduler.

use std::time::{Duration, Instant};

use mpquic_core::PathId;
use mpquic_core::sched::{Decision, PathView, Scheduler, SchedulerEvent, Sendable};
use proptest::collection::vec;
use proptest::prelude::*;

use super::world::{Step, World, any_path, any_steps, check, view};
use crate::testing::{MTU, Scene, chosen, full, path, sends, start, unmeasured};
use crate::{RoundRobin, by_name, list, published, reinjections};

fn decide(scheduler: &mut dyn Scheduler, now: Instant, paths: &[PathView]) -> Decision {
    scheduler.select(&view(now, paths, 0))
}

/// All decisions of a scheduler in a world with these steps.
fn run(name: &str, now: Instant, steps: &[Step]) -> Result<Vec<Decision>, TestCaseError> {
    let mut scheduler = by_name(name).expect("a listed name").build();
    let mut world = World::new(now);
    let mut decisions = Vec::new();
    for step in steps {
        decisions.extend(world.step(scheduler.as_mut(), step)?);
    }
    Ok(decisions)
}

/// A scheduler copies data on a path without an RTT sample to another path, at most ten times. A
/// path that comes again under the same ID is a new path.
#[test]
fn copies_to_unmeasured_paths_are_forgotten_with_them() {
    let scene = Scene::new(vec![unmeasured(0), unmeasured(1)]);
    let mut others = Vec::new();
    for info in list().iter().chain(published()) {
        let mut scheduler = by_name(info.name).expect("a listed name").build();
        let mut copies = || {
            let copy = |_: &usize| {
                let decision = scheduler.select(&scene.view());
                matches!(decision, Decision::Duplicate { .. })
            };
            let count = (0..100).take_while(copy).count();
            let removed = SchedulerEvent::PathRemoved(PathId(1));
            scheduler.on_event(&removed, &scene.view());
            count
        };
        let first = copies();
        assert_eq!(copies(), first, "{}", info.name);
        if first != 10 {
            others.push((info.name, first));
        }
    }
    // The schedulers without copies treat any path as measured, take paths in turn, use one
    // path, or belong to the ns-3 module; `redundant` copies all data.
    let expected = [
        ("lrf-assume", 0),
        ("round-robin", 0),
        ("backup", 0),
        ("redundant", 100),
        ("round-robin-packet", 0),
        ("lrf-ns3", 0),
        ("round-robin-ns3", 0),
        ("blest-ns3", 0),
        ("ecf-ns3", 0),
        ("peekaboo-ns3", 0),
        ("msab-ns3", 0),
    ];
    assert_eq!(others, expected);
}

/// Every scheduler, alone and with every re-injection policy.
fn names() -> Vec<String> {
    let policies: Vec<_> = reinjections().iter().map(|info| info.name).collect();
    let wrapped = |name| format!("{name}+{}", policies.join("+"));
    let names = list().iter().chain(published()).map(|info| info.name);
    names
        .clone()
        .map(String::from)
        .chain(names.map(wrapped))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Decisions name only open paths that can send, and ask for no more than the windows take.
    /// With data and a path that can send, the answer is not `Blocked`. Waiting always ends. Named
    /// data exists. The same events give the same decisions.
    #[test]
    fn decisions_are_legal_and_repeatable(steps in any_steps(8)) {
        let now = start();
        for name in names() {
            let legal = |error: TestCaseError| TestCaseError::fail(format!("{name}: {error}"));
            let decisions = run(&name, now, &steps).map_err(legal)?;
            prop_assert_eq!(decisions, run(&name, now, &steps)?, "{}", name);
        }
    }

    /// A single path leaves no choice: every scheduler uses the path when the path can send.
    #[test]
    fn one_path_leaves_no_choice(states in vec(any_path(), 1..20)) {
        let now = start();
        for name in names() {
            let mut scheduler = by_name(&name).unwrap().build();
            for state in &states {
                let paths = [*state];
                let decision = decide(scheduler.as_mut(), now, &paths);
                check(&view(now, &paths, 0), &decision)?;
                let expected = state.can_send().then_some(PathId(0));
                prop_assert_eq!(sends(&decision).map(|(path, _)| path), expected);
                if expected.is_none() {
                    prop_assert_eq!(&decision, &Decision::Blocked);
                }
            }
        }
    }
}

#[test]
fn one_decision_fills_a_batch_but_not_more_than_the_window() {
    let now = start();
    for (window, expected) in [(12_000, 12_000), (10 << 20, 64 * 1200), (1_500, 1_500)] {
        let mut only = path(0, 10);
        only.window = window;
        let mut lrf = by_name("lrf").unwrap().build();
        assert_eq!(
            decide(lrf.as_mut(), now, &[only]),
            Decision::send_up_to(PathId(0), expected)
        );
    }
}

#[test]
fn lowest_rtt_first_overflows_to_the_next_path() {
    let now = start();
    let mut lrf = by_name("lrf").unwrap().build();
    let (slow, fast) = (path(0, 50), path(1, 10));
    let first = decide(lrf.as_mut(), now, &[slow, fast]);
    assert_eq!(chosen(&first), Some(1));
    let second = decide(lrf.as_mut(), now, &[slow, full(fast)]);
    assert_eq!(chosen(&second), Some(0));
    let third = decide(lrf.as_mut(), now, &[full(slow), full(fast)]);
    assert_eq!(third, Decision::Blocked);
}

#[test]
fn lowest_rtt_first_breaks_ties_by_id() {
    let now = start();
    let mut lrf = by_name("lrf").unwrap().build();
    let decision = decide(lrf.as_mut(), now, &[path(2, 10), path(5, 10)]);
    assert_eq!(chosen(&decision), Some(2));
}

#[test]
fn data_on_an_unmeasured_path_is_duplicated_for_an_initial_window() {
    let now = start();
    let mut lrf = by_name("lrf").unwrap().build();
    let paths = [unmeasured(0), unmeasured(1)];
    for _ in 0..10 {
        let decision = decide(lrf.as_mut(), now, &paths);
        let Decision::Duplicate { path, copies, .. } = decision else {
            panic!("{decision:?}");
        };
        assert!(copies.len() == 1 && copies[0] != path);
    }
    let decision = decide(lrf.as_mut(), now, &paths);
    assert!(matches!(decision, Decision::Send { .. }), "{decision:?}");
}

#[test]
fn a_measured_path_comes_before_an_unmeasured_one() {
    let now = start();
    let mut lrf = by_name("lrf").unwrap().build();
    let decision = decide(lrf.as_mut(), now, &[unmeasured(0), path(1, 900)]);
    assert_eq!(decision, Decision::send_up_to(PathId(1), 12_000));
}

#[test]
fn round_robin_gives_equal_turns() {
    let now = start();
    let mut scheduler = RoundRobin::new(1);
    let paths = [path(0, 5), path(1, 50), path(4, 500)];
    let order: Vec<_> = (0..6)
        .filter_map(|_| sends(&decide(&mut scheduler, now, &paths)))
        .collect();
    let expected: Vec<_> = [0, 1, 4, 0, 1, 4]
        .map(|id| (PathId(id), u64::from(MTU)))
        .into();
    assert_eq!(order, expected);

    let blocked = [paths[0], full(paths[1]), paths[2]];
    let order: Vec<_> = (0..3)
        .filter_map(|_| chosen(&decide(&mut scheduler, now, &blocked)))
        .collect();
    assert_eq!(order, [0, 4, 0]);
}

#[test]
fn backup_waits_for_its_path_and_moves_when_it_fails() {
    let now = start();
    let mut backup = by_name("backup").unwrap().build();
    let (slow, fast) = (path(0, 50), path(1, 10));
    let decision = decide(backup.as_mut(), now, &[slow, fast]);
    assert_eq!(chosen(&decision), Some(1));

    let decision = decide(backup.as_mut(), now, &[slow, full(fast)]);
    let on = PathId(1);
    assert_eq!(decision, Decision::Wait { on, until: None });

    let mut paced = fast;
    paced.sendable = Sendable::At(now + Duration::from_millis(1));
    let until = Some(now + Duration::from_millis(1));
    let decision = decide(backup.as_mut(), now, &[slow, paced]);
    assert_eq!(decision, Decision::Wait { on, until });

    let mut suspect = fast;
    suspect.suspect = true;
    suspect.usable = false;
    let decision = decide(backup.as_mut(), now, &[slow, suspect]);
    assert_eq!(chosen(&decision), Some(0));

    // The first path is back, but the second path still works.
    let decision = decide(backup.as_mut(), now, &[slow, fast]);
    assert_eq!(chosen(&decision), Some(0));
}
