//! The names of metrics. The suffix of a name is the metric's unit.

use super::model::Scenario;
use super::points::Points;
use super::reader::{Result, Table};
use super::workload::{Kind, PageObject};

pub(crate) const COMPLETION: &str = "completion_s";
pub(crate) const GOODPUT: &str = "goodput_mbit";
pub(crate) const FLOW: &str = "flow_s";
pub(crate) const FLOW_MAX: &str = "flow_max_s";
pub(crate) const PAGE: &str = "page_s";
pub(crate) const THROUGHPUT: &str = "throughput_mbit";
pub(crate) const BITRATE: &str = "bitrate_mbit";
pub(crate) const STALL: &str = "stall_s";
pub(crate) const HANDSHAKE: &str = "handshake_s";
pub(crate) const LOSS: &str = "loss_pct";
pub(crate) const DELAY: &str = "delay_ms";
pub(crate) const OVERHEAD: &str = "overhead_pct";
pub(crate) const JAIN: &str = "jain_index";
pub(crate) const TIMES_COMPETITOR: &str = "times_competitor";
pub(crate) const WINDOW_GAP: &str = "window_gap_pct";
pub(crate) const GAP: &str = "gap_s";
pub(crate) const LATE: &str = "late_pct";
/// Percentiles of the times that objects take.
pub(crate) const PERCENTILES: [(&str, f64); 3] = [
    ("object_p50_s", 0.5),
    ("object_p95_s", 0.95),
    ("object_p99_s", 0.99),
];
pub(crate) const CROSSOVER: &str = "crossover_s";
pub(crate) const OVERTAKING: &str = "overtaking_s";

/// The metric of the completion time of a page's objects with this name.
pub(crate) fn stream(name: &str) -> String {
    format!("stream_{name}_s")
}

fn reported(kind: &Kind) -> impl Iterator<Item = &PageObject> {
    let pages = match kind {
        Kind::Page { pages, .. } => pages.as_slice(),
        _ => &[],
    };
    let objects = pages.iter().flat_map(|page| &page.objects);
    objects.filter(|object| object.reported)
}

/// The main metric of a kind of workload.
pub fn default_metric(kind: &Kind) -> String {
    match kind {
        Kind::File { .. } => COMPLETION.into(),
        Kind::Flows { .. } => FLOW.into(),
        Kind::Page { .. } => {
            let first = reported(kind).next();
            first.map_or(PAGE.into(), |object| stream(&object.name))
        }
        Kind::Messages { .. } => "object_p99_s".into(),
        Kind::Constant { .. } | Kind::Bulk { .. } => THROUGHPUT.into(),
        Kind::Video { .. } => BITRATE.into(),
    }
}

/// True if smaller values of a metric are better.
pub fn is_lower_better(metric: &str) -> bool {
    !metric.ends_with("_mbit") && metric != JAIN
}

impl Scenario {
    /// The names of all metrics of the scenario's runs, the default metric first.
    pub fn metrics(&self) -> Vec<String> {
        let kind = &self.workload.kind;
        let of_kind: &[&str] = match kind {
            Kind::File { .. } => &[COMPLETION, GOODPUT],
            Kind::Flows { .. } => &[FLOW, FLOW_MAX, COMPLETION],
            Kind::Page { .. } => &[PAGE],
            Kind::Constant { .. } => &[THROUGHPUT],
            Kind::Bulk { .. } => &[THROUGHPUT, WINDOW_GAP],
            Kind::Messages {
                deadline: Some(_), ..
            } => &[LATE],
            Kind::Messages { deadline: None, .. } => &[],
            Kind::Video { .. } => &[BITRATE, STALL],
        };
        let streams = reported(kind).map(|object| stream(&object.name));
        let mut names: Vec<String> = streams.collect();
        names.extend(of_kind.iter().map(|name| (*name).to_owned()));
        if kind.is_of_objects() {
            names.extend(PERCENTILES.map(|(name, _)| name.to_owned()));
        }
        if !self.competitors.is_empty() {
            names.extend([JAIN, TIMES_COMPETITOR].map(str::to_owned));
        }
        if !self.swaps.is_empty() {
            names.extend([CROSSOVER, OVERTAKING].map(String::from));
        }
        names.extend([GAP, HANDSHAKE, LOSS, DELAY, OVERHEAD].map(str::to_owned));
        names
    }

    /// Refuses metrics that are not measured.
    pub(super) fn check_metrics(&self, root: &Table<'_>) -> Result<()> {
        let names = self.metrics();
        let names: Vec<_> = names.iter().map(|name| (name.as_str(), ())).collect();
        if let Some(item) = root.optional("metric") {
            item.choice(&names)?;
        }
        let Some(item) = root.optional("published") else {
            return Ok(());
        };
        for table in item.tables()? {
            let table = table.named("published");
            if let Some(item) = table.optional("metric") {
                item.choice(&names)?;
            }
            if let Some(item) = table.optional("at") {
                let points = Points::new(self);
                let labels = (0..points.sweeps()).flat_map(|sweep| points.labels(sweep));
                let mut labels: Vec<_> = labels.map(|(name, at)| format!("{name}={at}")).collect();
                labels.dedup();
                let labels: Vec<_> = labels.iter().map(|label| (label.as_str(), ())).collect();
                item.choice(&labels)?;
            }
        }
        Ok(())
    }
}
