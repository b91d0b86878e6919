//! [`DatagramQueues`]: the queues of RFC 9221.

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;

use super::datagram_sender::{
    DatagramCounts, DatagramOptions, DatagramSender, OVERHEAD, SentDatagram,
};
use super::queue::Owed;
use super::set::StreamSet;
use crate::config::TransportConfig;
use crate::error::{Fault, TransportError};
use crate::ids::PathId;
use crate::packet::writer::FrameWriter;
use crate::sched::DataSelection;
use crate::wire::buf::varint_size;
use crate::wire::transport_parameters::TransportParameters;

/// If unread payloads keep more memory than twice their own size and this many bytes, short
/// payloads are copied out of their UDP datagrams: payloads below half of the datagram.
const CROWDED: usize = 64 << 10;

/// DATAGRAM frames waiting to be sent and to be read. They are neither repeated nor subject to flow
/// control.
#[derive(Debug)]
pub(crate) struct DatagramQueues {
    incoming: Queue,
    outgoing: DatagramSender,
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
    /// Streams have a part beside DATAGRAMs.
    has_floor: bool,
    /// What is owed to streams.
    owed: Owed,
    /// [`Self::sent_bytes`] at the last look.
    seen: u64,
}

/// Payloads, and the memory they take, which is bounded.
#[derive(Debug, Default)]
struct Queue {
    payloads: VecDeque<Payload>,
    cost: usize,
    /// Bytes of the whole datagrams of which payloads are slices.
    pinned: usize,
    bound: usize,
    /// How many of the oldest payloads were copied by [`Self::detach_waiting`].
    detached: usize,
    /// Number of the oldest payloads which were there at the last call of [`Self::detach_waiting`].
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
        let incoming = config.datagram_receive_buffer.unwrap_or(0);
        Self {
            incoming: Queue {
                // There is always room for one payload.
                bound: incoming.saturating_add(OVERHEAD),
                ..Queue::default()
            },
            outgoing: DatagramSender::new(config.datagram_send_buffer),
            limit: config.max_datagram_frame_size(),
            peer_limit: 0,
            refuses: false,
            sender_waits: false,
            size_matters: Cell::new(false),
            has_floor: config.priority_floor,
            owed: Owed::default(),
            seen: 0,
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

    /// True after the first call of [`Self::max_payload`], which every sender makes.
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

    /// Queues a received payload, a slice of a UDP datagram of this size; the oldest payloads are
    /// dropped for lack of room. True if no payload waited before, to wake the reader.
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

    /// Queues a payload whose size the caller has checked with [`Self::max_payload`]. False if the
    /// buffer is full; [`Self::take_unblocked`] then tells when there is room.
    pub(crate) fn send(&mut self, data: Bytes, options: DatagramOptions) -> bool {
        let has_room = self.outgoing.has_room(&data);
        if has_room {
            self.outgoing.push(data, options);
        } else {
            self.sender_waits = true;
        }
        has_room
    }

    /// Bytes of the largest payload that [`Self::send`] has room for.
    pub(crate) fn send_buffer_space(&self) -> usize {
        let queue = &self.outgoing;
        queue.limit.saturating_sub(queue.cost + OVERHEAD)
    }

    /// Waiting bytes of a flow for any path, with 64 bytes more for each DATAGRAM; and the number
    /// of waiting flows, `flow` included.
    pub(crate) fn flow_share(&self, flow: Option<u64>) -> (usize, usize) {
        self.outgoing.turns.share(flow)
    }

    /// True once after room became free for a `send` that had failed.
    pub(crate) fn take_unblocked(&mut self) -> bool {
        let unblocked = self.sender_waits && self.outgoing.cost <= self.outgoing.limit / 2;
        if unblocked {
            self.sender_waits = false;
        }
        unblocked
    }

    /// Writes DATAGRAMs for any path until the packet is full. With `copied`, the scheduler wants
    /// copies.
    pub(crate) fn write_frames(
        &mut self,
        writer: &mut FrameWriter<'_>,
        now: Instant,
        path: PathId,
        copied: bool,
    ) {
        self.outgoing
            .write_frames(writer, now, path, (false, copied));
    }

    /// Writes DATAGRAMs for any path and stream data with at most `max_bytes`: DATAGRAMs first,
    /// unless the streams' part is due.
    #[inline]
    pub(crate) fn write_beside(
        &mut self,
        streams: &mut StreamSet,
        writer: &mut FrameWriter<'_>,
        (now, path): (Instant, PathId),
        max_bytes: usize,
    ) {
        let mut left = max_bytes;
        if self.wants_to_send() {
            if self.has_floor && self.is_turn_of(streams) {
                left -= streams.write_data(writer, &DataSelection::Next, left);
                self.owed.on_served((max_bytes - left) as u64);
            }
            self.write_frames(writer, now, path, false);
        }
        if streams.wants_data() {
            let written = streams.write_data(writer, &DataSelection::Next, left);
            self.owed.on_served(written as u64);
        }
    }

    /// True if streams go ahead of DATAGRAMs. When streams begin to wait, their first packet goes
    /// ahead.
    fn is_turn_of(&mut self, streams: &StreamSet) -> bool {
        let sent = self.sent_bytes();
        let passed = sent - std::mem::replace(&mut self.seen, sent);
        if !streams.wants_data() {
            self.owed = Owed::PACKET;
            return false;
        }
        self.owed.on_passed(passed);
        self.owed.is_due()
    }

    /// Writes payloads that lie behind the first `behind` waiting bytes, until the packet is full.
    pub(crate) fn write_behind(
        &mut self,
        writer: &mut FrameWriter<'_>,
        now: Instant,
        path: PathId,
        behind: u64,
    ) {
        self.outgoing.write_behind(writer, now, path, behind);
    }

    /// Writes DATAGRAMs bound to the path until the packet is full.
    pub(crate) fn write_bound(&mut self, writer: &mut FrameWriter<'_>, now: Instant, path: PathId) {
        self.outgoing.write_frames(writer, now, path, (true, false));
    }

    /// True if a payload for any path waits to be sent.
    #[inline]
    pub(crate) fn wants_to_send(&self) -> bool {
        self.outgoing.has_free()
    }

    /// True if a payload waits, bound to this path or to no path.
    pub(crate) fn waits_for(&self, bound: Option<PathId>) -> bool {
        bound.map_or_else(|| self.wants_to_send(), |path| self.has_bound(path))
    }

    /// Bytes of payloads that any path may carry.
    pub(crate) fn unsent(&self) -> u64 {
        self.outgoing.free_bytes()
    }

    /// True if a payload bound to the path waits.
    pub(crate) fn has_bound(&self, path: PathId) -> bool {
        self.outgoing.has_bound(path)
    }

    /// Paths that payloads are bound to.
    pub(crate) fn bound_paths(&self) -> impl Iterator<Item = PathId> + '_ {
        self.outgoing.bound_paths()
    }

