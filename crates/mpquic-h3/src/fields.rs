//! [`Fields`]: the rules of RFC 9114 sections 4.2 to 4.4 for the fields of a message, line by line.
//!
//! `h3` puts fields into a map first, which tells neither their order nor which pseudo-fields came
//! twice.

use h3::error::Code;
use http::uri::Authority;

use crate::qpack::{self, Line, Text};

/// The field that marks a request for `connect-ip`, for h3 and the application; it never travels.
pub(crate) const MARK: &str = "mpquic-protocol";

/// A fault in the peer's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// The message is malformed: the stream ends with H3_MESSAGE_ERROR (RFC 9114 section 4.1.2).
    Message(&'static str),
    /// The connection ends with this code.
    Connection(Code),
}

/// Whose fields they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    Request,
    Response,
    Trailers,
}

/// A pseudo-field, and its place among those of a section.
#[derive(Debug, Clone, Copy)]
enum Pseudo {
    Method,
    Scheme,
    Authority,
    Path,
    Protocol,
    Status,
}

/// Facts of a valid field section.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) is_connect: bool,
    pub(crate) content_length: Option<u64>,
    /// Of a response.
    pub(crate) status: u16,
    /// True if `:protocol` or [`MARK`] is present.
    pub(crate) is_special: bool,
}

/// The fields read so far.
struct Fields<'a> {
    of: Of,
    pseudo: [Option<Text<'a>>; 6],
    host: Option<Text<'a>>,
    had_regular: bool,
    facts: Facts,
}

/// Checks a field section, line by line.
pub(crate) fn check(section: &[u8], of: Of) -> Result<Facts, Wrong> {
    let mut fields = Fields {
        of,
        pseudo: [None; 6],
        host: None,
        had_regular: false,
        facts: Facts::default(),
    };
    let undecodable = Wrong::Connection(Code::QPACK_DECOMPRESSION_FAILED);
    let mut lines = qpack::lines(section).ok_or(undecodable)?;
    let (mut names, mut values) = (Vec::new(), Vec::new());
    while !lines.is_empty() {
        let line = qpack::take_line(&mut lines).ok_or(undecodable)?;
        let name = line.name.read(&mut names).ok_or(undecodable)?;
        let value = line.value.read(&mut values).ok_or(undecodable)?;
        fields.add(line, name, value).map_err(Wrong::Message)?;
    }
    let checked = match of {
        Of::Request => fields.check_request(),
        Of::Response if !fields.has(Pseudo::Status) => Err("a response has no :status"),
        Of::Response | Of::Trailers => Ok(()),
    };
    checked.map_err(Wrong::Message)?;
    Ok(fields.facts)
}

impl<'a> Fields<'a> {
    fn add(&mut self, line: Line<'a>, name: &[u8], value: &[u8]) -> Result<(), &'static str> {
        if !value.iter().all(|&byte| is_of_value(byte)) {
            return Err("the value of a field has a control character");
        }
        if name.first() == Some(&b':') {
            return self.add_pseudo(line.value, name, value);
        }
        self.had_regular = true;
        if name.is_empty() || !name.iter().all(|&byte| is_of_name(byte)) {
            return Err(
                "the name of a field is empty, or has an upper-case letter or another character that names do not have",
            );
        }
        match name {
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
            | b"upgrade" => return Err("a field is about the connection"),
            // RFC 9114 section 4.2: other values concern the connection.
            b"te" if self.of != Of::Request || !value.eq_ignore_ascii_case(b"trailers") => {
                return Err("te says something else than trailers");
            }
            b"content-length" if self.of != Of::Trailers => {
                let length = digits(value).ok_or("content-length is no number")?;
                let before = self.facts.content_length.replace(length);
                if before.is_some_and(|before| before != length) {
                    return Err("content-length says two things");
                }
            }
            b"host" if self.of == Of::Request => {
                if self.host.replace(line.value).is_some() {
                    return Err("host is there twice");
                }
                check_authority(value)?;
            }
            _ if name == MARK.as_bytes() => self.facts.is_special = true,
            _ => {}
        }
        Ok(())
    }

    fn add_pseudo(
        &mut self,
        text: Text<'a>,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), &'static str> {
        if self.had_regular {
            return Err("a pseudo-field is behind another field");
        }
        let pseudo = match (self.of, name) {
            (Of::Request, b":method") => Pseudo::Method,
            (Of::Request, b":scheme") => Pseudo::Scheme,
            (Of::Request, b":authority") => Pseudo::Authority,
            (Of::Request, b":path") => Pseudo::Path,
            (Of::Request, b":protocol") => Pseudo::Protocol,
            (Of::Response, b":status") => Pseudo::Status,
            _ => return Err("a pseudo-field has no business there"),
        };
        match pseudo {
            Pseudo::Method => self.facts.is_connect = value == b"CONNECT",
            Pseudo::Protocol => self.facts.is_special = true,
            Pseudo::Authority => check_authority(value)?,
            Pseudo::Status => self.facts.status = status(value)?,
            Pseudo::Scheme | Pseudo::Path => {}
        }
        let place = self.pseudo.get_mut(pseudo as usize);
        if place.is_some_and(|place| place.replace(text).is_some()) {
            Err("a pseudo-field is there twice")
        } else {
            Ok(())
        }
    }

    fn text(&self, pseudo: Pseudo) -> Option<Text<'a>> {
        *self.pseudo.get(pseudo as usize)?
    }

    fn has(&self, pseudo: Pseudo) -> bool {
        self.text(pseudo).is_some()
    }

    /// RFC 9114 sections 4.3.1 and 4.4, and RFC 8441 section 4, adopted by RFC 9220. h3 checks that
    /// the fields form a URI.
    fn check_request(&self) -> Result<(), &'static str> {
        if !self.has(Pseudo::Method) {
            return Err("a request has no :method");
        }
        let (scheme, path) = (self.has(Pseudo::Scheme), self.has(Pseudo::Path));
        let is_extended = self.has(Pseudo::Protocol);
        match (self.facts.is_connect, is_extended) {
            (false, true) => return Err(":protocol is there without CONNECT"),
            (true, false) if scheme || path => {
                return Err("a CONNECT request has :scheme or :path");
            }
            (true, false) => {}
            _ if !scheme || !path => return Err("a request has no :scheme or no :path"),
            _ => self.check_path()?,
        }
        match (self.text(Pseudo::Authority), self.host) {
            (None, _) if self.facts.is_connect => Err("a CONNECT request has no :authority"),
            (None, None) => Err("a request has neither :authority nor host"),
            (Some(authority), Some(host)) if !same(authority, host) => {
                Err("host is another one than :authority")
            }
            _ => Ok(()),
        }
    }

