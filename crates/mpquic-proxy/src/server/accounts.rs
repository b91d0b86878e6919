//! [`Accounts`]: how many flows each client has, and begins.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout};

use crate::flow_table::Flow;
use crate::giving_way::Order;

/// New flows are counted for so long.
const SECOND: Duration = Duration::from_secs(1);
/// The longest that a flow waits for its turn.
const WAIT: Duration = Duration::from_secs(30);
/// With more accounts than this, those of no interest any more are forgotten.
const MANY: usize = 1024;
/// Names of one client that are looked up at a time. Others wait.
const LOOKUPS: usize = 16;

/// The clients that have flows, or had some a moment ago.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    accounts: Mutex<BTreeMap<String, Account>>,
}

#[derive(Debug)]
struct Account {
    open: usize,
    /// Those of its flows that give way to new ones, by number.
    yielding: BTreeMap<u64, Yielding>,
    order: Order<u64>,
    next_number: u64,
    lookups: Arc<Semaphore>,
    /// When the count began.
    since: Instant,
    begun: u32,
}

/// A flow that gives way to a new one.
#[derive(Debug)]
struct Yielding {
    flow: Arc<Flow>,
    /// Dropped when it does.
    _stays: oneshot::Sender<()>,
}

impl Account {
    fn new(now: Instant) -> Self {
        Self {
            open: 0,
            yielding: BTreeMap::new(),
            order: Order::default(),
            next_number: 0,
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
            since: now,
            begun: 0,
        }
    }

    /// Nothing of it is of interest any more.
    fn is_over(&self, now: Instant) -> bool {
        let is_looking = self.lookups.available_permits() < LOOKUPS;
        self.open == 0 && !is_looking && now >= self.since + SECOND
    }

    /// Ends the flow that has waited longest for an answer; false if there is none.
    fn make_room(&mut self) -> bool {
        let yielding = &self.yielding;
        let first = self.order.first(|number| {
            let flow = &yielding[number].flow;
            // What the target says goes to the stream.
            flow.used(&flow.carried.to_stream)
        });
        match first {
            Some((used, number)) if !used.is_answered => self.end(number),
            _ => false,
        }
    }

    /// A flow that gives way is over; false if it has given way already.
    fn end(&mut self, number: u64) -> bool {
        self.order.remove(&number);
        let is_there = self.yielding.remove(&number).is_some();
        self.open -= usize::from(is_there);
        is_there
    }
}

/// A flow, counted until it is dropped, or gives way.
#[derive(Debug)]
pub(crate) struct Counted {
    accounts: Arc<Accounts>,
    client: String,
    /// Among those that give way.
    number: OnceLock<u64>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(account) = self.accounts.lock().get_mut(&self.client) {
            match self.number.get() {
                Some(number) => drop(account.end(*number)),
                None => account.open -= 1,
            }
        }
    }
}

impl Accounts {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Account>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a new flow of a client as open; `None` if it has that many, and none of them gives way.
    pub(crate) fn begin(self: &Arc<Self>, client: &str, most: usize) -> Option<Counted> {
        let now = Instant::now();
        let mut accounts = self.lock();
        if accounts.len() >= MANY {
            accounts.retain(|_, account| !account.is_over(now));
        }
        let account = accounts.entry(client.to_owned());
        let account = account.or_insert_with(|| Account::new(now));
        if account.open >= most && !account.make_room() {
            return None;
        }
        account.open += 1;
        Some(Counted {
            accounts: self.clone(),
            client: client.to_owned(),
            number: OnceLock::new(),
        })
    }
}

impl Counted {
    /// From now on it gives way, as long as its target has not answered: then what is given back here ends.
    pub(crate) fn give_way(&self, flow: Arc<Flow>) -> oneshot::Receiver<()> {
        let (stays, gives_way) = oneshot::channel();
        if let Some(account) = self.accounts.lock().get_mut(&self.client) {
            let number = account.next_number;
            if self.number.set(number).is_ok() {
                account.next_number += 1;
                let used = flow.used(&flow.carried.to_stream);
                account.order.insert(number, used);
                let _stays = stays;
                account.yielding.insert(number, Yielding { flow, _stays });
            }
        }
        gives_way
    }

    /// The client's turns to look up a name.
    pub(crate) fn lookups(&self) -> Arc<Semaphore> {
        let accounts = self.accounts.lock();
        // It is there as long as it has an open flow.
        let lookups = accounts
            .get(&self.client)
            .map(|account| account.lookups.clone());
        lookups.unwrap_or_else(|| Arc::new(Semaphore::new(LOOKUPS)))
    }

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
    async fn who_has_waited_longest_for_an_answer_gives_way() {
        let table = Arc::<crate::flow_table::FlowTable>::default();
        let accounts = Arc::<Accounts>::default();
        let begin = || {
            accounts.begin("a", 3).map(|counted| {
                let flow = table.begin(crate::FlowKind::Udp, None, Some("a"), None);
                let gives_way = counted.give_way(flow.clone());
                (counted, flow, gives_way)
            })
        };
        let connection = accounts.begin("a", 3).unwrap();
        let mut answered = begin().unwrap();
        let mut first = begin().unwrap();
        tokio::time::advance(SECOND).await;
        (answered.1.carried.to_stream).fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let second = begin().unwrap();
        assert!(
            first
                .2
                .try_recv()
                .is_err_and(|error| error == oneshot::error::TryRecvError::Closed)
        );
        assert!(
            answered
                .2
                .try_recv()
                .is_err_and(|error| error == oneshot::error::TryRecvError::Empty)
        );
        (second.1.carried.to_stream).fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        assert!(begin().is_none(), "all are in use");
        // It was not counted any more.
        drop(first);
        assert!(begin().is_none());
        drop(second);
        let third = begin().unwrap();
        drop((connection, answered, third));
        assert_eq!(accounts.lock()["a"].open, 0);
        assert!(accounts.lock()["a"].yielding.is_empty());
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
