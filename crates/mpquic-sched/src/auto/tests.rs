//! Decisions of [`Auto`] for given views.

use std::time::Duration;

use mpquic_core::PathId;
use mpquic_core::sched::{DataSelection, Decision, PathView, Scheduler, SchedulerEvent, Sendable};
use proptest::prelude::*;

use super::forecast::{Forecast, Forecasts};
use super::{Auto, AutoConfig};
use crate::repeats::REPEATED;
use crate::testing::{Growth, Scene, chosen, full, path, stream, stream_id, unacked};

const MS: Duration = Duration::from_millis(1);

/// A path with this pacing and delivery rate, bytes per second, and a window of a hundred
/// datagrams.
fn paced(id: u32, rtt_ms: u64, rate: u64) -> PathView {
    let mut path = path(id, rtt_ms);
    path.window = 120_000;
    path.pacing_rate = Some(rate);
    path.delivery_rate = Some(rate);
    path
}

/// Two paths of 1 MB/s. The near path has an RTT of 20 ms and may send in a millisecond; the far
/// path has an RTT of 100 ms and may send now. Data on the far path arrives 39 ms later than data
/// on the near path, which delivers 39 kB until then.
fn near_and_far(unsent: u64) -> Scene {
    let paths = vec![paced(0, 20, 1_000_000), paced(1, 100, 1_000_000)];
    let mut scene = Scene::new(paths);
    scene.paths[0].sendable = Sendable::At(scene.now + MS);
    scene.streams = vec![stream(0, 0, unsent)];
    scene.queue.unsent = unsent;
    scene
}

/// The forecast of the path with the earliest arrival.
fn first_forecast(scene: &Scene) -> Forecast {
    let mut forecasts = Forecasts::default();
    forecasts.update(&scene.view());
    forecasts.paths()[0]
}

fn waits_for(decision: &Decision, path: u32) -> bool {
    matches!(decision, Decision::Wait { on, until: Some(_) } if *on == PathId(path))
}

#[test]
fn far_path_carries_data_that_is_due_when_it_arrives() {
    let scene = near_and_far(30_000);
    assert!(waits_for(&Auto::default().select(&scene.view()), 0));
    // The queue holds more bytes than the near path delivers meanwhile.
    let scene = near_and_far(50_000);
    let decision = Auto::default().select(&scene.view());
    assert_eq!(chosen(&decision), Some(1));
    // The far path carries only the rest: 50 kB less 39 kB.
    let Decision::Send { max_bytes, .. } = decision else {
        panic!("{decision:?}");
    };
    assert!((10_900..=11_100).contains(&max_bytes), "{max_bytes}");
}

#[test]
fn far_path_carries_datagrams_that_are_due_when_it_arrives() {
    let decide = |datagrams, unsent| {
        let mut scene = near_and_far(unsent);
        scene.queue.datagrams = datagrams;
        scene.queue.control = true;
        Auto::default().select(&scene.view())
    };
    assert!(waits_for(&decide(30_000, 0), 0));
    for unsent in [0, 1_000_000] {
        let decision = decide(50_000, unsent);
        let Decision::Send {
            path: PathId(1),
            data: DataSelection::DatagramsBehind(behind),
            max_bytes,
            ..
        } = decision
        else {
            panic!("{decision:?}");
        };
        assert!((38_900..=39_100).contains(&behind), "{behind}");
        assert_eq!(behind + max_bytes, 50_000);
    }
    // Streams follow the DATAGRAMs: data 9 kB into the streams arrives in time on the near path as
    // well.
    assert!(waits_for(&decide(30_000, 9_000), 0));
    let decision = decide(30_000, 10_000);
    let expected = DataSelection::Stream(stream_id(0));
    assert!(
        matches!(&decision, Decision::Send { path: PathId(1), data, .. } if *data == expected),
        "{decision:?}"
    );
}

