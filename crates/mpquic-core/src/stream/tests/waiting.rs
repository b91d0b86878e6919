//! Received data that nobody reads: what it keeps in memory.

use super::*;

/// Gives some bytes of a peer's stream, as a slice of `datagram`.
fn give_slice(
    streams: &mut StreamSet,
    (id, offset): (StreamId, u64),
    datagram: &Bytes,
    length: usize,
) {
    let frame = crate::wire::frame::Stream {
        stream_id: id,
        offset,
        fin: false,
        data: datagram.slice(..length),
    };
    streams
        .on_stream(frame, datagram.len())
        .expect("within the limits");
}

/// Each piece costs dozens of bytes besides its own: a peer that sends single bytes must not make
/// us hold a window full of pieces.
#[test]
fn many_short_pieces_become_few() {
    const BYTES: u64 = 20_000;
    let config = config();
    let mut streams = client(&config);
    let datagram = Bytes::from(vec![7; 1200]);
    for offset in 0..BYTES {
        give_slice(&mut streams, (peer_uni(0), offset), &datagram, 1);
    }
    let (mut chunks, mut bytes) = (0, 0);
    let mut recv = streams.recv_stream(peer_uni(0));
    while let Ok(Some(chunk)) = recv.read_chunk(usize::MAX, true) {
        chunks += 1;
        bytes += chunk.bytes.len() as u64;
    }
    assert_eq!(bytes, BYTES);
    assert!(chunks < 1100, "{chunks} pieces");
}

#[test]
fn unread_bytes_of_many_streams_leave_their_datagrams() {
    const STREAMS: u64 = 50;
    let config = checked(TransportOptions {
        max_concurrent_uni_streams: STREAMS,
        ..options()
    });
    let mut streams = client(&config);
    let datagrams: Vec<_> = (0..STREAMS).map(|_| Bytes::from(vec![7; 1200])).collect();
    for (index, datagram) in (0..).zip(&datagrams) {
        // Half of them are behind a gap.
        give_slice(&mut streams, (peer_uni(index), index % 2), datagram, 200);
    }
    let kept = || datagrams.iter().filter(|data| !data.is_unique()).count();
    streams.detach_waiting();
    assert_eq!(kept(), STREAMS as usize, "none of them has waited yet");
    streams.detach_waiting();
    assert_eq!(kept(), 0);
    let mut first = streams.recv_stream(peer_uni(0));
    let chunk = first.read_chunk(10, true).expect("bytes");
    assert_eq!(chunk.expect("no end").bytes[..], [7; 10]);
}

/// A few bytes behind a gap may wait for long, so they are copied at once.
#[test]
fn a_few_bytes_behind_a_gap_leave_their_datagram() {
    let mut streams = client(&config());
    let datagram = Bytes::from(vec![7; 1200]);
    give_slice(&mut streams, (peer_uni(0), 1), &datagram, 100);
    assert!(datagram.is_unique());
    give_slice(&mut streams, (peer_uni(0), 0), &datagram, 1);
    assert!(!datagram.is_unique());
}
