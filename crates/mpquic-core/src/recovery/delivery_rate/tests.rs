#![expect(
    clippy::single_range_in_vec_init,
    reason = "acknowledgements are lists of ranges, often of one"
)]

use crate::recovery::testing::{TestPath, ms};

#[test]
fn measures_a_steady_rate() {
    // 1000 bytes each 10 ms, RTT 100 ms: 100,000 bytes per second.
    let mut path = TestPath::new();
    let mut sampled = 0;
    for step in 0..200 {
        path.at(ms(step * 10)).send();
        if step >= 10 {
            let number = step - 10;
            path.ack(&[number..number + 1]);
            let rate = path.out.summary.unwrap().delivery_rate;
            if let Some(rate) = rate.filter(|_| step >= 30) {
                assert_eq!((rate.bytes_per_second, rate.app_limited), (100_000, false));
                // The packet and the ten before it, over 110 ms.
                assert_eq!(rate.delivered - rate.prior_delivered, 11_000);
                sampled += 1;
            }
        }
    }
    assert_eq!(sampled, 170);
    assert_eq!(path.recovery.delivery_rate(), Some(100_000));
}

#[test]
fn compressed_acknowledgements_do_not_inflate_the_rate() {
    let mut path = TestPath::new();
    path.settle_rtt(ms(100));
    let first = path.space.next_packet_number();
    for step in 0..20 {
        path.at(ms(step * 10)).send();
    }
    // All arrive within a moment: the sending rate bounds the sample.
    for number in 0..20 {
        path.at(ms(290)).ack(&[first + number..first + number + 1]);
        if let Some(rate) = path.out.summary.unwrap().delivery_rate {
            assert!(rate.bytes_per_second <= 110_000, "{rate:?}");
        }
    }
}

#[test]
fn samples_are_marked_while_the_application_limits() {
    let mut path = TestPath::new();
    path.send_many(2);
    path.recovery.set_app_limited();
    path.at(ms(1)).send();
    let limited = |path: &mut TestPath, number| {
        path.ack(&[number..number + 1])
            .summary
            .unwrap()
            .delivery_rate
            .unwrap()
            .app_limited
    };
    assert!(!limited(path.at(ms(50)), 0));
    assert!(!limited(path.at(ms(51)), 1));
    assert!(limited(path.at(ms(52)), 2));
    // All sent before the pause is delivered: what follows counts again.
    let number = path.send();
    assert!(!limited(path.at(ms(102)), number));
}

#[test]
fn the_largest_rate_is_forgotten_after_ten_round_trips() {
    let mut path = TestPath::new();
    path.send_many(10);
    path.at(ms(100)).ack(&[0..10]);
    assert_eq!(path.recovery.delivery_rate(), Some(100_000));
    for round in 1..=10 {
        assert_eq!(path.recovery.delivery_rate(), Some(100_000));
        let number = path.send();
        path.at(ms(100 + round * 100)).ack(&[number..number + 1]);
    }
    assert_eq!(path.recovery.delivery_rate(), Some(10_000));
}

#[test]
fn slow_samples_of_an_idle_application_do_not_lower_the_rate() {
    let mut path = TestPath::new();
    path.send_many(10);
    path.at(ms(100)).ack(&[0..10]);
    assert_eq!(path.recovery.delivery_rate(), Some(100_000));
    // Fast again while the application limits: counts, since the path can do it.
    let first = path.space.next_packet_number();
    path.send_many(20);
    path.recovery.set_app_limited();
    let limited = path.send();
    path.at(ms(200)).ack(&[first..limited]);
    assert_eq!(path.recovery.delivery_rate(), Some(200_000));
    path.at(ms(201)).ack(&[limited..limited + 1]);
    // Slow and limited: does not count.
    path.recovery.set_app_limited();
    for round in 1..9 {
        path.recovery.set_app_limited();
        let number = path.send();
        path.at(ms(201 + round * 100)).ack(&[number..number + 1]);
        let rate = path.out.summary.unwrap().delivery_rate.unwrap();
        assert!(rate.app_limited, "round {round}");
    }
    assert_eq!(path.recovery.delivery_rate(), Some(207_920));
}
