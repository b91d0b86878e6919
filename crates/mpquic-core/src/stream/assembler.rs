//! [`Assembler`]: received bytes, put in order.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use bytes::{Buf, Bytes, BytesMut};
use quinn_proto::Chunk;

use crate::range_set::RangeSet;

/// When many slices are held, those shorter than this are copied, so that they do not keep the
/// datagrams they came in alive. In bytes.
pub(super) const SMALL_SLICE: usize = 600;

/// Slices are gathered into pieces of at most this many bytes, unless they are longer themselves.
const GATHERED: usize = 16 << 10;

/// How many empty lists are kept for reuse.
const SPARE_LISTS: usize = 32;

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

#[derive(Debug)]
enum Piece {
    /// A slice of a datagram.
    Fresh(Bytes),
    /// A slice that was there when [`Assembler::detach_waiting`] was last called.
    Waiting(Bytes),
    /// Slices, copied: they keep no datagram alive.
    Gathered(BytesMut),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Fresh(bytes) | Self::Waiting(bytes) => bytes,
            Self::Gathered(bytes) => bytes,
        }
    }

    fn len(&self) -> usize {
        self.bytes().len()
    }

    fn split_to(&mut self, length: usize) -> Bytes {
        match self {
            Self::Fresh(bytes) | Self::Waiting(bytes) => bytes.split_to(length),
            Self::Gathered(bytes) => bytes.split_to(length).freeze(),
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::Fresh(bytes) | Self::Waiting(bytes) => bytes,
            Self::Gathered(bytes) => bytes.freeze(),
        }
    }
}

impl Assembler {
    /// Frees memory that is kept for reuse.
    pub(crate) fn trim(&mut self) {
        self.ready.shrink_to_fit();
        self.spare = Vec::new();
    }

    /// Bytes held.
    pub(crate) fn unread(&self) -> u64 {
        self.unread
    }

