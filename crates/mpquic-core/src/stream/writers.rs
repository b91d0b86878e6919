//! [`Writers`]: how many bytes each stream may write, and the streams whose writers wait for room.

use std::ops::Deref;

use super::queue::{Rank, StreamQueue};
use super::send::{Backlog, SendHalf};
use super::send_window::SendWindow;

/// A stream may hold this number of unsent bytes, about three packets, however full the window is.
const MINIMUM: u64 = 4 << 10;
/// In a small window, a stream may hold this part of the window instead.
const MINIMUM_PART: u64 = 8;
/// A blocked writer is woken when this part of its share of the window is free.
const WAKE_PART: u64 = 8;
/// A blocked writer is woken when this part of its share of the queue is free.
const WAKE_QUEUE_PART: u64 = 4;
/// A blocked writer without unsent bytes is woken at this number of free bytes.
const WAKE_IDLE: u64 = 16 << 10;

/// Divides the send window among the streams.
///
/// A stream is hungry if the window had no room for its writer's last bytes. Hungry streams have
/// equal shares of the window and of the queue of unsent bytes. A stream without hungry neighbours
/// may fill both. Each stream may have a minimum of unsent bytes, up to one and a half windows in
/// total: so a new stream sends at once, and streams that take turns always have a packet for their
/// turn.
#[derive(Debug)]
pub(super) struct Writers {
    window: SendWindow,
    /// Halves whose writers wait for room.
    blocked: StreamQueue,
    /// The number of hungry halves.
    hungry: u64,
    /// A half without bytes was refused: no acknowledgement of its own will wake its writer.
    is_empty_refused: bool,
}

impl Deref for Writers {
    type Target = SendWindow;

    fn deref(&self) -> &SendWindow {
        &self.window
    }
}

impl Writers {
    /// No streams.
    pub(super) fn new(window: SendWindow) -> Self {
        Self {
            window,
            blocked: StreamQueue::default(),
            hungry: 0,
            is_empty_refused: false,
        }
    }

    /// The window, to change its size. Afterwards, the caller wakes writers.
    #[inline]
    pub(super) fn window_mut(&mut self) -> &mut SendWindow {
        &mut self.window
    }

    /// The least number of unsent bytes that each of these sharers may hold: together, half a
    /// window.
    fn minimum(&self, sharers: u64) -> u64 {
        let size = self.window.size();
        MINIMUM.min(size / MINIMUM_PART).min(size / 2 / sharers)
    }

    /// Bytes that a half may write. `all` is the backlog of all halves.
    #[inline]
    pub(super) fn room(&self, all: &Backlog, half: &SendHalf) -> u64 {
        let free = self.window.room(all.buffered, all.unsent);
        let own = &half.counted;
        if all.buffered == own.buffered {
            return free;
        }
        self.room_among(free, all, half)
    }

    /// Bytes that a half may write while other halves hold bytes, too.
    fn room_among(&self, free: u64, all: &Backlog, half: &SendHalf) -> u64 {
        let (own, share) = (&half.counted, self.sharers(half));
        let (size, minimum) = (self.window.size(), self.minimum(share));
        let least = if self.is_over(all) {
            0
        } else {
            minimum.saturating_sub(own.unsent)
        };
        let of_window = (size / share).max(1).saturating_sub(own.buffered);
        let of_queue = self.window.queue_limit() / share;
        let of_queue = of_queue.max(minimum).saturating_sub(own.unsent);
        free.max(least).min(of_window).min(of_queue)
    }

    /// The number of hungry halves, with this half.
    fn sharers(&self, half: &SendHalf) -> u64 {
        self.hungry + u64::from(!half.is_hungry)
    }

    fn is_over(&self, all: &Backlog) -> bool {
        let size = self.window.size();
        all.buffered >= size.saturating_add(size / 2)
    }

    /// True with enough room to wake the blocked writer of a half: not for every acknowledgement,
    /// but before the half has nothing to send in its turn.
    fn is_worth_waking(&self, all: &Backlog, half: &SendHalf) -> bool {
        let (room, share) = (self.room(all, half), self.sharers(half));
        let own = &half.counted;
        if room > 0 && all.buffered > own.buffered && own.unsent < self.minimum(share) / 2 {
            return true;
        }
        let part = self.window.size() / share / WAKE_PART;
        let part = match own.unsent {
            0 => part.min(WAKE_IDLE),
            _ => part,
        };
        let of_queue = self.window.queue_limit() / share / WAKE_QUEUE_PART;
        room >= part.min(of_queue).max(1)
    }

    /// The writer of a half found no room, and waits.
    pub(super) fn block(&mut self, key: u32, half: &mut SendHalf) {
        self.on_limited(half);
        self.is_empty_refused |= half.counted.buffered == 0;
        self.blocked.insert(key, half.rank());
    }

    /// The writer of a half wanted to write more.
    pub(super) fn on_limited(&mut self, half: &mut SendHalf) {
        self.hungry += u64::from(!half.is_hungry);
        half.is_hungry = true;
    }

    /// Ends the hunger of a stream without unsent bytes whose writer was told of room.
    #[inline]
    pub(super) fn review(&mut self, key: u32, half: &mut SendHalf) {
        if half.is_hungry && half.counted.unsent == 0 && !self.blocked.contains(key) {
            self.hungry -= 1;
            half.is_hungry = false;
        }
    }

    /// Nothing more is written to a half.
    pub(super) fn remove(&mut self, key: u32, half: &mut SendHalf) {
        self.blocked.remove(key);
        self.hungry -= u64::from(half.is_hungry);
        half.is_hungry = false;
    }

    /// Takes the writer of a half out if it waits and is worth waking.
    #[inline]
    pub(super) fn wake(&mut self, key: u32, half: &SendHalf, all: &Backlog) -> bool {
        let wakes = self.blocked.contains(key) && self.is_worth_waking(all, half);
        if wakes {
            self.blocked.remove(key);
        }
        wakes
    }

    /// True once, when refused halves without bytes may go on.
    #[inline]
    pub(super) fn is_relieved(&mut self, all: &Backlog) -> bool {
        let is_relieved = self.is_empty_refused && all.buffered < self.window.size();
        self.is_empty_refused &= !is_relieved;
        is_relieved
    }

    /// The halves whose writers wait; those that would be sent first come first.
    pub(super) fn blocked(&self) -> impl Iterator<Item = u32> + '_ {
        self.blocked.iter()
    }

    /// True without waiting writers.
    #[inline]
    pub(super) fn is_none_blocked(&self) -> bool {
        self.blocked.is_empty()
    }

    /// A half has another rank.
    pub(super) fn set_rank(&mut self, key: u32, rank: Rank) {
        self.blocked.set_rank(key, rank);
    }

    /// Frees memory that is kept for reuse.
    pub(super) fn trim(&mut self) {
        self.blocked.trim();
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.blocked.memory()
    }
}
