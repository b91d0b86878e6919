//! [`Units`]: cuts a stream into pieces that `h3` takes one at a time.
//!
//! For each frame or piece of a body, `h3` reads once and takes one item from the front of its read
//! bytes. It takes all frames but DATA whole. So each item is the header of a DATA frame, a part of
//! its payload, or one other whole frame: whatever the peer sends, `h3` never collects bytes beyond
//! this item.

use bytes::{Buf, Bytes, BytesMut};

use crate::varint::Varint;

/// Frame type of DATA (RFC 9114 section 7.2.1), the only frame whose payload is not collected.
const DATA: u64 = 0x00;
/// Begins a WebTransport stream, which has no further frames.
const WEBTRANSPORT: u64 = 0x41;
/// Stream type of the control stream (RFC 9114 section 6.2.1), the only unidirectional one whose
/// frames are read.
const CONTROL: u64 = 0x00;

/// The units of one stream.
#[derive(Debug)]
pub(crate) struct Units {
    max_frame_size: u64,
    next: Next,
    varint: Varint,
    /// The beginning of an incomplete unit. It is a copy: the datagram may be much larger.
    begun: BytesMut,
    /// Later bytes behind `begun`.
    rest: Bytes,
}

/// The expected next part of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The type of a unidirectional stream.
    StreamType,
    FrameType,
    /// The length of a frame of this type.
    FrameLength(u64),
    /// The remaining bytes of a DATA frame.
    Data(u64),
    /// The remaining bytes of a frame of another type.
    Payload {
        kind: u64,
        header: usize,
        left: u64,
    },
    /// Anything but frames, up to the end of the stream.
    Unframed,
}

/// An item that `h3` takes off a stream at a time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// The type of a unidirectional stream.
    StreamType {
        kind: u64,
        bytes: Bytes,
    },
    /// The header of a DATA frame of this length.
    Data {
        length: u64,
        bytes: Bytes,
    },
    /// A frame but DATA.
    Frame(Frame),
    Bytes(Bytes),
}

/// A frame with its header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u64,
    pub(crate) bytes: Bytes,
    /// Bytes of the header.
    header: usize,
}

impl Frame {
    pub(crate) fn payload(&self) -> &[u8] {
        self.bytes.get(self.header..).unwrap_or_default()
    }
}

/// A frame longer than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameTooLong;

impl Units {
    /// Of a bidirectional stream.
    pub(crate) fn of_request(max_frame_size: u64) -> Self {
        Self {
            max_frame_size,
            next: Next::FrameType,
            varint: Varint::default(),
            begun: BytesMut::new(),
            rest: Bytes::new(),
        }
    }

    /// Of a unidirectional stream.
    pub(crate) fn of_unidirectional(max_frame_size: u64) -> Self {
        Self {
            next: Next::StreamType,
            ..Self::of_request(max_frame_size)
        }
    }

    /// More bytes have arrived. Call it without a complete unit. Returns the bytes if they are a
    /// unit: a part of a DATA frame.
    #[must_use]
    pub(crate) fn push(&mut self, chunk: Bytes) -> Option<Bytes> {
        debug_assert!(self.rest.is_empty(), "there are units");
        let later = match self.next {
            Next::Data(left) => left.checked_sub(chunk.len() as u64),
            _ => None,
        };
        let Some(later) = later else {
            self.rest = chunk;
            return None;
        };
        self.next = match later {
            0 => Next::FrameType,
            left => Next::Data(left),
        };
        Some(chunk)
    }