/// After a time with data of the peer only, a fast path has a low delivery rate and a long RTT. The
/// queue of the return path makes the RTT long.
#[test]
fn unused_path_does_not_count_as_slow() {
    let mut scene = Scene::new(vec![paced(0, 20, 10_000_000), paced(1, 60, 2_500_000)]);
    scene.streams = vec![stream(0, 0, 1_000_000)];
    scene.paths[0].rtt.smoothed = 37 * MS;
    scene.paths[0].delivery_rate = Some(50_000);
    let first = |scene: &Scene| chosen(&Auto::default().select(&scene.view()));
    assert_eq!(first(&scene), Some(0));
    // A path with a well-used window counts with its delivery rate.
    (scene.paths[0].window, scene.paths[0].in_flight) = (4_500, 3_000);
    assert_eq!(first(&scene), Some(1));
}

#[test]
fn far_path_is_used_if_the_near_one_may_not_send_for_long() {
    let mut scene = near_and_far(1_200);
    scene.paths[0].sendable = Sendable::At(scene.now + 100 * MS);
    assert_eq!(chosen(&Auto::default().select(&scene.view())), Some(1));
}

#[test]
fn far_path_carries_other_streams_while_urgent_bytes_wait() {
    let mut scene = near_and_far(1_000_000);
    scene.streams = vec![stream(0, 9, 20_000), stream(1, 0, 980_000)];
    let expected = DataSelection::Stream(stream_id(1));
    let decision = Auto::default().select(&scene.view());
    assert!(
        matches!(&decision, Decision::Send { path, data, .. } if *path == PathId(1) && *data == expected),
        "{decision:?}"
    );
}

#[test]
fn lost_bytes_count_as_the_head_of_the_queue() {
    let mut scene = near_and_far(1_000_000);
    scene.queue.retransmit = 60_000;
    let decision = Auto::default().select(&scene.view());
    // The 39 kB at the head of the queue and the next 21 kB are data to be sent again.
    assert!(
        matches!(&decision, Decision::Send { path, data: DataSelection::Next, .. } if *path == PathId(1)),
        "{decision:?}"
    );
}

/// Both paths can send, and only lost bytes wait. The near path delivers 39 kB before the far path
/// delivers its first byte; a batch of the near path has 64 datagrams.
#[test]
fn lost_bytes_are_divided_although_no_new_bytes_wait() {
    let mut scene = near_and_far(0);
    scene.paths[0].sendable = Sendable::Now;
    scene.streams.clear();
    scene.queue.retransmit = 60_000;
    let decision = Auto::default().select(&scene.view());
    let Decision::Send {
        path: PathId(0),
        data: DataSelection::Next,
        max_bytes,
        ..
    } = decision
    else {
        panic!("{decision:?}");
    };
    assert!((38_000..=41_000).contains(&max_bytes), "{max_bytes}");
}

#[test]
fn flow_control_credit_limits_the_queue() {
    let mut scene = near_and_far(1_000_000);
    scene.queue.flow_credit = 30_000;
    assert!(waits_for(&Auto::default().select(&scene.view()), 0));
}

#[test]
fn losses_delay_a_path_if_flow_control_is_the_limit() {
    // The nearer path loses a packet in a hundred, the other path loses no packet; windows of 240
    // kB.
    let mut scene = Scene::new(vec![paced(0, 60, 1_000_000), paced(1, 70, 1_000_000)]);
    scene.paths[0].loss_rate = 0.01;
    scene.streams = vec![stream(0, 0, 100_000)];
    scene.queue.unsent = 100_000;
    let first = |scene: &Scene| chosen(&Auto::default().select(&scene.view()));
    scene.paths[0].in_flight = 60_000;
    assert_eq!(first(&scene), Some(0), "a loss stops nothing");
    scene.queue.flow_credit = 10_000;
    assert_eq!(first(&scene), Some(1), "4 of 10 windows would be stopped");
    scene.paths[0].in_flight = 6_000;
    scene.queue.flow_credit = 2_000;
    assert_eq!(first(&scene), Some(0), "4 ms are less than 5");
}

