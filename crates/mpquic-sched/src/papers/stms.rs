//! STMS: slide together multipath scheduler.

use mpquic_core::sched::{
    DataSelection, Decision, Needs, PathView, Scheduler, SchedulerEvent, StreamView, View,
};
use mpquic_core::{PathId, PathMap, StreamId};

use crate::choice::{rate, wait_for};
use crate::papers::choice::{nearest, one_way_delay, payload};
use crate::plain_cases::PlainCases;

/// Part of an observed error by which the gap is corrected.
const GAIN: f64 = 1.0 / 8.0;
/// Largest gap, in multiples of the gap that the delays suggest.
const MAX_GAP: f64 = 4.0;

/// The fast path sends a stream in order. A slow path sends data further ahead, by as many bytes as
/// the fast path delivers in the difference of the delays. So all data arrives in order, and the
/// receiver needs little buffer to sort it.
///
/// Source: Shi, Cui, Wang et al., "STMS: Improving MPTCP Throughput Under Heterogeneous Networks",
/// USENIX ATC 2018. Inputs: one-way delay, delivery rate, unsent bytes of the streams, flow control
/// credit; acknowledgements. Constants of our own: the gap is corrected by an eighth of the error,
/// up to four times the gap that the delays suggest.
///
/// An acknowledged packet of a slow path shows the error: the offset that the fast path had reached
/// when the packet arrived, compared with the offset of the packet.
#[derive(Debug, Default)]
pub struct Stms {
    cases: PlainCases,
    slow: PathMap<Slow>,
    /// The stream whose acknowledgements are compared.
    stream: Option<StreamId>,
    /// The highest offset acknowledged on the fast path.
    reached: u64,
    fast: Option<PathId>,
}

/// A path that sends ahead.
#[derive(Debug, Clone, Copy, Default)]
struct Slow {
    /// Bytes added to the gap because of observed errors.
    correction: f64,
    /// The offset of the path's next bytes in the stream.
    next: u64,
}

/// The gap that delays and rates suggest, bytes.
fn suggested(fast: &PathView, slow: &PathView) -> f64 {
    rate(fast) * (one_way_delay(slow) - one_way_delay(fast)).max(0.0)
}

impl Stms {
    fn gap(&self, fast: &PathView, slow: &PathView) -> u64 {
        let gap = suggested(fast, slow);
        let correction = self.slow.get(slow.id).map_or(0.0, |slow| slow.correction);
        (gap + correction).clamp(0.0, MAX_GAP * gap).round() as u64
    }

    /// The stream to send; the same stream as long as it has data.
    fn stream<'a>(&mut self, view: &View<'a>) -> Option<&'a StreamView> {
        let current = view.streams.iter().find(|s| Some(s.id) == self.stream);
        let stream = current.or(view.streams.first())?;
        if self.stream != Some(stream.id) {
            self.stream = Some(stream.id);
            self.restart();
        }
        Some(stream)
    }

    /// Forgets offsets, because they belong to another stream or another fast path.
    fn restart(&mut self) {
        self.reached = 0;
        self.slow.clear();
    }

    /// Compares the offset of a slow packet with the offset that the fast path had reached when the
    /// packet arrived.
    fn on_slow_acked(&mut self, view: &View<'_>, path: PathId, offset: u64) {
        let fast = self.fast.and_then(|id| view.path(id));
        let (Some(fast), Some(slow)) = (fast, view.path(path)) else {
            return;
        };
        let suggested = suggested(fast, slow);
        // The acknowledgement of the slow path is older, by the difference of the delays.
        let error = self.reached as f64 - suggested - offset as f64;
        let limit = MAX_GAP * suggested;
        if let Some(slow) = self.slow.get_mut(path) {
            slow.correction = (slow.correction + GAIN * error).clamp(-limit, limit);
        }
    }

    fn ahead(&mut self, fast: &PathView, slow: &PathView, stream: &StreamView) -> Option<Decision> {
        let offset = stream.offset.saturating_add(self.gap(fast, slow));
        if offset >= stream.end {
            return None;
        }
        let state = self.slow.get_or_insert_with(slow.id, Slow::default);
        let starts = state.next.max(offset);
        state.next = starts + payload(slow);
        Some(Decision::Send {
            path: slow.id,
            data: DataSelection::StreamAt {
                id: stream.id,
                offset,
            },
            max_bytes: 0,
            tag: starts + 1,
        })
    }
}

