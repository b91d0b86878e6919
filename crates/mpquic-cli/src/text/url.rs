//! URLs as people and servers write them.

use std::ops::Range;

use crate::text::percent::percent_encode;

/// The URL or reference that a text means, as in browsers: without surrounding blanks, with an
/// ASCII host, and with escapes for characters that URLs cannot have. Control characters stay, and
/// are refused later.
pub(crate) fn escaped(text: &[u8]) -> String {
    let text = text.trim_ascii();
    let authority = authority(text);
    let mut url = String::with_capacity(text.len());
    let (before, rest) = text.split_at(authority.start);
    let (host, after) = rest.split_at(authority.len());
    escape(before, &mut url);
    match str::from_utf8(host) {
        Ok(host) => url += &ascii(host),
        Err(_) => escape(host, &mut url),
    }
    escape(after, &mut url);
    url
}

/// The range of the authority, which may contain brackets; empty if there is none.
fn authority(text: &[u8]) -> Range<usize> {
    let ends = |byte: &u8| matches!(byte, b'/' | b'?' | b'#');
    let (before, rest) = text.split_at(text.iter().position(ends).unwrap_or(text.len()));
    // RFC 3986 section 4.2: it is behind a scheme or comes first. Elsewhere the slashes are a
    // path's.
    let is_authority = rest.starts_with(b"//") && (before.is_empty() || before.ends_with(b":"));
    if !is_authority {
        return 0..0;
    }
    let start = before.len() + 2;
    let length = text.iter().skip(start).position(ends);
    start..length.map_or(text.len(), |length| start + length)
}

/// The authority with its host in ASCII. A host without an ASCII form stays, and is refused later.
pub(crate) fn ascii(authority: &str) -> String {
    let (user, place) = match authority.rsplit_once('@') {
        Some((user, place)) => (Some(user), place),
        None => (None, authority),
    };
    if place.is_ascii() {
        return authority.to_owned();
    }
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) => (host, format!(":{port}")),
        None => (place, String::new()),
    };
    let host = idna::domain_to_ascii(host).unwrap_or_else(|_| host.to_owned());
    let user = user.map_or(String::new(), |user| format!("{user}@"));
    format!("{user}{host}{port}")
}

fn escape(text: &[u8], into: &mut String) {
    for (at, &byte) in text.iter().enumerate() {
        let next = text.get(at + 1..at + 3).unwrap_or_default();
        let is_escape = next.len() == 2 && next.iter().all(u8::is_ascii_hexdigit);
        let is_odd = match byte {
            b'%' => !is_escape,
            b' ' | b'"' | b'<' | b'>' | b'[' | b'\\' | b']' | b'^' | b'`' | b'{' | b'|' | b'}' => {
                true
            }
            byte => !byte.is_ascii(),
        };
        if is_odd {
            *into += &percent_encode([byte])
        } else {
            into.push(char::from(byte))
        }
    }
}
