//! The MAX_ frames and the _BLOCKED frames that answer them, except PATH_CIDS_BLOCKED. MAX_DATA and
//! DATA_BLOCKED are a plain integer, MAX_PATH_ID and PATHS_BLOCKED a path ID.

use bytes::Bytes;
use quinn_proto::{Dir, StreamId};

use super::fields::{stream_id, varint};
use crate::error::{Fault, TransportError};
use crate::wire::buf::Sink;

/// Streams of one direction that stream IDs can name: 2^60.
pub const MAX_STREAM_COUNT: u64 = 1 << 60;

/// MAX_STREAM_DATA (RFC 9000 section 19.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxStreamData {
    /// The stream.
    pub stream_id: StreamId,
    /// Most bytes on the stream, in all.
    pub maximum_stream_data: u64,
}

/// MAX_STREAMS (RFC 9000 section 19.11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxStreams {
    /// The kind of streams, which the frame type tells.
    pub dir: Dir,
    /// Most streams over the connection's life, at most 2^60.
    pub maximum_streams: u64,
}

/// STREAM_DATA_BLOCKED (RFC 9000 section 19.13).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamDataBlocked {
    /// The stream.
    pub stream_id: StreamId,
    /// The limit that blocks it, bytes.
    pub maximum_stream_data: u64,
}

/// STREAMS_BLOCKED (RFC 9000 section 19.14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamsBlocked {
    /// The kind of streams, which the frame type tells.
    pub dir: Dir,
    /// The limit that blocks them, at most 2^60.
    pub maximum_streams: u64,
}

impl MaxStreamData {
    pub(super) fn decode(buf: &mut Bytes) -> Result<Self, TransportError> {
        Ok(Self {
            stream_id: stream_id(buf)?,
            maximum_stream_data: varint(buf)?,
        })
    }

    pub(super) fn write(&self, out: &mut impl Sink) {
        out.varint(self.stream_id.into());
        out.varint(self.maximum_stream_data);
    }
}

impl MaxStreams {
    pub(super) fn decode(buf: &mut Bytes, dir: Dir) -> Result<Self, TransportError> {
        Ok(Self {
            dir,
            maximum_streams: stream_count(buf)?,
        })
    }

    pub(super) fn write(&self, out: &mut impl Sink) {
        out.varint(self.maximum_streams);
    }
}

impl StreamDataBlocked {
    pub(super) fn decode(buf: &mut Bytes) -> Result<Self, TransportError> {
        Ok(Self {
            stream_id: stream_id(buf)?,
            maximum_stream_data: varint(buf)?,
        })
    }

    pub(super) fn write(&self, out: &mut impl Sink) {
        out.varint(self.stream_id.into());
        out.varint(self.maximum_stream_data);
    }
}

impl StreamsBlocked {
    pub(super) fn decode(buf: &mut Bytes, dir: Dir) -> Result<Self, TransportError> {
        Ok(Self {
            dir,
            maximum_streams: stream_count(buf)?,
        })
    }

    pub(super) fn write(&self, out: &mut impl Sink) {
        out.varint(self.maximum_streams);
    }
}

/// A count of streams (RFC 9000 sections 19.11 and 19.14).
fn stream_count(buf: &mut Bytes) -> Result<u64, TransportError> {
    let count = varint(buf)?;
    if count > MAX_STREAM_COUNT {
        return Err(Fault::StreamCountTooLarge.into());
    }
    Ok(count)
}
