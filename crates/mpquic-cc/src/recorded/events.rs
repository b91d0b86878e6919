//! Events without a link, in random order and with round numbers. Windows become as small as
//! possible, and limits are met exactly.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use mpquic_core::PathId;
use mpquic_core::congestion::{
    Acked, CongestionEvent, CongestionKind, Controller, DeliveryRate, RttSnapshot, SavedCapacity,
    Sent,
};

use mpquic_sim::SplitMix64;
use mpquic_sim::record::Hash;

use super::{assert_recorded, names};
use crate::by_name;
use crate::testing::start;

const SEEDS: u64 = 100;
const STEPS: u64 = 1_500;
const MS: Duration = Duration::from_millis(1);
/// A value that no limit has; stands for `None`.
const UNLIMITED: u64 = u64::MAX - 1;

/// A path as the core sees it.
struct Path {
    mtu: u64,
    /// Number, sending time and bytes of each packet in flight.
    packets: VecDeque<(u64, Instant, u64)>,
    next: u64,
    delivered: u64,
    /// Delivery rate, bytes per second.
    rate: u64,
    rtt: RttSnapshot,
    /// Sending time and bytes of the last lost packets.
    lost: Option<(Instant, u64)>,
}

impl Path {
    fn new() -> Self {
        Self {
            mtu: 1200,
            packets: VecDeque::new(),
            next: 0,
            delivered: 0,
            rate: 100_000,
            rtt: RttSnapshot::default(),
            lost: None,
        }
    }

    fn in_flight(&self) -> u64 {
        self.packets.iter().map(|(_, _, bytes)| bytes).sum()
    }
}

/// A connection with up to three paths.
struct Connection {
    numbers: SplitMix64,
    controller: Box<dyn Controller>,
    paths: Vec<Path>,
    now: Instant,
    /// The longest time step, ms.
    pace: u64,
    hash: Hash,
}

impl Connection {
    fn new(name: &str, seed: u64) -> Self {
        let mut numbers = SplitMix64::new(seed);
        let mut controller = by_name(name).expect("a listed name").build();
        let count = 1 + numbers.below(3) as u32;
        for path in 0..count {
            controller.on_path_opened(PathId(path), start(), 1200);
        }
        Self {
            controller,
            paths: (0..count).map(|_| Path::new()).collect(),
            now: start(),
            pace: [3, 6, 11, 41][numbers.below(4) as usize],
            numbers,
            hash: Hash::default(),
        }
    }

    /// Draws one of `several` values.
    fn one_of<T: Copy>(&mut self, several: &[T]) -> T {
        several[self.numbers.below(several.len() as u64) as usize]
    }

    fn step(&mut self) {
        self.now += MS * self.numbers.below(self.pace) as u32;
        let index = self.numbers.below(self.paths.len() as u64) as usize;
        match self.numbers.below(64) {
            0..25 => self.send(index),
            25..54 => self.acknowledge(index),
            54..57 => self.lose(index, CongestionKind::Loss),
            57 | 58 => self.report(index, CongestionKind::Ecn, self.now - 5 * MS, 0),
            59 => self.lose(index, CongestionKind::Persistent),
            60 => {
                if let Some((sent_at, bytes)) = self.paths[index].lost {
                    self.report(index, CongestionKind::Spurious, sent_at, bytes);
                }
            }
            61 => {
                let rates = [
                    100_000, 125_000, 200_000, 250_000, 400_000, 500_000, 800_000,
                ];
                self.paths[index].rate = self.one_of(&rates);
            }
            62 => {
                let mtu = self.one_of(&[1200, 1280, 1472, 1500, 9000]);
                self.paths[index].mtu = mtu;
                self.controller.on_mtu_update(id(index), mtu as u16);
            }
            _ => self.reopen(index),
        }
        self.record();
    }

    fn send(&mut self, index: usize) {
        for _ in 0..=self.numbers.below(12) {
            let (now, path) = (self.now, &mut self.paths[index]);
            let in_flight = path.in_flight() + path.mtu;
            if in_flight > self.controller.window(id(index)) + 2 * path.mtu {
                return;
            }
            path.packets.push_back((path.next, now, path.mtu));
            let sent = Sent::new(now, path.next, path.mtu, in_flight);
            path.next += 1;
            self.controller.on_packet_sent(id(index), &sent);
        }
    }

