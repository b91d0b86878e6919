//! [`Assembler`]: received bytes, put in order.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use bytes::{Buf, Bytes, BytesMut};
use quinn_proto::Chunk;

use crate::range_set::RangeSet;

/// When slices keep much more alive than themselves, those shorter than this, in bytes, or than half
/// of their datagram are copied.
const SMALL_SLICE: usize = 600;

/// The memory of a slice besides the datagram that it keeps alive: the count of those who share it.
const SHARED: u32 = 64;

/// The memory of a run in the tree besides its list of pieces, in bytes.
const TREE_ENTRY: usize = 112;

/// A slice beyond a gap is copied if its datagram is more than this many times as large: it will
/// probably wait for long.
const MOST_WASTE: usize = 8;

/// Slices are gathered into pieces of at most this many bytes, unless they are longer themselves.
const GATHERED: usize = 16 << 10;

/// How many empty lists are kept for reuse.
const SPARE_LISTS: usize = 32;

/// Where received bytes come from, and whether to copy them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    /// Size of the datagram they are a slice of, in bytes: all of it stays in memory with them.
    pub(crate) datagram: u32,
    /// So much is held that short slices are to be copied together.
    pub(crate) gather: bool,
}

impl Source {
    /// True if `data` is to be copied.
    fn copies(self, data: &Bytes) -> bool {
        self.gather && data.len() < SMALL_SLICE.max(self.datagram as usize / 2)
    }
}

/// Received bytes of one stream. Bytes in order are stored and read in constant time and without a
/// copy. Bytes beyond a gap are kept as runs: data that arrived in order over one path is one run,
/// however many frames it came in.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    /// The bytes that ordered reads return next, without a gap.
    ready: VecDeque<Piece>,
    /// Offset of the first ready byte.
    offset: u64,
    /// Offset of the first missing byte.
    end: u64,
    /// Where the first run begins; `None` if there are none.
    next_run: Option<u64>,
    /// The bytes beyond the first gap, by offset. Runs neither overlap nor touch.
    runs: BTreeMap<u64, Run>,
    /// Bytes held.
    unread: u64,
    /// Bytes given to the reader.
    read: u64,
    /// Pieces held.
    pieces: usize,
    /// Bytes of memory: what the pieces keep, which is whole datagrams where they are slices, and
    /// `overhead`.
    memory: u64,
    /// The part of it besides the pieces, when it was last counted.
    overhead: u64,
    /// Room for pieces in the lists of `runs` and in `spare`.
    list_room: usize,
    /// `Some` once reads are unordered: the bytes given to the reader. Everything held is in `runs`
    /// then.
    delivered: Option<Box<RangeSet>>,
    spare: Vec<VecDeque<Piece>>,
}

#[derive(Debug)]
struct Run {
    end: u64,
    pieces: VecDeque<Piece>,
}

/// Bytes in order, and how many bytes they keep in memory.
#[derive(Debug)]
enum Piece {
    /// A slice of a datagram.
    Fresh(Bytes, u32),
    /// A slice that was there when [`Assembler::detach_waiting`] was last called.
    Waiting(Bytes, u32),
    /// Slices, copied: they keep no datagram alive.
    Gathered(BytesMut, u32),
}

impl Piece {
    fn fresh(bytes: Bytes, source: Source) -> Self {
        Self::Fresh(bytes, source.datagram.saturating_add(SHARED))
    }

    fn gathered(bytes: BytesMut) -> Self {
        let pinned = u32::try_from(bytes.capacity()).unwrap_or(u32::MAX);
        Self::Gathered(bytes, pinned)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Fresh(bytes, _) | Self::Waiting(bytes, _) => bytes,
            Self::Gathered(bytes, _) => bytes,
        }
    }

    fn len(&self) -> usize {
        self.bytes().len()
    }

    fn pinned(&self) -> u64 {
        match self {
            Self::Fresh(_, pinned) | Self::Waiting(_, pinned) | Self::Gathered(_, pinned) => {
                (*pinned).into()
            }
        }
    }

    fn split_to(&mut self, length: usize) -> Bytes {
        match self {
            Self::Fresh(bytes, _) | Self::Waiting(bytes, _) => bytes.split_to(length),
            Self::Gathered(bytes, _) => bytes.split_to(length).freeze(),
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::Fresh(bytes, _) | Self::Waiting(bytes, _) => bytes,
            Self::Gathered(bytes, _) => bytes.freeze(),
        }
    }
}

impl Assembler {
    /// Frees memory that is kept for reuse.
    pub(crate) fn trim(&mut self) {
        self.ready.shrink_to_fit();
        self.list_room -= self.spare.iter().map(VecDeque::capacity).sum::<usize>();
        self.spare = Vec::new();
        self.count_overhead();
    }

