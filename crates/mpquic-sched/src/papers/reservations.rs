//! Assignments of waiting stream bytes to paths.

use mpquic_core::sched::{DataSelection, Decision, PathView, StreamView, View};
use mpquic_core::{PathId, PathMap, StreamId};

use crate::choice::{carriers, is_measured, lowest_rtt, wait_for};
use crate::papers::choice::{find_stream, payload};

/// Most runs of assigned bytes; beyond that, no bytes are assigned.
const MAX_RUNS: usize = 256;
/// Most pieces that one decision assigns to paths; the next decision continues.
const MAX_PIECES: usize = 1024;
/// A rest of a run with fewer bytes than this gets no datagram of its own if more bytes follow.
const FRAGMENT: u64 = 600;

/// Unsent bytes of streams and the paths that they are assigned to, in the order of the assignment.
/// Bytes of a path that fails are assigned again before other bytes.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    runs: Vec<Run>,
    /// The assigned bytes of each stream with data, sorted by stream ID.
    streams: Vec<Assigned>,
    /// Assigned bytes of each path that have not left.
    queued: PathMap<u64>,
    /// Stream and path of the last decision.
    last: Option<(StreamId, PathId)>,
    /// All bytes should be assigned again, once the bytes of the last decision are accounted for.
    release: bool,
    /// Number of the current call of [`Self::sync`].
    round: u64,
}

/// Consecutive bytes of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// The assigned path; `None` if the bytes have to be assigned again.
    path: Option<PathId>,
    stream: StreamId,
    start: u64,
    end: u64,
}

#[derive(Debug, Clone, Copy)]
struct Assigned {
    stream: StreamId,
    /// Bytes from this offset on were not assigned yet.
    end: u64,
    /// Offset of the first unsent byte.
    offset: u64,
    /// Bytes in runs plus unassigned bytes. The sum exceeds `unsent` by the bytes sent since the
    /// last call.
    held: u64,
    unsent: u64,
    /// The last round in which the stream had data.
    seen: u64,
}

impl Reservations {
    fn assigned(&mut self, stream: &StreamView) -> &mut Assigned {
        let position = find_stream(&self.streams, stream.id, |s| s.stream);
        let index = position.unwrap_or_else(|index| {
            let assigned = Assigned {
                stream: stream.id,
                end: stream.offset,
                offset: 0,
                held: 0,
                unsent: 0,
                seen: 0,
            };
            self.streams.insert(index, assigned);
            index
        });
        &mut self.streams[index]
    }

    fn find(&mut self, stream: StreamId) -> Option<&mut Assigned> {
        let position = find_stream(&self.streams, stream, |s| s.stream);
        position.ok().map(|index| &mut self.streams[index])
    }

    /// Accounts for bytes that were sent and written since the last call.
    pub(crate) fn sync(&mut self, view: &View<'_>) {
        self.round += 1;
        let round = self.round;
        self.runs.reserve(MAX_RUNS.saturating_sub(self.runs.len()));
        for stream in view.streams {
            let assigned = self.assigned(stream);
            assigned.seen = round;
            assigned.offset = stream.offset;
            assigned.end = assigned.end.max(stream.offset);
            assigned.held = stream.end.saturating_sub(assigned.end);
            assigned.unsent = stream.unsent;
        }
        if self.streams.len() > view.streams.len() {
            self.streams.retain(|assigned| assigned.seen == round);
        }
        let mut runs = std::mem::take(&mut self.runs);
        runs.retain_mut(|run| {
            let usable = |id| view.path(id).is_some_and(|path| path.usable);
            run.path = run.path.filter(|path| usable(*path));
            let Some(assigned) = self.find(run.stream) else {
                return false;
            };
            run.start = run.start.max(assigned.offset);
            let length = run.end.saturating_sub(run.start);
            assigned.held += length;
            length > 0
        });
        self.runs = runs;
        self.consume();
        if std::mem::take(&mut self.release) {
            self.unassign();
        }
        self.recount();
    }

    /// Shortens the runs by the bytes that were sent, first those of the last decision.
    fn consume(&mut self) {
        let last = self.last.take();
        let mut runs = std::mem::take(&mut self.runs);
        let of_last = |run: &Run| last == run.path.map(|path| (run.stream, path));
        let mut fragment = None;
        for only_last in [true, false] {
            for run in runs.iter_mut().filter(|run| !only_last || of_last(run)) {
                let Some(assigned) = self.find(run.stream) else {
                    continue;
                };
                let sent = assigned.held.saturating_sub(assigned.unsent);
                let bytes = sent.min(run.end - run.start);
                run.start += bytes;
                assigned.held -= bytes;
                if bytes > 0 && run.start < run.end {
                    fragment = Some(*run);
                }
            }
        }
        if let Some(fragment) = fragment.filter(|fragment| fragment.len() < FRAGMENT) {
            self.pass_on(&mut runs, fragment);
        }
        runs.retain(|run| run.start < run.end);
        self.runs = runs;
    }

