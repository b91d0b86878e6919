//! What every scheduler must hold to, and what each is for.

use std::time::{Duration, Instant};

use mpquic_core::congestion::{Acked, CongestionEvent, Controller, RttSnapshot};
use mpquic_core::sched::{
    Decision, PathView, QueueView, Scheduler, SchedulerEvent, Sendable, View,
};
use mpquic_core::{PathId, PathStatus};
use mpquic_sched::{RoundRobin, by_name, list};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

const MTU: u16 = 1200;

/// The paths bring their windows along; the controller is not asked.
#[derive(Debug)]
struct NoController;

impl Controller for NoController {
    fn on_path_opened(&mut self, _: PathId, _: Instant, _: u16) {}
    fn on_path_closed(&mut self, _: PathId) {}
    fn on_mtu_update(&mut self, _: PathId, _: u16) {}
    fn on_ack(&mut self, _: PathId, _: &Acked) {}
    fn on_congestion_event(&mut self, _: PathId, _: &CongestionEvent) {}
    fn window(&self, _: PathId) -> u64 {
        0
    }
    fn name(&self) -> &'static str {
        "none"
    }
}

#[expect(clippy::disallowed_methods, reason = "any instant will do")]
fn start() -> Instant {
    Instant::now()
}

fn path(id: u32, rtt_ms: Option<u64>) -> PathView {
    let rtt = Duration::from_millis(rtt_ms.unwrap_or(333));
    PathView {
        id: PathId(id),
        status: PathStatus::Available,
        usable: true,
        suspect: false,
        sendable: Sendable::Now,
        rtt: RttSnapshot {
            latest: rtt,
            smoothed: rtt,
            variance: rtt / 4,
            min: rtt,
            samples: u64::from(rtt_ms.is_some()),
        },
        window: 12_000,
        in_flight: 0,
        slow_start_threshold: None,
        in_recovery: false,
        mtu: MTU,
        packets_sent: 0,
        bytes_sent: 0,
        bytes_acked: 0,
        bytes_lost: 0,
        loss_rate: 0.0,
        delivery_rate: None,
        one_way_delay: None,
        local_queue: None,
        local_drain_rate: None,
    }
}

fn window_full(mut path: PathView) -> PathView {
    path.in_flight = path.window;
    path.sendable = Sendable::WindowFull;
    path
}

fn view<'a>(now: Instant, paths: &'a [PathView], random: u64) -> View<'a> {
    View {
        now,
        paths,
        queue: QueueView {
            unsent: 1 << 20,
            flow_credit: 1 << 20,
            flow_window: 1 << 20,
            send_buffer: 1 << 20,
            ..QueueView::default()
        },
        streams: &[],
        unacked: &[],
        controller: &NoController,
        random,
    }
}

fn decide(scheduler: &mut dyn Scheduler, now: Instant, paths: &[PathView]) -> Decision {
    scheduler.select(&view(now, paths, 0))
}

/// Every path a decision names for sending, with the bytes it asks for there.
fn sends(decision: &Decision) -> Vec<(PathId, u64)> {
    match decision {
        Decision::Send {
            path, max_bytes, ..
        } => vec![(*path, *max_bytes)],
        Decision::Duplicate { path, copies, .. } => std::iter::once(path)
            .chain(copies)
            .map(|path| (*path, 0))
            .collect(),
        Decision::Reinject { path, .. } => vec![(*path, 0)],
        Decision::Wait { .. } | Decision::Blocked => Vec::new(),
    }
}

fn any_path(now: Instant) -> impl Strategy<Value = PathView> {
    (
        option::weighted(0.8, 0u64..300),
        prop_oneof![4 => Just(true), 1 => Just(false)],
        2u64..200,
        0u64..250,
        0u8..5,
        (0u64..3000, 0u64..40),
    )
        .prop_map(
            move |(rtt, usable, window, in_flight, state, (sent, delay))| {
                let mut path = path(0, rtt);
                path.usable = usable;
                path.window = window * u64::from(MTU);
                path.in_flight = in_flight * u64::from(MTU);
                path.packets_sent = sent;
                path.sendable = if path.in_flight + u64::from(MTU) > path.window {
                    Sendable::WindowFull
                } else if state == 0 {
                    Sendable::At(now + Duration::from_millis(delay + 1))
                } else if state == 1 || !usable {
                    Sendable::Unusable
                } else {
                    Sendable::Now
                };
                path
            },
        )
}

