//! The exact limits of each rule.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn minimum_rtt_is_remembered_for_30_to_60_seconds() {
    let mut floor = Floor::default();
    for (ms, rtt, expected) in [
        (0, 0.04, 0.04),
        (30_000, 0.06, 0.04),
        (30_001, 0.05, 0.04),
        (60_001, 0.055, 0.04),
        (60_002, 0.06, 0.05),
        (90_003, 0.07, 0.06),
    ] {
        floor.add(start() + ms * MS, rtt);
        assert_eq!(floor.get(), expected, "{ms}");
    }
}

#[test]
fn round_has_the_mean_and_the_minimum_of_its_rtts() {
    let mut watch = Watch::default();
    let round = Path::new().samples(1.0);
    for rtt in [0.05, 0.03, 0.04] {
        watch.add(rtt);
    }
    assert!(watch.end_round(&round));
    assert!(!watch.end_round(&round), "there are no samples");
    watch.add(0.06);
    assert!(watch.end_round(&round));
    assert!((watch.means[1] - 0.04).abs() < 1e-12, "{watch:?}");
    assert_eq!((watch.means[0], watch.shortest), (0.06, 0.06));
    assert_eq!(watch.in_flight, [100_000.0, 100_000.0, 0.0, 0.0]);
    assert_eq!(watch.rounds, 2);
    watch.add(0.06);
    let is_cruising = false;
    assert!(watch.end_round(&Round {
        is_cruising,
        ..round
    }));
    assert_eq!(watch.rounds, 0);
}

#[test]
fn growth_of_our_own_flight_is_subtracted() {
    for (in_flight, growth) in [
        ([100.0, 100.0, 100.0, 100.0], 0.02),
        ([125.0, 100.0, 100.0, 100.0], 0.01),
        ([100.0, 125.0, 100.0, 100.0], 0.01),
        ([100.0, 100.0, 80.0, 100.0], 0.01),
        ([100.0, 100.0, 100.0, 80.0], 0.01),
        ([80.0, 80.0, 100.0, 100.0], 0.02),
        ([2.0, 2.0, 0.0, 0.0], -0.02),
    ] {
        let watch = Watch {
            means: [0.06, 0.05, 0.04],
            in_flight,
            ..Watch::default()
        };
        assert!((watch.growth() - growth).abs() < 1e-9, "{in_flight:?}");
    }
}

#[test]
fn jump_needs_an_eighth_of_the_minimum_rtt_and_two_datagrams() {
    let mut path = Path::new();
    let round = path.samples(FLOOR_MS);
    path.rivals.watch.in_flight = [1e5; 4];
    let slow = 2.0 * MTU / 0.01;
    for (rate, ms, jumps) in [
        (RATE, 4.7, false),
        (RATE, 4.9, true),
        (slow, 9.9, false),
        (slow, 10.1, true),
        (0.0, 1e6, false),
    ] {
        path.rivals.watch.means = [(FLOOR_MS + ms) / 1e3, 0.0, FLOOR_MS / 1e3];
        let round = Round { rate, ..round };
        assert_eq!(path.rivals.has_jumped(&round), jumps, "{rate} {ms}");
    }
}

#[test]
fn probe_waits_only_with_enough_datagrams_and_no_deep_queue() {
    let mut path = Path::new();
    let round = path.samples(FLOOR_MS);
    let datagrams = |count: f64| count * MTU / (FLOOR_MS / 1e3);
    let mut may_wait = |depth: f64, round: Round| {
        path.rivals.watch.means[0] = depth * FLOOR_MS / 1e3;
        path.rivals.may_wait(&round)
    };
    for (depth, count, expected) in [(2.59, 16.1, true), (2.61, 16.1, false), (2.59, 15.9, false)] {
        let rate = datagrams(count);
        assert_eq!(may_wait(depth, Round { rate, ..round }), expected);
    }
    let rate = datagrams(50.0);
    assert!(may_wait(DEEP, Round { rate, ..round }), "not deep yet");
    let is_cruising = false;
    assert!(!may_wait(
        1.3,
        Round {
            is_cruising,
            ..round
        }
    ));
    for (strangers, expected) in [
        (Strangers::None, true),
        (Strangers::Separate, true),
        (Strangers::Open, false),
    ] {
        assert_eq!(may_wait(1.3, Round { strangers, ..round }), expected);
    }
}

