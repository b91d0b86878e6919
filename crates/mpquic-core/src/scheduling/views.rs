//! [`Views`]: what the scheduler sees of paths and streams.

use std::time::Instant;

use smallvec::SmallVec;

use crate::congestion::Controller;
use crate::ids::{PathId, PathStatus};
use crate::path::set::Paths;
use crate::path::view::Allowance;
use crate::sched::{PathView, Sendable, StreamView};
use crate::stream::set::StreamSet;

/// The view that the scheduler gets, built anew for each decision; only the memory is reused.
#[derive(Debug, Default)]
pub(crate) struct Views {
    pub(crate) paths: Vec<PathView>,
    /// Of the same paths.
    allowances: SmallVec<[Allowance; 1]>,
    pub(crate) streams: Vec<StreamView>,
}

impl Views {
    /// Collects the usable paths and, if the scheduler wants them, streams.
    pub(crate) fn fill(
        &mut self,
        now: Instant,
        paths: &mut Paths,
        streams: Option<&StreamSet>,
        controller: &dyn Controller,
    ) {
        if self.paths.capacity() == 0 {
            self.paths.reserve_exact(1);
        }
        paths.fill_views(now, controller, &mut self.paths, &mut self.allowances);
        // While all paths are suspect, each path is a candidate.
        let live = self.paths.iter().any(|view| !view.suspect);
        let candidate = |view: &PathView| !(live && view.suspect);
        let available = self
            .paths
            .iter()
            .any(|view| candidate(view) && view.status == PathStatus::Available);
        for view in &mut self.paths {
            view.usable = candidate(view) && !(available && view.status == PathStatus::Backup);
        }
        if let Some(streams) = streams {
            streams.fill_stream_views(&mut self.streams);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.paths.clear();
        self.allowances.clear();
        self.streams.clear();
    }

    /// Frees memory that is kept for reuse.
    pub(crate) fn trim(&mut self) {
        self.clear();
        self.paths.shrink_to_fit();
        self.allowances.shrink_to_fit();
        self.streams.shrink_to_fit();
    }

    /// True if the path can send a datagram now.
    pub(crate) fn can_send(&self, path: PathId) -> bool {
        self.paths
            .iter()
            .any(|view| view.id == path && view.can_send())
    }

    /// True if the path can send a datagram of bound data now, also on a backup path.
    pub(crate) fn can_send_bound(&self, path: PathId) -> bool {
        let able =
            |view: &PathView| view.sendable == Sendable::Now && (view.usable || !view.suspect);
        self.paths.iter().any(|view| view.id == path && able(view))
    }

    /// The fastest usable path besides this one.
    pub(crate) fn second(&self, first: PathId) -> Option<PathId> {
        let others = self
            .paths
            .iter()
            .filter(|view| view.usable && view.id != first);
        let fastest = others.min_by_key(|path| (path.rtt.smoothed, path.id));
        fastest.map(|path| path.id)
    }

    /// The limits of a usable path now.
    pub(crate) fn allowance(&self, path: PathId) -> Option<Allowance> {
        let index = self.paths.iter().position(|view| view.id == path)?;
        self.allowances.get(index).copied()
    }

    /// True if `is_wanted` is true for a usable path.
    pub(crate) fn has_usable(&self, is_wanted: impl Fn(&PathView) -> bool) -> bool {
        self.paths.iter().any(|path| path.usable && is_wanted(path))
    }

    /// The fastest path that can send a datagram now.
    pub(crate) fn fastest(&self) -> Option<PathId> {
        self.paths
            .iter()
            .filter(|path| path.can_send())
            .min_by_key(|path| (path.rtt.smoothed, path.id))
            .map(|path| path.id)
    }

    /// Of paths that are usable or have bound data, the path whose pacer allows more first, and the
    /// time.
    pub(crate) fn first_pacer(
        &self,
        is_bound: impl Fn(PathId) -> bool,
    ) -> Option<(Instant, PathId)> {
        self.paths
            .iter()
            .filter(|path| path.usable || is_bound(path.id))
            .filter_map(|path| match path.sendable {
                Sendable::At(at) => Some((at, path.id)),
                Sendable::Now | Sendable::WindowFull | Sendable::Unusable => None,
            })
            .min()
    }
}
