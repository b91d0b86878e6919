//! [`StreamSet`]: all streams of a connection. It knows nothing of paths.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

use quinn_proto::{Dir, Side, StreamId};
use slab::Slab;

use super::event::StreamEvent;
use super::flow::{ReceiveCredit, SendCredit};
use super::queue::{Rank, StreamQueue};
use super::ready::{Ready, ReadyQueues};
use super::recv::{BYTES_PER_GAP, Held, RecvHalf};
use super::send::{Backlog, SendHalf};
use super::table::{Half, Halves, StreamTable};
use super::window_target::WindowTarget;
use crate::config::{MAX_CONCURRENT_STREAMS, TransportConfig};
use crate::memory::MemoryBudget;
use crate::rate::TokenBucket;
use crate::sched::{QueueView, SchedulerEvent, StreamView};
use crate::wire::transport_parameters::TransportParameters;

/// The most streams that a scheduler sees.
const MAX_STREAM_VIEWS: usize = 64;

/// If received data keeps more memory than twice its own size and this many bytes, short pieces are
/// copied together.
const CROWDED: u64 = 1 << 20;

/// Gaps that may be open in received data however little of it there is. Each costs up to 48 bytes, with a
/// piece of more than 14 bytes about 100 more.
const MIN_GAPS: usize = 4096;

/// How many streams the peer may reset at once, and how long until it may reset one more. An
/// application that answers requests does much for a stream that is reset at once, and its peer next
/// to nothing; one that drops what is late resets some hundred streams a second.
const MAX_RESETS: u32 = 10_000;
const RESET_INTERVAL: Duration = Duration::from_millis(1);

/// Blocked writers are woken when one part in this many of the send window is free.
const WAKE_SHARE: u64 = 8;

/// If nothing is left to send, writers are woken when this many bytes are free.
const WAKE_IDLE: u64 = 16 << 10;

/// The send window at the start, bytes, if no smaller limit is configured.
const INITIAL_SEND_WINDOW: u64 = 4 << 20;

/// All streams of a connection, their flow control, and what of them is sent next.
#[derive(Debug)]
pub(crate) struct StreamSet {
    side: Side,
    pub(super) sends: Slab<SendHalf>,
    pub(super) recvs: Slab<RecvHalf>,
    /// By initiator (ours first) and direction.
    pub(super) tables: [[StreamTable; 2]; 2],
    /// Halves with something to send.
    pub(super) ready: ReadyQueues,
    /// Halves with control frames to send.
    pub(super) send_control: StreamQueue,
    pub(super) recv_control: StreamQueue,
    /// Halves whose writers wait for room in the send window; those that would be sent first are told first.
    pub(super) blocked_writers: StreamQueue,
    /// The peer's MAX_DATA; sent bytes use it.
    pub(super) send_credit: SendCredit,
    /// Our MAX_DATA.
    pub(super) recv_credit: ReceiveCredit,
    /// The peer's MAX_STREAMS, by direction.
    pub(super) open_credit: [SendCredit; 2],
    /// Our MAX_STREAMS, by direction.
    pub(super) accept_credit: [ReceiveCredit; 2],
    /// Index of the next stream to accept, by direction.
    next_accept: [u64; 2],
    /// Initial limits of our streams, by direction, and of those the peer opens.
    initial_local: [u64; 2],
    initial_peer: u64,
    /// The peer announced support for RESET_STREAM_AT.
    pub(super) peer_takes_reset_at: bool,
    /// We announced support for RESET_STREAM_AT.
    pub(super) takes_reset_at: bool,
    /// What all sending halves hold.
    pub(super) total: Backlog,
    /// What those hold that are bound to paths.
    bound: Backlog,
    /// Halves of which everything is to be sent twice.
    pub(super) redundant: usize,
    /// What has to be over by when.
    pub(super) deadlines: BTreeSet<(Instant, StreamId)>,
    /// Streams that were reset at their deadline.
    pub(crate) expired: u64,
    /// Bytes that may be written before the first is acknowledged.
    pub(super) send_window: u64,
    max_send_window: u64,
    send_target: WindowTarget,
    /// Stream bytes acknowledged since the target was last adapted.
    pub(super) acked: u64,
    /// What all receiving halves hold.
    pub(super) held: Held,
    /// Bytes received that had arrived before, or whose stream was over.
    pub(crate) received_again: u64,
    initial_stream_window: u64,
    /// Receive window of a stream now.
    pub(super) stream_window: u64,
    max_stream_window: u64,
    pub(super) max_window: u64,
    pub(super) receive_window: WindowTarget,
    /// Streams that the peer may still reset.
    pub(super) resets: TokenBucket,
    pub(super) budget: MemoryBudget,
    /// Bytes that DATAGRAMs may take, in both directions.
    pub(super) datagram_buffers: u64,
    pub(super) events: VecDeque<StreamEvent>,
    /// Events that the scheduler was not told of yet.
    pub(super) news: Vec<SchedulerEvent>,
    /// The peer opened streams that the application was not told of yet, by direction.
    opened: [bool; 2],
}

