//! CONNECT requests in the form of RFC 9114 section 4.4, and requests for CONNECT-IP.
//!
//! h3 0.0.8 writes `:scheme` and `:path` into every request. Only an extended CONNECT request (RFC
//! 9220) may have these fields; other servers refuse a plain one with them as malformed.
//!
//! h3 also lacks the value `connect-ip` of `:protocol` (RFC 9484), and two values of our own. This
//! module shows h3 a CONNECT-IP request as a `connect-udp` request with the field [`CONNECT_IP`];
//! the field never leaves the process.

use bytes::{BufMut, Bytes, BytesMut};

use crate::fields::MARK;
use crate::message::Asked;
use crate::qpack::{Line, lines, put_line, take_line};
use crate::varint::{Varint, put_varint};

/// Frame type of HEADERS (RFC 9114 section 7.2.2).
const HEADERS: u8 = 0x01;
/// The prefix of a field section that refers to no dynamic table (RFC 9204 section 4.5.1).
const PREFIX: [u8; 2] = [0, 0];
/// The pseudo-field of extended CONNECT requests.
const PROTOCOL: &str = ":protocol";

/// The field and value that turn an extended CONNECT request for `connect-udp` into one for
/// `connect-ip` (RFC 9484), which `h3` 0.0.8 does not know. Add it to requests that you send;
/// received requests have it.
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
pub const CONNECT_IP: (&str, &str) = (MARK, "connect-ip");
/// Likewise for `mpquic-tcp-listen`: a proxy listens on a TCP port for its client.
pub const TCP_LISTEN: (&str, &str) = (MARK, "mpquic-tcp-listen");
/// Likewise for `mpquic-tcp-accept`: the client takes a connection to such a port.
pub const TCP_ACCEPT: (&str, &str) = (MARK, "mpquic-tcp-accept");

/// The values of `:protocol` that h3 does not know.
const OTHERS: [&str; 3] = [CONNECT_IP.1, TCP_LISTEN.1, TCP_ACCEPT.1];

/// Corrects the frame at the start of our request, and returns how the request asks: removes
/// `:scheme` and `:path` from a CONNECT request without `:protocol`; turns a marked request into
/// one for the protocol of its mark.
pub(crate) fn corrected(frame: Bytes) -> (Bytes, Asked) {
    let Some(section) = section_of(&frame) else {
        return (frame, Asked::Otherwise);
    };
    let asked = asked(section);
    let changed = match asked {
        Asked::Connect => {
            with_protocol(section, false).or_else(|| without_scheme_and_path(section))
        }
        Asked::Head | Asked::Otherwise => None,
    };
    (changed.unwrap_or(frame), asked)
}

/// The frame for h3 in place of the first frame of a peer's request with this field section: marked
/// for a protocol that h3 does not know, and never otherwise. `None` for an unchanged frame.
pub(crate) fn marked(section: &[u8]) -> Option<Bytes> {
    with_protocol(section, true)
}

/// The payload of a HEADERS frame as h3 writes it.
fn section_of(frame: &[u8]) -> Option<&[u8]> {
    let rest = frame.strip_prefix(&[HEADERS])?;
    let (length, _) = Varint::default().read(rest);
    rest.get(length..)
}

/// h3 writes the method first.
fn asked(section: &[u8]) -> Asked {
    let method = lines(section).and_then(|mut lines| take_line(&mut lines));
    match method {
        Some(line) if !line.name.is(":method") => Asked::Otherwise,
        Some(line) if line.value.is("HEAD") => Asked::Head,
        Some(line) if line.value.is("CONNECT") => Asked::Connect,
        _ => Asked::Otherwise,
    }
}

/// A HEADERS frame with these lines.
fn headers(lines: &[u8]) -> Bytes {
    let length = PREFIX.len() + lines.len();
    let mut frame = BytesMut::with_capacity(length + 9);
    frame.put_u8(HEADERS);
    put_varint(&mut frame, length as u64);
    frame.put_slice(&PREFIX);
    frame.put_slice(lines);
    frame.freeze()
}

