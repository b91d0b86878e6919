//! [`Fragments`]: IP packets of programs, put together from their fragments.
//!
//! A program's packet may be larger than the MTU of the device, or of a network on its way. The
//! kernel then sends fragments, and only the whole packet has the ports and the payload of the
//! flow.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use super::packet::FRAME_HEADER;
use crate::ip::checksum::sum;
use crate::ip::header::word;

/// Longest time from the first fragment of a packet to the last: the sender is this machine or a
/// neighbour.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most bytes that wait; the oldest packet gives way.
const MOST: usize = 1 << 20;
/// Bytes of memory of a fragment besides its content.
const OVERHEAD: usize = 64;
/// Most fragments of a packet: enough for the largest packet over an MTU of 576 bytes, of which
/// another router has cut each fragment in two.
const MOST_PIECES: usize = 256;
/// The largest content of a packet.
const LARGEST: usize = u16::MAX as usize;
/// The next header of a fragment (RFC 8200 section 4.5).
pub(super) const FRAGMENT: u8 = 44;

/// The packet of a fragment: addresses, identification, and protocol.
type Key = (IpAddr, IpAddr, u32, u8);

/// A fragment: its packet, its place, and its content.
struct Piece<'a> {
    key: Key,
    start: usize,
    content: &'a [u8],
    is_last: bool,
    /// The header of the whole packet, still with the length of the fragment.
    header: Vec<u8>,
}

/// A packet of which some fragments have come.
struct Begun {
    since: Instant,
    /// The header of the first fragment.
    header: Option<Vec<u8>>,
    /// Contents by their place.
    pieces: BTreeMap<usize, Vec<u8>>,
    /// The length of the whole content, once the last fragment has come.
    length: Option<usize>,
    bytes: usize,
}

/// Packets that wait for further fragments.
#[derive(Default)]
pub(super) struct Fragments {
    begun: BTreeMap<Key, Begun>,
    /// In the order of their first fragments.
    order: VecDeque<Key>,
    bytes: usize,
}

/// The answer to a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The frame has no fragment, or a malformed one.
    NoFragment,
    /// Fragments of the packet are missing.
    Part,
    /// The frame of the whole packet: this fragment was the last missing one.
    Whole(Vec<u8>),
}

impl Fragments {
    /// Keeps a fragment until its packet is whole.
    pub(super) fn take(&mut self, frame: &[u8], now: Instant) -> Taken {
        let Some(piece) = frame.get(FRAME_HEADER..).and_then(parse) else {
            return Taken::NoFragment;
        };
        self.forget(now);
        let key = piece.key;
        let begun = self.begun.entry(key).or_insert_with(|| {
            self.order.push_back(key);
            Begun {
                since: now,
                header: None,
                pieces: BTreeMap::new(),
                length: None,
                bytes: 0,
            }
        });
        let before = begun.bytes;
        let is_consistent = begun.add(piece);
        self.bytes += begun.bytes - before;
        let whole = begun.whole();
        if whole.is_some() || !is_consistent {
            self.remove(&key);
        }
        while self.bytes > MOST
            && let Some(oldest) = self.order.front().copied()
        {
            self.remove(&oldest);
        }
        whole.map_or(Taken::Part, Taken::Whole)
    }

    /// Forgets packets without their last fragments.
    fn forget(&mut self, now: Instant) {
        while let Some(oldest) = self.order.front().copied() {
            let since = self.begun.get(&oldest).map(|begun| begun.since);
            if since.is_some_and(|since| now < since + PATIENCE) {
                return;
            }
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(begun) = self.begun.remove(key) {
            self.bytes -= begun.bytes;
        }
        self.order.retain(|other| other != key);
    }
}

impl Begun {
    /// Adds a fragment; false if it overlaps another one (RFC 5722), or contradicts the known
    /// length.
    fn add(&mut self, piece: Piece<'_>) -> bool {
        let (start, end) = (piece.start, piece.start + piece.content.len());
        if (self.pieces.get(&start)).is_some_and(|known| known == piece.content) {
            // A repetition.
            return true;
        }
        let before = self.pieces.range(..end).next_back();
        let overlaps = before.is_some_and(|(at, known)| at + known.len() > start);
        let is_beyond = end > LARGEST || self.length.is_some_and(|length| end > length);
        if overlaps || is_beyond || self.pieces.len() == MOST_PIECES {
            return false;
        }
        if piece.is_last {
            let known = self.pieces.last_key_value();
            let is_short = known.is_some_and(|(at, known)| at + known.len() > end);
            if is_short || self.length.is_some() {
                return false;
            }
            self.length = Some(end);
        }
        if start == 0 {
            self.header = Some(piece.header);
        }
        self.bytes += piece.content.len() + OVERHEAD;
        self.pieces.insert(start, piece.content.to_vec());
        true
    }

