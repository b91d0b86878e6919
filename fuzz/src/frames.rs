//! Frames of every type.

use std::net::{Ipv6Addr, SocketAddr};

use arbitrary::{Arbitrary, Result, Unstructured};
use bytes::Bytes;
use mpquic_core::unstable_wire::RangeSet;
use mpquic_core::unstable_wire::frame::{
    Ack, AckFrequency, AddressEntry, AlternativeAddress, Close, Crypto, EcnCounts, Frame,
    MAX_STREAM_COUNT, MaxStreamData, MaxStreams, NewConnectionId, PathAbandon, PathAck,
    PathCidsBlocked, PathNewConnectionId, PathRetireConnectionId, PathStatus, ResetStream,
    ResetStreamAt, StopSending, Stream, StreamDataBlocked, StreamsBlocked,
};
use mpquic_core::{
    ApplicationClose, ConnectionClose, ConnectionId, Dir, PathId, PathStatus as Status, StreamId,
    TransportErrorCode, VarInt,
};

use crate::number::{VARINT_MAX, Varint};

/// The number of choices in [`AnyFrame`].
const KINDS: u8 = 34;

/// A frame that can be encoded, of any type.
#[derive(Debug, Clone)]
pub struct AnyFrame(pub Frame);

impl<'a> Arbitrary<'a> for AnyFrame {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let kind = u.int_in_range(0..=KINDS - 1)?;
        let frame = match kind {
            0..=15 => of_rfc_9000(kind, u)?,
            16..=23 => of_connections(kind, u)?,
            _ => of_extensions(kind, u)?,
        };
        Ok(Self(frame))
    }
}

fn of_rfc_9000(kind: u8, u: &mut Unstructured<'_>) -> Result<Frame> {
    Ok(match kind {
        0 => Frame::Padding,
        1 => Frame::Ping,
        2 => Frame::Ack(ack(u)?),
        3 => Frame::ResetStream(ResetStream {
            stream_id: stream_id(u)?,
            error_code: varint(u)?,
            final_size: varint(u)?,
        }),
        4 => Frame::StopSending(StopSending {
            stream_id: stream_id(u)?,
            error_code: varint(u)?,
        }),
        5 => {
            let data = data(u)?;
            Frame::Crypto(Crypto {
                offset: varint(u)?.min(VARINT_MAX - data.len() as u64),
                data,
            })
        }
        6 => {
            let token = data(u)?;
            Frame::NewToken(if token.is_empty() {
                Bytes::from_static(b"t")
            } else {
                token
            })
        }
        7 | 8 => {
            let data = data(u)?;
            Frame::Stream(Stream {
                stream_id: stream_id(u)?,
                offset: varint(u)?.min(VARINT_MAX - data.len() as u64),
                fin: u.arbitrary()?,
                data,
            })
        }
        9 => Frame::MaxData(varint(u)?),
        10 => Frame::MaxStreamData(MaxStreamData {
            stream_id: stream_id(u)?,
            maximum_stream_data: varint(u)?,
        }),
        11 => Frame::MaxStreams(MaxStreams {
            dir: dir(u)?,
            maximum_streams: varint(u)?.min(MAX_STREAM_COUNT),
        }),
        12 => Frame::DataBlocked(varint(u)?),
        13 => Frame::StreamDataBlocked(StreamDataBlocked {
            stream_id: stream_id(u)?,
            maximum_stream_data: varint(u)?,
        }),
        14 => Frame::StreamsBlocked(StreamsBlocked {
            dir: dir(u)?,
            maximum_streams: varint(u)?.min(MAX_STREAM_COUNT),
        }),
        _ => Frame::Datagram(data(u)?),
    })
}

fn of_connections(kind: u8, u: &mut Unstructured<'_>) -> Result<Frame> {
    Ok(match kind {
        16 => Frame::NewConnectionId(new_connection_id(u)?),
        17 => Frame::RetireConnectionId(varint(u)?),
        18 => Frame::PathChallenge(u.arbitrary()?),
        19 => Frame::PathResponse(u.arbitrary()?),
        20 => Frame::ConnectionClose(Close::Connection(ConnectionClose {
            code: TransportErrorCode::from_u64(varint(u)?),
            frame_type: varint(u)?,
            reason: data(u)?,
        })),
        21 => Frame::ConnectionClose(Close::Application(ApplicationClose {
            error_code: VarInt::from_u64(varint(u)?).unwrap_or_default(),
            reason: data(u)?,
        })),
        22 => Frame::HandshakeDone,
        _ => Frame::ImmediateAck,
    })
}

