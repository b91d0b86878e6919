//! The table of messages: requests and responses, frame by frame, and what becomes of them.

use h3::error::Code;
use mpquic_h3::h3;

/// Frame types.
const DATA: u8 = 0x00;
pub(crate) const HEADERS: u8 = 0x01;
/// HEADERS in eight bytes, where one would do.
const LONG_HEADERS: &[u8] = &[0xc0, 0, 0, 0, 0, 0, 0, HEADERS];
/// The prefix of a field section that refers to no dynamic table.
const PREFIX: &[u8] = &[0, 0];
/// The same with a base, of two bytes, that nothing refers to.
const LONG_PREFIX: &[u8] = &[0, 0x7f, 0];

pub(crate) type Lines<'a> = &'a [(&'a str, &'a str)];

pub(crate) const GET: Lines = &[
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "a"),
    (":path", "/"),
];
pub(crate) const PUT: Lines = &[
    (":method", "PUT"),
    (":scheme", "https"),
    (":authority", "a"),
    (":path", "/"),
];
const CONNECT: Lines = &[(":method", "CONNECT"), (":authority", "a:1")];
const EXTENDED: Lines = &[
    (":method", "CONNECT"),
    (":protocol", "connect-udp"),
    (":scheme", "https"),
    (":authority", "a"),
    (":path", "/"),
];
pub(crate) const OK: Lines = &[(":status", "200")];
const LATE: Lines = &[
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "a"),
    ("a", "b"),
    (":path", "/"),
];
const HOST: Lines = &[
    (":method", "GET"),
    (":scheme", "https"),
    (":path", "/"),
    ("host", "a"),
];
const LENGTH: Lines = &[("content-length", "5")];
const TRAILERS: Lines = &[("a", "b")];

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Taken,
    Malformed,
    /// The connection ends.
    Closed(Code),
}
use Outcome::{Closed, Malformed, Taken};

const UNEXPECTED: Outcome = Closed(Code::H3_FRAME_UNEXPECTED);
/// A stream ends within a frame.
const CUT: Outcome = Closed(Code::H3_FRAME_ERROR);
const UNDECODABLE: Outcome = Closed(Code::QPACK_DECOMPRESSION_FAILED);

