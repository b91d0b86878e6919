//! Hostile schedulers.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpquic_core::sched::{
    DataSelection, Decision, Needs, PathSet, Scheduler, SchedulerEvent, SchedulerFactory, View,
    factory,
};
use mpquic_core::{Dir, PathId, PathStatus, ReadStreamError, Side, StreamId, TransportErrorCode};
use mpquic_sim::{LinkConfig, Pair, Setup, Topology};

use super::{Cost, MS, SECOND, SIZE, pair, transfer};

/// Longer than any test.
const YEAR: Duration = Duration::from_secs(365 * 86_400);

const BACKWARDS: Range<u64> = Range { start: 10, end: 5 };

/// A scheduler made of a function.
struct Hostile<F> {
    select: F,
    calls: u64,
    timeout: Option<fn(Instant) -> Instant>,
    now: Option<Instant>,
    on_event: fn(&SchedulerEvent),
}

impl<F> fmt::Debug for Hostile<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hostile")
    }
}

impl<F: FnMut(&View<'_>, u64) -> Decision + Send> Scheduler for Hostile<F> {
    fn select(&mut self, view: &View<'_>) -> Decision {
        self.calls += 1;
        self.now = Some(view.now);
        (self.select)(view, self.calls)
    }

    fn on_event(&mut self, event: &SchedulerEvent, view: &View<'_>) {
        self.now = Some(view.now);
        (self.on_event)(event);
    }

    fn needs(&self) -> Needs {
        Needs::default()
            .with_streams()
            .with_unacked()
            .with_packet_events()
            .with_local_queue()
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.timeout
            .zip(self.now)
            .map(|(timeout, now)| timeout(now))
    }

    fn name(&self) -> &'static str {
        "hostile"
    }
}

