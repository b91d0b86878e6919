//! What is known of a packet that arrived.

use std::time::Instant;

use quinn_proto::{ConnectionId, EcnCodepoint};

use crate::ids::{FourTuple, PathId, SpaceId};
use crate::version::Version;
use crate::wire::frame::PacketType;

/// Where a packet came from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) now: Instant,
    pub(crate) four_tuple: FourTuple,
    pub(crate) ecn: Option<EcnCodepoint>,
    pub(crate) path: PathId,
    pub(crate) size: usize,
}

/// A packet that was opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opened {
    pub(crate) space: SpaceId,
    pub(crate) packet_type: PacketType,
    /// Of a long header.
    pub(crate) version: Option<Version>,
    pub(crate) packet_number: u64,
    /// The connection ID it was sent to.
    pub(crate) destination: ConnectionId,
    /// Bytes of the packet.
    pub(crate) size: usize,
    /// Key updates before the key that opened it.
    pub(crate) generation: u32,
    /// The spin bit of a 1-RTT packet.
    pub(crate) spin: bool,
}
