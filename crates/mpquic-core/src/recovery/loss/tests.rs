#![expect(
    clippy::single_range_in_vec_init,
    reason = "acknowledgements are lists of ranges, often of one"
)]

use std::time::Duration;

use crate::config::TransportOptions;
use crate::congestion::CongestionKind::{Loss, Persistent, Spurious};
use crate::recovery::testing::{BYTES, TestPath, ms};

#[test]
fn packet_threshold_is_three() {
    // RFC 9002 section 6.1.1
    let mut path = TestPath::new();
    path.send_many(6);
    assert!(path.at(ms(1)).ack(&[2..3]).lost.is_empty());
    assert_eq!(path.at(ms(1)).ack(&[3..4]).lost_numbers(), [0]);
    let event = path.out.congestion[0];
    assert_eq!(
        (event.kind, event.lost_bytes, event.largest_lost),
        (Loss, 1000, 0)
    );
    assert_eq!(event.in_flight, 3 * u64::from(BYTES));
    assert_eq!(path.ack(&[5..6]).lost_numbers(), [1]);
}

#[test]
fn time_threshold_is_nine_eighths() {
    // RFC 9002 section 6.1.2
    let mut path = TestPath::new();
    path.settle_rtt(ms(80));
    path.at(ms(0));
    let first = path.send();
    path.at(ms(4)).send();
    assert!(path.at(ms(84)).ack(&[first + 1..first + 2]).lost.is_empty());
    assert_eq!(path.since_start(path.space.loss_time.unwrap()), ms(90));
    let just_before = ms(90) - Duration::from_nanos(1);
    assert!(path.at(just_before).detect_lost().lost.is_empty());
    assert_eq!(path.since_start(path.space.loss_time.unwrap()), ms(90));
    assert_eq!(path.at(ms(90)).detect_lost().lost_numbers(), [first]);
    assert_eq!(path.space.loss_time, None);
}

#[test]
fn time_threshold_is_at_least_the_granularity() {
    let mut path = TestPath::new();
    path.settle_rtt(Duration::from_micros(100));
    let first = path.send();
    path.send();
    path.at(Duration::from_micros(100))
        .ack(&[first + 1..first + 2]);
    assert_eq!(path.since_start(path.space.loss_time.unwrap()), ms(1));
}

#[test]
fn persistent_congestion_as_in_section_7_6_3() {
    let mut path = TestPath::new();
    path.settle_rtt(Duration::from_secs(1));
    let first = path.send();
    path.at(ms(1000)).send();
    path.at(ms(1200)).ack(&[first..first + 1]);
    for second in [2, 3, 4, 5, 6, 8, 12] {
        path.at(Duration::from_secs(second)).send();
    }
    path.at(ms(12_200)).ack(&[first + 8..first + 9]);
    assert_eq!(
        path.out.lost_numbers(),
        (first + 1..first + 8).collect::<Vec<_>>()
    );
    assert_eq!(path.out.kinds(), [Loss, Persistent]);
    assert_eq!(
        path.since_start(path.out.congestion[1].sent_at),
        Duration::from_secs(8)
    );
    // RFC 9002 section 5.2
    assert_eq!(path.recovery.rtt.min(), ms(200));
}

/// RFC 9002 section 5.2: the path may be another one since.
#[test]
fn persistent_congestion_forgets_the_smallest_sample() {
    let mut path = TestPath::new();
    path.settle_rtt(ms(100));
    assert_eq!(path.recovery.rtt.min(), ms(100));
    let mut last = 0;
    for second in 1..=8 {
        last = path.at(Duration::from_secs(second)).send();
    }
    path.at(ms(8300)).ack(&[last..last + 1]);
    assert_eq!(path.out.kinds(), [Loss, Persistent]);
    assert_eq!(path.recovery.rtt.min(), ms(300));
}

#[test]
fn an_acknowledged_packet_in_between_is_no_persistent_congestion() {
    let mut path = TestPath::new();
    path.settle_rtt(Duration::from_secs(1));
    let first = path.space.next_packet_number();
    for second in [1, 2, 3, 4, 5, 6, 8, 12] {
        path.at(Duration::from_secs(second)).send();
    }
    path.at(ms(12_200))
        .ack(&[first + 4..first + 5, first + 7..first + 8]);
    assert_eq!(path.out.lost.len(), 6);
    assert_eq!(path.out.kinds(), [Loss]);
}

#[test]
fn losses_noticed_one_by_one_add_up_to_persistent_congestion() {
    let mut path = TestPath::new();
    path.settle_rtt(ms(100));
    let first = path.space.next_packet_number();
    // The peer acknowledges only what is at the end.
    let mut kinds = Vec::new();
    for step in 0..30 {
        path.at(ms(step * 50)).send();
        path.send();
        if step == 2 || step == 29 {
            let last = path.space.next_packet_number() - 1;
            path.at(ms(step * 50 + 10)).ack(&[last..last + 1]);
            kinds.extend(path.out.kinds());
        }
    }
    assert_eq!(path.space.next_packet_number(), first + 60);
    assert_eq!(kinds, [Loss, Loss, Persistent]);
}