    /// The next complete unit that begins with a frame: the header of a DATA frame, or another
    /// frame. The unit is not copied, because h3 takes it at once.
    fn whole(&mut self) -> Option<Unit> {
        if self.next != Next::FrameType || !self.begun.is_empty() {
            return None;
        }
        let (of_kind, kind) = Varint::default().read(&self.rest);
        let (of_length, length) = Varint::default().read(self.rest.get(of_kind..)?);
        let (kind, length, header) = (kind?, length?, of_kind + of_length);
        match kind {
            WEBTRANSPORT => None,
            DATA => {
                if length > 0 {
                    self.next = Next::Data(length);
                }
                let bytes = self.rest.split_to(header);
                Some(Unit::Data { length, bytes })
            }
            _ if length > self.max_frame_size => None,
            _ => {
                let end = header.checked_add(usize::try_from(length).ok()?)?;
                if self.rest.len() < end {
                    return None;
                }
                Some(Unit::Frame(Frame {
                    kind,
                    bytes: self.rest.split_to(end),
                    header,
                }))
            }
        }
    }

    /// The next unit; `None` if more data has to arrive first.
    pub(crate) fn next(&mut self) -> Result<Option<Unit>, FrameTooLong> {
        while !self.rest.is_empty() {
            if let Some(unit) = self.whole() {
                return Ok(Some(unit));
            }
            match self.next {
                Next::Unframed => {
                    return Ok(Some(Unit::Bytes(std::mem::take(&mut self.rest))));
                }
                Next::Data(left) => {
                    let (here, later) = self.here(left);
                    self.next = later.map_or(Next::FrameType, Next::Data);
                    return Ok(Some(Unit::Bytes(self.rest.split_to(here))));
                }
                Next::Payload { kind, header, left } => {
                    let (here, later) = self.here(left);
                    self.begin(here);
                    let Some(left) = later else {
                        return Ok(Some(self.frame(kind, header)));
                    };
                    self.next = Next::Payload { kind, header, left };
                }
                Next::StreamType | Next::FrameType | Next::FrameLength(_) => {
                    let (length, value) = self.varint.read(&self.rest);
                    self.begin(length);
                    if let Some(value) = value
                        && let Some(unit) = self.on_number(value)?
                    {
                        return Ok(Some(unit));
                    }
                }
            }
        }
        Ok(None)
    }

    /// True inside of a frame, its header included.
    pub(crate) fn is_in_frame(&self) -> bool {
        let has_frames = !matches!(self.next, Next::StreamType | Next::Unframed);
        self.is_in_data() || has_frames && !self.begun.is_empty()
    }

    /// True inside of the payload of a DATA frame.
    pub(crate) fn is_in_data(&self) -> bool {
        matches!(self.next, Next::Data(_))
    }

    /// A frame but DATA is complete.
    fn frame(&mut self, kind: u64, header: usize) -> Unit {
        self.next = Next::FrameType;
        let bytes = self.begun.split().freeze();
        Unit::Frame(Frame {
            kind,
            bytes,
            header,
        })
    }

    /// Of `left` bytes, the number of available bytes, and of the bytes left after them.
    fn here(&self, left: u64) -> (usize, Option<u64>) {
        let here = usize::try_from(left).map_or(self.rest.len(), |left| left.min(self.rest.len()));
        let later = left - here as u64;
        (here, (later > 0).then_some(later))
    }

    /// Adds bytes to the unit.
    fn begin(&mut self, length: usize) {
        if let Some(bytes) = self.rest.get(..length) {
            self.begun.extend_from_slice(bytes);
            self.rest.advance(length);
        }
    }

