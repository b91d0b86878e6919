//! The authors' own figures, beside their claims.

use serde::{Deserialize, Serialize};

use super::contender::{Contender, named};
use super::number::Limits;
use super::reader::{Item, Result, Table};

const ANY: Limits = Limits::new(0.0, 1e12, "");

/// A figure of the authors for a claim: read off a plot, or stated in the text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Theirs {
    /// The authors' medians, in the unit of the claim's metric, by contender.
    pub medians: Vec<(String, f64)>,
    /// The authors' number for the claim itself: a ratio, or a share from 0 to 1.
    pub number: Option<f64>,
    /// How far a number may be from the authors' own, in the unit of the number, because a plot has
    /// pixels. 0 for a stated number.
    pub error: f64,
    /// The figure, page or file with the numbers.
    pub source: String,
}

impl Theirs {
    fn read(table: &Table<'_>, contenders: &[Contender]) -> Result<Self> {
        let pair = |item: &Item<'_>| -> Result<(String, f64)> {
            match item.items()?.as_slice() {
                [name, median] => Ok((named(name, contenders)?, median.fixed(ANY)?)),
                _ => Err(item.error("a contender and its median are needed")),
            }
        };
        let medians = table.optional("medians");
        let medians = medians.map_or(Ok(Vec::new()), |item| {
            item.items()?.iter().map(pair).collect()
        })?;
        let number = table.one_of(&["ratio", "share_pct"])?;
        let scale = match number {
            Some((1, _)) => 0.01,
            _ => 1.0,
        };
        let number = number.map(|(_, item)| item.fixed(ANY)).transpose()?;
        let error = table.optional("error");
        let error = error.map_or(Ok(0.0), |item| item.fixed(ANY))?;
        Ok(Self {
            medians,
            number: number.map(|number| number * scale),
            error: error * scale,
            source: table.required("source")?.text()?.to_owned(),
        })
    }
}

/// Reads `theirs` of a claim.
pub(super) fn read_theirs(claim: &Table<'_>, contenders: &[Contender]) -> Result<Option<Theirs>> {
    let Some(item) = claim.optional("theirs") else {
        return Ok(None);
    };
    let table = item.table()?;
    let theirs = Theirs::read(&table, contenders)?;
    table.finish()?;
    Ok(Some(theirs))
}
