//! Helpers that most schedulers need: questions about a view, and common decisions.

use std::time::Duration;

use mpquic_core::sched::{Decision, PathView, Sendable, View};

/// Most datagrams per decision: as many as one batched send call takes.
const BATCH_DATAGRAMS: u64 = 64;

/// Bytes to ask for on a path: a whole batch, but never more than the window has room for.
pub(crate) fn batch_bytes(path: &PathView) -> u64 {
    let mtu = u64::from(path.mtu);
    path.available_window().min(BATCH_DATAGRAMS * mtu).max(mtu)
}

/// Sends the next data of the queue on a path, a whole batch.
pub(crate) fn send_batch(path: &PathView) -> Decision {
    Decision::send_up_to(path.id, batch_bytes(path))
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

/// An RTT in seconds, never zero.
pub(crate) fn seconds(rtt: Duration) -> f64 {
    rtt.as_secs_f64().max(1e-6)
}

/// Delivery rate of a path, bytes per second: the measured rate, or a window per round trip before
/// it is measured. Never zero.
pub(crate) fn rate(path: &PathView) -> f64 {
    match path.delivery_rate {
        Some(rate) if rate > 0 => rate as f64,
        _ => path.window.max(1) as f64 / seconds(path.rtt.smoothed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{full, path};

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
    fn rate_without_a_measurement_is_a_window_per_round_trip() {
        let mut path = path(0, 100);
        path.window = 10_000;
        for (measured, expected) in [(None, 1e5), (Some(0), 1e5), (Some(1), 1.0)] {
            path.delivery_rate = measured;
            assert_eq!(rate(&path), expected);
        }
    }
}
