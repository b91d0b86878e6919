//! What clients of a server may take up: one of them, and all together.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// The limits of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Files that are open at a time for one client.
    pub(crate) files_per_client: usize,
    /// Files that are open at a time. Fewer than the descriptors and the threads there are.
    pub(crate) files: usize,
    /// A request whose client lets nothing through is given up after this time.
    pub(crate) stall: Duration,
    /// The same while as many files are open as may be.
    pub(crate) stall_when_full: Duration,
    /// Requests that a client may cancel in quick succession.
    pub(crate) cancelled: u32,
    /// Further requests that it may cancel in each second.
    pub(crate) cancelled_per_second: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            files_per_client: 16,
            files: 256,
            stall: Duration::from_secs(30),
            stall_when_full: Duration::from_secs(1),
            cancelled: 100,
            cancelled_per_second: 20,
        }
    }
}

/// What all clients share.
#[derive(Debug)]
pub(crate) struct Shared {
    limits: Limits,
    files: Arc<Semaphore>,
}

impl Shared {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        let files = Arc::new(Semaphore::new(limits.files));
        Arc::new(Self { limits, files })
    }
}

/// What one client takes up.
#[derive(Debug)]
pub(crate) struct Client {
    shared: Arc<Shared>,
    files: Arc<Semaphore>,
    cancelled: Mutex<Bucket>,
}

/// Leave to have one file open.
#[derive(Debug)]
pub(crate) struct OpenFile {
    _of_client: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

/// The request let nothing through for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stalled;

impl Client {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let limits = &shared.limits;
        let files = Arc::new(Semaphore::new(limits.files_per_client));
        let cancelled = Mutex::new(Bucket::new(limits, Instant::now()));
        Self {
            shared,
            files,
            cancelled,
        }
    }

    /// Waits for leave to open a file; `None` if there is never any.
    pub(crate) async fn open_file(&self) -> Option<OpenFile> {
        // First its own: a client with many requests must not keep others from the rest.
        let of_client = self.files.clone().acquire_owned().await.ok()?;
        let of_all = self.shared.files.clone().acquire_owned().await.ok()?;
        Some(OpenFile {
            _of_client: of_client,
            _of_all: of_all,
        })
    }

    /// Lets an `attempt` wait for the client, unless that takes too long.
    pub(crate) async fn progress<T>(&self, attempt: impl Future<Output = T>) -> Result<T, Stalled> {
        let limits = &self.shared.limits;
        let look = limits.stall_when_full.min(limits.stall);
        let since = Instant::now();
        tokio::pin!(attempt);
        loop {
            if let Ok(result) = tokio::time::timeout(look, &mut attempt).await {
                return Ok(result);
            }
            let is_full = self.shared.files.available_permits() == 0;
            if is_full || since.elapsed() >= limits.stall {
                return Err(Stalled);
            }
        }
    }

    /// A request was cancelled; true if that happened too often.
    pub(crate) fn on_cancelled(&self) -> bool {
        let bucket = self.cancelled.lock();
        let mut bucket = bucket.unwrap_or_else(PoisonError::into_inner);
        !bucket.take(&self.shared.limits, Instant::now())
    }
}

/// A token bucket.
#[derive(Debug)]
struct Bucket {
    /// What is left.
    tokens: f64,
    /// When that was so.
    at: Instant,
}

impl Bucket {
    fn new(limits: &Limits, now: Instant) -> Self {
        Self {
            tokens: f64::from(limits.cancelled),
            at: now,
        }
    }

    /// Takes one; false if none is left.
    fn take(&mut self, limits: &Limits, now: Instant) -> bool {
        let more = now.duration_since(self.at).as_secs_f64();
        let more = more * f64::from(limits.cancelled_per_second);
        self.tokens = (self.tokens + more).min(f64::from(limits.cancelled));
        self.at = now;
        let is_left = self.tokens >= 1.0;
        if is_left {
            self.tokens -= 1.0;
        }
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_may_be_cancelled_at_once_and_more_as_time_passes() {
        let limits = Limits::default();
        let start = Instant::now();
        let mut bucket = Bucket::new(&limits, start);
        let mut count = |seconds: u64| {
            let now = start + Duration::from_secs(seconds);
            (0..1000).filter(|_| bucket.take(&limits, now)).count()
        };
        assert_eq!(count(0), 100);
        assert_eq!(count(1), 20);
        assert_eq!(count(2), 20);
        assert_eq!(count(1000), 100);
    }
}
