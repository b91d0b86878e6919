//! Frames (RFC 9000 section 19, RFC 9221, RFC 10069 section 4, drafts named at the
//! frames).

use std::iter::FusedIterator;

use bytes::Bytes;
use quinn_proto::Dir;

use super::buf::{Counter, Sink, take_array, varint_size};
use crate::error::{Fault, TransportError};
use crate::ids::{self, PathId};

mod ack;
mod ack_frequency;
mod alternative_address;
mod close;
mod connection_id;
mod crypto;
mod datagram;
mod fields;
mod frame_type;
mod kind;
mod limits;
mod packet_type;
mod path;
mod stream;
mod table;

pub use ack::{Ack, AckRanges, EcnCounts, encode_ack};
pub use ack_frequency::AckFrequency;
pub use alternative_address::{AddressEntry, AlternativeAddress};
pub use close::Close;
pub use connection_id::NewConnectionId;
pub use crypto::{Crypto, CryptoHeader};
pub use datagram::DatagramHeader;
pub use kind::{FrameCounts, FrameKind};
pub use limits::{MAX_STREAM_COUNT, MaxStreamData, MaxStreams, StreamDataBlocked, StreamsBlocked};
pub use packet_type::PacketType;
pub use path::{
    PathAbandon, PathAck, PathCidsBlocked, PathNewConnectionId, PathRetireConnectionId, PathStatus,
};
pub use stream::{ResetStream, ResetStreamAt, StopSending, Stream, StreamHeader};

use fields::{path_id, skip_padding, truncated, varint};
use frame_type as ty;

/// One frame. Byte strings are slices of the received datagram.
///
/// Later versions may add frames; the fields of each frame are in a type of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Frame {
    /// One or more PADDING bytes.
    Padding,
    /// PING.
    Ping,
    /// ACK of the packet's own space; in the application space always path 0 (MP-060).
    Ack(Ack),
    /// PATH_ACK (MP_ACK in early drafts).
    PathAck(PathAck),
    /// RESET_STREAM.
    ResetStream(ResetStream),
    /// RESET_STREAM_AT (draft-ietf-quic-reliable-stream-reset-11).
    ResetStreamAt(ResetStreamAt),
    /// STOP_SENDING.
    StopSending(StopSending),
    /// CRYPTO.
    Crypto(Crypto),
    /// NEW_TOKEN: the token.
    NewToken(Bytes),
    /// STREAM.
    Stream(Stream),
    /// MAX_DATA: bytes that may be sent on all streams together.
    MaxData(u64),
    /// MAX_STREAM_DATA.
    MaxStreamData(MaxStreamData),
    /// MAX_STREAMS.
    MaxStreams(MaxStreams),
    /// DATA_BLOCKED: the limit that blocks, bytes.
    DataBlocked(u64),
    /// STREAM_DATA_BLOCKED.
    StreamDataBlocked(StreamDataBlocked),
    /// STREAMS_BLOCKED.
    StreamsBlocked(StreamsBlocked),
    /// NEW_CONNECTION_ID; means path 0.
    NewConnectionId(NewConnectionId),
    /// RETIRE_CONNECTION_ID: the sequence number; means path 0.
    RetireConnectionId(u64),
    /// PATH_CHALLENGE: its data.
    PathChallenge([u8; 8]),
    /// PATH_RESPONSE: the data of the PATH_CHALLENGE it answers.
    PathResponse([u8; 8]),
    /// CONNECTION_CLOSE, both kinds.
    ConnectionClose(Close),
    /// HANDSHAKE_DONE.
    HandshakeDone,
    /// DATAGRAM: its data.
    Datagram(Bytes),
    /// ACK_FREQUENCY (draft-ietf-quic-ack-frequency-14).
    AckFrequency(AckFrequency),
    /// IMMEDIATE_ACK (draft-ietf-quic-ack-frequency-14).
    ImmediateAck,
    /// ALTERNATIVE_ADDRESS (draft-munizaga-quic-alternative-server-address-01).
    AlternativeAddress(AlternativeAddress),
    /// PATH_ABANDON.
    PathAbandon(PathAbandon),
    /// PATH_STATUS_BACKUP or PATH_STATUS_AVAILABLE.
    PathStatus(PathStatus),
    /// PATH_NEW_CONNECTION_ID.
    PathNewConnectionId(PathNewConnectionId),
    /// PATH_RETIRE_CONNECTION_ID.
    PathRetireConnectionId(PathRetireConnectionId),
    /// MAX_PATH_ID: the highest path ID that may be used.
    MaxPathId(PathId),
    /// PATHS_BLOCKED: the limit that blocks.
    PathsBlocked(PathId),
    /// PATH_CIDS_BLOCKED.
    PathCidsBlocked(PathCidsBlocked),
}

