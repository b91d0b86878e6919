//! Experiments: all runs of a [`Scenario`](crate::scenario::Scenario), on all cores, and their
//! results.
//!
//! ```
//! use mpquic_sim::experiment::Experiment;
//! use mpquic_sim::scenario::Scenario;
//! let scenario = Scenario::parse("two.toml", r#"
//!     schedulers = ["lrf", "round-robin"]
//!     runs = 3
//!     [workload]
//!     kind = "file"
//!     size_mb = 1
//!     [[path]]
//!     name = "wifi"
//!     rate_mbit = 20
//!     owd_ms = 10
//!     [[path]]
//!     name = "lte"
//!     rate_mbit = 10
//!     owd_ms = "20..40"
//! "#)?;
//! let results = Experiment::new(scenario).run(1, &|| ());
//! assert_eq!(results.runs.len(), 6);
//! # Ok::<(), mpquic_sim::scenario::ScenarioError>(())
//! ```

mod case;
mod chance;
mod csv;
mod failure;
mod feed;
mod informed;
mod interfaces;
mod measure;
mod plan;
mod player;
#[cfg(test)]
mod recorded;
mod resample;
mod results;
mod runs;
mod schedule;
mod stage;
mod statistics;
mod summary;
#[cfg(test)]
mod tests;
mod trace;
mod tunnel;
mod verdict;
mod video;

pub use chance::corrected;
pub use csv::sweep_label;
pub use failure::fail_run;
pub use results::{PathResult, Results, Run, ScenarioResults, State, Trace};
pub use runs::{Experiment, Traces};
pub use schedule::run_all;
pub use statistics::{Statistics, quantile};
pub use summary::{Cell, Comparison, Summary};
pub use verdict::{Edge, Finding, Outcome, TOLERANCE};

pub use crate::scenario::{default_metric, is_lower_better};
