//! What applications ask for single streams and DATAGRAMs: a path, a second copy, a deadline.

use std::time::Duration;

use bytes::Bytes;
use mpquic_core::{DatagramOptions, PathId, PathStatus, SendDatagramError, StreamId};
use mpquic_sim::{LinkConfig, Pair, Setup, Side, Topology};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const NEAR: PathId = PathId(0);
const FAR: PathId = PathId(1);

/// A near link and a far one; both are in use. The client's options are `setup`'s.
fn pair(setup: Setup) -> Pair {
    let topology = Topology::new()
        .path("near", LinkConfig::new(20.0, 5 * MS))
        .path("far", LinkConfig::new(20.0, 30 * MS));
    let mut pair = Pair::connected(&topology, setup);
    pair.open_all_paths();
    pair.drive(200 * MS);
    pair
}

/// Bytes sent by the client on each path since `before`.
fn sent(pair: &mut Pair, before: [u64; 2]) -> [u64; 2] {
    let on = |path| pair.client().path_stats(path).map(|stats| stats.bytes_sent);
    let now = [NEAR, FAR].map(on).map(|sent| sent.unwrap_or(0));
    [now[0] - before[0], now[1] - before[1]]
}

fn bind(pair: &mut Pair, stream: StreamId, path: PathId) {
    let mut stream = pair.client().send_stream(stream);
    stream.set_path(Some(path)).unwrap();
}

/// What the server's application has received.
fn received(pair: &Pair) -> &[Bytes] {
    pair.hosted(Side::Server).unwrap().application.datagrams()
}

#[test]
fn a_stream_stays_on_its_path_and_others_go_on() {
    const SIZE: u64 = 1_000_000;
    for status in [PathStatus::Available, PathStatus::Backup] {
        let mut pair = pair(Setup::new());
        pair.client().path_mut(FAR).unwrap().set_status(status);
        pair.drive(100 * MS);
        let before = sent(&mut pair, [0; 2]);
        let bound = pair.send(Side::Client, SIZE).unwrap();
        bind(&mut pair, bound, FAR);
        assert_eq!(pair.client().send_stream(bound).path(), Ok(Some(FAR)));
        pair.run_transfers(5 * SECOND).unwrap();
        let [near, far] = sent(&mut pair, before);
        assert!(far > SIZE && near < SIZE / 20, "{status:?}: {near}, {far}");

        // An unbound stream shares the path, and does not wait for the bound one.
        let bound = pair.send(Side::Client, 10 * SIZE).unwrap();
        bind(&mut pair, bound, NEAR);
        let free = pair.send(Side::Client, SIZE).unwrap();
        pair.run_until(5 * SECOND, |pair| {
            let server = pair.hosted(Side::Server).unwrap();
            server
                .application
                .incoming()
                .get(&free)
                .is_some_and(|free| free.is_over())
        })
        .unwrap();
        pair.run_transfers(20 * SECOND).unwrap();
    }
}

/// While the path is silent the stream waits, and all else goes on; when the path is abandoned, the
/// stream goes on elsewhere.
#[test]
fn a_bound_stream_waits_for_its_path_as_long_as_there_is_one() {
    let mut pair = pair(Setup::new());
    let bound = pair.send(Side::Client, 2_000_000).unwrap();
    bind(&mut pair, bound, FAR);
    pair.drive(200 * MS);
    pair.set_outage("far", true);
    pair.drive(SECOND);
    let is_over = |pair: &Pair, id| {
        let server = pair.hosted(Side::Server).unwrap();
        let incoming = server.application.incoming().get(&id);
        incoming.is_some_and(|incoming| incoming.is_over())
    };
    let free = pair.send(Side::Client, 100_000).unwrap();
    pair.drive(2 * SECOND);
    assert!(is_over(&pair, free) && !is_over(&pair, bound));
    let now = pair.now();
    let code = mpquic_core::TransportErrorCode::APPLICATION_ABANDON_PATH;
    pair.client().close_path(now, FAR, code).unwrap();
    pair.run_transfers(5 * SECOND).unwrap();
    // Like an unbound stream.
    let bound = pair.send(Side::Client, 100_000).unwrap();
    bind(&mut pair, bound, FAR);
    pair.run_transfers(SECOND).unwrap();
    pair.drive(100 * MS);
    let closed = pair.client().send_stream(bound).set_path(None);
    assert!(closed.is_err(), "it is delivered");
}

