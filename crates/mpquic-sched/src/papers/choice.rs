//! Helpers that several schedulers of publications need.

use mpquic_core::sched::{DataSelection, Decision, PathSet, PathView, UnackedRange, View};
use mpquic_core::{PathId, StreamId};

use crate::choice::{batch_bytes, carriers, fastest_sendable, lowest_rtt, seconds};
use crate::plain_cases::PlainCases;
use crate::repeats::Repeats;

/// Tag of packets that a plan asked for. The plan is charged when such a packet is sent.
pub(crate) const PLANNED: u64 = 1;

/// Sends the next data of the queue on a path. The plan has `left` bytes for the path and is
/// charged.
pub(crate) fn send_planned(path: &PathView, left: u64) -> Decision {
    Decision::Send {
        path: path.id,
        data: DataSelection::Next,
        max_bytes: batch_bytes(path).min(left.max(1)),
        tag: PLANNED,
    }
}

/// Sends one datagram of a stream on a path.
pub(crate) fn send_stream(path: &PathView, stream: StreamId) -> Decision {
    Decision::Send {
        path: path.id,
        data: DataSelection::Stream(stream),
        max_bytes: 0,
        tag: 0,
    }
}

/// The path with the lowest one-way delay, even if it has no room now; among equals, the path with
/// the lowest ID.
pub(crate) fn nearest<'a>(view: &View<'a>) -> Option<&'a PathView> {
    carriers(view).min_by(|a, b| {
        let order = one_way_delay(a).total_cmp(&one_way_delay(b));
        order.then(a.id.cmp(&b.id))
    })
}

/// Two paths: the measured path with the lowest smoothed RTT, even if it has no room now, and the
/// path on which lowest-RTT-first would send.
pub(crate) fn fast_and_chosen<'a>(view: &View<'a>) -> Option<(&'a PathView, &'a PathView)> {
    Some((lowest_rtt(carriers(view))?, fastest_sendable(view)?))
}

/// Largest size of all headers in a full datagram with one STREAM frame, bytes.
const HEADERS: u64 = 60;

/// Stream bytes that certainly fit into one datagram of the path, without other frames.
pub(crate) fn payload(path: &PathView) -> u64 {
    u64::from(path.mtu).saturating_sub(HEADERS).max(1)
}

/// Stream bytes that wait to be sent, new or again.
pub(crate) fn backlog(view: &View<'_>) -> u64 {
    view.queue.unsent.saturating_add(view.queue.retransmit)
}

/// True if no plan for streams covers the next data: control frames, data to be sent again, or the
/// end of a stream without data.
pub(crate) fn is_outside_streams(view: &View<'_>) -> bool {
    view.queue.control || view.queue.retransmit > 0 || view.streams.is_empty()
}

/// The index of a stream in a slice sorted by stream ID: `Ok` if the stream is in the slice,
/// otherwise `Err` with the index at which to insert it.
pub(crate) fn find_stream<T>(
    sorted: &[T],
    stream: StreamId,
    id: impl Fn(&T) -> StreamId,
) -> Result<usize, usize> {
    // Stream IDs mostly follow each other without gaps.
    let first = sorted.first().map_or(stream, &id);
    let guess = stream.index().wrapping_sub(first.index()) as usize;
    match sorted.get(guess) {
        Some(entry) if id(entry) == stream => Ok(guess),
        _ => sorted.binary_search_by_key(&stream, id),
    }
}

/// Notices when the set of usable paths changes.
#[derive(Debug, Default)]
pub(crate) struct UsablePaths(PathSet);

impl UsablePaths {
    /// True if the set differs from that of the last call.
    pub(crate) fn have_changed(&mut self, view: &View<'_>) -> bool {
        let usable = || view.usable().map(|path| path.id);
        let changed = !usable().eq(self.0.iter().copied());
        if changed {
            self.0.clear();
            self.0.extend(usable());
        }
        changed
    }
}

/// Turns a random number into a number from 0 (included) to 1 (excluded).
pub(crate) fn uniform(random: u64) -> f64 {
    (random >> 11) as f64 / (1u64 << 53) as f64
}

/// One-way delay towards the peer, seconds. It cannot be measured: it is the smoothed RTT less the
/// return delay. If acknowledgements return on the same path, they take half of the RTT.
pub(crate) fn one_way_delay(path: &PathView) -> f64 {
    let smoothed = path.rtt.smoothed;
    let back = path.return_delay.unwrap_or(smoothed / 2);
    seconds(smoothed.saturating_sub(back))
}

/// The weight of a stream: 16 more than its priority, limited to the 1 to 256 of HTTP/2, where 16
/// is the default (RFC 7540 section 5.3.5). The urgencies 0 to 7 of HTTP/3 weigh 128, 64, 32, 16, 8,
/// 4, 2 and 1, by the priorities that `mpquic-h3` gives their streams.
pub(crate) fn weight(priority: i32) -> u64 {
    u64::from(priority.saturating_add(16).clamp(1, 256).unsigned_abs())
}

impl PlainCases {
    /// For schedulers that plan which path carries which stream bytes: the fastest path that can
    /// send. Without data to plan, the error holds the decision.
    pub(crate) fn fastest_for_plans<'a>(
        &mut self,
        view: &View<'a>,
    ) -> Result<&'a PathView, Decision> {
        if let Some(decision) = self.decide(view) {
            return Err(decision);
        }
        let fastest = fastest_sendable(view).ok_or(Decision::Blocked)?;
        if is_outside_streams(view) {
            Err(Decision::send(fastest.id))
        } else {
            Ok(fastest)
        }
    }

    /// For schedulers that compare two paths: see [`fast_and_chosen`]. If there is nothing to
    /// compare, the error holds the decision.
    pub(crate) fn fast_and_chosen<'a>(
        &mut self,
        view: &View<'a>,
    ) -> Result<(&'a PathView, &'a PathView), Decision> {
        match self.decide(view) {
            Some(decision) => Err(decision),
            None => fast_and_chosen(view).ok_or(Decision::Blocked),
        }
    }
}

impl Repeats {
    /// The oldest range that `path` neither carried nor repeated.
    pub(crate) fn oldest_elsewhere<'a>(
        &self,
        view: &View<'a>,
        path: PathId,
    ) -> Option<&'a UnackedRange> {
        let mut ranges = view.unacked().iter();
        ranges.find(|range| range.path != path && self.is_due(path, range))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::{Scene, path};

    #[test]
    fn a_set_of_usable_paths_changes_once() {
        let mut known = UsablePaths::default();
        let mut scene = Scene::new(vec![path(0, 10), path(1, 20)]);
        for count in [2, 1] {
            scene.paths.truncate(count);
            assert!(known.have_changed(&scene.view()));
            assert!(!known.have_changed(&scene.view()));
        }
    }

    #[test]
    fn a_weight_is_16_more_than_the_priority() {
        let of = [i32::MIN, -16, -15, -8, 0, 112, 240, 241, i32::MAX].map(weight);
        assert_eq!(of, [1, 1, 1, 8, 16, 128, 256, 256, 256]);
    }

    #[test]
    fn one_way_delay_is_the_rtt_less_the_return_delay() {
        let mut long = path(1, 325);
        assert_eq!(one_way_delay(&long), 0.1625);
        long.return_delay = Some(Duration::from_millis(25));
        assert_eq!(one_way_delay(&long), 0.3);
    }
}
