//! [`StreamSet`]: all streams of a connection. It knows nothing of paths.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use quinn_proto::{Dir, Side, StreamId};
use slab::Slab;

use super::counts::{StreamCounts, slot};
use super::deadlines::Deadlines;
use super::event::StreamEvent;
use super::flow::SendCredit;
use super::queue::{Rank, StreamQueue};
use super::ready::{Ready, ReadyQueues};
use super::receive_windows::ReceiveWindows;
use super::recv::{Held, RecvHalf};
use super::send::{Backlog, Backlogs, SendHalf};
use super::send_window::{PathsNow, SendWindow};
use super::table::{Half, Halves};
use super::tables::StreamTables;
use super::writers::Writers;
use crate::config::TransportConfig;
use crate::memory::MemoryBudget;
use crate::sched::{QueueView, SchedulerEvent, StreamView};
use crate::wire::transport_parameters::TransportParameters;

/// The most streams that a scheduler sees.
const MAX_STREAM_VIEWS: usize = 64;

/// All streams of a connection, their flow control, and the order of their data.
#[derive(Debug)]
pub(crate) struct StreamSet {
    pub(super) sends: Slab<SendHalf>,
    pub(super) recvs: Slab<RecvHalf>,
    pub(super) tables: StreamTables,
    /// Halves with something to send.
    pub(super) ready: ReadyQueues,
    /// Halves with control frames to send.
    pub(super) send_control: StreamQueue,
    pub(super) recv_control: StreamQueue,
    /// The send window, and the halves whose writers wait for room in it.
    pub(super) writers: Writers,
    /// The peer's MAX_DATA; sent bytes use it.
    pub(super) send_credit: SendCredit,
    /// How many streams each side may open.
    pub(super) counts: StreamCounts,
    /// Initial limits of streams, from the peer's transport parameters.
    initial_limits: InitialLimits,
    /// The peer announced support for RESET_STREAM_AT.
    pub(super) peer_takes_reset_at: bool,
    /// We announced support for RESET_STREAM_AT.
    pub(super) takes_reset_at: bool,
    /// Bytes that all sending halves hold.
    pub(super) backlogs: Backlogs,
    /// Halves whose data is sent twice.
    pub(super) redundant: usize,
    pub(super) deadlines: Deadlines,
    /// Bytes that all receiving halves hold.
    pub(super) held: Held,
    /// Bytes received twice, or after the end of their stream.
    pub(crate) received_again: u64,
    pub(super) receive_windows: ReceiveWindows,
    pub(super) budget: MemoryBudget,
    /// Bytes that DATAGRAMs may take, in both directions.
    pub(super) datagram_buffers: u64,
    pub(super) events: VecDeque<StreamEvent>,
    /// Events that the scheduler was not told of yet.
    pub(super) news: Vec<SchedulerEvent>,
}

/// How many bytes the peer lets us send on a stream that is new.
#[derive(Debug, Default)]
struct InitialLimits {
    /// On streams that we open, by direction.
    local: [u64; 2],
    /// On streams that the peer opens.
    remote: u64,
}

impl StreamSet {
    /// No streams, and no credit from the peer until [`Self::set_peer_parameters`].
    pub(crate) fn new(side: Side, config: &TransportConfig, now: Instant) -> Self {
        Self {
            sends: Slab::new(),
            recvs: Slab::new(),
            tables: StreamTables::new(side),
            ready: ReadyQueues::new(config.priority_floor),
            send_control: StreamQueue::default(),
            recv_control: StreamQueue::default(),
            writers: Writers::new(SendWindow::new(config, now)),
            send_credit: SendCredit::default(),
            counts: StreamCounts::new(config),
            initial_limits: InitialLimits::default(),
            peer_takes_reset_at: false,
            takes_reset_at: config.reset_stream_at,
            backlogs: Backlogs::default(),
            redundant: 0,
            deadlines: Deadlines::default(),
            held: Held::default(),
            received_again: 0,
            receive_windows: ReceiveWindows::new(config, now),
            budget: MemoryBudget::new(config.memory_limit),
            datagram_buffers: (config.datagram_receive_buffer.unwrap_or(0))
                .saturating_add(config.datagram_send_buffer) as u64,
            events: VecDeque::new(),
            news: Vec::new(),
        }
    }

    /// Sets the peer's limits: the remembered ones for 0-RTT, then those of the handshake. Limits
    /// only rise.
    pub(crate) fn set_peer_parameters(&mut self, parameters: &TransportParameters) {
        self.initial_limits = InitialLimits {
            local: [
                parameters.initial_max_stream_data_bidi_remote,
                parameters.initial_max_stream_data_uni,
            ],
            remote: parameters.initial_max_stream_data_bidi_local,
        };
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
        if self.tables.is_local(id) {
            self.initial_limits.local[slot(id.dir())]
        } else {
            self.initial_limits.remote
        }
    }

