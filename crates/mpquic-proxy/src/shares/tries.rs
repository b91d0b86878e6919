//! [`Tries`]: growing waits after wrong credentials.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::taker::Network;

/// Wrong tries without a wait: people mistype.
const FREE: u32 = 5;
/// The first wait. Each further failure doubles the wait.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(300);
/// While an address waits, one credential of a name without failures is checked in this time,
/// because several people may share the address.
const LOOK: Duration = Duration::from_secs(1);
/// Names of an address share this number of counters, which limits memory.
const PLACES: u8 = 64;
/// Counts that are remembered.
const MOST: usize = 16_384;

/// Wrong passwords and tokens, counted by [`Network`], since a client has all addresses of its
/// network. Within a network, each name has a count, too.
///
/// Call [`Self::wait`] before a check of a credential, and report its result.
#[derive(Debug, Default)]
pub(crate) struct Tries(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    failed: BTreeMap<Counted, Failed>,
    /// Names with a right credential from a network, and the time of the last one. Guesses at
    /// further names leave the counters of these names alone.
    present: BTreeMap<(Network, Name), Instant>,
}

/// The hash of a name.
type Name = [u8; 32];

type Counted = (Network, Whose);

/// The credentials that a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    All,
    /// A name that is present in the network.
    One(Name),
    /// The other names with one counter.
    Some(u8),
}

impl Known {
    fn is_present(&self, network: Network, name: &Name) -> bool {
        self.present.contains_key(&(network, *name))
    }

    /// The counter of a name.
    fn counter(&self, network: Network, name: &Name) -> Counted {
        let whose = if self.is_present(network, name) {
            Whose::One(*name)
        } else {
            Whose::Some(name.first().copied().unwrap_or_default() % PLACES)
        };
        (network, whose)
    }

    fn remember(&mut self, network: Network, name: &Name) {
        let is_new = !self.is_present(network, name);
        if is_new && self.present.len() >= MOST {
            let first = self.present.iter().min_by_key(|(_, last)| **last);
            if let Some(oldest) = first.map(|(oldest, _)| *oldest) {
                self.present.remove(&oldest);
            }
        }
        self.present.insert((network, *name), Instant::now());
    }
}

#[derive(Debug, Clone, Copy)]
struct Failed {
    count: u32,
    /// No credential is checked before this time.
    until: Instant,
    /// Time of the last check of a name without failures, during a wait.
    looked: Instant,
}

impl Failed {
    fn wait(&self, now: Instant) -> Option<Duration> {
        let wait = self.until.saturating_duration_since(now);
        (!wait.is_zero()).then_some(wait)
    }
}

impl Tries {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The wait before a credential of this name from this address is checked; `None` if it may be
    /// checked now.
    pub(crate) fn wait(&self, address: IpAddr, name: &str) -> Option<Duration> {
        let now = Instant::now();
        let mut known = self.lock();
        let network = Network::of(address);
        let name = hash(name);
        let has_failed = known.failed.contains_key(&known.counter(network, &name));
        let is_present = known.is_present(network, &name);
        let all = known.failed.get_mut(&(network, Whose::All))?;
        let wait = all.wait(now)?;
        if has_failed {
            return Some(wait);
        }
        if is_present {
            return None;
        }
        match now.saturating_duration_since(all.looked) {
            since if since < LOOK => Some(LOOK - since),
            _ => {
                all.looked = now;
                None
            }
        }
    }

    /// Counts a wrong credential for this name.
    pub(crate) fn on_failure(&self, address: IpAddr, name: &str) {
        let now = Instant::now();
        let mut known = self.lock();
        let network = Network::of(address);
        let own = known.counter(network, &hash(name));
        let known = &mut known.failed;
        for counted in [(network, Whose::All), own] {
            if known.len() >= MOST && !known.contains_key(&counted) {
                forget(known, now);
            }
            let failed = known.entry(counted).or_insert(Failed {
                count: 0,
                until: now,
                looked: now - LOOK,
            });
            failed.count = failed.count.saturating_add(1);
            if let Some(doublings) = failed.count.checked_sub(FREE) {
                failed.until = now + LONGEST.min(FIRST * (1 << doublings.min(16)));
            }
        }
    }

    /// Clears the failures of a name after a right credential. Failures of other names remain.
    pub(crate) fn on_success(&self, address: IpAddr, name: &str) {
        let mut known = self.lock();
        let network = Network::of(address);
        let name = hash(name);
        let counter = known.counter(network, &name);
        known.remember(network, &name);
        let Some(own) = known.failed.remove(&counter) else {
            return;
        };
        if let Some(all) = known.failed.get_mut(&(network, Whose::All)) {
            all.count = all.count.saturating_sub(own.count);
            if all.count < FREE {
                all.until = Instant::now();
            }
        }
    }
}

fn hash(name: &str) -> Name {
    Sha256::digest(name).into()
}

