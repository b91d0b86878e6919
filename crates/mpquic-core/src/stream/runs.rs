//! [`Run`]: received bytes without a gap; [`Runs`]: those of one stream, by offset.

use std::collections::VecDeque;

use bytes::Bytes;

use super::piece::{self, Piece, Source};

/// Longest run, in bytes, stored in the place of its list: a peer with a few bytes behind each gap
/// costs little more memory than these bytes.
const SHORT: usize = 14;

/// How many empty lists are kept for reuse.
const SPARE_LISTS: usize = 32;

/// The most runs on one page.
const PAGE: usize = 64;

/// Bytes in order, from an offset on.
#[derive(Debug)]
pub(super) struct Run {
    start: u64,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Short { length: u8, bytes: [u8; SHORT] },
    Long(Box<Long>),
}

#[derive(Debug, Default)]
struct Long {
    end: u64,
    pieces: VecDeque<Piece>,
}

/// Totals of all lists of long runs, emptied ones included: their number and their memory.
#[derive(Debug, Default)]
pub(super) struct Lists {
    #[expect(clippy::vec_box, reason = "moved to a run and back as it is")]
    spare: Vec<Box<Long>>,
    count: usize,
    /// Room for pieces in all lists.
    room: usize,
}

impl Lists {
    /// Bytes of memory, but for what pieces keep.
    pub(super) fn memory(&self) -> usize {
        self.count * size_of::<Long>()
            + self.room * size_of::<Piece>()
            + self.spare.capacity() * size_of::<Box<Long>>()
    }

    /// Frees memory that is kept for reuse.
    pub(super) fn trim(&mut self) {
        for spare in std::mem::take(&mut self.spare) {
            self.free(&spare);
        }
    }

    fn take(&mut self) -> Box<Long> {
        self.spare.pop().unwrap_or_else(|| {
            self.count += 1;
            Box::default()
        })
    }

    fn recycle(&mut self, long: Box<Long>) {
        if self.spare.len() < SPARE_LISTS {
            self.spare.push(long)
        } else {
            self.free(&long)
        }
    }

    fn free(&mut self, long: &Long) {
        self.count -= 1;
        self.room -= long.pieces.capacity();
    }

    /// Changes a list, and counts its capacity again.
    fn change<T>(&mut self, long: &mut Long, change: impl FnOnce(&mut Long) -> T) -> T {
        self.room -= long.pieces.capacity();
        let result = change(long);
        self.room += long.pieces.capacity();
        result
    }
}

/// The following methods return the growth of the pieces' memory in bytes.
impl Run {
    /// Bytes from this offset on.
    pub(super) fn new(start: u64, data: Bytes, source: Source, lists: &mut Lists) -> (Self, u64) {
        let (length, bytes) = (0, [0; SHORT]);
        let body = Body::Short { length, bytes };
        let mut run = Self { start, body };
        let pinned = run.extend(data, source, lists);
        (run, pinned)
    }

    /// Pieces from this offset on.
    pub(super) fn of_pieces(
        start: u64,
        end: u64,
        pieces: VecDeque<Piece>,
        lists: &mut Lists,
    ) -> Self {
        let mut long = lists.take();
        lists.change(&mut long, |long| *long = Long { end, pieces });
        let body = Body::Long(long);
        Self { start, body }
    }

    /// The offset of its first byte.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// The offset behind its last byte.
    pub(super) fn end(&self) -> u64 {
        match &self.body {
            Body::Short { length, .. } => self.start + u64::from(*length),
            Body::Long(long) => long.end,
        }
    }

    #[cfg(test)]
    pub(super) fn pieces(&self) -> usize {
        match &self.body {
            Body::Short { .. } => 1,
            Body::Long(long) => long.pieces.len(),
        }
    }

    /// The list of a long run.
    pub(super) fn list_mut(&mut self) -> Option<&mut VecDeque<Piece>> {
        match &mut self.body {
            Body::Short { .. } => None,
            Body::Long(long) => Some(&mut long.pieces),
        }
    }

    /// Adds bytes at the end.
    pub(super) fn extend(&mut self, data: Bytes, source: Source, lists: &mut Lists) -> u64 {
        if self.extend_short(&data) {
            return 0;
        }
        let (long, pinned) = self.make_long(lists);
        long.end += data.len() as u64;
        let append = |long: &mut Long| piece::append(&mut long.pieces, data, source);
        pinned + lists.change(long, append)
    }

