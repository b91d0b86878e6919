//! [`PathPlan`]: which paths a client wants, and when to try them.
//!
//! Every local address gets a path to every address of the server, nearest to the diagonal first,
//! so that a low limit still spreads over all of both. The plan opens what is missing, waits when
//! the peer allows no more, backs off from paths that failed, and follows local addresses that
//! come and go.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpquic_core::{
    Connection, FourTuple, OpenPathError, PathEvent, PathId, PathStatus, TransportErrorCode,
};

use crate::socket::Socket;

/// How long a failed path rests before its second try; doubles up to [`MAX_REST`].
const FIRST_REST: Duration = Duration::from_secs(1);
/// Longest rest of a failed path.
const MAX_REST: Duration = Duration::from_secs(60);

/// The paths a client connection wants.
#[derive(Debug)]
pub(crate) struct PathPlan {
    remotes: Vec<SocketAddr>,
    locals: Vec<Arc<Socket>>,
    wishes: Vec<Wish>,
    /// Set from the confirmed handshake on, until opening is impossible for good.
    confirmed: bool,
    /// Set while the peer allows no more paths.
    waiting: bool,
    /// The address of the handshake, and the one the server prefers.
    moved: Option<(SocketAddr, SocketAddr)>,
}

/// One four-tuple that should have a path.
#[derive(Debug)]
struct Wish {
    four_tuple: FourTuple,
    path: Option<PathId>,
    /// Not before this time.
    rest_until: Option<Instant>,
    rest: Duration,
    /// The peer will never take it.
    hopeless: bool,
}

impl Wish {
    fn new(four_tuple: FourTuple) -> Self {
        Self {
            four_tuple,
            path: None,
            rest_until: None,
            rest: FIRST_REST,
            hopeless: false,
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.path.is_none() && !self.hopeless && self.rest_until.is_none_or(|until| until <= now)
    }
}

impl PathPlan {
    /// A plan whose path 0 is the handshake's; `server_addresses` are further targets.
    pub(crate) fn new(first: FourTuple, server_addresses: &[SocketAddr]) -> Self {
        let mut remotes = vec![first.remote];
        for address in server_addresses {
            if !remotes.contains(address) {
                remotes.push(*address);
            }
        }
        let mut wish = Wish::new(first);
        wish.path = Some(PathId::ZERO);
        Self {
            remotes,
            locals: Vec::new(),
            wishes: vec![wish],
            confirmed: false,
            waiting: false,
            moved: None,
        }
    }

    /// The local addresses there are now. Wishes without a path follow; those with one need
    /// [`Self::follow`].
    pub(crate) fn set_locals(&mut self, locals: Vec<Arc<Socket>>) {
        self.locals = locals;
        let wanted = wanted(&self.locals, &self.remotes);
        self.wishes
            .retain(|wish| wish.path.is_some() || wanted.contains(&wish.four_tuple));
        for four_tuple in wanted {
            if !self.wishes.iter().any(|wish| wish.four_tuple == four_tuple) {
                self.wishes.push(Wish::new(four_tuple));
            }
        }
    }

    /// Abandons paths whose local address is gone. If none would be left, one of them is kept, and
    /// moves to a new local address as soon as there is one.
    pub(crate) fn follow(&mut self, core: &mut Connection, now: Instant) {
        let locals = &self.locals;
        let is_gone = |wish: &Wish| !locals.iter().any(|s| s.owns(wish.four_tuple.local));
        let mut alive = self
            .wishes
            .iter()
            .any(|wish| wish.path.is_some() && !is_gone(wish));
        let mut moved = None;
        for wish in &mut self.wishes {
            let Some(path) = wish.path.filter(|_| is_gone(wish)) else {
                continue;
            };
            let remote = wish.four_tuple.remote;
            let next = locals.iter().find(|socket| socket.reaches(remote));
            let result = match next {
                // Abandoning tells the peer at once, by a path that works.
                _ if alive => {
                    wish.path = None;
                    core.close_path(now, path, TransportErrorCode::APPLICATION_ABANDON_PATH)
                }
                Some(socket) => {
                    let local = socket.local_towards(remote);
                    let has_moved = core.set_local_address(now, path, local).is_ok();
                    if has_moved {
                        alive = true;
                        wish.four_tuple.local = local;
                        moved = Some(wish.four_tuple);
                    }
                    core.set_path_usable(now, path, has_moved)
                }
                None => core.set_path_usable(now, path, false),
            };
            // An abandoned path is where we want it to be.
            let _ = result;
        }
        self.wishes.retain(|wish| {
            wish.path.is_some() || !(is_gone(wish) || Some(wish.four_tuple) == moved)
        });
    }

