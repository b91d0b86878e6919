//! Capsules (RFC 9297 section 3), and the payloads of HTTP datagrams of CONNECT-UDP (RFC 9298
//! section 5) and CONNECT-IP (RFC 9484 section 6).

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Capsule type DATAGRAM (RFC 9297 section 3.5).
pub(crate) const DATAGRAM: u64 = 0x00;
/// ADDRESS_ASSIGN, ADDRESS_REQUEST and ROUTE_ADVERTISEMENT (RFC 9484 section 4.7).
const OF_IP: [u64; 3] = [0x01, 0x02, 0x03];
/// The longest accepted capsule of CONNECT-IP.
const MAX_OF_IP: u64 = 16 << 10;
/// COMPRESSION_ASSIGN, COMPRESSION_ACK and COMPRESSION_CLOSE
/// (draft-ietf-masque-connect-udp-listen-13 section 11.2).
const OF_BOUND: [u64; 3] = [0x11, 0x12, 0x13];
/// The longest accepted capsule of bound UDP: a context ID, a version of IP, an address and a port.
const MAX_OF_BOUND: u64 = 8 + 1 + 16 + 2;
/// Capsules of our own, of TCP ports that lead to clients. The longest has a number of 8 bytes, and
/// an address.
const OF_REVERSE: [u64; 2] = [0x2d70_7101, 0x2d70_7102];
/// Longest accepted payload: a context ID, and the largest IP packet, of IPv6. Longer capsules are
/// skipped, like lost packets.
const MAX_DATAGRAM: u64 = 8 + 40 + 65_535;
/// The context ID of UDP payloads (RFC 9298 section 4), and of IP packets (RFC 9484 section 6).
const PAYLOAD: u64 = 0;

/// Reads the capsules of a stream, from pieces of any size.
///
/// The longest datagram bounds the kept bytes for any input: capsules of other types are skipped on
/// arrival.
#[derive(Debug, Default)]
pub(crate) struct Capsules {
    state: State,
    /// The beginning of a header, or of a payload.
    begun: BytesMut,
    /// Bytes after `begun`.
    rest: Bytes,
    /// Types of further capsules that are returned, and the longest of them.
    others: (&'static [u64], u64),
}

/// A capsule of a necessary type is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLong;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Header,
    /// Missing bytes of a capsule with this type.
    Taken(u64, usize),
    /// Missing bytes of a skipped capsule.
    Skip(u64),
}

impl Capsules {
    /// Adds bytes. Call this after [`Self::next`] or [`Self::take`] has returned `None`.
    pub(crate) fn push(&mut self, piece: Bytes) {
        debug_assert!(self.rest.is_empty(), "there are capsules");
        self.rest = piece;
    }

    /// The payload of the next DATAGRAM capsule; `None` if more data has to arrive first.
    pub(crate) fn next(&mut self) -> Option<Bytes> {
        // Without further types, `take` returns no error and no other type.
        self.take().ok()?.map(|(_, payload)| payload)
    }

    /// Like [`Self::default`], for streams of CONNECT-IP, with its capsules.
    pub(crate) fn of_ip() -> Self {
        Self {
            others: (&OF_IP, MAX_OF_IP),
            ..Self::default()
        }
    }

    /// Like [`Self::default`], for streams of bound UDP, with its capsules.
    pub(crate) fn of_bound() -> Self {
        Self {
            others: (&OF_BOUND, MAX_OF_BOUND),
            ..Self::default()
        }
    }

    /// Like [`Self::default`], for streams of TCP ports that lead to clients, with their capsules.
    pub(crate) fn of_reverse() -> Self {
        Self {
            others: (&OF_REVERSE, MAX_OF_BOUND),
            ..Self::default()
        }
    }

