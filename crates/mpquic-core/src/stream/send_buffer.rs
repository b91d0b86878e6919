//! [`SendBuffer`]: bytes written and not yet acknowledged.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;

use super::pending::Pending;
use crate::range_set::RangeSet;

/// Sizes of the segments that copied bytes are kept in.
const SEGMENT_MIN: usize = 1 << 10;
const SEGMENT_MAX: usize = 64 << 10;

/// Shorter chunks, in bytes, are copied: copying costs less than a segment.
const SMALL_CHUNK: usize = 256;

/// The bytes of a stream from the first unacknowledged one to the last written one, and the state
/// of each: never sent, in flight, lost, or acknowledged.
#[derive(Debug, Default)]
pub(crate) struct SendBuffer {
    segments: VecDeque<Segment>,
    /// Every byte below this offset was acknowledged.
    base: u64,
    /// Every byte sent is below this offset.
    sent: u64,
    /// End of the bytes written.
    end: u64,
    /// Acknowledged bytes above `base`.
    acked: RangeSet,
    /// Bytes that were lost and not sent again since.
    lost: Pending,
    /// Bytes below `sent` that were never sent, because later bytes were sent first.
    skipped: Pending,
    /// Index of the segment that bytes were last copied from.
    cursor: usize,
    /// Bytes of memory of all segments, also for what is acknowledged or not written yet.
    held: u64,
}

#[derive(Debug)]
struct Segment {
    start: u64,
    data: Data,
}

#[derive(Debug)]
enum Data {
    Shared(Bytes),
    Copied(Vec<u8>),
}

impl Segment {
    /// Bytes of memory, with its place in the list; lists have up to twice the room they need.
    fn memory(&self) -> u64 {
        let data = match &self.data {
            Data::Shared(bytes) => bytes.len(),
            Data::Copied(bytes) => bytes.capacity(),
        };
        (data + 2 * size_of::<Self>()) as u64
    }

    fn bytes(&self) -> &[u8] {
        match &self.data {
            Data::Shared(bytes) => bytes,
            Data::Copied(bytes) => bytes,
        }
    }

    fn end(&self) -> u64 {
        self.start + self.bytes().len() as u64
    }
}

impl SendBuffer {
    /// Frees memory that is kept for reuse.
    pub(crate) fn trim(&mut self) {
        self.segments.shrink_to_fit();
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        let ranges = self.acked.memory() + self.lost.memory() + self.skipped.memory();
        self.held + ranges as u64
    }

    /// Offset of the first unacknowledged byte.
    #[cfg(test)]
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Offset after the highest byte sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Offset after the last byte written.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Number of bytes from the first unacknowledged one to the last one written.
    pub(crate) fn buffered(&self) -> u64 {
        self.end - self.base
    }

