//! [`Activity`]: how a holding is used.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::giving_way::Use;

/// The least rate of a holding that is measured in bytes, in bytes per second.
const LEAST_RATE: u64 = 410;

/// Measures the use of a holding. The rules ask only while a taker waits, so a use costs no lock.
pub(crate) trait Measure: Debug + Send + Sync {
    /// The use until now. It only grows.
    fn used(&self, now: Instant) -> Use;
}

/// The use of a holding, as its owner reports it. A holding without reports falls behind.
///
/// Each byte pays for a moment ([`Self::on_bytes`]), so a client cannot keep a holding with a rare
/// byte.
#[derive(Debug)]
pub struct Activity {
    began: Instant,
    /// Paid time from `began` on, microseconds.
    paid: AtomicU64,
    in_use: AtomicUsize,
}

/// Keeps an [`Activity`] in full use until dropped.
#[derive(Debug)]
pub struct InUse(Arc<Activity>);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.renew();
        self.0.in_use.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Activity {
    pub(super) fn new(now: Instant) -> Arc<Self> {
        Arc::new(Self {
            began: now,
            paid: AtomicU64::new(0),
            in_use: AtomicUsize::new(0),
        })
    }

    fn since_beginning(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.began).as_micros();
        u64::try_from(since).unwrap_or(u64::MAX)
    }

    /// Reports bytes that the client accepted.
    pub fn on_bytes(&self, bytes: usize) {
        let worth = (bytes as u64).saturating_mul(1_000_000) / LEAST_RATE;
        let most = self.since_beginning(Instant::now());
        let pay = |paid: u64| Some(paid.saturating_add(worth).min(most).max(paid));
        let _always = self
            .paid
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay);
    }

    /// Reports full use until now.
    pub fn renew(&self) {
        self.renew_at(Instant::now());
    }

    pub(super) fn renew_at(&self, now: Instant) {
        let now = self.since_beginning(now);
        self.paid.fetch_max(now, Ordering::Relaxed);
    }

    /// Begins a use, which ends when the result is dropped.
    pub fn begin_use(self: &Arc<Self>) -> InUse {
        self.in_use.fetch_add(1, Ordering::Relaxed);
        InUse(self.clone())
    }
}

impl Measure for Activity {
    fn used(&self, now: Instant) -> Use {
        let paid = Duration::from_micros(self.paid.load(Ordering::Relaxed));
        Use {
            is_answered: true,
            last: match self.in_use.load(Ordering::Relaxed) {
                0 => self.began + paid,
                _ => now,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_byte_pays_for_a_moment_and_nothing_for_the_future() {
        let start = Instant::now();
        let activity = Activity::new(start);
        let paid = || (activity.used(Instant::now()).last - start).as_secs_f64();
        activity.on_bytes(1 << 20);
        assert_eq!(paid(), 0.0);
        for _ in 0..100 {
            tokio::time::advance(Duration::from_secs(1)).await;
            activity.on_bytes(1);
        }
        assert!((0.2..0.3).contains(&paid()), "{}", paid());
        activity.on_bytes(41_000);
        assert_eq!(paid().round(), 100.0);
        let using = activity.begin_use();
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(paid(), 109.0);
        drop(using);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(paid(), 109.0);
        activity.renew();
        assert_eq!(paid(), 118.0);
    }
}