#[test]
fn jump_at_its_exact_limit_does_not_count() {
    let mut path = Path::new();
    let round = path.samples(FLOOR_MS);
    path.rivals.watch.in_flight = [1e5; 4];
    // All of these numbers are exact in binary.
    path.rivals.floor = Floor::default();
    path.rivals.floor.add(path.now, 0.0);
    let rate = 2.0 * MTU / 0.0625;
    for (mean, jumps) in [(0.3125, false), (0.3126, true)] {
        path.rivals.watch.means = [mean, 0.0, 0.25];
        let round = Round { rate, ..round };
        assert_eq!(path.rivals.has_jumped(&round), jumps, "{mean}");
    }
}

#[test]
fn first_inspection_begins_in_the_seventh_round_trip() {
    let mut path = Path::new();
    path.rivals.watch.rounds = 0;
    for round in 1..=7 {
        path.round(FLOOR_MS * 1.3);
        assert_eq!(path.is_inspecting(), round == 7, "{round}");
    }
}

#[test]
fn round_within_eight_percent_of_the_minimum_rtt_has_no_queue() {
    let mut path = Path::new();
    path.rivals.empty_rounds = 0;
    for (factor, empty) in [(1.07, 1), (1.0, 2), (1.09, 0), (1.07, 1)] {
        path.round(FLOOR_MS * factor);
        assert_eq!(path.rivals.empty_rounds, empty, "{factor}");
    }
}

#[test]
fn inspection_leaves_the_need_of_the_lower_of_two_rates() {
    let mut path = Path::new();
    let round = path.samples(FLOOR_MS);
    path.rivals.watch.means[0] = 0.05;
    for (rate, expected) in [(1e6, 42_400.0), (2e6, 82_400.0), (3e6, 82_400.0)] {
        path.rivals.inspect(&Round { rate, ..round });
        let left = path.rivals.bound().unwrap();
        assert!((left - expected).abs() < 1e-3, "{rate}: {left}");
    }
}

/// A path after an inspection that shortened the queue by this part.
fn inspected(part: f64) -> Path {
    let mut path = Path::inspecting();
    let before = path.rivals.watch.means[0] * 1e3;
    for round in 0..INSPECTION_ROUNDS {
        assert!(path.is_inspecting(), "{round}");
        let is_second = if round == 1 { part } else { 0.0 };
        path.round(before - is_second * (before - FLOOR_MS));
    }
    assert!(!path.is_inspecting());
    path
}

#[test]
fn queue_shortened_by_a_sixth_shows_another_flow() {
    let path = inspected(0.14);
    let Verdict::Alone(Some(until)) = path.rivals.verdict else {
        panic!("{:?}", path.rivals.verdict);
    };
    assert_eq!((until - path.now, path.rivals.seen), (REST, None));
    let path = inspected(0.16);
    let Verdict::Somebody(since) = path.rivals.verdict else {
        panic!("{:?}", path.rivals.verdict);
    };
    assert_eq!((since, path.rivals.seen), (path.now, Some(path.now)));
}

#[test]
fn interrupted_inspection_gives_no_verdict() {
    let mut path = Path::inspecting();
    let round = path.samples(FLOOR_MS);
    path.rivals.on_round(&Round {
        is_cruising: false,
        ..round
    });
    assert!(!path.is_inspecting());
    assert!(matches!(path.rivals.verdict, Verdict::Unknown));

    let mut path = Path::inspecting();
    let round = path.samples(FLOOR_MS);
    path.rivals.on_round(&Round {
        app_limited: true,
        ..round
    });
    assert!(!path.is_inspecting());
    assert!(matches!(path.rivals.verdict, Verdict::Unknown));
}

#[test]
fn round_without_samples_does_not_count_for_an_inspection() {
    let mut path = Path::inspecting();
    let round = path.samples(FLOOR_MS * 1.2);
    path.rivals.on_round(&round);
    let left = |path: &Path| path.rivals.inspection.map(|it| it.rounds);
    assert_eq!(left(&path), Some(INSPECTION_ROUNDS - 1));
    path.rivals.on_round(&round);
    assert_eq!(left(&path), Some(INSPECTION_ROUNDS - 1));
}

