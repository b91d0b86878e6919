//! From the field `priority` to the split that schedulers by weight make.

use std::time::{Duration, Instant};

use mpquic_sched::by_name;
use mpquic_tokio::congestion::{Controller, RttSnapshot};
use mpquic_tokio::sched::{
    DataSelection, Decision, PathView, Scheduler, Sendable, StreamView, View,
};
use mpquic_tokio::{Dir, PathId, Side, StreamId, controllers};

use super::*;

/// A stream with 900 kB of an answer, as the request's field asks.
fn answer(index: u64, value: &str) -> StreamView {
    let field = (PRIORITY, value.parse().unwrap());
    let priority = Priority::of_request(&HeaderMap::from_iter([field]));
    let id = StreamId::new(Side::Client, Dir::Bi, index);
    let mut stream = StreamView::new(id, 0..900_000);
    stream.priority = priority.of_stream();
    stream.incremental = priority.incremental();
    stream
}

/// Two paths with the same RTT, and with these rates.
fn paths(rates: [u64; 2]) -> [PathView; 2] {
    [0, 1].map(|index| {
        let mut path = PathView::new(PathId(index as u32));
        path.rtt = RttSnapshot::new(Duration::from_millis(20));
        path.delivery_rate = Some(rates[index]);
        path
    })
}

struct World {
    now: Instant,
    controller: Box<dyn Controller>,
    scheduler: Box<dyn Scheduler>,
    paths: [PathView; 2],
    random: u64,
}

impl World {
    fn new(scheduler: &str, paths: [PathView; 2]) -> Self {
        Self {
            #[expect(clippy::disallowed_methods, reason = "any instant will do")]
            now: Instant::now(),
            controller: controllers::by_name("newreno").unwrap().build(),
            scheduler: by_name(scheduler).unwrap().build(),
            paths,
            random: 0,
        }
    }

    /// The stream and the path of the next decision.
    fn next(&mut self, streams: &[StreamView]) -> Option<(usize, u32)> {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut view = View::new(self.now, &self.paths, self.controller.as_ref());
        view.streams = streams;
        view.queue.unsent = streams.iter().map(|stream| stream.unsent).sum();
        view.queue.flow_credit = 1 << 20;
        view.queue.flow_window = 1 << 20;
        view.random = self.random;
        match self.scheduler.select(&view) {
            Decision::Send {
                path,
                data: DataSelection::Stream(id),
                ..
            } => {
                let stream = streams.iter().position(|stream| stream.id == id);
                stream.map(|stream| (stream, path.0))
            }
            _ => None,
        }
    }
}

/// The number of packets of each stream.
fn packets(scheduler: &str, values: &[&str], count: usize) -> Vec<usize> {
    let streams: Vec<_> = values
        .iter()
        .zip(0..)
        .map(|(value, i)| answer(i, value))
        .collect();
    let mut world = World::new(scheduler, paths([1_000_000; 2]));
    let mut packets = vec![0; streams.len()];
    for _ in 0..count {
        packets[world.next(&streams).unwrap().0] += 1;
    }
    packets
}

/// Each urgency weighs twice as much as the next, whether parts of an answer are of use or not.
#[test]
fn streams_share_the_paths_by_urgency() {
    for incremental in ["", ", i"] {
        let values = [0, 1, 2, 3, 4, 5, 6, 7].map(|u| format!("u={u}{incremental}"));
        let values = values.each_ref().map(String::as_str);
        let expected = [128, 64, 32, 16, 8, 4, 2, 1];
        assert_eq!(packets("sa-ecf", &values, 255), expected);
        for scheduler in ["pstream", "pstream-windowed"] {
            let drawn = packets(scheduler, &values, 25_500);
            for (drawn, expected) in drawn.iter().zip(expected) {
                let (least, most) = (70 * expected, 130 * expected);
                assert!((least..most).contains(drawn), "{scheduler}: {drawn:?}");
            }
        }
    }
    // Without the field, an answer has the default urgency of 3.
    assert_eq!(packets("sa-ecf", &["u=2", "", "u=4"], 7), [4, 2, 1]);
}

/// FStream puts the second stream beside an answer of urgency 0 if a sixth of the rate or more is
/// left there.
#[test]
fn fstream_weighs_the_urgency_of_a_stream_against_others() {
    let is_beside = |urgency: u8| {
        let mut world = World::new("fstream", paths([6_000_000, 1_000_000]));
        let streams = [answer(0, "u=0"), answer(1, &format!("u={urgency}, i"))];
        assert_eq!(world.next(&streams), Some((0, 0)));
        world.paths[0].sendable = Sendable::WindowFull;
        world.paths[0].in_flight = world.paths[0].window;
        world.next(&streams).is_none()
    };
    let beside = [0, 1, 2, 3, 4, 5, 6, 7].map(is_beside);
    assert_eq!(
        beside,
        [true, true, true, false, false, false, false, false]
    );
}

#[test]
fn priority_bucket_has_a_bucket_for_every_urgency() {
    let mut streams: Vec<_> = (0..8).map(|u| answer(7 - u, &format!("u={u}"))).collect();
    let urgencies = [2, 7, 0, 5, 1, 6, 3, 4];
    streams.sort_by_key(|stream| urgencies[stream.id.index() as usize]);
    let mut world = World::new("priority-bucket", paths([1_000_000; 2]));
    let mut order = Vec::new();
    while let Some((stream, _)) = world.next(&streams) {
        order.push(7 - streams.remove(stream).id.index());
    }
    assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7]);
}
