//! PriorityBucket.

use mpquic_core::sched::{Decision, Needs, Scheduler, SchedulerEvent, StreamView, View};

use crate::papers::choice::{send_stream, weight};
use crate::plain_cases::PlainCases;

/// A stream of known size up to this many bytes is served one bucket earlier.
const SMALL: u64 = 64 * 1024;

/// Puts the streams into buckets by priority and size. Serves the buckets in strict order, and the
/// streams of a bucket one after the other. Each packet takes the fastest path with room.
///
/// Source: Shi et al., "PriorityBucket: A Multipath-QUIC Scheduler on Accelerating First Rendering
/// Time in Page Loading", e-Energy 2020, as described by Hu et al. Inputs: RTT and window,
/// priorities and sizes. The description leaves the constants open; here there is one bucket per
/// doubling of the weight, streams up to 64 KiB are one bucket earlier, and the path rule is lowest
/// RTT first.
#[derive(Debug, Default)]
pub struct PriorityBucket {
    cases: PlainCases,
}

/// The bucket of a stream; smaller numbers are served earlier.
fn bucket(stream: &StreamView) -> u32 {
    let by_weight = 9 - weight(stream.priority).ilog2();
    let small = stream.size.is_some_and(|size| size <= SMALL);
    by_weight - u32::from(small)
}

impl Scheduler for PriorityBucket {
    fn select(&mut self, view: &View<'_>) -> Decision {
        let path = match self.cases.fastest_for_plans(view) {
            Ok(path) => path,
            Err(decision) => return decision,
        };
        // Stream IDs grow in the order in which streams are opened.
        let first = view
            .streams
            .iter()
            .min_by_key(|s| (bucket(s), s.id.index()));
        first.map_or(Decision::send(path.id), |s| send_stream(path, s.id))
    }

    fn on_event(&mut self, event: &SchedulerEvent, _: &View<'_>) {
        self.cases.on_event(event);
    }

    fn needs(&self) -> Needs {
        Needs::default().with_streams()
    }

    fn name(&self) -> &'static str {
        "priority-bucket"
    }
}

#[cfg(test)]
mod tests {
    use mpquic_core::sched::DataSelection;

    use super::*;
    use crate::testing::{Scene, path, stream, stream_id};

    #[test]
    fn buckets_are_served_in_order_and_first_come_first_served_within() {
        let mut scene = Scene::new(vec![path(0, 10), path(1, 100)]);
        let mut scheduler = PriorityBucket::default();
        let mut first = |streams: &[StreamView]| {
            scene.streams = streams.to_vec();
            match scheduler.select(&scene.view()) {
                Decision::Send {
                    data: DataSelection::Stream(id),
                    ..
                } => id,
                other => panic!("{other:?}"),
            }
        };
        let large = stream(0, 100, 1 << 20);
        let peer = stream(1, 120, 1 << 20);
        let urgent = stream(2, 130, 1 << 20);
        assert_eq!(first(&[large, peer, urgent]), stream_id(2));
        assert_eq!(first(&[peer, large]), stream_id(0));
        let mut small = stream(3, 64, 1000);
        assert_eq!(first(&[peer, small]), stream_id(1));
        small.size = Some(1000);
        assert_eq!(first(&[large, small]), stream_id(3));
        small.priority -= 1;
        assert_eq!(first(&[large, small]), stream_id(0));
    }
}