#[test]
fn second_inspection_with_a_rest_of_the_queue_finds_a_loss_based_flow() {
    let mut path = inspected(0.16);
    let mean = path.rivals.watch.means[0];
    let round = path.samples(FLOOR_MS * 1.2);
    path.rivals.inspect(&Round {
        in_flight: 60_000.0,
        ..round
    });
    for _ in 0..INSPECTION_ROUNDS {
        path.round(FLOOR_MS * 1.1);
    }
    let now = path.now;
    let window = path.window();
    assert_eq!((window.bytes, window.peak), (42_000.0, 60_000.0));
    assert_eq!(window.longest, mean);
    assert_eq!([window.cut_at, window.began, window.inspected_at], [now; 3]);
    assert!(!path.rivals.is_patient);
}

#[test]
fn own_probe_ends_uncertain_verdicts_only() {
    let after = |verdict| {
        let mut rivals = Rivals {
            verdict,
            is_patient: true,
            is_probe_due: true,
            ..Path::inspecting().rivals
        };
        rivals.on_probe();
        assert!(!rivals.is_patient && !rivals.is_probe_due && rivals.inspection.is_none());
        rivals.verdict
    };
    assert!(matches!(after(Verdict::Alone(None)), Verdict::Unknown));
    assert!(matches!(
        after(Verdict::Somebody(start())),
        Verdict::Unknown
    ));
    let rest = after(Verdict::Alone(Some(start())));
    assert!(matches!(rest, Verdict::Alone(Some(_))));
    assert!(matches!(
        after(Verdict::Prober(start())),
        Verdict::Prober(_)
    ));
}

#[test]
fn restart_forgets_bound_patience_and_due_probe() {
    let mut rivals = Rivals {
        is_patient: true,
        is_probe_due: true,
        ..Path::bound().rivals
    };
    rivals.inspection = Path::inspecting().rivals.inspection;
    rivals.restart();
    assert!(rivals.bound().is_none() && !rivals.is_patient() && !rivals.is_probe_due());
}

#[test]
fn new_return_path_restarts_the_minimum_rtt() {
    let mut path = Path::new();
    path.rivals.forget_round_trips();
    path.round(FLOOR_MS * 2.0);
    assert!(!path.rivals.has_queue());
    assert_eq!(path.rivals.watch.rounds, 1);
}

#[test]
fn verdicts_with_an_end_expire() {
    let known: [fn(Instant) -> Verdict; 2] = [Verdict::Prober, |until| Verdict::Alone(Some(until))];
    for verdict in known {
        let mut path = Path::new();
        path.rivals.verdict = verdict(path.now + 40 * MS);
        path.round(40.0);
        assert!(!matches!(path.rivals.verdict, Verdict::Unknown));
        path.round(40.0);
        assert!(matches!(path.rivals.verdict, Verdict::Unknown));
    }
}

#[test]
fn window_does_not_change_during_an_inspection() {
    let mut path = Path::bound();
    let inspection = Path::inspecting().rivals.inspection;
    path.rivals.inspection = inspection;
    let before = path.window().bytes;
    path.rivals.on_ack(10_000.0, MTU, false);
    assert!(!path.rivals.on_loss(path.now + MS, path.now));
    assert_eq!(path.window().bytes, before);
    path.rivals.inspection = None;
    path.rivals.on_ack(10_000.0, MTU, false);
    assert!(path.window().bytes > before);
}

#[test]
fn loss_counts_only_in_the_upper_half_of_the_longest_queue() {
    let mut path = Path::bound();
    let now = path.now;
    path.window().longest = 0.06;
    path.rivals.watch.means[0] = 0.0499;
    assert!(!path.rivals.on_loss(now + MS, now));
    path.rivals.watch.means[0] = 0.0501;
    let before = path.window().bytes;
    assert!(path.rivals.on_loss(now + MS, now));
    let window = path.window();
    assert_eq!((window.peak, window.cut_at), (before, now + MS));
    assert!(!path.rivals.on_loss(now + 3 * MS, now + MS), "of the same");
    assert!(path.rivals.on_loss(now + 3 * MS, now + 2 * MS));
}

