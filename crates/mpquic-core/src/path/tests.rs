use std::net::Ipv4Addr;
use std::time::Duration;

use super::view::Limits;
use super::*;
use crate::congestion::{Acked, CongestionEvent, Controller};
use crate::event::PathState;
use crate::ids::PathStatus;
use crate::outbox::Outbox;
use crate::recovery::testing::{ms, start};
use crate::sched::{PathView, Sendable};
use crate::space::SentPacket;

const MTU: u64 = 1200;
const MAX_ACK_DELAY: Duration = Duration::from_millis(25);

/// A controller with the same window for every path.
#[derive(Debug)]
struct Fixed(u64);

impl Controller for Fixed {
    fn on_path_opened(&mut self, _: PathId, _: Instant, _: u16) {}
    fn on_path_closed(&mut self, _: PathId) {}
    fn on_mtu_update(&mut self, _: PathId, _: u16) {}
    fn on_ack(&mut self, _: PathId, _: &Acked) {}
    fn on_congestion_event(&mut self, _: PathId, _: &CongestionEvent) {}
    fn window(&self, _: PathId) -> u64 {
        self.0
    }
    fn pacing_rate(&self, _: PathId) -> Option<u64> {
        Some(2 * self.0)
    }
    fn name(&self) -> &'static str {
        "fixed"
    }
}

fn four_tuple(port: u16) -> FourTuple {
    let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    FourTuple::new(address(443), address(port))
}

fn path(side: Side, now: Instant) -> Path {
    let config = TransportConfig::without_policies();
    Path::new(PathId(1), four_tuple(1), side, now, &config)
}

/// A path that carries data.
fn open(now: Instant) -> Path {
    let mut path = path(Side::Client, now);
    path.tuple.set_validated();
    path.established = true;
    path
}

fn send(path: &mut Path, now: Instant, bytes: u16) {
    let number = path.space.take_packet_number();
    let packet = SentPacket {
        ack_eliciting: true,
        in_flight: true,
        ..SentPacket::new(now, bytes)
    };
    path.recovery
        .on_packet_sent(&mut path.space, number, packet);
}

fn view(path: &mut Path, now: Instant, window: u64) -> PathView {
    let limits = Limits::of(path.id, &Fixed(window));
    let (sendable, _) = path.sendable(now, limits, false, false);
    path.view(PathStatus::Available, &Fixed(window), limits, sendable)
}

#[test]
fn a_path_is_usable_once_validated_and_established() {
    let mut path = path(Side::Client, start());
    assert!(!path.is_usable());
    path.tuple.set_validated();
    assert!(!path.is_usable(), "the application does not know it yet");
    path.established = true;
    assert!(path.is_usable());
    path.tuple = Tuple::new(four_tuple(2), Side::Client);
    assert!(!path.is_usable(), "nothing is known of the new addresses");
}

#[test]
fn a_path_is_suspect_when_it_times_out_or_its_interface_is_gone() {
    let mut path = open(start());
    assert!(!path.is_suspect());
    for liveness in [Liveness::Suspect, Liveness::Down] {
        path.liveness = liveness;
        assert!(path.is_suspect(), "{liveness:?}");
        assert!(view(&mut path, start(), 10 * MTU).suspect);
    }
}

/// A path that moves to another address of an interface that is gone would carry data into the
/// dark.
#[test]
fn a_path_is_live_again_only_on_another_interface() {
    let mut outbox = Outbox::for_tests();
    let mut path = open(start());
    path.liveness.set_interface_up(false, path.id, &mut outbox);
    path.liveness.on_moved(true, path.id, &mut outbox);
    assert!(path.is_suspect());
    path.liveness.on_moved(false, path.id, &mut outbox);
    assert!(!path.is_suspect());
    // A move on the same interface also gives a silent path a new chance.
    path.liveness.on_silent(path.id, &mut outbox);
    path.liveness.on_moved(true, path.id, &mut outbox);
    assert!(!path.is_suspect());
}

#[test]
fn schedulers_see_the_pacing_rate_of_the_controller() {
    let mut path = open(start());
    assert_eq!(view(&mut path, start(), 50_000).pacing_rate, Some(100_000));
}

