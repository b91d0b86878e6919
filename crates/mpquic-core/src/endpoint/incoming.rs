//! Connection attempts that wait for a decision.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quinn_proto::{ConnectionId, EcnCodepoint};

use super::Server;
use super::token::Admission;
use crate::crypto::Keys;
use crate::event::Datagram;
use crate::ids::{FourTuple, PathId};
use crate::version::Version;

/// Bytes kept of what follows the first datagram of an attempt.
const MAX_BUFFERED: usize = 32 << 10;
/// The same for all attempts together.
const MAX_BUFFERED_TOTAL: usize = 8 << 20;
/// A client has given up after this time, so the attempt no longer counts.
const LIFETIME: Duration = Duration::from_secs(30);

/// A client's first datagram, waiting for a decision: [`accept`](super::Endpoint::accept),
/// [`refuse`](super::Endpoint::refuse), [`retry`](super::Endpoint::retry) or
/// [`ignore`](super::Endpoint::ignore). Dropped, it is ignored.
#[must_use = "an attempt that is dropped is ignored"]
pub struct Incoming {
    pub(super) place: Place,
    pub(super) first: Arrived,
    pub(super) version: Version,
    /// Destination connection ID of the Initial, and the client's source connection ID.
    pub(super) dcid: ConnectionId,
    pub(super) scid: ConnectionId,
    pub(super) admission: Admission,
    pub(super) keys: Keys,
    /// As it was when the attempt arrived.
    pub(super) server: Arc<Server>,
}

impl Incoming {
    /// Between which addresses.
    pub fn four_tuple(&self) -> FourTuple {
        self.first.four_tuple
    }

    /// The version of the client's first packet. The connection may turn into another one.
    pub fn version(&self) -> Version {
        self.version
    }

    /// True if a token proved the client's address.
    pub fn remote_address_validated(&self) -> bool {
        self.admission.address_validated
    }

    /// True if the client has not answered a Retry yet.
    pub fn may_retry(&self) -> bool {
        self.admission.retry_scid.is_none()
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("four_tuple", &self.first.four_tuple)
            .field("admission", &self.admission)
            .finish_non_exhaustive()
    }
}

/// A datagram that waits, in a buffer of its own: it pins no larger one.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) four_tuple: FourTuple,
    pub(super) ecn: Option<EcnCodepoint>,
    pub(super) data: BytesMut,
}

impl Arrived {
    /// A copy in a buffer of its own.
    pub(super) fn clone_alone(&self) -> Self {
        Self {
            data: BytesMut::from(&self.data[..]),
            ..*self
        }
    }

    pub(super) fn into_datagram(self, now: Instant) -> Datagram {
        Datagram {
            now,
            four_tuple: self.four_tuple,
            ecn: self.ecn,
            path: PathId::ZERO,
            data: self.data,
        }
    }
}

/// An attempt's place in its endpoint's [`PendingTable`]. Dropped, it is freed at the endpoint's next
/// look at the table, which a value without access to the endpoint cannot do at once.
pub(super) struct Place {
    key: u64,
    dropped: Sender<u64>,
}

impl Place {
    pub(super) fn key(&self) -> u64 {
        self.key
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Fails if the endpoint is gone, and the table with it.
        let _ = self.dropped.send(self.key);
    }
}

/// What is kept of an attempt besides its [`Incoming`].
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) initial_dcid: ConnectionId,
    /// What arrived after the first datagram.
    pub(super) datagrams: Vec<Arrived>,
    since: Instant,
    bytes: usize,
}

/// All attempts, oldest first.
#[derive(Debug)]
pub(super) struct PendingTable {
    entries: BTreeMap<u64, Pending>,
    next_key: u64,
    bytes: usize,
    /// Keys of places that were dropped: those of attempts that were decided, too.
    dropped: Receiver<u64>,
    /// For new places.
    drops: Sender<u64>,
}

impl PendingTable {
    pub(super) fn new() -> Self {
        let (drops, dropped) = channel();
        Self {
            entries: BTreeMap::new(),
            next_key: 0,
            bytes: 0,
            dropped,
            drops,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn insert(&mut self, now: Instant, initial_dcid: ConnectionId) -> Place {
        let key = self.next_key;
        self.next_key += 1;
        let pending = Pending {
            initial_dcid,
            datagrams: Vec::new(),
            since: now,
            bytes: 0,
        };
        self.entries.insert(key, pending);
        Place {
            key,
            dropped: self.drops.clone(),
        }
    }

    /// Keeps a datagram for an attempt, or drops it when there is no room.
    pub(super) fn buffer(&mut self, key: u64, datagram: Arrived) {
        let size = datagram.data.len();
        if let Some(pending) = self.entries.get_mut(&key)
            && pending.bytes + size <= MAX_BUFFERED
            && self.bytes + size <= MAX_BUFFERED_TOTAL
        {
            pending.bytes += size;
            self.bytes += size;
            pending.datagrams.push(datagram.clone_alone());
        }
    }

    /// Takes an attempt out, unless it has expired.
    pub(super) fn remove(&mut self, key: u64) -> Option<Pending> {
        let pending = self.entries.remove(&key)?;
        self.bytes -= pending.bytes;
        Some(pending)
    }

    /// Takes an attempt out that was dropped undecided.
    pub(super) fn take_dropped(&mut self) -> Option<(u64, Pending)> {
        while let Ok(key) = self.dropped.try_recv() {
            if let Some(pending) = self.remove(key) {
                return Some((key, pending));
            }
        }
        None
    }

    /// Takes the oldest attempt out if its time is over.
    pub(super) fn expire(&mut self, now: Instant) -> Option<(u64, Pending)> {
        let (&key, oldest) = self.entries.first_key_value()?;
        let expired = now.saturating_duration_since(oldest.since) >= LIFETIME;
        expired.then(|| self.remove(key).map(|pending| (key, pending)))?
    }
}
