//! [`Accounts`]: how many flows each client has, and begins.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};

/// New flows are counted for so long.
const SECOND: Duration = Duration::from_secs(1);
/// The longest that a flow waits for its turn.
const WAIT: Duration = Duration::from_secs(30);
/// With more accounts than this, those of no interest any more are forgotten.
const MANY: usize = 1024;

/// The clients that have flows, or had some a moment ago.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    accounts: Mutex<BTreeMap<String, Account>>,
}

#[derive(Debug)]
struct Account {
    open: usize,
    /// When the count began.
    since: Instant,
    begun: u32,
}

/// A flow, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    accounts: Arc<Accounts>,
    client: String,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(account) = self.accounts.lock().get_mut(&self.client) {
            account.open -= 1;
        }
    }
}

impl Accounts {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Account>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a new flow of a client as open; `None` if it has that many.
    pub(crate) fn begin(self: &Arc<Self>, client: &str, most: usize) -> Option<Counted> {
        let now = Instant::now();
        let mut accounts = self.lock();
        if accounts.len() >= MANY {
            accounts.retain(|_, account| account.open > 0 || now < account.since + SECOND);
        }
        let account = accounts.entry(client.to_owned()).or_insert(Account {
            open: 0,
            since: now,
            begun: 0,
        });
        if account.open >= most {
            return None;
        }
        account.open += 1;
        Some(Counted {
            accounts: self.clone(),
            client: client.to_owned(),
        })
    }
}

impl Counted {
    /// Waits until it may begin: not more than so many do in a second. Flows come all at once when a
    /// connection has stood still for a moment, and are no fewer if they are refused. Those that wait are open.
    /// False if its turn did not come in time.
    pub(crate) async fn turn(&self, per_second: u32) -> bool {
        let waiting = async {
            while let Some(until) = self.is_early(per_second) {
                tokio::time::sleep_until(until).await;
            }
        };
        timeout(WAIT, waiting).await.is_ok()
    }

    /// Begins it, or tells when to try again.
    fn is_early(&self, per_second: u32) -> Option<Instant> {
        let now = Instant::now();
        let mut accounts = self.accounts.lock();
        // It is there as long as it has an open flow.
        let account = accounts.get_mut(&self.client)?;
        if now >= account.since + SECOND {
            account.since = now;
            account.begun = 0;
        }
        if account.begun >= per_second {
            return Some(account.since + SECOND);
        }
        account.begun += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn flows_of_a_client_are_bounded() {
        let accounts = Arc::<Accounts>::default();
        let first = accounts.begin("a", 2).unwrap();
        let _second = accounts.begin("a", 2).unwrap();
        assert!(accounts.begin("a", 2).is_none(), "two are open");
        let other = accounts.begin("b", 2);
        assert!(other.is_some(), "another client");
        drop(first);
        assert!(accounts.begin("a", 2).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn more_than_may_begin_in_a_second_wait_for_the_next() {
        let accounts = Arc::<Accounts>::default();
        let begun = Instant::now();
        let open: Vec<_> = (0..10).map(|_| accounts.begin("a", 100)).collect();
        let mut seconds = Vec::new();
        for flow in open.iter().flatten() {
            assert!(flow.turn(4).await);
            seconds.push(begun.elapsed().as_secs());
        }
        assert_eq!(seconds, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]);
        let other = accounts.begin("b", 100).unwrap();
        let before = Instant::now();
        assert!(other.turn(4).await);
        assert_eq!(before.elapsed(), Duration::ZERO, "another client");
    }

    #[tokio::test(start_paused = true)]
    async fn whose_turn_is_too_far_off_does_not_wait_for_it() {
        let accounts = Arc::<Accounts>::default();
        let begun = Instant::now();
        let open: Vec<_> = (0..100).map(|_| accounts.begin("a", 100)).collect();
        let turns = open.iter().flatten().map(|flow| flow.turn(1));
        let had = futures_util::future::join_all(turns).await;
        assert_eq!(begun.elapsed(), WAIT);
        let had = had.iter().filter(|had| **had).count();
        assert!((30..=31).contains(&had), "{had}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_gone_is_forgotten() {
        let accounts = Arc::<Accounts>::default();
        let kept = accounts.begin("kept", 1);
        for number in 0..3 * MANY {
            if number % MANY == 0 {
                tokio::time::advance(SECOND).await;
            }
            drop(accounts.begin(&number.to_string(), 1));
        }
        assert!(accounts.lock().len() <= 2 * MANY);
        assert!(accounts.lock().contains_key("kept"));
        drop(kept);
    }
}
