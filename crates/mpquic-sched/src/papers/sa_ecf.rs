//! SA-ECF: stream-aware earliest completion first.

use mpquic_core::StreamId;
use mpquic_core::sched::{Decision, Needs, Scheduler, SchedulerEvent, View};

use crate::choice::wait_for;
use crate::papers::choice::{backlog, find_stream, is_outside_streams, send_stream, weight};
use crate::papers::ecf::{EcfForm, waits};
use crate::plain_cases::PlainCases;

/// Weighted round robin over the streams. For the stream whose turn it is, earliest completion
/// first (ECF) compares two ways to send the stream's unsent bytes: now on the slower path, or
/// later on the faster path. A stream that completes earlier by waiting is passed over. If all
/// streams complete earlier by waiting, no data is sent.
///
/// Source: Rabitsch, Hurtig and Brunstrom, "A Stream-Aware Multipath QUIC Scheduler for
/// Heterogeneous Paths", EPIQ 2018. Inputs: those of ECF, priorities and unsent bytes of the
/// streams. Constants: priorities count as HTTP/2 weights, 1 to 256.
///
/// One packet carries data of one stream. Optionally, data of other streams that will be
/// interleaved counts as unsent data of the stream. Control frames and data to be sent again belong
/// to no turn, and leave on the fastest path with room.
#[derive(Debug, Default)]
pub struct SaEcf {
    /// See [`SaEcf::new`].
    count_interleaving: bool,
    cases: PlainCases,
    /// The streams with data, sorted by stream ID.
    turns: Vec<Turn>,
    /// Number of decisions so far.
    round: u64,
}

/// The place of a stream in the round robin.
#[derive(Debug, Clone, Copy)]
struct Turn {
    stream: StreamId,
    /// Credit of the stream, in weights. The stream with the most credit is next.
    credit: i64,
    /// ECF's hysteresis: the last verdict on the stream was to wait.
    waiting: bool,
    /// The last round in which the stream had data.
    seen: u64,
    /// The stream's priority, 1 to 256.
    weight: u64,
    /// Unsent bytes of the stream.
    unsent: u64,
}

impl SaEcf {
    /// A scheduler. With `count_interleaving`, ECF counts the data of other streams that will be
    /// interleaved as unsent data of a stream.
    pub fn new(count_interleaving: bool) -> Self {
        Self {
            count_interleaving,
            ..Self::default()
        }
    }

    /// Gives every stream with data a credit of its weight. Returns the sum of the weights.
    fn begin_round(&mut self, view: &View<'_>) -> u64 {
        self.round += 1;
        let mut sum = 0;
        for stream in view.streams {
            let position = find_stream(&self.turns, stream.id, |turn| turn.stream);
            let index = position.unwrap_or_else(|index| {
                let turn = Turn {
                    stream: stream.id,
                    credit: 0,
                    waiting: false,
                    seen: 0,
                    weight: 0,
                    unsent: 0,
                };
                self.turns.insert(index, turn);
                index
            });
            let turn = &mut self.turns[index];
            turn.seen = self.round;
            turn.weight = weight(stream.priority);
            turn.unsent = stream.unsent;
            turn.credit += turn.weight as i64;
            sum += turn.weight;
        }
        if self.turns.len() > view.streams.len() {
            let round = self.round;
            self.turns.retain(|turn| turn.seen == round);
        }
        sum
    }

    /// The unsent bytes of a stream for ECF's comparison. `weights` is the sum of all weights,
    /// `backlog` the unsent bytes of all streams.
    fn left(&self, turn: &Turn, weights: u64, backlog: u64) -> u64 {
        if self.count_interleaving {
            backlog.min(turn.unsent.saturating_mul(weights) / turn.weight.max(1))
        } else {
            turn.unsent
        }
    }
}

