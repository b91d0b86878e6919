//! Tables in Markdown: medians of each contestant, ratios within each round.

use std::fmt::Write;

use compare_peer::Workload;

use crate::contestant::Contestant;
use crate::measure::Sample;
use crate::subject::{Figure, Subject};

/// All rounds of a contestant at one workload.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) contestant: Contestant,
    pub(crate) workload: Workload,
    /// `None` for rounds that failed.
    pub(crate) rounds: Vec<Option<Sample>>,
    /// The reason why the contestant cannot do the workload.
    pub(crate) lacks: Option<String>,
}

impl Row {
    pub(crate) fn new(contestant: Contestant, workload: Workload) -> Self {
        Self {
            contestant,
            workload,
            rounds: Vec::new(),
            lacks: None,
        }
    }

    fn label(&self) -> String {
        let label = self.contestant.label();
        match self.workload.paths() {
            1 => label.to_owned(),
            paths => format!("{label}, {paths} paths"),
        }
    }

    fn figures(&self, figure: &Figure) -> Vec<f64> {
        Vec::from_iter(self.rounds.iter().flatten().map(figure.of))
    }

    fn median(&self, figure: &Figure) -> Option<f64> {
        median(self.figures(figure))
    }

    /// The median of the ratios to another row in the same rounds.
    fn ratio(&self, other: &Self, figure: &Figure) -> Option<f64> {
        let pairs = self.rounds.iter().zip(&other.rounds);
        let ratios = pairs.filter_map(|(own, other)| {
            let (own, other) = (own.as_ref()?, other.as_ref()?);
            Some((figure.of)(own) / (figure.of)(other))
        });
        median(ratios.collect())
    }

    fn remarks(&self) -> String {
        let mut remarks = Vec::new();
        let failed = self.rounds.iter().filter(|round| round.is_none()).count();
        if failed > 0 {
            remarks.push(format!("{failed} of {} rounds failed", self.rounds.len()));
        }
        let last = self.rounds.iter().flatten().last();
        remarks.extend(last.map(|sample| sample.report.remark.clone()));
        remarks.extend(self.lacks.iter().map(|reason| format!("cannot: {reason}")));
        remarks.retain(|remark| !remark.is_empty());
        remarks.join("; ")
    }
}

/// One run, in short.
pub(crate) fn describe(subject: Subject, sample: &Sample) -> String {
    let mut words = Vec::new();
    for Figure {
        name, decimals, of, ..
    } in subject.figures()
    {
        words.push(format!("{:.decimals$} {name}", of(sample)));
    }
    words.push(sample.report.remark.clone());
    words.join(", ")
}

/// A table with all rows. Ratios relate to `reference`; ratios of several paths relate to one path
/// of the same contestant.
pub(crate) fn table(subject: Subject, rows: &[Row], reference: Contestant) -> String {
    let figures = subject.figures();
    let mut table = format!("### {}\n\n| |", subject.title());
    for (index, figure) in figures.iter().enumerate() {
        let _ = write!(table, " {} |", figure.name);
        if index == 0 {
            table.push_str(" range |");
        }
    }
    let to = match subject {
        Subject::Paths => "one path".to_owned(),
        _ => reference.to_string(),
    };
    let _ = write!(table, " ratio to {to} |");
    if figures.len() > 1 {
        table.push_str(" ratio per CPU |");
    }
    table.push_str(" remarks |\n|");
    let columns = figures.len() + if figures.len() > 1 { 5 } else { 4 };
    table.push_str(&" --- |".repeat(columns));
    table.push('\n');
    for row in rows {
        write_row(&mut table, subject, row, rows, reference);
    }
    table.push_str(&verdict(subject, rows));
    table
}

fn write_row(table: &mut String, subject: Subject, row: &Row, rows: &[Row], reference: Contestant) {
    let figures = subject.figures();
    let _ = write!(table, "| {} |", row.label());
    for (index, figure) in figures.iter().enumerate() {
        let _ = write!(table, " {} |", number(row.median(figure), figure.decimals));
        if index == 0 {
            let values = row.figures(figure);
            let low = values.iter().copied().min_by(f64::total_cmp);
            let high = values.iter().copied().max_by(f64::total_cmp);
            let low = number(low, figure.decimals);
            let high = number(high, figure.decimals);
            let to = if low.is_empty() { "" } else { " to " };
            let _ = write!(table, " {low}{to}{high} |");
        }
    }
    let other = rows.iter().find(|other| match subject {
        Subject::Paths => other.contestant == row.contestant,
        _ => other.contestant == reference,
    });
    for figure in [figures.first(), figures.get(3)].into_iter().flatten() {
        let ratio = other.and_then(|other| row.ratio(other, figure));
        let _ = write!(table, " {} |", number(ratio, 2));
    }
    let _ = writeln!(table, " {} |", row.remarks());
}

/// Compares mpquic with the best of the other stacks in each column, and with the limits.
fn verdict(subject: Subject, rows: &[Row]) -> String {
    let mut verdict = String::new();
    let Some(own) = rows.iter().find(|row| row.contestant == Contestant::Mpquic) else {
        return verdict;
    };
    if subject == Subject::Paths {
        return verdict;
    }
    for figure in subject.figures() {
        let others = rows
            .iter()
            .filter(|row| !row.contestant.is_limit() && row.contestant != Contestant::Mpquic);
        let others = others.filter_map(|row| Some((row, row.median(figure)?)));
        let best = others.min_by(|(_, left), (_, right)| {
            if figure.more {
                right.total_cmp(left)
            } else {
                left.total_cmp(right)
            }
        });
        if let Some((best, _)) = best {
            let ratio = number(own.ratio(best, figure), 2);
            let _ = write!(verdict, " {} {ratio} ({});", figure.name, best.contestant);
        }
    }
    let limits = rows
        .iter()
        .filter(|row| matches!(row.contestant, Contestant::UdpRing | Contestant::UdpAwsLc));
    let rate = subject.figures().first();
    for (limit, rate) in limits.filter_map(|row| Some((row, rate?))) {
        let ratio = number(own.ratio(limit, rate), 2);
        let _ = write!(
            verdict,
            " {} {ratio} (limit, {});",
            rate.name, limit.contestant
        );
    }
    match verdict.strip_suffix(';') {
        Some(verdict) => format!("\nmpquic to the best other in each column:{verdict}.\n"),
        None => verdict,
    }
}

fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(String::new, |value| format!("{value:.decimals$}"))
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}
