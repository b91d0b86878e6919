//! Rates for the clients of one address, over all their connections.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mpquic_proxy::shares::Network;
use tokio::time::Instant;

use crate::rate::Rate;
use crate::rate::bucket::Bucket;
use crate::rate::pace::{self, Meter};

/// Time after the last connection of an address until its counts are forgotten, so a new connection
/// gains nothing.
const MEMORY: Duration = Duration::from_secs(10);

/// The limits for one address; `None` is no limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AddressLimits {
    /// Connections open at a time.
    pub(crate) connections: Option<u32>,
    /// Requests per second, and requests at once.
    pub(crate) requests_per_second: Option<u32>,
    /// Rate of files.
    pub(crate) rate: Option<Rate>,
    /// Requests cancelled at once: more than one connection may cancel, because an address can have
    /// several users.
    pub(crate) cancelled: u32,
    /// Further requests cancelled per second.
    pub(crate) cancelled_per_second: u32,
}

impl Default for AddressLimits {
    fn default() -> Self {
        Self {
            connections: None,
            requests_per_second: None,
            rate: None,
            cancelled: 400,
            cancelled_per_second: 80,
        }
    }
}

/// The addresses with open or recently closed connections.
#[derive(Debug)]
pub(crate) struct Addresses {
    limits: AddressLimits,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    accounts: BTreeMap<Network, Account>,
    /// Time of the last search for addresses without connections.
    swept: Instant,
}

#[derive(Debug)]
struct Account {
    connections: u32,
    requests: Bucket,
    cancelled: Bucket,
    sent: Meter,
    /// The end of the last connection, if the address has no open connection.
    left: Instant,
}

/// A connection of an address.
#[derive(Debug)]
pub(crate) struct AtAddress {
    addresses: Arc<Addresses>,
    network: Network,
}

impl Addresses {
    pub(crate) fn new(limits: AddressLimits) -> Arc<Self> {
        let known = Mutex::new(Known {
            accounts: BTreeMap::new(),
            swept: Instant::now(),
        });
        Arc::new(Self { limits, known })
    }