    /// Type and payload of the next known capsule; `None` if more data has to arrive first.
    pub(crate) fn take(&mut self) -> Result<Option<(u64, Bytes)>, TooLong> {
        loop {
            match self.state {
                State::Header => {
                    let Some((kind, length)) = self.header() else {
                        return Ok(None);
                    };
                    let (others, most) = self.others;
                    self.state = match usize::try_from(length) {
                        Ok(here) if kind == DATAGRAM && length <= MAX_DATAGRAM => {
                            State::Taken(kind, here)
                        }
                        _ if kind == DATAGRAM || !others.contains(&kind) => State::Skip(length),
                        Ok(here) if length <= most => State::Taken(kind, here),
                        _ => return Err(TooLong),
                    };
                }
                State::Taken(kind, length) => {
                    let missing = length - self.begun.len();
                    if self.rest.len() < missing {
                        self.begun.extend_from_slice(&self.rest);
                        self.rest.clear();
                        return Ok(None);
                    }
                    self.state = State::Header;
                    let end = self.rest.split_to(missing);
                    if self.begun.is_empty() {
                        return Ok(Some((kind, end)));
                    }
                    self.begun.extend_from_slice(&end);
                    return Ok(Some((kind, self.begun.split().freeze())));
                }
                State::Skip(length) => {
                    let here = self
                        .rest
                        .len()
                        .min(usize::try_from(length).unwrap_or(usize::MAX));
                    self.rest.advance(here);
                    let left = length - here as u64;
                    if left > 0 {
                        self.state = State::Skip(left);
                        return Ok(None);
                    }
                    self.state = State::Header;
                }
            }
        }
    }

    /// True if the stream may end here: not within a capsule (RFC 9297 section 3.3).
    pub(crate) fn may_end(&self) -> bool {
        self.state == State::Header && self.begun.is_empty() && self.rest.is_empty()
    }

    /// Type and length of the next capsule.
    fn header(&mut self) -> Option<(u64, u64)> {
        // At most 16 bytes, of which the bytes in `begun` are no complete header yet.
        let mut header = [0; 16];
        let old = self.begun.len();
        let new = self.rest.len().min(header.len() - old);
        header[..old].copy_from_slice(&self.begun);
        header[old..old + new].copy_from_slice(&self.rest[..new]);
        let all = &header[..old + new];
        let mut left = all;
        let fields = take_varint(&mut left).and_then(|kind| Some((kind, take_varint(&mut left)?)));
        let used = all.len() - left.len();
        if fields.is_some() {
            self.begun.clear();
            self.rest.advance(used - old);
        } else {
            self.begun.extend_from_slice(&self.rest[..new]);
            self.rest.advance(new);
        }
        fields
    }
}

/// A DATAGRAM capsule with a UDP payload, or an IP packet.
pub(crate) fn udp_capsule(payload: &[u8]) -> Bytes {
    capsule_of(&[PAYLOAD as u8], payload)
}

/// A DATAGRAM capsule with these bytes, which begin with a context ID.
pub(crate) fn datagram_capsule(datagram: &[u8]) -> Bytes {
    capsule_of(&[], datagram)
}

fn capsule_of(context: &[u8], payload: &[u8]) -> Bytes {
    let length = context.len() + payload.len();
    let mut capsule = BytesMut::with_capacity(length + 9);
    capsule.put_u8(DATAGRAM as u8);
    put_varint(&mut capsule, length as u64);
    capsule.put_slice(context);
    capsule.put_slice(payload);
    capsule.freeze()
}

/// The UDP payload, or the IP packet, of an HTTP datagram; `None` for a datagram of an unregistered
/// context, or without a context ID.
pub(crate) fn udp_payload(datagram: &[u8]) -> Option<&[u8]> {
    let mut rest = datagram;
    (take_varint(&mut rest)? == PAYLOAD).then_some(rest)
}

/// Takes a variable-length integer (RFC 9000 section 16) from the front; `None` if it is cut.
pub(crate) fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let length = 1usize << (rest.first()? >> 6);
    let (number, left) = rest.split_at_checked(length)?;
    *rest = left;
    let value = (number.iter()).fold(0, |value, byte| value << 8 | u64::from(*byte));
    Some(value & (u64::MAX >> (66 - 8 * length)))
}