/// The frame with another value of `:protocol`, or without a mark by the peer; `None` for an
/// unchanged frame. A received value that h3 does not know becomes the mark, and a sent frame with
/// the mark gets the value of the mark.
fn with_protocol(section: &[u8], is_received: bool) -> Option<Bytes> {
    let mut rest = lines(section)?;
    let mut changed = Vec::with_capacity(section.len());
    let known = |line: &Line<'_>| OTHERS.into_iter().find(|other| line.value.is(other));
    let (mut place, mut mark, mut other) = (None, None, None);
    while !rest.is_empty() {
        let start = rest;
        let line = take_line(&mut rest)?;
        let before = changed.len();
        if line.name.is(MARK) {
            // The peer's mark has no meaning.
            mark = Some(known(&line));
            continue;
        }
        changed.extend_from_slice(&start[..start.len() - rest.len()]);
        if line.name.is(PROTOCOL) {
            other = other.or(known(&line));
            place = Some(before..changed.len());
        }
    }
    let value = match (is_received, other, mark) {
        (true, Some(_), _) => "connect-udp",
        (false, _, Some(Some(marked))) => marked,
        (true, None, Some(_)) | (false, _, Some(None)) => return Some(headers(&changed)),
        (_, _, None) => return None,
    };
    let mut line = Vec::new();
    put_line(&mut line, PROTOCOL, value);
    changed.splice(place?, line);
    if let (true, Some(other)) = (is_received, other) {
        put_line(&mut changed, MARK, other);
    }
    Some(headers(&changed))
}

