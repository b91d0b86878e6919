//! PStream: assignment of streams to paths by priority and size.

use mpquic_core::sched::{
    DataSelection, Decision, Needs, PathView, Scheduler, SchedulerEvent, View,
};
use mpquic_core::{PathId, StreamId};
use smallvec::SmallVec;

use crate::choice::{carriers, lowest_rtt, rate, seconds, wait_for};
use crate::papers::choice::{UsablePaths, find_stream, one_way_delay, uniform, weight};
use crate::plain_cases::PlainCases;

/// Splits every stream over the paths so that its parts finish together, given the rate that other
/// streams leave on each path. Urgent streams choose first. Paths then serve their streams in
/// rounds; the probability of a stream follows its priority.
///
/// Source: Shi, Wang, Zhang, Zhou and Liu, "PStream: Priority-Based Stream Scheduling for
/// Heterogeneous Paths in Multipath-QUIC", ICCCN 2020. Inputs: one-way delay and delivery rate of
/// the paths; priority and unsent bytes of the streams. Constants: none.
///
/// Differences from the paper and its code:
///
/// - Paths of equal delay do not end the filling.
/// - The size of a stream need not be known: unsent bytes are split again whenever more is written.
/// - Delivery rates are measured.
/// - Weights are 1 to 256.
/// - A single path gets all data.
/// - The share of a path that fails is split again.
///
/// Shares are not revised when later streams reduce the rate. Optionally, the rate of a path is
/// limited to a window per round trip. Control frames and data to be sent again leave on the
/// fastest path with room, outside the plan.
#[derive(Debug, Default)]
pub struct PStream {
    limit_to_window: bool,
    cases: PlainCases,
    /// Sorted by stream ID.
    flows: Vec<Flow>,
    round: u64,
    /// The path whose turn it is, and the number of its turns left.
    turn: Option<(PathId, usize)>,
    usable: UsablePaths,
    filling: Vec<Fill>,
    /// Streams of a path, with the bytes that the path should carry of each stream, and their
    /// weights.
    drawn: Vec<(StreamId, u64, u64)>,
}

/// A stream and the bytes that each path should carry of it.
#[derive(Debug)]
struct Flow {
    stream: StreamId,
    weight: u64,
    unsent: u64,
    /// True if the shares sum up to the unsent bytes.
    is_planned: bool,
    shares: SmallVec<[Share; 8]>,
    /// The path of the last decision for this stream.
    last: Option<PathId>,
    /// The last round in which the stream had data.
    seen: u64,
}

#[derive(Debug, Clone, Copy)]
struct Share {
    path: PathId,
    left: u64,
}

/// A path while a stream is being split.
#[derive(Debug, Clone, Copy)]
struct Fill {
    path: PathId,
    /// Bytes per second that the stream would get.
    rate: f64,
    /// One-way delay, seconds.
    delay: f64,
    mtu: u64,
    bytes: f64,
}

/// The rate of a stream on a path that it shares by weight, bytes per second.
pub(crate) fn rate_share(rate: f64, weight: u64, others: u64) -> f64 {
    rate * weight as f64 / (weight + others) as f64
}

/// Spreads `size` bytes over paths so that all paths with bytes finish together. Sorts the paths by
/// delay.
fn fill(paths: &mut [Fill], size: u64) {
    paths.sort_unstable_by(|a, b| a.delay.total_cmp(&b.delay).then(a.path.cmp(&b.path)));
    let mut rest = size as f64;
    for count in 1..=paths.len() {
        let next = paths.get(count).map(|path| path.delay);
        let filled = &mut paths[..count];
        let rates: f64 = filled.iter().map(|path| path.rate).sum();
        // Fills the first paths up to the delay of the next path; the last step takes all remaining
        // bytes.
        let gap = next.map_or(f64::INFINITY, |next| next - filled[count - 1].delay);
        let bytes = rest.min(gap * rates);
        for path in filled {
            path.bytes += bytes * path.rate / rates;
        }
        rest -= bytes;
        if rest <= 0.0 {
            return;
        }
    }
}

impl Flow {
    fn left_on(&self, path: PathId) -> u64 {
        let mut shares = self.shares.iter();
        shares
            .find(|s| s.path == path)
            .map_or(0, |share| share.left)
    }

    fn left(&self) -> u64 {
        self.shares.iter().map(|share| share.left).sum()
    }

