//! CONNECT requests as RFC 9114 section 4.4 wants them.
//!
//! h3 0.0.8 writes `:scheme` and `:path` into every request. A CONNECT request must have neither, unless
//! it is an extended one (RFC 9220); with them it is malformed, and other servers refuse it.

use bytes::{BufMut, Bytes, BytesMut};

use crate::varint::put_varint;

/// Frame type of HEADERS (RFC 9114 section 7.2.2).
const HEADERS: u8 = 0x01;
/// Bytes of the prefix of a field section that refers to no dynamic table (RFC 9204 section 4.5.1).
const PREFIX: usize = 2;

/// Lines of the static table (RFC 9204 appendix A).
const PATH: u64 = 1;
const METHOD_CONNECT: u64 = 15;
const SCHEMES: [u64; 2] = [22, 23];

/// A field line, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// Name and value are those of this line of the static table.
    Static(u64),
    /// The name is that of this line.
    StaticName(u64),
    /// A pseudo-header field that the static table has not: only `:protocol` is one.
    Pseudo,
    Other,
}

/// Corrects the frame that begins a request: takes `:scheme` and `:path` out of it if it is a CONNECT
/// request without `:protocol`.
pub(crate) fn corrected(frame: Bytes) -> Bytes {
    without_scheme_and_path(&frame).unwrap_or(frame)
}

/// `None` if the frame is fine as it is.
fn without_scheme_and_path(frame: &[u8]) -> Option<Bytes> {
    let rest = frame.strip_prefix(&[HEADERS])?;
    let length = 1usize << (rest.first()? >> 6);
    let section = rest.get(length..)?;
    let (prefix, mut lines) = section.split_at_checked(PREFIX)?;
    let mut kept = prefix.to_vec();
    let mut is_connect = false;
    while !lines.is_empty() {
        let start = lines;
        let line = take_line(&mut lines)?;
        is_connect |= line == Line::Static(METHOD_CONNECT);
        match line {
            Line::Pseudo => return None,
            Line::Static(line) | Line::StaticName(line)
                if line == PATH || SCHEMES.contains(&line) => {}
            _ => kept.extend_from_slice(&start[..start.len() - lines.len()]),
        }
    }
    if !is_connect {
        return None;
    }
    let mut corrected = BytesMut::with_capacity(frame.len());
    corrected.put_u8(HEADERS);
    put_varint(&mut corrected, kept.len() as u64);
    corrected.put_slice(&kept);
    Some(corrected.freeze())
}

/// Takes a field line off the front (RFC 9204 section 4.5); `None` for one that refers to the dynamic
/// table, or is cut.
fn take_line(rest: &mut &[u8]) -> Option<Line> {
    let first = *rest.first()?;
    match first {
        _ if first & 0b1100_0000 == 0b1100_0000 => take_number(rest, 6).map(Line::Static),
        _ if first & 0b1101_0000 == 0b0101_0000 => {
            let line = take_number(rest, 4)?;
            take_string(rest, 7)?;
            Some(Line::StaticName(line))
        }
        _ if first & 0b1110_0000 == 0b0010_0000 => {
            let is_huffman = first & 0b0000_1000 != 0;
            let name = take_string(rest, 3)?;
            take_string(rest, 7)?;
            let first = *name.first()?;
            // RFC 7541 appendix B: a colon is the seven bits 1011100.
            let is_pseudo = match is_huffman {
                true => first >> 1 == 0b101_1100,
                false => first == b':',
            };
            Some(if is_pseudo { Line::Pseudo } else { Line::Other })
        }
        _ => None,
    }
}

/// A string behind a length with a prefix of so many bits.
fn take_string<'a>(rest: &mut &'a [u8], bits: u32) -> Option<&'a [u8]> {
    let length = usize::try_from(take_number(rest, bits)?).ok()?;
    let (string, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(string)
}

/// An integer with a prefix of so many bits (RFC 7541 section 5.1).
fn take_number(rest: &mut &[u8], bits: u32) -> Option<u64> {
    let mask = (1u8 << bits) - 1;
    let (first, left) = rest.split_first()?;
    *rest = left;
    let mut number = u64::from(first & mask);
    if number < u64::from(mask) {
        return Some(number);
    }
    let mut shift = 0;
    loop {
        let (byte, left) = rest.split_first()?;
        *rest = left;
        number = number.checked_add(u64::from(byte & 0x7f).checked_shl(shift)?)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A HEADERS frame of these field lines.
    fn frame(lines: &[&[u8]]) -> Bytes {
        let section = [&[0, 0][..], &lines.concat()].concat();
        let mut frame = BytesMut::from(&[HEADERS][..]);
        put_varint(&mut frame, section.len() as u64);
        frame.put_slice(&section);
        frame.freeze()
    }

    const CONNECT: &[u8] = &[0b1100_0000 | 15];
    const GET: &[u8] = &[0b1100_0000 | 17];
    const HTTPS: &[u8] = &[0b1100_0000 | 23];
    const ROOT: &[u8] = &[0b1100_0000 | 1];
    /// A method that the static table has not, only its name.
    const MKCOL: &[u8] = b"\x5f\x00\x05MKCOL";
    /// A path that the static table has not.
    const FILE: &[u8] = b"\x51\x02/a";
    const AUTHORITY: &[u8] = b"\x50\x05a:443";
    const FIELD: &[u8] = b"\x21a\x01b";
    const PROTOCOL: &[u8] = b"\x27\x02:protocol\x01x";

    #[test]
    fn a_connect_request_has_neither_scheme_nor_path() {
        for path in [ROOT, FILE] {
            let written = frame(&[CONNECT, HTTPS, AUTHORITY, path, FIELD]);
            assert_eq!(corrected(written), frame(&[CONNECT, AUTHORITY, FIELD]));
        }
    }

    #[test]
    fn other_requests_stay_as_they_are() {
        for written in [
            frame(&[GET, HTTPS, AUTHORITY, ROOT, FIELD]),
            frame(&[MKCOL, HTTPS, AUTHORITY, FILE, FIELD]),
            frame(&[CONNECT, HTTPS, AUTHORITY, FILE, PROTOCOL, FIELD]),
        ] {
            assert_eq!(corrected(written.clone()), written);
        }
        let whole = frame(&[CONNECT, HTTPS, AUTHORITY, ROOT, FIELD]);
        // Cut within a line, it is not for us to mend.
        let cut = whole.slice(..whole.len() - 1);
        assert_eq!(corrected(cut.clone()), cut);
        let number = Bytes::from_static(b"\x01\x0c\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff");
        assert_eq!(corrected(number.clone()), number);
    }
}
