//! [`PathManager`]: the trait of a policy that opens, moves and closes a client's paths.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use mpquic_core::{FourTuple, PathEvent, PathId, PathStatus};

use crate::local::Local;
use crate::view::View;

/// Decides which paths a client's connection has: between which addresses and when a path opens,
/// when it closes or moves to another local address, when a failed path is tried again, and which
/// paths stand by. Each connection has one manager.
///
/// [`Managed`](crate::Managed) passes every [`Event`] to the manager, then polls it and applies its
/// actions. It also polls after each change of the connection and at [`Self::next_timeout`].
///
/// ```
/// use mpquic_core::{PathEvent, PathStatus};
/// use mpquic_paths::{Action, Event, Outcome, PathManager, View, address_pairs, factory};
///
/// /// Opens a path from every local address, once.
/// #[derive(Debug)]
/// struct Once {
///     missing: Vec<mpquic_core::FourTuple>,
///     may_open: bool,
/// }
///
/// impl PathManager for Once {
///     fn on_event(&mut self, event: &Event<'_>, _: &View<'_>) {
///         match event {
///             Event::Path(PathEvent::Available) => self.may_open = true,
///             Event::Applied(_, Outcome::Later) => self.may_open = false,
///             Event::Applied(Action::Open { four_tuple, .. }, _) => {
///                 self.missing.retain(|missing| missing != four_tuple);
///             }
///             _ => {}
///         }
///     }
///
///     fn poll(&mut self, _: &View<'_>) -> Option<Action> {
///         let four_tuple = *self.missing.first().filter(|_| self.may_open)?;
///         let status = PathStatus::Available;
///         Some(Action::Open { four_tuple, status })
///     }
///
///     fn name(&self) -> &'static str {
///         "once"
///     }
/// }
///
/// // What `ClientConfig::path_manager` of `mpquic-tokio` takes.
/// let factory = factory("once", |start| {
///     let mut missing = address_pairs(&start.locals, &[start.first.remote]);
///     missing.retain(|four_tuple| *four_tuple != start.first);
///     Box::new(Once { missing, may_open: false })
/// });
/// ```
///
/// # What becomes of wrong answers
///
/// A wrong manager costs paths, never correctness:
///
/// - The last open path is not closed: [`Outcome::Refused`].
/// - A path that opens is validated before it carries data, and the peer limits the number of
///   paths.
/// - After [`Managed::MOST_ACTIONS`](crate::Managed::MOST_ACTIONS) actions in a row the manager is
///   not polled until the connection runs again.
/// - A timeout in the past is treated as a timeout in a millisecond.
pub trait PathManager: fmt::Debug + Send {
    /// Takes note of an event. `view` shows the connection after the event.
    fn on_event(&mut self, event: &Event<'_>, view: &View<'_>);

