//! Connection attempts that wait for a decision, or for their connection to start.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use quinn_proto::ConnectionId;

use super::routes::ConnectionHandle;
use super::unrouted::UnroutedDatagram;

/// The most bytes kept of datagrams that follow the first one of an attempt.
const MAX_BUFFERED: usize = 32 << 10;
/// The most buffered bytes of all attempts together.
const MAX_BUFFERED_TOTAL: usize = 8 << 20;
/// An estimate of the memory of an attempt with its first datagram and its keys, in bytes.
const WAITING: usize = 4 << 10;
/// An attempt is dropped after this time; by then, its client has given up.
const LIFETIME: Duration = Duration::from_secs(30);

/// The place of an attempt among an endpoint's [`Attempts`], held by the value that the application
/// decides on.
///
/// A dropped place sends a message to the endpoint, the only link between them; the endpoint frees
/// the place with its next look at its attempts.
#[derive(Debug)]
pub(super) struct Place {
    key: u64,
    dropped: Sender<u64>,
}

impl Place {
    /// The key of the attempt.
    pub(super) fn key(&self) -> u64 {
        self.key
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Fails without the endpoint, which took its attempts along.
        let _ = self.dropped.send(self.key);
    }
}

/// An expired attempt, or one with a dropped place.
#[derive(Debug)]
pub(super) struct Abandoned {
    pub(super) key: u64,
    pub(super) initial_dcid: ConnectionId,
    /// The handle reserved for the accepted connection.
    pub(super) handle: Option<ConnectionHandle>,
}

/// A client's connection attempt that waits for a decision.
#[derive(Debug)]
struct Attempt {
    initial_dcid: ConnectionId,
    since: Instant,
    /// Datagrams that arrived after the first one.
    datagrams: Vec<UnroutedDatagram>,
    bytes: usize,
}

impl Attempt {
    fn new(initial_dcid: ConnectionId, since: Instant) -> Self {
        Self {
            initial_dcid,
            since,
            datagrams: Vec::new(),
            bytes: 0,
        }
    }
}

/// All attempts that have not become connections.
#[derive(Debug)]
pub(super) struct Attempts {
    /// Attempts that wait for a decision, oldest first.
    waiting: BTreeMap<u64, Attempt>,
    /// Accepted attempts, whose connections are being started.
    starting: BTreeMap<u64, (ConnectionHandle, Attempt)>,
    next_key: u64,
    bytes: usize,
    /// Keys of dropped places, also of attempts that were decided on before.
    dropped: Receiver<u64>,
    /// Cloned into each new place.
    drops: Sender<u64>,
}

impl Attempts {
    pub(super) fn new() -> Self {
        let (drops, dropped) = channel();
        Self {
            waiting: BTreeMap::new(),
            starting: BTreeMap::new(),
            next_key: 0,
            bytes: 0,
            dropped,
            drops,
        }
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> u64 {
        let attempts = self.waiting.len() + self.starting.len();
        (self.bytes + attempts * WAITING) as u64
    }

    /// Number of attempts that wait for a decision.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// True if an attempt waits for a decision, and has not expired.
    pub(super) fn is_waiting(&self, place: &Place) -> bool {
        self.waiting.contains_key(&place.key)
    }

    pub(super) fn insert(&mut self, now: Instant, initial_dcid: ConnectionId) -> Place {
        let key = self.next_key;
        self.next_key += 1;
        self.waiting.insert(key, Attempt::new(initial_dcid, now));
        Place {
            key,
            dropped: self.drops.clone(),
        }
    }

    /// Keeps a datagram for an attempt; false if there is no room.
    pub(super) fn keep(&mut self, key: u64, datagram: &UnroutedDatagram) -> bool {
        let size = datagram.data.len();
        let starting = self.starting.get_mut(&key).map(|(_, attempt)| attempt);
        let Some(attempt) = self.waiting.get_mut(&key).or(starting) else {
            return false;
        };
        if attempt.bytes + size > MAX_BUFFERED || self.bytes + size > MAX_BUFFERED_TOTAL {
            return false;
        }
        attempt.bytes += size;
        self.bytes += size;
        attempt.datagrams.push(datagram.detached());
        true
    }

    /// Removes an attempt after its decision; returns its datagrams, unless the attempt has
    /// expired.
    pub(super) fn remove(&mut self, place: &Place) -> Vec<UnroutedDatagram> {
        let attempt = self.waiting.remove(&place.key);
        self.release(attempt)
    }

    /// The connection of an attempt is about to start. Returns the attempt's datagrams; later
    /// datagrams are kept for [`Self::finish`].
    pub(super) fn start(
        &mut self,
        now: Instant,
        place: &Place,
        initial_dcid: ConnectionId,
        handle: ConnectionHandle,
    ) -> Vec<UnroutedDatagram> {
        let datagrams = self.remove(place);
        let attempt = Attempt::new(initial_dcid, now);
        self.starting.insert(place.key, (handle, attempt));
        datagrams
    }

    /// The connection of an attempt has started. Returns the datagrams that arrived since
    /// [`Self::start`].
    pub(super) fn finish(&mut self, place: &Place) -> Vec<UnroutedDatagram> {
        let starting = self.starting.remove(&place.key);
        self.release(starting.map(|(_, attempt)| attempt))
    }

    fn release(&mut self, attempt: Option<Attempt>) -> Vec<UnroutedDatagram> {
        let Some(attempt) = attempt else {
            return Vec::new();
        };
        self.bytes -= attempt.bytes;
        attempt.datagrams
    }

    /// Removes an attempt whose place was dropped, or that waited too long for a decision.
    pub(super) fn take_abandoned(&mut self, now: Instant) -> Option<Abandoned> {
        while let Ok(key) = self.dropped.try_recv() {
            let (handle, attempt) = match self.starting.remove(&key) {
                Some((handle, attempt)) => (Some(handle), Some(attempt)),
                None => (None, self.waiting.remove(&key)),
            };
            if let Some(attempt) = attempt {
                return Some(self.abandon(key, handle, attempt));
            }
        }
        let oldest = self.waiting.first_entry()?;
        if now.saturating_duration_since(oldest.get().since) < LIFETIME {
            return None;
        }
        let (key, attempt) = oldest.remove_entry();
        Some(self.abandon(key, None, attempt))
    }

    fn abandon(
        &mut self,
        key: u64,
        handle: Option<ConnectionHandle>,
        attempt: Attempt,
    ) -> Abandoned {
        let initial_dcid = attempt.initial_dcid;
        self.release(Some(attempt));
        Abandoned {
            key,
            initial_dcid,
            handle,
        }
    }
}
