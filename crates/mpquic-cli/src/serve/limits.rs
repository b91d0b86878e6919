//! Limits for a server's clients, each and together.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::rate::Rate;
use crate::rate::bucket::Bucket;
use crate::rate::pace::Pace;
use crate::serve::client_limits::{AddressLimits, Addresses, AtAddress};

/// How long it is looked how much a request lets through.
const WINDOW: Duration = Duration::from_secs(10);
/// Bytes that a client must accept in this time while the limit of open files is reached.
const LEAST: u64 = 4096;

/// The limits of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Open files of one client.
    pub(crate) files_per_client: usize,
    /// Open files in all, fewer than descriptors and threads.
    pub(crate) files: usize,
    /// A request is given up if its client accepts no data for this time.
    pub(crate) stall: Duration,
    /// The same while the limit of open files is reached.
    pub(crate) stall_when_full: Duration,
    /// Requests that a client may cancel in quick succession.
    pub(crate) cancelled: u32,
    /// Further requests that may be cancelled per second.
    pub(crate) cancelled_per_second: u32,
    /// Rate of files to all clients together.
    pub(crate) rate: Option<Rate>,
    /// Limits for the connections of one address together.
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
    /// Open files of each address (of IPv6: each network of 64 bits) with a connection.
    shares: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
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
            shares: Mutex::default(),
            pace: limits.rate.map(Pace::new),
            addresses,
        })
    }

    /// Half of the limit for one address, so that no address takes all.
    fn share(&self, address: IpAddr) -> Arc<Semaphore> {
        let network = match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                IpAddr::from([a, b, c, d, 0, 0, 0, 0])
            }
            address => address,
        };
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(&network).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let Limits {
            files,
            files_per_client,
            ..
        } = self.limits;
        let share = Arc::new(Semaphore::new((files / 2).max(files_per_client).min(files)));
        shares.insert(network, Arc::downgrade(&share));
        share
    }
}

/// One client's use of the limits.
#[derive(Debug)]
pub(crate) struct Client {
    shared: Arc<Shared>,
    files: Arc<Semaphore>,
    /// The share of the client's address.
    share: Arc<Semaphore>,
    cancelled: Mutex<Bucket>,
    address: AtAddress,
}

/// Permission for one open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    _of_client: OwnedSemaphorePermit,
    _of_address: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

/// The request let nothing through for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stalled;

/// What a request has let through of late.
#[derive(Debug)]
pub(crate) struct Window {
    began: Instant,
    bytes: u64,
}

impl Window {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            bytes: 0,
        }
    }
}

impl Client {
    /// For a new connection of a proven address; `None` if the address has too many.
    pub(crate) fn new(shared: Arc<Shared>, address: IpAddr) -> Option<Self> {
        let limits = &shared.limits;
        let files = Arc::new(Semaphore::new(limits.files_per_client));
        let cancelled = Bucket::new(
            limits.cancelled,
            limits.cancelled_per_second,
            Instant::now(),
        );
        let share = shared.share(address);
        let address = shared.addresses.connect(address)?;
        Some(Self {
            shared,
            files,
            share,
            cancelled: Mutex::new(cancelled),
            address,
        })
    }

    /// Waits for permission to open a file; `None` if the server allows none.
    pub(crate) async fn open_file(&self) -> Option<OpenFile> {
        // First its own: a client with many requests must not keep others from the rest.
        let of_client = self.files.clone().acquire_owned().await.ok()?;
        let of_address = self.share.clone().acquire_owned().await.ok()?;
        let of_all = self.shared.files.clone().acquire_owned().await.ok()?;
        Some(OpenFile {
            _of_client: of_client,
            _of_address: of_address,
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
            // A client below its share may pause.
            let is_taker = self.share.available_permits() == 0;
            if (is_taker && self.is_full()) || since.elapsed() >= limits.stall {
                return Err(Stalled);
            }
        }
    }

    fn is_full(&self) -> bool {
        self.shared.files.available_permits() == 0
    }

    /// Counts what a request has let through. One byte now and then is too little while others wait.
    pub(crate) fn keeps_up(&self, window: &mut Window, bytes: usize) -> Result<(), Stalled> {
        window.bytes += bytes as u64;
        if window.began.elapsed() < WINDOW {
            return Ok(());
        }
        let over = std::mem::replace(window, Window::new());
        match over.bytes < LEAST && self.is_full() {
            true => Err(Stalled),
            false => Ok(()),
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
    async fn stalled_clients_have_less_time_while_others_wait() {
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
    async fn cancelled_requests_are_limited() {
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

    /// An address gets half of the files, over any number of connections.
    #[tokio::test(start_paused = true)]
    async fn no_address_takes_all_and_who_takes_little_may_pause() {
        let limits = Limits {
            files: 8,
            files_per_client: 2,
            ..Limits::default()
        };
        let shared = Shared::new(limits);
        let client = |address: &str| {
            let address = address.parse().unwrap();
            Client::new(shared.clone(), address).unwrap()
        };
        let open = async |client: &Client| {
            let open = client.open_file();
            let waited = tokio::time::timeout(Duration::from_secs(60), open).await;
            waited.ok().flatten()
        };
        let [first, second, third] = ["2001:db8::1", "2001:db8::2", "2001:db8::3"].map(client);
        let [other, honest] = ["192.0.2.1", "192.0.2.2"].map(client);
        let mut files = Vec::new();
        for taker in [&first, &first, &second, &second] {
            files.push(open(taker).await.unwrap());
        }
        assert!(open(&third).await.is_none(), "of the same network");
        for taker in [&other, &other, &honest] {
            files.push(open(taker).await.unwrap());
        }
        let last = client("192.0.2.3");
        files.push(open(&last).await.unwrap());
        assert!(is_about(waits(&first).await, limits.stall_when_full));
        assert!(is_about(waits(&honest).await, limits.stall));
    }

    #[tokio::test(start_paused = true)]
    async fn a_byte_now_and_then_is_too_little_while_others_wait() {
        let client = client(Limits {
            files: 1,
            ..Limits::default()
        });
        let until_stalled = async |bytes: usize| {
            let mut window = Window::new();
            for second in 1..=100 {
                tokio::time::advance(Duration::from_secs(1)).await;
                if client.keeps_up(&mut window, bytes).is_err() {
                    return Some(second);
                }
            }
            None
        };
        assert_eq!(until_stalled(1).await, None, "nobody waits");
        let _open = client.open_file().await.unwrap();
        assert_eq!(until_stalled(1).await, Some(10));
        assert_eq!(until_stalled(LEAST as usize).await, None);
    }
}
