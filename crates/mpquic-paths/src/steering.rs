//! [`Steering`]: costs, backups and closed addresses that the application changes while connections
//! run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use mpquic_core::{PathEvent, PathId};

use crate::cost::{Costs, Price};
use crate::local::{Local, Origin};
use crate::manager::{Action, Event, Outcome, PathManager, PathManagerFactory, Start};
use crate::view::View;

/// The cost of a backup beside prices. Prices of applications are lower.
const DEAREST: u32 = u32::MAX;

/// The rules of a [`Steering`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rules {
    /// Costs of paths, as for [`Costs`]; the first price that fits a path counts.
    pub prices: Vec<Price>,
    /// Paths from there carry data only while no other path works.
    pub backups: Vec<Origin>,
    /// No path starts there. Open paths from there close.
    pub closed: Vec<Origin>,
}

impl Rules {
    /// True if paths from `local` stand by.
    fn is_backup(&self, local: &Local) -> bool {
        self.backups.iter().any(|origin| origin.is(local))
    }

    /// True if no path may start at `local`.
    pub fn is_closed(&self, local: &Local) -> bool {
        self.closed.iter().any(|origin| origin.is(local))
    }

    /// The prices for [`Costs`]. A backup is dearer than every other path.
    fn prices(&self) -> Vec<Price> {
        if self.prices.is_empty() {
            return Vec::new();
        }
        let backups = self.backups.iter().cloned();
        let backups = backups.map(|from| Price::new(from, DEAREST));
        backups.chain(self.prices.iter().cloned()).collect()
    }

    /// The addresses at which paths may start, with their marks as backups.
    fn open(&self, locals: &[Local]) -> Vec<Local> {
        let open = locals.iter().filter(|local| !self.is_closed(local));
        open.map(|local| local.clone().with_backup(self.is_backup(local)))
            .collect()
    }
}

#[derive(Debug, Default)]
struct Shared {
    rules: Mutex<Rules>,
    /// Counts the changes of the rules.
    version: AtomicU64,
}

/// A handle on the rules of all connections of its [factory](Self::factory), running ones and later
/// ones. Clones are handles on the same rules.
///
/// A change reaches a running connection at the next turn of the connection's path manager. A
/// driver can give the manager a turn at once: `Connection::review_paths` of `mpquic-tokio`.
///
/// - A closed address is treated as an absent address. Its paths close, and the last path of a
///   connection moves to another address. Without another address the path is suspended, until an
///   address is open again.
/// - Marks of backups come from the rules alone: [`Local::is_backup`] of the driver has no effect.
///
/// ```
/// use mpquic_paths::{Origin, Rules, Steering};
///
/// let steering = Steering::default();
/// let factory = steering.factory(mpquic_paths::default());
/// // Later, while connections of `factory` run:
/// let mut rules = Rules::default();
/// rules.closed.push(Origin::Interface("wwan0".to_owned()));
/// steering.set(rules);
/// # drop(factory);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Steering(Arc<Shared>);

impl Steering {
    /// Replaces the rules.
    pub fn set(&self, rules: Rules) {
        let mut current = self.0.rules.lock().unwrap_or_else(PoisonError::into_inner);
        if *current != rules {
            *current = rules;
            self.0.version.fetch_add(1, Ordering::Release);
        }
    }

    /// The present rules.
    pub fn rules(&self) -> Rules {
        let rules = self.0.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.clone()
    }

    fn version(&self) -> u64 {
        self.0.version.load(Ordering::Acquire)
    }

    /// A factory whose managers follow the rules. Each manager wraps a manager of `inner`.
    pub fn factory(&self, inner: Arc<dyn PathManagerFactory>) -> Arc<dyn PathManagerFactory> {
        Arc::new(Factory {
            steering: self.clone(),
            inner,
        })
    }
}

#[derive(Debug)]
struct Factory {
    steering: Steering,
    inner: Arc<dyn PathManagerFactory>,
}