fn of_extensions(kind: u8, u: &mut Unstructured<'_>) -> Result<Frame> {
    Ok(match kind {
        24 => {
            let final_size = varint(u)?;
            Frame::ResetStreamAt(ResetStreamAt {
                stream_id: stream_id(u)?,
                error_code: varint(u)?,
                final_size,
                reliable_size: varint(u)?.min(final_size),
            })
        }
        25 => Frame::AckFrequency(AckFrequency {
            sequence_number: varint(u)?,
            ack_eliciting_threshold: varint(u)?,
            requested_max_ack_delay: varint(u)?,
            reordering_threshold: varint(u)?,
        }),
        26 => Frame::PathAck(PathAck {
            path_id: path_id(u)?,
            ack: ack(u)?,
        }),
        27 => Frame::PathAbandon(PathAbandon {
            path_id: path_id(u)?,
            error_code: TransportErrorCode::from_u64(varint(u)?),
        }),
        28 => Frame::PathStatus(PathStatus {
            path_id: path_id(u)?,
            status: if u.arbitrary()? {
                Status::Backup
            } else {
                Status::Available
            },
            sequence_number: varint(u)?,
        }),
        29 => Frame::PathNewConnectionId(PathNewConnectionId {
            path_id: path_id(u)?,
            new_connection_id: new_connection_id(u)?,
        }),
        30 => Frame::PathRetireConnectionId(PathRetireConnectionId {
            path_id: path_id(u)?,
            sequence_number: varint(u)?,
        }),
        31 => {
            let path = path_id(u)?;
            if u.arbitrary()? {
                Frame::MaxPathId(path)
            } else {
                Frame::PathsBlocked(path)
            }
        }
        32 => Frame::PathCidsBlocked(PathCidsBlocked {
            path_id: path_id(u)?,
            next_sequence_number: varint(u)?,
        }),
        _ => Frame::AlternativeAddress(alternative_address(u)?),
    })
}

/// Addresses of few hosts, so that several frames name the same address; each address once.
fn alternative_address(u: &mut Unstructured<'_>) -> Result<AlternativeAddress> {
    let sequence_number = varint(u)?;
    let mut sides = [Vec::new(), Vec::new()];
    let mut seen = Vec::new();
    for _ in 0..u.int_in_range(0..=12u8)? {
        let (side, is_ipv6, host): (bool, bool, [u8; 4]) = u.arbitrary()?;
        let port = u.arbitrary()?;
        let address = if is_ipv6 {
            let [a, b, c, d] = host;
            let ip = Ipv6Addr::from([a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, d, c, b, a]);
            SocketAddr::new(ip.into(), port)
        } else {
            SocketAddr::from((host, port))
        };
        let entries: &mut Vec<AddressEntry> = &mut sides[usize::from(side)];
        let before = entries.last().map_or(0, |entry| entry.priority_hint);
        let entry = AddressEntry {
            priority_hint: varint(u)?.max(before),
            address,
        };
        if !seen.contains(&address) {
            seen.push(address);
            entries.push(entry);
        }
    }
    let [preferred, backup] = sides;
    Ok(AlternativeAddress {
        sequence_number,
        preferred,
        backup,
    })
}

fn varint(u: &mut Unstructured<'_>) -> Result<u64> {
    Ok(u.arbitrary::<Varint>()?.0)
}

fn stream_id(u: &mut Unstructured<'_>) -> Result<StreamId> {
    let id = VarInt::from_u64(varint(u)?).unwrap_or_default();
    Ok(id.into())
}

/// Mostly a path that may exist.
fn path_id(u: &mut Unstructured<'_>) -> Result<PathId> {
    let id: u8 = u.arbitrary()?;
    Ok(PathId(match id {
        255 => u.arbitrary()?,
        id => u32::from(id % 10),
    }))
}

fn dir(u: &mut Unstructured<'_>) -> Result<Dir> {
    Ok(if u.arbitrary()? { Dir::Bi } else { Dir::Uni })
}

/// Data of up to 255 bytes.
fn data(u: &mut Unstructured<'_>) -> Result<Bytes> {
    let length: u8 = u.arbitrary()?;
    let length = usize::from(length).min(u.len());
    Ok(Bytes::copy_from_slice(u.bytes(length)?))
}

/// A frame with one of few connection IDs and tokens, so that several frames name the same one, or
/// with any.
pub fn new_connection_id(u: &mut Unstructured<'_>) -> Result<NewConnectionId> {
    let sequence_number = varint(u)?;
    let retire_prior_to = varint(u)?.min(sequence_number);
    let (id, token): (u8, u8) = (u.arbitrary()?, u.arbitrary()?);
    let length = if id < 240 { 8 } else { usize::from(id - 239) };
    Ok(NewConnectionId {
        sequence_number,
        retire_prior_to,
        connection_id: ConnectionId::new(&vec![id; length]),
        stateless_reset_token: [token; 16],
    })
}

/// Numbers from a largest one downwards.
pub fn ack(u: &mut Unstructured<'_>) -> Result<Ack> {
    let largest = varint(u)?;
    let mut ranges = RangeSet::default();
    ranges.insert_one(largest);
    let mut start = largest;
    for _ in 0..u.int_in_range(0..=8u8)? {
        let end = start.saturating_sub(varint(u)?);
        start = end.saturating_sub(varint(u)?);
        ranges.insert(start..end.max(1));
    }
    let ecn = if u.ratio(1, 3u8)? {
        Some(EcnCounts {
            ect0: varint(u)?,
            ect1: varint(u)?,
            ce: varint(u)?,
        })
    } else {
        None
    };
    let delay = varint(u)?;
    Ack::new(&ranges, delay, ecn).ok_or(arbitrary::Error::IncorrectFormat)
}