/// A frame of a message.
#[derive(Debug)]
enum Part {
    /// The fields of an ordinary message, and these.
    Base(Lines<'static>),
    Fields(Lines<'static>),
    With(Lines<'static>, Lines<'static>),
    /// The lines without one of them.
    Without(Lines<'static>, &'static str),
    /// The lines with another value of one of them.
    But(Lines<'static>, &'static str, &'static str),
    /// A field section in bytes.
    Headers(&'static [u8]),
    /// The fields of an ordinary message, and these, behind another spelling of the frame type and
    /// of the prefix.
    Spelled(&'static [u8], &'static [u8], Lines<'static>),
    Data(usize),
    /// Bytes as they are.
    Bytes(&'static [u8]),
}
use Part::{Base, But, Bytes, Data, Fields, Headers, Spelled, With, Without};

impl Part {
    /// As part of a message whose ordinary fields are these.
    fn encode(&self, base: Lines) -> Vec<u8> {
        match *self {
            Base(more) => with(base, more),
            Fields(lines) => fields(lines),
            With(lines, more) => with(lines, more),
            Without(lines, name) => {
                let kept = lines.iter().copied().filter(|line| line.0 != name);
                fields(&kept.collect::<Vec<_>>())
            }
            But(lines, name, value) => {
                let changed = lines.iter().copied().map(|line| {
                    if line.0 == name {
                        (line.0, value)
                    } else {
                        line
                    }
                });
                fields(&changed.collect::<Vec<_>>())
            }
            Headers(section) => frame(&[HEADERS], section),
            Spelled(kind, prefix, more) => headers(kind, prefix, &[base, more].concat()),
            Data(length) => data(length),
            Bytes(bytes) => bytes.to_vec(),
        }
    }
}

/// What it is, its frames, and what becomes of it.
type Row = (&'static str, &'static [Part], Outcome);

/// A row in bytes.
pub(crate) struct Message {
    pub(crate) what: &'static str,
    pub(crate) bytes: Vec<u8>,
    pub(crate) expected: Outcome,
    pub(crate) asked: Asked,
}

fn messages(rows: &[Row], base: Lines, asked: Asked) -> Vec<Message> {
    let message = |&(what, parts, expected): &Row| Message {
        what,
        bytes: parts.iter().flat_map(|part| part.encode(base)).collect(),
        expected,
        asked,
    };
    rows.iter().map(message).collect()
}

pub(crate) fn requests() -> Vec<Message> {
    let rows = [BOTH, REQUESTS];
    rows.into_iter()
        .flat_map(|rows| messages(rows, GET, Asked::Get))
        .collect()
}

pub(crate) fn responses() -> Vec<Message> {
    let rows = [
        (BOTH, Asked::Get),
        (RESPONSES, Asked::Get),
        (TO_HEAD, Asked::Head),
        (TO_CONNECT, Asked::Connect),
    ];
    rows.into_iter()
        .flat_map(|(rows, asked)| messages(rows, OK, asked))
        .collect()
}

/// Of the request that is answered.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asked {
    Get,
    Head,
    Connect,
}

fn frame(kind: &[u8], payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap() | 0x4000;
    [kind, &length.to_be_bytes(), payload].concat()
}

/// An integer behind the first bits of its byte.
fn number(first: u8, bits: u32, number: usize) -> Vec<u8> {
    let most = (1 << bits) - 1;
    if number < most {
        vec![first | number as u8]
    } else {
        vec![first | most as u8, u8::try_from(number - most).unwrap()]
    }
}

/// A HEADERS frame with these field lines, none of which refers to a table.
pub(crate) fn fields(lines: Lines) -> Vec<u8> {
    headers(&[HEADERS], PREFIX, lines)
}

/// The same with this spelling of the frame type, and with this prefix of the field section.
fn headers(kind: &[u8], prefix: &[u8], lines: Lines) -> Vec<u8> {
    let mut section = prefix.to_vec();
    for (name, value) in lines {
        section.extend(number(0b0010_0000, 3, name.len()));
        section.extend_from_slice(name.as_bytes());
        section.extend(number(0, 7, value.len()));
        section.extend_from_slice(value.as_bytes());
    }
    frame(kind, &section)
}

pub(crate) fn with(lines: Lines, more: Lines) -> Vec<u8> {
    fields(&[lines, more].concat())
}

pub(crate) fn data(length: usize) -> Vec<u8> {
    frame(&[DATA], &vec![b'x'; length])
}

/// Cut frames, fields that a message may not have, and fields that a message may have.
const BOTH: &[Row] = &[
    (
        "a frame type that is cut behind trailers",
        &[Base(&[]), Fields(TRAILERS), Bytes(&[0xa5, 0xfe])],
        CUT,
    ),
    (
        "a frame length that is cut behind trailers",
        &[Base(&[]), Fields(TRAILERS), Bytes(&[0x21])],
        CUT,
    ),
    (
        "an unknown frame that is cut",
        &[Base(&[]), Data(5), Bytes(&[0x21, 5, 0])],
        CUT,
    ),
    (
        "trailers that are cut",
        &[Base(&[]), Data(5), Bytes(&[1, 5, 0, 0])],
        CUT,
    ),
    ("connection", &[Base(&[("connection", "close")])], Malformed),
    (
        "keep-alive",
        &[Base(&[("keep-alive", "timeout=5")])],
        Malformed,
    ),
    (
        "proxy-connection",
        &[Base(&[("proxy-connection", "x")])],
        Malformed,
    ),
    (
        "transfer-encoding",
        &[Base(&[("transfer-encoding", "chunked")])],
        Malformed,
    ),
    ("upgrade", &[Base(&[("upgrade", "websocket")])], Malformed),
    ("te: gzip", &[Base(&[("te", "gzip")])], Malformed),
    (
        "te: trailers;q=1",
        &[Base(&[("te", "trailers;q=1")])],
        Malformed,
    ),
    ("an upper-case name", &[Base(&[("Accept", "x")])], Malformed),
    ("a space in a name", &[Base(&[("a b", "x")])], Malformed),
    ("no name", &[Base(&[("", "x")])], Malformed),
    ("CR and LF", &[Base(&[("a", "b\r\nc: d")])], Malformed),
    ("NUL", &[Base(&[("a", "b\0")])], Malformed),
    (
        "an unknown pseudo-field",
        &[Base(&[(":unknown", "x")])],
        Malformed,
    ),
    (
        "a plus",
        &[Base(&[("content-length", "+5")]), Data(5)],
        Malformed,
    ),
    (
        "a list",
        &[Base(&[("content-length", "5, 5")]), Data(5)],
        Malformed,
    ),
    ("no length", &[Base(&[("content-length", "")])], Malformed),
    (
        "a length of 2^64",
        &[Base(&[("content-length", "18446744073709551616")])],
        Malformed,
    ),
    (
        "two lengths",
        &[
            Base(&[("content-length", "5"), ("content-length", "6")]),
            Data(5),
        ],
        Malformed,
    ),
    (
        "a length twice",
        &[
            Base(&[("content-length", "5"), ("content-length", "5")]),
            Data(5),
        ],
        Taken,
    ),
    ("too much", &[Base(LENGTH), Data(6)], Malformed),
    (
        "too much, later",
        &[Base(LENGTH), Data(5), Data(1)],
        Malformed,
    ),
    ("the length", &[Base(LENGTH), Data(2), Data(3)], Taken),
    (
        "the LENGTH, and an empty frame",
        &[Base(LENGTH), Data(5), Data(0)],
        Taken,
    ),
    ("no content", &[Base(&[("content-length", "0")])], Taken),
    ("trailers", &[Base(&[]), Data(5), Fields(TRAILERS)], Taken),
    ("trailers alone", &[Base(&[]), Fields(TRAILERS)], Taken),
    (
        "a pseudo-field in trailers",
        &[Base(&[]), Data(5), Fields(&[(":path", "/")])],
        Malformed,
    ),
    (
        "a status in trailers",
        &[Base(&[]), Fields(&[(":status", "200")])],
        Malformed,
    ),
    (
        "connection in trailers",
        &[Base(&[]), Fields(&[("connection", "close")])],
        Malformed,
    ),
    (
        "te in trailers",
        &[Base(&[]), Fields(&[("te", "trailers")])],
        Malformed,
    ),
    (
        "an upper-case name in trailers",
        &[Base(&[]), Fields(&[("A", "b")])],
        Malformed,
    ),
    (
        "DATA behind trailers",
        &[Base(&[]), Fields(TRAILERS), Data(1)],
        UNEXPECTED,
    ),
    (
        "empty DATA behind trailers",
        &[Base(&[]), Fields(TRAILERS), Data(0)],
        UNEXPECTED,
    ),
    (
        "trailers twice",
        &[Base(&[]), Fields(TRAILERS), Fields(TRAILERS)],
        UNEXPECTED,
    ),
    ("DATA first", &[Data(1), Base(&[])], UNEXPECTED),
    (
        "a line of the dynamic table",
        &[Headers(&[0, 0, 0x80])],
        UNDECODABLE,
    ),
    (
        "a long frame type",
        &[Spelled(LONG_HEADERS, PREFIX, &[])],
        Taken,
    ),
    (
        "connection behind a long frame type",
        &[Spelled(LONG_HEADERS, PREFIX, &[("connection", "close")])],
        Malformed,
    ),
    (
        "too much behind a long frame type",
        &[Spelled(LONG_HEADERS, PREFIX, LENGTH), Data(6)],
        Malformed,
    ),
    (
        "a long prefix",
        &[Spelled(&[HEADERS], LONG_PREFIX, &[])],
        Taken,
    ),
    (
        "connection behind a long prefix",
        &[Spelled(&[HEADERS], LONG_PREFIX, &[("connection", "close")])],
        Malformed,
    ),
    (
        "too much behind a long prefix",
        &[Spelled(&[HEADERS], LONG_PREFIX, LENGTH), Data(6)],
        Malformed,
    ),
    // The name `a` in Huffman's code, filled up with zeros.
    (
        "a wrong end of Huffman's code",
        &[Headers(&[0, 0, 0x29, 0x18, 0])],
        UNDECODABLE,
    ),
];

const REQUESTS: &[Row] = &[
    ("GET", &[Base(&[])], Taken),
    ("PUT", &[Fields(PUT), Data(5)], Taken),
    ("te: trailers", &[Base(&[("te", "Trailers")])], Taken),
    (
        "chunks",
        &[With(PUT, &[("transfer-encoding", "chunked")]), Data(9)],
        Malformed,
    ),
    ("too little", &[With(PUT, LENGTH), Data(4)], Malformed),
    ("nothing", &[Base(&[("content-length", "5")])], Malformed),
    (
        "too little before trailers",
        &[With(PUT, LENGTH), Data(4), Fields(TRAILERS)],
        Malformed,
    ),
    (":method twice", &[Base(&[(":method", "GET")])], Malformed),
    (":scheme twice", &[Base(&[(":scheme", "https")])], Malformed),
    (":path twice", &[Base(&[(":path", "/other")])], Malformed),
    (
        ":authority twice",
        &[Base(&[(":authority", "b")])],
        Malformed,
    ),
    ("a late pseudo-field", &[Fields(LATE)], Malformed),
    (":status", &[Base(&[(":status", "200")])], Malformed),
    ("no :method", &[Without(GET, ":method")], Malformed),
    ("no :scheme", &[Without(GET, ":scheme")], Malformed),
    ("no :path", &[Without(GET, ":path")], Malformed),
    ("an empty :path", &[But(GET, ":path", "")], Malformed),
    (
        "a :path without a slash",
        &[But(GET, ":path", "a")],
        Malformed,
    ),
    ("* with GET", &[But(GET, ":path", "*")], Malformed),
    ("no host", &[Without(GET, ":authority")], Malformed),
    (
        "an empty :authority",
        &[But(GET, ":authority", "")],
        Malformed,
    ),
    ("a user", &[But(GET, ":authority", "user@a")], Malformed),
    ("a port", &[But(GET, ":authority", "[::1]:443")], Taken),
    ("a path", &[But(GET, ":authority", "a/b")], Malformed),
    (
        "a port of letters",
        &[But(GET, ":authority", "a:b")],
        Malformed,
    ),
    (
        "a user and a password",
        &[But(GET, ":authority", "user:word@a")],
        Malformed,
    ),
    ("host", &[Base(&[("host", "a")])], Taken),
    ("another host", &[Base(&[("host", "b")])], Malformed),
    (
        "host twice",
        &[Base(&[("host", "a"), ("host", "a")])],
        Malformed,
    ),
    (
        "a second host",
        &[Base(&[("host", "a"), ("host", "b")])],
        Malformed,
    ),
    ("a host alone", &[Fields(HOST)], Taken),
    (
        "a host with a user",
        &[But(HOST, "host", "user@a")],
        Malformed,
    ),
    (
        ":protocol without CONNECT",
        &[Base(&[(":protocol", "connect-udp")])],
        Malformed,
    ),
    ("CONNECT", &[Fields(CONNECT)], Taken),
    (
        "CONNECT with a length",
        &[With(CONNECT, &[("content-length", "5")]), Data(6)],
        Taken,
    ),
    (
        "CONNECT with :scheme",
        &[With(CONNECT, &[(":scheme", "https")])],
        Malformed,
    ),
    (
        "CONNECT with :path",
        &[With(CONNECT, &[(":path", "/")])],
        Malformed,
    ),
    (
        "CONNECT without :authority",
        &[Without(CONNECT, ":authority")],
        Malformed,
    ),
    (
        "CONNECT with connection",
        &[With(CONNECT, &[("connection", "x")])],
        Malformed,
    ),
    (
        "CONNECT with trailers",
        &[Fields(CONNECT), Fields(TRAILERS)],
        UNEXPECTED,
    ),
    ("extended CONNECT", &[Fields(EXTENDED), Data(5)], Taken),
    (
        "extended CONNECT without :path",
        &[Without(EXTENDED, ":path")],
        Malformed,
    ),
    (
        "extended CONNECT without :scheme",
        &[Without(EXTENDED, ":scheme")],
        Malformed,
    ),
    (
        "extended CONNECT, :protocol twice",
        &[With(EXTENDED, &[(":protocol", "connect-udp")])],
        Malformed,
    ),
    (
        "extended CONNECT with upgrade",
        &[With(EXTENDED, &[("upgrade", "connect-udp")])],
        Malformed,
    ),
    (
        "extended CONNECT with trailers",
        &[Fields(EXTENDED), Fields(TRAILERS)],
        UNEXPECTED,
    ),
];

const RESPONSES: &[Row] = &[
    ("200", &[Base(&[]), Data(5)], Taken),
    (
        "an interim response",
        &[
            Fields(&[(":status", "103"), ("link", "x")]),
            Base(LENGTH),
            Data(5),
        ],
        Taken,
    ),
    (
        "connection in an interim response",
        &[
            With(&[(":status", "103")], &[("connection", "x")]),
            Fields(OK),
        ],
        Malformed,
    ),
    ("no response", &[], Malformed),
    (
        "an interim response alone",
        &[Fields(&[(":status", "103")])],
        Malformed,
    ),
    ("101", &[Fields(&[(":status", "101")])], Malformed),
    (":status twice", &[Base(&[(":status", "404")])], Malformed),
    (
        "a late :status",
        &[Fields(&[("a", "b"), (":status", "200")])],
        Malformed,
    ),
    ("no :status", &[Fields(TRAILERS)], Malformed),
    ("two digits", &[Fields(&[(":status", "20")])], Malformed),
    (
        "a plus in :status",
        &[Fields(&[(":status", "+20")])],
        Malformed,
    ),
    (":method", &[Base(&[(":method", "GET")])], Malformed),
    (":path", &[Base(&[(":path", "/")])], Malformed),
    ("te: trailers", &[Base(&[("te", "trailers")])], Malformed),
    ("too little", &[Base(LENGTH), Data(4)], Malformed),
    ("nothing", &[Base(LENGTH)], Malformed),
    (
        "too little before trailers",
        &[Base(LENGTH), Data(4), Fields(TRAILERS)],
        Malformed,
    ),
    (
        "304 with a length",
        &[With(&[(":status", "304")], LENGTH)],
        Taken,
    ),
    (
        "304 with content",
        &[With(&[(":status", "304")], LENGTH), Data(5)],
        Malformed,
    ),
    (
        "204 with content",
        &[Fields(&[(":status", "204")]), Data(5)],
        Malformed,
    ),
];

const TO_HEAD: &[Row] = &[
    ("HEAD", &[Base(LENGTH)], Taken),
    ("HEAD with content", &[Base(LENGTH), Data(5)], Malformed),
];

const TO_CONNECT: &[Row] = &[
    ("CONNECT with a length", &[Base(LENGTH), Data(6)], Taken),
    (
        "CONNECT refused, too much",
        &[With(&[(":status", "403")], LENGTH), Data(6)],
        Malformed,
    ),
    (
        "CONNECT with trailers",
        &[Fields(OK), Fields(TRAILERS)],
        UNEXPECTED,
    ),
];