#[test]
fn growing_window_makes_a_path_worth_waiting_for() {
    // 120 kB in 20 ms are 6 MB/s, which double with every round trip if the window grows.
    let mut near = path(0, 20);
    near.window = 120_000;
    let mut scene = Scene::new(vec![full(near), path(1, 100)]);
    scene.unacked = vec![unacked(&scene, 0, 0..1200, 20)];
    scene.streams = vec![stream(0, 0, 400_000)];
    scene.queue.unsent = 400_000;
    assert_eq!(chosen(&Auto::default().select(&scene.view())), Some(1));
    scene.controller = Growth::Double;
    assert!(waits_for(&Auto::default().select(&scene.view()), 0));
}

#[test]
fn delay_of_a_queue_follows_the_bytes_in_flight() {
    let (near, mut bloated) = (paced(1, 60, 1_000_000), paced(0, 20, 1_000_000));
    bloated.rtt.smoothed = 40 * MS;
    let mut scene = Scene::new(vec![bloated, near]);
    scene.streams = vec![stream(0, 0, 1_200)];
    scene.queue.unsent = 1_200;
    // Without bytes in flight, the queue has drained.
    assert_eq!(chosen(&Auto::default().select(&scene.view())), Some(0));
    scene.paths[0].in_flight = 100_000;
    assert_eq!(chosen(&Auto::default().select(&scene.view())), Some(1));
}

#[test]
fn burst_on_the_near_path_delays_its_next_datagrams() {
    // The arrivals are 10 ms apart; a datagram takes 1.2 ms.
    let mut scene = Scene::new(vec![paced(0, 20, 1_000_000), paced(1, 40, 1_000_000)]);
    scene.streams = vec![stream(0, 0, 1_200)];
    scene.queue.unsent = 1_200;
    let mut auto = Auto::default();
    let mut sent = Vec::new();
    for _ in 0..20 {
        let path = chosen(&auto.select(&scene.view())).expect("a path that can send");
        scene.paths[path as usize].bytes_sent += 1_200;
        sent.push(path);
    }
    assert_eq!(sent.iter().position(|path| *path == 1), Some(9), "{sent:?}");
}

#[test]
fn silent_path_is_not_waited_for_longer_than_it_gains() {
    // The near path has a full window, but no unacknowledged range, because its content arrived
    // elsewhere.
    let mut scene = near_and_far(1_200);
    scene.paths[0] = full(paced(0, 20, 1_000_000));
    let mut auto = Auto::default();
    let mut waited = 0;
    while waits_for(&auto.select(&scene.view()), 0) {
        waited += 1;
        assert!(waited < 60, "it gains 40 ms");
        scene.now += MS;
    }
    assert_eq!(chosen(&auto.select(&scene.view())), Some(1));
}

#[test]
fn a_wait_lasts_until_the_path_can_send_but_no_longer_than_a_second() {
    let waits = |micros| {
        let mut scene = near_and_far(1_200);
        // The other path is too far away for any use.
        scene.paths[1] = paced(1, 30_000, 1_000_000);
        scene.paths[0].sendable = Sendable::At(scene.now + Duration::from_micros(micros));
        match Auto::default().select(&scene.view()) {
            Decision::Wait {
                on: PathId(0),
                until: Some(until),
            } => until - scene.now,
            decision => panic!("{decision:?}"),
        }
    };
    assert_eq!(waits(20_000), 20 * MS);
    assert_eq!(waits(900_000), 900 * MS);
    assert_eq!(waits(5_000_000), 1000 * MS);
    assert_eq!(waits(20), MS);
}

