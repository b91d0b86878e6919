//! Streams bound to a path, and streams with a deadline.

use std::time::Instant;

use quinn_proto::WriteError;

use super::*;
use crate::ids::PathId;
use crate::recovery::testing::start;

const SECOND: Duration = Duration::from_secs(1);
const PATH: PathId = PathId(3);

/// A packet with what is bound to the path.
fn bound_packet(streams: &mut StreamSet) -> Option<Packet> {
    packet(1200, |writer| streams.write_bound(writer, PATH))
}

fn paths(streams: &StreamSet) -> Vec<PathId> {
    streams.bound_paths().collect()
}

fn unsent(streams: &StreamSet) -> u64 {
    streams.queue_view().unsent
}

#[test]
fn bound_data_is_sent_nowhere_else_lost_or_not() {
    let (mut client, mut server) = pair(&config());
    let [bound, free] = [(); 2].map(|()| client.open(Dir::Uni).expect("credit"));
    for id in [bound, free] {
        client
            .send_stream(id)
            .write(&bytes_of(0..500))
            .expect("room");
        client.send_stream(id).finish().expect("open");
    }
    assert!(client.set_path(bound, Some(PATH)));
    assert_eq!(unsent(&client), 500, "schedulers see what is theirs");
    let packet = next_packet(&mut client, 1200).expect("the other");
    packet.give_to(&mut server).expect("right");
    packet.report(&mut client, Fate::Acked);
    assert!(next_packet(&mut client, 1200).is_none());
    assert_eq!(paths(&client), [PATH]);
    bound_packet(&mut client)
        .expect("it")
        .report(&mut client, Fate::Lost);
    assert_eq!(client.queue_view().retransmit, 0);
    assert!(next_packet(&mut client, 1200).is_none(), "not even then");
    // The path is gone.
    client.release(PATH);
    assert_eq!(client.queue_view().retransmit, 500);
    assert_eq!(paths(&client), []);
    let packet = next_packet(&mut client, 1200).expect("the rest");
    packet.report(&mut client, Fate::Acked);
    assert!(client.is_idle());
    assert!(!client.set_path(bound, None), "it is closed");
}

/// A stream that moves to and fro, is reset and dropped, leaves no counters behind.
#[test]
fn bound_streams_are_counted_until_released() {
    let (mut client, _) = pair(&config());
    let start = start();
    for turn in 0..20_u32 {
        let id = client.open(Dir::Uni).expect("credit");
        client
            .send_stream(id)
            .write(&bytes_of(0..100))
            .expect("room");
        client.set_path(id, Some(PATH));
        client.send_stream(id).set_redundant(true).expect("open");
        if turn % 2 == 0 {
            client.set_path(id, None);
        }
        let deadline = start + turn * SECOND;
        client
            .send_stream(id)
            .set_deadline(deadline, code(1))
            .expect("open");
        client.set_path(id, Some(PATH));
        client
            .send_stream(id)
            .set_deadline(deadline + SECOND, code(2))
            .expect("open");
        client.send_stream(id).reset(code(3)).expect("open");
        let packet = next_packet(&mut client, 1200).expect("the reset");
        packet.report(&mut client, Fate::Acked);
    }
    assert!(client.is_idle() && !client.has_redundant());
    assert_eq!((unsent(&client), client.next_timeout()), (0, None));
}

/// A client with a stream of 500 bytes and a deadline in a second.
fn with_deadline(finished: bool) -> (StreamSet, StreamId, Instant) {
    let mut client = client(&config());
    let id = client.open(Dir::Uni).expect("credit");
    client
        .send_stream(id)
        .write(&bytes_of(0..500))
        .expect("room");
    if finished {
        client.send_stream(id).finish().expect("open");
    }
    let deadline = start() + SECOND;
    client
        .send_stream(id)
        .set_deadline(deadline, code(9))
        .expect("open");
    assert_eq!(client.next_timeout(), Some(deadline));
    (client, id, deadline)
}

fn is_reset(frames: &[Frame], code: u64) -> bool {
    let [Frame::ResetStream(reset)] = frames else {
        return false;
    };
    reset.error_code == code
}

#[test]
fn unsent_streams_are_reset_at_their_deadline() {
    let (mut client, id, deadline) = with_deadline(true);
    client.on_timeout(deadline - Duration::from_millis(1));
    assert_eq!((unsent(&client), client.expired()), (500, 0));
    client.on_timeout(deadline);
    assert_eq!((unsent(&client), client.expired()), (0, 1));
    assert!(is_reset(&drain(&mut client), 9));
    assert_eq!(client.next_timeout(), None);
    assert!(client.send_stream(id).reset(code(1)).is_err(), "it was");
}

#[test]
fn a_writer_that_is_too_slow_is_told() {
    let (mut client, id, deadline) = with_deadline(false);
    drain(&mut client);
    client.on_timeout(deadline);
    assert_eq!(events(&mut client), [StreamEvent::Expired { id }]);
    let write = client.send_stream(id).write(b"more");
    assert_eq!(write, Err(WriteError::ClosedStream));
    assert!(client.send_stream(id).is_expired());
    assert!(is_reset(&drain(&mut client), 9));
}

/// Everything is under way, and may well arrive in time. What is lost of it is late for certain.
#[test]
fn sent_streams_are_reset_only_after_a_late_loss() {
    for fate in [Fate::Acked, Fate::Lost] {
        let (mut client, id, deadline) = with_deadline(true);
        let packet = next_packet(&mut client, 1200).expect("all of it");
        client.on_timeout(deadline);
        assert!(next_packet(&mut client, 1200).is_none(), "no reset yet");
        packet.report(&mut client, fate);
        let is_lost = fate == Fate::Lost;
        assert_eq!(client.expired(), u64::from(is_lost));
        assert_eq!(is_reset(&drain(&mut client), 9), is_lost);
        let is_whole = events(&mut client).contains(&StreamEvent::Finished { id });
        assert_eq!(is_whole, !is_lost);
    }
}
