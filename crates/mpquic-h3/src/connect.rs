//! CONNECT requests as RFC 9114 section 4.4 wants them, and those for CONNECT-IP.
//!
//! h3 0.0.8 writes `:scheme` and `:path` into every request. A CONNECT request must have neither, unless
//! it is an extended one (RFC 9220); with them it is malformed, and other servers refuse it.
//!
//! And it knows some values of `:protocol` only, `connect-ip` (RFC 9484) not among them. So to h3 such a
//! request is one for `connect-udp` that has the field [`CONNECT_IP`], which never travels.

use bytes::{BufMut, Bytes, BytesMut};

use crate::varint::put_varint;

/// Frame type of HEADERS (RFC 9114 section 7.2.2).
const HEADERS: u8 = 0x01;
/// Bytes of the prefix of a field section that refers to no dynamic table (RFC 9204 section 4.5.1).
const PREFIX: usize = 2;

/// The field, and its value, that make an extended CONNECT request for `connect-udp` one for `connect-ip`
/// (RFC 9484), of which `h3` 0.0.8 knows nothing. Give it to a request that is sent; one that was received has it.
///
/// ```
/// use http::{HeaderValue, Method, Request};
/// use mpquic_h3::{CONNECT_IP, h3::ext::Protocol};
///
/// let mut request = Request::builder()
///     .method(Method::CONNECT)
///     .uri("https://proxy.example/.well-known/masque/ip/*/*/")
///     .header(CONNECT_IP.0, CONNECT_IP.1)
///     .body(())?;
/// request.extensions_mut().insert(Protocol::CONNECT_UDP);
/// # Ok::<_, http::Error>(())
/// ```
pub const CONNECT_IP: (&str, &str) = ("mpquic-protocol", "connect-ip");

/// A string, and what it is in Huffman's code (RFC 7541 appendix B).
type Text = (&'static [u8], &'static [u8]);
const NAME: Text = (b":protocol", b"\xb9\x5d\x87\x49\xc8\x7a\x3f");
const IP: Text = (b"connect-ip", b"\x21\xea\xa8\xa4\x4a\xc6\xaf");
const MARK: Text = (
    b"mpquic-protocol",
    b"\xa6\xbe\xd6\x98\x8b\x57\x61\xd2\x72\x1e\x8f",
);

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
    /// `:protocol`, which the static table has not.
    Protocol {
        /// It says `connect-ip`.
        is_ip: bool,
    },
    /// The field [`CONNECT_IP`], whatever its value.
    Mark,
    Other,
}

/// Corrects the frame that begins a request: takes `:scheme` and `:path` out of it if it is a CONNECT
/// request without `:protocol`; makes it one for `connect-ip` if it is marked.
pub(crate) fn corrected(frame: Bytes) -> Bytes {
    if !is_special(&frame) {
        return frame;
    }
    without_scheme_and_path(&frame)
        .or_else(|| with_protocol(&frame, false))
        .unwrap_or(frame)
}

/// True for a HEADERS frame.
pub(crate) fn is_headers(frame: &[u8]) -> bool {
    frame.first() == Some(&HEADERS)
}

/// Changes a frame that begins a request of the peer's: it is marked if it is for `connect-ip`, and only then.
pub(crate) fn marked(frame: Bytes) -> Bytes {
    if !is_special(&frame) {
        return frame;
    }
    with_protocol(&frame, true).unwrap_or(frame)
}

/// True if one of the field lines of a HEADERS frame may be a reason to change it. Most have none.
fn is_special(frame: &[u8]) -> bool {
    let Some((_, mut lines)) = section(frame) else {
        return false;
    };
    while !lines.is_empty() {
        match take_line(&mut lines) {
            Some(Line::Static(METHOD_CONNECT) | Line::Protocol { .. } | Line::Mark) => return true,
            Some(_) => {}
            None => return false,
        }
    }
    false
}

/// The field lines of a HEADERS frame, and what stands before them.
fn section(frame: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = frame.strip_prefix(&[HEADERS])?;
    let length = 1usize << (rest.first()? >> 6);
    rest.get(length..)?.split_at_checked(PREFIX)
}

/// A HEADERS frame with this field section.
fn headers(section: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(section.len() + 9);
    frame.put_u8(HEADERS);
    put_varint(&mut frame, section.len() as u64);
    frame.put_slice(section);
    frame.freeze()
}

/// The frame with another value of `:protocol`, or without a mark that the peer made; `None` if it stays. What is
/// received and says `connect-ip` is marked, what is sent says so if it has the mark.
fn with_protocol(frame: &[u8], is_received: bool) -> Option<Bytes> {
    let (prefix, mut lines) = section(frame)?;
    let mut changed = prefix.to_vec();
    let (mut place, mut is_marked, mut is_ip) = (None, false, false);
    while !lines.is_empty() {
        let start = lines;
        let line = take_line(&mut lines)?;
        let before = changed.len();
        if line == Line::Mark {
            // From the peer it says nothing.
            is_marked = true;
            continue;
        }
        changed.extend_from_slice(&start[..start.len() - lines.len()]);
        if let Line::Protocol { is_ip: says } = line {
            is_ip |= says;
            place = Some(before..changed.len());
        }
    }
    let value = match is_received {
        true if is_ip => b"connect-udp",
        true if is_marked => return Some(headers(&changed)),
        false if is_marked => IP.0,
        _ => return None,
    };
    let mut line = Vec::new();
    put_line(&mut line, NAME.0, value);
    changed.splice(place?, line);
    if is_received {
        put_line(&mut changed, MARK.0, IP.0);
    }
    Some(headers(&changed))
}

