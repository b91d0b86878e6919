//! Connection IDs from a seed, never the same one twice while it is in use.

use std::fmt;
use std::time::Duration;

use quinn_proto::{ConnectionId, ConnectionIdGenerator};
use rand::Rng;

use crate::random::SeededRandom;

/// Longest connection ID of QUIC v1, bytes (RFC 9000 section 17.2).
const MAX_LENGTH: usize = 20;

/// Tries before a generator counts as exhausted.
const ATTEMPTS: usize = 64;

/// Random connection IDs that a seed determines.
pub(crate) struct SeededGenerator {
    random: SeededRandom,
    length: usize,
}

impl SeededGenerator {
    /// Connection IDs of `length` bytes, at most 20.
    pub(crate) fn new(seed: [u8; 32], length: usize) -> Self {
        Self {
            random: SeededRandom::new(seed),
            length: length.min(MAX_LENGTH),
        }
    }
}

impl ConnectionIdGenerator for SeededGenerator {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut bytes = [0; MAX_LENGTH];
        let bytes = &mut bytes[..self.length];
        self.random.fill_bytes(bytes);
        ConnectionId::new(bytes)
    }

    fn cid_len(&self) -> usize {
        self.length
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// The source of a connection's own connection IDs: any generator, with the promise that no value
/// is handed out while the connection still uses it, on whichever path (MP-095).
pub(crate) struct CidSource {
    generator: Box<dyn ConnectionIdGenerator>,
}

impl CidSource {
    /// A source over `generator`.
    pub(crate) fn new(generator: Box<dyn ConnectionIdGenerator>) -> Self {
        Self { generator }
    }

    /// A connection ID that is not in use; `None` if the generator keeps repeating itself.
    pub(crate) fn generate(
        &mut self,
        is_in_use: impl Fn(&ConnectionId) -> bool,
    ) -> Option<ConnectionId> {
        (0..ATTEMPTS)
            .map(|_| self.generator.generate_cid())
            .find(|cid| !is_in_use(cid))
    }
}

impl fmt::Debug for CidSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CidSource").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn source(length: usize) -> CidSource {
        CidSource::new(Box::new(SeededGenerator::new([7; 32], length)))
    }

    #[test]
    fn a_seed_determines_the_sequence() {
        let (mut a, mut b) = (source(8), source(8));
        let first: Vec<_> = (0..10).map(|_| a.generate(|_| false)).collect();
        let second: Vec<_> = (0..10).map(|_| b.generate(|_| false)).collect();
        assert_eq!(first, second);
        assert!(first.iter().flatten().all(|cid| cid.len() == 8));
        let mut other = CidSource::new(Box::new(SeededGenerator::new([8; 32], 8)));
        assert_ne!(first[0], other.generate(|_| false));
    }

    #[test]
    fn mp_095_values_in_use_are_never_repeated() {
        let mut source = source(1);
        let mut all = BTreeSet::new();
        while let Some(cid) = source.generate(|cid| all.contains(cid)) {
            assert!(all.insert(cid), "{cid} came twice");
        }
        assert!(all.len() > 128, "only {} of 256 were found", all.len());
    }
}
