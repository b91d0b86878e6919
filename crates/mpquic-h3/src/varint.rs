//! Variable-length integers (RFC 9000 section 16).

use bytes::{BufMut, BytesMut};

/// Bytes of a variable-length integer.
pub(crate) fn varint_size(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// Appends a number below 2^62.
pub(crate) fn put_varint(buf: &mut BytesMut, value: u64) {
    let size = varint_size(value);
    let prefix = u64::from(size.ilog2()) << (8 * size - 2);
    buf.put_uint(prefix | value, size);
}

/// A variable-length integer (RFC 9000 section 16), of which a part may have arrived.
#[derive(Debug, Default)]
pub(crate) struct Varint {
    value: u64,
    /// Number of missing bytes, once the first has arrived.
    missing: u8,
}

impl Varint {
    /// Reads bytes until the number is complete; returns their count, and the number if complete.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> (usize, Option<u64>) {
        for (index, &byte) in bytes.iter().enumerate() {
            if self.missing == 0 {
                self.missing = (1 << (byte >> 6)) - 1;
                self.value = u64::from(byte & 0x3f);
            } else {
                self.missing -= 1;
                self.value = self.value << 8 | u64::from(byte);
            }
            if self.missing == 0 {
                return (index + 1, Some(self.value));
            }
        }
        (bytes.len(), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 9000 section A.1.
    #[test]
    fn numbers_are_written_as_short_as_possible() {
        for (value, bytes) in [
            (37, &[0x25][..]),
            (15_293, &[0x7b, 0xbd]),
            (494_878_333, &[0x9d, 0x7f, 0x3e, 0x7d]),
            (
                151_288_809_941_952_652,
                &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c],
            ),
        ] {
            let mut buf = BytesMut::new();
            put_varint(&mut buf, value);
            assert_eq!(buf, bytes);
        }
    }
}
