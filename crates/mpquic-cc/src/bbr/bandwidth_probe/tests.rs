//! When a path probes, how far it goes, and the result of the probe.

use std::time::Duration;

use mpquic_core::congestion::CongestionKind;

use super::*;
use crate::bbr::MaxBandwidth;
use crate::bbr::send_log::Flight;
use crate::testing::congestion;
use crate::testing_link::Flow;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A path of 50 Mbit/s and 40 ms, 208 datagrams, without any bounds.
fn path(phase: Phase) -> (Bbr, Instant) {
    let mut flow = Flow::<Bbr>::new(50.0, 40, 8.0);
    let end = flow.now + 20 * SECOND;
    assert!(flow.run_until(end, |flow| flow.controller.phase == phase));
    (flow.controller, flow.now)
}

/// A sample without news except for the bytes in flight.
fn sample(now: Instant, in_flight: f64) -> Sample {
    Sample {
        now,
        rate: None,
        delivered: 0.0,
        app_limited: false,
        newly_acked: 0.0,
        in_flight,
        at_departure: Flight::default(),
        rtt: None,
    }
}

#[test]
fn headroom_is_fifteen_percent_of_the_long_term_bound() {
    let (mut bbr, _) = path(Phase::Cruise);
    for (long_term, expected) in [
        (f64::INFINITY, f64::INFINITY),
        (100_000.0, 85_000.0),
        // The headroom is a datagram at least, as long as four datagrams remain.
        (7_000.0, 5_800.0),
        (5_000.0, 4_800.0),
    ] {
        bbr.bounds.long_term = long_term;
        assert_eq!(bbr.long_term_with_headroom(), expected);
    }
}

#[test]
fn a_path_probes_after_its_wait_or_as_many_rounds_as_reno_needs() {
    let (mut bbr, now) = path(Phase::Cruise);
    (bbr.cycle.began, bbr.cycle.wait) = (now, 2 * SECOND);
    let mut is_time = |after: Duration, rounds, window, count| {
        (bbr.cycle.rounds, bbr.window, bbr.count) = (rounds, window, count);
        bbr.is_time_to_probe(now + after)
    };
    assert!(!is_time(2 * SECOND, 0, 1e6, 1.0));
    assert!(is_time(2 * SECOND + MS, 0, 1e6, 1.0));
    for (window, count, rounds) in [(1e6, 1.0, 63), (12_000.0, 1.0, 10), (12_000.0, 2.0, 20)] {
        assert!(!is_time(SECOND, rounds - 1, window, count), "{rounds}");
        assert!(is_time(SECOND, rounds, window, count), "{rounds}");
    }
}

#[test]
fn path_cruises_once_in_flight_is_within_product_and_bound() {
    let (mut bbr, now) = path(Phase::Cruise);
    let product = bbr.max_bandwidth() * bbr.min_rtt.get().unwrap().as_secs_f64();
    let cruises = |bbr: &Bbr, in_flight| bbr.is_time_to_cruise(&sample(now, in_flight));
    assert!(cruises(&bbr, product) && !cruises(&bbr, product + 1.0));
    // Short-term bounds do not count.
    bbr.bounds.short_term_bandwidth = 1000.0;
    assert!(cruises(&bbr, product));
    bbr.bounds.long_term = 100_000.0;
    assert!(cruises(&bbr, 85_000.0) && !cruises(&bbr, 85_001.0));
    bbr.max_bandwidth = MaxBandwidth::default();
    bbr.pacing_rate = None;
    assert!(cruises(&bbr, 4_800.0) && !cruises(&bbr, 4_801.0));
    bbr.pacing_rate = Some(9e6);
    assert!(cruises(&bbr, 9_000.0) && !cruises(&bbr, 9_001.0));
}

#[test]
fn growth_of_the_bound_doubles_in_each_round_trip() {
    let (mut bbr, now) = path(Phase::Up);
    bbr.window = 48_000.0;
    (bbr.cycle.doublings, bbr.cycle.acked) = (0, 0.0);
    let company = Company {
        count: 2.0,
        ..Company::NONE
    };
    for (company, needed) in [
        (Company::NONE, 48_000.0),
        (Company::NONE, 24_000.0),
        (company, 24_000.0),
        (company, 12_000.0),
        (Company::NONE, 3_000.0),
        (Company::NONE, 1_500.0),
        (Company::NONE, 1_200.0),
    ] {
        bbr.raise_slope(&company);
        assert_eq!(bbr.cycle.acked_per_increment, needed);
    }
    for _ in 0..40 {
        bbr.raise_slope(&Company::NONE);
    }
    assert_eq!(bbr.cycle.doublings, 30);

    (bbr.bounds.long_term, bbr.cycle.acked_per_increment) = (40_000.0, 3_000.0);
    bbr.window_limited = [false, true];
    bbr.rounds.just_ended = false;
    let mut acked = sample(now, 0.0);
    for (bytes, bound, left) in [
        (2_999.0, 40_000.0, 2_999.0),
        (1.0, 41_200.0, 0.0),
        (7_000.0, 43_600.0, 1_000.0),
    ] {
        acked.newly_acked = bytes;
        bbr.probe_long_term_upward(&acked, &Company::NONE);
        assert_eq!((bbr.bounds.long_term, bbr.cycle.acked), (bound, left));
    }
    bbr.rounds.just_ended = true;
    bbr.probe_long_term_upward(&sample(now, 0.0), &Company::NONE);
    assert_eq!(bbr.cycle.acked_per_increment, 1_200.0, "another round trip");
}