/// `None` for a request with `:protocol`, which needs both.
fn without_scheme_and_path(section: &[u8]) -> Option<Bytes> {
    let mut rest = lines(section)?;
    let mut kept = Vec::with_capacity(section.len());
    while !rest.is_empty() {
        let start = rest;
        let line = take_line(&mut rest)?;
        if line.name.is(PROTOCOL) {
            return None;
        }
        if !line.name.is(":scheme") && !line.name.is(":path") {
            kept.extend_from_slice(&start[..start.len() - rest.len()]);
        }
    }
    Some(headers(&kept))
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

    /// A request of ours on the way.
    fn sent(frame: Bytes) -> Bytes {
        corrected(frame).0
    }

    /// A request of the peer's as h3 gets it.
    fn received(frame: Bytes) -> Bytes {
        let section = section_of(&frame).unwrap();
        marked(section).unwrap_or(frame)
    }

    const CONNECT: &[u8] = &[0b1100_0000 | 15];
    const GET: &[u8] = &[0b1100_0000 | 17];
    const HTTPS: &[u8] = &[0b1100_0000 | 23];
    const ROOT: &[u8] = &[0b1100_0000 | 1];
    /// A method outside of the static table, with its name inside.
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
            assert_eq!(sent(written), frame(&[CONNECT, AUTHORITY, FIELD]));
        }
    }

    /// A string, and what it is in Huffman's code (RFC 7541 appendix B).
    type Both = (&'static str, &'static [u8]);
    const NAME: Both = (":protocol", b"\xb9\x5d\x87\x49\xc8\x7a\x3f");
    const IP: Both = ("connect-ip", b"\x21\xea\xa8\xa4\x4a\xc6\xaf");
    const UDP: Both = ("connect-udp", b"\x21\xea\xa8\xa4\x4a\xd6\xc9\x5f");
    const MARKED: Both = (
        "mpquic-protocol",
        b"\xa6\xbe\xd6\x98\x8b\x57\x61\xd2\x72\x1e\x8f",
    );

    /// A line with a name and a value, each as it is or in Huffman's code.
    fn line(name: Both, value: Both, is_huffman: bool) -> Vec<u8> {
        let mut line = Vec::new();
        if !is_huffman {
            put_line(&mut line, name.0, value.0);
            return line;
        }
        match name.1.len() {
            short @ 0..7 => line.push(0b0010_1000 | short as u8),
            long => line.extend([0b0010_1111, (long - 7) as u8]),
        }
        line.extend_from_slice(name.1);
        line.push(0b1000_0000 | value.1.len() as u8);
        line.extend_from_slice(value.1);
        line
    }

    #[test]
    fn connect_ip_is_marked_for_h3_and_not_on_the_way() {
        for is_huffman in [false, true] {
            let udp = line(NAME, UDP, is_huffman);
            let (ip, mark) = (line(NAME, IP, is_huffman), line(MARKED, IP, is_huffman));
            let on_the_way = frame(&[
                CONNECT,
                HTTPS,
                AUTHORITY,
                FILE,
                &line(NAME, IP, false),
                FIELD,
            ]);
            let written = frame(&[CONNECT, HTTPS, AUTHORITY, FILE, &udp, &mark, FIELD]);
            assert_eq!(sent(written.clone()), on_the_way);
            let read = frame(&[CONNECT, HTTPS, AUTHORITY, FILE, &ip, FIELD]);
            let for_h3 = frame(&[
                CONNECT,
                HTTPS,
                AUTHORITY,
                FILE,
                &line(NAME, UDP, false),
                FIELD,
                &line(MARKED, IP, false),
            ]);
            assert_eq!(received(read.clone()), for_h3);
            // A peer gains nothing by sending the mark itself.
            let twice = frame(&[CONNECT, HTTPS, AUTHORITY, FILE, &ip, FIELD, &mark]);
            assert_eq!(received(twice), for_h3);
            let only_marked = frame(&[CONNECT, HTTPS, AUTHORITY, FILE, &mark, &udp, FIELD, &mark]);
            let without = frame(&[CONNECT, HTTPS, AUTHORITY, FILE, &udp, FIELD]);
            assert_eq!(received(only_marked), without);
            let get = frame(&[GET, HTTPS, AUTHORITY, FILE, FIELD, &mark]);
            assert_eq!(received(get), frame(&[GET, HTTPS, AUTHORITY, FILE, FIELD]));
            // Fields out of place stay, for h3 to refuse.
            let other = [CONNECT, HTTPS, AUTHORITY, FILE, UNKNOWN];
            assert_eq!(
                received(frame(&[&other[..], &[&ip]].concat())),
                frame(
                    &[
                        &other[..],
                        &[&line(NAME, UDP, false), &line(MARKED, IP, false)]
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
                assert_eq!(received(unchanged.clone()), unchanged);
            }
        }
    }

    #[test]
    fn values_of_our_own_are_marked_in_the_same_way() {
        for (mark, value) in [TCP_LISTEN, TCP_ACCEPT] {
            let of = |name: &str, value: &str| {
                let mut line = Vec::new();
                put_line(&mut line, name, value);
                line
            };
            let on_the_way = frame(&[CONNECT, HTTPS, AUTHORITY, FILE, &of(":protocol", value)]);
            let (udp, marked) = (of(":protocol", "connect-udp"), of(mark, value));
            let for_h3 = frame(&[CONNECT, HTTPS, AUTHORITY, FILE, &udp, &marked]);
            assert_eq!(sent(for_h3.clone()), on_the_way);
            assert_eq!(received(on_the_way), for_h3);
        }
        let udp = line(NAME, UDP, false);
        let mut unknown = Vec::new();
        put_line(&mut unknown, MARK, "other");
        let written = frame(&[CONNECT, HTTPS, AUTHORITY, FILE, &udp, &unknown]);
        assert_eq!(
            sent(written),
            frame(&[CONNECT, HTTPS, AUTHORITY, FILE, &udp])
        );
    }

    #[test]
    fn other_requests_stay_as_they_are() {
        for written in [
            frame(&[GET, HTTPS, AUTHORITY, ROOT, FIELD]),
            frame(&[MKCOL, HTTPS, AUTHORITY, FILE, FIELD]),
            frame(&[CONNECT, HTTPS, AUTHORITY, FILE, PROTOCOL, FIELD]),
        ] {
            assert_eq!(sent(written.clone()), written);
        }
        assert_eq!(corrected(frame(&[GET, HTTPS])).1, Asked::Otherwise);
        assert_eq!(
            corrected(frame(&[&[0b1100_0000 | 18], HTTPS])).1,
            Asked::Head
        );
        assert_eq!(corrected(frame(&[CONNECT, AUTHORITY])).1, Asked::Connect);
        let whole = frame(&[CONNECT, HTTPS, AUTHORITY, ROOT, FIELD]);
        // Cut within a line, it is not for us to mend.
        let cut = whole.slice(..whole.len() - 1);
        assert_eq!(sent(cut.clone()), cut);
        let number = Bytes::from_static(b"\x01\x0c\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff");
        assert_eq!(sent(number.clone()), number);
    }
}
