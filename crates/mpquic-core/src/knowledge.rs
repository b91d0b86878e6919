//! [`Knowledge`]: data that connections leave for later connections with the same peers.

use std::collections::BTreeMap;
use std::fmt;
use std::mem::discriminant;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use quinn_proto::{StdSystemTime, TimeSource};

use crate::congestion::SavedCapacity;
use crate::ids::FourTuple;
use crate::version::Version;

const HOUR: Duration = Duration::from_secs(3600);
/// The value of a [`Key::RoundTrip`] from an address without an answer.
const SILENT: &str = "silent";

/// The name of an [`Entry`] in a [`Store`], with the addresses or the server that the entry is
/// about.
///
/// The text of a key ([`fmt::Display`]) has the kind and the names, separated by spaces, such as
/// `token v1 example.org` or `round_trip 10.0.0.1 192.0.2.1:443`. [`Key::parse`] reads it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Key {
    /// The address validation token that a server sent in a NEW_TOKEN frame (RFC 9000 section
    /// 8.1.3): 1 to 1000 bytes that mean nothing to the client. Clients only; good for two weeks,
    /// and once.
    Token {
        /// The QUIC version of the connection that brought the token (RFC 9369 section 5).
        version: Version,
        /// The server's name, as the application gave it.
        server: String,
    },
    /// The capacity of a path (RFC 9959): decimal digits of [`SavedCapacity::window`] in bytes, a
    /// space, and decimal digits of [`SavedCapacity::rtt`] in nanoseconds. Good for an hour.
    Capacity {
        /// Our address; unspecified if the driver does not know the address.
        local: IpAddr,
        /// The peer's address.
        remote: IpAddr,
    },
    /// The smallest round-trip time from a client's address to a server: decimal digits of
    /// nanoseconds, or `silent` if the server did not answer. Good for an hour.
    RoundTrip {
        /// Our address.
        local: IpAddr,
        /// The server's address.
        remote: SocketAddr,
    },
}

impl Key {
    fn capacity(four_tuple: FourTuple) -> Self {
        Self::Capacity {
            local: four_tuple.local.ip(),
            remote: four_tuple.remote.ip(),
        }
    }

    fn round_trip(four_tuple: FourTuple) -> Self {
        Self::RoundTrip {
            local: four_tuple.local.ip(),
            remote: four_tuple.remote,
        }
    }

    fn token(version: Version, server: &str) -> Self {
        Self::Token {
            version,
            server: server.to_owned(),
        }
    }

    /// The key with this text; `None` if no key has it.
    ///
    /// ```
    /// use mpquic_core::knowledge::Key;
    ///
    /// let text = "capacity 192.0.2.1 198.51.100.1";
    /// assert_eq!(Key::parse(text).unwrap().to_string(), text);
    /// assert_eq!(Key::parse("capacity of 192.0.2.1"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, names) = text.split_once(' ')?;
        let (first, second) = names.split_once(' ')?;
        Some(match kind {
            "token" => Self::token(first.parse().ok()?, second),
            "capacity" => Self::Capacity {
                local: first.parse().ok()?,
                remote: second.parse().ok()?,
            },
            "round_trip" => Self::RoundTrip {
                local: first.parse().ok()?,
                remote: second.parse().ok()?,
            },
            _ => return None,
        })
    }

    /// The age from which entries of this kind are ignored, as are entries from as far in the
    /// future.
    pub fn lifetime(&self) -> Duration {
        match self {
            Self::Token { .. } => HOUR * 24 * 14,
            Self::Capacity { .. } | Self::RoundTrip { .. } => HOUR,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token { version, server } => write!(f, "token {version} {server}"),
            Self::Capacity { local, remote } => write!(f, "capacity {local} {remote}"),
            Self::RoundTrip { local, remote } => write!(f, "round_trip {local} {remote}"),
        }
    }
}

/// A value in a [`Store`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The bytes that [`Key`] describes, at most 1000.
    pub value: Bytes,
    /// The time of day when the value was learnt.
    pub saved: SystemTime,
}

impl Entry {
    /// A value that was learnt at this time.
    pub fn new(value: Bytes, saved: SystemTime) -> Self {
        Self { value, saved }
    }
}