    /// A number is complete, and perhaps a unit.
    fn on_number(&mut self, value: u64) -> Result<Option<Unit>, FrameTooLong> {
        let (next, is_unit) = match self.next {
            Next::StreamType => {
                self.next = match value {
                    CONTROL => Next::FrameType,
                    _ => Next::Unframed,
                };
                let bytes = self.begun.split().freeze();
                return Ok(Some(Unit::StreamType { kind: value, bytes }));
            }
            Next::FrameType if value != WEBTRANSPORT => (Next::FrameLength(value), false),
            Next::FrameLength(DATA) => {
                self.next = match value {
                    0 => Next::FrameType,
                    left => Next::Data(left),
                };
                let bytes = self.begun.split().freeze();
                return Ok(Some(Unit::Data {
                    length: value,
                    bytes,
                }));
            }
            Next::FrameLength(_) if value > self.max_frame_size => return Err(FrameTooLong),
            Next::FrameLength(kind) => {
                let (header, left) = (self.begun.len(), value);
                if left == 0 {
                    return Ok(Some(self.frame(kind, header)));
                }
                (Next::Payload { kind, header, left }, false)
            }
            Next::FrameType | Next::Data(_) | Next::Payload { .. } | Next::Unframed => {
                (Next::Unframed, true)
            }
        };
        self.next = next;
        Ok(is_unit.then(|| Unit::Bytes(self.begun.split().freeze())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 100;

    /// A frame: type, length in four bytes, payload.
    fn frame(kind: u8, length: u32, payload: usize) -> Vec<u8> {
        let mut frame = vec![kind];
        frame.extend((length | 0x8000_0000).to_be_bytes());
        frame.resize(frame.len() + payload, 0xff);
        frame
    }

    fn for_h3(unit: Unit) -> Bytes {
        match unit {
            Unit::Bytes(bytes)
            | Unit::StreamType { bytes, .. }
            | Unit::Data { bytes, .. }
            | Unit::Frame(Frame { bytes, .. }) => bytes,
        }
    }

    /// The units of a stream that arrives in pieces of this size.
    fn units(mut units: Units, bytes: &[u8], size: usize) -> Result<Vec<Bytes>, FrameTooLong> {
        let mut all = Vec::new();
        for piece in bytes.chunks(size) {
            all.extend(units.push(Bytes::copy_from_slice(piece)));
            while let Some(unit) = units.next()? {
                all.push(for_h3(unit));
            }
        }
        all.extend((!units.begun.is_empty()).then(|| units.begun.split().freeze()));
        Ok(all)
    }

    /// The units of a stream that arrives at once. Any other arrival gives the same bytes.
    fn check(new: fn(u64) -> Units, bytes: &[u8]) -> Result<Vec<Bytes>, FrameTooLong> {
        let whole = units(new(LIMIT), bytes, bytes.len());
        for size in 1..bytes.len() {
            let pieces = units(new(LIMIT), bytes, size);
            assert_eq!(pieces.is_ok(), whole.is_ok(), "in pieces of {size}");
            if let (Ok(pieces), Ok(whole)) = (pieces, &whole) {
                assert!(pieces.concat() == whole.concat(), "in pieces of {size}");
            }
        }
        whole
    }

    #[test]
    fn frames_come_whole_and_data_in_pieces() {
        let (headers, data) = (frame(1, 100, 100), frame(0, 5000, 5000));
        let (reserved, empty) = (frame(0x21, 0, 0), frame(0, 0, 0));
        let stream = [&headers[..], &data, &empty, &reserved, &headers].concat();
        let units = check(Units::of_request, &stream).unwrap();
        let expected = [
            &headers[..],
            &data[..5],
            &data[5..],
            &empty,
            &reserved,
            &headers,
        ];
        assert!(units == expected);
        let settings = frame(4, 2, 2);
        let control = [&[0][..], &empty, &settings, &empty].concat();
        let units = check(Units::of_unidirectional, &control).unwrap();
        assert!(units == [&[0][..], &empty, &settings, &empty]);
    }

    /// A frame other than DATA is handed out whole, even if its bytes arrive one at a time.
    #[test]
    fn a_frame_in_single_bytes_is_one_unit() {
        let (headers, data) = (frame(1, 90, 90), frame(0, 10, 10));
        let units = units(Units::of_request(LIMIT), &[&headers[..], &data].concat(), 1).unwrap();
        assert_eq!(units.len(), 1 + 1 + 10);
        assert!(units[0] == headers && units[1] == data[..5]);
    }

    #[test]
    fn bodies_are_not_copied() {
        let mut units = Units::of_request(LIMIT);
        let stream = Bytes::from(frame(0, 5000, 3000));
        assert_eq!(units.push(stream.clone()), None);
        assert!(units.next().unwrap().is_some(), "the header");
        let body = for_h3(units.next().unwrap().unwrap());
        assert_eq!(body.as_ptr(), stream[5..].as_ptr());
        let more = Bytes::from(vec![1; 2000]);
        let next = units.push(more.clone()).unwrap();
        assert_eq!(next.as_ptr(), more.as_ptr());
        assert_eq!(units.next(), Ok(None));
    }

    #[test]
    fn frames_are_told_by_their_type_and_payload() {
        let wide = [&[0x80, 0x0f, 0x07, 0, 3][..], b"abc"].concat();
        let stream = [&[0][..], &frame(4, 0, 0), &wide, &frame(7, 2, 2)].concat();
        for size in 1..=stream.len() {
            let mut units = Units::of_unidirectional(LIMIT);
            let mut frames = Vec::new();
            for piece in stream.chunks(size) {
                assert_eq!(units.push(Bytes::copy_from_slice(piece)), None);
                while let Some(unit) = units.next().unwrap() {
                    match unit {
                        Unit::Frame(frame) => frames.push(frame),
                        other => assert!(matches!(other, Unit::StreamType { kind: 0, .. })),
                    }
                }
            }
            let frames = frames.iter().map(|frame| (frame.kind, frame.payload()));
            assert!(frames.eq([(4, &b""[..]), (0xf0700, b"abc"), (7, b"\xff\xff")]));
        }
    }

    #[test]
    fn longer_frames_are_refused_whatever_their_type() {
        for kind in [1, 4, 5, 0x21, 0x3f] {
            let headers = frame(1, 10, 10);
            let long = [&headers[..], &frame(0, 300, 300), &frame(kind, 101, 50)].concat();
            assert_eq!(check(Units::of_request, &long), Err(FrameTooLong));
        }
    }

    #[test]
    fn of_unidirectional_streams_the_control_stream_has_frames() {
        let with_type = |kind: u8| [&[kind][..], &frame(4, 101, 0)].concat();
        let new = Units::of_unidirectional;
        assert_eq!(check(new, &with_type(0)), Err(FrameTooLong));
        for other in [1, 2, 3, 0x21] {
            let stream = with_type(other);
            assert!(check(new, &stream).unwrap() == [&stream[..1], &stream[1..]]);
        }
    }

    #[test]
    fn bytes_behind_a_webtransport_header_are_no_frame() {
        let stream = [&[0x40, 0x41, 0][..], &frame(1, 5000, 10)].concat();
        let units = check(Units::of_request, &stream).unwrap();
        assert!(units == [&stream[..2], &stream[2..]]);
    }

    #[test]
    fn a_cut_frame_is_noticed_at_the_end() {
        let cut = [
            frame(0, 50, 30),
            frame(1, 50, 30),
            vec![0x21, 5],
            vec![1],
            vec![0xa5, 0xfe],
        ];
        let whole = [
            frame(0, 50, 50),
            frame(0x21, 0, 0),
            vec![0x40, 0x41, 9],
            vec![],
        ];
        let all = cut.iter().map(|bytes| (bytes, true));
        for (bytes, is_cut) in all.chain(whole.iter().map(|bytes| (bytes, false))) {
            for size in [1, 100] {
                let mut units = Units::of_request(LIMIT);
                for piece in bytes.chunks(size) {
                    let _ = units.push(Bytes::copy_from_slice(piece));
                    while units.next().unwrap().is_some() {}
                }
                assert_eq!(units.is_in_frame(), is_cut, "{bytes:x?}");
            }
        }
        // RFC 9114 section 6.2: a unidirectional stream may end within its type.
        let mut units = Units::of_unidirectional(LIMIT);
        let _ = units.push(Bytes::from_static(&[0x40]));
        assert!(units.next().unwrap().is_none() && !units.is_in_frame());
    }
}
