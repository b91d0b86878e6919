//! DEMS: decoupled multipath scheduler.

use mpquic_core::StreamId;
use mpquic_core::sched::{
    DataSelection, Decision, Needs, PathView, Scheduler, SchedulerEvent, StreamView, View,
};

use crate::choice::{fastest_sendable, rate, wait_for};
use crate::papers::choice::{nearest, one_way_delay, payload, send_stream};
use crate::plain_cases::PlainCases;
use crate::repeats::Repeats;

/// Largest chunk, bytes.
const MAX_CHUNK: u64 = 4_000_000;
/// Most datagrams that are repeated at the end of a chunk.
const MAX_REPEATS: u32 = 10;

/// Sends a chunk from both ends: the path with the lowest delay sends from the front, the other
/// paths from the back, until they meet. A slow path stops early, by as many bytes as the fast path
/// delivers in the difference of their delays, so that the last bytes of all paths arrive together.
/// Then paths with room repeat a few of the oldest packets of other paths.
///
/// Source: Guo, Ho, Gupta, Liu, Hamilton and Mao, "Accelerating Multipath Transport Through
/// Balanced Subflow Completion", MobiCom 2017. Inputs: one-way delay, delivery rate, unsent bytes
/// of the streams, flow control credit, unacknowledged ranges. Constants of our own: chunks of at
/// most 4 MB that fit into the credit, ten repeated datagrams per chunk.
///
/// In the paper, the size of a chunk is known beforehand. Here a chunk holds the bytes of a stream
/// that are buffered when the last chunk ends. If there are several slow paths, all of them send
/// from the back.
#[derive(Debug, Default)]
pub struct Dems {
    cases: PlainCases,
    repeats: Repeats,
    chunk: Option<Chunk>,
    repeats_left: u32,
}

#[derive(Debug, Clone, Copy)]
struct Chunk {
    stream: StreamId,
    end: u64,
    /// Bytes from this offset on were sent from the back.
    back: u64,
}

impl Dems {
    /// The stream of the current chunk; begins a new chunk if the last one is done.
    fn sync<'a>(&mut self, view: &View<'a>) -> Option<&'a StreamView> {
        let find = |id| view.streams.iter().find(|stream| stream.id == id);
        if let Some(chunk) = self.chunk
            && let Some(stream) = find(chunk.stream).filter(|s| s.offset < chunk.end)
        {
            return Some(stream);
        }
        let stream = view.streams.first()?;
        let size = MAX_CHUNK.min(view.queue.flow_credit);
        let end = stream.end.min(stream.offset.saturating_add(size));
        self.chunk = Some(Chunk {
            stream: stream.id,
            end,
            back: end,
        });
        self.repeats_left = MAX_REPEATS;
        Some(stream)
    }

    /// Sends a piece from the back, unless the fast path delivers the rest as early.
    fn take_from_back(&mut self, fast: &PathView, slow: &PathView, front: u64) -> Option<Decision> {
        let chunk = self.chunk.as_mut()?;
        let piece = payload(slow);
        let behind = (one_way_delay(slow) - one_way_delay(fast)).max(0.0);
        let reserve = (rate(fast) * behind) as u64;
        let offset = chunk.back.checked_sub(piece)?;
        if offset < front.saturating_add(reserve) {
            return None;
        }
        chunk.back = offset;
        Some(Decision::Send {
            path: slow.id,
            data: DataSelection::StreamAt {
                id: chunk.stream,
                offset,
            },
            max_bytes: piece,
            tag: 0,
        })
    }

    /// Repeats the oldest bytes of other paths on a path without other data.
    fn repeat_tail(&mut self, view: &View<'_>) -> Option<Decision> {
        let path = fastest_sendable(view)?;
        let range = self.repeats.oldest_elsewhere(view, path.id)?;
        self.repeats_left = self.repeats_left.checked_sub(1)?;
        Some(self.repeats.repeat(path.id, range, path.id))
    }
}

impl Scheduler for Dems {
    fn select(&mut self, view: &View<'_>) -> Decision {
        if view.queue.idle {
            let done = view.queue.unsent == 0;
            let repeat = done.then(|| self.repeat_tail(view)).flatten();
            return repeat.unwrap_or(Decision::Blocked);
        }
        let sendable = match self.cases.fastest_for_plans(view) {
            Ok(path) => path,
            Err(decision) => return decision,
        };
        let (Some(fast), Some(stream)) = (nearest(view), self.sync(view)) else {
            return Decision::send(sendable.id);
        };
        if fast.can_send() {
            return send_stream(fast, stream.id);
        }
        self.take_from_back(fast, sendable, stream.offset)
            .or_else(|| wait_for(fast))
            .unwrap_or_else(|| send_stream(sendable, stream.id))
    }

    fn on_event(&mut self, event: &SchedulerEvent, _: &View<'_>) {
        self.cases.on_event(event);
        if let SchedulerEvent::PathRemoved(path) = event {
            self.repeats.remove(*path);
        }
    }

    fn needs(&self) -> Needs {
        Needs::default().with_streams().with_unacked()
    }

    fn name(&self) -> &'static str {
        "dems"
    }
}

#[cfg(test)]
mod tests {
    use mpquic_core::PathId;

    use super::*;
    use crate::testing::{Scene, chosen, full, path, stream, unacked};

    /// 1 MB/s on both paths; one-way delays of 10 and 30 ms.
    fn scene() -> Scene {
        let mut scene = Scene::new(vec![path(0, 20), path(1, 60)]);
        for path in &mut scene.paths {
            path.delivery_rate = Some(1_000_000);
        }
        scene.streams = vec![stream(0, 0, 100_000)];
        scene
    }

    #[test]
    fn slow_path_stops_when_the_fast_path_finishes_the_rest_as_early() {
        let mut scene = scene();
        let mut dems = Dems::default();
        assert!(matches!(
            dems.select(&scene.view()),
            Decision::Send {
                path: PathId(0),
                data: DataSelection::Stream(_),
                ..
            }
        ));
        scene.paths[0] = full(scene.paths[0]);
        scene.streams[0].offset = 60_000;
        let mut offsets = Vec::new();
        while let Decision::Send { path, data, .. } = dems.select(&scene.view()) {
            let DataSelection::StreamAt { offset, .. } = data else {
                panic!("{data:?}");
            };
            assert_eq!(path, PathId(1));
            offsets.push(offset);
        }
        // 20 kB are left to the fast path, which delivers as much in 20 ms.
        assert_eq!(offsets.first(), Some(&(100_000 - 1140)));
        assert!(
            (80_000..81_140).contains(offsets.last().unwrap()),
            "{offsets:?}"
        );
    }

    #[test]
    fn a_short_tail_is_repeated_at_the_end() {
        let mut scene = scene();
        let mut dems = Dems::default();
        dems.select(&scene.view());
        let ranges = (0..20).map(|n| unacked(&scene, 1, n * 1000..(n + 1) * 1000, 50 - n));
        scene.unacked = ranges.collect();
        scene.streams.clear();
        (scene.queue.unsent, scene.queue.idle) = (0, true);
        for _ in 0..MAX_REPEATS {
            assert_eq!(chosen(&dems.select(&scene.view())), Some(0));
        }
        assert_eq!(dems.select(&scene.view()), Decision::Blocked);
    }
}
