//! Randomness from a seed, in little memory: the generators of `rand` keep hundreds of bytes, which
//! is much for an idle connection.

use std::convert::Infallible;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng, TryRng};

/// Unpredictable values from a seed, for connection IDs, challenges and the like. A value costs
/// about as much as sealing a small packet.
#[derive(Debug)]
pub(crate) struct SeededRandom {
    seed: [u8; 32],
    drawn: u64,
}

impl SeededRandom {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self { seed, drawn: 0 }
    }

    /// `N` bytes at the cost of one value. (`random` would draw each element of an array
    /// separately.)
    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill_bytes(&mut bytes);
        bytes
    }

    /// A generator that no other call gets.
    fn next(&mut self) -> StdRng {
        let mut seed = self.seed;
        for (byte, count) in seed.iter_mut().zip(self.drawn.to_le_bytes()) {
            *byte ^= count;
        }
        self.drawn += 1;
        StdRng::from_seed(seed)
    }
}

impl TryRng for SeededRandom {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.next().next_u32())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.next().next_u64())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.next().fill_bytes(bytes);
        Ok(())
    }
}

/// SplitMix64: evenly spread values in a few instructions. Anybody who sees a few values can
/// compute the others, so they serve only for choices that an attacker may predict: the random
/// number for schedulers, and the QUIC bit of packets (RFC 9287). Use [`SeededRandom`] for
/// everything else.
#[derive(Debug)]
pub(crate) struct QuickRandom(u64);

impl QuickRandom {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::RngExt;

    use super::*;

    #[test]
    fn a_seed_determines_all_values_and_none_repeats() {
        let draw = |seed| {
            let mut random = SeededRandom::new([seed; 32]);
            (0..1000).map(move |_| random.random::<u64>())
        };
        assert!(draw(1).eq(draw(1)));
        let all: BTreeSet<u64> = draw(1).chain(draw(2)).collect();
        assert_eq!(all.len(), 2000);
        let mut random = SeededRandom::new([1; 32]);
        assert_ne!(random.bytes::<8>(), random.bytes::<8>());
        let long = random.bytes::<100>();
        assert_eq!(long.iter().filter(|&&byte| byte == 0).count() / 10, 0);
    }

    #[test]
    fn quick_values_are_those_of_splitmix64() {
        // The first output for seed 0 in the generator's reference implementation.
        assert_eq!(QuickRandom::new(0).next(), 0xe220_a839_7b1d_cdaf);
    }
}
