//! Finds the connection, or attempt, that a datagram belongs to.

use std::collections::HashMap;

use quinn_proto::ConnectionId;
use slab::Slab;

use super::compact_cids::{CidList, CidMap};
use crate::event::RouteChange;
use crate::ids::PathId;

/// Identifies a connection within its endpoint. It is reused after the connection is drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionHandle(pub usize);

/// Numbers of entries in an endpoint's routing tables. All entries end with their connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteCounts {
    /// Connections that are being accepted, or not drained yet.
    pub connections: usize,
    /// Our connection IDs that lead to a path.
    pub connection_ids: usize,
    /// Our connection IDs retired by peers, remembered for late packets.
    pub retired_connection_ids: usize,
    /// Connection IDs that clients chose for their first packets.
    pub initial_connection_ids: usize,
    /// Stateless reset tokens of the peers.
    pub reset_tokens: usize,
}

/// Where Initial and 0-RTT packets go that still have the connection ID chosen by the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InitialRoute {
    /// To an attempt that waits for a decision, or for its connection to start.
    Attempt(u64),
    /// To a connection.
    Connection(ConnectionHandle),
}

/// Retired connection IDs remembered for each connection.
const MAX_RETIRED: usize = 32;

/// Where packets with one of our connection IDs go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// To this path of a connection.
    Path(ConnectionHandle, PathId),
    /// Nowhere: the peer has retired the connection ID, and the packet is late. It gets no
    /// stateless reset, because we have state for it (RFC 9000 section 11).
    Retired,
}

/// A [`Route`] in eight bytes: there may be millions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CompactRoute {
    handle: u32,
    path: PathId,
}

const _: () = assert!(size_of::<CompactRoute>() == 8);

impl CompactRoute {
    const RETIRED: Self = Self {
        handle: u32::MAX,
        path: PathId::ZERO,
    };

    /// `None` for a handle above 2^32 - 1.
    fn new(handle: ConnectionHandle, path: PathId) -> Option<Self> {
        let handle = u32::try_from(handle.0).ok()?;
        (handle != Self::RETIRED.handle).then_some(Self { handle, path })
    }

    fn route(self) -> Route {
        if self == Self::RETIRED {
            Route::Retired
        } else {
            Route::Path(ConnectionHandle(self.handle as usize), self.path)
        }
    }
}

/// The routing tables of an endpoint. Their size is bounded by the number of connection IDs that
/// each connection issues or stores. They are never iterated.
#[derive(Debug, Default)]
pub(super) struct Routes {
    connections: Slab<Registered>,
    /// Accepted connections among them.
    accepted: usize,
    /// Accepted connections whose handshake is not complete.
    half_open: usize,
    /// Accepted connections whose handshake was completed, so far.
    completed: u64,
    cids: CidMap<CompactRoute>,
    /// The last result of a lookup in `cids`, because datagrams of a connection come in runs.
    recent: Option<(ConnectionId, Route)>,
    initial: HashMap<ConnectionId, InitialRoute>,
    reset_tokens: HashMap<[u8; 16], ConnectionHandle>,
}

/// Everything registered for a connection, to be removed with it.
#[derive(Debug)]
struct Registered {
    stage: Stage,
    cids: CidList,
    retired: CidList,
    initial_dcid: Option<ConnectionId>,
    reset_tokens: Vec<[u8; 16]>,
}

impl Registered {
    fn new(stage: Stage) -> Self {
        Self {
            stage,
            cids: CidList::default(),
            retired: CidList::default(),
            initial_dcid: None,
            reset_tokens: Vec::new(),
        }
    }
}

/// The side that started a connection, and the progress of the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// We did, as a client.
    Started,
    /// We accepted the connection, and the handshake is not complete.
    HalfOpen,
    /// We accepted the connection, and the handshake is complete.
    Complete,
}

