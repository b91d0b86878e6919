//! [`Plan`]: a path from every local address to every address of the server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpquic_core::{FourTuple, PathEvent, PathId, PathState, PathStatus, ServerAddress};

use crate::local::Local;
use crate::manager::{Action, Event, Outcome, PathManager, Start};
use crate::pairs::{address_pairs, second_choices};
use crate::view::View;

/// The wait before a failed path is tried again. It doubles with each failure.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// The longest wait.
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// Once the connection has carried this many bytes since the last try, [`FIRST_BACKOFF`] is wait
/// enough: a try costs less than a hundredth of these bytes.
const WORTH_A_TRY: u64 = 1 << 20;

/// The most tries of an unsure address at which no path ever worked. An announced address may be a
/// stranger's, and one name may stand for several machines.
const ATTEMPTS_IF_UNSURE: u32 = 3;

/// The default path manager: a path from every local address to every address of the server. The
/// server's addresses come from the application, from its announcements and from the lookup of its
/// name.
///
/// Paths open in an order that soon covers many addresses of both sides ([`address_pairs`]), and
/// only while the peer allows more paths. A failed path is tried again after 1 s, 2 s and so on up
/// to 60 s, or after 1 s if the connection has carried a mebibyte since. Announced and looked-up
/// addresses that never worked are given up after three tries. A path whose local address is gone
/// closes, or moves if it is the last one. An interface with several addresses has one path to each
/// address of the server; if that path fails, the interface's next address is tried. Paths from a
/// backup address, and paths to one of the server, have the status [`PathStatus::Backup`].
#[derive(Debug)]
pub struct Plan {
    remotes: Vec<SocketAddr>,
    /// The other addresses of the server's name.
    possible: Vec<SocketAddr>,
    /// Further addresses that the server announces.
    announced: Vec<ServerAddress>,
    /// Addresses that the server has withdrawn. Their paths are to be closed.
    withdrawn: Vec<SocketAddr>,
    /// The local addresses, backups at the end.
    locals: Vec<Local>,
    targets: Vec<Target>,
    /// True from the end of the handshake on, until an open ends with [`Outcome::Never`].
    is_multipath: bool,
    /// True while the peer allows no more paths.
    is_blocked: bool,
    /// The server's handshake address and its preferred address, once a path moved between them.
    preferred: Option<(SocketAddr, SocketAddr)>,
    /// Local addresses have changed, and [`Self::follow`] has paths left to close or move.
    follows: bool,
    round: Round,
}

/// The position in a round: four steps, each of which goes through all targets.
#[derive(Debug, Default)]
struct Round {
    step: Step,
    /// Index of the next target in this step.
    at: usize,
    /// True if a path has an existing local address; `None` before the check.
    has_local: Option<bool>,
    /// The last open path, which cannot be closed.
    last: Option<PathId>,
    /// A move ended with [`Outcome::Later`].
    waits: bool,
}

/// The parts of a round, in their order.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Paths follow the changes of local addresses.
    #[default]
    Follow,
    /// Paths get their status.
    Status,
    /// Paths leave the addresses that the server has withdrawn.
    Leave,
    /// Missing paths open.
    Open,
}

/// One four-tuple that should have a path.
#[derive(Debug)]
struct Target {
    four_tuple: FourTuple,
    /// The interface of the local address.
    interface: Option<Arc<str>>,
    /// Another address of the interface comes first.
    is_second: bool,
    path: Option<PathId>,
    rest: Option<Rest>,
    backoff: Duration,
    /// Failed tries before the path first worked; `None` once it has worked.
    failures: Option<u32>,
    /// The status that the plan gave the path.
    status: PathStatus,
    /// The status may have changed since [`Plan::tell_status`] last set it.
    has_news: bool,
    /// Bytes that the connection had carried when the path was last tried.
    carried: u64,
    /// The peer never accepts this path, or the application has closed it.
    is_impossible: bool,
    /// [`ATTEMPTS_IF_UNSURE`] tries of an unsure address failed.
    is_given_up: bool,
}

/// The wait of a failed path before its next try.
#[derive(Debug, Clone, Copy)]
struct Rest {
    /// Earliest try, for a connection that has carried [`WORTH_A_TRY`] bytes since.
    earliest: Instant,
    /// Time of the next try for any other connection.
    end: Instant,
}

impl Target {
    fn new(four_tuple: FourTuple) -> Self {
        Self {
            four_tuple,
            interface: None,
            is_second: false,
            path: None,
            rest: None,
            backoff: FIRST_BACKOFF,
            failures: Some(0),
            status: PathStatus::Available,
            has_news: false,
            carried: 0,
            is_impossible: false,
            is_given_up: false,
        }
    }

