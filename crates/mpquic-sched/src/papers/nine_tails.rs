//! Nine Tails: selective redundancy.

use mpquic_core::sched::{Decision, Needs, Scheduler, SchedulerEvent, View};

use crate::choice::{fastest_sendable, lowest_rtt, send_batch};
use crate::plain_cases::PlainCases;
use crate::repeats::Repeats;

/// Lowest RTT first as long as there is data. Once all data was sent, paths with room repeat the
/// bytes in flight of other paths, so that the end of a transfer does not depend on a single
/// packet.
///
/// Source: Vu and Walker, "On the Latency of Multipath-QUIC in Real-time Applications", WiMob 2020,
/// as described by Hu et al. Inputs: RTT, window, backlog, unacknowledged ranges. Constants: none.
/// The tail begins when the send queue is empty. Every path repeats a range at most once, oldest
/// first.
#[derive(Debug, Default)]
pub struct NineTails {
    cases: PlainCases,
    repeats: Repeats,
}

impl Scheduler for NineTails {
    fn select(&mut self, view: &View<'_>) -> Decision {
        if !view.queue.idle {
            let plain = self.cases.decide(view);
            return plain
                .or_else(|| fastest_sendable(view).map(send_batch))
                .unwrap_or(Decision::Blocked);
        }
        if view.queue.unsent > 0 {
            return Decision::Blocked;
        }
        let repeats = &self.repeats;
        let free = view.sendable();
        let free = free.filter(|path| repeats.oldest_elsewhere(view, path.id).is_some());
        let Some(path) = lowest_rtt(free) else {
            return Decision::Blocked;
        };
        let range = self.repeats.oldest_elsewhere(view, path.id);
        range.map_or(Decision::Blocked, |range| {
            self.repeats.repeat(path.id, range, path.id)
        })
    }

    fn on_event(&mut self, event: &SchedulerEvent, _: &View<'_>) {
        self.cases.on_event(event);
        if let SchedulerEvent::PathRemoved(path) = event {
            self.repeats.remove(*path);
        }
    }

    fn needs(&self) -> Needs {
        Needs::default().with_unacked()
    }

    fn name(&self) -> &'static str {
        "nine-tails"
    }
}

#[cfg(test)]
mod tests {
    use mpquic_core::PathId;

    use super::*;
    use crate::testing::{Scene, chosen, path, unacked};

    #[test]
    fn the_tail_is_repeated_once_by_every_other_path() {
        let mut scene = Scene::new(vec![path(0, 10), path(1, 30), path(2, 50)]);
        scene.unacked = vec![
            unacked(&scene, 1, 0..1200, 20),
            unacked(&scene, 0, 1200..2400, 10),
        ];
        let mut scheduler = NineTails::default();
        assert_eq!(chosen(&scheduler.select(&scene.view())), Some(0));
        scene.queue.idle = true;
        assert_eq!(scheduler.select(&scene.view()), Decision::Blocked);
        scene.queue.unsent = 0;
        let mut repeated = Vec::new();
        while let Decision::Reinject { path, offsets, .. } = scheduler.select(&scene.view()) {
            repeated.push((path, offsets.start));
        }
        let expected = [(0, 0), (1, 1200), (2, 0), (2, 1200)];
        assert_eq!(repeated, expected.map(|(id, offset)| (PathId(id), offset)));
    }
}