    fn is_on(&self, path: PathId) -> bool {
        self.shares.iter().any(|share| share.path == path)
    }

    /// Takes bytes that were sent since the last call off the shares: first off the path of the
    /// last decision, then off the largest share.
    fn charge(&mut self) {
        let mut sent = self.left().saturating_sub(self.unsent);
        let last = self.last.take();
        if let Some(share) = self.shares.iter_mut().find(|s| Some(s.path) == last) {
            let part = share.left.min(sent);
            share.left -= part;
            sent -= part;
        }
        while sent > 0 {
            let Some(share) = self.shares.iter_mut().max_by_key(|share| share.left) else {
                return;
            };
            let part = share.left.min(sent);
            share.left -= part;
            sent -= part;
            if part == 0 {
                return;
            }
        }
    }
}

impl PStream {
    /// A scheduler. With `limit_to_window`, the rate of a path is limited to a window per round
    /// trip.
    pub fn new(limit_to_window: bool) -> Self {
        Self {
            limit_to_window,
            ..Self::default()
        }
    }

    fn flow(&mut self, stream: StreamId) -> &mut Flow {
        let position = find_stream(&self.flows, stream, |flow| flow.stream);
        let index = position.unwrap_or_else(|index| {
            let flow = Flow {
                stream,
                weight: 1,
                unsent: 0,
                is_planned: false,
                shares: SmallVec::new(),
                last: None,
                seen: 0,
            };
            self.flows.insert(index, flow);
            index
        });
        &mut self.flows[index]
    }

    /// Brings the plan in line with the unsent bytes of the streams.
    fn sync(&mut self, view: &View<'_>) {
        self.round += 1;
        let round = self.round;
        let usable_changed = self.usable.have_changed(view);
        let mut all_planned = true;
        for stream in view.streams {
            let flow = self.flow(stream.id);
            flow.seen = round;
            flow.weight = weight(stream.priority);
            flow.is_planned &= flow.unsent == stream.unsent && !usable_changed;
            if flow.is_planned {
                flow.last = None;
                continue;
            }
            flow.unsent = stream.unsent;
            flow.shares
                .retain(|share| view.path(share.path).is_some_and(|path| path.usable));
            flow.charge();
            flow.is_planned = flow.left() == flow.unsent;
            all_planned &= flow.is_planned;
        }
        if self.flows.len() > view.streams.len() {
            self.flows.retain(|flow| flow.seen == round);
        }
        // Most urgent first.
        for stream in view.streams.iter().filter(|_| !all_planned) {
            let flow = self.flow(stream.id);
            if flow.unsent > flow.left() {
                flow.shares.clear();
                self.assign(view, stream.id, stream.unsent);
                let flow = self.flow(stream.id);
                flow.is_planned = flow.left() == flow.unsent;
            }
        }
    }

    /// The rate of a path, bytes per second.
    fn rate(&self, path: &PathView) -> f64 {
        let by_window = path.window.max(1) as f64 / seconds(path.rtt.smoothed);
        if self.limit_to_window {
            rate(path).min(by_window)
        } else {
            rate(path)
        }
    }

    /// Splits `size` bytes of a stream.
    fn split(&mut self, view: &View<'_>, stream: StreamId, size: u64) {
        self.filling.clear();
        let weight = self.flow(stream).weight;
        for path in carriers(view) {
            let others = self.flows.iter();
            let others = others.filter(|flow| flow.stream != stream && flow.is_on(path.id));
            let others: u64 = others.map(|flow| flow.weight).sum();
            self.filling.push(Fill {
                path: path.id,
                rate: rate_share(self.rate(path), weight, others),
                delay: one_way_delay(path),
                mtu: u64::from(path.mtu.max(1)),
                bytes: 0.0,
            });
        }
        fill(&mut self.filling, size);
    }

    fn assign(&mut self, view: &View<'_>, stream: StreamId, size: u64) {
        self.split(view, stream, size);
        let mut rest = size;
        // Every path gets whole packets, except the path with the lowest delay, which takes the
        // rest.
        for index in (0..self.filling.len()).rev() {
            let Fill {
                path, mtu, bytes, ..
            } = self.filling[index];
            let bytes = if index == 0 {
                rest
            } else {
                (((bytes / mtu as f64).round() as u64) * mtu).min(rest)
            };
            rest -= bytes;
            if bytes == 0 {
                continue;
            }
            let shares = &mut self.flow(stream).shares;
            match shares.iter_mut().find(|share| share.path == path) {
                Some(share) => share.left += bytes,
                None => shares.push(Share { path, left: bytes }),
            }
        }
    }

