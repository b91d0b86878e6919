//! What connections do when the local addresses of their endpoint change.

use std::sync::Arc;
use std::time::Instant;

use mpquic_core::PathMut;

use crate::connection_state::SharedEndpoint;
use crate::socket::Socket;

/// Adapts the paths of all connections to the sockets that exist now.
pub(crate) fn follow(endpoint: &SharedEndpoint) {
    let locals = endpoint.sockets.all();
    let connections = endpoint.lock().connections();
    let now = Instant::now();
    for connection in connections {
        let mut engine = connection.lock();
        let engine = &mut *engine;
        if let Some(plan) = &mut engine.plan {
            plan.set_locals(locals.clone());
            plan.follow(&mut engine.core, now);
            engine.wake_task();
        }
    }
}

/// Moves every path of a client from the `old` sockets to a `new` one.
pub(crate) fn move_paths(endpoint: &SharedEndpoint, old: &[Arc<Socket>], new: &Socket) {
    let locals = endpoint.sockets.all();
    let connections = endpoint.lock().connections();
    let now = Instant::now();
    for connection in connections {
        let mut engine = connection.lock();
        let engine = &mut *engine;
        let paths: Vec<_> = engine.core.paths().collect();
        for path in paths {
            let Some(stats) = engine.core.path_stats(path) else {
                continue;
            };
            let four_tuple = stats.four_tuple;
            let is_old = old.iter().any(|socket| socket.owns(four_tuple.local));
            if !is_old || endpoint.sockets.owner(four_tuple.local).is_some() {
                continue;
            }
            let local = new.local_towards(four_tuple.remote);
            // Servers cannot move a path, nor can clients before the handshake is confirmed.
            let core = &mut engine.core;
            let moves = |mut path: PathMut<'_>| path.set_local_address(now, local).is_ok();
            let has_moved = new.reaches(four_tuple.remote) && core.path_mut(path).is_ok_and(moves);
            // Fails only if the path was abandoned: then nothing is sent on it anyway.
            let _ = engine.core.set_path_usable(now, path, has_moved);
            if let (true, Some(plan)) = (has_moved, &mut engine.plan) {
                plan.on_local_changed(path, local);
            }
        }
        if let Some(plan) = &mut engine.plan {
            plan.set_locals(locals.clone());
            plan.follow(&mut engine.core, now);
        }
        engine.wake_task();
    }
}
