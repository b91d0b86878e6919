//! [`Strangers`]: connections of strangers to the ports of clients. The strangers of a client share
//! a number of connections.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::flow_table::{Carried, Flow};
use crate::giving_way::Use;
use crate::shares::{Holding, Measure, Pool, Rules, Taker};

/// After this time without a byte of the stranger, a connection gives way to connections of others.
const SILENT: Duration = Duration::from_secs(10);
/// At this number of clients, clients without connections are forgotten.
const MANY: usize = 1024;

/// The connections of the strangers of one client.
#[derive(Debug, Clone)]
pub(crate) struct Strangers(Pool);

impl Strangers {
    /// Strangers with this number of connections.
    pub(crate) fn new(most: u64) -> Self {
        Self(Pool::new(Rules {
            capacity: most,
            // A front server of the client may be the only source.
            floor: u64::MAX,
            grace: Duration::ZERO,
            window: SILENT,
        }))
    }

    /// Counts a connection from this address among at most `most` connections. A source with many
    /// connections gives way to a source with few. `None` if no connection gives way.
    pub(crate) fn try_take(&self, from: IpAddr, most: u64) -> Option<Holding> {
        // The options may have changed.
        self.0.set_capacity(most);
        let source = Taker::new(None, from);
        let held = self.0.try_take_of(&source, 1, most).or_else(|| {
            // No source has more connections: the silent connections of this source give way.
            let own = self.0.used_by(&source).max(1);
            self.0.try_take_of(&source, 1, own)
        })?;
        held.measure(Arc::new(Waits(Instant::now())));
        Some(held)
    }
}

/// The strangers of each client with ports at a server.
#[derive(Debug, Default)]
pub(crate) struct StrangersOfAll(Mutex<BTreeMap<Taker, Strangers>>);

impl StrangersOfAll {
    /// [`Strangers::try_take`] for the strangers of this client.
    pub(crate) fn try_take(&self, owner: &Taker, from: IpAddr, most: u64) -> Option<Holding> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MANY {
            all.retain(|_, strangers| strangers.0.used() > 0);
        }
        let strangers = all.entry(owner.clone());
        let strangers = strangers.or_insert_with(|| Strangers::new(most));
        strangers.try_take(from, most)
    }
}

/// The use of a connection that waits for the client since this time.
#[derive(Debug)]
pub(crate) struct Waits(pub(crate) Instant);

impl Measure for Waits {
    fn used(&self, _: Instant) -> Use {
        Use {
            is_answered: false,
            last: self.0,
        }
    }
}

/// The use of a connection by the data of the stranger.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) flow: Arc<Flow>,
    /// The stranger's bytes.
    pub(crate) bytes: fn(&Carried) -> &AtomicU64,
}

impl Measure for Heard {
    fn used(&self, now: Instant) -> Use {
        let used = self.flow.used((self.bytes)(&self.flow.carried));
        Use {
            // After the first byte of a stranger, the idle timeout alone counts.
            last: if used.is_answered { now } else { used.last },
            ..used
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(strangers: &StrangersOfAll, owner: &str, from: u8) -> Option<Holding> {
        let from = IpAddr::from([192, 0, 2, from]);
        strangers.try_take(&Taker::User(owner.into()), from, 4)
    }

    #[tokio::test(start_paused = true)]
    async fn one_source_leaves_connections_for_others() {
        let strangers = StrangersOfAll::default();
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(take(&strangers, "a", 1).unwrap());
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert!(take(&strangers, "b", 1).is_some(), "another owner");
        let other = [take(&strangers, "a", 2), take(&strangers, "a", 2)];
        assert!(other.iter().all(Option::is_some));
        let ended: Vec<_> = held.iter().map(Holding::has_ended).collect();
        assert_eq!(ended, [true, true, false, false]);
        // Between sources with equal numbers, a silent connection of the same source gives way.
        let next = take(&strangers, "a", 1);
        let ended: Vec<_> = held.iter().map(Holding::has_ended).collect();
        assert!(next.is_some());
        assert_eq!(ended, [true, true, true, false]);
        assert!(!other.iter().flatten().any(Holding::has_ended));
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_silent_connection_gives_way() {
        let strangers = StrangersOfAll::default();
        let table = Arc::<crate::flow_table::FlowTable>::default();
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(take(&strangers, "a", 1).unwrap());
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        let speaking = table.begin(crate::class::FlowKind::Tcp, None, Some("a"), None);
        held[0].measure(Arc::new(Heard {
            flow: (*speaking).clone(),
            bytes: |carried| &carried.to_stream,
        }));
        (speaking.carried.to_stream).fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let next = take(&strangers, "a", 1);
        assert!(next.is_some());
        let ended: Vec<_> = held.iter().map(Holding::has_ended).collect();
        assert_eq!(ended, [false, true, false, false]);
        // Many sources with a connection each: a silent connection gives way after a while.
        let strangers = StrangersOfAll::default();
        let held: Vec<_> = (0..4)
            .filter_map(|from| take(&strangers, "a", from))
            .collect();
        assert!(take(&strangers, "a", 9).is_none());
        tokio::time::advance(SILENT).await;
        assert!(take(&strangers, "a", 9).is_some());
        assert_eq!(held.iter().filter(|held| held.has_ended()).count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn owners_without_connections_are_forgotten() {
        let strangers = StrangersOfAll::default();
        let held = take(&strangers, "kept", 1);
        for owner in 0..3 * MANY {
            assert!(take(&strangers, &owner.to_string(), 1).is_some());
        }
        let all = strangers.0.lock().unwrap();
        assert!(all.len() <= MANY && all.contains_key(&Taker::User("kept".into())));
        drop(held);
    }
}
