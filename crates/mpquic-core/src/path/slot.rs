//! [`PathSlot`]: what is known of one path ID.
//!
//! Connection IDs and status are exchanged before a path opens, and acknowledgements after it was
//! abandoned, so a slot exists before its [`Path`] and after it.

use std::time::Instant;

use quinn_proto::{ConnectionId, Side};
use smallvec::SmallVec;

use super::Path;
use super::status::PathStatuses;
use super::tuple::Tuple;
use crate::cid::local::LocalCids;
use crate::cid::peer::{PeerCid, PeerCids};
use crate::error::{TransportError, TransportErrorCode};
use crate::ids::{FourTuple, PathId};
use crate::outbox::Outbox;
use crate::packet::delivery::{Fate, PathDelivery, Progress};
use crate::packet::writer::FrameWriter;
use crate::wire::frame::NewConnectionId;

/// The end of a path (RFC 10069 section 3.4).
#[derive(Debug)]
pub(super) struct Abandon {
    pub(super) error_code: TransportErrorCode,
    /// How far our PATH_ABANDON has come.
    pub(super) progress: Progress,
    /// When the rest of the state may be dropped; known after the peer's PATH_ABANDON. Earlier,
    /// packets of a peer that does not know of the end would be answered with a stateless reset.
    deadline: Option<Instant>,
}

/// Shared default for path IDs without a PATH_STATUS, so that slots need no allocation.
static SILENCE: PathStatuses = PathStatuses::new();

/// The state of one path ID, before its path opens and after it ended.
#[derive(Debug)]
pub(crate) struct PathSlot {
    pub(super) id: PathId,
    pub(super) local_cids: LocalCids,
    pub(super) peer_cids: PeerCids,
    statuses: Option<Box<PathStatuses>>,
    pub(super) path: Option<Box<Path>>,
    pub(super) abandon: Option<Box<Abandon>>,
}

impl PathSlot {
    pub(super) fn new(id: PathId, cid_limit: u64) -> Self {
        Self {
            id,
            local_cids: LocalCids::new(id),
            peer_cids: PeerCids::new(id, cid_limit),
            statuses: None,
            path: None,
            abandon: None,
        }
    }

    /// Bytes of memory besides itself.
    pub(super) fn memory(&self) -> usize {
        let statuses = usize::from(self.statuses.is_some()) * size_of::<PathStatuses>();
        let abandon = usize::from(self.abandon.is_some()) * size_of::<Abandon>();
        let path = self.path.as_ref().map_or(0, |path| path.memory());
        path + statuses + abandon + self.local_cids.memory() + self.peer_cids.memory()
    }

    /// Both sides' announced statuses of the path.
    pub(super) fn statuses(&self) -> &PathStatuses {
        self.statuses.as_deref().unwrap_or(&SILENCE)
    }

    /// Both sides' announced statuses of the path.
    pub(super) fn statuses_mut(&mut self) -> &mut PathStatuses {
        self.statuses
            .get_or_insert_with(|| Box::new(PathStatuses::new()))
    }

    /// Writes our queued status of the path.
    pub(super) fn write_status(&mut self, writer: &mut FrameWriter<'_>) {
        if let Some(statuses) = &mut self.statuses {
            statuses.write_frames(writer, self.id);
        }
    }

    /// The path, unless it was abandoned.
    pub(crate) fn open(&self) -> Option<&Path> {
        if self.abandon.is_some() {
            None
        } else {
            self.path.as_deref()
        }
    }

    /// The path, unless it was abandoned.
    pub(super) fn open_mut(&mut self) -> Option<&mut Path> {
        if self.abandon.is_some() {
            None
        } else {
            self.path.as_deref_mut()
        }
    }

    /// The path, unless it was abandoned, and the peer's connection IDs that are not in use.
    pub(super) fn open_and_cids(&mut self) -> Option<(&mut Path, &mut PeerCids)> {
        if self.abandon.is_some() {
            return None;
        }
        let path = self.path.as_deref_mut()?;
        Some((path, &mut self.peer_cids))
    }

    /// Path 0: sets the destination connection ID of the handshake's packets. A client calls it
    /// again when the server chooses another one (RFC 9000 section 7.2).
    pub(super) fn set_handshake_cid(&mut self, cid: ConnectionId) {
        let cid = self.peer_cids.of_handshake(cid);
        if let Some(path) = &mut self.path {
            path.tuple.peer_cid = Some(cid);
        }
    }

    /// Path 0 of a client: the server's `stateless_reset_token` parameter.
    pub(super) fn set_handshake_token(&mut self, token: [u8; 16], outbox: &mut Outbox) {
        let path = self.path.as_mut();
        if let Some(cid) = path.and_then(|path| path.tuple.peer_cid.as_mut()) {
            cid.set_handshake_token(token, outbox);
        }
    }

