//! A controller must not allocate once it has seen its paths.

use std::time::{Duration, Instant};

use allocation_counter::measure;
use mpquic_cc::{by_name, list};
use mpquic_core::PathId;
use mpquic_core::congestion::{
    Acked, CongestionEvent, CongestionKind, Controller, DeliveryRate, RttSnapshot, Sent,
};

const MTU: u16 = 1200;
const PATHS: u32 = 4;

/// Paths of different length that carry a window each and lose some of it.
struct Traffic {
    controller: Box<dyn Controller>,
    now: Instant,
    number: u64,
    random: u64,
}

impl Traffic {
    fn new(name: &str) -> Self {
        #[expect(clippy::disallowed_methods, reason = "any instant will do")]
        let now = Instant::now();
        let mut controller = by_name(name).expect("a listed name").build();
        for path in 0..PATHS {
            controller.on_path_opened(PathId(path), now, MTU);
        }
        Self {
            controller,
            now,
            number: 0,
            random: 1,
        }
    }

    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d) + 1;
        self.random >> 40
    }

    /// A packet leaves on each path and an older one is acknowledged, sometimes lost.
    fn step(&mut self) {
        self.now += Duration::from_micros(500);
        self.number += 1;
        for path in 0..PATHS {
            let rtt = Duration::from_millis(u64::from(20 + 15 * path) + self.random() % 5);
            self.send_and_hear(PathId(path), rtt);
        }
    }

    fn send_and_hear(&mut self, path: PathId, rtt: Duration) {
        let (now, bytes) = (self.now, u64::from(MTU));
        let in_flight = self.controller.window(path).min(200_000);
        self.controller
            .on_packet_sent(path, &Sent::new(now, self.number, bytes, in_flight));
        let delivered = self.number * bytes;
        let before = delivered.saturating_sub(100_000);
        let mut snapshot = RttSnapshot::new(rtt);
        snapshot.variance = rtt / 8;
        snapshot.min = Duration::from_millis(20);
        snapshot.samples = self.number;
        let mut ack = Acked::new(now, now - rtt, bytes, snapshot);
        ack.largest = self.number.saturating_sub(50);
        ack.in_flight = in_flight;
        ack.delivery_rate = Some(DeliveryRate::new(2_400_000, before, delivered));
        self.controller.on_ack(path, &ack);
        let kind = match self.random() % 4000 {
            0..10 => CongestionKind::Loss,
            10..12 => CongestionKind::Ecn,
            12..14 => CongestionKind::Spurious,
            14 => CongestionKind::Persistent,
            _ => return,
        };
        let mut event = CongestionEvent::new(kind, now, now - rtt);
        event.lost_bytes = bytes;
        event.in_flight = in_flight;
        event.largest_lost = self.number.saturating_sub(50);
        self.controller.on_congestion_event(path, &event);
    }
}

#[test]
fn controllers_do_not_allocate_once_warm() {
    for info in list() {
        let mut traffic = Traffic::new(info.name);
        let mut steps = |seconds: u32| (0..2000 * seconds).for_each(|_| traffic.step());
        // Some cycles of probing and losses.
        steps(30);
        let allocations = measure(|| steps(60));
        assert_eq!(allocations.count_total, 0, "{}", info.name);
    }
}