    /// Forgets everything done in 0-RTT: its streams never existed, and the remembered limits do
    /// not hold (RFC 9001 section 4.6.2). The handshake's parameters must be set afterwards.
    pub(crate) fn on_zero_rtt_rejected(&mut self) {
        for dir in [Dir::Bi, Dir::Uni] {
            for index in 0..self.tables.opened_local(dir) {
                let id = self.tables.local(dir, index);
                if let Some(key) = self.tables.send_key(id) {
                    self.drop_send(key);
                }
                if let Some(key) = self.tables.recv_key(id) {
                    self.drop_recv(key);
                }
            }
        }
        self.tables.forget_local();
        // Events of those streams are dropped as well.
        let tables = &self.tables;
        self.events.retain(|event| match *event {
            StreamEvent::Readable { id }
            | StreamEvent::Writable { id }
            | StreamEvent::Finished { id }
            | StreamEvent::ResetReceived { id }
            | StreamEvent::Expired { id }
            | StreamEvent::Stopped { id, .. } => !tables.is_local(id),
            StreamEvent::Opened { .. } | StreamEvent::Available { .. } => true,
        });
        self.counts.on_zero_rtt_rejected();
        self.send_credit = SendCredit::default();
    }

    /// Changes the limit on written and unacknowledged bytes.
    pub(crate) fn set_send_window(&mut self, bytes: u64) {
        self.writers.window_mut().set_max(bytes);
        self.wake_writers();
    }

    /// Acknowledgements were processed: the send window grows with the rate of all paths.
    pub(crate) fn on_acked(
        &mut self,
        now: Instant,
        paths: &PathsNow<impl Fn() -> Duration, impl Fn() -> u64, impl Fn() -> u64>,
    ) {
        let has_grown = self.writers.window_mut().adapt(now, paths);
        if has_grown || self.writers.is_relieved(&self.backlogs.all) {
            self.wake_writers();
        }
    }

    /// Lets receive windows grow to `bytes`, within the configured cap and the available memory.
    pub(crate) fn set_receive_window_target(&mut self, bytes: u64) {
        if !self.budget.is_tight() {
            self.receive_windows.grow(bytes);
        }
    }

