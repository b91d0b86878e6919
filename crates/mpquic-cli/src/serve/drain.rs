//! The graceful end of a server: the tasks that serve clients are told to finish, and the server
//! waits until all tasks have ended.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

/// How long a closing endpoint waits for its peers to learn of it.
pub(crate) const CLOSE_TIME: Duration = Duration::from_millis(500);
/// What clients are told at the end.
pub(crate) const ENDS: &[u8] = b"the server ends";

/// The side that decides on the end.
#[derive(Debug)]
pub(crate) struct Drain {
    begin: watch::Sender<bool>,
    done: mpsc::Receiver<Infallible>,
}

/// The side of a serving task. It counts as busy until dropped.
#[derive(Debug, Clone)]
pub(crate) struct Draining {
    begun: watch::Receiver<bool>,
    _busy: mpsc::Sender<Infallible>,
}

/// Both sides.
pub(crate) fn drain() -> (Drain, Draining) {
    let (begin, begun) = watch::channel(false);
    let (busy, done) = mpsc::channel(1);
    let draining = Draining { begun, _busy: busy };
    (Drain { begin, done }, draining)
}

impl Drain {
    /// Nothing new is begun from now on.
    pub(crate) fn begin(&self) {
        self.begin.send_replace(true);
    }

    /// Tells whether the end has begun.
    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.begin.subscribe()
    }

    /// Waits until no task is busy.
    pub(crate) async fn done(&mut self) {
        let None = self.done.recv().await;
    }
}

impl Draining {
    /// Waits until the end begins.
    pub(crate) async fn begun(&mut self) {
        if self.begun.wait_for(|begun| *begun).await.is_err() {
            // Nobody is left who could start the end.
            pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn the_end_is_told_to_all_and_waits_for_all() {
        let (mut drain, mut first) = drain();
        let mut second = first.clone();
        assert_eq!(first.begun().now_or_never(), None);
        drain.begin();
        first.begun().await;
        second.begun().await;
        drop(first);
        assert_eq!(drain.done().now_or_never(), None, "one is busy");
        drop(second);
        drain.done().await;
    }

    #[tokio::test]
    async fn without_anybody_who_could_end_it_it_goes_on() {
        let (drain, mut draining) = drain();
        drop(drain);
        assert_eq!(draining.begun().now_or_never(), None);
    }
}
