//! [`Turns`]: bulk flows get a part of a connection even if other flows could fill it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::MutexGuard;
use tokio::time::{Instant, sleep_until};

use crate::class::Class;

/// A bulk flow gets a turn after this time without sent bytes of any bulk flow of the connection.
const STARVED: Duration = Duration::from_secs(1);
/// Length of a turn, in which a bulk flow goes before interactive flows: a tenth of the time.
pub(crate) const TURN: Duration = Duration::from_millis(100);

/// Turns of the bulk flows of one connection.
#[derive(Debug)]
pub(crate) struct Turns {
    /// The time of the last sent bytes of a bulk flow, or of the last turn.
    sent: Mutex<Instant>,
    turn: tokio::sync::Mutex<()>,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            sent: Mutex::new(Instant::now()),
            turn: tokio::sync::Mutex::default(),
        }
    }
}

impl Turns {
    fn sent(&self) -> std::sync::MutexGuard<'_, Instant> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a piece of a flow of this class. `prioritize` sets the priority of the flow's stream.
    pub(crate) async fn send<T>(
        &self,
        class: Class,
        prioritize: impl Fn(i32),
        sending: impl Future<Output = T>,
    ) -> T {
        if class != Class::Bulk {
            return sending.await;
        }
        let mut sending = std::pin::pin!(sending);
        let began = Instant::now();
        loop {
            let turn = tokio::select! {
                biased;
                sent = &mut sending => {
                    *self.sent() = Instant::now();
                    return sent;
                }
                turn = self.starved(began) => turn,
            };
            prioritize(Class::TURN);
            let sent = tokio::time::timeout(TURN, &mut sending).await;
            prioritize(Class::Bulk.priority());
            *self.sent() = Instant::now();
            drop(turn);
            if let Ok(sent) = sent {
                return sent;
            }
        }
    }

    /// Waits until no bulk flow has sent bytes for [`STARVED`], counted from `began` at the
    /// earliest.
    async fn starved(&self, began: Instant) -> MutexGuard<'_, ()> {
        let turn = self.turn.lock().await;
        loop {
            let until = (*self.sent()).max(began) + STARVED;
            if until <= Instant::now() {
                return turn;
            }
            sleep_until(until).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// The set priorities, with their times in milliseconds.
    type Set = RefCell<Vec<(u128, i32)>>;

    #[tokio::test(start_paused = true)]
    async fn who_is_starved_has_a_tenth_of_the_time() {
        let turns = Turns::default();
        let began = Instant::now();
        let set = Set::default();
        let prioritize = |priority| {
            set.borrow_mut()
                .push((began.elapsed().as_millis(), priority));
        };
        let stuck = turns.send(Class::Bulk, prioritize, std::future::pending::<()>());
        let limit = Duration::from_millis(3350);
        assert!(tokio::time::timeout(limit, stuck).await.is_err());
        let turn = |at| [(at, Class::TURN), (at + 100, 0)];
        assert_eq!(*set.borrow(), [turn(1000), turn(2100), turn(3200)].concat());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_on_which_bulk_flows_go_on_has_no_turns() {
        let turns = Turns::default();
        let set = Cell::new(0);
        let prioritize = |_| set.set(set.get() + 1);
        let stuck = turns.send(Class::Bulk, prioritize, std::future::pending::<()>());
        let others = async {
            for _ in 0..10 {
                let piece = tokio::time::sleep(Duration::from_millis(900));
                turns.send(Class::Bulk, prioritize, piece).await;
            }
        };
        tokio::select! {
            () = stuck => {}
            () = others => {}
        }
        assert_eq!(set.get(), 0);
        let interactive = tokio::time::sleep(Duration::from_secs(5));
        turns
            .send(Class::Interactive, prioritize, interactive)
            .await;
        assert_eq!(set.get(), 0);
    }
}
