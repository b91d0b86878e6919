//! What a run learns of servers and of the ways to them, kept for those that follow: it saves them time, and
//! nothing else. Whatever is wrong with it, connections are made.

mod lines;
mod paths;
mod tokens;
mod ways;

use std::path::Path;
use std::sync::Arc;

use mpquic_core::config::TransportOptions;
use mpquic_tokio::ClientConfig;

use self::paths::KeptPaths;
use self::tokens::KeptTokens;
use self::ways::KeptWays;
use crate::identity;

/// Three things in the directory of the user's programs: `known_ways`, `known_paths` and `tokens`.
#[derive(Debug)]
pub(crate) struct Kept {
    ways: KeptWays,
    paths: KeptPaths,
    tokens: Arc<KeptTokens>,
}

impl Kept {
    /// That of all runs; `None` if the user has no place for it.
    pub(crate) fn of_user() -> Option<Self> {
        Some(Self::within(&identity::state_directory()?))
    }

    fn within(directory: &Path) -> Self {
        Self {
            ways: KeptWays::new(directory),
            paths: KeptPaths::new(directory),
            tokens: Arc::new(KeptTokens::new(directory)),
        }
    }

    /// Has paths start with what they carried before, unless they are to forget it.
    pub(crate) fn adapt(&self, transport: &mut TransportOptions) {
        if let Some(memory) = &mut transport.path_memory {
            *memory = self.paths.memory();
        }
    }

    /// Has connections begin where the server is heard first, and prove the client's address at once.
    pub(crate) fn configure(&self, config: ClientConfig) -> ClientConfig {
        config.know_ways(self.ways.read());
        config.token_store(self.tokens.clone())
    }

    /// Keeps what is known now.
    pub(crate) fn keep(&self, config: &ClientConfig) {
        for (what, done) in [
            ("ways to servers", self.ways.keep(config.known_ways())),
            ("what paths carry", self.paths.keep()),
            ("tokens", self.tokens.keep()),
        ] {
            if let Err(error) = done {
                tracing::debug!(%error, "{what}: not kept");
            }
        }
    }
}
