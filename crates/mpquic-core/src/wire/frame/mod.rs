//! Frames (RFC 9000 section 19, RFC 9221, RFC 10069 section 4, drafts named at the
//! frames).

use std::iter::FusedIterator;

use bytes::{Buf, Bytes};
use quinn_proto::{ConnectionId, Dir, StreamId, VarInt};

use super::buf::{Counter, Sink, take_array, take_bytes, take_varint, varint_size};
use crate::error::{TransportError, TransportErrorCode};
use crate::ids::{PathId, PathStatus};

pub mod ack;
mod ack_frequency;
mod basic;
mod close;
mod connection_id;
mod limits;
mod path;
mod stream;
mod table;

pub use ack::{Ack, AckRanges, EcnCounts, encode_ack};
pub use ack_frequency::AckFrequency;
pub use basic::{CryptoHeader, DatagramHeader};
pub use limits::MAX_STREAM_COUNT;
pub use stream::StreamHeader;
pub use table::{Affinity, PacketType};

use path::decode_path_id as path_id;
use table::frame_type as ty;

/// One frame. Byte strings are slices of the received datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// One or more PADDING bytes.
    Padding,
    /// PING.
    Ping,
    /// ACK of the packet's own space; in the application space always path 0 (MP-060).
    Ack(Ack),
    /// PATH_ACK (MP_ACK in early drafts).
    PathAck(PathId, Ack),
    /// RESET_STREAM.
    ResetStream(ResetStream),
    /// RESET_STREAM_AT with its reliable size, at most the final size
    /// (draft-ietf-quic-reliable-stream-reset-11).
    ResetStreamAt(ResetStream, u64),
    /// STOP_SENDING.
    StopSending(StopSending),
    /// CRYPTO.
    Crypto(Crypto),
    /// NEW_TOKEN.
    NewToken(Bytes),
    /// STREAM.
    Stream(Stream),
    /// MAX_DATA.
    MaxData(u64),
    /// MAX_STREAM_DATA.
    MaxStreamData(StreamId, u64),
    /// MAX_STREAMS.
    MaxStreams(Dir, u64),
    /// DATA_BLOCKED.
    DataBlocked(u64),
    /// STREAM_DATA_BLOCKED.
    StreamDataBlocked(StreamId, u64),
    /// STREAMS_BLOCKED.
    StreamsBlocked(Dir, u64),
    /// NEW_CONNECTION_ID; means path 0.
    NewConnectionId(NewConnectionId),
    /// RETIRE_CONNECTION_ID; means path 0.
    RetireConnectionId(u64),
    /// PATH_CHALLENGE.
    PathChallenge([u8; 8]),
    /// PATH_RESPONSE.
    PathResponse([u8; 8]),
    /// CONNECTION_CLOSE, both kinds.
    ConnectionClose(Close),
    /// HANDSHAKE_DONE.
    HandshakeDone,
    /// DATAGRAM.
    Datagram(Bytes),
    /// ACK_FREQUENCY (draft-ietf-quic-ack-frequency-14).
    AckFrequency(AckFrequency),
    /// IMMEDIATE_ACK (draft-ietf-quic-ack-frequency-14).
    ImmediateAck,
    /// PATH_ABANDON.
    PathAbandon(PathId, TransportErrorCode),
    /// PATH_STATUS_BACKUP or PATH_STATUS_AVAILABLE with its sequence number.
    PathStatus(PathId, PathStatus, u64),
    /// PATH_NEW_CONNECTION_ID.
    PathNewConnectionId(PathId, NewConnectionId),
    /// PATH_RETIRE_CONNECTION_ID: path, sequence.
    PathRetireConnectionId(PathId, u64),
    /// MAX_PATH_ID.
    MaxPathId(PathId),
    /// PATHS_BLOCKED.
    PathsBlocked(PathId),
    /// PATH_CIDS_BLOCKED: path, next sequence.
    PathCidsBlocked(PathId, u64),
}

/// RESET_STREAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResetStream {
    /// The stream.
    pub id: StreamId,
    /// Application error code.
    pub error_code: u64,
    /// The stream's final size, bytes.
    pub final_size: u64,
}

/// STOP_SENDING.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopSending {
    /// The stream.
    pub id: StreamId,
    /// Application error code.
    pub error_code: u64,
}

/// CRYPTO.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crypto {
    /// Offset in the handshake stream of this encryption level.
    pub offset: u64,
    /// The bytes.
    pub data: Bytes,
}

/// STREAM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// The stream.
    pub id: StreamId,
    /// Offset of the first byte.
    pub offset: u64,
    /// True if the stream ends with this frame.
    pub fin: bool,
    /// The bytes.
    pub data: Bytes,
}