/// Everything leaves twice, as far as the budget goes.
#[test]
fn a_redundant_stream_is_sent_twice_within_the_budget() {
    const SIZE: u64 = 1_000_000;
    const FREE: u64 = 64 << 10;
    for percent in [100, 20, 0] {
        // A scheduler without repetitions of its own.
        let scheduler = mpquic_sched::by_name("lrf").unwrap();
        let setup = Setup::with_policies(scheduler, mpquic_cc::default());
        let mut pair = pair(setup.transport(|options| options.max_redundancy = percent));
        let before = pair.client().stats();
        let id = pair.send(Side::Client, SIZE).unwrap();
        pair.client().send_stream(id).set_redundant(true).unwrap();
        pair.run_transfers(10 * SECOND).unwrap();
        pair.drive(SECOND);
        let stats = pair.client().stats();
        let repeated = stats.bytes_repeated - before.bytes_repeated;
        // Headers come on top; copies whose original has arrived are left out.
        let most = SIZE * u64::from(percent) / 100 + if percent > 0 { FREE } else { 0 };
        assert!(repeated <= most * 21 / 20, "{percent}: {repeated}");
        assert!(
            repeated >= most.saturating_sub(FREE) / 2,
            "{percent}: {repeated}"
        );
        assert_eq!(stats.copies_refused > 0, percent < 100, "{stats:?}");
    }
}

/// A copy on the other path replaces each loss: a reader notices no delay.
#[test]
fn a_redundant_stream_does_not_notice_the_loss_of_a_path() {
    let mut pair = pair(Setup::new());
    for is_redundant in [false, true] {
        let id = pair.send(Side::Client, 150_000).unwrap();
        pair.client()
            .send_stream(id)
            .set_redundant(is_redundant)
            .unwrap();
        pair.drive(8 * MS);
        pair.set_outage("near", true);
        let took = pair.run_transfers(20 * SECOND).unwrap();
        // The far link alone takes 30 ms and 60 ms for so many bytes; a probe timeout is above 40.
        assert_eq!(took < 110 * MS, is_redundant, "{took:?}");
        pair.set_outage("near", false);
        pair.drive(5 * SECOND);
    }
}

/// A copy takes as many packets as it needs: those of the other path may have less room.
#[test]
fn a_copy_is_whole_where_packets_are_smaller() {
    const SIZE: u64 = 30_000;
    let topology = Topology::new()
        .path("near", LinkConfig::new(20.0, 5 * MS))
        .path("far", LinkConfig::new(20.0, 10 * MS).mtu(1350));
    let setup = Setup::new().transport(|options| options.max_redundancy = 100);
    let mut pair = Pair::connected(&topology, setup);
    pair.open_all_paths();
    // Until the sizes of packets are found.
    pair.transfer(Side::Client, 10 * SIZE, 5 * SECOND);
    pair.drive(3 * SECOND);
    let mut mtu = |path| pair.client().path_stats(path).unwrap().mtu;
    assert!(mtu(NEAR) > mtu(FAR) + 100);
    let before = sent(&mut pair, [0; 2]);
    let id = pair.send(Side::Client, SIZE).unwrap();
    pair.client().send_stream(id).set_redundant(true).unwrap();
    pair.set_outage("near", true);
    pair.drive(25 * MS);
    let [near, far] = sent(&mut pair, before);
    assert!(near > SIZE && far > SIZE, "{near}, {far}");
    assert!(pair.is_delivered(Side::Client));
}

