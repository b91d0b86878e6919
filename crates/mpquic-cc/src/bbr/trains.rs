//! [`Trains`]: finds the capacity of a starting path with trains of packets.
//!
//! Once per round trip a few packets, a train, leave much faster than the others. The spacing of
//! their acknowledgements shows the rate of the bottleneck link long before a whole flight is sent
//! at that rate. So the path neither has to double its rate step by step nor to overflow a queue to
//! find its limit. A train is a small part of a flight, because short queues have to hold it. A
//! shaper lets short bursts pass at a rate that it does not sustain, so a train that was not
//! delayed proves less than a train that was.
//!
//! Keshav ("A control-theoretic approach to flow control", 1991) describes how the bottleneck link
//! spreads packets, Misund and Briscoe ("Paced chirping", 2019) how to start with short trains.

use std::time::Instant;

use mpquic_core::congestion::{Acked, Sent};

/// Pacing gain of a first train, relative to the delivery rate.
const GAIN: f64 = 1000.0;
/// Pacing gain of the confirming train, relative to the rate that the first train found.
const ABOVE: f64 = 4.0;
/// Length of a first train, as a part of the bytes delivered in a round trip.
const LENGTH: f64 = 0.125;
/// Shortest first train, datagrams; this many may leave as one burst anyway.
const MIN_DATAGRAMS: f64 = 10.0;
/// A link delayed the train if its arrival takes longer than its departure by this factor.
const HELD_UP: f64 = 1.25;
/// The rates of two trains agree if they differ by less than this part.
const AGREEMENT: f64 = 0.1;
/// A link is certain if the confirming train was longer than the first by this factor. If jitter
/// spread the first train, a longer train measures a higher rate, and the two disagree.
const LONGER: f64 = 1.4;
/// Length of the confirming train, in lengths of the first. It exceeds [`LONGER`], because some
/// packets may be lost.
const CONFIRMING: f64 = 2.0;
/// The least part of a train that has to be acknowledged after its first acknowledgement, for the
/// train to count.
const MOST: f64 = 0.5;
/// If a single acknowledgement covers a larger part of the train than this, the spacing shows how
/// the receiver collects packets, and not the rate of a link.
const COARSE: f64 = 0.25;
/// Shortest time that clocks and timers can resolve, seconds.
const RESOLUTION: f64 = 1e-5;

/// Least growth per round trip while no link is known.
const DOUBLING: f64 = 2.0;
/// Least growth per round trip when two trains of similar length found a link.
const LEAST_GROWTH: f64 = 1.5;
/// Largest growth per round trip when nothing delayed the train.
const UNLIMITED_GROWTH: f64 = 4.0;
/// Largest growth per round trip towards the rate of a link.
const GROWTH_TO_LINK: f64 = 16.0;
/// Pacing rate relative to the growth while no link is known: if packets left at the rate at which
/// the window grows, the window would not fill in time.
const LEAD: f64 = 1.5;
/// Window towards a known link, relative to the bytes that the grown rate carries in a round trip.
const LINK_WINDOW: f64 = 1.5;
/// Part of the rate of a link from which on the link counts as filled.
const FILLED: f64 = 0.95;

/// A train that is being sent or acknowledged.
#[derive(Debug, Clone, Copy)]
struct Train {
    /// Rate at which the train leaves, bytes per second.
    rate: f64,
    /// Bytes of the train that have not left yet.
    ahead: f64,
    left: Option<Left>,
    arrived: Option<Arrived>,
}

/// The part of a train that has left.
#[derive(Debug, Clone, Copy)]
struct Left {
    /// Packet number of the first packet.
    first: u64,
    /// Packet number of the last packet.
    last: u64,
    /// Bytes of all packets but the first.
    bytes: f64,
}

/// The part of a train that was acknowledged.
#[derive(Debug, Clone, Copy)]
struct Arrived {
    /// The first acknowledgement: when its newest packet had left, and when it came.
    first: (Instant, Instant),
    /// The last acknowledgement: when its newest packet had left, and when it came.
    last: (Instant, Instant),
    /// Bytes of all acknowledgements but the first.
    bytes: f64,
    /// Bytes of the largest acknowledgement but the first.
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

    /// The arrivals, once at least [`MOST`] of the bytes of the train were acknowledged.
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

/// The capacity that trains have shown so far, bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Room {
    /// The path carries at least this rate, for as short a time as the train took.
    AtLeast(f64),
    /// One train found a link with this rate, unless jitter spread the train.
    Perhaps(f64),
    /// Two trains of similar length found a link with this rate.
    Probably(f64),
    /// Two trains of different lengths found a link with this rate.
    Link(f64),
}

/// The behaviour of a starting path, relative to its delivery rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Plan {
    /// Factor by which the window grows in a round trip.
    pub(super) growth: f64,
    /// Window, relative to the bytes delivered in a round trip.
    pub(super) window: f64,
    /// Pacing rate, relative to the delivery rate.
    pub(super) pacing: f64,
    /// The bottleneck link carries all it can.
    pub(super) is_filled: bool,
}

/// The part of a train that has not left yet.
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
    /// Arrival rate in bytes per second and size in bytes of the last train that a link delayed.
    held_up: Option<(f64, f64)>,
    room: Option<Room>,
    /// Acknowledgements return over another path, whose own link may have spread them. An agreement
    /// of trains then counts only if a queue is visible as well.
    is_foreign: bool,
}

