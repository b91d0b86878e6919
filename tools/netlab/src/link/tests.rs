use super::*;

#[derive(Clone)]
struct Pkt(usize, bool);
impl Packet for Pkt {
    fn len(&self) -> usize {
        self.0
    }
    fn mark_ce(&mut self) -> bool {
        self.1 = true;
        true
    }
    fn duplicate(&self) -> Self {
        self.clone()
    }
}

const MS: u64 = 1_000_000;

fn params(mbit: f64, owd_ms: f64) -> Params {
    Params {
        rate: mbit * 1e6,
        owd: owd_ms * 1e6,
        jitter: 0.0,
        jitter_normal: false,
        allow_reorder: false,
        loss: 0.0,
        gilbert: None,
        duplicate: 0.0,
        reorder: 0.0,
        reorder_extra: 0.0,
        queue: Backlog::NONE,
        ecn: Backlog::NONE,
    }
}

fn plan(base: Params) -> Plan {
    Plan {
        base,
        changes: vec![],
        vary: None,
        seed: 1,
        stream: 1,
        vary_stream: 2,
        interval: 100 * MS,
    }
}

fn drain(l: &mut Link<Pkt>) -> Vec<u64> {
    let mut out = vec![];
    loop {
        let t = l.next_wake();
        if t == u64::MAX || (l.queue.is_empty() && l.flight.is_empty()) {
            return out;
        }
        l.advance(t);
        while let Some((at, p)) = l.pop_due(t) {
            l.delivered(at, p.0);
            out.push(at);
        }
    }
}

#[test]
fn a_packet_is_sent_at_the_rate_and_delivered_after_the_delay() {
    let mut l = Link::new(plan(params(12.0, 10.0)));
    for _ in 0..3 {
        assert!(l.enqueue(0, Pkt(1500, false)).is_none());
    }
    assert_eq!(drain(&mut l), vec![11 * MS, 12 * MS, 13 * MS]);
    assert_eq!(l.stats.total.queue_delay_max, 2e6);
    assert_eq!(l.stats.total.delivered_bytes, 4500);
}

#[test]
fn departures_are_exact_however_late_the_link_is_advanced() {
    let mut l = Link::new(plan(params(12.0, 10.0)));
    l.enqueue(0, Pkt(1500, false));
    l.enqueue(100 * MS, Pkt(1500, false));
    assert_eq!(drain(&mut l), vec![11 * MS, 111 * MS]);
}

#[test]
fn a_packet_beyond_any_limit_of_the_queue_is_dropped() {
    for q in [
        Backlog {
            packets: 2.0,
            ..Backlog::NONE
        },
        Backlog {
            bytes: 3000.0,
            ..Backlog::NONE
        },
        Backlog {
            time: 2e6,
            ..Backlog::NONE
        },
    ] {
        let mut p = params(12.0, 0.0);
        p.queue = q;
        let mut l = Link::new(plan(p));
        for _ in 0..5 {
            l.enqueue(0, Pkt(1500, false));
        }
        assert_eq!(l.stats.total.dropped_queue, 3);
        // The first packet leaves after a millisecond, so the queue has room for another packet.
        assert!(l.enqueue(MS, Pkt(1500, false)).is_none());
        assert!(l.enqueue(MS, Pkt(1500, false)).is_some());
    }
}

#[test]
fn the_rest_of_a_packet_continues_at_a_new_rate() {
    let mut pl = plan(params(12.0, 0.0));
    pl.changes = vec![(MS / 2, Change::Set(params(6.0, 0.0)))];
    let mut l = Link::new(pl);
    l.start(0);
    l.enqueue(0, Pkt(1500, false));
    l.enqueue(0, Pkt(1500, false));
    // Half at 12 Mbit/s, half at 6; then 2 ms for the next.
    assert_eq!(drain(&mut l), vec![MS * 3 / 2, MS * 7 / 2]);
}

#[test]
fn a_shorter_delay_keeps_the_order_unless_reordering_is_allowed() {
    for allow in [false, true] {
        let mut pl = plan(params(f64::INFINITY, 50.0));
        let mut p = params(f64::INFINITY, 10.0);
        p.allow_reorder = allow;
        pl.changes = vec![(MS, Change::Set(p))];
        let mut l = Link::new(pl);
        l.start(0);
        l.enqueue(0, Pkt(100, false));
        l.enqueue(2 * MS, Pkt(100, false));
        let want = if allow {
            vec![12 * MS, 50 * MS]
        } else {
            vec![50 * MS, 50 * MS]
        };
        assert_eq!(drain(&mut l), want);
    }
}

