//! [`Informed`]: a scheduler that knows rates and round trips of the paths beforehand.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mpquic_core::sched::{
    Decision, Needs, PathView, Scheduler, SchedulerEvent, SchedulerFactory, View,
};

/// A scheduler that sees the true rate of a path, unless a measured rate is higher, and the
/// propagation delay of a path as its smoothed round trip. Some publications give true rates and
/// round trips to their algorithms, so a repetition of their results needs the same knowledge.
#[derive(Debug)]
pub(super) struct Informed {
    inner: Box<dyn Scheduler>,
    /// By path ID. Path IDs follow the order in which the contender uses its paths.
    known: Arc<[Known]>,
    paths: Vec<PathView>,
}

/// What a scheduler knows about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Known {
    /// Bytes per second.
    pub(super) rate: Option<u64>,
    /// The time of both ways without queues.
    pub(super) round_trip: Option<Duration>,
}

#[derive(Debug)]
struct Factory {
    inner: Arc<dyn SchedulerFactory>,
    known: Arc<[Known]>,
}

impl SchedulerFactory for Factory {
    fn build(&self) -> Box<dyn Scheduler> {
        Box::new(Informed {
            inner: self.inner.build(),
            known: self.known.clone(),
            paths: Vec::new(),
        })
    }
}

impl Informed {
    /// Gives the schedulers of a factory this knowledge, by path ID.
    pub(super) fn factory(
        inner: Arc<dyn SchedulerFactory>,
        known: Vec<Known>,
    ) -> Arc<dyn SchedulerFactory> {
        let known = known.into();
        Arc::new(Factory { inner, known })
    }

    /// The inner scheduler, and the view with the knowledge. [`Self::paths`] holds the changed paths of
    /// the view.
    fn inform<'a>(&'a mut self, view: &View<'a>) -> (&'a mut dyn Scheduler, View<'a>) {
        self.paths.clear();
        self.paths.extend_from_slice(view.paths);
        for path in &mut self.paths {
            let known = self.known.get(path.id.0 as usize);
            let known = known.copied().unwrap_or_default();
            path.delivery_rate = path.delivery_rate.max(known.rate);
            path.rtt.smoothed = known.round_trip.unwrap_or(path.rtt.smoothed);
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

    /// Looks at the views of the paths.
    #[derive(Debug)]
    struct Watcher(std::sync::mpsc::Sender<Vec<PathView>>);

    impl Scheduler for Watcher {
        fn select(&mut self, view: &View<'_>) -> Decision {
            self.0.send(view.paths.to_vec()).unwrap();
            Decision::Blocked
        }

        fn name(&self) -> &'static str {
            "watcher"
        }
    }

    #[test]
    fn known_rates_and_round_trips_appear_in_the_view() {
        let ms = Duration::from_millis;
        let (sender, receiver) = std::sync::mpsc::channel();
        let inner =
            mpquic_core::sched::factory("watcher", move || Box::new(Watcher(sender.clone())));
        let known = |rate, round_trip| Known { rate, round_trip };
        let known = vec![known(Some(1_000), Some(ms(30))), known(Some(2_500), None)];
        let mut informed = Informed::factory(inner, known).build();
        assert_eq!(informed.name(), "watcher");
        let paths = [0, 1, 2].map(|id| {
            let mut path = PathView::new(mpquic_core::PathId(id));
            path.delivery_rate = Some(2_000);
            path.rtt = mpquic_core::congestion::RttSnapshot::new(ms(80));
            path
        });
        let controller = mpquic_cc::default().build();
        #[expect(clippy::disallowed_methods, reason = "any instant will do")]
        informed.select(&View::new(Instant::now(), &paths, controller.as_ref()));
        let seen = receiver.recv().unwrap().into_iter();
        let seen = seen.map(|path| (path.delivery_rate.unwrap(), path.rtt.smoothed));
        let expected = [(2_000, ms(30)), (2_500, ms(80)), (2_000, ms(80))];
        assert_eq!(seen.collect::<Vec<_>>(), expected);
    }
}
