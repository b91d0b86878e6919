//! BBR on one link: the cases of the draft's appendix, and its behaviour over time.

use std::time::Duration;

use mpquic_core::congestion::DeliveryRate;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::testing::{acked, congestion, sent, start};
use crate::testing_link::{Flow, MTU};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn until(flow: &mut Flow<Bbr>, phase: Phase) {
    let end = flow.now + 20 * SECOND;
    let reached = flow.run_until(end, |flow| flow.controller.phase == phase);
    assert!(
        reached,
        "{phase:?} was not reached: {:?}",
        flow.controller.phase
    );
}

fn close(actual: f64, expected: f64, tolerance: f64) -> bool {
    (actual / expected - 1.0).abs() <= tolerance
}

/// RFC 9002 section 7.2: ten datagrams, but no more than 14720 bytes unless two are larger.
#[test]
fn the_initial_window_is_that_of_rfc_9002() {
    let windows = [1200.0, 1472.0, 2000.0, 9000.0].map(|mtu| Variant::DRAFT.initial_window(mtu));
    assert_eq!(windows, [12_000.0, 14_720.0, 14_720.0, 18_000.0]);
}

#[test]
fn new_return_path_restarts_the_minimum_rtt_without_the_queue() {
    let mut bbr = Bbr::new(start(), MTU as u16);
    let mut shortest = |at: u32, rtt: Duration, restarted: bool| {
        let now = start() + at * 10 * MS;
        let mut ack = acked(now, now - rtt, 1200);
        ack.rtt = crate::testing::rtt(rtt);
        ack.rtt.samples = at.into();
        ack.rtt_restarted = restarted;
        bbr.on_ack(&ack);
        bbr.min_rtt.get().unwrap()
    };
    assert_eq!(shortest(100, 325 * MS, false), 325 * MS);
    assert_eq!(shortest(101, 340 * MS, false), 325 * MS);
    assert_eq!(shortest(102, 615 * MS, true), 600 * MS, "without the queue");
    assert_eq!(shortest(103, 598 * MS, false), 598 * MS);
}

#[test]
fn startup_ends_on_a_plateau_with_the_bandwidth_known() {
    for (mbit, rtt) in [(2.0, 50), (10.0, 20), (50.0, 40), (200.0, 300)] {
        let mut flow = Flow::<Bbr>::new(mbit, rtt, 8.0);
        until(&mut flow, Phase::Drain);
        let bbr = &flow.controller;
        let pipe = bbr.full_pipe;
        assert!(
            pipe.was_full && pipe.is_full,
            "{mbit} {rtt}: {pipe:?} {}",
            flow.lost
        );
        assert!(
            close(bbr.max_bandwidth.get(), flow.rate, 0.02),
            "{mbit} {rtt}"
        );
        assert_eq!(flow.lost, 0);
        // Doubling from ten packets, and three round trips without growth.
        let product = flow.rate * flow.rtt.as_secs_f64() / MTU as f64;
        let rounds = (product / 10.0).log2().max(0.0) + 3.0 + 3.0;
        let took = (flow.now - start()).as_secs_f64() / flow.rtt.as_secs_f64();
        assert!(took < 2.0 * rounds, "{mbit} {rtt}: {took} {rounds}");
    }
}

fn quick(mbit: f64, rtt: u64, queue: f64) -> Flow<Bbr> {
    let mut flow = Flow::<Bbr>::new(mbit, rtt, queue);
    flow.controller = Bbr::with_variant(Variant::QUICK, start(), MTU as u16);
    flow
}

