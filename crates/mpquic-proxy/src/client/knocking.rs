//! [`Knocking`]: connected applications that have not named a target.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The waiting applications of one entrance. A further application pushes out the oldest: programs
/// name their target at once, so the oldest is probably idle.
pub(crate) struct Knocking {
    most: usize,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    next: u64,
    /// In order of arrival.
    present: BTreeMap<u64, oneshot::Sender<()>>,
}

/// One waiting application, until the value is dropped.
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

    /// Adds an application. The returned future ends when the application must go.
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
                // The application has named its target.
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
    async fn oldest_silent_connection_gives_way() {
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
