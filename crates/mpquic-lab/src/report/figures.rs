//! Draws charts of metrics: bars, lines over a swept value, distributions, fairness.

use std::collections::BTreeSet;

use mpquic_sim::experiment::{Cell, ScenarioResults, sweep_label};
use mpquic_sim::scenario::{Claim, Published};

use super::svg::{self, Bars, Line, Plot, escape};
use crate::numbers::unit;

/// The least number of runs for a distribution.
const MIN_RUNS_FOR_DISTRIBUTION: usize = 8;
/// The least number of runs for a distribution of ratios.
const MIN_RUNS_FOR_RATIOS: usize = 20;
/// The most bars beside each other. More bars get a row each, because bars beside each other would
/// have no room for names.
const MAX_BARS: usize = 14;
/// The most combinations of swept values with a chart of distributions.
const MAX_SWEEPS_FOR_DISTRIBUTION: usize = 2;

/// A chart with its caption.
pub(super) fn figure(plot: &Plot, svg: &str) -> String {
    let caption = escape(&plot.title);
    format!("<figure><figcaption>{caption}</figcaption>\n{svg}</figure>\n")
}

/// The swept values of a combination as text.
pub(super) fn sweep_name(scenario: &ScenarioResults, sweep: usize) -> String {
    scenario
        .sweeps
        .get(sweep)
        .map(|labels| sweep_label(labels))
        .unwrap_or_default()
}

/// The index of a contender in the list of all contenders, for the contender's colour and pattern.
pub(super) fn series(contenders: &[&str], name: &str) -> usize {
    contenders
        .iter()
        .position(|other| *other == name)
        .unwrap_or(0)
}

/// The title of a chart of one scenario: the published figure, the scenario, the swept values and
/// the subject of the chart.
pub(super) fn title(scenario: &ScenarioResults, sweep: Option<usize>, what: &str) -> String {
    let figure = match scenario.figure.as_str() {
        "" | "none" => String::new(),
        figure => format!("{figure}, "),
    };
    let sweep = match sweep.map(|sweep| sweep_name(scenario, sweep)) {
        Some(name) if !name.is_empty() => format!(", {name}"),
        _ => String::new(),
    };
    format!("{figure}{}{sweep}: {what}", scenario.id)
}

fn axis_label(metric: &str) -> String {
    let (name, unit) = unit(metric);
    let name = name.replace('_', " ");
    if unit.is_empty() {
        name
    } else {
        format!("{name} [{unit}]")
    }
}

/// All charts of the metrics of scenarios that belong to the same published figure.
pub(super) fn charts(scenarios: &[&ScenarioResults], contenders: &[&str]) -> String {
    let mut html = String::new();
    let (swept, plain): (Vec<_>, Vec<_>) = scenarios
        .iter()
        .copied()
        .partition(|scenario| numeric_sweep(scenario).is_some());
    for metric in shown_metrics(&plain) {
        html += &bar_chart(&plain, contenders, &metric);
    }
    for scenario in &swept {
        for metric in shown_metrics(&[scenario]) {
            html += &line_chart(scenario, contenders, &metric);
        }
    }
    for scenario in scenarios {
        if scenario.sweeps.len() <= MAX_SWEEPS_FOR_DISTRIBUTION {
            for sweep in 0..scenario.sweeps.len() {
                html += &distribution(scenario, contenders, sweep);
                html += &ratios(scenario, contenders, sweep);
            }
        }
        html += &fairness(scenario, contenders);
    }
    html
}

/// The main metrics of the scenarios, and the metrics with published values.
fn shown_metrics(scenarios: &[&ScenarioResults]) -> Vec<String> {
    let mut metrics = Vec::new();
    for scenario in scenarios {
        let published = scenario.published.iter().map(|published| &published.metric);
        for metric in std::iter::once(&scenario.metric).chain(published) {
            if !metrics.contains(metric) {
                metrics.push(metric.clone());
            }
        }
    }
    metrics
}

