//! Frames made of values: decoding returns the encoded frames. A cut payload returns its whole
//! frames, and then an error.

#![no_main]

use arbitrary::Arbitrary;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use mpquic_core::unstable_wire::frame::{Frame, FrameIter};
use mpquic_fuzz::frames::AnyFrame;

#[derive(Debug, Arbitrary)]
struct Input {
    cut: u16,
    frames: Vec<AnyFrame>,
}

fuzz_target!(|input: Input| {
    // Consecutive PADDING frames are one item.
    let mut frames: Vec<Frame> = input.frames.into_iter().map(|frame| frame.0).collect();
    frames.dedup_by(|a, b| matches!((a, b), (Frame::Padding, Frame::Padding)));

    let mut payload = Vec::new();
    let mut ends = Vec::new();
    for frame in &frames {
        let start = payload.len();
        frame.encode(&mut payload);
        assert_eq!(payload.len() - start, frame.size());
        ends.push(payload.len());
    }
    let payload = Bytes::from(payload);
    let decoded: Vec<_> = FrameIter::new(payload.clone(), true).collect();
    if frames.is_empty() {
        assert!(matches!(&decoded[..], [Err(_)]), "an empty packet");
        return;
    }
    assert!(decoded.iter().map(Result::as_ref).eq(frames.iter().map(Ok)));

    let cut = usize::from(input.cut) % (payload.len() + 1);
    let whole = ends.iter().filter(|end| **end <= cut).count();
    let mut rest = FrameIter::new(payload.slice(..cut), true);
    for frame in &frames[..whole] {
        assert_eq!(rest.next(), Some(Ok(frame.clone())));
    }
    let at_boundary = cut > 0 && ends.contains(&cut);
    match rest.next() {
        None => assert!(at_boundary, "nothing says that a frame was cut"),
        Some(Err(_)) => assert!(!at_boundary),
        Some(Ok(other)) => panic!("{other:?} was never there"),
    }
    assert_eq!(rest.next(), None);
});
