//! Any plaintext of a packet: decoded frames stay the same after encoding and decoding.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use mpquic_core::unstable_wire::frame::{Ack, Frame, FrameIter, PacketType, PathAck};

fuzz_target!(|payload: &[u8]| {
    let payload = Bytes::copy_from_slice(payload);
    let frames: Vec<Frame> = FrameIter::new(payload.clone(), true)
        .map_while(Result::ok)
        .collect();
    check_without_multipath(&payload, &frames);

    let mut packet = Vec::new();
    for frame in &frames {
        let start = packet.len();
        frame.encode(&mut packet);
        assert_eq!(packet.len() - start, frame.size());
        check_table(frame);
        if let Frame::Ack(ack) | Frame::PathAck(PathAck { ack, .. }) = frame {
            check_ranges(ack);
        }
    }
    if !frames.is_empty() {
        let again: Result<Vec<Frame>, _> = FrameIter::new(packet.into(), true).collect();
        assert_eq!(again, Ok(frames));
    }
});

/// Without multipath, the frames before the first frame of RFC 10069 are the same, and this frame
/// is unknown (MP-002).
fn check_without_multipath(payload: &Bytes, frames: &[Frame]) {
    let mut plain = FrameIter::new(payload.clone(), false);
    for frame in frames {
        let is_multipath = matches!(frame.frame_type(), 0x3e | 0x3f | 0x3e75..=0x3e7c);
        match plain.next() {
            Some(Ok(same)) => assert!(!is_multipath && same == *frame),
            Some(Err(error)) => {
                assert!(is_multipath, "{error:?}");
                assert_eq!(plain.next(), None, "an error is final");
                return;
            }
            None => panic!("{frame:?} is missing"),
        }
    }
}

/// RFC 9000 section 12.4: 1-RTT packets may carry every frame; 0-RTT packets carry no
/// acknowledgements and no CRYPTO, and packets of the handshake carry no frames of the application.
fn check_table(frame: &Frame) {
    assert!(frame.is_allowed_in(PacketType::OneRtt));
    let in_handshake = frame.is_allowed_in(PacketType::Initial);
    assert_eq!(in_handshake, frame.is_allowed_in(PacketType::Handshake));
    let of_handshake = [0x00, 0x01, 0x02, 0x03, 0x06, 0x1c];
    assert_eq!(in_handshake, of_handshake.contains(&frame.frame_type()));
    let not_early = [
        0x02, 0x03, 0x06, 0x07, 0x19, 0x1b, 0x1e, 0x1f, 0x3e, 0x3f, 0xaf,
    ];
    let is_early = !not_early.contains(&frame.frame_type()) && frame.frame_type() < 0x3e75;
    assert_eq!(frame.is_allowed_in(PacketType::ZeroRtt), is_early);
    let silent = [0x00, 0x02, 0x03, 0x1c, 0x1d, 0x3e, 0x3f];
    let is_silent = silent.contains(&frame.frame_type());
    assert_eq!(frame.is_ack_eliciting(), !is_silent);
}

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