    /// Bytes of payloads sent for the first time.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.outgoing.sent_bytes
    }

    /// True if sent payloads may be copied.
    #[inline]
    pub(crate) fn has_sent(&self) -> bool {
        self.outgoing.has_sent()
    }

    /// Payloads sent since the last call which may be copied.
    pub(crate) fn take_sent(&mut self) -> Vec<SentDatagram> {
        self.outgoing.take_sent()
    }

    /// Queues a copy for another path; false if the path's queue of copies is full.
    pub(crate) fn copy_to(&mut self, path: PathId, original: &SentDatagram) -> bool {
        self.outgoing.push_copy(path, original)
    }

    /// When [`Self::on_timeout`] is to be called.
    #[inline]
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.outgoing.next_timeout()
    }

    /// Drops payloads that were not sent in time.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        self.outgoing.on_timeout(now);
    }

    /// Drops payloads bound to a path that is abandoned.
    pub(crate) fn release(&mut self, path: PathId) {
        self.outgoing.release(path);
    }

    /// Counters of dropped payloads and of copies.
    pub(crate) fn counts(&self) -> DatagramCounts {
        self.outgoing.counts
    }

    /// Drops queued payloads that fit no packet, because the MTU has shrunk: the largest packet has
    /// `room` bytes for frames, those of one path `room_on`. `None` means that there is no path;
    /// payloads wait then.
    pub(crate) fn drop_oversized(
        &mut self,
        room: Option<usize>,
        room_on: impl Fn(PathId) -> usize,
    ) {
        if let Some(room) = room {
            self.outgoing.drop_oversized(room, room_on);
        }
    }
}