    fn acknowledge(&mut self, index: usize) {
        let count = 1 + self.numbers.below(6) as usize;
        let [lacks_sample, lacks_rate, is_limited, is_marked, restarts] =
            [8, 8, 6, 10, 80].map(|often| self.numbers.below(often) == 0);
        let path = &mut self.paths[index];
        let has_arrived = |packet: &&(u64, Instant, u64)| packet.1 + 10 * MS <= self.now;
        let arrived = path.packets.iter().take_while(has_arrived).count();
        let acked: Vec<_> = path.packets.drain(..count.min(arrived)).collect();
        let Some((largest, sent_at, _)) = acked.last().copied() else {
            return;
        };
        let bytes = acked.iter().map(|(_, _, bytes)| bytes).sum();
        let before = path.delivered;
        path.delivered += bytes;
        let latest = self.now - sent_at;
        if !lacks_sample {
            let first = path.rtt.samples == 0;
            path.rtt.smoothed = if first {
                latest
            } else {
                (path.rtt.smoothed * 7 + latest) / 8
            };
            path.rtt.min = if first || restarts {
                latest
            } else {
                path.rtt.min.min(latest)
            };
            path.rtt.latest = latest;
            path.rtt.samples += 1;
        }
        let mut ack = Acked::new(self.now, sent_at, bytes, path.rtt);
        ack.largest = largest;
        ack.packets = acked.len() as u64;
        ack.marked = u64::from(is_marked);
        ack.in_flight = path.in_flight();
        ack.app_limited = is_limited;
        ack.rtt_restarted = restarts;
        let mut rate = DeliveryRate::new(path.rate, before, path.delivered);
        rate.app_limited = is_limited;
        ack.delivery_rate = (!lacks_rate).then_some(rate);
        self.controller.on_ack(id(index), &ack);
        if is_marked {
            self.report(index, CongestionKind::Ecn, sent_at, 0);
        }
    }

    fn lose(&mut self, index: usize, kind: CongestionKind) {
        let count = 1 + self.numbers.below(4) as usize;
        let path = &mut self.paths[index];
        let lost: Vec<_> = path
            .packets
            .drain(..count.min(path.packets.len()))
            .collect();
        let Some((_, sent_at, _)) = lost.last().copied() else {
            return;
        };
        let bytes = lost.iter().map(|(_, _, bytes)| bytes).sum();
        path.lost = Some((sent_at, bytes));
        self.report(index, kind, sent_at, bytes);
    }

    fn report(&mut self, index: usize, kind: CongestionKind, sent_at: Instant, bytes: u64) {
        let mut event = CongestionEvent::new(kind, self.now, sent_at);
        event.lost_bytes = bytes;
        event.in_flight = self.paths[index].in_flight();
        self.controller.on_congestion_event(id(index), &event);
    }

    /// Closes a path and opens it again, in some cases with the window and RTT of an earlier
    /// connection.
    fn reopen(&mut self, index: usize) {
        self.controller.on_path_closed(id(index));
        self.record();
        self.paths[index] = Path::new();
        self.controller.on_path_opened(id(index), self.now, 1200);
        let window = 24_000 * self.numbers.below(20);
        let rtt = MS * self.one_of(&[10, 20, 40, 100]);
        if window > 0 {
            let saved = SavedCapacity { window, rtt };
            self.controller.resume(id(index), self.now, saved);
        }
    }

    fn record(&mut self) {
        let ids = 0..=self.paths.len();
        let windows: Vec<_> = ids
            .clone()
            .map(|path| (id(path), self.controller.window(id(path))))
            .collect();
        for path in ids.map(id) {
            let controller = &self.controller;
            for value in [
                controller.window(path),
                controller.slow_start_threshold(path).unwrap_or(UNLIMITED),
                controller.pacing_rate(path).unwrap_or(UNLIMITED),
                u64::from(controller.in_recovery(path)),
                controller.window_after_round(path, &windows),
                controller.window_after_round(path, &[(path, 6_000)]),
                controller.window_after_round(path, &[]),
                controller.resume_phase(path) as u64,
            ] {
                self.hash.add(value);
            }
        }
    }
}

fn id(index: usize) -> PathId {
    PathId(index as u32)
}

#[test]
fn effects_of_events_are_those_recorded() {
    let mut now = String::from("Controller: a hash of all limits after each event.\n");
    for name in names() {
        let mut all = Hash::default();
        for seed in 0..SEEDS {
            let mut connection = Connection::new(name, seed);
            for _ in 0..STEPS {
                connection.step();
            }
            all.add(connection.hash.value());
        }
        writeln!(now, "{name}: {:016x}", all.value()).expect("a string");
    }
    assert_recorded("recorded/events.txt", &now);
}
