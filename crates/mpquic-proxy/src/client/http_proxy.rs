//! Requests to an HTTP/1 proxy (RFC 9112 section 3.2): CONNECT, and others in absolute form.

use http::StatusCode;
use http::uri::Authority;

use super::http_body::{Body, values};
use crate::target::Target;

/// The longest head of a request, bytes, and the most fields.
pub(crate) const MAX_HEAD: usize = 32 << 10;
pub(crate) const MAX_FIELDS: usize = 100;

/// Fields for one connection, which a proxy does not forward (RFC 9110 section 7.6.1).
const HOP_BY_HOP: [&str; 7] = [
    "connection",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "keep-alive",
    "te",
    "upgrade",
];

/// A request of a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) target: Target,
    /// `None` for CONNECT. A CONNECT client gets an answer of the proxy.
    pub(crate) fetched: Option<Fetched>,
    /// Length of the request's head.
    pub(crate) length: usize,
}

/// A request for the target.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fetched {
    /// The bytes for the target before the body.
    pub(crate) head: Vec<u8>,
    pub(crate) body: Body,
    /// The method HEAD, whose answer has no body for any fields.
    pub(crate) is_head: bool,
    /// The request asks for a switch to another protocol, such as WebSocket.
    pub(crate) upgrades: bool,
}

/// Reads the head of a request; `None` until it is complete.
///
/// # Errors
///
/// The status of a refusal.
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
            fetched: None,
            length,
        }));
    }
    let (authority, path) = split(asked)?;
    let target = format!(
        "{}:{}",
        authority.host(),
        authority.port_u16().unwrap_or(80)
    );
    let target = target.parse().map_err(|_| StatusCode::BAD_REQUEST)?;
    let body = match Body::of(request.headers, version)? {
        // RFC 9112 section 6.3: the end of such a request cannot be found.
        Some(Body::UntilEnd) => return Err(StatusCode::NOT_IMPLEMENTED),
        Some(body) => body,
        None => Body::Length(0),
    };
    let upgrades = upgrades(request.headers);
    // RFC 9112 section 3.2.2: the authority of the target replaces the field `Host`.
    let host = match authority.port() {
        Some(port) => format!("{}:{port}", authority.host()),
        None => authority.host().to_owned(),
    };
    // The path may begin with the query.
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut head =
        format!("{method} {slash}{path} HTTP/1.{version}\r\nHost: {host}\r\n").into_bytes();
    for field in request.headers.iter() {
        if !field.name.eq_ignore_ascii_case("host") {
            pass(&mut head, field, request.headers);
        }
    }
    match upgrades {
        true => {
            for protocol in values(request.headers, "upgrade") {
                head.extend([b"Upgrade: ", protocol, b"\r\n"].concat());
            }
            head.extend(b"Connection: Upgrade\r\n\r\n");
        }
        // The next request may be for another target.
        false => head.extend(b"Connection: close\r\n\r\n"),
    }
    Ok(Some(Asked {
        target,
        fetched: Some(Fetched {
            head,
            body,
            is_head: method == "HEAD",
            upgrades,
        }),
        length,
    }))
}

/// The host of an absolute target, and the rest for the server. Browsers send characters that RFC
/// 3986 forbids, and the server decides about such characters.
fn split(asked: &str) -> Result<(Authority, &str), StatusCode> {
    // A target without a scheme is for a server, not for a proxy.
    let (scheme, rest) = asked.split_once("://").ok_or(StatusCode::BAD_REQUEST)?;
    if !["http", "ws"]
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known))
    {
        let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        return Err(if !scheme.is_empty() && scheme.bytes().all(is_scheme) {
            StatusCode::NOT_IMPLEMENTED
        } else {
            StatusCode::BAD_REQUEST
        });
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let authority = authority.parse().map_err(|_| StatusCode::BAD_REQUEST)?;
    Ok((authority, path.split('#').next().unwrap_or_default()))
}