    /// Adds a rest that is too short for a datagram of its own to the bytes that follow it.
    fn pass_on(&mut self, runs: &mut [Run], fragment: Run) {
        let follows = |run: &&mut Run| run.stream == fragment.stream && run.start == fragment.end;
        if let Some(next) = runs.iter_mut().find(follows) {
            next.start = fragment.start;
        } else {
            let assigned = self.find(fragment.stream);
            let Some(last) = assigned.filter(|assigned| assigned.end == fragment.end) else {
                return;
            };
            last.end = fragment.start;
        }
        if let Some(run) = runs.iter_mut().find(|run| **run == fragment) {
            run.start = run.end;
        }
    }

    fn recount(&mut self) {
        self.queued.clear();
        for run in &self.runs {
            if let Some(path) = run.path {
                *self.queued.get_or_insert_with(path, || 0) += run.end - run.start;
            }
        }
    }

    /// Bytes assigned to a path that have not left.
    pub(crate) fn queued(&self, path: PathId) -> u64 {
        self.queued.get(path).copied().unwrap_or(0)
    }

    /// The next bytes without a path, at most `size`; `None` if there are none.
    pub(crate) fn unassigned(&mut self, view: &View<'_>, size: u64) -> Option<Run> {
        if self.runs.len() >= MAX_RUNS {
            return None;
        }
        if let Some(run) = self.runs.iter().find(|run| run.path.is_none()) {
            let end = run.end.min(run.start + size);
            return Some(Run { end, ..*run });
        }
        let stream = view.streams.iter().find(|stream| {
            let assigned = self.find(stream.id);
            assigned.is_some_and(|assigned| assigned.end < stream.end)
        })?;
        let start = self.find(stream.id)?.end;
        Some(Run {
            path: None,
            stream: stream.id,
            start,
            end: stream.end.min(start + size),
        })
    }

    /// Assigns the bytes that [`Self::unassigned`] returned to a path.
    pub(crate) fn assign(&mut self, path: PathId, piece: Run) {
        *self.queued.get_or_insert_with(path, || 0) += piece.end - piece.start;
        let mut at = self.runs.len();
        if let Some(index) = self.runs.iter().position(|run| run.path.is_none()) {
            self.runs[index].start = piece.end;
            if self.runs[index].start >= self.runs[index].end {
                self.runs.remove(index);
            }
            at = index;
        } else if let Some(assigned) = self.find(piece.stream) {
            assigned.end = piece.end;
        }
        let before = self.runs[..at].last_mut();
        match before.filter(|run| run.continues(path, &piece)) {
            Some(run) => run.end = piece.end,
            None => {
                let path = Some(path);
                self.runs.insert(at, Run { path, ..piece });
            }
        }
    }

    /// Drops all assignments.
    pub(crate) fn release_all(&mut self) {
        self.release = true;
    }

    fn unassign(&mut self) {
        self.runs
            .sort_unstable_by_key(|run| (run.stream, run.start));
        self.runs.dedup_by(|next, run| {
            let joined = run.stream == next.stream && run.end == next.start;
            if joined {
                run.end = next.end;
            }
            joined
        });
        for run in &mut self.runs {
            run.path = None;
        }
    }

    /// Assigns pieces of data to the paths that `pick` chooses, until a path that can send has
    /// data. Then sends the data. Without such a path, waits for a path that has data.
    pub(crate) fn dispatch(
        &mut self,
        view: &View<'_>,
        mut pick: impl FnMut(&Self, &Run) -> Option<PathId>,
    ) -> Option<Decision> {
        let can_send = |path: &&PathView| path.can_send() && is_measured(path);
        let ready = view.paths.iter().filter(can_send);
        let mut next = lowest_rtt(ready.filter(|path| self.queued(path.id) > 0));
        for _ in 0..MAX_PIECES {
            if next.is_some() {
                break;
            }
            let piece = carriers(view).map(payload).min()?;
            let Some(piece) = self.unassigned(view, piece) else {
                break;
            };
            let Some(path) = pick(self, &piece) else {
                break;
            };
            self.assign(path, piece);
            next = view.path(path).filter(can_send);
        }
        if let Some(path) = next {
            return self.send(path);
        }
        let waiting = carriers(view).filter(|path| self.queued(path.id) > 0);
        lowest_rtt(waiting.filter(|path| wait_for(path).is_some())).and_then(wait_for)
    }

