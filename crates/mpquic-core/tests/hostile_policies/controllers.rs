//! Hostile controllers.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpquic_core::PathId;
use mpquic_core::congestion::{Acked, CongestionEvent, Controller, ControllerFactory, factory};

use super::{Cost, SECOND, pair, transfer};

/// A controller made of functions of the number of events so far.
#[derive(Clone, Copy)]
struct Hostile {
    events: u64,
    window: fn(u64) -> u64,
    pacing_rate: fn(u64) -> Option<u64>,
    on_ack: fn(u64),
}

impl fmt::Debug for Hostile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hostile")
    }
}

impl Controller for Hostile {
    fn on_path_opened(&mut self, _: PathId, _: Instant, _: u16) {}

    fn on_path_closed(&mut self, _: PathId) {}

    fn on_mtu_update(&mut self, _: PathId, _: u16) {}

    fn on_ack(&mut self, _: PathId, _: &Acked) {
        self.events += 1;
        (self.on_ack)(self.events);
    }

    fn on_congestion_event(&mut self, _: PathId, _: &CongestionEvent) {
        self.events += 1;
    }

    fn window(&self, _: PathId) -> u64 {
        (self.window)(self.events)
    }

    fn slow_start_threshold(&self, _: PathId) -> Option<u64> {
        Some((self.window)(self.events))
    }

    fn pacing_rate(&self, _: PathId) -> Option<u64> {
        (self.pacing_rate)(self.events)
    }

    fn window_after_round(&self, _: PathId, _: &[(PathId, u64)]) -> u64 {
        (self.window)(self.events)
    }

    fn name(&self) -> &'static str {
        "hostile"
    }
}

/// Sane in all that is not said otherwise.
const SANE: Hostile = Hostile {
    events: 0,
    window: |_| 30_000,
    pacing_rate: |_| None,
    on_ack: |_| {},
};

fn of(hostile: Hostile) -> Arc<dyn ControllerFactory> {
    factory("hostile", move || Box::new(hostile))
}

/// With several schedulers, one of them planning with [`Controller::window_after_round`].
fn run(hostile: Hostile, limit: Duration) -> Vec<Cost> {
    let names = ["lrf", "etc", "sttf", "redundant"];
    let run = |name| {
        let scheduler = mpquic_sched::by_name(name).unwrap();
        let mut pair = pair(scheduler, of(hostile), 1);
        let cost = transfer(&mut pair, limit);
        assert!(cost.packets < 2000, "{name}: {cost:?}");
        cost
    };
    names.map(run).into()
}

fn windows(window: fn(u64) -> u64, limit: Duration) -> Vec<Cost> {
    let hostile = Hostile { window, ..SANE };
    run(hostile, limit)
}

fn rates(pacing_rate: fn(u64) -> Option<u64>, limit: Duration) -> Vec<Cost> {
    let hostile = Hostile {
        pacing_rate,
        ..SANE
    };
    run(hostile, limit)
}

#[test]
fn a_window_of_nothing_is_two_datagrams() {
    let costs = windows(|_| 0, 3 * SECOND);
    // Two datagrams in a round trip of 10 ms and two in one of 40 ms are about 300 kB/s.
    for cost in costs {
        assert!(cost.time > SECOND / 10, "{cost:?}");
    }
    windows(|_| 1, 3 * SECOND);
}

#[test]
fn windows_without_end() {
    windows(|_| u64::MAX, 3 * SECOND);
    windows(|_| u64::MAX / 2 + 1, 3 * SECOND);
}

#[test]
fn windows_that_change_with_every_event() {
    windows(
        |events| 100_000u64.checked_shr(events as u32).unwrap_or(0),
        3 * SECOND,
    );
    windows(
        |events| if events % 2 == 0 { 0 } else { u64::MAX },
        3 * SECOND,
    );
    windows(
        |events| events.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        3 * SECOND,
    );
    windows(
        |events| 1u64.checked_shl(events as u32).unwrap_or(u64::MAX),
        3 * SECOND,
    );
}

#[test]
fn pacing_at_no_rate_and_at_any() {
    // At least two datagrams in 100 ms. NaN becomes 0 as well.
    rates(|_| Some(0), 8 * SECOND);
    rates(|_| Some(1), 8 * SECOND);
    rates(|_| Some(u64::MAX), 3 * SECOND);
    rates(|_| Some(u64::MAX / 2), 3 * SECOND);
    rates(
        |events| Some([0, u64::MAX, 1, 1 << 40][events as usize % 4]),
        8 * SECOND,
    );
}

#[test]
fn both_at_once() {
    let hostile = Hostile {
        window: |_| u64::MAX,
        pacing_rate: |_| Some(u64::MAX),
        ..SANE
    };
    run(hostile, 3 * SECOND);
    let hostile = Hostile {
        window: |_| 0,
        pacing_rate: |_| Some(0),
        ..SANE
    };
    run(hostile, 8 * SECOND);
}

#[test]
fn a_panic_anywhere() {
    let hostile = Hostile {
        on_ack: |_| panic!("an acknowledgement"),
        ..SANE
    };
    run(hostile, 3 * SECOND);
    windows(|_| panic!("a window"), 3 * SECOND);
    windows(
        |events| {
            assert!(events < 20, "a later window");
            30_000
        },
        3 * SECOND,
    );
    rates(|_| panic!("a rate"), 3 * SECOND);
}