#[test]
fn packets_before_the_first_sample_are_not_persistent_congestion() {
    // RFC 9002 section 7.6.2
    let mut path = TestPath::new();
    for second in [0, 10, 20, 30] {
        path.at(Duration::from_secs(second)).send();
    }
    path.at(ms(30_100)).ack(&[3..4]);
    assert_eq!(path.out.kinds(), [Loss]);
}

#[test]
fn lost_mtu_probes_are_no_congestion() {
    // RFC 9000 section 14.4
    let mut path = TestPath::new();
    path.send_with(|packet| packet.mtu_probe = true);
    path.send_many(3);
    path.at(ms(10)).ack(&[1..4]);
    assert_eq!(path.out.lost_numbers(), [0]);
    assert!(path.out.congestion.is_empty());
    assert_eq!(path.recovery.bytes_in_flight(), 0);
    assert!(path.recovery.loss_rate() < 0.2);
}

#[test]
fn lost_bare_acknowledgements_are_dropped_silently() {
    let mut path = TestPath::new();
    path.send_with(|packet| {
        packet.ack_eliciting = false;
        packet.in_flight = false;
    });
    path.send_many(3);
    path.at(ms(10)).ack(&[1..4]);
    assert!(path.out.lost.is_empty() && path.out.congestion.is_empty());
    assert_eq!(path.space.sent.iter().count(), 0);
}

#[test]
fn a_loss_event_is_spurious_once_all_of_it_arrived() {
    let mut path = TestPath::new();
    path.settle_rtt(ms(100));
    let n = path.space.next_packet_number();
    path.send_many(10);
    assert_eq!(
        path.at(ms(100)).ack(&[n + 5..n + 6]).lost_numbers(),
        [n, n + 1, n + 2]
    );
    // Same event: sent before the first loss was noticed.
    path.ack(&[n + 6..n + 7]);
    assert_eq!(path.out.lost_numbers(), [n + 3]);
    let in_flight = path.recovery.bytes_in_flight();

    path.at(ms(101))
        .ack(&[n..n + 2, n + 3..n + 4, n + 5..n + 7]);
    assert_eq!(path.out.late_numbers(), [n + 3, n, n + 1]);
    assert!(path.out.acked.is_empty() && path.out.congestion.is_empty());
    path.at(ms(102)).ack(&[n..n + 4, n + 5..n + 7]);
    assert_eq!(path.out.late_numbers(), [n + 2]);
    assert_eq!(path.out.kinds(), [Spurious]);
    assert_eq!(path.out.congestion[0].lost_bytes, 4 * u64::from(BYTES));
    assert_eq!(path.recovery.bytes_in_flight(), in_flight);

    // Reordering is tolerated now: six packets instead of three.
    let n = path.space.next_packet_number();
    path.at(ms(200)).send_many(10);
    assert!(
        path.at(ms(250))
            .ack(&[n + 5..n + 6])
            .lost
            .iter()
            .all(|(number, _)| *number < n)
    );
    assert_eq!(path.ack(&[n + 6..n + 7]).lost_numbers(), [n]);
}

#[test]
fn one_real_loss_keeps_an_event_from_being_spurious() {
    let mut path = TestPath::new();
    path.settle_rtt(ms(100));
    let n = path.space.next_packet_number();
    path.send_many(10);
    path.at(ms(100)).ack(&[n + 5..n + 6]);
    path.at(ms(101)).ack(&[n + 1..n + 3, n + 5..n + 10]);
    assert_eq!(path.out.late_numbers(), [n + 1, n + 2]);
    // A new event: packets sent after the first losses were noticed.
    path.send_many(5);
    path.at(ms(201)).ack(&[n + 14..n + 15]);
    assert_eq!(path.out.kinds(), [Loss]);
    assert_eq!(path.at(ms(202)).ack(&[n..n + 1]).kinds(), []);
    assert_eq!(path.out.late_numbers(), [n]);
}

#[test]
fn old_losses_are_forgotten() {
    let mut path = TestPath::new();
    path.settle_rtt(ms(100));
    let n = path.space.next_packet_number();
    path.send_many(5);
    path.at(ms(100)).ack(&[n + 4..n + 5]);
    assert_eq!(path.out.lost_numbers(), [n, n + 1]);
    path.at(ms(2000)).ack(&[n..n + 2]);
    assert!(path.out.late.is_empty() && path.out.acked.is_empty());
}

#[test]
fn tolerance_grows_to_a_limit_and_falls_back() {
    use crate::recovery::reordering::Thresholds;
    let mut options = TransportOptions::without_policies();
    let mut thresholds = Thresholds::new(&options.clone().build().unwrap());
    for _ in 0..100 {
        thresholds.raise();
    }
    assert_eq!(
        (thresholds.current.packets, thresholds.current.time),
        (128, 128)
    );
    for _ in 0..16 {
        thresholds.on_loss_event();
    }
    assert_eq!(
        (thresholds.current.packets, thresholds.current.time),
        (3, 72)
    );
    // A configured threshold stays.
    options.packet_threshold = 1000;
    options.time_threshold = 16.0;
    let mut thresholds = Thresholds::new(&options.build().unwrap());
    thresholds.raise();
    assert_eq!(
        (thresholds.current.packets, thresholds.current.time),
        (1000, 1024)
    );
}
