//! [`DatagramSender`]: DATAGRAMs waiting to be sent, with the application's wishes for each.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use smallvec::SmallVec;

use super::datagram_turns::DatagramTurns;
use crate::ids::PathId;
use crate::packet::delivery::Delivery;
use crate::packet::writer::FrameWriter;
use crate::wire::frame::{DatagramHeader, FrameKind};

/// The memory a queued payload takes besides its bytes, in bytes.
pub(super) const OVERHEAD: usize = 64;

/// The most copies that wait for one path.
const MAX_COPIES: usize = 256;

/// How one DATAGRAM is to be sent. The default leaves everything to the scheduler.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use mpquic_core::{DatagramOptions, PathId};
///
/// // A video frame: only useful for the next 100 ms, and worth sending twice.
/// let now = Instant::now();
/// let frame = DatagramOptions::default()
///     .with_deadline(now + Duration::from_millis(100))
///     .with_copy();
/// // What keeps a path's NAT binding alive has to travel on that path.
/// let ping = DatagramOptions::default().with_path(PathId(1));
/// assert_eq!((ping.path, frame.copy), (Some(PathId(1)), true));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DatagramOptions {
    /// Sends the DATAGRAM on this path only, even on a backup path. The DATAGRAM waits while the
    /// path is suspect and another path is not, and is dropped with an abandoned path. `None`
    /// leaves the choice to the scheduler.
    pub path: Option<PathId>,
    /// Sends a copy on the fastest other path for data, within
    /// [`TransportOptions::max_redundancy`](crate::config::TransportOptions::max_redundancy). The
    /// peer's application gets both.
    pub copy: bool,
    /// Drops the DATAGRAM at this time, unless sent before.
    pub deadline: Option<Instant>,
    /// The flow of the DATAGRAM, by a number that the application chooses. Waiting flows take turns
    /// by bytes, and the DATAGRAMs of one flow keep their order. All DATAGRAMs without a number are
    /// one flow. DATAGRAMs with a path take no turns.
    pub flow: Option<u64>,
}

impl DatagramOptions {
    /// With [`Self::path`].
    #[must_use]
    pub fn with_path(mut self, path: PathId) -> Self {
        self.path = Some(path);
        self
    }

    /// With [`Self::copy`].
    #[must_use]
    pub fn with_copy(mut self) -> Self {
        self.copy = true;
        self
    }

    /// With [`Self::flow`].
    #[must_use]
    pub fn with_flow(mut self, flow: u64) -> Self {
        self.flow = Some(flow);
        self
    }

    /// With [`Self::deadline`].
    #[must_use]
    pub fn with_deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }
}

/// A payload that waits.
#[derive(Debug, Clone)]
struct Waiting {
    data: Bytes,
    deadline: Option<Instant>,
    wants_copy: bool,
    /// A copy of a sent DATAGRAM: not counted as queued by the application.
    is_copy: bool,
    flow: Option<u64>,
    /// The turn of the DATAGRAM; 0 if it takes no turns.
    turn: u64,
}

impl Waiting {
    fn cost(&self) -> usize {
        if self.is_copy {
            0
        } else {
            self.data.len() + OVERHEAD
        }
    }