impl Routes {
    /// Connections not yet drained.
    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }

    /// Counts all entries, in time proportional to the number of connections.
    pub(super) fn counts(&self) -> RouteCounts {
        let registered = self.connections.iter();
        let retired = registered
            .map(|(_, registered)| registered.retired.iter().count())
            .sum();
        RouteCounts {
            connections: self.connections.len(),
            connection_ids: self.cids.len().saturating_sub(retired),
            retired_connection_ids: retired,
            initial_connection_ids: self.initial.len(),
            reset_tokens: self.reset_tokens.len(),
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.counts() == RouteCounts::default()
    }

    /// Accepted connections not yet drained.
    pub(super) fn accepted(&self) -> usize {
        self.accepted
    }

    /// Connections with an incomplete handshake.
    pub(super) fn half_open(&self) -> usize {
        self.half_open
    }

    /// Accepted connections, so far, whose handshake was completed.
    pub(super) fn completed(&self) -> u64 {
        self.completed
    }

    /// Registers a client's connection under its first connection ID.
    pub(super) fn insert_started(&mut self, local_cid: ConnectionId) -> ConnectionHandle {
        self.insert(local_cid, Stage::Started)
    }

    /// Registers a server's connection under its first connection ID.
    pub(super) fn insert_accepted(&mut self, local_cid: ConnectionId) -> ConnectionHandle {
        self.accepted += 1;
        self.half_open += 1;
        self.insert(local_cid, Stage::HalfOpen)
    }

    fn insert(&mut self, local_cid: ConnectionId, stage: Stage) -> ConnectionHandle {
        let handle = ConnectionHandle(self.connections.insert(Registered::new(stage)));
        self.issue(handle, local_cid, PathId::ZERO);
        handle
    }

    /// Registers a server's connection under the connection ID that its client chose.
    pub(super) fn set_initial(&mut self, handle: ConnectionHandle, dcid: ConnectionId) {
        if let Some(registered) = self.connections.get_mut(handle.0) {
            registered.initial_dcid = Some(dcid);
            self.initial.insert(dcid, InitialRoute::Connection(handle));
        }
    }

    /// The route of packets with this connection ID (at most 20 bytes), if the ID is or was one of
    /// ours.
    pub(super) fn route(&mut self, dcid: &[u8]) -> Option<Route> {
        if let Some((cid, route)) = &self.recent
            && cid[..] == *dcid
        {
            return Some(*route);
        }
        let route = self.cids.get(dcid)?.route();
        self.recent = Some((ConnectionId::new(dcid), route));
        Some(route)
    }

    /// True if a connection ID is in use, or was not long ago.
    pub(super) fn is_issued(&self, cid: &ConnectionId) -> bool {
        self.cids.get(cid).is_some()
    }

    /// The destination of an Initial or 0-RTT packet.
    pub(super) fn initial(&self, dcid: &ConnectionId) -> Option<InitialRoute> {
        self.initial.get(dcid).copied()
    }

    /// The connection that a datagram resets, if it ends with a stateless reset token.
    pub(super) fn reset(&self, datagram: &[u8]) -> Option<ConnectionHandle> {
        self.reset_tokens.get(datagram.last_chunk()?).copied()
    }

    pub(super) fn insert_attempt(&mut self, initial_dcid: ConnectionId, key: u64) {
        self.initial
            .insert(initial_dcid, InitialRoute::Attempt(key));
    }

    /// Removes the route to an attempt, unless the route leads elsewhere by now.
    pub(super) fn remove_attempt(&mut self, initial_dcid: &ConnectionId, key: u64) {
        if self.initial(initial_dcid) == Some(InitialRoute::Attempt(key)) {
            self.initial.remove(initial_dcid);
        }
    }

    pub(super) fn on_change(&mut self, handle: ConnectionHandle, change: RouteChange) {
        match change {
            RouteChange::ConnectionIdIssued(cid, path) => self.issue(handle, cid, path),
            RouteChange::ConnectionIdRetired(cid) => {
                if let Some(registered) = self.connections.get_mut(handle.0)
                    && registered.cids.remove(&cid)
                {
                    self.cids.insert(&cid, CompactRoute::RETIRED);
                    registered.retired.push(&cid);
                    if let Some(old) = registered.retired.overflow(MAX_RETIRED) {
                        forget_retired(&mut self.cids, &old);
                    }
                    self.recent = None;
                }
            }
            RouteChange::ResetTokenAdded(token) => {
                // A known token stays with the connection that registered it first.
                if let Some(registered) = self.connections.get_mut(handle.0)
                    && !self.reset_tokens.contains_key(&token)
                {
                    registered.reset_tokens.push(token);
                    self.reset_tokens.insert(token, handle);
                }
            }
            RouteChange::ResetTokenRemoved(token) => {
                if let Some(registered) = self.connections.get_mut(handle.0)
                    && remove_from(&mut registered.reset_tokens, &token)
                {
                    self.reset_tokens.remove(&token);
                }
            }
            RouteChange::HandshakeComplete => {
                if let Some(registered) = self.connections.get_mut(handle.0)
                    && registered.stage == Stage::HalfOpen
                {
                    registered.stage = Stage::Complete;
                    self.half_open -= 1;
                    self.completed += 1;
                }
            }
            RouteChange::Drained => self.remove(handle),
        }
    }

    fn issue(&mut self, handle: ConnectionHandle, cid: ConnectionId, path: PathId) {
        if let Some(registered) = self.connections.get_mut(handle.0)
            && self
                .cids
                .get(&cid)
                .is_none_or(|route| *route == CompactRoute::RETIRED)
            && let Some(route) = CompactRoute::new(handle, path)
        {
            registered.cids.push(&cid);
            self.cids.insert(&cid, route);
            self.recent = None;
        }
    }

    fn remove(&mut self, handle: ConnectionHandle) {
        let Some(registered) = self.connections.try_remove(handle.0) else {
            return;
        };
        self.accepted -= usize::from(registered.stage != Stage::Started);
        self.half_open -= usize::from(registered.stage == Stage::HalfOpen);
        for cid in registered.cids.iter() {
            self.cids.remove(cid);
        }
        for cid in registered.retired.iter() {
            forget_retired(&mut self.cids, cid);
        }
        self.recent = None;
        for token in &registered.reset_tokens {
            self.reset_tokens.remove(token);
        }
        if let Some(dcid) = registered.initial_dcid
            && self.initial(&dcid) == Some(InitialRoute::Connection(handle))
        {
            self.initial.remove(&dcid);
        }
    }
}

/// Forgets a retired connection ID, unless it was issued again.
fn forget_retired(cids: &mut CidMap<CompactRoute>, cid: &[u8]) {
    if cids.get(cid) == Some(&CompactRoute::RETIRED) {
        cids.remove(cid);
    }
}

/// Removes a value; returns whether it was there.
fn remove_from<T: PartialEq>(list: &mut Vec<T>, value: &T) -> bool {
    match list.iter().position(|known| known == value) {
        Some(index) => {
            list.swap_remove(index);
            true
        }
        None => false,
    }
}
