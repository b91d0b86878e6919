//! [`Pool`]: the rules of one resource, with a lock and wakers for waiting takers.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::activity::{Activity, Measure};
use super::rules::{Ask, Rules, Shares, Ticket, Turn};
use super::taker::Taker;

/// One resource of a server. Clones are handles to the same resource.
///
/// ```
/// use std::time::Duration;
///
/// use mpquic_proxy::shares::{Pool, Rules, Taker};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let files = Pool::new(Rules {
///     capacity: 4,
///     floor: 1,
///     grace: Duration::ZERO,
///     window: Duration::from_secs(10),
/// });
/// let taker = |address: &str| Taker::new(None, address.parse().unwrap());
/// let [greedy, other] = ["192.0.2.1", "192.0.2.2"].map(taker);
/// let _held = [files.try_take(&greedy, 1), files.try_take(&greedy, 1)];
/// assert!(files.try_take(&greedy, 1).is_none(), "two are left for others");
/// assert!(files.try_take(&other, 1).is_some());
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Pool(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    shares: Shares,
    told: BTreeMap<Ticket, watch::Sender<Option<Turn>>>,
}

/// Units of a [`Pool`]. Dropping the holding gives them back.
#[derive(Debug)]
pub struct Holding {
    pool: Pool,
    ticket: Ticket,
    turn: watch::Receiver<Option<Turn>>,
    activity: Arc<Activity>,
}

impl Drop for Holding {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        state.told.remove(&self.ticket);
        state.shares.end(self.ticket);
        state.settle(Instant::now());
    }
}

impl State {
    fn settle(&mut self, now: Instant) {
        for (ticket, turn) in self.shares.settle(now) {
            if let Some(told) = self.told.get(&ticket) {
                told.send_replace(Some(turn));
            }
        }
    }
}

impl Pool {
    /// A resource with these rules.
    pub fn new(rules: Rules) -> Self {
        let state = State {
            shares: Shares::new(rules, Instant::now()),
            told: BTreeMap::new(),
        };
        Self(Arc::new(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of units in holdings.
    pub fn used(&self) -> u64 {
        self.lock().shares.used()
    }

    /// Number of units in holdings of a taker.
    pub fn used_by(&self, taker: &Taker) -> u64 {
        self.lock().shares.used_by(taker)
    }

    /// Number of units in no holding.
    pub(crate) fn left(&self) -> u64 {
        self.lock().shares.left()
    }

    /// Changes the number of units. Holdings stay.
    pub fn set_capacity(&self, units: u64) {
        let mut state = self.lock();
        state.shares.set_capacity(units);
        state.settle(Instant::now());
    }

    fn ask(&self, taker: &Taker, units: u64, most: u64) -> Holding {
        let now = Instant::now();
        let activity = Activity::new(now);
        let ask = Ask {
            taker: taker.clone(),
            units,
            most,
            measure: activity.clone(),
        };
        let (told, turn) = watch::channel(None);
        let mut state = self.lock();
        let ticket = state.shares.ask(ask, now);
        state.told.insert(ticket, told);
        state.settle(now);
        Holding {
            pool: self.clone(),
            ticket,
            turn,
            activity,
        }
    }

    /// Takes units without waiting; `None` if no holding gives way.
    pub fn try_take(&self, taker: &Taker, units: u64) -> Option<Holding> {
        self.try_take_of(taker, units, u64::MAX)
    }

    /// [`Self::try_take`] for a taker with a limit of `most` units.
    pub fn try_take_of(&self, taker: &Taker, units: u64, most: u64) -> Option<Holding> {
        let holding = self.ask(taker, units, most);
        holding.is_granted().then_some(holding)
    }

    /// Waits for units.
    pub async fn take(&self, taker: &Taker, units: u64) -> Holding {
        self.take_of(taker, units, u64::MAX).await
    }

    /// [`Self::take`] for a taker with a limit of `most` units.
    pub async fn take_of(&self, taker: &Taker, units: u64, most: u64) -> Holding {
        let mut holding = self.ask(taker, units, most);
        loop {
            let due = {
                let mut state = self.lock();
                let now = Instant::now();
                state.settle(now);
                state.shares.next_timeout(holding.ticket, now)
            };
            let due = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                // The holding keeps the pool, and so the sender.
                _ = holding.turn.wait_for(Option::is_some) => break,
                () = due => {}
            }
        }
        holding.activity.renew();
        holding
    }
}

impl Holding {
    fn is_granted(&self) -> bool {
        *self.turn.borrow() == Some(Turn::Granted)
    }

    /// The holding has given way.
    pub(crate) fn has_ended(&self) -> bool {
        *self.turn.borrow() == Some(Turn::Ended)
    }

    /// Waits until another taker needs the units more. The owner should then end its work and drop
    /// the holding.
    pub async fn gives_way(&self) {
        self.ends().await;
    }

    /// [`Self::gives_way`] for a task that does not own the holding. Never ready once the holding
    /// is dropped.
    pub fn ends(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut turn = self.turn.clone();
        Box::pin(async move {
            let has_ended = |turn: &Option<Turn>| *turn == Some(Turn::Ended);
            let is_dropped = turn.wait_for(has_ended).await.is_err();
            if is_dropped {
                std::future::pending().await
            }
        })
    }

    /// Where the owner reports the use. Without reports the holding falls behind.
    pub fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// Gives back all units but these.
    pub fn shrink(&self, units: u64) {
        let mut state = self.pool.lock();
        state.shares.shrink(self.ticket, units);
        state.settle(Instant::now());
    }

    /// Replaces the measure of the use.
    pub(crate) fn measure(&self, measure: Arc<dyn Measure>) {
        let now = Instant::now();
        self.pool.lock().shares.measure(self.ticket, measure, now);
    }
}
