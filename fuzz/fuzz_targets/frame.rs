#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use mpquic_core::unstable_wire::frame::{Ack, Frame, FrameIter, PacketType, PathAck};

fuzz_target!(|payload: &[u8]| {
    let payload = Bytes::copy_from_slice(payload);
    // Ends, and knows fewer frames.
    FrameIter::new(payload.clone(), false).for_each(drop);

    let frames: Vec<Frame> = FrameIter::new(payload, true)
        .map_while(Result::ok)
        .collect();
    let mut packet = Vec::new();
    for frame in &frames {
        let start = packet.len();
        frame.encode(&mut packet);
        assert_eq!(packet.len() - start, frame.size());
        assert!(frame.is_allowed_in(PacketType::OneRtt));
        if let Frame::Ack(ack) | Frame::PathAck(PathAck { ack, .. }) = frame {
            check_ranges(ack);
        }
    }
    if !frames.is_empty() {
        let again: Result<Vec<Frame>, _> = FrameIter::new(packet.into(), true).collect();
        assert_eq!(again, Ok(frames));
    }
});

/// Ranges descend from the largest number and do not touch.
fn check_ranges(ack: &Ack) {
    let mut above = None;
    for range in ack.ranges() {
        let (start, end) = range.into_inner();
        assert!(start <= end);
        match above {
            Some(above) => assert!(end + 1 < above),
            None => assert_eq!(end, ack.largest_acknowledged),
        }
        above = Some(start);
    }
    assert!(above.is_some());
}
