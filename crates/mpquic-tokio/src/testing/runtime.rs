//! [`Hooked`]: tokio's runtime, with hooks for a test.

use std::future::Future;
use std::io;
use std::net::UdpSocket;
use std::pin::Pin;
use std::time::Instant;

use crate::runtime::{Runtime, RuntimeSocket, Timer, TokioRuntime};

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A runtime that shows its tasks and sockets to a test. A task runs if the test gives the task
/// back.
#[derive(Debug)]
pub(crate) struct Hooked {
    pub(crate) on_task: fn(Task) -> Option<Task>,
    pub(crate) on_socket: fn(&UdpSocket) -> io::Result<()>,
}

impl Default for Hooked {
    /// Like tokio.
    fn default() -> Self {
        Self {
            on_task: Some,
            on_socket: |_| Ok(()),
        }
    }
}

impl Runtime for Hooked {
    fn spawn(&self, task: Task) {
        if let Some(task) = (self.on_task)(task) {
            TokioRuntime.spawn(task);
        }
    }

    fn now(&self) -> Instant {
        TokioRuntime.now()
    }

    fn timer(&self, at: Instant) -> Pin<Box<dyn Timer>> {
        TokioRuntime.timer(at)
    }

    fn socket(&self, socket: UdpSocket) -> io::Result<RuntimeSocket> {
        (self.on_socket)(&socket)?;
        TokioRuntime.socket(socket)
    }
}
