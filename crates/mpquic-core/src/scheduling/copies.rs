//! [`Copies`]: data sent a second time on other paths, by wish of the scheduler or the application.

use std::collections::VecDeque;
use std::ops::Range;

use quinn_proto::StreamId;

use super::assignment::Assignment;
use super::parts::Parts;
use super::views::Views;
use crate::ids::PathId;
use crate::outbox::Train;
use crate::packet::delivery::{Delivery, StreamDelivery};
use crate::sched::{DataSelection, SchedulerEvent};
use crate::stream::SentDatagram;

/// Most copies that wait for the window of one path.
const MAX_COPIES: usize = 256;
/// Repeat budget of a scheduler, per byte sent for the first time.
const REPEATS: u64 = 16;
/// Repeat budget of a scheduler at the start of a connection, in bytes.
const FREE_REPEATS: u64 = 1 << 16;
/// Copy budget of the application at the start of a connection, in bytes.
const FREE_COPIES: u64 = 1 << 16;
/// Most bytes of copy budget that the application may save up.
const MAX_SAVED_COPIES: u64 = 1 << 20;

/// A copy of stream data that waits for its path.
#[derive(Debug)]
struct PendingCopy {
    path: PathId,
    data: StreamBytes,
    tag: u64,
}

/// Bytes of a stream.
#[derive(Debug, Clone)]
struct StreamBytes {
    id: StreamId,
    offsets: Range<u64>,
}

/// Waiting copies of stream data, and the budgets for repeated bytes. Copies of DATAGRAMs wait with
/// the other DATAGRAMs.
#[derive(Debug)]
pub(crate) struct Copies {
    waiting: VecDeque<PendingCopy>,
    /// How many bytes the scheduler may send again.
    repeats: u64,
    /// Bytes that may be copied for the application.
    credit: u64,
    /// How that grows, in percent of the bytes that are sent for the first time.
    percent: u64,
}

