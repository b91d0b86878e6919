use super::*;
use bytes::BytesMut;
use mpquic_core::EcnCodepoint;

const MS: Duration = Duration::from_millis(1);

#[expect(clippy::disallowed_methods, reason = "any instant will do")]
fn start() -> Instant {
    Instant::now()
}

/// A packet of `size` IP bytes that carries a number.
fn packet(size: usize, number: u32) -> Packet {
    let mut data = BytesMut::zeroed(size - 28);
    data[..4].copy_from_slice(&number.to_be_bytes());
    let address = "10.0.0.1:1".parse().unwrap();
    Packet::new(address, address, Some(EcnCodepoint::Ect0), data)
}

fn number(packet: &Packet) -> u32 {
    u32::from_be_bytes(packet.data[..4].try_into().unwrap())
}

/// All packets that leave the link, at the times for which the link asks.
fn drain(link: &mut Link) -> Vec<(Instant, Packet)> {
    let mut out = Vec::new();
    while let Some(time) = link.next_arrival() {
        while let Some(packet) = link.receive(time) {
            out.push((time, packet));
        }
    }
    out
}

fn numbers(out: &[(Instant, Packet)]) -> Vec<u32> {
    out.iter().map(|(_, packet)| number(packet)).collect()
}

#[test]
fn rate_and_delay_set_arrival_times() {
    let t = start();
    // 1000 bytes at 8 Mbit/s take 1 ms.
    let mut link = Link::new(LinkConfig::new(8.0, 10 * MS), 1, t);
    for i in 0..3 {
        link.send(t, packet(1000, i));
    }
    let out = drain(&mut link);
    let times: Vec<_> = out.iter().map(|(time, _)| *time - t).collect();
    assert_eq!(times, [11 * MS, 12 * MS, 13 * MS]);
    assert_eq!(numbers(&out), [0, 1, 2]);
    assert_eq!(link.counters().max_queue_bytes, 3000);
    assert_eq!(link.counters().total_queue_delay, 3 * MS);
    assert_eq!(link.packets(), 0);
}

#[test]
fn trace_sets_the_rate_and_repeats() {
    let t = start();
    let trace = RateTrace {
        every: 10 * MS,
        mbit: [8.0, 4.0].into(),
    };
    let config = LinkConfig::new(1.0, MS).trace(trace);
    let mut link = Link::new(config.queue(Backlog::UNLIMITED), 1, t);
    for i in 0..30 {
        link.send(t, packet(1000, i));
    }
    // Ten packets of 1 ms each, then five packets of 2 ms each, and so on.
    let out = drain(&mut link);
    let at = |index: usize| out[index].0 - t;
    let times = [0, 9, 10, 14, 15, 24, 25, 29].map(at);
    assert_eq!(times, [2, 11, 13, 21, 22, 31, 33, 41].map(|ms| ms * MS));
}

#[test]
fn the_default_queue_holds_fifty_milliseconds_or_a_round_trip() {
    let t = start();
    for (delay, packets) in [(MS, 50), (100 * MS, 200)] {
        let mut link = Link::new(LinkConfig::new(8.0, delay), 1, t);
        for i in 0..300 {
            link.send(t, packet(1000, i));
        }
        assert_eq!(drain(&mut link).len(), packets);
        assert_eq!(link.counters().dropped_queue, 300 - packets as u64);
    }
}

#[test]
fn explicit_queue_limits_count_the_packet_being_sent() {
    let t = start();
    for (limit, kept) in [
        (Backlog::packets(3), 3),
        (Backlog::bytes(2500), 2),
        (Backlog::bytes(10), 1),
        (Backlog::time(5 * MS), 5),
    ] {
        let mut link = Link::new(LinkConfig::new(8.0, MS).queue(limit), 1, t);
        for i in 0..10 {
            link.send(t, packet(1000, i));
        }
        assert_eq!(drain(&mut link).len(), kept, "{limit:?}");
    }
}

#[test]
fn congestion_is_marked_above_the_threshold() {
    let t = start();
    let config = LinkConfig::new(8.0, MS).ecn(Backlog::packets(2));
    let mut link = Link::new(config, 1, t);
    for i in 0..4 {
        let mut packet = packet(1000, i);
        if i == 3 {
            packet.ecn = None;
        }
        link.send(t, packet);
    }
    let out = drain(&mut link);
    let ecn: Vec<_> = out.iter().map(|(_, packet)| packet.ecn).collect();
    let ect = Some(EcnCodepoint::Ect0);
    assert_eq!(ecn, [ect, ect, Some(EcnCodepoint::Ce), None]);
    assert_eq!(link.counters().ce_marked, 1);
}