    fn check_path(&self) -> Result<(), &'static str> {
        let mut room = Vec::new();
        let path = self.text(Pseudo::Path);
        let path = path.and_then(|path| path.read(&mut room));
        match path.unwrap_or_default() {
            [b'/', ..] => Ok(()),
            b"*" if self
                .text(Pseudo::Method)
                .is_some_and(|method| method.is("OPTIONS")) =>
            {
                Ok(())
            }
            _ => Err(":path does not begin with a slash"),
        }
    }
}

fn check_authority(value: &[u8]) -> Result<(), &'static str> {
    if is_host(value) {
        Ok(())
    } else {
        Err("the host of a request is no host with or without a port")
    }
}

/// True for a host with or without a port, and without a user: the valid values of `:authority`
/// (RFC 9114 section 4.3.1) and of a `Host` field that names a host (RFC 9112 section 3.2). A colon
/// without a port is valid (RFC 3986 section 3.2.3), and an empty value is not.
///
/// ```
/// assert!(mpquic_h3::is_host(b"example.org:4433"));
/// assert!(!mpquic_h3::is_host(b"alice@example.org"));
/// ```
pub fn is_host(value: &[u8]) -> bool {
    let Ok(authority) = Authority::try_from(value) else {
        return false;
    };
    let port = value.strip_prefix(authority.host().as_bytes());
    port.is_some_and(|port| {
        let digits = port.strip_prefix(b":").unwrap_or(port);
        digits.iter().all(u8::is_ascii_digit) && (port.is_empty() || port.len() > digits.len())
    })
}

/// Three digits. HTTP/3 has no 101 (RFC 9114 section 4.5).
fn status(value: &[u8]) -> Result<u16, &'static str> {
    let status = digits(value).filter(|_| value.len() == 3);
    let status = status.filter(|&status| status >= 100 && status != 101);
    let status = status.and_then(|status| u16::try_from(status).ok());
    status.ok_or(":status is no status of HTTP/3")
}

/// A number of digits alone.
fn digits(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |number, byte| {
        let digit = byte.checked_sub(b'0').filter(|&digit| digit < 10)?;
        number.checked_mul(10)?.checked_add(digit.into())
    })
}

fn same(one: Text<'_>, other: Text<'_>) -> bool {
    one.read(&mut Vec::new()) == other.read(&mut Vec::new())
}

/// A character of a token (RFC 9110 section 5.6.2), but for upper-case letters.
fn is_of_name(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'!' | b'#'..=b'\'' | b'*' | b'+' | b'^' | b'`' | b'|' | b'~')
}

/// RFC 9110 section 5.5
fn is_of_value(byte: u8) -> bool {
    byte == b'\t' || byte >= b' ' && byte != 0x7f
}