/// A field line with a name and a value of its own (RFC 9204 section 4.5.6), each shorter than 127 bytes.
fn put_line(lines: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    match name.len() {
        short @ 0..7 => lines.push(0b0010_0000 | short as u8),
        long => lines.extend([0b0010_0111, (long - 7) as u8]),
    }
    lines.extend_from_slice(name);
    lines.push(value.len() as u8);
    lines.extend_from_slice(value);
}

/// `None` if the frame is fine as it is.
fn without_scheme_and_path(frame: &[u8]) -> Option<Bytes> {
    let (prefix, mut lines) = section(frame)?;
    let mut kept = prefix.to_vec();
    let mut is_connect = false;
    while !lines.is_empty() {
        let start = lines;
        let line = take_line(&mut lines)?;
        is_connect |= line == Line::Static(METHOD_CONNECT);
        match line {
            Line::Protocol { .. } => return None,
            Line::Static(line) | Line::StaticName(line)
                if line == PATH || SCHEMES.contains(&line) => {}
            _ => kept.extend_from_slice(&start[..start.len() - lines.len()]),
        }
    }
    if !is_connect {
        return None;
    }
    Some(headers(&kept))
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
            let value_is_huffman = rest.first()? & 0b1000_0000 != 0;
            let value = take_string(rest, 7)?;
            let is_ip = says(IP, value_is_huffman, value);
            Some(if says(NAME, is_huffman, name) {
                Line::Protocol { is_ip }
            } else if says(MARK, is_huffman, name) {
                Line::Mark
            } else {
                Line::Other
            })
        }
        _ => None,
    }
}

/// True if a string is this text.
fn says(text: Text, is_huffman: bool, string: &[u8]) -> bool {
    string == if is_huffman { text.1 } else { text.0 }
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
    const UNKNOWN: &[u8] = b"\x27\x01:unknown\x01x";
    const PROTOCOL: &[u8] = b"\x27\x02:protocol\x01x";

    #[test]
    fn a_connect_request_has_neither_scheme_nor_path() {
        for path in [ROOT, FILE] {
            let written = frame(&[CONNECT, HTTPS, AUTHORITY, path, FIELD]);
            assert_eq!(corrected(written), frame(&[CONNECT, AUTHORITY, FIELD]));
        }
    }

    /// A line with a name and a value, each as it is or in Huffman's code.
    fn line(name: Text, value: Text, is_huffman: bool) -> Vec<u8> {
        let (name, value) = match is_huffman {
            true => (name.1, value.1),
            false => (name.0, value.0),
        };
        let mut line = Vec::new();
        put_line(&mut line, name, value);
        if is_huffman {
            line[0] |= 0b1000;
            let at = line.len() - value.len() - 1;
            line[at] |= 0b1000_0000;
        }
        line
    }

    #[test]
    fn connect_ip_is_marked_for_h3_and_not_on_the_way() {
        const UDP: Text = (b"connect-udp", b"\x21\xea\xa8\xa4\x4a\xd6\xc9\x5f");
        for is_huffman in [false, true] {
            let udp = line(NAME, UDP, is_huffman);
            let (ip, mark) = (line(NAME, IP, is_huffman), line(MARK, IP, is_huffman));
            let on_the_way = frame(&[
                CONNECT,
                HTTPS,
                AUTHORITY,
                FILE,
                &line(NAME, IP, false),
                FIELD,
            ]);
            let written = frame(&[CONNECT, HTTPS, AUTHORITY, FILE, &udp, &mark, FIELD]);
            assert_eq!(corrected(written.clone()), on_the_way);
            let read = frame(&[CONNECT, HTTPS, AUTHORITY, FILE, &ip, FIELD]);
            let for_h3 = frame(&[
                CONNECT,
                HTTPS,
                AUTHORITY,
                FILE,
                &line(NAME, UDP, false),
                FIELD,
                &line(MARK, IP, false),
            ]);
            assert_eq!(marked(read.clone()), for_h3);
            // Nobody who says so gets anything else by it.
            let twice = frame(&[CONNECT, HTTPS, AUTHORITY, FILE, &ip, FIELD, &mark]);
            assert_eq!(marked(twice), for_h3);
            let only_marked = frame(&[CONNECT, HTTPS, AUTHORITY, FILE, &mark, &udp, FIELD, &mark]);
            let without = frame(&[CONNECT, HTTPS, AUTHORITY, FILE, &udp, FIELD]);
            assert_eq!(marked(only_marked), without);
            let get = frame(&[GET, HTTPS, AUTHORITY, FILE, FIELD, &mark]);
            assert_eq!(marked(get), frame(&[GET, HTTPS, AUTHORITY, FILE, FIELD]));
            // What has no business there stays, for h3 to refuse.
            let other = [CONNECT, HTTPS, AUTHORITY, FILE, UNKNOWN];
            assert_eq!(
                marked(frame(&[&other[..], &[&ip]].concat())),
                frame(
                    &[
                        &other[..],
                        &[&line(NAME, UDP, false), &line(MARK, IP, false)]
                    ]
                    .concat()
                )
            );
            for unchanged in [
                without,
                frame(&[CONNECT, AUTHORITY, FIELD]),
                frame(&[GET, HTTPS, AUTHORITY, FILE, FIELD]),
                read.slice(..read.len() - 1),
            ] {
                assert_eq!(marked(unchanged.clone()), unchanged);
            }
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
