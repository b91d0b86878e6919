//! [`Shares`]: weights of paths by where they start.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use mpquic_core::{PathId, PathState};

use crate::local::{Local, Origin};
use crate::manager::{Action, Event, PathManager, PathManagerFactory, Start, factory};
use crate::view::View;

/// The weight of paths without a share.
const REST: f64 = 1.0;

/// The weight of the paths from a local address or interface. Paths without a share have the weight
/// 1.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Share {
    /// Where the paths start.
    pub from: Origin,
    /// Their weight. Only the ratio of weights counts.
    pub weight: f64,
}

impl Share {
    /// Paths from there have this weight.
    pub fn new(from: Origin, weight: f64) -> Self {
        Self { from, weight }
    }
}

/// Wraps another path manager, and gives each path a weight by its local address. A scheduler has
/// to follow the weights: `SplitRatio` of `mpquic-sched` takes them by `SplitWeights::set`.
pub struct Shares {
    inner: Box<dyn PathManager>,
    shares: Vec<Share>,
    locals: Vec<Local>,
    set: Set,
    /// The handshake is complete. An earlier connection may lose against a parallel attempt, so its
    /// weights are not set.
    is_connected: bool,
    /// Paths have come or gone, or moved.
    has_news: bool,
}

type Set = Box<dyn FnMut(&[(PathId, f64)]) + Send>;

impl Shares {
    /// Gives shares to the paths of `inner`; the first share that fits a path counts. `set`
    /// receives the weights of all paths when the handshake is complete, and after each change of
    /// the paths.
    pub fn new(
        inner: &dyn PathManagerFactory,
        shares: Vec<Share>,
        set: impl FnMut(&[(PathId, f64)]) + Send + 'static,
        start: &Start,
    ) -> Self {
        Self {
            inner: inner.build(start),
            shares,
            locals: start.locals.to_vec(),
            set: Box::new(set),
            is_connected: false,
            has_news: true,
        }
    }

    /// A factory that makes a [`Shares`] for each connection.
    pub fn factory(
        inner: Arc<dyn PathManagerFactory>,
        shares: Vec<Share>,
        set: impl Fn(&[(PathId, f64)]) + Clone + Send + Sync + 'static,
    ) -> Arc<dyn PathManagerFactory> {
        factory("shares", move |start| {
            Box::new(Self::new(&*inner, shares.clone(), set.clone(), start))
        })
    }

    /// The weights of all paths.
    fn weights(&self, view: &View<'_>) -> Vec<(PathId, f64)> {
        let paths = view.paths();
        let open = paths.filter(|path| path.state != PathState::Abandoned);
        let weights = open.map(|path| {
            let owner = Local::owner(&self.locals, path.four_tuple.local);
            let share = self.shares.iter().find(|share| share.from.is(&owner));
            (path.id, share.map_or(REST, |share| share.weight))
        });
        weights.collect()
    }
}

impl fmt::Debug for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shares")
            .field("inner", &self.inner)
            .field("shares", &self.shares)
            .finish_non_exhaustive()
    }
}

impl PathManager for Shares {
    fn on_event(&mut self, event: &Event<'_>, view: &View<'_>) {
        match event {
            Event::Connected => self.is_connected = true,
            Event::Locals(locals) => self.locals = locals.to_vec(),
            _ => {}
        }
        self.has_news = true;
        self.inner.on_event(event, view);
    }

    fn poll(&mut self, view: &View<'_>) -> Option<Action> {
        let action = self.inner.poll(view);
        if action.is_none() && self.is_connected && std::mem::take(&mut self.has_news) {
            let weights = self.weights(view);
            (self.set)(&weights);
        }
        action
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.inner.next_timeout()
    }

    fn may_use(&self, local: &Local) -> bool {
        self.inner.may_use(local)
    }

    fn name(&self) -> &'static str {
        "shares"
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use mpquic_core::{FourTuple, PathEvent, PathStats};

    use super::*;
    use crate::testing::epoch;

    #[test]
    fn each_path_has_the_weight_of_its_local_address() {
        let [first, second] = ["192.0.2.1:5", "192.0.2.2:5"].map(|text| text.parse().expect("one"));
        let remote = "203.0.113.1:443".parse().expect("one");
        let path = |id, local| PathStats::new(PathId(id), FourTuple::new(local, remote));
        let locals = [Local::new(first), Local::new(second).on("wwan0")];
        let start = Start::new(path(0, first).four_tuple, locals);
        let modem = Origin::Interface("wwan0".to_owned());
        let shares = vec![Share::new(modem.clone(), 7.0), Share::new(modem, 9.0)];
        let (set, told) = mpsc::channel();
        let set = move |weights: &[(PathId, f64)]| set.send(weights.to_vec()).expect("a receiver");
        let mut manager = Shares::new(&*crate::default(), shares, set, &start);
        let mut connection = crate::Snapshot::default();
        connection.paths.push(path(0, first).into());
        let view = View::of_snapshot(&connection, epoch());
        assert_eq!(manager.poll(&view), None);
        assert!(told.try_recv().is_err(), "one of several attempts");
        manager.on_event(&Event::Connected, &view);
        assert_eq!(manager.poll(&view), None);
        assert_eq!(told.try_recv(), Ok(vec![(PathId(0), 1.0)]));
        manager.poll(&View::of_snapshot(&connection, epoch()));
        assert!(told.try_recv().is_err(), "nothing has changed");
        connection.paths.push(path(1, second).into());
        let view = View::of_snapshot(&connection, epoch());
        manager.on_event(&Event::Path(&PathEvent::Established(PathId(1))), &view);
        manager.poll(&view);
        assert_eq!(
            told.try_recv(),
            Ok(vec![(PathId(0), 1.0), (PathId(1), 7.0)])
        );
    }
}