#[test]
fn reopened_path_starts_without_busy_time() {
    let mut scene = Scene::new(vec![paced(0, 20, 1_000_000), paced(1, 40, 1_000_000)]);
    scene.streams = vec![stream(0, 0, 1_200)];
    scene.queue.unsent = 1_200;
    let mut auto = Auto::default();
    assert_eq!(chosen(&auto.select(&scene.view())), Some(0));
    scene.paths[0].bytes_sent = 50_000;
    assert_eq!(
        chosen(&auto.select(&scene.view())),
        Some(1),
        "busy for 50 ms"
    );
    auto.on_event(&SchedulerEvent::PathRemoved(PathId(0)), &scene.view());
    assert_eq!(chosen(&auto.select(&scene.view())), Some(0));
}

#[test]
fn pacing_rate_of_zero_counts_as_a_byte_per_second() {
    let forecast = |rate| {
        let mut slow = path(0, 20);
        (slow.pacing_rate, slow.bytes_sent) = (Some(rate), 0);
        let mut scene = Scene::new(vec![slow]);
        let mut forecasts = Forecasts::default();
        forecasts.update(&scene.view());
        scene.paths[0].bytes_sent = 1;
        scene.now += MS;
        forecasts.update(&scene.view());
        forecasts.paths()[0].departure
    };
    assert_eq!(forecast(0), 1.0, "a second at most");
    assert_eq!(forecast(2), 0.5);
}

#[test]
fn a_window_that_grows_by_more_than_half_is_in_slow_start() {
    let pace = |growth| {
        let mut scene = Scene::new(vec![path(0, 20)]);
        scene.controller = Growth::Additive(growth);
        first_forecast(&scene).pace
    };
    // 12 kB in 20 ms.
    assert_eq!(pace(6_000), 600_000.0);
    assert_eq!(pace(6_001), 1_200_000.0);
}

#[test]
fn queue_with_a_delivery_rate_of_zero_shows_no_bottleneck() {
    let arrival = |rate| {
        let mut path = queued(0, 0);
        (path.delivery_rate, path.window) = (Some(rate), 12_000);
        first_forecast(&Scene::new(vec![path])).arrival
    };
    // Without a rate, the arrival is the smoothed RTT of 40 ms less half of the minimum RTT. With a
    // rate and no bytes in flight, the queue is known to be empty.
    assert_eq!(arrival(0), 0.03);
    assert_eq!(arrival(10_000_000), 0.01);
}

#[test]
fn losses_delay_only_if_flow_control_limits_more_than_the_windows() {
    let at_risk = |flow_credit| {
        let mut far = paced(1, 60, 1_000_000);
        far.loss_rate = 0.1;
        let mut scene = Scene::new(vec![paced(0, 20, 1_000_000), far]);
        scene.streams = vec![stream(0, 0, 1 << 20)];
        // The windows hold 240 kB.
        scene.paths[0].in_flight = 40_000;
        scene.queue.flow_credit = flow_credit;
        let mut forecasts = Forecasts::default();
        forecasts.update(&scene.view());
        let far = forecasts.paths().iter().find(|to| to.path == PathId(1));
        far.unwrap().stall > 0.0
    };
    assert!(at_risk(199_999));
    assert!(!at_risk(200_000));
}

/// No new data, and one packet of the far path that left `age` milliseconds ago.
fn tail(age: u64) -> Scene {
    let mut scene = Scene::new(vec![paced(0, 20, 1_000_000), paced(1, 400, 100_000)]);
    scene.queue.unsent = 0;
    scene.queue.idle = true;
    scene.unacked = vec![unacked(&scene, 1, 0..1_200, age)];
    scene.paths[1].in_flight = 1_200;
    scene
}

#[test]
fn idle_path_repeats_a_late_packet_once() {
    let scene = tail(10);
    let mut auto = Auto::default();
    let copy = Decision::Reinject {
        path: PathId(0),
        stream: stream_id(0),
        offsets: 0..1_200,
        tag: REPEATED,
    };
    assert_eq!(auto.select(&scene.view()), copy);
    assert_eq!(auto.select(&scene.view()), Decision::Blocked);
}