    /// A new connection of a validated address.
    pub(crate) fn connect(self: &Arc<Self>, address: IpAddr) -> AtAddress {
        let now = Instant::now();
        let network = Network::of(address);
        let allowed = self.limits.requests_per_second.unwrap_or_default();
        let mut known = self.lock();
        known.sweep(now);
        let account = known.accounts.entry(network).or_insert_with(|| Account {
            connections: 0,
            requests: Bucket::new(allowed, allowed, now),
            cancelled: Bucket::new(self.limits.cancelled, self.limits.cancelled_per_second, now),
            sent: Meter::new(now),
            left: now,
        });
        account.connections += 1;
        AtAddress {
            addresses: self.clone(),
            network,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn sweep(&mut self, now: Instant) {
        if now < self.swept + MEMORY {
            return;
        }
        self.swept = now;
        self.accounts
            .retain(|_, account| account.connections > 0 || now < account.left + MEMORY);
    }
}

impl AtAddress {
    /// Counts a request; false beyond the limit.
    pub(crate) fn may_request(&self) -> bool {
        if self.addresses.limits.requests_per_second.is_none() {
            return true;
        }
        let mut known = self.addresses.lock();
        let account = known.accounts.get_mut(&self.network);
        account.is_none_or(|account| account.requests.take(Instant::now()))
    }

    /// Counts a cancelled request; true after too many.
    pub(crate) fn on_cancelled(&self) -> bool {
        let mut known = self.addresses.lock();
        let account = known.accounts.get_mut(&self.network);
        account.is_some_and(|account| !account.cancelled.take(Instant::now()))
    }

    /// Largest number of bytes to send before the next [`Self::pace`].
    pub(crate) fn largest_piece(&self) -> usize {
        let rate = self.addresses.limits.rate;
        rate.map_or(usize::MAX, pace::piece)
    }

    /// Waits until these bytes may be sent.
    pub(crate) async fn pace(&self, bytes: usize) {
        let Some(rate) = self.addresses.limits.rate else {
            return;
        };
        let now = Instant::now();
        let due = {
            let mut known = self.addresses.lock();
            let Some(account) = known.accounts.get_mut(&self.network) else {
                return;
            };
            account.sent.add(bytes, rate, now)
        };
        tokio::time::sleep_until(due).await;
    }
}

impl Drop for AtAddress {
    fn drop(&mut self) {
        let mut known = self.addresses.lock();
        if let Some(account) = known.accounts.get_mut(&self.network) {
            account.connections = account.connections.saturating_sub(1);
            account.left = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn connecting_anew_gains_no_requests() {
        let addresses = Addresses::new(AddressLimits {
            requests_per_second: Some(5),
            ..AddressLimits::default()
        });
        let answered = || {
            let mut requests = (0..20).map(|_| addresses.connect(ip("192.0.2.1")));
            let client = requests.by_ref().map(|client| client.may_request());
            client.filter(|may| *may).count()
        };
        assert_eq!(answered(), 5);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(answered(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn connecting_anew_gains_no_cancelled_requests() {
        let addresses = Addresses::new(AddressLimits::default());
        let allowed = |address| {
            let mut cancelled = (0..1000).map(|_| addresses.connect(ip(address)).on_cancelled());
            cancelled.by_ref().filter(|too_many| !too_many).count()
        };
        assert_eq!(allowed("192.0.2.1"), 400);
        assert_eq!(allowed("192.0.2.2"), 400, "another address");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(allowed("192.0.2.1"), 80);
    }

    #[tokio::test(start_paused = true)]
    async fn connections_of_one_address_share_its_rate() {
        let addresses = Addresses::new(AddressLimits {
            rate: Some(Rate::mbit(8)),
            ..AddressLimits::default()
        });
        let start = Instant::now();
        let two = [(); 2].map(|()| addresses.connect(ip("192.0.2.1")));
        for _ in 0..10 {
            two[0].pace(500_000).await;
            two[1].pace(500_000).await;
        }
        assert_eq!(start.elapsed().as_secs_f64().round(), 10.0);
        let other = addresses.connect(ip("192.0.2.2"));
        let start = Instant::now();
        other.pace(100_000).await;
        assert!(start.elapsed() <= Duration::from_millis(100));
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_are_forgotten() {
        let addresses = Addresses::new(AddressLimits::default());
        let stays = addresses.connect(ip("192.0.2.1"));
        for last in 2..200 {
            drop(addresses.connect(IpAddr::from([192, 0, 2, last])));
        }
        tokio::time::advance(2 * MEMORY).await;
        drop(addresses.connect(ip("192.0.2.250")));
        assert_eq!(addresses.lock().accounts.len(), 2);
        drop(stays);
    }

    /// The search for old addresses runs [`MEMORY`] after the search before, and forgets each
    /// address whose last connection ended at least [`MEMORY`] ago.
    #[tokio::test(start_paused = true)]
    async fn addresses_are_remembered_for_a_while() {
        let addresses = Addresses::new(AddressLimits::default());
        let come_and_go = |last| drop(addresses.connect(IpAddr::from([192, 0, 2, last])));
        let known = || addresses.lock().accounts.len();
        come_and_go(1);
        tokio::time::advance(MEMORY / 2).await;
        come_and_go(2);
        tokio::time::advance(MEMORY / 2 - Duration::from_millis(1)).await;
        come_and_go(3);
        assert_eq!(known(), 3);
        tokio::time::advance(Duration::from_millis(1)).await;
        come_and_go(4);
        assert_eq!(known(), 3, "the first is gone");
        tokio::time::advance(MEMORY - Duration::from_millis(1)).await;
        come_and_go(5);
        assert_eq!(known(), 4, "it is not looked again yet");
        tokio::time::advance(Duration::from_millis(1)).await;
        come_and_go(6);
        assert_eq!(known(), 2);
    }
}
