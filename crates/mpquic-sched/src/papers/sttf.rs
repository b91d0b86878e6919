//! STTF: shortest transfer time first.

use std::time::Duration;

use mpquic_core::sched::{Decision, Needs, PathView, Scheduler, SchedulerEvent, View};
use mpquic_core::{PathId, PathMap};

use crate::choice::{carriers, seconds};
use crate::papers::choice::one_way_delay;
use crate::papers::otias::dispatch;
use crate::papers::reservations::Reservations;
use crate::plain_cases::PlainCases;

/// Most round trips that are simulated.
const MAX_ROUNDS: u32 = 64;
/// All data is assigned again when an RTT changed by more than the RTT divided by this number.
const RTT_CHANGE: u32 = 8;

/// Assigns every packet to the path on which its transfer ends first, even if the window of that
/// path is full now. The growth of the window while earlier packets leave is simulated.
///
/// Source: Hurtig, Grinnemo, Brunstrom, Ferlin, Alay and Kuhn, "Low-Latency Scheduling in MPTCP",
/// IEEE/ACM Transactions on Networking 27(1), 2019, as described in ETC's paper. Inputs: RTT,
/// one-way delay, window, bytes in flight, growth of the controller, unsent bytes of the streams.
/// Constants: none in the description; here, at most 64 simulated round trips.
///
/// All data is assigned again after a congestion event, after path events and when an RTT changed
/// by an eighth. In the description, this happens with every RTT sample, which would undo all
/// assignments with every acknowledgement.
#[derive(Debug, Default)]
pub struct Sttf {
    cases: PlainCases,
    reservations: Reservations,
    rtts: PathMap<Duration>,
    windows: Vec<(PathId, u64)>,
}

/// Seconds until the last of `bytes` that leave on a path arrives. `windows` holds the present
/// windows of all paths.
fn transfer_time(
    path: &PathView,
    bytes: u64,
    view: &View<'_>,
    windows: &mut [(PathId, u64)],
) -> f64 {
    let mut room = path.available_window();
    let mut rounds = 0;
    if let Ok(index) = windows.binary_search_by_key(&path.id, |(id, _)| *id) {
        while room < bytes && rounds < MAX_ROUNDS {
            windows[index].1 = view.controller.window_after_round(path.id, windows);
            room = room.saturating_add(windows[index].1);
            rounds += 1;
        }
        windows[index].1 = path.window;
    }
    if room < bytes {
        return f64::INFINITY;
    }
    f64::from(rounds) * seconds(path.rtt.smoothed) + one_way_delay(path)
}

impl Sttf {
    /// Drops all assignments if an RTT differs from the RTT that they were made with.
    fn note_rtts(&mut self, view: &View<'_>) {
        let mut moved = false;
        self.windows.clear();
        for path in carriers(view) {
            self.windows.push((path.id, path.window));
            let rtt = path.rtt.smoothed;
            let known = self.rtts.get_or_insert_with(path.id, || rtt);
            if rtt.abs_diff(*known) * RTT_CHANGE > *known {
                *known = rtt;
                moved = true;
            }
        }
        if moved {
            self.reservations.release_all();
        }
    }
}

impl Scheduler for Sttf {
    fn select(&mut self, view: &View<'_>) -> Decision {
        let fastest = match self.cases.fastest_for_plans(view) {
            Ok(path) => path,
            Err(decision) => return decision,
        };
        self.note_rtts(view);
        self.reservations.sync(view);
        let windows = &mut self.windows;
        dispatch(&mut self.reservations, view, |path, queued, piece| {
            transfer_time(path, queued + piece.len(), view, windows)
        })
        .unwrap_or(Decision::send(fastest.id))
    }

    fn on_event(&mut self, event: &SchedulerEvent, _: &View<'_>) {
        self.cases.on_event(event);
        match event {
            SchedulerEvent::PathRemoved(path) => {
                self.rtts.remove(*path);
                self.reservations.release_all();
            }
            SchedulerEvent::PathAdded(_)
            | SchedulerEvent::PathStatus(..)
            | SchedulerEvent::PathSuspect(_)
            | SchedulerEvent::PathRecovered(_)
            | SchedulerEvent::Congestion(..) => self.reservations.release_all(),
            _ => {}
        }
    }

    fn needs(&self) -> Needs {
        Needs::default().with_streams()
    }

    fn name(&self) -> &'static str {
        "sttf"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Growth, Scene, chosen, full, path, stream};

    #[test]
    fn the_growth_of_the_window_is_simulated() {
        let mut scene = Scene::new(vec![path(0, 20), path(1, 100)]);
        scene.controller = Growth::Double;
        let mut windows = [(PathId(0), 12_000), (PathId(1), 12_000)];
        // Room for 12, 36 and 84 kB after no, one and two round trips.
        for (bytes, expected) in [(12_000, 0.010), (12_001, 0.030), (84_000, 0.050)] {
            let path = &scene.paths[0];
            let time = transfer_time(path, bytes, &scene.view(), &mut windows);
            assert!((time - expected).abs() < 1e-9, "{time}");
        }
        assert_eq!(windows[0].1, 12_000);
    }

    #[test]
    fn fast_path_with_a_growing_window_is_waited_for_longer() {
        let mut scene = Scene::new(vec![full(path(0, 20)), path(1, 100)]);
        scene.streams = vec![stream(0, 0, 72_000)];
        // With a constant window, 24 kB arrive in two rounds, 50 ms; then the slow path is as good.
        assert_eq!(chosen(&Sttf::default().select(&scene.view())), Some(1));
        scene.controller = Growth::Double;
        let on = PathId(0);
        let wait = Decision::Wait { on, until: None };
        assert_eq!(Sttf::default().select(&scene.view()), wait);
    }

    #[test]
    fn changed_rtt_undoes_the_assignments() {
        let mut scene = Scene::new(vec![full(path(0, 20)), path(1, 100)]);
        scene.streams = vec![stream(0, 0, 20_000)];
        let mut sttf = Sttf::default();
        sttf.select(&scene.view());
        assert_eq!(sttf.reservations.queued(PathId(0)), 20_000);
        scene.paths[0].rtt.smoothed = Duration::from_millis(80);
        assert_eq!(chosen(&sttf.select(&scene.view())), Some(1));
    }
}
