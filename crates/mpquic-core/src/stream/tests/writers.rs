//! The send window among several streams.

use quinn_proto::WriteError;

use super::*;

/// Bytes of a packet.
const PACKET: usize = 1200;

/// Streams whose writers always have more to write.
struct Greedy {
    streams: StreamSet,
    ids: Vec<StreamId>,
    /// Bytes that left, by stream.
    sent: Vec<u64>,
    /// Packets without a byte of a stream: the longest run, by stream, and the current run.
    gaps: Vec<(u64, u64)>,
}

impl Greedy {
    fn new(count: usize, options: TransportOptions) -> Self {
        let options = TransportOptions {
            initial_stream_receive_window: 1 << 40,
            initial_receive_window: 1 << 40,
            max_receive_window: 1 << 40,
            max_concurrent_uni_streams: count as u64,
            ..options
        };
        let mut streams = client(&checked(options));
        let ids: Vec<_> = (0..count)
            .map(|_| streams.open(Dir::Uni).expect("credit"))
            .collect();
        Self {
            streams,
            ids,
            sent: vec![0; count],
            gaps: vec![(0, 0); count],
        }
    }

    /// A writer writes until it is blocked.
    fn fill(&mut self, index: usize) {
        let mut stream = self.streams.send_stream(self.ids[index]);
        while let Ok(_written) = stream.write(&[7; 64 << 10]) {}
    }

    /// Sends packets, of which each is acknowledged `in_flight` packets later, the last ones at the
    /// end.
    fn run(&mut self, packets: usize, in_flight: usize) {
        let mut flying = std::collections::VecDeque::new();
        for _ in 0..packets {
            let packet = next_packet(&mut self.streams, PACKET).expect("somebody has bytes");
            self.gaps.iter_mut().for_each(|gap| gap.1 += 1);
            for frame in packet.frames() {
                let Frame::Stream(frame) = frame else {
                    continue;
                };
                let index = self.ids.iter().position(|id| *id == frame.stream_id);
                let index = index.expect("a stream of ours");
                self.sent[index] += frame.data.len() as u64;
                let (longest, current) = &mut self.gaps[index];
                *longest = (*longest).max(std::mem::take(current));
            }
            flying.push_back(packet);
            if flying.len() > in_flight {
                let packet = flying.pop_front().expect("one more");
                packet.report(&mut self.streams, Fate::Acked);
            }
            self.streams.on_acked(
                crate::recovery::testing::start(),
                &paths(Duration::ZERO, 0, 0),
            );
            for event in events(&mut self.streams) {
                if let StreamEvent::Writable { id } = event {
                    let index = self.ids.iter().position(|own| *own == id);
                    self.fill(index.expect("a stream of ours"));
                }
            }
        }
        for packet in flying {
            packet.report(&mut self.streams, Fate::Acked);
        }
    }

    /// Jain's index of fairness of the sent bytes.
    fn fairness(&self) -> f64 {
        let sum: f64 = self.sent.iter().map(|sent| *sent as f64).sum();
        let squares: f64 = self.sent.iter().map(|sent| (*sent as f64).powi(2)).sum();
        sum * sum / (squares * self.sent.len() as f64)
    }
}

/// Without shares, the first writers fill the window, and whoever is polled first after each wake
/// takes all that is free.
#[test]
fn greedy_streams_get_equal_parts_and_none_pauses() {
    for count in [2, 10, 50, 300] {
        let mut greedy = Greedy::new(count, options());
        (0..count).for_each(|index| greedy.fill(index));
        greedy.run(count * 200, 300);
        let gap = greedy.gaps.iter().map(|gap| gap.0).max().expect("streams");
        assert!(greedy.fairness() > 0.99, "{}", greedy.fairness());
        assert!(gap <= 2 * count as u64, "{count} streams: {gap} packets");
        let buffered = greedy.streams.backlogs.all.buffered;
        assert!(buffered <= 6 << 20, "{buffered}");
    }
}

/// A stream that begins while others fill the window sends with its first turn, and soon as much as
/// the others.
#[test]
fn a_late_stream_need_not_wait_for_room() {
    let mut greedy = Greedy::new(9, options());
    (0..8).for_each(|index| greedy.fill(index));
    greedy.run(20_000, 300);
    greedy.gaps.fill((0, 0));
    greedy.sent.fill(0);
    greedy.fill(8);
    assert!(greedy.streams.backlogs.all.unsent > 3 << 20);
    greedy.run(20_000, 300);
    assert!(greedy.gaps[8].0 <= 18, "{:?}", greedy.gaps[8]);
    assert!(greedy.fairness() > 0.95, "{:?}", greedy.sent);
}

