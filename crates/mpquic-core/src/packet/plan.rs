//! [`Plan`]: what a 1-RTT packet is to contain. [`Begun`]: what it is to follow.

use quinn_proto::EcnCodepoint;

use crate::ids::{FourTuple, PathId};
use crate::sched::DataSelection;

/// The content of the next 1-RTT packet. A new plan is empty; its maker adds due frames.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) path: PathId,
    /// Largest size of the datagram, bytes.
    pub(crate) size: usize,
    pub(crate) ecn: Option<EcnCodepoint>,
    /// Send the packet to these addresses, with PATH_CHALLENGE and PATH_RESPONSE for them.
    pub(crate) validation: Option<FourTuple>,
    /// Only probing frames, so that the packet does not move the path (RFC 9000 section 9.1).
    pub(crate) probing: bool,
    /// Make the packet ack-eliciting, with a PING if necessary.
    pub(crate) ping: bool,
    /// Ask for an immediate acknowledgement, if the peer supports it.
    pub(crate) immediate_ack: bool,
    /// Pad to `size`.
    pub(crate) pad: bool,
    /// Pad to `size` with few bytes missing and more DATAGRAMs waiting, to keep the train going.
    pub(crate) align: bool,
    pub(crate) mtu_probe: bool,
    /// Control frames of connection, paths and streams.
    pub(crate) management: bool,
    /// Acknowledgements for paths that do not carry their own.
    pub(crate) orphan_acks: bool,
    /// Stream data and datagrams.
    pub(crate) data: Option<DataSelection>,
    /// Stream data and DATAGRAMs that the application has bound to the path.
    pub(crate) bound: bool,
    /// The most stream bytes.
    pub(crate) max_data: usize,
    /// The scheduler's tag for the packet.
    pub(crate) tag: u64,
    /// Other paths want copies of what the packet carries.
    pub(crate) copied: bool,
    /// The packet's content was sent before.
    pub(crate) is_repeat: bool,
}

impl Plan {
    /// An empty packet of at most `size` bytes.
    pub(crate) fn new(path: PathId, size: usize) -> Self {
        Self {
            path,
            size,
            ecn: None,
            validation: None,
            probing: false,
            ping: false,
            immediate_ack: false,
            pad: false,
            align: false,
            mtu_probe: false,
            management: false,
            orphan_acks: false,
            data: None,
            bound: false,
            max_data: usize::MAX,
            tag: 0,
            copied: false,
            is_repeat: false,
        }
    }
}

/// A datagram with Initial and Handshake packets, or none, and the 1-RTT packet that is to follow
/// them.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) path: PathId,
    pub(crate) four_tuple: FourTuple,
    pub(crate) follow: Option<Plan>,
}