/// Paths by ID; an absent ID stands for a path that is not open at that step.
fn any_steps(now: Instant) -> impl Strategy<Value = Vec<(Vec<PathView>, u64)>> {
    let paths = vec(option::weighted(0.7, any_path(now)), 1..6).prop_map(|paths| {
        let numbered = paths.into_iter().zip(0u32..);
        numbered
            .filter_map(|(path, id)| {
                path.map(|path| PathView {
                    id: PathId(id),
                    ..path
                })
            })
            .collect::<Vec<_>>()
    });
    vec((paths, any::<u64>()), 1..40)
}

/// Runs the steps as the core would: path events first, then the question.
fn run(
    scheduler: &mut dyn Scheduler,
    now: Instant,
    steps: &[(Vec<PathView>, u64)],
) -> Vec<Decision> {
    let mut open: Vec<PathId> = Vec::new();
    let mut decisions = Vec::new();
    for (paths, random) in steps {
        let view = view(now, paths, *random);
        let ids: Vec<_> = paths.iter().map(|path| path.id).collect();
        for id in open.iter().filter(|id| !ids.contains(id)) {
            scheduler.on_event(&SchedulerEvent::PathRemoved(*id), &view);
        }
        for id in ids.iter().filter(|id| !open.contains(id)) {
            scheduler.on_event(&SchedulerEvent::PathAdded(*id), &view);
        }
        open = ids;
        decisions.push(scheduler.select(&view));
    }
    decisions
}

fn check(paths: &[PathView], decision: &Decision) -> Result<(), TestCaseError> {
    let find = |id: PathId| paths.iter().find(|path| path.id == id);
    for (id, bytes) in sends(decision) {
        let path = find(id).expect("a path that is open");
        prop_assert!(path.can_send(), "{decision:?} on {path:?}");
        prop_assert!(bytes <= path.available_window(), "{decision:?} on {path:?}");
    }
    match decision {
        Decision::Blocked => prop_assert!(!paths.iter().any(PathView::can_send)),
        Decision::Wait { on, until } => {
            let path = find(*on).expect("a path that is open");
            prop_assert!(path.usable && (until.is_some() || path.in_flight > 0));
        }
        Decision::Duplicate { path, copies, .. } => prop_assert!(!copies.contains(path)),
        Decision::Send { .. } | Decision::Reinject { .. } => {}
    }
    Ok(())
}

proptest! {
    /// Only open, sendable paths are named and no more is asked than their windows take; with a
    /// sendable path the answer is not `Blocked`; waiting always ends; and the same events give
    /// the same decisions.
    #[test]
    fn decisions_are_legal_and_repeatable(steps in any_steps(start())) {
        let now = start();
        for info in list() {
            let factory = by_name(info.name).unwrap();
            let decisions = run(factory.build().as_mut(), now, &steps);
            for ((paths, _), decision) in steps.iter().zip(&decisions) {
                check(paths, decision)?;
            }
            prop_assert_eq!(&decisions, &run(factory.build().as_mut(), now, &steps));
        }
    }

    /// With one path there is nothing to decide: every scheduler uses it when it can send.
    #[test]
    fn one_path_leaves_no_choice(states in vec(any_path(start()), 1..20)) {
        let now = start();
        let steps: Vec<_> = states.into_iter().map(|path| (vec![path], 0)).collect();
        for info in list() {
            let decisions = run(by_name(info.name).unwrap().build().as_mut(), now, &steps);
            for ((paths, _), decision) in steps.iter().zip(&decisions) {
                let expected = paths[0].can_send().then_some(PathId(0));
                prop_assert_eq!(sends(decision).first().map(|(path, _)| *path), expected);
                if expected.is_none() {
                    prop_assert_eq!(decision, &Decision::Blocked);
                }
            }
        }
    }
}