    /// Bytes never sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.end - self.sent + self.skipped.bytes()
    }

    /// Bytes lost and not sent again since.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.bytes()
    }

    /// Offset of the first byte never sent.
    pub(crate) fn first_unsent(&self) -> u64 {
        self.skipped.first().map_or(self.sent, |range| range.start)
    }

    /// Appends a copy of `data`.
    pub(crate) fn write(&mut self, mut data: &[u8]) {
        self.end += data.len() as u64;
        let mut capacity = SEGMENT_MIN;
        if let Some(Segment {
            data: Data::Copied(bytes),
            ..
        }) = self.segments.back_mut()
        {
            let (now, later) = data.split_at(data.len().min(bytes.capacity() - bytes.len()));
            bytes.extend_from_slice(now);
            data = later;
            capacity = bytes.capacity() * 2;
        }
        while !data.is_empty() {
            capacity = capacity.max(data.len()).min(SEGMENT_MAX);
            let (now, later) = data.split_at(data.len().min(capacity));
            let mut bytes = Vec::with_capacity(capacity);
            bytes.extend_from_slice(now);
            let start = self.end - data.len() as u64;
            self.push(start, Data::Copied(bytes));
            data = later;
        }
    }

    /// Appends `data` itself, unless it is very short.
    pub(crate) fn write_chunk(&mut self, data: Bytes) {
        if data.len() < SMALL_CHUNK {
            return self.write(&data);
        }
        let start = self.end;
        self.end += data.len() as u64;
        self.push(start, Data::Shared(data));
    }

    fn push(&mut self, start: u64, data: Data) {
        let segment = Segment { start, data };
        self.held += segment.memory();
        self.segments.push_back(segment);
    }

    /// The next bytes that need no new credit: lost ones first, then skipped ones.
    pub(crate) fn next_resend(&self) -> Option<Range<u64>> {
        self.lost.first().or_else(|| self.skipped.first())
    }

    /// True for lost or skipped bytes.
    pub(crate) fn has_resend(&self) -> bool {
        !self.lost.is_empty() || !self.skipped.is_empty()
    }

    /// True for lost, skipped or never sent bytes.
    #[inline]
    pub(crate) fn wants_to_send(&self) -> bool {
        self.sent < self.end || self.has_resend()
    }

    /// The bytes after the highest one sent.
    pub(crate) fn next_new(&self) -> Option<Range<u64>> {
        (self.sent < self.end).then_some(self.sent..self.end)
    }

    /// The first written and unacknowledged part of `offsets`, sent or not.
    pub(crate) fn unacked_in(&self, offsets: Range<u64>) -> Option<Range<u64>> {
        let mut start = offsets.start.max(self.base);
        let mut end = offsets.end.min(self.end);
        if start >= end {
            return None;
        }
        for acked in self.acked.overlapping(start..end) {
            if acked.start > start {
                end = acked.start;
                break;
            }
            start = acked.end;
        }
        (start < end).then_some(start..end)
    }

    /// The first part of `offsets` that was sent and is not acknowledged.
    pub(crate) fn in_flight_in(&self, mut offsets: Range<u64>) -> Option<Range<u64>> {
        offsets.end = offsets.end.min(self.sent);
        while let Some(mut range) = self.unacked_in(offsets.clone()) {
            let Some(unsent) = self.skipped.first_in(&range) else {
                return Some(range);
            };
            if unsent.start > range.start {
                range.end = unsent.start;
                return Some(range);
            }
            offsets.start = unsent.end;
        }
        None
    }

    /// Appends the bytes of `range`, which must be held, to a packet.
    pub(crate) fn copy_to(&mut self, mut range: Range<u64>, out: &mut Vec<u8>) {
        let mut index = self.segment_of(range.start);
        while let Some(segment) = self.segments.get(index)
            && !range.is_empty()
        {
            let bytes = segment.bytes();
            let from = (range.start - segment.start) as usize;
            let to = bytes.len().min((range.end - segment.start) as usize);
            out.extend_from_slice(&bytes[from..to]);
            range.start = segment.start + to as u64;
            self.cursor = index;
            index += 1;
        }
        debug_assert!(range.is_empty());
    }

    /// Index of the segment with `offset`: mostly the last used segment, or the next.
    fn segment_of(&self, offset: u64) -> usize {
        for index in self.cursor..(self.cursor + 2).min(self.segments.len()) {
            let segment = &self.segments[index];
            if segment.start <= offset && offset < segment.end() {
                return index;
            }
        }
        self.segments
            .partition_point(|segment| segment.end() <= offset)
    }

    /// Bytes of `range` were sent. Returns the rise of the highest sent offset, which flow control
    /// counts.
    pub(crate) fn on_sent(&mut self, range: Range<u64>) -> u64 {
        self.lost.remove(range.clone());
        self.skipped.remove(range.clone());
        if range.end <= self.sent {
            return 0;
        }
        if range.start > self.sent {
            self.skipped.insert(self.sent..range.start);
        }
        range.end - std::mem::replace(&mut self.sent, range.end)
    }

    /// Bytes of `range` were acknowledged.
    pub(crate) fn on_acked(&mut self, range: Range<u64>) {
        let range = range.start.max(self.base)..range.end.min(self.sent);
        if range.is_empty() {
            return;
        }
        self.lost.remove(range.clone());
        if range.start > self.base {
            self.acked.insert(range);
            return;
        }
        self.base = range.end;
        if !self.acked.is_empty() {
            self.acked.remove_below(self.base);
            if self.acked.min() == Some(self.base)
                && let Some(next) = self.acked.pop_min()
            {
                self.base = next.end;
            }
        }
        while let Some(first) = self.segments.front()
            && first.end() <= self.base
        {
            self.held -= first.memory();
            self.segments.pop_front();
            self.cursor = self.cursor.saturating_sub(1);
        }
    }

    /// Bytes of `range` were lost, except those acknowledged since.
    pub(crate) fn on_lost(&mut self, range: Range<u64>) {
        let mut start = range.start.max(self.base);
        let end = range.end.min(self.sent);
        if start >= end {
            return;
        }
        for acked in self.acked.overlapping(start..end) {
            if start < acked.start {
                self.lost.insert(start..acked.start);
            }
            start = acked.end;
        }
        if start < end {
            self.lost.insert(start..end);
        }
    }

    /// Drops the bytes from offset `length` on: unsent bytes are never sent, sent bytes count as
    /// acknowledged.
    pub(crate) fn truncate(&mut self, length: u64) {
        self.end = self.end.min(self.sent.max(length));
        self.skipped.remove(length..u64::MAX);
        self.on_acked(length..self.sent);
        while let Some(last) = self.segments.back()
            && last.start >= length
        {
            self.held -= last.memory();
            self.segments.pop_back();
        }
        self.cursor = 0;
    }
}