#[test]
fn an_outage_drops_arrivals_and_departures_but_no_packet_in_flight() {
    let mut pl = plan(params(12.0, 100.0));
    pl.changes = vec![
        (MS * 3 / 2, Change::Blackhole(true)),
        (10 * MS, Change::Blackhole(false)),
    ];
    let mut l = Link::new(pl);
    l.start(0);
    for t in [0, 0, 5 * MS, 11 * MS] {
        l.enqueue(t, Pkt(1500, false));
    }
    assert_eq!(drain(&mut l), vec![101 * MS, 112 * MS]);
    assert_eq!(l.stats.total.dropped_blackhole, 2);
}

#[test]
fn losses_have_the_asked_mean() {
    let n = 200_000;
    let mut p = params(f64::INFINITY, 0.0);
    p.loss = 0.003;
    let mut l = Link::new(plan(p.clone()));
    for i in 0..n {
        l.enqueue(i, Pkt(100, false));
    }
    let got = l.stats.total.dropped_loss as f64 / n as f64;
    assert!(
        (got - 0.003).abs() < 4.0 * (0.003f64 / n as f64).sqrt(),
        "{got}"
    );

    p.loss = 0.0;
    p.gilbert = Some(Gilbert {
        p_good_bad: 0.01,
        p_bad_good: 0.25,
        loss_good: 0.0,
        loss_bad: 1.0,
    });
    let mut l = Link::new(plan(p));
    for i in 0..n {
        l.enqueue(i, Pkt(100, false));
    }
    let got = l.stats.total.dropped_loss as f64 / n as f64;
    assert!((got - 0.01 / 0.26).abs() < 0.004, "{got}");
}

