//! [`Tracer`]: samples a run over time.

use std::time::Duration;

use super::measure::received;
use super::results::Trace;
use super::stage::Stage;
use crate::scenario::Scenario;

/// Samples are this far apart at first.
const INTERVAL: Duration = Duration::from_millis(20);
/// When there are this many, every second one is dropped and the interval doubles.
const MAX_SAMPLES: usize = 400;

#[derive(Default)]
struct Sample {
    received: Vec<u64>,
    path_bytes: Vec<u64>,
    window: Vec<u64>,
    rtt_ms: Vec<f64>,
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
        };
        Self {
            interval: INTERVAL,
            paths,
            samples: vec![start],
        }
    }

    /// Takes a sample if it is time for one.
    pub(super) fn sample(&mut self, stage: &Stage) {
        let next = self.interval * u32::try_from(self.samples.len()).unwrap_or(u32::MAX);
        if stage.elapsed() < next {
            return;
        }
        let stats = stage.path_stats(0);
        let mut sample = Sample {
            received: received(stage),
            ..Sample::default()
        };
        for path in 0..self.paths {
            let [sender, receiver] = stats.get(&path).cloned().unwrap_or_default();
            // A path that was closed keeps what it had carried.
            let last = self
                .samples
                .last()
                .map_or(0, |sample| sample.path_bytes[path]);
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

    pub(super) fn finish(self, contender: usize, sweep: usize) -> Trace {
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
        Trace {
            contender,
            sweep,
            interval_s: self.interval.as_secs_f64(),
            received: (0..flows)
                .map(|flow| column(flow, |sample| &sample.received))
                .collect(),
            path_bytes: per_path(|sample| &sample.path_bytes),
            window: per_path(|sample| &sample.window),
            rtt_ms: (0..self.paths).map(rtt).collect(),
        }
    }
}