impl Scheduler for Stms {
    fn select(&mut self, view: &View<'_>) -> Decision {
        let sendable = match self.cases.fastest_for_plans(view) {
            Ok(path) => path,
            Err(decision) => return decision,
        };
        let (Some(fast), Some(stream)) = (nearest(view), self.stream(view)) else {
            return Decision::send(sendable.id);
        };
        if self.fast != Some(fast.id) {
            self.fast = Some(fast.id);
            self.restart();
        }
        let in_order = |path: &PathView| Decision::Send {
            path: path.id,
            data: DataSelection::Stream(stream.id),
            max_bytes: 0,
            tag: stream.offset + 1,
        };
        if fast.can_send() {
            return in_order(fast);
        }
        let room = view.queue.flow_credit > self.gap(fast, sendable);
        let ahead = room.then(|| self.ahead(fast, sendable, stream)).flatten();
        ahead
            .or_else(|| wait_for(fast))
            .unwrap_or_else(|| in_order(sendable))
    }

    fn on_event(&mut self, event: &SchedulerEvent, view: &View<'_>) {
        self.cases.on_event(event);
        match event {
            SchedulerEvent::Acked(packet, _) if packet.tag > 0 => {
                let offset = packet.tag - 1;
                if Some(packet.path) == self.fast {
                    self.reached = self.reached.max(offset);
                } else {
                    self.on_slow_acked(view, packet.path, offset);
                }
            }
            SchedulerEvent::PathRemoved(path) => {
                self.slow.remove(*path);
                self.fast = self.fast.filter(|fast| fast != path);
            }
            _ => {}
        }
    }

    fn needs(&self) -> Needs {
        Needs::default().with_streams().with_packet_events()
    }

    fn name(&self) -> &'static str {
        "stms"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scene, chosen, full, packet, path, stream, stream_id};

    /// 1 MB/s on both paths; one-way delays of 10 and 30 ms: a gap of 20 kB.
    fn scene() -> Scene {
        let mut scene = Scene::new(vec![full(path(0, 20)), path(1, 60)]);
        for path in &mut scene.paths {
            path.delivery_rate = Some(1_000_000);
        }
        scene.streams = vec![stream(0, 0, 100_000)];
        scene
    }

    #[test]
    fn the_slow_path_sends_ahead_by_the_gap() {
        let mut scene = scene();
        scene.streams[0].offset = 5_000;
        let mut stms = Stms::default();
        let ahead = Decision::Send {
            path: PathId(1),
            data: DataSelection::StreamAt {
                id: stream_id(0),
                offset: 25_000,
            },
            max_bytes: 0,
            tag: 25_001,
        };
        assert_eq!(stms.select(&scene.view()), ahead);
        let blocked = scene.paths[0];
        scene.paths[0].in_flight = 0;
        scene.paths[0].sendable = mpquic_core::sched::Sendable::Now;
        assert_eq!(chosen(&stms.select(&scene.view())), Some(0));
        // The stream ends before that offset, or flow control does not allow it.
        scene.paths[0] = blocked;
        scene.streams[0].end = 24_000;
        let on = PathId(0);
        let wait = Decision::Wait { on, until: None };
        assert_eq!(stms.select(&scene.view()), wait);
        scene.streams[0].end = 100_000;
        scene.queue.flow_credit = 15_000;
        assert_eq!(stms.select(&scene.view()), wait);
    }

    #[test]
    fn packets_that_come_late_widen_the_gap() {
        let scene = scene();
        let mut stms = Stms::default();
        stms.select(&scene.view());
        let mut acked = |path, offset: u64| {
            let packet = packet(PathId(path), offset + 1);
            stms.on_event(&SchedulerEvent::Acked(packet, None), &scene.view());
            stms.gap(&scene.paths[0], &scene.paths[1])
        };
        assert_eq!(acked(0, 48_000), 20_000);
        // The fast path was at offset 28 000 when this packet arrived.
        assert_eq!(acked(1, 20_000), 21_000);
        assert_eq!(acked(1, 44_000), 19_000);
        assert_eq!(acked(1, 28_000), 19_000);
    }
}
