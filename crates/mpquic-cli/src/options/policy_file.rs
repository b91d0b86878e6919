//! `--policy FILE`: scheduler and controller, as `mpquic advise` writes them.

use std::str::FromStr;
use std::sync::Arc;

use mpquic_core::congestion::ControllerFactory;
use mpquic_core::sched::SchedulerFactory;
use serde::Deserialize;

/// The content of a policy file.
#[derive(Debug, Clone)]
pub(crate) struct PolicyFile {
    pub(crate) scheduler: Arc<dyn SchedulerFactory>,
    pub(crate) controller: Arc<dyn ControllerFactory>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    scheduler: String,
    cc: String,
}

impl FromStr for PolicyFile {
    type Err = String;

    fn from_str(file: &str) -> Result<Self, String> {
        let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
        let content: Content = toml::from_str(&text).map_err(|error| {
            let problem = error.message();
            format!("{problem}; expected `scheduler` and `cc`, as `mpquic advise -o` writes them")
        })?;
        let scheduler =
            mpquic_sched::by_name(&content.scheduler).map_err(|error| error.to_string())?;
        let controller = mpquic_cc::by_name(&content.cc).map_err(|error| error.to_string())?;
        Ok(Self {
            scheduler,
            controller,
        })
    }
}
