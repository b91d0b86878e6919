//! [`Arrivals`]: the numbered UDP payloads that a flow receives.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::copies::{Purpose, Seen};
use crate::order_window::OrderWindow;

/// Drops second copies, and delivers payloads of bulk flows in order.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    seen: Mutex<Seen>,
    /// `None` before the first payload with an order: most flows have none.
    order: Mutex<Option<Box<OrderWindow>>>,
    /// A payload waits, and none waited before.
    waits: Notify,
}

impl Arrivals {
    /// A payload arrived. Calls `deliver` for each payload whose turn has come.
    pub(crate) fn on_payload(
        &self,
        (purpose, number): (Purpose, u64),
        payload: &[u8],
        mut deliver: impl FnMut(&[u8]),
    ) {
        match purpose {
            Purpose::Copies => {
                let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                if seen.is_new(number) {
                    deliver(payload);
                }
            }
            Purpose::Order => {
                let now = Instant::now();
                let mut order = self.order();
                let window = order.get_or_insert_with(|| Box::new(OrderWindow::new(now)));
                let waited = window.deadline().is_some();
                window.on_payload((number, payload), now, deliver);
                if !waited && window.deadline().is_some() {
                    self.waits.notify_one();
                }
            }
        }
    }

    /// Calls `deliver` for payloads that have waited long enough. Never ends.
    pub(crate) async fn run(&self, deliver: impl Fn(&[u8])) {
        loop {
            let deadline = self.order().as_ref().and_then(|window| window.deadline());
            let Some(deadline) = deadline else {
                self.waits.notified().await;
                continue;
            };
            sleep_until(deadline).await;
            if let Some(window) = self.order().as_mut() {
                window.on_time(Instant::now(), &deliver);
            }
        }
    }

    fn order(&self) -> MutexGuard<'_, Option<Box<OrderWindow>>> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn copies_are_delivered_once_and_bulk_in_order() {
        let (arrivals, delivered) = (Arrivals::default(), Mutex::new(Vec::<u8>::new()));
        let deliver = |payload: &[u8]| delivered.lock().unwrap().extend(payload);
        let on = |purpose, number, payload: &[u8]| {
            arrivals.on_payload((purpose, number), payload, deliver);
        };
        let arriving = async {
            on(Purpose::Copies, 1, b"a");
            on(Purpose::Copies, 1, b"a");
            on(Purpose::Order, 1, b"c");
            on(Purpose::Order, 0, b"b");
            on(Purpose::Order, 3, b"d");
            assert_eq!(*delivered.lock().unwrap(), b"abc");
            // The lost payload before `d` is given up.
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(*delivered.lock().unwrap(), b"abcd");
        };
        tokio::select! {
            () = arriving => {}
            () = arrivals.run(deliver) => {}
        }
    }
}
