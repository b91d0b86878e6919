//! What schedulers hear of streams.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mpquic_core::sched::{
    DataSelection, Decision, Needs, Scheduler, SchedulerEvent, SchedulerFactory, View, factory,
};
use mpquic_core::{Dir, PathId, StreamId};
use mpquic_sim::{LinkConfig, Pair, Setup, Side, Topology};

const MS: Duration = Duration::from_millis(1);

type Heard = Arc<Mutex<Vec<SchedulerEvent>>>;

/// Writes down what it hears of streams.
#[derive(Debug)]
struct Listener(Heard);

impl Scheduler for Listener {
    fn select(&mut self, _: &View<'_>) -> Decision {
        Decision::send(PathId::ZERO)
    }

    fn on_event(&mut self, event: &SchedulerEvent, _: &View<'_>) {
        if matches!(
            event,
            SchedulerEvent::StreamOpened(_)
                | SchedulerEvent::StreamSizeKnown(..)
                | SchedulerEvent::StreamFinished(_)
        ) {
            self.0.lock().unwrap().push(event.clone());
        }
    }

    fn name(&self) -> &'static str {
        "listener"
    }
}

fn listener() -> (Heard, Arc<dyn SchedulerFactory>) {
    let heard = Heard::default();
    let shared = heard.clone();
    let make = factory("listener", move || Box::new(Listener(shared.clone())));
    (heard, make)
}

/// A connected pair, with what the client's and the server's scheduler heard.
fn pair() -> (Pair, [Heard; 2]) {
    let topology = Topology::new().path("only", LinkConfig::new(10.0, 5 * MS));
    let ((client, for_client), (server, for_server)) = (listener(), listener());
    let mut setup = Setup::new();
    setup.client.scheduler = for_client;
    setup.server.scheduler = for_server;
    (Pair::connected(&topology, setup), [client, server])
}

fn take(heard: &Heard) -> Vec<SchedulerEvent> {
    std::mem::take(&mut *heard.lock().unwrap())
}

fn opened(id: StreamId) -> SchedulerEvent {
    SchedulerEvent::StreamOpened(id)
}

fn finished(id: StreamId) -> SchedulerEvent {
    SchedulerEvent::StreamFinished(id)
}

/// A path, and how long its acknowledgements take to come back over another one.
type Seen = (PathId, Option<Duration>);

/// Writes down what it sees of the way back of acknowledgements.
#[derive(Debug)]
struct Watcher(Arc<Mutex<Vec<Seen>>>);

impl Scheduler for Watcher {
    fn select(&mut self, view: &View<'_>) -> Decision {
        let delays = view.paths.iter().map(|path| (path.id, path.return_delay));
        *self.0.lock().unwrap() = delays.collect();
        let free = view.paths.iter().find(|path| path.can_send());
        free.map_or(Decision::Blocked, |path| Decision::send(path.id))
    }

    fn name(&self) -> &'static str {
        "watcher"
    }
}

/// RFC 10069 section 5.4: the peer of a long path acknowledges it on a short one, and the scheduler
/// knows how much of the round trip that takes.
#[test]
fn a_scheduler_sees_how_long_acknowledgements_take_over_another_path() {
    let topology = Topology::new()
        .path("long", LinkConfig::new(10.0, 300 * MS))
        .path("short", LinkConfig::new(10.0, 25 * MS));
    let seen = Arc::<Mutex<Vec<_>>>::default();
    let shared = Arc::clone(&seen);
    let mut setup = Setup::new();
    setup.server.scheduler = factory("watcher", move || Box::new(Watcher(shared.clone())));
    let mut pair = Pair::connected(&topology, setup);
    pair.open_all_paths();
    pair.send(Side::Server, 3_000_000);
    pair.drive(1500 * MS);
    let seen = seen.lock().unwrap();
    let [(PathId::ZERO, Some(delay)), (PathId(1), None)] = seen[..] else {
        panic!("{seen:?}");
    };
    assert!(delay >= 25 * MS && delay < 60 * MS, "{delay:?}");
}

