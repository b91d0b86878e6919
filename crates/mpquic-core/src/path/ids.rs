//! [`PathIds`]: unused, open and spent path IDs.

use crate::error::{Fault, TransportError};
use crate::ids::PathId;
use crate::packet::delivery::{Fate, PathLimitDelivery, Progress};
use crate::packet::writer::FrameWriter;
use crate::range_set::RangeSet;
use crate::wire::frame::Frame;

/// Number of possible path IDs: they have 32 bits (MP-005).
const PATH_IDS: u64 = 1 << 32;

/// The path IDs of a connection: both sides' limits, and the state of each ID.
///
/// An ID is *unused*, then *open*, then *closed*, and never anything else again (MP-037). Our limit
/// rises by one for each closed ID, so that the number of unused and open IDs stays the same
/// (MP-131). That also bounds the memory held here and by paths.
#[derive(Debug)]
pub(crate) struct PathIds {
    /// The most IDs that are unused or open at the same time; 0 turns multipath off.
    max_concurrent: u32,
    /// Number of IDs at or below our limit.
    local_count: u64,
    /// The value of `local_count` that the peer was last told.
    announced_count: u64,
    progress: Progress,
    /// The peer's limit; `None` until multipath is negotiated.
    peer: Option<PeerLimit>,
    /// Open and formerly open IDs.
    used: RangeSet,
    /// IDs whose path is gone.
    closed: RangeSet,
    closed_count: u64,
    /// A PATHS_BLOCKED frame: the peer's limit that it names.
    blocked: Option<(PathId, Progress)>,
}

#[derive(Debug, Clone, Copy)]
struct PeerLimit {
    /// The `initial_max_path_id` parameter.
    initial: PathId,
    current: PathId,
}

impl PathIds {
    /// Starts with path 0 open. Up to `max_concurrent` paths may be open at a time; 0 disables
    /// multipath.
    pub(crate) fn new(max_concurrent: u32) -> Self {
        let count = u64::from(max_concurrent).max(1);
        let mut used = RangeSet::new();
        used.insert_one(0);
        Self {
            max_concurrent,
            local_count: count,
            announced_count: count,
            progress: Progress::Delivered,
            peer: None,
            used,
            closed: RangeSet::new(),
            closed_count: 0,
            blocked: None,
        }
    }

    /// The `initial_max_path_id` to announce, `None` if multipath is not offered (MP-013).
    #[cfg(test)]
    pub(crate) fn initial_max_path_id(&self) -> Option<PathId> {
        self.max_concurrent.checked_sub(1).map(PathId)
    }

    /// The peer's `initial_max_path_id`, once the handshake is complete (MP-003). Returns whether
    /// multipath is negotiated (MP-001).
    pub(crate) fn set_peer_parameter(&mut self, initial_max_path_id: Option<PathId>) -> bool {
        if self.max_concurrent > 0 {
            self.peer = initial_max_path_id.map(|initial| PeerLimit {
                initial,
                current: initial,
            });
        }
        self.is_multipath()
    }

    /// True once multipath is negotiated.
    pub(crate) fn is_multipath(&self) -> bool {
        self.peer.is_some()
    }

    /// Checks a path ID that a frame names, or the limit in PATHS_BLOCKED.
    pub(crate) fn check(&self, path: PathId) -> Result<(), TransportError> {
        // MP-050, MP-142: compared with our announced limit, acknowledged or not (MP-099)
        if u64::from(path) < self.announced_count {
            Ok(())
        } else {
            Err(Fault::PathIdBeyondLimit.into())
        }
    }

    /// True if the ID is or was open.
    pub(crate) fn is_used(&self, path: PathId) -> bool {
        self.used.contains(path.into())
    }

    /// The highest ID both sides allow (MP-015).
    pub(crate) fn limit(&self) -> PathId {
        let local = u32::try_from(self.announced_count - 1).unwrap_or(u32::MAX);
        self.peer
            .map_or(PathId::ZERO, |peer| peer.current.min(PathId(local)))
    }