#[test]
fn quick_startup_saves_one_and_a_half_round_trips_with_no_longer_queue() {
    for (mbit, rtt) in [(50.0, 40), (100.0, 150), (100.0, 600)] {
        let took = |mut flow: Flow<Bbr>| {
            let end = start() + 30 * SECOND;
            let is_full = |flow: &Flow<Bbr>| flow.controller.max_bandwidth.get() > 0.9 * flow.rate;
            assert!(flow.run_until(end, is_full));
            let took = flow.now - start();
            until(&mut flow, Phase::Drain);
            (took, flow.longest_queue)
        };
        let (draft, its_queue) = took(Flow::new(mbit, rtt, 8.0));
        let (ours, our_queue) = took(quick(mbit, rtt, 8.0));
        let saved = (draft - ours).as_secs_f64() / (rtt as f64 / 1000.0);
        assert!(saved > 1.5, "{mbit} {rtt}: {ours:?} {draft:?}");
        assert!(
            our_queue <= its_queue * 11 / 10,
            "{our_queue:?} {its_queue:?}"
        );
    }
}

/// The link itself loses packets. Without a queue, and while the rate grows, the link is not full.
#[test]
fn losses_without_a_queue_do_not_end_quick_startup() {
    let mut flow = quick(100.0, 300, 1.0);
    flow.lose_every = Some(35);
    let end = start() + 6 * SECOND;
    assert!(flow.run_until(end, |flow| flow.controller.phase == Phase::Drain));
    let found = flow.controller.max_bandwidth.get() / flow.rate;
    assert!(found > 0.85, "{found}");
    let goodput = flow.run(30 * SECOND) / flow.rate;
    assert!(goodput > 0.8, "{goodput}");
}

/// With hardly any queue, only losses show that the link is full.
#[test]
fn link_with_hardly_any_queue_is_not_flooded() {
    for queue in [0.005, 0.02, 0.05, 0.2] {
        let mut flow = quick(50.0, 40, queue);
        for seconds in [1, 4, 10, 10] {
            let lost = flow.lost;
            flow.run(seconds * SECOND);
            let share = (flow.lost - lost) as f64 / flow.rate / f64::from(seconds);
            assert!(share < 0.04 / f64::from(seconds.min(4)), "{queue}: {share}");
        }
        let goodput = flow.run(5 * SECOND) / flow.rate;
        assert!(goodput > 0.9, "{queue}: {goodput}");
    }
}

#[test]
fn quick_startup_is_not_interrupted_by_probe_rtt() {
    let set_back = |mut flow: Flow<Bbr>| {
        let end = start() + 12 * SECOND;
        flow.run_until(end, |flow| flow.controller.phase == Phase::ProbeRtt)
            && !flow.controller.full_pipe.was_full
    };
    assert!(
        set_back(Flow::new(100.0, 1200, 8.0)),
        "the draft's start is"
    );
    assert!(!set_back(quick(100.0, 1200, 8.0)));
}

#[test]
fn quick_startup_has_an_initial_window_of_32_datagrams() {
    let mut bbr = Bbr::with_variant(Variant::QUICK, start(), 1200);
    assert_eq!(bbr.limits(), PathLimits::new(38_400), "paced by the window");
    bbr.on_mtu_update(1452);
    assert_eq!(bbr.limits().window, 46_464);
}

#[test]
fn drain_ends_with_one_bandwidth_delay_product_in_flight() {
    let mut flow = Flow::<Bbr>::new(50.0, 40, 8.0);
    until(&mut flow, Phase::Drain);
    let product = flow.rate * 0.04;
    assert!(flow.in_flight() as f64 > 1.5 * product);
    assert!(close(
        flow.controller.pacing_rate.unwrap(),
        0.5 * flow.rate,
        0.03
    ));
    let end = flow.now + SECOND;
    assert!(flow.run_until(end, |flow| flow.controller.phase != Phase::Drain));
    assert!(flow.in_flight() as f64 <= 1.05 * product);
}

#[test]
fn drain_ends_after_three_rounds_at_the_latest() {
    let mut flow = Flow::<Bbr>::new(50.0, 40, 20.0);
    until(&mut flow, Phase::Drain);
    flow.set_rate(flow.rate / 10.0);
    let rounds = flow.controller.rounds.count;
    until(&mut flow, Phase::Down);
    assert!(flow.in_flight() as f64 > flow.controller.in_flight_for(1.0, 0.0));
    assert_eq!(flow.controller.rounds.count, rounds + 4);
}