    /// `carried` are the bytes that the connection has carried.
    fn is_due(&self, now: Instant, carried: impl FnOnce() -> u64) -> bool {
        self.path.is_none()
            && !self.is_impossible
            && !self.is_given_up
            && self.rest.is_none_or(|rest| {
                let is_worth_it = || carried().saturating_sub(self.carried) >= WORTH_A_TRY;
                rest.end <= now || rest.earliest <= now && is_worth_it()
            })
    }

    /// Notes a failure. A path to an unsure address is given up after [`ATTEMPTS_IF_UNSURE`]
    /// failures.
    fn start_rest(&mut self, now: Instant, is_unsure: bool) {
        self.path = None;
        if let Some(failures) = &mut self.failures {
            *failures += 1;
            self.is_given_up = is_unsure && *failures >= ATTEMPTS_IF_UNSURE;
        }
        self.rest = Some(Rest {
            earliest: now + FIRST_BACKOFF,
            end: now + self.backoff,
        });
        self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
    }
}

impl PathManager for Plan {
    fn on_event(&mut self, event: &Event<'_>, view: &View<'_>) {
        match event {
            Event::Connected => self.on_connected(view.is_multipath()),
            Event::Locals(locals) => {
                self.set_locals(locals);
                self.review_statuses();
                self.follows = true;
            }
            Event::NetworkChanged => self.retry_soon(),
            Event::Path(event) => self.on_path_event(event, view.now),
            Event::Opened(path, four_tuple) => self.on_application(*four_tuple, Some(*path)),
            Event::Closed(four_tuple) => self.on_application(*four_tuple, None),
            Event::Moved(path, local) => self.on_local_changed(*path, *local),
            Event::Applied(action, outcome) => self.on_applied(*action, *outcome),
        }
    }

    fn poll(&mut self, view: &View<'_>) -> Option<Action> {
        loop {
            let (action, next) = match self.round.step {
                Step::Follow => (self.follow(view), Step::Status),
                Step::Status => (self.tell_status(), Step::Leave),
                Step::Leave => (self.leave_withdrawn(view), Step::Open),
                Step::Open => (self.open(view), Step::Follow),
            };
            if action.is_some() {
                return action;
            }
            (self.round.step, self.round.at) = (next, 0);
            if next == Step::Follow {
                self.round = Round::default();
                return None;
            }
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        if !self.is_multipath || self.is_blocked {
            return None;
        }
        // A target with a path does not rest.
        let is_missing = |target: &&Target| {
            let is_possible = !target.is_impossible && !target.is_given_up;
            is_possible && target.rest.is_some() && !self.is_spare(target)
        };
        let missing = self.targets.iter().filter(is_missing);
        missing.filter_map(|target| Some(target.rest?.end)).min()
    }

    fn name(&self) -> &'static str {
        "plan"
    }
}

impl Plan {
    /// The plan of a connection that starts now.
    pub fn new(start: &Start) -> Self {
        let mut target = Target::new(start.first);
        target.path = Some(PathId::ZERO);
        let mut plan = Self {
            remotes: start.remotes.clone(),
            possible: start.possible.clone(),
            announced: Vec::new(),
            withdrawn: Vec::new(),
            locals: Vec::new(),
            targets: vec![target],
            is_multipath: false,
            is_blocked: false,
            preferred: None,
            follows: false,
            round: Round::default(),
        };
        plan.set_locals(&start.locals);
        plan
    }

    /// Sets the local addresses that exist now. This adapts targets without a path;
    /// [`Self::follow`] does so for paths.
    fn set_locals(&mut self, locals: &[Local]) {
        self.locals = locals.to_vec();
        self.locals.sort_by_key(Local::is_backup);
        self.review_targets();
    }

    /// Adds targets for new pairs of addresses, and drops targets of lost pairs that have no path.
    fn review_targets(&mut self) {
        let mut remotes = self.remotes.clone();
        let announced = self.announced.iter().map(|server| server.address);
        remotes.extend(announced.filter(|address| !self.remotes.contains(address)));
        let mut pairs = address_pairs(&self.locals, &remotes);
        let possible = address_pairs(&self.locals, &self.possible).into_iter();
        let possible: Vec<_> = possible.filter(|pair| !pairs.contains(pair)).collect();
        pairs.extend(possible);
        remotes.extend(
            self.possible
                .iter()
                .filter(|it| !remotes.contains(it))
                .collect::<Vec<_>>(),
        );
        let spare = second_choices(&self.locals, &remotes);
        pairs.extend(&spare);
        self.targets
            .retain(|target| target.path.is_some() || pairs.contains(&target.four_tuple));
        for four_tuple in pairs {
            let mut targets = self.targets.iter();
            if targets.all(|target| target.four_tuple != four_tuple) {
                self.targets.push(Target::new(four_tuple));
            }
        }
        for target in &mut self.targets {
            target.is_second = spare.contains(&target.four_tuple);
        }
        self.name_interfaces();
    }