    fn flows_on(&self, path: PathId) -> impl Iterator<Item = (&Flow, u64)> {
        let flows = self.flows.iter();
        flows
            .map(move |flow| (flow, flow.left_on(path)))
            .filter(|(_, left)| *left > 0)
    }

    fn is_ready(&self, path: &PathView) -> bool {
        path.can_send() && self.flows_on(path.id).next().is_some()
    }

    /// The path of the next turn. A path with N streams gets N turns in a row.
    fn next_path<'a>(&mut self, view: &View<'a>) -> Option<&'a PathView> {
        if let Some((id, turns)) = self.turn
            && turns > 0
            && let Some(path) = view.path(id).filter(|path| self.is_ready(path))
        {
            self.turn = Some((id, turns - 1));
            return Some(path);
        }
        let last = self.turn.map(|(id, _)| id);
        let mut ready = view.paths.iter().filter(|path| self.is_ready(path));
        let first = ready.clone().next()?;
        let after = ready.find(|path| last.is_none_or(|last| path.id > last));
        let path = after.unwrap_or(first);
        let turns = self.flows_on(path.id).count();
        self.turn = Some((path.id, turns.saturating_sub(1)));
        Some(path)
    }

    /// Draws a stream of the path with a probability that follows the weights.
    fn draw(&mut self, path: PathId, random: u64) -> Option<(StreamId, u64)> {
        let mut flows = std::mem::take(&mut self.drawn);
        flows.clear();
        flows.extend(
            self.flows_on(path)
                .map(|(flow, left)| (flow.stream, left, flow.weight)),
        );
        let sum: u64 = flows.iter().map(|(_, _, weight)| weight).sum();
        let mut at = uniform(random) * sum as f64;
        let drawn = flows.iter().find(|(_, _, weight)| {
            at -= *weight as f64;
            at < 0.0
        });
        let drawn = drawn.or(flows.last());
        let drawn = drawn.map(|(stream, left, _)| (*stream, *left));
        self.drawn = flows;
        drawn
    }
}

impl Scheduler for PStream {
    fn select(&mut self, view: &View<'_>) -> Decision {
        let fastest = match self.cases.fastest_for_plans(view) {
            Ok(path) => path,
            Err(decision) => return decision,
        };
        self.sync(view);
        let Some(path) = self.next_path(view) else {
            let planned = view
                .usable()
                .filter(|p| self.flows_on(p.id).next().is_some());
            let wait = lowest_rtt(planned.filter(|p| wait_for(p).is_some())).and_then(wait_for);
            return wait.unwrap_or(Decision::send(fastest.id));
        };
        let Some((stream, left)) = self.draw(path.id, view.random) else {
            return Decision::send(path.id);
        };
        self.flow(stream).last = Some(path.id);
        Decision::Send {
            path: path.id,
            data: DataSelection::Stream(stream),
            max_bytes: left.min(path.mtu.into()),
            tag: 0,
        }
    }

    fn on_event(&mut self, event: &SchedulerEvent, _: &View<'_>) {
        self.cases.on_event(event);
        if let SchedulerEvent::PathRemoved(path) = event {
            for flow in &mut self.flows {
                flow.shares.retain(|share| share.path != *path);
                flow.is_planned = false;
            }
            self.turn = self.turn.filter(|(id, _)| id != path);
        }
    }

    fn needs(&self) -> Needs {
        Needs::default().with_streams()
    }