/// A direction's place in the arrays above.
pub(super) fn slot(dir: Dir) -> usize {
    dir as usize
}

impl StreamSet {
    /// No streams, and no credit from the peer until [`Self::set_peer_parameters`].
    pub(crate) fn new(side: Side, config: &TransportConfig, now: Instant) -> Self {
        Self {
            side,
            sends: Slab::new(),
            recvs: Slab::new(),
            tables: Default::default(),
            ready: ReadyQueues::default(),
            send_control: StreamQueue::default(),
            recv_control: StreamQueue::default(),
            blocked_writers: StreamQueue::default(),
            send_credit: SendCredit::default(),
            recv_credit: ReceiveCredit::new(config.initial_receive_window),
            open_credit: Default::default(),
            accept_credit: [
                ReceiveCredit::new(config.max_concurrent_bidi_streams),
                ReceiveCredit::new(config.max_concurrent_uni_streams),
            ],
            next_accept: [0; 2],
            initial_local: [0; 2],
            initial_peer: 0,
            peer_takes_reset_at: false,
            takes_reset_at: config.reset_stream_at,
            total: Backlog::default(),
            bound: Backlog::default(),
            redundant: 0,
            deadlines: BTreeSet::new(),
            expired: 0,
            send_window: config.send_window.min(INITIAL_SEND_WINDOW),
            max_send_window: config.send_window,
            send_target: WindowTarget::new(now),
            acked: 0,
            held: Held::default(),
            received_again: 0,
            initial_stream_window: config.initial_stream_receive_window,
            stream_window: config.initial_stream_receive_window,
            max_stream_window: config.max_stream_receive_window.unwrap_or(u64::MAX),
            max_window: config.max_receive_window,
            receive_window: WindowTarget::new(now),
            resets: TokenBucket::new(MAX_RESETS, RESET_INTERVAL),
            budget: MemoryBudget::new(config.memory_limit),
            datagram_buffers: (config.datagram_receive_buffer.unwrap_or(0))
                .saturating_add(config.datagram_send_buffer) as u64,
            events: VecDeque::new(),
            news: Vec::new(),
            opened: [false; 2],
        }
    }

    /// Sets the peer's limits: the remembered ones for 0-RTT, then those of the handshake. Limits
    /// only rise.
    pub(crate) fn set_peer_parameters(&mut self, parameters: &TransportParameters) {
        self.initial_local = [
            parameters.initial_max_stream_data_bidi_remote,
            parameters.initial_max_stream_data_uni,
        ];
        self.initial_peer = parameters.initial_max_stream_data_bidi_local;
        self.peer_takes_reset_at = parameters.reset_stream_at;
        self.on_max_data(parameters.initial_max_data);
        self.raise_stream_count(Dir::Bi, parameters.initial_max_streams_bidi);
        self.raise_stream_count(Dir::Uni, parameters.initial_max_streams_uni);
        let keys: Vec<(u32, StreamId)> = (self.sends.iter())
            .map(|(key, send)| (key as u32, send.id))
            .collect();
        for (key, id) in keys {
            self.raise_stream_limit(key, self.initial_send_limit(id));
        }
    }

