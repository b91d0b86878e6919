//! Numbers in the encodings of the wire.

use arbitrary::{Arbitrary, Result, Unstructured};
use mpquic_core::ConnectionId;

/// The largest variable-length integer (RFC 9000 section 16).
pub const VARINT_MAX: u64 = (1 << 62) - 1;

/// A variable-length integer: mostly a small number, sometimes a number next to which the length of
/// the encoding changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Varint(pub u64);

impl<'a> Arbitrary<'a> for Varint {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        const EDGES: [u64; 4] = [1 << 6, 1 << 14, 1 << 30, 1 << 62];
        let kind: u8 = u.arbitrary()?;
        Ok(Self(match kind {
            0..=95 => u64::from(kind % 16),
            96..=159 => u.arbitrary::<u8>()?.into(),
            160..=199 => u.arbitrary::<u16>()?.into(),
            200..=231 => {
                (EDGES[usize::from(kind % 4)] - 2 + u64::from(kind / 4 % 4)).min(VARINT_MAX)
            }
            232..=243 => u.arbitrary::<u32>()?.into(),
            244..=255 => u.arbitrary::<u64>()? & VARINT_MAX,
        }))
    }
}

/// A connection ID of 0 to 20 bytes: one of a few of each length, or any bytes.
#[derive(Debug, Clone, Copy)]
pub struct Cid(pub ConnectionId);

impl<'a> Arbitrary<'a> for Cid {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let length = u.int_in_range(0..=20)?;
        let fill: u8 = u.arbitrary()?;
        if fill < 128 {
            return Ok(Self(ConnectionId::new(&vec![fill % 8; length])));
        }
        Ok(Self(ConnectionId::new(u.bytes(length.min(u.len()))?)))
    }
}
