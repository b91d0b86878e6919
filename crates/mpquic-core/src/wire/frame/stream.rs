//! STREAM, RESET_STREAM, RESET_STREAM_AT and STOP_SENDING.

use bytes::Bytes;
use quinn_proto::StreamId;

use super::fields::{data, stream_id, varint};
use super::frame_type;
use crate::error::{Fault, TransportError};
use crate::wire::buf::{Counter, Sink, VARINT_MAX};

/// RESET_STREAM (RFC 9000 section 19.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResetStream {
    /// The stream.
    pub stream_id: StreamId,
    /// Application error code.
    pub error_code: u64,
    /// The stream's final size, bytes.
    pub final_size: u64,
}

/// RESET_STREAM_AT (draft-ietf-quic-reliable-stream-reset-11 section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResetStreamAt {
    /// The stream.
    pub stream_id: StreamId,
    /// Application error code.
    pub error_code: u64,
    /// The stream's final size, bytes.
    pub final_size: u64,
    /// Bytes from the start of the stream that are delivered in spite of the reset, at most the
    /// final size.
    pub reliable_size: u64,
}

/// STOP_SENDING (RFC 9000 section 19.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopSending {
    /// The stream.
    pub stream_id: StreamId,
    /// Application error code.
    pub error_code: u64,
}

/// STREAM (RFC 9000 section 19.8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// The stream.
    pub stream_id: StreamId,
    /// Offset of the first byte.
    pub offset: u64,
    /// True if the stream ends with this frame.
    pub fin: bool,
    /// The bytes.
    pub data: Bytes,
}

/// The header of a STREAM frame, before its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamHeader {
    /// The stream.
    pub stream_id: StreamId,
    /// Offset of the first byte.
    pub offset: u64,
    /// True if the stream ends with this frame.
    pub fin: bool,
    /// Bytes that follow; `None` if they extend to the end of the packet.
    pub length: Option<u64>,
}

impl StreamHeader {
    /// Bytes `encode` appends.
    pub fn size(&self) -> usize {
        let mut counter = Counter::default();
        self.write(&mut counter);
        counter.0
    }

    /// Appends the header; the bytes are to follow.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.write(out);
    }

    pub(super) fn frame_type(&self) -> u64 {
        let mut frame_type = frame_type::STREAM;
        if self.offset > 0 {
            frame_type |= frame_type::STREAM_OFFSET;
        }
        if self.length.is_some() {
            frame_type |= frame_type::STREAM_LENGTH;
        }
        if self.fin {
            frame_type |= frame_type::STREAM_FIN;
        }
        frame_type
    }

    #[inline]
    fn write(&self, out: &mut impl Sink) {
        out.varint(self.frame_type());
        self.write_fields(out);
    }

    /// Writes what follows the type.
    #[inline]
    fn write_fields(&self, out: &mut impl Sink) {
        out.varint(self.stream_id.into());
        if self.offset > 0 {
            out.varint(self.offset);
        }
        if let Some(length) = self.length {
            out.varint(length);
        }
    }
}

impl Stream {
    /// The header of this frame, with its length.
    pub(super) fn header(&self) -> StreamHeader {
        StreamHeader {
            stream_id: self.stream_id,
            offset: self.offset,
            fin: self.fin,
            length: Some(self.data.len() as u64),
        }
    }

    #[inline]
    pub(super) fn decode(frame_type: u64, buf: &mut Bytes) -> Result<Self, TransportError> {
        let stream_id = stream_id(buf)?;
        let offset = if frame_type & frame_type::STREAM_OFFSET != 0 {
            varint(buf)?
        } else {
            0
        };
        let data = if frame_type & frame_type::STREAM_LENGTH != 0 {
            data(buf)?
        } else {
            std::mem::take(buf)
        };
        // RFC 9000 section 19.8
        if offset + data.len() as u64 > VARINT_MAX {
            return Err(Fault::OffsetTooLarge.into());
        }
        let fin = frame_type & frame_type::STREAM_FIN != 0;
        Ok(Self {
            stream_id,
            offset,
            fin,
            data,
        })
    }

    /// Writes what follows the type; the length is among it.
    pub(super) fn write(&self, out: &mut impl Sink) {
        self.header().write_fields(out);
        out.bytes(&self.data);
    }
}

impl ResetStream {
    pub(super) fn decode(buf: &mut Bytes) -> Result<Self, TransportError> {
        Ok(Self {
            stream_id: stream_id(buf)?,
            error_code: varint(buf)?,
            final_size: varint(buf)?,
        })
    }

    pub(super) fn write(&self, out: &mut impl Sink) {
        out.varint(self.stream_id.into());
        out.varint(self.error_code);
        out.varint(self.final_size);
    }
}

impl ResetStreamAt {
    pub(super) fn decode(buf: &mut Bytes) -> Result<Self, TransportError> {
        let frame = Self {
            stream_id: stream_id(buf)?,
            error_code: varint(buf)?,
            final_size: varint(buf)?,
            reliable_size: varint(buf)?,
        };
        // draft-ietf-quic-reliable-stream-reset-11 section 4
        if frame.reliable_size > frame.final_size {
            return Err(Fault::ReliableSizeTooLarge.into());
        }
        Ok(frame)
    }

    pub(super) fn write(&self, out: &mut impl Sink) {
        out.varint(self.stream_id.into());
        out.varint(self.error_code);
        out.varint(self.final_size);
        out.varint(self.reliable_size);
    }
}

impl StopSending {
    pub(super) fn decode(buf: &mut Bytes) -> Result<Self, TransportError> {
        Ok(Self {
            stream_id: stream_id(buf)?,
            error_code: varint(buf)?,
        })
    }

    pub(super) fn write(&self, out: &mut impl Sink) {
        out.varint(self.stream_id.into());
        out.varint(self.error_code);
    }
}
