//! [`Trains`]: what a path that starts has room for, found with trains of packets.
//!
//! Once in a round trip a few packets leave much faster than the others. How far apart they arrive tells the rate of the
//! narrowest link long before a whole flight is sent at that rate, so that the path neither has to double what it sends
//! step by step, nor to learn of its limit by a queue that overflows. A train is a small part of a flight, for short queues have
//! to take it. A shaper lets short bursts pass at a rate it does not keep up: what a train that nothing held up tells
//! is worth less than what one that was held up does.
//!
//! That packets are spread by the narrowest link is from Keshav ("A control-theoretic approach to flow control", 1991), to
//! start with short trains from Misund and Briscoe ("Paced chirping", 2019).

use std::time::Instant;

use mpquic_core::congestion::{Acked, Sent};

/// How much faster than the path delivers so far a train leaves that is to find a link,
const GAIN: f64 = 1000.0;
/// and how much faster than a link that one train has found the next one, which confirms it.
const ABOVE: f64 = 4.0;
/// Its part of what is delivered in a round trip,
const LENGTH: f64 = 0.125;
/// but at least so many datagrams, which may leave at once in any case.
const MIN_DATAGRAMS: f64 = 10.0;
/// A train that takes so much longer to arrive than to leave was held up by a link.
const HELD_UP: f64 = 1.25;
/// Rates of two trains that differ by less than this part agree.
const AGREEMENT: f64 = 0.1;
/// To confirm a link, a train is so many times as long: one that jitter spreads seems the faster the longer it is.
const LONGER: f64 = 1.4;
/// What is sent for that, as some may be lost.
const CONFIRMING: f64 = 2.0;
/// The part of a train that has to arrive bit by bit.
const MOST: f64 = 0.5;
/// Where a larger part arrives at once, times are those of whoever collects packets, and not of a link.
const COARSE: f64 = 0.25;
/// Clocks and timers do not tell shorter times apart, seconds.
const RESOLUTION: f64 = 1e-5;

/// Factors by which the rate grows in a round trip: at least this, as far as no link is known,
const DOUBLING: f64 = 2.0;
/// or if there may be one,
const LEAST_GROWTH: f64 = 1.5;
/// at most this if nothing held the train up,
const UNLIMITED_GROWTH: f64 = 4.0;
/// and this towards the rate of a link.
const GROWTH_TO_LINK: f64 = 16.0;
/// The window does not fill in time if packets leave no faster than it grows.
const LEAD: f64 = 1.5;
/// The window towards a link that is known, in what it carries in a round trip.
const LINK_WINDOW: f64 = 1.5;
/// A link that delivers this part of its rate is filled.
const FILLED: f64 = 0.95;

/// A train on its way.
#[derive(Debug, Clone, Copy)]
struct Train {
    /// Bytes per second at which it is to leave.
    rate: f64,
    /// Bytes that have yet to leave.
    ahead: f64,
    left: Option<Left>,
    arrived: Option<Arrived>,
}

/// What has left of a train.
#[derive(Debug, Clone, Copy)]
struct Left {
    /// Packet numbers.
    first: u64,
    last: u64,
    /// Bytes of all but the first.
    bytes: f64,
}

/// What has arrived of a train.
#[derive(Debug, Clone, Copy)]
struct Arrived {
    /// When the newest packets of the first and of the last acknowledgement had left, and when they were acknowledged.
    first: (Instant, Instant),
    last: (Instant, Instant),
    /// Bytes of all acknowledgements but the first.
    bytes: f64,
    /// Bytes of the largest one of these.
    at_once: f64,
}

impl Train {
    fn on_sent(&mut self, sent: &Sent) {
        let bytes = sent.bytes as f64;
        self.ahead -= bytes;
        match &mut self.left {
            Some(left) => {
                left.last = sent.packet_number;
                left.bytes += bytes;
            }
            None => {
                self.left = Some(Left {
                    first: sent.packet_number,
                    last: sent.packet_number,
                    bytes: 0.0,
                });
            }
        }
    }

    fn on_ack(&mut self, ack: &Acked) {
        let (moment, bytes) = ((ack.sent_at, ack.now), ack.bytes as f64);
        match &mut self.arrived {
            Some(arrived) => {
                arrived.last = moment;
                arrived.bytes += bytes;
                arrived.at_once = arrived.at_once.max(bytes);
            }
            None => {
                self.arrived = Some(Arrived {
                    first: moment,
                    last: moment,
                    bytes: 0.0,
                    at_once: 0.0,
                });
            }
        }
    }

