//! What clients of a server may take up: one of them, and all together.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::addresses::{AddressLimits, Addresses, AtAddress};
use crate::bucket::Bucket;
use crate::pace::Pace;
use crate::rate::Rate;

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
    /// Rate of files to all clients together.
    pub(crate) rate: Option<Rate>,
    /// What the connections of one address may take up together.
    pub(crate) address: AddressLimits,
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
            rate: None,
            address: AddressLimits::default(),
        }
    }
}

/// What all clients share.
#[derive(Debug)]
pub(crate) struct Shared {
    limits: Limits,
    files: Arc<Semaphore>,
    pace: Option<Pace>,
    addresses: Arc<Addresses>,
}

impl Shared {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        let files = Arc::new(Semaphore::new(limits.files));
        let addresses = Addresses::new(limits.address);
        Arc::new(Self {
            limits,
            files,
            pace: limits.rate.map(Pace::new),
            addresses,
        })
    }
}

/// What one client takes up.
#[derive(Debug)]
pub(crate) struct Client {
    shared: Arc<Shared>,
    files: Arc<Semaphore>,
    cancelled: Mutex<Bucket>,
    address: AtAddress,
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
    /// For a new connection of an address that was proven; `None` if it has too many.
    pub(crate) fn new(shared: Arc<Shared>, address: IpAddr) -> Option<Self> {
        let limits = &shared.limits;
        let files = Arc::new(Semaphore::new(limits.files_per_client));
        let cancelled = Bucket::new(
            limits.cancelled,
            limits.cancelled_per_second,
            Instant::now(),
        );
        let address = shared.addresses.connect(address)?;
        Some(Self {
            shared,
            files,
            cancelled: Mutex::new(cancelled),
            address,
        })
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
        !bucket.take(Instant::now())
    }

    /// Counts a request; false if there are too many.
    pub(crate) fn may_request(&self) -> bool {
        self.address.may_request()
    }

    /// The most bytes that should be sent before the next [`Self::pace`].
    pub(crate) fn largest_piece(&self) -> usize {
        let of_all = self.shared.pace.as_ref().map_or(usize::MAX, Pace::piece);
        self.address.largest_piece().min(of_all)
    }

    /// Waits until these bytes may be sent to the client.
    pub(crate) async fn pace(&self, bytes: usize) {
        self.address.pace(bytes).await;
        if let Some(pace) = &self.shared.pace {
            pace.wait(bytes).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(limits: Limits) -> Client {
        Client::new(Shared::new(limits), [192, 0, 2, 1].into()).unwrap()
    }

    /// How long an attempt without end is let wait.
    async fn waits(client: &Client) -> Duration {
        let start = Instant::now();
        let attempt = client.progress(std::future::pending::<()>());
        assert_eq!(attempt.await, Err(Stalled));
        start.elapsed()
    }

    fn is_about(took: Duration, expected: Duration) -> bool {
        (expected..expected + Duration::from_millis(10)).contains(&took)
    }

    #[tokio::test(start_paused = true)]
    async fn who_lets_nothing_through_has_less_time_while_others_wait() {
        let limits = Limits {
            files: 1,
            ..Limits::default()
        };
        let client = client(limits);
        assert!(is_about(waits(&client).await, limits.stall));
        let open = client.open_file().await.unwrap();
        assert!(is_about(waits(&client).await, limits.stall_when_full));
        drop(open);
        let late = tokio::time::sleep(limits.stall - Duration::from_millis(1));
        assert_eq!(client.progress(late).await, Ok(()));
        let short = super::Limits {
            stall: Duration::from_millis(50),
            ..limits
        };
        assert!(is_about(waits(&self::client(short)).await, short.stall));
    }

    #[tokio::test(start_paused = true)]
    async fn some_requests_may_be_cancelled() {
        let client = client(Limits::default());
        let too_often = || (0..200).filter(|_| client.on_cancelled()).count();
        assert_eq!(too_often(), 100);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(too_often(), 180);
    }

    #[tokio::test(start_paused = true)]
    async fn the_requests_of_an_address_are_counted() {
        let mut limits = Limits::default();
        limits.address.requests_per_second = Some(2);
        let client = client(limits);
        let answered = || (0..5).filter(|_| client.may_request()).count();
        assert_eq!(answered(), 2);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(answered(), 2);
        let unlimited = self::client(Limits::default());
        assert!((0..1000).all(|_| unlimited.may_request()));
    }

    #[tokio::test(start_paused = true)]
    async fn all_clients_share_a_rate() {
        let limits = Limits {
            rate: Some(Rate::mbit(8)),
            ..Limits::default()
        };
        let client = client(limits);
        assert_eq!(client.largest_piece(), 10_000);
        let start = Instant::now();
        for _ in 0..10 {
            client.pace(100_000).await;
        }
        assert!(is_about(start.elapsed(), Duration::from_secs(1)));
        let unlimited = self::client(Limits::default());
        assert_eq!(unlimited.largest_piece(), usize::MAX);
        let start = Instant::now();
        unlimited.pace(1 << 30).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
