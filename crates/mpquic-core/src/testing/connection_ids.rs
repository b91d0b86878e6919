//! A door to the connection IDs of one path.

use quinn_proto::ConnectionId;

use crate::cid::local::LocalCids;
use crate::cid::peer::{PeerCid, PeerCids, ResetTokens};
use crate::error::TransportError;
use crate::ids::PathId;
use crate::packet::delivery::{Fate, PathDelivery};
use crate::packet::writer::FrameWriter;
use crate::wire::frame::{FrameCounts, NewConnectionId};

/// The reset tokens that are watched for.
#[derive(Debug, Default)]
struct Watched(Vec<[u8; 16]>);

impl ResetTokens for Watched {
    fn add(&mut self, token: [u8; 16]) {
        self.0.push(token);
    }

    fn remove(&mut self, token: [u8; 16]) {
        let index = self.0.iter().position(|known| *known == token);
        self.0.remove(index.expect("it was added"));
    }
}

/// One side's use of the connection IDs that its peer issued for a path, one of them at a time.
#[derive(Debug)]
pub struct PeerConnectionIds {
    path: PathId,
    cids: PeerCids,
    in_use: Option<PeerCid>,
    is_open: bool,
    watched: Watched,
}

impl PeerConnectionIds {
    /// None yet. `limit` is the `active_connection_id_limit` that was announced.
    pub fn new(path: PathId, limit: u64) -> Self {
        Self {
            path,
            cids: PeerCids::new(path, limit),
            in_use: None,
            is_open: false,
            watched: Watched::default(),
        }
    }

    /// A frame arrives.
    ///
    /// # Errors
    /// The fault of a peer that breaks a rule.
    pub fn on_new_connection_id(&mut self, frame: &NewConnectionId) -> Result<(), TransportError> {
        let mut places = [&mut self.in_use];
        let in_use = if self.is_open {
            &mut places[..]
        } else {
            &mut []
        };
        self.cids
            .on_new_connection_id(frame, in_use, &mut self.watched)
    }

    /// Uses the next connection ID instead of the one in use; false if it may not. The first one
    /// opens the path.
    pub fn rotate(&mut self) -> bool {
        if !self.cids.has_unused() || !self.cids.may_retire() {
            return false;
        }
        if let Some(old) = self.in_use.take() {
            self.cids.retire(old, &mut self.watched);
        }
        self.in_use = self.cids.take(&mut self.watched);
        self.is_open = true;
        true
    }

    /// Asks the peer for one more.
    pub fn request(&mut self) {
        self.cids.request();
    }

    /// The path is abandoned.
    pub fn abandon(&mut self) {
        let in_use = self.in_use.take().into_iter();
        self.cids.abandon(in_use, &mut self.watched);
    }

    /// The connection ID in use.
    pub fn in_use(&self) -> Option<ConnectionId> {
        self.in_use.map(|cid| *cid.cid())
    }

    /// True if the connection ID waits for its use.
    pub fn is_unused(&self, cid: &ConnectionId) -> bool {
        self.cids.contains(cid)
    }

    /// The reset tokens that are watched for.
    pub fn reset_tokens(&self) -> &[[u8; 16]] {
        &self.watched.0
    }

    /// Appends queued frames within `room` bytes.
    pub fn write_frames(&mut self, buf: &mut Vec<u8>, room: usize) {
        let mut counts = FrameCounts::default();
        let limit = buf.len() + room;
        let mut w = FrameWriter::new(buf, limit, &mut counts);
        self.cids.write_frames(&mut w, true);
    }

    /// A retirement of this sequence number was acknowledged or lost.
    pub fn on_retirement_delivery(&mut self, sequence: u64, acknowledged: bool) {
        let path = self.path;
        let delivery = PathDelivery::RetireConnectionId { path, sequence };
        self.cids.on_delivery(delivery, fate(acknowledged));
    }

    /// True if there are frames to write.
    pub fn wants_to_send(&self) -> bool {
        self.cids.wants_to_send()
    }
}

/// The connection IDs one side issued for a path.
#[derive(Debug)]
pub struct LocalConnectionIds {
    path: PathId,
    cids: LocalCids,
}

impl LocalConnectionIds {
    /// None yet.
    pub fn new(path: PathId) -> Self {
        let cids = LocalCids::new(path);
        Self { path, cids }
    }

    /// Number of IDs to issue until the peer holds `target` of them.
    pub fn wanted(&self, target: u64) -> usize {
        self.cids.wanted(target)
    }

    /// Issues one; returns its sequence number.
    pub fn issue(&mut self, cid: ConnectionId, reset_token: [u8; 16]) -> u64 {
        self.cids.issue(cid, reset_token)
    }

    /// The peer retires one, in a packet to `destination`.
    ///
    /// # Errors
    /// The fault of a peer that breaks a rule.
    pub fn on_retire(
        &mut self,
        sequence: u64,
        destination: &ConnectionId,
    ) -> Result<Option<ConnectionId>, TransportError> {
        self.cids.on_retire(sequence, destination)
    }

    /// The peer asks for more.
    ///
    /// # Errors
    /// The fault of a peer that asks for what it cannot expect yet.
    pub fn on_cids_blocked(&self, next_sequence: u64) -> Result<(), TransportError> {
        self.cids.on_cids_blocked(next_sequence)
    }

    /// IDs for the peer's use.
    pub fn active(&self) -> impl Iterator<Item = &ConnectionId> {
        self.cids.active()
    }

    /// Appends queued frames within `room` bytes.
    pub fn write_frames(&mut self, buf: &mut Vec<u8>, room: usize) {
        let mut counts = FrameCounts::default();
        let limit = buf.len() + room;
        let mut w = FrameWriter::new(buf, limit, &mut counts);
        self.cids.write_frames(&mut w, true);
    }

    /// The frame with this sequence number was acknowledged or lost.
    pub fn on_delivery(&mut self, sequence: u64, acknowledged: bool) {
        let path = self.path;
        let delivery = PathDelivery::NewConnectionId { path, sequence };
        self.cids.on_delivery(delivery, fate(acknowledged));
    }
}

fn fate(acknowledged: bool) -> Fate {
    if acknowledged {
        Fate::Acked
    } else {
        Fate::Lost
    }
}
