use super::*;
use crate::LowestRttFirst;
use crate::testing::{Scene, chosen, full, path, sent, unacked};

fn layer(add: &[&str]) -> Reinjecting {
    let mut policies = ReinjectionPolicies::default();
    for name in add {
        assert!(policies.add(name));
    }
    Reinjecting::new(Box::new(LowestRttFirst::default()), policies)
}

/// The path and the offset of a repeat.
fn repeated(decision: &Decision) -> Option<(u32, u64)> {
    match decision {
        Decision::Reinject { path, offsets, .. } => Some((path.0, offsets.start)),
        _ => None,
    }
}

#[test]
fn inner_scheduler_decides_if_no_policy_applies() {
    let mut scene = Scene::new(vec![path(0, 10), path(1, 30)]);
    scene.unacked = vec![unacked(&scene, 1, 0..1200, 5)];
    let mut layer = layer(&["opportunistic", "deadline", "after-schedule"]);
    assert_eq!(chosen(&layer.select(&scene.view())), Some(0));
    assert_eq!(layer.name(), "lrf");
    scene.unacked.clear();
    scene.queue.idle = true;
    assert_eq!(layer.select(&scene.view()), Decision::Blocked);
}

#[test]
fn overdue_bytes_go_to_another_path_once() {
    let mut scene = Scene::new(vec![path(0, 40), path(1, 100)]);
    scene.unacked = vec![
        unacked(&scene, 1, 0..1200, 50),
        unacked(&scene, 0, 1200..2400, 45),
        unacked(&scene, 1, 2400..3600, 40),
    ];
    let mut layer = layer(&["deadline"]);
    assert_eq!(repeated(&layer.select(&scene.view())), Some((0, 0)));
    assert_eq!(repeated(&layer.select(&scene.view())), Some((1, 1200)));
    assert_eq!(repeated(&layer.select(&scene.view())), None);
    let due = scene.now + Duration::from_millis(4);
    assert_eq!(layer.next_timeout(), Some(due));
    scene.now = due;
    layer.on_event(&SchedulerEvent::Timer, &scene.view());
    assert_eq!(layer.next_timeout(), None);
    scene.queue.idle = true;
    assert_eq!(repeated(&layer.select(&scene.view())), Some((0, 2400)));
    assert_eq!(layer.select(&scene.view()), Decision::Blocked);
}

#[test]
fn copies_are_not_copied() {
    let mut scene = Scene::new(vec![path(0, 40), path(1, 100)]);
    scene.queue.idle = true;
    scene.queue.unsent = 0;
    scene.unacked = vec![unacked(&scene, 1, 0..1200, 50)];
    let mut layer = layer(&["after-schedule"]);
    let Decision::Reinject { tag, .. } = layer.select(&scene.view()) else {
        panic!("nothing is left to send");
    };
    let mut copy = unacked(&scene, 0, 0..1200, 0);
    copy.tag = tag;
    scene.unacked.push(copy);
    assert_eq!(layer.select(&scene.view()), Decision::Blocked);
}

#[test]
fn a_blocked_window_is_freed_by_a_better_path() {
    let mut scene = Scene::new(vec![path(0, 10), path(1, 41)]);
    scene.unacked = vec![unacked(&scene, 1, 0..1200, 30)];
    scene.queue.idle = true;
    assert_eq!(
        layer(&["opportunistic"]).select(&scene.view()),
        Decision::Blocked
    );
    scene.queue.flow_credit = 0;
    let decision = layer(&["opportunistic"]).select(&scene.view());
    assert_eq!(repeated(&decision), Some((0, 0)));
    // Exactly four times the RTT is not enough; a window of four datagrams is small enough.
    scene.paths[1].rtt.smoothed = Duration::from_millis(40);
    assert_eq!(
        layer(&["opportunistic"]).select(&scene.view()),
        Decision::Blocked
    );
    scene.paths[1].window = 4_800;
    let decision = layer(&["opportunistic"]).select(&scene.view());
    assert_eq!(repeated(&decision), Some((0, 0)));
}

#[test]
fn window_of_a_penalised_path_looks_smaller_until_it_has_regrown() {
    let mut scene = Scene::new(vec![path(0, 10), path(1, 100)]);
    scene.unacked = vec![unacked(&scene, 1, 0..1200, 30)];
    scene.queue.idle = true;
    scene.queue.flow_credit = 0;
    let mut layer = layer(&["penalise"]);
    assert!(repeated(&layer.select(&scene.view())).is_some());
    (scene.queue.idle, scene.queue.flow_credit) = (false, 1 << 20);
    scene.paths[1].in_flight = 6_000;
    assert_eq!(chosen(&layer.select(&scene.view())), Some(0));
    let half = layer.penalties.get(PathId(1)).unwrap().window;
    assert_eq!(half, 6_000);
    assert!(!layer.shown[1].can_send());
    // Only the penalised path can send, so the scheduler uses the path.
    scene.paths[0] = full(scene.paths[0]);
    assert_eq!(chosen(&layer.select(&scene.view())), Some(1));
    scene.now += Duration::from_millis(500);
    layer.select(&scene.view());
    assert_eq!(layer.penalties.len(), 0);
}

#[test]
fn path_of_twice_the_rtt_is_penalised_but_its_bytes_are_not_repeated() {
    let mut scene = Scene::new(vec![path(0, 40), path(1, 80)]);
    scene.unacked = vec![unacked(&scene, 1, 0..1200, 30)];
    scene.queue.idle = true;
    scene.queue.flow_credit = 0;
    let mut layer = layer(&["penalise"]);
    scene.paths[1].in_recovery = true;
    assert_eq!(layer.select(&scene.view()), Decision::Blocked);
    assert_eq!(layer.penalties.len(), 0);
    scene.paths[1].in_recovery = false;
    assert_eq!(layer.select(&scene.view()), Decision::Blocked);
    assert_eq!(layer.penalties.get(PathId(1)).unwrap().window, 6_000);
    // The path with the lower RTT is never penalised.
    scene.unacked = vec![unacked(&scene, 0, 0..1200, 30)];
    layer.select(&scene.view());
    assert_eq!(layer.penalties.len(), 1);
}

#[test]
fn inner_scheduler_gets_no_events_of_copies() {
    #[derive(Debug, Default)]
    struct Listener(u32);
    impl Scheduler for Listener {
        fn select(&mut self, _: &View<'_>) -> Decision {
            Decision::send(PathId(self.0))
        }
        fn on_event(&mut self, _: &SchedulerEvent, _: &View<'_>) {
            self.0 += 1;
        }
        fn name(&self) -> &'static str {
            "listener"
        }
    }
    let scene = Scene::new(vec![path(0, 10), path(1, 100)]);
    let policies = ReinjectionPolicies::default();
    let mut layer = Reinjecting::new(Box::new(Listener::default()), policies);
    for tag in [0, REPEATED, 5, REPEATED | 5] {
        layer.on_event(&sent(PathId(0), 1200, tag), &scene.view());
    }
    layer.on_event(&SchedulerEvent::Timer, &scene.view());
    assert_eq!(chosen(&layer.select(&scene.view())), Some(2));
}