    /// Unused IDs within both sides' limits, lowest first, at most `max_concurrent`. A client opens
    /// the first ID with connection IDs from each side (MP-071).
    pub(crate) fn unused(&self) -> impl Iterator<Item = PathId> + '_ {
        self.unused_up_to(self.limit())
    }

    /// Unused IDs to issue connection IDs for, lowest first (MP-093, MP-094): up to the peer's
    /// limit (MP-096) and to ours, even if the peer has yet to be told of it. At most
    /// `max_concurrent` of them.
    pub(crate) fn issuable(&self) -> impl Iterator<Item = PathId> + '_ {
        let local = PathId(u32::try_from(self.local_count - 1).unwrap_or(u32::MAX));
        let limit = self
            .peer
            .map_or(PathId::ZERO, |peer| peer.current.min(local));
        self.unused_up_to(limit)
    }

    fn unused_up_to(&self, limit: PathId) -> impl Iterator<Item = PathId> + '_ {
        let end = u64::from(limit) + 1;
        let starts = self.used.iter().map(|range| range.end);
        let ends = self.used.iter().skip(1).map(|range| range.start);
        starts
            .zip(ends.chain(std::iter::once(end)))
            .flat_map(move |(from, to)| from..to.min(end))
            .filter_map(|id| u32::try_from(id).ok())
            .map(PathId)
    }

    /// Marks an ID as used: the client opens its path, or a packet of the peer opened it. False for
    /// a used ID (MP-037) or one beyond the limits.
    #[must_use]
    pub(crate) fn open(&mut self, path: PathId) -> bool {
        path <= self.limit() && self.used.insert_one(path.into())
    }

    /// The path was abandoned, perhaps without ever being used (MP-125): its ID is no longer
    /// unused. `path` must have passed [`Self::check`].
    pub(crate) fn abandon(&mut self, path: PathId) {
        self.used.insert_one(path.into());
    }

    /// All state of an abandoned path is dropped: its ID is never used again, and our limit rises
    /// by one in exchange (MP-131). `path` must have passed [`Self::check`].
    pub(crate) fn close(&mut self, path: PathId) {
        self.used.insert_one(path.into());
        if !self.closed.insert_one(path.into()) {
            return;
        }
        self.closed_count += 1;
        let count = (self.closed_count + u64::from(self.max_concurrent)).min(PATH_IDS);
        if self.is_multipath() && count > self.local_count {
            self.local_count = count;
            self.progress = Progress::Queued;
        }
    }

    /// True if the path is gone and its ID never used again: frames that name it are ignored
    /// (MP-051).
    pub(crate) fn is_closed(&self, path: PathId) -> bool {
        self.closed.contains(path.into())
    }

    /// The client wants to open a path and no unused ID is left. If the peer's limit is the reason,
    /// the peer is told so, once per limit (MP-097, MP-144). Our limit rises by itself.
    pub(crate) fn request(&mut self) {
        let Some(peer) = self.peer else {
            return;
        };
        let asked = self.blocked.is_some_and(|(at, _)| at == peer.current);
        if !asked
            && u64::from(peer.current) < self.local_count - 1
            && self.unused().next().is_none()
        {
            self.blocked = Some((peer.current, Progress::Queued));
        }
    }

    /// MAX_PATH_ID. True if the limit rose (MP-014).
    pub(crate) fn on_max_path_id(&mut self, limit: PathId) -> Result<bool, TransportError> {
        let Some(peer) = &mut self.peer else {
            return Ok(false);
        };
        // MP-140
        if limit < peer.initial {
            return Err(Fault::MaxPathIdBelowInitial.into());
        }
        // MP-141
        if limit <= peer.current {
            return Ok(false);
        }
        peer.current = limit;
        self.blocked = None;
        Ok(true)
    }

    /// Writes queued MAX_PATH_ID and PATHS_BLOCKED frames.
    pub(crate) fn write_frames(&mut self, w: &mut FrameWriter<'_>) {
        if self.progress.is_queued() {
            let limit = PathId(u32::try_from(self.local_count - 1).unwrap_or(u32::MAX));
            if !w.try_write(
                &Frame::MaxPathId(limit),
                PathLimitDelivery::MaxPathId(limit),
            ) {
                return;
            }
            self.progress = Progress::Sent;
            self.announced_count = self.local_count;
        }
        if let Some((limit, progress)) = &mut self.blocked
            && progress.is_queued()
            && w.try_write(
                &Frame::PathsBlocked(*limit),
                PathLimitDelivery::PathsBlocked(*limit),
            )
        {
            *progress = Progress::Sent;
        }
    }

    /// A MAX_PATH_ID or PATHS_BLOCKED frame was acknowledged or lost. A lost frame that is out of
    /// date is not sent again.
    pub(crate) fn on_delivery(&mut self, delivery: PathLimitDelivery, fate: Fate) {
        match delivery {
            PathLimitDelivery::MaxPathId(limit) => {
                if u64::from(limit) + 1 == self.local_count {
                    self.progress.on_fate(fate);
                }
            }
            PathLimitDelivery::PathsBlocked(limit) => {
                if let Some((at, progress)) = &mut self.blocked
                    && *at == limit
                {
                    progress.on_fate(fate);
                }
            }
        }
    }

    /// True if [`Self::write_frames`] has something to write.
    pub(crate) fn wants_to_send(&self) -> bool {
        self.progress.is_queued()
            || self
                .blocked
                .is_some_and(|(_, progress)| progress.is_queued())
    }
}

#[cfg(test)]
mod tests;