#[test]
fn a_stream_is_opened_gets_its_size_and_is_acknowledged() {
    let (mut pair, [client, server]) = pair();
    let id = pair.client().streams().open(Dir::Bi).unwrap();
    pair.client().send_stream(id).write(b"one").unwrap();
    pair.drive(50 * MS);
    assert_eq!(take(&client), [opened(id)]);
    pair.client().send_stream(id).write(b"two").unwrap();
    pair.client().send_stream(id).finish().unwrap();
    pair.drive(4 * MS);
    assert_eq!(take(&client), [SchedulerEvent::StreamSizeKnown(id, 6)]);
    pair.drive(50 * MS);
    assert_eq!(take(&client), [finished(id)]);
    take(&server);
    let id = pair.send(Side::Client, 1000).unwrap();
    pair.drive(50 * MS);
    let size = SchedulerEvent::StreamSizeKnown(id, 1000);
    assert_eq!(take(&client), [opened(id), size, finished(id)]);
    // The other side has nothing to send on it.
    assert_eq!(take(&server), []);
}

#[test]
fn an_announced_size_is_known_at_once_and_the_end_corrects_it() {
    let (mut pair, [client, _]) = pair();
    let id = pair.client().streams().open(Dir::Bi).unwrap();
    pair.client().send_stream(id).set_expected_size(9).unwrap();
    pair.client().send_stream(id).write(b"one").unwrap();
    pair.drive(50 * MS);
    let size = |size| SchedulerEvent::StreamSizeKnown(id, size);
    assert_eq!(take(&client), [opened(id), size(9)]);
    // As announced: nothing new.
    pair.client().send_stream(id).set_expected_size(9).unwrap();
    pair.client().send_stream(id).write(b"two").unwrap();
    pair.drive(50 * MS);
    assert_eq!(take(&client), []);
    pair.client().send_stream(id).finish().unwrap();
    pair.drive(50 * MS);
    assert_eq!(take(&client), [size(6), finished(id)]);
    let closed = pair.client().send_stream(id).set_expected_size(9);
    assert!(closed.is_err());
}

#[test]
fn both_sides_may_send_on_a_bidirectional_stream() {
    let (mut pair, [client, server]) = pair();
    let ids = [(); 2].map(|()| pair.client().streams().open(Dir::Bi).unwrap());
    // The second one opens the first one with it.
    pair.client()
        .send_stream(ids[1])
        .write(b"question")
        .unwrap();
    pair.drive(50 * MS);
    assert_eq!(take(&client), ids.map(opened));
    assert_eq!(take(&server), [], "nobody there can send on them yet");
    assert_eq!(pair.server().streams().accept(Dir::Bi), Some(ids[0]));
    pair.server().send_stream(ids[1]).finish().unwrap();
    pair.drive(50 * MS);
    let size = SchedulerEvent::StreamSizeKnown(ids[1], 0);
    let [first, second] = ids.map(opened);
    assert_eq!(take(&server), [first, second, size, finished(ids[1])]);
    assert_eq!(take(&client), []);
}

#[test]
fn a_reset_by_either_side_ends_a_stream() {
    let (mut pair, [client, _]) = pair();
    let ids = [(); 3].map(|()| pair.client().streams().open(Dir::Bi).unwrap());
    for id in ids {
        pair.client().send_stream(id).write(&[7; 5000]).unwrap();
    }
    pair.client().send_stream(ids[2]).finish().unwrap();
    pair.drive(7 * MS);
    take(&client);
    pair.client()
        .send_stream(ids[0])
        .reset(1u32.into())
        .unwrap();
    pair.drive(MS);
    // At once, and only once.
    assert_eq!(take(&client), [finished(ids[0])]);
    pair.drive(MS);
    pair.server().recv_stream(ids[1]).stop(2u32.into()).unwrap();
    pair.drive(50 * MS);
    assert_eq!(take(&client), [finished(ids[1]), finished(ids[2])]);
}

