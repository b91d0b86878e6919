//! Which of the newest packet numbers were received: a bitmap that slides.

const WORDS: usize = 128;

/// How many numbers the bitmap spans. Older ones count as received, so a packet that arrives this
/// many numbers late is dropped.
pub(super) const WINDOW: u64 = WORDS as u64 * 64;

#[derive(Debug)]
pub(super) struct Seen {
    words: Box<[u64; WORDS]>,
    /// The lowest number in the window, a multiple of 64.
    base: u64,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            words: Box::new([0; WORDS]),
            base: 0,
        }
    }
}

impl Seen {
    pub(super) fn contains(&self, number: u64) -> bool {
        match number.checked_sub(self.base) {
            None => true,
            Some(distance) => distance < WINDOW && self.words[index(number)] & bit(number) != 0,
        }
    }

    /// Adds a number; one below the window is in the set already.
    pub(super) fn insert(&mut self, number: u64) {
        let Some(distance) = number.checked_sub(self.base) else {
            return;
        };
        if distance >= WINDOW {
            self.slide(distance / 64 + 1 - WORDS as u64);
        }
        self.words[index(number)] |= bit(number);
    }

    /// Moves the window up by this many words.
    fn slide(&mut self, words: u64) {
        if words >= WORDS as u64 {
            self.words.fill(0);
        } else {
            for word in 0..words {
                self.words[index(self.base + word * 64)] = 0;
            }
        }
        self.base += words * 64;
    }
}

fn index(number: u64) -> usize {
    (number / 64) as usize % WORDS
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}