type Select = fn(&View<'_>, u64) -> Decision;

fn of(select: Select) -> Arc<dyn SchedulerFactory> {
    with(select, None, |_| {})
}

fn with(
    select: Select,
    timeout: Option<fn(Instant) -> Instant>,
    on_event: fn(&SchedulerEvent),
) -> Arc<dyn SchedulerFactory> {
    factory("hostile", move || {
        Box::new(Hostile {
            select,
            calls: 0,
            timeout,
            now: None,
            on_event,
        })
    })
}

fn run(scheduler: Arc<dyn SchedulerFactory>, limit: Duration) -> Cost {
    let mut pair = pair(scheduler, mpquic_cc::default(), 1);
    transfer(&mut pair, limit)
}

/// The transfer is hardly slower than with a sane scheduler.
fn assert_harmless(select: Select) {
    let cost = run(of(select), SECOND);
    assert!(cost.packets < 400, "{cost:?}");
}

/// One datagram at a time.
fn assert_slow(select: Select) {
    let cost = run(of(select), 100 * SECOND);
    assert!(cost.packets < 600, "{cost:?}");
}

fn wait(on: u32, until: Option<Instant>) -> Decision {
    let on = PathId(on);
    Decision::Wait { on, until }
}

fn send(path: PathId, data: DataSelection, max_bytes: u64) -> Decision {
    Decision::Send {
        path,
        data,
        max_bytes,
        tag: u64::MAX,
    }
}

#[test]
fn paths_that_do_not_exist() {
    assert_harmless(|_, _| Decision::send(PathId(77)));
    assert_harmless(|_, call| Decision::send(PathId(call as u32)));
}

#[test]
fn a_path_that_was_closed() {
    let scheduler = of(|_, _| Decision::send(PathId(1)));
    let mut pair = pair(scheduler, mpquic_cc::default(), 1);
    let now = pair.now();
    let code = TransportErrorCode::APPLICATION_ABANDON_PATH;
    pair.client().close_path(now, PathId(1), code).unwrap();
    let cost = transfer(&mut pair, SECOND);
    assert!(cost.packets < 400, "{cost:?}");
}

#[test]
fn a_backup_nobody_needs_carries_nothing() {
    let scheduler = of(|_, _| Decision::send(PathId(1)));
    let mut pair = pair(scheduler, mpquic_cc::default(), 1);
    pair.client()
        .path_mut(PathId(1))
        .unwrap()
        .set_status(PathStatus::Backup);
    pair.drive(SECOND);
    let before = pair.client().path_stats(PathId(1)).unwrap().bytes_sent;
    transfer(&mut pair, SECOND);
    let after = pair.client().path_stats(PathId(1)).unwrap().bytes_sent;
    // Acknowledgements of the peer's packets there; the peer was not told to avoid the path.
    assert!(after - before < SIZE / 4, "{}", after - before);
}

#[test]
fn waiting_for_ever() {
    assert_slow(|_, _| Decision::Blocked);
    assert_slow(|_, _| wait(0, None));
    assert_slow(|_, _| wait(1, None));
    assert_slow(|_, _| wait(77, None));
    assert_slow(|view, _| wait(0, view.now.checked_sub(SECOND)));
}

#[test]
fn waiting_for_times_that_never_come() {
    assert_slow(|view, _| wait(0, Some(view.now + YEAR)));
    assert_slow(|view, _| wait(77, Some(view.now + YEAR)));
    assert_slow(|view, _| wait(77, Some(view.now + Duration::from_nanos(1))));
    assert_slow(|view, _| wait(77, Some(view.now + 300 * MS)));
}

/// A dead path keeps its packets in flight.
#[test]
fn waiting_for_a_dead_path() {
    for decision in [wait(1, None), wait(1, None), Decision::Blocked] {
        let until_dead = decision.clone();
        let scheduler = factory("hostile", move || {
            let decision = until_dead.clone();
            Box::new(Hostile {
                // Packets are in flight on the path when it dies.
                select: move |_: &View<'_>, call| match call {
                    0..40 => Decision::send(PathId(1)),
                    _ => decision.clone(),
                },
                calls: 0,
                timeout: None,
                now: None,
                on_event: |_| {},
            })
        });
        let mut pair = pair(scheduler, mpquic_cc::default(), 1);
        pair.send(Side::Client, SIZE);
        pair.drive(5 * MS);
        pair.set_outage("slow", true);
        let cost = transfer(&mut pair, 100 * SECOND);
        assert!(cost.packets < 900, "{decision:?}: {cost:?}");
    }
}

#[test]
fn budgets_of_everything_and_nothing() {
    assert_harmless(|_, _| Decision::send_up_to(PathId(0), u64::MAX));
    assert_harmless(|_, _| Decision::send_up_to(PathId(1), u64::MAX));
    assert_harmless(|view, _| Decision::send_up_to(view.paths[0].id, 0));
    assert_harmless(|_, _| Decision::send_up_to(PathId(0), 1));
}

fn stream(index: u64) -> StreamId {
    StreamId::new(Side::Client, Dir::Uni, index)
}

#[test]
fn data_that_does_not_exist() {
    assert_harmless(|view, call| {
        let path = view.paths[0].id;
        let id = match call % 3 {
            0 => StreamId::new(Side::Server, Dir::Bi, view.random >> 3),
            1 => stream(call),
            _ => stream((1 << 60) - 1),
        };
        let data = match call % 5 {
            0 => DataSelection::Stream(id),
            1 => DataSelection::StreamAt {
                id,
                offset: view.random,
            },
            2 => DataSelection::StreamAt {
                id: stream(0),
                offset: u64::MAX,
            },
            3 => DataSelection::Range {
                id: stream(0),
                offsets: u64::MAX..view.random,
            },
            _ => DataSelection::Range {
                id: stream(0),
                offsets: 0..u64::MAX,
            },
        };
        send(path, data, view.random)
    });
}

