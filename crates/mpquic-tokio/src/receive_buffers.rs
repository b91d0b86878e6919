//! [`ReceiveBuffers`]: the memory that a socket receives into.
//!
//! Each lane owns a slab of memory. A received message is cut off the front of the slab, decrypted
//! in place and handed out as `Bytes` slices; the slab is used again once all of these are dropped.
//! Short messages are copied to another slab, so that a few bytes neither use up a lane nor keep
//! much memory alive. Nothing is allocated once there are enough slabs.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};

use bytes::BytesMut;
use quinn_udp::RecvMeta;

/// Bytes that one call to the kernel may fill in a lane: the largest UDP payload, coalesced or not.
const MESSAGE: usize = 1 << 16;
/// Size of a slab, in bytes. Small enough to stay in a CPU cache, large enough to waste little at
/// its end.
const SLAB: usize = 4 * MESSAGE;
/// Messages up to this length, in bytes, are copied: that costs less than the part of a slab they
/// would use up.
const SHORT: usize = 4096;
/// The most messages taken from the kernel in one call.
const MAX_LANES: usize = 8;
/// The most slabs kept for later while slices of them are still in use.
const MAX_RETIRED: usize = 64;
/// How many of these are looked at, from each end, to find a free one.
const LOOK_AT: usize = 4;

/// Buffers for `recvmmsg`: one message per lane. Starts with one lane, and gets more when all are
/// filled.
#[derive(Debug)]
pub(crate) struct ReceiveBuffers {
    lanes: Vec<BytesMut>,
    meta: Vec<RecvMeta>,
    retired: VecDeque<BytesMut>,
    /// Where short messages go.
    short: BytesMut,
    retired_short: VecDeque<BytesMut>,
}

impl Default for ReceiveBuffers {
    /// One empty lane.
    fn default() -> Self {
        Self {
            lanes: vec![BytesMut::zeroed(SLAB)],
            meta: vec![RecvMeta::default()],
            retired: VecDeque::new(),
            short: BytesMut::new(),
            retired_short: VecDeque::new(),
        }
    }
}

impl ReceiveBuffers {
    /// Lets `receive` fill the lanes, then passes each message to `take`. Returns the number of
    /// messages.
    pub(crate) fn fill(
        &mut self,
        receive: impl FnOnce(&mut [IoSliceMut<'_>], &mut [RecvMeta]) -> io::Result<usize>,
        mut take: impl FnMut(&RecvMeta, BytesMut),
    ) -> io::Result<usize> {
        for lane in &mut self.lanes {
            if lane.len() < MESSAGE {
                let used = std::mem::replace(lane, fresh(&mut self.retired));
                retire(&mut self.retired, used);
            }
        }
        let count = {
            let mut buffers: smallvec::SmallVec<[IoSliceMut<'_>; MAX_LANES]> = self
                .lanes
                .iter_mut()
                .filter_map(|lane| lane.get_mut(..MESSAGE))
                .map(IoSliceMut::new)
                .collect();
            receive(&mut buffers, &mut self.meta)?
        };
        for (lane, meta) in self.lanes.iter_mut().zip(&self.meta).take(count) {
            let length = meta.len.min(MESSAGE);
            if length > SHORT {
                take(meta, lane.split_to(length));
                continue;
            }
            if self.short.capacity() < length {
                let slab = reclaim(&mut self.retired_short);
                let slab = slab.unwrap_or_else(|| BytesMut::with_capacity(SLAB));
                let used = std::mem::replace(&mut self.short, slab);
                retire(&mut self.retired_short, used);
            }
            self.short
                .extend_from_slice(lane.get(..length).unwrap_or_default());
            take(meta, self.short.split());
        }
        if count == self.lanes.len() && count < MAX_LANES {
            self.lanes.push(fresh(&mut self.retired));
            self.meta.push(RecvMeta::default());
        }
        Ok(count)
    }
}

/// Keeps what is left of a slab until all that was cut off it is dropped.
fn retire(retired: &mut VecDeque<BytesMut>, mut used: BytesMut) {
    used.clear();
    retired.push_back(used);
    if retired.len() > MAX_RETIRED {
        retired.pop_front();
    }
}

/// A retired slab none of whose slices is in use any more.
fn reclaim(retired: &mut VecDeque<BytesMut>) -> Option<BytesMut> {
    // The newest ones are still in the cache, and the oldest ones are the first to be free. Slow
    // readers may keep those in between.
    let newest = (0..retired.len()).rev().take(LOOK_AT);
    let oldest = 0..retired.len().min(LOOK_AT);
    for index in newest.chain(oldest) {
        if retired
            .get_mut(index)
            .is_some_and(|slab| slab.try_reclaim(SLAB))
        {
            return retired.remove(index);
        }
    }
    None
}

/// An empty slab to receive into.
fn fresh(retired: &mut VecDeque<BytesMut>) -> BytesMut {
    match reclaim(retired) {
        Some(mut slab) => {
            slab.resize(SLAB, 0);
            slab
        }
        None => BytesMut::zeroed(SLAB),
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
                    buffers[0][..length].fill(7);
                    meta[0].len = length;
                    Ok(1)
                },
                |_, message| out = message,
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
        // 1000 messages are 60 MB; a few slabs of some messages each served them all.
        assert!(seen.len() < 40, "{} addresses", seen.len());
    }

    #[test]
    fn short_messages_share_a_slab_and_leave_the_lane_alone() {
        let mut lanes = ReceiveBuffers::default();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..10_000 {
            let (address, message) = deliver(&mut lanes, 1200);
            assert_eq!(&message[..], &[7; 1200]);
            seen.insert(address / SLAB);
        }
        assert!(seen.len() < 8, "{} slabs", seen.len());
        assert_eq!(lanes.lanes[0].len(), SLAB);
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
                    |_, _| {},
                )
                .unwrap();
        }
        for _ in 0..1000 {
            deliver(&mut lanes, 1000).1.fill(9);
        }
        assert!(kept.iter().all(|byte| *byte == 7));
    }
}