    fn name(&self) -> &'static str {
        if self.limit_to_window {
            "pstream-windowed"
        } else {
            "pstream"
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{Scene, full, path, stream, stream_id};

    /// The bytes of each path, and when they have arrived, in units of 10 microseconds.
    fn split(pstream: &mut PStream, scene: &Scene, stream: StreamId, size: u64) -> [(u64, u64); 2] {
        pstream.split(&scene.view(), stream, size);
        [0, 1].map(|index| {
            let path = &pstream.filling[index];
            let finish = (path.bytes / path.rate + path.delay) * 1e5;
            (path.bytes.round() as u64, finish.round() as u64)
        })
    }

    #[test]
    fn t4_a_large_stream_finishes_on_both_paths_at_once() {
        let (scene, mut pstream) = (Scene::near_and_fast(), PStream::default());
        let parts = split(&mut pstream, &scene, stream_id(0), 900_000);
        assert_eq!(parts, [(200_000, 16_500), (700_000, 16_500)]);
    }

    #[test]
    fn t5_a_small_stream_is_sent_mostly_on_the_path_of_low_delay() {
        let (scene, mut pstream) = (Scene::near_and_fast(), PStream::default());
        let parts = split(&mut pstream, &scene, stream_id(0), 26_000);
        assert_eq!(parts, [(25_200, 2_516), (800, 2_516)]);
    }

    #[test]
    fn t6_urgent_streams_leave_less_of_a_path() {
        let (mut scene, mut pstream) = (Scene::near_and_fast(), PStream::default());
        let share = Share {
            path: PathId(0),
            left: 1000,
        };
        let flow = pstream.flow(stream_id(0));
        (flow.weight, flow.shares) = (255, SmallVec::from_slice(&[share]));
        pstream.flow(stream_id(1)).weight = 8;
        let parts = split(&mut pstream, &scene, stream_id(1), 900_000);
        assert_eq!(parts, [(7_547, 20_349), (892_453, 20_349)]);
        // Paths of equal delay share by rate.
        scene.paths[1].rtt.smoothed = scene.paths[0].rtt.smoothed;
        let parts = split(&mut PStream::default(), &scene, stream_id(1), 900_000);
        assert_eq!(parts.map(|part| part.0), [180_000, 720_000]);
    }

    #[test]
    fn shares_are_sent_as_planned_and_sum_up_to_the_stream() {
        let mut scene = Scene::near_and_fast();
        scene.streams = vec![stream(0, 8, 900_000)];
        let mut pstream = PStream::default();
        let mut bytes = [0, 0];
        while scene.streams[0].unsent > 0 {
            scene.random = scene.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let Decision::Send {
                path, max_bytes, ..
            } = pstream.select(&scene.view())
            else {
                panic!("both paths have room");
            };
            let sent = scene.streams[0].unsent.min(max_bytes).min(1150);
            bytes[path.0 as usize] += sent;
            scene.streams[0].unsent -= sent;
            scene.streams[0].offset += sent;
        }
        assert_eq!(bytes.iter().sum::<u64>(), 900_000);
        assert!(bytes[0].abs_diff(200_000) <= 1200, "{bytes:?}");
    }

    #[test]
    fn a_path_that_fails_hands_its_share_over() {
        let mut scene = Scene::near_and_fast();
        scene.streams = vec![stream(0, 8, 900_000)];
        let mut pstream = PStream::default();
        scene.paths.push(path(2, 30));
        pstream.select(&scene.view());
        assert_eq!(pstream.flows[0].left(), 900_000);
        scene.paths[1].usable = false;
        pstream.select(&scene.view());
        assert!(!pstream.flows[0].is_on(PathId(1)));
        assert_eq!(pstream.flows[0].left(), 900_000);
    }

    #[test]
    fn a_blocked_path_keeps_its_share() {
        let mut scene = Scene::near_and_fast();
        scene.streams = vec![stream(0, 8, 1200)];
        let mut pstream = PStream::default();
        scene.paths[0] = full(scene.paths[0]);
        let on = PathId(0);
        let wait = Decision::Wait { on, until: None };
        assert_eq!(pstream.select(&scene.view()), wait);
    }

    proptest! {
        /// All written bytes are planned: whole packets on all paths but one.
        #[test]
        fn shares_sum_up_to_the_unsent_bytes(
            rates in proptest::collection::vec((1u64..10_000_000, 0u64..500), 1..8),
            sizes in proptest::collection::vec(1u64..5_000_000, 1..5),
        ) {
            let paths = rates.iter().zip(0u32..).map(|(&(rate, rtt), id)| {
                let mut path = path(id, rtt);
                path.delivery_rate = Some(rate);
                path
            });
            let mut scene = Scene::new(paths.collect());
            let streams = sizes.iter().zip(0u64..);
            scene.streams = streams.map(|(size, id)| stream(id, id as i32, *size)).collect();
            let mut pstream = PStream::default();
            pstream.sync(&scene.view());
            for (flow, size) in pstream.flows.iter().zip(sizes) {
                prop_assert_eq!(flow.left(), size);
                let whole = flow.shares.iter().filter(|share| share.left % 1200 == 0);
                prop_assert!(whole.count() + 1 >= flow.shares.len());
            }
        }
    }
}
