//! Results as comma-separated values, with one number per line.

use std::fmt::Write as _;

use super::results::{Results, ScenarioResults, State, Trace};

/// A field as RFC 4180 section 2 requires it.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.into()
    }
}

/// The label of a combination of swept values, as `wifi.rate_mbit=20;lte.rate_mbit=5`.
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
    /// One line per metric of each run.
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
            // Multiples of the interval, without rounding errors of floats.
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

#[cfg(test)]
mod tests {
    use super::*;

    use std::collections::BTreeMap;

    use crate::experiment::{Experiment, PathResult, Run};
    use crate::scenario::Scenario;

    /// Two runs of a contender with the name `a,"b"`, beside a competitor.
    fn results() -> Results {
        let text = "schedulers = \"lrf\"\nworkload = { kind = \"file\", size_mb = 1 }\nruns = 2\n\
                    [[path]]\nname = \"p\"\nrate_mbit = 1\nowd_ms = [3, 4]\nloss_pct = \"0..1\"\n\
                    [[competitor]]\nname = \"other\"\n";
        let scenario = Scenario::parse("x.toml", text).unwrap();
        let path = PathResult {
            path: 0,
            bytes: 1000,
            lost: 2,
            dropped_queue: 0,
            dropped_loss: 0,
            queue_ms: 1.5,
            rtt_ms: 9.0,
        };
        let run = |run, state, value| Run {
            contender: 0,
            sweep: 1,
            point: 0,
            run,
            state,
            values: vec![0.5, 4.0],
            metrics: BTreeMap::from([("completion_s".into(), value)]),
            paths: vec![path.clone()],
            flows: vec![7.0, 8.0],
        };
        let trace = Trace {
            contender: 0,
            sweep: 1,
            point: 0,
            run: 1,
            interval_s: 0.1,
            received: vec![vec![0, 1], vec![0, 2]],
            path_bytes: vec![vec![0, 3]],
            window: vec![vec![0, 4]],
            rtt_ms: vec![vec![0.0, 5.5]],
            lost: vec![vec![0, 6]],
            silent: vec![vec![false, true]],
            queue: vec![vec![0, 7]],
        };
        let runs = vec![
            run(0, State::Unfinished, 2.0),
            run(1, State::Failed("x".into()), 4.0),
        ];
        let mut results = Experiment::new(scenario).results(runs, vec![trace]);
        results.contenders = vec!["a,\"b\"".into()];
        results.baseline = results.contenders[0].clone();
        Results {
            scenarios: vec![results],
        }
    }

    /// The lines after the first one, without their common part.
    fn lines<'a>(csv: &'a str, common: &str) -> Vec<&'a str> {
        let lines = csv.lines().skip(1);
        lines.filter_map(|line| line.strip_prefix(common)).collect()
    }

    const CELL: &str = "x,p.owd_ms=4,\"a,\"\"b\"\"\",";

    #[test]
    fn each_number_of_a_run_has_a_line() {
        let csv = results().runs_csv();
        assert!(csv.starts_with("scenario,sweep,contender,point,run,state,name,value\n"));
        let numbers = [
            "p.loss_pct,0.5",
            "p.owd_ms,4",
            "completion_s,2",
            "p.bytes,1000",
            "p.lost,2",
            "p.queue_ms,1.5",
            "other.throughput_mbit,8",
        ];
        let mut names: Vec<_> = results().scenarios[0].parameters.clone();
        names.sort();
        assert_eq!(names, ["p.loss_pct", "p.owd_ms"]);
        let first = lines(&csv, &format!("{CELL}0,0,unfinished,"));
        assert_eq!(first, numbers);
        let second = lines(&csv, &format!("{CELL}0,1,failed,"));
        assert_eq!((second.len(), second[2]), (7, "completion_s,4"));
        assert_eq!(csv.lines().count(), 15);
    }

    #[test]
    fn each_metric_of_a_cell_has_a_line() {
        let csv = results().summary_csv();
        let expected = "scenario,sweep,contender,metric,runs,unfinished,failed,mean,confidence_95,\
                        median,p10,p90,min,max,ratio_to_baseline";
        assert_eq!(csv.lines().next(), Some(expected));
        let confidence = 12.706 * 2.0_f64.sqrt() / 2.0_f64.sqrt();
        let expected = format!("completion_s,2,1,1,3,{confidence},3,2.2,3.8,2,4,1");
        assert_eq!(lines(&csv, CELL), [expected]);
        // The other combination has no runs.
        let none = lines(&csv, "x,p.owd_ms=3,\"a,\"\"b\"\"\",");
        assert_eq!(none, ["completion_s,0,0,0,0,0,0,0,0,0,0,"]);
    }

    #[test]
    fn each_sample_of_a_trace_has_a_line() {
        let csv = results().traces_csv();
        assert!(csv.starts_with("scenario,sweep,contender,point,run,seconds,name,value\n"));
        let lines = lines(&csv, &format!("{CELL}0,1,"));
        let expected = [
            "0,received_bytes,0",
            "0.1,received_bytes,1",
            "0,other_bytes,0",
            "0.1,other_bytes,2",
            "0,p.received_bytes,0",
            "0.1,p.received_bytes,3",
            "0,p.window_bytes,0",
            "0.1,p.window_bytes,4",
            "0,p.rtt_ms,0",
            "0.1,p.rtt_ms,5.5",
            "0,p.lost,0",
            "0.1,p.lost,6",
            "0,p.silent,0",
            "0.1,p.silent,1",
            "0,p.queue_bytes,0",
            "0.1,p.queue_bytes,7",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn fields_are_quoted_if_they_have_to_be() {
        for plain in ["", "a b", "a;b"] {
            assert_eq!(field(plain), plain);
        }
        for (text, quoted) in [
            ("a,b", "\"a,b\""),
            ("a\nb", "\"a\nb\""),
            ("a\rb", "\"a\rb\""),
        ] {
            assert_eq!(field(text), quoted);
        }
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(sweep_label(&[pair("a", "1"), pair("b", "2")]), "a=1;b=2");
    }
}
