//! Percent-encoding of names in URLs (RFC 3986 section 2.1).

use std::ffi::{OsStr, OsString};
use std::fmt::Write;

/// A name as one segment of a URL.
pub(crate) fn percent_encode(name: impl AsRef<[u8]>) -> String {
    let name = name.as_ref();
    let mut encoded = String::with_capacity(name.len());
    for &byte in name {
        // RFC 3986 section 2.3
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Decodes a percent-encoded segment; `None` for an invalid encoding.
pub(crate) fn percent_decode(segment: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(segment.len());
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        decoded.push((high * 16 + low) as u8);
    }
    (!decoded.contains(&0)).then_some(decoded)
}

/// The name of a file as one segment of a URL, byte for byte.
pub(crate) fn encode_name(name: &OsStr) -> String {
    percent_encode(name.as_encoded_bytes())
}

/// The file name of these bytes: on Unix any bytes, elsewhere UTF-8.
pub(crate) fn file_name(name: Vec<u8>) -> Option<OsString> {
    #[cfg(unix)]
    return Some(std::os::unix::ffi::OsStringExt::from_vec(name));
    #[cfg(not(unix))]
    return String::from_utf8(name).ok().map(OsString::from);
}