/// The offset of a repeat, in datagrams.
fn repeated(decision: &Decision) -> Option<u64> {
    match decision {
        Decision::Reinject { offsets, .. } => Some(offsets.start / 1_200),
        _ => None,
    }
}

/// The first bytes of a slow path arrive soon, so only later bytes are worth a copy. Then the path
/// turns out to be slower still.
#[test]
fn bytes_not_worth_a_copy_are_repeated_once_they_are_late() {
    let mut scene = tail(0);
    scene.paths[1] = queued(1, 3_600);
    scene.paths[1].delivery_rate = Some(100_000);
    scene.paths[1].window = 8_000;
    let ranges = (0..3).map(|at| unacked(&scene, 1, 1_200 * at..1_200 * (at + 1), 20 - at));
    scene.unacked = ranges.collect();
    let mut auto = Auto::default();
    // Each range takes 12 ms; less 10 ms for the acknowledgement, the first range arrives before a
    // copy, which takes 11 ms.
    assert_eq!(repeated(&auto.select(&scene.view())), Some(1));
    assert_eq!(repeated(&auto.select(&scene.view())), Some(2));
    assert_eq!(auto.select(&scene.view()), Decision::Blocked);
    scene.paths[1].delivery_rate = Some(50_000);
    assert_eq!(repeated(&auto.select(&scene.view())), Some(0));
    assert_eq!(auto.select(&scene.view()), Decision::Blocked);
}

/// The second range leaves for the second time, so its offset is lower.
#[test]
fn two_packets_that_left_together_are_repeated_once_each() {
    let mut scene = tail(10);
    scene.unacked = vec![
        unacked(&scene, 1, 6_000..7_200, 10),
        unacked(&scene, 1, 0..1_200, 10),
    ];
    let mut auto = Auto::default();
    assert_eq!(repeated(&auto.select(&scene.view())), Some(5));
    assert_eq!(repeated(&auto.select(&scene.view())), Some(0));
    assert_eq!(auto.select(&scene.view()), Decision::Blocked);
}

/// The packet is overdue, even though a later packet was copied in the meantime.
#[test]
fn overtaken_packet_is_repeated_again_when_overdue() {
    let mut scene = tail(10);
    scene.paths[1].loss_rate = 0.1;
    scene.paths[0].bytes_sent = 200_000;
    let mut auto = Auto::default();
    assert_eq!(repeated(&auto.select(&scene.view())), Some(0), "overtaken");
    let other = unacked(&scene, 1, 1_200..2_400, 0);
    scene.unacked.push(other);
    scene.now += 300 * MS;
    assert_eq!(repeated(&auto.select(&scene.view())), Some(1), "covered");
    scene.now += 120 * MS;
    assert_eq!(repeated(&auto.select(&scene.view())), Some(0), "overdue");
}

#[test]
fn repeats_of_a_removed_path_are_forgotten() {
    for age in [10, 600] {
        let scene = tail(age);
        let mut auto = Auto::default();
        let first = auto.select(&scene.view());
        assert_eq!(chosen(&first), Some(0), "{age}");
        while chosen(&auto.select(&scene.view())).is_some() {}
        auto.on_event(&SchedulerEvent::PathRemoved(PathId(1)), &scene.view());
        assert_eq!(auto.select(&scene.view()), first, "{age}");
    }
}

#[test]
fn packet_that_should_have_arrived_is_repeated_only_when_overdue() {
    let mut scene = tail(250);
    let mut auto = Auto::default();
    assert_eq!(auto.select(&scene.view()), Decision::Blocked);
    // A round trip, no variation, and the maximum delay of acknowledgements.
    let overdue = scene.now + 175 * MS;
    assert_eq!(auto.next_timeout(), Some(overdue));
    scene.now = overdue;
    auto.on_event(&SchedulerEvent::Timer, &scene.view());
    assert_eq!(auto.next_timeout(), None);
    assert_eq!(chosen(&auto.select(&scene.view())), Some(0));
}