/// True if a message asks for a change of the protocol (RFC 9110 section 7.8).
fn upgrades(fields: &[httparse::Header<'_>]) -> bool {
    values(fields, "upgrade").next().is_some() && is_option(b"upgrade", fields)
}

/// True if the field `Connection` has this name.
fn is_option(name: &[u8], fields: &[httparse::Header<'_>]) -> bool {
    values(fields, "connection")
        .flat_map(|value| value.split(|byte| *byte == b','))
        .any(|option| option.trim_ascii().eq_ignore_ascii_case(name))
}

/// Adds a field to a head, unless the field belongs to one connection.
pub(crate) fn pass(
    head: &mut Vec<u8>,
    field: &httparse::Header<'_>,
    fields: &[httparse::Header<'_>],
) {
    let is_one_of =
        |names: &[&str]| (names.iter()).any(|name| field.name.eq_ignore_ascii_case(name));
    // `Connection` cannot remove the fields for the length of the body.
    let is_listed = || {
        !is_one_of(&["content-length", "transfer-encoding"])
            && is_option(field.name.as_bytes(), fields)
    };
    if !is_one_of(&HOP_BY_HOP) && !is_listed() {
        head.extend([field.name.as_bytes(), b": ", field.value, b"\r\n"].concat());
    }
}

/// An answer with a reason as its body.
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
        assert_eq!(
            (asked.fetched, &bytes[asked.length..]),
            (None, &b"more"[..])
        );
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
        let fetched = asked.fetched.unwrap();
        assert_eq!((fetched.body, fetched.is_head), (Body::Length(4), false));
        assert_eq!(
            String::from_utf8(fetched.head).unwrap(),
            "POST /a?b HTTP/1.0\r\nHost: example.org:81\r\nContent-Length: 4\r\nx-kept: 2\r\nConnection: close\r\n\r\n"
        );
        let short = head(b"GET http://[::1] HTTP/1.1\r\n\r\n").unwrap().unwrap();
        assert_eq!(short.target.to_string(), "[::1]:80");
        assert!((short.fetched.unwrap().head).starts_with(b"GET / HTTP/1.1\r\nHost: [::1]\r\n"));
    }

    #[test]
    fn paths_are_the_servers_to_judge() {
        for (asked, seen) in [
            ("http://a?b", "/?b"),
            ("HTTP://a/`x`?y=\"z\"{|}", "/`x`?y=\"z\"{|}"),
            ("ws://a/chat#part", "/chat"),
            ("http://user:word@a/x://y", "/x://y"),
        ] {
            let bytes = format!("GET {asked} HTTP/1.1\r\n\r\n");
            let asked = head(bytes.as_bytes()).unwrap().unwrap();
            assert_eq!(asked.target.to_string(), "a:80");
            let told = String::from_utf8(asked.fetched.unwrap().head).unwrap();
            let start = format!("GET {seen} HTTP/1.1\r\nHost: a\r\n");
            assert!(told.starts_with(&start), "{told}");
        }
    }

    #[test]
    fn another_protocol_is_asked_for_as_the_client_does() {
        let told = |connection: &str| {
            let bytes = format!(
                "GET http://a/ HTTP/1.1\r\nConnection: {connection}\r\nUpgrade: websocket\r\n\r\n"
            );
            let fetched = head(bytes.as_bytes()).unwrap().unwrap().fetched.unwrap();
            (fetched.upgrades, String::from_utf8(fetched.head).unwrap())
        };
        let start = "GET / HTTP/1.1\r\nHost: a\r\n";
        let upgrade = format!("{start}Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
        assert_eq!(told("keep-alive, Upgrade"), (true, upgrade));
        let close = format!("{start}Connection: close\r\n\r\n");
        assert_eq!(told("keep-alive"), (false, close));
    }

    #[test]
    fn request_not_for_a_proxy_is_refused() {
        for (bytes, status) in [
            (&b"\x16\x03\x01\x00"[..], 400),
            (b"GET / HTTP/1.1\r\n\r\n", 400),
            (b"CONNECT example.org HTTP/1.1\r\n\r\n", 400),
            (b"GET http:///x HTTP/1.1\r\n\r\n", 400),
            (b"GET https://example.org/ HTTP/1.1\r\n\r\n", 501),
            (b"GET ftp://example.org/ HTTP/1.1\r\n\r\n", 501),
            (b"GET /x?y=http://example.org/ HTTP/1.1\r\n\r\n", 400),
            (
                b"PUT http://a/ HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
                400,
            ),
            (b"PUT http://a/ HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
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
