//! The fields that frames are made of.

use bytes::{Buf, Bytes};
use quinn_proto::{StreamId, VarInt};

use crate::error::{Fault, TransportError};
use crate::ids::PathId;
use crate::wire::buf::{take_bytes, take_varint};

pub(super) fn truncated() -> TransportError {
    TransportError::new(Fault::TruncatedFrame)
}

#[inline]
pub(super) fn varint(buf: &mut impl Buf) -> Result<u64, TransportError> {
    take_varint(buf).ok_or_else(truncated)
}

#[inline]
pub(super) fn stream_id(buf: &mut Bytes) -> Result<StreamId, TransportError> {
    let id = VarInt::from_u64(varint(buf)?).map_err(|_| truncated())?;
    Ok(id.into())
}

/// A path ID. A value above 32 bits lies above every limit we can announce (MP-050, MP-140).
pub(super) fn path_id(buf: &mut Bytes) -> Result<PathId, TransportError> {
    match u32::try_from(varint(buf)?) {
        Ok(id) => Ok(PathId(id)),
        Err(_) => Err(Fault::PathIdTooLarge.into()),
    }
}

/// Bytes with their length before them.
#[inline]
pub(super) fn data(buf: &mut Bytes) -> Result<Bytes, TransportError> {
    let length = varint(buf)?;
    take_bytes(buf, length).ok_or_else(truncated)
}

/// Skips the zeros of a run of PADDING frames.
pub(super) fn skip_padding(buf: &mut Bytes) {
    let run = buf.iter().position(|&byte| byte != 0).unwrap_or(buf.len());
    buf.advance(run);
}
