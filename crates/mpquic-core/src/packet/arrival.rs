//! A received packet: its arrival, and the results of opening and processing it.

use std::time::Instant;

use quinn_proto::{ConnectionId, EcnCodepoint};

use crate::ids::{FourTuple, PathId, SpaceId};
use crate::version::Version;
use crate::wire::frame::{Frame, PacketType};

/// How a packet arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) now: Instant,
    pub(crate) four_tuple: FourTuple,
    pub(crate) ecn: Option<EcnCodepoint>,
    pub(crate) path: PathId,
    pub(crate) size: usize,
}

/// A summary of the frames of a packet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Content {
    pub(crate) ack_eliciting: bool,
    pub(crate) non_probing: bool,
    /// IMMEDIATE_ACK was among them.
    pub(crate) immediate_ack: bool,
}

impl Content {
    /// Adds a frame.
    #[inline]
    pub(crate) fn add(&mut self, frame: &Frame) {
        self.ack_eliciting |= frame.is_ack_eliciting();
        self.non_probing |= !frame.is_probing();
        self.immediate_ack |= matches!(frame, Frame::ImmediateAck);
    }
}

/// A packet that was opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opened {
    pub(crate) space: SpaceId,
    pub(crate) packet_type: PacketType,
    /// The version in a long header.
    pub(crate) version: Option<Version>,
    pub(crate) packet_number: u64,
    /// The connection ID it was sent to.
    pub(crate) destination: ConnectionId,
    /// Bytes of the packet.
    pub(crate) size: usize,
    /// Number of key updates before the key that opened it.
    pub(crate) generation: u32,
    /// The spin bit of a 1-RTT packet.
    pub(crate) spin: bool,
    /// No 1-RTT packet of the path with a higher number came before.
    pub(crate) is_newest: bool,
}

impl Opened {
    /// True if the addresses it came from mean something: they do in 1-RTT packets.
    pub(crate) fn shows_addresses(&self) -> bool {
        self.packet_type == PacketType::OneRtt
    }
}
