//! Two sets of results of the same scenarios, and the differences between them.

use std::collections::BTreeMap;

use mpquic_sim::experiment::{
    Cell, Comparison, Results, Run, ScenarioResults, corrected, is_lower_better, sweep_label,
};

use crate::numbers::short;
use crate::{Failure, claims};

/// The largest probability of a significant difference by chance alone.
const LEVEL: f64 = 0.05;

/// All differences between two sets of results.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// The scenarios that both sets contain, in the order of the second set.
    pub(crate) scenarios: Vec<Scenario>,
    /// Names of the scenarios that only the first set contains, and of the scenarios that only the
    /// second set contains.
    pub(crate) alone: [Vec<String>; 2],
}

/// The changes of a scenario that both sets contain.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) metric: String,
    /// One line per contender and combination of swept values.
    pub(crate) lines: Vec<Line>,
    /// The contenders without a line, because all their runs failed.
    pub(crate) failed: Vec<Failed>,
    /// Published claims whose verdict has changed.
    pub(crate) verdicts: Vec<Verdict>,
    /// Contenders that only one of the two sets contains.
    pub(crate) alone: Vec<String>,
}

/// A contender of the second set compared with itself in the first set, or with another contender.
#[derive(Debug)]
pub(crate) struct Line {
    /// The scenario and the swept values.
    pub(crate) label: String,
    pub(crate) contender: String,
    pub(crate) medians: [f64; 2],
    pub(crate) comparison: Comparison,
    /// The probability of the difference by chance alone, corrected for the other lines of the
    /// scenario.
    chance: f64,
    lower_is_better: bool,
}

/// A contender without a comparison, because every run of a side failed.
#[derive(Debug, PartialEq)]
pub(crate) struct Failed {
    /// The scenario and the swept values.
    pub(crate) label: String,
    pub(crate) contender: String,
    /// The medians of both sides; `None` where all runs failed.
    pub(crate) medians: [Option<f64>; 2],
}

impl Failed {
    /// Compares two sides by their medians, if every run of a side failed. Otherwise, returns
    /// `None`.
    pub(crate) fn of(sides: [(&ScenarioResults, Cell); 2], metric: &str) -> Option<Self> {
        if !sides
            .iter()
            .any(|(results, cell)| results.all_failed(*cell))
        {
            return None;
        }
        let (results, cell) = sides[1];
        let median = |(results, cell): (&ScenarioResults, Cell)| {
            let median = || results.summary(cell, metric).statistics.median;
            (!results.all_failed(cell)).then(median)
        };
        Some(Self {
            label: label(results, cell.sweep),
            contender: results.contenders[cell.contender].clone(),
            medians: sides.map(median),
        })
    }

    /// True if the second side failed and the first side did not.
    pub(crate) fn is_worse(&self) -> bool {
        matches!(self.medians, [Some(_), None])
    }

    /// The medians as text, with "failed" in place of a missing median.
    pub(crate) fn words(&self) -> [String; 2] {
        let words = |median: Option<f64>| median.map_or_else(|| "failed".to_owned(), short);
        self.medians.map(words)
    }
}

/// The verdict on a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Same,
    Better,
    Worse,
}

impl Change {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Better => "better",
            Self::Worse => "worse",
        }
    }
}

/// A published claim whose verdict has changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) published: String,
    /// The contenders that the claim is tested on: "published forms" or "ours".
    pub(crate) against: &'static str,
    /// The verdicts before and after.
    pub(crate) outcomes: [&'static str; 2],
    /// Our results before and after, as text.
    pub(crate) found: [String; 2],
}

impl Line {
    pub(crate) fn new(
        label: String,
        contender: String,
        medians: [f64; 2],
        comparison: Comparison,
        metric: &str,
    ) -> Self {
        Self {
            label,
            contender,
            medians,
            comparison,
            chance: comparison.chance,
            lower_is_better: is_lower_better(metric),
        }
    }

    pub(crate) fn change(&self) -> Change {
        match (self.chance <= LEVEL, self.worse_by() < 1.0) {
            (false, _) => Change::Same,
            (true, true) => Change::Better,
            (true, false) => Change::Worse,
        }
    }

    /// The mean ratio of paired runs: above 1 if the second side is worse.
    pub(crate) fn worse_by(&self) -> f64 {
        if self.lower_is_better {
            self.comparison.paired
        } else {
            1.0 / self.comparison.paired
        }
    }
}

/// Corrects the probabilities of lines that a reader sees together.
pub(crate) fn correct(lines: &mut [Line]) {
    let chances: Vec<_> = lines.iter().map(|line| line.comparison.chance).collect();
    for (line, chance) in lines.iter_mut().zip(corrected(&chances)) {
        line.chance = chance;
    }
}

/// A label of the scenario and its swept values.
pub(crate) fn label(results: &ScenarioResults, sweep: usize) -> String {
    let sweep = sweep_label(&results.sweeps[sweep]);
    format!("{} {sweep}", results.id).trim_end().into()
}

/// The metric of the comparison: the named metric, or else the scenario's own metric.
pub(crate) fn metric<'a>(
    named: Option<&'a str>,
    results: &'a ScenarioResults,
) -> Result<&'a str, Failure> {
    let Some(metric) = named else {
        return Ok(&results.metric);
    };
    let known = results.metrics();
    if known.contains(&metric) {
        return Ok(metric);
    }
    Err(Failure::usage(format!(
        "{} has no metric `{metric}`; there are: {}",
        results.id,
        known.join(", ")
    )))
}