/// The swept parameter with the most values, and its value in each combination. `None` for values
/// other than numbers.
fn numeric_sweep(scenario: &ScenarioResults) -> Option<(String, Vec<f64>)> {
    let names = scenario.sweeps.first()?.iter().map(|(name, _)| name);
    let values = |name: &String| -> Option<Vec<f64>> {
        let value = |sweep: &Vec<(String, String)>| {
            let label = sweep.iter().find(|(other, _)| other == name);
            label.and_then(|(_, label)| label.parse().ok())
        };
        scenario.sweeps.iter().map(value).collect()
    };
    let candidates = names.filter_map(|name| Some((name.clone(), values(name)?)));
    let distinct = |values: &[f64]| {
        let values: BTreeSet<u64> = values.iter().map(|value| value.to_bits()).collect();
        values.len()
    };
    let best = candidates.max_by_key(|(_, values)| distinct(values))?;
    // The combinations of independently swept parameters do not fit on a single axis.
    let fits = distinct(&best.1) == scenario.sweeps.len() && best.1.len() > 2;
    fits.then_some(best)
}

/// The published value for a cell, in the unit of the metric.
fn published(scenario: &ScenarioResults, metric: &str, cell: Cell) -> Option<f64> {
    let mut claims = scenario
        .published
        .iter()
        .filter(|p| p.metric == metric && scenario.sweeps_of(p).any(|sweep| sweep == cell.sweep));
    claims.find_map(|published| claimed(scenario, published, cell))
}

fn claimed(scenario: &ScenarioResults, published: &Published, cell: Cell) -> Option<f64> {
    let name = &scenario.contenders[cell.contender];
    match &published.claim {
        Claim::Value {
            contender, value, ..
        } => (contender == name).then_some(*value),
        Claim::Ratio {
            contender,
            against,
            ratio,
            ..
        } if contender == name => {
            let contender = scenario.contender(against)?;
            let (ours, _) = mean(scenario, Cell { contender, ..cell }, &published.metric)?;
            Some(ratio * ours)
        }
        _ => None,
    }
}

fn mean(scenario: &ScenarioResults, cell: Cell, metric: &str) -> Option<(f64, f64)> {
    let statistics = scenario.summary(cell, metric).statistics;
    (statistics.count > 0).then_some((statistics.mean, statistics.confidence))
}

/// The values of the runs of a cell, for a cell with too few runs for a distribution.
fn few_runs(scenario: &ScenarioResults, cell: Cell, metric: &str) -> Vec<f64> {
    let runs = scenario.runs_of(cell);
    let runs: Vec<_> = runs
        .filter_map(|run| run.metrics.get(metric).copied())
        .collect();
    match runs.len() {
        2..=MIN_RUNS_FOR_DISTRIBUTION => runs,
        _ => Vec::new(),
    }
}

/// The title and the axes of a chart whose series are the contenders.
fn plot(title: String, x: impl Into<String>, y: impl Into<String>) -> Plot {
    Plot {
        title,
        x: x.into(),
        y: y.into(),
        contenders: true,
        ..Plot::default()
    }
}

