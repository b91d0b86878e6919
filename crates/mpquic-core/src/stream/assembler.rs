//! [`Assembler`]: received bytes, put in order.

use std::cmp::Ordering;
use std::collections::VecDeque;

use bytes::{Buf, Bytes};
use quinn_proto::Chunk;

use super::piece::{self, Piece, Source};
use super::runs::{Lists, Place, Run, Runs};
use crate::range_set::RangeSet;

/// A slice beyond a gap is copied if its datagram exceeds the slice by this factor: the gap may
/// stay for long, and would keep the datagram in memory.
const MOST_WASTE: usize = 8;

/// Received bytes of one stream. Bytes in order are stored and read in constant time and without a
/// copy. Bytes beyond a gap are kept as runs: data from one path in order is one run, with any
/// number of frames.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    /// The bytes that ordered reads return next, without a gap.
    ready: VecDeque<Piece>,
    /// Offset of the first ready byte.
    offset: u64,
    /// Offset of the first byte that is neither ready nor was read in order.
    end: u64,
    /// Bytes of memory that all pieces keep: whole datagrams, where they are slices.
    pinned: u64,
    /// Data beyond gaps; most streams never have any.
    beyond: Option<Box<Beyond>>,
}

/// Data beyond the first gap; with unordered reads, all data.
#[derive(Debug, Default)]
struct Beyond {
    runs: Runs,
    lists: Lists,
    /// Bytes in runs.
    unread: u64,
    /// `Some` once reads are unordered: the bytes given to the reader.
    delivered: Option<RangeSet>,
    /// How many these are.
    read: u64,
    /// Where the first run begins, if no ordered read gets beyond it; otherwise 0.
    next_run: u64,
    /// Bytes of memory, but for what pieces keep. Counted when it changes, because every frame
    /// asks.
    memory: usize,
}

impl Assembler {
    /// Frees memory that is kept for reuse.
    pub(crate) fn trim(&mut self) {
        self.ready.shrink_to_fit();
        if let Some(beyond) = &mut self.beyond {
            beyond.lists.trim();
            beyond.on_change();
            if beyond.runs.is_empty() && beyond.delivered.is_none() {
                self.beyond = None;
            }
        }
    }

    /// Bytes held, their memory in bytes, and the number of gaps. Runs count as gaps, and so do
    /// short pieces that an unordered reader took beyond the first missing byte: pieces below
    /// `piece` bytes on average.
    #[inline]
    pub(crate) fn held(&self, piece: u64) -> (u64, u64, usize) {
        let ready = self.end - self.offset;
        let memory = self.pinned + (self.ready.capacity() * size_of::<Piece>()) as u64;
        match &self.beyond {
            None => (ready, memory, 0),
            Some(beyond) => (
                ready + beyond.unread,
                memory + beyond.memory as u64,
                beyond.gaps(piece),
            ),
        }
    }

    /// Bytes held.
    pub(crate) fn unread(&self) -> u64 {
        self.held(1).0
    }

    /// Bytes given to the reader.
    pub(crate) fn bytes_read(&self) -> u64 {
        match &self.beyond {
            Some(beyond) if beyond.delivered.is_some() => beyond.read,
            _ => self.offset,
        }
    }

    /// Bytes of memory. Received bytes keep whole datagrams, where they are slices.
    pub(crate) fn memory(&self) -> u64 {
        self.held(1).1
    }

    /// Pieces held.
    #[cfg(test)]
    pub(crate) fn pieces(&self) -> usize {
        let beyond = self.beyond.iter().flat_map(|beyond| beyond.runs.iter());
        self.ready.len() + beyond.map(Run::pieces).sum::<usize>()
    }

    /// Runs held beyond gaps.
    pub(crate) fn runs(&self) -> usize {
        self.beyond.as_ref().map_or(0, |beyond| beyond.runs.len())
    }

