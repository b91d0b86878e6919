//! [`ConnectionIds`]: how an endpoint and its connections make their connection IDs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quinn_proto::{ConnectionId, ConnectionIdGenerator};
use rand::Rng;

use crate::error::InvalidOption;
use crate::random::SeededRandom;
use crate::wire::buf::MAX_CID_LENGTH;

/// Shortest connection ID we issue, bytes: there are too few shorter ones.
const MIN_LENGTH: usize = 4;

/// A generator counts as exhausted after this many attempts to make an unused connection ID.
const ATTEMPTS: usize = 64;

type Factory = dyn Fn([u8; 32]) -> Box<dyn ConnectionIdGenerator> + Send + Sync;

/// Makes the connection IDs that an endpoint and its connections issue.
///
/// The endpoint has one generator: for the first connection ID of each connection, for Retry, and
/// for preferred addresses. Each connection has its own generator, for further connection IDs on
/// all its paths.
///
/// # Examples
///
/// Connection IDs by which a load balancer finds this server, number 7:
///
/// ```
/// use std::time::Duration;
///
/// use mpquic_core::config::{ConnectionIds, EndpointOptions};
/// use mpquic_core::{ConnectionId, ConnectionIdGenerator};
/// use rand::rngs::StdRng;
/// use rand::{Rng, SeedableRng};
///
/// struct Routable(StdRng);
///
/// impl ConnectionIdGenerator for Routable {
///     fn generate_cid(&mut self) -> ConnectionId {
///         let mut bytes = [7; 12];
///         self.0.fill_bytes(&mut bytes[1..]);
///         ConnectionId::new(&bytes)
///     }
///
///     fn cid_len(&self) -> usize {
///         12
///     }
///
///     fn cid_lifetime(&self) -> Option<Duration> {
///         None
///     }
/// }
///
/// let mut options = EndpointOptions::new([1; 32]);
/// options.connection_ids = ConnectionIds::new(|seed| Routable(StdRng::from_seed(seed)))?;
/// let config = options.build()?;
/// assert_eq!(config.connection_ids.length(), 12);
/// # Ok::<(), mpquic_core::config::InvalidOption>(())
/// ```
#[derive(Clone)]
pub struct ConnectionIds {
    factory: Arc<Factory>,
    length: usize,
}

impl ConnectionIds {
    /// Default length of connection IDs, bytes.
    const DEFAULT_LENGTH: usize = 8;

    /// Random connection IDs of `length` bytes, from 4 to 20.
    ///
    /// # Errors
    ///
    /// If the length is not from 4 to 20 bytes.
    pub fn random(length: usize) -> Result<Self, InvalidOption> {
        Self::new(move |seed| SeededGenerator::new(seed, length))
    }

    /// Connection IDs of your own: `factory` makes a generator for the endpoint and one for each
    /// connection. Each generator gets a different seed, and should take all randomness from it:
    /// then equal seeds of the endpoint give equal connections.
    ///
    /// All generators must make connection IDs of the same length, from 4 to 20 bytes. Two
    /// generators must not make the same connection ID, which leads datagrams to their connection.
    /// `validate` and `cid_lifetime` of a generator are not used.
    ///
    /// # Errors
    ///
    /// For a length below 4 or above 20 bytes.
    pub fn new<G: ConnectionIdGenerator + 'static>(
        factory: impl Fn([u8; 32]) -> G + Send + Sync + 'static,
    ) -> Result<Self, InvalidOption> {
        let length = factory([0; 32]).cid_len();
        let allowed = MIN_LENGTH..=MAX_CID_LENGTH;
        InvalidOption::unless_within("connection_id_length", length, allowed)?;
        let factory = Arc::new(move |seed| Box::new(factory(seed)) as Box<_>);
        Ok(Self { factory, length })
    }

    /// The length of each connection ID, bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// A generator, for whoever makes connection IDs of these: each needs a seed of its own.
    pub fn generator(&self, seed: [u8; 32]) -> Box<dyn ConnectionIdGenerator> {
        (self.factory)(seed)
    }

    /// A source of connection IDs for the endpoint or for one connection.
    pub(crate) fn source(&self, seed: [u8; 32]) -> CidSource {
        CidSource {
            generator: self.generator(seed),
            length: self.length,
        }
    }
}

