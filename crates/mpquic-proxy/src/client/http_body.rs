//! [`Body`]: where the body of an HTTP/1 message ends (RFC 9112 section 6).

use http::StatusCode;
use httparse::Header;

/// The longest line with the size of a chunk, and the longest trailers, bytes.
const MAX_SIZE_LINE: usize = 1 << 10;
const MAX_TRAILERS: usize = 32 << 10;
const MAX_FIELDS: usize = 100;

/// A message with an ambiguous end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

impl From<Malformed> for StatusCode {
    fn from(_: Malformed) -> Self {
        Self::BAD_REQUEST
    }
}

/// The missing part of a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// Missing bytes.
    Length(u64),
    /// Chunks.
    Chunked(Chunk),
    /// All bytes until the connection ends.
    UntilEnd,
}

/// The place of the next byte in a chunked body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// In the line with a chunk's size, after these bytes.
    Size(Vec<u8>),
    /// In a chunk's data, with this number of missing bytes.
    Data(u64),
    /// In the end of line behind a chunk's data.
    DataEnd(&'static [u8]),
    /// In the trailers, after these bytes.
    Trailers(Vec<u8>),
    Over,
}

impl Body {
    /// The length that a message's fields announce; `None` without an announcement.
    ///
    /// # Errors
    ///
    /// If two readers could disagree: both kinds of framing, two lengths, a length that is no
    /// number, or a transfer coding in HTTP/1.0.
    pub(crate) fn of(fields: &[Header<'_>], version: u8) -> Result<Option<Self>, Malformed> {
        let named = |name| values(fields, name);
        let mut lengths = named("content-length");
        let length = lengths.next();
        if lengths.next().is_some() {
            return Err(Malformed);
        }
        let codings = || named("transfer-encoding").flat_map(|value| value.split(|b| *b == b','));
        let is_chunked = |coding: &[u8]| coding.trim_ascii().eq_ignore_ascii_case(b"chunked");
        match (length, codings().last()) {
            (None, None) => Ok(None),
            (Some(length), None) => Ok(Some(Self::Length(number(length)?))),
            (None, Some(last)) if version == 1 => {
                let chunked = codings().filter(|coding| is_chunked(coding)).count();
                match (chunked, is_chunked(last)) {
                    (0, _) => Ok(Some(Self::UntilEnd)),
                    (1, true) => Ok(Some(Self::Chunked(Chunk::Size(Vec::new())))),
                    _ => Err(Malformed),
                }
            }
            _ => Err(Malformed),
        }
    }

    /// The number of these bytes that belong to the body.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        match self {
            Self::Length(left) => Ok(count_down(left, bytes.len())),
            Self::UntilEnd => Ok(bytes.len()),
            Self::Chunked(chunk) => {
                let mut taken = 0;
                while taken < bytes.len() && *chunk != Chunk::Over {
                    taken += chunk.step(&bytes[taken..])?;
                }
                Ok(taken)
            }
        }
    }

    /// True at the end of the message.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(Chunk::Over))
    }
}

/// The values of the fields with this name.
pub(crate) fn values<'a>(
    fields: &'a [Header<'a>],
    name: &'static str,
) -> impl Iterator<Item = &'a [u8]> {
    let named = fields
        .iter()
        .filter(move |field| field.name.eq_ignore_ascii_case(name));
    named.map(|field| field.value)
}

/// Parses a number of digits only. Other readers may accept a sign, or a list.
fn number(text: &[u8]) -> Result<u64, Malformed> {
    let text = std::str::from_utf8(text).map_err(|_| Malformed)?;
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse().map_err(|_| Malformed)
    } else {
        Err(Malformed)
    }
}

fn count_down(left: &mut u64, bytes: usize) -> usize {
    let here = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes);
    *left -= here as u64;
    here
}