#[test]
fn startup_ends_when_a_short_queue_overflows() {
    let mut flow = Flow::<Bbr>::new(50.0, 40, 0.2);
    until(&mut flow, Phase::Drain);
    let bbr = &flow.controller;
    assert!(
        bbr.full_pipe.was_full && !bbr.full_pipe.is_full,
        "by losses"
    );
    let product = flow.rate * 0.04;
    assert!(bbr.bounds.long_term >= 0.9 * product && bbr.bounds.long_term < 1.6 * product);
}

/// A burst overflows a queue of a few packets, and one acknowledgement reveals all losses.
#[test]
fn one_loss_batch_ends_startup_if_a_quarter_of_the_round_is_lost() {
    for (lost, delivered, ends) in [(8, 10, true), (5, 5, false), (8, 40, false)] {
        let mut bbr = Bbr::new(start(), MTU as u16);
        let (left, found) = (start(), start() + 20 * MS);
        bbr.on_packet_sent(&sent(left, MTU, (lost + delivered) * MTU));
        let mut event = congestion(CongestionKind::Loss, found, left);
        event.lost_bytes = lost * MTU;
        bbr.on_congestion_event(&event);
        bbr.on_ack(&acked(found, left, delivered * MTU));
        // The acknowledgement of a packet that left after the losses were found ends the round
        // trip.
        bbr.on_packet_sent(&sent(found, MTU, MTU));
        bbr.on_ack(&acked(found + 20 * MS, found, 0));
        assert_eq!(bbr.full_pipe.was_full, ends, "{lost} of {delivered}");
    }
}

/// The application is the limit: losses end startup, a constant delivery rate does not.
#[test]
fn application_limited_startup_ends_by_losses_only() {
    let mut flow = Flow::<Bbr>::new(50.0, 40, 4.0);
    flow.application = Some(1e6);
    flow.run(3 * SECOND);
    assert_eq!(flow.controller.phase, Phase::Startup);
    flow.lose_every = Some(4);
    flow.run(2 * SECOND);
    assert!(
        flow.controller.full_pipe.was_full,
        "{:?}",
        flow.controller.losses
    );
}

#[test]
fn probing_cycle_runs_down_cruise_refill_up() {
    let mut flow = Flow::<Bbr>::new(50.0, 40, 4.0);
    for phase in [
        Phase::Down,
        Phase::Cruise,
        Phase::Refill,
        Phase::Up,
        Phase::Down,
    ] {
        until(&mut flow, phase);
        let gain = match phase {
            Phase::Down => 0.9,
            Phase::Up => 1.25,
            _ => 1.0,
        };
        flow.run(5 * MS);
        let bbr = &flow.controller;
        if bbr.phase == phase {
            let expected = gain * 0.99 * bbr.bandwidth();
            assert!(close(bbr.pacing_rate.unwrap(), expected, 0.01), "{phase:?}");
        }
    }
    // Two to three seconds between probes, or 63 round trips.
    until(&mut flow, Phase::ProbeRtt);
    until(&mut flow, Phase::Cruise);
    let began = flow.now;
    until(&mut flow, Phase::Refill);
    let between = flow.now - began;
    assert!(between > 1900 * MS && between < 3000 * MS, "{between:?}");
}

#[test]
fn paths_of_a_joint_probe_share_two_extra_datagrams() {
    let mut flow = Flow::<Bbr>::new(20.0, 40, 8.0);
    until(&mut flow, Phase::Up);
    let bbr = &mut flow.controller;
    bbr.count = 4.0;
    let probing = bbr.in_flight_for(1.0, 0.0);
    bbr.phase = Phase::Cruise;
    let more = probing - bbr.in_flight_for(1.0, 0.0);
    assert!(close(more, 0.5 * bbr.mtu, 1e-6), "{more}");
}

