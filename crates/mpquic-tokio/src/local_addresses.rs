//! What connections do when the local addresses of their endpoint change.

use std::sync::Arc;
use std::time::Instant;

use mpquic_core::{FourTuple, PathMut};

use crate::connection_state::{Engine, SharedEndpoint};
use crate::path_plan::move_path;
use crate::socket::Socket;

/// Adapts the paths of all connections to the sockets that exist now.
pub(crate) fn follow(endpoint: &SharedEndpoint) {
    let locals = endpoint.sockets.all();
    let connections = endpoint.lock().connections();
    let now = endpoint.now();
    for connection in connections {
        connection.lock().contain(|engine| {
            let engine = &mut **engine;
            if let Some(plan) = &mut engine.plan {
                plan.set_locals(locals.clone());
                plan.follow(&mut engine.core, now);
                engine.wake_task();
            }
        });
    }
}

/// The routes may have changed: what failed for lack of one is tried again.
#[cfg(feature = "interfaces")]
pub(crate) fn retry(endpoint: &SharedEndpoint) {
    let connections = endpoint.lock().connections();
    let now = endpoint.now();
    for connection in connections {
        connection.lock().contain(|engine| {
            let engine = &mut **engine;
            let mut is_due = engine.sending.retry_at_once(now);
            if let Some(plan) = &mut engine.plan {
                is_due |= plan.retry_soon();
            }
            if is_due {
                engine.wake_task();
            }
        });
    }
}

/// Moves every path of a client from the `old` sockets to a `new` one.
pub(crate) fn move_paths(endpoint: &SharedEndpoint, old: &[Arc<Socket>], new: &Socket) {
    let locals = endpoint.sockets.all();
    let connections = endpoint.lock().connections();
    let now = endpoint.now();
    for connection in connections {
        connection.lock().contain(|engine| {
            let owned = |tuple: FourTuple| endpoint.sockets.owner(tuple.local).is_some();
            let is_old = |tuple: FourTuple| old.iter().any(|socket| socket.owns(tuple.local));
            move_paths_of(engine, |tuple| is_old(tuple) && !owned(tuple), new, now);
            let engine = &mut **engine;
            if let Some(plan) = &mut engine.plan {
                plan.set_locals(locals.clone());
                plan.follow(&mut engine.core, now);
            }
            engine.wake_task();
        });
    }
}

/// Moves the paths of a connection whose addresses are `lost` to a `new` socket.
fn move_paths_of(
    engine: &mut Engine,
    lost: impl Fn(FourTuple) -> bool,
    new: &Socket,
    now: Instant,
) {
    let paths: Vec<_> = engine.core.paths().collect();
    for path in paths {
        let stats = engine.core.path_stats(path);
        let Some(four_tuple) = stats.map(|stats| stats.four_tuple) else {
            continue;
        };
        if !lost(four_tuple) {
            continue;
        }
        let local = new.local_towards(four_tuple.remote);
        // Servers cannot move a path, nor can clients before the handshake is confirmed.
        let core = &mut engine.core;
        let moves = |path: PathMut<'_>| move_path(path, now, local, &lost);
        let has_moved = new.reaches(four_tuple.remote) && core.path_mut(path).is_ok_and(moves);
        // Fails only if the path was abandoned: then nothing is sent on it anyway.
        let _ = engine.core.set_path_usable(now, path, has_moved);
        if let (true, Some(plan)) = (has_moved, &mut engine.plan) {
            plan.on_local_changed(path, local);
        }
    }
}
