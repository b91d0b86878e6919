//! [`ConnectionTask`]: each connection's own task. The task serves the timer, sends small writes
//! together, and waits for full sockets.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::connection_state::{ConnectionState, Turn};

/// The task of one connection; ends when the connection is drained.
pub(crate) struct ConnectionTask {
    connection: Arc<ConnectionState>,
    /// The waits for room in sockets that were full.
    writable: Vec<(SocketAddr, Writable)>,
}

type Writable = Pin<Box<dyn Future<Output = ()> + Send>>;

impl ConnectionTask {
    /// The task for a connection.
    pub(crate) fn new(connection: Arc<ConnectionState>) -> Self {
        Self {
            connection,
            writable: Vec::new(),
        }
    }

    /// Runs until the connection is drained.
    pub(crate) async fn run(mut self) {
        while poll_fn(|cx| self.poll(cx)).await == Turn::Yield {
            tokio::task::yield_now().await;
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Turn> {
        let mut engine = self.connection.lock();
        let before = self.writable.len();
        self.writable
            .retain_mut(|(_, writable)| writable.as_mut().poll(cx).is_pending());
        match engine.take_turn(cx, before != self.writable.len()) {
            Turn::Done => {}
            turn @ (Turn::Yield | Turn::End) => return Poll::Ready(turn),
        }
        let mut has_room = false;
        for (local, socket) in engine.sending.full_sockets() {
            if self.writable.iter().any(|(of, _)| *of == local) {
                continue;
            }
            let socket = socket.clone();
            let mut writable: Writable = Box::pin(async move {
                // An error comes back when the datagrams are sent, and `Sending` handles the error
                // then.
                let _ = socket.writable().await;
            });
            match writable.as_mut().poll(cx) {
                Poll::Ready(()) => has_room = true,
                Poll::Pending => self.writable.push((local, writable)),
            }
        }
        if has_room {
            engine.wake_task(); // To send, and not only to wait again.
        }
        Poll::Pending
    }
}

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        // A runtime that ends drops the task early: then the connection must not keep the endpoint
        // alive.
        let connection = &self.connection;
        connection.lock().departures.clear();
        #[cfg(feature = "metrics")]
        connection
            .lock()
            .contain(|engine| engine.tell_metrics(false));
        let mut registry = connection.endpoint.lock();
        registry.forget(connection.handle, connection);
    }
}
