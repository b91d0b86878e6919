//! The peer's frames about streams.

use std::time::{Duration, Instant};

use quinn_proto::{Dir, StreamId, VarInt};

use super::event::StreamEvent;
use super::piece::Source;
use super::set::StreamSet;
use super::table::Half;
use crate::error::{Fault, TransportError};
use crate::wire::frame::{self, MAX_STREAM_COUNT};

impl StreamSet {
    /// STREAM; receive windows grow to what keeps all paths busy. Bytes that were here before do
    /// not count: a peer may repeat them without end, and they need no window.
    pub(crate) fn receive(
        &mut self,
        frame: frame::Stream,
        datagram: usize,
        now: Instant,
        largest_rtt: impl FnOnce() -> Duration,
    ) -> Result<(), TransportError> {
        let before = self.held.bytes;
        let length = frame.data.len() as u64;
        self.on_stream(frame, datagram)?;
        let bytes = self.held.bytes.saturating_sub(before);
        self.received_again += length.saturating_sub(bytes);
        if let Some(target) = self.receive_windows.on_bytes(bytes, now, largest_rtt) {
            self.set_receive_window_target(target);
        }
        Ok(())
    }

    /// STREAM; the frame's data is a slice of a datagram of `datagram` bytes.
    pub(crate) fn on_stream(
        &mut self,
        frame: frame::Stream,
        datagram: usize,
    ) -> Result<(), TransportError> {
        let frame::Stream {
            stream_id: id,
            offset,
            fin,
            data,
        } = frame;
        let Some(key) = self.receiving(id)? else {
            return Ok(());
        };
        let source = Source {
            datagram: u32::try_from(datagram).unwrap_or(u32::MAX),
            gather: self.held.is_crowded(),
        };
        let Some(recv) = self.recvs.get_mut(key as usize) else {
            return Ok(());
        };
        let end = offset + data.len() as u64;
        recv.on_offset(end, fin, &mut self.receive_windows.credit)?;
        let before = recv.footprint();
        recv.on_data(offset, data, source);
        let after = recv.footprint();
        let readable = recv.take_readable();
        let changes = fin || !recv.is_open();
        self.count_held(before, after);
        if self.held.has_too_many_gaps() {
            return Err(Fault::TooManyGaps.into());
        }
        if readable {
            self.push_event(StreamEvent::Readable { id });
        }
        if changes {
            self.update_recv(key);
        }
        Ok(())
    }

    /// RESET_STREAM.
    pub(crate) fn on_reset_stream(
        &mut self,
        frame: &frame::ResetStream,
        now: Instant,
    ) -> Result<(), TransportError> {
        let frame = frame::ResetStreamAt {
            stream_id: frame.stream_id,
            error_code: frame.error_code,
            final_size: frame.final_size,
            reliable_size: 0,
        };
        self.on_reset(&frame, now)
    }

    /// RESET_STREAM_AT; with a reliable size of 0, it means the same as RESET_STREAM.
    pub(crate) fn on_reset_stream_at(
        &mut self,
        frame: &frame::ResetStreamAt,
        now: Instant,
    ) -> Result<(), TransportError> {
        // RFC 9000 section 12.4: a type that was not negotiated is unknown.
        if !self.takes_reset_at {
            return Err(Fault::ResetStreamAtNotNegotiated.into());
        }
        self.on_reset(frame, now)
    }

    /// A stream was reset; it delivers its first `reliable_size` bytes all the same.
    fn on_reset(
        &mut self,
        frame: &frame::ResetStreamAt,
        now: Instant,
    ) -> Result<(), TransportError> {
        let Some(key) = self.receiving(frame.stream_id)? else {
            return Ok(());
        };
        self.counts.on_reset(now)?;
        let Some(recv) = self.recvs.get_mut(key as usize) else {
            return Ok(());
        };
        let before = recv.footprint();
        let error_code = application_code(frame.error_code);
        let (final_size, reliable_size) = (frame.final_size, frame.reliable_size);
        recv.on_reset(
            error_code,
            final_size,
            reliable_size,
            &mut self.receive_windows.credit,
        )?;
        let after = recv.footprint();
        let readable = recv.take_readable();
        self.count_held(before, after);
        if readable {
            self.push_event(StreamEvent::Readable {
                id: frame.stream_id,
            });
        }
        self.update_recv(key);
        Ok(())
    }

    /// STOP_SENDING.
    pub(crate) fn on_stop_sending(
        &mut self,
        frame: &frame::StopSending,
    ) -> Result<(), TransportError> {
        let Some(key) = self.sending(frame.stream_id)? else {
            return Ok(());
        };
        let error_code = application_code(frame.error_code);
        if let Some(send) = self.sends.get_mut(key as usize) {
            self.writers.remove(key, send);
            if send.on_stop_sending(error_code) {
                let id = frame.stream_id;
                self.push_event(StreamEvent::Stopped { id, error_code });
            }
            self.update_send(key);
            self.wake_writers();
        }
        Ok(())
    }