    /// What has arrived, if it is most of what has left.
    fn most(&self, left: &Left) -> Option<Arrived> {
        self.arrived
            .filter(|arrived| arrived.bytes >= MOST * left.bytes)
    }
}

impl Arrived {
    fn rate(&self) -> f64 {
        self.bytes / self.seconds().max(RESOLUTION)
    }

    fn seconds(&self) -> f64 {
        seconds(self.first.1, self.last.1)
    }

    fn is_held_up(&self) -> bool {
        self.seconds() > HELD_UP * seconds(self.first.0, self.last.0)
    }

    fn is_coarse(&self) -> bool {
        self.at_once > COARSE * self.bytes
    }
}

fn seconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64()
}

/// What trains have shown, bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Room {
    /// At least this, for as short a time as the train took.
    AtLeast(f64),
    /// One train has met a link with this rate, if nothing else spread it.
    Perhaps(f64),
    /// Two trains have.
    Probably(f64),
    /// Two trains have, and one was longer than the other.
    Link(f64),
}

/// What a path that starts does, in terms of what it delivers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Plan {
    /// The factor by which the window grows in a round trip.
    pub(super) growth: f64,
    /// The window, in what is delivered in a round trip.
    pub(super) window: f64,
    /// The rate, in that of delivery.
    pub(super) pacing: f64,
    /// The narrowest link carries all it can.
    pub(super) is_filled: bool,
}

/// What has yet to leave of a train.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaving {
    /// Bytes per second.
    pub(super) rate: f64,
    pub(super) bytes: f64,
}

/// The trains of a path, one after the other.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Trains {
    train: Option<Train>,
    /// The rate at which a train arrived that was held up, and its bytes.
    held_up: Option<(f64, f64)>,
    room: Option<Room>,
    /// Acknowledgements come over another path, whose own link spreads them: only with a queue that is certain.
    is_foreign: bool,
}

impl Trains {
    /// Sends a train if none is on its way, over a path that delivers `rate` bytes per second and `per_round` in a
    /// round trip. Returns its bytes.
    pub(super) fn start(&mut self, rate: f64, per_round: f64, mtu: f64) -> f64 {
        if self.train.is_some() || matches!(self.room, Some(Room::Link(_))) {
            return 0.0;
        }
        let (length, rate) = match self.held_up {
            Some((limit, bytes)) => (CONFIRMING * bytes, ABOVE * limit.max(rate)),
            None => ((LENGTH * per_round).max(MIN_DATAGRAMS * mtu), GAIN * rate),
        };
        self.train = Some(Train {
            rate,
            ahead: length,
            left: None,
            arrived: None,
        });
        length
    }

    /// What to do while the path delivers `rate` bytes per second, which `grows` in a round trip or not, and packets
    /// wait for long or not; `None` if there is nothing to go by.
    pub(super) fn plan(&self, rate: f64, grows: bool, is_queued: bool) -> Option<Plan> {
        let plan = |growth: f64, pacing: f64| Plan {
            growth,
            window: growth,
            pacing,
            is_filled: false,
        };
        Some(match self.room? {
            Room::AtLeast(room) => {
                let growth = (room / rate).clamp(DOUBLING, UNLIMITED_GROWTH);
                plan(growth, LEAD * growth)
            }
            Room::Perhaps(room) => {
                let growth = (room / rate).clamp(DOUBLING, GROWTH_TO_LINK);
                Plan {
                    // What is delivered agrees with it.
                    is_filled: !grows && rate >= FILLED * room && (is_queued || !self.is_foreign),
                    ..plan(growth, growth)
                }
            }
            Room::Probably(room) => {
                let growth = (room / rate).clamp(LEAST_GROWTH, GROWTH_TO_LINK);
                Plan {
                    window: LINK_WINDOW * growth,
                    is_filled: !grows,
                    ..plan(growth, growth)
                }
            }
            Room::Link(room) => {
                let growth = (room / rate).clamp(1.0, GROWTH_TO_LINK);
                Plan {
                    window: LINK_WINDOW * growth,
                    is_filled: rate >= FILLED * room || !grows,
                    ..plan(growth, growth)
                }
            }
        })
    }

    /// What has yet to leave of a train.
    pub(super) fn leaving(&self) -> Option<Leaving> {
        let leaving = self.train.filter(|train| train.ahead > 0.0);
        leaving.map(|train| Leaving {
            rate: train.rate,
            bytes: train.ahead,
        })
    }

    pub(super) fn on_sent(&mut self, sent: &Sent) {
        if let Some(train) = self.train.as_mut().filter(|train| train.ahead > 0.0) {
            train.on_sent(sent);
        }
    }

