//! Knowledge about servers and paths, kept for later runs. It only saves time: connections work
//! without it, and with damaged files.

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
use crate::process::state;

/// Three things in the directory of the user's programs: `known_ways`, `known_paths` and `tokens`.
#[derive(Debug)]
pub(crate) struct Kept {
    ways: KeptWays,
    paths: KeptPaths,
    tokens: Arc<KeptTokens>,
}

impl Kept {
    /// The files of the user; `None` if the user has no directory for them.
    pub(crate) fn of_user() -> Option<Self> {
        Some(Self::within(&state::state_directory()?))
    }

    fn within(directory: &Path) -> Self {
        Self {
            ways: KeptWays::new(directory),
            paths: KeptPaths::new(directory),
            tokens: Arc::new(KeptTokens::new(directory)),
        }
    }

    /// Makes paths start with remembered rates, unless options turn that off.
    pub(crate) fn adapt(&self, transport: &mut TransportOptions) {
        if let Some(memory) = &mut transport.path_memory {
            *memory = self.paths.memory();
        }
    }

    /// Has connections begin where the server is heard first, and prove the client's address at once.
    pub(crate) fn configure(&self, config: ClientConfig) -> ClientConfig {
        config.add_known_ways(self.ways.read());
        config.token_store(self.tokens.clone())
    }

    /// Writes the current knowledge.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use mpquic_core::congestion::SavedCapacity;
    use mpquic_tokio::path_memory::HostPair;
    use mpquic_tokio::{KnownWay, TokenStore};

    use super::*;
    use crate::options::trust::{Fingerprint, Trust, Verifier};
    use crate::options::{Alpn, TlsArgs};
    use crate::process::clock;

    fn config() -> ClientConfig {
        let pin = Fingerprint::of(&b"any"[..].into());
        let verifier = Verifier::new(&Trust::Pin(pin), TlsArgs::default().provider()).unwrap();
        ClientConfig::new(Arc::new(verifier.tls(&[Alpn::H3.bytes()]).unwrap()))
    }

    /// Ways, paths and tokens.
    #[test]
    fn a_run_goes_on_with_what_the_one_before_has_learnt() {
        let directory = tempfile::tempdir().unwrap();
        let (now, run) = (clock::now(), || Kept::within(directory.path()));
        let route = HostPair {
            local: [10, 0, 0, 1].into(),
            remote: [192, 0, 2, 1].into(),
        };
        let saved = SavedCapacity {
            window: 1_000_000,
            rtt: Duration::from_millis(600),
        };
        let rtt = Some(Duration::from_millis(7));
        let way = KnownWay::new(route.local, (route.remote, 443).into(), rtt, now);
        let memory = |kept: &Kept| {
            let mut transport = mpquic_tokio::default_transport();
            kept.adapt(&mut transport);
            transport.path_memory.unwrap()
        };
        let first = run();
        let learnt = first.configure(config());
        assert_eq!(learnt.known_ways().len(), 0);
        learnt.add_known_ways([way]);
        memory(&first).save(route, saved, now);
        first.tokens.insert("host", Bytes::from_static(b"token"));
        first.keep(&learnt);

        let second = run();
        let known = second.configure(config()).known_ways();
        let told = |way: &KnownWay| (way.local, way.remote, way.rtt);
        assert_eq!(known.iter().map(told).collect::<Vec<_>>(), [told(&way)]);
        assert_eq!(memory(&second).load(route, now), Some(saved));
        assert_eq!(second.tokens.take("host").unwrap(), "token");
        // `--no-path-memory` turns the memory off.
        let mut forgetful = mpquic_tokio::default_transport();
        forgetful.path_memory = None;
        second.adapt(&mut forgetful);
        assert!(forgetful.path_memory.is_none());
    }
}
