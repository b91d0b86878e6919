//! The behaviour of pairs of hosts in random worlds that are always the same. `recorded.txt` holds
//! the results of an earlier run.
//!
//! Other tests check that results are right. This test shows whether any result changed. So a
//! change to the travel of packets, the service of hosts or the content of transfers shows all
//! worlds that it affects, and the new results have to be accepted on purpose. The record also
//! changes with the core, schedulers and controllers.
//!
//!     tools/accept pairs
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
// Logarithms and roots come from the library of the system, and may differ in the last bit
// elsewhere.

use std::fmt::Write as _;

use super::*;
use crate::link::{Backlog, LinkConfig};
use crate::random::SplitMix64;
use crate::record::{self, Hash};

const PAIRS: u64 = 60;
const OPERATIONS: u64 = 25;
const NAMES: [&str; 3] = ["a", "b", "c"];
const MS: Duration = Duration::from_millis(1);

struct Drawn(SplitMix64);

impl Drawn {
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.0.below(all.len() as u64) as usize]
    }

    /// True in one of `cases` cases, on average.
    fn rarely(&mut self, cases: u64) -> bool {
        self.0.below(cases) == 0
    }

    fn side(&mut self) -> Side {
        self.one_of(&[Side::Client, Side::Server])
    }

    fn link(&mut self) -> LinkConfig {
        let delay = MS * (1 + self.0.below(40) as u32);
        let mut link = LinkConfig::new(self.one_of(&[1.0, 5.0, 20.0, 100.0]), delay);
        match self.0.below(6) {
            0 => link = link.loss(0.02),
            1 => link = link.jitter(delay / 2),
            2 => link = link.duplicate(0.05).reorder(0.05, 5 * MS),
            3 => link = link.ecn(Backlog::time(5 * MS)),
            _ => {}
        }
        link
    }

    fn topology(&mut self) -> Topology {
        let mut topology = Topology::new();
        for name in NAMES {
            topology = match self.0.below(3) {
                0 => topology.path(name, self.link()),
                1 => topology.asymmetric_path(name, self.link(), self.link()),
                _ => topology.natted_path(name, self.link()),
            };
        }
        if self.rarely(3) {
            topology = topology.single_server_address();
        }
        if self.rarely(4) {
            topology = topology.ipv6();
        }
        if self.rarely(4) {
            topology = topology.shared_bottleneck(self.link());
        }
        topology
    }

    fn setup(&mut self) -> Setup {
        let mut setup = Setup::new().seed(self.0.next());
        if self.rarely(3) {
            let (v1, v2) = (Version::V1, Version::V2);
            let client = self.one_of(&[[v1, v2], [v2, v1]]);
            setup = setup.versions(&client, &[v2, v1]);
        }
        if self.rarely(4) {
            setup.accept = AcceptPolicy::Retry;
        }
        setup.migration = !self.rarely(5);
        let streams = self.one_of(&[2, 10, 100]);
        setup.transport(|transport| {
            transport.max_concurrent_uni_streams = streams;
            transport.max_concurrent_bidi_streams = streams;
        })
    }
}

/// Applies one random operation to the pair, or to one of its connections.
fn operate(pair: &mut Pair, drawn: &mut Drawn) {
    let (side, name) = (drawn.side(), drawn.one_of(&NAMES));
    let size = drawn.one_of(&[0, 1, 700, 20_000, 150_000]);
    let code = VarInt::from_u32(drawn.0.below(100) as u32);
    let number = drawn.0.next();
    match drawn.0.below(18) {
        0 | 1 => {
            pair.send(side, size);
        }
        2 | 3 => {
            pair.ask(side, size, number % 50_000);
        }
        4 => pair.set_outage(name, true),
        5 => NAMES.iter().for_each(|name| pair.set_outage(name, false)),
        6 => pair.change(name, Change::Rate(drawn.one_of(&[0.5, 3.0, 50.0]))),
        7 if pair.links()[pair.index_of(name)].nat.is_some() => {
            pair.rebind(name, number.is_multiple_of(2));
        }
        8 => {
            let _ = pair.open_path(name, PathStatus::Available);
        }
        9 => pair.stop(side),
        10 => pair.resume(side, drawn.one_of(&[OnResume::Packets, OnResume::Timers])),
        11 => pair.jump_clock(side, MS * (number % 30) as u32),
        12 => {
            let Hosted {
                connection,
                application,
                ..
            } = pair.hosted_mut(side);
            for size in [8, 100, 900] {
                let _ = application.send_datagram(connection, size);
            }
        }
        13 => pair.hosted_mut(side).application.pause(),
        14 => {
            let now = pair.time(side);
            let hosted = pair.hosted_mut(side);
            hosted.application.resume(now, &mut hosted.connection);
        }
        15 => pair.hosted_mut(side).application.read_unordered(),
        16 => {
            let hosted = pair.hosted_mut(side);
            let ids = hosted.application.outgoing().keys();
            if let Some(id) = ids.copied().nth(number as usize % 3) {
                let Hosted {
                    connection,
                    application,
                    ..
                } = hosted;
                match number % 2 {
                    0 => application.reset(connection, id, code),
                    _ => application.reset_at_half(connection, id, code),
                }
            }
        }
        17 => {
            let hosted = pair.hosted_mut(side);
            let ids = hosted.application.incoming().keys();
            if let Some(id) = ids.copied().nth(number as usize % 3) {
                hosted.application.stop(&mut hosted.connection, id, code);
            }
        }
        _ => {}
    }
}

