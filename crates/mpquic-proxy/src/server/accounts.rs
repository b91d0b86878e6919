//! [`Accounts`]: how many flows each client has, and begins.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// New flows are counted for so long.
const SECOND: Duration = Duration::from_secs(1);
/// With more accounts than this, those of no interest any more are forgotten.
const MANY: usize = 1024;

/// What one client may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlowLimits {
    pub(crate) open: usize,
    pub(crate) per_second: u32,
}

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

    /// Counts a new flow of a client; `None` if it has, or begins, too many.
    pub(crate) fn begin(self: &Arc<Self>, client: &str, limits: FlowLimits) -> Option<Counted> {
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
        if now >= account.since + SECOND {
            account.since = now;
            account.begun = 0;
        }
        if account.open >= limits.open || account.begun >= limits.per_second {
            return None;
        }
        account.open += 1;
        account.begun += 1;
        Some(Counted {
            accounts: self.clone(),
            client: client.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn flows_of_a_client_are_bounded() {
        let accounts = Arc::<Accounts>::default();
        let limits = FlowLimits {
            open: 2,
            per_second: 3,
        };
        let first = accounts.begin("a", limits).unwrap();
        let _second = accounts.begin("a", limits).unwrap();
        assert!(accounts.begin("a", limits).is_none(), "two are open");
        let other = accounts.begin("b", limits);
        assert!(other.is_some(), "another client");
        drop(first);
        drop(accounts.begin("a", limits).unwrap());
        assert!(accounts.begin("a", limits).is_none(), "three in a second");
        tokio::time::advance(SECOND).await;
        assert!(accounts.begin("a", limits).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_gone_is_forgotten() {
        let accounts = Arc::<Accounts>::default();
        let limits = FlowLimits {
            open: 1,
            per_second: 1,
        };
        let kept = accounts.begin("kept", limits);
        for number in 0..3 * MANY {
            if number % MANY == 0 {
                tokio::time::advance(SECOND).await;
            }
            drop(accounts.begin(&number.to_string(), limits));
        }
        assert!(accounts.lock().len() <= 2 * MANY);
        assert!(accounts.lock().contains_key("kept"));
        drop(kept);
    }
}
