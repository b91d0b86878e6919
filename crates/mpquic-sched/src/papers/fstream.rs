//! FStream: whole streams on paths.

use mpquic_core::sched::{Decision, Needs, PathView, Scheduler, SchedulerEvent, StreamView, View};
use mpquic_core::{PathId, StreamId};

use crate::choice::{carriers, rate, wait_for};
use crate::papers::choice::{UsablePaths, find_stream, one_way_delay, send_stream, weight};
use crate::papers::pstream::rate_share;
use crate::plain_cases::PlainCases;

/// Most streams without data that are remembered.
const MAX_QUIET: usize = 256;

/// Puts every stream as a whole on the path that would finish it first, given the rate that other
/// streams leave on the path. Serves the streams in the order of their priority. A stream uses only
/// one path, so it is not reordered, but several paths do not speed it up.
///
/// Source: Shi et al., "FStream: Flexible Stream Scheduling and Prioritizing in Multipath-QUIC",
/// ICPADS 2019, as described in PStream's paper. Inputs: one-way delay and delivery rate of the
/// paths; priority of the streams, and their remaining bytes, announced bytes included. Constants:
/// none. A stream moves only when its path fails. Control frames and data to be sent again leave on
/// the fastest path with room.
#[derive(Debug, Default)]
pub struct FStream {
    cases: PlainCases,
    /// Sorted by stream ID.
    flows: Vec<Flow>,
    usable: UsablePaths,
    round: u64,
}

#[derive(Debug, Clone, Copy)]
struct Flow {
    stream: StreamId,
    path: PathId,
    weight: u64,
    /// The last round in which the stream had data.
    seen: u64,
}

impl FStream {
    fn position(&self, stream: StreamId) -> Result<usize, usize> {
        find_stream(&self.flows, stream, |flow| flow.stream)
    }

    /// Total weight of the streams with data on a path.
    fn weights_on(&self, path: PathId) -> u64 {
        let flows = self.flows.iter();
        let flows = flows.filter(|flow| flow.path == path && flow.seen == self.round);
        flows.map(|flow| flow.weight).sum()
    }

    fn best_path(&self, view: &View<'_>, stream: &StreamView) -> Option<PathId> {
        let finish = |path: &PathView| {
            let others = self.weights_on(path.id);
            let rate = rate_share(rate(path), weight(stream.priority), others);
            stream.left() as f64 / rate + one_way_delay(path)
        };
        carriers(view)
            .min_by(|a, b| finish(a).total_cmp(&finish(b)).then(a.id.cmp(&b.id)))
            .map(|path| path.id)
    }

    /// Gives every stream with data a usable path.
    fn sync(&mut self, view: &View<'_>) {
        self.round += 1;
        if self.usable.have_changed(view) {
            let usable = |path| view.path(path).is_some_and(|path| path.usable);
            self.flows.retain(|flow| usable(flow.path));
        }
        let mut known = 0;
        for stream in view.streams {
            if let Ok(index) = self.position(stream.id) {
                self.flows[index].seen = self.round;
                self.flows[index].weight = weight(stream.priority);
                known += 1;
            }
        }
        let new = known < view.streams.len();
        for stream in view.streams.iter().filter(|_| new) {
            if let Err(index) = self.position(stream.id)
                && let Some(path) = self.best_path(view, stream)
            {
                let flow = Flow {
                    stream: stream.id,
                    path,
                    weight: weight(stream.priority),
                    seen: self.round,
                };
                self.flows.insert(index, flow);
            }
        }
        let round = self.round;
        if self.flows.len() > view.streams.len() + MAX_QUIET {
            self.flows.retain(|flow| flow.seen == round);
        }
    }

    fn path_of<'a>(&self, view: &View<'a>, stream: &StreamView) -> Option<&'a PathView> {
        let index = self.position(stream.id).ok()?;
        view.path(self.flows[index].path)
    }
}

impl Scheduler for FStream {
    fn select(&mut self, view: &View<'_>) -> Decision {
        let fastest = match self.cases.fastest_for_plans(view) {
            Ok(path) => path,
            Err(decision) => return decision,
        };
        self.sync(view);
        let streams = || {
            let streams = view.streams.iter();
            streams.filter_map(|stream| Some((stream, self.path_of(view, stream)?)))
        };
        if let Some((stream, path)) = streams().find(|(_, path)| path.can_send()) {
            return send_stream(path, stream.id);
        }
        let wait = streams().find_map(|(_, path)| wait_for(path));
        wait.unwrap_or(Decision::send(fastest.id))
    }

    fn on_event(&mut self, event: &SchedulerEvent, _: &View<'_>) {
        self.cases.on_event(event);
        match event {
            SchedulerEvent::PathRemoved(path) => self.flows.retain(|flow| flow.path != *path),
            SchedulerEvent::StreamFinished(id) => self.flows.retain(|flow| flow.stream != *id),
            _ => {}
        }
    }

    fn needs(&self) -> Needs {
        Needs::default().with_streams()
    }

    fn name(&self) -> &'static str {
        "fstream"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scene, chosen, full, path, stream, stream_id};

    #[test]
    fn size_and_load_decide_on_the_path() {
        let mut scene = Scene::near_and_fast();
        scene.streams = vec![stream(0, 1, 900_000), stream(1, 1, 10_000)];
        let mut fstream = FStream::default();
        fstream.select(&scene.view());
        let paths: Vec<_> = fstream.flows.iter().map(|flow| flow.path.0).collect();
        assert_eq!(paths, [1, 0]);
        // 26 000 bytes take 25.8 ms on path 0 and 30.2 ms on path 1; beside an urgent stream, path
        // 0 takes longer.
        let third = stream(2, 1, 26_000);
        assert_eq!(
            FStream::default().best_path(&scene.view(), &third),
            Some(PathId(0))
        );
        fstream.flows[1].weight = 50;
        assert_eq!(fstream.best_path(&scene.view(), &third), Some(PathId(1)));
    }

    #[test]
    fn announced_size_of_a_stream_counts() {
        let scene = Scene::near_and_fast();
        let mut written = stream(0, 1, 10_000);
        let best = |stream: &StreamView| FStream::default().best_path(&scene.view(), stream);
        assert_eq!(best(&written), Some(PathId(0)));
        written.size = Some(900_000);
        assert_eq!(best(&written), Some(PathId(1)));
    }

    #[test]
    fn a_stream_stays_on_its_path_until_that_fails() {
        let mut scene = Scene::near_and_fast();
        scene.streams = vec![stream(0, 1, 900_000)];
        let mut fstream = FStream::default();
        assert_eq!(chosen(&fstream.select(&scene.view())), Some(1));
        scene.streams[0].unsent = 1000;
        assert_eq!(chosen(&fstream.select(&scene.view())), Some(1));
        scene.paths[1] = full(scene.paths[1]);
        let on = PathId(1);
        let wait = Decision::Wait { on, until: None };
        assert_eq!(fstream.select(&scene.view()), wait);
        scene.paths.push(path(2, 500));
        scene.paths[1].usable = false;
        assert_eq!(chosen(&fstream.select(&scene.view())), Some(0));
        assert_eq!(fstream.flows[0].stream, stream_id(0));
    }
}
