//! HTTP/3 for targets: parts of streams, and a naive reading of streams.

use std::time::Duration;

use arbitrary::Arbitrary;
use mpquic_tokio::{
    ClientConfig, Connection, Endpoint, MemoryNetwork, SendStream, ServerConfig,
    certificate_fingerprint,
};

use crate::number::Varint;

#[path = "../../crates/mpquic-h3/src/huffman.rs"]
mod huffman;
#[path = "../../crates/mpquic-h3/src/static_table.rs"]
mod static_table;

/// Longest frame but DATA.
pub const MAX_FRAME: u64 = 2000;
const NAMES: [&str; 24] = [
    ":method",
    ":scheme",
    ":authority",
    ":path",
    ":protocol",
    ":status",
    ":other",
    "host",
    "te",
    "connection",
    "transfer-encoding",
    "keep-alive",
    "upgrade",
    "proxy-connection",
    "content-length",
    "x-a",
    "X-A",
    "",
    "a b",
    "cookie",
    "mpquic-protocol",
    "x-b",
    "expect",
    "accept",
];
const VALUES: [&str; 28] = [
    "GET",
    "CONNECT",
    "POST",
    "OPTIONS",
    "HEAD",
    "https",
    "http",
    "host",
    "host:443",
    "other",
    "user@host",
    "/",
    "/a?b",
    "*",
    "",
    "a",
    "connect-udp",
    "connect-ip",
    "trailers",
    "Trailers",
    "gzip",
    "0",
    "5",
    "05",
    "-1",
    "200",
    "a\nb",
    "a\tb",
];

#[derive(Debug, Arbitrary)]
pub enum Field {
    Known(u8, u8),
    Text(String, String),
    /// A field line of the static table.
    Indexed(u8),
    /// A name of the static table, with a value.
    Named(u8, u8),
    Number(u64),
    Bytes(Vec<u8>),
}

#[derive(Debug, Arbitrary)]
pub enum Part {
    /// The fields of an ordinary request, and others.
    Request(u8, Vec<Field>),
    /// A status, and other fields.
    Answer(u8, Vec<Field>),
    Headers(Vec<Field>),
    /// A DATA frame whose length field may be wrong.
    Data(u8, Option<u8>),
    Frame(Varint, u8),
    Long(Varint, u16),
    Bytes(Vec<u8>),
}

const STATUSES: [&str; 10] = [
    "200", "200", "204", "304", "103", "100", "404", "101", "099", "2000",
];

/// A stream of one side.
#[derive(Debug, Arbitrary)]
pub struct Stream {
    pub parts: Vec<Part>,
    /// Where pieces end.
    pub pieces: Vec<u8>,
    /// Chooses among the other options of a target.
    pub kind: u8,
}

impl Stream {
    /// True if the stream comes to its end.
    pub fn is_ended(&self) -> bool {
        self.kind % 4 != 3
    }
}

/// Writes the bytes of a stream in its pieces, until the other side stops the stream.
pub async fn write(send: &mut SendStream, bytes: &[u8], stream: &Stream) {
    let mut rest = bytes;
    let pieces = stream.pieces.iter().map(|length| usize::from(*length));
    for length in pieces.chain([usize::MAX]) {
        let (piece, left) = rest.split_at(length.min(rest.len()));
        rest = left;
        if send.write_all(piece).await.is_err() {
            return;
        }
        if length % 2 == 0 {
            tokio::task::yield_now().await;
        }
    }
    if stream.is_ended() {
        let _ = send.finish();
    }
}

/// Names and values, in their order.
pub type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// The scope of a fault: the part that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Stream,
    Connection,
    /// The RFC leaves the choice between both.
    Either,
}

/// Both ends of a connection without a delay.
pub async fn pair() -> (Connection, Connection, [Endpoint; 2]) {
    thread_local! {
        static CONFIG: (ServerConfig, ClientConfig) = {
            let made = ServerConfig::self_signed(&["localhost"], &[b"h3"]);
            let (server, certificate) = made.unwrap();
            let pin = certificate_fingerprint(&certificate);
            (server, ClientConfig::with_pin(pin, &[b"h3"]).unwrap())
        };
    }
    let (server, client) = CONFIG.with(Clone::clone);
    let network = MemoryNetwork::new(Duration::ZERO);
    let socket = |text: &str| network.bind(text.parse().unwrap()).unwrap();
    let server = Endpoint::builder()
        .abstract_socket(socket("10.0.0.1:443"))
        .server(server);
    let server = server.build().unwrap();
    let client = Endpoint::builder()
        .abstract_socket(socket("10.0.0.2:0"))
        .client(client);
    let client = client.build().unwrap();
    let connecting = client
        .connect(server.local_addr().unwrap(), "localhost")
        .unwrap();
    let accepted = async { server.accept().await.unwrap().await };
    let (at_client, at_server) = tokio::try_join!(connecting, accepted).unwrap();
    (at_client, at_server, [server, client])
}