/// Makes room: forgets entries whose wait ended [`LONGEST`] ago, or else the entry whose wait ends
/// first.
fn forget(known: &mut BTreeMap<Counted, Failed>, now: Instant) {
    known.retain(|_, failed| now < failed.until + LONGEST);
    if known.len() >= MOST {
        let first = known.iter().min_by_key(|(_, failed)| failed.until);
        if let Some(counted) = first.map(|(counted, _)| *counted) {
            known.remove(&counted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_failure_costs_more_time() {
        let tries = Tries::default();
        let address = "2001:db8::1".parse().unwrap();
        let neighbour = "2001:db8::2".parse().unwrap();
        let other = "2001:db8:0:1::1".parse().unwrap();
        for _ in 1..FREE {
            tries.on_failure(address, "alice");
            assert_eq!(tries.wait(address, "alice"), None);
        }
        for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            tries.on_failure(address, "alice");
            let wait = Duration::from_secs(seconds);
            assert_eq!(tries.wait(address, "alice"), Some(wait));
            assert_eq!(tries.wait(neighbour, "alice"), Some(wait));
            assert_eq!(tries.wait(other, "alice"), None);
            tokio::time::advance(wait).await;
            assert_eq!(tries.wait(address, "alice"), None);
        }
        tries.on_success(address, "alice");
        tries.on_failure(address, "alice");
        assert_eq!(tries.wait(address, "alice"), None);
    }

    /// A user with right credentials cannot clear the failures of guesses at another name.
    #[tokio::test(start_paused = true)]
    async fn a_success_is_that_of_one_name() {
        let tries = Tries::default();
        let address = "192.0.2.1".parse().unwrap();
        for _ in 0..FREE {
            tries.on_failure(address, "bob");
            tries.on_success(address, "alice");
        }
        assert_eq!(tries.wait(address, "bob"), Some(FIRST));
        // A success clears the failures of its own name, and no others.
        let tries = Tries::default();
        for _ in 0..FREE {
            tries.on_failure(address, "bob");
            tries.on_failure(address, "alice");
            tries.on_success(address, "alice");
        }
        assert_eq!(tries.wait(address, "bob"), Some(2 * FIRST));
    }

    /// Many names are guessed from a shared address.
    #[tokio::test(start_paused = true)]
    async fn user_at_a_shared_address_is_still_looked_at() {
        let tries = Tries::default();
        let address = "192.0.2.1".parse().unwrap();
        for name in ["a", "b", "c", "d", "e", "f", "g"] {
            tries.on_failure(address, name);
        }
        assert_eq!(tries.wait(address, "a"), Some(4 * FIRST));
        assert_eq!(tries.wait(address, "alice"), None);
        assert_eq!(tries.wait(address, "bob"), Some(LOOK), "one in a second");
        tokio::time::advance(LOOK).await;
        assert_eq!(tries.wait(address, "bob"), None);
        // A right credential after a mistyped one clears these failures.
        tries.on_failure(address, "alice");
        assert_eq!(tries.wait(address, "a"), Some(8 * FIRST));
        for name in ["alice", "b", "c", "d"] {
            tries.on_success(address, name);
        }
        assert_eq!(tries.wait(address, "a"), None);
    }

    /// A neighbour guesses at 1,000 names, and every shared counter has failures.
    #[tokio::test(start_paused = true)]
    async fn guesses_at_other_names_do_not_hold_up_who_was_there() {
        let tries = Tries::default();
        let address = "192.0.2.1".parse().unwrap();
        tries.on_success(address, "alice");
        for number in 0..1000 {
            tries.on_failure(address, &number.to_string());
        }
        assert_eq!(tries.wait(address, "alice"), None);
        assert_eq!(
            tries.wait(address, "alice"),
            None,
            "as often as alice likes"
        );
        assert_eq!(tries.wait(address, "bob"), Some(LONGEST));
        let elsewhere = "198.51.100.1".parse().unwrap();
        tries.on_failure(elsewhere, "alice");
        assert_eq!(tries.wait(address, "alice"), None);
        // The first wrong credential of this name ends it.
        tries.on_failure(address, "alice");
        assert_eq!(tries.wait(address, "alice"), Some(LONGEST));
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded() {
        let tries = Tries::default();
        for number in 0..1000 {
            tries.on_failure("192.0.2.1".parse().unwrap(), &number.to_string());
        }
        assert_eq!(tries.lock().failed.len(), 1 + usize::from(PLACES));
        for number in 0..MOST as u32 {
            tries.on_failure(IpAddr::V4(number.into()), "alice");
        }
        assert_eq!(tries.lock().failed.len(), MOST);
        for number in 0..=MOST as u32 {
            tries.on_success(IpAddr::V4(number.into()), "alice");
        }
        assert_eq!(tries.lock().present.len(), MOST);
    }
}
