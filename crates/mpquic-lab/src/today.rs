//! Today's claims about results.

use mpquic_sim::experiment::{Results, default_metric};
use mpquic_sim::scenario::Scenario;

use crate::select;

/// Replaces the claims in results of built-in scenarios by those of this version: claims, reasons and
/// figures of authors change without new runs. A scenario with another network, transfer or list of
/// contenders keeps its claims.
pub(super) fn update(results: &mut Results) {
    for scenario in &mut results.scenarios {
        let Some(today) = today(&scenario.id) else {
            continue;
        };
        let contenders = today.contenders.iter().map(|contender| &contender.name);
        if today.words() != scenario.words || !contenders.eq(&scenario.contenders) {
            continue;
        }
        let metric = today.metric.clone();
        let metric = metric.unwrap_or_else(|| default_metric(&today.workload.kind));
        scenario.published = today.published;
        for claim in &mut scenario.published {
            if claim.metric.is_empty() {
                claim.metric.clone_from(&metric);
            }
        }
        scenario.title = today.title;
        scenario.figure = today.figure;
        scenario.as_published = today.as_published;
        scenario.variant_of = today.variant_of.unwrap_or_default();
    }
}

/// The built-in scenario of this name.
fn today(id: &str) -> Option<Scenario> {
    let file = select::built_in(id).ok()?;
    Scenario::parse(file.id, file.text).ok()
}
