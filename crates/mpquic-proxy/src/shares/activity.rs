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
    suspended: AtomicUsize,
}

/// Keeps an [`Activity`] in full use until dropped.
#[derive(Debug)]
pub struct InUse(Arc<Activity>);

/// Keeps an [`Activity`] out of use until dropped, whatever uses have begun.
#[derive(Debug)]
pub struct Suspended(Arc<Activity>);

impl Drop for Suspended {
    fn drop(&mut self) {
        self.0.suspended.fetch_sub(1, Ordering::Relaxed);
    }
}

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
            suspended: AtomicUsize::new(0),
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

    /// Begins a time without use, for example while the client does not answer. Uses that have
    /// begun count again when the result is dropped.
    pub fn suspend(self: &Arc<Self>) -> Suspended {
        if self.in_use.load(Ordering::Relaxed) > 0 {
            self.renew();
        }
        self.suspended.fetch_add(1, Ordering::Relaxed);
        Suspended(self.clone())
    }
}

impl Measure for Activity {
    fn used(&self, now: Instant) -> Use {
        let paid = Duration::from_micros(self.paid.load(Ordering::Relaxed));
        let count = |uses: &AtomicUsize| uses.load(Ordering::Relaxed);
        let is_used = count(&self.in_use) > 0 && count(&self.suspended) == 0;
        Use {
            is_answered: true,
            last: if is_used { now } else { self.began + paid },
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
        let _using = activity.begin_use();
        tokio::time::advance(Duration::from_secs(2)).await;
        let suspended = activity.suspend();
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(paid(), 120.0);
        drop(suspended);
        assert_eq!(paid(), 129.0);
    }
}