impl Trains {
    /// Starts a train, unless a train is still on its way or a link is certain. The path delivers
    /// `rate` bytes per second and `per_round` bytes in a round trip. Returns the bytes of the
    /// train.
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

    /// How to go on while the path delivers `rate` bytes per second. `grows` says that the rate
    /// grew in the last round trip, `is_queued` that packets wait in a queue. `None` before the
    /// first result of a train.
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
                    // The delivery rate agrees with the rate that the train found.
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

    /// The part of the train that has not left yet.
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
        // One acknowledgement may cover the end of the train together with later packets. It counts
        // if little else of the train was acknowledged.
        if is_leaving || ack.largest <= left.last || train.most(&left).is_none() {
            train.on_ack(ack);
        }
        if is_leaving || ack.largest < left.last {
            return;
        }
        let arrived = train.most(&left);
        self.train = None;
        // A train that was mostly lost, or acknowledged at once, shows nothing new.
        if let Some(arrived) = arrived {
            self.room = Some(self.judge(&arrived));
        }
    }

    /// The capacity that a train with these arrivals shows.
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
            // The train left too slowly to show the rate of the link.
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
    /// Delivery rate of the path, bytes per second.
    const RATE: f64 = 250_000.0;
    /// Bytes that the path delivers in a round trip.
    const PER_ROUND: f64 = 25_000.0;
    const RTT: Duration = Duration::from_millis(100);

    /// A path whose acknowledgements have the spacing of a link or of jitter.
    #[derive(Default)]
    struct Path {
        trains: Trains,
        sent: u64,
    }

    impl Path {
        /// Sends a train. Returns the time, the first packet number and the bytes of the train.
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

        /// Sends a train, and `gap` later enough packets to complete the last batch. The packets
        /// are acknowledged in batches of `size`, `apart` after each other.
        fn batches(&mut self, size: u64, apart: Duration, gap: Duration) {
            let (now, first, _) = self.send();
            let batches = (self.sent - first).div_ceil(size);
            let after = first + batches * size - self.sent;
            let sent_at = |batch| {
                if batch + 1 == batches && after > 0 {
                    now + gap
                } else {
                    now
                }
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

        /// Sends a train. `arrives` takes the position of a packet in the train and the length of
        /// the train in packets, and returns the delay of the acknowledgement beyond the round
        /// trip; `None` if the packet is lost. Returns the bytes of the train.
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
            // The acknowledgement of a later packet ends the train, even if its last packet was
            // lost.
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

    /// Acknowledgement delays behind a link with this rate, bytes per second.
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

    /// Only three fifths of the second train arrive, so that it is not long enough to be certain.
    #[test]
    fn two_trains_of_similar_length_make_a_link_probable() {
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
    fn growth_pacing_and_window_stay_within_bounds_of_each_room() {
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
    fn link_is_certain_if_second_train_is_two_fifths_longer() {
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
    fn trains_whose_rates_differ_by_over_a_tenth_find_no_link() {
        for (second, agrees) in [(0.92, true), (0.88, false), (1.08, true), (1.12, false)] {
            let mut path = Path::default();
            path.train(link(5.0 * RATE));
            path.train(link(second * 5.0 * RATE));
            let is_link = matches!(path.trains.room, Some(Room::Link(_)));
            assert_eq!(is_link, agrees, "{second}: {:?}", path.trains.room);
        }
    }

    /// Jitter spreads each train over the same time, so that a longer train seems faster.
    #[test]
    fn trains_spread_by_jitter_find_no_link() {
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
    fn growth_is_four_at_most_if_nothing_delays_the_train() {
        let mut path = Path::default();
        path.train(|_, _| Some(Duration::ZERO));
        assert_eq!(path.growth(), Some(UNLIMITED_GROWTH));
        path.train(link(20.0 * RATE));
        assert_eq!(path.growth(), Some(GROWTH_TO_LINK));
    }

    #[test]
    fn train_lost_or_acknowledged_at_once_changes_nothing() {
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

    /// A receiver reads several packets at once, and acknowledges them together with packets that
    /// followed the train.
    #[test]
    fn train_acknowledged_in_large_batches_never_makes_a_link_certain() {
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

    /// The late arrival of a packet that left later shows no link.
    #[test]
    fn packets_that_left_later_do_not_count_as_delayed() {
        let gap = Duration::from_millis(30);
        let mut path = Path::default();
        path.batches(7, Duration::ZERO, gap);
        assert!(matches!(path.trains.room, Some(Room::AtLeast(_))));
        let mut path = Path::default();
        path.batches(7, 2 * gap, gap);
        assert!(matches!(path.trains.room, Some(Room::Perhaps(_))));
    }

    #[test]
    fn flat_delivery_rate_confirms_the_rate_of_one_train() {
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

    /// The other path's own link spreads acknowledgements just as a link of this path would.
    #[test]
    fn acknowledgements_over_another_path_do_not_end_startup_without_a_queue() {
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

    /// The second train arrives half as fast as the first: the link changed.
    #[test]
    fn link_that_changed_is_found_again() {
        let mut path = Path::default();
        path.train(link(8.0 * RATE));
        path.train(link(4.0 * RATE));
        assert!((path.growth().unwrap() - 4.0).abs() < 0.01);
        path.train(link(4.0 * RATE));
        assert!(matches!(path.trains.room, Some(Room::Link(_))));
    }
}
