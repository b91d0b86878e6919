//! [`PathMemory`]: what paths could carry, kept from one connection to the next (RFC 9959).

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::congestion::SavedCapacity;
use crate::ids::FourTuple;

/// For how long [`RecentPaths`] remembers a path, and a client how long it took to hear of a server.
pub const LIFETIME: Duration = Duration::from_secs(3600);
/// How many paths it remembers.
const CAPACITY: usize = 1024;

/// Between which hosts, and over which of their interfaces, a path runs. Ports do not matter: another
/// connection has others, over the same network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPair {
    /// Our address; unspecified if the driver does not know it.
    pub local: IpAddr,
    /// The peer's.
    pub remote: IpAddr,
}

impl From<FourTuple> for HostPair {
    fn from(four_tuple: FourTuple) -> Self {
        Self {
            local: four_tuple.local.ip(),
            remote: four_tuple.remote.ip(),
        }
    }
}

/// Remembers what paths could carry. Called when a path opens, and about once a second while data
/// flows on it.
///
/// ```
/// use std::sync::Arc;
/// use std::time::{Duration, Instant};
///
/// use mpquic_core::congestion::SavedCapacity;
/// use mpquic_core::path_memory::{PathMemory, RecentPaths, HostPair};
///
/// let memory: Arc<dyn PathMemory> = Arc::new(RecentPaths::default());
/// let route = HostPair { local: [192, 0, 2, 1].into(), remote: [198, 51, 100, 1].into() };
/// let saved = SavedCapacity { window: 7_500_000, rtt: Duration::from_millis(600) };
/// let now = Instant::now();
/// memory.save(route, saved, now);
/// assert_eq!(memory.load(route, now), Some(saved));
/// ```
pub trait PathMemory: fmt::Debug + Send + Sync {
    /// The saved capacity of a path, unless outdated.
    fn load(&self, route: HostPair, now: Instant) -> Option<SavedCapacity>;
    /// Saves the path's present capacity, and replaces an earlier one.
    fn save(&self, route: HostPair, saved: SavedCapacity, now: Instant);
    /// The saved capacity was too large: it must not be used again (RFC 9959 section 3.5).
    fn forget(&self, route: HostPair);
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    saved: SavedCapacity,
    at: Instant,
}

/// Remembers a thousand paths for an hour, in memory. The oldest give way to new ones.
#[derive(Debug, Default)]
pub struct RecentPaths {
    entries: Mutex<BTreeMap<HostPair, Entry>>,
}

impl RecentPaths {
    /// All saved capacities, with the time of saving: another process can take them over with
    /// [`save`](PathMemory::save).
    pub fn all(&self) -> Vec<(HostPair, SavedCapacity, Instant)> {
        let entries = self.entries();
        let all = entries.iter();
        all.map(|(route, entry)| (*route, entry.saved, entry.at))
            .collect()
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<HostPair, Entry>> {
        // No call leaves the map half changed.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PathMemory for RecentPaths {
    fn load(&self, route: HostPair, now: Instant) -> Option<SavedCapacity> {
        let entry = *self.entries().get(&route)?;
        let age = now.saturating_duration_since(entry.at);
        (age <= LIFETIME).then_some(entry.saved)
    }

    fn save(&self, route: HostPair, saved: SavedCapacity, now: Instant) {
        let mut entries = self.entries();
        if entries.len() >= CAPACITY && !entries.contains_key(&route) {
            let oldest = entries.iter().min_by_key(|(_, entry)| entry.at);
            if let Some(oldest) = oldest.map(|(route, _)| *route) {
                entries.remove(&oldest);
            }
        }
        entries.insert(route, Entry { saved, at: now });
    }

    fn forget(&self, route: HostPair) {
        self.entries().remove(&route);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    fn start() -> Instant {
        Instant::now()
    }

    fn route(host: u16) -> HostPair {
        let [a, b] = host.to_be_bytes();
        HostPair {
            local: [10, 0, 0, 1].into(),
            remote: [10, 1, a, b].into(),
        }
    }

    const SAVED: SavedCapacity = SavedCapacity {
        window: 1_000_000,
        rtt: Duration::from_millis(40),
    };

    #[test]
    fn a_path_is_remembered_for_an_hour() {
        let (memory, now) = (RecentPaths::default(), start());
        memory.save(route(1), SAVED, now);
        assert_eq!(memory.load(route(1), now + LIFETIME), Some(SAVED));
        assert_eq!(memory.all(), [(route(1), SAVED, now)]);
        let later = now + LIFETIME + Duration::from_secs(1);
        assert_eq!(memory.load(route(1), later), None);
        assert_eq!(memory.load(route(2), now), None);
        memory.forget(route(1));
        assert_eq!(memory.load(route(1), now), None);
    }

    #[test]
    fn the_oldest_gives_way() {
        let (memory, start) = (RecentPaths::default(), start());
        let second = |host: u16| start + Duration::from_secs(host.into());
        let count = u16::try_from(CAPACITY).unwrap();
        for host in 0..=count {
            memory.save(route(host), SAVED, second(host));
        }
        assert_eq!(memory.load(route(0), second(count)), None);
        assert_eq!(memory.load(route(1), second(count)), Some(SAVED));
        assert_eq!(memory.entries().len(), CAPACITY);
        // One that is known already takes no other's place.
        memory.save(route(count), SAVED, second(count));
        assert_eq!(memory.entries().len(), CAPACITY);
    }
}
