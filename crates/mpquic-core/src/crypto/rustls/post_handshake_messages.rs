//! [`PostHandshakeMessages`]: checks for messages after the handshake that TLS allows but QUIC
//! forbids.

use crate::error::{Fault, TransportError};

/// The longest message that is checked, in bytes without its header. rustls refuses longer
/// messages.
const MAX_MESSAGE: usize = 0xffff;
/// Bytes of type and length.
const HEADER: usize = 4;
const NEW_SESSION_TICKET: u8 = 4;
const CERTIFICATE_REQUEST: u8 = 13;
/// The extension early_data (RFC 8446 section 4.2.10).
const EARLY_DATA: [u8; 2] = [0, 42];

/// Checks each message that a client receives after the handshake.
#[derive(Debug, Default)]
pub(super) struct PostHandshakeMessages {
    /// The beginning of a message whose end has not arrived.
    partial: Vec<u8>,
}

impl PostHandshakeMessages {
    /// Takes the next bytes.
    pub(super) fn check(&mut self, data: &[u8]) -> Result<(), TransportError> {
        self.partial.extend_from_slice(data);
        while let Some(&[kind, a, b, c]) = self.partial.first_chunk::<HEADER>() {
            // RFC 9001 section 4.4
            if kind == CERTIFICATE_REQUEST {
                return Err(Fault::LateCertificateRequest.into());
            }
            let end = HEADER + u32::from_be_bytes([0, a, b, c]) as usize;
            if end > MAX_MESSAGE {
                self.partial = Vec::new();
                return Ok(());
            }
            let Some(message) = self.partial.get(HEADER..end) else {
                return Ok(());
            };
            // RFC 9001 section 4.6.1
            if kind == NEW_SESSION_TICKET
                && max_early_data(message).is_some_and(|it| it != u32::MAX)
            {
                return Err(Fault::TicketLimitsEarlyData.into());
            }
            self.partial.drain(..end);
        }
        self.partial.shrink_to_fit();
        Ok(())
    }
}

/// The `max_early_data_size` of a ticket (RFC 8446 section 4.6.1), if present.
fn max_early_data(ticket: &[u8]) -> Option<u32> {
    // Lifetime and age_add come first.
    let (_, rest) = ticket.split_at_checked(8)?;
    let (_nonce, rest) = split_short(rest)?;
    let (_ticket, rest) = split_long(rest)?;
    let (mut extensions, _) = split_long(rest)?;
    while let Some((kind, rest)) = extensions.split_first_chunk::<2>() {
        let (data, rest) = split_long(rest)?;
        if *kind == EARLY_DATA {
            return Some(u32::from_be_bytes(data.try_into().ok()?));
        }
        extensions = rest;
    }
    None
}

/// Splits off a field that begins with its length in one byte.
fn split_short(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = data.split_first()?;
    rest.split_at_checked((*length).into())
}

/// Splits off a field that begins with its length in two bytes.
fn split_long(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = data.split_first_chunk::<2>()?;
    rest.split_at_checked(u16::from_be_bytes(*length).into())
}
