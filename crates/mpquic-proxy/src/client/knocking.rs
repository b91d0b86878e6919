//! [`Knocking`]: applications that have come in and have not said what they want.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Those of one entrance. Too many make the one that came first go: programs say what they want at once, so it is
/// one that does not want anything.
pub(crate) struct Knocking {
    most: usize,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    next: u64,
    /// In the order in which they came.
    present: BTreeMap<u64, oneshot::Sender<()>>,
}

/// One of them, until this is dropped.
pub(crate) struct Knock {
    knocking: Arc<Knocking>,
    number: u64,
}

impl Drop for Knock {
    fn drop(&mut self) {
        self.knocking.lock().present.remove(&self.number);
    }
}

impl Knocking {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        let waiting = Mutex::default();
        Arc::new(Self { most, waiting })
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another one comes. What is given back besides ends when it has to go.
    pub(crate) fn begin(self: &Arc<Self>) -> (Knock, impl Future<Output = ()> + use<>) {
        let (go, gone) = oneshot::channel();
        let mut waiting = self.lock();
        if waiting.present.len() >= self.most
            && let Some((_, first)) = waiting.present.pop_first()
        {
            let _ = first.send(());
        }
        let number = waiting.next;
        waiting.next += 1;
        waiting.present.insert(number, go);
        let gone = async move {
            if gone.await.is_err() {
                // It has said what it wants.
                std::future::pending().await
            }
        };
        let knocking = self.clone();
        (Knock { knocking, number }, gone)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn who_came_first_goes_unless_it_has_spoken() {
        let knocking = Knocking::new(2);
        let (spoke, spoke_gone) = knocking.begin();
        let (_silent, silent_gone) = knocking.begin();
        drop(spoke);
        let (_second, second_gone) = knocking.begin();
        let (third, third_gone) = knocking.begin();
        assert!(silent_gone.now_or_never().is_some());
        assert!(spoke_gone.now_or_never().is_none());
        assert!(second_gone.now_or_never().is_none());
        drop(third);
        assert!(third_gone.now_or_never().is_none());
        assert_eq!(knocking.lock().present.len(), 1);
    }
}
