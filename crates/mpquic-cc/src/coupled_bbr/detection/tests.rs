//! Trials with given RTTs.

use super::*;
use crate::testing::start;

const A: PathId = PathId(0);
const B: PathId = PathId(1);
const C: PathId = PathId(2);
const MS: Duration = Duration::from_millis(1);

/// RTTs of a path in a trial, before and after the probe, in ms.
#[derive(Clone, Copy)]
struct Script {
    before: f64,
    after: f64,
    /// Deviation of each sample from the mean, ms.
    jitter: f64,
    /// Lost packets of 100 after the probe began.
    lost: u64,
    is_steady: bool,
}

impl Script {
    fn new(before: f64, after: f64) -> Self {
        Self {
            before,
            after,
            jitter: 0.2,
            lost: 0,
            is_steady: true,
        }
    }
}

fn observe(detector: &mut Detector, path: PathId, now: Instant, rtt: f64, script: Script) -> bool {
    detector.on_ack(
        path,
        &Observation {
            now,
            rtt: Some(Duration::from_secs_f64(rtt / 1000.0)),
            smoothed_rtt: Duration::from_secs_f64(script.before / 1000.0),
            acked: 1200,
            is_steady: script.is_steady,
        },
    )
}

/// A trial in which `A` probes and both paths follow their scripts.
fn trial(detector: &mut Detector, a: Script, b: Script) {
    let mut now = start();
    let mut feed = |detector: &mut Detector, after: bool| {
        for index in 0..50 {
            now += MS;
            for (path, script) in [(A, a), (B, b)] {
                let sign = if index % 2 == 0 { 1.0 } else { -1.0 };
                let rtt = if after { script.after } else { script.before };
                observe(detector, path, now, rtt + sign * script.jitter, script);
                if after && index < script.lost / 2 {
                    detector.on_loss(path, 1200);
                }
            }
        }
        now
    };
    detector.begin(A, start());
    assert_eq!(detector.prober(), Some(A));
    feed(detector, false);
    detector.on_up(A);
    let stopped = feed(detector, true);
    detector.on_down(A, stopped);
    // The effects of the probe last for a round trip of the slower path.
    feed(detector, true);
    let later = stopped + Duration::from_millis(200);
    observe(detector, A, later, a.before, a);
    assert_eq!(detector.prober(), None, "concluded");
}

fn response(detector: &Detector) -> Option<f64> {
    detector.find(A, B).map(|pair| pair.response)
}

#[test]
fn error_of_the_mean_shrinks_with_more_samples() {
    let mut samples = Samples::default();
    assert_eq!(samples.error_squared(), 0.0);
    samples.add(1.0);
    assert_eq!(samples.error_squared(), 0.0);
    samples.add(3.0);
    assert_eq!(samples.error_squared(), 1.0);
    for sample in [5.0, 3.0, 3.0] {
        samples.add(sample);
    }
    assert_eq!(samples.mean, 3.0);
    // The variance is 8 / 4, the variance of the mean a fifth of it.
    assert!((samples.error_squared() - 0.4).abs() < 1e-9);
}

/// RTT samples with this mean and this standard error of the mean, seconds.
fn samples(mean: f64, error: f64) -> Samples {
    let count = MIN_SAMPLES;
    Samples {
        count,
        mean,
        squares: error * error * (count - 1.0) * count,
    }
}

fn reading(rise: f64, error: f64) -> Reading {
    Reading {
        before: samples(0.0, 0.0),
        after: samples(rise, error),
        ..Reading::default()
    }
}

#[test]
fn rise_counts_from_a_millisecond_and_four_standard_errors_on() {
    let answer = |prober: Reading| reading(MIN_RISE, 0.0).response_to(&prober);
    assert_eq!(answer(reading(MIN_RISE, 0.0)), Some(1.0));
    assert_eq!(answer(reading(0.99 * MIN_RISE, 0.0)), None);
    // Both numbers are exact in binary.
    assert_eq!(answer(reading(0.25, 0.0625)), Some(MIN_RISE / 0.25));
    assert_eq!(answer(reading(0.25, 0.0626)), None);
    let mut too_few = reading(MIN_RISE, 0.0);
    too_few.after.count -= 1.0;
    assert_eq!(answer(too_few), None);
}