    /// Offset of the first byte that an ordered reader has not read.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    fn delivered(&self) -> Option<&RangeSet> {
        self.beyond.as_ref()?.delivered.as_ref()
    }

    /// True if the reader was given every byte below `offset`.
    pub(crate) fn is_read_up_to(&self, offset: u64) -> bool {
        match self.delivered() {
            Some(delivered) => delivered.contains_range(0..offset),
            None => self.offset >= offset,
        }
    }

    /// True if a read would give bytes.
    pub(crate) fn is_readable(&self) -> bool {
        !self.ready.is_empty() || self.is_unordered() && self.runs() > 0
    }

    /// True if reads are unordered from now on.
    pub(crate) fn is_unordered(&self) -> bool {
        self.delivered().is_some()
    }

    /// Stores received bytes, except those received before.
    pub(crate) fn insert(&mut self, offset: u64, data: Bytes, source: Source) {
        let end = offset + data.len() as u64;
        let beyond = self.beyond.as_ref();
        let in_order = offset == self.end && beyond.is_none_or(|beyond| end <= beyond.next_run);
        if in_order && !data.is_empty() {
            self.extend_ready(data, source);
        } else {
            self.insert_out_of_order(offset, data, source);
        }
    }

    /// Appends bytes to the ready ones, up to the first run.
    fn extend_ready(&mut self, data: Bytes, source: Source) {
        self.end += data.len() as u64;
        self.pinned += piece::append(&mut self.ready, data, source);
        if let Some(beyond) = &mut self.beyond
            && beyond.next_run == self.end
        {
            self.pinned += beyond.join_ready(&mut self.ready, &mut self.end);
        }
    }

    fn insert_out_of_order(&mut self, mut offset: u64, mut data: Bytes, source: Source) {
        loop {
            skip_to(self.end, &mut offset, &mut data);
            if data.is_empty() {
                return;
            }
            if offset > self.end || self.is_unordered() {
                let beyond = self.beyond.get_or_insert_default();
                self.pinned += beyond.insert(offset, data, source);
                beyond.on_change();
                return;
            }
            let beyond = self.beyond.as_ref();
            let next = beyond.and_then(|beyond| beyond.runs.first_start());
            let room = next.map_or(u64::MAX, |next| next - offset);
            let piece = split_up_to(&mut data, room);
            offset += piece.len() as u64;
            self.extend_ready(piece, source);
        }
    }

    /// The next bytes in order, at most `max_length`.
    pub(crate) fn read(&mut self, max_length: usize) -> Option<Chunk> {
        let (bytes, pinned) = piece::take_front(&mut self.ready, max_length)?;
        self.pinned -= pinned;
        let offset = self.offset;
        self.offset += bytes.len() as u64;
        Some(Chunk { offset, bytes })
    }

    /// Any bytes, at most `max_length`; the ones with the lowest offset.
    pub(crate) fn read_unordered(&mut self, max_length: usize) -> Option<Chunk> {
        if !self.is_unordered() {
            self.make_unordered();
        }
        let (chunk, pinned) = self.beyond.as_mut()?.read_unordered(max_length)?;
        self.pinned -= pinned;
        Some(chunk)
    }

    fn make_unordered(&mut self) {
        let beyond = self.beyond.get_or_insert_default();
        beyond.delivered = Some(std::iter::once(0..self.offset).collect());
        beyond.read = self.offset;
        let ready = std::mem::take(&mut self.ready);
        if !ready.is_empty() {
            beyond.unread += self.end - self.offset;
            let run = Run::of_pieces(self.offset, self.end, ready, &mut beyond.lists);
            let place = beyond.runs.beyond(0);
            beyond.runs.insert(place, run);
        }
        beyond.on_change();
        self.end = self.offset;
    }

    /// Copies slices which were held at the last call already, to release their datagrams. Each
    /// byte is copied at most once.
    pub(crate) fn detach_waiting(&mut self) {
        let runs = self.beyond.iter_mut();
        let runs = runs.flat_map(|beyond| beyond.runs.iter_mut());
        for list in runs.filter_map(Run::list_mut).chain([&mut self.ready]) {
            self.pinned -= list.iter().map(Piece::pinned).sum::<u64>();
            piece::detach(list);
            self.pinned += list.iter().map(Piece::pinned).sum::<u64>();
        }
    }

    /// Drops all bytes held.
    pub(crate) fn clear(&mut self) {
        let read = self.bytes_read();
        *self = Self {
            offset: read,
            end: read,
            ..Self::default()
        };
    }
}

/// Methods that add or remove bytes return the change of the pieces' memory in bytes.
impl Beyond {
    /// Call after each change of runs, lists or delivered ranges.
    fn on_change(&mut self) {
        self.next_run = match self.delivered {
            None => self.runs.first_start().unwrap_or(u64::MAX),
            Some(_) => 0,
        };
        let delivered = self.delivered.as_ref().map_or(0, RangeSet::memory);
        self.memory = size_of::<Self>() + self.runs.memory() + self.lists.memory() + delivered;
    }

    fn gaps(&self, piece: u64) -> usize {
        let islands = self.delivered.as_ref().map_or(0, |delivered| {
            let first = delivered.iter().next().filter(|first| first.start == 0);
            let count = delivered.len() - usize::from(first.is_some());
            let beyond = self.read - first.map_or(0, |first| first.end);
            count.saturating_sub((beyond / piece) as usize)
        });
        self.runs.len() + islands
    }

