//! quinn's store of tokens as mpquic's store of knowledge.

use std::fmt;
use std::sync::Arc;

use mpquic_tokio::knowledge::{Entry, Key, MemoryStore, Store};
use quinn_proto::{StdSystemTime, TimeSource, TokenStore};

/// Tokens go to the program's store; all other knowledge stays in memory.
pub(crate) struct Tokens {
    tokens: Arc<dyn TokenStore>,
    rest: MemoryStore,
}

impl Tokens {
    pub(crate) fn new(tokens: Arc<dyn TokenStore>) -> Self {
        Self {
            tokens,
            rest: MemoryStore::default(),
        }
    }
}

impl Store for Tokens {
    fn load(&self, key: &Key) -> Option<Entry> {
        match key {
            // A token is used once: only `take` hands it out.
            Key::Token { .. } => None,
            _ => self.rest.load(key),
        }
    }

    fn save(&self, key: Key, entry: Entry) {
        match &key {
            Key::Token { server, .. } => self.tokens.insert(server, entry.value),
            _ => self.rest.save(key, entry),
        }
    }

    fn take(&self, key: &Key) -> Option<Entry> {
        match key {
            Key::Token { server, .. } => {
                let token = self.tokens.take(server)?;
                Some(Entry::new(token, StdSystemTime.now()))
            }
            _ => self.rest.take(key),
        }
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rest.fmt(f)
    }
}
