//! Which of the newest packet numbers were received: a sliding bitmap that grows while numbers are
//! missing.

use smallvec::SmallVec;

/// The most words of the bitmap, a power of two.
const MAX_WORDS: usize = 128;

/// The most packet numbers in the bitmap. Older numbers count as received, so their packets are
/// dropped.
#[cfg(test)]
pub(super) const WINDOW: u64 = MAX_WORDS as u64 * 64;

#[derive(Debug)]
pub(super) struct Seen {
    /// A ring whose length is a power of two: the index of a number's word is taken modulo that
    /// length.
    words: SmallVec<[u64; 2]>,
    /// The lowest number in the window, a multiple of 64. All below count as received.
    base: u64,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            words: SmallVec::from_buf([0; 2]),
            base: 0,
        }
    }
}

impl Seen {
    /// Bytes of memory besides itself.
    pub(super) fn memory(&self) -> usize {
        if self.words.spilled() {
            self.words.capacity() * size_of::<u64>()
        } else {
            0
        }
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        match number.checked_sub(self.base) {
            None => true,
            Some(distance) => {
                distance < self.span() && self.words[self.index(number)] & bit(number) != 0
            }
        }
    }

    /// Adds a number; one below the window is in the set already.
    pub(super) fn insert(&mut self, number: u64) {
        let Some(distance) = number.checked_sub(self.base) else {
            return;
        };
        if distance >= self.span() {
            self.make_room(number);
        }
        let index = self.index(number);
        self.words[index] |= bit(number);
    }

    /// Moves or widens the window up to `number`, which lies above it.
    fn make_room(&mut self, number: u64) {
        // The base alone says the same as full words.
        while self.words[self.index(self.base)] == u64::MAX {
            self.slide(1);
        }
        while number - self.base >= self.span() && self.words.len() < MAX_WORDS {
            self.widen();
        }
        if let Some(beyond) = (number - self.base).checked_sub(self.span()) {
            self.slide(beyond / 64 + 1);
        }
    }

    fn span(&self) -> u64 {
        self.words.len() as u64 * 64
    }

    fn index(&self, number: u64) -> usize {
        (number / 64) as usize & (self.words.len() - 1)
    }

    fn widen(&mut self) {
        let length = self.words.len();
        let mut wider = SmallVec::from_elem(0, 2 * length);
        for word in 0..length as u64 {
            let number = self.base + word * 64;
            wider[(number / 64) as usize & (2 * length - 1)] = self.words[self.index(number)];
        }
        self.words = wider;
    }

    /// Moves the window up by this many words.
    fn slide(&mut self, words: u64) {
        if words >= self.words.len() as u64 {
            self.words.fill(0);
        } else {
            for word in 0..words {
                let index = self.index(self.base + word * 64);
                self.words[index] = 0;
            }
        }
        self.base += words * 64;
    }
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_in_order_take_two_words() {
        // Miri is some hundred times slower.
        let count = if cfg!(miri) { 20_000 } else { 1_000_000 };
        let mut seen = Seen::default();
        for number in 0..count {
            assert!(!seen.contains(number));
            seen.insert(number);
        }
        assert_eq!(seen.words.len(), 2);
        assert!(seen.contains(0) && seen.contains(count - 1) && !seen.contains(count));
    }

    #[test]
    fn a_missing_number_is_awaited_for_a_whole_window() {
        let mut seen = Seen::default();
        for number in 1..WINDOW {
            seen.insert(number);
            assert!(!seen.contains(0));
        }
        assert_eq!(seen.words.len(), MAX_WORDS);
        seen.insert(WINDOW);
        assert!(seen.contains(0), "too old to tell");
    }

    proptest! {
        /// RFC 9000 section 12.3: no number is taken twice, and no new number within the window is
        /// refused.
        #[test]
        fn like_a_set(steps in prop::collection::vec((0u64..200, any::<bool>()), 1..2000)) {
            let mut seen = Seen::default();
            let mut model = BTreeSet::new();
            let mut largest = 0;
            for (distance, ahead) in steps {
                let number = if ahead { largest + distance } else { largest.saturating_sub(distance * 7) };
                prop_assert_eq!(seen.contains(number), model.contains(&number));
                seen.insert(number);
                model.insert(number);
                largest = largest.max(number);
                prop_assert!(seen.contains(number));
            }
        }
    }
}
