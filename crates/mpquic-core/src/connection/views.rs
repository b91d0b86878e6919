//! [`Views`]: what the scheduler sees of paths, streams and unacknowledged data.

use std::time::Instant;

use smallvec::SmallVec;

use crate::congestion::Controller;
use crate::ids::{PathId, PathStatus};
use crate::packet::delivery::{Delivery, StreamDelivery};
use crate::path::set::Paths;
use crate::path::view::Allowance;
use crate::sched::{Needs, PathView, Sendable, StreamView, UnackedRange};
use crate::stream::set::StreamSet;

/// The most unacknowledged ranges shown of one path.
const MAX_UNACKED_RANGES: usize = 64;

/// What the scheduler sees. Only the memory is kept from one decision to the next.
#[derive(Debug, Default)]
pub(super) struct Views {
    pub(super) paths: Vec<PathView>,
    /// Of the same paths.
    allowances: SmallVec<[Allowance; 1]>,
    pub(super) streams: Vec<StreamView>,
    pub(super) unacked: Vec<UnackedRange>,
}

impl Views {
    /// Collects the usable paths and, if the scheduler wants them, streams and unacknowledged
    /// ranges.
    pub(super) fn fill(
        &mut self,
        now: Instant,
        needs: Needs,
        paths: &mut Paths,
        streams: &StreamSet,
        controller: &dyn Controller,
    ) {
        if self.paths.capacity() == 0 {
            self.paths.reserve_exact(1);
        }
        paths.fill_views(now, controller, &mut self.paths, &mut self.allowances);
        // While all paths are suspect, all of them may be used.
        let live = self.paths.iter().any(|view| !view.suspect);
        let candidate = |view: &PathView| !(live && view.suspect);
        let available = self
            .paths
            .iter()
            .any(|view| candidate(view) && view.status == PathStatus::Available);
        for view in &mut self.paths {
            view.usable = candidate(view) && !(available && view.status == PathStatus::Backup);
        }
        if needs.streams {
            streams.fill_stream_views(&mut self.streams);
        }
        if needs.unacked {
            self.fill_unacked(paths, streams);
        }
    }

    fn fill_unacked(&mut self, paths: &Paths, streams: &StreamSet) {
        for path in paths.iter() {
            let start = self.unacked.len();
            for (_, packet) in path.space.sent.iter() {
                for delivery in &packet.deliveries {
                    let Delivery::Stream(StreamDelivery::Data {
                        id, offset, length, ..
                    }) = *delivery
                    else {
                        continue;
                    };
                    let offsets = offset..offset + u64::from(length);
                    if streams.is_unacked(id, offsets.clone()) {
                        self.unacked.push(UnackedRange {
                            stream: id,
                            offsets,
                            path: path.id,
                            sent_at: packet.time_sent,
                            reinjected: packet.reinjected,
                            tag: packet.tag,
                        });
                    }
                }
                if self.unacked.len() - start >= MAX_UNACKED_RANGES {
                    break;
                }
            }
        }
        self.unacked
            .sort_unstable_by_key(|range| (range.sent_at, range.stream, range.offsets.start));
    }

    pub(super) fn clear(&mut self) {
        self.paths.clear();
        self.allowances.clear();
        self.streams.clear();
        self.unacked.clear();
    }

    /// Frees memory that is kept for reuse.
    pub(super) fn trim(&mut self) {
        self.clear();
        self.paths.shrink_to_fit();
        self.allowances.shrink_to_fit();
        self.streams.shrink_to_fit();
        self.unacked.shrink_to_fit();
    }

    /// True if the path can send a datagram now.
    pub(super) fn can_send(&self, path: PathId) -> bool {
        self.paths
            .iter()
            .any(|view| view.id == path && view.can_send())
    }

    /// What a path allows to be sent now, if it may be used at all.
    pub(super) fn allowance(&self, path: PathId) -> Option<Allowance> {
        let index = self.paths.iter().position(|view| view.id == path)?;
        self.allowances.get(index).copied()
    }

    /// True if `is_wanted` is true for a usable path.
    pub(super) fn has_usable(&self, is_wanted: impl Fn(&PathView) -> bool) -> bool {
        self.paths.iter().any(|path| path.usable && is_wanted(path))
    }

    /// The fastest path that can send a datagram now.
    pub(super) fn fastest(&self) -> Option<PathId> {
        self.paths
            .iter()
            .filter(|path| path.can_send())
            .min_by_key(|path| (path.rtt.smoothed, path.id))
            .map(|path| path.id)
    }

    /// The usable path whose pacer is the first to allow more, and when.
    pub(super) fn first_pacer(&self) -> Option<(Instant, PathId)> {
        self.paths
            .iter()
            .filter(|path| path.usable)
            .filter_map(|path| match path.sendable {
                Sendable::At(at) => Some((at, path.id)),
                Sendable::Now | Sendable::WindowFull | Sendable::Unusable => None,
            })
            .min()
    }
}