impl PathManagerFactory for Factory {
    fn build(&self, start: &Start) -> Box<dyn PathManager> {
        // First the version: a change in between is applied twice rather than never.
        let seen = self.steering.version();
        let rules = self.steering.rules();
        let mut inside = start.clone();
        inside.locals = rules.open(&start.locals).into();
        Box::new(Steered {
            costs: Costs::new(&*self.inner, rules.prices(), None, &inside),
            steering: self.steering.clone(),
            seen,
            rules,
            locals: start.locals.to_vec(),
            suspended: Vec::new(),
            resuming: None,
        })
    }

    fn may_start(&self, local: &Local) -> bool {
        !self.steering.rules().is_closed(local) && self.inner.may_start(local)
    }
}

/// The manager of one connection.
#[derive(Debug)]
struct Steered {
    costs: Costs,
    steering: Steering,
    /// The version of `rules`.
    seen: u64,
    rules: Rules,
    /// All local addresses, closed ones included.
    locals: Vec<Local>,
    /// Paths that the inner manager suspended for lack of an open address.
    suspended: Vec<PathId>,
    /// The path of the own [`Action::Resume`] that is being applied.
    resuming: Option<PathId>,
}

impl Steered {
    /// Takes over changed rules.
    fn follow(&mut self, view: &View<'_>) {
        let version = self.steering.version();
        if version == self.seen {
            return;
        }
        self.seen = version;
        self.rules = self.steering.rules();
        self.costs.set_prices(self.rules.prices(), view);
        self.tell_locals(view);
    }

    /// Tells the inner manager the open addresses.
    fn tell_locals(&mut self, view: &View<'_>) {
        let open = self.rules.open(&self.locals);
        self.costs.on_event(&Event::Locals(&open), view);
    }

    /// True if a path may start at the address of this path.
    fn is_open(&self, path: PathId, view: &View<'_>) -> bool {
        let four_tuple = view.path(path).map(|path| path.four_tuple);
        let mut open = self.locals.iter().filter(|of| !self.rules.is_closed(of));
        four_tuple.is_some_and(|tuple| open.any(|of| of.owns(tuple.local)))
    }

    /// Sends again on a suspended path whose address is open again.
    fn resume(&mut self, view: &View<'_>) -> Option<Action> {
        let mut suspended = self.suspended.iter().copied();
        let path = suspended.find(|path| self.is_open(*path, view))?;
        self.resuming = Some(path);
        Some(Action::Resume { path })
    }

    fn on_applied(&mut self, action: Action, outcome: Outcome) {
        match (action, outcome) {
            (Action::Suspend { path }, Outcome::Done)
            // A path that could not move is suspended.
            | (Action::Move { path, .. }, Outcome::Refused)
                if !self.suspended.contains(&path) =>
            {
                self.suspended.push(path);
            }
            (Action::Move { path, .. }, Outcome::Done) | (Action::Close { path }, _) => {
                self.suspended.retain(|suspended| *suspended != path);
            }
            _ => {}
        }
    }
}

impl PathManager for Steered {
    fn on_event(&mut self, event: &Event<'_>, view: &View<'_>) {
        match event {
            Event::Applied(action, outcome) => {
                if let Some(path) = self.resuming.take() {
                    self.suspended.retain(|suspended| *suspended != path);
                    return;
                }
                self.on_applied(*action, *outcome);
            }
            Event::Locals(locals) => {
                self.locals = locals.to_vec();
                return self.tell_locals(view);
            }
            Event::Path(PathEvent::Discarded(last)) => {
                self.suspended.retain(|suspended| *suspended != last.id);
            }
            _ => {}
        }
        self.costs.on_event(event, view);
        // The handshake may have run from an address that closed meanwhile.
        let is_connected = matches!(event, Event::Connected);
        if is_connected && !self.rules.closed.is_empty() {
            self.tell_locals(view);
        }
    }

    fn poll(&mut self, view: &View<'_>) -> Option<Action> {
        self.follow(view);
        self.resume(view).or_else(|| self.costs.poll(view))
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.costs.next_timeout()
    }

    fn may_use(&self, local: &Local) -> bool {
        !self.rules.is_closed(local) && self.costs.may_use(local)
    }

    fn name(&self) -> &'static str {
        "steered"
    }
}

#[cfg(test)]
mod tests;
