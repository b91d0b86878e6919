//! The effect of each queue discipline on a link.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use mpquic_core::EcnCodepoint;

use crate::link::{Backlog, Discipline, Link, LinkConfig};
use crate::packet::Packet;

const MS: Duration = Duration::from_millis(1);

/// A packet of 1000 IP bytes from a port.
fn packet(port: u16, ecn: bool) -> Packet {
    let source = SocketAddr::from(([10, 0, 0, 1], port));
    let destination = SocketAddr::from(([10, 0, 0, 2], 1));
    let ecn = ecn.then_some(EcnCodepoint::Ect0);
    Packet::new(source, destination, ecn, BytesMut::zeroed(972))
}

/// A link that takes 1 ms for each packet.
fn link(discipline: Discipline) -> (Link, Instant) {
    let config = LinkConfig::new(8.0, Duration::ZERO)
        .queue(Backlog::packets(1000))
        .discipline(discipline);
    let start = crate::lab::epoch();
    (Link::new(config, 1, start), start)
}

/// All packets that arrive: ports, and times since the start in ms.
fn drain(link: &mut Link, start: Instant) -> Vec<(u16, u128)> {
    let mut arrived = Vec::new();
    while let Some(time) = link.next_arrival() {
        while let Some(packet) = link.receive(time) {
            arrived.push((packet.source.port(), (time - start).as_millis()));
        }
    }
    arrived
}

#[test]
fn drops_from_a_standing_queue_become_more_frequent() {
    let (mut link, start) = link(Discipline::CoDel);
    for _ in 0..400 {
        link.send(start, packet(1, false));
    }
    let arrived = drain(&mut link, start);
    // Waits reach 5 ms after 5 ms, and have been too long at 105 ms. Drops follow after 100 ms, and
    // after 1/√2, 1/√3 and so on of that: at 205, 276, 333, 383 ms.
    assert_eq!(link.counters().dropped_queue, 5);
    assert_eq!(arrived.len(), 395);
    assert_eq!(arrived.last(), Some(&(1, 395)), "the link was never idle");
}

#[test]
fn burst_that_drains_in_time_loses_no_packets() {
    for discipline in [Discipline::CoDel, Discipline::Pie] {
        let (mut link, start) = link(discipline);
        for burst in 0..10 {
            let now = start + burst * 200 * MS;
            while link.receive(now).is_some() {}
            for _ in 0..100 {
                link.send(now, packet(1, false));
            }
        }
        drain(&mut link, start);
        assert_eq!(link.counters().dropped_queue, 0, "{discipline:?}");
    }
}

#[test]
fn ecn_capable_packets_are_marked_instead_of_dropped() {
    let (mut link, start) = link(Discipline::CoDel);
    for _ in 0..400 {
        link.send(start, packet(1, true));
    }
    assert_eq!(drain(&mut link, start).len(), 400);
    let counters = link.counters();
    assert_eq!((counters.dropped_queue, counters.ce_marked), (0, 5));
}

#[test]
fn sparse_flow_does_not_wait_for_a_bulk_flow() {
    for (discipline, arrival) in [
        (Discipline::Fifo, 101),
        (Discipline::CoDel, 101),
        (Discipline::FqCoDel, 12),
    ] {
        let (mut link, start) = link(discipline);
        for _ in 0..100 {
            link.send(start, packet(1, false));
        }
        // The other flow is no longer new at this time.
        let early = std::iter::from_fn(|| link.receive(start + 10 * MS)).count();
        assert_eq!(early, 10);
        link.send(start + 10 * MS, packet(2, false));
        let arrived = drain(&mut link, start);
        let little = arrived.iter().find(|(port, _)| *port == 2).unwrap();
        assert_eq!(little.1, arrival, "{discipline:?}");
    }
}

#[test]
fn flows_share_a_link_in_equal_parts() {
    let (mut link, start) = link(Discipline::FqCoDel);
    for port in [1, 2, 3] {
        for _ in 0..30 {
            link.send(start, packet(port, false));
        }
    }
    let arrived = drain(&mut link, start);
    for port in [1, 2, 3] {
        let early = arrived[..45].iter().filter(|(other, _)| *other == port);
        let early = early.count();
        assert!((13..=17).contains(&early), "{port}: {early} of 45");
    }
    assert_eq!(arrived.len(), 90);
    assert_eq!(link.packets(), 0);
    assert_eq!(link.queue_bytes(start + 200 * MS), 0);
}

#[test]
fn full_queue_drops_packets_of_the_largest_flow() {
    let config = LinkConfig::new(8.0, Duration::ZERO)
        .queue(Backlog::packets(50))
        .discipline(Discipline::FqCoDel);
    let start = crate::lab::epoch();
    let mut link = Link::new(config, 1, start);
    for _ in 0..60 {
        link.send(start, packet(1, false));
    }
    for _ in 0..10 {
        link.send(start, packet(2, false));
    }
    assert_eq!(link.packets(), 50);
    let arrived = drain(&mut link, start);
    let little = arrived.iter().filter(|(port, _)| *port == 2);
    assert_eq!((little.count(), link.counters().dropped_queue), (10, 20));
}

/// Packets of one port, at equal intervals.
struct Load {
    port: u16,
    /// Share of the link's rate.
    share: f64,
    ecn: Option<EcnCodepoint>,
}

impl Load {
    fn new(port: u16, share: f64, ecn: Option<EcnCodepoint>) -> Self {
        Self { port, share, ecn }
    }
}

/// The result for packets of a load that were sent in the second half of a run.
#[derive(Debug, Default)]
struct Fate {
    sent: f64,
    arrived: f64,
    marked: f64,
    /// Times from sending to arrival, ms.
    took: Vec<f64>,
}

