//! HTTP/3 frames of a stream, cut for `h3`: for any pieces of the stream, the units agree with a
//! model that has all bytes at once.

#![no_main]

use arbitrary::Arbitrary;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use mpquic_fuzz::number::Varint;
use units::{Unit, Units};

#[expect(dead_code, reason = "units are read, not used")]
#[path = "../../crates/mpquic-h3/src/units.rs"]
mod units;
#[expect(dead_code, reason = "numbers are read, not written")]
#[path = "../../crates/mpquic-h3/src/varint.rs"]
mod varint;

#[derive(Debug, Arbitrary)]
enum Part {
    /// A frame whose length field may be wrong.
    Frame {
        kind: Varint,
        length: Option<Varint>,
        payload: u8,
    },
    Data(u8),
    Bytes(Vec<u8>),
}

#[derive(Debug, Arbitrary)]
struct Input {
    unidirectional: Option<Varint>,
    limit: u16,
    parts: Vec<Part>,
    /// Where pieces end.
    pieces: Vec<u8>,
}

/// The output, with DATA in as few pieces as possible.
#[derive(Debug, PartialEq, Eq)]
enum Out {
    /// A header of DATA, any other frame as a whole, the type of a stream.
    Unit(Vec<u8>),
    /// Bytes of a DATA frame, or of a stream without frames.
    Raw(Vec<u8>),
    TooLong,
    /// The stream ends within a frame.
    Cut,
}

fuzz_target!(|input: Input| {
    let bytes = encode(&input);
    let limit = u64::from(input.limit);
    let expected = model(&bytes, limit, input.unidirectional.is_some());
    let mut units = match input.unidirectional {
        Some(_) => Units::of_unidirectional(limit),
        None => Units::of_request(limit),
    };
    let mut found = Vec::new();
    let mut rest = Bytes::from(bytes);
    let mut pieces = input.pieces.iter().chain(std::iter::repeat(&255));
    'arriving: while !rest.is_empty() {
        let length = usize::from(*pieces.next().unwrap_or(&255)).max(1);
        let was_in_data = units.is_in_data();
        if let Some(unit) = units.push(rest.split_to(length.min(rest.len()))) {
            assert!(!unit.is_empty());
            add(&mut found, &unit, was_in_data);
        }
        loop {
            let was_in_data = units.is_in_data();
            match units.next() {
                Ok(Some(unit)) => {
                    let unit = bytes_of(unit);
                    assert!(!unit.is_empty());
                    add(&mut found, &unit, was_in_data);
                }
                Ok(None) => break,
                Err(_) => {
                    found.push(Out::TooLong);
                    break 'arriving;
                }
            }
        }
    }
    let is_refused = found.last() == Some(&Out::TooLong);
    if !is_refused && units.is_in_frame() {
        found.push(Out::Cut);
    }
    assert_eq!(join(found), join(expected));
});

fn bytes_of(unit: Unit) -> Bytes {
    match unit {
        Unit::StreamType { bytes, .. } | Unit::Data { bytes, .. } | Unit::Bytes(bytes) => bytes,
        Unit::Frame(frame) => frame.bytes,
    }
}

fn add(found: &mut Vec<Out>, unit: &[u8], is_raw: bool) {
    found.push(if is_raw {
        Out::Raw(unit.to_vec())
    } else {
        Out::Unit(unit.to_vec())
    });
}

/// Joins raw units, because raw bytes come in pieces of any size. `Units` marks only units of DATA
/// as raw, so all bytes after an unframed start are compared as bytes.
fn join(all: Vec<Out>) -> (Vec<Out>, Vec<u8>) {
    let mut joined: Vec<Out> = Vec::new();
    let mut unframed: Option<Vec<u8>> = None;
    for out in all {
        let is_first = joined.is_empty();
        match (out, &mut unframed, joined.last_mut()) {
            (Out::Unit(bytes) | Out::Raw(bytes), Some(rest), _) => rest.extend(bytes),
            (Out::Raw(bytes), None, Some(Out::Raw(last))) => last.extend(bytes),
            (Out::Unit(bytes), None, _) if starts_unframed(&bytes, is_first) => {
                unframed = Some(bytes);
            }
            (out, _, _) => joined.push(out),
        }
    }
    (joined, unframed.unwrap_or_default())
}

/// True for the type of a stream other than the control stream, or of WebTransport. Frames have a
/// length behind their type, so a single number is no frame.
fn starts_unframed(unit: &[u8], is_first: bool) -> bool {
    let mut rest = unit;
    let value = take_varint(&mut rest);
    value.is_some() && rest.is_empty() && !(is_first && value == Some(0))
}

/// The output of a naive reading of all bytes at once.
fn model(bytes: &[u8], limit: u64, unidirectional: bool) -> Vec<Out> {
    let mut out = Vec::new();
    let mut rest = bytes;
    if unidirectional {
        let Some(kind) = take_varint(&mut rest) else {
            // RFC 9114 section 6.2: the stream ended before its type.
            return out;
        };
        out.push(Out::Unit(bytes[..bytes.len() - rest.len()].to_vec()));
        if kind != 0 {
            out.extend((!rest.is_empty()).then(|| Out::Raw(rest.to_vec())));
            return out;
        }
    }
    while !rest.is_empty() {
        let start = rest;
        let taken = |rest: &[u8]| start[..start.len() - rest.len()].to_vec();
        let Some(kind) = take_varint(&mut rest) else {
            out.push(Out::Cut);
            return out;
        };
        if kind == 0x41 {
            out.push(Out::Unit(taken(rest)));
            out.extend((!rest.is_empty()).then(|| Out::Raw(rest.to_vec())));
            return out;
        }
        let Some(length) = take_varint(&mut rest) else {
            out.push(Out::Cut);
            return out;
        };
        let here = usize::try_from(length).map_or(rest.len(), |length| length.min(rest.len()));
        match kind {
            0 => {
                out.push(Out::Unit(taken(rest)));
                out.extend((here > 0).then(|| Out::Raw(rest[..here].to_vec())));
            }
            _ if length > limit => {
                out.push(Out::TooLong);
                return out;
            }
            _ if here as u64 == length => {
                out.push(Out::Unit([&taken(rest)[..], &rest[..here]].concat()));
            }
            _ => {}
        }
        if (here as u64) < length {
            out.push(Out::Cut);
            return out;
        }
        rest = &rest[here..];
    }
    out
}

fn encode(input: &Input) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(Varint(kind)) = input.unidirectional {
        put_varint(&mut out, kind);
    }
    for part in &input.parts {
        match part {
            Part::Frame {
                kind,
                length,
                payload,
            } => {
                let payload = usize::from(*payload);
                put_varint(&mut out, kind.0);
                put_varint(&mut out, length.map_or(payload as u64, |length| length.0));
                out.resize(out.len() + payload, 0xff);
            }
            Part::Data(length) => {
                out.push(0);
                put_varint(&mut out, u64::from(*length));
                out.resize(out.len() + usize::from(*length), 0xdd);
            }
            Part::Bytes(bytes) => out.extend_from_slice(bytes),
        }
    }
    out
}

fn put_varint(out: &mut Vec<u8>, value: u64) {
    match value {
        0..=0x3f => out.push(value as u8),
        0x40..=0x3fff => out.extend((value as u16 | 0x4000).to_be_bytes()),
        0x4000..=0x3fff_ffff => out.extend((value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend((value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let length = 1 << (rest.first()? >> 6);
    let (varint, left) = rest.split_at_checked(length)?;
    *rest = left;
    let value = varint
        .iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte));
    Some(value & (u64::MAX >> (66 - 8 * length)))
}