#[test]
fn losses_count_from_a_fiftieth_on_and_only_with_acknowledgements() {
    let lossy = |lost, acked| Reading {
        lost,
        acked,
        ..reading(0.0, 0.0)
    };
    assert_eq!(lossy(1.0, 0.0).loss_share(), 1.0, "all there is");
    assert_eq!(lossy(0.0, 0.0).loss_share(), 0.0);
    let heavy = lossy(2.0, 98.0);
    assert_eq!(lossy(1.0, 99.0).response_to(&heavy), Some(1.0));
    assert_eq!(lossy(0.5, 99.5).response_to(&heavy), Some(0.0));
    assert_eq!(lossy(0.7, 99.3).response_to(&heavy), None);
    assert_eq!(lossy(1.0, 0.0).response_to(&heavy), None);
    assert_eq!(lossy(1.0, 99.0).response_to(&lossy(1.9, 98.1)), None);
}

fn pair(trials: u32, response: f64, is_shared: bool) -> Pair {
    Pair {
        paths: [A, B],
        response,
        trials,
        is_shared,
    }
}

#[test]
fn each_response_weighs_at_least_a_quarter() {
    let mut pair = pair(0, 0.0, false);
    let mut means = Vec::new();
    for response in [1.0, 0.0, 0.5, 0.5, 1.0, 1.0] {
        pair.on_response(response);
        means.push(pair.response);
    }
    assert_eq!(means, [1.0, 0.5, 0.5, 0.5, 0.625, 0.71875]);
}

#[test]
fn pair_is_shared_above_a_half_and_separate_below_a_quarter() {
    let shared = |was, response| {
        let mut pair = pair(1, response, was);
        pair.on_response(response);
        pair.is_shared
    };
    for (response, is_shared) in [
        (0.51, [true; 2]),
        (0.5, [false, true]),
        (0.25, [false, true]),
    ] {
        assert_eq!(
            [false, true].map(|was| shared(was, response)),
            is_shared,
            "{response}"
        );
    }
    assert_eq!([false, true].map(|was| shared(was, 0.24)), [false; 2]);
}

#[test]
fn reading_of_a_disturbed_path_does_not_count() {
    let mut detector = Detector::default();
    let script = Script::new(40.0, 60.0);
    detector.begin(A, start());
    detector.on_disturbed(B);
    // `begin` in the helper starts no second trial: the trial of `A` goes on.
    trial(&mut detector, script, script);
    assert_eq!(response(&detector), None);
    trial(&mut detector, script, script);
    assert_eq!(response(&detector), Some(1.0));
}

#[test]
fn paths_whose_rtts_grow_alike_share_a_bottleneck() {
    let mut detector = Detector::default();
    let (a, b) = (Script::new(40.0, 60.0), Script::new(90.0, 108.0));
    trial(&mut detector, a, b);
    assert!(
        !detector.is_shared(A, B) && detector.is_open(A, B),
        "once may be chance"
    );
    trial(&mut detector, a, b);
    assert!(detector.is_shared(A, B) && detector.is_shared(B, A));
    assert!(!detector.is_open(B, A));
    assert!((response(&detector).unwrap() - 0.9).abs() < 0.01);
}

#[test]
fn path_whose_rtt_does_not_grow_is_separate() {
    let mut detector = Detector::default();
    for _ in 0..3 {
        trial(
            &mut detector,
            Script::new(40.0, 60.0),
            Script::new(90.0, 90.5),
        );
    }
    assert!(!detector.is_shared(A, B) && !detector.is_open(A, B));
}

