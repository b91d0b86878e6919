//! NEW_CONNECTION_ID and the body it shares with PATH_NEW_CONNECTION_ID.

use bytes::{Buf, Bytes};

use super::{NewConnectionId, truncated, varint};
use crate::error::TransportError;
use crate::wire::buf::{Sink, cid, take_array, take_short_bytes};

impl NewConnectionId {
    pub(super) fn decode(buf: &mut Bytes) -> Result<Self, TransportError> {
        let sequence = varint(buf)?;
        let retire_prior_to = varint(buf)?;
        // RFC 9000 section 19.15, MP-104
        if retire_prior_to > sequence {
            return Err(TransportError::frame_encoding(
                "Retire Prior To above the sequence number",
            ));
        }
        let mut rest = buf.as_ref();
        let bytes = match (rest.first(), take_short_bytes(&mut rest)) {
            (None | Some(1..=20), bytes) => bytes.ok_or_else(truncated)?,
            // RFC 9000 section 19.15, MP-104
            (Some(_), _) => {
                return Err(TransportError::frame_encoding(
                    "connection ID of a length not 1 to 20",
                ));
            }
        };
        let id = cid(bytes).ok_or_else(truncated)?;
        buf.advance(1 + id.len());
        Ok(Self {
            sequence,
            retire_prior_to,
            id,
            reset_token: take_array(buf).ok_or_else(truncated)?,
        })
    }

    pub(super) fn write(&self, out: &mut impl Sink) {
        out.varint(self.sequence);
        out.varint(self.retire_prior_to);
        out.short_bytes(&self.id);
        out.bytes(&self.reset_token);
    }
}
