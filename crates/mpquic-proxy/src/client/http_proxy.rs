//! Requests to an HTTP/1 proxy (RFC 9112 section 3.2): CONNECT, and others in absolute form.

use http::{StatusCode, Uri};

use crate::target::Target;

/// The longest head of a request, bytes, and the most fields.
pub(crate) const MAX_HEAD: usize = 32 << 10;
const MAX_FIELDS: usize = 100;

/// Fields that are for the proxy, not for the server (RFC 9110 section 7.6.1).
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "keep-alive",
    "te",
    "upgrade",
    "host",
];

/// What a client asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) target: Target,
    /// What the target gets before the rest of the request; `None` for CONNECT, of which the client is
    /// told that it succeeded.
    pub(crate) head: Option<Vec<u8>>,
    /// Where the head of the request ends.
    pub(crate) length: usize,
}

/// Reads the head of a request; `None` until all of it is there.
///
/// # Errors
///
/// The status with which the request is refused.
pub(crate) fn head(bytes: &[u8]) -> Result<Option<Asked>, StatusCode> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD => return Ok(None),
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        }
        Err(_) => return Err(StatusCode::BAD_REQUEST),
    };
    let (Some(method), Some(asked), Some(version)) =
        (request.method, request.path, request.version)
    else {
        return Err(StatusCode::BAD_REQUEST);
    };
    if method == "CONNECT" {
        let target = asked.parse().map_err(|_| StatusCode::BAD_REQUEST)?;
        return Ok(Some(Asked {
            target,
            head: None,
            length,
        }));
    }
    let uri: Uri = asked.parse().map_err(|_| StatusCode::BAD_REQUEST)?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        // For a server, not for a proxy.
        return Err(StatusCode::BAD_REQUEST);
    };
    if scheme != "http" {
        return Err(StatusCode::NOT_IMPLEMENTED);
    }
    let target = format!(
        "{}:{}",
        authority.host(),
        authority.port_u16().unwrap_or(80)
    );
    let target = target.parse().map_err(|_| StatusCode::BAD_REQUEST)?;
    let path = uri.path_and_query().map_or("", |path| path.as_str());
    // It may begin with the query.
    let slash = if path.starts_with('/') { "" } else { "/" };
    // RFC 9112 section 3.2.2: what the target says counts, not the field.
    let host = match authority.port() {
        Some(port) => format!("{}:{port}", authority.host()),
        None => authority.host().to_owned(),
    };
    let mut head =
        format!("{method} {slash}{path} HTTP/1.{version}\r\nHost: {host}\r\n").into_bytes();
    for field in request.headers.iter() {
        if !is_hop_by_hop(field.name, request.headers) {
            head.extend([field.name.as_bytes(), b": ", field.value, b"\r\n"].concat());
        }
    }
    // The next request may be for another target.
    head.extend(b"Connection: close\r\n\r\n");
    Ok(Some(Asked {
        target,
        head: Some(head),
        length,
    }))
}

fn is_hop_by_hop(name: &str, fields: &[httparse::Header<'_>]) -> bool {
    let is_listed = HOP_BY_HOP
        .iter()
        .any(|listed| name.eq_ignore_ascii_case(listed));
    let connection = fields
        .iter()
        .filter(|field| field.name.eq_ignore_ascii_case("connection"));
    // The framing of the body is not for Connection to take away.
    let is_framing = ["content-length", "transfer-encoding"]
        .iter()
        .any(|framing| name.eq_ignore_ascii_case(framing));
    is_listed
        || !is_framing
            && connection
                .flat_map(|field| field.value.split(|byte| *byte == b','))
                .any(|option| option.trim_ascii().eq_ignore_ascii_case(name.as_bytes()))
}

/// An answer without a body of interest.
pub(crate) fn answer(status: StatusCode, reason: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{reason}\n",
        reason.len() + 1
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_names_a_target() {
        let bytes = b"CONNECT example.org:443 HTTP/1.1\r\nHost: x\r\n\r\nmore";
        let asked = head(bytes).unwrap().unwrap();
        assert_eq!(asked.target.to_string(), "example.org:443");
        assert_eq!((asked.head, &bytes[asked.length..]), (None, &b"more"[..]));
        for length in 0..bytes.len() - 4 {
            assert_eq!(head(&bytes[..length]), Ok(None), "{length}");
        }
    }

    #[test]
    fn others_are_told_to_the_target_as_if_it_were_asked() {
        let bytes = b"POST http://example.org:81/a?b HTTP/1.0\r\nHost: elsewhere\r\nConnection: X-Hop, Content-Length\r\n\
            X-Hop: 1\r\nProxy-Connection: keep-alive\r\nContent-Length: 4\r\nx-kept: 2\r\n\r\nbody";
        let asked = head(bytes).unwrap().unwrap();
        assert_eq!(asked.target.to_string(), "example.org:81");
        assert_eq!(&bytes[asked.length..], b"body");
        assert_eq!(
            String::from_utf8(asked.head.unwrap()).unwrap(),
            "POST /a?b HTTP/1.0\r\nHost: example.org:81\r\nContent-Length: 4\r\nx-kept: 2\r\nConnection: close\r\n\r\n"
        );
        let short = head(b"GET http://[::1] HTTP/1.1\r\n\r\n").unwrap().unwrap();
        assert_eq!(short.target.to_string(), "[::1]:80");
        assert!(
            short
                .head
                .unwrap()
                .starts_with(b"GET / HTTP/1.1\r\nHost: [::1]\r\n")
        );
    }

    #[test]
    fn a_query_without_a_path_gets_one() {
        let asked = head(b"GET http://a?b HTTP/1.1\r\n\r\n").unwrap().unwrap();
        assert!(asked.head.unwrap().starts_with(b"GET /?b HTTP/1.1\r\n"));
    }

    #[test]
    fn what_is_no_request_to_a_proxy_is_refused() {
        for (bytes, status) in [
            (&b"\x16\x03\x01\x00"[..], 400),
            (b"GET / HTTP/1.1\r\n\r\n", 400),
            (b"CONNECT example.org HTTP/1.1\r\n\r\n", 400),
            (b"GET http:///x HTTP/1.1\r\n\r\n", 400),
            (b"GET https://example.org/ HTTP/1.1\r\n\r\n", 501),
            (b"GET ftp://example.org/ HTTP/1.1\r\n\r\n", 501),
        ] {
            let refused = head(bytes).unwrap_err();
            assert_eq!(refused.as_u16(), status, "{}", bytes.escape_ascii());
        }
        let mut long = b"GET http://a/ HTTP/1.1\r\n".to_vec();
        long.extend(b"a: b\r\n".repeat(MAX_FIELDS + 1));
        assert_eq!(
            head(&long),
            Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)
        );
        let endless = [b"GET http://a/".to_vec(), vec![b'a'; MAX_HEAD]].concat();
        assert_eq!(
            head(&endless),
            Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)
        );
    }
}
