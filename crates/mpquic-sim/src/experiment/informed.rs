//! [`Informed`]: a scheduler that knows the rates of the paths beforehand.

use std::sync::Arc;
use std::time::Instant;

use mpquic_core::sched::{
    Decision, Needs, PathView, Scheduler, SchedulerEvent, SchedulerFactory, View,
};

/// A scheduler that sees the true rate of a path, unless a measured rate is higher. Some
/// publications give true rates to their algorithms, so a repetition of their results needs the
/// same knowledge.
#[derive(Debug)]
pub(super) struct Informed {
    inner: Box<dyn Scheduler>,
    /// Bytes per second, by path ID. Path IDs follow the order in which the contender uses its
    /// paths.
    rates: Arc<[u64]>,
    paths: Vec<PathView>,
}

#[derive(Debug)]
struct Factory {
    inner: Arc<dyn SchedulerFactory>,
    rates: Arc<[u64]>,
}

impl SchedulerFactory for Factory {
    fn build(&self) -> Box<dyn Scheduler> {
        Box::new(Informed {
            inner: self.inner.build(),
            rates: self.rates.clone(),
            paths: Vec::new(),
        })
    }
}

impl Informed {
    /// Gives the schedulers of a factory these rates, in bit/s, by path ID.
    pub(super) fn factory(
        inner: Arc<dyn SchedulerFactory>,
        rates: Vec<f64>,
    ) -> Arc<dyn SchedulerFactory> {
        let rates = rates.into_iter().map(|rate| (rate / 8.0) as u64).collect();
        Arc::new(Factory { inner, rates })
    }

    /// The inner scheduler, and the view with the rates. [`Self::paths`] holds the changed paths of
    /// the view.
    fn inform<'a>(&'a mut self, view: &View<'a>) -> (&'a mut dyn Scheduler, View<'a>) {
        self.paths.clear();
        self.paths.extend_from_slice(view.paths);
        for path in &mut self.paths {
            let known = self.rates.get(path.id.0 as usize).copied();
            path.delivery_rate = path.delivery_rate.max(known);
        }
        let mut informed = *view;
        informed.paths = &self.paths;
        (self.inner.as_mut(), informed)
    }
}

impl Scheduler for Informed {
    fn select(&mut self, view: &View<'_>) -> Decision {
        let (inner, view) = self.inform(view);
        inner.select(&view)
    }

    fn on_event(&mut self, event: &SchedulerEvent, view: &View<'_>) {
        let (inner, view) = self.inform(view);
        inner.on_event(event, &view);
    }

    fn needs(&self) -> Needs {
        self.inner.needs()
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.inner.next_timeout()
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_appear_as_delivery_rates_in_bytes_per_second() {
        let inner = mpquic_sched::default();
        let name = inner.build().name();
        let factory = Informed::factory(inner, vec![8e6, 20e6, f64::INFINITY]);
        assert_eq!(factory.build().name(), name);
        let informed = format!("{factory:?}");
        let expected = format!("rates: [1000000, 2500000, {}]", u64::MAX);
        assert!(informed.contains(&expected), "{informed}");
    }
}