    /// The handshake is confirmed: paths may be opened if the peer supports it.
    pub(crate) fn on_confirmed(&mut self, core: &mut Connection) {
        self.confirmed = core.is_multipath();
    }

    /// Something happened to a path.
    pub(crate) fn on_event(&mut self, event: &PathEvent, now: Instant) {
        match event {
            PathEvent::Available => self.waiting = false,
            PathEvent::Established(path) => {
                if let Some(wish) = self.wish(*path) {
                    wish.rest = FIRST_REST;
                }
            }
            PathEvent::Abandoned { path, .. } => {
                let moved = self.moved;
                if let Some(wish) = self.wish(*path) {
                    wish.path = None;
                    wish.rest_until = Some(now + wish.rest);
                    wish.rest = (wish.rest * 2).min(MAX_REST);
                    if let Some((before, after)) = moved
                        && wish.four_tuple.remote == before
                    {
                        wish.four_tuple.remote = after;
                    }
                }
            }
            PathEvent::Migrated(path, four_tuple) => self.on_migrated(*path, *four_tuple),
            PathEvent::Discarded(_)
            | PathEvent::Suspect(_)
            | PathEvent::Recovered(_)
            | PathEvent::RemoteStatus(..) => {}
        }
    }

    /// A path moved. If that was to the server's preferred address, further paths lead there: the
    /// one before may not work for long (MP-019).
    fn on_migrated(&mut self, path: PathId, four_tuple: FourTuple) {
        let Some(wish) = self.wish(path) else {
            return;
        };
        let before = std::mem::replace(&mut wish.four_tuple, four_tuple).remote;
        let after = four_tuple.remote;
        if before == after {
            return;
        }
        self.moved = Some((before, after));
        let is_known = self.remotes.contains(&after);
        self.remotes.retain(|remote| *remote != before || !is_known);
        for remote in &mut self.remotes {
            if *remote == before {
                *remote = after;
            }
        }
        for wish in self.wishes.iter_mut().filter(|wish| wish.path.is_none()) {
            if wish.four_tuple.remote == before {
                wish.four_tuple.remote = after;
            }
        }
        self.forget_repeated();
    }

    /// Drops wishes for addresses that another one has.
    fn forget_repeated(&mut self) {
        let all: Vec<_> = self.wishes.iter().map(|wish| wish.four_tuple).collect();
        let mut index = 0;
        self.wishes.retain(|wish| {
            let mut others = all.iter().enumerate();
            let is_first = |other: &(usize, &FourTuple)| *other.1 == wish.four_tuple;
            let first = others.find(is_first).map(|(first, _)| first);
            let keep = wish.path.is_some() || first == Some(index);
            index += 1;
            keep
        });
    }

    fn wish(&mut self, path: PathId) -> Option<&mut Wish> {
        self.wishes.iter_mut().find(|wish| wish.path == Some(path))
    }

    /// The application closed or opened a path itself: the plan does not undo it.
    pub(crate) fn on_application(&mut self, four_tuple: FourTuple, path: Option<PathId>) {
        self.wishes.retain(|wish| wish.four_tuple != four_tuple);
        let mut wish = Wish::new(four_tuple);
        wish.hopeless = path.is_none();
        wish.path = path;
        self.wishes.push(wish);
    }

    /// When a path may be tried again.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        if !self.confirmed || self.waiting {
            return None;
        }
        let resting = |wish: &&Wish| wish.path.is_none() && !wish.hopeless;
        let waiting = self.wishes.iter().filter(resting);
        waiting.filter_map(|wish| wish.rest_until).min()
    }

    /// Opens what is due.
    pub(crate) fn open(&mut self, core: &mut Connection, now: Instant) {
        if !self.confirmed || self.waiting {
            return;
        }
        for wish in self.wishes.iter_mut().filter(|wish| wish.is_due(now)) {
            match core.open_path(now, wish.four_tuple, PathStatus::Available) {
                Ok(path) => {
                    wish.path = Some(path);
                    wish.rest_until = None;
                }
                Err(OpenPathError::PathsBlocked | OpenPathError::NoConnectionId) => {
                    self.waiting = true;
                    return;
                }
                Err(OpenPathError::AddressForbidden) => wish.hopeless = true,
                Err(
                    OpenPathError::ServerSide
                    | OpenPathError::NotConfirmed
                    | OpenPathError::NotNegotiated
                    | OpenPathError::Closed,
                ) => {
                    self.confirmed = false;
                    return;
                }
            }
        }
    }
}

