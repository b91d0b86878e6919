//! The bytes of transfers. Stream, direction and offset determine every byte, so that a check
//! notices any misplaced or altered byte.

use std::sync::OnceLock;

use bytes::Bytes;
use mpquic_core::{Side, StreamId};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};

/// Length of the pattern, bytes: a prime, so that a check notices shifts by powers of two and by
/// packet sizes.
const PERIOD: u64 = 65_537;
/// Most bytes per call of [`chunk`].
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

/// The source of bytes: a direction of a stream, or a DATAGRAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Bytes from the side that opened the stream.
    Opener(StreamId),
    /// Bytes from the other side.
    Answer(StreamId),
    /// The DATAGRAM with this number.
    Datagram(u64),
}

impl Origin {
    /// The bytes that a side sends on a stream.
    pub(crate) fn of(stream: StreamId, sender: Side) -> Self {
        if stream.initiator() == sender {
            Self::Opener(stream)
        } else {
            Self::Answer(stream)
        }
    }

    fn start(self) -> u64 {
        let (number, start) = match self {
            Self::Opener(stream) => (u64::from(stream), 0),
            Self::Answer(stream) => (u64::from(stream), 31_337),
            Self::Datagram(number) => (number, 12_345),
        };
        number % PERIOD * 7919 + start
    }
}

/// The bytes of an origin from `offset` on, at most `length` and at most 64 KiB, without copying.
pub(crate) fn chunk(origin: Origin, offset: u64, length: u64) -> Bytes {
    let start = ((origin.start() + offset) % PERIOD) as usize;
    let length = length.min(MAX_CHUNK) as usize;
    pattern().slice(start..start + length)
}

/// True if `data` equals the bytes of the origin at `offset`.
pub(crate) fn matches(origin: Origin, offset: u64, data: &[u8]) -> bool {
    let mut offset = offset;
    data.chunks(MAX_CHUNK as usize).all(|part| {
        let expected = chunk(origin, offset, part.len() as u64);
        offset += part.len() as u64;
        expected == part
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpquic_core::Dir;

    #[test]
    fn shifted_or_foreign_byte_is_noticed() {
        let id = StreamId::new(Side::Client, Dir::Bi, 0);
        let stream = Origin::of(id, Side::Client);
        let answer = Origin::of(id, Side::Server);
        let other = Origin::Opener(StreamId::new(Side::Client, Dir::Bi, 1));
        for offset in [0, 1, 65_530, 65_537, 1 << 20] {
            let data = chunk(stream, offset, 2000);
            assert!(matches(stream, offset, &data));
            assert!(!matches(stream, offset + 1, &data));
            assert!(!matches(stream, offset + 65_536, &data));
            assert!(!matches(other, offset, &data));
            assert!(!matches(answer, offset, &data));
            assert!(!matches(Origin::Datagram(0), offset, &data));
        }
        let long = [chunk(stream, 5, 65_536), chunk(stream, 65_541, 100)].concat();
        assert!(matches(stream, 5, &long));
    }

    #[test]
    fn each_origin_starts_at_another_offset_of_the_pattern() {
        let id = |index| StreamId::new(Side::Client, Dir::Bi, index);
        // The client's bidirectional streams have the numbers 0, 4, 8 and so on.
        assert_eq!(Origin::Opener(id(0)).start(), 0);
        assert_eq!(Origin::Opener(id(2)).start(), 8 * 7919);
        assert_eq!(Origin::Answer(id(2)).start(), 8 * 7919 + 31_337);
        assert_eq!(Origin::Datagram(3).start(), 3 * 7919 + 12_345);
        assert_eq!(Origin::Datagram(65_537).start(), 12_345);
        assert_eq!(Origin::of(id(1), Side::Client), Origin::Opener(id(1)));
        assert_eq!(Origin::of(id(1), Side::Server), Origin::Answer(id(1)));
        // The pattern repeats after a prime number of bytes, and a call returns at most 64 KiB.
        let stream = Origin::Opener(id(0));
        let bytes = |offset, length| chunk(stream, offset, length);
        assert_eq!(bytes(0, 99), bytes(65_537, 99));
        assert_ne!(bytes(0, 99), bytes(65_536, 99));
        assert_eq!(bytes(65_530, 65_536).len(), 65_536);
        assert_eq!(bytes(65_536, 100_000).len(), 65_536);
        assert_eq!(bytes(65_536, 100)[1..], bytes(0, 99)[..]);
        assert_eq!(bytes(0, 0).len(), 0);
    }
}
