//! [`Parts`]: what the scheduler's host looks at and changes.

use smallvec::SmallVec;

use crate::ids::PathId;
use crate::outbox::Outbox;
use crate::path::set::Paths;
use crate::stream::datagrams::DatagramQueues;
use crate::stream::set::StreamSet;

/// Parts of a connection, borrowed from it.
pub(crate) struct Parts<'a> {
    pub(crate) paths: &'a mut Paths,
    pub(crate) streams: &'a mut StreamSet,
    pub(crate) datagrams: &'a mut DatagramQueues,
    pub(crate) outbox: &'a mut Outbox,
}

impl Parts<'_> {
    /// Paths with waiting bound data.
    #[inline]
    pub(crate) fn bound_paths(&self) -> impl Iterator<Item = PathId> + '_ {
        self.streams
            .bound_paths()
            .chain(self.datagrams.bound_paths())
    }

    /// True if bound data waits for the path.
    pub(crate) fn has_bound(&self, path: PathId) -> bool {
        self.bound_paths().any(|bound| bound == path)
    }

    /// True if bound data waits for any path. Data bound to a path that no longer exists is
    /// released.
    #[inline]
    pub(crate) fn review_bound(&mut self) -> bool {
        let mut has_bound = self.bound_paths().next().is_some();
        if has_bound {
            let bound: SmallVec<[PathId; 8]> = self.bound_paths().collect();
            has_bound = false;
            for path in bound {
                if self.paths.open(path).is_some() {
                    has_bound = true;
                } else {
                    self.streams.release(path);
                    self.datagrams.release(path);
                }
            }
        }
        has_bound
    }
}
