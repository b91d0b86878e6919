//! [`Tracer`]: samples a run over time.

use std::time::Duration;

use mpquic_core::PathState;

use super::case::Case;
use super::measure::received;
use super::results::Trace;
use super::stage::Stage;
use crate::scenario::metric::{CROSSOVER, OVERTAKING, WINDOW_GAP};
use crate::scenario::{Kind, Scenario, Swap};

/// Interval over which the bytes of two paths are compared.
const CROSSOVER_WINDOW: Duration = Duration::from_millis(200);

/// Time between samples at first.
const INTERVAL: Duration = Duration::from_millis(20);
/// At this number of samples, every second sample is dropped and the interval doubles.
const MAX_SAMPLES: usize = 400;

#[derive(Default)]
struct Sample {
    received: Vec<u64>,
    path_bytes: Vec<u64>,
    window: Vec<u64>,
    rtt_ms: Vec<f64>,
    lost: Vec<u64>,
    silent: Vec<bool>,
    queue: Vec<u64>,
}

/// Samples a run over time.
pub(super) struct Tracer {
    interval: Duration,
    paths: usize,
    samples: Vec<Sample>,
}

impl Tracer {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let paths = scenario.paths.len();
        let flows = 1 + scenario.competitors.len();
        let start = Sample {
            received: vec![0; flows],
            path_bytes: vec![0; paths],
            window: vec![0; paths],
            rtt_ms: vec![0.0; paths],
            lost: vec![0; paths],
            silent: vec![false; paths],
            queue: vec![0; paths],
        };
        Self {
            interval: INTERVAL,
            paths,
            samples: vec![start],
        }
    }

    /// Takes a sample if one is due.
    pub(super) fn sample(&mut self, stage: &mut Stage) {
        let next = self.interval * u32::try_from(self.samples.len()).unwrap_or(u32::MAX);
        if stage.elapsed() < next {
            return;
        }
        let stats = stage.path_stats(0);
        let mut sample = Sample {
            received: received(stage),
            queue: (0..self.paths).map(|path| stage.queued(path)).collect(),
            ..Sample::default()
        };
        for path in 0..self.paths {
            let [sender, receiver] = stats.get(&path).cloned().unwrap_or_default();
            // A closed path keeps its last values.
            let before = |of: fn(&Sample) -> &Vec<u64>| {
                let last = self.samples.last();
                last.map_or(0, |sample| of(sample)[path])
            };
            let last = before(|sample| &sample.path_bytes);
            let lost = sender.as_ref().map(|stats| stats.packets_lost);
            sample
                .lost
                .push(lost.unwrap_or_else(|| before(|sample| &sample.lost)));
            let state = sender.as_ref().map(|stats| stats.state);
            sample.silent.push(state == Some(PathState::Suspect));
            let bytes = receiver.map_or(last, |stats| stats.bytes_received);
            sample.path_bytes.push(bytes);
            sample
                .window
                .push(sender.as_ref().map_or(0, |stats| stats.window));
            let rtt = sender.map_or(0.0, |stats| stats.rtt.as_secs_f64() * 1e3);
            sample.rtt_ms.push((rtt * 1e3).round() / 1e3);
        }
        self.samples.push(sample);
        if self.samples.len() >= MAX_SAMPLES {
            let mut index = 0;
            self.samples.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.interval *= 2;
        }
    }

    /// Metrics that need the whole course of a run.
    pub(super) fn metrics(&self, scenario: &Scenario) -> Vec<(String, f64)> {
        let mut metrics = Vec::new();
        if let (Kind::Bulk { .. }, Some(gap)) = (&scenario.workload.kind, self.window_gap()) {
            metrics.push((WINDOW_GAP.into(), gap * 100.0));
        }
        if let Some(swap) = scenario.swaps.first() {
            metrics.push((CROSSOVER.into(), self.crossover(swap).as_secs_f64()));
            metrics.push((OVERTAKING.into(), self.overtaking(swap).as_secs_f64()));
        }
        metrics
    }

    /// By which part the smallest window is smaller than the largest, on average over time.
    fn window_gap(&self) -> Option<f64> {
        let gap = |sample: &Sample| {
            let largest = *sample.window.iter().max()? as f64;
            let smallest = *sample.window.iter().min()? as f64;
            (smallest > 0.0).then(|| 1.0 - smallest / largest)
        };
        let gaps: Vec<f64> = self.samples.iter().filter_map(gap).collect();
        (!gaps.is_empty()).then(|| gaps.iter().sum::<f64>() / gaps.len() as f64)
    }

    /// Time from a swap of two paths until the path that carried less carries more. The rest of the
    /// run if that never happens.
    fn crossover(&self, swap: &Swap) -> Duration {
        let carried = |path: usize, from: usize, to: usize| {
            let before = self.samples[from].path_bytes[path];
            self.samples[to].path_bytes[path].saturating_sub(before)
        };
        let [a, b] = swap.paths;
        let (start, window) = (self.at(swap.time), self.at(CROSSOVER_WINDOW).max(1));
        let before = start.saturating_sub(window);
        let (more, less) = if carried(a, before, start) >= carried(b, before, start) {
            (a, b)
        } else {
            (b, a)
        };
        let crossed = (start + window..self.samples.len())
            .find(|end| carried(less, end - window, *end) > carried(more, end - window, *end));
        self.between(start, crossed)
    }

    /// Time from a swap of two paths until the path that carried less until then has carried more
    /// in all. The rest of the run if that never happens.
    fn overtaking(&self, swap: &Swap) -> Duration {
        let start = self.at(swap.time);
        let lead = |sample: usize| {
            let [a, b] = swap.paths.map(|path| self.samples[sample].path_bytes[path]);
            if a == b { None } else { Some(a > b) }
        };
        let before = lead(start);
        let overtaken = (start..self.samples.len())
            .find(|end| lead(*end).is_some_and(|now| before.is_none_or(|before| before != now)));
        self.between(start, overtaken)
    }

    /// The index of the sample at this time.
    fn at(&self, time: Duration) -> usize {
        let index = time.as_nanos() / self.interval.as_nanos();
        (index as usize).min(self.samples.len() - 1)
    }

    /// The time between two samples, `None` for the last one.
    fn between(&self, start: usize, end: Option<usize>) -> Duration {
        let end = end.unwrap_or(self.samples.len() - 1);
        self.interval * u32::try_from(end.saturating_sub(start)).unwrap_or(u32::MAX)
    }

    pub(super) fn finish(self, case: Case) -> Trace {
        let flows = self
            .samples
            .first()
            .map_or(0, |sample| sample.received.len());
        let column = |index: usize, of: fn(&Sample) -> &Vec<u64>| {
            self.samples
                .iter()
                .map(|sample| of(sample)[index])
                .collect::<Vec<_>>()
        };
        let per_path = |of: fn(&Sample) -> &Vec<u64>| {
            (0..self.paths)
                .map(|path| column(path, of))
                .collect::<Vec<_>>()
        };
        let rtt = |path: usize| {
            self.samples
                .iter()
                .map(|sample| sample.rtt_ms[path])
                .collect()
        };
        let silent = |path: usize| {
            let samples = self.samples.iter();
            samples.map(|sample| sample.silent[path]).collect()
        };
        Trace {
            contender: case.contender,
            sweep: case.position.sweep,
            point: case.position.point,
            run: case.position.run,
            interval_s: self.interval.as_secs_f64(),
            received: (0..flows)
                .map(|flow| column(flow, |sample| &sample.received))
                .collect(),
            path_bytes: per_path(|sample| &sample.path_bytes),
            window: per_path(|sample| &sample.window),
            rtt_ms: (0..self.paths).map(rtt).collect(),
            lost: per_path(|sample| &sample.lost),
            silent: (0..self.paths).map(silent).collect(),
            queue: per_path(|sample| &sample.queue),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracer(interval: u64, samples: impl IntoIterator<Item = [u64; 2]>) -> Tracer {
        let sample = |path_bytes: [u64; 2]| Sample {
            path_bytes: path_bytes.into(),
            window: path_bytes.into(),
            ..Sample::default()
        };
        Tracer {
            interval: Duration::from_millis(interval),
            paths: 2,
            samples: samples.into_iter().map(sample).collect(),
        }
    }

    #[test]
    fn window_gap_is_a_mean_over_time() {
        // No gap, a half, and nine tenths; a sample with a window of zero does not count.
        let gap = tracer(20, [[5, 5], [4, 8], [10, 1], [0, 9]]).window_gap();
        assert!((gap.unwrap() - (0.0 + 0.5 + 0.9) / 3.0).abs() < 1e-12);
        assert_eq!(tracer(20, [[0, 9]]).window_gap(), None);
    }

    #[test]
    fn paths_have_crossed_when_the_other_one_carries_more() {
        let swap = Swap {
            time: Duration::from_secs(1),
            paths: [0, 1],
        };
        let crossed = |interval, crossing: u64| {
            let end = 4000 / interval;
            let at = |index: u64| {
                let (before, after) = (index.min(crossing), index.saturating_sub(crossing));
                [3 * before + after, before + 3 * after]
            };
            let tracer = tracer(interval, (0..=end).map(at));
            tracer.crossover(&swap).as_millis()
        };
        // The crossing shows after half of the 200 ms of a comparison, and a sample more.
        assert_eq!(crossed(20, 75), 620);
        assert_eq!(crossed(40, 50), 1120);
        // The paths never cross: the rest of the run.
        assert_eq!(crossed(20, 1000), 3000);
        // The result stays the same with the two paths exchanged.
        let mirrored = |index: u64| {
            let (before, after) = (index.min(75), index.saturating_sub(75));
            [before + 3 * after, 3 * before + after]
        };
        let other = tracer(20, (0..=200).map(mirrored)).crossover(&swap);
        assert_eq!(other.as_millis(), 620);
        // From sample 75 on the lead of 150 bytes shrinks by two with each sample.
        let total = tracer(20, (0..=200).map(mirrored)).overtaking(&swap);
        assert_eq!(total.as_millis(), 2020);
        let never = tracer(20, (0..=200).map(|index| [3 * index, index])).overtaking(&swap);
        assert_eq!(never.as_millis(), 3000);
        // A swap after the end of the run.
        let late = Swap {
            time: Duration::from_secs(100),
            ..swap
        };
        assert_eq!(
            tracer(20, [[0, 0], [1, 2]]).crossover(&late),
            Duration::ZERO
        );
    }

    #[test]
    fn a_long_run_is_sampled_less_often() {
        let text = "schedulers = \"lrf\"\nlimit_s = 20\nworkload = { kind = \"bulk\", duration_s = 10 }\n\
                    [[path]]\nname = \"a\"\nrate_mbit = 1\nowd_ms = 5\n";
        let scenario = Scenario::parse("x", text).unwrap();
        let mut stage = Stage::new(&scenario, &scenario.contenders[0], &[], 1).unwrap();
        let mut tracer = Tracer::new(&scenario);
        assert_eq!((tracer.samples.len(), tracer.interval), (1, INTERVAL));
        tracer.sample(&mut stage);
        assert_eq!(tracer.samples.len(), 1, "no time has passed");
        let mut run = |tracer: &mut Tracer, end: u64| {
            while stage.elapsed() < Duration::from_millis(end) {
                stage.run_until(stage.elapsed() + INTERVAL).unwrap();
                tracer.sample(&mut stage);
            }
        };
        run(&mut tracer, 398 * 20);
        assert_eq!((tracer.samples.len(), tracer.interval), (399, INTERVAL));
        let before: Vec<_> = tracer
            .samples
            .iter()
            .map(|sample| sample.path_bytes[0])
            .collect();
        run(&mut tracer, 399 * 20);
        // Every second sample is left, beginning with the first.
        assert_eq!((tracer.samples.len(), tracer.interval), (200, 2 * INTERVAL));
        let left = tracer.samples.iter().map(|sample| sample.path_bytes[0]);
        let expected: Vec<_> = before.into_iter().step_by(2).collect();
        assert_eq!(left.collect::<Vec<_>>(), expected);
        run(&mut tracer, 400 * 20);
        assert_eq!(tracer.samples.len(), 201);
        let case = Case {
            contender: 3,
            position: crate::scenario::Position {
                sweep: 4,
                point: 5,
                run: 6,
            },
        };
        let trace = tracer.finish(case);
        assert_eq!((trace.contender, trace.sweep), (3, 4));
        assert_eq!((trace.point, trace.run, trace.interval_s), (5, 6, 0.04));
        assert_eq!(trace.received.len(), 1);
        let lengths = [
            trace.received[0].len(),
            trace.path_bytes[0].len(),
            trace.window[0].len(),
            trace.rtt_ms[0].len(),
            trace.lost[0].len(),
            trace.silent[0].len(),
            trace.queue[0].len(),
        ];
        assert_eq!(lengths, [201; 7]);
        // 5 ms each way, plus the queue: in milliseconds with three digits.
        let rtt = trace.rtt_ms[0][200];
        assert!((10.0..3000.0).contains(&rtt), "{rtt}");
        assert!(((rtt * 1e3).round() - rtt * 1e3).abs() < 1e-6);
    }
}