    /// Notes from which interfaces the targets start.
    fn name_interfaces(&mut self) {
        for target in &mut self.targets {
            let mut locals = self.locals.iter();
            let local = locals.find(|local| local.owns(target.four_tuple.local));
            target.interface = local.and_then(Local::shared_interface);
        }
    }

    /// True if another address of the same interface has the path to the same address of the
    /// server, or is to be tried first, or if the application wants no such path.
    fn is_spare(&self, target: &Target) -> bool {
        let is_beside = |other: &&Target| {
            target.interface.is_some()
                && other.interface == target.interface
                && other.four_tuple.remote == target.four_tuple.remote
                && other.four_tuple.local != target.four_tuple.local
        };
        let comes_first = |other: &Target| {
            let is_untried = other.rest.is_none() && !other.is_given_up;
            other.path.is_some()
                || other.is_impossible
                || target.is_second && !other.is_second && is_untried
        };
        self.targets.iter().filter(is_beside).any(comes_first)
    }

    /// Closes the next path whose local address is gone. The last path moves to another local
    /// address instead. Before the handshake is confirmed, no path may move (RFC 9000 section 9),
    /// and the other paths need the first one.
    fn follow(&mut self, view: &View<'_>) -> Option<Action> {
        if !self.follows || !view.is_confirmed() {
            return None;
        }
        let mut used = self.targets.iter().filter(|target| target.path.is_some());
        let has_local = self
            .round
            .has_local
            .unwrap_or_else(|| used.any(|target| self.is_there(target)));
        self.round.has_local = Some(has_local);
        while let Some(target) = self.targets.get(self.round.at) {
            self.round.at += 1;
            let Some(path) = target.path.filter(|_| !self.is_there(target)) else {
                continue;
            };
            // PATH_ABANDON tells the peer at once, over a path that works; a silent path would have
            // to fail first.
            if has_local && self.round.last != Some(path) {
                return Some(Action::Close { path });
            }
            let remote = target.four_tuple.remote;
            let mut locals = self.locals.iter();
            let next = locals.find(|local| local.suits(remote, &self.locals));
            return Some(match next.map(|local| local.towards(remote)) {
                Some(local) => Action::Move { path, local },
                None => Action::Suspend { path },
            });
        }
        self.follows = self.round.waits;
        let used = self.targets.iter().filter(|target| target.path.is_some());
        let used: Vec<_> = used.map(|target| target.four_tuple).collect();
        let locals = &self.locals;
        self.targets.retain(
            |Target {
                 path, four_tuple, ..
             }| {
                let is_there = locals.iter().any(|of| of.owns(four_tuple.local));
                path.is_some() || is_there && !used.contains(four_tuple)
            },
        );
        None
    }

    /// True if the target's local address is there.
    fn is_there(&self, target: &Target) -> bool {
        let mut locals = self.locals.iter();
        locals.any(|local| local.owns(target.four_tuple.local))
    }

    /// The handshake is complete. Paths can open once a multipath peer has issued connection IDs
    /// for them.
    fn on_connected(&mut self, is_multipath: bool) {
        self.is_multipath = is_multipath;
        self.is_blocked = true;
        self.review_statuses();
    }

    fn review_statuses(&mut self) {
        for target in &mut self.targets {
            target.has_news = true;
        }
    }

    /// Sets the status of the next path whose addresses call for another one. As long as they do
    /// not, a status set by the application stays.
    fn tell_status(&mut self) -> Option<Action> {
        if !self.is_multipath {
            return None;
        }
        let Self {
            locals, announced, ..
        } = self;
        for target in self.targets.iter_mut().filter(|target| target.has_news) {
            target.has_news = false;
            let status = status_between(target.four_tuple, locals, announced);
            if let Some(path) = target.path.filter(|_| target.status != status) {
                return Some(Action::SetStatus { path, status });
            }
        }
        None
    }

