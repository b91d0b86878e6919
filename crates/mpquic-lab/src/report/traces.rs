//! Charts over time: goodput, and for each path bytes, windows, round-trip times and queues.

use mpquic_sim::experiment::{ScenarioResults, Trace};

use super::figures::{figure, series, title};
use super::svg::{self, Area, Line, Plot};

/// The largest number of points in a line. More points would be too close to tell apart.
const POINTS: usize = 120;
/// The largest number of points in a line of rates. Over shorter times, a rate would only show
/// single trains of packets.
const RATE_POINTS: usize = 40;
/// The least number of samples for a rate.
const MIN_SAMPLES: usize = 2;
/// The most combinations of swept values with charts over time.
const MAX_SWEEPS: usize = 2;
/// The largest number of competitors with a line each. More competitors share the line of their
/// sum.
const MAX_COMPETITORS: usize = 3;

fn samples(trace: &Trace) -> usize {
    trace.received.first().map_or(0, Vec::len)
}

/// The values of all samples over time.
fn over_time(trace: &Trace, value: impl Fn(usize) -> f64) -> Vec<(f64, f64)> {
    let stride = samples(trace).div_ceil(POINTS).max(1);
    let indexes = (0..samples(trace)).step_by(stride);
    indexes
        .map(|index| (index as f64 * trace.interval_s, value(index)))
        .collect()
}

/// The rate at which a counter of bytes grows over time, Mbit/s.
fn rate(trace: &Trace, bytes: &[u64]) -> Vec<(f64, f64)> {
    let step = bytes.len().div_ceil(RATE_POINTS).max(MIN_SAMPLES);
    let samples: Vec<_> = bytes.iter().step_by(step).collect();
    let seconds = step as f64 * trace.interval_s;
    let rates = samples.windows(2).zip(1..).map(|(pair, index)| {
        let megabits = pair[1].saturating_sub(*pair[0]) as f64 * 8e-6;
        (f64::from(index) * seconds, megabits / seconds)
    });
    std::iter::once((0.0, 0.0)).chain(rates).collect()
}

/// All charts over time of a scenario, folded on the page.
pub(super) fn details(scenario: &ScenarioResults, contenders: &[&str]) -> String {
    let mut sweeps: Vec<usize> = (0..scenario.sweeps.len()).collect();
    if sweeps.len() > MAX_SWEEPS {
        // The first and the last combination show the extremes.
        sweeps = vec![0, sweeps.len() - 1];
    }
    let mut html = String::new();
    for sweep in sweeps {
        let is_first = |trace: &&Trace| (trace.point, trace.run) == (0, 0);
        let traces = scenario.traces.iter().filter(is_first);
        let traces = traces.filter(|trace| trace.sweep == sweep);
        let traces: Vec<_> = traces.filter(|trace| samples(trace) > 2).collect();
        if traces.is_empty() {
            continue;
        }
        let goodput = goodput(scenario, contenders, &traces, sweep);
        let paths: String = traces.iter().map(|trace| paths(scenario, trace)).collect();
        for charts in [goodput, paths] {
            html += &format!("<div class=\"charts\">\n{charts}</div>\n");
        }
    }
    if html.is_empty() {
        return html;
    }
    format!(
        "<details><summary>Over time: the first run of each contender</summary>\n{html}</details>\n"
    )
}

fn goodput(
    scenario: &ScenarioResults,
    contenders: &[&str],
    traces: &[&Trace],
    sweep: usize,
) -> String {
    let mut lines = Vec::new();
    for trace in traces {
        let name = &scenario.contenders[trace.contender];
        let mut line = |name: String, thin: bool, received: &[u64]| {
            lines.push(Line {
                name,
                series: series(contenders, &scenario.contenders[trace.contender]),
                thin,
                points: rate(trace, received),
                ..Line::default()
            });
        };
        let Some((own, others)) = trace.received.split_first() else {
            continue;
        };
        line(name.clone(), false, own);
        if others.len() > MAX_COMPETITORS {
            let all = (0..own.len()).map(|index| others.iter().map(|other| other[index]).sum());
            let all: Vec<u64> = all.collect();
            let others = others.len();
            line(
                format!("{others} others together, against {name}"),
                true,
                &all,
            );
        } else {
            for (competitor, received) in scenario.competitors.iter().zip(others) {
                line(format!("{competitor}, against {name}"), true, received);
            }
        }
    }
    let what = match scenario.competitors.as_slice() {
        [] => "goodput",
        _ => "goodput; competitors thin",
    };
    let plot = Plot {
        title: title(scenario, Some(sweep), what),
        x: "time [s]".into(),
        y: "goodput [Mbit/s]".into(),
        contenders: true,
        ..Plot::default()
    };
    figure(&plot, &svg::lines(&plot, &lines))
}

