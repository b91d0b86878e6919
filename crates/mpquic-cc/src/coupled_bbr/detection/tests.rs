//! Trials with given round trips.

use super::*;
use crate::testing::start;

const A: PathId = PathId(0);
const B: PathId = PathId(1);
const MS: Duration = Duration::from_millis(1);

/// Round trips of a path over a trial, before and after the probe, in ms.
#[derive(Clone, Copy)]
struct Script {
    before: f64,
    after: f64,
    /// Plus or minus, ms.
    jitter: f64,
    /// Of 100 packets after the probe began.
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

/// One trial of `A` with what it and `B` show.
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
    // The aftermath lasts a round trip of the slower path.
    feed(detector, true);
    let later = stopped + Duration::from_millis(200);
    observe(detector, A, later, a.before, a);
    assert_eq!(detector.prober(), None, "concluded");
}

fn response(detector: &Detector) -> Option<f64> {
    detector.find(A, B).map(|pair| pair.response)
}

#[test]
fn the_mean_of_few_samples_is_uncertain() {
    let mut samples = Samples::default();
    assert_eq!(samples.error_squared(), 0.0);
    for sample in [1.0, 3.0, 5.0, 3.0, 3.0] {
        samples.add(sample);
    }
    assert_eq!(samples.mean, 3.0);
    // The variance is 8 / 4, that of the mean a fifth of it.
    assert!((samples.error_squared() - 0.4).abs() < 1e-9);
}

#[test]
fn paths_whose_round_trips_grow_alike_share_a_bottleneck() {
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
fn paths_that_do_not_answer_are_separate() {
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
fn a_changed_route_is_noticed() {
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
fn a_queue_that_hardly_grew_or_noise_tells_nothing() {
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
fn losses_speak_where_the_queue_is_too_short_to_delay() {
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
fn a_path_that_does_something_else_does_not_count() {
    let mut detector = Detector::default();
    let mut busy = Script::new(40.0, 60.0);
    busy.is_steady = false;
    trial(&mut detector, Script::new(40.0, 60.0), busy);
    assert_eq!(response(&detector), None);
}

#[test]
fn trials_end_with_the_path_that_probes() {
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
