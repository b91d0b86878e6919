//! Published results of the experiment that a scenario repeats.

use serde::{Deserialize, Serialize};

use super::contender::{Contender, named};
use super::number::Limits;
use super::reader::{Item, Result, Table};
use super::theirs::{Theirs, read_theirs};

/// A published result of the experiment that a scenario repeats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// The result in words.
    pub text: String,
    /// The metric of the result; empty for the scenario's own metric.
    pub metric: String,
    /// The only swept value that the result covers, as `workload.size_mb=100`; empty for a result
    /// about all swept values.
    pub at: String,
    /// Why the result of our forms differs; empty for a result that agrees.
    pub reason: String,
    /// Why the result of the published forms differs; empty for a result that agrees.
    #[serde(default)]
    pub reason_forms: String,
    /// The authors' own figure; `None` if it is unknown, or equal to the number of the claim.
    #[serde(default)]
    pub theirs: Option<Theirs>,
    /// The result in numbers that can be compared with ours.
    pub claim: Claim,
}

/// A published result in numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Claim {
    /// The publication gives no number to compare with.
    Words,
    /// The value of a metric for one contender.
    Value {
        /// The contender.
        contender: String,
        /// The value.
        value: f64,
        /// The value is a bound: the claim is confirmed by this value and by any better one.
        #[serde(default)]
        or_better: bool,
    },
    /// The ratio of two contenders' medians.
    Ratio {
        /// The contender whose median is divided.
        contender: String,
        /// The contender whose median is the divisor.
        against: String,
        /// The ratio.
        ratio: f64,
        /// The ratio is a bound: a better ratio confirms the claim, too.
        or_better: bool,
        /// The ratio is that of the best combination of swept values, as in "up to 35 %", not the
        /// mean of all combinations.
        #[serde(default)]
        best: bool,
    },
    /// The ratio of a contender's median here to its median in another scenario.
    Change {
        /// The contender.
        contender: String,
        /// The other scenario.
        scenario: String,
        /// The ratio.
        ratio: f64,
    },
    /// Contenders from the best to the worst, in groups. The order within a group is not claimed.
    Order(Vec<Vec<String>>),
    /// None of these contenders differs much from the others.
    Equal(Vec<String>),
    /// A contender is better than another in at least this share of runs.
    Better {
        /// The better contender.
        contender: String,
        /// The other contender.
        against: String,
        /// The share, 0 to 1.
        share: f64,
        /// The margin of the better contender. If less is better, a margin of 0.2 asks the other
        /// contender's value to be at least 1.2 times the better contender's value. If more is
        /// better, the better contender's value has to be at least 1.2 times the other's.
        by: f64,
    },
}

impl Published {
    /// The same claim about the published forms of its contenders
    /// ([`Scenario::as_published`](super::Scenario::as_published)). `None` if no contender of the
    /// claim has a published form.
    pub fn of_published(&self, forms: &[(String, String)]) -> Option<Self> {
        let claim = self.claim.renamed(|name| {
            let form = forms.iter().find(|(ours, _)| ours == name);
            form.map_or(name, |(_, published)| published).to_owned()
        });
        (claim != self.claim).then(|| Self {
            claim,
            ..self.clone()
        })
    }
}

impl Claim {
    /// The contenders that the claim names.
    pub fn contenders(&self) -> Vec<&str> {
        match self {
            Self::Words => Vec::new(),
            Self::Value { contender, .. } | Self::Change { contender, .. } => vec![contender],
            Self::Ratio {
                contender, against, ..
            }
            | Self::Better {
                contender, against, ..
            } => vec![contender, against],
            Self::Order(groups) => groups.iter().flatten().map(String::as_str).collect(),
            Self::Equal(names) => names.iter().map(String::as_str).collect(),
        }
    }

    fn renamed(&self, name: impl Fn(&str) -> String) -> Self {
        let all = |names: &[String]| names.iter().map(|n| name(n)).collect::<Vec<_>>();
        let mut claim = self.clone();
        match &mut claim {
            Self::Words => {}
            Self::Value { contender, .. } | Self::Change { contender, .. } => {
                *contender = name(contender);
            }
            Self::Ratio {
                contender, against, ..
            }
            | Self::Better {
                contender, against, ..
            } => {
                *contender = name(contender);
                *against = name(against);
            }
            Self::Order(groups) => groups.iter_mut().for_each(|group| *group = all(group)),
            Self::Equal(names) => *names = all(names),
        }
        claim
    }
}

