//! [`Policies`]: schedulers and congestion controllers by name.

use std::sync::Arc;

use mpquic_core::congestion::{self, Controller, ControllerFactory};
use mpquic_core::sched::{self, Scheduler, SchedulerFactory};
use thiserror::Error;

/// The schedulers and controllers that experiments may name: those of `mpquic-sched` and
/// `mpquic-cc`, and added ones.
///
/// ```
/// use mpquic_sim::Policies;
///
/// let policies = Policies::built_in()
///     .with_scheduler("turns", || Box::new(mpquic_sched::RoundRobin::default()));
/// assert!(policies.scheduler("turns+deadline").is_ok());
/// assert!(policies.scheduler("lrf").is_ok());
/// assert!(policies.scheduler("tunrs").unwrap_err().to_string().contains("turns"));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Policies {
    schedulers: Vec<(&'static str, Arc<dyn SchedulerFactory>)>,
    controllers: Vec<(&'static str, Arc<dyn ControllerFactory>)>,
}

/// No policy has the requested name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{known}{}{}", if added.is_empty() { "" } else { "; added: " }, added.join(", "))]
pub struct UnknownPolicy {
    /// A message with the unknown name and all built-in names.
    known: String,
    added: Vec<&'static str>,
}

/// Added policies are compared by their names.
impl PartialEq for Policies {
    fn eq(&self, other: &Self) -> bool {
        names(&self.schedulers).eq(names(&other.schedulers))
            && names(&self.controllers).eq(names(&other.controllers))
    }
}

fn names<T>(added: &[(&'static str, T)]) -> impl Iterator<Item = &'static str> {
    added.iter().map(|(name, _)| *name)
}

/// Finds a policy by name; among equal names, the one added last.
fn find<'a, T>(added: &'a [(&'static str, T)], name: &str) -> Option<&'a T> {
    let found = added.iter().rfind(|(other, _)| *other == name);
    found.map(|(_, factory)| factory)
}

impl Policies {
    /// The policies that come with mpquic.
    pub fn built_in() -> Self {
        Self::default()
    }

    /// Adds a scheduler. Each side of each connection calls `make` once. The scheduler replaces a
    /// built-in scheduler with the same name. Names consist of letters, digits and `-`.
    #[must_use]
    pub fn with_scheduler<F>(mut self, name: &'static str, make: F) -> Self
    where
        F: Fn() -> Box<dyn Scheduler> + Send + Sync + 'static,
    {
        self.schedulers.push((name, sched::factory(name, make)));
        self
    }

    /// Adds a controller, as [`Self::with_scheduler`] adds a scheduler.
    #[must_use]
    pub fn with_controller<F>(mut self, name: &'static str, make: F) -> Self
    where
        F: Fn() -> Box<dyn Controller> + Send + Sync + 'static,
    {
        let factory = congestion::factory(name, make);
        self.controllers.push((name, factory));
        self
    }

    /// The single-path controller for comparisons: the algorithm that `controller` couples, or the
    /// controller itself.
    pub fn single_path<'a>(&self, controller: &'a str) -> &'a str {
        let built_in = || {
            mpquic_cc::list()
                .iter()
                .find(|info| info.name == controller)
        };
        match find(&self.controllers, controller) {
            Some(_) => controller,
            None => built_in().map_or(controller, |info| info.single_path),
        }
    }

    /// The scheduler with this name. Names of re-injection policies may follow, as in
    /// [`mpquic_sched::by_name`].
    ///
    /// # Errors
    ///
    /// [`UnknownPolicy`] if no scheduler has this name. The message lists all names.
    pub fn scheduler(&self, name: &str) -> Result<Arc<dyn SchedulerFactory>, UnknownPolicy> {
        let mut parts = name.split('+');
        let added = parts.next().and_then(|first| find(&self.schedulers, first));
        let added = added.cloned();
        match added.and_then(|factory| mpquic_sched::with_reinjections(factory, parts)) {
            Some(factory) => Ok(factory),
            // This error also lists the re-injection policies.
            None => mpquic_sched::by_name(name).map_err(|error| UnknownPolicy {
                known: error.to_string(),
                added: names(&self.schedulers).collect(),
            }),
        }
    }

    /// The controller with this name.
    ///
    /// # Errors
    ///
    /// [`UnknownPolicy`] if no controller has this name. The message lists all names.
    pub fn controller(&self, name: &str) -> Result<Arc<dyn ControllerFactory>, UnknownPolicy> {
        if let Some(factory) = find(&self.controllers, name) {
            return Ok(factory.clone());
        }
        mpquic_cc::by_name(name).map_err(|error| UnknownPolicy {
            known: error.to_string(),
            added: names(&self.controllers).collect(),
        })
    }

    /// The names of all schedulers, added schedulers last.
    pub fn scheduler_names(&self) -> Vec<String> {
        let built_in = mpquic_sched::list().iter().map(|info| info.name);
        distinct(built_in.chain(names(&self.schedulers)))
    }

    /// The names of all controllers, added controllers last.
    pub fn controller_names(&self) -> Vec<String> {
        let built_in = mpquic_cc::list().iter().map(|info| info.name);
        distinct(built_in.chain(names(&self.controllers)))
    }
}

fn distinct(names: impl Iterator<Item = &'static str>) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::new();
    for name in names {
        if !distinct.iter().any(|other| other == name) {
            distinct.push(name.into());
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_policies_replace_built_in_ones() {
        let policies = Policies::built_in()
            .with_scheduler("own", || Box::new(mpquic_sched::Redundant))
            .with_scheduler("lrf", || Box::new(mpquic_sched::RoundRobin::default()))
            .with_controller("mine", || Box::new(mpquic_cc::Lia::default()));
        let scheduler = |name| policies.scheduler(name).unwrap().build().name();
        assert_eq!(scheduler("own"), "redundant");
        assert_eq!(scheduler("own+deadline"), "redundant");
        assert_eq!(scheduler("lrf"), "round-robin");
        assert_eq!(scheduler("etc"), "etc");
        assert_eq!(policies.controller("mine").unwrap().build().name(), "lia");
        assert_eq!(policies.controller("olia").unwrap().build().name(), "olia");
        let all = policies.scheduler_names();
        assert_eq!(all.len(), mpquic_sched::list().len() + 1);
        assert_eq!(all.last().map(String::as_str), Some("own"));
        assert_eq!(
            policies.controller_names().len(),
            mpquic_cc::list().len() + 1
        );
    }

    #[test]
    fn error_for_an_unknown_name_lists_all_names() {
        let policies =
            Policies::built_in().with_scheduler("own", || Box::new(mpquic_sched::Redundant));
        for (name, expected) in [("won", "own"), ("won", "lrf"), ("own+always", "deadline")] {
            let error = policies.scheduler(name).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains(name), "{error}");
        }
        let error = policies.controller("won").unwrap_err().to_string();
        assert!(error.contains("olia") && !error.contains("own"), "{error}");
    }

    #[test]
    fn policies_are_compared_by_added_names() {
        let built_in = Policies::built_in;
        let scheduler =
            |name| built_in().with_scheduler(name, || Box::new(mpquic_sched::Redundant));
        let controller =
            |name| built_in().with_controller(name, || Box::new(mpquic_cc::Lia::default()));
        assert_eq!(built_in(), built_in());
        assert_eq!(scheduler("a"), scheduler("a"));
        assert_eq!(controller("a"), controller("a"));
        assert_ne!(scheduler("a"), scheduler("b"));
        assert_ne!(controller("a"), controller("b"));
        assert_ne!(scheduler("a"), controller("a"));
        assert_ne!(scheduler("a"), built_in());
        // The last policy of a name counts; an added controller couples no other algorithm.
        let twice =
            scheduler("a").with_scheduler("a", || Box::new(mpquic_sched::RoundRobin::default()));
        assert_eq!(twice.scheduler("a").unwrap().build().name(), "round-robin");
        let coupled = mpquic_cc::list()
            .iter()
            .find(|info| info.single_path != info.name)
            .unwrap();
        assert_eq!(built_in().single_path(coupled.name), coupled.single_path);
        assert_eq!(
            controller(coupled.name).single_path(coupled.name),
            coupled.name
        );
        assert_eq!(built_in().single_path("unknown"), "unknown");
    }
}