    fn initial_send_limit(&self, id: StreamId) -> u64 {
        if self.is_local(id) {
            self.initial_local[slot(id.dir())]
        } else {
            self.initial_peer
        }
    }

    /// Forgets everything done in 0-RTT: its streams never existed, and the remembered limits do
    /// not hold (RFC 9001 section 4.6.2). The handshake's parameters must be set afterwards.
    pub(crate) fn on_zero_rtt_rejected(&mut self) {
        for dir in [Dir::Bi, Dir::Uni] {
            for index in 0..self.table(self.side, dir).opened() {
                let id = StreamId::new(self.side, dir, index);
                if let Some(key) = self.send_key(id) {
                    self.drop_send(key);
                }
                if let Some(key) = self.recv_key(id) {
                    self.drop_recv(key);
                }
            }
            self.tables[0][slot(dir)] = StreamTable::default();
        }
        // Events of those streams are dropped as well.
        let side = self.side;
        self.events.retain(|event| match *event {
            StreamEvent::Readable { id }
            | StreamEvent::Writable { id }
            | StreamEvent::Finished { id }
            | StreamEvent::Expired { id }
            | StreamEvent::Stopped { id, .. } => id.initiator() != side,
            StreamEvent::Opened { .. } | StreamEvent::Available { .. } => true,
        });
        self.open_credit = Default::default();
        self.send_credit = SendCredit::default();
    }

    /// Changes how many streams of the peer may be open at a time.
    pub(crate) fn set_max_concurrent(&mut self, dir: Dir, count: u64) {
        self.accept_credit[slot(dir)].set_window(count.min(MAX_CONCURRENT_STREAMS));
    }

    /// Changes how much may be written before it is acknowledged.
    pub(crate) fn set_send_window(&mut self, bytes: u64) {
        self.max_send_window = bytes;
        let wanted = self.send_target.target().max(INITIAL_SEND_WINDOW);
        self.send_window = wanted.min(bytes);
        self.wake_writers();
    }

    /// Acknowledgements were processed: the send window grows with what the paths carry.
    pub(crate) fn on_acked(&mut self, now: Instant, largest_rtt: impl FnOnce() -> Duration) {
        let acked = std::mem::take(&mut self.acked);
        if acked > 0
            && let Some(target) = self.send_target.on_bytes(acked, now, largest_rtt)
        {
            let target = target.min(self.max_send_window);
            self.send_window = self.send_window.max(target);
            self.wake_writers();
        }
    }

    /// Changes the cap of receive windows. The connection's window is cut down to it; those of
    /// streams only stop growing there, as their sum cannot exceed the connection's.
    pub(crate) fn set_max_receive_window(&mut self, bytes: u64) {
        self.max_window = bytes;
        let wanted = self.recv_credit.window().max(self.receive_window.target());
        self.recv_credit
            .set_window(wanted.min(self.largest_window()));
        self.stream_window = self
            .stream_window
            .min(bytes.max(self.initial_stream_window));
    }

    /// Lets receive windows grow to `bytes`, at most to the configured cap, if there is memory for it.
    pub(crate) fn set_receive_window_target(&mut self, bytes: u64) {
        if self.budget.is_tight() {
            return;
        }
        let window = bytes.min(self.largest_window());
        self.recv_credit.grow(window);
        self.stream_window = self
            .stream_window
            .max(window.min(self.max_stream_window))
            .max(self.initial_stream_window);
    }

    /// Frees memory that is kept for reuse.
    pub(crate) fn trim(&mut self) {
        self.ready.trim();
        for queue in [
            &mut self.send_control,
            &mut self.recv_control,
            &mut self.blocked_writers,
        ] {
            queue.trim();
        }
        for table in self.tables.as_flattened_mut() {
            table.trim();
        }
        for (_, send) in &mut self.sends {
            send.buffer.trim();
            let backlog = send.backlog();
            self.total.replace(send.counted, backlog);
            if send.path.is_some() {
                self.bound.replace(send.counted, backlog);
            }
            send.counted = backlog;
        }
        for (_, recv) in &mut self.recvs {
            let before = recv.footprint();
            recv.trim();
            self.held.replace(before, recv.footprint());
        }
        self.sends.shrink_to_fit();
        self.recvs.shrink_to_fit();
        self.events.shrink_to_fit();
    }

