//! Results as comma-separated values, one number per line, for any tool to read.

use std::fmt::Write as _;

use super::results::{Results, ScenarioResults, State, Trace};

/// A field as RFC 4180 section 2 wants it.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.into()
    }
}

/// A combination of swept values, as `wifi.rate_mbit=20;lte.rate_mbit=5`.
pub fn sweep_label(sweep: &[(String, String)]) -> String {
    let labels: Vec<_> = sweep
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    labels.join(";")
}

impl ScenarioResults {
    fn prefix(&self, sweep: usize, contender: usize) -> String {
        let sweep = self.sweeps.get(sweep).map(|sweep| sweep_label(sweep));
        let contender = self.contenders.get(contender);
        let parts = [Some(&self.id), sweep.as_ref(), contender];
        parts
            .map(|part| field(part.map_or("", String::as_str)))
            .join(",")
    }
}

impl Results {
    /// One line per number of each run.
    pub fn runs_csv(&self) -> String {
        let mut csv = "scenario,sweep,contender,point,run,state,name,value\n".to_owned();
        for scenario in &self.scenarios {
            for run in &scenario.runs {
                let state = match &run.state {
                    State::Finished => "finished",
                    State::Unfinished => "unfinished",
                    State::Failed(_) => "failed",
                };
                let prefix = scenario.prefix(run.sweep, run.contender);
                let mut line = |name: &str, value: f64| {
                    let (point, run) = (run.point, run.run);
                    let _ = writeln!(
                        csv,
                        "{prefix},{point},{run},{state},{},{value}",
                        field(name)
                    );
                };
                for (name, value) in scenario.parameters.iter().zip(&run.values) {
                    line(name, *value);
                }
                for (name, value) in &run.metrics {
                    line(name, *value);
                }
                for path in &run.paths {
                    let name = scenario.paths.get(path.path).map_or("", |name| name);
                    line(&format!("{name}.bytes"), path.bytes as f64);
                    line(&format!("{name}.lost"), path.lost as f64);
                    line(&format!("{name}.queue_ms"), path.queue_ms);
                }
                for (name, rate) in scenario.competitors.iter().zip(run.flows.iter().skip(1)) {
                    line(&format!("{name}.throughput_mbit"), *rate);
                }
            }
        }
        csv
    }

    /// One line per metric, contender and combination of swept values.
    pub fn summary_csv(&self) -> String {
        let mut csv = "scenario,sweep,contender,metric,runs,unfinished,failed,mean,confidence_95,\
             median,p10,p90,min,max,ratio_to_baseline\n"
            .to_owned();
        for scenario in &self.scenarios {
            let baseline = scenario.contender(&scenario.baseline);
            for cell in scenario.cells() {
                for metric in scenario.metrics() {
                    let summary = scenario.summary(cell, metric);
                    let s = summary.statistics;
                    let comparison = baseline.and_then(|b| scenario.comparison(cell, b, metric));
                    let _ = writeln!(
                        csv,
                        "{},{},{},{},{},{},{},{},{},{},{},{},{}",
                        scenario.prefix(cell.sweep, cell.contender),
                        field(metric),
                        s.count,
                        summary.unfinished,
                        summary.failed,
                        s.mean,
                        s.confidence,
                        s.median,
                        s.tenth,
                        s.ninetieth,
                        s.min,
                        s.max,
                        comparison.map(|c| c.ratio.to_string()).unwrap_or_default(),
                    );
                }
            }
        }
        csv
    }

    /// One line per sample of each trace.
    pub fn traces_csv(&self) -> String {
        let mut csv = "scenario,sweep,contender,point,run,seconds,name,value\n".to_owned();
        for scenario in &self.scenarios {
            for trace in &scenario.traces {
                write_trace(&mut csv, scenario, trace);
            }
        }
        csv
    }
}

fn write_trace(csv: &mut String, scenario: &ScenarioResults, trace: &Trace) {
    let prefix = scenario.prefix(trace.sweep, trace.contender);
    let prefix = format!("{prefix},{},{}", trace.point, trace.run);
    let mut series = |name: String, values: Vec<f64>| {
        for (index, value) in values.into_iter().enumerate() {
            // Multiples of the interval, without the digits floats add.
            let seconds = (index as f64 * trace.interval_s * 1e6).round() / 1e6;
            let _ = writeln!(csv, "{prefix},{seconds},{},{value}", field(&name));
        }
    };
    let integers = |values: &[u64]| values.iter().map(|value| *value as f64).collect();
    let names = std::iter::once("received").chain(scenario.competitors.iter().map(String::as_str));
    for (name, values) in names.zip(&trace.received) {
        series(format!("{name}_bytes"), integers(values));
    }
    for (path, name) in scenario.paths.iter().enumerate() {
        series(
            format!("{name}.received_bytes"),
            integers(&trace.path_bytes[path]),
        );
        series(
            format!("{name}.window_bytes"),
            integers(&trace.window[path]),
        );
        series(format!("{name}.rtt_ms"), trace.rtt_ms[path].clone());
        series(format!("{name}.lost"), integers(&trace.lost[path]));
        let silent = trace.silent[path].iter();
        let silent = silent.map(|silent| f64::from(u8::from(*silent)));
        series(format!("{name}.silent"), silent.collect());
        if let Some(queue) = trace.queue.get(path) {
            series(format!("{name}.queue_bytes"), integers(queue));
        }
    }
}
