//! The frames of RFC 10069 that name a path: PATH_ACK, PATH_ABANDON, PATH_STATUS_BACKUP and
//! PATH_STATUS_AVAILABLE, PATH_NEW_CONNECTION_ID, PATH_RETIRE_CONNECTION_ID and PATH_CIDS_BLOCKED.

use bytes::Bytes;

use super::fields::{path_id, varint};
use super::{Ack, NewConnectionId};
use crate::error::{TransportError, TransportErrorCode};
use crate::ids::{self, PathId};
use crate::wire::buf::Sink;

/// PATH_ACK (RFC 10069 section 4.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathAck {
    /// The path whose packets are acknowledged.
    pub path_id: PathId,
    /// The acknowledgement, with all fields of ACK.
    pub ack: Ack,
}

/// PATH_ABANDON (RFC 10069 section 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathAbandon {
    /// The path that is given up.
    pub path_id: PathId,
    /// Why.
    pub error_code: TransportErrorCode,
}

/// PATH_STATUS_BACKUP or PATH_STATUS_AVAILABLE (RFC 10069 section 4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathStatus {
    /// The path.
    pub path_id: PathId,
    /// Which of the two frames it is.
    pub status: ids::PathStatus,
    /// Path Status Sequence Number: shared by both types, rises with each frame of this path.
    pub sequence_number: u64,
}

/// PATH_NEW_CONNECTION_ID (RFC 10069 section 4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathNewConnectionId {
    /// The path the connection ID is for.
    pub path_id: PathId,
    /// All fields of NEW_CONNECTION_ID, within this path.
    pub new_connection_id: NewConnectionId,
}

/// PATH_RETIRE_CONNECTION_ID (RFC 10069 section 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathRetireConnectionId {
    /// The path the connection ID was issued for.
    pub path_id: PathId,
    /// Its sequence number within the path.
    pub sequence_number: u64,
}

/// PATH_CIDS_BLOCKED (RFC 10069 section 4.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathCidsBlocked {
    /// The path that lacks connection IDs.
    pub path_id: PathId,
    /// The sequence number expected of the next one.
    pub next_sequence_number: u64,
}

impl PathAck {
    #[inline]
    pub(super) fn decode(buf: &mut Bytes, has_ecn: bool) -> Result<Self, TransportError> {
        Ok(Self {
            path_id: path_id(buf)?,
            ack: Ack::decode(buf, has_ecn)?,
        })
    }

    pub(super) fn write(&self, out: &mut impl Sink) {
        out.varint(self.path_id.into());
        self.ack.write(out);
    }
}

impl PathAbandon {
    pub(super) fn decode(buf: &mut Bytes) -> Result<Self, TransportError> {
        Ok(Self {
            path_id: path_id(buf)?,
            error_code: TransportErrorCode::from_u64(varint(buf)?),
        })
    }

    pub(super) fn write(&self, out: &mut impl Sink) {
        out.varint(self.path_id.into());
        out.varint(self.error_code.to_u64());
    }
}

impl PathStatus {
    pub(super) fn decode(buf: &mut Bytes, status: ids::PathStatus) -> Result<Self, TransportError> {
        Ok(Self {
            path_id: path_id(buf)?,
            status,
            sequence_number: varint(buf)?,
        })
    }

    pub(super) fn write(&self, out: &mut impl Sink) {
        out.varint(self.path_id.into());
        out.varint(self.sequence_number);
    }
}

impl PathNewConnectionId {
    pub(super) fn decode(buf: &mut Bytes) -> Result<Self, TransportError> {
        Ok(Self {
            path_id: path_id(buf)?,
            new_connection_id: NewConnectionId::decode(buf)?,
        })
    }

    pub(super) fn write(&self, out: &mut impl Sink) {
        out.varint(self.path_id.into());
        self.new_connection_id.write(out);
    }
}

impl PathRetireConnectionId {
    pub(super) fn decode(buf: &mut Bytes) -> Result<Self, TransportError> {
        Ok(Self {
            path_id: path_id(buf)?,
            sequence_number: varint(buf)?,
        })
    }

    pub(super) fn write(&self, out: &mut impl Sink) {
        out.varint(self.path_id.into());
        out.varint(self.sequence_number);
    }
}

impl PathCidsBlocked {
    pub(super) fn decode(buf: &mut Bytes) -> Result<Self, TransportError> {
        Ok(Self {
            path_id: path_id(buf)?,
            next_sequence_number: varint(buf)?,
        })
    }

    pub(super) fn write(&self, out: &mut impl Sink) {
        out.varint(self.path_id.into());
        out.varint(self.next_sequence_number);
    }
}
