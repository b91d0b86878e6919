//! The bytes that transfers carry: known for every stream and offset, so that any misplaced or
//! altered byte is noticed.

use std::sync::OnceLock;

use bytes::Bytes;
use mpquic_core::StreamId;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

/// A prime, so that shifts by powers of two and packet sizes are noticed.
const PERIOD: u64 = 65_537;
/// Most bytes one call gives.
const MAX_CHUNK: u64 = 65_536;

fn pattern() -> &'static Bytes {
    static PATTERN: OnceLock<Bytes> = OnceLock::new();
    PATTERN.get_or_init(|| {
        let mut period = vec![0; PERIOD as usize];
        Xoshiro256PlusPlus::seed_from_u64(0).fill_bytes(&mut period);
        // Long enough for a whole chunk from any position.
        period.extend_from_within(..MAX_CHUNK as usize);
        Bytes::from(period)
    })
}

fn position(stream: StreamId, offset: u64) -> usize {
    let stream = u64::from(stream) % PERIOD;
    ((stream * 7919 + offset) % PERIOD) as usize
}

/// The bytes of a stream from `offset` on, at most `length` and at most 64 KiB, without copying.
pub(crate) fn chunk(stream: StreamId, offset: u64, length: u64) -> Bytes {
    let start = position(stream, offset);
    let length = length.min(MAX_CHUNK) as usize;
    pattern().slice(start..start + length)
}

/// True if `data` is what the stream has at `offset`.
pub(crate) fn matches(stream: StreamId, offset: u64, data: &[u8]) -> bool {
    let mut offset = offset;
    data.chunks(MAX_CHUNK as usize).all(|part| {
        let expected = chunk(stream, offset, part.len() as u64);
        offset += part.len() as u64;
        expected == part
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpquic_core::{Dir, Side};

    #[test]
    fn a_shifted_or_foreign_byte_is_noticed() {
        let stream = StreamId::new(Side::Client, Dir::Uni, 0);
        let other = StreamId::new(Side::Client, Dir::Uni, 1);
        for offset in [0, 1, 65_530, 65_537, 1 << 20] {
            let data = chunk(stream, offset, 2000);
            assert!(matches(stream, offset, &data));
            assert!(!matches(stream, offset + 1, &data));
            assert!(!matches(stream, offset + 65_536, &data));
            assert!(!matches(other, offset, &data));
        }
        let long = [chunk(stream, 5, 65_536), chunk(stream, 65_541, 100)].concat();
        assert!(matches(stream, 5, &long));
    }
}
