//! [`DatagramQueues`]: the queues of RFC 9221.

use std::cell::Cell;
use std::collections::VecDeque;

use bytes::Bytes;

use crate::config::TransportConfig;
use crate::error::{Fault, TransportError};
use crate::packet::delivery::Delivery;
use crate::packet::writer::FrameWriter;
use crate::wire::buf::varint_size;
use crate::wire::frame::{DatagramHeader, FrameKind};
use crate::wire::transport_parameters::TransportParameters;

/// The memory a queued payload takes besides its bytes, in bytes.
const OVERHEAD: usize = 64;

/// If what waits to be read keeps more memory than twice its own size and this many bytes, payloads
/// shorter than half of the UDP datagram they came in are copied, so that they do not keep it alive.
const CROWDED: usize = 64 << 10;

/// DATAGRAM frames waiting to be sent and to be read. They are neither repeated nor subject to flow
/// control.
#[derive(Debug)]
pub(crate) struct DatagramQueues {
    incoming: Queue,
    outgoing: Queue,
    /// The `max_datagram_frame_size` we announced; 0 if we accept none.
    limit: u64,
    /// The peer's `max_datagram_frame_size`.
    peer_limit: u64,
    /// Received payloads are dropped, because the connection keeps too much in memory.
    refuses: bool,
    /// A `send` failed because there was no room.
    sender_waits: bool,
    /// The application asked for the largest size, so it wants to send datagrams.
    size_matters: Cell<bool>,
}

/// Payloads, and the memory they take, which is bounded.
#[derive(Debug, Default)]
struct Queue {
    payloads: VecDeque<Payload>,
    cost: usize,
    /// The same, with the whole datagrams that payloads are slices of.
    pinned: usize,
    bound: usize,
    /// How many of the oldest payloads were copied by [`Self::detach_waiting`].
    detached: usize,
    /// How many of the oldest payloads were there when it was last called.
    waiting: usize,
}

/// A payload, and the bytes that it keeps in memory.
#[derive(Debug)]
struct Payload {
    data: Bytes,
    pinned: usize,
}

impl Queue {
    /// Bytes of memory, without what is kept for reuse.
    fn memory(&self) -> usize {
        self.pinned + (self.payloads.capacity() - self.payloads.len()) * size_of::<Payload>()
    }

    fn has_room(&self, payload: &Bytes) -> bool {
        self.cost + payload.len() + OVERHEAD <= self.bound
    }

    /// Adds a payload that is a slice of a datagram of this size.
    fn push(&mut self, data: Bytes, datagram: usize) {
        let pinned = datagram.max(data.len()) + OVERHEAD;
        self.cost += data.len() + OVERHEAD;
        self.pinned += pinned;
        self.payloads.push_back(Payload { data, pinned });
    }

    fn trim(&mut self) {
        self.payloads.shrink_to_fit();
    }

    fn pop(&mut self) -> Option<Bytes> {
        let Payload { data, pinned } = self.payloads.pop_front()?;
        self.cost -= data.len() + OVERHEAD;
        self.pinned -= pinned;
        self.detached = self.detached.saturating_sub(1);
        self.waiting = self.waiting.saturating_sub(1);
        Some(data)
    }

    fn detach_waiting(&mut self) {
        for payload in self.payloads.range_mut(self.detached..self.waiting) {
            payload.data = Bytes::copy_from_slice(&payload.data);
            let pinned = payload.data.len() + OVERHEAD;
            self.pinned -= std::mem::replace(&mut payload.pinned, pinned) - pinned;
        }
        self.detached = self.waiting;
        self.waiting = self.payloads.len();
    }
}

impl DatagramQueues {
    /// Frees memory that is kept for reuse.
    pub(crate) fn trim(&mut self) {
        self.incoming.trim();
        self.outgoing.trim();
    }

    /// Empty queues with the configured bounds.
    pub(crate) fn new(config: &TransportConfig) -> Self {
        let bounded = |bound: usize| Queue {
            // There is always room for one payload.
            bound: bound.saturating_add(OVERHEAD),
            ..Queue::default()
        };
        Self {
            incoming: bounded(config.datagram_receive_buffer.unwrap_or(0)),
            outgoing: bounded(config.datagram_send_buffer),
            limit: config.max_datagram_frame_size(),
            peer_limit: 0,
            refuses: false,
            sender_waits: false,
            size_matters: Cell::new(false),
        }
    }

    /// Sets the peer's `max_datagram_frame_size`; with 0, it accepts no datagrams.
    pub(crate) fn set_peer_parameters(&mut self, peer: &TransportParameters) {
        self.peer_limit = peer.max_datagram_frame_size;
    }

    /// Largest payload that the peer accepts and that fits a packet with `room` bytes for frames;
    /// `None` if the peer accepts no datagrams.
    pub(crate) fn max_payload(&self, room: usize) -> Option<usize> {
        self.size_matters.set(true);
        // RFC 9221 section 3: the limit counts the frame's type and length as well.
        if self.peer_limit == 0 {
            return None;
        }
        let limit = usize::try_from(self.peer_limit).unwrap_or(usize::MAX);
        let limit = limit.saturating_sub(1 + varint_size(self.peer_limit));
        // A frame alone in its packet needs no length field.
        Some(limit.min(room.saturating_sub(1)))
    }

