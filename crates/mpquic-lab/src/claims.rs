//! What was published, and what was found here, in words.

use mpquic_sim::experiment::{ScenarioResults, Verdict, is_lower_better};
use mpquic_sim::scenario::{Claim, Published};

use super::table::short;

/// A published claim beside our finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) metric: String,
    pub(super) published: String,
    pub(super) ours: String,
}

/// All claims of a scenario; over all combinations of swept values.
pub(super) fn rows(results: &ScenarioResults) -> Vec<Row> {
    results
        .published
        .iter()
        .map(|published| row(results, published))
        .collect()
}

fn row(results: &ScenarioResults, published: &Published) -> Row {
    let sign = if is_lower_better(&published.metric) {
        " < "
    } else {
        " > "
    };
    let claimed = match &published.claim {
        Claim::Words => String::new(),
        Claim::Value { contender, value } => format!("{contender} {}", short(*value)),
        Claim::Ratio {
            contender,
            against,
            ratio,
        } => format!("{contender}/{against} {ratio:.3}"),
        Claim::Better {
            contender,
            against,
            share,
        } => format!(
            "{contender} better than {against} in {:.0} %",
            share * 100.0
        ),
        Claim::Order(names) => names.join(sign),
    };
    let parts = [claimed.as_str(), published.text.as_str()];
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    Row {
        metric: published.metric.clone(),
        published: parts.collect::<Vec<_>>().join("; "),
        ours: ours(results, published),
    }
}

fn ours(results: &ScenarioResults, published: &Published) -> String {
    let verdicts = (0..results.sweeps.len()).map(|sweep| results.verdict(published, sweep));
    let verdicts: Vec<_> = verdicts.collect();
    let values = verdicts.iter().filter_map(|verdict| match verdict {
        Verdict::Ours(value) => Some(*value),
        Verdict::Unknown | Verdict::Order(_) => None,
    });
    let values: Vec<f64> = values.collect();
    if !values.is_empty() {
        let scale = |value: f64| match published.claim {
            Claim::Better { .. } => format!("{:.0} %", value * 100.0),
            Claim::Ratio { .. } => format!("{value:.3}"),
            _ => short(value),
        };
        let mean = scale(values.iter().sum::<f64>() / values.len() as f64);
        if values.len() == 1 {
            return mean;
        }
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        return format!("{mean} ({} to {})", scale(least), scale(most));
    }
    order(published, &verdicts)
}

fn order(published: &Published, verdicts: &[Verdict]) -> String {
    let Claim::Order(claimed) = &published.claim else {
        let words = published.claim == Claim::Words;
        return if words { "see the figures" } else { "not run" }.into();
    };
    let orders = verdicts.iter().filter_map(|verdict| match verdict {
        Verdict::Order(order) => Some(order),
        Verdict::Unknown | Verdict::Ours(_) => None,
    });
    let orders: Vec<Vec<&str>> = orders
        .map(|order| order.iter().map(|(name, _)| name.as_str()).collect())
        .collect();
    let sign = if is_lower_better(&published.metric) {
        " < "
    } else {
        " > "
    };
    match orders.as_slice() {
        [] => "not run".into(),
        [order] => order.join(sign),
        orders => {
            let same = |order: &&Vec<&str>| {
                let run = claimed.iter().filter(|name| order.contains(&name.as_str()));
                run.eq(order.iter())
            };
            let first =
                |order: &&Vec<&str>| order.first() == claimed.first().map(String::as_str).as_ref();
            let best = claimed.first().map_or("", |name| name);
            format!(
                "the same order in {} of {}, {best} first in {}",
                orders.iter().filter(same).count(),
                orders.len(),
                orders.iter().filter(first).count()
            )
        }
    }
}