    /// The frame, once all fragments are there.
    fn whole(&self) -> Option<Vec<u8>> {
        let (length, header) = (self.length?, self.header.as_ref()?);
        let have: usize = self.pieces.values().map(Vec::len).sum();
        // Fragments do not overlap.
        if have < length {
            return None;
        }
        let mut frame = vec![0; FRAME_HEADER];
        frame.extend_from_slice(header);
        let ip = &mut frame[FRAME_HEADER..];
        match ip[0] >> 4 {
            4 => {
                let total = u16::try_from(header.len() + length).ok()?;
                ip[2..4].copy_from_slice(&total.to_be_bytes());
                ip[10..12].fill(0);
                let checksum = !sum(ip);
                ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            }
            _ => {
                let payload = u16::try_from(header.len() - 40 + length).ok()?;
                ip[4..6].copy_from_slice(&payload.to_be_bytes());
            }
        }
        for piece in self.pieces.values() {
            frame.extend_from_slice(piece);
        }
        Some(frame)
    }
}

/// Parses a fragment; `None` for other packets, and for fragments of IPv6 behind other extension
/// headers.
fn parse(ip: &[u8]) -> Option<Piece<'_>> {
    match ip.first()? >> 4 {
        4 => parse_v4(ip),
        6 => parse_v6(ip),
        _ => None,
    }
}

fn parse_v4(ip: &[u8]) -> Option<Piece<'_>> {
    let place = word(ip, 6)?;
    let start = usize::from(ip[0] & 15) * 4;
    let content = ip.get(start..usize::from(word(ip, 2)?))?;
    let is_last = place & 0x2000 == 0;
    if place & 0x3fff == 0 || start < 20 || !is_whole(content, is_last) {
        return None;
    }
    let address = |at: usize| Some(IpAddr::from(*ip.get(at..)?.first_chunk::<4>()?));
    let mut header = ip.get(..start)?.to_vec();
    header[6..8].fill(0);
    Some(Piece {
        key: (address(12)?, address(16)?, word(ip, 4)?.into(), ip[9]),
        start: usize::from(place & 0x1fff) * 8,
        content,
        is_last,
        header,
    })
}

fn parse_v6(ip: &[u8]) -> Option<Piece<'_>> {
    let header = ip.first_chunk::<40>()?;
    if header[6] != FRAGMENT {
        return None;
    }
    let packet = ip.get(40..40 + usize::from(word(ip, 4)?))?;
    let (fragment, content) = packet.split_first_chunk::<8>()?;
    let place = word(fragment, 2)?;
    let is_last = place & 1 == 0;
    if !is_whole(content, is_last) {
        return None;
    }
    let mut header = header.to_vec();
    header[6] = fragment[0];
    let address = |at: usize| Some(IpAddr::from(*ip.get(at..)?.first_chunk::<16>()?));
    let identification = u32::from_be_bytes(*fragment.last_chunk::<4>()?);
    Some(Piece {
        key: (address(8)?, address(24)?, identification, fragment[0]),
        start: usize::from(place & 0xfff8),
        content,
        is_last,
        header,
    })
}

