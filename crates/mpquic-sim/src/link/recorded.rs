//! The behaviour of links in repeatable random worlds. `recorded.txt` holds the results of an
//! earlier run.
//!
//! Other tests check that results are right. The test here shows every changed result, down to a
//! nanosecond. So a change to a queue shows all its effects, and a person accepts the new results
//! on purpose:
//!
//!     tools/accept links
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
// Logarithms and roots come from the library of the system, and may differ in the last bit
// elsewhere.

use std::fmt::Write as _;
use std::net::SocketAddr;

use bytes::BytesMut;
use mpquic_core::EcnCodepoint;

use super::*;
use crate::SplitMix64;
use crate::record::{self, Hash};

const LINKS: u64 = 200;
const PACKETS: u64 = 300;
const DISCIPLINES: [Discipline; 5] = [
    Discipline::Fifo,
    Discipline::CoDel,
    Discipline::FqCoDel,
    Discipline::Pie,
    Discipline::DualPi2,
];

struct Drawn(SplitMix64);

impl Drawn {
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.0.below(all.len() as u64) as usize]
    }

    /// True in one of `cases` cases, on average.
    fn rarely(&mut self, cases: u64) -> bool {
        self.0.below(cases) == 0
    }

    fn millis(&mut self, below: u64) -> Duration {
        Duration::from_micros(self.0.below(below * 1000))
    }

    fn share(&mut self) -> f64 {
        self.0.below(200) as f64 / 1000.0
    }

    fn backlog(&mut self) -> Backlog {
        match self.0.below(4) {
            0 => Backlog::bytes(2000 + self.0.below(100_000)),
            1 => Backlog::packets(2 + self.0.below(60) as usize),
            2 => Backlog::time(self.millis(300)),
            _ => Backlog::UNLIMITED,
        }
    }

    fn loss(&mut self) -> Loss {
        match self.0.below(3) {
            0 => Loss::None,
            1 => Loss::bernoulli(self.share()),
            _ => Loss::gilbert(self.share(), 1.0 + self.0.below(8) as f64),
        }
    }

    fn change(&mut self) -> Change {
        match self.0.below(11) {
            0 => Change::Rate(self.one_of(&[0.3, 1.0, 8.0, 50.0, f64::INFINITY])),
            1 => Change::Delay(self.millis(60)),
            2 => Change::Jitter(Jitter::Uniform(self.millis(20))),
            3 => Change::Loss(self.loss()),
            4 => Change::Duplicate(self.share()),
            5 => Change::Reorder(self.share(), self.millis(30)),
            6 => Change::Corrupt(self.share()),
            7 => Change::Queue(self.backlog()),
            8 => Change::Ecn(Some(self.backlog())),
            9 => Change::Mtu(self.one_of(&[1000, 1280, 1500])),
            _ => Change::Outage(self.rarely(2)),
        }
    }

    fn config(&mut self, discipline: Discipline) -> LinkConfig {
        let rate = self.one_of(&[0.5, 2.0, 10.0, 100.0, f64::INFINITY]);
        let mut config = LinkConfig::new(rate, self.millis(80)).discipline(discipline);
        config.loss = self.loss();
        config.jitter = match self.0.below(4) {
            0 => Jitter::Uniform(self.millis(40)),
            1 => Jitter::Normal(self.millis(10)),
            _ => Jitter::None,
        };
        config.jitter_reorders = self.rarely(2);
        if self.rarely(3) {
            config.duplicate = self.share();
            config.reorder = self.share();
            config.reorder_delay = self.millis(50);
            config.corrupt = self.share();
        }
        config.queue = self.rarely(2).then(|| self.backlog());
        config.ecn = self.rarely(3).then(|| self.backlog());
        for _ in 0..self.0.below(4) {
            let at = self.millis(2000);
            config = config.at(at, self.change());
        }
        if self.rarely(5) {
            config = config.trace(RateTrace {
                every: Duration::from_millis(50),
                mbit: [1.0, 20.0, 0.2, 5.0].into(),
            });
        }
        if self.rarely(5) {
            config = config.vary(Variation {
                every: Duration::from_millis(30),
                rate: self.share(),
                delay: self.share(),
                loss: self.share(),
                seed: self.0.below(100),
            });
        }
        config
    }

    fn packet(&mut self, number: u64) -> Packet {
        let size = self.one_of(&[20, 100, 1172, 1252, 1472]);
        let mut data = BytesMut::zeroed(size);
        data[..8].copy_from_slice(&number.to_be_bytes());
        let from = SocketAddr::from(([10, 0, 0, 1], 1 + self.0.below(4) as u16));
        let to = SocketAddr::from(([10, 0, 0, 2], 443));
        let codepoints = [EcnCodepoint::Ect0, EcnCodepoint::Ect1, EcnCodepoint::Ce];
        let ecn = (!self.rarely(3)).then(|| self.one_of(&codepoints));
        Packet::new(from, to, ecn, data)
    }
}

