//! [`Strangers`]: connections of strangers to the ports of clients. The strangers of a client share
//! a number of connections.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::flow_table::Flow;
use crate::giving_way::Use;
use crate::shares::{Holding, Measure, Pool, Rules, Taker};

/// After this time without a byte of the stranger, a connection gives way to connections of others.
const SILENT: Duration = Duration::from_secs(10);
/// At this number of owners, owners without connections are forgotten.
const MANY: usize = 1024;

/// The connections of strangers, for each owner of ports.
#[derive(Debug, Default)]
pub(super) struct Strangers(Mutex<BTreeMap<Taker, Pool>>);

impl Strangers {
    /// Counts a connection from this address to a port of this owner. All strangers of the owner
    /// share `most` connections, and a source with many connections gives way to a source with few.
    /// `None` if no connection gives way.
    pub(super) fn try_take(&self, owner: &Taker, from: IpAddr, most: u64) -> Option<Holding> {
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pools.len() >= MANY {
            pools.retain(|_, pool| pool.used() > 0);
        }
        let pool = pools.entry(owner.clone()).or_insert_with(|| {
            Pool::new(Rules {
                capacity: most,
                // A front server of the user may be the only source.
                floor: u64::MAX,
                grace: Duration::ZERO,
                window: SILENT,
            })
        });
        // The options may have changed.
        pool.set_capacity(most);
        let held = pool.try_take_of(&Taker::new(None, from), 1, most)?;
        held.measure(Arc::new(Waits(Instant::now())));
        Some(held)
    }
}

/// The use of a connection that waits for the client since this time.
#[derive(Debug)]
pub(super) struct Waits(pub(super) Instant);

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
pub(super) struct Heard(pub(super) Arc<Flow>);

impl Measure for Heard {
    fn used(&self, now: Instant) -> Use {
        let used = self.0.used(&self.0.carried.to_stream);
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

    fn take(strangers: &Strangers, owner: &str, from: u8) -> Option<Holding> {
        let from = IpAddr::from([192, 0, 2, from]);
        strangers.try_take(&Taker::User(owner.into()), from, 4)
    }

    #[tokio::test(start_paused = true)]
    async fn one_source_leaves_connections_for_others() {
        let strangers = Strangers::default();
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
        // Both sources have the same number.
        assert!(take(&strangers, "a", 1).is_none());
        assert!(take(&strangers, "a", 2).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_silent_connection_gives_way() {
        let strangers = Strangers::default();
        let table = Arc::<crate::flow_table::FlowTable>::default();
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(take(&strangers, "a", 1).unwrap());
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        let speaking = table.begin(crate::class::FlowKind::Tcp, None, Some("a"), None);
        held[0].measure(Arc::new(Heard((*speaking).clone())));
        (speaking.carried.to_stream).fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let next = take(&strangers, "a", 1);
        assert!(next.is_some());
        let ended: Vec<_> = held.iter().map(Holding::has_ended).collect();
        assert_eq!(ended, [false, true, false, false]);
        // Many sources with a connection each: a silent connection gives way after a while.
        let strangers = Strangers::default();
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
        let strangers = Strangers::default();
        let held = take(&strangers, "kept", 1);
        for owner in 0..3 * MANY {
            assert!(take(&strangers, &owner.to_string(), 1).is_some());
        }
        let pools = strangers.0.lock().unwrap();
        assert!(pools.len() <= MANY && pools.contains_key(&Taker::User("kept".into())));
        drop(held);
    }
}
