//! [`Failures`]: addresses that show wrong credentials have to wait, longer each time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ipnet::IpNet;
use tokio::time::Instant;

/// Failures that cost nothing: people mistype.
const FREE: u32 = 5;
/// The first wait. Each is twice as long as the one before.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(300);
/// Networks that are remembered.
const MOST: usize = 4096;

/// Counts failures by network: an IPv4 address, or 64 bits of an IPv6 address, of which a client has
/// all.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<BTreeMap<IpNet, Failed>>);

#[derive(Debug, Clone, Copy)]
struct Failed {
    count: u32,
    /// Nothing is looked at before.
    until: Instant,
}

impl Failures {
    /// How long an address still has to wait; `None` if it need not.
    pub(crate) fn wait(&self, address: IpAddr) -> Option<Duration> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = known.get(&network(address))?;
        let wait = failed.until.saturating_duration_since(Instant::now());
        (!wait.is_zero()).then_some(wait)
    }

    /// An address showed wrong credentials.
    pub(crate) fn on_failure(&self, address: IpAddr) {
        let now = Instant::now();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let network = network(address);
        if known.len() >= MOST && !known.contains_key(&network) {
            forget(&mut known, now);
        }
        let failed = known.entry(network).or_insert(Failed {
            count: 0,
            until: now,
        });
        failed.count = failed.count.saturating_add(1);
        if let Some(doublings) = failed.count.checked_sub(FREE) {
            failed.until = now + LONGEST.min(FIRST * (1 << doublings.min(16)));
        }
    }

    /// It showed right ones.
    pub(crate) fn on_success(&self, address: IpAddr) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(&network(address));
    }
}

/// Makes room: those who have waited long enough, or else the one who has waited longest.
fn forget(known: &mut BTreeMap<IpNet, Failed>, now: Instant) {
    known.retain(|_, failed| now < failed.until + LONGEST);
    if known.len() >= MOST {
        let first = known.iter().min_by_key(|(_, failed)| failed.until);
        if let Some(network) = first.map(|(network, _)| *network) {
            known.remove(&network);
        }
    }
}

fn network(address: IpAddr) -> IpNet {
    let address = address.to_canonical();
    let length = if address.is_ipv4() { 32 } else { 64 };
    IpNet::new(address, length).map_or(address.into(), |network| network.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_failure_costs_more_time() {
        let failures = Failures::default();
        let address = "2001:db8::1".parse().unwrap();
        let neighbour = "2001:db8::2".parse().unwrap();
        let other = "2001:db8:0:1::1".parse().unwrap();
        for _ in 1..FREE {
            failures.on_failure(address);
            assert_eq!(failures.wait(address), None);
        }
        for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            failures.on_failure(address);
            let wait = Duration::from_secs(seconds);
            assert_eq!(failures.wait(address), Some(wait));
            assert_eq!(failures.wait(neighbour), Some(wait));
            assert_eq!(failures.wait(other), None);
            tokio::time::advance(wait).await;
            assert_eq!(failures.wait(address), None);
        }
        failures.on_success(address);
        failures.on_failure(address);
        assert_eq!(failures.wait(address), None);
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded() {
        let failures = Failures::default();
        for number in 0..MOST as u32 + 100 {
            failures.on_failure(IpAddr::V4(number.into()));
        }
        assert_eq!(failures.0.lock().unwrap().len(), MOST);
    }
}