    pub(super) fn on_ack(&mut self, ack: &Acked) {
        self.is_foreign |= ack.rtt_restarted;
        let Some(train) = &mut self.train else { return };
        let Some(left) = train.left.filter(|left| ack.largest >= left.first) else {
            return;
        };
        let is_leaving = train.ahead > 0.0;
        // What follows the train is acknowledged together with its end: that counts if there is little else.
        if is_leaving || ack.largest <= left.last || train.most(&left).is_none() {
            train.on_ack(ack);
        }
        if is_leaving || ack.largest < left.last {
            return;
        }
        let arrived = train.most(&left);
        self.train = None;
        // If most of it was lost, or is acknowledged at once, it tells nothing new.
        if let Some(arrived) = arrived {
            self.room = Some(self.judge(&arrived));
        }
    }

    /// What a train tells that arrived like this.
    fn judge(&mut self, arrived: &Arrived) -> Room {
        let rate = arrived.rate();
        let agrees = |limit: f64| (rate - limit).abs() < AGREEMENT * limit;
        match self.held_up {
            Some((limit, bytes)) if agrees(limit) => {
                if self.is_foreign || arrived.is_coarse() {
                    Room::Perhaps(limit)
                } else if arrived.bytes >= LONGER * bytes {
                    Room::Link(rate.max(limit))
                } else {
                    Room::Probably(rate.max(limit))
                }
            }
            _ if arrived.is_held_up() => {
                self.held_up = Some((rate, arrived.bytes));
                Room::Perhaps(rate)
            }
            // It left too slowly to tell.
            Some((limit, _)) if rate < limit => Room::Perhaps(limit),
            _ => {
                self.held_up = None;
                Room::AtLeast(rate)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::{acked, start};

    const MTU: u64 = 1200;
    /// Bytes per second that the path delivers so far, and in a round trip.
    const RATE: f64 = 250_000.0;
    const PER_ROUND: f64 = 25_000.0;
    const RTT: Duration = Duration::from_millis(100);

    /// A path whose packets arrive as far apart as a link has them, or as jitter does.
    #[derive(Default)]
    struct Path {
        trains: Trains,
        sent: u64,
    }

    impl Path {
        /// Sends a train. Returns when, its first packet number, and its bytes.
        fn send(&mut self) -> (Instant, u64, f64) {
            let now = start() + Duration::from_secs(self.sent);
            let length = self.trains.start(RATE, PER_ROUND, MTU as f64);
            let first = self.sent;
            while self.trains.leaving().is_some() {
                let sent = Sent::new(now, self.sent, MTU, MTU);
                self.trains.on_sent(&sent);
                self.sent += 1;
            }
            (now, first, length)
        }

        /// Sends a train, and as many packets after it as make the last of the batches full in which they arrive, each
        /// so long after the one before. `gap` is how long after the train those packets leave.
        fn batches(&mut self, size: u64, apart: Duration, gap: Duration) {
            let (now, first, _) = self.send();
            let batches = (self.sent - first).div_ceil(size);
            let after = first + batches * size - self.sent;
            let sent_at = |batch| match batch + 1 == batches && after > 0 {
                true => now + gap,
                false => now,
            };
            for batch in 0..batches {
                let arrived = now + RTT + apart * batch as u32;
                let mut ack = acked(
                    arrived.max(sent_at(batch) + RTT),
                    sent_at(batch),
                    size * MTU,
                );
                ack.largest = first + (batch + 1) * size - 1;
                self.trains.on_ack(&ack);
            }
            self.sent += after;
        }

        /// Sends a train; `arrives` tells when each of its packets is acknowledged, after it left and a round trip
        /// more, by its place in the train and their number. Returns the bytes of the train.
        fn train(&mut self, arrives: impl Fn(u64, u64) -> Option<Duration>) -> f64 {
            let (now, first, length) = self.send();
            let count = self.sent - first;
            for place in 0..count {
                let Some(after) = arrives(place, count) else {
                    continue;
                };
                let mut ack = acked(now + RTT + after, now, MTU);
                ack.largest = first + place;
                self.trains.on_ack(&ack);
            }
            // The next packet ends it, if its last one was lost.
            let mut ack = acked(now + 2 * RTT, now, MTU);
            ack.largest = self.sent;
            self.trains.on_ack(&ack);
            self.sent += 1;
            length
        }

        fn growth(&self) -> Option<f64> {
            Some(self.trains.plan(RATE, true, false)?.growth)
        }
    }

    /// A link of so many bytes per second.
    fn link(rate: f64) -> impl Fn(u64, u64) -> Option<Duration> {
        move |place, _| Some(Duration::from_secs_f64((place * MTU) as f64 / rate))
    }

    #[test]
    fn two_trains_of_unlike_lengths_find_a_link() {
        let mut path = Path::default();
        assert_eq!(path.growth(), None);
        let first = path.train(link(5.0 * RATE));
        assert!((path.growth().unwrap() - 5.0).abs() < 0.01, "towards it");
        assert!(matches!(path.trains.room, Some(Room::Perhaps(_))));
        let second = path.train(link(5.0 * RATE));
        assert!(second >= 1.7 * first, "{first} {second}");
        let Some(Room::Link(rate)) = path.trains.room else {
            panic!("{:?}", path.trains)
        };
        assert!((rate / RATE - 5.0).abs() < 0.01, "{rate}");
        let plan = path.trains.plan(RATE, true, false).unwrap();
        assert!(plan.pacing <= 5.01 && plan.window > plan.pacing && !plan.is_filled);
        assert!(path.trains.plan(4.9 * RATE, true, false).unwrap().is_filled);
        assert!(
            path.trains
                .plan(4.0 * RATE, false, false)
                .unwrap()
                .is_filled
        );
        assert!(!path.trains.plan(4.0 * RATE, true, false).unwrap().is_filled);
        assert_eq!(
            path.train(link(RATE)),
            0.0,
            "there is nothing to find any more"
        );
    }

    /// Most of the second one arrives, and is no longer than the first one was.
    #[test]
    fn two_trains_of_one_length_probably_met_a_link() {
        let mut path = Path::default();
        path.train(link(5.0 * RATE));
        path.train(|place, count| {
            (place * 5 <= count * 3).then(|| link(5.0 * RATE)(place, count))?
        });
        assert!(matches!(path.trains.room, Some(Room::Probably(_))));
        let plan = path.trains.plan(RATE, true, false).unwrap();
        assert!((plan.pacing - 5.0).abs() < 0.01 && (plan.window - 7.5).abs() < 0.02);
        let plan = path.trains.plan(5.0 * RATE, true, false).unwrap();
        assert_eq!((plan.growth, plan.is_filled), (LEAST_GROWTH, false));
        let plan = path.trains.plan(RATE, false, false).unwrap();
        assert!(plan.is_filled, "what no longer grows has met it");
    }

    #[test]
    fn growth_is_bounded_by_how_much_a_train_can_tell() {
        let rooms: [fn(f64) -> Room; 4] =
            [Room::AtLeast, Room::Perhaps, Room::Probably, Room::Link];
        let bounds = [(2.0, 4.0), (2.0, 16.0), (1.5, 16.0), (1.0, 16.0)];
        let ratios = [(1.5, 1.0), (1.0, 1.0), (1.0, 1.5), (1.0, 1.5)];
        for ((room, (least, most)), (pacing, window)) in rooms.into_iter().zip(bounds).zip(ratios) {
            for (times, growth) in [(0.5, least), (3.0, 3.0), (100.0, most)] {
                let trains = Trains {
                    room: Some(room(times * RATE)),
                    ..Trains::default()
                };
                let plan = trains.plan(RATE, true, false).unwrap();
                let factors = [plan.growth, plan.pacing, plan.window];
                let expected = [1.0, pacing, window].map(|factor| factor * growth);
                assert_eq!(factors, expected, "{:?}", trains.room);
            }
        }
    }

    #[test]
    fn a_link_is_certain_from_two_fifths_more_on() {
        for (bytes, is_certain) in [(14_000.0, true), (13_999.0, false)] {
            let mut trains = Trains {
                held_up: Some((RATE, 10_000.0)),
                ..Trains::default()
            };
            let took = Duration::from_secs_f64(bytes / RATE);
            let room = trains.judge(&Arrived {
                first: (start(), start()),
                last: (start(), start() + took),
                bytes,
                at_once: 0.0,
            });
            assert_eq!(matches!(room, Room::Link(_)), is_certain, "{room:?}");
        }
    }

    #[test]
    fn rates_that_differ_by_a_tenth_are_not_those_of_one_link() {
        for (second, agrees) in [(0.92, true), (0.88, false), (1.08, true), (1.12, false)] {
            let mut path = Path::default();
            path.train(link(5.0 * RATE));
            path.train(link(second * 5.0 * RATE));
            let is_link = matches!(path.trains.room, Some(Room::Link(_)));
            assert_eq!(is_link, agrees, "{second}: {:?}", path.trains.room);
        }
    }

    /// Jitter spreads each train over the same time, so that a longer one seems faster.
    #[test]
    fn jitter_is_no_link() {
        let mut path = Path::default();
        let jitter =
            |place: u64, count: u64| Some(Duration::from_millis(20) * place as u32 / count as u32);
        for _ in 0..6 {
            path.train(jitter);
            assert!(
                !matches!(path.trains.room, Some(Room::Link(_))),
                "{:?}",
                path.trains
            );
            assert!(path.growth().unwrap() >= DOUBLING);
        }
    }

    /// A shaper lets a short burst pass.
    #[test]
    fn what_nothing_holds_up_grows_by_four_at_most() {
        let mut path = Path::default();
        path.train(|_, _| Some(Duration::ZERO));
        assert_eq!(path.growth(), Some(UNLIMITED_GROWTH));
        path.train(link(20.0 * RATE));
        assert_eq!(path.growth(), Some(GROWTH_TO_LINK));
    }

    #[test]
    fn a_train_that_is_lost_or_acknowledged_at_once_tells_nothing() {
        for first in [None, Some(3.0 * RATE)] {
            let mut path = Path::default();
            if let Some(rate) = first {
                path.train(link(rate));
            }
            let before = path.trains.room;
            path.train(|place, _| (place < 3).then_some(Duration::from_millis(place)));
            assert_eq!(path.trains.room, before, "lost");
            path.train(|place, count| (place + 1 == count).then_some(Duration::ZERO));
            assert_eq!(path.trains.room, before, "acknowledged at once");
        }
    }

    /// Who receives reads several packets at once, and acknowledges them together with what came after the train.
    #[test]
    fn a_train_that_arrives_in_batches_finds_the_way_to_a_link_that_is_never_certain() {
        for (size, certain) in [(2, true), (4, false), (7, false)] {
            let apart = Duration::from_secs_f64((size * MTU) as f64 / (5.0 * RATE));
            let mut path = Path::default();
            for _ in 0..4 {
                path.batches(size, apart, Duration::ZERO);
                assert!((path.growth().unwrap() - 5.0).abs() < 0.01, "{size}");
            }
            let is_certain = matches!(path.trains.room, Some(Room::Link(_)));
            assert_eq!(is_certain, certain, "{size}: {:?}", path.trains.room);
        }
        let mut path = Path::default();
        path.batches(50, RTT, Duration::ZERO);
        assert_eq!(path.trains.room, None, "at once");
    }

    /// That the last batch came late says nothing of a link then.
    #[test]
    fn what_left_later_may_arrive_later() {
        let gap = Duration::from_millis(30);
        let mut path = Path::default();
        path.batches(7, Duration::ZERO, gap);
        assert!(matches!(path.trains.room, Some(Room::AtLeast(_))));
        let mut path = Path::default();
        path.batches(7, 2 * gap, gap);
        assert!(matches!(path.trains.room, Some(Room::Perhaps(_))));
    }

    #[test]
    fn what_is_delivered_confirms_what_one_train_found() {
        let mut path = Path::default();
        path.train(link(RATE));
        assert!(
            !path.trains.plan(RATE, true, false).unwrap().is_filled,
            "it grows"
        );
        assert!(path.trains.plan(RATE, false, false).unwrap().is_filled);
        assert!(
            !path
                .trains
                .plan(0.9 * RATE, false, false)
                .unwrap()
                .is_filled
        );
    }

    /// The other path's own link spreads acknowledgements like one of this path would.
    #[test]
    fn acknowledgements_of_another_path_end_no_start() {
        let mut path = Path::default();
        let mut ack = acked(start(), start(), 0);
        ack.rtt_restarted = true;
        path.trains.on_ack(&ack);
        for _ in 0..4 {
            path.train(link(3.0 * RATE));
            assert!((path.growth().unwrap() - 3.0).abs() < 0.01);
            let plan = path.trains.plan(3.0 * RATE, false, false).unwrap();
            assert_eq!((plan.growth, plan.is_filled), (DOUBLING, false));
            assert!(
                path.trains.plan(3.0 * RATE, false, true).unwrap().is_filled,
                "a queue is"
            );
            assert!(!path.trains.plan(3.0 * RATE, true, true).unwrap().is_filled);
        }
    }

    /// Half as fast: the link is another one.
    #[test]
    fn a_link_that_changes_is_found_anew() {
        let mut path = Path::default();
        path.train(link(8.0 * RATE));
        path.train(link(4.0 * RATE));
        assert!((path.growth().unwrap() - 4.0).abs() < 0.01);
        path.train(link(4.0 * RATE));
        assert!(matches!(path.trains.room, Some(Room::Link(_))));
    }
}
