//! [`Unacked`]: ranges of streams that are under way, collected when a scheduler looks at them.

use std::cell::{Cell, OnceCell};
use std::fmt;

use crate::packet::delivery::{Delivery, StreamDelivery};
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

    fn collect(&self) -> Vec<UnackedRange> {
        let mut ranges = self.memory.take();
        for path in self.paths.iter() {
            let start = ranges.len();
            for (_, packet) in path.space.sent.iter() {
                for delivery in &packet.deliveries {
                    let Delivery::Stream(StreamDelivery::Data {
                        id, offset, length, ..
                    }) = *delivery
                    else {
                        continue;
                    };
                    let offsets = offset..offset + u64::from(length);
                    if self.streams.is_unacked(id, offsets.clone()) {
                        ranges.push(UnackedRange {
                            stream: id,
                            offsets,
                            path: path.id,
                            sent_at: packet.time_sent,
                            reinjected: packet.reinjected,
                            tag: packet.tag,
                        });
                    }
                }
                if ranges.len() - start >= MAX_RANGES {
                    break;
                }
            }
        }
        ranges.sort_unstable_by_key(|range| (range.sent_at, range.stream, range.offsets.start));
        ranges
    }
}

impl Ranges for Unacked<'_> {
    fn ranges(&self) -> &[UnackedRange] {
        self.ranges.get_or_init(|| self.collect())
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