#[test]
fn one_decision_fills_a_batch_but_not_more_than_the_window() {
    let now = start();
    for (window, expected) in [(12_000, 12_000), (10 << 20, 64 * 1200), (1_500, 1_500)] {
        let mut only = path(0, Some(10));
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
    let (slow, fast) = (path(0, Some(50)), path(1, Some(10)));
    let first = decide(lrf.as_mut(), now, &[slow, fast]);
    assert_eq!(sends(&first)[0].0, PathId(1));
    let second = decide(lrf.as_mut(), now, &[slow, window_full(fast)]);
    assert_eq!(sends(&second)[0].0, PathId(0));
    let third = decide(lrf.as_mut(), now, &[window_full(slow), window_full(fast)]);
    assert_eq!(third, Decision::Blocked);
}

#[test]
fn lowest_rtt_first_breaks_ties_by_id() {
    let now = start();
    let mut lrf = by_name("lrf").unwrap().build();
    let decision = decide(lrf.as_mut(), now, &[path(2, Some(10)), path(5, Some(10))]);
    assert_eq!(sends(&decision)[0].0, PathId(2));
}

#[test]
fn data_on_an_unmeasured_path_is_duplicated_for_an_initial_window() {
    let now = start();
    let mut lrf = by_name("lrf").unwrap().build();
    let paths = [path(0, None), path(1, None)];
    for _ in 0..10 {
        let decision = decide(lrf.as_mut(), now, &paths);
        assert!(matches!(decision, Decision::Duplicate { .. }));
        assert_eq!(sends(&decision).len(), 2);
    }
    let decision = decide(lrf.as_mut(), now, &paths);
    assert!(matches!(decision, Decision::Send { .. }), "{decision:?}");
}

#[test]
fn a_measured_path_comes_before_an_unmeasured_one() {
    let now = start();
    let mut lrf = by_name("lrf").unwrap().build();
    let decision = decide(lrf.as_mut(), now, &[path(0, None), path(1, Some(900))]);
    assert_eq!(decision, Decision::send_up_to(PathId(1), 12_000));
}

#[test]
fn round_robin_gives_equal_turns() {
    let now = start();
    let mut scheduler = RoundRobin::new(1);
    let paths = [path(0, Some(5)), path(1, Some(50)), path(4, Some(500))];
    let order: Vec<_> = (0..6)
        .map(|_| sends(&decide(&mut scheduler, now, &paths))[0])
        .collect();
    let expected: Vec<_> = [0, 1, 4, 0, 1, 4]
        .map(|id| (PathId(id), u64::from(MTU)))
        .into();
    assert_eq!(order, expected);

    let blocked = [paths[0], window_full(paths[1]), paths[2]];
    let order: Vec<_> = (0..3)
        .map(|_| sends(&decide(&mut scheduler, now, &blocked))[0].0.0)
        .collect();
    assert_eq!(order, [0, 4, 0]);
}

#[test]
fn backup_waits_for_its_path_and_moves_when_it_fails() {
    let now = start();
    let mut backup = by_name("backup").unwrap().build();
    let (slow, fast) = (path(0, Some(50)), path(1, Some(10)));
    let decision = decide(backup.as_mut(), now, &[slow, fast]);
    assert_eq!(sends(&decision)[0].0, PathId(1));

    let decision = decide(backup.as_mut(), now, &[slow, window_full(fast)]);
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
    suspect.sendable = Sendable::Unusable;
    let decision = decide(backup.as_mut(), now, &[slow, suspect]);
    assert_eq!(sends(&decision)[0].0, PathId(0));

    // The first path is back, but nothing is wrong with the second.
    let decision = decide(backup.as_mut(), now, &[slow, fast]);
    assert_eq!(sends(&decision)[0].0, PathId(0));
}