/// Streams that write little, and leave what they hold unacknowledged, take no share.
#[test]
fn a_lone_greedy_stream_has_the_window_of_its_modest_neighbours() {
    let mut greedy = Greedy::new(50, options());
    for index in 1..50 {
        let written = greedy
            .streams
            .send_stream(greedy.ids[index])
            .write(&[7; 100]);
        assert_eq!(written, Ok(100));
    }
    greedy.fill(0);
    assert_eq!(greedy.streams.backlogs.all.buffered, 4 << 20);
}

/// Minimum parts of many streams stay within half a window, and whoever is refused goes on later.
#[test]
fn more_streams_than_minimum_parts_all_get_on() {
    let options = TransportOptions {
        send_window: 64 << 10,
        ..options()
    };
    let mut greedy = Greedy::new(200, options);
    (0..200).for_each(|index| greedy.fill(index));
    // A write may go beyond the limit by its minimum part.
    assert!(greedy.streams.backlogs.all.buffered <= 100 << 10);
    let refused = greedy.streams.send_stream(greedy.ids[199]).write(&[7; 10]);
    assert_eq!(refused, Err(WriteError::Blocked));
    greedy.run(20_000, 20);
    assert!(greedy.sent.iter().all(|sent| *sent > 0));
    assert!(greedy.fairness() > 0.9, "{}", greedy.fairness());
}

#[test]
fn unsent_bytes_are_those_of_a_time() {
    let mut greedy = Greedy::new(
        2,
        TransportOptions {
            send_queue_time: Some(Duration::from_millis(100)),
            ..options()
        },
    );
    greedy.fill(0);
    let unsent = |greedy: &Greedy| greedy.streams.backlogs.all.unsent;
    assert_eq!(unsent(&greedy), 64 << 10, "before the rate is known");
    let mut now = crate::recovery::testing::start();
    // Paths have a rate by their controllers, and another rate by acknowledgements.
    let mut at_rates = |greedy: &mut Greedy, rate, of_acked: u64| {
        for _ in 0..30 {
            greedy.streams.writers.window_mut().on_acked(of_acked / 100);
            let paths = paths(Duration::from_millis(50), 0, rate);
            greedy.streams.on_acked(now, &paths);
            now += Duration::from_millis(10);
        }
        greedy.run(3000, 10);
        unsent(greedy)
    };
    let fast = at_rates(&mut greedy, 10_000_000, 10_000_000);
    assert!((1_125_000..=1_500_000).contains(&fast), "{fast}");
    let slow = at_rates(&mut greedy, 1_000_000, 1_000_000);
    assert!((110_000..=150_000).contains(&slow), "{slow}");
    let least = at_rates(&mut greedy, 0, 1_000_000) >> 10;
    assert!(
        (10..=16).contains(&least),
        "at least a few packets: {least}"
    );
    let starting = at_rates(&mut greedy, 10_000_000, 1_000_000);
    assert!((225_000..=300_000).contains(&starting), "{starting}");
    // The second stream has half of the queue, and a minimum at once.
    greedy.fill(1);
    greedy.sent.fill(0);
    at_rates(&mut greedy, 1_000_000, 1_000_000);
    assert!(greedy.fairness() > 0.95, "{:?}", greedy.sent);
}

#[test]
fn a_finished_stream_leaves_its_share_to_others() {
    let window = 100 << 10;
    let options = TransportOptions {
        send_window: window,
        ..options()
    };
    let mut greedy = Greedy::new(2, options);
    greedy.fill(0);
    let mut first = greedy.streams.send_stream(greedy.ids[0]);
    first.finish().expect("open");
    greedy.streams.set_send_window(3 * window);
    let mut second = greedy.streams.send_stream(greedy.ids[1]);
    let bytes = vec![7; 1 << 20];
    assert_eq!(second.write(&bytes), Ok(2 * window as usize));
}

/// The part of each priority, of streams that always have bytes to send.
fn parts(priorities: &[i32], priority_floor: bool) -> Vec<f64> {
    let options = TransportOptions {
        priority_floor,
        ..options()
    };
    let mut greedy = Greedy::new(priorities.len(), options);
    for (index, priority) in priorities.iter().enumerate() {
        let mut stream = greedy.streams.send_stream(greedy.ids[index]);
        stream.set_priority(*priority).expect("open");
        greedy.fill(index);
    }
    greedy.run(20_000, 20);
    let sum: u64 = greedy.sent.iter().sum();
    let part = |sent: &u64| *sent as f64 / sum as f64;
    greedy.sent.iter().map(part).collect()
}

#[test]
fn lower_priorities_have_a_tenth_each_with_a_floor() {
    let strict = parts(&[0, 1, 3], false);
    assert_eq!(strict[..2], [0.0, 0.0]);
    let fair = parts(&[0, 1, 3], true);
    assert!(fair[0] >= 0.1 && fair[1] >= 0.1, "{fair:?}");
    assert!(fair[2] > 0.7, "{fair:?}");
    let two = parts(&[0, 1], true);
    assert!((0.1..0.15).contains(&two[0]), "{two:?}");
}