    /// Adds bytes to a short run that stays short.
    fn extend_short(&mut self, data: &[u8]) -> bool {
        let Body::Short { length, bytes } = &mut self.body else {
            return false;
        };
        let start = usize::from(*length);
        let Some(room) = bytes.get_mut(start..start + data.len()) else {
            return false;
        };
        room.copy_from_slice(data);
        *length += data.len() as u8;
        true
    }

    fn make_long(&mut self, lists: &mut Lists) -> (&mut Long, u64) {
        let mut pinned = 0;
        if let Body::Short { length, bytes } = &self.body {
            let mut long = lists.take();
            long.end = self.start + u64::from(*length);
            let bytes = bytes.get(..usize::from(*length)).unwrap_or_default();
            if !bytes.is_empty() {
                let append = |long: &mut Long| piece::append_copy(&mut long.pieces, bytes);
                pinned = lists.change(&mut long, append);
            }
            self.body = Body::Long(long);
        }
        match &mut self.body {
            Body::Long(long) => (long, pinned),
            Body::Short { .. } => unreachable!("it was made long"),
        }
    }

    /// Appends a run that follows without a gap.
    pub(super) fn absorb(&mut self, second: Self, lists: &mut Lists) -> u64 {
        let mut second = match second.body {
            Body::Short { length, bytes } => {
                let bytes = bytes.get(..usize::from(length)).unwrap_or_default();
                if self.extend_short(bytes) {
                    return 0;
                }
                let (long, pinned) = self.make_long(lists);
                long.end += bytes.len() as u64;
                let append = |long: &mut Long| piece::append_copy(&mut long.pieces, bytes);
                return pinned + lists.change(long, append);
            }
            Body::Long(second) => second,
        };
        let (long, pinned) = self.make_long(lists);
        long.end = second.end;
        lists.room -= second.pieces.capacity();
        let pieces = std::mem::take(&mut second.pieces);
        let join = |long: &mut Long| piece::join(&mut long.pieces, pieces);
        second.pieces = lists.change(long, join);
        lists.room += second.pieces.capacity();
        lists.recycle(second);
        pinned
    }

    /// Appends the run to `ready`, a list outside of `lists`.
    pub(super) fn move_to(self, ready: &mut VecDeque<Piece>, lists: &mut Lists) -> u64 {
        match self.body {
            Body::Short { length, bytes } => {
                let bytes = bytes.get(..usize::from(length)).unwrap_or_default();
                piece::append_copy(ready, bytes)
            }
            Body::Long(mut long) => {
                let join = |long: &mut Long| {
                    let pieces = std::mem::take(&mut long.pieces);
                    long.pieces = piece::join(ready, pieces);
                };
                lists.change(&mut long, join);
                lists.recycle(long);
                0
            }
        }
    }

    /// Takes at most `max_length` bytes off the front, and tells how many bytes of memory its
    /// pieces keep less.
    fn take_front(&mut self, max_length: usize) -> Option<(Bytes, u64)> {
        let taken = match &mut self.body {
            Body::Short { length, bytes } => {
                let count = usize::from(*length).min(max_length);
                let taken = Bytes::copy_from_slice(bytes.get(..count)?);
                bytes.copy_within(count.., 0);
                *length -= count as u8;
                (taken, 0)
            }
            Body::Long(long) => piece::take_front(&mut long.pieces, max_length)?,
        };
        self.start += taken.0.len() as u64;
        Some(taken)
    }
}

/// Runs that neither overlap nor touch, by offset. On pages, a run is found, added and removed at
/// little cost anywhere, with little memory besides its own.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// None is empty.
    pages: VecDeque<Vec<Run>>,
    len: usize,
    /// Room for runs on all pages.
    room: usize,
}

/// Where a run stands, or would.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    page: usize,
    slot: usize,
}

