//! [`Learnt`]: the entries that simulated connections leave for later ones.

use std::sync::Arc;

use mpquic_core::TimeSource;
use mpquic_core::knowledge::{Entry, Key, Knowledge, MemoryStore, Store};

/// A store that keeps tokens apart from the other entries, or drops them. Clones of a setup share
/// the capacities of paths, but the client of each pair has tokens of its own, and the flows of an
/// experiment have none: a token changes the first packets of a server.
#[derive(Debug)]
pub(crate) struct Learnt {
    /// The last token; `None` to drop tokens.
    token: Option<Arc<MemoryStore>>,
    others: Knowledge,
}

impl Learnt {
    /// All entries but tokens, in memory.
    pub(crate) fn without_tokens(clock: Arc<dyn TimeSource>) -> Knowledge {
        let (token, others) = (None, Knowledge::default());
        Knowledge::with_clock(Self { token, others }, clock)
    }

    /// Tokens in `token`, the other entries in `others`.
    pub(crate) fn with_token(
        token: Arc<MemoryStore>,
        others: Knowledge,
        clock: Arc<dyn TimeSource>,
    ) -> Knowledge {
        let token = Some(token);
        Knowledge::with_clock(Self { token, others }, clock)
    }

    fn store(&self, key: &Key) -> Option<&dyn Store> {
        match (key, &self.token) {
            (Key::Token { .. }, Some(token)) => Some(token),
            (Key::Token { .. }, None) => None,
            _ => Some(self.others.store()),
        }
    }
}

impl Store for Learnt {
    fn load(&self, key: &Key) -> Option<Entry> {
        self.store(key)?.load(key)
    }

    fn save(&self, key: Key, entry: Entry) {
        if let Some(store) = self.store(&key) {
            store.save(key, entry);
        }
    }

    fn take(&self, key: &Key) -> Option<Entry> {
        self.store(key)?.take(key)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use mpquic_core::congestion::SavedCapacity;
    use mpquic_core::{FourTuple, StdSystemTime, Version};

    use super::*;

    #[test]
    fn tokens_are_apart() {
        let clock: Arc<dyn TimeSource> = Arc::new(StdSystemTime);
        let shared = Learnt::without_tokens(clock.clone());
        let pair = || Learnt::with_token(Arc::default(), shared.clone(), clock.clone());
        let (one, other) = (pair(), pair());
        let token = || Bytes::from_static(b"token");
        shared.save_token(Version::V1, "server", token());
        assert_eq!(shared.take_token(Version::V1, "server"), None);
        one.save_token(Version::V1, "server", token());
        assert_eq!(other.take_token(Version::V1, "server"), None);
        assert_eq!(one.take_token(Version::V1, "server"), Some(token()));
        let path = FourTuple::new(([10, 0, 0, 1], 1).into(), ([10, 0, 0, 2], 2).into());
        let capacity = SavedCapacity {
            window: 1,
            rtt: Duration::from_millis(1),
        };
        one.save_capacity(path, capacity);
        assert_eq!(other.capacity(path), Some(capacity));
    }
}