#[test]
fn a_datagram_goes_where_the_application_says() {
    let mut pair = pair(Setup::new());
    let payload = || Bytes::from(vec![7; 1000]);
    let options = DatagramOptions::default();
    for path in [NEAR, FAR] {
        let before = sent(&mut pair, [0; 2]);
        for _ in 0..100 {
            let bound = options.with_path(path);
            pair.client()
                .datagrams()
                .send_with(payload(), bound)
                .unwrap();
        }
        pair.drive(500 * MS);
        let bytes = sent(&mut pair, before);
        let (chosen, other) = (bytes[path.0 as usize], bytes[1 - path.0 as usize]);
        assert!(chosen > 100_000 && other < 10_000, "{path:?}: {bytes:?}");
    }
    assert_eq!(received(&pair).len(), 200);
    let unknown = options.with_path(PathId(7));
    assert_eq!(
        pair.client().datagrams().send_with(payload(), unknown),
        Err(SendDatagramError::ClosedPath)
    );
}

/// A copy by the other path; and none after the deadline.
#[test]
fn a_copied_datagram_arrives_by_either_path() {
    let mut pair = pair(Setup::new());
    let options = DatagramOptions::default().with_copy();
    let number = |number: u8| Bytes::from(vec![number; 500]);
    pair.client()
        .datagrams()
        .send_with(number(1), options)
        .unwrap();
    pair.drive(40 * MS);
    assert_eq!(received(&pair), [number(1), number(1)]);
    pair.set_outage("near", true);
    pair.client()
        .datagrams()
        .send_with(number(2), options)
        .unwrap();
    pair.drive(100 * MS);
    assert_eq!(received(&pair).last(), Some(&number(2)));
    // The only remaining path is full for a second, so half of the expected data is late.
    pair.drive(2 * SECOND);
    let deadline = pair.now() + 100 * MS;
    let timely = DatagramOptions::default().with_deadline(deadline);
    for _ in 0..500 {
        let payload = Bytes::from(vec![3; 1000]);
        pair.client()
            .datagrams()
            .send_with(payload, timely)
            .unwrap();
    }
    let before = received(&pair).len();
    pair.drive(2 * SECOND);
    let arrived = (received(&pair).len() - before) as u64;
    let expired = pair.client().stats().datagram_frames_expired;
    assert_eq!(arrived + expired, 500, "{arrived}, {expired}");
    assert!(arrived >= 50 && expired >= 50, "{arrived}, {expired}");
}

/// Schedulers place DATAGRAMs: this one sends all of them on all paths.
#[test]
fn a_redundant_scheduler_copies_datagrams() {
    let scheduler = mpquic_sched::by_name("redundant").unwrap();
    let mut pair = pair(Setup::with_policies(scheduler, mpquic_cc::default()));
    let before = sent(&mut pair, [0; 2]);
    for number in 0..200_u8 {
        let payload = Bytes::from(vec![number; 1000]);
        pair.client().datagrams().send(payload).unwrap();
        pair.drive(2 * MS);
    }
    pair.drive(SECOND);
    let [near, far] = sent(&mut pair, before);
    assert!(near >= 200_000 && far >= 200_000, "{near}, {far}");
    let mut numbers: Vec<u8> = received(&pair).iter().map(|payload| payload[0]).collect();
    assert_eq!(numbers.len(), 400);
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 200);
}

/// More than the near link carries, and less than both together: no DATAGRAM is dropped.
#[test]
fn datagrams_that_one_path_cannot_carry_take_others() {
    const COUNT: usize = 15_000;
    let mut pair = pair(Setup::new());
    let before = sent(&mut pair, [0; 2]);
    for _ in 0..COUNT {
        // 26.7 Mbit/s
        let payload = Bytes::from(vec![7; 1000]);
        pair.client().datagrams().send(payload).unwrap();
        pair.drive(300 * MS / 1000);
    }
    pair.drive(SECOND);
    let [near, far] = sent(&mut pair, before);
    assert!(near > 8_000_000 && far > 3_000_000, "{near}, {far}");
    assert_eq!(received(&pair).len(), COUNT);
}
