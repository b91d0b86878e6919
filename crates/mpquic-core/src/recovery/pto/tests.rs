#![expect(
    clippy::single_range_in_vec_init,
    reason = "acknowledgements are lists of ranges, often of one"
)]

use std::time::Duration;

use super::*;
use crate::config::TransportConfig;
use crate::ids::PathId;
use crate::recovery::testing::{TestPath, ms};

fn timeout(path: &TestPath) -> Option<(Duration, TimeoutKind)> {
    let timeout = path
        .recovery
        .next_timeout([&path.space], &path.timeout_context());
    timeout.map(|timeout| (path.since_start(timeout.at), timeout.kind))
}

#[test]
fn backs_off_until_something_is_acknowledged() {
    // RFC 9002 section 6.2.1
    let mut path = TestPath::new();
    path.cx.peer_max_ack_delay = ms(25);
    assert_eq!(timeout(&path), None);
    path.send();
    assert_eq!(timeout(&path), Some((ms(1024), TimeoutKind::Probe)));
    path.at(ms(1024));
    path.recovery.on_probe_timeout(&mut path.space, path.cx.now);
    assert_eq!((path.recovery.pto_count(), path.space.probes), (1, 1));
    assert_eq!(timeout(&path), Some((ms(1024 + 2048), TimeoutKind::Probe)));
    path.send();
    path.send();
    assert_eq!(path.space.probes, 0);
    path.at(ms(1024 + 2048));
    path.recovery.on_probe_timeout(&mut path.space, path.cx.now);
    assert_eq!(path.space.probes, 2);
    // Nothing is lost because of it (MP-156).
    assert_eq!(path.space.sent.iter().count(), 3);
    assert_eq!(
        timeout(&path),
        Some((ms(1024 + 2048 + 4096), TimeoutKind::Probe))
    );
    path.at(ms(3100)).ack(&[2..3]);
    assert_eq!((path.recovery.pto_count(), path.space.probes), (0, 0));
}

#[test]
fn a_path_with_an_alternative_times_out_although_more_is_sent() {
    let mut path = TestPath::new();
    path.settle_rtt(ms(80));
    path.cx.peer_max_ack_delay = ms(25);
    path.send();
    let first = timeout(&path);
    // The variation of the round trip is that of settling.
    let pto = path.recovery.pto(ms(25));
    assert_eq!(first, Some((pto, TimeoutKind::Probe)));
    path.at(ms(60)).send();
    let restarted = Some((ms(60) + pto, TimeoutKind::Probe));
    assert_eq!(timeout(&path), restarted, "RFC 9002 section 6.2.1");
    path.at(pto - ms(1)).send();
    let with_alternative = |path: &TestPath| {
        let mut cx = path.timeout_context();
        cx.has_alternative = true;
        let timeout = path.recovery.next_timeout([&path.space], &cx).unwrap();
        path.since_start(timeout.at)
    };
    assert_eq!(with_alternative(&path), pto, "the oldest packet is late");
    // An acknowledgement that comes now left the peer half a round trip ago.
    path.ack(&[100..101]);
    let pto_now = path.recovery.pto(ms(25));
    let half = path.recovery.rtt.smoothed() / 2;
    let worked = (pto - ms(1) - half).max(ms(60));
    assert_eq!(with_alternative(&path), worked + pto_now);
    // After a probe timeout, late packets get as much time as new ones.
    path.at(ms(500));
    path.recovery.on_probe_timeout(&mut path.space, path.cx.now);
    path.at(ms(510)).ack(&[101..102]);
    let pto_now = path.recovery.pto(ms(25));
    path.at(ms(511)).send();
    assert_eq!(with_alternative(&path), ms(510) + pto_now);
}

/// A probe timeout passes at this time, in ms; returns the number of the probe.
fn time_out(path: &mut TestPath, at: u64) -> u64 {
    path.at(ms(at));
    path.recovery.on_probe_timeout(&mut path.space, path.cx.now);
    path.send()
}

/// An acknowledgement that was lost at first is repeated when the path works again: it says nothing
/// of the path's round trip.
#[test]
fn packets_from_before_an_outage_give_no_sample() {
    let mut path = TestPath::new();
    path.settle_rtt(ms(80));
    let old = path.send();
    path.send();
    time_out(&mut path, 81);
    let smoothed = path.recovery.rtt.smoothed();
    assert!(!path.recovery.is_silent(), "it may only be late");
    time_out(&mut path, 243);
    assert!(path.recovery.is_silent());
    let out = path.at(ms(20_000)).ack(&[old..old + 1]);
    assert_eq!(out.rtt_sample, None);
    assert_eq!(path.recovery.rtt.smoothed(), smoothed);
    assert!(path.recovery.is_silent(), "it may still be down");
    // Nor does a second one.
    let out = path.at(ms(20_001)).ack(&[old + 1..old + 2]);
    assert_eq!(out.rtt_sample, None);
    let probe = path.send();
    let out = path.at(ms(20_081)).ack(&[probe..probe + 1]);
    assert_eq!(out.rtt_sample, Some(ms(80)));
    assert!(!path.recovery.is_silent());
}