#[test]
fn bound_replaces_window_and_rate_while_cruising() {
    let mut flow = Flow::<Bbr>::new(20.0, 40, 8.0);
    until(&mut flow, Phase::Cruise);
    let company = Company {
        bound: Some(30_000.0),
        ..Company::NONE
    };
    let mut ack = acked(flow.now, flow.now - 40 * MS, 1200);
    ack.rtt = crate::testing::rtt(40 * MS);
    let bbr = &mut flow.controller;
    bbr.on_ack_in(&ack, &company);
    assert_eq!(bbr.limits().window, 30_000);
    let rate = bbr.limits().pacing_rate.unwrap() as f64;
    assert!(
        close(rate, WINDOW_PACING_GAIN * 30_000.0 / 0.04, 0.01),
        "{rate}"
    );
    bbr.on_ack_in(&ack, &Company::NONE);
    assert!(bbr.limits().window > 30_000, "it grows again");
    let before = bbr.pacing_rate;
    bbr.smoothed_rtt = Duration::ZERO;
    bbr.follow_bound(1.0);
    assert_eq!((bbr.limits().window, bbr.pacing_rate), (2 * MTU, before));
    bbr.pacing_rate = Some(0.1);
    assert_eq!(bbr.limits().pacing_rate, Some(1), "never nothing");
}

#[test]
fn time_since_a_probe_counts_from_its_end() {
    let mut flow = Flow::<Bbr>::new(20.0, 40, 8.0);
    until(&mut flow, Phase::Up);
    until(&mut flow, Phase::Down);
    let ended = flow.now;
    assert_eq!(flow.controller.since_probe(ended), Duration::ZERO);
    until(&mut flow, Phase::Cruise);
    let now = ended + SECOND;
    assert_eq!(flow.controller.since_probe(now), SECOND);
}

#[test]
fn one_acknowledgement_per_round_trip_ends_it() {
    let mut flow = Flow::<Bbr>::new(20.0, 40, 8.0);
    until(&mut flow, Phase::Cruise);
    let (mut delivered, mut acks, mut ends) = (0.0, 0, 0);
    let end = flow.now + SECOND;
    flow.run_until(end, |flow| {
        let bbr = &flow.controller;
        if bbr.delivered != delivered {
            delivered = bbr.delivered;
            acks += 1;
            ends += u32::from(bbr.has_round_ended());
        }
        false
    });
    assert!((20..=25).contains(&ends) && acks > 500, "{ends} of {acks}");
}

#[test]
fn more_bandwidth_is_found_and_less_is_forgotten() {
    let mut flow = Flow::<Bbr>::new(20.0, 30, 4.0);
    flow.run(5 * SECOND);
    flow.set_rate(flow.rate * 4.0);
    flow.run(10 * SECOND);
    assert!(flow.run(2 * SECOND) > 0.9 * flow.rate);
    flow.set_rate(flow.rate / 4.0);
    flow.run(10 * SECOND);
    assert!(close(flow.controller.bandwidth(), flow.rate, 0.1));
    flow.longest_queue = Duration::ZERO;
    assert!(flow.run(4 * SECOND) > 0.9 * flow.rate);
    assert!(flow.longest_queue < 40 * MS, "{:?}", flow.longest_queue);
}

#[test]
fn a_link_is_filled_and_its_queue_kept_short() {
    for (mbit, rtt, queue) in [(10.0, 100, 2.0), (100.0, 20, 2.0), (50.0, 40, 0.3)] {
        let mut flow = Flow::<Bbr>::new(mbit, rtt, queue);
        flow.run(5 * SECOND);
        let (lost, delivered) = (flow.lost, flow.delivered);
        let goodput = flow.run(20 * SECOND);
        assert!(
            goodput > 0.93 * flow.rate,
            "{mbit} {rtt} {queue}: {goodput}"
        );
        let share = (flow.lost - lost) as f64 / (flow.delivered - delivered) as f64;
        assert!(share < 0.005, "{mbit} {rtt} {queue}: {share}");
    }
}

