//! [`CryptoStream`]: the handshake bytes of one encryption level.

use bytes::Bytes;

use super::assembler::Assembler;
use super::piece::Source;
use super::send_buffer::SendBuffer;
use crate::error::{Fault, TransportError};
use crate::packet::delivery::{CryptoDelivery, Fate};
use crate::packet::writer::FrameWriter;
use crate::wire::buf::varint_size;
use crate::wire::frame::{Crypto, CryptoHeader, FrameKind};

/// How many gaps received data may have. A handshake message of 64 KiB in full datagrams leaves at
/// most 30; clients that deliberately cut a ClientHello into small pieces leave some tens.
const MAX_GAPS: usize = 256;

/// CRYPTO of one encryption level, both directions. It has no end and no flow control.
#[derive(Debug, Default)]
pub(crate) struct CryptoStream {
    assembler: Assembler,
    buffer: SendBuffer,
}

impl CryptoStream {
    /// CRYPTO. The frame may end at most `limit` bytes beyond the read bytes. Anybody can send
    /// CRYPTO frames before proving an address, so waiting bytes are copied and keep no datagram in
    /// memory.
    pub(crate) fn on_crypto(&mut self, frame: Crypto, limit: usize) -> Result<(), TransportError> {
        let end = frame.offset.saturating_add(frame.data.len() as u64);
        // RFC 9000 section 7.5
        if end > self.assembler.offset().saturating_add(limit as u64) {
            return Err(Fault::CryptoBeyondBuffer.into());
        }
        let mut data = frame.data;
        if frame.offset > self.assembler.offset() {
            data = Bytes::copy_from_slice(&data);
        }
        let source = Source {
            datagram: data.len() as u32,
            gather: true,
        };
        self.assembler.insert(frame.offset, data, source);
        // RFC 9000 section 7.5
        if self.assembler.runs() > MAX_GAPS {
            return Err(Fault::CryptoGaps.into());
        }
        Ok(())
    }

    /// True for a frame with bytes beyond the read ones.
    pub(crate) fn extends(&self, frame: &Crypto) -> bool {
        frame.offset.saturating_add(frame.data.len() as u64) > self.assembler.offset()
    }

    /// The next bytes in order.
    pub(crate) fn read(&mut self) -> Option<Bytes> {
        Some(self.assembler.read(usize::MAX)?.bytes)
    }

    /// Bytes received that wait for a gap to be filled, or to be read. None must be left when the
    /// level's keys change (RFC 9001 section 4.1.3).
    pub(crate) fn unread(&self) -> u64 {
        self.assembler.unread()
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        self.assembler.memory() + self.buffer.memory()
    }

    /// Frees memory that is kept for reuse.
    pub(crate) fn trim(&mut self) {
        self.assembler.trim();
        self.buffer.trim();
    }

    /// Queues bytes to send.
    pub(crate) fn write(&mut self, data: Bytes) {
        self.buffer.write_chunk(data);
    }

    /// Writes CRYPTO frames, lost bytes first.
    pub(crate) fn write_frames(&mut self, writer: &mut FrameWriter<'_>) {
        while let Some(mut range) = self.next() {
            let mut header = CryptoHeader {
                offset: range.start,
                length: range.end - range.start,
            };
            let Some(room) = (writer.remaining())
                .checked_sub(1 + varint_size(header.offset) + varint_size(header.length))
                .filter(|&room| room > 0)
            else {
                return;
            };
            header.length = header.length.min(room as u64);
            range.end = range.start + header.length;
            let Ok(length) = u32::try_from(header.length) else {
                return;
            };
            header.encode(writer.buffer());
            self.buffer.copy_to(range.clone(), writer.buffer());
            let offset = range.start;
            let delivery = CryptoDelivery { offset, length }.into();
            writer.note(Some(FrameKind::Crypto), delivery, true);
            self.buffer.on_sent(range);
        }
    }

    fn next(&self) -> Option<std::ops::Range<u64>> {
        self.buffer.next_resend().or_else(|| self.buffer.next_new())
    }

    /// A frame of this level was acknowledged or lost.
    pub(crate) fn on_delivery(&mut self, delivery: CryptoDelivery, fate: Fate) {
        let CryptoDelivery { offset, length } = delivery;
        let offsets = offset..offset + u64::from(length);
        match fate {
            Fate::Acked => self.buffer.on_acked(offsets),
            Fate::Lost => self.buffer.on_lost(offsets),
        }
    }

    /// True if bytes wait to be sent.
    pub(crate) fn wants_to_send(&self) -> bool {
        self.buffer.wants_to_send()
    }

    /// Bytes that wait to be sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.buffer.unsent() + self.buffer.lost()
    }

    /// True if bytes are not acknowledged yet, sent or not.
    pub(crate) fn is_unacked(&self) -> bool {
        self.buffer.buffered() > 0
    }

    /// Queues all unacknowledged bytes again: after a Retry, or for a probe.
    pub(crate) fn resend(&mut self) {
        self.buffer.on_lost(0..self.buffer.sent());
    }
}