#[test]
fn loss_models_hit_their_mean_and_burst_length() {
    let t = start();
    let count = 200_000;
    for (config, mean, burst) in [
        (LinkConfig::new(f64::INFINITY, MS).loss(0.02), 0.02, 1.02),
        (
            LinkConfig::new(f64::INFINITY, MS).burst_loss(0.05, 4.0),
            0.05,
            4.0,
        ),
    ] {
        let mut link = Link::new(config, 7, t);
        let mut seen = vec![false; count];
        for i in 0..count {
            let now = t + Duration::from_micros(i as u64);
            link.send(now, packet(100, i as u32));
            while let Some(packet) = link.receive(now) {
                seen[number(&packet) as usize] = true;
            }
        }
        for (_, packet) in drain(&mut link) {
            seen[number(&packet) as usize] = true;
        }
        let lost = seen.iter().filter(|seen| !**seen).count() as f64;
        let bursts = seen.windows(2).filter(|w| w[0] && !w[1]).count() as f64;
        let share = lost / count as f64;
        assert!((share / mean - 1.0).abs() < 0.1, "{share} for {mean}");
        assert!((lost / bursts / burst - 1.0).abs() < 0.1);
    }
}

#[test]
fn jitter_keeps_order_unless_told_otherwise() {
    let t = start();
    for reorders in [false, true] {
        let mut config = LinkConfig::new(f64::INFINITY, 10 * MS).jitter(9 * MS);
        config.jitter_reorders = reorders;
        let mut link = Link::new(config, 3, t);
        for i in 0..100 {
            link.send(t + MS * i, packet(100, i));
        }
        let out = drain(&mut link);
        let sorted = numbers(&out).is_sorted();
        assert_eq!((out.len(), sorted), (100, !reorders));
        for (time, packet) in &out {
            let delay = *time - (t + MS * number(packet));
            assert!(delay >= MS && (delay <= 19 * MS || !reorders), "{delay:?}");
        }
    }
}

#[test]
fn duplicates_and_late_packets() {
    let t = start();
    let config = LinkConfig::new(f64::INFINITY, MS)
        .duplicate(0.25)
        .reorder(0.25, 5 * MS);
    let mut link = Link::new(config, 5, t);
    for i in 0..1000 {
        link.send(t + MS * i, packet(100, i));
    }
    let out = drain(&mut link);
    let counters = link.counters();
    assert_eq!(out.len() as u64, 1000 + counters.duplicated);
    assert!((200..300).contains(&counters.duplicated));
    assert!((200..300).contains(&counters.reordered));
    assert!(!numbers(&out).is_sorted());
}

#[test]
fn corruption_flips_single_bits() {
    let t = start();
    let mut link = Link::new(LinkConfig::new(f64::INFINITY, MS).corrupt(0.5), 5, t);
    for i in 0..1000 {
        link.send(t + MS * i, packet(100, 0));
    }
    let ones = |packet: &Packet| {
        packet
            .data
            .iter()
            .map(|byte| byte.count_ones())
            .sum::<u32>()
    };
    let flipped: Vec<_> = drain(&mut link).iter().map(|(_, p)| ones(p)).collect();
    assert!(flipped.iter().all(|bits| *bits <= 1));
    let corrupted = flipped.iter().sum::<u32>();
    assert!((400..600).contains(&corrupted));
    assert_eq!(link.counters().corrupted, corrupted.into());
}

#[test]
fn the_schedule_changes_rate_in_mid_packet_and_opens_outages() {
    let t = start();
    let config = LinkConfig::new(8.0, MS)
        .at(Duration::from_micros(500), Change::Rate(4.0))
        .outage(10 * MS, 20 * MS);
    let mut link = Link::new(config, 1, t);
    link.send(t, packet(1000, 0));
    // Half of the packet at 8 Mbit/s, half at 4 Mbit/s, and 1 ms of propagation.
    assert_eq!(drain(&mut link)[0].0 - t, Duration::from_micros(2500));
    link.send(t + 9 * MS, packet(1000, 1)); // still being sent when the outage starts
    link.send(t + 15 * MS, packet(1000, 2));
    link.send(t + 20 * MS, packet(1000, 3));
    assert_eq!(numbers(&drain(&mut link)), [3]);
    assert_eq!(link.counters().dropped_outage, 2);
}