/// The draft leaves a hundredth of a link free, so that queues drain. Without a visible queue
/// nothing has to drain.
#[test]
fn quick_variant_leaves_no_rate_free_without_a_queue() {
    for (mbit, rtt) in [(100.0, 150), (50.0, 40), (200.0, 300)] {
        let cruising = |mut flow: Flow<Bbr>| {
            until(&mut flow, Phase::Cruise);
            flow.run(SECOND);
            flow.longest_queue = Duration::ZERO;
            let goodput = flow.run(SECOND) / flow.rate;
            (goodput, flow.longest_queue, flow.controller.phase)
        };
        let (draft, ours) = (
            cruising(Flow::new(mbit, rtt, 8.0)),
            cruising(quick(mbit, rtt, 8.0)),
        );
        assert!(draft.0 < 0.991 && ours.0 > 0.999, "{draft:?} {ours:?}");
        assert_eq!((ours.1, ours.2), (Duration::ZERO, Phase::Cruise));
    }
}

/// A round trip of cruising with losses reduces the rate by the lost share: here 1.6 of 208
/// packets, in up to 63 round trips.
#[test]
fn random_losses_of_one_in_127_cost_less_than_a_fifth() {
    let mut flow = Flow::<Bbr>::new(50.0, 40, 2.0);
    flow.lose_every = Some(127);
    flow.run(5 * SECOND);
    let goodput = flow.run(20 * SECOND);
    assert!(goodput > 0.8 * flow.rate, "{}", goodput / flow.rate);
}

#[test]
fn probe_rtt_comes_every_five_seconds() {
    let mut flow = Flow::<Bbr>::new(50.0, 40, 4.0);
    until(&mut flow, Phase::ProbeRtt);
    let entered = flow.now;
    let product = flow.rate * 0.04;
    flow.run(60 * MS);
    assert!(close(flow.controller.window, product / 2.0, 0.05));
    assert!(flow.in_flight() as f64 <= 0.55 * product);
    until(&mut flow, Phase::Cruise);
    let stay = flow.now - entered;
    assert!(stay > 200 * MS && stay < 350 * MS, "{stay:?}");
    assert!(flow.controller.window > product, "the old window is back");
    // The low delivery rate during `ProbeRtt` does not count.
    flow.run(200 * MS);
    assert!(close(flow.controller.bandwidth(), flow.rate, 0.03));
    until(&mut flow, Phase::ProbeRtt);
    assert!(flow.now - entered > 5 * SECOND && flow.now - entered < 6 * SECOND);
}

#[test]
fn longer_rtt_is_accepted_after_ten_seconds() {
    let mut flow = Flow::<Bbr>::new(50.0, 20, 8.0);
    flow.run(3 * SECOND);
    flow.rtt = 60 * MS;
    flow.run(16 * SECOND);
    let min_rtt = flow.controller.min_rtt.get().unwrap();
    assert!(min_rtt >= 60 * MS && min_rtt < 64 * MS, "{min_rtt:?}");
    assert!(flow.run(4 * SECOND) > 0.9 * flow.rate);
}

#[test]
fn pause_of_the_application_replaces_probe_rtt() {
    let mut flow = Flow::<Bbr>::new(50.0, 40, 4.0);
    until(&mut flow, Phase::Cruise);
    // The application has no data for six seconds.
    flow.application = Some(MTU as f64 / 6.0);
    flow.run(200 * MS);
    flow.application = None;
    flow.run(6 * SECOND);
    let end = flow.now + SECOND;
    let entered = flow.run_until(end, |flow| flow.controller.phase == Phase::ProbeRtt);
    assert!(!entered);
    assert!(close(flow.controller.bandwidth(), flow.rate, 0.03));
}

#[test]
fn marks_keep_the_queue_short() {
    let mut flow = Flow::<Bbr>::new(50.0, 40, 8.0);
    flow.mark_above = Some(5 * MS);
    flow.run(5 * SECOND);
    assert_ne!(flow.controller.phase, Phase::Startup);
    flow.longest_queue = Duration::ZERO;
    let goodput = flow.run(10 * SECOND);
    // The length of the queue when the first marked packet left, plus the growth by a probe in the
    // round trip until the mark arrives.
    assert!(
        flow.longest_queue < 5 * MS + 12 * MS,
        "{:?}",
        flow.longest_queue
    );
    assert!(goodput > 0.85 * flow.rate, "{}", goodput / flow.rate);
}

