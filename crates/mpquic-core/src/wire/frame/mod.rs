//! Frames (RFC 9000 section 19, RFC 9221, RFC 10069 section 4).

use bytes::Bytes;
use quinn_proto::{ConnectionId, Dir, StreamId};

use crate::ids::{PathId, PathStatus};

pub mod ack;
mod basic;
mod close;
mod connection_id;
mod limits;
mod path;
mod stream;
mod table;

pub use ack::{Ack, EcnCounts};

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
    /// PATH_ABANDON.
    PathAbandon(PathId, crate::error::TransportErrorCode),
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
