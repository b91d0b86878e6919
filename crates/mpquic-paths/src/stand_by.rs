//! [`StandBy`]: paths from some local addresses are a reserve.

use std::sync::Arc;
use std::time::Instant;

use crate::local::{Local, Origin};
use crate::manager::{Action, Event, PathManager, PathManagerFactory, Start, factory};
use crate::view::View;

/// Wraps another path manager: paths from some local addresses carry data only while no other path
/// works.
#[derive(Debug)]
pub struct StandBy {
    inner: Box<dyn PathManager>,
    origins: Vec<Origin>,
}

impl StandBy {
    /// Makes paths of `inner` from these origins stand by.
    pub fn new(inner: &dyn PathManagerFactory, origins: Vec<Origin>, start: &Start) -> Self {
        let mut start = start.clone();
        start.locals = marked(&origins, &start.locals).into();
        let inner = inner.build(&start);
        Self { inner, origins }
    }

    /// A factory that makes a [`StandBy`] for each connection.
    pub fn factory(
        inner: Arc<dyn PathManagerFactory>,
        origins: Vec<Origin>,
    ) -> Arc<dyn PathManagerFactory> {
        factory("stand-by", move |start| {
            Box::new(Self::new(&*inner, origins.clone(), start))
        })
    }
}

/// The local addresses. Addresses that belong to an origin are marked as backups.
fn marked(origins: &[Origin], locals: &[Local]) -> Vec<Local> {
    Local::mark_backups(locals, |local| {
        origins.iter().any(|origin| origin.is(local))
    })
}

impl PathManager for StandBy {
    fn on_event(&mut self, event: &Event<'_>, view: &View<'_>) {
        match event {
            Event::Locals(locals) => {
                let locals = marked(&self.origins, locals);
                self.inner.on_event(&Event::Locals(&locals), view);
            }
            _ => self.inner.on_event(event, view),
        }
    }

    fn poll(&mut self, view: &View<'_>) -> Option<Action> {
        self.inner.poll(view)
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.inner.next_timeout()
    }

    fn may_use(&self, local: &Local) -> bool {
        self.inner.may_use(local)
    }

    fn name(&self) -> &'static str {
        "stand-by"
    }
}

#[cfg(test)]
mod tests {
    use mpquic_core::{FourTuple, PathEvent, PathStatus};

    use super::*;
    use crate::testing::epoch;
    use crate::{Outcome, Snapshot};

    /// Path 0 starts at the cable. The modem stands by, so its path opens after the path of the
    /// other address.
    #[test]
    fn paths_from_an_origin_open_last_and_as_backups() {
        let [modem, cable, other] = ["192.0.2.1:5", "192.0.2.2:5", "192.0.2.3:5"]
            .map(|text| text.parse().expect("an address"));
        let remote = "203.0.113.1:443".parse().expect("an address");
        let locals = [modem, cable, other].map(Local::new);
        let start = Start::new(FourTuple::new(cable, remote), locals);
        let origin = Origin::Address(std::net::SocketAddr::ip(&modem));
        let factory = StandBy::factory(crate::default(), vec![origin]);
        let mut manager = factory.build(&start);
        let connection = Snapshot::default();
        let view = View::of_snapshot(&connection, epoch());
        manager.on_event(&Event::Connected, &view);
        manager.on_event(&Event::Path(&PathEvent::Available), &view);
        let mut opened = Vec::new();
        while let Some(action) = manager.poll(&view) {
            let Action::Open { four_tuple, status } = action else {
                panic!("{action:?}");
            };
            opened.push((four_tuple.local, status));
            let outcome = Outcome::Opened(mpquic_core::PathId(opened.len() as u32));
            manager.on_event(&Event::Applied(action, outcome), &view);
        }
        let expected = [(other, PathStatus::Available), (modem, PathStatus::Backup)];
        assert_eq!(opened, expected);
        // A later address of the modem stands by as well.
        manager.on_event(&Event::Path(&PathEvent::Available), &view);
        let late: std::net::SocketAddr = "192.0.2.1:6".parse().expect("an address");
        let locals = [cable, other, modem, late].map(Local::new);
        manager.on_event(&Event::Locals(&locals), &view);
        let action = manager.poll(&view);
        let status = PathStatus::Backup;
        let four_tuple = FourTuple::new(late, remote);
        assert_eq!(action, Some(Action::Open { four_tuple, status }));
    }
}