/// Takes all packets due by `now`, at their times.
fn receive(link: &mut Link, start: Instant, now: Instant, hash: &mut Hash) {
    while let Some(time) = link.next_arrival().filter(|time| *time <= now) {
        hash.add((time - start).as_nanos() as u64);
        while let Some(packet) = link.receive(time) {
            hash.add(packet.ecn.map_or(0, |ecn| ecn as u64));
            hash.add_bytes(&packet.data);
        }
    }
}

/// A line of the record.
fn line(number: u64, start: Instant) -> String {
    let mut drawn = Drawn(SplitMix64::new(number));
    let discipline = DISCIPLINES[number as usize % DISCIPLINES.len()];
    let mut link = Link::new(drawn.config(discipline), number, start);
    let is_traced = drawn.rarely(2);
    if is_traced {
        link.trace(Duration::from_millis(25));
    }
    let mut hash = Hash::default();
    let mut now = start;
    // From few packets to floods of packets.
    let pauses = drawn.one_of(&[1, 3, 10, 40]);
    for packet in 0..PACKETS {
        if !drawn.rarely(3) {
            now += drawn.millis(pauses);
        }
        receive(&mut link, start, now, &mut hash);
        if drawn.rarely(60) {
            let change = drawn.change();
            link.change(now, &change);
        }
        if drawn.rarely(20) {
            hash.add(link.queue_bytes(now));
            hash.add(link.packets() as u64);
        }
        link.send(now, drawn.packet(packet));
    }
    let end = now + Duration::from_secs(300);
    receive(&mut link, start, end, &mut hash);
    let counters = link.counters();
    let rest = [counters.max_queue_delay, counters.total_queue_delay].map(|it| it.as_nanos());
    hash.add_bytes(format!("{rest:?} {:?}", counters.mean_queue_delay()).as_bytes());
    hash.add_bytes(format!("{:?}", counters.bytes_per_interval()).as_bytes());
    let counted = [
        counters.packets_in,
        counters.bytes_in,
        counters.packets_out,
        counters.bytes_out,
        counters.dropped_queue,
        counters.dropped_loss,
        counters.longest_loss,
        counters.dropped_outage,
        counters.dropped_mtu,
        counters.ce_marked,
        counters.duplicated,
        counters.reordered,
        counters.corrupted,
        counters.max_queue_bytes,
        counters.departed,
        counters.dropped(),
    ];
    format!(
        "{number}: {discipline:?} {counted:?} {:016x}\n",
        hash.value()
    )
}

#[test]
#[expect(clippy::disallowed_methods, reason = "any instant will do")]
fn links_behave_as_recorded() {
    let start = Instant::now();
    let mut now = String::from(
        "Packets in, bytes in, packets and bytes out, dropped by queues, lost, most in a row, outages, MTU, marked, twice, late, corrupted, largest backlog, serialised, all dropped; hash of all that came out.\n",
    );
    for number in 0..LINKS {
        let _ = write!(now, "{}", line(number, start));
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/link/recorded.txt");
    let compared = record::compare(file, &now);
    compared.unwrap_or_else(|changes| panic!("{changes}"));
}