    /// The next action, or `None` if nothing is due. The outcome of the action arrives as
    /// [`Event::Applied`], and then the manager is polled again.
    fn poll(&mut self, view: &View<'_>) -> Option<Action>;

    /// The time of the next [`Self::poll`] without any event; `None` to wait for events only.
    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    /// False if no packet may leave from this local address now. The driver drops packets of paths
    /// that have not left the address yet, and a path that left it never returns to it on its own.
    fn may_use(&self, local: &Local) -> bool {
        let _ = local;
        true
    }

    /// A name for logs.
    fn name(&self) -> &'static str;
}

/// An event that a path manager receives.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The handshake is complete.
    Connected,
    /// The complete list of local addresses changed to this one. A path from any other address has
    /// lost its address.
    Locals(&'a [Local]),
    /// The routes of the machine may have changed: paths that failed may work now.
    NetworkChanged,
    /// Something happened to a path of the connection, or to the addresses of its server.
    Path(&'a PathEvent),
    /// The application opened a path.
    Opened(PathId, FourTuple),
    /// The application closed a path between these addresses.
    Closed(FourTuple),
    /// The driver moved a path to this local address, because the path's socket was replaced.
    Moved(PathId, SocketAddr),
    /// The manager's action was tried, with this outcome.
    Applied(Action, Outcome),
}

/// A change of the paths that a path manager asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Opens a path.
    Open {
        /// The path's addresses.
        four_tuple: FourTuple,
        /// How both sides are to use the path.
        status: PathStatus,
    },
    /// Closes a path, and tells the peer.
    Close {
        /// The path.
        path: PathId,
    },
    /// Moves a path to another local address.
    Move {
        /// The path.
        path: PathId,
        /// The address.
        local: SocketAddr,
    },
    /// Stops sending on a path that has no local address. A move or [`Self::Resume`] makes the path
    /// usable again.
    Suspend {
        /// The path.
        path: PathId,
    },
    /// Sends again on a path after [`Self::Suspend`].
    Resume {
        /// The path.
        path: PathId,
    },
    /// Sets a path's status, which both sides follow.
    SetStatus {
        /// The path.
        path: PathId,
        /// The new status.
        status: PathStatus,
    },
}

impl Action {
    /// The open path that the action changes; `None` for [`Self::Open`].
    pub fn path(&self) -> Option<PathId> {
        match self {
            Self::Open { .. } => None,
            Self::Close { path }
            | Self::Move { path, .. }
            | Self::Suspend { path }
            | Self::Resume { path }
            | Self::SetStatus { path, .. } => Some(*path),
        }
    }
}

/// The result of an [`Action`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The action was done.
    Done,
    /// The path was opened, with this ID.
    Opened(PathId),
    /// Too early. [`Action::Open`] has to wait for [`PathEvent::Available`]. A path that should
    /// move stays at its addresses until the handshake is confirmed and the peer has issued a
    /// connection ID.
    Later,
    /// Impossible: the peer forbids the address, the path no longer exists, or no other path is
    /// open. A path that could not move is suspended.
    Refused,
    /// No path can open on this connection: the peer does not speak multipath QUIC, or the
    /// connection ends.
    Never,
}

/// A connection at its start.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Start {
    /// The addresses of path 0, which carries the handshake.
    pub first: FourTuple,
    /// The local addresses. [`Event::Locals`] tells of changes.
    pub locals: Arc<[Local]>,
    /// The server's addresses, named by the application, beginning with the address of path 0.
    pub remotes: Vec<SocketAddr>,
    /// Further addresses from the lookup of the server's name. They may belong to other machines.
    pub possible: Vec<SocketAddr>,
}

impl Start {
    /// A connection whose handshake runs on `first`, to a server without further addresses.
    pub fn new(first: FourTuple, locals: impl Into<Arc<[Local]>>) -> Self {
        Self {
            first,
            locals: locals.into(),
            remotes: vec![first.remote],
            possible: Vec::new(),
        }
    }

    /// The server has these addresses as well.
    #[must_use]
    pub fn remotes(mut self, addresses: &[SocketAddr]) -> Self {
        for address in addresses {
            if !self.remotes.contains(address) {
                self.remotes.push(*address);
            }
        }
        self
    }

    /// These addresses may be the server's.
    #[must_use]
    pub fn possible(mut self, addresses: &[SocketAddr]) -> Self {
        self.possible = addresses.to_vec();
        self
    }
}

/// Makes one path manager per connection.
pub trait PathManagerFactory: fmt::Debug + Send + Sync {
    /// The manager of a connection that starts now.
    fn build(&self, start: &Start) -> Box<dyn PathManager>;

    /// False if no connection may start at this local address now: no handshake leaves from there.
    fn may_start(&self, local: &Local) -> bool {
        let _ = local;
        true
    }
}

/// A closure that makes path managers, with a name for `Debug`.
struct Named<F> {
    name: &'static str,
    make: F,
}

impl<F> fmt::Debug for Named<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl<F> PathManagerFactory for Named<F>
where
    F: Fn(&Start) -> Box<dyn PathManager> + Send + Sync,
{
    fn build(&self, start: &Start) -> Box<dyn PathManager> {
        (self.make)(start)
    }
}

/// Wraps a closure as a [`PathManagerFactory`].
pub fn factory<F>(name: &'static str, make: F) -> Arc<dyn PathManagerFactory>
where
    F: Fn(&Start) -> Box<dyn PathManager> + Send + Sync + 'static,
{
    Arc::new(Named { name, make })
}