    /// Updates targets with the outcome of an action.
    fn on_applied(&mut self, action: Action, outcome: Outcome) {
        let index = match action {
            Action::Open { four_tuple, .. } => {
                let is_it =
                    |target: &Target| target.four_tuple == four_tuple && target.path.is_none();
                self.targets.iter().position(is_it)
            }
            _ => {
                let path = action.path();
                self.targets.iter().position(|target| target.path == path)
            }
        };
        let Some((index, target)) = index.and_then(|at| Some((at, self.targets.get_mut(at)?)))
        else {
            return;
        };
        match (action, outcome) {
            (Action::Open { status, .. }, Outcome::Opened(path)) => {
                (target.path, target.status, target.rest) = (Some(path), status, None);
            }
            (Action::Open { .. }, Outcome::Later) => self.is_blocked = true,
            (Action::Open { .. }, Outcome::Refused) => target.is_impossible = true,
            (Action::Open { .. }, Outcome::Never) => self.is_multipath = false,
            (Action::Close { .. }, Outcome::Done) => target.path = None,
            (Action::Close { path }, _) if self.round.step == Step::Follow => {
                (self.round.last, self.round.at) = (Some(path), index);
            }
            (Action::Move { local, .. }, Outcome::Done) => {
                target.four_tuple.local = local;
                target.has_news = true;
                self.round.has_local = Some(true);
            }
            (Action::Move { .. }, Outcome::Later) => {
                (self.round.has_local, self.round.waits) = (Some(true), true);
            }
            (Action::SetStatus { status, .. }, Outcome::Done) => target.status = status,
            _ => {}
        }
    }

    /// Replaces the announced addresses. Missing earlier addresses are withdrawn.
    fn on_server_addresses(&mut self, addresses: &[ServerAddress]) {
        let before = std::mem::replace(&mut self.announced, addresses.to_vec());
        self.withdrawn
            .extend(before.iter().map(|server| server.address));
        // Addresses that the application has named stay.
        let stays = |address: &SocketAddr| {
            let mut announced = self.announced.iter();
            self.remotes.contains(address) || announced.any(|server| server.address == *address)
        };
        let has_path = |address: &SocketAddr| {
            let mut used = self.targets.iter().filter(|target| target.path.is_some());
            used.any(|target| target.four_tuple.remote == *address)
        };
        let is_to_be_left = |address: &SocketAddr| !stays(address) && has_path(address);
        self.withdrawn.retain(is_to_be_left);
        self.review_statuses();
        self.review_targets();
    }

    /// Closes the next path to a withdrawn address, as soon as another path works.
    fn leave_withdrawn(&mut self, view: &View<'_>) -> Option<Action> {
        let withdrawn = &self.withdrawn;
        let is_withdrawn = |target: &Target| withdrawn.contains(&target.four_tuple.remote);
        let works = |target: &Target| {
            let path = target.path.and_then(|path| view.path(path));
            path.is_some_and(|path| path.state == PathState::Active)
        };
        let mut targets = self.targets.iter();
        let has_other = |target: &Target| !is_withdrawn(target) && works(target);
        if withdrawn.is_empty() || self.round.at == 0 && !targets.any(has_other) {
            return None;
        }
        while let Some(target) = self.targets.get(self.round.at) {
            self.round.at += 1;
            if let Some(path) = target.path.filter(|_| is_withdrawn(target)) {
                return Some(Action::Close { path });
            }
        }
        self.targets.retain(|target| !is_withdrawn(target));
        self.withdrawn.clear();
        None
    }

    /// Updates targets after a path event.
    fn on_path_event(&mut self, event: &PathEvent, now: Instant) {
        match event {
            PathEvent::Available => self.is_blocked = false,
            PathEvent::Established(path) => {
                if let Some(target) = self.target(*path) {
                    target.backoff = FIRST_BACKOFF;
                    target.failures = None;
                    let local = target.four_tuple.local;
                    self.try_given_up(local);
                }
            }
            PathEvent::Abandoned { path, .. } => {
                let preferred = self.preferred;
                let (remotes, possible) = (&self.remotes, &self.possible);
                let mut announced = self.announced.iter();
                let mut targets = self.targets.iter_mut();
                if let Some(target) = targets.find(|target| target.path == Some(*path)) {
                    let remote = target.four_tuple.remote;
                    let is_unsure = !remotes.contains(&remote)
                        && (possible.contains(&remote)
                            || announced.any(|server| server.address == remote));
                    target.start_rest(now, is_unsure);
                    if let Some((before, after)) = preferred
                        && target.four_tuple.remote == before
                    {
                        target.four_tuple.remote = after;
                    }
                }
            }
            PathEvent::Migrated(path, four_tuple) => self.on_migrated(*path, *four_tuple),
            PathEvent::ServerAddresses(addresses) => self.on_server_addresses(addresses),
            _ => {}
        }
    }

