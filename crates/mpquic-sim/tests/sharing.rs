//! Many streams, several priorities and DATAGRAMs on one connection, as in a proxy: who gets how
//! much, and how long the others wait.

use std::collections::BTreeMap;
use std::time::Duration;

use mpquic_core::StreamId;
use mpquic_core::config::TransportOptions;
use mpquic_sim::{LinkConfig, Pair, Setup, Side, Topology};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// More than any stream can send.
const ENDLESS: u64 = 1 << 30;
/// The time of unsent bytes.
const QUEUE: Duration = Duration::from_millis(100);

/// As a proxy sets them.
fn of_a_proxy(transport: &mut TransportOptions) {
    transport.max_concurrent_uni_streams = 1000;
    transport.initial_receive_window = transport.max_receive_window;
    transport.send_queue_time = Some(QUEUE);
    transport.priority_floor = true;
}

/// A connection over two links: rates in Mbit/s and delays in milliseconds.
fn connected(links: [(f64, u32); 2]) -> Pair {
    connected_with(links, of_a_proxy)
}

fn connected_with(links: [(f64, u32); 2], change: impl Fn(&mut TransportOptions)) -> Pair {
    let [(a, delay_a), (b, delay_b)] = links;
    let topology = Topology::new()
        .path("a", LinkConfig::new(a, delay_a * MS))
        .path("b", LinkConfig::new(b, delay_b * MS));
    let mut pair = Pair::connected(&topology, Setup::new().transport(change));
    pair.open_all_paths();
    pair.drive(SECOND);
    pair
}

/// What arrived of each stream, watched every ten milliseconds.
#[derive(Default)]
struct Watched {
    received: BTreeMap<StreamId, u64>,
    /// The time without a byte: now, and the longest.
    silence: BTreeMap<StreamId, (Duration, Duration)>,
}

impl Watched {
    /// Lets time pass.
    fn watch(pair: &mut Pair, streams: &[StreamId], time: Duration) -> Self {
        let received = |pair: &Pair, id: &StreamId| {
            let incoming = pair
                .hosted(Side::Server)
                .expect("open")
                .application
                .incoming();
            incoming.get(id).map_or(0, |incoming| incoming.received)
        };
        let before: BTreeMap<_, _> = streams.iter().map(|id| (*id, received(pair, id))).collect();
        let mut last = before.clone();
        let mut watched = Self::default();
        for _ in 0..time.as_millis() / 10 {
            pair.drive(10 * MS);
            for id in streams {
                let now = received(pair, id);
                let (silence, longest) = watched.silence.entry(*id).or_default();
                if last.insert(*id, now) == Some(now) {
                    *silence += 10 * MS
                } else {
                    *silence = Duration::ZERO
                }
                *longest = (*longest).max(*silence);
            }
        }
        watched.received = last
            .iter()
            .map(|(id, now)| (*id, now - before[id]))
            .collect();
        watched
    }

    fn longest_silence(&self) -> Duration {
        let longest = self.silence.values().map(|(_, longest)| *longest);
        longest.max().expect("streams")
    }

    /// Jain's index of fairness.
    fn fairness(&self) -> f64 {
        let bytes = || self.received.values().map(|bytes| *bytes as f64);
        let squares: f64 = bytes().map(|bytes| bytes * bytes).sum();
        bytes().sum::<f64>().powi(2) / (squares * self.received.len() as f64)
    }

    /// All streams together.
    fn mbit(&self, time: Duration) -> f64 {
        self.received.values().sum::<u64>() as f64 * 8e-6 / time.as_secs_f64()
    }
}

fn begin(pair: &mut Pair, count: usize) -> Vec<StreamId> {
    (0..count)
        .map(|_| pair.send(Side::Client, ENDLESS).expect("a stream"))
        .collect()
}

fn set_priority(pair: &mut Pair, streams: &[StreamId], priority: i32) {
    for id in streams {
        pair.client()
            .send_stream(*id)
            .set_priority(priority)
            .expect("open");
    }
}

#[test]
fn parallel_transfers_are_equal_and_none_pauses() {
    for (count, links, most) in [
        (50, [(50.0, 10), (20.0, 30)], SECOND),
        (20, [(50.0, 10), (20.0, 30)], SECOND),
        (10, [(4.0, 20), (6.0, 20)], SECOND),
    ] {
        let mut pair = connected(links);
        let streams = begin(&mut pair, count);
        let watched = Watched::watch(&mut pair, &streams, 8 * SECOND);
        let (fairness, silence) = (watched.fairness(), watched.longest_silence());
        let (mbit, sum) = (watched.mbit(8 * SECOND), links[0].0 + links[1].0);
        println!("{count}: fairness {fairness:.3}, silence {silence:?}, {mbit:.1} Mbit/s");
        assert!(fairness >= 0.95, "{count}: {fairness}");
        assert!(silence <= most, "{count}: {silence:?}");
        assert!(mbit > 0.85 * sum, "{count}: {mbit}");
    }
}