impl Chunk {
    /// Takes some bytes, at least one.
    fn step(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let (next, taken) = match self {
            Self::Size(line) => {
                let Some(taken) = line_into(line, bytes, MAX_SIZE_LINE)? else {
                    return Ok(bytes.len());
                };
                // An empty line would be parsed as 0.
                if !line.first().is_some_and(u8::is_ascii_hexdigit) {
                    return Err(Malformed);
                }
                match httparse::parse_chunk_size(line) {
                    Ok(httparse::Status::Complete((_, 0))) => (Self::Trailers(Vec::new()), taken),
                    Ok(httparse::Status::Complete((_, size))) => (Self::Data(size), taken),
                    _ => return Err(Malformed),
                }
            }
            Self::Data(left) => {
                let taken = count_down(left, bytes.len());
                match left {
                    0 => (Self::DataEnd(b"\r\n"), taken),
                    _ => return Ok(taken),
                }
            }
            Self::DataEnd(expected) => match (*expected, bytes) {
                ([first, rest @ ..], [byte, ..]) if first == byte => match rest {
                    [] => (Self::Size(Vec::new()), 1),
                    _ => (Self::DataEnd(rest), 1),
                },
                _ => return Err(Malformed),
            },
            Self::Trailers(lines) => {
                let Some(taken) = line_into(lines, bytes, MAX_TRAILERS)? else {
                    return Ok(bytes.len());
                };
                let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
                match httparse::parse_headers(lines, &mut fields) {
                    Ok(httparse::Status::Complete(_)) => (Self::Over, taken),
                    Ok(httparse::Status::Partial) => return Ok(taken),
                    Err(_) => return Err(Malformed),
                }
            }
            Self::Over => return Ok(0),
        };
        *self = next;
        Ok(taken)
    }
}

/// Adds bytes up to the end of the line; returns their number, or `None` before the end of the
/// line.
fn line_into(lines: &mut Vec<u8>, bytes: &[u8], most: usize) -> Result<Option<usize>, Malformed> {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let taken = end.map_or(bytes.len(), |end| end + 1);
    lines.extend_from_slice(&bytes[..taken]);
    if lines.len() <= most {
        Ok(end.map(|_| taken))
    } else {
        Err(Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(
        fields: &[(&'static str, &'static str)],
        version: u8,
    ) -> Result<Option<Body>, Malformed> {
        let field = |(name, value): &(&'static str, &'static str)| Header {
            name,
            value: value.as_bytes(),
        };
        Body::of(&fields.iter().map(field).collect::<Vec<_>>(), version)
    }

    #[test]
    fn ambiguous_body_length_is_malformed() {
        let chunked = || Ok(Some(Body::Chunked(Chunk::Size(Vec::new()))));
        assert_eq!(said(&[], 1), Ok(None));
        let length = said(&[("Content-Length", "12")], 0);
        assert_eq!(length, Ok(Some(Body::Length(12))));
        assert_eq!(said(&[("Transfer-Encoding", "Chunked")], 1), chunked());
        assert_eq!(
            said(&[("transfer-encoding", "gzip, chunked")], 1),
            chunked()
        );
        let unknown = said(&[("transfer-encoding", "gzip")], 1);
        assert_eq!(unknown, Ok(Some(Body::UntilEnd)));
        let length = ("content-length", "4");
        let coding = ("transfer-encoding", "chunked");
        for (fields, version) in [
            (&[length, coding][..], 1),
            (&[length, length], 1),
            (&[coding, coding], 1),
            (&[coding], 0),
            (&[("transfer-encoding", "chunked, gzip")], 1),
            (&[("content-length", "+5")], 1),
            (&[("content-length", "5, 5")], 1),
            (&[("content-length", "")], 1),
            (&[("content-length", "99999999999999999999")], 1),
        ] {
            assert_eq!(said(fields, version), Err(Malformed), "{fields:?}");
        }
    }

    /// The result does not depend on the pieces of the input.
    #[test]
    fn bodies_end_where_they_say() {
        let chunks = b"5;ext=1\r\nhello\r\n0A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";
        for (body, length) in [
            (&b"0123456789"[..], 10),
            (&chunks[..], chunks.len()),
            (b"0\r\n\r\n", 5),
        ] {
            let whole = [body, b"GET http://other/ HTTP/1.1\r\n\r\n"].concat();
            for size in 1..whole.len() {
                let mut left = match length {
                    10 => Body::Length(10),
                    _ => Body::Chunked(Chunk::Size(Vec::new())),
                };
                let mut taken = 0;
                for piece in whole.chunks(size) {
                    taken += left.take(piece).unwrap();
                }
                assert_eq!((taken, left.is_over()), (length, true), "{size}");
            }
        }
        for wrong in [
            &b"x\r\n"[..],
            b"\r\n",
            b"-1\r\n",
            b"5\nhello",
            b"1\r\naX",
            b"11111111111111111\r\n",
            b"0\r\n: no name\r\n\r\n",
        ] {
            let mut body = Body::Chunked(Chunk::Size(Vec::new()));
            assert_eq!(body.take(wrong), Err(Malformed), "{}", wrong.escape_ascii());
        }
        let mut endless = Body::Chunked(Chunk::Size(Vec::new()));
        assert_eq!(endless.take(&[b'1'; MAX_SIZE_LINE + 1]), Err(Malformed));
    }
}