pub fn sorted(fields: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Fields {
    let mut fields: Fields = fields.collect();
    fields.sort_by(|one, other| one.0.cmp(&other.0));
    fields
}

/// All fields; fields with the same name keep their order.
pub fn of_map(fields: &http::HeaderMap) -> Fields {
    let bytes = |name: &http::HeaderName| name.as_str().as_bytes().to_vec();
    let fields = fields.iter();
    sorted(fields.map(|(name, value)| (bytes(name), value.as_bytes().to_vec())))
}

/// A message as a reader finds it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    pub fields: Fields,
    pub body: Vec<u8>,
    pub trailers: Option<Fields>,
}

/// The result of a naive reading of a stream.
#[derive(Debug, Default)]
pub struct Read {
    pub message: Message,
    pub fault: Option<Fault>,
    /// The stream ended behind a whole message.
    pub is_whole: bool,
    /// Every implementation has to accept the message.
    pub is_ordinary: bool,
}

/// The meaning of the fields at the beginning of a message.
#[derive(Debug, Default)]
pub struct Begun {
    /// An interim answer: another answer follows.
    pub is_interim: bool,
    /// The fields for the application.
    pub told: Fields,
    /// Content of any length follows, and nothing else.
    pub is_tunnel: bool,
    /// The announced length of the content, bytes.
    pub length: Option<u64>,
    pub is_ordinary: bool,
}

/// The parts of a message that have arrived.
#[derive(Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Begin,
    Fields,
    Trailers,
}

#[derive(Debug, Default)]
struct Reader {
    stage: Stage,
    begun: Begun,
    content: u64,
    /// True if a field, also of an interim answer, is allowed but unusual.
    is_odd: bool,
    read: Read,
}

/// A stream of a message, all at once (RFC 9114 sections 4 and 7). `begin` reads fields; it is
/// `None` for malformed ones.
pub fn read(bytes: &[u8], is_ended: bool, begin: impl Fn(&Fields) -> Option<Begun>) -> Read {
    let mut reader = Reader::default();
    reader.read.fault = reader.frames(bytes, is_ended, &begin).err();
    reader.read
}

impl Reader {
    fn frames(
        &mut self,
        bytes: &[u8],
        is_ended: bool,
        begin: &impl Fn(&Fields) -> Option<Begun>,
    ) -> Result<(), Fault> {
        let mut rest = bytes;
        // The stream ended within a frame.
        let cut = |fault| if is_ended { Err(fault) } else { Ok(()) };
        while !rest.is_empty() {
            let Some(kind) = take_varint(&mut rest) else {
                return cut(Fault::Either);
            };
            if kind == 0x41 {
                return Err(Fault::Either);
            }
            let Some(length) = take_varint(&mut rest) else {
                return cut(Fault::Either);
            };
            let here = usize::try_from(length).map_or(rest.len(), |length| length.min(rest.len()));
            let (payload, behind) = rest.split_at(here);
            let is_cut = (here as u64) < length;
            rest = behind;
            match kind {
                0 if self.stage != Stage::Fields => return Err(Fault::Connection),
                0 => {
                    self.content = self.content.saturating_add(length);
                    if self.announced().is_some_and(|most| self.content > most) {
                        return Err(Fault::Stream);
                    }
                    self.read.message.body.extend_from_slice(payload);
                }
                _ if length > MAX_FRAME => return Err(Fault::Stream),
                _ if is_cut => {}
                1 => self.on_headers(payload, begin)?,
                // Frames of other streams, of pushes, and of HTTP/2.
                2..=9 | 0xd | 0xf0700 | 0xf0701 => return Err(Fault::Connection),
                _ => {}
            }
            if is_cut {
                let fault = [Fault::Either, Fault::Connection][usize::from(kind == 0)];
                return cut(fault);
            }
        }
        if is_ended {
            self.on_end()?;
            self.read.is_whole = true;
        }
        Ok(())
    }

