//! Path IDs in the frames of RFC 10069.

use bytes::Bytes;

use super::varint;
use crate::error::TransportError;
use crate::ids::PathId;

/// A path ID. One of more than 32 bits is above every limit we can announce (MP-050, MP-140).
pub(super) fn decode_path_id(buf: &mut Bytes) -> Result<PathId, TransportError> {
    match u32::try_from(varint(buf)?) {
        Ok(id) => Ok(PathId(id)),
        Err(_) => Err(TransportError::protocol_violation("path ID above 2^32 - 1")),
    }
}