    /// Frees memory that is kept for reuse.
    pub(crate) fn trim(&mut self) {
        self.ready.trim();
        for queue in [&mut self.send_control, &mut self.recv_control] {
            queue.trim();
        }
        self.writers.trim();
        self.tables.trim();
        for (_, send) in &mut self.sends {
            send.buffer.trim();
            self.backlogs.recount(send);
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

    /// Key of an open sending half, to use it.
    pub(super) fn use_send(&mut self, id: StreamId) -> Option<u32> {
        match self.tables.halves(id).send {
            Half::UNUSED => {
                let key = self.new_send(id);
                self.tables.halves_mut(id)?.send = Half::at(key);
                Some(key)
            }
            half => half.key(),
        }
    }

    /// Key of an open receiving half, to use it.
    pub(super) fn use_recv(&mut self, id: StreamId) -> Option<u32> {
        match self.tables.halves(id).recv {
            Half::UNUSED => {
                let key = self.new_recv(id);
                self.tables.halves_mut(id)?.recv = Half::at(key);
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
        let half = RecvHalf::new(id, self.receive_windows.initial_stream());
        self.recvs.insert(half) as u32
    }

    /// Opens a stream if the peer's limit allows.
    pub(crate) fn open(&mut self, dir: Dir) -> Option<StreamId> {
        if !self.counts.take_open(dir) {
            return None;
        }
        let id = self.tables.local(dir, self.tables.opened_local(dir));
        let send = Half::at(self.new_send(id));
        let recv = match dir {
            Dir::Bi => Half::at(self.new_recv(id)),
            Dir::Uni => Half::CLOSED,
        };
        self.tables.open_local(id, Halves { send, recv });
        Some(id)
    }

    /// Opens every stream of the peer up to `index`, within our MAX_STREAMS: a stream opens all
    /// streams with lower numbers (RFC 9000 section 3.2). A stream takes no memory of its own until
    /// one side uses it.
    pub(super) fn open_peer_streams(&mut self, dir: Dir, index: u64) {
        let send = match dir {
            Dir::Bi => Half::UNUSED,
            Dir::Uni => Half::CLOSED,
        };
        let recv = Half::UNUSED;
        let id = self.tables.remote(dir, index);
        self.tables.open_remote(id, Halves { send, recv });
        self.counts.set_news(dir);
    }

    /// The next stream the peer opened.
    pub(crate) fn accept(&mut self, dir: Dir) -> Option<StreamId> {
        let opened = self.tables.opened_remote(dir);
        let index = self.counts.accept(dir, opened)?;
        let id = self.tables.remote(dir, index);
        // The scheduler hears of what the application may write to.
        self.use_send(id);
        Some(id)
    }

    /// Updates totals and queues after a sending half has changed, and frees a half with no further
    /// use.
    pub(super) fn update_send(&mut self, key: u32) {
        let Some(send) = self.sends.get_mut(key as usize) else {
            return;
        };
        self.news.extend(send.take_news());
        self.backlogs.recount(send);
        self.writers.review(key, send);
        if send.is_done() {
            let id = send.id;
            self.events.push_back(if send.is_finished() {
                StreamEvent::Finished { id }
            } else {
                StreamEvent::ResetReceived { id }
            });
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
        if let Some(mut send) = self.sends.try_remove(key as usize) {
            self.writers.remove(key, &mut send);
            if let Some(ready) = self.ready.of_mut(send.path) {
                ready.remove(key);
            }
            self.backlogs.remove(&send);
            self.forget_choices(&send);
            if !send.is_reported_over() {
                self.news.push(SchedulerEvent::StreamFinished(send.id));
            }
            if self.tables.close_send(send.id) {
                self.on_stream_closed(send.id);
            }
        }
    }

    /// A half is no more: what the application asked for it counts no longer.
    fn forget_choices(&mut self, send: &SendHalf) {
        self.redundant -= usize::from(send.redundant);
        if let Some(deadline) = send.deadline {
            self.deadlines.remove(deadline.at, send.id);
        }
    }

    /// Updates queues after a receiving half has changed, returns the credit of bytes that nobody
    /// will read to the connection, and frees a half with no further use.
    pub(super) fn update_recv(&mut self, key: u32) {
        let Some(recv) = self.recvs.get_mut(key as usize) else {
            return;
        };
        let unwanted = recv.take_unwanted();
        self.receive_windows.credit.on_consumed(unwanted);
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
            if self.tables.close_recv(recv.id) {
                self.on_stream_closed(recv.id);
            }
        }
    }

    fn on_stream_closed(&mut self, id: StreamId) {
        if !self.tables.is_local(id) {
            self.counts.on_closed(id.dir());
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

    /// Wakes the blocked writers that have got room for other reasons than sent or acknowledged
    /// bytes of their own.
    #[cold]
    pub(super) fn wake_writers(&mut self) {
        let blocked: Vec<u32> = self.writers.blocked().collect();
        for key in blocked {
            self.wake_writer(key);
        }
    }

    /// Bytes of a half were sent or acknowledged: wakes the half's blocked writer, given enough
    /// room.
    #[inline]
    pub(super) fn wake_writer(&mut self, key: u32) {
        if self.writers.is_none_blocked() {
            return;
        }
        if let Some(send) = self.sends.get(key as usize)
            && self.writers.wake(key, send, &self.backlogs.all)
        {
            self.events.push_back(StreamEvent::Writable { id: send.id });
        }
    }

    pub(super) fn push_event(&mut self, event: StreamEvent) {
        self.events.push_back(event);
    }

    /// The next event for the application.
    pub(crate) fn poll(&mut self) -> Option<StreamEvent> {
        if let Some(dir) = self.counts.take_news() {
            return Some(StreamEvent::Opened { dir });
        }
        self.events.pop_front()
    }

    /// Events for the scheduler: opened and ended streams, and known sizes.
    pub(crate) fn drain_news(&mut self) -> impl Iterator<Item = SchedulerEvent> + '_ {
        self.news.drain(..)
    }

    /// Bytes never sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.backlogs.all.unsent
    }

    /// The streams' part of the scheduler's view; the caller has to fill in the others.
    pub(crate) fn queue_view(&self) -> QueueView {
        let unacked = self.backlogs.unacked();
        let Backlog { unsent, lost, .. } = self.backlogs.free();
        QueueView {
            unsent,
            retransmit: lost,
            datagrams: 0,
            control: false,
            idle: false,
            flow_credit: self.send_credit.available(),
            flow_window: self.send_credit.available().saturating_add(unacked),
            send_buffer: self.writers.size(),
            app_limited: unsent == 0 && lost == 0 && self.writers.is_none_blocked(),
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

    /// True if a byte of `offsets` was sent and not acknowledged.
    pub(crate) fn is_unacked(&self, id: StreamId, offsets: Range<u64>) -> bool {
        self.tables
            .send_key(id)
            .and_then(|key| self.sends.get(key as usize))
            .is_some_and(|send| send.is_unacked(offsets))
    }

    /// Number of sending and of receiving halves whose state is still held.
    #[cfg(test)]
    pub(crate) fn open_halves(&self) -> (usize, usize) {
        (self.sends.len(), self.recvs.len())
    }

    /// True without open halves and data to send.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.open_halves() == (0, 0) && !self.wants_control() && !self.wants_data()
    }
}