/// All fragments but the last end at a multiple of 8 bytes.
fn is_whole(content: &[u8], is_last: bool) -> bool {
    !content.is_empty() && (is_last || content.len().is_multiple_of(8))
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::SocketAddr;

    use super::super::packet::{Packet, put_datagram};
    use super::*;

    const PAIRS: [[&str; 2]; 2] = [
        ["198.18.0.1:40000", "192.0.2.7:443"],
        ["[fd6d::1]:40000", "[2001:db8::7]:443"],
    ];

    /// The frames of a UDP payload, cut into fragments whose contents have this length.
    fn fragments(pair: [&str; 2], payload: &[u8], size: usize, number: u8) -> Vec<Vec<u8>> {
        let [source, destination] = pair.map(|text| text.parse::<SocketAddr>().unwrap());
        let mut whole = Vec::new();
        put_datagram(&mut whole, source, destination, payload);
        let start = if source.is_ipv4() { 20 } else { 40 };
        let (header, content) = whole[FRAME_HEADER..].split_at(start);
        let pieces = content.chunks(size).enumerate();
        let frames = pieces.map(|(at, piece)| {
            let (place, more) = (at * size, (at + 1) * size < content.len());
            let mut header = header.to_vec();
            if start == 20 {
                header[2..4].copy_from_slice(&((20 + piece.len()) as u16).to_be_bytes());
                header[4..6].copy_from_slice(&[0, number]);
                let field = (place / 8) as u16 | u16::from(more) << 13;
                header[6..8].copy_from_slice(&field.to_be_bytes());
            } else {
                header[4..6].copy_from_slice(&((8 + piece.len()) as u16).to_be_bytes());
                let field = (place as u16 | u16::from(more)).to_be_bytes();
                header.extend([17, 0, field[0], field[1], 0, 0, 0, number]);
                header[6] = FRAGMENT;
            }
            [&[0; FRAME_HEADER][..], &header, piece].concat()
        });
        frames.collect()
    }

    fn whole(taken: Taken) -> Option<Vec<u8>> {
        match taken {
            Taken::Whole(whole) => Some(whole),
            _ => None,
        }
    }

    /// The payload of a whole frame.
    pub(in crate::client::tun) fn payload(mut frame: Vec<u8>) -> Vec<u8> {
        let packet = Packet::parse(&frame).expect("a packet");
        let mut found = Vec::new();
        packet.payloads(&mut frame, |payload| found.push(payload[1..].to_vec()));
        assert_eq!(found.len(), 1, "its checksum is right");
        found.remove(0)
    }

    #[test]
    fn payloads_larger_than_the_mtu_are_put_together() {
        let now = Instant::now();
        let content: Vec<u8> = (0..5000).map(|n| n as u8).collect();
        for pair in PAIRS {
            let mut table = Fragments::default();
            let frames = fragments(pair, &content, 1376, 1);
            let others = fragments(pair, &content[1..], 1376, 2);
            assert_eq!(frames.len(), 4);
            // Out of order, repeated, and mixed with another packet.
            for index in [3, 1, 1, 0] {
                assert_eq!(table.take(&frames[index], now), Taken::Part);
                assert_eq!(table.take(&others[index], now), Taken::Part);
            }
            let found = whole(table.take(&frames[2], now)).expect("whole");
            assert!(payload(found) == content, "{pair:?}");
            let found = whole(table.take(&others[2], now)).expect("whole");
            assert!(payload(found) == content[1..], "{pair:?}");
            assert_eq!(
                (table.bytes, table.begun.len(), table.order.len()),
                (0, 0, 0)
            );
        }
    }

    #[test]
    fn the_largest_payload_and_the_smallest_fragments() {
        let content = vec![7; u16::MAX as usize - 28];
        for pair in PAIRS {
            let mut table = Fragments::default();
            let frames = fragments(pair, &content, 1232, 1);
            let wholes = (frames.iter()).map(|frame| whole(table.take(frame, Instant::now())));
            let wholes: Vec<_> = wholes.flatten().collect();
            assert_eq!(wholes.len(), 1);
            assert!(payload(wholes[0].clone()) == content);
        }
        // A host sends fragments for its MTU of 576 bytes, and a router with an MTU of 400 bytes
        // cuts each of them.
        let mut table = Fragments::default();
        let frames = fragments(PAIRS[0], &content, 272, 1);
        let wholes = (frames.iter()).filter_map(|frame| whole(table.take(frame, Instant::now())));
        assert_eq!(wholes.count(), 1);
        // Hundreds of small fragments would cost more memory than their content.
        let mut table = Fragments::default();
        let frames = fragments(PAIRS[0], &content[..4000], 8, 1);
        assert!(
            frames
                .iter()
                .all(|frame| table.take(frame, Instant::now()) == Taken::Part)
        );
    }

    #[test]
    fn fragments_that_overlap_make_no_packet() {
        let now = Instant::now();
        for pair in PAIRS {
            let mut table = Fragments::default();
            let whole = fragments(pair, &[1; 3000], 1000, 1);
            let other = fragments(pair, &[2; 3000], 992, 1);
            assert_eq!(table.take(&whole[0], now), Taken::Part);
            assert_eq!(table.take(&other[1], now), Taken::Part, "within the first");
            assert_eq!(table.begun.len(), 0);
            for frame in &whole[1..] {
                assert_eq!(table.take(frame, now), Taken::Part);
            }
        }
    }

    #[test]
    fn incomplete_datagrams_take_little_memory_for_a_short_time() {
        let now = Instant::now();
        let mut table = Fragments::default();
        for number in 0..=255 {
            let frames = fragments(PAIRS[0], &[1; 60_000], 30_000, number);
            assert_eq!(table.take(&frames[0], now), Taken::Part);
            assert!(table.bytes <= MOST, "{}", table.bytes);
            assert_eq!(table.begun.len(), table.order.len());
        }
        assert!(table.begun.len() > 30);
        let frames = fragments(PAIRS[1], &[1; 60_000], 30_000, 0);
        assert_eq!(table.take(&frames[1], now + PATIENCE), Taken::Part);
        assert_eq!(table.begun.len(), 1);
        // Whole packets and broken ones are left alone.
        let mut whole = Vec::new();
        let [source, destination] = PAIRS[0].map(|text| text.parse().unwrap());
        put_datagram(&mut whole, source, destination, b"whole");
        for length in 0..=whole.len() {
            assert_eq!(table.take(&whole[..length], now), Taken::NoFragment);
        }
        for length in 0..frames[1].len().min(200) {
            assert_eq!(table.take(&frames[1][..length], now), Taken::NoFragment);
        }
        assert_eq!(table.begun.len(), 1);
    }
}