#[test]
fn losses_while_cruising_bound_the_rate_until_the_next_probe() {
    let mut flow = Flow::<Bbr>::new(50.0, 40, 4.0);
    until(&mut flow, Phase::Cruise);
    let window = flow.controller.window;
    flow.lose_every = Some(5);
    flow.run(200 * MS);
    let bbr = &flow.controller;
    assert!(bbr.bounds.short_term < window && bbr.bandwidth() < 0.95 * flow.rate);
    assert!(bbr.limits().in_recovery);
    flow.lose_every = None;
    until(&mut flow, Phase::Refill);
    assert!(flow.controller.bounds.short_term.is_infinite());
    assert!(!flow.controller.limits().in_recovery);
}

#[test]
fn too_many_losses_end_a_probe_and_set_the_long_term_bound() {
    let mut flow = Flow::<Bbr>::new(50.0, 40, 4.0);
    until(&mut flow, Phase::Up);
    flow.queue = Duration::from_micros(500);
    until(&mut flow, Phase::Down);
    let bbr = &flow.controller;
    assert!(bbr.cycle.was_too_high && bbr.bounds.long_term.is_finite());
    let product = flow.rate * 0.04;
    assert!(
        close(bbr.bounds.long_term, product, 0.3),
        "{}",
        bbr.bounds.long_term / product
    );
    until(&mut flow, Phase::Cruise);
    assert!(flow.in_flight() as f64 <= 0.86 * flow.controller.bounds.long_term);
}

#[test]
fn spurious_loss_restores_bound_and_probe() {
    let mut flow = Flow::<Bbr>::new(50.0, 40, 4.0);
    until(&mut flow, Phase::Up);
    flow.run(50 * MS);
    let before = flow.controller.bounds.long_term;
    let mut event = congestion(CongestionKind::Loss, flow.now, flow.now - 40 * MS);
    event.lost_bytes = 50 * MTU;
    flow.controller.on_congestion_event(&event);
    assert_eq!(flow.controller.phase, Phase::Down);
    assert!(flow.controller.bounds.long_term < before);
    event.kind = CongestionKind::Spurious;
    flow.controller.on_congestion_event(&event);
    assert_eq!(flow.controller.phase, Phase::Refill);
    assert_eq!(flow.controller.bounds.long_term, before);
    assert!(!flow.controller.limits().in_recovery);
}

#[test]
fn losses_of_another_path_end_up_and_refill() {
    for (phase, after) in [
        (Phase::Cruise, Phase::Cruise),
        (Phase::Refill, Phase::Down),
        (Phase::Up, Phase::Down),
    ] {
        let mut flow = Flow::<Bbr>::new(50.0, 40, 4.0);
        until(&mut flow, phase);
        let event = congestion(CongestionKind::Loss, flow.now, flow.now - 20 * MS);
        let bbr = &mut flow.controller;
        bbr.cycle.is_probe_sample = true;
        let (departed, target) = (bbr.log.at(event.sent_at).bytes, bbr.target_in_flight());
        bbr.on_others_too_high(&event);
        assert_eq!(bbr.phase, after);
        assert!(bbr.cycle.was_too_high && !bbr.cycle.is_probe_sample);
        assert_eq!(bbr.bounds.long_term, departed.max(0.7 * target));
        let undone = (phase == Phase::Up).then_some(Phase::Up);
        assert_eq!(bbr.undo.phase, undone);
    }
}

#[test]
fn application_limited_probe_does_not_lower_the_bound() {
    let mut flow = Flow::<Bbr>::new(50.0, 40, 4.0);
    until(&mut flow, Phase::Up);
    let event = congestion(CongestionKind::Loss, flow.now, flow.now);
    let bbr = &mut flow.controller;
    let before = bbr.bounds.long_term;
    bbr.cycle.app_limited = true;
    bbr.on_others_too_high(&event);
    assert_eq!(bbr.bounds.long_term, before);
}

