//! What connections do when the local addresses of their endpoint change.

use std::sync::Arc;

use crate::connection_state::SharedEndpoint;
use crate::socket::Socket;
use crate::sockets::Leaving;

/// Adapts the paths of all connections to the sockets that exist now.
pub(crate) fn follow(endpoint: &SharedEndpoint) {
    replace(endpoint, &endpoint.sockets.leaving(), None);
}

/// Moves every path of a client from the `old` sockets to a `new` one, as soon as that is allowed.
pub(crate) fn move_paths(endpoint: &SharedEndpoint, old: &[Arc<Leaving>], new: &Arc<Socket>) {
    replace(endpoint, old, Some(new));
}

fn replace(endpoint: &SharedEndpoint, old: &[Arc<Leaving>], new: Option<&Arc<Socket>>) {
    let locals = endpoint.sockets.all();
    let connections = endpoint.lock().connections();
    let now = endpoint.now();
    for connection in connections {
        connection.lock().contain(|engine| {
            let engine = &mut **engine;
            if let Some(plan) = &mut engine.plan {
                plan.set_locals(locals.clone());
            }
            engine.departures.add(old, new, locals.clone());
            engine.leave_sockets(now);
            engine.wake_task();
        });
    }
}

/// Routes may have changed: tries paths again that failed for lack of a route.
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
