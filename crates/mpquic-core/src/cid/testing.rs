//! One side's use of the connection IDs of one path.

use quinn_proto::ConnectionId;

use super::peer::{PeerCid, PeerCids};
use crate::error::TransportError;
use crate::event::RouteChange;
use crate::ids::PathId;
use crate::outbox::Outbox;
use crate::packet::writer::written;
use crate::wire::frame::{Frame, NewConnectionId};

/// A path's connection IDs: the unused ones, and two places for those in use.
pub(crate) struct User {
    pub(crate) cids: PeerCids,
    pub(crate) own: Option<PeerCid>,
    pub(crate) other: Option<PeerCid>,
    pub(crate) is_open: bool,
    pub(crate) outbox: Outbox,
}

impl User {
    pub(crate) fn new(path: PathId, limit: u64) -> Self {
        Self {
            cids: PeerCids::new(path, limit),
            own: None,
            other: None,
            is_open: false,
            outbox: Outbox::for_tests(),
        }
    }

    /// Returns the changes of reset tokens reported to the endpoint since the last call.
    pub(crate) fn told(&mut self) -> Vec<RouteChange> {
        self.outbox.take_route_changes()
    }

    /// A frame arrives; returns what the endpoint was told.
    pub(crate) fn receive(
        &mut self,
        new: &NewConnectionId,
    ) -> Result<Vec<RouteChange>, TransportError> {
        let places = &mut [&mut self.own, &mut self.other][..];
        let in_use = if self.is_open { places } else { &mut [] };
        self.cids
            .on_new_connection_id(new, in_use, &mut self.outbox)?;
        Ok(self.told())
    }

    /// Takes the next connection ID; the first one opens the path.
    pub(crate) fn rotate(&mut self) -> Option<Vec<RouteChange>> {
        if !self.cids.has_unused() || !self.cids.may_retire() {
            return None;
        }
        if let Some(old) = self.own.take() {
            self.cids.retire(old, &mut self.outbox);
        }
        self.own = self.cids.take(&mut self.outbox);
        self.is_open = true;
        Some(self.told())
    }

    /// The connection ID in use.
    pub(crate) fn current(&self) -> Option<ConnectionId> {
        self.own.map(|own| *own.cid())
    }

    /// True if a connection ID is in use or unused.
    pub(crate) fn knows(&self, cid: &ConnectionId) -> bool {
        let mut in_use = [&self.own, &self.other].into_iter().flatten();
        self.cids.contains(cid) || in_use.any(|used| used.cid() == cid)
    }

    /// The frames to be sent.
    pub(crate) fn frames(&mut self) -> Vec<Frame> {
        written(1200, |w| self.cids.write_frames(w, true)).0
    }
}