#[test]
fn large_packets_are_dropped() {
    let t = start();
    let mut link = Link::new(LinkConfig::new(8.0, MS).mtu(1300), 1, t);
    link.send(t, packet(1300, 0));
    link.send(t, packet(1301, 1));
    assert_eq!(numbers(&drain(&mut link)), [0]);
    assert_eq!(link.counters().dropped_mtu, 1);
}

#[test]
fn variation_moves_rate_and_delay_within_bounds_and_alike_for_equal_seeds() {
    let t = start();
    let variation = Variation {
        every: 100 * MS,
        rate: 0.5,
        delay: 0.1,
        loss: 0.0,
        seed: 9,
    };
    let config = LinkConfig::new(8.0, 100 * MS).vary(variation);
    let mut links = [1, 2].map(|seed| Link::new(config.clone(), seed, t));
    let mut rates = Vec::new();
    for step in 0..50 {
        let now = t + 100 * MS * step;
        links
            .iter_mut()
            .for_each(|link| link.send(now, packet(100, 0)));
        let rate = links[0].config().rate.unwrap();
        assert!((4e6..=12e6).contains(&rate));
        let delay = links[0].config().delay;
        assert!(delay >= 90 * MS && delay <= 110 * MS);
        assert_eq!(links[0].config().rate, links[1].config().rate);
        rates.push(rate);
    }
    rates.dedup();
    assert!(rates.len() > 40);
}

