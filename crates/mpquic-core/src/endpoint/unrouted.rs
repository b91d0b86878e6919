//! [`UnroutedDatagram`]: a datagram without a connection.

use std::time::Instant;

use bytes::BytesMut;
use quinn_proto::EcnCodepoint;

use crate::event::Datagram;
use crate::ids::{FourTuple, PathId};

/// A datagram whose connection is not known or does not exist yet.
#[derive(Debug)]
pub(super) struct UnroutedDatagram {
    pub(super) four_tuple: FourTuple,
    pub(super) ecn: Option<EcnCodepoint>,
    pub(super) data: BytesMut,
}

impl UnroutedDatagram {
    /// A copy in its own buffer, to release a larger buffer.
    pub(super) fn detached(&self) -> Self {
        Self {
            data: BytesMut::from(&self.data[..]),
            ..*self
        }
    }

    /// The datagram for its connection, which exists now.
    pub(super) fn into_datagram(self, now: Instant) -> Datagram {
        Datagram {
            now,
            four_tuple: self.four_tuple,
            ecn: self.ecn,
            path: PathId::ZERO,
            data: self.data,
        }
    }
}