#[test]
fn reinjection_of_acknowledged_data() {
    assert_harmless(|view, call| Decision::Reinject {
        path: PathId(call as u32 % 3),
        stream: stream(call % 2),
        offsets: [0..0, BACKWARDS, SIZE..u64::MAX, view.random..u64::MAX][call as usize % 4]
            .clone(),
        tag: 1,
    });
}

/// The bytes a scheduler sends again are a bounded multiple of those it sends first.
fn assert_bounded_repetition(select: Select) {
    let cost = run(of(select), 20 * SECOND);
    assert!(cost.bytes < 25 * 2 * SIZE, "{cost:?}");
    // Not even when nothing is left to say.
    let scheduler = of(select);
    let mut pair = pair(scheduler, mpquic_cc::default(), 1);
    transfer(&mut pair, 20 * SECOND);
    // Until the last acknowledgements came.
    pair.drive(SECOND);
    let before = super::traffic(&pair);
    pair.drive(20 * SECOND);
    let after = super::traffic(&pair);
    assert!(after[0] - before[0] < 100, "{before:?} {after:?}");
}

#[test]
fn reinjecting_the_same_for_ever() {
    assert_bounded_repetition(|view, _| match view.unacked().first() {
        Some(range) => Decision::Reinject {
            path: view.paths[view.random as usize % view.paths.len()].id,
            stream: range.stream,
            offsets: range.offsets.clone(),
            tag: 0,
        },
        None => Decision::send(PathId(0)),
    });
    assert_bounded_repetition(|view, _| {
        let id = view.unacked().first().map(|range| range.stream);
        let data = id.map_or(DataSelection::Next, |id| DataSelection::StreamAt {
            id,
            offset: 0,
        });
        send(PathId(0), data, u64::MAX)
    });
}

/// Repetitions are charged for any window that they would fill.
#[test]
fn repetitions_are_charged() {
    const SIZE: u64 = 100_000;
    let scheduler = of(|view, _| match view.unacked().first() {
        Some(range) => Decision::Reinject {
            path: PathId(0),
            stream: range.stream,
            offsets: range.offsets.clone(),
            tag: 0,
        },
        None => Decision::send(PathId(0)),
    });
    let setup = Setup::with_policies(scheduler, mpquic_cc::default());
    let topology = Topology::new().path("long", LinkConfig::new(50.0, 50 * MS));
    let mut pair = Pair::connected(&topology, setup);
    pair.transfer(Side::Client, SIZE, 20 * SECOND);
    let sent = pair.client().stats().bytes_sent;
    // 64 KiB are free, and each new byte pays for 16.
    assert!(sent < 18 * SIZE + (1 << 16), "{sent}");
}

#[test]
fn duplicating_everything_everywhere() {
    assert_bounded_repetition(|view, call| {
        let mut copies: PathSet = (0..1000).map(PathId).collect();
        copies.extend([PathId(0), PathId(1), PathId(1), PathId(u32::MAX)]);
        let data = match view.unacked().last() {
            Some(range) if call % 2 == 0 => DataSelection::Range {
                id: range.stream,
                offsets: 0..u64::MAX,
            },
            _ => DataSelection::Next,
        };
        Decision::Duplicate {
            path: view.paths[call as usize % view.paths.len()].id,
            copies,
            data,
            tag: 0,
        }
    });
}

/// Control frames and DATAGRAMs are not left aside for ever.
#[test]
fn preferring_one_stream_to_all_else() {
    let scheduler = of(|view, _| {
        let data = view.streams.first().map(|first| first.id);
        let data = data.map_or(DataSelection::Next, DataSelection::Stream);
        let path = view.sendable().next().map_or(PathId(0), |path| path.id);
        send(path, data, u64::MAX)
    });
    let mut pair = pair(scheduler, mpquic_cc::default(), 1);
    pair.send(Side::Client, 1 << 40);
    pair.drive(100 * MS);
    let id = pair.client().streams().open(Dir::Bi).unwrap();
    pair.client().send_stream(id).reset(5u32.into()).unwrap();
    pair.client()
        .datagrams()
        .send(b"datagram"[..].into())
        .unwrap();
    pair.run_until(SECOND, |pair| {
        let is_reset = pair.server().recv_stream(id).read_chunk(1, true)
            == Err(ReadStreamError::Reset(5u32.into()));
        let server = pair.hosted(Side::Server).unwrap();
        is_reset && !server.application.datagrams().is_empty()
    })
    .unwrap();
}

