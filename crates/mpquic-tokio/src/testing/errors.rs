//! [`Errors`]: random errors for the calls of a socket, drawn from a seed.

use std::io;

/// Numbers from a seed (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which must be above zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// A share of the calls fails, each with one of some error numbers of Linux.
#[derive(Debug, Clone)]
pub(crate) struct Errors {
    random: Random,
    percent: u64,
    numbers: &'static [i32],
}

impl Errors {
    pub(crate) fn new(seed: u64, percent: u64, numbers: &'static [i32]) -> Self {
        Self {
            random: Random(seed),
            percent,
            numbers,
        }
    }

    /// The error of the next call, if the call fails.
    pub(super) fn draw(&mut self) -> Option<io::Error> {
        let fails = self.random.below(100) < self.percent;
        fails.then(|| io::Error::from_raw_os_error(self.random.one_of(self.numbers)))
    }
}