#[test]
fn a_stream_cut_short_has_another_size() {
    let (mut pair, [client, _]) = pair();
    let id = pair.client().streams().open(Dir::Bi).unwrap();
    pair.client().send_stream(id).write(&[7; 5000]).unwrap();
    pair.client().send_stream(id).finish().unwrap();
    let code = 1u32.into();
    pair.client().send_stream(id).reset_at(code, 3000).unwrap();
    pair.drive(50 * MS);
    let size = |size| SchedulerEvent::StreamSizeKnown(id, size);
    assert_eq!(
        take(&client),
        [opened(id), size(5000), size(3000), finished(id)]
    );
}

/// Notes the numbers of paths, streams and unacknowledged ranges in its view; asks for choices
/// only.
#[derive(Debug)]
struct Chooser(Arc<Mutex<Vec<[usize; 3]>>>);

impl Scheduler for Chooser {
    fn select(&mut self, view: &View<'_>) -> Decision {
        let shown = [view.paths.len(), view.streams.len(), view.unacked().len()];
        self.0.lock().unwrap().push(shown);
        Decision::send(PathId::ZERO)
    }

    fn needs(&self) -> Needs {
        let needs = Needs::default().with_streams().with_unacked();
        needs.with_choices_only()
    }

    fn name(&self) -> &'static str {
        "chooser"
    }
}

#[test]
fn a_scheduler_of_choices_sees_nothing_with_a_single_path() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let shared = seen.clone();
    let link = || LinkConfig::new(10.0, 50 * MS);
    let topology = Topology::new().path("one", link()).path("other", link());
    let mut setup = Setup::new();
    setup.client.scheduler = factory("chooser", move || Box::new(Chooser(shared.clone())));
    let mut pair = Pair::connected(&topology, setup);
    pair.transfer(Side::Client, 100_000, 10_000 * MS);
    let shown = std::mem::take(&mut *seen.lock().unwrap());
    assert!(shown.len() > 5, "{shown:?}");
    assert!(shown.iter().all(|shown| *shown == [1, 0, 0]), "{shown:?}");
    pair.open_all_paths();
    pair.transfer(Side::Client, 300_000, 10_000 * MS);
    let shown = std::mem::take(&mut *seen.lock().unwrap());
    assert!(shown.contains(&[2, 1, 64]), "{shown:?}");
    // No new data to send, and data that may be repeated.
    assert!(
        shown
            .iter()
            .any(|[_, streams, unacked]| *streams == 0 && *unacked > 0),
        "{shown:?}"
    );
}

/// The events about packets that a scheduler heard, in their order.
#[derive(Debug)]
struct Counter {
    heard: Heard,
    asks: bool,
}

impl Scheduler for Counter {
    fn select(&mut self, _: &View<'_>) -> Decision {
        Decision::send(PathId::ZERO)
    }

    fn on_event(&mut self, event: &SchedulerEvent, _: &View<'_>) {
        if matches!(
            event,
            SchedulerEvent::Sent(_) | SchedulerEvent::Acked(..) | SchedulerEvent::RttUpdated(_)
        ) {
            self.heard.lock().unwrap().push(event.clone());
        }
    }

    fn needs(&self) -> Needs {
        match self.asks {
            true => Needs::default().with_packet_events(),
            false => Needs::default(),
        }
    }

    fn name(&self) -> &'static str {
        "counter"
    }
}