impl Frame {
    /// Bytes [`Self::encode`] appends.
    #[doc(hidden)]
    pub fn size(&self) -> usize {
        let mut counter = Counter::default();
        self.write(&mut counter);
        counter.0
    }

    /// Appends the frame. STREAM and DATAGRAM get a length, to let more frames follow.
    #[doc(hidden)]
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.write(out);
    }

    fn write(&self, out: &mut impl Sink) {
        out.varint(self.frame_type());
        match self {
            Self::Padding | Self::Ping | Self::HandshakeDone | Self::ImmediateAck => {}
            Self::Ack(ack) => ack.write(out),
            Self::PathAck(frame) => frame.write(out),
            Self::ResetStream(frame) => frame.write(out),
            Self::ResetStreamAt(frame) => frame.write(out),
            Self::StopSending(frame) => frame.write(out),
            Self::Crypto(frame) => frame.write(out),
            Self::NewToken(data) | Self::Datagram(data) => {
                out.varint(data.len() as u64);
                out.bytes(data);
            }
            Self::Stream(frame) => frame.write(out),
            Self::MaxData(value) | Self::DataBlocked(value) | Self::RetireConnectionId(value) => {
                out.varint(*value);
            }
            Self::MaxStreamData(frame) => frame.write(out),
            Self::MaxStreams(frame) => frame.write(out),
            Self::StreamDataBlocked(frame) => frame.write(out),
            Self::StreamsBlocked(frame) => frame.write(out),
            Self::NewConnectionId(frame) => frame.write(out),
            Self::PathChallenge(data) | Self::PathResponse(data) => out.bytes(data),
            Self::ConnectionClose(close) => close.write(out),
            Self::AckFrequency(frame) => frame.write(out),
            Self::AlternativeAddress(frame) => frame.write(out),
            Self::PathAbandon(frame) => frame.write(out),
            Self::PathStatus(frame) => frame.write(out),
            Self::PathNewConnectionId(frame) => frame.write(out),
            Self::PathRetireConnectionId(frame) => frame.write(out),
            Self::MaxPathId(path_id) | Self::PathsBlocked(path_id) => {
                out.varint((*path_id).into());
            }
            Self::PathCidsBlocked(frame) => frame.write(out),
        }
    }

    /// Decodes what follows the type.
    #[inline]
    fn decode(frame_type: u64, buf: &mut Bytes) -> Result<Self, TransportError> {
        Ok(match frame_type {
            ty::STREAM..=ty::STREAM_LAST => Self::Stream(Stream::decode(frame_type, buf)?),
            ty::ACK | ty::ACK_ECN => Self::Ack(Ack::decode(buf, frame_type == ty::ACK_ECN)?),
            ty::PADDING => {
                skip_padding(buf);
                Self::Padding
            }
            ty::PING => Self::Ping,
            ty::RESET_STREAM => Self::ResetStream(ResetStream::decode(buf)?),
            ty::RESET_STREAM_AT => Self::ResetStreamAt(ResetStreamAt::decode(buf)?),
            ty::STOP_SENDING => Self::StopSending(StopSending::decode(buf)?),
            ty::CRYPTO => Self::Crypto(Crypto::decode(buf)?),
            ty::NEW_TOKEN => Self::NewToken(crypto::decode_new_token(buf)?),
            ty::MAX_DATA => Self::MaxData(varint(buf)?),
            ty::MAX_STREAM_DATA => Self::MaxStreamData(MaxStreamData::decode(buf)?),
            ty::MAX_STREAMS_BIDI => Self::MaxStreams(MaxStreams::decode(buf, Dir::Bi)?),
            ty::MAX_STREAMS_UNI => Self::MaxStreams(MaxStreams::decode(buf, Dir::Uni)?),
            ty::DATA_BLOCKED => Self::DataBlocked(varint(buf)?),
            ty::STREAM_DATA_BLOCKED => Self::StreamDataBlocked(StreamDataBlocked::decode(buf)?),
            ty::STREAMS_BLOCKED_BIDI => Self::StreamsBlocked(StreamsBlocked::decode(buf, Dir::Bi)?),
            ty::STREAMS_BLOCKED_UNI => Self::StreamsBlocked(StreamsBlocked::decode(buf, Dir::Uni)?),
            ty::NEW_CONNECTION_ID => Self::NewConnectionId(NewConnectionId::decode(buf)?),
            ty::RETIRE_CONNECTION_ID => Self::RetireConnectionId(varint(buf)?),
            ty::PATH_CHALLENGE => Self::PathChallenge(take_array(buf).ok_or_else(truncated)?),
            ty::PATH_RESPONSE => Self::PathResponse(take_array(buf).ok_or_else(truncated)?),
            ty::CONNECTION_CLOSE => Self::ConnectionClose(Close::decode_connection(buf)?),
            ty::APPLICATION_CLOSE => Self::ConnectionClose(Close::decode_application(buf)?),
            ty::HANDSHAKE_DONE => Self::HandshakeDone,
            ty::DATAGRAM => Self::Datagram(datagram::decode(buf, false)?),
            ty::DATAGRAM_LENGTH => Self::Datagram(datagram::decode(buf, true)?),
            ty::ACK_FREQUENCY => Self::AckFrequency(AckFrequency::decode(buf)?),
            ty::IMMEDIATE_ACK => Self::ImmediateAck,
            ty::ALTERNATIVE_ADDRESS => Self::AlternativeAddress(AlternativeAddress::decode(buf)?),
            _ => return Err(Fault::UnknownFrameType.into()),
        })
    }

    /// Decodes what follows the type of a frame of RFC 10069.
    fn decode_multipath(frame_type: u64, buf: &mut Bytes) -> Result<Self, TransportError> {
        use ids::PathStatus::{Available, Backup};
        Ok(match frame_type {
            ty::PATH_ACK | ty::PATH_ACK_ECN => {
                Self::PathAck(PathAck::decode(buf, frame_type == ty::PATH_ACK_ECN)?)
            }
            ty::PATH_ABANDON => Self::PathAbandon(PathAbandon::decode(buf)?),
            ty::PATH_STATUS_BACKUP => Self::PathStatus(PathStatus::decode(buf, Backup)?),
            ty::PATH_STATUS_AVAILABLE => Self::PathStatus(PathStatus::decode(buf, Available)?),
            ty::PATH_NEW_CONNECTION_ID => {
                Self::PathNewConnectionId(PathNewConnectionId::decode(buf)?)
            }
            ty::PATH_RETIRE_CONNECTION_ID => {
                Self::PathRetireConnectionId(PathRetireConnectionId::decode(buf)?)
            }
            ty::MAX_PATH_ID => Self::MaxPathId(path_id(buf)?),
            ty::PATHS_BLOCKED => Self::PathsBlocked(path_id(buf)?),
            ty::PATH_CIDS_BLOCKED => Self::PathCidsBlocked(PathCidsBlocked::decode(buf)?),
            _ => return Self::decode(frame_type, buf),
        })
    }
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
