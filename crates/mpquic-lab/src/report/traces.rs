//! Charts over time: goodput, bytes per path, windows, round trip times.

use mpquic_sim::experiment::{ScenarioResults, Trace};

use super::figures::{colour, figure, sweep_name};
use super::svg::{self, Line, Plot, escape};

/// Points of a line; more cannot be seen.
const POINTS: usize = 120;
/// Traces are drawn for at most so many combinations of swept values.
const MAX_SWEEPS: usize = 2;

/// Every so many samples, so that a line has at most [`POINTS`].
fn stride(samples: usize) -> usize {
    samples.div_ceil(POINTS).max(1)
}

fn samples(trace: &Trace) -> usize {
    trace.received.first().map_or(0, Vec::len)
}

/// A sampled value over time.
fn series(trace: &Trace, value: impl Fn(usize) -> f64) -> Vec<(f64, f64)> {
    let indexes = (0..samples(trace)).step_by(stride(samples(trace)));
    indexes
        .map(|index| (index as f64 * trace.interval_s, value(index)))
        .collect()
}

/// The rate at which a counter of bytes grows, Mbit/s.
fn rate(trace: &Trace, bytes: &[u64]) -> Vec<(f64, f64)> {
    let step = stride(bytes.len());
    let samples: Vec<_> = bytes.iter().step_by(step).collect();
    let seconds = step as f64 * trace.interval_s;
    let rates = samples.windows(2).zip(1..).map(|(pair, index)| {
        let megabits = pair[1].saturating_sub(*pair[0]) as f64 * 8e-6;
        (f64::from(index) * seconds, megabits / seconds)
    });
    rates.collect()
}

/// All charts over time of a scenario, folded.
pub(super) fn details(scenario: &ScenarioResults, contenders: &[&str]) -> String {
    let mut sweeps: Vec<usize> = (0..scenario.sweeps.len()).collect();
    if sweeps.len() > MAX_SWEEPS {
        // The first and the last show the extremes.
        sweeps = vec![0, sweeps.len() - 1];
    }
    let mut html = String::new();
    for sweep in sweeps {
        let traces = scenario.traces.iter().filter(|trace| trace.sweep == sweep);
        let traces: Vec<_> = traces.filter(|trace| samples(trace) > 2).collect();
        if traces.is_empty() {
            continue;
        }
        let label = sweep_name(scenario, sweep);
        html += &goodput(scenario, contenders, &traces, &label);
        for trace in traces {
            html += &paths(scenario, trace, &label);
        }
    }
    if html.is_empty() {
        return html;
    }
    format!(
        "<details><summary>Over time: the first run of each contender</summary>\n\
         <p>Lines of the charts for one contender, from the first: {}.</p>\n\
         <div class=\"charts\">\n{html}</div></details>\n",
        path_legend(scenario)
    )
}

fn path_legend(scenario: &ScenarioResults) -> String {
    let swatch = |(index, name): (usize, &String)| {
        let colour = index % svg::COLOURS;
        format!("<span class=\"swatch c{colour}\"></span>{}", escape(name))
    };
    let names: Vec<_> = scenario.paths.iter().enumerate().map(swatch).collect();
    names.join(", ")
}

fn goodput(
    scenario: &ScenarioResults,
    contenders: &[&str],
    traces: &[&Trace],
    label: &str,
) -> String {
    let mut lines = Vec::new();
    for trace in traces {
        let name = &scenario.contenders[trace.contender];
        for (flow, received) in trace.received.iter().enumerate() {
            let competitor = flow
                .checked_sub(1)
                .and_then(|index| scenario.competitors.get(index));
            lines.push(Line {
                name: match competitor {
                    Some(competitor) => format!("{competitor}, against {name}"),
                    None => name.clone(),
                },
                colour: colour(contenders, name),
                dashed: flow > 0,
                points: rate(trace, received),
                errors: Vec::new(),
            });
        }
    }
    let dashed = if scenario.competitors.is_empty() {
        ""
    } else {
        "; competitors dashed"
    };
    let caption = format!("{} {label}: goodput{dashed}", scenario.id);
    let plot = Plot {
        title: caption.clone(),
        x: "time [s]".into(),
        y: "goodput [Mbit/s]".into(),
        ..Plot::default()
    };
    figure(&caption, &svg::lines(&plot, &lines))
}

/// Bytes and windows of the paths, for one contender.
fn paths(scenario: &ScenarioResults, trace: &Trace, label: &str) -> String {
    let name = &scenario.contenders[trace.contender];
    let lines = |value: &dyn Fn(usize) -> Vec<(f64, f64)>| -> Vec<Line> {
        let paths = scenario.paths.iter().enumerate();
        let used = paths.filter(|(path, _)| trace.path_bytes[*path].last() > Some(&0));
        used.map(|(path, name)| Line {
            name: name.clone(),
            colour: path,
            points: value(path),
            ..Line::default()
        })
        .collect()
    };
    let bytes = |path: usize| series(trace, |index| trace.path_bytes[path][index] as f64 / 1e6);
    let window = |path: usize| series(trace, |index| trace.window[path][index] as f64 / 1e3);
    let charts = [
        ("received per path", "received [MB]", lines(&bytes)),
        ("congestion windows", "window [kB]", lines(&window)),
    ];
    let mut html = String::new();
    for (what, axis, lines) in charts {
        let caption = format!("{} {label}: {what}, {name}", scenario.id);
        let plot = Plot {
            title: caption.clone(),
            x: "time [s]".into(),
            y: axis.into(),
            ..Plot::default()
        };
        html += &figure(&caption, &svg::lines(&plot, &lines));
    }
    html
}