impl Runs {
    /// Bytes of memory, but for lists.
    pub(super) fn memory(&self) -> usize {
        self.room * size_of::<Run>() + self.pages.capacity() * size_of::<Vec<Run>>()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the first run begins.
    pub(super) fn first_start(&self) -> Option<u64> {
        Some(self.pages.front()?.first()?.start)
    }

    pub(super) fn last_mut(&mut self) -> Option<&mut Run> {
        self.pages.back_mut()?.last_mut()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Run> {
        self.pages.iter_mut().flatten()
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Run> {
        self.pages.iter().flatten()
    }

    /// The place of the first run that begins beyond `offset`, or behind all.
    pub(super) fn beyond(&self, offset: u64) -> Place {
        let begins_before = |page: &Vec<Run>| page.first().is_some_and(|run| run.start <= offset);
        let page = self.pages.partition_point(begins_before);
        let Some(before) = page.checked_sub(1).and_then(|page| self.pages.get(page)) else {
            return Place { page: 0, slot: 0 };
        };
        let slot = before.partition_point(|run| run.start <= offset);
        if slot < before.len() {
            Place {
                page: page - 1,
                slot,
            }
        } else {
            Place { page, slot: 0 }
        }
    }

    /// The place before another one.
    pub(super) fn before(&self, place: Place) -> Option<Place> {
        if let Some(slot) = place.slot.checked_sub(1) {
            return Some(Place { slot, ..place });
        }
        let page = place.page.checked_sub(1)?;
        let slot = self.pages.get(page)?.len() - 1;
        Some(Place { page, slot })
    }

    pub(super) fn get(&self, place: Place) -> Option<&Run> {
        self.pages.get(place.page)?.get(place.slot)
    }

    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut Run> {
        self.pages.get_mut(place.page)?.get_mut(place.slot)
    }

    /// Adds a run behind all others.
    pub(super) fn push(&mut self, run: Run) {
        let page = self.pages.len();
        self.insert(Place { page, slot: 0 }, run);
    }

    /// Adds a run before that at `place`.
    pub(super) fn insert(&mut self, place: Place, run: Run) {
        let Place { mut page, mut slot } = place;
        if slot == 0 && page > 0 {
            // Rather at the end of one page than at the beginning of the next.
            page -= 1;
            slot = self.pages[page].len();
        }
        self.len += 1;
        match self.pages.get_mut(page) {
            Some(runs) if runs.len() < PAGE => {
                self.room -= runs.capacity();
                runs.insert(slot, run);
                self.room += runs.capacity();
            }
            Some(runs) if (1..PAGE).contains(&slot) => {
                self.room -= runs.capacity();
                let mut second = runs.split_off(PAGE / 2);
                match slot.checked_sub(PAGE / 2) {
                    Some(slot) => second.insert(slot, run),
                    None => runs.insert(slot, run),
                }
                runs.shrink_to_fit();
                self.room += runs.capacity() + second.capacity();
                self.pages.insert(page + 1, second);
            }
            _ => {
                let runs = vec![run];
                self.room += runs.capacity();
                let behind = usize::from(slot > 0);
                self.pages.insert(page + behind, runs);
            }
        }
    }

    /// Removes a run.
    pub(super) fn remove(&mut self, place: Place) -> Option<Run> {
        let page = self.pages.get_mut(place.page)?;
        if place.slot >= page.len() {
            return None;
        }
        let run = page.remove(place.slot);
        self.len -= 1;
        self.room -= page.capacity();
        if page.is_empty() {
            self.pages.remove(place.page);
            return Some(run);
        }
        if page.capacity() > 8 && page.len() <= page.capacity() / 4 {
            page.shrink_to(page.capacity() / 2);
        }
        self.room += page.capacity();
        Some(run)
    }

    /// Removes the first run.
    pub(super) fn pop_first(&mut self) -> Option<Run> {
        self.remove(Place { page: 0, slot: 0 })
    }

    /// Takes at most `max_length` bytes off the first run, with their offset, and tells how many
    /// bytes of memory pieces keep less.
    pub(super) fn take_front(
        &mut self,
        max_length: usize,
        lists: &mut Lists,
    ) -> Option<(u64, Bytes, u64)> {
        let first = self.pages.front_mut()?.first_mut()?;
        let offset = first.start;
        let (bytes, pinned) = first.take_front(max_length)?;
        if first.start == first.end()
            && let Some(Run {
                body: Body::Long(long),
                ..
            }) = self.pop_first()
        {
            lists.recycle(long);
        }
        Some((offset, bytes, pinned))
    }
}