/// Reads `as_published`: pairs of contenders.
pub(super) fn read_forms(
    root: &Table<'_>,
    contenders: &[Contender],
) -> Result<Vec<(String, String)>> {
    let Some(item) = root.optional("as_published") else {
        return Ok(Vec::new());
    };
    let pair = |item: &Item<'_>| -> Result<(String, String)> {
        match item.items()?.as_slice() {
            [ours, published] => Ok((named(ours, contenders)?, named(published, contenders)?)),
            _ => Err(item.error("two contenders are needed: ours and the published form of it")),
        }
    };
    item.items()?.iter().map(pair).collect()
}

fn read_order(item: &Item<'_>, contenders: &[Contender]) -> Result<Vec<Vec<String>>> {
    let group = |item: &Item<'_>| -> Result<Vec<String>> {
        let names = item.texts()?;
        let names = names.iter().map(|(item, _)| named(item, contenders));
        names.collect()
    };
    let groups: Result<Vec<_>> = item.items()?.iter().map(group).collect();
    let groups = groups?;
    if groups.len() < 2 {
        return Err(item.error("an order needs at least two entries"));
    }
    Ok(groups)
}

fn read_claim(table: &Table<'_>, contenders: &[Contender]) -> Result<Claim> {
    let keys = ["order", "equal", "ratio", "better_pct", "value"];
    let name = |key| named(&table.required(key)?, contenders);
    let flag = |key| {
        let item = table.optional(key);
        item.map_or(Ok(false), |item| item.boolean())
    };
    let Some((kind, item)) = table.one_of(&keys)? else {
        return Ok(Claim::Words);
    };
    Ok(match kind {
        0 => Claim::Order(read_order(&item, contenders)?),
        1 => {
            let names = item.texts()?;
            let names = names.iter().map(|(item, _)| named(item, contenders));
            Claim::Equal(names.collect::<Result<_>>()?)
        }
        2 => {
            let ratio = item.fixed(Limits::new(1e-6, 1e6, ""))?;
            let who = name("contender")?;
            match table.optional("scenario") {
                Some(item) => Claim::Change {
                    contender: who,
                    scenario: item.text()?.into(),
                    ratio,
                },
                None => Claim::Ratio {
                    contender: who,
                    against: name("against")?,
                    ratio,
                    or_better: flag("or_better")?,
                    best: flag("best")?,
                },
            }
        }
        3 => {
            let by = table.optional("by_pct");
            let by = by.map_or(Ok(0.0), |item| item.fixed(Limits::new(0.0, 1e6, "%")))?;
            Claim::Better {
                contender: name("contender")?,
                against: name("against")?,
                share: item.fixed(Limits::new(0.0, 100.0, "%"))? / 100.0,
                by: by / 100.0,
            }
        }
        _ => Claim::Value {
            contender: name("contender")?,
            value: item.fixed(Limits::new(0.0, 1e12, ""))?,
            or_better: flag("or_better")?,
        },
    })
}

/// Reads the list of `[[published]]`.
pub(super) fn read_published(root: &Table<'_>, contenders: &[Contender]) -> Result<Vec<Published>> {
    let Some(item) = root.optional("published") else {
        return Ok(Vec::new());
    };
    let read = |table: Table<'_>| {
        let table = table.named("published");
        let claim = read_claim(&table, contenders)?;
        let text = |key| -> Result<String> {
            let item = table.optional(key);
            Ok(item.map_or(Ok(""), |item| item.text())?.to_owned())
        };
        let published = Published {
            text: text("text")?,
            metric: text("metric")?,
            at: text("at")?,
            reason: text("reason")?,
            reason_forms: text("reason_forms")?,
            theirs: read_theirs(&table, contenders)?,
            claim,
        };
        if published.text.is_empty() && published.claim == Claim::Words {
            let keys = "`text`, `order`, `equal`, `ratio`, `better_pct` or `value` is missing";
            return Err(table.error(keys));
        }
        // Fields that only some kinds of claims read.
        table.also_known(&[
            "contender",
            "against",
            "scenario",
            "by_pct",
            "or_better",
            "best",
        ]);
        table.finish()?;
        Ok(published)
    };
    item.tables()?.into_iter().map(read).collect()
}
