//! NEW_CONNECTION_ID, which is also most of PATH_NEW_CONNECTION_ID. RETIRE_CONNECTION_ID is a plain
//! integer.

use bytes::{Buf, Bytes};
use quinn_proto::ConnectionId;

use super::fields::{truncated, varint};
use crate::error::{Fault, TransportError};
use crate::wire::buf::{Sink, cid, take_array, take_short_bytes};

/// NEW_CONNECTION_ID (RFC 9000 section 19.15), or what follows the path ID of
/// PATH_NEW_CONNECTION_ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewConnectionId {
    /// Sequence number within the path ID.
    pub sequence_number: u64,
    /// Connection IDs below this sequence number must be retired.
    pub retire_prior_to: u64,
    /// The connection ID, 1 to 20 bytes.
    pub connection_id: ConnectionId,
    /// Its stateless reset token.
    pub stateless_reset_token: [u8; 16],
}

impl NewConnectionId {
    pub(super) fn decode(buf: &mut Bytes) -> Result<Self, TransportError> {
        let sequence_number = varint(buf)?;
        let retire_prior_to = varint(buf)?;
        // RFC 9000 section 19.15, MP-104
        if retire_prior_to > sequence_number {
            return Err(Fault::RetirePriorToTooLarge.into());
        }
        let mut rest = buf.as_ref();
        let bytes = match (rest.first(), take_short_bytes(&mut rest)) {
            (None | Some(1..=20), bytes) => bytes.ok_or_else(truncated)?,
            // RFC 9000 section 19.15, MP-104
            (Some(_), _) => {
                return Err(Fault::ConnectionIdLength.into());
            }
        };
        let connection_id = cid(bytes).ok_or_else(truncated)?;
        buf.advance(1 + connection_id.len());
        Ok(Self {
            sequence_number,
            retire_prior_to,
            connection_id,
            stateless_reset_token: take_array(buf).ok_or_else(truncated)?,
        })
    }

    pub(super) fn write(&self, out: &mut impl Sink) {
        out.varint(self.sequence_number);
        out.varint(self.retire_prior_to);
        out.short_bytes(&self.connection_id);
        out.bytes(&self.stateless_reset_token);
    }
}
