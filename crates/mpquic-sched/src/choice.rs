//! Helpers that most schedulers need: questions about a view, and common decisions.

use std::time::Duration;

use mpquic_core::StreamId;
use mpquic_core::sched::{DataSelection, Decision, PathSet, PathView, Sendable, View};

/// Most datagrams per decision: as many as one batched send call takes.
const BATCH_DATAGRAMS: u64 = 64;

/// Tag of packets that a plan asked for. The plan is charged when such a packet is sent.
pub(crate) const PLANNED: u64 = 1;

/// Bytes to ask for on a path: a whole batch, but never more than the window has room for.
pub(crate) fn batch_bytes(path: &PathView) -> u64 {
    let mtu = u64::from(path.mtu);
    path.available_window().min(BATCH_DATAGRAMS * mtu).max(mtu)
}

/// Sends the next data of the queue on a path, a whole batch.
pub(crate) fn send_batch(path: &PathView) -> Decision {
    Decision::send_up_to(path.id, batch_bytes(path))
}

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

/// True if the path has an RTT sample.
pub(crate) fn is_measured(path: &PathView) -> bool {
    path.rtt.samples > 0
}

/// True if the path can send, or if an event that lets it send is certain to come.
pub(crate) fn can_carry(path: &PathView) -> bool {
    path.usable
        && match path.sendable {
            Sendable::Now | Sendable::At(_) => true,
            Sendable::WindowFull => path.in_flight > 0,
            _ => false,
        }
}

/// The path with the lowest smoothed RTT; among equals, the path with the lowest ID.
pub(crate) fn lowest_rtt<'a>(paths: impl Iterator<Item = &'a PathView>) -> Option<&'a PathView> {
    paths.min_by_key(|path| (path.rtt.smoothed, path.id))
}

/// The measured path with the lowest smoothed RTT that can send.
pub(crate) fn fastest_sendable<'a>(view: &View<'a>) -> Option<&'a PathView> {
    lowest_rtt(view.sendable().filter(|path| is_measured(path)))
}

/// Measured paths that carry data, now or as soon as they have room.
pub(crate) fn carriers<'a>(view: &View<'a>) -> impl Iterator<Item = &'a PathView> + use<'a> {
    let paths = view.paths.iter();
    paths.filter(|path| is_measured(path) && can_carry(path))
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

/// Waits for a path, if the wait is certain to end.
pub(crate) fn wait_for(path: &PathView) -> Option<Decision> {
    let until = match path.sendable {
        Sendable::At(time) => Some(time),
        Sendable::WindowFull if path.in_flight > 0 => None,
        _ => return None,
    };
    let on = path.id;
    path.usable.then_some(Decision::Wait { on, until })
}

/// Largest size of all headers in a full datagram with one STREAM frame, bytes.
const HEADERS: u64 = 60;

/// Stream bytes that certainly fit into one datagram of the path, without other frames.
pub(crate) fn payload(path: &PathView) -> u64 {
    u64::from(path.mtu).saturating_sub(HEADERS).max(1)
}

/// An RTT in seconds, never zero.
pub(crate) fn seconds(rtt: Duration) -> f64 {
    rtt.as_secs_f64().max(1e-6)
}

/// One-way delay towards the peer, seconds. It cannot be measured: it is the smoothed RTT less the
/// return delay. If acknowledgements return on the same path, they take half of the RTT.
pub(crate) fn one_way_delay(path: &PathView) -> f64 {
    let smoothed = path.rtt.smoothed;
    let back = path.return_delay.unwrap_or(smoothed / 2);
    seconds(smoothed.saturating_sub(back))
}

/// Delivery rate of a path, bytes per second: the measured rate, or a window per round trip before
/// it is measured. Never zero.
pub(crate) fn rate(path: &PathView) -> f64 {
    match path.delivery_rate {
        Some(rate) if rate > 0 => rate as f64,
        _ => path.window.max(1) as f64 / seconds(path.rtt.smoothed),
    }
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

/// The weight of a stream: its priority, limited to the 1 to 256 of HTTP/2.
pub(crate) fn weight(priority: i32) -> u64 {
    u64::from(priority.clamp(1, 256).unsigned_abs())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scene, full, path};

    #[test]
    fn full_path_is_waited_for_if_packets_are_in_flight() {
        let mut path = full(path(0, 10));
        path.in_flight = 1;
        let on = path.id;
        assert_eq!(wait_for(&path), Some(Decision::Wait { on, until: None }));
        path.in_flight = 0;
        assert_eq!(wait_for(&path), None);
    }

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
    fn one_way_delay_is_the_rtt_less_the_return_delay() {
        let mut long = path(1, 325);
        assert_eq!(one_way_delay(&long), 0.1625);
        long.return_delay = Some(Duration::from_millis(25));
        assert_eq!(one_way_delay(&long), 0.3);
    }

    #[test]
    fn rate_without_a_measurement_is_a_window_per_round_trip() {
        let mut path = path(0, 100);
        path.window = 10_000;
        for (measured, expected) in [(None, 1e5), (Some(0), 1e5), (Some(1), 1.0)] {
            path.delivery_rate = measured;
            assert_eq!(rate(&path), expected);
        }
    }
}