/// A chart of the bytes of each path for one contender, as stacked areas, with marks for losses and
/// silence.
fn shares(scenario: &ScenarioResults, trace: &Trace) -> String {
    let name = &scenario.contenders[trace.contender];
    let paths = scenario.paths.iter().enumerate();
    let used = paths.filter(|(path, _)| trace.path_bytes[*path].last() > Some(&0));
    let areas = used.map(|(path, name)| Area {
        name: name.clone(),
        series: path,
        points: rate(trace, &trace.path_bytes[path]),
        strokes: losses(trace, path),
        bars: silences(trace, path),
    });
    let areas: Vec<_> = areas.collect();
    let what = format!("what each path carries, {name} (strokes: losses, bars: no answer)");
    let plot = Plot {
        title: title(scenario, Some(trace.sweep), &what),
        x: "time [s]".into(),
        y: "received [Mbit/s]".into(),
        ..Plot::default()
    };
    figure(&plot, &svg::areas(&plot, &areas))
}

/// The times of losses on a path, and the number of packets declared lost at each time.
fn losses(trace: &Trace, path: usize) -> Vec<(f64, String)> {
    let lost = &trace.lost[path];
    let stride = lost.len().div_ceil(POINTS).max(1);
    let samples: Vec<_> = lost.iter().step_by(stride).collect();
    let pairs = samples.windows(2).zip(1..);
    let grown = pairs.filter(|(pair, _)| pair[1] > pair[0]);
    grown
        .map(|(pair, index)| {
            let at = f64::from(index) * stride as f64 * trace.interval_s;
            let count = pair[1].saturating_sub(*pair[0]);
            (at, format!("{count} lost"))
        })
        .collect()
}

/// The intervals during which a path did not answer.
fn silences(trace: &Trace, path: usize) -> Vec<(f64, f64)> {
    let mut silences: Vec<(f64, f64)> = Vec::new();
    let mut before = false;
    for (index, silent) in trace.silent[path].iter().enumerate() {
        let at = index as f64 * trace.interval_s;
        match (before, *silent) {
            (false, true) => silences.push((at, at)),
            (true, _) => {
                if let Some(last) = silences.last_mut() {
                    last.1 = at;
                }
            }
            (false, false) => {}
        }
        before = *silent;
    }
    silences
}

/// Charts of the bytes, windows, round-trip times and queues of the paths for one contender.
fn paths(scenario: &ScenarioResults, trace: &Trace) -> String {
    let name = &scenario.contenders[trace.contender];
    let lines = |value: &dyn Fn(usize) -> Vec<(f64, f64)>| -> Vec<Line> {
        let paths = scenario.paths.iter().enumerate();
        let used = paths.filter(|(path, _)| trace.path_bytes[*path].last() > Some(&0));
        used.map(|(path, name)| Line {
            name: name.clone(),
            series: path,
            points: value(path),
            ..Line::default()
        })
        .collect()
    };
    let bytes = |path: usize| over_time(trace, |index| trace.path_bytes[path][index] as f64 / 1e6);
    let window = |path: usize| over_time(trace, |index| trace.window[path][index] as f64 / 1e3);
    let rtt = |path: usize| over_time(trace, |index| trace.rtt_ms[path][index]);
    let queue = |path: usize| {
        let queue = trace.queue.get(path);
        let waiting = |index: usize| queue.and_then(|queue| queue.get(index));
        over_time(trace, |index| {
            waiting(index).copied().unwrap_or(0) as f64 / 1e3
        })
    };
    let mut charts = vec![
        ("received per path", "received [MB]", lines(&bytes)),
        ("congestion windows", "window [kB]", lines(&window)),
        ("smoothed round trip times", "round trip [ms]", lines(&rtt)),
    ];
    if !trace.queue.is_empty() {
        let what = "queues on the links of each path";
        charts.push((what, "queue [kB]", lines(&queue)));
    }
    let mut html = shares(scenario, trace);
    for (what, axis, lines) in charts {
        let plot = Plot {
            title: title(scenario, Some(trace.sweep), &format!("{what}, {name}")),
            x: "time [s]".into(),
            y: axis.into(),
            ..Plot::default()
        };
        html += &figure(&plot, &svg::lines(&plot, &lines));
    }
    html
}
