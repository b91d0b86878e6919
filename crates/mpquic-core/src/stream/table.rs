//! [`StreamTable`]: from a stream's index to its two halves, for one initiator and direction.

use std::collections::VecDeque;

/// Streams on one page.
const PAGE: u64 = 128;

/// Where a half of a stream is. Few bytes, because a peer opens many streams with one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Half(u32);

impl Half {
    /// The stream's half is closed, or never existed.
    pub(crate) const CLOSED: Self = Self(u32::MAX);
    /// Open, but not used by either side, and without any state to keep.
    pub(crate) const UNUSED: Self = Self(u32::MAX - 1);

    /// A half with this key.
    pub(crate) fn at(key: u32) -> Self {
        debug_assert!(key < Self::UNUSED.0);
        Self(key)
    }

    /// The key of an open and used half.
    pub(crate) fn key(self) -> Option<u32> {
        (self.0 < Self::UNUSED.0).then_some(self.0)
    }
}

/// The halves of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Halves {
    pub(crate) send: Half,
    pub(crate) recv: Half,
}

impl Halves {
    /// Both are closed.
    pub(crate) const CLOSED: Self = Self {
        send: Half::CLOSED,
        recv: Half::CLOSED,
    };

    fn is_closed(self) -> bool {
        self == Self::CLOSED
    }
}

/// Finds the halves of a stream. Streams are opened in order, so a lookup takes two indices, and
/// needs no hash (which a peer could attack). A page is freed when all its streams are closed: a
/// long-lived stream keeps its page, and one pointer for each later page.
#[derive(Debug, Default)]
pub(crate) struct StreamTable {
    pages: VecDeque<Option<Box<Page>>>,
    /// Number of the first page held.
    first_page: u64,
    /// Streams opened so far.
    opened: u64,
    /// Pages that exist.
    held: usize,
}

#[derive(Debug)]
struct Page {
    halves: [Halves; PAGE as usize],
    live: u32,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            halves: [Halves::CLOSED; PAGE as usize],
            live: 0,
        }
    }
}

