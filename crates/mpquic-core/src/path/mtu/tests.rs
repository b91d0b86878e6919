use proptest::prelude::*;

use super::*;

fn start() -> Instant {
    #[expect(
        clippy::disallowed_methods,
        reason = "tests need some instant to count from"
    )]
    Instant::now()
}

/// Runs a search over a path that carries `real` bytes and loses every probe whose turn is in
/// `unlucky`. Returns the number of probes.
fn search(mtu: &mut MtuDiscovery, now: Instant, real: u16, unlucky: &[usize]) -> usize {
    let mut probes = 0;
    while let Some(size) = mtu.probe_size(now) {
        assert!(size > mtu.mtu() && size <= mtu.ceiling);
        mtu.on_probe_sent(size);
        assert_eq!(mtu.probe_size(now), None, "one at a time");
        if size <= real && !unlucky.contains(&probes) {
            assert!(mtu.on_probe_acked(now, size));
        } else {
            mtu.on_probe_lost(now, size);
        }
        probes += 1;
        assert!(probes < 100, "the search does not end");
    }
    probes
}

#[test]
fn the_ceiling_is_found_with_one_probe() {
    let mut mtu = MtuDiscovery::new(1200, 1452);
    assert_eq!(mtu.mtu(), 1200);
    assert_eq!(search(&mut mtu, start(), 1452, &[]), 1);
    assert_eq!(mtu.mtu(), 1452);
}

#[test]
fn the_ceiling_is_found_although_the_first_probe_is_lost() {
    let mut mtu = MtuDiscovery::new(1200, 1452);
    let probes = search(&mut mtu, start(), 1452, &[0]);
    assert_eq!(mtu.mtu(), 1452);
    assert!(probes <= 8, "{probes}");
}

#[test]
fn mp_157_discovery_can_be_off() {
    let mut mtu = MtuDiscovery::new(1350, 1350);
    assert_eq!(mtu.probe_size(start()), None);
    assert_eq!(mtu.mtu(), 1350);
}

#[test]
fn the_peers_payload_size_is_a_ceiling() {
    let mut mtu = MtuDiscovery::new(1300, 1452);
    mtu.limit_to(1400);
    search(&mut mtu, start(), 9000, &[]);
    assert_eq!(mtu.mtu(), 1400);
    mtu.limit_to(65527);
    assert_eq!(mtu.probe_size(start()), None);
    mtu.limit_to(1250);
    assert_eq!(mtu.mtu(), 1250);
    mtu.reset();
    assert_eq!(mtu.mtu(), 1250);
    mtu.limit_to(1);
    assert_eq!(mtu.mtu(), 1200);
}

#[test]
fn ten_minutes_later_a_larger_size_is_looked_for() {
    let (mut mtu, now) = (MtuDiscovery::new(1200, 1452), start());
    search(&mut mtu, now, 1300, &[]);
    assert!(mtu.mtu() > 1300 - STEP && mtu.mtu() <= 1300);
    let just_before = now + RAISE_INTERVAL - Duration::from_millis(1);
    assert_eq!(mtu.probe_size(just_before), None);
    assert_eq!(search(&mut mtu, now + RAISE_INTERVAL, 1452, &[]), 1);
    assert_eq!(mtu.mtu(), 1452);
}

#[test]
fn answers_to_probes_nobody_waits_for_change_nothing() {
    let (mut mtu, now) = (MtuDiscovery::new(1200, 1452), start());
    assert!(!mtu.on_probe_acked(now, 1452));
    mtu.on_probe_lost(now, 1452);
    assert_eq!(mtu.mtu(), 1200);
    search(&mut mtu, now, 1452, &[]);
    mtu.on_probe_lost(now, 1452);
    assert!(!mtu.on_probe_acked(now, 1400));
    assert_eq!(mtu.mtu(), 1452);
}

fn at_1452() -> MtuDiscovery {
    let mut mtu = MtuDiscovery::new(1200, 1452);
    search(&mut mtu, start(), 1452, &[]);
    mtu
}

#[test]
fn a_black_hole_is_detected_and_searched_anew() {
    let mut mtu = at_1452();
    mtu.on_acked(10, 1452);
    // Each probe timeout shows that only small packets pass.
    assert!(!mtu.on_lost((11..21).map(|n| (n, 1452))));
    mtu.on_acked(21, 1200);
    assert!(!mtu.on_lost((22..32).map(|n| (n, 1452))));
    mtu.on_acked(32, 1200);
    assert!(mtu.on_lost((33..43).map(|n| (n, 1452))));
    assert_eq!(mtu.mtu(), 1200);
    search(&mut mtu, start(), 1300, &[]);
    assert!(
        mtu.mtu() > 1300 - STEP && mtu.mtu() <= 1300,
        "{}",
        mtu.mtu()
    );
}

#[test]
fn congestion_is_no_black_hole() {
    let mut mtu = at_1452();
    for round in 0..20 {
        let first = round * 100;
        // Large packets sent after the lost ones arrived.
        mtu.on_acked(first + 50, 1452);
        assert!(!mtu.on_lost([(first + 10, 1452), (first + 11, 1452)]));
    }
    for round in 20..40 {
        let first = round * 100;
        // Small packets are lost just the same.
        assert!(!mtu.on_lost([(first, 1452), (first + 1, 60)]));
    }
    // Large packets sent later have arrived already when the losses are noticed.
    mtu.on_acked(5000, 1452);
    for number in 4000..4010 {
        assert!(!mtu.on_lost([(number, 1452)]));
    }
    assert!(!mtu.on_lost([]));
    assert_eq!(mtu.mtu(), 1452);
}