/// Adds the state of a side to the hash.
fn add_side(hash: &mut Hash, pair: &Pair, side: Side, start: Instant) {
    let Some(hosted) = pair.hosted(side) else {
        return;
    };
    let since = |at: Option<Instant>| at.map(|at| at.saturating_duration_since(start));
    let application = &hosted.application;
    for (id, out) in application.outgoing() {
        let times = (since(Some(out.started)), since(out.finished));
        let ends = (out.stopped, out.reset, out.is_whole());
        hash.add_bytes(format!("{id} {} {} {times:?} {ends:?}", out.size, out.written).as_bytes());
    }
    for (id, read) in application.incoming() {
        let times = (since(Some(read.started)), since(read.finished));
        let ends = (read.reset, read.stopped, read.is_over());
        hash.add_bytes(format!("{id} {} {times:?} {ends:?}", read.received).as_bytes());
    }
    hash.add_bytes(&application.datagrams().concat());
    let all = (
        application.received(),
        application.is_all_opened(),
        application.is_all_acknowledged(),
        hosted.is_drained(),
    );
    hash.add_bytes(format!("{all:?}").as_bytes());
    for (at, event) in hosted.events() {
        hash.add_bytes(format!("{:?} {event:?}", since(Some(*at))).as_bytes());
    }
    let stats: Vec<_> = hosted
        .connection
        .paths()
        .filter_map(|path| hosted.connection.path_stats(path))
        .collect();
    hash.add_bytes(format!("{stats:?}").as_bytes());
}

/// A line of the record.
fn line(number: u64) -> String {
    let mut drawn = Drawn(SplitMix64::new(number));
    let topology = drawn.topology();
    let mut pair = Pair::new(&topology, drawn.setup());
    pair.network.record();
    let start = pair.now();
    pair.connect_over(drawn.0.below(NAMES.len() as u64) as usize);
    let mut line = format!("{number}:");
    match pair.run_until_confirmed(Duration::from_secs(20)) {
        Ok(took) => {
            let _ = write!(line, " after {took:?}");
        }
        Err(error) => return format!("{line} {error}\n"),
    }
    for _ in 0..OPERATIONS {
        operate(&mut pair, &mut drawn);
        let pause = drawn.one_of(&[0, 3, 40, 300]);
        pair.drive(MS * drawn.0.below(pause + 1) as u32);
        if pair
            .events(Side::Client)
            .iter()
            .any(|event| matches!(event, Event::ConnectionLost { .. }))
        {
            break;
        }
    }
    let mut sides = Hash::default();
    for side in [Side::Client, Side::Server] {
        pair.resume(side, OnResume::Packets);
        add_side(&mut sides, &pair, side, start);
    }
    NAMES.iter().for_each(|name| pair.set_outage(name, false));
    for side in [Side::Client, Side::Server] {
        let now = pair.time(side);
        let hosted = pair.hosted_mut(side);
        hosted.application.resume(now, &mut hosted.connection);
    }
    let delivered = pair.run_transfers(Duration::from_secs(3)).is_ok();
    let damaged = (
        pair.damaged(),
        pair.longest_loss(),
        pair.network.unroutable(),
    );
    let routes =
        [Side::Client, Side::Server].map(|side| (pair.routes(side), pair.open_connections(side)));
    pair.close(Side::Client);
    for side in [Side::Client, Side::Server] {
        add_side(&mut sides, &pair, side, start);
    }
    sides.add_bytes(format!("{routes:?}").as_bytes());
    let wire = pair.network.recorded().unwrap_or_default();
    let _ = writeln!(
        line,
        ", {} steps, {:?} in all, delivered {delivered}, {damaged:?}, wire {:016x}, sides {:016x}",
        pair.steps(),
        pair.elapsed(),
        wire.value(),
        sides.value()
    );
    line
}

#[test]
fn pairs_behave_as_recorded() {
    let mut now = String::from(
        "When the handshake was confirmed, instants at which something happened, packets that were damaged, most lost in a row, without a route; hashes of all packets sent and of what both sides have come to.\n",
    );
    for number in 0..PAIRS {
        now += &line(number);
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/pair/recorded.txt");
    let compared = record::compare(file, &now);
    compared.unwrap_or_else(|changes| panic!("{changes}"));
}
