//! [`PathPlan`]: which paths a client wants, and when to try them.
//!
//! Every local address gets a path to every address of the server, those that the server announces
//! and those of its name among them. The order is such that even with few paths as many addresses of both sides as possible
//! are in use. The plan opens missing paths, waits while the peer allows no more, tries failed paths
//! again after a growing time, and follows changes of the local addresses and of what is announced.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpquic_core::{
    ClosePathError, Connection, FourTuple, MigrateError, OpenPathError, PathEvent, PathId, PathMut,
    PathState, PathStatus, ServerAddress, TransportErrorCode,
};

use crate::addresses::fit;
use crate::socket::Socket;
use crate::ways::{self, Ways};

/// How long after its first failure a path is tried again; the time doubles with each failure.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// The longest such time.
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// A connection that has carried this many bytes since a path was tried need not wait longer than for the
/// first time: trying again costs less than a hundredth of it.
const WORTH_A_TRY: u64 = 1 << 20;

/// A path to an unsure address that never worked is not tried more often: the server may have announced
/// the address of somebody else, and a name may be that of several machines.
const ATTEMPTS_IF_UNSURE: u32 = 3;

/// Which paths a client connection should have.
#[derive(Debug)]
pub(crate) struct PathPlan {
    remotes: Vec<SocketAddr>,
    /// The other addresses of the server's name.
    possible: Vec<SocketAddr>,
    /// What the server announces besides.
    announced: Vec<ServerAddress>,
    /// Addresses that it has withdrawn, with paths that are to be closed.
    withdrawn: Vec<SocketAddr>,
    /// What it announces has changed, and paths do not know yet whether they stand by.
    has_news: bool,
    locals: Vec<Arc<Socket>>,
    targets: Vec<Target>,
    /// True once the handshake is complete, unless it turned out that no path can be opened at all.
    is_multipath: bool,
    /// True while the peer allows no more paths.
    is_blocked: bool,
    /// The server's address in the handshake, and the one it prefers, once a path moved there.
    preferred: Option<(SocketAddr, SocketAddr)>,
    /// Where later connections learn how long it takes to hear of the server, and since when this one waits
    /// for that.
    ways: Option<(Arc<Ways>, Instant)>,
}

/// One four-tuple that should have a path.
#[derive(Debug)]
struct Target {
    four_tuple: FourTuple,
    path: Option<PathId>,
    rest: Option<Rest>,
    backoff: Duration,
    /// How often it failed, until it first worked; `None` from then on.
    failures: Option<u32>,
    /// The status that the path was given.
    status: PathStatus,
    /// Bytes that the connection had carried when the path was last tried.
    carried: u64,
    /// The peer will never accept such a path, or the application does not want it.
    is_impossible: bool,
    /// It failed too often for an unsure address.
    is_given_up: bool,
}

/// The path failed, and is not to be tried again at once.
#[derive(Debug, Clone, Copy)]
struct Rest {
    /// When it may be tried if there is much to carry.
    earliest: Instant,
    /// When it is tried in any case.
    end: Instant,
}

impl Target {
    fn new(four_tuple: FourTuple) -> Self {
        Self {
            four_tuple,
            path: None,
            rest: None,
            backoff: FIRST_BACKOFF,
            failures: Some(0),
            status: PathStatus::Available,
            carried: 0,
            is_impossible: false,
            is_given_up: false,
        }
    }

