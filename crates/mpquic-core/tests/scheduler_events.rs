//! What schedulers hear of streams.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mpquic_core::sched::{Decision, Scheduler, SchedulerEvent, SchedulerFactory, View, factory};
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
    assert_eq!(take(&server), ids.map(opened));
    pair.server().send_stream(ids[1]).finish().unwrap();
    pair.drive(50 * MS);
    let size = SchedulerEvent::StreamSizeKnown(ids[1], 0);
    assert_eq!(take(&server), [size, finished(ids[1])]);
    assert_eq!(take(&client), []);
}

#[test]
fn a_reset_ends_a_stream_whoever_asks_for_it() {
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
