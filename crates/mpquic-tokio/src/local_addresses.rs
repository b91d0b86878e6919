//! The reaction of connections to changes of their endpoint's local addresses.

use std::sync::Arc;

#[cfg(feature = "interfaces")]
use mpquic_core::{Connection, PathId, PathState};
#[cfg(feature = "interfaces")]
use mpquic_paths::Event;
#[cfg(feature = "interfaces")]
use smallvec::SmallVec;

use crate::connection_state::SharedEndpoint;
use crate::socket::Socket;
use crate::sockets::Leaving;

/// Adapts the paths of all connections to the present sockets.
pub(crate) fn follow(endpoint: &SharedEndpoint) {
    replace(endpoint, &endpoint.sockets.leaving(), None);
}

/// Moves every path of a client from the `old` sockets to the socket `new`, as soon as a path may
/// move.
pub(crate) fn move_paths(endpoint: &SharedEndpoint, old: &[Arc<Leaving>], new: &Arc<Socket>) {
    replace(endpoint, old, Some(new));
}

fn replace(endpoint: &SharedEndpoint, old: &[Arc<Leaving>], new: Option<&Arc<Socket>>) {
    let (locals, places) = (endpoint.sockets.all(), endpoint.sockets.places());
    let connections = endpoint.lock().connections();
    let now = endpoint.now();
    for connection in connections {
        connection.lock().contain(|engine| {
            let engine = &mut **engine;
            if let Some(paths) = &mut engine.paths {
                let managed = &mut paths.managed;
                managed.set_locals(places.clone(), &engine.core, now);
            }
            engine.departures.add(old, new, locals.clone());
            engine.manage_paths(now);
            engine.wake_task();
        });
    }
}

/// Routes may have changed: tries paths again that failed for lack of a route, and silent paths. A
/// socket that is bound to an interface without a route looks for the peer on the link, and the
/// kernel reports no error.
#[cfg(feature = "interfaces")]
pub(crate) fn retry(endpoint: &SharedEndpoint) {
    let connections = endpoint.lock().connections();
    let now = endpoint.now();
    for connection in connections {
        connection.lock().contain(|engine| {
            let engine = &mut **engine;
            let mut is_due = engine.sending.retry_at_once(now);
            is_due |= probe_silent(&mut engine.core);
            if let Some(paths) = &mut engine.paths {
                let managed = &mut paths.managed;
                let before = managed.next_timeout();
                managed.on_event(&Event::NetworkChanged, &engine.core, now);
                is_due |= managed.next_timeout() != before;
            }
            if is_due {
                engine.wake_task();
            }
        });
    }
}

/// Sends a PING on each path from which the peer is not heard now. The answer of the peer also
/// renews the validation of the path. False without such a path.
#[cfg(feature = "interfaces")]
fn probe_silent(core: &mut Connection) -> bool {
    let paths: SmallVec<[PathId; 8]> = core.paths().collect();
    let is_silent = |path: PathId| {
        let state = core.path_stats(path)?.state;
        matches!(state, PathState::Validating | PathState::Suspect).then_some(path)
    };
    let silent: SmallVec<[PathId; 8]> = paths.into_iter().filter_map(is_silent).collect();
    for path in &silent {
        // A closed path needs no PING.
        if let Ok(mut path) = core.path_mut(*path) {
            path.ping();
        }
    }
    !silent.is_empty()
}
