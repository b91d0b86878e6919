//! Redundant.

use mpquic_core::sched::{DataSelection, Decision, PathSet, Scheduler, View};

use crate::choice::{fastest_sendable, send_batch};
use crate::plain_cases::least_used;

/// Sends all data on every usable path. The first arriving copy counts, so the delay is the lowest
/// of all paths, and the goodput is about the goodput of the best path.
///
/// Source: `mptcp_redundant.c` (Pinedo, Lopez et al.). Inputs: RTT, window. Constants: none. A path
/// may lag behind by as many copies as the core keeps for the path.
///
/// New data takes the fastest path with room. Copies for the other paths wait in order for room in
/// the other windows; the arrival of the data drops the waiting copies. So every path sends the
/// oldest unacknowledged data that the path has not carried. Every path sends DATAGRAMs as well;
/// the peer's application gets each DATAGRAM several times.
#[derive(Debug, Default)]
pub struct Redundant;

impl Scheduler for Redundant {
    fn select(&mut self, view: &View<'_>) -> Decision {
        let Some(path) = fastest_sendable(view).or_else(|| least_used(view)) else {
            return Decision::Blocked;
        };
        let others = view.usable().filter(|other| other.id != path.id);
        let copies: PathSet = others.map(|other| other.id).collect();
        if copies.is_empty() {
            return send_batch(path);
        }
        // The core copies DATAGRAMs only if the decision names DATAGRAMs. Control frames may be
        // more urgent, but are few, and the core gives control frames a turn.
        let data = match view.queue.datagrams {
            0 => DataSelection::Next,
            _ => DataSelection::Datagram,
        };
        Decision::Duplicate {
            path: path.id,
            copies,
            data,
            tag: 0,
        }
    }

    fn name(&self) -> &'static str {
        "redundant"
    }
}

#[cfg(test)]
mod tests {
    use mpquic_core::PathId;

    use super::*;
    use crate::testing::{Scene, full, path};

    #[test]
    fn every_path_carries_everything() {
        let mut scene = Scene::new(vec![path(0, 50), full(path(1, 10)), path(2, 80)]);
        let duplicate = Redundant.select(&scene.view());
        let expected = Decision::Duplicate {
            path: PathId(0),
            copies: PathSet::from_slice(&[PathId(1), PathId(2)]),
            data: DataSelection::Next,
            tag: 0,
        };
        assert_eq!(duplicate, expected);
        let mut view = scene.view();
        view.queue.datagrams = 100;
        let Decision::Duplicate { data, .. } = Redundant.select(&view) else {
            panic!("every path carries DATAGRAMs as well");
        };
        assert_eq!(data, DataSelection::Datagram);
        scene.paths[2].usable = false;
        scene.paths[1].usable = false;
        assert!(matches!(
            Redundant.select(&scene.view()),
            Decision::Send { .. }
        ));
    }
}