#[test]
fn equal_seeds_give_equal_runs_and_tracing_counts_every_byte() {
    let t = start();
    let run = |seed| {
        let config = LinkConfig::new(8.0, 5 * MS).loss(0.1).jitter(4 * MS);
        let mut link = Link::new(config, seed, t);
        link.trace(10 * MS);
        for i in 0..100 {
            link.send(t + MS * i, packet(500, i));
        }
        let out = drain(&mut link);
        let traced: u64 = link.counters().bytes_per_interval().iter().sum();
        assert_eq!(traced, link.counters().bytes_out);
        out.iter()
            .map(|(time, p)| (*time, number(p)))
            .collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

/// Delays in ms of packets over a link without a rate. Each packet is alone on the link, and leaves
/// only at the time for which the link asks.
fn delays(config: LinkConfig, count: u32) -> Vec<f64> {
    let t = start();
    let mut link = Link::new(config, 11, t);
    let sent = (0..count).flat_map(|number| {
        let now = t + 200 * MS * number;
        link.send(now, packet(100, number));
        let out = drain(&mut link);
        out.into_iter().map(move |(time, _)| time - now)
    });
    sent.map(|delay| delay.as_secs_f64() * 1e3).collect()
}

#[test]
fn normal_jitter_has_its_deviation() {
    let config = LinkConfig::new(f64::INFINITY, 50 * MS).normal_jitter(5 * MS);
    let delays = delays(config, 5000);
    let count = delays.len() as f64;
    let mean = delays.iter().sum::<f64>() / count;
    let variance = delays
        .iter()
        .map(|delay| (delay - mean).powi(2))
        .sum::<f64>()
        / count;
    assert!((mean - 50.0).abs() < 0.3, "{mean}");
    assert!((variance.sqrt() - 5.0).abs() < 0.3, "{}", variance.sqrt());
    // The distribution is not uniform: a twentieth of the delays deviates by more than two standard
    // deviations.
    let far = delays.iter().filter(|delay| (*delay - mean).abs() > 10.0);
    let share = far.count() as f64 / count;
    assert!((0.03..0.06).contains(&share), "{share}");
    assert!(delays.iter().all(|delay| (delay - mean).abs() < 50.0));
}

#[test]
fn reordered_packets_are_late_by_the_given_delay() {
    let config = LinkConfig::new(f64::INFINITY, 2 * MS).reorder(0.25, 5 * MS);
    let mut delays: Vec<_> = delays(config, 1000)
        .into_iter()
        .map(|delay| delay.round() as u32)
        .collect();
    delays.sort_unstable();
    delays.dedup();
    assert_eq!(delays, [2, 7]);
}

#[test]
fn both_states_of_the_gilbert_elliott_model_lose_their_share() {
    let t = start();
    let mut config = LinkConfig::new(f64::INFINITY, MS);
    config.loss = Loss::GilbertElliott {
        to_bad: 0.1,
        to_good: 0.3,
        loss_good: 0.1,
        loss_bad: 0.5,
    };
    let mut link = Link::new(config, 3, t);
    let count = 100_000;
    for i in 0..count {
        link.send(t, packet(100, i));
    }
    let share = f64::from(count - drain(&mut link).len() as u32) / f64::from(count);
    // The link is in the bad state for a quarter of the time.
    let mean = 0.25 * 0.5 + 0.75 * 0.1;
    assert!((share - mean).abs() < 0.01, "{share}");
    let longest = link.counters().longest_loss;
    assert!((5..30).contains(&longest), "{longest}");
}

#[test]
fn variation_moves_delay_and_loss() {
    let t = start();
    let variation = Variation {
        every: 100 * MS,
        rate: 0.0,
        delay: 0.1,
        loss: 0.2,
        seed: 9,
    };
    let probability = |link: &Link| match link.config().loss {
        Loss::None => 0.0,
        Loss::Bernoulli(probability) => probability,
        Loss::GilbertElliott { .. } => panic!("another model"),
    };
    // Half of the draws around zero are negative, so these intervals lose no packets.
    for (base, range, zeros) in [(0.0, 0.0..=0.2, 30..=70), (0.3, 0.1..=0.5, 0..=0)] {
        let config = LinkConfig::new(8.0, 100 * MS).loss(base).vary(variation);
        let mut link = Link::new(config, 1, t);
        let (mut losses, mut delays) = (Vec::new(), Vec::new());
        for step in 0..100 {
            link.send(t + 100 * MS * step, packet(100, 0));
            losses.push(probability(&link));
            delays.push(link.config().delay);
        }
        assert!(losses.iter().all(|loss| range.contains(loss)));
        let none = losses.iter().filter(|loss| **loss == 0.0).count();
        assert!(zeros.contains(&none), "{none}");
        losses.dedup();
        assert!(losses.len() > 40, "{}", losses.len());
        delays.dedup();
        // A value for each interval, not for every second interval.
        assert!(delays.len() > 90, "{}", delays.len());
    }
}

#[test]
fn shorter_delay_applies_to_queued_packets() {
    let t = start();
    let config = LinkConfig::new(8.0, 100 * MS).at(MS / 2, Change::Delay(MS));
    let mut link = Link::new(config, 1, t);
    link.send(t, packet(1000, 0));
    let (time, _) = drain(&mut link).remove(0);
    assert_eq!(time - t, 2 * MS);
}

#[test]
fn every_change_takes_effect_now_and_by_schedule() {
    let t = start();
    let changes = [
        Change::Rate(4.0),
        Change::Delay(7 * MS),
        Change::Jitter(Jitter::Normal(MS)),
        Change::Loss(Loss::Bernoulli(0.5)),
        Change::Duplicate(0.25),
        Change::Reorder(0.125, 3 * MS),
        Change::Corrupt(0.75),
        Change::Queue(Backlog::packets(3)),
        Change::Ecn(Some(Backlog::packets(2))),
        Change::Mtu(1300),
        Change::Outage(true),
    ];
    let mut expected = LinkConfig::new(4.0, 7 * MS)
        .normal_jitter(MS)
        .loss(0.5)
        .duplicate(0.25)
        .reorder(0.125, 3 * MS)
        .corrupt(0.75)
        .queue(Backlog::packets(3))
        .ecn(Backlog::packets(2))
        .mtu(1300);
    expected.outage = true;
    let plain = LinkConfig::new(8.0, MS);
    let mut link = Link::new(plain.clone(), 1, t);
    changes.iter().for_each(|change| link.change(t, change));
    assert_eq!(*link.config(), expected);
    let scheduled = changes
        .iter()
        .fold(plain.clone(), |config, change| config.at(MS, *change));
    let mut link = Link::new(scheduled, 1, t);
    link.send(t, packet(100, 0));
    assert_eq!(*link.config(), plain);
    link.send(t + MS, packet(100, 1));
    assert_eq!(*link.config(), expected);
}

#[test]
fn waits_are_counted() {
    let t = start();
    let mut link = Link::new(LinkConfig::new(8.0, MS), 1, t);
    (0..4).for_each(|i| link.send(t, packet(1000, i)));
    drain(&mut link);
    let counters = link.counters();
    assert_eq!(counters.departed, 4);
    assert_eq!(counters.max_queue_delay, 3 * MS);
    assert_eq!(counters.total_queue_delay, 6 * MS);
    assert_eq!(counters.mean_queue_delay(), 3 * MS / 2);
}
