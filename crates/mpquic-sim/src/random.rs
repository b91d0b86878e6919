//! [`SplitMix64`]: pseudo-random numbers from a seed.

/// Pseudo-random numbers that depend only on the seed: the same numbers on every machine and in
/// every version, as recorded worlds and resampled runs need.
///
/// ```
/// // The first number of the generator's reference implementation for the seed 0.
/// assert_eq!(mpquic_sim::SplitMix64::new(0).next(), 0xe220_a839_7b1d_cdaf);
/// ```
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    #[expect(
        clippy::should_implement_trait,
        reason = "there is always a next one: it needs no `Option`"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `count`. `count` must be above zero.
    pub fn below(&mut self, count: u64) -> u64 {
        self.next() % count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_reference() {
        // The first numbers of the reference implementation for the seed 1234567.
        let mut numbers = SplitMix64::new(1_234_567);
        let first = [(); 5].map(|()| numbers.next());
        assert_eq!(
            first,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821,
            ]
        );
        let mut numbers = SplitMix64::new(1_234_567);
        assert_eq!(numbers.below(1000), 317);
        assert!((0..100).all(|_| numbers.below(3) < 3));
    }
}
