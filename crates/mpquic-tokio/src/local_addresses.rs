//! What connections do when the local addresses of their endpoint change.

use std::time::Instant;

use crate::connection_state::SharedEndpoint;

/// Lets the paths of all connections follow the sockets that are there now.
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