impl Copies {
    /// Without copies. The application may have `percent` percent of the first-time bytes copied.
    pub(crate) fn new(percent: u8) -> Self {
        Self {
            waiting: VecDeque::new(),
            repeats: FREE_REPEATS,
            credit: if percent > 0 { FREE_COPIES } else { 0 },
            percent: percent.into(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// True if the scheduler has repeat budget.
    pub(crate) fn may_repeat(&self) -> bool {
        self.repeats > 0
    }

    /// A copy for a path with room. Bytes that have arrived meanwhile are not written.
    pub(crate) fn next(&mut self, views: &Views) -> Option<Assignment> {
        let mut waiting = self.waiting.iter();
        let index = waiting.position(|copy| views.can_send(copy.path))?;
        let PendingCopy { path, data, tag } = self.waiting.remove(index)?;
        let StreamBytes { id, offsets } = data;
        Some(Assignment {
            data: Some(DataSelection::Range { id, offsets }),
            tag,
            ..Assignment::next(path)
        })
    }

    pub(crate) fn on_event(&mut self, event: &SchedulerEvent) {
        if let SchedulerEvent::PathRemoved(path) = event {
            self.waiting.retain(|copy| copy.path != *path);
        }
    }

    /// Counts sent bytes towards the budgets, and queues copies for other paths. `assigned` is the
    /// last assignment with repeated bytes.
    pub(crate) fn settle(
        &mut self,
        assigned: Option<Assignment>,
        views: &Views,
        parts: &mut Parts<'_>,
    ) {
        let train = &mut parts.outbox.train;
        let (bytes, new) = (
            std::mem::take(&mut train.bytes),
            std::mem::take(&mut train.new),
        );
        self.repeats = self.repeats.saturating_add(new.saturating_mul(REPEATS));
        if self.percent > 0 && new > 0 {
            let more = new.saturating_mul(self.percent) / 100;
            self.credit = self.credit.saturating_add(more).min(MAX_SAVED_COPIES);
        }
        if let Some(assigned) = &assigned {
            if assigned.is_repeat() {
                let repeated = bytes.saturating_sub(new);
                self.repeats = self.repeats.saturating_sub(repeated);
                parts.outbox.stats.bytes_repeated += repeated;
                self.go_on(assigned, &parts.outbox.train);
            }
            self.copy_streams(assigned, views, &mut parts.outbox.train);
        }
        if parts.datagrams.has_sent() {
            self.copy_datagrams(assigned.as_ref(), views, parts);
        }
        if !parts.outbox.train.wanted.is_empty() {
            self.copy_redundant(views, parts);
        }
    }

    /// Bytes that did not fit the repeating packet follow in another packet: two paths may have
    /// packets of different sizes.
    fn go_on(&mut self, assigned: &Assignment, train: &Train) {
        let Some(DataSelection::Range { id, offsets }) = &assigned.data else {
            return;
        };
        // Not the content of one packet.
        if offsets.end.saturating_sub(offsets.start) > u64::from(u16::MAX) {
            return;
        }
        let sent = train.content.iter().filter_map(StreamBytes::of);
        let ends = sent
            .filter(|sent| sent.id == *id)
            .map(|sent| sent.offsets.end);
        if let Some(end) = ends.max().filter(|end| *end < offsets.end) {
            self.waiting.push_front(PendingCopy {
                path: assigned.path,
                data: StreamBytes {
                    id: *id,
                    offsets: end..offsets.end,
                },
                tag: assigned.tag,
            });
        }
    }

    /// Queues copies of stream bytes just sent for the paths of an assignment.
    fn copy_streams(&mut self, assigned: &Assignment, views: &Views, train: &mut Train) {
        for delivery in train.content.drain(..) {
            let Some(data) = StreamBytes::of(&delivery) else {
                continue;
            };
            for path in assigned.copy_paths() {
                if self.repeats > 0 && self.has_room(path, views) {
                    self.push(path, data.clone(), assigned.tag);
                }
            }
        }
    }

    /// Queues copies of DATAGRAMs: those of the scheduler, and those that the application sends
    /// twice.
    fn copy_datagrams(
        &mut self,
        assigned: Option<&Assignment>,
        views: &Views,
        parts: &mut Parts<'_>,
    ) {
        for sent in parts.datagrams.take_sent() {
            let length = sent.length() as u64;
            let mut is_copied = false;
            let is_assigned = |assigned: &&Assignment| assigned.path == sent.path;
            for path in assigned
                .filter(is_assigned)
                .into_iter()
                .flat_map(Assignment::copy_paths)
            {
                if self.repeats > 0 && views.allowance(path).is_some() && copy(parts, path, &sent) {
                    self.repeats = self.repeats.saturating_sub(length);
                    is_copied = true;
                }
            }
            if !sent.wants_copy() || is_copied {
                continue;
            }
            match views.second(sent.path) {
                Some(path) if self.credit >= length && copy(parts, path, &sent) => {
                    self.credit -= length;
                }
                _ => parts.outbox.stats.copies_refused += 1,
            }
        }
    }

    /// Queues copies of what redundant streams have sent.
    fn copy_redundant(&mut self, views: &Views, parts: &mut Parts<'_>) {
        let train = &mut parts.outbox.train;
        for (first, delivery) in train.wanted.drain(..) {
            let Some(data) = StreamBytes::of(&delivery) else {
                continue;
            };
            let length = data.offsets.end - data.offsets.start;
            match views.second(first) {
                Some(path) if self.credit >= length && self.has_room(path, views) => {
                    self.credit -= length;
                    self.push(path, data, 0);
                }
                _ => parts.outbox.stats.copies_refused += 1,
            }
        }
    }

    fn push(&mut self, path: PathId, data: StreamBytes, tag: u64) {
        self.waiting.push_back(PendingCopy { path, data, tag });
    }

    /// True if the path can carry a copy now or later, and not too many wait for it.
    fn has_room(&self, path: PathId, views: &Views) -> bool {
        let waiting = self.waiting.iter().filter(|copy| copy.path == path);
        views.allowance(path).is_some() && waiting.count() < MAX_COPIES
    }

    /// Frees memory that is kept for reuse.
    pub(crate) fn trim(&mut self) {
        self.waiting.shrink_to_fit();
    }
}

/// Queues a copy of a DATAGRAM, if it fits the packets of the path and not too many wait.
fn copy(parts: &mut Parts<'_>, path: PathId, sent: &SentDatagram) -> bool {
    let room = parts.paths.open(path).map(crate::path::Path::frame_room);
    room.is_some_and(|room| sent.length() < room) && parts.datagrams.copy_to(path, sent)
}

impl StreamBytes {
    /// The bytes of a STREAM frame.
    fn of(delivery: &Delivery) -> Option<Self> {
        let Delivery::Stream(StreamDelivery::Data {
            id, offset, length, ..
        }) = *delivery
        else {
            return None;
        };
        let offsets = offset..offset + u64::from(length);
        Some(Self { id, offsets })
    }
}

#[cfg(test)]
mod tests {
    use quinn_proto::{Dir, Side};

    use super::*;

    #[test]
    fn waiting_copies_go_with_their_path() {
        let mut copies = Copies::new(0);
        for path in [0, 1, 0].map(PathId) {
            copies.waiting.push_back(PendingCopy {
                path,
                data: StreamBytes {
                    id: StreamId::new(Side::Client, Dir::Uni, 0),
                    offsets: 0..10,
                },
                tag: 0,
            });
        }
        copies.on_event(&SchedulerEvent::PathRemoved(PathId(0)));
        assert_eq!(copies.waiting.len(), 1);
        copies.on_event(&SchedulerEvent::PathRemoved(PathId(1)));
        assert!(copies.is_empty());
    }
}