/// Two datagrams of any size may be in flight (RFC 9002 section 7.2).
#[test]
fn window_holds_two_of_the_largest_datagrams() {
    let mut bbr = Bbr::new(start(), 1200);
    let event = congestion(CongestionKind::Persistent, start(), start());
    bbr.on_congestion_event(&event);
    bbr.on_mtu_update(9000);
    assert_eq!(bbr.limits().window, 18_000);
    bbr.on_ack(&acked(start() + MS, start(), 0));
    assert_eq!(bbr.limits().window, 36_000, "four keep a path busy");
}

#[test]
fn burst_is_a_millisecond_of_the_rate_within_bounds() {
    let mut bbr = Bbr::new(start(), 1200);
    assert_eq!(bbr.quantum(), 2400.0);
    for (rate, burst) in [
        (2.3e6, 2400.0),
        (2.5e6, 2500.0),
        (65e6, 65e3),
        (66e6, 65_536.0),
    ] {
        bbr.pacing_rate = Some(rate);
        assert_eq!(bbr.quantum(), burst, "{rate}");
    }
    bbr.mtu = 40_000.0;
    assert_eq!(bbr.quantum(), 80_000.0, "two datagrams in any case");
}

#[test]
fn saved_window_is_that_before_all_cuts() {
    let mut bbr = Bbr::new(start(), 1200);
    (bbr.window, bbr.prior_window) = (20_000.0, 50_000.0);
    bbr.save_window();
    assert_eq!(bbr.prior_window, 20_000.0);
    bbr.prior_window = 50_000.0;
    bbr.phase = Phase::ProbeRtt;
    bbr.save_window();
    assert_eq!(bbr.prior_window, 50_000.0);
    bbr.phase = Phase::Cruise;
    bbr.losses
        .on_event(&congestion(CongestionKind::Loss, start(), start()));
    bbr.save_window();
    assert_eq!(bbr.prior_window, 50_000.0);
    bbr.restore_window();
    assert_eq!(bbr.window, 50_000.0);
}

/// A path in `ProbeRtt`, whose minimum RTT was last measured six seconds before.
fn with_an_old_round_trip(phase: Phase) -> Flow<Bbr> {
    let mut flow = Flow::<Bbr>::new(50.0, 40, 4.0);
    until(&mut flow, phase);
    flow.controller.min_rtt = min_rtt::MinRtt::new(flow.now - 6 * SECOND);
    until(&mut flow, Phase::ProbeRtt);
    flow
}

#[test]
fn probe_rtt_ends_the_feedback_on_a_probe() {
    let mut flow = with_an_old_round_trip(Phase::Up);
    assert_eq!(flow.controller.cycle.feedback, cycle::Feedback::Stopping);
    flow.controller.cycle.is_probe_sample = true;
    let cycles = flow.controller.cycles();
    flow.run(100 * MS);
    assert_eq!(flow.controller.phase, Phase::ProbeRtt);
    assert_eq!(flow.controller.cycle.feedback, cycle::Feedback::None);
    assert!(!flow.controller.cycle.is_probe_sample);
    assert_eq!(
        flow.controller.cycles(),
        cycles,
        "no rate is forgotten for it"
    );
}

#[test]
fn first_packet_after_a_pause_ends_a_finished_probe_rtt() {
    let mut flow = with_an_old_round_trip(Phase::Cruise);
    let measuring = |flow: &Flow<Bbr>| flow.controller.probe_rtt.done_at.is_some();
    let end = flow.now + SECOND;
    assert!(flow.run_until(end, measuring));
    let done_at = flow.controller.probe_rtt.done_at.unwrap();
    for (after, in_flight, phase) in [
        (Duration::ZERO, MTU, Phase::ProbeRtt),
        (MS, 2 * MTU, Phase::ProbeRtt),
        (MS, MTU, Phase::Cruise),
    ] {
        flow.controller
            .on_packet_sent(&sent(done_at + after, MTU, in_flight));
        assert_eq!(flow.controller.phase, phase);
    }
    assert!(flow.controller.bounds.short_term.is_infinite());
}