impl StreamTable {
    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        self.held * size_of::<Page>() + self.pages.capacity() * size_of::<Option<Box<Page>>>()
    }

    /// Frees memory that is kept for reuse.
    pub(crate) fn trim(&mut self) {
        // Other pages are freed with their last stream.
        if let Some(page) = self.pages.back_mut()
            && page.as_ref().is_some_and(|page| page.live == 0)
        {
            *page = None;
            self.held -= 1;
        }
        self.pages.shrink_to_fit();
    }

    /// Streams opened so far: the index of the next one.
    pub(crate) fn opened(&self) -> u64 {
        self.opened
    }

    /// Opens the next stream.
    pub(crate) fn push(&mut self, halves: Halves) {
        let (page, slot) = (self.opened / PAGE, (self.opened % PAGE) as usize);
        if page == self.first_page + self.pages.len() as u64 {
            self.pages.push_back(None);
        }
        if let Some(page) = self.pages.back_mut() {
            self.held += usize::from(page.is_none());
            let page = page.get_or_insert_default();
            page.halves[slot] = halves;
            page.live += 1;
        }
        self.opened += 1;
    }

    /// The halves of a stream, closed if it is not open yet.
    pub(crate) fn halves(&self, index: u64) -> Halves {
        let page = (index / PAGE).checked_sub(self.first_page);
        let page = page.and_then(|page| self.pages.get(page as usize)?.as_ref());
        page.map_or(Halves::CLOSED, |page| page.halves[(index % PAGE) as usize])
    }

    /// The halves of a stream that is open, to be changed but not closed.
    pub(crate) fn halves_mut(&mut self, index: u64) -> Option<&mut Halves> {
        let page = (index / PAGE).checked_sub(self.first_page)?;
        let page = self.pages.get_mut(page as usize)?.as_mut()?;
        Some(&mut page.halves[(index % PAGE) as usize])
    }

    /// Closes the sending half; true if that closed the stream.
    pub(crate) fn close_send(&mut self, index: u64) -> bool {
        self.close(index, |halves| halves.send = Half::CLOSED)
    }

    /// Closes the receiving half; true if that closed the stream.
    pub(crate) fn close_recv(&mut self, index: u64) -> bool {
        self.close(index, |halves| halves.recv = Half::CLOSED)
    }

    fn close(&mut self, index: u64, change: impl FnOnce(&mut Halves)) -> bool {
        let number = index / PAGE;
        let Some(entry) = (number.checked_sub(self.first_page))
            .and_then(|number| self.pages.get_mut(number as usize))
        else {
            return false;
        };
        let Some(page) = entry else { return false };
        let halves = &mut page.halves[(index % PAGE) as usize];
        if halves.is_closed() {
            return false;
        }
        change(halves);
        if !halves.is_closed() {
            return false;
        }
        page.live -= 1;
        if page.live == 0 && self.opened >= (number + 1) * PAGE {
            *entry = None;
            self.held -= 1;
            // A page that was trimmed may take later streams.
            while self.first_page < self.opened / PAGE && matches!(self.pages.front(), Some(None)) {
                self.pages.pop_front();
                self.first_page += 1;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::QuickRandom;

    fn both(key: u32) -> Halves {
        Halves {
            send: Half::at(key),
            recv: Half::at(key + 1),
        }
    }

    #[test]
    fn a_stream_closes_with_its_second_half() {
        let mut table = StreamTable::default();
        assert_eq!(table.halves(0), Halves::CLOSED);
        table.push(both(7));
        assert_eq!(table.halves(0), both(7));
        assert!(!table.close_send(0));
        assert_eq!(
            table.halves(0),
            Halves {
                send: Half::CLOSED,
                recv: Half::at(8)
            }
        );
        assert!(table.close_recv(0));
        assert!(!table.close_recv(0));
        assert_eq!(table.halves(0), Halves::CLOSED);
        assert_eq!(table.opened(), 1);
    }

    #[test]
    fn pages_go_with_their_streams() {
        let mut table = StreamTable::default();
        for index in 0..10 * PAGE {
            table.push(both(index as u32));
        }
        for index in 1..9 * PAGE {
            table.close_send(index);
            assert!(table.close_recv(index));
            assert_eq!(table.halves(index), Halves::CLOSED);
        }
        assert_eq!(table.pages.iter().flatten().count(), 2);
        assert_eq!(table.halves(0), both(0));
        table.close_recv(0);
        assert!(table.close_send(0));
        assert_eq!(table.pages.len(), 1);
        assert_eq!(table.halves(0), Halves::CLOSED);
        assert_eq!(table.halves(9 * PAGE), both(9 * PAGE as u32));
        assert_eq!(table.halves(10 * PAGE), Halves::CLOSED);
        assert!(!table.close_send(u64::MAX / 4));
    }

    /// An idle connection trims its tables while an old stream is open, and that stream closes
    /// before the next one opens.
    #[test]
    fn a_page_that_was_trimmed_takes_later_streams() {
        let mut table = StreamTable::default();
        for index in 0..PAGE + 5 {
            table.push(both(index as u32));
        }
        for index in (1..PAGE + 5).chain([0]) {
            if index == 0 {
                table.trim();
            }
            table.close_send(index);
            assert!(table.close_recv(index));
        }
        table.push(both(7));
        assert_eq!(table.halves(PAGE + 5), both(7));
    }

    #[test]
    fn a_map_agrees_whatever_is_opened_closed_and_trimmed() {
        let mut random = QuickRandom::new(7);
        for _ in 0..100 {
            let (mut table, mut model) =
                (StreamTable::default(), std::collections::BTreeMap::new());
            for _ in 0..2000 {
                // Few streams are open at a time, so pages become empty in any order.
                match random.next() % 20 {
                    0..9 => {
                        let index = table.opened();
                        table.push(both(index as u32));
                        model.insert(index, both(index as u32));
                    }
                    9..19 => {
                        let place = random.next() as usize % model.len().max(1);
                        if let Some(index) = model.keys().nth(place).copied() {
                            model.remove(&index);
                            table.close_send(index);
                            assert!(table.close_recv(index), "{index}");
                        }
                    }
                    _ => table.trim(),
                }
            }
            for index in 0..table.opened() {
                let expected = model.get(&index).copied().unwrap_or(Halves::CLOSED);
                assert_eq!(table.halves(index), expected, "{index}");
            }
        }
    }

    #[test]
    fn streams_closed_one_by_one_keep_one_page() {
        let mut table = StreamTable::default();
        for index in 0..5 * PAGE {
            table.push(Halves {
                send: Half::CLOSED,
                recv: Half::at(1),
            });
            assert!(table.close_recv(index));
            assert!(table.pages.len() <= 1);
        }
    }
}