    /// Sets the status of its path if that is another one where it starts now: what the application
    /// has set stays otherwise.
    fn tell_status(&mut self, status: PathStatus, core: &mut Connection) {
        if let Some(path) = self.path.filter(|_| status != self.status)
            && let Ok(mut path) = core.path_mut(path)
        {
            self.status = status;
            path.set_status(status);
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

    /// The path failed. If its address is unsure, it is given up some time.
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

impl PathPlan {
    /// A plan for a connection whose handshake runs on `first`; `server_addresses` are further
    /// targets.
    pub(crate) fn new(first: FourTuple, server_addresses: &[SocketAddr]) -> Self {
        let mut remotes = vec![first.remote];
        for address in server_addresses {
            if !remotes.contains(address) {
                remotes.push(*address);
            }
        }
        let mut target = Target::new(first);
        target.path = Some(PathId::ZERO);
        Self {
            remotes,
            possible: Vec::new(),
            announced: Vec::new(),
            withdrawn: Vec::new(),
            has_news: false,
            locals: Vec::new(),
            targets: vec![target],
            is_multipath: false,
            is_blocked: false,
            preferred: None,
            ways: None,
        }
    }

    /// Paths may lead to these addresses as well, if the server is there: they are tried last, and not for
    /// ever. [`Self::set_locals`] has to follow.
    pub(crate) fn set_possible(&mut self, addresses: &[SocketAddr]) {
        self.possible = addresses.to_vec();
    }

    /// Others learn from what the connection sees from now on.
    pub(crate) fn teach(&mut self, ways: Arc<Ways>, now: Instant) {
        self.ways = Some((ways, now));
    }

    /// The connection ends: what it has seen of its paths is noted for others.
    pub(crate) fn on_end(&self, core: &Connection, now: Instant) {
        let Some((ways, since)) = &self.ways else {
            return;
        };
        let paths = core.paths().filter_map(|path| core.path_stats(path));
        for path in paths {
            if path.packets_received > 0 {
                ways.note(path.four_tuple, Some(path.min_rtt), now);
            } else if now.saturating_duration_since(*since) >= ways::STEP {
                ways.note(path.four_tuple, None, now);
            }
        }
    }

    /// Sets the local addresses that exist now. This adapts targets without a path;
    /// [`Self::follow`] does so for paths.
    pub(crate) fn set_locals(&mut self, locals: Vec<Arc<Socket>>) {
        self.locals = locals;
        self.review_targets();
    }

    /// Drops targets without a path between addresses that are gone, and adds those for new ones.
    fn review_targets(&mut self) {
        let mut remotes = self.remotes.clone();
        let announced = self.announced.iter().map(|server| server.address);
        remotes.extend(announced.filter(|address| !self.remotes.contains(address)));
        let mut pairs = address_pairs(&self.locals, &remotes);
        let possible = address_pairs(&self.locals, &self.possible).into_iter();
        let possible: Vec<_> = possible.filter(|pair| !pairs.contains(pair)).collect();
        pairs.extend(possible);
        self.targets
            .retain(|target| target.path.is_some() || pairs.contains(&target.four_tuple));
        for four_tuple in pairs {
            if !self
                .targets
                .iter()
                .any(|target| target.four_tuple == four_tuple)
            {
                self.targets.push(Target::new(four_tuple));
            }
        }
    }

    /// Abandons paths whose local address is gone. If no path would be left, one of them is kept
    /// and moves to a new local address as soon as there is one. Nothing happens before the handshake is
    /// confirmed (RFC 9000 section 9): the other paths need the first one. True if a path waits
    /// until it can move, at addresses where it `may_wait`.
    pub(crate) fn follow(
        &mut self,
        core: &mut Connection,
        now: Instant,
        may_wait: impl Fn(FourTuple) -> bool,
    ) -> bool {
        if !core.is_handshake_confirmed() {
            return true;
        }
        let mut waits = false;
        let locals = &self.locals;
        let is_gone = |target: &Target| !locals.iter().any(|s| s.owns(target.four_tuple.local));
        let mut alive = self
            .targets
            .iter()
            .any(|target| target.path.is_some() && !is_gone(target));
        let mut moved = None;
        for target in &mut self.targets {
            let Some(path) = target.path.filter(|_| is_gone(target)) else {
                continue;
            };
            let remote = target.four_tuple.remote;
            let next = locals.iter().find(|socket| suits(socket, remote, locals));
            // Rather than let the path fail: abandoning it tells the peer at once, over a path that
            // works.
            let reason = TransportErrorCode::APPLICATION_ABANDON_PATH;
            if alive && core.close_path(now, path, reason) != Err(ClosePathError::LastPath) {
                target.path = None;
                continue;
            }
            let result = match next {
                Some(socket) => {
                    let local = socket.local_towards(remote);
                    let is_lost = |old: FourTuple| !locals.iter().any(|s| s.owns(old.local));
                    let moves = |path: PathMut<'_>| move_path(path, now, local, is_lost);
                    let has_moved = core.path_mut(path).map_or(Move::Never, moves);
                    if has_moved == Move::Later && may_wait(target.four_tuple) {
                        (alive, waits) = (true, true);
                        continue;
                    }
                    let has_moved = has_moved == Move::Done;
                    if has_moved {
                        alive = true;
                        target.four_tuple.local = local;
                        let status = status_between(target.four_tuple, locals, &self.announced);
                        target.tell_status(status, core);
                        moved = Some(target.four_tuple);
                    }
                    core.set_path_usable(now, path, has_moved)
                }
                None => core.set_path_usable(now, path, false),
            };
            // Fails only if the path is abandoned already, which is what we want.
            let _ = result;
        }
        self.targets.retain(|target| {
            target.path.is_some() || !(is_gone(target) || Some(target.four_tuple) == moved)
        });
        waits
    }

    /// The handshake is complete: paths may be opened if the peer supports multipath, once it has
    /// issued connection IDs for them.
    pub(crate) fn on_connected(&mut self, core: &mut Connection) {
        self.is_multipath = core.is_multipath();
        self.is_blocked = true;
        if self.is_multipath {
            self.tell_statuses(core);
        }
    }

    fn tell_statuses(&mut self, core: &mut Connection) {
        for target in &mut self.targets {
            let status = status_between(target.four_tuple, &self.locals, &self.announced);
            target.tell_status(status, core);
        }
    }

    /// The server has announced these addresses, and no others any more.
    fn on_server_addresses(&mut self, addresses: &[ServerAddress]) {
        let before = std::mem::replace(&mut self.announced, addresses.to_vec());
        self.withdrawn
            .extend(before.iter().map(|server| server.address));
        // Those that the application has named stay.
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
        self.has_news = true;
        self.review_targets();
    }

    /// Paths do what the server has announced.
    fn follow_announcement(&mut self, core: &mut Connection, now: Instant) {
        if std::mem::take(&mut self.has_news) && self.is_multipath {
            self.tell_statuses(core);
        }
        if !self.withdrawn.is_empty() {
            self.close_withdrawn(core, now);
        }
    }

    /// Abandons paths to addresses that were withdrawn, as soon as another path works.
    fn close_withdrawn(&mut self, core: &mut Connection, now: Instant) {
        let withdrawn = &self.withdrawn;
        let is_withdrawn = |target: &Target| withdrawn.contains(&target.four_tuple.remote);
        let works = |target: &Target| {
            let stats = target.path.and_then(|path| core.path_stats(path));
            stats.is_some_and(|stats| stats.state == PathState::Active)
        };
        let mut targets = self.targets.iter();
        if !targets.any(|target| !is_withdrawn(target) && works(target)) {
            return;
        }
        for target in self.targets.iter().filter(|target| is_withdrawn(target)) {
            if let Some(path) = target.path {
                // Fails only if the path is abandoned already, which is what we want.
                let reason = TransportErrorCode::APPLICATION_ABANDON_PATH;
                let _ = core.close_path(now, path, reason);
            }
        }
        self.targets.retain(|target| !is_withdrawn(target));
        self.withdrawn.clear();
    }

    /// Something happened to a path.
    pub(crate) fn on_event(&mut self, event: &PathEvent, now: Instant) {
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

    /// The network at this local address works: what failed there may have failed because it did not.
    fn try_given_up(&mut self, local: SocketAddr) {
        let given_up =
            |target: &&mut Target| target.is_given_up && target.four_tuple.local == local;
        for target in self.targets.iter_mut().filter(given_up) {
            target.is_given_up = false;
            target.failures = Some(0);
        }
    }

    /// A path has a new local address, because its socket was replaced.
    pub(crate) fn on_local_changed(&mut self, path: PathId, local: SocketAddr) {
        if let Some(target) = self.target(path) {
            target.four_tuple.local = local;
        }
        self.drop_duplicates();
    }

    /// A path moved. If it moved to the server's preferred address, further paths lead there as
    /// well: the server's former address may not work for long (MP-019).
    fn on_migrated(&mut self, path: PathId, four_tuple: FourTuple) {
        let Some(target) = self.target(path) else {
            return;
        };
        let before = std::mem::replace(&mut target.four_tuple, four_tuple).remote;
        let after = four_tuple.remote;
        if before == after {
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
        for target in self
            .targets
            .iter_mut()
            .filter(|target| target.path.is_none())
        {
            if target.four_tuple.remote == before {
                target.four_tuple.remote = after;
            }
        }
        self.drop_duplicates();
    }

    /// Drops targets with the same addresses as another one.
    fn drop_duplicates(&mut self) {
        let all: Vec<_> = self
            .targets
            .iter()
            .map(|target| target.four_tuple)
            .collect();
        let mut index = 0;
        self.targets.retain(|target| {
            let mut others = all.iter().enumerate();
            let is_first = |other: &(usize, &FourTuple)| *other.1 == target.four_tuple;
            let first = others.find(is_first).map(|(first, _)| first);
            let keep = target.path.is_some() || first == Some(index);
            index += 1;
            keep
        });
    }

    fn target(&mut self, path: PathId) -> Option<&mut Target> {
        self.targets
            .iter_mut()
            .find(|target| target.path == Some(path))
    }

    /// The application opened or closed a path itself: the plan respects that.
    pub(crate) fn on_application(&mut self, four_tuple: FourTuple, path: Option<PathId>) {
        self.targets
            .retain(|target| target.four_tuple != four_tuple);
        let mut target = Target::new(four_tuple);
        target.is_impossible = path.is_none();
        target.path = path;
        self.targets.push(target);
    }

    /// The network changed: failed paths are tried again as if they had failed once. False if there are
    /// none.
    #[cfg(feature = "interfaces")]
    pub(crate) fn retry_soon(&mut self) -> bool {
        let mut found = false;
        for target in &mut self.targets {
            if let Some(rest) = &mut target.rest {
                rest.end = rest.earliest;
                target.backoff = FIRST_BACKOFF;
                found = true;
            }
        }
        found
    }

    /// When a failed path may be tried again.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        if !self.is_multipath || self.is_blocked {
            return None;
        }
        // One with a path does not rest.
        let is_missing = |target: &&Target| !target.is_impossible && !target.is_given_up;
        let missing = self.targets.iter().filter(is_missing);
        missing.filter_map(|target| Some(target.rest?.end)).min()
    }

    /// Opens the paths that are due, and closes those to addresses that were withdrawn.
    pub(crate) fn open(&mut self, core: &mut Connection, now: Instant) {
        self.follow_announcement(core, now);
        if !self.is_multipath || self.is_blocked {
            return;
        }
        for target in &mut self.targets {
            if !target.is_due(now, || carried(core)) {
                continue;
            }
            let status = status_between(target.four_tuple, &self.locals, &self.announced);
            match core.open_path(now, target.four_tuple, status) {
                Ok(path) => {
                    target.path = Some(path);
                    target.status = status;
                    target.rest = None;
                    target.carried = carried(core);
                }
                Err(OpenPathError::PathsBlocked | OpenPathError::NoConnectionId) => {
                    self.is_blocked = true;
                    return;
                }
                Err(OpenPathError::AddressForbidden) => target.is_impossible = true,
                Err(_) => {
                    self.is_multipath = false;
                    return;
                }
            }
        }
    }
}

/// How paths between two addresses are to be used.
fn status_between(
    FourTuple { local, remote }: FourTuple,
    locals: &[Arc<Socket>],
    announced: &[ServerAddress],
) -> PathStatus {
    let from = locals.iter().find(|socket| socket.owns(local));
    let is_backup = from.is_some_and(|socket| socket.is_backup());
    match is_backup || announced.contains(&ServerAddress::new(remote).backup()) {
        true => PathStatus::Backup,
        false => PathStatus::Available,
    }
}

/// The bytes that a connection has carried in both directions.
fn carried(core: &Connection) -> u64 {
    let stats = core.stats();
    stats.bytes_sent + stats.bytes_received
}

/// Every pair of a local address and a server address of one family; the pairs of an offset are
/// (local 0, remote 0+offset), (local 1, remote 1+offset), ... of each family.
pub(crate) fn address_pairs(locals: &[Arc<Socket>], remotes: &[SocketAddr]) -> Vec<FourTuple> {
    let mut pairs = Vec::new();
    for offset in 0..remotes.len() {
        for (index, local) in locals.iter().enumerate() {
            let alike = |other: &&Arc<Socket>| other.local().is_ipv4() == local.local().is_ipv4();
            let index = locals.iter().take(index).filter(alike).count();
            let reached = || (remotes.iter()).filter(|remote| suits(local, **remote, locals));
            if offset >= reached().count() {
                continue;
            }
            if let Some(remote) = reached().cycle().nth(index + offset) {
                let pair = FourTuple::new(local.local_towards(*remote), *remote);
                if !pairs.contains(&pair) {
                    pairs.push(pair);
                }
            }
        }
    }
    pairs
}

/// True if a path to `remote` may start at a socket: no other one of its interface suits better.
fn suits(socket: &Socket, remote: SocketAddr, locals: &[Arc<Socket>]) -> bool {
    let fit = |socket: &Socket| fit(socket.local().ip(), remote.ip());
    let is_better = |other: &Socket| {
        let name = other.interface();
        name.is_some()
            && name == socket.interface()
            && other.reaches(remote)
            && fit(other) > fit(socket)
    };
    socket.reaches(remote) && !locals.iter().any(|other| is_better(other))
}

/// What came of moving a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Move {
    Done,
    /// It can move once the handshake is confirmed, or the peer has issued another connection ID.
    Later,
    Never,
}

/// Moves a path to a local address. If what it leaves is lost, it does not return there.
pub(crate) fn move_path(
    mut path: PathMut<'_>,
    now: Instant,
    local: SocketAddr,
    is_lost: impl Fn(FourTuple) -> bool,
) -> Move {
    let moved = match path.set_local_address(now, local) {
        Ok(()) => Move::Done,
        Err(MigrateError::NotConfirmed | MigrateError::NoConnectionId) => Move::Later,
        Err(_) => Move::Never,
    };
    if path.previous_addresses().is_some_and(is_lost) {
        path.forget_previous_addresses();
    }
    moved
}

#[cfg(test)]
mod tests;