    /// Bytes given to the reader.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read
    }

    /// Pieces held; each may keep a datagram alive.
    pub(crate) fn pieces(&self) -> usize {
        self.pieces
    }

    /// Runs held beyond gaps.
    pub(crate) fn runs(&self) -> usize {
        self.runs.len()
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

    /// Stores received bytes, except those received before. With `gather`, short slices are copied
    /// together.
    pub(crate) fn insert(&mut self, offset: u64, data: Bytes, gather: bool) {
        let end = offset + data.len() as u64;
        let in_order = offset == self.end
            && self.delivered.is_none()
            && self.next_run.is_none_or(|next| end <= next);
        if in_order && !data.is_empty() {
            self.extend_ready(data, gather);
        } else {
            self.insert_out_of_order(offset, data, gather);
        }
    }

    /// Appends bytes to the ready ones, up to the first run.
    fn extend_ready(&mut self, data: Bytes, gather: bool) {
        self.end += data.len() as u64;
        self.unread += data.len() as u64;
        self.pieces += usize::from(append(&mut self.ready, data, gather));
        while self.next_run == Some(self.end) {
            let Some((_, run)) = self.runs.pop_first() else {
                break;
            };
            self.end = run.end;
            let emptied = join(&mut self.ready, run.pieces);
            self.recycle(emptied);
            self.next_run = self.runs.first_key_value().map(|(&start, _)| start);
        }
    }

    fn insert_out_of_order(&mut self, mut offset: u64, mut data: Bytes, gather: bool) {
        if let Some(delivered) = self.delivered.take() {
            self.insert_unordered(&delivered, offset, data, gather);
            self.delivered = Some(delivered);
            return;
        }
        loop {
            skip_to(self.end, &mut offset, &mut data);
            if data.is_empty() {
                return;
            }
            if offset > self.end {
                return self.insert_runs(offset, data, gather);
            }
            let room = self.next_run.map_or(u64::MAX, |next| next - offset);
            let piece = split_up_to(&mut data, room);
            offset += piece.len() as u64;
            self.extend_ready(piece, gather);
        }
    }

    /// Stores the bytes that are not held and were not given to the reader.
    fn insert_unordered(
        &mut self,
        delivered: &RangeSet,
        mut offset: u64,
        mut data: Bytes,
        gather: bool,
    ) {
        let end = offset + data.len() as u64;
        for known in delivered.overlapping(offset..end) {
            let fresh = split_up_to(&mut data, known.start.saturating_sub(offset));
            let start = offset;
            offset += fresh.len() as u64;
            self.insert_runs(start, fresh, gather);
            skip_to(known.end, &mut offset, &mut data);
        }
        self.insert_runs(offset, data, gather);
    }

    /// Adds bytes to the runs, without those that are held already.
    fn insert_runs(&mut self, mut offset: u64, mut data: Bytes, gather: bool) {
        if data.is_empty() {
            return;
        }
        // New bytes mostly follow the last run, or start another one behind it.
        match self.runs.last_entry() {
            Some(mut last) if offset == last.get().end => {
                let run = last.get_mut();
                run.end += data.len() as u64;
                self.unread += data.len() as u64;
                self.pieces += usize::from(append(&mut run.pieces, data, gather));
                return;
            }
            Some(last) if offset > last.get().end => return self.start_run(offset, data, gather),
            None => return self.start_run(offset, data, gather),
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
                Some((key, end)) if end == start => self.extend_run(key, piece, gather),
                _ => self.start_run(start, piece, gather),
            }
            if next == Some(offset) {
                let key = before.map_or(start, |(key, end)| if end == start { key } else { start });
                self.join_runs(key, offset);
            }
        }
    }

    fn start_run(&mut self, offset: u64, data: Bytes, gather: bool) {
        let end = offset + data.len() as u64;
        let mut pieces = self.spare.pop().unwrap_or_default();
        self.unread += data.len() as u64;
        self.pieces += usize::from(append(&mut pieces, data, gather));
        self.runs.insert(offset, Run { end, pieces });
        if self.next_run.is_none_or(|next| offset < next) {
            self.next_run = Some(offset);
        }
    }

    fn extend_run(&mut self, key: u64, data: Bytes, gather: bool) {
        if let Some(run) = self.runs.get_mut(&key) {
            run.end += data.len() as u64;
            self.unread += data.len() as u64;
            self.pieces += usize::from(append(&mut run.pieces, data, gather));
        }
    }

    /// Makes one run of two that touch.
    fn join_runs(&mut self, first: u64, second: u64) {
        if let Some(second) = self.runs.remove(&second)
            && let Some(first) = self.runs.get_mut(&first)
        {
            first.end = second.end;
            let emptied = join(&mut first.pieces, second.pieces);
            self.recycle(emptied);
        }
    }

    fn recycle(&mut self, list: VecDeque<Piece>) {
        if list.capacity() > 0 && self.spare.len() < SPARE_LISTS {
            self.spare.push(list);
        }
    }

    /// The next bytes in order, at most `max_length`.
    pub(crate) fn read(&mut self, max_length: usize) -> Option<Chunk> {
        let piece = self.ready.front_mut()?;
        let bytes = if piece.len() > max_length {
            piece.split_to(max_length)
        } else {
            self.pieces -= 1;
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
            self.pieces -= detach(list);
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

/// Adds bytes at the end of a list; true if that made a new piece.
fn append(pieces: &mut VecDeque<Piece>, data: Bytes, gather: bool) -> bool {
    if !gather || data.len() >= SMALL_SLICE {
        pieces.push_back(Piece::Fresh(data));
        return true;
    }
    match pieces.back_mut() {
        Some(Piece::Gathered(bytes)) if bytes.len() + data.len() <= GATHERED => {
            bytes.extend_from_slice(&data);
            false
        }
        _ => {
            pieces.push_back(Piece::Gathered(BytesMut::from(&data[..])));
            true
        }
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

/// Copies the slices of a list that were waiting already, and makes all others wait. Returns by how
/// many pieces the list is shorter.
fn detach(pieces: &mut VecDeque<Piece>) -> usize {
    let before = pieces.len();
    let mut left = before;
    while left > 0 {
        left -= 1;
        let first = match pieces.pop_front() {
            Some(Piece::Fresh(bytes)) => {
                pieces.push_back(Piece::Waiting(bytes));
                continue;
            }
            Some(Piece::Waiting(bytes)) => bytes,
            Some(gathered) => {
                pieces.push_back(gathered);
                continue;
            }
            None => break,
        };
        let (mut length, mut count) = (first.len(), 0);
        for piece in pieces.iter().take(left) {
            let is_waiting = matches!(piece, Piece::Waiting(_));
            if !is_waiting || length + piece.len() > GATHERED {
                break;
            }
            length += piece.len();
            count += 1;
        }
        // What stands behind the pieces that are left was looked at before.
        let is_first = pieces.len() == left;
        let mut copy = match pieces.pop_back() {
            Some(Piece::Gathered(last)) if !is_first && last.len() + length <= GATHERED => last,
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
        pieces.push_back(Piece::Gathered(copy));
    }
    before - pieces.len()
}