#[test]
fn the_state_of_a_path_in_its_statistics() {
    let mut path = path(Side::Client, start());
    let mut outbox = Outbox::for_tests();
    outbox.controller.on_path_opened(path.id, start(), 1200);
    assert_eq!(
        path.stats(Some(&outbox.controller), MAX_ACK_DELAY).state,
        PathState::Validating
    );
    path.tuple.set_validated();
    assert_eq!(
        path.stats(Some(&outbox.controller), MAX_ACK_DELAY).state,
        PathState::Active
    );
    assert_eq!(
        path.stats(Some(&outbox.controller), MAX_ACK_DELAY).window,
        12_000
    );
    path.liveness = Liveness::Down;
    assert_eq!(
        path.stats(Some(&outbox.controller), MAX_ACK_DELAY).state,
        PathState::Suspect
    );
    // RFC 9002 section 6.2.2: three times the initial RTT, and what the peer may wait.
    assert_eq!(
        path.stats(Some(&outbox.controller), MAX_ACK_DELAY)
            .probe_timeout,
        ms(1024)
    );
    let abandoned = path.stats(None, MAX_ACK_DELAY);
    assert_eq!(
        (abandoned.state, abandoned.window),
        (PathState::Abandoned, 0)
    );
}

#[test]
fn bytes_of_all_addresses_are_counted_for_the_path() {
    let mut path = path(Side::Server, start());
    for (port, received, sent) in [(1, 1200, 700), (2, 100, 50), (1, 30, 20)] {
        path.on_datagram_received(four_tuple(port), received, Side::Server);
        path.on_datagram_sent(four_tuple(port), sent);
    }
    let stats = path.stats(Some(&Outbox::for_tests().controller), MAX_ACK_DELAY);
    assert_eq!((stats.bytes_received, stats.bytes_sent), (1330, 770));
    // MP-076: the budgets stay apart.
    assert_eq!(path.budget_for(four_tuple(1)), 3 * 1230 - 720);
    assert_eq!(path.budget_for(four_tuple(2)), 3 * 100 - 50);
}

#[test]
fn mp_085_the_first_validation_to_want_attention_sets_the_timer() {
    let now = start();
    let mut path = path(Side::Client, now);
    assert_eq!(path.validation_timeout(), None);
    path.tuple.validation.start(now, ms(100), ms(500));
    assert_eq!(path.validation_timeout(), Some(now + ms(1500)));
    let mut tuple = Tuple::new(four_tuple(2), Side::Client);
    tuple.validation.start(now, ms(100), ms(200));
    let wanted = true;
    path.candidate = Some(Box::new(Candidate { tuple, wanted }));
    assert_eq!(path.validation_timeout(), Some(now + ms(600)));
    path.candidate = None;
    assert_eq!(path.validation_timeout(), Some(now + ms(1500)));
}

#[test]
fn a_path_that_is_not_validated_takes_no_data() {
    let now = start();
    // Neither side: a client has a budget towards the server it chose, yet nobody answered here.
    for side in [Side::Client, Side::Server] {
        let mut path = path(side, now);
        path.on_datagram_received(four_tuple(1), 1200, side);
        assert!(path.budget_for(four_tuple(1)) >= 3600);
        let sendable = view(&mut path, now, 10 * MTU).sendable;
        assert_eq!(sendable, Sendable::Unusable, "{side:?}");
        path.tuple.set_validated();
        assert_eq!(view(&mut path, now, 10 * MTU).sendable, Sendable::Now);
    }
}

#[test]
fn the_window_is_used_to_the_last_datagram() {
    let now = start();
    let mut path = open(now);
    let mtu = path.mtu.mtu();
    let window = 2 * u64::from(mtu);
    assert_eq!(view(&mut path, now, window).sendable, Sendable::Now);
    send(&mut path, now, mtu);
    let seen = view(&mut path, now, window);
    assert_eq!(seen.sendable, Sendable::Now, "one more fits exactly");
    assert_eq!((seen.in_flight, seen.window), (u64::from(mtu), window));
    send(&mut path, now, 1);
    assert_eq!(view(&mut path, now, window).sendable, Sendable::WindowFull);
}

#[test]
fn bytes_sent_since_the_hint_count_in_the_local_queue() {
    let now = start();
    let mut path = open(now);
    path.on_datagram_sent(four_tuple(1), 5000);
    let seen = view(&mut path, now, 10 * MTU);
    assert_eq!((seen.local_queue, seen.local_drain_rate), (None, None));
    let queue = LocalQueue {
        bytes: 800,
        drain_rate: Some(9000),
    };
    path.local_queue = Some((queue, path.counters.bytes_sent));
    assert_eq!(view(&mut path, now, 10 * MTU).local_queue, Some(800));
    path.on_datagram_sent(four_tuple(1), 1300);
    let seen = view(&mut path, now, 10 * MTU);
    assert_eq!(seen.local_queue, Some(2100));
    assert_eq!(seen.local_drain_rate, Some(9000));
}