#[test]
fn insurance_copies_need_a_budget_for_all_bytes_in_flight() {
    let mut scene = tail(250);
    scene.paths[1].loss_rate = 0.1;
    scene.paths[0].bytes_sent = 39_000;
    assert_eq!(Auto::default().select(&scene.view()), Decision::Blocked);
    scene.paths[0].bytes_sent = 41_000;
    assert_eq!(chosen(&Auto::default().select(&scene.view())), Some(0));
    scene.paths[1].in_flight = 12_000;
    assert_eq!(Auto::default().select(&scene.view()), Decision::Blocked);
}

/// The number of copies of a path's data before the path earns any budget.
fn copies_of(holder: PathView) -> u64 {
    let mut scene = tail(10);
    scene.paths[1] = holder;
    scene.paths[1].in_flight = 240_000;
    let ranges = (0..200).map(|at| unacked(&scene, 1, 1_200 * at..1_200 * (at + 1), 10));
    scene.unacked = ranges.collect();
    let mut auto = Auto::default();
    let copies = (0..200).take_while(|_| auto.select(&scene.view()) != Decision::Blocked);
    copies.count() as u64
}

#[test]
fn copy_of_probably_lost_data_costs_less_budget() {
    let mut holder = paced(1, 400, 100_000);
    assert_eq!(copies_of(holder), 32);
    (holder.bytes_acked, holder.bytes_lost) = (6_000, 18_000);
    holder.loss_rate = 0.75;
    // Each copy costs a quarter of a datagram; for the last copy, a whole datagram must be left.
    assert_eq!(copies_of(holder), 125);
    // A loss rate of 15 % is not heavy, because random losses of links may reach 15 %.
    holder.loss_rate = 0.15;
    assert_eq!(copies_of(holder), 32);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Copies stay within their share of the sent bytes, plus 32 datagrams.
    #[test]
    fn copies_stay_within_the_budget(share in 0.0..0.2f64, ages in proptest::collection::vec(0u64..2000, 1..200)) {
        let mut auto = Auto::new(AutoConfig { extra_bytes: share });
        let mut scene = tail(0);
        let (mut copied, mut sent) = (0, 0);
        for (at, age) in (0u64..).zip(ages) {
            scene.now += 3 * MS;
            let offset = at * 1_200;
            scene.unacked = vec![unacked(&scene, 1, offset..offset + 1_200, age)];
            if let Decision::Reinject { offsets, .. } = auto.select(&scene.view()) {
                copied += offsets.end - offsets.start;
            }
            sent += 1_200;
            scene.paths[1].bytes_sent = sent;
        }
        prop_assert!(copied as f64 <= sent as f64 * share + 38_400.0, "{copied} of {sent}");
    }

    /// Every wait ends, for any paths, even if the paths never change.
    #[test]
    fn every_wait_ends(
        rtts in proptest::collection::vec(0u64..1000, 2..6),
        rates in proptest::collection::vec(proptest::option::of(0u64..u64::MAX), 6),
        windows in proptest::collection::vec(0u64..10_000_000, 6),
        blocked in 0usize..64,
        unsent in 1u64..100_000_000,
        double in any::<bool>(),
    ) {
        let mut paths = Vec::new();
        for (id, rtt) in (0u32..).zip(&rtts) {
            let index = id as usize;
            let mut path = path(id, *rtt);
            path.window = windows[index].max(1_200);
            path.pacing_rate = rates[index];
            path.delivery_rate = rates[5 - index];
            path.rtt.min = Duration::from_millis(rtts[0]);
            if blocked >> index & 1 == 1 {
                path = full(path);
            }
            paths.push(path);
        }
        let can_send = paths.iter().any(PathView::can_send);
        let mut scene = Scene::new(paths);
        scene.streams = vec![stream(0, 0, unsent)];
        scene.queue.unsent = unsent;
        if double {
            scene.controller = Growth::Double;
        }
        let mut auto = Auto::default();
        let mut decision = auto.select(&scene.view());
        for step in 0..40 {
            if !matches!(decision, Decision::Wait { .. }) {
                break;
            }
            scene.now += Duration::from_millis(1 << step.min(20));
            decision = auto.select(&scene.view());
        }
        prop_assert_eq!(chosen(&decision).is_some(), can_send, "{:?}", decision);
    }
}