/// Keeps entries between connections. [`MemoryStore`] does so within the process;
/// `mpquic_tokio::FileStore` also between processes.
///
/// Connections call a store while they handle packets: a method that waits for a disk or for
/// another machine delays the connection. Connections work without any entry. A store may therefore
/// forget entries at any time, and has no way to report failures. Connections check the age and the
/// form of each entry that a store returns.
pub trait Store: fmt::Debug + Send + Sync {
    /// The entry with this key, which stays in the store.
    fn load(&self, key: &Key) -> Option<Entry>;
    /// Adds an entry; replaces an entry with the same key.
    fn save(&self, key: Key, entry: Entry);
    /// Takes the entry with this key out of the store. Of several callers that take the same entry,
    /// at most one gets the entry, because tokens are used once.
    fn take(&self, key: &Key) -> Option<Entry>;
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn load(&self, key: &Key) -> Option<Entry> {
        (**self).load(key)
    }

    fn save(&self, key: Key, entry: Entry) {
        (**self).save(key, entry);
    }

    fn take(&self, key: &Key) -> Option<Entry> {
        (**self).take(key)
    }
}

/// Keeps entries in memory: by default 1024 of each kind of [`Key`]; the oldest make room for new
/// ones.
pub struct MemoryStore {
    limit: usize,
    entries: Mutex<Entries>,
}

/// Entries, each with its place in the order of saving. The times of entries give no such order,
/// because the clock may be set back.
#[derive(Default)]
struct Entries {
    entries: BTreeMap<Key, (u64, Entry)>,
    saved: u64,
}

impl MemoryStore {
    /// An empty store for at most `limit` entries of each kind; of a limit of 0, at least one is
    /// kept.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            entries: Mutex::default(),
        }
    }

    /// Takes all entries out of the store, in the order of their keys.
    pub fn drain(&self) -> impl Iterator<Item = (Key, Entry)> + use<> {
        let entries = std::mem::take(&mut self.entries().entries).into_iter();
        entries.map(|(key, (_, entry))| (key, entry))
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        // No call leaves the map half changed.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Without the entries: tokens belong in no log.
impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(1024)
    }
}

impl Store for MemoryStore {
    fn load(&self, key: &Key) -> Option<Entry> {
        let entries = self.entries();
        entries.entries.get(key).map(|(_, entry)| entry.clone())
    }

    fn save(&self, key: Key, entry: Entry) {
        let mut guard = self.entries();
        let Entries { entries, saved } = &mut *guard;
        if !entries.contains_key(&key) {
            let alike = |other: &Key| discriminant(other) == discriminant(&key);
            let same = || entries.iter().filter(|(other, _)| alike(other));
            if same().count() >= self.limit
                && let Some(oldest) = same().min_by_key(|(_, (order, _))| *order)
            {
                let oldest = oldest.0.clone();
                entries.remove(&oldest);
            }
        }
        *saved += 1;
        entries.insert(key, (*saved, entry));
    }

    fn take(&self, key: &Key) -> Option<Entry> {
        let mut entries = self.entries();
        entries.entries.remove(key).map(|(_, entry)| entry)
    }
}

/// What connections learn for later connections with the same peers: address validation tokens (RFC
/// 9000 section 8.1.3), capacities of paths (RFC 9959), and round-trip times from each local
/// address.
///
/// Entries are in a [`Store`], by default in a [`MemoryStore`]. Clones use the same store. Entries
/// that are too old or malformed are ignored.
///
/// TLS sessions are not among the entries: rustls 0.23 neither writes the sessions of clients
/// (`Tls13ClientSessionValue`) as bytes nor makes them of bytes, and binds each session to the
/// verifier of certificates in memory. Sessions stay in the TLS configuration of the client, and
/// end with the process.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use mpquic_core::FourTuple;
/// use mpquic_core::congestion::SavedCapacity;
/// use mpquic_core::knowledge::{Knowledge, MemoryStore};
///
/// let store = Arc::new(MemoryStore::default());
/// let knowledge = Knowledge::new(store.clone());
/// let path = FourTuple::new("192.0.2.1:5000".parse()?, "198.51.100.1:443".parse()?);
/// let capacity = SavedCapacity { window: 7_500_000, rtt: Duration::from_millis(600) };
/// knowledge.save_capacity(path, capacity);
/// // Other ports, same addresses.
/// let later = FourTuple::new("192.0.2.1:6000".parse()?, path.remote);
/// assert_eq!(knowledge.capacity(later), Some(capacity));
///
/// let (key, entry) = store.drain().next().expect("one entry");
/// assert_eq!(key.to_string(), "capacity 192.0.2.1 198.51.100.1");
/// assert_eq!(entry.value, "7500000 600000000");
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone)]
pub struct Knowledge(Arc<Source<dyn Store>>);

