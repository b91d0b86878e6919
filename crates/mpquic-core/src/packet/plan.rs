//! [`Plan`]: what a 1-RTT packet is to contain.

use quinn_proto::EcnCodepoint;

use crate::ids::{FourTuple, PathId};
use crate::sched::DataSelection;

/// What a 1-RTT packet is to contain. A new one is empty; whoever makes it adds what is due.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) path: PathId,
    /// Largest size of the datagram, bytes.
    pub(crate) size: usize,
    pub(crate) ecn: Option<EcnCodepoint>,
    /// PATH_CHALLENGE and PATH_RESPONSE for these addresses, to which the packet goes.
    pub(crate) validation: Option<FourTuple>,
    /// Nothing but probing frames: the packet must not move the path (RFC 9000 section 9.1).
    pub(crate) probing: bool,
    /// Make the packet ack-eliciting, by a PING if need be.
    pub(crate) ping: bool,
    /// Ask for an acknowledgement at once, if the peer can be asked.
    pub(crate) immediate_ack: bool,
    /// Expand to `size`.
    pub(crate) pad: bool,
    /// Expand to `size` if little is missing and more DATAGRAMs wait: the train goes on.
    pub(crate) align: bool,
    pub(crate) mtu_probe: bool,
    /// Frames of connection, paths and stream limits.
    pub(crate) management: bool,
    /// Acknowledge for paths that cannot do so themselves.
    pub(crate) orphan_acks: bool,
    /// Stream data and datagrams.
    pub(crate) data: Option<DataSelection>,
    /// Stream bytes at most.
    pub(crate) max_data: usize,
    /// The scheduler's mark on the packet.
    pub(crate) tag: u64,
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
            max_data: usize::MAX,
            tag: 0,
        }
    }
}