    /// Tries given-up targets of this local address again: the network works here now, and may not
    /// have worked at the earlier tries.
    fn try_given_up(&mut self, local: SocketAddr) {
        let given_up =
            |target: &&mut Target| target.is_given_up && target.four_tuple.local == local;
        for target in self.targets.iter_mut().filter(given_up) {
            target.is_given_up = false;
            target.failures = Some(0);
        }
    }

    /// Notes a path's new local address after the driver replaced the path's socket.
    fn on_local_changed(&mut self, path: PathId, local: SocketAddr) {
        if let Some(target) = self.target(path) {
            target.four_tuple.local = local;
        }
        self.drop_duplicates();
        self.name_interfaces();
    }

    /// Notes a path's new addresses. After a move to the server's preferred address, other targets
    /// lead to this address too: the server's former address may not work for long (MP-019).
    fn on_migrated(&mut self, path: PathId, four_tuple: FourTuple) {
        let Some(target) = self.target(path) else {
            return;
        };
        let left = std::mem::replace(&mut target.four_tuple, four_tuple);
        let (before, after) = (left.remote, four_tuple.remote);
        if before == after {
            self.exchange(left, four_tuple);
            return;
        }
        self.preferred = Some((before, after));
        let is_known = self.remotes.contains(&after);
        self.remotes.retain(|remote| *remote != before || !is_known);
        for remote in &mut self.remotes {
            if *remote == before {
                *remote = after;
            }
        }
        let missing = self
            .targets
            .iter_mut()
            .filter(|target| target.path.is_none());
        for target in missing.filter(|target| target.four_tuple.remote == before) {
            target.four_tuple.remote = after;
        }
        self.drop_duplicates();
    }

    /// A path moved between addresses of the plan: the target at its new addresses takes those that
    /// the path left.
    fn exchange(&mut self, left: FourTuple, taken: FourTuple) {
        let mut missing = self.targets.iter_mut().filter(|it| it.path.is_none());
        if let Some(target) = missing.find(|target| target.four_tuple == taken) {
            target.four_tuple = left;
        }
        self.name_interfaces();
    }

    /// Drops targets with the same addresses as another one.
    fn drop_duplicates(&mut self) {
        let mut seen = Vec::new();
        self.targets.retain(|target| {
            let is_first = !seen.contains(&target.four_tuple);
            seen.push(target.four_tuple);
            target.path.is_some() || is_first
        });
    }

    fn target(&mut self, path: PathId) -> Option<&mut Target> {
        self.targets
            .iter_mut()
            .find(|target| target.path == Some(path))
    }

    /// The application opened or closed a path itself: the plan respects that.
    fn on_application(&mut self, four_tuple: FourTuple, path: Option<PathId>) {
        self.targets
            .retain(|target| target.four_tuple != four_tuple);
        let mut target = Target::new(four_tuple);
        target.is_impossible = path.is_none();
        target.path = path;
        self.targets.push(target);
        self.name_interfaces();
    }

    /// Shortens the wait of failed paths to [`FIRST_BACKOFF`], as the network has changed.
    fn retry_soon(&mut self) {
        for target in &mut self.targets {
            if let Some(rest) = &mut target.rest {
                rest.end = rest.earliest;
                target.backoff = FIRST_BACKOFF;
            }
        }
    }

    /// Opens the next missing path that is due.
    fn open(&mut self, view: &View<'_>) -> Option<Action> {
        if !self.is_multipath || self.is_blocked {
            return None;
        }
        while let Some(target) = self.targets.get(self.round.at) {
            let at = self.round.at;
            self.round.at += 1;
            if target.is_due(view.now, || view.bytes_carried()) && !self.is_spare(target) {
                let target = self.targets.get_mut(at)?;
                target.carried = view.bytes_carried();
                let four_tuple = target.four_tuple;
                let status = status_between(four_tuple, &self.locals, &self.announced);
                return Some(Action::Open { four_tuple, status });
            }
        }
        None
    }
}

/// The status of a path between two addresses.
fn status_between(
    FourTuple { local, remote }: FourTuple,
    locals: &[Local],
    announced: &[ServerAddress],
) -> PathStatus {
    let from = locals.iter().find(|of| of.owns(local));
    let is_backup = from.is_some_and(Local::is_backup);
    if is_backup || announced.contains(&ServerAddress::new(remote).backup()) {
        PathStatus::Backup
    } else {
        PathStatus::Available
    }
}

#[cfg(test)]
mod tests;