/// NEW_CONNECTION_ID, or the body of PATH_NEW_CONNECTION_ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewConnectionId {
    /// Sequence number within the path ID.
    pub sequence: u64,
    /// Connection IDs below this sequence number are to be retired.
    pub retire_prior_to: u64,
    /// The connection ID, 1 to 20 bytes.
    pub id: ConnectionId,
    /// Its stateless reset token.
    pub reset_token: [u8; 16],
}

/// CONNECTION_CLOSE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Close {
    /// Type 0x1c.
    Connection(crate::error::ConnectionClose),
    /// Type 0x1d: application error code and reason.
    Application(u64, Bytes),
}

impl Frame {
    /// Bytes [`Self::encode`] appends.
    pub fn size(&self) -> usize {
        let mut counter = Counter::default();
        self.write(&mut counter);
        counter.0
    }

    /// Appends the frame. STREAM and DATAGRAM get a length, so more frames may follow.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.write(out);
    }

    fn write(&self, out: &mut impl Sink) {
        match self {
            Self::Stream(stream) => {
                stream.header().write(out);
                return out.bytes(&stream.data);
            }
            Self::Crypto(crypto) => {
                let (offset, length) = (crypto.offset, crypto.data.len() as u64);
                CryptoHeader { offset, length }.write(out);
                return out.bytes(&crypto.data);
            }
            Self::Datagram(data) => {
                let length = Some(data.len() as u64);
                DatagramHeader { length }.write(out);
                return out.bytes(data);
            }
            _ => out.varint(self.frame_type()),
        }
        self.write_fields(out);
    }

    /// Writes what follows the type; the frames with a header of their own are done already.
    #[warn(clippy::wildcard_enum_match_arm)]
    fn write_fields(&self, out: &mut impl Sink) {
        match self {
            Self::Padding | Self::Ping | Self::HandshakeDone | Self::ImmediateAck => {}
            Self::Stream(_) | Self::Crypto(_) | Self::Datagram(_) => {}
            Self::Ack(ack) => ack.write(out),
            Self::AckFrequency(request) => request.write(out),
            Self::PathAck(path, ack) => {
                out.varint((*path).into());
                ack.write(out);
            }
            Self::ResetStream(reset) => reset.write(out),
            Self::ResetStreamAt(reset, reliable_size) => {
                reset.write(out);
                out.varint(*reliable_size);
            }
            Self::StopSending(stop) => stop.write(out),
            Self::NewToken(token) => {
                out.varint(token.len() as u64);
                out.bytes(token);
            }
            Self::MaxStreamData(id, value) | Self::StreamDataBlocked(id, value) => {
                out.varint((*id).into());
                out.varint(*value);
            }
            Self::MaxData(value)
            | Self::MaxStreams(_, value)
            | Self::DataBlocked(value)
            | Self::StreamsBlocked(_, value)
            | Self::RetireConnectionId(value) => out.varint(*value),
            Self::NewConnectionId(new) => new.write(out),
            Self::PathChallenge(token) | Self::PathResponse(token) => out.bytes(token),
            Self::ConnectionClose(close) => close.write(out),
            Self::PathAbandon(path, code) => {
                out.varint((*path).into());
                out.varint(code.to_u64());
            }
            Self::PathStatus(path, _, value)
            | Self::PathRetireConnectionId(path, value)
            | Self::PathCidsBlocked(path, value) => {
                out.varint((*path).into());
                out.varint(*value);
            }
            Self::PathNewConnectionId(path, new) => {
                out.varint((*path).into());
                new.write(out);
            }
            Self::MaxPathId(path) | Self::PathsBlocked(path) => out.varint((*path).into()),
        }
    }

    /// Decodes what follows the type.
    #[inline]
    fn decode(frame_type: u64, buf: &mut Bytes) -> Result<Self, TransportError> {
        Ok(match frame_type {
            ty::STREAM..=ty::STREAM_LAST => Self::Stream(Stream::decode(frame_type, buf)?),
            ty::ACK | ty::ACK_ECN => Self::Ack(Ack::decode(buf, frame_type == ty::ACK_ECN)?),
            ty::PADDING => {
                basic::skip_padding(buf);
                Self::Padding
            }
            ty::PING => Self::Ping,
            ty::RESET_STREAM => Self::ResetStream(ResetStream::decode(buf)?),
            ty::RESET_STREAM_AT => {
                let (reset, reliable_size) = ResetStream::decode_at(buf)?;
                Self::ResetStreamAt(reset, reliable_size)
            }
            ty::STOP_SENDING => Self::StopSending(StopSending::decode(buf)?),
            ty::CRYPTO => Self::Crypto(basic::decode_crypto(buf)?),
            ty::NEW_TOKEN => Self::NewToken(basic::decode_new_token(buf)?),
            ty::MAX_DATA => Self::MaxData(varint(buf)?),
            ty::MAX_STREAM_DATA => Self::MaxStreamData(stream_id(buf)?, varint(buf)?),
            ty::MAX_STREAMS_BIDI => Self::MaxStreams(Dir::Bi, limits::decode_stream_count(buf)?),
            ty::MAX_STREAMS_UNI => Self::MaxStreams(Dir::Uni, limits::decode_stream_count(buf)?),
            ty::DATA_BLOCKED => Self::DataBlocked(varint(buf)?),
            ty::STREAM_DATA_BLOCKED => Self::StreamDataBlocked(stream_id(buf)?, varint(buf)?),
            ty::STREAMS_BLOCKED_BIDI => {
                Self::StreamsBlocked(Dir::Bi, limits::decode_stream_count(buf)?)
            }
            ty::STREAMS_BLOCKED_UNI => {
                Self::StreamsBlocked(Dir::Uni, limits::decode_stream_count(buf)?)
            }
            ty::NEW_CONNECTION_ID => Self::NewConnectionId(NewConnectionId::decode(buf)?),
            ty::RETIRE_CONNECTION_ID => Self::RetireConnectionId(varint(buf)?),
            ty::PATH_CHALLENGE => Self::PathChallenge(take_array(buf).ok_or_else(truncated)?),
            ty::PATH_RESPONSE => Self::PathResponse(take_array(buf).ok_or_else(truncated)?),
            ty::CONNECTION_CLOSE => Self::ConnectionClose(Close::decode_connection(buf)?),
            ty::APPLICATION_CLOSE => Self::ConnectionClose(Close::decode_application(buf)?),
            ty::HANDSHAKE_DONE => Self::HandshakeDone,
            ty::DATAGRAM => Self::Datagram(basic::decode_datagram(buf, false)?),
            ty::DATAGRAM_LENGTH => Self::Datagram(basic::decode_datagram(buf, true)?),
            ty::ACK_FREQUENCY => Self::AckFrequency(AckFrequency::decode(buf)?),
            ty::IMMEDIATE_ACK => Self::ImmediateAck,
            _ => return Err(unknown_type()),
        })
    }

    /// Decodes what follows the type of a frame of RFC 10069.
    fn decode_multipath(frame_type: u64, buf: &mut Bytes) -> Result<Self, TransportError> {
        Ok(match frame_type {
            ty::PATH_ACK | ty::PATH_ACK_ECN => {
                let path = path_id(buf)?;
                Self::PathAck(path, Ack::decode(buf, frame_type == ty::PATH_ACK_ECN)?)
            }
            ty::PATH_ABANDON => {
                let path = path_id(buf)?;
                Self::PathAbandon(path, TransportErrorCode::from_u64(varint(buf)?))
            }
            ty::PATH_STATUS_BACKUP => {
                Self::PathStatus(path_id(buf)?, PathStatus::Backup, varint(buf)?)
            }
            ty::PATH_STATUS_AVAILABLE => {
                Self::PathStatus(path_id(buf)?, PathStatus::Available, varint(buf)?)
            }
            ty::PATH_NEW_CONNECTION_ID => {
                Self::PathNewConnectionId(path_id(buf)?, NewConnectionId::decode(buf)?)
            }
            ty::PATH_RETIRE_CONNECTION_ID => {
                Self::PathRetireConnectionId(path_id(buf)?, varint(buf)?)
            }
            ty::MAX_PATH_ID => Self::MaxPathId(path_id(buf)?),
            ty::PATHS_BLOCKED => Self::PathsBlocked(path_id(buf)?),
            ty::PATH_CIDS_BLOCKED => Self::PathCidsBlocked(path_id(buf)?, varint(buf)?),
            _ => return Self::decode(frame_type, buf),
        })
    }
}

fn unknown_type() -> TransportError {
    TransportError::frame_encoding("unknown frame type")
}

fn truncated() -> TransportError {
    TransportError::frame_encoding("truncated frame")
}

#[inline]
fn varint(buf: &mut impl Buf) -> Result<u64, TransportError> {
    take_varint(buf).ok_or_else(truncated)
}

#[inline]
fn stream_id(buf: &mut Bytes) -> Result<StreamId, TransportError> {
    let id = VarInt::from_u64(varint(buf)?).map_err(|_| truncated())?;
    Ok(id.into())
}

/// Bytes with their length before them.
#[inline]
fn data(buf: &mut Bytes) -> Result<Bytes, TransportError> {
    let length = varint(buf)?;
    take_bytes(buf, length).ok_or_else(truncated)
}

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
            return Err(
                TransportError::protocol_violation("frame type longer than necessary")
                    .in_frame(frame_type),
            );
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
                .then(|| Err(TransportError::protocol_violation("packet without frames")));
        }
        let frame = self.read();
        if frame.is_err() {
            self.payload.clear();
        }
        Some(frame)
    }
}

impl FusedIterator for FrameIter {}