fn bar_chart(scenarios: &[&ScenarioResults], contenders: &[&str], metric: &str) -> String {
    let mut groups = Vec::new();
    let mut bars: Vec<Bars> = contenders
        .iter()
        .enumerate()
        .map(|(series, name)| Bars {
            name: (*name).into(),
            series,
            ..Bars::default()
        })
        .collect();
    for scenario in scenarios {
        for sweep in 0..scenario.sweeps.len() {
            let label = sweep_name(scenario, sweep);
            groups.push(match (scenarios.len(), label.as_str()) {
                (_, "") => scenario.id.clone(),
                (1, label) => label.into(),
                (_, label) => format!("{} {label}", scenario.id),
            });
            for bars in &mut bars {
                let cell = scenario
                    .contender(&bars.name)
                    .map(|contender| Cell { sweep, contender });
                let value = cell.and_then(|cell| mean(scenario, cell, metric));
                bars.values.push(value);
                let published = cell.and_then(|cell| published(scenario, metric, cell));
                bars.published.push(published);
                let runs = cell.map_or(Vec::new(), |cell| few_runs(scenario, cell, metric));
                bars.runs.push(runs);
            }
        }
    }
    if bars
        .iter()
        .all(|bars| bars.values.iter().all(Option::is_none))
    {
        return String::new();
    }
    let what = format!("{}, mean and 95 % confidence", axis_label(metric));
    let title = match scenarios {
        [scenario] => title(scenario, None, &what),
        [first, ..] => format!("{}: {what}", first.figure),
        [] => what,
    };
    let plot = plot(title, "", axis_label(metric));
    if contenders.len() > MAX_BARS {
        let many = groups.iter().enumerate();
        let rows = many.map(|(group, name)| {
            let title = match groups.len() {
                1 => plot.title.clone(),
                _ => format!("{}, {name}", plot.title),
            };
            let plot = Plot {
                title,
                ..plot.clone()
            };
            figure(&plot, &svg::rows(&plot, &bars, group))
        });
        return rows.collect();
    }
    // In a chart with more groups, the bars would be only a few pixels wide and hard to tell apart.
    let per_chart = (60 / contenders.len().max(1)).clamp(1, 12);
    let mut html = String::new();
    for start in (0..groups.len()).step_by(per_chart) {
        let range = start..(start + per_chart).min(groups.len());
        let part: Vec<_> = bars
            .iter()
            .map(|bars| Bars {
                values: bars.values[range.clone()].to_vec(),
                published: bars.published[range.clone()].to_vec(),
                runs: bars.runs[range.clone()].to_vec(),
                ..bars.clone()
            })
            .collect();
        html += &figure(&plot, &svg::bars(&plot, &groups[range], &part));
    }
    html
}

fn line_chart(scenario: &ScenarioResults, contenders: &[&str], metric: &str) -> String {
    let Some((name, values)) = numeric_sweep(scenario) else {
        return String::new();
    };
    let line = |(contender, name): (usize, &String)| {
        let mut line = Line {
            name: name.clone(),
            series: series(contenders, name),
            ..Line::default()
        };
        for (sweep, x) in values.iter().enumerate() {
            let cell = Cell { sweep, contender };
            if let Some((mean, half)) = mean(scenario, cell, metric) {
                line.points.push((*x, mean));
                line.errors.push(half);
            }
            let published = published(scenario, metric, cell);
            line.published.extend(published.map(|value| (*x, value)));
        }
        line
    };
    let lines: Vec<_> = scenario.contenders.iter().enumerate().map(line).collect();
    let (label, unit) = unit(&name);
    let label = label.replace('_', " ");
    let what = format!(
        "{} over {label}, mean and 95 % confidence",
        axis_label(metric)
    );
    let title = title(scenario, None, &what);
    let mut plot = plot(title, format!("{label} [{unit}]"), axis_label(metric));
    plot.logarithmic = true;
    figure(&plot, &svg::lines(&plot, &lines))
}

/// The points of an empirical distribution: each value with the share of values up to the value.
fn steps(mut values: Vec<f64>) -> Vec<(f64, f64)> {
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    let first = values.first().map(|first| (*first, 0.0));
    let rest = values
        .iter()
        .zip(1..)
        .map(|(value, index)| (*value, f64::from(index) / count));
    first.into_iter().chain(rest).collect()
}

/// A chart of empirical distributions.
fn shares_of_runs(title: String, x: String, lines: &[Line]) -> String {
    let mut plot = plot(title, x, "share of runs");
    plot.steps = true;
    figure(&plot, &svg::lines(&plot, lines))
}

fn distribution(scenario: &ScenarioResults, contenders: &[&str], sweep: usize) -> String {
    let line = |(contender, name): (usize, &String)| {
        let runs = scenario.runs_of(Cell { sweep, contender });
        let values = runs.filter_map(|run| run.metrics.get(&scenario.metric).copied());
        Line {
            name: name.clone(),
            series: series(contenders, name),
            points: steps(values.collect()),
            ..Line::default()
        }
    };
    let lines: Vec<_> = scenario.contenders.iter().enumerate().map(line).collect();
    if lines
        .iter()
        .all(|line| line.points.len() <= MIN_RUNS_FOR_DISTRIBUTION)
    {
        return String::new();
    }
    let title = title(scenario, Some(sweep), "distribution over runs");
    shares_of_runs(title, axis_label(&scenario.metric), &lines)
}

