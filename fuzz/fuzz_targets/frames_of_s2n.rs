//! Decodes a payload with our decoder and with the decoder of s2n-quic. Both must accept the same
//! frames. Frames that s2n-quic has read and written again must mean the same to our decoder.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use mpquic_core::Fault;
use mpquic_core::unstable_wire::RangeSet;
use mpquic_core::unstable_wire::frame::{Ack, Frame, FrameIter};
use s2n_codec::{DecoderBufferMut, EncoderValue};
use s2n_quic_core::frame::{self as s2n, FrameMut};

fuzz_target!(|payload: &[u8]| {
    let mut theirs = payload.to_vec();
    let mut rest = DecoderBufferMut::new(&mut theirs);
    for ours in FrameIter::new(Bytes::copy_from_slice(payload), false) {
        if matches!(
            ours,
            Ok(Frame::AckFrequency(_)
                | Frame::AlternativeAddress(_)
                | Frame::ImmediateAck
                | Frame::ResetStreamAt(_))
        ) {
            // s2n-quic has none of these extensions.
            return;
        }
        if rest.is_empty() {
            assert_eq!(ours.unwrap_err().fault, Fault::EmptyPacket);
            return;
        }
        match rest.decode::<FrameMut<'_>>() {
            Ok((theirs, left)) => {
                let ours = match ours {
                    Ok(ours) => ours,
                    Err(error) => return assert_is_lenient(error.fault, &theirs),
                };
                let again = theirs.encode_to_vec();
                let again: Vec<_> = FrameIter::new(again.into(), false).collect();
                let again: Result<Vec<_>, _> = again.into_iter().collect();
                let again = again.map(|frames| frames.into_iter().map(shortest).collect());
                assert_eq!(again, Ok(vec![shortest(ours)]));
                rest = left;
            }
            Err(error) => {
                assert!(ours.is_err(), "{ours:?}, but s2n-quic: {error}");
                return;
            }
        }
    }
    assert!(rest.is_empty(), "s2n-quic reads on");
});

/// The frame with each number in as few bytes as possible: a decoded frame keeps its ranges as they
/// were encoded.
fn shortest(frame: Frame) -> Frame {
    match frame {
        Frame::Ack(ack) => {
            let ranges = ack.ranges().map(|range| *range.start()..range.end() + 1);
            let ranges: RangeSet = ranges.collect();
            let ack = Ack::new(&ranges, ack.ack_delay, ack.ecn_counts);
            Frame::Ack(ack.expect("it has ranges"))
        }
        other => other,
    }
}

/// Checks that s2n-quic may accept a frame that we refuse: s2n-quic has frames of its own, and
/// leaves some checks to the users of a frame.
fn assert_is_lenient(fault: Fault, frame: &FrameMut<'_>) {
    let is_lenient = match (fault, frame) {
        (Fault::OffsetTooLarge, s2n::Frame::Stream(_) | s2n::Frame::Crypto(_)) => true,
        (Fault::EmptyToken, s2n::Frame::NewToken(_)) => true,
        (
            Fault::UnknownFrameType,
            s2n::Frame::DcStatelessResetTokens(_) | s2n::Frame::MtuProbingComplete(_),
        ) => true,
        _ => false,
    };
    assert!(is_lenient, "{fault:?}, but s2n-quic reads {frame:?}");
}
