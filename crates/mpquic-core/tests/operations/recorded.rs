//! Compares fixed runs of connections with their record in `recorded.txt`.
//!
//! Other tests check right behaviour; this test finds any difference, down to a single bit on the
//! wire and a nanosecond. A change that is meant to alter the runs accepts the new record:
//!
//!     tools/accept runs
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
// Exponentials come from the system's library, and may differ in their last bit elsewhere.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use mpquic_core::qlog::{ConnectionStart, Event, Factory, Sink};
use mpquic_sim::record::{self, Hash};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngSeed, TestRunner};

use super::operation::{SIDES, operation};
use super::run::Run;
use super::setup::{Sides, draw};

const RUNS: u64 = 100;

/// What both connections write to their logs.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<(Option<Instant>, Hash)>>);

impl Factory for Log {
    fn start(&self, connection: &ConnectionStart) -> Option<Box<dyn Sink>> {
        self.0.lock().unwrap().0.get_or_insert(connection.now);
        Some(Box::new(self.clone()))
    }
}

impl Sink for Log {
    fn on_event(&mut self, now: Instant, event: &Event<'_>) {
        let (begin, hash) = &mut *self.0.lock().unwrap();
        let elapsed = begin.map(|begin| now - begin).unwrap_or_default();
        let what = match event {
            // Their content is on the wire.
            Event::PacketSent(packet) | Event::PacketReceived(packet) => format!(
                "{} {:?} {} {} {:?} {:?}",
                packet.path,
                packet.packet_type,
                packet.packet_number,
                packet.size,
                packet.destination,
                packet.source
            ),
            other => format!("{other:?}"),
        };
        hash.add(elapsed.as_nanos() as u64);
        hash.add_bytes(what.as_bytes());
    }
}

/// A line of the record.
fn line(number: u64, runner: &mut TestRunner) -> String {
    let operations = proptest::collection::vec((operation(), 0..400u32), 5..40);
    let operations = operations.new_tree(runner).unwrap().current();
    let mut drawn = draw(number, false, Sides::Apart);
    let log = Log::default();
    drawn.setup = drawn.setup.transport(|transport| {
        transport.qlog = Some(Arc::new(log.clone()));
    });
    let run = Run::of(drawn, false, Sides::Apart, |pair| pair.network.record());
    let Some(mut run) = run else {
        return format!("{number}: no handshake\n");
    };
    run.record = Some(Hash::default());
    run.run(&operations);
    let mut sides = run.record.unwrap_or_default();
    let mut events = 0;
    for side in SIDES {
        for event in run.pair.events(side) {
            sides.add_bytes(format!("{event:?}").as_bytes());
            events += 1;
        }
    }
    let wire = run.pair.network.recorded().unwrap_or_default();
    let (wire, sides, log) = (wire.value(), sides.value(), log.0.lock().unwrap().1.value());
    format!("{number}: {events} events, wire {wire:016x}, log {log:016x}, sides {sides:016x}\n")
}

#[test]
fn runs_are_as_recorded() {
    let mut runner = TestRunner::new(ProptestConfig {
        rng_seed: RngSeed::Fixed(0x7ec0),
        ..ProptestConfig::default()
    });
    let mut now = String::from(
        "Events of both sides; hashes of all packets sent, of the logs, and of statistics and events of both sides.\n",
    );
    for number in 0..RUNS {
        now += &line(number, &mut runner);
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/operations/recorded.txt");
    let compared = record::compare(file, &now);
    compared.unwrap_or_else(|changes| panic!("{changes}"));
}
