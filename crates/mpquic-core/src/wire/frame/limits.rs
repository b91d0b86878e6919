//! MAX_STREAMS and STREAMS_BLOCKED, the limits whose value is itself limited. The other MAX_ and
//! _BLOCKED frames are plain integers.

use bytes::Bytes;

use super::varint;
use crate::error::TransportError;

/// Streams of one direction that stream IDs can name: 2^60.
pub const MAX_STREAM_COUNT: u64 = 1 << 60;

/// A count of streams (RFC 9000 sections 19.11 and 19.14).
pub(super) fn decode_stream_count(buf: &mut Bytes) -> Result<u64, TransportError> {
    let count = varint(buf)?;
    if count > MAX_STREAM_COUNT {
        return Err(TransportError::frame_encoding("more than 2^60 streams"));
    }
    Ok(count)
}
