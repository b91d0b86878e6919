//! [`FrameGuard`]: watches the frames of a stream for one that is too long to be collected.

/// Frame type of DATA (RFC 9114 section 7.2.1), the only frame whose payload `h3` does not collect.
const DATA: u64 = 0x00;
/// Begins a WebTransport stream: what follows are no frames.
const WEBTRANSPORT: u64 = 0x41;
/// Stream type of the control stream (RFC 9114 section 6.2.1), the only unidirectional one whose
/// frames are read.
const CONTROL: u64 = 0x00;

/// Follows the frames of one stream, as its bytes arrive.
#[derive(Debug)]
pub(crate) struct FrameGuard {
    max_frame_size: u64,
    next: Next,
    varint: Varint,
}

/// What comes next on the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The type of a unidirectional stream.
    StreamType,
    FrameType,
    FrameLength {
        is_data: bool,
    },
    /// So many bytes of a frame.
    Payload(u64),
    /// Anything but frames, up to the end of the stream.
    Unframed,
}

/// A frame that is longer than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameTooLong {
    /// How many of the bytes given come before its payload.
    pub(crate) payload_at: usize,
}

impl FrameGuard {
    /// For a bidirectional stream.
    pub(crate) fn of_request(max_frame_size: u64) -> Self {
        Self {
            max_frame_size,
            next: Next::FrameType,
            varint: Varint::default(),
        }
    }

    /// For a unidirectional stream.
    pub(crate) fn of_unidirectional(max_frame_size: u64) -> Self {
        Self {
            next: Next::StreamType,
            ..Self::of_request(max_frame_size)
        }
    }

    /// Looks at the bytes that follow those seen before.
    pub(crate) fn check(&mut self, mut bytes: &[u8]) -> Result<(), FrameTooLong> {
        let length = bytes.len();
        while !bytes.is_empty() {
            if let Next::Payload(left) = &mut self.next {
                let here = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                *left -= here as u64;
                bytes = bytes.get(here..).unwrap_or_default();
                if *left == 0 {
                    self.next = Next::FrameType;
                }
                continue;
            }
            if self.next == Next::Unframed {
                return Ok(());
            }
            let Some(value) = self.varint.read(&mut bytes) else {
                return Ok(());
            };
            let payload_at = length - bytes.len();
            self.next = self.after(value).ok_or(FrameTooLong { payload_at })?;
        }
        Ok(())
    }

    /// What follows a number; `None` if it is the length of a frame that is too long.
    fn after(&self, value: u64) -> Option<Next> {
        Some(match self.next {
            Next::StreamType if value == CONTROL => Next::FrameType,
            Next::FrameType if value != WEBTRANSPORT => Next::FrameLength {
                is_data: value == DATA,
            },
            Next::FrameLength { is_data: false } if value > self.max_frame_size => {
                return None;
            }
            Next::FrameLength { .. } if value == 0 => Next::FrameType,
            Next::FrameLength { .. } => Next::Payload(value),
            Next::StreamType | Next::FrameType | Next::Payload(_) | Next::Unframed => {
                Next::Unframed
            }
        })
    }
}

/// A variable-length integer (RFC 9000 section 16), of which a part may have arrived.
#[derive(Debug, Default)]
struct Varint {
    value: u64,
    /// Bytes that are missing, once the first has arrived.
    missing: u8,
}

impl Varint {
    /// Takes bytes until the number is complete.
    fn read(&mut self, bytes: &mut &[u8]) -> Option<u64> {
        while let Some((&first, rest)) = bytes.split_first() {
            *bytes = rest;
            if self.missing == 0 {
                self.missing = (1 << (first >> 6)) - 1;
                self.value = u64::from(first & 0x3f);
            } else {
                self.missing -= 1;
                self.value = self.value << 8 | u64::from(first);
            }
            if self.missing == 0 {
                return Some(self.value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 100;

    /// Feeds a stream in pieces of each size; all must lead to the same.
    fn check(new: fn(u64) -> FrameGuard, bytes: &[u8]) -> Result<(), FrameTooLong> {
        let of_size = |size: usize| {
            let mut guard = new(LIMIT);
            let mut before = 0;
            for piece in bytes.chunks(size) {
                guard.check(piece).map_err(|too_long| FrameTooLong {
                    payload_at: before + too_long.payload_at,
                })?;
                before += piece.len();
            }
            Ok(())
        };
        let whole = of_size(bytes.len());
        for size in 1..bytes.len() {
            assert_eq!(of_size(size), whole, "in pieces of {size}");
        }
        whole
    }

    /// A frame: type, length in four bytes, payload.
    fn frame(kind: u8, length: u32, payload: usize) -> Vec<u8> {
        let mut frame = vec![kind];
        frame.extend((length | 0x8000_0000).to_be_bytes());
        frame.resize(frame.len() + payload, 0xff);
        frame
    }

    #[test]
    fn frames_up_to_the_limit_pass() {
        let fits = [frame(1, 100, 100), frame(0, 5000, 5000), frame(0x21, 0, 0)].concat();
        assert_eq!(check(FrameGuard::of_request, &fits), Ok(()));
        let twice = [&fits[..], &fits].concat();
        assert_eq!(check(FrameGuard::of_request, &twice), Ok(()));
    }

    #[test]
    fn longer_frames_do_not_whatever_their_type() {
        for kind in [1, 4, 5, 0x21, 0x3f] {
            let headers = frame(1, 10, 10);
            let long = [&headers[..], &frame(0, 300, 300), &frame(kind, 101, 50)].concat();
            let payload_at = long.len() - 50;
            let too_long = Err(FrameTooLong { payload_at });
            assert_eq!(check(FrameGuard::of_request, &long), too_long);
        }
    }

    #[test]
    fn of_unidirectional_streams_the_control_stream_has_frames() {
        let with_type = |kind: u8| [&[kind][..], &frame(4, 101, 0)].concat();
        let guard = FrameGuard::of_unidirectional;
        let too_long = Err(FrameTooLong { payload_at: 6 });
        assert_eq!(check(guard, &with_type(0)), too_long);
        for other in [1, 2, 3, 0x21] {
            assert_eq!(check(guard, &with_type(other)), Ok(()));
        }
    }

    #[test]
    fn what_follows_a_webtransport_header_is_no_frame() {
        let stream = [&[0x40, 0x41, 0][..], &frame(1, 5000, 10)].concat();
        assert_eq!(check(FrameGuard::of_request, &stream), Ok(()));
    }
}
