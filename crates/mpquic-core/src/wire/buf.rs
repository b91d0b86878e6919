//! Variable-length integers and other small elements of all formats.

use bytes::{Buf, Bytes};
use quinn_proto::ConnectionId;

/// Largest value a variable-length integer can hold: 2^62 - 1 (RFC 9000 section 16).
pub(crate) const VARINT_MAX: u64 = (1 << 62) - 1;

/// Longest connection ID of QUIC version 1, bytes (RFC 9000 section 17.2).
pub(crate) const MAX_CID_LENGTH: usize = 20;

/// The smallest datagram that every path must carry, bytes of UDP payload (RFC 9000 section 14).
pub(crate) const MIN_DATAGRAM: usize = 1200;

/// The largest UDP payload that IP carries (RFC 9000 section 18.2).
pub(crate) const MAX_UDP_PAYLOAD: u16 = 65527;

/// Shortest destination connection ID of a client's first Initial, bytes (RFC 9000 section 7.2).
/// Ours have this length.
pub(crate) const MIN_INITIAL_DCID: usize = 8;

/// Bytes the shortest encoding of `value` takes: 1, 2, 4 or 8.
#[inline]
pub(crate) const fn varint_size(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// Appends the shortest encoding of `value`, which must not exceed [`VARINT_MAX`].
#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, value: u64) {
    debug_assert!(value <= VARINT_MAX, "{value} does not fit a varint");
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// Reads a variable-length integer of any, even a needlessly long, encoding; `None` if `buf` ends
/// before it does.
#[inline]
pub(crate) fn take_varint(buf: &mut impl Buf) -> Option<u64> {
    let chunk = buf.chunk();
    let length = 1usize << (chunk.first()? >> 6);
    let word = match chunk.first_chunk() {
        Some(word) => *word,
        None => short_word(chunk.get(..length)?),
    };
    buf.advance(length);
    // Shifts out the two bits of the length at the top, and what follows the integer at the bottom.
    Some((u64::from_be_bytes(word) << 2) >> (66 - 8 * length))
}

/// Fills up an integer within the last eight bytes of its buffer.
fn short_word(bytes: &[u8]) -> [u8; 8] {
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(bytes) {
        *to = *from;
    }
    word
}

/// Cuts off the next `length` bytes. A whole buffer is moved, not shared.
pub(crate) fn take_bytes(buf: &mut Bytes, length: u64) -> Option<Bytes> {
    let length = usize::try_from(length).ok()?;
    match length.cmp(&buf.len()) {
        std::cmp::Ordering::Less => Some(buf.split_to(length)),
        std::cmp::Ordering::Equal => Some(std::mem::take(buf)),
        std::cmp::Ordering::Greater => None,
    }
}

/// Reads `N` bytes.
pub(crate) fn take_array<const N: usize>(buf: &mut impl Buf) -> Option<[u8; N]> {
    if buf.remaining() < N {
        return None;
    }
    let mut array = [0; N];
    buf.copy_to_slice(&mut array);
    Some(array)
}

/// Cuts off a byte string with its length in one byte before it.
pub(crate) fn take_short_bytes<'a>(buf: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (&length, rest) = buf.split_first()?;
    let (bytes, rest) = rest.split_at_checked(length.into())?;
    *buf = rest;
    Some(bytes)
}

/// A connection ID from bytes, unless they are too many for QUIC version 1.
pub(crate) fn cid(bytes: &[u8]) -> Option<ConnectionId> {
    (bytes.len() <= MAX_CID_LENGTH).then(|| ConnectionId::new(bytes))
}

/// Receives encodings, so that the code of each format serves both to measure and to encode.
pub(crate) trait Sink {
    /// Takes an integer in its shortest encoding.
    fn varint(&mut self, value: u64);
    /// Takes bytes unchanged.
    fn bytes(&mut self, bytes: &[u8]);
    /// Takes a byte string with its length in one byte before it.
    fn short_bytes(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len() <= 255);
        self.bytes(&[bytes.len() as u8]);
        self.bytes(bytes);
    }
}

impl Sink for Vec<u8> {
    #[inline]
    fn varint(&mut self, value: u64) {
        put_varint(self, value);
    }

    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Counts the bytes it is given.
#[derive(Debug, Default)]
pub(crate) struct Counter(pub(crate) usize);

impl Sink for Counter {
    #[inline]
    fn varint(&mut self, value: u64) {
        self.0 += varint_size(value);
    }

    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9000 appendix A.1.
    #[test]
    fn sample_integers() {
        let samples: [(&[u8], u64); 5] = [
            (
                &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c],
                151_288_809_941_952_652,
            ),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ];
        for (bytes, value) in samples {
            for trailing in 0..9 {
                let mut buf = [bytes, &vec![0xff; trailing]].concat();
                let mut rest = &buf[..];
                assert_eq!(take_varint(&mut rest), Some(value));
                assert_eq!(rest.len(), trailing);
                buf.truncate(bytes.len() - 1);
                assert_eq!(take_varint(&mut &buf[..]), None);
            }
        }
    }

    #[test]
    fn the_shortest_encoding_is_chosen() {
        for (value, size) in [
            (0, 1),
            (63, 1),
            (64, 2),
            (16_383, 2),
            (16_384, 4),
            ((1 << 30) - 1, 4),
            (1 << 30, 8),
            (VARINT_MAX, 8),
        ] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!((out.len(), varint_size(value)), (size, size));
            assert_eq!(take_varint(&mut &out[..]), Some(value));
        }
    }

    #[test]
    fn the_end_of_a_buffer_is_handed_over() {
        let mut buf = Bytes::from(vec![1, 2, 3]);
        let start = buf.as_ptr();
        assert_eq!(take_bytes(&mut buf, 4), None);
        assert_eq!(take_bytes(&mut buf, u64::MAX), None);
        let taken = take_bytes(&mut buf, 3).unwrap();
        assert_eq!((taken.as_ptr(), buf.len()), (start, 0));
    }
}