/// A path of 10 MB/s with a visible queue. Its first 200 kB in flight fill the path, the rest the
/// queue.
fn queued(id: u32, in_flight: u64) -> PathView {
    let mut path = path(id, 20);
    path.rtt.smoothed = Duration::from_millis(40);
    path.delivery_rate = Some(10_000_000);
    path.window = 1_000_000;
    path.in_flight = in_flight;
    path
}

/// The largest delivery rate of ten round trips stays high for long after a link became slower.
#[test]
fn slower_drain_rate_of_a_queue_counts_at_once() {
    let mut scene = Scene::new(vec![queued(0, 300_000), path(1, 60)]);
    scene.paths[0].rtt.latest = Duration::from_millis(40);
    (scene.streams, scene.queue.unsent) = (vec![stream(0, 0, 50_000)], 50_000);
    let mut auto = Auto::default();
    // 300 kB take 30 ms; less 10 ms for the return path, the first path delivers sooner than the
    // second, in 30 ms.
    for acked in [0, 100_000, 200_000, 240_000, 280_000, 320_000, 360_000] {
        scene.paths[0].bytes_acked = acked;
        // By this time, two measurements show 4 MB/s.
        let first = u32::from(acked == 360_000);
        let decision = auto.select(&scene.view());
        assert_eq!(chosen(&decision), Some(first), "{acked}");
        scene.now += 10 * MS;
    }
    // Acknowledgements may pause without any effect.
    scene.now += 50 * MS;
    assert_eq!(chosen(&auto.select(&scene.view())), Some(1));
    // A path whose queue has gone is fast again.
    scene.paths[0].rtt.latest = scene.paths[0].rtt.min;
    assert_eq!(chosen(&auto.select(&scene.view())), Some(0));
}

/// Waiting DATAGRAMs may still take another path; in a full queue they would be lost.
#[test]
fn datagrams_wait_locally_instead_of_filling_the_queue_of_a_link() {
    let decide = |in_flight, datagrams, unsent| {
        let mut scene = Scene::new(vec![queued(0, in_flight), queued(1, 1_000_000)]);
        scene.paths[1].sendable = Sendable::WindowFull;
        (scene.queue.datagrams, scene.queue.unsent) = (datagrams, unsent);
        scene.queue.control = true;
        Auto::default().select(&scene.view())
    };
    // The queue gets 20 ms of the rate.
    assert_eq!(chosen(&decide(400_000, 50_000, 0)), Some(0));
    assert!(waits_for(&decide(401_000, 50_000, 0), 0));
    // DATAGRAMs wait no longer than 150 ms, and streams fill the queue anyway.
    assert_eq!(chosen(&decide(401_000, 3_100_000, 0)), Some(0));
    assert_eq!(chosen(&decide(401_000, 50_000, 50_000)), Some(0));
}

/// A loss would stop streams, but not DATAGRAMs.
#[test]
fn flow_control_does_not_keep_datagrams_off_a_lossy_path() {
    let forecast = |unsent| {
        let mut far = path(1, 60);
        far.loss_rate = 0.1;
        let mut scene = Scene::new(vec![queued(0, 600_000), far]);
        (scene.queue.datagrams, scene.queue.unsent) = (50_000, unsent);
        scene.queue.flow_credit = 10_000;
        first_forecast(&scene).path
    };
    assert_eq!(forecast(0), PathId(1));
    assert_eq!(forecast(50_000), PathId(0));
}