    /// Bytes held.
    pub(crate) fn unread(&self) -> u64 {
        self.unread
    }

    /// Bytes given to the reader.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read
    }

    /// Bytes of memory. Received bytes keep whole datagrams, where they are slices.
    pub(crate) fn memory(&self) -> u64 {
        self.memory
    }

    /// Counts the memory besides that of pieces anew: their lists, and what an unordered reader was
    /// given. Called where these change, which in-order data mostly does not.
    fn count_overhead(&mut self) {
        let lists = (self.ready.capacity() + self.list_room) * size_of::<Piece>();
        let runs = self.runs.len() * TREE_ENTRY;
        let delivered = self.delivered.as_deref().map_or(0, RangeSet::memory);
        let spare = self.spare.capacity() * size_of::<VecDeque<Piece>>();
        let overhead = (lists + runs + spare + delivered) as u64;
        self.memory = self.memory - std::mem::replace(&mut self.overhead, overhead) + overhead;
    }

    /// Pieces held.
    #[cfg(test)]
    pub(crate) fn pieces(&self) -> usize {
        self.pieces
    }

    /// Runs held beyond gaps.
    pub(crate) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// What costs memory like gaps: runs, and what an unordered reader was given beyond the first
    /// missing byte, as far as it is in shorter pieces than `piece` on average.
    pub(crate) fn gaps(&self, piece: u64) -> usize {
        let islands = self.delivered.as_deref().map_or(0, |delivered| {
            let first = delivered.iter().next().filter(|first| first.start == 0);
            let count = delivered.len() - usize::from(first.is_some());
            let beyond = self.read - first.map_or(0, |first| first.end);
            count.saturating_sub((beyond / piece) as usize)
        });
        self.runs.len() + islands
    }

    /// Offset of the first byte that an ordered reader has not read.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// True if the reader was given every byte below `offset`.
    pub(crate) fn is_read_up_to(&self, offset: u64) -> bool {
        match &self.delivered {
            Some(delivered) => delivered.contains_range(0..offset),
            None => self.offset >= offset,
        }
    }

    /// True if a read would give bytes.
    pub(crate) fn is_readable(&self) -> bool {
        !self.ready.is_empty() || self.delivered.is_some() && !self.runs.is_empty()
    }

    /// True if reads are unordered from now on.
    pub(crate) fn is_unordered(&self) -> bool {
        self.delivered.is_some()
    }

    /// Stores received bytes, except those received before.
    pub(crate) fn insert(&mut self, offset: u64, data: Bytes, source: Source) {
        let end = offset + data.len() as u64;
        let in_order = offset == self.end
            && self.delivered.is_none()
            && self.next_run.is_none_or(|next| end <= next);
        if in_order && !data.is_empty() {
            self.extend_ready(data, source);
        } else {
            self.insert_out_of_order(offset, data, source);
            self.count_overhead();
        }
    }

    /// Appends bytes to the ready ones, up to the first run.
    fn extend_ready(&mut self, data: Bytes, source: Source) {
        self.end += data.len() as u64;
        self.unread += data.len() as u64;
        let added = append(&mut self.ready, data, source);
        self.pieces += added.pieces;
        self.memory += added.pinned;
        if added.room > 0 || self.next_run == Some(self.end) {
            self.join_ready();
        }
    }

    /// Appends runs that follow without a gap to the ready bytes.
    fn join_ready(&mut self) {
        while self.next_run == Some(self.end) {
            let Some((_, run)) = self.runs.pop_first() else {
                break;
            };
            self.end = run.end;
            self.list_room -= run.pieces.capacity();
            let emptied = join(&mut self.ready, run.pieces);
            self.list_room += emptied.capacity();
            self.recycle(emptied);
            self.next_run = self.runs.first_key_value().map(|(&start, _)| start);
        }
        self.count_overhead();
    }

    fn insert_out_of_order(&mut self, mut offset: u64, mut data: Bytes, source: Source) {
        if let Some(delivered) = self.delivered.take() {
            self.insert_unordered(&delivered, offset, data, source);
            self.delivered = Some(delivered);
            return;
        }
        loop {
            skip_to(self.end, &mut offset, &mut data);
            if data.is_empty() {
                return;
            }
            if offset > self.end {
                return self.insert_runs(offset, data, source);
            }
            let room = self.next_run.map_or(u64::MAX, |next| next - offset);
            let piece = split_up_to(&mut data, room);
            offset += piece.len() as u64;
            self.extend_ready(piece, source);
        }
    }

    /// Stores the bytes that are not held and were not given to the reader.
    fn insert_unordered(
        &mut self,
        delivered: &RangeSet,
        mut offset: u64,
        mut data: Bytes,
        source: Source,
    ) {
        let end = offset + data.len() as u64;
        for known in delivered.overlapping(offset..end) {
            let fresh = split_up_to(&mut data, known.start.saturating_sub(offset));
            let start = offset;
            offset += fresh.len() as u64;
            self.insert_runs(start, fresh, source);
            skip_to(known.end, &mut offset, &mut data);
        }
        self.insert_runs(offset, data, source);
    }

    /// Adds bytes to the runs, without those that are held already.
    fn insert_runs(&mut self, mut offset: u64, mut data: Bytes, mut source: Source) {
        if data.is_empty() {
            return;
        }
        source.gather |= data.len() * MOST_WASTE < source.datagram as usize;
        // New bytes mostly follow the last run, or start another one behind it.
        match self.runs.last_entry() {
            Some(mut last) if offset == last.get().end => {
                let run = last.get_mut();
                run.end += data.len() as u64;
                self.unread += data.len() as u64;
                let added = append(&mut run.pieces, data, source);
                return self.count(&added);
            }
            Some(last) if offset > last.get().end => return self.start_run(offset, data, source),
            None => return self.start_run(offset, data, source),
            Some(_) => {}
        }
        while !data.is_empty() {
            let before = self.runs.range(..=offset).next_back();
            let before = before.map(|(&start, run)| (start, run.end));
            if let Some((_, end)) = before {
                skip_to(end, &mut offset, &mut data);
            }
            let beyond = (Bound::Excluded(offset), Bound::Unbounded);
            let next = self.runs.range(beyond).next().map(|(&start, _)| start);
            let piece = split_up_to(&mut data, next.map_or(u64::MAX, |next| next - offset));
            if piece.is_empty() {
                continue;
            }
            let start = offset;
            offset += piece.len() as u64;
            match before {
                Some((key, end)) if end == start => self.extend_run(key, piece, source),
                _ => self.start_run(start, piece, source),
            }
            if next == Some(offset) {
                let key = before.map_or(start, |(key, end)| if end == start { key } else { start });
                self.join_runs(key, offset);
            }
        }
    }

    fn start_run(&mut self, offset: u64, data: Bytes, source: Source) {
        let end = offset + data.len() as u64;
        let mut pieces = self.spare.pop().unwrap_or_else(|| {
            // Most lists never have a second piece.
            self.list_room += 1;
            VecDeque::with_capacity(1)
        });
        self.unread += data.len() as u64;
        let added = append(&mut pieces, data, source);
        self.count(&added);
        self.runs.insert(offset, Run { end, pieces });
        if self.next_run.is_none_or(|next| offset < next) {
            self.next_run = Some(offset);
        }
    }

    fn extend_run(&mut self, key: u64, data: Bytes, source: Source) {
        if let Some(run) = self.runs.get_mut(&key) {
            run.end += data.len() as u64;
            self.unread += data.len() as u64;
            let added = append(&mut run.pieces, data, source);
            self.count(&added);
        }
    }

    /// Counts what was added to a list of a run.
    fn count(&mut self, added: &Added) {
        self.pieces += added.pieces;
        self.memory += added.pinned;
        self.list_room += added.room;
    }

    /// Makes one run of two that touch.
    fn join_runs(&mut self, first: u64, second: u64) {
        if let Some(second) = self.runs.remove(&second)
            && let Some(first) = self.runs.get_mut(&first)
        {
            first.end = second.end;
            self.list_room -= first.pieces.capacity() + second.pieces.capacity();
            let emptied = join(&mut first.pieces, second.pieces);
            self.list_room += first.pieces.capacity() + emptied.capacity();
            self.recycle(emptied);
        }
    }

    fn recycle(&mut self, list: VecDeque<Piece>) {
        if list.capacity() > 0 && self.spare.len() < SPARE_LISTS {
            self.spare.push(list);
        } else {
            self.list_room -= list.capacity();
        }
    }

    /// The next bytes in order, at most `max_length`.
    pub(crate) fn read(&mut self, max_length: usize) -> Option<Chunk> {
        let piece = self.ready.front_mut()?;
        let bytes = if piece.len() > max_length {
            piece.split_to(max_length)
        } else {
            self.pieces -= 1;
            self.memory -= piece.pinned();
            self.ready.pop_front()?.into_bytes()
        };
        let offset = self.offset;
        self.offset += bytes.len() as u64;
        self.on_read(bytes.len());
        Some(Chunk { offset, bytes })
    }

    /// Any bytes, at most `max_length`; the ones with the lowest offset.
    pub(crate) fn read_unordered(&mut self, max_length: usize) -> Option<Chunk> {
        self.make_unordered();
        let (offset, mut run) = self.runs.pop_first()?;
        let piece = run.pieces.front_mut()?;
        let bytes = if piece.len() > max_length {
            piece.split_to(max_length)
        } else {
            self.pieces -= 1;
            self.memory -= piece.pinned();
            run.pieces.pop_front()?.into_bytes()
        };
        let next = offset + bytes.len() as u64;
        if run.pieces.is_empty() {
            self.recycle(run.pieces);
        } else {
            self.runs.insert(next, run);
        }
        if let Some(delivered) = &mut self.delivered {
            delivered.insert(offset..next);
        }
        self.count_overhead();
        self.on_read(bytes.len());
        Some(Chunk { offset, bytes })
    }

    fn on_read(&mut self, length: usize) {
        self.unread -= length as u64;
        self.read += length as u64;
    }

    fn make_unordered(&mut self) {
        if self.delivered.is_some() {
            return;
        }
        self.delivered = Some(Box::new(std::iter::once(0..self.offset).collect()));
        if !self.ready.is_empty() {
            let pieces = std::mem::take(&mut self.ready);
            self.list_room += pieces.capacity();
            let run = Run {
                end: self.end,
                pieces,
            };
            self.runs.insert(self.offset, run);
        }
    }

    /// Copies the slices that were held at the last call already, so that they keep no datagram
    /// alive. Each byte is copied at most once.
    pub(crate) fn detach_waiting(&mut self) {
        if self.pieces == 0 {
            return;
        }
        let runs = self.runs.values_mut().map(|run| &mut run.pieces);
        for list in runs.chain([&mut self.ready]) {
            self.pieces -= list.len();
            self.memory -= list.iter().map(Piece::pinned).sum::<u64>();
            detach(list);
            self.pieces += list.len();
            self.memory += list.iter().map(Piece::pinned).sum::<u64>();
        }
    }

    /// Drops all bytes held.
    pub(crate) fn clear(&mut self) {
        let (offset, end, read) = (self.offset, self.end, self.read);
        *self = Self {
            offset,
            end,
            read,
            ..Self::default()
        };
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

/// What adding bytes to a list added.
struct Added {
    pieces: usize,
    pinned: u64,
    /// Room for pieces.
    room: usize,
}

/// Adds bytes at the end of a list.
fn append(pieces: &mut VecDeque<Piece>, data: Bytes, source: Source) -> Added {
    if source.copies(&data)
        && let Some(Piece::Gathered(bytes, pinned)) = pieces.back_mut()
        && bytes.len() + data.len() <= GATHERED
    {
        bytes.extend_from_slice(&data);
        let capacity = u32::try_from(bytes.capacity()).unwrap_or(u32::MAX);
        let grown = capacity.saturating_sub(*pinned);
        *pinned += grown;
        return Added {
            pieces: 0,
            pinned: grown.into(),
            room: 0,
        };
    }
    let piece = if source.copies(&data) {
        Piece::gathered(BytesMut::from(&data[..]))
    } else {
        Piece::fresh(data, source)
    };
    let (pinned, room) = (piece.pinned(), pieces.capacity());
    pieces.push_back(piece);
    Added {
        pieces: 1,
        pinned,
        room: pieces.capacity() - room,
    }
}

/// Appends `second` to `first`, moving the shorter list; returns the emptied one.
fn join(first: &mut VecDeque<Piece>, mut second: VecDeque<Piece>) -> VecDeque<Piece> {
    if first.len() < second.len() {
        while let Some(piece) = first.pop_back() {
            second.push_front(piece);
        }
        std::mem::swap(first, &mut second);
    } else {
        first.append(&mut second);
    }
    second
}

/// Copies the slices of a list that were waiting already, and makes all others wait.
fn detach(pieces: &mut VecDeque<Piece>) {
    let mut left = pieces.len();
    while left > 0 {
        left -= 1;
        let first = match pieces.pop_front() {
            Some(Piece::Fresh(bytes, pinned)) => {
                pieces.push_back(Piece::Waiting(bytes, pinned));
                continue;
            }
            Some(Piece::Waiting(bytes, _)) => bytes,
            Some(gathered) => {
                pieces.push_back(gathered);
                continue;
            }
            None => break,
        };
        let (mut length, mut count) = (first.len(), 0);
        for piece in pieces.iter().take(left) {
            let is_waiting = matches!(piece, Piece::Waiting(..));
            if !is_waiting || length + piece.len() > GATHERED {
                break;
            }
            length += piece.len();
            count += 1;
        }
        // What stands behind the pieces that are left was looked at before.
        let is_first = pieces.len() == left;
        let mut copy = match pieces.pop_back() {
            Some(Piece::Gathered(last, _)) if !is_first && last.len() + length <= GATHERED => last,
            last => {
                pieces.extend(last);
                BytesMut::with_capacity(length)
            }
        };
        copy.extend_from_slice(&first);
        for piece in pieces.drain(..count) {
            copy.extend_from_slice(piece.bytes());
        }
        left -= count;
        pieces.push_back(Piece::gathered(copy));
    }
}