impl Changes {
    /// The changes between two sets, compared by the named metric, or else by each scenario's own
    /// metric.
    pub(crate) fn between(
        before: &Results,
        after: &Results,
        named: Option<&str>,
    ) -> Result<Self, Failure> {
        let find = |all: &Results, id: &str| all.scenarios.iter().any(|other| other.id == id);
        let alone = |these: &Results, others: &Results| {
            let ids = these.scenarios.iter().map(|scenario| scenario.id.clone());
            ids.filter(|id| !find(others, id)).collect()
        };
        let mut changes = Self {
            scenarios: Vec::new(),
            alone: [alone(before, after), alone(after, before)],
        };
        for new in &after.scenarios {
            if let Some(old) = before.scenarios.iter().find(|old| old.id == new.id) {
                let verdicts = verdicts([before, after], [old, new]);
                changes.scenarios.push(scenario(old, new, named, verdicts)?);
            }
        }
        Ok(changes)
    }

    /// The lines of all scenarios.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &Line> {
        self.scenarios.iter().flat_map(|scenario| &scenario.lines)
    }

    /// All contenders without a line.
    pub(crate) fn failed(&self) -> impl Iterator<Item = &Failed> {
        self.scenarios.iter().flat_map(|scenario| &scenario.failed)
    }

    /// The number of lines with this verdict.
    pub(crate) fn count(&self, change: Change) -> usize {
        self.lines().filter(|line| line.change() == change).count()
    }
}

fn scenario(
    before: &ScenarioResults,
    after: &ScenarioResults,
    named: Option<&str>,
    verdicts: Vec<Verdict>,
) -> Result<Scenario, Failure> {
    let metric = metric(named, before)?;
    let (mut lines, failed) = lines(before, after, metric);
    correct(&mut lines);
    let mut alone = only(before, after);
    alone.extend(only(after, before));
    Ok(Scenario {
        id: after.id.clone(),
        title: after.title.clone(),
        metric: metric.to_owned(),
        verdicts,
        alone,
        lines,
        failed,
    })
}

/// Names of the contenders that `others` does not contain.
fn only(these: &ScenarioResults, others: &ScenarioResults) -> Vec<String> {
    let names = these.contenders.iter();
    let names = names.filter(|name| others.contender(name).is_none());
    names.cloned().collect()
}

/// Compares every contender of the second results with the same contender of the first. Pairs runs
/// with the same values and seed.
fn lines(
    before: &ScenarioResults,
    after: &ScenarioResults,
    metric: &str,
) -> (Vec<Line>, Vec<Failed>) {
    let (mut lines, mut failed) = (Vec::new(), Vec::new());
    for cell in after.cells() {
        let name = &after.contenders[cell.contender];
        let same_sweep = before
            .sweeps
            .iter()
            .position(|sweep| *sweep == after.sweeps[cell.sweep]);
        let (Some(contender), Some(sweep)) = (before.contender(name), same_sweep) else {
            continue;
        };
        let earlier = Cell { sweep, contender };
        if let Some(one) = Failed::of([(before, earlier), (after, cell)], metric) {
            failed.push(one);
            continue;
        }
        let position = |run: &Run| (run.point, run.run);
        let old: BTreeMap<_, _> = before
            .runs_of(earlier)
            .map(|run| (position(run), run))
            .collect();
        let pair = |run: &Run| {
            let other = old.get(&position(run))?;
            let same = other.values == run.values && before.seed == after.seed;
            let values = (*run.metrics.get(metric)?, *other.metrics.get(metric)?);
            same.then_some(values)
        };
        let pairs: Vec<_> = after.runs_of(cell).filter_map(pair).collect();
        let Some(comparison) = Comparison::of(&pairs, is_lower_better(metric)) else {
            continue;
        };
        let medians = [
            before.summary(earlier, metric).statistics.median,
            after.summary(cell, metric).statistics.median,
        ];
        let label = label(after, cell.sweep);
        lines.push(Line::new(label, name.clone(), medians, comparison, metric));
    }
    (lines, failed)
}

/// Claims in both sets whose verdicts differ.
fn verdicts(results: [&Results; 2], scenarios: [&ScenarioResults; 2]) -> Vec<Verdict> {
    let [before, after] = [0, 1].map(|set| claims::rows(results[set], scenarios[set]));
    let mut changed = Vec::new();
    for new in after {
        let same =
            |old: &&claims::Row| (&old.metric, &old.published) == (&new.metric, &new.published);
        let Some(old) = before.iter().find(same) else {
            continue;
        };
        let forms = old.as_published.as_ref().zip(new.as_published.as_ref());
        let ours = Some((&old.ours, &new.ours));
        for (against, both) in [("published forms", forms), ("ours", ours)] {
            if let Some((old, new_verdict)) = both.filter(|(old, new)| old.outcome != new.outcome) {
                changed.push(Verdict {
                    published: format!("{}: {}", new.metric, new.published),
                    against,
                    outcomes: [old.outcome, new_verdict.outcome],
                    found: [old.found.clone(), new_verdict.found.clone()],
                });
            }
        }
    }
    changed
}