#[test]
fn bound_rises_only_if_it_limits_the_window() {
    for (is_limited, window, rises) in [
        ([false, false], 50_000.0, false),
        ([true, false], 50_000.0, true),
        ([false, true], 40_000.0, true),
        ([true, true], 39_999.0, false),
    ] {
        let (mut bbr, now) = path(Phase::Up);
        (bbr.window, bbr.window_limited) = (window, is_limited);
        bbr.bounds.long_term = 40_000.0;
        (bbr.cycle.acked, bbr.cycle.acked_per_increment) = (0.0, 1_200.0);
        let mut acked = sample(now, 0.0);
        acked.newly_acked = 1_200.0;
        bbr.probe_long_term_upward(&acked, &Company::NONE);
        assert_eq!(bbr.bounds.long_term > 40_000.0, rises, "{is_limited:?}");
    }
}

#[test]
fn probe_after_a_lossy_one_stops_at_the_bound() {
    for (was_too_high, in_flight, stops) in [
        (true, 40_000.0, true),
        (true, 39_999.0, false),
        (false, 40_000.0, false),
    ] {
        let (mut bbr, now) = path(Phase::Up);
        bbr.bounds.long_term = 40_000.0;
        bbr.window_limited = [false; 2];
        (bbr.cycle.was_too_high, bbr.cycle.was_precautionary) = (was_too_high, false);
        assert_eq!(bbr.is_time_to_go_down(&sample(now, in_flight)), stops);
        assert_eq!(bbr.cycle.was_precautionary, stops);
        assert!(!bbr.full_pipe.is_full);
        bbr.full_pipe.is_full = true;
        assert!(bbr.is_time_to_go_down(&sample(now, 0.0)));
        // Our own bound is the limit, not the path.
        (bbr.window, bbr.window_limited) = (40_000.0, [false, true]);
        assert!(!bbr.is_time_to_go_down(&sample(now, 0.0)));
        assert!(!bbr.full_pipe.is_full);
    }
}

#[test]
fn feedback_on_a_probe_ends_a_round_trip_after_the_probe() {
    let (mut bbr, now) = path(Phase::Down);
    let cycles = bbr.cycles();
    let mut adapt = |feedback, ended, app_limited, precautionary, too_high| {
        bbr.phase = Phase::Down;
        (bbr.cycle.feedback, bbr.rounds.just_ended) = (feedback, ended);
        bbr.cycle.is_probe_sample = true;
        bbr.cycle.was_precautionary = precautionary;
        bbr.cycle.was_too_high = too_high;
        let mut sample = sample(now, 0.0);
        sample.app_limited = app_limited;
        let changed = bbr.adapt_long_term(&sample, &Company::NONE);
        let advanced = bbr.cycles() - cycles;
        (bbr.cycle.feedback, changed, advanced, bbr.phase)
    };
    let (down, refill) = (Phase::Down, Phase::Refill);
    let (stopping, none) = (Feedback::Stopping, Feedback::None);
    assert_eq!(
        adapt(stopping, false, false, true, false),
        (stopping, false, 0, down)
    );
    assert_eq!(
        adapt(stopping, true, false, false, false),
        (none, false, 1, down)
    );
    assert_eq!(
        adapt(stopping, true, true, false, false),
        (none, false, 1, down)
    );
    assert_eq!(
        adapt(stopping, true, false, true, true),
        (none, false, 2, down)
    );
    let again = adapt(stopping, true, false, true, false);
    assert_eq!(again, (Feedback::Refilling, true, 3, refill));
    let starting = Feedback::Starting;
    assert_eq!(adapt(starting, false, false, false, false).0, starting);
    assert_eq!(
        adapt(starting, true, false, false, false).0,
        Feedback::Probing
    );
}

#[test]
fn in_flight_without_losses_raises_the_bound() {
    let (mut bbr, now) = path(Phase::Cruise);
    let mut arrived = sample(now, 0.0);
    arrived.at_departure.bytes = 60_000.0;
    arrived.at_departure.lost = bbr.losses.bytes();
    let mut safe = |long_term| {
        bbr.bounds.long_term = long_term;
        bbr.adapt_long_term(&arrived, &Company::NONE);
        bbr.bounds.long_term
    };
    assert_eq!(safe(50_000.0), 60_000.0);
    assert_eq!(safe(70_000.0), 70_000.0);
    assert_eq!(safe(f64::INFINITY), f64::INFINITY);
    let loss = |bytes| {
        let mut event = congestion(CongestionKind::Loss, now, now);
        event.lost_bytes = bytes;
        event
    };
    // A fiftieth of the bytes in flight may be lost.
    for (bytes, expected) in [(1_200, 60_000.0), (1, 50_000.0)] {
        bbr.bounds.long_term = 50_000.0;
        bbr.losses.on_event(&loss(bytes));
        bbr.adapt_long_term(&arrived, &Company::NONE);
        assert_eq!(bbr.bounds.long_term, expected);
    }
}
