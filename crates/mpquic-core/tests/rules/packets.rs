//! Packets on the table: sent, received and forged ones.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use mpquic_core::unstable_wire::RangeSet;
use mpquic_core::unstable_wire::frame::{Ack, Frame, FrameIter, PathAck};
use mpquic_core::unstable_wire::header::{Header, next_packet};
use mpquic_core::{ConnectionId, EcnCodepoint, PathId, Side, Version};

pub(super) const CID_LENGTH: usize = 8;
pub(super) const TAG_LENGTH: usize = 16;

/// A datagram in flight.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) from: Side,
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) ecn: Option<EcnCodepoint>,
    pub(crate) data: BytesMut,
    /// Bytes of the connection ID in short headers.
    pub(crate) cid_length: usize,
}

/// A packet of a datagram, in the receiver's eyes.
#[derive(Debug, Clone)]
pub(crate) struct Packet {
    pub(crate) header: Header,
    pub(crate) first: u8,
    /// Key, path and packet number of the tag.
    pub(crate) key: u32,
    pub(crate) path: PathId,
    pub(crate) number: u64,
    pub(crate) frames: Vec<Frame>,
}

impl Packet {
    pub(crate) fn is_one_rtt(&self) -> bool {
        matches!(self.header, Header::Short { .. })
    }

    pub(crate) fn is_initial(&self) -> bool {
        matches!(self.header, Header::Initial { .. })
    }

    pub(crate) fn is_handshake(&self) -> bool {
        matches!(self.header, Header::Handshake { .. })
    }

    pub(crate) fn has(&self, wanted: impl Fn(&Frame) -> bool) -> bool {
        self.frames.iter().any(wanted)
    }
}

impl Sent {
    pub(crate) fn packets(&self) -> Vec<Packet> {
        let mut rest = self.data.clone();
        let mut packets = Vec::new();
        while !rest.is_empty() {
            let packet = next_packet(&mut rest, self.cid_length).expect("well-formed");
            packets.push(read(
                packet.header,
                packet.packet_number_offset,
                &packet.data,
            ));
        }
        packets
    }

    pub(crate) fn frames(&self) -> Vec<Frame> {
        let packets = self.packets().into_iter();
        packets.flat_map(|packet| packet.frames).collect()
    }

    pub(crate) fn has(&self, wanted: impl Fn(&Frame) -> bool) -> bool {
        self.frames().iter().any(wanted)
    }

    /// What the receiving endpoint answers to it.
    pub(crate) fn answered(&self, data: BytesMut) -> Self {
        Self {
            from: !self.from,
            source: self.destination,
            destination: self.source,
            ecn: None,
            data,
            cid_length: CID_LENGTH,
        }
    }

    /// The path of its 1-RTT packet.
    pub(crate) fn path(&self) -> Option<PathId> {
        let mut packets = self.packets().into_iter();
        packets.find(Packet::is_one_rtt).map(|packet| packet.path)
    }
}

fn read(header: Header, number_offset: usize, data: &[u8]) -> Packet {
    let first = data[0];
    let mut packet = Packet {
        header,
        first,
        key: 0,
        path: PathId::ZERO,
        number: 0,
        frames: Vec::new(),
    };
    if let Header::Retry { .. } | Header::VersionNegotiation { .. } = packet.header {
        return packet;
    }
    let (body, tag) = data.split_at(data.len() - TAG_LENGTH);
    let word = |at: usize| u32::from_be_bytes(tag[at..at + 4].try_into().expect("four bytes"));
    packet.key = word(0);
    packet.path = PathId(word(4));
    packet.number = u64::from(word(8)) << 32 | u64::from(word(12));
    let payload = number_offset + usize::from(first & 3) + 1;
    packet.frames = FrameIter::new(Bytes::copy_from_slice(&body[payload..]), true)
        .collect::<Result<_, _>>()
        .expect("frames");
    packet
}

/// PATH_ACK of these packet numbers of a path.
pub(crate) fn path_ack(path: PathId, numbers: std::ops::Range<u64>) -> Frame {
    let received: RangeSet = std::iter::once(numbers).collect();
    let ack = Ack::new(&received, 0, None).expect("numbers");
    Frame::PathAck(PathAck { path_id: path, ack })
}

/// The type of a forged packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Initial,
    Handshake,
    OneRtt(PathId),
}

/// A packet to forge, in one side's name.
#[derive(Debug, Clone)]
pub(crate) struct Forgery {
    pub(crate) from: Side,
    pub(crate) kind: Kind,
    pub(crate) number: u64,
    pub(crate) frames: Vec<u8>,
    pub(crate) token: Bytes,
    /// Instead of those the side uses.
    pub(crate) dcid: Option<ConnectionId>,
    pub(crate) scid: Option<ConnectionId>,
    /// The source of the keys of an Initial, other than the connection's.
    pub(crate) initial_dcid: Option<ConnectionId>,
    /// Smallest size of the datagram.
    pub(crate) size: usize,
    /// Key updates since the handshake.
    pub(crate) generation: u32,
    /// Of the header and the keys.
    pub(crate) version: Version,
}

impl Forgery {
    pub(crate) fn new(from: Side, kind: Kind, number: u64, frames: &[Frame]) -> Self {
        let mut bytes = Vec::new();
        for frame in frames {
            frame.encode(&mut bytes);
        }
        Self {
            from,
            kind,
            number,
            frames: bytes,
            token: Bytes::new(),
            dcid: None,
            scid: None,
            initial_dcid: None,
            size: if kind == Kind::Initial { 1200 } else { 0 },
            generation: 0,
            version: Version::V1,
        }
    }
}
