//! [`ReceiveBuffers`]: the memory that a socket receives into.
//!
//! Each lane owns a slab of memory. A received message is split off the front of the slab,
//! decrypted in place and handed out as `Bytes` slices. The lane reuses the slab after the drop of
//! all slices. Short messages are copied to another slab, so that a few bytes neither use up a lane
//! nor keep much memory. With enough slabs, receiving allocates no memory.
//!
//! A single unread byte keeps a whole slab. So a connection counts in [`SlabsSeen`] the slabs of
//! its messages, and copies data that has waited for too long.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;
use quinn_udp::RecvMeta;

/// Bytes that a call to the kernel may fill in a lane: the largest UDP payload, coalesced or not.
const MESSAGE: usize = 1 << 16;
/// Size of a lane's slab, in bytes. Small enough to stay in a CPU cache, large enough to waste
/// little at its end.
const LANE_SLAB: usize = 2 * MESSAGE;
/// Size of a slab for short messages, in bytes.
const SHORT_SLAB: usize = 1 << 16;
/// Messages up to this length, in bytes, are copied: a copy costs less than the used part of a
/// slab.
const SHORT: usize = 4096;
/// The most messages taken from the kernel in one call.
const MAX_LANES: usize = 8;
/// A connection copies waiting data after messages in this number of slabs, 1 to 2 MiB of full
/// datagrams; data that the application reads earlier is never copied. So the connection keeps at
/// most twice this number of slabs, and the slabs in use.
const SLABS_BETWEEN_COPIES: usize = 16;
/// The most slabs kept for later while their slices are still in use.
const MAX_RETIRED: usize = 64;
/// Number of slabs checked from each end to find a free one.
const LOOK_AT: usize = 4;

/// Identifies a slab among the slabs of all sockets. A reused slab gets a new ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlabId(u64);

impl SlabId {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The latest slabs with messages of a connection.
#[derive(Debug, Default)]
pub(crate) struct SlabsSeen {
    last: Option<SlabId>,
    /// The latest slabs, each once, in a ring.
    ring: [Option<SlabId>; SLABS_BETWEEN_COPIES],
    next: usize,
    /// The number of new slabs after the last copies.
    new: usize,
}

impl SlabsSeen {
    /// A message arrived in this slab.
    #[inline]
    pub(crate) fn on_received(&mut self, slab: SlabId) {
        if self.last != Some(slab) {
            self.last = Some(slab);
            self.on_another(slab);
        }
    }

    fn on_another(&mut self, slab: SlabId) {
        if self.ring.contains(&Some(slab)) {
            return;
        }
        if let Some(oldest) = self.ring.get_mut(self.next) {
            *oldest = Some(slab);
        }
        self.next = (self.next + 1) % SLABS_BETWEEN_COPIES;
        self.new += 1;
    }