    fn is_late(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

/// A sent payload, which may be copied.
#[derive(Debug)]
pub(crate) struct SentDatagram {
    waiting: Waiting,
    /// The path that carried it.
    pub(crate) path: PathId,
}

impl SentDatagram {
    /// The application asked for a copy.
    pub(crate) fn wants_copy(&self) -> bool {
        self.waiting.wants_copy
    }

    /// Bytes of the payload.
    pub(crate) fn length(&self) -> usize {
        self.waiting.data.len()
    }
}

/// Counters of dropped DATAGRAMs and of copies.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DatagramCounts {
    /// DATAGRAMs not sent before their deadline.
    pub(crate) expired: u64,
    /// Dropped with the abandoned path of the DATAGRAM, or as larger than any packet.
    pub(crate) unplaced: u64,
    /// Bytes of payloads that were copies.
    pub(crate) copied: u64,
}

/// DATAGRAMs that wait to be sent.
#[derive(Debug)]
pub(super) struct DatagramSender {
    /// DATAGRAMs for any path, in the order of their turns.
    free: VecDeque<Waiting>,
    /// The flows of [`Self::free`].
    pub(super) turns: DatagramTurns,
    /// DATAGRAMs bound to a path.
    bound: Vec<(PathId, VecDeque<Waiting>)>,
    /// Sent, and copies may be wanted.
    sent: Vec<SentDatagram>,
    /// Bytes of what the application has queued, with the overhead.
    pub(super) cost: usize,
    pub(super) limit: usize,
    /// Bytes of payloads that any path may carry.
    free_bytes: u64,
    /// Bytes of copies.
    copy_bytes: usize,
    /// No deadline is earlier.
    earliest: Option<Instant>,
    /// Bytes of payloads sent for the first time.
    pub(super) sent_bytes: u64,
    pub(super) counts: DatagramCounts,
}

impl DatagramSender {
    /// An empty queue for so many bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            free: VecDeque::new(),
            turns: DatagramTurns::default(),
            bound: Vec::new(),
            sent: Vec::new(),
            cost: 0,
            // There is always room for one payload.
            limit: limit.saturating_add(OVERHEAD),
            free_bytes: 0,
            copy_bytes: 0,
            earliest: None,
            sent_bytes: 0,
            counts: DatagramCounts::default(),
        }
    }

    /// Frees memory that is kept for reuse.
    pub(super) fn trim(&mut self) {
        self.free.shrink_to_fit();
        self.bound.retain(|(_, queue)| !queue.is_empty());
        self.sent.shrink_to_fit();
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        let unused = |queue: &VecDeque<Waiting>| queue.capacity() - queue.len();
        let unused = self.queues().map(unused).sum::<usize>();
        self.cost + self.copy_bytes + unused * size_of::<Waiting>() + self.turns.memory()
    }

    fn queues(&self) -> impl Iterator<Item = &VecDeque<Waiting>> {
        std::iter::once(&self.free).chain(self.bound.iter().map(|(_, queue)| queue))
    }

    fn bound_to(&self, path: PathId) -> Option<&VecDeque<Waiting>> {
        let mut bound = self.bound.iter();
        bound.find(|(of, _)| *of == path).map(|(_, queue)| queue)
    }

    fn bound_entry(&mut self, path: PathId) -> &mut VecDeque<Waiting> {
        let known = self.bound.iter().position(|(of, _)| *of == path);
        let index = known.unwrap_or_else(|| {
            self.bound.push((path, VecDeque::new()));
            self.bound.len() - 1
        });
        &mut self.bound[index].1
    }

    /// True if a payload may be queued.
    pub(super) fn has_room(&self, data: &Bytes) -> bool {
        // An empty buffer accepts a payload of any size.
        self.cost == 0 || self.cost + data.len() + OVERHEAD <= self.limit
    }

    pub(super) fn push(&mut self, data: Bytes, options: DatagramOptions) {
        let mut waiting = Waiting {
            data,
            deadline: options.deadline,
            wants_copy: options.copy,
            is_copy: false,
            flow: options.flow,
            turn: 0,
        };
        self.cost += waiting.cost();
        self.note_deadline(options.deadline);
        match options.path {
            None => {
                self.free_bytes += waiting.data.len() as u64;
                waiting.turn = self.turns.on_queued(waiting.flow, waiting.cost());
                self.take_place(waiting);
            }
            Some(path) => self.bound_entry(path).push_back(waiting),
        }
    }

    /// Puts a DATAGRAM for any path at the place of its turn: mostly behind all others.
    #[inline]
    fn take_place(&mut self, waiting: Waiting) {
        match self.free.back() {
            Some(last) if last.turn > waiting.turn => {
                let is_before = |other: &Waiting| other.turn <= waiting.turn;
                let place = self.free.partition_point(is_before);
                self.free.insert(place, waiting);
            }
            _ => self.free.push_back(waiting),
        }
    }

    fn note_deadline(&mut self, deadline: Option<Instant>) {
        self.earliest = match (self.earliest, deadline) {
            (Some(earliest), Some(deadline)) => Some(earliest.min(deadline)),
            (earliest, deadline) => earliest.or(deadline),
        };
    }

    /// Queues a copy for another path; false if too many wait for it.
    pub(super) fn push_copy(&mut self, path: PathId, original: &SentDatagram) -> bool {
        let queue = self.bound_entry(path);
        let has_room = queue.iter().filter(|waiting| waiting.is_copy).count() < MAX_COPIES;
        if has_room {
            queue.push_back(Waiting {
                is_copy: true,
                wants_copy: false,
                ..original.waiting.clone()
            });
            self.copy_bytes += original.length() + OVERHEAD;
            self.note_deadline(original.waiting.deadline);
        }
        has_room
    }

    /// True if a DATAGRAM for any path waits.
    #[inline]
    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Bytes of DATAGRAMs for any path.
    pub(super) fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// True if something is bound to the path.
    pub(super) fn has_bound(&self, path: PathId) -> bool {
        self.bound_to(path).is_some_and(|queue| !queue.is_empty())
    }

    /// Paths with bound DATAGRAMs.
    pub(super) fn bound_paths(&self) -> impl Iterator<Item = PathId> + '_ {
        let busy = self.bound.iter().filter(|(_, queue)| !queue.is_empty());
        busy.map(|(path, _)| *path)
    }

    /// Writes DATAGRAM frames until the packet is full: DATAGRAMs bound to `path`, or for any path.
    /// With `copied`, the scheduler wants copies of all of them.
    pub(super) fn write_frames(
        &mut self,
        writer: &mut FrameWriter<'_>,
        now: Instant,
        path: PathId,
        (bound, copied): (bool, bool),
    ) {
        while let Some(waiting) = self.front(path, bound) {
            let is_late = waiting.is_late(now);
            if !is_late && !write_frame(writer, &waiting.data) {
                return;
            }
            let Some(waiting) = self.pop(path, bound) else {
                return;
            };
            if self.count_written(&waiting, is_late) && (copied || waiting.wants_copy) {
                self.sent.push(SentDatagram { waiting, path });
            }
        }
    }

    /// Writes DATAGRAMs for any path until the packet is full, without the first `behind` bytes of
    /// the queue.
    pub(super) fn write_behind(
        &mut self,
        writer: &mut FrameWriter<'_>,
        now: Instant,
        path: PathId,
        behind: u64,
    ) {
        let mut before = 0;
        let index = self.free.iter().position(|waiting| {
            let is_behind = before >= behind;
            before += waiting.data.len() as u64;
            is_behind
        });
        // If `behind` falls inside the last DATAGRAM, start with that one.
        let within_last = (before > behind).then(|| self.free.len() - 1);
        let Some(index) = index.or(within_last) else {
            return;
        };
        let mut end = index;
        while let Some(waiting) = self.free.get(end) {
            if !waiting.is_late(now) && !write_frame(writer, &waiting.data) {
                break;
            }
            end += 1;
        }
        // Later DATAGRAMs in the queue are moved once.
        let written: SmallVec<[Waiting; 8]> = self.free.drain(index..end).collect();
        for waiting in written {
            self.forget(&waiting, false);
            if self.count_written(&waiting, waiting.is_late(now)) && waiting.wants_copy {
                self.sent.push(SentDatagram { waiting, path });
            }
        }
    }

    /// A payload was written, or came too late for that. True if it was sent for the first time.
    #[inline]
    fn count_written(&mut self, waiting: &Waiting, is_late: bool) -> bool {
        if is_late {
            self.counts.expired += 1;
        } else if waiting.is_copy {
            self.counts.copied += waiting.data.len() as u64;
        } else {
            self.sent_bytes += waiting.data.len() as u64;
            return true;
        }
        false
    }

    fn front(&self, path: PathId, bound: bool) -> Option<&Waiting> {
        if bound {
            self.bound_to(path)?.front()
        } else {
            self.free.front()
        }
    }

    fn pop(&mut self, path: PathId, bound: bool) -> Option<Waiting> {
        let waiting = match bound {
            true => self.bound_entry(path).pop_front(),
            false => {
                let next = self.free.pop_front()?;
                self.turns.on_turn(next.turn);
                Some(next)
            }
        }?;
        self.forget(&waiting, bound);
        Some(waiting)
    }

    /// A payload waits no longer.
    fn forget(&mut self, waiting: &Waiting, bound: bool) {
        self.cost -= waiting.cost();
        if waiting.is_copy {
            self.copy_bytes -= waiting.data.len() + OVERHEAD;
        }
        if !bound {
            self.free_bytes -= waiting.data.len() as u64;
            self.turns.on_left(waiting.flow, waiting.cost());
        }
    }

    /// True if sent DATAGRAMs may be copied.
    #[inline]
    pub(super) fn has_sent(&self) -> bool {
        !self.sent.is_empty()
    }

    /// DATAGRAMs sent since the last call which may be copied.
    pub(super) fn take_sent(&mut self) -> Vec<SentDatagram> {
        std::mem::take(&mut self.sent)
    }

    /// When [`Self::on_timeout`] has something to drop, or earlier.
    #[inline]
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.earliest
    }

    /// Drops what was not sent in time.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        if self.earliest.is_some_and(|earliest| earliest <= now) {
            self.counts.expired += self.drop_if(|_, waiting| waiting.is_late(now));
            let deadlines = self.queues().flatten();
            self.earliest = deadlines.filter_map(|waiting| waiting.deadline).min();
        }
    }

    /// Drops DATAGRAMs bound to a path that no longer exists.
    pub(super) fn release(&mut self, path: PathId) {
        self.counts.unplaced += self.drop_if(|of, _| of == Some(path));
        self.bound.retain(|(of, _)| *of != path);
    }

    /// Drops what fits no packet: the largest of any path has `room` bytes for frames, and those of
    /// one path `room_on`.
    pub(super) fn drop_oversized(&mut self, room: usize, room_on: impl Fn(PathId) -> usize) {
        let dropped = self.drop_if(|of, waiting| waiting.data.len() >= of.map_or(room, &room_on));
        self.counts.unplaced += dropped;
        if dropped > 0 {
            tracing::debug!(dropped, "no path carries these datagrams any more");
        }
    }

    /// Drops payloads; returns how many of them were no copies.
    fn drop_if(&mut self, is_over: impl Fn(Option<PathId>, &Waiting) -> bool) -> u64 {
        let mut over = Vec::new();
        let bound = (self.bound.iter_mut()).map(|(path, queue)| (Some(*path), queue));
        for (path, queue) in bound.chain([(None, &mut self.free)]) {
            let all = std::mem::take(queue).into_iter();
            let (gone, left) = all.partition::<VecDeque<_>, _>(|waiting| is_over(path, waiting));
            *queue = left;
            over.extend(gone.into_iter().map(|waiting| (path.is_some(), waiting)));
        }
        for (bound, waiting) in &over {
            self.forget(waiting, *bound);
        }
        over.iter().filter(|(_, waiting)| !waiting.is_copy).count() as u64
    }
}

/// Writes a frame, if it fits.
fn write_frame(writer: &mut FrameWriter<'_>, data: &Bytes) -> bool {
    let length = data.len();
    let room = writer.remaining();
    let mut header = DatagramHeader {
        length: Some(length as u64),
    };
    if header.size() + length > room {
        // A frame without a length field must be the last one in the packet.
        header.length = None;
        let Some(padding) = room.checked_sub(header.size() + length) else {
            return false;
        };
        let end = writer.buffer().len() + padding;
        writer.buffer().resize(end, 0);
    }
    header.encode(writer.buffer());
    writer.buffer().extend_from_slice(data);
    writer.note(Some(FrameKind::Datagram), Delivery::Datagram, true);
    true
}
