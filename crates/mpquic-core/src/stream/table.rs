//! [`StreamTable`]: from a stream's index to its two halves, for one initiator and direction.

use std::collections::VecDeque;

/// Streams on one page.
const PAGE: u64 = 128;

/// The keys of a stream's halves; `None` for a half that is closed or never existed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Halves {
    /// Key of the sending half.
    pub(crate) send: Option<u32>,
    /// Key of the receiving half.
    pub(crate) recv: Option<u32>,
}

impl Halves {
    fn is_closed(self) -> bool {
        self.send.is_none() && self.recv.is_none()
    }
}

/// Finds the halves of a stream. Streams are opened in order, so a lookup needs only two indices,
/// and no hash that a peer could attack. A page is freed when all its streams are closed; a stream
/// that stays open for long costs its page, and a pointer for each later page.
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
            halves: [Halves::default(); PAGE as usize],
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
        // All other pages are freed when their last stream closes.
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

    /// The halves of a stream; `None` if it is not open yet, or both are closed.
    pub(crate) fn halves(&self, index: u64) -> Option<Halves> {
        let page = (index / PAGE).checked_sub(self.first_page)?;
        let page = self.pages.get(page as usize)?.as_ref()?;
        Some(page.halves[(index % PAGE) as usize]).filter(|halves| !halves.is_closed())
    }

    /// Closes the sending half; true if that closed the stream.
    pub(crate) fn close_send(&mut self, index: u64) -> bool {
        self.close(index, |halves| halves.send = None)
    }

    /// Closes the receiving half; true if that closed the stream.
    pub(crate) fn close_recv(&mut self, index: u64) -> bool {
        self.close(index, |halves| halves.recv = None)
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
            while let Some(None) = self.pages.front() {
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

    fn both(key: u32) -> Halves {
        Halves {
            send: Some(key),
            recv: Some(key + 1),
        }
    }

    #[test]
    fn a_stream_closes_with_its_second_half() {
        let mut table = StreamTable::default();
        assert_eq!(table.halves(0), None);
        table.push(both(7));
        assert_eq!(table.halves(0), Some(both(7)));
        assert!(!table.close_send(0));
        assert_eq!(
            table.halves(0),
            Some(Halves {
                send: None,
                recv: Some(8)
            })
        );
        assert!(table.close_recv(0));
        assert!(!table.close_recv(0));
        assert_eq!(table.halves(0), None);
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
            assert_eq!(table.halves(index), None);
        }
        assert_eq!(table.pages.iter().flatten().count(), 2);
        assert_eq!(table.halves(0), Some(both(0)));
        table.close_recv(0);
        assert!(table.close_send(0));
        assert_eq!(table.pages.len(), 1);
        assert_eq!(table.halves(0), None);
        assert_eq!(table.halves(9 * PAGE), Some(both(9 * PAGE as u32)));
        assert_eq!(table.halves(10 * PAGE), None);
        assert!(!table.close_send(u64::MAX / 4));
    }

    #[test]
    fn streams_closed_one_by_one_keep_one_page() {
        let mut table = StreamTable::default();
        for index in 0..5 * PAGE {
            table.push(Halves {
                send: None,
                recv: Some(1),
            });
            assert!(table.close_recv(index));
            assert!(table.pages.len() <= 1);
        }
    }
}