/// Appends a number below 2^62.
pub(crate) fn put_varint(buf: &mut impl BufMut, value: u64) {
    match value {
        0..0x40 => buf.put_u8(value as u8),
        0x40..0x4000 => buf.put_u16(value as u16 | 0x4000),
        0x4000..0x4000_0000 => buf.put_u32(value as u32 | 0x8000_0000),
        _ => buf.put_u64(value | 0xc000_0000_0000_0000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The datagrams of a stream that comes in pieces of this size.
    fn read(stream: &[u8], piece: usize) -> (Vec<Bytes>, bool) {
        let mut capsules = Capsules::default();
        let mut read = Vec::new();
        for piece in stream.chunks(piece) {
            capsules.push(Bytes::copy_from_slice(piece));
            read.extend(std::iter::from_fn(|| capsules.next()));
            assert!(capsules.begun.len() as u64 <= MAX_DATAGRAM);
        }
        (read, capsules.may_end())
    }

    #[test]
    fn datagrams_are_read_however_they_arrive() {
        let payloads = [&b""[..], b"a", &[7; 100], &[8; 20_000]];
        let mut stream = BytesMut::new();
        for payload in payloads {
            stream.extend_from_slice(&udp_capsule(payload));
            // A capsule of an unknown type, with a type and a length of several bytes.
            stream.extend_from_slice(b"\x40\x41\x40\x03abc");
        }
        for piece in [1, 2, 3, 7, 1000, usize::MAX] {
            let (read, may_end) = read(&stream, piece.min(stream.len()));
            let read: Vec<_> = read.iter().map(|datagram| udp_payload(datagram)).collect();
            assert_eq!(read, payloads.map(Some), "{piece}");
            assert!(may_end);
        }
    }

    #[test]
    fn cut_capsule_is_no_end() {
        let stream = udp_capsule(b"payload");
        for length in 1..stream.len() {
            assert_eq!(read(&stream[..length], 3), (vec![], false), "{length}");
        }
    }

    #[test]
    fn too_long_capsule_is_skipped_and_not_kept() {
        let mut stream = b"\0\x80\x01\0\x30".to_vec();
        stream.resize(stream.len() + 65_584, 1);
        let (none, _) = read(&stream, 1500);
        assert!(none.is_empty());
        stream.extend_from_slice(&udp_capsule(b"next"));
        let (next, _) = read(&stream, 1500);
        assert_eq!(next, [&b"\0next"[..]]);
        // With the longest announced length.
        let mut capsules = Capsules::default();
        capsules.push(Bytes::from_static(b"\0\xff\xff\xff\xff\xff\xff\xff\xff123"));
        assert_eq!(capsules.next(), None);
        assert_eq!(capsules.begun.capacity(), 0);
    }

    #[test]
    fn capsules_of_ip_are_taken_where_they_mean_something() {
        let stream = b"\x01\x02ab\x00\x02\x00c\x04\x01x\x40\x03\x00";
        let mut capsules = Capsules::of_ip();
        let mut found = Vec::new();
        for byte in stream {
            capsules.push(Bytes::copy_from_slice(&[*byte]));
            found.extend(capsules.take().unwrap());
        }
        let found: Vec<_> = found
            .iter()
            .map(|(kind, value)| (*kind, &value[..]))
            .collect();
        assert_eq!(found, [(1, &b"ab"[..]), (0, b"\0c"), (3, b"")]);
        assert_eq!(read(stream, 5).0, [&b"\0c"[..]]);
        let mut capsules = Capsules::of_bound();
        capsules.push(Bytes::from_static(b"\x01\x02ab\x12\x01\x02"));
        assert_eq!(
            capsules.take(),
            Ok(Some((0x12, Bytes::from_static(b"\x02"))))
        );
        capsules.push(Bytes::from_static(b"\x11\x1c"));
        assert_eq!(capsules.take(), Err(TooLong));
        // Capsules that must be understood are not skipped.
        let mut capsules = Capsules::of_ip();
        capsules.push(Bytes::from_static(b"\x01\x80\0\x40\x01"));
        assert_eq!(capsules.take(), Err(TooLong));
    }

    #[test]
    fn other_contexts_are_no_udp() {
        assert_eq!(udp_payload(b"\0abc"), Some(&b"abc"[..]));
        assert_eq!(udp_payload(b"\x40\0abc"), Some(&b"abc"[..]));
        assert_eq!(udp_payload(b"\x02abc"), None);
        assert_eq!(udp_payload(b""), None);
        assert_eq!(udp_payload(b"\x40"), None);
    }
}