#[test]
fn tail_losses_with_large_packets_passing_in_between_are_no_black_hole() {
    let mut mtu = at_1452();
    for round in 0..20 {
        let first = round * 100;
        assert!(!mtu.on_lost([(first + 10, 1452)]));
        mtu.on_acked(first + 20, 1452);
    }
    assert_eq!(mtu.mtu(), 1452);
}

#[test]
fn smaller_large_packets_do_not_hide_a_black_hole() {
    let mut mtu = at_1452();
    let mut detected = false;
    for round in 0..3 {
        let first = round * 100;
        detected |= mtu.on_lost([(first + 10, 1452)]);
        mtu.on_acked(first + 20, 1250);
    }
    assert!(detected);
}

#[test]
fn late_acknowledgements_do_not_hide_a_black_hole() {
    let mut mtu = at_1452();
    assert!(!mtu.on_lost([(10, 1452)]));
    mtu.on_acked(9, 1452);
    assert!(!mtu.on_lost([(20, 1452)]));
    mtu.on_acked(8, 1452);
    assert!(mtu.on_lost([(30, 1452)]));
}

#[test]
fn nothing_falls_below_1200() {
    let mut mtu = MtuDiscovery::new(1200, 1452);
    for round in 0..10 {
        assert!(!mtu.on_lost([(round, 1300)]));
    }
    assert_eq!(mtu.mtu(), 1200);
}

proptest! {
    #[test]
    fn the_search_converges(
        initial in 1200..1500u16,
        max in 1200..16384u16,
        real in 1200..16384u16,
        unlucky in prop::collection::btree_set(0..60usize, 0..8),
    ) {
        // Random loss excludes a size only if it strikes three times in a row.
        let unlucky: Vec<_> = unlucky.into_iter().collect();
        prop_assume!(unlucky.windows(2).all(|pair| pair[1] > pair[0] + 1));
        let max = max.max(initial);
        let mut mtu = MtuDiscovery::new(initial, max);
        let real = real.max(initial);
        let probes = search(&mut mtu, start(), real, &unlucky);
        let reachable = real.min(max);
        prop_assert!(mtu.mtu() <= reachable);
        prop_assert!(reachable - mtu.mtu() < STEP, "{} of {reachable}", mtu.mtu());
        if reachable == max {
            prop_assert_eq!(mtu.mtu(), max);
        }
        prop_assert!(probes <= 1 + 3 * 12 + unlucky.len(), "{probes}");
    }

    /// After each change of the path's largest datagram, data soon passes and soon fills it.
    #[test]
    fn the_mtu_follows_a_path_that_changes(
        capacities in prop::collection::vec(1200..4000u16, 1..8),
    ) {
        let mut mtu = MtuDiscovery::new(1200, 4000);
        let mut now = start();
        let mut packet_number = 0;
        for real in capacities {
            now += RAISE_INTERVAL;
            let mut rounds = 0;
            while mtu.mtu() > real {
                let large = (packet_number..packet_number + 10).map(|n| (n, mtu.mtu()));
                let large: Vec<_> = large.collect();
                let _ = mtu.on_lost(large);
                packet_number += 10;
                mtu.on_acked(packet_number, BASE_MTU);
                packet_number += 1;
                rounds += 1;
                prop_assert!(rounds <= u32::from(BLACK_HOLE_LOSSES));
            }
            search(&mut mtu, now, real, &[]);
            prop_assert!(mtu.mtu() <= real && real - mtu.mtu() < STEP);
            mtu.on_acked(packet_number, mtu.mtu());
            packet_number += 1;
        }
    }
}

/// The sizes a search tries over a path that carries `real` bytes, the first probe being lost.
fn sizes(mtu: &mut MtuDiscovery, real: u16) -> Vec<u16> {
    let mut sizes = Vec::new();
    while let Some(size) = mtu.probe_size(start()) {
        mtu.on_probe_sent(size);
        if !sizes.is_empty() && size <= real {
            mtu.on_probe_acked(start(), size);
        } else {
            mtu.on_probe_lost(start(), size);
        }
        sizes.push(size);
        assert!(sizes.len() < 40, "the search does not end");
    }
    sizes
}

#[test]
fn the_search_halves_the_gap_and_tries_the_ceiling_last() {
    // The ceiling was not excluded by one loss, so the last step goes there.
    let mut mtu = MtuDiscovery::new(1200, 1452);
    assert_eq!(
        sizes(&mut mtu, 1452),
        [1452, 1326, 1389, 1420, 1436, 1444, 1452]
    );
    let mut mtu = MtuDiscovery::new(1200, 1210);
    assert_eq!(sizes(&mut mtu, 1210), [1210, 1210]);
}

#[test]
fn a_size_is_excluded_by_three_losses() {
    let mut mtu = MtuDiscovery::new(1200, 1232);
    // 1216 passes, more does not: the ceiling is tried until it is excluded.
    assert_eq!(sizes(&mut mtu, 1216), [1232, 1216, 1224, 1224, 1224]);
    assert_eq!(mtu.mtu(), 1216);
}

#[test]
fn new_addresses_start_over() {
    let mut mtu = at_1452();
    mtu.reset();
    assert_eq!(mtu.mtu(), 1200);
    assert_eq!(mtu.probe_size(start()), Some(1452));
}