    /// Sends the first bytes that were assigned to a path.
    pub(crate) fn send(&mut self, path: &PathView) -> Option<Decision> {
        let run = self.runs.iter().find(|run| run.path == Some(path.id))?;
        self.last = Some((run.stream, path.id));
        Some(Decision::Send {
            path: path.id,
            data: DataSelection::StreamAt {
                id: run.stream,
                offset: run.start,
            },
            max_bytes: (run.end - run.start).min(path.mtu.into()),
            tag: 0,
        })
    }
}

impl Run {
    pub(crate) fn len(&self) -> u64 {
        self.end - self.start
    }

    fn continues(&self, path: PathId, piece: &Self) -> bool {
        self.path == Some(path) && self.stream == piece.stream && self.end == piece.start
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use mpquic_core::unstable_wire::RangeSet;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{Scene, path, stream, stream_id};

    fn assign_all(reservations: &mut Reservations, scene: &Scene, paths: &[u32]) {
        let mut paths = paths.iter().cycle();
        while let Some(piece) = reservations.unassigned(&scene.view(), 1200) {
            reservations.assign(PathId(*paths.next().unwrap()), piece);
        }
    }

    fn offset(decision: Option<Decision>) -> Option<(u64, u64)> {
        match decision? {
            Decision::Send {
                data: DataSelection::StreamAt { offset, .. },
                max_bytes,
                ..
            } => Some((offset, max_bytes)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn bytes_stay_with_their_path_until_they_leave() {
        let mut scene = Scene::new(vec![path(0, 10), path(1, 10)]);
        scene.streams = vec![stream(0, 0, 6_000)];
        let mut reservations = Reservations::default();
        reservations.sync(&scene.view());
        assign_all(&mut reservations, &scene, &[0, 0, 1]);
        let queued = |r: &Reservations| [r.queued(PathId(0)), r.queued(PathId(1))];
        assert_eq!(queued(&reservations), [4_800, 1_200]);
        assert_eq!(
            offset(reservations.send(&scene.paths[1])),
            Some((2_400, 1_200))
        );

        // 1150 of the bytes fit; the other 50 go with the following bytes.
        scene.streams[0].unsent -= 1_150;
        reservations.sync(&scene.view());
        assert_eq!(queued(&reservations), [4_850, 0]);
        assert_eq!(offset(reservations.send(&scene.paths[1])), None);
        assert_eq!(offset(reservations.send(&scene.paths[0])), Some((0, 1_200)));

        // Bytes sent outside the plan, from the front.
        scene.streams[0].unsent -= 2_400;
        scene.streams[0].offset = 2_400;
        reservations.sync(&scene.view());
        assert_eq!(
            offset(reservations.send(&scene.paths[0])),
            Some((3_550, 1_200))
        );
        assert_eq!(queued(&reservations), [2_450, 0]);
    }

    #[test]
    fn a_path_that_fails_gives_its_bytes_back() {
        let mut scene = Scene::new(vec![path(0, 10), path(1, 10)]);
        scene.streams = vec![stream(0, 0, 4_800), stream(1, 0, 1_200)];
        let mut reservations = Reservations::default();
        reservations.sync(&scene.view());
        assign_all(&mut reservations, &scene, &[0, 1]);
        scene.paths[0].usable = false;
        reservations.sync(&scene.view());
        assert_eq!(reservations.queued(PathId(0)), 0);
        let piece = reservations.unassigned(&scene.view(), 1200).unwrap();
        assert_eq!(
            (piece.stream, piece.start, piece.end),
            (stream_id(0), 0, 1_200)
        );
        assign_all(&mut reservations, &scene, &[1]);
        assert_eq!(reservations.queued(PathId(1)), 6_000);
        reservations.release_all();
        reservations.sync(&scene.view());
        // Two streams, each in one piece again.
        assert_eq!(reservations.runs.len(), 2);
    }

    #[test]
    fn sent_bytes_are_accounted_for_before_assignments_are_released() {
        let mut scene = Scene::new(vec![path(0, 10), path(1, 10)]);
        scene.streams = vec![stream(0, 0, 4_800)];
        let mut reservations = Reservations::default();
        reservations.sync(&scene.view());
        assign_all(&mut reservations, &scene, &[0, 0, 1, 0]);
        reservations.send(&scene.paths[1]);
        scene.streams[0].unsent -= 1_200;
        reservations.release_all();
        reservations.sync(&scene.view());
        let ranges: Vec<_> = reservations
            .runs
            .iter()
            .map(|run| (run.start, run.end))
            .collect();
        assert_eq!(ranges, [(0, 2_400), (3_600, 4_800)]);
    }

    #[test]
    fn streams_without_data_are_forgotten() {
        let mut scene = Scene::new(vec![path(0, 10), path(1, 10)]);
        scene.streams = vec![stream(0, 0, 2_400)];
        let mut reservations = Reservations::default();
        reservations.sync(&scene.view());
        assign_all(&mut reservations, &scene, &[1]);
        scene.streams.clear();
        reservations.sync(&scene.view());
        assert!(reservations.runs.is_empty() && reservations.streams.is_empty());
    }

    /// An operation on one stream and its reservations.
    #[derive(Debug, Clone, Copy)]
    enum Operation {
        Write(u64),
        /// Assigns this many pieces, to the paths in turn.
        Assign(u8),
        /// Sends this many bytes of the first run of a path.
        Send(u32, u64),
        /// Sends bytes from the front, outside the plan.
        SendNext(u64),
        Release,
        /// Makes path 1 usable or not.
        Usable(bool),
    }

    fn any_operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            (1u64..20_000).prop_map(Operation::Write),
            (1u8..20).prop_map(Operation::Assign),
            (0u32..2, 1u64..1200).prop_map(|(path, bytes)| Operation::Send(path, bytes)),
            (0u32..2, 1100u64..1200).prop_map(|(path, bytes)| Operation::Send(path, bytes)),
            (1u64..1200).prop_map(Operation::SendNext),
            Just(Operation::Release),
            any::<bool>().prop_map(Operation::Usable),
        ]
    }

    proptest! {
        /// Runs and bytes that are not assigned yet together are exactly the unsent bytes.
        #[test]
        fn every_unsent_byte_is_planned_at_most_once(operations in vec(any_operation(), 1..100)) {
            let mut scene = Scene::new(vec![path(0, 10), path(1, 10)]);
            let (mut reservations, mut unsent, mut end) =
                (Reservations::default(), RangeSet::default(), 0);
            for operation in operations {
                let mut sent = None;
                match operation {
                    Operation::Write(bytes) => {
                        unsent.insert(end..end + bytes);
                        end += bytes;
                    }
                    Operation::Assign(count) => {
                        for id in (0..count).map(|n| PathId(u32::from(n % 3 == 2))) {
                            if let Some(piece) = reservations.unassigned(&scene.view(), 1200) {
                                reservations.assign(id, piece);
                            }
                        }
                    }
                    Operation::Send(id, bytes) => {
                        let decision = reservations.send(&scene.paths[id as usize]);
                        sent = offset(decision).map(|(from, most)| (from, bytes.min(most)));
                    }
                    Operation::SendNext(bytes) => sent = unsent.min().map(|from| (from, bytes)),
                    Operation::Release => reservations.release_all(),
                    Operation::Usable(usable) => scene.paths[1].usable = usable,
                }
                if let Some((from, bytes)) = sent {
                    let range = unsent.overlapping(from..u64::MAX).next();
                    prop_assert_eq!(range.clone().map(|range| range.start.max(from)), Some(from));
                    let until = range.map_or(from, |range| range.end.min(from + bytes));
                    unsent.remove(from..until);
                }
                let length = |range: Range<u64>| range.end - range.start;
                let mut written = stream(0, 0, 0);
                written.unsent = unsent.iter().map(length).sum();
                written.offset = unsent.min().unwrap_or(end);
                written.end = end;
                scene.streams = vec![written];
                reservations.sync(&scene.view());
                let mut planned = RangeSet::default();
                for run in &reservations.runs {
                    prop_assert!(planned.overlapping(run.start..run.end).next().is_none());
                    planned.insert(run.start..run.end);
                }
                planned.insert(reservations.streams[0].end..end);
                prop_assert_eq!(&planned, &unsent, "{:?}", reservations);
                let queued: u64 = [0, 1].map(|id| reservations.queued(PathId(id))).iter().sum();
                let assigned = reservations.runs.iter().filter(|run| run.path.is_some());
                prop_assert_eq!(queued, assigned.map(Run::len).sum::<u64>());
            }
        }
    }
}