/// Each path has a [`Knowledge`]: store and clock are behind one pointer.
struct Source<S: ?Sized> {
    clock: Arc<dyn TimeSource>,
    store: S,
}

impl Knowledge {
    /// Keeps entries in this store. Their times are those of the system's clock.
    pub fn new(store: impl Store + 'static) -> Self {
        Self::with_clock(store, Arc::new(StdSystemTime))
    }

    /// Keeps entries in this store, with times of another clock, such as the clock of a simulation.
    pub fn with_clock(store: impl Store + 'static, clock: Arc<dyn TimeSource>) -> Self {
        Self(Arc::new(Source { clock, store }))
    }

    /// The store of the entries, for a store that wraps this one.
    pub fn store(&self) -> &dyn Store {
        &self.0.store
    }

    /// Takes the token of a server; the store has the token no longer.
    pub fn take_token(&self, version: Version, server: &str) -> Option<Bytes> {
        let key = Key::token(version, server);
        let entry = self.store().take(&key)?;
        self.is_good(&key, &entry).then_some(entry.value)
    }

    /// Replaces the token of a server.
    pub fn save_token(&self, version: Version, server: &str, token: Bytes) {
        self.save(Key::token(version, server), token);
    }

    /// The capacity of a path between the IP addresses of this four-tuple.
    pub fn capacity(&self, four_tuple: FourTuple) -> Option<SavedCapacity> {
        self.load(&Key::capacity(four_tuple), parse_capacity)
    }

    /// Replaces the capacity of a path.
    pub fn save_capacity(&self, four_tuple: FourTuple, capacity: SavedCapacity) {
        let SavedCapacity { window, rtt } = capacity;
        let value = format!("{window} {}", rtt.as_nanos());
        self.save(Key::capacity(four_tuple), value.into());
    }

    /// Removes the capacity of a path, which turned out to be too large (RFC 9959 section 3.5).
    pub fn forget_capacity(&self, four_tuple: FourTuple) {
        self.store().take(&Key::capacity(four_tuple));
    }

    /// The round-trip time from the local IP address to the server's address; [`Duration::MAX`] if
    /// the server did not answer, and `None` without an entry.
    pub fn round_trip(&self, four_tuple: FourTuple) -> Option<Duration> {
        self.load(&Key::round_trip(four_tuple), parse_round_trip)
    }

    /// Replaces a round-trip time; [`Duration::MAX`] if the server did not answer.
    pub fn save_round_trip(&self, four_tuple: FourTuple, rtt: Duration) {
        let value = match rtt {
            Duration::MAX => SILENT.to_owned(),
            rtt => rtt.as_nanos().to_string(),
        };
        self.save(Key::round_trip(four_tuple), value.into());
    }

    fn save(&self, key: Key, value: Bytes) {
        self.store()
            .save(key, Entry::new(value, self.0.clock.now()));
    }

    fn load<T>(&self, key: &Key, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let entry = self.store().load(key)?;
        if !self.is_good(key, &entry) {
            return None;
        }
        let value = std::str::from_utf8(&entry.value).ok().and_then(parse);
        if value.is_none() {
            tracing::warn!(%key, "ignored a malformed entry of the store");
        }
        value
    }

    /// The clock may have been set back since. An entry from the near future then counts by the
    /// distance; one from the far future would otherwise be good for years.
    fn is_good(&self, key: &Key, entry: &Entry) -> bool {
        let age = self.0.clock.now().duration_since(entry.saved);
        age.unwrap_or_else(|error| error.duration()) < key.lifetime()
    }
}

impl Default for Knowledge {
    fn default() -> Self {
        Self::new(MemoryStore::default())
    }
}

impl fmt::Debug for Knowledge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Knowledge").field(&self.store()).finish()
    }
}

fn parse_capacity(value: &str) -> Option<SavedCapacity> {
    let (window, rtt) = value.split_once(' ')?;
    Some(SavedCapacity {
        window: window.parse().ok()?,
        rtt: Duration::from_nanos(rtt.parse().ok()?),
    })
}

fn parse_round_trip(value: &str) -> Option<Duration> {
    match value {
        SILENT => Some(Duration::MAX),
        nanos => Some(Duration::from_nanos(nanos.parse().ok()?)),
    }
}

#[cfg(test)]
mod tests;
