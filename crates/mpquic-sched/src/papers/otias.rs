//! OTIAS: out-of-order transmission for in-order arrival.

use mpquic_core::sched::{Decision, Needs, PathView, Scheduler, SchedulerEvent, View};

use crate::choice::{carriers, seconds};
use crate::papers::reservations::{Reservations, Run};
use crate::plain_cases::PlainCases;

/// Assigns every packet to the path on which it arrives first, even if the window of that path is
/// full. Packets that already wait for a path are counted. So a slow path with room sends data from
/// further back, and all data arrives in order.
///
/// Source: Yang, Wang and Amer, "Out-of-order transmission for in-order arrival scheduling for
/// multipath TCP", WAINA 2014; `dccp` module `otias`. Inputs: RTT, window, bytes in flight, unsent
/// bytes of the streams. Constants: none. Windows count as constant. An assignment lasts until its
/// path fails. Waiting is counted in fractions of round trips.
#[derive(Debug, Default)]
pub struct Otias {
    cases: PlainCases,
    reservations: Reservations,
}

/// When a packet would arrive, seconds: the round trips until all bytes that wait for the path have
/// left, plus half a round trip.
fn arrival(path: &PathView, queued: u64) -> f64 {
    let mtu = f64::from(path.mtu.max(1));
    let (window, room) = (
        path.window as f64 / mtu,
        path.available_window() as f64 / mtu,
    );
    let wait = (queued as f64 / mtu - room).max(0.0) / window.max(1e-9);
    (wait + 0.5) * seconds(path.rtt.smoothed)
}

/// Assigns pieces of data to the path with the least `time`. Sends data, or waits.
pub(crate) fn dispatch(
    reservations: &mut Reservations,
    view: &View<'_>,
    mut time: impl FnMut(&PathView, u64, &Run) -> f64,
) -> Option<Decision> {
    reservations.dispatch(view, |reservations, piece| {
        let times = carriers(view).map(|path| {
            let queued = reservations.queued(path.id);
            (path, time(path, queued, piece))
        });
        let first = times.min_by(|(a, first), (b, second)| {
            let order = first.total_cmp(second);
            order.then_with(|| (a.rtt.smoothed, a.id).cmp(&(b.rtt.smoothed, b.id)))
        });
        first.map(|(path, _)| path.id)
    })
}

impl Scheduler for Otias {
    fn select(&mut self, view: &View<'_>) -> Decision {
        let fastest = match self.cases.fastest_for_plans(view) {
            Ok(path) => path,
            Err(decision) => return decision,
        };
        self.reservations.sync(view);
        dispatch(&mut self.reservations, view, |path, queued, _| {
            arrival(path, queued)
        })
        .unwrap_or(Decision::send(fastest.id))
    }

    fn on_event(&mut self, event: &SchedulerEvent, _: &View<'_>) {
        self.cases.on_event(event);
    }

    fn needs(&self) -> Needs {
        Needs::default().with_streams()
    }

    fn name(&self) -> &'static str {
        "otias"
    }
}

#[cfg(test)]
mod tests {
    use mpquic_core::PathId;
    use mpquic_core::sched::DataSelection;

    use super::*;
    use crate::testing::{Scene, full, path, stream, stream_id};

    #[test]
    fn t9_arrival_counts_the_queue_in_fractions_of_a_round_trip() {
        let milliseconds = |rtt, packets: u64| {
            let arrival = arrival(&full(path(0, rtt)), packets * 1200);
            (arrival * 1e6).round() / 1e3
        };
        assert_eq!(milliseconds(20, 12), 34.0);
        assert_eq!(milliseconds(20, 40), 90.0);
        assert_eq!(milliseconds(100, 0), 50.0);
    }

    #[test]
    fn slow_path_carries_data_that_is_due_when_it_arrives() {
        let mut scene = Scene::new(vec![full(path(0, 20)), path(1, 100)]);
        scene.streams = vec![stream(0, 0, 100_000)];
        let mut otias = Otias::default();
        // About 24 kB wait two round trips of 20 ms for the fast path; the next packet then arrives
        // after 50 ms, as on the slow path.
        let ahead = Decision::Send {
            path: PathId(1),
            data: DataSelection::StreamAt {
                id: stream_id(0),
                offset: 22 * 1140,
            },
            max_bytes: 1140,
            tag: 0,
        };
        assert_eq!(otias.select(&scene.view()), ahead);
        assert_eq!(otias.reservations.queued(PathId(0)), 22 * 1140);
        scene.streams[0].unsent = 20_000;
        scene.streams[0].end = 20_000;
        let on = PathId(0);
        let wait = Decision::Wait { on, until: None };
        assert_eq!(Otias::default().select(&scene.view()), wait);
    }
}