    /// The peer's connection IDs that are in use.
    fn used_cids(&self) -> impl Iterator<Item = &PeerCid> {
        let tuples = self.path.iter().flat_map(|path| path.tuples());
        tuples.filter_map(|tuple| tuple.peer_cid.as_ref())
    }

    /// True if a connection ID in use has this reset token (MP-108).
    pub(super) fn is_reset_token(&self, token: [u8; 16]) -> bool {
        let found = |found: bool, cid: &PeerCid| found | cid.is_reset_token(token);
        self.used_cids().fold(false, found)
    }

    /// True for a connection ID of the peer for this path. The same bytes on another path would be
    /// a fault of the peer (MP-095).
    #[inline]
    pub(super) fn knows_peer_cid(&self, cid: &ConnectionId) -> bool {
        self.peer_cids.contains(cid) || self.used_cids().any(|used| used.cid() == cid)
    }

    /// NEW_CONNECTION_ID or PATH_NEW_CONNECTION_ID for this path.
    pub(super) fn on_new_connection_id(
        &mut self,
        new: &NewConnectionId,
        outbox: &mut Outbox,
    ) -> Result<(), TransportError> {
        let Some(path) = self.path.as_deref_mut() else {
            return self.peer_cids.on_new_connection_id(new, &mut [], outbox);
        };
        let before = path.tuple.peer_cid;
        let result = {
            let in_use = path.tuples_mut().map(|tuple| &mut tuple.peer_cid);
            let mut in_use: SmallVec<[_; 4]> = in_use.collect();
            self.peer_cids
                .on_new_connection_id(new, &mut in_use, outbox)
        };
        if path.tuple.peer_cid != before {
            // RFC 9000 section 17.4: the spin bit is reset when the connection ID changes.
            path.spin = false;
        }
        result
    }

    /// A datagram for the path arrived from these addresses.
    pub(super) fn on_datagram_received(
        &mut self,
        four_tuple: FourTuple,
        size: usize,
        side: Side,
        outbox: &mut Outbox,
    ) {
        let Some(path) = self.path.as_deref_mut() else {
            return;
        };
        if let Some(Tuple {
            peer_cid: Some(cid),
            ..
        }) = path.on_datagram_received(four_tuple, size, side)
        {
            self.peer_cids.retire(cid, outbox);
        }
    }

    /// A frame about the path was acknowledged or lost.
    pub(super) fn on_delivery(&mut self, delivery: PathDelivery, fate: Fate) {
        match delivery {
            PathDelivery::NewConnectionId { .. } => self.local_cids.on_delivery(delivery, fate),
            PathDelivery::RetireConnectionId { .. } | PathDelivery::CidsBlocked { .. } => {
                self.peer_cids.on_delivery(delivery, fate);
            }
            PathDelivery::Status { .. } => self.statuses_mut().on_delivery(delivery, fate),
            PathDelivery::Abandon(_) => {
                if let Some(abandon) = &mut self.abandon {
                    abandon.progress.on_fate(fate);
                }
            }
        }
    }

    /// Abandons the path: the peer's connection IDs are retired, and frames about the path that
    /// wait to be sent are dropped. False if it was abandoned before.
    pub(super) fn abandon(&mut self, error_code: TransportErrorCode, outbox: &mut Outbox) -> bool {
        if self.abandon.is_some() {
            return false;
        }
        self.abandon = Some(Box::new(Abandon {
            error_code,
            progress: Progress::Queued,
            deadline: None,
        }));
        self.local_cids.abandon();
        self.statuses_mut().abandon();
        match &mut self.path {
            Some(path) => {
                path.responses.clear();
                let used = path.tuples_mut().filter_map(|tuple| tuple.peer_cid.take());
                self.peer_cids.abandon(used, outbox);
            }
            None => self.peer_cids.abandon(std::iter::empty(), outbox),
        }
        true
    }

    /// The peer's PATH_ABANDON arrived: our issued connection IDs and the receiving half of the
    /// space stay until `deadline` (MP-124).
    pub(super) fn on_peer_abandon(&mut self, deadline: Instant) {
        if let Some(abandon) = &mut self.abandon {
            abandon.deadline.get_or_insert(deadline);
        }
    }

    /// When the state is dropped. Never before the peer has acknowledged our PATH_ABANDON: the peer
    /// may wait for the frame, and only this state can repeat it (MP-123).
    pub(super) fn drain_deadline(&self) -> Option<Instant> {
        let abandon = self.abandon.as_ref()?;
        abandon
            .deadline
            .filter(|_| abandon.progress == Progress::Delivered)
    }
}
