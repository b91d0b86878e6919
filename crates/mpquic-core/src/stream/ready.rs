//! [`ReadyQueues`]: the streams with something to send; those bound to a path stand apart.

use super::queue::StreamQueue;
use crate::ids::PathId;

/// Keys of sending halves.
#[derive(Debug, Default)]
pub(super) struct Ready {
    /// Halves with something to send that needs no credit of the connection: lost bytes, skipped
    /// bytes, or the end of a stream without data.
    pub(super) resend: StreamQueue,
    /// Halves with new bytes.
    pub(super) fresh: StreamQueue,
}

impl Ready {
    fn new(has_floor: bool) -> Self {
        Self {
            resend: StreamQueue::default(),
            fresh: StreamQueue::with_floor(has_floor),
        }
    }

    fn is_empty(&self) -> bool {
        self.resend.is_empty() && self.fresh.is_empty()
    }

    /// True if `credit` bytes of the connection's credit allow sending.
    pub(super) fn can_send(&self, credit: u64) -> bool {
        !self.resend.is_empty() || !self.fresh.is_empty() && credit > 0
    }

    pub(super) fn remove(&mut self, key: u32) {
        self.resend.remove(key);
        self.fresh.remove(key);
    }

    /// This number of bytes of a half was sent: the half moves behind the others of its priority.
    pub(super) fn on_sent(&mut self, key: u32, bytes: u64) {
        self.fresh.on_sent(key, bytes);
        self.resend.rotate(key);
        self.fresh.rotate(key);
    }

    fn memory(&self) -> usize {
        self.resend.memory() + self.fresh.memory()
    }
}

/// Streams for any path, and for each path its bound streams.
#[derive(Debug, Default)]
pub(super) struct ReadyQueues {
    pub(super) free: Ready,
    /// A short list: applications bind streams to few paths.
    bound: Vec<(PathId, Ready)>,
    /// Less urgent data has a part of the turns.
    has_floor: bool,
}

impl ReadyQueues {
    /// Empty queues. With a floor, less urgent streams have a part of the turns.
    pub(super) fn new(has_floor: bool) -> Self {
        Self {
            free: Ready::new(has_floor),
            bound: Vec::new(),
            has_floor,
        }
    }

    /// The queues of streams bound to `path`, or of those bound to none; `None` if there are none.
    pub(super) fn of_mut(&mut self, path: Option<PathId>) -> Option<&mut Ready> {
        let Some(path) = path else {
            return Some(&mut self.free);
        };
        let mut bound = self.bound.iter_mut();
        bound.find(|(of, _)| *of == path).map(|(_, ready)| ready)
    }

    /// Like [`Self::of_mut`], but adds missing queues.
    #[inline]
    pub(super) fn entry(&mut self, path: Option<PathId>) -> &mut Ready {
        match path {
            None => &mut self.free,
            Some(path) => self.bound_entry(path),
        }
    }

    #[cold]
    fn bound_entry(&mut self, path: PathId) -> &mut Ready {
        let known = self.bound.iter().position(|(of, _)| *of == path);
        let index = known.unwrap_or_else(|| {
            self.bound.push((path, Ready::new(self.has_floor)));
            self.bound.len() - 1
        });
        &mut self.bound[index].1
    }

    /// Paths with bound streams that `credit` bytes of the connection's credit allow sending.
    pub(super) fn bound_paths(&self, credit: u64) -> impl Iterator<Item = PathId> + '_ {
        let ready = (self.bound.iter()).filter(move |(_, ready)| ready.can_send(credit));
        ready.map(|(path, _)| *path)
    }

    /// True if a stream has new bytes.
    pub(super) fn wants_credit(&self) -> bool {
        let bound = self.bound.iter().map(|(_, ready)| ready);
        bound
            .chain([&self.free])
            .any(|ready| !ready.fresh.is_empty())
    }

    /// No stream is bound to the path any more.
    pub(super) fn forget(&mut self, path: PathId) {
        self.bound.retain(|(of, _)| *of != path);
    }

    /// Frees memory that is kept for reuse.
    pub(super) fn trim(&mut self) {
        self.bound.retain(|(_, ready)| !ready.is_empty());
        self.bound.shrink_to_fit();
        let all = self.bound.iter_mut().map(|(_, ready)| ready);
        for ready in all.chain([&mut self.free]) {
            ready.resend.trim();
            ready.fresh.trim();
        }
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        let bound = self.bound.iter().map(|(_, ready)| ready.memory());
        self.free.memory() + bound.sum::<usize>()
    }
}