    /// MAX_DATA.
    pub(crate) fn on_max_data(&mut self, maximum: u64) {
        self.send_credit.raise(maximum);
    }

    /// MAX_STREAM_DATA.
    pub(crate) fn on_max_stream_data(
        &mut self,
        frame: &frame::MaxStreamData,
    ) -> Result<(), TransportError> {
        if let Some(key) = self.sending(frame.stream_id)? {
            self.raise_stream_limit(key, frame.maximum_stream_data);
        }
        Ok(())
    }

    pub(super) fn raise_stream_limit(&mut self, key: u32, maximum: u64) {
        let Some(send) = self.sends.get_mut(key as usize) else {
            return;
        };
        if !send.credit.raise(maximum) {
            return;
        }
        if std::mem::take(&mut send.writer_waits) {
            let id = send.id;
            if self.writers.room(&self.backlogs.all, send) > 0 {
                self.push_event(StreamEvent::Writable { id });
            } else {
                self.writers.block(key, send);
            }
        }
        self.update_send(key);
    }

    /// MAX_STREAMS.
    pub(crate) fn on_max_streams(
        &mut self,
        frame: &frame::MaxStreams,
    ) -> Result<(), TransportError> {
        // RFC 9000 section 19.11
        if frame.maximum_streams > MAX_STREAM_COUNT {
            return Err(Fault::StreamCountTooLarge.into());
        }
        self.raise_stream_count(frame.dir, frame.maximum_streams);
        Ok(())
    }

    pub(super) fn raise_stream_count(&mut self, dir: Dir, maximum: u64) {
        if self.counts.raise(dir, maximum) {
            self.push_event(StreamEvent::Available { dir });
        }
    }

    /// DATA_BLOCKED.
    pub(crate) fn on_data_blocked(&mut self) {
        self.receive_windows.credit.on_peer_blocked();
    }

    /// STREAM_DATA_BLOCKED. The stream's window grows at once if the application waits for missing
    /// bytes; if the peer waits for the application, the window grows with the next read.
    pub(crate) fn on_stream_data_blocked(
        &mut self,
        frame: &frame::StreamDataBlocked,
    ) -> Result<(), TransportError> {
        let window = self.receive_windows.stream();
        if let Some(key) = self.receiving(frame.stream_id)?
            && let Some(recv) = self.recvs.get_mut(key as usize)
        {
            if recv.is_waited_for() {
                recv.credit.grow(window);
            }
            recv.credit.on_peer_blocked();
            self.update_recv(key);
        }
        Ok(())
    }

    /// STREAMS_BLOCKED.
    pub(crate) fn on_streams_blocked(
        &mut self,
        frame: &frame::StreamsBlocked,
    ) -> Result<(), TransportError> {
        self.counts.on_peer_blocked(frame)
    }

    /// The receiving half for a frame; `None` for a closed half and its outdated frames.
    fn receiving(&mut self, id: StreamId) -> Result<Option<u32>, TransportError> {
        // RFC 9000 sections 19.4, 19.8 and 19.13
        if self.tables.is_local(id) && id.dir() == Dir::Uni {
            return Err(Fault::SendOnlyStream.into());
        }
        self.ensure_open(id)?;
        let half = self.tables.halves(id).recv;
        if half == Half::UNUSED {
            self.make_room(1)?;
            return Ok(self.use_recv(id));
        }
        Ok(half.key())
    }

    /// The sending half for a frame; `None` for a closed half.
    fn sending(&mut self, id: StreamId) -> Result<Option<u32>, TransportError> {
        // RFC 9000 sections 19.5 and 19.10
        if !self.tables.is_local(id) && id.dir() == Dir::Uni {
            return Err(Fault::ReceiveOnlyStream.into());
        }
        self.ensure_open(id)?;
        let half = self.tables.halves(id).send;
        if half == Half::UNUSED {
            self.make_room(1)?;
            return Ok(self.use_send(id));
        }
        Ok(half.key())
    }

    /// Opens a stream of the peer that a frame names. Streams of our own must be open already.
    fn ensure_open(&mut self, id: StreamId) -> Result<(), TransportError> {
        if self.tables.was_opened(id) {
            return Ok(());
        }
        if self.tables.is_local(id) {
            return Err(Fault::StreamNotOpened.into());
        }
        let streams = self.counts.on_opened(id.dir(), id.index())?;
        self.make_room(streams)?;
        self.open_peer_streams(id.dir(), id.index());
        Ok(())
    }
}

/// An application's error code from a variable-length integer, so the value fits.
fn application_code(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(VarInt::MAX)
}
