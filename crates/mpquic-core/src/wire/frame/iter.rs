//! The frames of a packet.

use std::iter::FusedIterator;

use bytes::{Buf, Bytes};

use super::Frame;
use super::fields::varint;
use super::table::frame_type as ty;
use crate::error::{Fault, TransportError};
use crate::wire::buf::varint_size;

/// The frames of a packet.
///
/// A run of PADDING is one item. Errors name the frame type at fault and are final: nothing
/// follows them. A payload without frames is an error too.
#[derive(Debug, Clone)]
pub struct FrameIter {
    payload: Bytes,
    multipath: bool,
    is_empty_packet: bool,
}

impl FrameIter {
    /// Reads the plaintext of a packet. Unless `multipath` was negotiated, the frame types of
    /// RFC 10069 are unknown (MP-002). Those of other extensions are read; who did not negotiate
    /// them must refuse them.
    pub fn new(payload: Bytes, multipath: bool) -> Self {
        Self {
            is_empty_packet: payload.is_empty(),
            payload,
            multipath,
        }
    }

    #[inline]
    fn read(&mut self) -> Result<Frame, TransportError> {
        let buf = &mut self.payload;
        let length = buf.len();
        let frame_type = varint(buf)?;
        // RFC 9000 section 12.4, MP-052
        if length - buf.len() != varint_size(frame_type) {
            return Err(TransportError::new(Fault::FrameTypeNotShortest).in_frame(frame_type));
        }
        let frame = if self.multipath && frame_type >= ty::PATH_ACK {
            Frame::decode_multipath(frame_type, buf)
        } else {
            Frame::decode(frame_type, buf)
        };
        frame.map_err(|error| error.in_frame(frame_type))
    }
}

impl Iterator for FrameIter {
    type Item = Result<Frame, TransportError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.payload.is_empty() {
            // RFC 9000 section 12.4
            return std::mem::take(&mut self.is_empty_packet)
                .then(|| Err(Fault::EmptyPacket.into()));
        }
        let frame = self.read();
        if frame.is_err() {
            self.payload.clear();
        }
        Some(frame)
    }
}

impl FusedIterator for FrameIter {}

/// Skips the zeros of a run of PADDING frames.
pub(super) fn skip_padding(buf: &mut Bytes) {
    let run = buf.iter().position(|&byte| byte != 0).unwrap_or(buf.len());
    buf.advance(run);
}