#[test]
fn pair_becomes_separate_after_three_to_six_trials_without_response() {
    let mut detector = Detector::default();
    let a = Script::new(40.0, 60.0);
    for _ in 0..4 {
        trial(&mut detector, a, Script::new(40.0, 60.0));
    }
    assert!(detector.is_shared(A, B));
    let mut trials = 0;
    while detector.is_shared(A, B) {
        trial(&mut detector, a, Script::new(40.0, 40.0));
        trials += 1;
    }
    assert!((3..=6).contains(&trials), "{trials}");
}

#[test]
fn short_queue_or_noise_gives_no_result() {
    let mut detector = Detector::default();
    trial(
        &mut detector,
        Script::new(40.0, 40.5),
        Script::new(40.0, 40.5),
    );
    let mut noisy = Script::new(40.0, 44.0);
    noisy.jitter = 20.0;
    trial(&mut detector, noisy, Script::new(40.0, 44.0));
    let mut noisy = Script::new(40.0, 50.0);
    noisy.jitter = 40.0;
    trial(&mut detector, Script::new(40.0, 50.0), noisy);
    assert_eq!(response(&detector), None);
}

#[test]
fn losses_decide_if_the_queue_is_too_short_to_delay() {
    let lossy = |lost| Script {
        lost,
        ..Script::new(40.0, 40.1)
    };
    let mut detector = Detector::default();
    for _ in 0..2 {
        trial(&mut detector, lossy(8), lossy(6));
    }
    assert!(detector.is_shared(A, B));
    for _ in 0..8 {
        trial(&mut detector, lossy(8), lossy(0));
    }
    assert!(!detector.is_shared(A, B));
    let before = response(&detector);
    trial(&mut detector, lossy(0), lossy(8));
    assert_eq!(response(&detector), before, "nothing was filled");
}

#[test]
fn unsteady_path_gives_no_result() {
    let mut detector = Detector::default();
    let mut busy = Script::new(40.0, 60.0);
    busy.is_steady = false;
    trial(&mut detector, Script::new(40.0, 60.0), busy);
    assert_eq!(response(&detector), None);
}

#[test]
fn trial_ends_when_its_prober_is_disturbed_or_removed() {
    let mut detector = Detector::default();
    detector.begin(A, start());
    detector.begin(B, start());
    assert_eq!(detector.prober(), Some(A), "one at a time");
    detector.on_disturbed(B);
    assert_eq!(detector.prober(), Some(A));
    detector.on_disturbed(A);
    assert_eq!(detector.prober(), None);
    detector.begin(B, start());
    detector.on_down(B, start());
    assert_eq!(detector.prober(), None, "it never went up");
    trial(
        &mut detector,
        Script::new(40.0, 60.0),
        Script::new(40.0, 60.0),
    );
    detector.begin(A, start());
    detector.remove(A);
    assert!(detector.prober().is_none() && response(&detector).is_none());
}

/// An acknowledgement with an RTT of 40 ms, `after` the start.
fn seen(detector: &mut Detector, path: PathId, after: Duration, smoothed: Duration) -> bool {
    let seen = Observation {
        now: start() + after,
        rtt: Some(40 * MS),
        smoothed_rtt: smoothed,
        acked: 1200,
        is_steady: true,
    };
    detector.on_ack(path, &seen)
}

#[test]
fn acked_and_lost_bytes_count_from_the_probe_on() {
    let mut detector = Detector::default();
    detector.on_loss(B, 1200);
    detector.begin(A, start());
    seen(&mut detector, B, MS, 40 * MS);
    detector.on_loss(B, 1200);
    let counted = |detector: &mut Detector| {
        let Reading { acked, lost, .. } = *detector.reading_mut(B);
        (acked, lost)
    };
    assert_eq!(counted(&mut detector), (0.0, 0.0));
    detector.on_up(A);
    seen(&mut detector, B, 2 * MS, 40 * MS);
    detector.on_loss(B, 600);
    assert_eq!(counted(&mut detector), (1200.0, 600.0));
    detector.on_down(A, start() + 3 * MS);
    seen(&mut detector, B, 4 * MS, 40 * MS);
    detector.on_loss(B, 600);
    assert_eq!(counted(&mut detector), (2400.0, 1200.0));
    let Reading { before, after, .. } = *detector.reading_mut(B);
    assert_eq!((before.count, after.count), (1.0, 1.0));
    assert_eq!(detector.reading_mut(B).loss_share(), 1.0 / 3.0);
}