impl Fate {
    fn median(&mut self) -> f64 {
        self.took.sort_by(f64::total_cmp);
        self.took[self.took.len() / 2]
    }

    fn lost(&self) -> f64 {
        1.0 - self.arrived / self.sent
    }
}

/// Sends loads for 40 s over a link that takes 1 ms for each packet.
fn run(discipline: Discipline, loads: &[Load]) -> Vec<Fate> {
    const LENGTH: f64 = 40e3;
    // The last packets may not have arrived at the end.
    let counts = |sent: f64| (LENGTH / 2.0..LENGTH - 500.0).contains(&sent);
    let config = LinkConfig::new(8.0, Duration::ZERO).discipline(discipline);
    let start = crate::lab::epoch();
    let mut link = Link::new(config, 1, start);
    let mut fates: Vec<Fate> = loads.iter().map(|_| Fate::default()).collect();
    let mut next = vec![0.0_f64; loads.len()];
    loop {
        let (load, at) = (0..loads.len())
            .map(|load| (load, next[load]))
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap();
        let now = start + Duration::from_secs_f64(at / 1e3);
        while let Some(time) = link.next_arrival().filter(|time| *time <= now) {
            let Some(packet) = link.receive(time) else {
                continue;
            };
            let port = packet.source.port();
            let load = loads.iter().position(|load| load.port == port);
            let fate = &mut fates[load.unwrap()];
            let sent = f64::from_be_bytes(packet.data[..8].try_into().unwrap());
            if counts(sent) {
                fate.arrived += 1.0;
                fate.marked += f64::from(u8::from(packet.ecn == Some(EcnCodepoint::Ce)));
                fate.took.push((time - start).as_secs_f64() * 1e3 - sent);
            }
        }
        if at > LENGTH {
            return fates;
        }
        next[load] += 1.0 / loads[load].share;
        let mut packet = packet(loads[load].port, false);
        packet.ecn = loads[load].ecn;
        packet.data[..8].copy_from_slice(&at.to_be_bytes());
        fates[load].sent += f64::from(u8::from(counts(at)));
        link.send(now, packet);
    }
}

#[test]
fn a_load_above_the_rate_waits_for_about_the_target_of_pie() {
    let fates = &mut run(Discipline::Pie, &[Load::new(1, 1.25, None)]);
    assert!((fates[0].lost() - 0.2).abs() < 0.01, "{}", fates[0].lost());
    let median = fates[0].median();
    assert!((13.0..19.0).contains(&median), "{median} ms");
}

#[test]
fn pie_marks_ecn_capable_packets_up_to_ten_percent() {
    let ecn = Some(EcnCodepoint::Ect0);
    // A load of constant rate does not react to marks.
    let loads = [Load::new(1, 0.5, ecn), Load::new(2, 0.51, None)];
    let fates = run(Discipline::Pie, &loads);
    assert_eq!(fates[0].lost(), 0.0);
    assert!((fates[1].lost() - 0.01 / 0.51).abs() < 0.01, "{fates:?}");
    let marked = fates[0].marked / fates[0].arrived;
    assert!((marked - 0.01 / 0.51).abs() < 0.01, "{marked}");
    // Above 10 %, marks are not enough.
    let fates = run(Discipline::Pie, &[Load::new(1, 1.25, ecn)]);
    assert!((fates[0].lost() - 0.2).abs() < 0.01, "{}", fates[0].lost());
}

#[test]
fn low_latency_queue_stays_short_and_its_marks_follow_classic_drops() {
    let ecn = Some(EcnCodepoint::Ect1);
    let loads = [Load::new(1, 0.1, ecn), Load::new(2, 0.95, None)];
    let fates = &mut run(Discipline::DualPi2, &loads);
    // A packet of the other queue may be on the wire, and the packet itself takes 1 ms.
    assert!(fates[0].median() <= 2.0, "{}", fates[0].median());
    assert_eq!(fates[0].lost(), 0.0);
    let median = fates[1].median();
    assert!((13.0..19.0).contains(&median), "{median} ms");
    // 0.95 of the rate arrives and 0.9 leaves; the share of marks is twice the square root of the
    // share of drops.
    assert!(
        (fates[1].lost() - 0.05 / 0.95).abs() < 0.01,
        "{}",
        fates[1].lost()
    );
    let marked = fates[0].marked / fates[0].arrived;
    assert!(
        (marked - 2.0 * (0.05_f64 / 0.95).sqrt()).abs() < 0.03,
        "{marked}"
    );
}

#[test]
fn overload_of_the_low_latency_queue_is_dropped_and_classic_keeps_its_share() {
    let ecn = Some(EcnCodepoint::Ect1);
    let fates = &mut run(Discipline::DualPi2, &[Load::new(1, 1.5, ecn)]);
    assert!(
        (fates[0].lost() - 1.0 / 3.0).abs() < 0.01,
        "{}",
        fates[0].lost()
    );
    assert_eq!(fates[0].marked, fates[0].arrived);
    let median = fates[0].median();
    assert!((13.0..19.0).contains(&median), "{median} ms");

    let loads = [
        Load::new(1, 1.5, ecn),
        Load::new(2, 0.5, Some(EcnCodepoint::Ect0)),
    ];
    let fates = run(Discipline::DualPi2, &loads);
    let share = fates[1].arrived / (fates[0].arrived + fates[1].arrived);
    assert!(share >= 0.1, "{share}");
    // The other queue's marks became drops as well.
    assert!(fates[1].lost() > 0.2, "{}", fates[1].lost());
}