#[test]
fn variation_depends_on_the_seed_and_keeps_its_bounds() {
    let run = |seed| {
        let mut pl = plan(params(10.0, 10.0));
        pl.seed = seed;
        pl.vary = Some(Vary {
            every: 100 * MS,
            rate: 0.05,
            owd: 0.1,
            loss: 0.001,
        });
        let mut l: Link<Pkt> = Link::new(pl);
        l.start(0);
        let mut v = vec![];
        for i in 0..50 {
            l.advance(i * 100 * MS);
            assert!((l.cur.rate / 10e6 - 1.0).abs() <= 0.05);
            assert!((l.cur.owd / 10e6 - 1.0).abs() <= 0.1);
            assert!(l.cur.loss >= 0.0 && l.cur.loss <= 0.001);
            v.push(l.cur.rate);
        }
        v
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let mut v = run(1);
    v.dedup();
    assert_eq!(v.len(), 50);
}

#[test]
fn packets_above_the_ecn_limit_are_marked() {
    let mut p = params(12.0, 0.0);
    p.ecn = Backlog {
        time: 2e6,
        ..Backlog::NONE
    };
    let mut l = Link::new(plan(p));
    for _ in 0..5 {
        l.enqueue(0, Pkt(1500, false));
    }
    assert_eq!(l.stats.total.ce_marked, 3);
}

#[test]
fn duplicates_and_reordered_packets_arrive() {
    let mut p = params(f64::INFINITY, 1.0);
    p.duplicate = 0.1;
    p.reorder = 0.1;
    p.reorder_extra = 5e6;
    let mut l = Link::new(plan(p));
    for i in 0..10_000u64 {
        l.enqueue(i * 1000, Pkt(100, false));
    }
    let (dup, reo) = (l.stats.duplicated, l.stats.reordered);
    assert!(dup > 800 && dup < 1200 && reo > 800 && reo < 1200);
    assert_eq!(drain(&mut l).len() as u64, 10_000 + dup);
}

#[test]
fn a_full_link_delivers_exactly_its_rate() {
    let mut p = params(50.0, 10.0);
    p.queue = Backlog {
        time: 20e6,
        ..Backlog::NONE
    };
    let mut l = Link::new(plan(p));
    l.start(0);
    // 100 Mbit/s for a second.
    for i in 0..10_000u64 {
        l.enqueue(i * 100_000, Pkt(1250, false));
    }
    let delivered = drain(&mut l);
    let total = l.stats.total;
    assert_eq!(total.in_packets, 10_000);
    assert_eq!(total.dropped_queue + total.delivered_packets, 10_000);
    // 200 microseconds a packet.
    assert!(delivered.windows(2).all(|w| w[1] - w[0] == 200_000));
    assert_eq!(delivered[0], 10_200_000);
    // The queue holds a hundred packets, of which one is being sent.
    assert_eq!(total.queue_delay_max, 99.0 * 200_000.0);
    assert_eq!(l.stats.queue_bytes_max, 100 * 1250);
    // Each interval of 100 ms delivers 500 packets, except the first one, which the delay shortens.
    let steady: Vec<u64> = l.stats.intervals[1..10]
        .iter()
        .map(|i| i.delivered_packets)
        .collect();
    assert_eq!(steady, vec![500; 9]);
}

#[test]
fn the_same_seed_loses_the_same_packets() {
    let lost = |seed| {
        let mut p = params(f64::INFINITY, 1.0);
        p.loss = 0.1;
        let mut pl = plan(p);
        pl.seed = seed;
        let mut l = Link::new(pl);
        for i in 0..1000 {
            l.enqueue(i * MS, Pkt(100, false));
        }
        drain(&mut l)
    };
    assert_eq!(lost(1), lost(1));
    assert_ne!(lost(1), lost(2));
}

/// The delays of packets with a rate that does not matter, one packet each second.
fn delays(p: Params) -> Vec<u64> {
    let mut l = Link::new(plan(p));
    let second = 1000 * MS;
    let mut delays = vec![];
    for i in 0..1000 {
        l.enqueue(i * second, Pkt(100, false));
        delays.extend(drain(&mut l).iter().map(|at| at - i * second));
    }
    delays
}

#[test]
fn uniform_jitter_spreads_delays_over_its_whole_range() {
    let mut p = params(f64::INFINITY, 10.0);
    p.jitter = 4e6;
    let mut delays = delays(p);
    delays.sort_unstable();
    assert_eq!(delays.len(), 1000);
    assert!(delays[0] >= 6 * MS && delays[0] < 6 * MS + MS / 4);
    assert!(delays[999] <= 14 * MS && delays[999] > 14 * MS - MS / 4);
    assert!(delays[500].abs_diff(10 * MS) < MS / 2);
}

#[test]
fn normal_jitter_has_the_asked_deviation_and_never_a_negative_delay() {
    let mut p = params(f64::INFINITY, 10.0);
    p.jitter = 2e6;
    p.jitter_normal = true;
    let seen = delays(p.clone());
    let within = |ms| {
        let limit = ms * MS;
        seen.iter().filter(|d| d.abs_diff(10 * MS) <= limit).count()
    };
    // 68 and 95 percent of a normal distribution.
    assert!(within(2).abs_diff(683) < 50, "{}", within(2));
    assert!(within(4).abs_diff(954) < 25, "{}", within(4));
    p.owd = 0.0;
    let seen = delays(p);
    assert!(seen.iter().filter(|d| **d == 0).count().abs_diff(500) < 60);
}

#[test]
fn a_duplicate_is_due_with_its_packet_and_a_reordered_packet_later() {
    let mut p = params(f64::INFINITY, 10.0);
    p.duplicate = 1.0;
    let mut l = Link::new(plan(p.clone()));
    l.enqueue(0, Pkt(100, false));
    assert_eq!(drain(&mut l), vec![10 * MS, 10 * MS]);

    p.duplicate = 0.0;
    p.reorder = 1.0;
    p.reorder_extra = 5e6;
    let mut pl = plan(p);
    pl.changes = vec![(MS, Change::Set(params(f64::INFINITY, 10.0)))];
    let mut l = Link::new(pl);
    l.start(0);
    l.enqueue(0, Pkt(100, false));
    l.enqueue(2 * MS, Pkt(200, false));
    // The second packet, which is not reordered, overtakes the first.
    assert_eq!(drain(&mut l), vec![12 * MS, 15 * MS]);
    assert_eq!(l.stats.reordered, 1);
}

#[test]
fn losses_of_the_bad_state_come_in_bursts() {
    let mut p = params(f64::INFINITY, 0.0);
    p.gilbert = Some(Gilbert {
        p_good_bad: 0.01,
        p_bad_good: 0.25,
        loss_good: 0.0,
        loss_bad: 1.0,
    });
    let mut l = Link::new(plan(p));
    let mut bursts = 0;
    let mut was_lost = false;
    for i in 0..100_000u64 {
        let before = l.stats.total.dropped_loss;
        l.enqueue(i * MS, Pkt(100, false));
        l.advance(i * MS);
        let lost = l.stats.total.dropped_loss > before;
        bursts += u64::from(lost && !was_lost);
        was_lost = lost;
    }
    let mean = l.stats.total.dropped_loss as f64 / bursts as f64;
    assert!((mean - 4.0).abs() < 0.5, "{mean}");
}

#[test]
fn intervals_count_from_the_start_of_the_schedule() {
    let mut l = Link::new(plan(params(f64::INFINITY, 0.0)));
    l.enqueue(10 * MS, Pkt(100, false));
    l.start(50 * MS);
    // A second start changes nothing.
    l.start(90 * MS);
    l.enqueue(149 * MS, Pkt(100, false));
    l.enqueue(150 * MS, Pkt(100, false));
    let arrived: Vec<u64> = l.stats.intervals.iter().map(|i| i.in_packets).collect();
    assert_eq!(arrived, [1, 1]);
    assert_eq!(l.stats.total.in_packets, 3);
    // The next call takes the last packet from the queue into flight.
    assert_eq!(l.backlog(), (1, 2));
}