#[test]
fn aftermath_lasts_the_longest_smoothed_rtt_up_to_a_second() {
    for (smoothed, lasts) in [(90, 90), (3000, 1000)] {
        let mut detector = Detector::default();
        detector.begin(A, start());
        seen(&mut detector, A, MS, 40 * MS);
        seen(&mut detector, B, MS, smoothed * MS);
        seen(&mut detector, B, 2 * MS, 30 * MS);
        detector.on_up(A);
        detector.on_down(A, start() + 10 * MS);
        // A second end of the probe does not prolong the aftermath.
        detector.on_down(A, start() + 20 * MS);
        let end = (10 + lasts) * MS;
        assert!(!seen(&mut detector, B, end, 40 * MS));
        assert_eq!(detector.prober(), Some(A));
        assert!(seen(&mut detector, B, end + MS, 40 * MS));
        assert_eq!(detector.prober(), None);
        // The next trial has an aftermath of its own.
        detector.begin(A, start());
        assert_eq!(detector.aftermath, Duration::ZERO);
        assert!(detector.readings.is_empty());
    }
}

#[test]
fn trial_is_given_up_after_ten_seconds() {
    let mut detector = Detector::default();
    detector.begin(A, start());
    assert!(!seen(&mut detector, A, LONGEST_TRIAL, 40 * MS));
    assert_eq!(detector.prober(), Some(A));
    for later in 1..=2 {
        assert!(!seen(&mut detector, A, LONGEST_TRIAL + later * MS, 40 * MS));
        assert_eq!(detector.prober(), None);
    }
}

#[test]
fn only_the_prober_changes_the_stage_of_its_trial() {
    let mut detector = Detector::default();
    detector.begin(A, start());
    detector.on_up(B);
    detector.on_down(B, start());
    assert_eq!(detector.trial.as_ref().unwrap().stage, Stage::Before);
    detector.on_up(A);
    assert_eq!(detector.trial.as_ref().unwrap().stage, Stage::Probing);
    detector.on_down(B, start());
    assert_eq!(detector.trial.as_ref().unwrap().stage, Stage::Probing);
}

/// The prober itself need not be steady, because it probes.
#[test]
fn order_of_the_first_acknowledgements_does_not_matter() {
    let mut detector = Detector::default();
    detector.begin(A, start());
    seen(&mut detector, B, Duration::ZERO, 40 * MS);
    let mut probing = Script::new(40.0, 60.0);
    probing.is_steady = false;
    trial(&mut detector, probing, Script::new(40.0, 60.0));
    assert_eq!(response(&detector), Some(1.0));
    assert_eq!(detector.pairs.len(), 1);
}

#[test]
fn removing_a_path_keeps_the_results_of_other_paths() {
    let mut detector = Detector::default();
    for (one, other) in [(A, B), (C, A), (B, C)] {
        detector.assume_shared(one, other);
    }
    detector.begin(C, start());
    seen(&mut detector, B, MS, 40 * MS);
    seen(&mut detector, A, MS, 40 * MS);
    detector.remove(A);
    assert_eq!(detector.pairs.len(), 1);
    assert!(detector.is_shared(C, B) && !detector.is_shared(A, B) && detector.is_open(A, B));
    assert_eq!(detector.readings.len(), 1);
    assert_eq!(detector.prober(), Some(C));
}

#[test]
fn readings_and_pairs_take_memory() {
    let mut detector = Detector::default();
    assert_eq!(detector.memory(), 0);
    detector.begin(A, start());
    seen(&mut detector, A, MS, 40 * MS);
    let readings = detector.memory();
    assert!(readings >= size_of::<(PathId, Reading)>() as u64);
    detector.assume_shared(A, B);
    assert!(detector.memory() >= readings + size_of::<Pair>() as u64);
}
