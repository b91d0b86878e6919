//! Tables in Markdown: medians of each contestant, ratios within each round.

use std::fmt::Write;

use compare_peer::Workload;

use crate::contestant::Contestant;
use crate::measure::Sample;

/// All rounds of a contestant at one workload.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) contestant: Contestant,
    /// `None` for rounds that failed.
    pub(crate) rounds: Vec<Option<Sample>>,
    /// What the contestant lacks for the workload.
    pub(crate) lacks: Option<String>,
}

/// How a workload's figures are expressed.
struct Unit {
    rate: &'static str,
    cost: &'static str,
    capacity: &'static str,
    /// Units of work in one of the rate.
    rate_scale: f64,
    /// Units of work times seconds in one of the cost.
    cost_scale: f64,
    decimals: usize,
}

const BYTES: Unit = Unit {
    rate: "Gbit/s",
    cost: "CPU s/GB",
    capacity: "Gbit/s per CPU",
    rate_scale: 0.125e9,
    cost_scale: 1e-9,
    decimals: 2,
};

const EACH: Unit = Unit {
    rate: "per second",
    cost: "CPU µs",
    capacity: "per CPU second",
    rate_scale: 1.0,
    cost_scale: 1e-6,
    decimals: 0,
};

fn unit(workload: Workload) -> &'static Unit {
    match workload {
        Workload::Requests | Workload::Handshakes | Workload::Resumed | Workload::Datagrams => {
            &EACH
        }
        _ => &BYTES,
    }
}

impl Unit {
    fn rate(&self, sample: &Sample) -> f64 {
        sample.report.count as f64 / sample.report.seconds / self.rate_scale
    }

    fn server(&self, sample: &Sample) -> f64 {
        sample.server_cpu / sample.report.count as f64 / self.cost_scale
    }

    fn client(&self, sample: &Sample) -> f64 {
        sample.report.cpu / sample.report.count as f64 / self.cost_scale
    }

    /// The rate if the busier side had a CPU of its own and was never kept waiting.
    fn capacity(&self, sample: &Sample) -> f64 {
        let busier = sample.server_cpu.max(sample.report.cpu);
        sample.report.count as f64 / busier / self.rate_scale
    }

    /// One run, in short.
    fn describe(&self, sample: &Sample) -> String {
        format!(
            "{:.*} {}, {} of server {:.2}, of client {:.2} {}",
            self.decimals,
            self.rate(sample),
            self.rate,
            self.cost,
            self.server(sample),
            self.client(sample),
            sample.report.remark,
        )
    }
}

fn kib_per_connection(sample: &Sample) -> f64 {
    sample.memory as f64 / 1024.0 / sample.report.count as f64
}

/// One run, in short.
pub(crate) fn describe(workload: Workload, sample: &Sample) -> String {
    match workload {
        Workload::Memory => format!("{:.1} KiB per connection", kib_per_connection(sample)),
        _ => unit(workload).describe(sample),
    }
}

/// The table of a workload. Ratios are to `reference`.
pub(crate) fn table(workload: Workload, rows: &[Row], reference: Contestant) -> String {
    let mut table = format!("### {}\n\n", title(workload));
    if workload == Workload::Memory {
        memory_rows(&mut table, rows, reference);
    } else {
        rate_rows(&mut table, unit(workload), rows, reference);
    }
    table
}

fn title(workload: Workload) -> &'static str {
    match workload {
        Workload::Bulk => "One stream, download",
        Workload::Streams => "Eight streams, download",
        Workload::Requests => "Requests and responses of 1 KiB, 100 at a time",
        Workload::Handshakes => "Full handshakes, 64 at a time",
        Workload::Resumed => "Resumed handshakes, 64 at a time",
        Workload::Memory => "Memory of the server per idle connection",
        Workload::TwoPaths => "One stream over two paths, download",
        Workload::FourPaths => "One stream over four paths, download",
        Workload::Datagrams => "DATAGRAM frames of 1000 bytes received",
        Workload::Upload => "One stream, upload",
    }
}

fn rate_rows(table: &mut String, unit: &Unit, rows: &[Row], reference: Contestant) {
    let Unit {
        rate,
        cost,
        capacity,
        decimals,
        ..
    } = *unit;
    let _ = writeln!(
        table,
        "| | {rate} | range | server {cost} | client {cost} | {capacity} | \
         ratio to {reference} | ratio per CPU | remarks |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    for row in rows {
        let contestant = row.contestant;
        if let Some(reason) = &row.lacks {
            let _ = writeln!(table, "| {contestant} | | | | | | | | lacks it: {reason} |");
            continue;
        }
        let of = |figure: &dyn Fn(&Sample) -> f64| median(row.samples().map(figure).collect());
        let (low, high) = range(row.samples().map(|sample| unit.rate(sample)));
        let _ = writeln!(
            table,
            "| {contestant} | {:.decimals$} | {low:.decimals$} to {high:.decimals$} | {:.2} | {:.2} \
             | {:.decimals$} | {} | {} | {} |",
            of(&|sample| unit.rate(sample)),
            of(&|sample| unit.server(sample)),
            of(&|sample| unit.client(sample)),
            of(&|sample| unit.capacity(sample)),
            ratio(row, rows, reference, &|sample| unit.rate(sample)),
            ratio(row, rows, reference, &|sample| unit.capacity(sample)),
            row.remarks(),
        );
    }
}

fn memory_rows(table: &mut String, rows: &[Row], reference: Contestant) {
    let _ = writeln!(
        table,
        "| | KiB | range | ratio to {reference} | remarks |\n| --- | --- | --- | --- | --- |"
    );
    for row in rows {
        let contestant = row.contestant;
        if let Some(reason) = &row.lacks {
            let _ = writeln!(table, "| {contestant} | | | | lacks it: {reason} |");
            continue;
        }
        let (low, high) = range(row.samples().map(kib_per_connection));
        let _ = writeln!(
            table,
            "| {contestant} | {:.1} | {low:.1} to {high:.1} | {} | {} |",
            median(row.samples().map(kib_per_connection).collect()),
            ratio(row, rows, reference, &kib_per_connection),
            row.remarks(),
        );
    }
}

impl Row {
    fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.rounds.iter().flatten()
    }

    fn remarks(&self) -> String {
        let failed = self.rounds.iter().filter(|round| round.is_none()).count();
        let failed = (failed > 0).then(|| format!("{failed} of {} failed", self.rounds.len()));
        let last = self
            .samples()
            .last()
            .map(|sample| sample.report.remark.clone());
        let last = last.filter(|remark| !remark.is_empty());
        Vec::from_iter(failed.into_iter().chain(last)).join("; ")
    }
}

/// The median of a row's ratios to the reference in the same rounds.
fn ratio(
    row: &Row,
    rows: &[Row],
    reference: Contestant,
    figure: &dyn Fn(&Sample) -> f64,
) -> String {
    if row.contestant == reference {
        return "1".to_owned();
    }
    let Some(other) = rows.iter().find(|row| row.contestant == reference) else {
        return String::new();
    };
    let pairs = row.rounds.iter().zip(&other.rounds);
    let ratios =
        pairs.filter_map(|(own, other)| Some(figure(own.as_ref()?) / figure(other.as_ref()?)));
    format!("{:.2}", median(ratios.collect()))
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(low, high), value| {
        (low.min(value), high.max(value))
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}
