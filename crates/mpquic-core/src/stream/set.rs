//! [`Streams`]: all streams of a connection. It knows no path.

#![allow(clippy::todo, unused_variables, reason = "signatures; bodies follow")]

use std::ops::Range;

use quinn_proto::{Dir, Side, StreamId};

use super::{RecvStream, SendStream, StreamEvent};
use crate::config::TransportConfig;
use crate::error::TransportError;
use crate::packet::delivery::{Delivery, Fate};
use crate::packet::writer::FrameWriter;
use crate::sched::{DataSelection, QueueView, StreamView};
use crate::wire::frame;
use crate::wire::transport_parameters::TransportParameters;

/// All streams of a connection, their flow control, and what of them is sent next.
#[derive(Debug)]
pub(crate) struct Streams {
    side: Side,
}

impl Streams {
    /// No streams, and no credit from the peer until [`Self::set_peer_parameters`].
    pub(crate) fn new(side: Side, config: &TransportConfig) -> Self {
        Self { side }
    }

    /// Takes the peer's limits: the remembered ones for 0-RTT, then those of the handshake. Limits
    /// only rise.
    pub(crate) fn set_peer_parameters(&mut self, parameters: &TransportParameters) {
        todo!()
    }

    /// Forgets everything done in 0-RTT: its streams never existed (RFC 9001 section 4.6.2).
    pub(crate) fn on_zero_rtt_rejected(&mut self) {
        todo!()
    }

    /// Lets receive windows grow to `bytes`, at most to the configured cap (decision D11).
    pub(crate) fn set_receive_window_target(&mut self, bytes: u64) {
        todo!()
    }

    pub(crate) fn on_stream(&mut self, frame: frame::Stream) -> Result<(), TransportError> {
        todo!()
    }

    pub(crate) fn on_reset_stream(
        &mut self,
        frame: &frame::ResetStream,
    ) -> Result<(), TransportError> {
        todo!()
    }

    pub(crate) fn on_stop_sending(
        &mut self,
        frame: &frame::StopSending,
    ) -> Result<(), TransportError> {
        todo!()
    }

    pub(crate) fn on_max_data(&mut self, maximum: u64) {
        todo!()
    }

    pub(crate) fn on_max_stream_data(
        &mut self,
        id: StreamId,
        maximum: u64,
    ) -> Result<(), TransportError> {
        todo!()
    }

    pub(crate) fn on_max_streams(&mut self, dir: Dir, maximum: u64) -> Result<(), TransportError> {
        todo!()
    }

    pub(crate) fn on_data_blocked(&mut self, limit: u64) {
        todo!()
    }

    pub(crate) fn on_stream_data_blocked(
        &mut self,
        id: StreamId,
        limit: u64,
    ) -> Result<(), TransportError> {
        todo!()
    }

    pub(crate) fn on_streams_blocked(
        &mut self,
        dir: Dir,
        limit: u64,
    ) -> Result<(), TransportError> {
        todo!()
    }

    /// Writes MAX_DATA, MAX_STREAM_DATA, MAX_STREAMS, RESET_STREAM, STOP_SENDING and the BLOCKED
    /// frames that are due.
    pub(crate) fn write_control(&mut self, writer: &mut FrameWriter<'_>) {
        todo!()
    }

    /// Writes STREAM frames with at most `max_bytes` of stream data; returns how many bytes of it
    /// were written.
    pub(crate) fn write_data(
        &mut self,
        writer: &mut FrameWriter<'_>,
        selection: &DataSelection,
        max_bytes: usize,
    ) -> usize {
        todo!()
    }

    /// Takes the fate of a frame written here; others are ignored.
    pub(crate) fn on_delivery(&mut self, delivery: Delivery, fate: Fate) {
        todo!()
    }

    /// True if [`Self::write_control`] has something to write.
    pub(crate) fn wants_control(&self) -> bool {
        todo!()
    }

    /// True if stream data or an end of stream waits to be sent, whether or not credit allows it.
    pub(crate) fn wants_data(&self) -> bool {
        todo!()
    }

    /// True if [`Self::write_data`] with `Next` would write something.
    pub(crate) fn can_send_data(&self) -> bool {
        todo!()
    }

    /// The streams' part of the scheduler's view; `control` is the caller's to fill.
    pub(crate) fn queue_view(&self) -> QueueView {
        todo!()
    }

    /// Appends streams with data never sent, most urgent first.
    pub(crate) fn fill_stream_views(&self, views: &mut Vec<StreamView>) {
        todo!()
    }

    /// True if any byte of `offsets` was sent and is not acknowledged yet.
    pub(crate) fn is_unacked(&self, id: StreamId, offsets: Range<u64>) -> bool {
        todo!()
    }

    /// The next event for the application.
    pub(crate) fn poll(&mut self) -> Option<StreamEvent> {
        todo!()
    }

    /// Opens a stream if the peer's limit allows.
    pub(crate) fn open(&mut self, dir: Dir) -> Option<StreamId> {
        todo!()
    }

    /// The next stream the peer opened.
    pub(crate) fn accept(&mut self, dir: Dir) -> Option<StreamId> {
        todo!()
    }

    /// Lends the sending half of a stream.
    pub(crate) fn send_stream(&mut self, id: StreamId) -> SendStream<'_> {
        SendStream { streams: self, id }
    }

    /// Lends the receiving half of a stream.
    pub(crate) fn recv_stream(&mut self, id: StreamId) -> RecvStream<'_> {
        RecvStream { streams: self, id }
    }

    /// Number of halves, sending and receiving, whose state is still held.
    pub(crate) fn open_halves(&self) -> (usize, usize) {
        todo!()
    }

    /// True if no half is open and nothing waits to be sent.
    pub(crate) fn is_idle(&self) -> bool {
        todo!()
    }
}