#[test]
fn first_packet_after_a_pause_resets_pacing_to_the_bandwidth() {
    for (phase, changes) in [
        (Phase::Up, true),
        (Phase::Down, true),
        (Phase::Drain, false),
    ] {
        let mut flow = Flow::<Bbr>::new(50.0, 40, 4.0);
        until(&mut flow, phase);
        let bbr = &mut flow.controller;
        let before = bbr.pacing_rate;
        bbr.on_packet_sent(&sent(flow.now, MTU, MTU));
        let expected = if changes {
            Some(0.99 * bbr.bandwidth())
        } else {
            before
        };
        assert_eq!(bbr.pacing_rate, expected, "{phase:?}");
        for (bytes, is_idle) in [(0, true), (1, false)] {
            bbr.on_ack(&acked(flow.now, flow.now, bytes));
            assert_eq!(bbr.is_idle_restart, is_idle, "until something arrives");
        }
    }
}

#[test]
fn persistent_congestion_reduces_the_window_to_two_datagrams() {
    let mut flow = Flow::<Bbr>::new(50.0, 40, 4.0);
    flow.run(2 * SECOND);
    let event = congestion(CongestionKind::Persistent, flow.now, flow.now);
    flow.controller.on_congestion_event(&event);
    assert_eq!(flow.controller.limits().window, 2 * MTU);
    assert!(flow.run(2 * SECOND) > 0.8 * flow.rate);
}

#[test]
fn the_initial_window_follows_the_datagram_size() {
    let mut bbr = Bbr::new(start(), 1200);
    assert_eq!(bbr.limits(), PathLimits::new(12_000));
    bbr.on_mtu_update(1452);
    assert_eq!(bbr.limits().window, 14_520);
    assert_eq!(bbr.window_after_round(14_520), 29_040);
}

proptest! {
    /// After any sequence of events, window and rate stay usable.
    #[test]
    fn any_sequence_of_events_leaves_usable_limits(
        events in vec((0u8..9, 1u64..1 << 22, 0u64..3000, 0u64..1 << 34), 1..400),
    ) {
        let mut now = start();
        let mut bbr = Bbr::new(now, 1200);
        let mut delivered = 0;
        for (samples, (what, bytes, ms, rate)) in (0..).zip(events) {
            let sent_at = now;
            now += Duration::from_millis(ms);
            match what {
                0..3 => bbr.on_packet_sent(&sent(now, bytes, bytes * u64::from(what + 1))),
                3 => bbr.on_congestion_event(&congestion(CongestionKind::Loss, now, sent_at)),
                4 => bbr.on_congestion_event(&congestion(CongestionKind::Ecn, now, sent_at)),
                5 => bbr.on_congestion_event(&congestion(CongestionKind::Persistent, now, sent_at)),
                6 => bbr.on_congestion_event(&congestion(CongestionKind::Spurious, now, sent_at)),
                _ => {
                    let mut ack = acked(now, sent_at, bytes);
                    ack.in_flight = bytes / 3;
                    ack.rtt = crate::testing::rtt(Duration::from_millis(ms));
                    ack.rtt.samples = samples;
                    let mut sample = DeliveryRate::new(rate, delivered, delivered + bytes);
                    sample.app_limited = rate % 2 == 0;
                    ack.delivery_rate = (what == 7).then_some(sample);
                    delivered += bytes;
                    bbr.on_ack(&ack);
                }
            }
            prop_assert!(bbr.window.is_finite() && bbr.limits().window >= 2400);
            prop_assert!(bbr.pacing_rate.is_none_or(|rate| rate.is_finite() && rate > 0.0));
            prop_assert!(bbr.window_after_round(bbr.limits().window) >= 2400);
        }
    }
}