    /// True if waiting data has to be copied now.
    #[inline]
    pub(crate) fn take_copies_due(&mut self) -> bool {
        let is_due = self.new >= SLABS_BETWEEN_COPIES;
        if is_due {
            self.new = 0;
        }
        is_due
    }
}

/// A slab, or the rest of a slab.
#[derive(Debug)]
struct Slab {
    memory: BytesMut,
    id: SlabId,
}

impl Slab {
    fn new(memory: BytesMut) -> Self {
        Self {
            memory,
            id: SlabId::new(),
        }
    }
}

/// True if a call that leaves buffers empty has emptied the socket: `recvmmsg` of Linux. Other
/// systems take one message in a call.
pub(crate) const DRAINS: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// Buffers for `recvmmsg`: one message per lane. Starts with a single lane, and adds a lane when a
/// call fills all lanes.
#[derive(Debug)]
pub(crate) struct ReceiveBuffers {
    lanes: Vec<Slab>,
    meta: Vec<RecvMeta>,
    retired: Retired,
    /// The slab of short messages.
    short: Slab,
    retired_short: Retired,
}

impl Default for ReceiveBuffers {
    /// One empty lane.
    fn default() -> Self {
        let mut retired = Retired::new(LANE_SLAB);
        Self {
            lanes: vec![retired.empty()],
            meta: vec![RecvMeta::default()],
            retired,
            short: Slab::new(BytesMut::new()),
            retired_short: Retired::new(SHORT_SLAB),
        }
    }
}

impl ReceiveBuffers {
    /// Lets `receive` fill the lanes, then passes each message to `take`. Returns the number of
    /// messages.
    pub(crate) fn fill(
        &mut self,
        receive: impl FnOnce(&mut [IoSliceMut<'_>], &mut [RecvMeta]) -> io::Result<usize>,
        mut take: impl FnMut(&RecvMeta, BytesMut, SlabId),
    ) -> io::Result<usize> {
        for lane in &mut self.lanes {
            if lane.memory.capacity() < MESSAGE {
                let used = std::mem::replace(lane, self.retired.empty());
                self.retired.push(used);
            }
            // Zeroes only the part that the message needs, just before receiving.
            if lane.memory.len() < MESSAGE {
                lane.memory.resize(MESSAGE, 0);
            }
        }
        let count = {
            let mut buffers: smallvec::SmallVec<[IoSliceMut<'_>; MAX_LANES]> = self
                .lanes
                .iter_mut()
                .filter_map(|lane| lane.memory.get_mut(..MESSAGE))
                .map(IoSliceMut::new)
                .collect();
            receive(&mut buffers, &mut self.meta)?
        };
        for (lane, meta) in self.lanes.iter_mut().zip(&self.meta).take(count) {
            let length = meta.len.min(MESSAGE);
            if length > SHORT {
                take(meta, lane.memory.split_to(length), lane.id);
                continue;
            }
            if self.short.memory.capacity() < length {
                let used = std::mem::replace(&mut self.short, self.retired_short.empty());
                self.retired_short.push(used);
            }
            let short = &mut self.short.memory;
            short.extend_from_slice(lane.memory.get(..length).unwrap_or_default());
            take(meta, short.split(), self.short.id);
        }
        if count == self.lanes.len() && count < MAX_LANES {
            self.lanes.push(self.retired.empty());
            self.meta.push(RecvMeta::default());
        }
        Ok(count)
    }

    /// The most messages that the next call takes.
    pub(crate) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Bytes of the slabs that the lanes fill now, or that wait for reuse.
    pub(crate) fn held(&self) -> u64 {
        let short = self.short.memory.capacity();
        let lanes = self.lanes.len() * LANE_SLAB;
        (lanes + short + self.retired.held() + self.retired_short.held()) as u64
    }

    /// Bytes of memory allocated for slabs so far, freed slabs included.
    pub(crate) fn allocated(&self) -> u64 {
        self.retired.allocated + self.retired_short.allocated
    }
}

/// Used-up slabs of one size, until all their slices are dropped.
#[derive(Debug)]
struct Retired {
    slabs: VecDeque<BytesMut>,
    /// Size of a slab, in bytes.
    size: usize,
    /// Bytes allocated so far.
    allocated: u64,
}

impl Retired {
    fn new(size: usize) -> Self {
        Self {
            slabs: VecDeque::new(),
            size,
            allocated: 0,
        }
    }

    /// Bytes of the slabs kept.
    fn held(&self) -> usize {
        self.slabs.len() * self.size
    }

    /// Keeps the rest of a slab.
    fn push(&mut self, mut used: Slab) {
        used.memory.clear();
        self.slabs.push_back(used.memory);
        if self.slabs.len() > MAX_RETIRED {
            self.slabs.pop_front();
        }
    }

    /// Returns a slab whose slices are all dropped.
    fn reclaim(&mut self) -> Option<BytesMut> {
        let (slabs, size) = (&mut self.slabs, self.size);
        // The newest slabs are still in the cache, and the oldest slabs become free first. Slow
        // readers may keep the slabs between them.
        let newest = (0..slabs.len()).rev().take(LOOK_AT);
        let oldest = 0..slabs.len().min(LOOK_AT);
        for index in newest.chain(oldest) {
            let slab = slabs.get_mut(index);
            if slab.is_some_and(|slab| slab.try_reclaim(size)) {
                return slabs.remove(index);
            }
        }
        None
    }

    /// An empty slab.
    fn empty(&mut self) -> Slab {
        Slab::new(self.reclaim().unwrap_or_else(|| {
            self.allocated += self.size as u64;
            BytesMut::with_capacity(self.size)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deliver(lanes: &mut ReceiveBuffers, length: usize) -> (usize, BytesMut) {
        let mut out = BytesMut::new();
        lanes
            .fill(
                |buffers, meta| {
                    assert_eq!(buffers[0].len(), 1 << 16);
                    buffers[0][..length].fill(7);
                    meta[0].len = length;
                    Ok(1)
                },
                |_, message, _| out = message,
            )
            .unwrap();
        (out.as_ptr() as usize, out)
    }

    #[test]
    fn slabs_are_used_again_once_free() {
        let mut lanes = ReceiveBuffers::default();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            let (address, message) = deliver(&mut lanes, 60_000);
            assert_eq!(message.len(), 60_000);
            assert!(message.iter().all(|byte| *byte == 7));
            seen.insert(address);
        }
        // 1000 messages are 60 MB; a few slabs served them all.
        assert!(seen.len() < 40, "{} addresses", seen.len());
    }

    #[test]
    fn short_messages_share_a_slab_and_leave_the_lane_alone() {
        let mut lanes = ReceiveBuffers::default();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..10_000 {
            let (address, message) = deliver(&mut lanes, 1200);
            assert_eq!(&message[..], &[7; 1200]);
            seen.insert(address / SHORT_SLAB);
        }
        assert!(seen.len() < 8, "{} slabs", seen.len());
        assert_eq!(lanes.lanes[0].memory.capacity(), LANE_SLAB);
    }

    #[test]
    fn no_more_of_a_slab_is_zeroed_than_is_received_into() {
        let mut lanes = ReceiveBuffers::default();
        let mut addresses = Vec::new();
        for count in 1..=4 {
            let (address, _message) = deliver(&mut lanes, 16_000);
            addresses.push(address);
            let memory = &lanes.lanes[0].memory;
            assert_eq!(memory.len(), MESSAGE - 16_000);
            assert_eq!(memory.capacity(), LANE_SLAB - count * 16_000);
        }
        // All messages share the slab until the slab has no room for another message.
        assert!(addresses.is_sorted_by(|a, b| a + 16_000 == *b));
        deliver(&mut lanes, 16_000);
        assert_eq!(lanes.lanes[0].memory.capacity(), LANE_SLAB - 5 * 16_000);
        deliver(&mut lanes, 16_000);
        assert_eq!(lanes.lanes[0].memory.capacity(), LANE_SLAB - 16_000);
    }

    #[test]
    fn held_memory_counts_lanes_and_kept_slabs() {
        let mut lanes = ReceiveBuffers::default();
        assert_eq!(lanes.held(), LANE_SLAB as u64);
        let mut kept = Vec::new();
        for _ in 0..1000 {
            kept.push(deliver(&mut lanes, 60_000).1);
        }
        let most = lanes.lanes.len() + MAX_RETIRED;
        assert_eq!(lanes.held(), (most * LANE_SLAB) as u64);
        kept.clear();
        // The lanes take free slabs before new slabs.
        let held = lanes.held();
        for _ in 0..1000 {
            deliver(&mut lanes, 60_000);
        }
        assert!(lanes.held() <= held);
    }

    /// The slabs of short messages as well.
    #[test]
    fn held_memory_counts_short_messages() {
        let mut lanes = ReceiveBuffers::default();
        let mut kept = Vec::new();
        for _ in 0..3 * SHORT_SLAB / 1000 {
            kept.push(deliver(&mut lanes, 1000).1);
        }
        let retired = lanes.retired_short.held();
        assert!(retired > 0);
        let short = lanes.short.memory.capacity();
        let all = lanes.lanes.len() * LANE_SLAB + short + retired;
        assert_eq!(lanes.held(), all as u64);
    }

    /// With many slabs in use, checking all of them would take long.
    #[test]
    fn the_four_newest_and_the_four_oldest_slabs_are_looked_at() {
        const SIZE: usize = 1000;
        for (free, is_found) in [
            (0, true),
            (3, true),
            (4, false),
            (5, false),
            (6, true),
            (9, true),
        ] {
            let mut retired = Retired::new(SIZE);
            let mut in_use = Vec::new();
            for index in 0..10 {
                let mut slab = Slab::new(BytesMut::with_capacity(SIZE));
                slab.memory.extend_from_slice(&[7; 10]);
                in_use.extend(Some(slab.memory.split()).filter(|_| index != free));
                retired.push(slab);
            }
            assert_eq!(retired.reclaim().is_some(), is_found, "{free}");
            assert_eq!(retired.slabs.len(), if is_found { 9 } else { 10 });
        }
    }

    #[test]
    fn long_message_takes_its_own_lane() {
        for (length, left) in [(SHORT, LANE_SLAB), (SHORT + 1, LANE_SLAB - SHORT - 1)] {
            let mut lanes = ReceiveBuffers::default();
            let _message = deliver(&mut lanes, length).1;
            assert_eq!(lanes.lanes[0].memory.capacity(), left);
        }
    }

    #[test]
    fn a_message_in_use_is_never_overwritten() {
        for length in [1000, 50_000] {
            keeps_what_is_in_use(length);
        }
    }

    fn keeps_what_is_in_use(length: usize) {
        let mut lanes = ReceiveBuffers::default();
        let (_, kept) = deliver(&mut lanes, length);
        let kept = kept.freeze();
        for _ in 0..100 {
            lanes
                .fill(
                    |buffers, meta| {
                        buffers[0].fill(9);
                        meta[0].len = MESSAGE;
                        Ok(1)
                    },
                    |_, _, _| {},
                )
                .unwrap();
        }
        for _ in 0..1000 {
            deliver(&mut lanes, 1000).1.fill(9);
        }
        assert!(kept.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn copies_are_due_after_some_slabs_and_not_after_many_datagrams() {
        let mut seen = SlabsSeen::default();
        let slabs: Vec<_> = (0..SLABS_BETWEEN_COPIES).map(|_| SlabId::new()).collect();
        // The slabs of several sockets take turns.
        for _ in 0..1000 {
            for slab in slabs.iter().skip(1) {
                seen.on_received(*slab);
                assert!(!seen.take_copies_due());
            }
        }
        seen.on_received(slabs[0]);
        assert!(seen.take_copies_due());
        assert!(!seen.take_copies_due());
    }

    /// Also if the socket reports more bytes than the buffer holds.
    #[test]
    fn a_slab_is_used_to_its_last_byte() {
        let mut lanes = ReceiveBuffers::default();
        let (first, _message) = deliver(&mut lanes, MESSAGE);
        let mut out = BytesMut::new();
        let longer = |_: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta]| {
            meta[0].len = MESSAGE + 1;
            Ok(1)
        };
        let taken = lanes.fill(longer, |_, message, _| out = message);
        assert_eq!(taken.unwrap(), 1);
        assert_eq!(
            (out.as_ptr() as usize, out.len()),
            (first + MESSAGE, MESSAGE)
        );

        let mut kept = Vec::new();
        let mut addresses = Vec::new();
        for _ in 0..SHORT_SLAB / SHORT {
            let (address, message) = deliver(&mut lanes, SHORT);
            addresses.push(address);
            kept.push(message);
        }
        assert!(addresses.is_sorted_by(|a, b| a + SHORT == *b));
        assert_eq!(lanes.retired_short.allocated, SHORT_SLAB as u64);
        kept.push(deliver(&mut lanes, 1).1);
        assert_eq!(lanes.retired_short.allocated, 2 * SHORT_SLAB as u64);
    }

    #[test]
    fn the_last_sixteen_slabs_count_once() {
        let mut seen = SlabsSeen::default();
        let slabs: Vec<_> = (0..=SLABS_BETWEEN_COPIES).map(|_| SlabId::new()).collect();
        for slab in &slabs {
            seen.on_received(*slab);
        }
        assert!(seen.take_copies_due());
        let [.., before, last] = &slabs[..] else {
            unreachable!("there are more")
        };
        for _ in 0..100 {
            seen.on_received(*before);
            seen.on_received(*last);
            assert!(!seen.take_copies_due());
        }
        // Copies are due again after sixteen other slabs.
        for count in 1..=SLABS_BETWEEN_COPIES {
            seen.on_received(SlabId::new());
            assert_eq!(seen.take_copies_due(), count == SLABS_BETWEEN_COPIES);
        }
    }
}