    /// The announced length of the content. A tunnel has content of any length.
    fn announced(&self) -> Option<u64> {
        self.begun.length.filter(|_| !self.begun.is_tunnel)
    }

    fn on_end(&self) -> Result<(), Fault> {
        let is_short = self.announced().is_some_and(|length| self.content < length);
        if self.stage == Stage::Begin || is_short {
            Err(Fault::Stream)
        } else {
            Ok(())
        }
    }

    fn on_headers(
        &mut self,
        payload: &[u8],
        begin: &impl Fn(&Fields) -> Option<Begun>,
    ) -> Result<(), Fault> {
        let fields = section(payload).ok_or(Fault::Either)?;
        match self.stage {
            Stage::Begin => {
                self.begun = begin(&fields).ok_or(Fault::Stream)?;
                self.is_odd |= !self.begun.is_ordinary;
                self.read.is_ordinary = !self.is_odd;
                if !self.begun.is_interim {
                    self.read.message.fields = std::mem::take(&mut self.begun.told);
                    self.stage = Stage::Fields;
                }
            }
            Stage::Fields if !self.begun.is_tunnel => {
                if !are_trailers(&fields) {
                    return Err(Fault::Stream);
                }
                self.on_end()?;
                self.read.message.trailers = Some(sorted(fields.into_iter()));
                self.stage = Stage::Trailers;
            }
            Stage::Fields | Stage::Trailers => return Err(Fault::Connection),
        }
        Ok(())
    }
}

/// The length in `content-length`, if the field is there; `None` for an invalid field.
pub fn announced(fields: &Fields) -> Option<Option<u64>> {
    let mut length = None;
    for (_, value) in fields.iter().filter(|(name, _)| name == b"content-length") {
        let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(value).ok()?.parse::<u64>().ok();
        let number = number.filter(|_| is_number)?;
        if length.is_some_and(|length| length != number) {
            return None;
        }
        length = Some(number);
    }
    Some(length)
}

/// The lines of a field section (RFC 9204 section 4.5); `None` for a malformed section.
fn section(payload: &[u8]) -> Option<Fields> {
    let mut rest = payload;
    let count = take_number(&mut rest, 8)?;
    take_number(&mut rest, 7)?;
    let mut fields = Fields::new();
    while let Some(first) = rest.first() {
        let of_table = |index: u64| {
            let (name, value) = static_table::STATIC_TABLE.get(usize::try_from(index).ok()?)?;
            Some((name.as_bytes().to_vec(), value.as_bytes().to_vec()))
        };
        fields.push(match first >> 4 {
            0b1100..=0b1111 => of_table(take_number(&mut rest, 6)?)?,
            0b0101 | 0b0111 => {
                let (name, _) = of_table(take_number(&mut rest, 4)?)?;
                (name, take_string(&mut rest, 7)?)
            }
            0b0010 | 0b0011 => (take_string(&mut rest, 3)?, take_string(&mut rest, 7)?),
            _ => return None,
        });
    }
    (count == 0).then_some(fields)
}

fn take_number(rest: &mut &[u8], bits: u32) -> Option<u64> {
    let most = (1u128 << bits) - 1;
    let (first, left) = rest.split_first()?;
    *rest = left;
    let mut number = u128::from(*first) & most;
    if number < most {
        return Some(number as u64);
    }
    for shift in (0..70).step_by(7) {
        let (byte, left) = rest.split_first()?;
        *rest = left;
        number += u128::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return number.try_into().ok();
        }
    }
    None
}