    /// A half moves to another backlog, or to none.
    pub(super) fn count_bound(&mut self, before: Backlog, after: Backlog) {
        self.bound.replace(before, after);
    }

    fn table(&self, initiator: Side, dir: Dir) -> &StreamTable {
        &self.tables[usize::from(initiator != self.side)][slot(dir)]
    }

    pub(super) fn table_of(&mut self, id: StreamId) -> &mut StreamTable {
        &mut self.tables[usize::from(!self.is_local(id))][slot(id.dir())]
    }

    /// True if the stream is one that we open.
    pub(super) fn is_local(&self, id: StreamId) -> bool {
        id.initiator() == self.side
    }

    /// True if the stream was opened, by either side.
    pub(super) fn was_opened(&self, id: StreamId) -> bool {
        id.index() < self.table(id.initiator(), id.dir()).opened()
    }

    pub(super) fn halves(&self, id: StreamId) -> Halves {
        self.table(id.initiator(), id.dir()).halves(id.index())
    }

    /// Key of an open sending half that was used.
    pub(super) fn send_key(&self, id: StreamId) -> Option<u32> {
        self.halves(id).send.key()
    }

    /// Key of an open receiving half that was used.
    pub(super) fn recv_key(&self, id: StreamId) -> Option<u32> {
        self.halves(id).recv.key()
    }

    /// Key of an open sending half, to use it.
    pub(super) fn use_send(&mut self, id: StreamId) -> Option<u32> {
        match self.halves(id).send {
            Half::UNUSED => {
                let key = self.new_send(id);
                self.table_of(id).halves_mut(id.index())?.send = Half::at(key);
                Some(key)
            }
            half => half.key(),
        }
    }

    /// Key of an open receiving half, to use it.
    pub(super) fn use_recv(&mut self, id: StreamId) -> Option<u32> {
        match self.halves(id).recv {
            Half::UNUSED => {
                let key = self.new_recv(id);
                self.table_of(id).halves_mut(id.index())?.recv = Half::at(key);
                Some(key)
            }
            half => half.key(),
        }
    }

    fn new_send(&mut self, id: StreamId) -> u32 {
        self.news.push(SchedulerEvent::StreamOpened(id));
        let half = SendHalf::new(id, self.initial_send_limit(id));
        self.sends.insert(half) as u32
    }

    fn new_recv(&mut self, id: StreamId) -> u32 {
        let half = RecvHalf::new(id, self.initial_stream_window);
        self.recvs.insert(half) as u32
    }

    /// Opens a stream if the peer's limit allows.
    pub(crate) fn open(&mut self, dir: Dir) -> Option<StreamId> {
        let credit = &mut self.open_credit[slot(dir)];
        if credit.available() == 0 {
            credit.on_blocked();
            return None;
        }
        credit.take(1);
        let index = self.table(self.side, dir).opened();
        let id = StreamId::new(self.side, dir, index);
        let send = Half::at(self.new_send(id));
        let recv = match dir {
            Dir::Bi => Half::at(self.new_recv(id)),
            Dir::Uni => Half::CLOSED,
        };
        self.table_of(id).push(Halves { send, recv });
        Some(id)
    }

    /// Opens every stream of the peer up to `index`, which [`Self::accept_credit`] allows: those
    /// with lower numbers are opened with it (RFC 9000 section 3.2). Nothing is kept of them until
    /// one side uses them.
    pub(super) fn open_peer_streams(&mut self, dir: Dir, index: u64) {
        let send = match dir {
            Dir::Bi => Half::UNUSED,
            Dir::Uni => Half::CLOSED,
        };
        let recv = Half::UNUSED;
        let table = self.table_of(StreamId::new(!self.side, dir, index));
        while table.opened() <= index {
            table.push(Halves { send, recv });
        }
        self.opened[slot(dir)] = true;
    }

