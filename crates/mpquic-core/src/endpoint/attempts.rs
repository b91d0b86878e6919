//! Connection attempts that wait for a decision, or for their connection to start.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use quinn_proto::ConnectionId;

use super::routes::ConnectionHandle;
use super::unrouted::UnroutedDatagram;

/// Bytes kept of what follows the first datagram of an attempt.
const MAX_BUFFERED: usize = 32 << 10;
/// The same for all attempts together.
const MAX_BUFFERED_TOTAL: usize = 8 << 20;
/// A client has given up after this time, so the attempt no longer counts.
const LIFETIME: Duration = Duration::from_secs(30);

/// The place of an attempt among an endpoint's [`Attempts`], held by whoever is to decide on it.
///
/// Dropped, it is freed at the endpoint's next look at its attempts: a value that cannot reach its
/// endpoint can do no more than leave word.
#[derive(Debug)]
pub(super) struct Place {
    key: u64,
    dropped: Sender<u64>,
}

impl Place {
    /// Names the attempt.
    pub(super) fn key(&self) -> u64 {
        self.key
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Fails if the endpoint is gone, and its attempts with it.
        let _ = self.dropped.send(self.key);
    }
}

/// An attempt nobody holds any more.
#[derive(Debug)]
pub(super) struct Abandoned {
    pub(super) key: u64,
    pub(super) initial_dcid: ConnectionId,
    /// The connection it would have become.
    pub(super) handle: Option<ConnectionHandle>,
}

/// What is kept of an attempt by its endpoint.
#[derive(Debug)]
struct Attempt {
    initial_dcid: ConnectionId,
    since: Instant,
    /// What arrived after the first datagram.
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
    /// Those to be decided on, oldest first.
    waiting: BTreeMap<u64, Attempt>,
    /// Those accepted, whose connections are being started.
    starting: BTreeMap<u64, (ConnectionHandle, Attempt)>,
    next_key: u64,
    bytes: usize,
    /// Keys of dropped places, also of attempts that were decided on before.
    dropped: Receiver<u64>,
    /// For new places.
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

    /// Attempts to be decided on.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
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

    /// Takes out an attempt that is decided on; returns what arrived for it, unless it has expired.
    pub(super) fn remove(&mut self, place: &Place) -> Vec<UnroutedDatagram> {
        let attempt = self.waiting.remove(&place.key);
        self.release(attempt)
    }

    /// An attempt is to become this connection. Returns what arrived for it; what arrives from now
    /// on is kept for [`Self::finish`].
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

    /// An attempt has become its connection. Returns what arrived since [`Self::start`].
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

    /// Takes out an attempt whose place was dropped, or that waited too long for a decision.
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