impl Default for ConnectionIds {
    /// Random ones of 8 bytes.
    fn default() -> Self {
        Self {
            factory: Arc::new(|seed| Box::new(SeededGenerator::new(seed, Self::DEFAULT_LENGTH))),
            length: Self::DEFAULT_LENGTH,
        }
    }
}

impl fmt::Debug for ConnectionIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionIds")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// Makes random connection IDs, which depend only on a seed.
struct SeededGenerator {
    random: SeededRandom,
    length: usize,
}

impl SeededGenerator {
    fn new(seed: [u8; 32], length: usize) -> Self {
        Self {
            random: SeededRandom::new(seed),
            length,
        }
    }
}

impl ConnectionIdGenerator for SeededGenerator {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut bytes = [0; MAX_CID_LENGTH];
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

/// The source of all connection IDs that we issue. It wraps a generator, and never issues an ID in
/// use (MP-095).
pub(crate) struct CidSource {
    generator: Box<dyn ConnectionIdGenerator>,
    length: usize,
}

impl CidSource {
    /// A connection ID that is not in use; `None` if the generator keeps repeating itself or makes
    /// connection IDs of another length than it said.
    pub(crate) fn generate(
        &mut self,
        is_in_use: impl Fn(&ConnectionId) -> bool,
    ) -> Option<ConnectionId> {
        (0..ATTEMPTS)
            .map(|_| self.generator.generate_cid())
            .find(|cid| cid.len() == self.length && !is_in_use(cid))
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

    #[test]
    fn a_seed_determines_the_sequence() {
        let source = |seed| ConnectionIds::default().source([seed; 32]);
        let (mut a, mut b) = (source(7), source(7));
        let first: Vec<_> = (0..10).map(|_| a.generate(|_| false)).collect();
        let second: Vec<_> = (0..10).map(|_| b.generate(|_| false)).collect();
        assert_eq!(first, second);
        assert!(first.iter().flatten().all(|cid| cid.len() == 8));
        assert_ne!(first[0], source(8).generate(|_| false));
    }

    /// Counts up in one byte.
    struct Counter {
        next: u8,
        length: usize,
    }

    impl ConnectionIdGenerator for Counter {
        fn generate_cid(&mut self) -> ConnectionId {
            self.next = self.next.wrapping_add(1);
            ConnectionId::new(&[0, 0, 0, 0, self.next][5 - self.length..])
        }

        fn cid_len(&self) -> usize {
            5
        }

        fn cid_lifetime(&self) -> Option<Duration> {
            None
        }
    }

    #[test]
    fn mp_095_values_in_use_are_never_repeated() {
        let ids = ConnectionIds::new(|_| Counter { next: 0, length: 5 });
        let mut source = ids.unwrap().source([0; 32]);
        let mut all = BTreeSet::new();
        while let Some(cid) = source.generate(|cid| all.contains(cid)) {
            assert!(all.insert(cid), "{cid} came twice");
        }
        assert_eq!(all.len(), 256);
    }

    #[test]
    fn lengths_out_of_range_are_refused_and_wrong_ones_never_used() {
        for length in [0, 3, 21, 100] {
            let refused = ConnectionIds::random(length).unwrap_err();
            let expected = format!("connection_id_length is {length}, but must be from 4 to 20");
            assert_eq!(refused.to_string(), expected);
        }
        for length in 4..=20 {
            let ids = ConnectionIds::random(length).unwrap();
            assert_eq!(ids.length(), length);
            let cid = ids.source([1; 32]).generate(|_| false);
            assert_eq!(cid.unwrap().len(), length);
        }
        let lies = ConnectionIds::new(|_| Counter { next: 0, length: 4 });
        let mut source = lies.unwrap().source([0; 32]);
        assert_eq!(source.generate(|_| false), None);
    }
}