fn ratios(scenario: &ScenarioResults, contenders: &[&str], sweep: usize) -> String {
    let Some(baseline) = scenario.contender(&scenario.baseline) else {
        return String::new();
    };
    let mut lines = Vec::new();
    for (contender, name) in scenario.contenders.iter().enumerate() {
        if contender == baseline {
            continue;
        }
        let pairs = scenario.pairs(sweep, contender, baseline, &scenario.metric);
        let ratios = pairs.iter().map(|(ours, theirs)| ours / theirs);
        let ratios: Vec<f64> = ratios.filter(|ratio| ratio.is_finite()).collect();
        if ratios.len() >= MIN_RUNS_FOR_RATIOS {
            lines.push(Line {
                name: name.clone(),
                series: series(contenders, name),
                points: steps(ratios),
                ..Line::default()
            });
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    let (baseline, metric) = (&scenario.baseline, unit(&scenario.metric).0);
    let what = format!("ratio to {baseline}, run by run");
    let title = title(scenario, Some(sweep), &what);
    shares_of_runs(title, format!("{metric} relative to {baseline}"), &lines)
}

/// Charts of the throughput of each connection that shares the network.
fn fairness(scenario: &ScenarioResults, contenders: &[&str]) -> String {
    if scenario.competitors.is_empty() {
        return String::new();
    }
    let flows: Vec<String> = std::iter::once("multipath".to_owned())
        .chain(scenario.competitors.iter().cloned())
        .collect();
    let mut html = String::new();
    for sweep in 0..scenario.sweeps.len() {
        let bars = |(contender, name): (usize, &String)| {
            let rate = |flow: usize| {
                let runs = scenario.runs_of(Cell { sweep, contender });
                let rates = runs.filter_map(|run| run.flows.get(flow).copied());
                let statistics = mpquic_sim::experiment::Statistics::of(rates);
                Some((statistics.mean, statistics.confidence)).filter(|_| statistics.count > 0)
            };
            Bars {
                name: name.clone(),
                series: series(contenders, name),
                values: (0..flows.len()).map(rate).collect(),
                ..Bars::default()
            }
        };
        let bars: Vec<_> = scenario.contenders.iter().enumerate().map(bars).collect();
        let title = title(scenario, Some(sweep), "throughput of each connection");
        let plot = plot(title, "", "throughput [Mbit/s]");
        if flows.len() > MAX_BARS {
            html += &many_flows(&plot, &flows, &bars);
        } else {
            html += &figure(&plot, &svg::bars(&plot, &flows, &bars));
        }
        html += &jain(scenario, contenders, sweep);
    }
    html
}

/// Draws a chart per contender, with a row per connection.
fn many_flows(plot: &Plot, flows: &[String], bars: &[Bars]) -> String {
    let charts = bars.iter().map(|contender| {
        let plot = Plot {
            title: format!("{}, with {}", plot.title, contender.name),
            ..plot.clone()
        };
        let flows = flows.iter().zip(&contender.values);
        let rows = flows.map(|(flow, rate)| Bars {
            name: flow.clone(),
            series: contender.series,
            values: vec![*rate],
            ..Bars::default()
        });
        figure(&plot, &svg::rows(&plot, &rows.collect::<Vec<_>>(), 0))
    });
    charts.collect()
}

/// A chart of Jain's index of each contender and its competitors. At an index of 1, all connections
/// have equal throughput.
fn jain(scenario: &ScenarioResults, contenders: &[&str], sweep: usize) -> String {
    let bars = |(contender, name): (usize, &String)| Bars {
        name: name.clone(),
        series: series(contenders, name),
        values: vec![mean(scenario, Cell { sweep, contender }, "jain_index")],
        ..Bars::default()
    };
    let bars: Vec<_> = scenario.contenders.iter().enumerate().map(bars).collect();
    let what = "Jain's index of fairness; 1 is an equal share for each";
    let plot = plot(title(scenario, Some(sweep), what), "", "Jain's index");
    figure(&plot, &svg::bars(&plot, &[String::new()], &bars))
}