    /// Appends runs that follow without a gap to the ready bytes.
    fn join_ready(&mut self, ready: &mut VecDeque<Piece>, end: &mut u64) -> u64 {
        let mut pinned = 0;
        while self.runs.first_start() == Some(*end) {
            let Some(run) = self.runs.pop_first() else {
                break;
            };
            self.unread -= run.end() - *end;
            *end = run.end();
            pinned += run.move_to(ready, &mut self.lists);
        }
        self.on_change();
        pinned
    }

    /// Stores the bytes that are not held and were not given to the reader.
    fn insert(&mut self, mut offset: u64, mut data: Bytes, source: Source) -> u64 {
        let Some(delivered) = self.delivered.take() else {
            return self.insert_runs(offset, data, source);
        };
        let mut pinned = 0;
        let end = offset + data.len() as u64;
        for known in delivered.overlapping(offset..end) {
            let fresh = split_up_to(&mut data, known.start.saturating_sub(offset));
            let start = offset;
            offset += fresh.len() as u64;
            pinned += self.insert_runs(start, fresh, source);
            skip_to(known.end, &mut offset, &mut data);
        }
        self.delivered = Some(delivered);
        pinned + self.insert_runs(offset, data, source)
    }

    /// Adds the bytes which no run holds yet.
    fn insert_runs(&mut self, mut offset: u64, mut data: Bytes, mut source: Source) -> u64 {
        if data.is_empty() {
            return 0;
        }
        source.gather |= data.len() * MOST_WASTE < source.datagram as usize;
        // New bytes mostly follow the last run, or start another one behind it.
        let last = self.runs.last_mut();
        match last.map(|last| (offset.cmp(&last.end()), last)) {
            Some((Ordering::Equal, last)) => {
                self.unread += data.len() as u64;
                return last.extend(data, source, &mut self.lists);
            }
            Some((Ordering::Less, _)) => {}
            Some((Ordering::Greater, _)) | None => {
                self.unread += data.len() as u64;
                let (run, pinned) = Run::new(offset, data, source, &mut self.lists);
                self.runs.push(run);
                return pinned;
            }
        }
        let mut pinned = 0;
        while !data.is_empty() {
            let place = self.runs.beyond(offset);
            let before = self.runs.before(place);
            if let Some(before) = before.and_then(|before| self.runs.get(before)) {
                skip_to(before.end(), &mut offset, &mut data);
            }
            let next = self.runs.get(place).map(Run::start);
            let piece = split_up_to(&mut data, next.map_or(u64::MAX, |next| next - offset));
            if !piece.is_empty() {
                let start = offset;
                offset += piece.len() as u64;
                pinned += self.insert_at(place, start, piece, source);
            }
        }
        pinned
    }

    /// Adds bytes between two runs, of which the second is at `place`.
    fn insert_at(&mut self, place: Place, offset: u64, data: Bytes, source: Source) -> u64 {
        let Self { runs, lists, .. } = self;
        let end = offset + data.len() as u64;
        self.unread += data.len() as u64;
        let touches_next = runs.get(place).is_some_and(|next| next.start() == end);
        let before = runs.before(place);
        if let Some(before) = before
            && let Some(first) = runs.get_mut(before)
            && first.end() == offset
        {
            let mut pinned = first.extend(data, source, lists);
            if touches_next
                && let Some(second) = runs.remove(place)
                && let Some(first) = runs.get_mut(before)
            {
                pinned += first.absorb(second, lists);
            }
            return pinned;
        }
        let (run, mut pinned) = Run::new(offset, data, source, lists);
        match runs.get_mut(place).filter(|_| touches_next) {
            Some(next) => {
                let second = std::mem::replace(next, run);
                pinned += next.absorb(second, lists);
            }
            None => runs.insert(place, run),
        }
        pinned
    }

    fn read_unordered(&mut self, max_length: usize) -> Option<(Chunk, u64)> {
        let (offset, bytes, pinned) = self.runs.take_front(max_length, &mut self.lists)?;
        let length = bytes.len() as u64;
        self.unread -= length;
        self.read += length;
        if let Some(delivered) = &mut self.delivered {
            delivered.insert(offset..offset + length);
        }
        self.on_change();
        Some((Chunk { offset, bytes }, pinned))
    }
}

/// Drops the bytes below `bound`.
fn skip_to(bound: u64, offset: &mut u64, data: &mut Bytes) {
    if *offset < bound {
        let known = (bound - *offset).min(data.len() as u64);
        data.advance(known as usize);
        *offset += known;
    }
}

/// Cuts at most `room` bytes off.
fn split_up_to(data: &mut Bytes, room: u64) -> Bytes {
    if room >= data.len() as u64 {
        std::mem::take(data)
    } else {
        data.split_to(room as usize)
    }
}