/// Every pair of a local address and a server address of one family; the pairs of an offset are
/// (local 0, remote 0+offset), (local 1, remote 1+offset), ...
pub(crate) fn wanted(locals: &[Arc<Socket>], remotes: &[SocketAddr]) -> Vec<FourTuple> {
    let mut pairs = Vec::new();
    for offset in 0..remotes.len() {
        for (index, local) in locals.iter().enumerate() {
            let remote = remotes.iter().cycle().nth(index + offset);
            if let Some(remote) = remote.filter(|remote| local.reaches(**remote)) {
                let pair = FourTuple::new(local.local_towards(*remote), *remote);
                if !pairs.contains(&pair) {
                    pairs.push(pair);
                }
            }
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(address: &str) -> Arc<Socket> {
        Arc::new(Socket::bind(address.parse().unwrap(), None, 1 << 16).unwrap())
    }

    #[tokio::test]
    async fn pairs_cover_all_addresses_of_both_sides_first() {
        let locals = [socket("127.0.0.1:0"), socket("127.0.0.2:0")];
        let remotes: Vec<SocketAddr> = ["127.0.0.3:1", "127.0.0.4:1", "[::1]:1"]
            .iter()
            .map(|address| address.parse().unwrap())
            .collect();
        let pairs = wanted(&locals, &remotes);
        assert_eq!(pairs.len(), 4, "IPv6 cannot be reached: {pairs:?}");
        assert_ne!(pairs[0].local, pairs[1].local);
        assert_ne!(pairs[0].remote, pairs[1].remote);
    }

    #[tokio::test]
    async fn failed_paths_rest_and_lost_addresses_are_forgotten() {
        let now = Instant::now();
        let (a, b) = (socket("127.0.0.1:0"), socket("127.0.0.2:0"));
        let first = FourTuple::new(a.local(), "127.0.0.3:1".parse().unwrap());
        let mut plan = PathPlan::new(first, &[]);
        plan.set_locals(vec![a.clone(), b.clone()]);
        assert_eq!(plan.wishes.len(), 2);
        plan.confirmed = true;
        plan.wishes[1].path = Some(PathId(1));
        for rest in [1, 2, 4] {
            plan.wishes[1].path = Some(PathId(1));
            plan.on_event(
                &PathEvent::Abandoned {
                    path: PathId(1),
                    error_code: TransportErrorCode::PATH_UNSTABLE_OR_POOR,
                    by_peer: false,
                },
                now,
            );
            let until = now + Duration::from_secs(rest);
            assert_eq!(plan.next_timeout(), Some(until));
            assert!(!plan.wishes[1].is_due(now) && plan.wishes[1].is_due(until));
        }
        plan.set_locals(vec![a]);
        assert_eq!(plan.wishes.len(), 1);
    }

    #[tokio::test]
    async fn mp_019_further_paths_lead_to_the_preferred_address() {
        let now = Instant::now();
        let (a, b) = (socket("127.0.0.1:0"), socket("127.0.0.2:0"));
        let handshake = "127.0.0.3:1".parse().unwrap();
        let preferred: SocketAddr = "127.0.0.4:2".parse().unwrap();
        let first = FourTuple::new(a.local(), handshake);
        let mut plan = PathPlan::new(first, &[preferred]);
        plan.set_locals(vec![a.clone(), b.clone()]);
        assert_eq!(plan.wishes.len(), 4);
        let open = |plan: &PathPlan| {
            let mut wishes: Vec<_> = plan.wishes.iter().map(|wish| wish.four_tuple).collect();
            wishes.sort_by_key(|wish| wish.local);
            wishes
        };
        plan.wishes
            .iter_mut()
            .find(|wish| wish.four_tuple == FourTuple::new(b.local(), handshake))
            .unwrap()
            .path = Some(PathId(1));
        let moved = FourTuple::new(a.local(), preferred);
        plan.on_event(&PathEvent::Migrated(PathId::ZERO, moved), now);
        // The path that leads to the old address stays as long as it works.
        assert_eq!(open(&plan).len(), 3);
        assert!(open(&plan).contains(&FourTuple::new(b.local(), handshake)));
        let abandoned = PathEvent::Abandoned {
            path: PathId(1),
            error_code: TransportErrorCode::PATH_UNSTABLE_OR_POOR,
            by_peer: false,
        };
        plan.on_event(&abandoned, now);
        assert!(open(&plan).iter().all(|wish| wish.remote == preferred));
        assert_eq!(plan.remotes, [preferred]);
    }
}