    /// The next stream the peer opened.
    pub(crate) fn accept(&mut self, dir: Dir) -> Option<StreamId> {
        let index = self.next_accept[slot(dir)];
        if index >= self.table(!self.side, dir).opened() {
            return None;
        }
        self.next_accept[slot(dir)] += 1;
        let id = StreamId::new(!self.side, dir, index);
        // The scheduler hears of what the application may write to.
        self.use_send(id);
        Some(id)
    }

    /// Updates totals and queues after a sending half has changed, and frees the half if it is not
    /// needed any more.
    pub(super) fn update_send(&mut self, key: u32) {
        let Some(send) = self.sends.get_mut(key as usize) else {
            return;
        };
        self.news.extend(send.take_news());
        let backlog = send.backlog();
        self.total.replace(send.counted, backlog);
        if send.path.is_some() {
            self.bound.replace(send.counted, backlog);
        }
        send.counted = backlog;
        if send.is_done() {
            let id = send.id;
            if send.is_finished() {
                self.events.push_back(StreamEvent::Finished { id });
            }
            return self.drop_send(key);
        }
        let rank = send.rank();
        let ready = self.ready.entry(send.path);
        ready.resend.set(key, rank, send.can_resend());
        ready.fresh.set(key, rank, send.has_new());
        self.send_control
            .set(key, Rank::default(), send.wants_control());
    }

    /// Frees a sending half.
    fn drop_send(&mut self, key: u32) {
        self.send_control.remove(key);
        self.blocked_writers.remove(key);
        if let Some(send) = self.sends.try_remove(key as usize) {
            if let Some(ready) = self.ready.of_mut(send.path) {
                ready.remove(key);
            }
            self.total.replace(send.counted, Backlog::default());
            self.forget_choices(&send);
            if !send.is_reported_over() {
                self.news.push(SchedulerEvent::StreamFinished(send.id));
            }
            if self.table_of(send.id).close_send(send.id.index()) {
                self.on_stream_closed(send.id);
            }
        }
    }

    /// A half is no more: what the application asked for it counts no longer.
    fn forget_choices(&mut self, send: &SendHalf) {
        self.redundant -= usize::from(send.redundant);
        if let Some(deadline) = send.deadline {
            self.deadlines.remove(&(deadline.at, send.id));
        }
        if send.path.is_some() {
            self.count_bound(send.counted, Backlog::default());
        }
    }

    /// Updates queues after a receiving half has changed, returns the credit of bytes that will
    /// never be read to the connection, and frees the half if it is not needed any more.
    pub(super) fn update_recv(&mut self, key: u32) {
        let Some(recv) = self.recvs.get_mut(key as usize) else {
            return;
        };
        self.recv_credit.on_consumed(recv.take_unwanted());
        if recv.is_done() {
            return self.drop_recv(key);
        }
        self.recv_control
            .set(key, Rank::default(), recv.wants_control());
    }

    /// Frees a receiving half.
    pub(super) fn drop_recv(&mut self, key: u32) {
        self.recv_control.remove(key);
        if let Some(recv) = self.recvs.try_remove(key as usize) {
            self.count_held(recv.footprint(), Held::default());
            if self.table_of(recv.id).close_recv(recv.id.index()) {
                self.on_stream_closed(recv.id);
            }
        }
    }

    fn on_stream_closed(&mut self, id: StreamId) {
        if !self.is_local(id) {
            self.accept_credit[slot(id.dir())].on_consumed(1);
        }
    }

    /// Counts what a receiving half holds now instead of before.
    pub(super) fn count_held(&mut self, before: Held, after: Held) {
        self.held.replace(before, after);
        if self.budget.holds_credit() {
            self.review_credit();
        }
    }

    /// Copies received data that has waited since the last call out of the datagrams it came in.
    pub(super) fn detach_waiting(&mut self) {
        if self.held.bytes == 0 {
            return;
        }
        for (_, recv) in &mut self.recvs {
            let before = recv.footprint();
            recv.detach_waiting();
            self.held.replace(before, recv.footprint());
        }
    }