    /// True once somebody asked for [`Self::max_payload`], as every sender does.
    pub(crate) fn size_matters(&self) -> bool {
        self.size_matters.get()
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        (self.incoming.memory() + self.outgoing.memory()) as u64
    }

    /// From now on, received payloads are dropped or taken.
    pub(crate) fn set_refusing(&mut self, refuses: bool) {
        self.refuses = refuses;
    }

    /// Queues a received payload, a slice of a UDP datagram of this size; if necessary, the oldest
    /// ones are dropped to make room. True if nothing was waiting before, so that the reader must be
    /// told.
    pub(crate) fn on_datagram(
        &mut self,
        data: Bytes,
        datagram: usize,
    ) -> Result<bool, TransportError> {
        // RFC 9221 section 3: a frame has a type besides its payload.
        if data.len() as u64 >= self.limit {
            return Err(Fault::DatagramTooLarge.into());
        }
        if self.refuses {
            return Ok(false);
        }
        let was_empty = self.incoming.payloads.is_empty();
        while !self.incoming.has_room(&data) {
            if self.incoming.pop().is_none() {
                // It is larger than the whole buffer.
                return Ok(false);
            }
        }
        let queue = &mut self.incoming;
        if data.len() < datagram / 2 && queue.pinned > 2 * queue.cost + CROWDED {
            queue.push(Bytes::copy_from_slice(&data), 0);
        } else {
            queue.push(data, datagram);
        }
        Ok(was_empty)
    }

    /// Copies received payloads that have waited since the last call out of the datagrams they came
    /// in.
    pub(crate) fn detach_waiting(&mut self) {
        self.incoming.detach_waiting();
    }

    /// The next received payload.
    pub(crate) fn recv(&mut self) -> Option<Bytes> {
        self.incoming.pop()
    }

    /// Queues a payload whose size the caller has checked with [`Self::max_payload`]. Returns it if
    /// the buffer is full; [`Self::take_unblocked`] then tells when there is room.
    pub(crate) fn send(&mut self, data: Bytes) -> Result<(), Bytes> {
        // A payload larger than the whole buffer is accepted if the buffer is empty.
        if !self.outgoing.has_room(&data) && !self.outgoing.payloads.is_empty() {
            self.sender_waits = true;
            return Err(data);
        }
        self.outgoing.push(data, 0);
        Ok(())
    }

    /// Bytes of the largest payload that [`Self::send`] has room for.
    pub(crate) fn send_buffer_space(&self) -> usize {
        let queue = &self.outgoing;
        queue.bound.saturating_sub(queue.cost + OVERHEAD)
    }

    /// True once after room became free for a `send` that had failed.
    pub(crate) fn take_unblocked(&mut self) -> bool {
        let unblocked = self.sender_waits && self.outgoing.cost <= self.outgoing.bound / 2;
        if unblocked {
            self.sender_waits = false;
        }
        unblocked
    }

    /// Writes as many DATAGRAM frames as fit.
    pub(crate) fn write_frames(&mut self, writer: &mut FrameWriter<'_>) {
        while let Some(Payload { data, .. }) = self.outgoing.payloads.front() {
            let length = data.len();
            let room = writer.remaining();
            let mut header = DatagramHeader {
                length: Some(length as u64),
            };
            if header.size() + length > room {
                // A frame without a length field must be the last one in the packet.
                header.length = None;
                let Some(padding) = room.checked_sub(header.size() + length) else {
                    return;
                };
                let end = writer.buffer().len() + padding;
                writer.buffer().resize(end, 0);
            }
            header.encode(writer.buffer());
            writer.buffer().extend_from_slice(data);
            writer.note(Some(FrameKind::Datagram), Delivery::Datagram, true);
            self.outgoing.pop();
        }
    }

    /// True if a payload waits to be sent.
    pub(crate) fn wants_to_send(&self) -> bool {
        !self.outgoing.payloads.is_empty()
    }

    /// Drops queued payloads that fit no packet, because the MTU has shrunk: the largest packet has
    /// `room` bytes for frames. `None` means that there is no path; payloads wait then.
    pub(crate) fn drop_oversized(&mut self, room: Option<usize>) {
        let Some(room) = room else {
            return;
        };
        let before = self.outgoing.payloads.len();
        let queue = &mut self.outgoing;
        queue.payloads.retain(|payload| payload.data.len() < room);
        queue.cost = (queue.payloads.iter())
            .map(|payload| payload.data.len() + OVERHEAD)
            .sum();
        queue.pinned = queue.payloads.iter().map(|payload| payload.pinned).sum();
        let dropped = before - queue.payloads.len();
        if dropped > 0 {
            tracing::debug!(dropped, "no path carries these datagrams any more");
        }
    }
}
