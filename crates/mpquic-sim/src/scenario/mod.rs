//! Scenarios: experiments as TOML files.
//!
//! A file describes the paths, the transfers over them, the compared schedulers and controllers,
//! and the number of repetitions. The `README.md` beside the files in `scenarios/` lists all
//! fields. Links are described as in the files of `tools/netlab`.

mod contender;
mod library;
mod links;
pub(crate) mod metric;
mod model;
mod number;
mod parse;
mod points;
mod published;
mod reader;
#[cfg(test)]
mod tests;
mod theirs;
mod words;
mod workload;

pub use contender::{
    Competitor, Contender, CrossTraffic, Handshake, Migration, UsedPaths, with_controllers,
};
pub use library::{BuiltIn, built_in};
pub(crate) use links::take_over;
pub use links::{LinkPair, LinkSpec};
pub use metric::{default_metric, is_lower_better};
pub use model::{Draw, PathSpec, Scenario, SharedLink, Swap, Transport};
pub use number::{Number, Parameter, Source};
pub use points::{Points, Position};
pub use published::{Claim, Published};
pub use reader::ScenarioError;
pub use theirs::Theirs;
pub use words::Words;
pub use workload::{Kind, Page, PageObject, Size, Workload};