/// Number of round trips of `rtt_ms` until the path inspects the queue again. Another flow was seen
/// `since` ago, and the last probe ended `last_probe` ago.
fn rounds_of_patience(rtt_ms: f64, since: Duration, last_probe: Duration) -> u32 {
    let mut path = Path::new();
    path.now += 10 * SECOND;
    path.rivals.watch.rounds = 0;
    path.rivals.verdict = Verdict::Somebody(path.now - since);
    path.last_probe = path.now - last_probe;
    let mut rounds = 0;
    while !path.is_inspecting() {
        path.round(rtt_ms);
        rounds += 1;
        assert!(rounds < 1000 && path.rivals.is_patient());
    }
    rounds
}

#[test]
fn probe_waits_73_round_trips_or_3_8_seconds() {
    let zero = Duration::ZERO;
    assert_eq!(rounds_of_patience(50.0, zero, zero), 73);
    assert_eq!(rounds_of_patience(80.0, zero, zero), 48);
    assert_eq!(rounds_of_patience(80.0, SECOND, zero), 48);
    assert_eq!(rounds_of_patience(80.0, zero, SECOND), 48);
    assert_eq!(rounds_of_patience(80.0, SECOND, SECOND), 36);
    // A wait of exactly [`PATIENCE`] is not over yet.
    assert_eq!(rounds_of_patience(76.0, zero, zero), 51);
}

#[test]
fn seventeen_empty_rounds_show_that_no_other_flow_is_there() {
    let mut path = Path::new();
    path.rivals.empty_rounds = 0;
    path.rivals.verdict = Verdict::Somebody(path.now);
    for _ in 0..EMPTY_ROUNDS {
        path.round(FLOOR_MS);
        assert!(matches!(path.rivals.verdict, Verdict::Somebody(_)));
    }
    path.round(FLOOR_MS);
    assert!(matches!(path.rivals.verdict, Verdict::Alone(None)));
    assert!(!path.rivals.is_probe_due(), "there was no loss-based flow");
}

/// A path beside a loss-based flow, with a window far below its peak.
fn far_below() -> Path {
    let mut path = Path::bound();
    path.window().bytes *= 0.5;
    path.round(FLOOR_MS * 1.5);
    path.window().inspected_at = path.now;
    path
}

#[test]
fn loss_based_flow_is_inspected_after_twelve_seconds_at_most() {
    let mut path = far_below();
    let from = path.now;
    while !path.is_inspecting() {
        path.round(FLOOR_MS * 1.5);
    }
    assert_eq!(path.now - from, LONGEST_INTERVAL + 60 * MS);
}

#[test]
fn longest_queue_decays_by_a_fiftieth_per_round_trip() {
    let mut path = far_below();
    for (mean, longest) in [(60.0, 0.0988), (60.0, 0.097624), (60.0, 0.09647152)] {
        if mean == 60.0 && longest == 0.0988 {
            path.window().longest = 0.1;
        }
        path.round(mean);
        let now = path.window().longest;
        assert!((now - longest).abs() < 1e-6, "{now} {longest}");
    }
}

/// Each case has the other paths of the connection, and whether the other flow then counts as a
/// probing flow.
#[test]
fn bound_ends_in_a_deep_queue_or_after_its_term() {
    for (strangers, probes) in [(Strangers::None, false), (Strangers::Separate, true)] {
        let mut path = far_below();
        path.strangers = strangers;
        let mut depth = 1.5;
        while depth < 2.58 {
            path.round(FLOOR_MS * depth);
            assert!(path.is_loss_based(), "{depth}");
            depth += 0.05;
        }
        path.round(FLOOR_MS * 2.61);
        assert_eq!(matches!(path.rivals.verdict, Verdict::Prober(_)), probes);
        assert_eq!(matches!(path.rivals.verdict, Verdict::Unknown), !probes);

        let mut path = far_below();
        path.strangers = strangers;
        path.window().began = path.now;
        path.now += TERM - 60 * MS;
        path.window().inspected_at = path.now;
        path.round(FLOOR_MS * 1.5);
        assert!(path.is_loss_based());
        path.round(FLOOR_MS * 1.5);
        assert_eq!(matches!(path.rivals.verdict, Verdict::Prober(_)), probes);
        assert_eq!(matches!(path.rivals.verdict, Verdict::Unknown), !probes);
    }
}