/// The sender keeps few bytes, and the links stay full.
#[test]
fn unsent_bytes_are_bounded_by_time() {
    for links in [[(6.0, 20), (2.0, 40)], [(50.0, 10), (20.0, 30)]] {
        let mut pair = connected(links);
        let streams = begin(&mut pair, 1);
        let watched = Watched::watch(&mut pair, &streams, 10 * SECOND);
        let (mbit, sum) = (watched.mbit(10 * SECOND), links[0].0 + links[1].0);
        let written = pair
            .hosted(Side::Client)
            .expect("open")
            .application
            .outgoing();
        let ahead = written[&streams[0]].written - watched.received[&streams[0]];
        let ahead = ahead as f64 * 8e-6 / mbit;
        println!("{mbit:.1} of {sum} Mbit/s, {ahead:.3} s ahead");
        assert!(mbit > 0.85 * sum, "{mbit} of {sum}");
        // The queue, its round trip, and what is on its way.
        assert!(ahead < 0.8, "{ahead} s");
    }
}

/// A short stream of any priority arrives in one round trip and 50 ms, whatever else is sent.
#[test]
fn a_short_urgent_stream_waits_for_nothing() {
    let mut pair = connected([(6.0, 20), (2.0, 40)]);
    let bulk = begin(&mut pair, 30);
    let others = begin(&mut pair, 3);
    set_priority(&mut pair, &bulk, 0);
    set_priority(&mut pair, &others, 1);
    pair.drive(5 * SECOND);
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        let id = pair.send(Side::Client, 300).expect("a stream");
        set_priority(&mut pair, &[id], 4);
        let arrived = |pair: &mut Pair| {
            let incoming = pair
                .hosted(Side::Server)
                .expect("open")
                .application
                .incoming();
            incoming
                .get(&id)
                .is_some_and(|incoming| incoming.received == 300)
        };
        slowest = slowest.max(pair.run_until(SECOND, arrived).expect("it arrives"));
        pair.drive(100 * MS);
    }
    println!("{slowest:?}");
    // One way on a full link: a queue of the link is not ours.
    assert!(slowest < 250 * MS, "{slowest:?}");
}

#[test]
fn no_priority_starves_another() {
    let mut pair = connected([(20.0, 10), (10.0, 20)]);
    let groups = [(3, 0), (3, 1), (2, 3)].map(|(count, priority)| {
        let streams = begin(&mut pair, count);
        set_priority(&mut pair, &streams, priority);
        streams
    });
    let all = groups.concat();
    let watched = Watched::watch(&mut pair, &all, 10 * SECOND);
    let sum: u64 = watched.received.values().sum();
    for group in &groups {
        let bytes: u64 = group.iter().map(|id| watched.received[id]).sum();
        let part = bytes as f64 / sum as f64;
        println!("{part:.3}");
        assert!(part >= 0.09, "{part}");
    }
    let urgent: u64 = groups[2].iter().map(|id| watched.received[id]).sum();
    assert!(urgent * 2 > sum, "{urgent} of {sum}");
    assert!(watched.longest_silence() < SECOND);
}

/// UDP at twice the rate of the links.
#[test]
fn a_flood_of_datagrams_does_not_starve_streams() {
    let mut pair = connected([(6.0, 20), (2.0, 40)]);
    pair.client().datagrams().max_size();
    let streams = begin(&mut pair, 2);
    let mut arrivals = Vec::new();
    let (mut due, mut received) = (0.0, 0);
    for millisecond in 0..8000 {
        due += 16e6 / 8.0 / 1000.0 / 1000.0;
        while due >= 1.0 {
            due -= 1.0;
            let hosted = pair.hosted_mut(Side::Client);
            let _full = (hosted.application).send_datagram(&mut hosted.connection, 1000);
        }
        pair.drive(MS);
        if millisecond == 2000 {
            received = total(&pair, &streams);
        }
        if millisecond % 1000 == 500 {
            let id = pair.send(Side::Client, 300).expect("a stream");
            set_priority(&mut pair, &[id], 4);
            arrivals.push((millisecond, id));
        }
        arrivals.retain(|(begun, id)| {
            let waits = total(&pair, &[*id]) < 300;
            assert!(
                millisecond - begun < 400,
                "a request took {} ms",
                millisecond - begun
            );
            waits
        });
    }
    let mbit = (total(&pair, &streams) - received) as f64 * 8e-6 / 6.0;
    println!("{mbit:.2} Mbit/s");
    assert!(mbit > 0.6, "{mbit} of 8");
}

fn total(pair: &Pair, streams: &[StreamId]) -> u64 {
    let incoming = pair
        .hosted(Side::Server)
        .expect("open")
        .application
        .incoming();
    let of = |id| incoming.get(id).map_or(0, |incoming| incoming.received);
    streams.iter().map(of).sum()
}

/// A program that sends as fast as its bytes are taken learns the rate of slow links at once, from
/// its first bytes on.
#[test]
fn a_start_on_slow_links_takes_the_bytes_of_a_second() {
    let mut pair = connected([(0.7, 20), (2.0, 30)]);
    let id = begin(&mut pair, 1)[0];
    let mut most = 0;
    for _ in 0..500 {
        pair.drive(10 * MS);
        let transfers = |side| &pair.hosted(side).expect("open").application;
        let taken = transfers(Side::Client).outgoing()[&id].written;
        let received = transfers(Side::Server).incoming().get(&id);
        most = most.max(taken - received.map_or(0, |incoming| incoming.received));
    }
    let a_second = 2_700_000 / 8;
    assert!(most < a_second, "{most} of {a_second}");
}