#[test]
fn timers_that_are_always_due() {
    let now = |now| now;
    let past = |now: Instant| now.checked_sub(SECOND).unwrap_or(now);
    let never = |now| now + YEAR;
    for timeout in [now, past, never] {
        let select: Select = |_, _| Decision::send(PathId(0));
        let cost = run(with(select, Some(timeout), |_| {}), SECOND);
        assert!(cost.packets < 400, "{cost:?}");
        // Nor while nothing happens.
        let scheduler = with(|_, _| Decision::Blocked, Some(timeout), |_| {});
        let mut pair = pair(scheduler, mpquic_cc::default(), 1);
        let mut events = 0;
        let idle = pair.run_until(SECOND, |_| {
            events += 1;
            false
        });
        assert!(idle.is_err() && events < 5000, "{events} events");
    }
}

/// Anything at all, from one seed to the next.
fn anything(view: &View<'_>, call: u64) -> Decision {
    let random = view.random;
    let path = PathId((random >> 8) as u32 % 4);
    let range = view.unacked().get(random as usize % 7);
    let offsets = range.map_or(0..random, |range| range.offsets.clone());
    let id = range.map_or(stream(random % 3), |range| range.stream);
    let data = match (random >> 16) % 7 {
        0 => DataSelection::Stream(id),
        1 => DataSelection::StreamAt {
            id,
            offset: random % SIZE,
        },
        2 => DataSelection::Range {
            id,
            offsets: offsets.clone(),
        },
        3 => DataSelection::Datagram,
        4 => DataSelection::DatagramsBehind(random >> 50),
        _ => DataSelection::Next,
    };
    let later = Duration::from_micros(random >> 40);
    match (random >> 24) % 7 {
        0 => send(path, data, random >> 48),
        1 => Decision::Duplicate {
            path,
            copies: (0..5).map(PathId).collect(),
            data,
            tag: call,
        },
        2 => Decision::Reinject {
            path,
            stream: id,
            offsets,
            tag: call,
        },
        3 => wait((random >> 8) as u32 % 4, Some(view.now + later)),
        4 => wait((random >> 8) as u32 % 4, view.now.checked_sub(later)),
        5 => Decision::Blocked,
        _ => send(path, data, u64::MAX),
    }
}

#[test]
fn anything_at_random() {
    for seed in 1..=20 {
        let mut pair = pair(of(anything), mpquic_cc::default(), seed);
        let cost = transfer(&mut pair, 20 * SECOND);
        assert!(cost.bytes < 25 * 2 * SIZE, "{cost:?}");
    }
}

#[test]
fn a_panic_in_a_decision() {
    assert_harmless(|_, _| panic!("at once"));
    assert_harmless(|_, call| {
        assert!(call < 20, "later");
        Decision::send(PathId(1))
    });
}

#[test]
fn a_panic_at_an_event_or_timer() {
    let select: Select = |_, _| Decision::send(PathId(1));
    let cost = run(with(select, None, |_| panic!("any event")), SECOND);
    assert!(cost.packets < 400, "{cost:?}");
    let on_lost: fn(&SchedulerEvent) = |event| {
        assert!(!matches!(event, SchedulerEvent::Acked(..)), "an ack");
    };
    let cost = run(with(select, None, on_lost), SECOND);
    assert!(cost.packets < 400, "{cost:?}");
    let cost = run(with(select, Some(|_| panic!("a timer")), |_| {}), SECOND);
    assert!(cost.packets < 400, "{cost:?}");
}