/// Of packets from before it was silent acknowledgements may come all the time, with probe timeouts
/// between: it is silent since the first of these.
#[test]
fn a_longer_path_is_measured_by_packets_sent_since_its_first_silence() {
    let mut path = TestPath::new();
    path.settle_rtt(ms(20));
    let old = path.send();
    path.send();
    let first_probe = time_out(&mut path, 100);
    time_out(&mut path, 150);
    assert!(path.recovery.is_silent());
    path.at(ms(220)).ack(&[old..old + 1]);
    time_out(&mut path, 250);
    time_out(&mut path, 300);
    let out = path.at(ms(320)).ack(&[first_probe..first_probe + 1]);
    assert_eq!(out.rtt_sample, Some(ms(220)));
    assert!(!path.recovery.is_silent());
}

#[test]
fn backoff_is_bounded() {
    let mut path = TestPath::new();
    path.send();
    for _ in 0..100 {
        path.recovery.on_probe_timeout(&mut path.space, path.cx.now);
    }
    assert_eq!(
        timeout(&path),
        Some((Duration::from_secs(60), TimeoutKind::Probe))
    );
}

#[test]
fn a_loss_timer_takes_precedence() {
    // RFC 9002 section 6.2.1
    let mut path = TestPath::new();
    path.settle_rtt(ms(80));
    let first = path.send();
    path.send();
    path.at(ms(80)).ack(&[first + 1..first + 2]);
    assert_eq!(timeout(&path), Some((ms(90), TimeoutKind::Loss)));
}

#[test]
fn application_data_waits_for_the_handshake() {
    // RFC 9002 section 6.2.1
    let mut path = TestPath::new();
    path.cx.handshake_confirmed = false;
    path.send();
    assert_eq!(timeout(&path), None);
    path.cx.handshake_confirmed = true;
    assert_eq!(timeout(&path), Some((ms(999), TimeoutKind::Probe)));
}

#[test]
fn the_earliest_space_is_probed() {
    let mut path = TestPath::with(TransportConfig::without_policies(), SpaceId::Initial);
    path.cx.peer_max_ack_delay = ms(25);
    let mut handshake = PacketNumberSpace::new(SpaceId::Handshake);
    let mut data = PacketNumberSpace::new(SpaceId::Data(PathId::ZERO));
    let cx = path.timeout_context();
    path.at(ms(10)).send();
    std::mem::swap(&mut path.space, &mut handshake);
    path.at(ms(5)).send();
    std::mem::swap(&mut path.space, &mut handshake);
    std::mem::swap(&mut path.space, &mut data);
    path.at(ms(0)).send();
    std::mem::swap(&mut path.space, &mut data);
    let spaces = [&path.space, &handshake, &data];
    let timeout = path.recovery.next_timeout(spaces, &cx).unwrap();
    // Initial and Handshake packets are acknowledged without delay.
    assert_eq!(
        (path.since_start(timeout.at), timeout.space),
        (ms(1004), SpaceId::Handshake)
    );
}

#[test]
fn a_client_keeps_a_blocked_server_going() {
    // RFC 9002 section 6.2.2.1
    let mut path = TestPath::with(TransportConfig::without_policies(), SpaceId::Initial);
    path.cx.peer_validated_address = false;
    path.send();
    path.at(ms(200)).ack(&[0..1]);
    // smoothed 200 + 4 * 100
    assert_eq!(timeout(&path), Some((ms(800), TimeoutKind::Probe)));
    let mut cx = path.timeout_context();
    cx.has_handshake_keys = true;
    let timeout_with_keys = path.recovery.next_timeout([&path.space], &cx).unwrap();
    assert_eq!(timeout_with_keys.space, SpaceId::Handshake);
    path.at(ms(800));
    path.recovery.on_probe_timeout(&mut path.space, path.cx.now);
    assert_eq!(path.space.probes, 1);
    assert_eq!(timeout(&path), Some((ms(800 + 1200), TimeoutKind::Probe)));
    // An acknowledgement of an Initial packet does not end the backoff.
    path.send();
    path.at(ms(1000)).ack(&[0..2]);
    assert_eq!(path.recovery.pto_count(), 1);
    path.cx.peer_validated_address = true;
    assert_eq!(timeout(&path), None);
}

#[test]
fn a_server_that_may_not_send_does_not_probe() {
    // RFC 9002 section 6.2.2.1
    let mut path = TestPath::with(TransportConfig::without_policies(), SpaceId::Initial);
    path.send();
    let mut cx = path.timeout_context();
    cx.amplification_limited = true;
    assert_eq!(path.recovery.next_timeout([&path.space], &cx), None);
}
