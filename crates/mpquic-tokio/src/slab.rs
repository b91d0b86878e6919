//! [`Lanes`]: pooled receive buffers.
//!
//! Each lane owns a slab; a received batch is cut off its front, decrypted in place and handed out
//! as `Bytes` slices, and the slab is used again once all of them are dropped. Nothing is allocated
//! once the pool is warm.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};

use bytes::BytesMut;
use quinn_udp::RecvMeta;

/// Room one call to the kernel may fill in a lane: the largest UDP payload, coalesced or not.
const MESSAGE: usize = 1 << 16;
/// Bytes of a slab. Small enough to stay in a CPU cache, large enough to waste little at its end.
const SLAB: usize = 4 * MESSAGE;
/// Messages taken from the kernel in one call, at most.
const MAX_LANES: usize = 8;
/// Slabs whose slices are still in use and that are kept for later.
const MAX_RETIRED: usize = 64;
/// How many of them are looked at for one that is free, from either end.
const LOOK_AT: usize = 4;

/// Buffers for `recvmmsg`: one message per lane. Starts with one and grows when all are filled.
#[derive(Debug)]
pub(crate) struct Lanes {
    lanes: Vec<BytesMut>,
    meta: Vec<RecvMeta>,
    retired: VecDeque<BytesMut>,
}

impl Lanes {
    /// One empty lane.
    pub(crate) fn new() -> Self {
        Self {
            lanes: vec![BytesMut::zeroed(SLAB)],
            meta: vec![RecvMeta::default()],
            retired: VecDeque::new(),
        }
    }

    /// Lets `receive` fill the lanes, then passes each message to `take`. Returns how many.
    pub(crate) fn fill(
        &mut self,
        receive: impl FnOnce(&mut [IoSliceMut<'_>], &mut [RecvMeta]) -> io::Result<usize>,
        mut take: impl FnMut(&RecvMeta, BytesMut),
    ) -> io::Result<usize> {
        for lane in &mut self.lanes {
            if lane.len() < MESSAGE {
                let mut used = std::mem::replace(lane, fresh(&mut self.retired));
                used.clear();
                self.retired.push_back(used);
                if self.retired.len() > MAX_RETIRED {
                    self.retired.pop_front();
                }
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
            take(meta, lane.split_to(meta.len.min(MESSAGE)));
        }
        if count == self.lanes.len() && count < MAX_LANES {
            self.lanes.push(fresh(&mut self.retired));
            self.meta.push(RecvMeta::default());
        }
        Ok(count)
    }
}

/// A slab nobody looks at any more, or a new one.
fn fresh(retired: &mut VecDeque<BytesMut>) -> BytesMut {
    // The newest are in the cache still, the oldest free first; slow readers may hold the rest.
    let newest = (0..retired.len()).rev().take(LOOK_AT);
    let oldest = 0..retired.len().min(LOOK_AT);
    for index in newest.chain(oldest) {
        if let Some(slab) = retired.get_mut(index)
            && slab.try_reclaim(SLAB)
            && let Some(mut slab) = retired.remove(index)
        {
            slab.resize(SLAB, 0);
            return slab;
        }
    }
    BytesMut::zeroed(SLAB)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deliver(lanes: &mut Lanes, length: usize) -> (usize, BytesMut) {
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
        let mut lanes = Lanes::new();
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
    fn a_message_in_use_is_never_overwritten() {
        let mut lanes = Lanes::new();
        let (_, kept) = deliver(&mut lanes, 1000);
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
        assert!(kept.iter().all(|byte| *byte == 7));
    }
}