#[test]
fn a_scheduler_that_asks_hears_of_packets_and_of_each_round_trip_time() {
    for asks in [true, false] {
        let heard = Heard::default();
        let shared = heard.clone();
        let mut setup = Setup::new();
        setup.client.scheduler = factory("counter", move || {
            Box::new(Counter {
                heard: shared.clone(),
                asks,
            })
        });
        let topology = Topology::new().path("only", LinkConfig::new(10.0, 5 * MS));
        let mut pair = Pair::connected(&topology, setup);
        pair.drive(100 * MS);
        take(&heard);
        pair.send(Side::Client, 1000).unwrap();
        pair.drive(100 * MS);
        let heard = take(&heard);
        let hears = |wanted: fn(&SchedulerEvent) -> bool| heard.iter().any(wanted);
        let kinds = [
            hears(|event| matches!(event, SchedulerEvent::Sent(_))),
            hears(|event| matches!(event, SchedulerEvent::Acked(_, Some(_)))),
            hears(|event| *event == SchedulerEvent::RttUpdated(PathId::ZERO)),
        ];
        assert_eq!(kinds, [asks; 3], "{heard:?}");
    }
}

/// Sends everything on path 0, and copies on path 1.
#[derive(Debug)]
struct Copier;

impl Scheduler for Copier {
    fn select(&mut self, _: &View<'_>) -> Decision {
        Decision::Duplicate {
            path: PathId::ZERO,
            copies: [PathId(1)].into_iter().collect(),
            data: DataSelection::Next,
            tag: 0,
        }
    }

    fn name(&self) -> &'static str {
        "copier"
    }
}

/// Copies that wait until a slow path has room are not worth sending once the original arrived.
#[test]
fn copies_of_arrived_data_are_not_sent() {
    const SIZE: u64 = 200_000;
    let topology = Topology::new()
        .path("fast", LinkConfig::new(50.0, 5 * MS))
        .path("slow", LinkConfig::new(50.0, 500 * MS));
    let mut setup = Setup::new();
    setup.client.scheduler = factory("copier", || Box::new(Copier));
    let mut pair = Pair::connected(&topology, setup);
    pair.open_all_paths();
    let sent = |pair: &Pair| {
        let both = pair.counters("slow").into_iter();
        both.map(|link| link.bytes_in).sum::<u64>()
    };
    let before = sent(&pair);
    pair.transfer(Side::Client, SIZE, 10_000 * MS);
    pair.drive(5000 * MS);
    let copied = sent(&pair) - before;
    // A first window, and a part of it until the first acknowledgements.
    assert!((10_000..SIZE / 4).contains(&copied), "{copied}");
}

/// When the scheduler heard of its timer, counted from setting it.
type Rung = Arc<Mutex<Option<Duration>>>;

/// Sets its timer once, at the first thing it hears.
#[derive(Debug)]
struct Sleeper {
    set: Option<Instant>,
    rung: Rung,
}

const NAP: Duration = Duration::from_millis(300);

impl Scheduler for Sleeper {
    fn select(&mut self, _: &View<'_>) -> Decision {
        Decision::send(PathId::ZERO)
    }

    fn on_event(&mut self, event: &SchedulerEvent, view: &View<'_>) {
        let set = *self.set.get_or_insert(view.now);
        if matches!(event, SchedulerEvent::Timer) {
            self.rung.lock().unwrap().get_or_insert(view.now - set);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let has_rung = self.rung.lock().unwrap().is_some();
        self.set.map(|at| at + NAP).filter(|_| !has_rung)
    }

    fn name(&self) -> &'static str {
        "sleeper"
    }
}

/// Also without other work.
#[test]
fn a_schedulers_timer_is_heeded() {
    let rung = Rung::default();
    let shared = rung.clone();
    let mut setup = Setup::new();
    setup.client.scheduler = factory("sleeper", move || {
        Box::new(Sleeper {
            set: None,
            rung: shared.clone(),
        })
    });
    let topology = Topology::new().path("only", LinkConfig::new(10.0, 5 * MS));
    let mut pair = Pair::connected(&topology, setup);
    pair.drive(1000 * MS);
    assert_eq!(*rung.lock().unwrap(), Some(NAP));
}