fn take_string(rest: &mut &[u8], bits: u32) -> Option<Vec<u8>> {
    let is_huffman = rest.first()? >> bits & 1 == 1;
    let length = usize::try_from(take_number(rest, bits)?).ok()?;
    let (string, left) = rest.split_at_checked(length)?;
    *rest = left;
    let mut text = Vec::new();
    if is_huffman {
        huffman::decode(string, &mut text)?
    } else {
        text.extend_from_slice(string)
    }
    Some(text)
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

/// RFC 9114 section 4.2: checks names, values, and fields about a connection.
pub fn are_fine(fields: &[(Vec<u8>, Vec<u8>)], is_request: bool) -> bool {
    fields.iter().all(|(name, value)| {
        let is_value = value
            .iter()
            .all(|byte| *byte == b'\t' || !byte.is_ascii_control());
        let is_of_token = |byte: &u8| {
            (byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(byte))
                && !byte.is_ascii_uppercase()
        };
        let is_name = !name.is_empty() && name.iter().all(is_of_token);
        let is_known = match &name[..] {
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
            | b"upgrade" => false,
            b"te" => is_request && value.eq_ignore_ascii_case(b"trailers"),
            _ => true,
        };
        is_value && is_known && (is_name || name.starts_with(b":"))
    })
}

fn are_trailers(fields: &[(Vec<u8>, Vec<u8>)]) -> bool {
    are_fine(fields, false) && !fields.iter().any(|(name, _)| name.starts_with(b":"))
}

fn put_varint(out: &mut Vec<u8>, value: u64) {
    match value {
        0..=0x3f => out.push(value as u8),
        0x40..=0x3fff => out.extend((value as u16 | 0x4000).to_be_bytes()),
        0x4000..=0x3fff_ffff => out.extend((value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend((value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

pub fn put_frame(out: &mut Vec<u8>, kind: u64, payload: &[u8]) {
    put_varint(out, kind);
    put_varint(out, payload.len() as u64);
    out.extend_from_slice(payload);
}

fn put_number(out: &mut Vec<u8>, first: u8, bits: u32, mut number: u64) {
    let most = (1 << bits) - 1;
    if number < most {
        return out.push(first | number as u8);
    }
    out.push(first | most as u8);
    number -= most;
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub fn put_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    put_number(out, 0b0010_0000, 3, name.len() as u64);
    out.extend_from_slice(name);
    put_number(out, 0, 7, value.len() as u64);
    out.extend_from_slice(value);
}

fn put_field(out: &mut Vec<u8>, field: &Field) {
    match field {
        Field::Known(name, value) => {
            let name = NAMES[usize::from(*name) % NAMES.len()];
            let value = VALUES[usize::from(*value) % VALUES.len()];
            put_line(out, name.as_bytes(), value.as_bytes());
        }
        Field::Text(name, value) => put_line(out, name.as_bytes(), value.as_bytes()),
        Field::Indexed(index) => put_number(out, 0b1100_0000, 6, (*index).into()),
        Field::Named(index, value) => {
            let value = VALUES[usize::from(*value) % VALUES.len()];
            put_number(out, 0b0101_0000, 4, (*index).into());
            put_number(out, 0, 7, value.len() as u64);
            out.extend_from_slice(value.as_bytes());
        }
        Field::Number(number) => {
            put_line(out, b"content-length", number.to_string().as_bytes());
        }
        Field::Bytes(bytes) => out.extend_from_slice(bytes),
    }
}

pub fn encode(parts: &[Part]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts.iter().take(10) {
        match part {
            Part::Request(kind, fields) => {
                let method = ["GET", "POST", "HEAD", "CONNECT"][usize::from(*kind % 4)];
                let mut section = vec![0, 0];
                put_line(&mut section, b":method", method.as_bytes());
                if method != "CONNECT" {
                    put_line(&mut section, b":scheme", b"https");
                    put_line(&mut section, b":path", b"/a?b");
                }
                put_line(&mut section, b":authority", b"host");
                fields
                    .iter()
                    .for_each(|field| put_field(&mut section, field));
                put_frame(&mut out, 1, &section);
            }
            Part::Answer(kind, fields) => {
                let status = STATUSES[usize::from(*kind) % STATUSES.len()];
                let mut section = vec![0, 0];
                put_line(&mut section, b":status", status.as_bytes());
                fields
                    .iter()
                    .for_each(|field| put_field(&mut section, field));
                put_frame(&mut out, 1, &section);
            }
            Part::Headers(fields) => {
                let mut section = vec![0, 0];
                fields
                    .iter()
                    .for_each(|field| put_field(&mut section, field));
                put_frame(&mut out, 1, &section);
            }
            Part::Data(length, lie) => {
                put_varint(&mut out, 0);
                put_varint(&mut out, lie.unwrap_or(*length).into());
                out.resize(out.len() + usize::from(*length), 0xdd);
            }
            Part::Frame(kind, length) => {
                put_frame(&mut out, kind.0, &vec![0; usize::from(*length)]);
            }
            Part::Long(kind, length) => {
                put_frame(&mut out, kind.0, &vec![0; usize::from(*length % 4096)]);
            }
            Part::Bytes(bytes) => out.extend_from_slice(bytes),
        }
    }
    out
}
