//! [`QpackStreams`]: the two streams of a peer's QPACK (RFC 9204 section 4.2).
//!
//! `h3` 0.0.8 accepts these streams and never reads them, so this module reads them.

use std::task::{Context, Poll};

use h3::error::Code;

use crate::error;
use crate::streams::RecvStream;

/// Stream types (RFC 9204 section 4.2).
const ENCODER: u64 = 0x02;
const DECODER: u64 = 0x03;

/// The end of the connection: its code and reason.
type Fault = (Code, &'static str);

/// The QPACK streams that the peer has opened.
#[derive(Debug, Default)]
pub(crate) struct QpackStreams {
    encoder: Option<RecvStream>,
    decoder: Option<(RecvStream, Cancellations)>,
}

impl QpackStreams {
    /// Takes a QPACK stream, and returns a stream of any other type.
    pub(crate) fn take(
        &mut self,
        kind: u64,
        mut stream: RecvStream,
    ) -> Result<Option<RecvStream>, Fault> {
        if !matches!(kind, ENCODER | DECODER) {
            return Ok(Some(stream));
        }
        stream.skip_kind();
        let is_second = match kind {
            ENCODER => self.encoder.replace(stream).is_some(),
            _ => {
                let decoder = (stream, Cancellations::default());
                self.decoder.replace(decoder).is_some()
            }
        };
        if is_second {
            let code = Code::H3_STREAM_CREATION_ERROR;
            return Err((code, "a second stream of QPACK's encoder or decoder"));
        }
        Ok(None)
    }

    /// Reads all received data.
    pub(crate) fn read(&mut self, cx: &mut Context<'_>) -> Result<(), Fault> {
        if let Some(stream) = &mut self.encoder {
            read(stream, cx, |instructions| {
                // RFC 9204 section 3.2.3: our settings allow no dynamic table, so its capacity can
                // be set to 0 only.
                let is_right = instructions.iter().all(|&byte| byte == 0b0010_0000);
                let code = Code::QPACK_ENCODER_STREAM_ERROR;
                is_right
                    .then_some(())
                    .ok_or((code, "no dynamic table is allowed"))
            })?;
        }
        if let Some((stream, cancellations)) = &mut self.decoder {
            read(stream, cx, |instructions| {
                let code = Code::QPACK_DECODER_STREAM_ERROR;
                let is_right = cancellations.read(instructions);
                is_right
                    .then_some(())
                    .ok_or((code, "there is nothing to acknowledge"))
            })?;
        }
        Ok(())
    }
}

/// Reads everything that has arrived on a stream.
fn read(
    stream: &mut RecvStream,
    cx: &mut Context<'_>,
    mut instructions: impl FnMut(&[u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    while let Poll::Ready(bytes) = stream.poll_bytes(cx) {
        match bytes {
            Ok(Some(bytes)) => instructions(&bytes)?,
            // RFC 9204 section 4.2.
            Ok(None) => return Err((Code::H3_CLOSED_CRITICAL_STREAM, "a stream of QPACK ended")),
            Err(error) if error::is_of_stream(&error) => {
                return Err((
                    Code::H3_CLOSED_CRITICAL_STREAM,
                    "a stream of QPACK was reset",
                ));
            }
            // The connection is over.
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

/// The instructions of a decoder. We send nothing that refers to a dynamic table, so the decoder
/// may only cancel streams (RFC 9204 section 4.4.2).
#[derive(Debug, Default)]
struct Cancellations {
    /// Bytes of a stream ID behind the first byte, if it has not ended.
    continued: Option<u8>,
}

impl Cancellations {
    /// Bytes behind the first byte of a stream ID, which is below 2^62 (RFC 7541 section 5.1).
    const MOST: u8 = 9;

    /// False if the bytes have another instruction, or a number that is not a stream ID.
    fn read(&mut self, instructions: &[u8]) -> bool {
        instructions.iter().all(|&byte| match self.continued {
            None => {
                self.continued = (byte & 0b0011_1111 == 0b0011_1111).then_some(0);
                byte & 0b1100_0000 == 0b0100_0000
            }
            Some(had) => {
                self.continued = (byte & 0b1000_0000 != 0).then_some(had + 1);
                had < Self::MOST
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancellations_of_streams_are_read_in_pieces() {
        let mut cancellations = Cancellations::default();
        // Streams 4, 63, and 2^62 - 4 with the longest form.
        let long = [0x7f, 0xbd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f];
        for byte in [&[0x44, 0x7f, 0x00][..], &long, &[0x40]].concat() {
            assert!(cancellations.read(&[byte]), "{byte:#x}");
        }
        assert!(cancellations.continued.is_none());
    }

    #[test]
    fn a_number_without_an_end_is_refused() {
        let mut cancellations = Cancellations::default();
        let mut bytes = vec![0x7f];
        bytes.extend([0x80; 9]);
        assert!(cancellations.read(&bytes));
        assert!(!cancellations.read(&[0x80]));
    }

    #[test]
    fn acknowledgements_are_refused() {
        // Of a section on stream 0, and of one insertion.
        for instruction in [0b1000_0000, 0b0000_0001] {
            assert!(!Cancellations::default().read(&[instruction]));
        }
    }
}