impl Scheduler for SaEcf {
    fn select(&mut self, view: &View<'_>) -> Decision {
        let (fast, chosen) = match self.cases.fast_and_chosen(view) {
            Ok(paths) => paths,
            Err(decision) => return decision,
        };
        if is_outside_streams(view) {
            return Decision::send(chosen.id);
        }
        let weights = self.begin_round(view);
        let backlog = if self.count_interleaving {
            backlog(view)
        } else {
            0
        };
        let is_choice = fast.id != chosen.id && wait_for(fast).is_some();
        let verdict = |scheduler: &Self, turn: &Turn| {
            let mut waiting = turn.waiting;
            let wait = is_choice
                && waits(
                    EcfForm::Paper,
                    scheduler.left(turn, weights, backlog),
                    fast,
                    chosen,
                    &mut waiting,
                );
            (wait, waiting)
        };
        let order = |turn: &Turn| (turn.credit, std::cmp::Reverse(turn.stream));
        let sends = self.turns.iter().filter(|turn| !verdict(self, turn).0);
        let winner = sends.max_by_key(|turn| order(turn)).copied();
        // Streams that were passed over keep their verdict for the next decision.
        let passed_over = if is_choice { self.turns.len() } else { 0 };
        for index in 0..passed_over {
            let turn = self.turns[index];
            if winner.is_none_or(|winner| order(&turn) >= order(&winner)) {
                self.turns[index].waiting = verdict(self, &turn).1;
            }
        }
        let Some(winner) = winner else {
            return wait_for(fast).unwrap_or(Decision::send(chosen.id));
        };
        if let Ok(index) = find_stream(&self.turns, winner.stream, |turn| turn.stream) {
            self.turns[index].credit -= weights as i64;
        }
        send_stream(chosen, winner.stream)
    }

    fn on_event(&mut self, event: &SchedulerEvent, _: &View<'_>) {
        self.cases.on_event(event);
    }

    fn needs(&self) -> Needs {
        Needs::default().with_streams()
    }

    fn name(&self) -> &'static str {
        "sa-ecf"
    }
}

#[cfg(test)]
mod tests {
    use mpquic_core::PathId;
    use mpquic_core::sched::DataSelection;

    use super::*;
    use crate::testing::{Scene, chosen, full, path, stream, stream_id};

    fn stream_of(decision: &Decision) -> Option<StreamId> {
        match decision {
            Decision::Send {
                data: DataSelection::Stream(id),
                ..
            } => Some(*id),
            _ => None,
        }
    }

    #[test]
    fn streams_take_turns_in_proportion_to_their_weights() {
        let mut scene = Scene::new(vec![path(0, 10), path(1, 100)]);
        scene.streams = vec![stream(0, 3, 100_000), stream(1, 1, 100_000)];
        let mut scheduler = SaEcf::default();
        let turns: Vec<_> = (0..8)
            .filter_map(|_| stream_of(&scheduler.select(&scene.view())))
            .collect();
        let first = turns.iter().filter(|id| **id == stream_id(0)).count();
        assert_eq!((turns.len(), first), (8, 6));
    }

    #[test]
    fn stream_that_waits_lets_another_stream_send() {
        let mut scene = Scene::new(vec![full(path(0, 10)), path(1, 100)]);
        // The large first stream completes earlier on both paths, the second stream by waiting for
        // the fast path.
        scene.streams = vec![stream(0, 1, 3_000_000), stream(1, 200, 30_000)];
        let mut scheduler = SaEcf::default();
        for _ in 0..3 {
            let decision = scheduler.select(&scene.view());
            assert_eq!(chosen(&decision), Some(1));
            assert_eq!(stream_of(&decision), Some(stream_id(0)));
        }
        scene.streams.remove(0);
        let on = PathId(0);
        let wait = Decision::Wait { on, until: None };
        assert_eq!(scheduler.select(&scene.view()), wait);
    }

    #[test]
    fn data_of_other_streams_counts_as_unsent_if_enabled() {
        let mut scene = Scene::new(vec![full(path(0, 10)), path(1, 100)]);
        scene.streams = vec![stream(0, 1, 30_000), stream(1, 99, 4_000_000)];
        scene.queue.unsent = 4_030_000;
        let mut alone = SaEcf::default();
        alone.select(&scene.view());
        let mut together = SaEcf::new(true);
        together.select(&scene.view());
        let turn = alone.turns[0];
        assert_eq!(alone.left(&turn, 100, 4_030_000), 30_000);
        assert_eq!(together.left(&turn, 100, 4_030_000), 3_000_000);
    }
}
