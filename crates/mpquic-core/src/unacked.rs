//! [`Unacked`]: ranges of streams that are under way, collected when a scheduler looks at them.

use std::cell::{Cell, OnceCell};
use std::fmt;

use crate::ids::PathId;
use crate::packet::delivery::{Delivery, StreamDelivery};
use crate::path::Path;
use crate::path::set::Paths;
use crate::sched::{Ranges, UnackedRange};
use crate::stream::set::StreamSet;

/// The most unacknowledged ranges shown of one path.
const MAX_RANGES: usize = 64;

/// The oldest unacknowledged ranges of each path, for one decision.
pub(crate) struct Unacked<'a> {
    paths: &'a Paths,
    streams: &'a StreamSet,
    /// Memory of earlier decisions.
    memory: Cell<Vec<UnackedRange>>,
    ranges: OnceCell<Vec<UnackedRange>>,
}

impl<'a> Unacked<'a> {
    /// Collects nothing yet; the memory is used again.
    pub(crate) fn new(
        paths: &'a Paths,
        streams: &'a StreamSet,
        memory: &mut Vec<UnackedRange>,
    ) -> Self {
        Self {
            paths,
            streams,
            memory: Cell::new(std::mem::take(memory)),
            ranges: OnceCell::new(),
        }
    }

    /// The memory, for the next decision.
    pub(crate) fn into_memory(self) -> Vec<UnackedRange> {
        let mut memory = match self.ranges.into_inner() {
            Some(ranges) => ranges,
            None => self.memory.into_inner(),
        };
        memory.clear();
        memory
    }

    /// The oldest ranges of a path.
    fn of(&self, path: &'a Path) -> impl Iterator<Item = UnackedRange> {
        let ranges = path.space.sent.with_stream_data().flat_map(|packet| {
            packet.deliveries.iter().filter_map(|delivery| {
                let Delivery::Stream(StreamDelivery::Data {
                    id, offset, length, ..
                }) = *delivery
                else {
                    return None;
                };
                let offsets = offset..offset + u64::from(length);
                let is_unacked = self.streams.is_unacked(id, offsets.clone());
                is_unacked.then_some(UnackedRange {
                    stream: id,
                    offsets,
                    path: path.id,
                    sent_at: packet.time_sent,
                    reinjected: packet.reinjected,
                    tag: packet.tag,
                })
            })
        });
        ranges.take(MAX_RANGES)
    }

    fn collect(&self) -> Vec<UnackedRange> {
        let mut ranges = self.memory.take();
        for path in self.paths.iter() {
            ranges.extend(self.of(path));
        }
        ranges.sort_unstable_by_key(|range| (range.sent_at, range.stream, range.offsets.start));
        ranges
    }
}

impl Ranges for Unacked<'_> {
    fn ranges(&self) -> &[UnackedRange] {
        self.ranges.get_or_init(|| self.collect())
    }

    fn find(
        &self,
        path: PathId,
        is_wanted: &mut dyn FnMut(&UnackedRange) -> bool,
    ) -> Option<UnackedRange> {
        let path = self.paths.iter().find(|shown| shown.id == path)?;
        self.of(path).find(is_wanted)
    }
}

impl fmt::Debug for Unacked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let collected = self.ranges.get();
        f.debug_struct("Unacked")
            .field("ranges", &collected)
            .finish_non_exhaustive()
    }
}