    /// True if received data keeps so much more in memory than itself that short pieces should be
    /// copied.
    pub(super) fn is_crowded(&self) -> bool {
        self.held.memory > 2 * self.held.bytes + CROWDED
    }

    /// True if the peer left more gaps than we keep track of.
    pub(super) fn has_too_many_gaps(&self) -> bool {
        let further = self.held.gaps.saturating_sub(MIN_GAPS) as u64;
        further > self.held.bytes / BYTES_PER_GAP
    }

    /// Bytes that may be written before the send window is full.
    pub(super) fn send_room(&self) -> u64 {
        self.send_window.saturating_sub(self.total.buffered)
    }

    /// Wakes blocked writers once enough of the send window is free, and not for every
    /// acknowledgement; or earlier, if nothing else is left to send.
    pub(super) fn wake_writers(&mut self) {
        if self.blocked_writers.is_empty() {
            return;
        }
        let share = self.send_window / WAKE_SHARE;
        let enough = if self.total.unsent == 0 {
            share.min(WAKE_IDLE)
        } else {
            share
        };
        if self.send_room() < enough.max(1) {
            return;
        }
        while let Some(key) = self.blocked_writers.front() {
            self.blocked_writers.remove(key);
            if let Some(send) = self.sends.get(key as usize) {
                self.events.push_back(StreamEvent::Writable { id: send.id });
            }
        }
    }

    pub(super) fn push_event(&mut self, event: StreamEvent) {
        self.events.push_back(event);
    }

    /// The next event for the application.
    pub(crate) fn poll(&mut self) -> Option<StreamEvent> {
        for dir in [Dir::Bi, Dir::Uni] {
            if std::mem::take(&mut self.opened[slot(dir)]) {
                return Some(StreamEvent::Opened { dir });
            }
        }
        self.events.pop_front()
    }

    /// Events for the scheduler: streams that were opened or have ended, and sizes that became
    /// known.
    pub(crate) fn drain_news(&mut self) -> impl Iterator<Item = SchedulerEvent> + '_ {
        self.news.drain(..)
    }

    /// Bytes never sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.total.unsent
    }

    /// The streams' part of the scheduler's view; the caller has to fill in the others.
    pub(crate) fn queue_view(&self) -> QueueView {
        let unacked = self.total.buffered.saturating_sub(self.total.unsent);
        // What is bound to a path is none of the scheduler's business.
        let unsent = self.total.unsent - self.bound.unsent;
        let lost = self.total.lost - self.bound.lost;
        QueueView {
            unsent,
            retransmit: lost,
            datagrams: 0,
            control: false,
            idle: false,
            flow_credit: self.send_credit.available(),
            flow_window: self.send_credit.available().saturating_add(unacked),
            send_buffer: self.send_window,
            app_limited: unsent == 0 && lost == 0 && self.blocked_writers.is_empty(),
        }
    }

    /// Appends streams with data never sent, most urgent first, at most 64.
    pub(crate) fn fill_stream_views(&self, views: &mut Vec<StreamView>) {
        let Ready { resend, fresh } = &self.ready.free;
        let passed_over = (resend.iter()).filter(|&key| !fresh.contains(key));
        views.extend(
            (fresh.iter().chain(passed_over))
                .filter_map(|key| self.sends.get(key as usize))
                .filter(|send| send.backlog().unsent > 0)
                .map(SendHalf::view)
                .take(MAX_STREAM_VIEWS),
        );
    }

    /// True if any byte of `offsets` was sent and is not acknowledged yet.
    pub(crate) fn is_unacked(&self, id: StreamId, offsets: Range<u64>) -> bool {
        self.send_key(id)
            .and_then(|key| self.sends.get(key as usize))
            .is_some_and(|send| send.is_unacked(offsets))
    }

    /// Number of sending and of receiving halves whose state is still held.
    #[cfg(test)]
    pub(crate) fn open_halves(&self) -> (usize, usize) {
        (self.sends.len(), self.recvs.len())
    }

    /// True if no half is open and nothing waits to be sent.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.open_halves() == (0, 0) && !self.wants_control() && !self.wants_data()
    }
}
