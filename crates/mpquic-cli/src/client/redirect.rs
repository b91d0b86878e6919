//! The target of a redirection.

use http::Uri;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, CACHE_CONTROL, HeaderMap, HeaderName, PRAGMA,
    USER_AGENT,
};
use http::{Method, StatusCode};
use iri_string::types::{UriAbsoluteStr, UriReferenceStr};

use crate::client::protocol::Ask;
use crate::options::parse_url;

/// Fields without personal data, which other hosts may get.
const HARMLESS: [HeaderName; 6] = [
    ACCEPT,
    ACCEPT_ENCODING,
    ACCEPT_LANGUAGE,
    CACHE_CONTROL,
    PRAGMA,
    USER_AGENT,
];

/// The request after a redirection with this status and Location; `None` if it cannot be followed.
pub(crate) fn follow(ask: &Ask, status: StatusCode, location: &str) -> Option<Ask> {
    let method = match status {
        StatusCode::SEE_OTHER if ask.method != Method::HEAD => Method::GET,
        // RFC 9110 section 15.4: all clients change POST to GET here.
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND if ask.method == Method::POST => {
            Method::GET
        }
        StatusCode::MOVED_PERMANENTLY
        | StatusCode::FOUND
        | StatusCode::SEE_OTHER
        | StatusCode::TEMPORARY_REDIRECT
        | StatusCode::PERMANENT_REDIRECT => ask.method.clone(),
        _ => return None,
    };
    let url = resolve(&ask.url, location)?;
    let mut fields = ask.fields.clone();
    if url.authority() != ask.url.authority() {
        // Another server must not see credentials, and any field may hold credentials.
        fields = HeaderMap::new();
        for name in HARMLESS {
            for value in ask.fields.get_all(&name) {
                fields.append(&name, value.clone());
            }
        }
    }
    Some(Ask {
        url,
        method,
        fields,
        have: ask.have.clone(),
    })
}

/// Resolves `reference` against `base`; `None` if the result is no https URL.
fn resolve(base: &Uri, reference: &str) -> Option<Uri> {
    let base = base.to_string();
    let base = UriAbsoluteStr::new(&base).ok()?;
    let resolved = UriReferenceStr::new(reference).ok()?.resolve_against(base);
    let resolved = resolved.to_string();
    // The fragment after `#` is for the reader of the content, not for the server.
    let resolved = resolved.split('#').next().unwrap_or_default();
    // As if the user had named it: an invalid port must not become the default port.
    parse_url(resolved).ok()
}

#[cfg(test)]
mod tests {
    use http::header::{AUTHORIZATION, COOKIE};

    use super::*;
    use crate::text::url;

    #[test]
    fn locations_are_relative_to_the_url() {
        let base = "https://host:4433/a/b?c".parse().unwrap();
        let to = |reference| resolve(&base, reference).map(|url| url.to_string());
        for (reference, expected) in [
            ("d", Some("https://host:4433/a/d")),
            ("/d?e", Some("https://host:4433/d?e")),
            ("../../../d", Some("https://host:4433/d")),
            ("?e", Some("https://host:4433/a/b?e")),
            ("#f", Some("https://host:4433/a/b?c")),
            ("//other/d", Some("https://other/d")),
            ("https://other:1/d#f", Some("https://other:1/d")),
            ("http://other/d", None),
            ("mailto:somebody", None),
            ("https:///d", None),
            ("https://other:/d", Some("https://other/d")),
            ("https://other:65536/d", None),
            ("https://other:+443/d", None),
            ("https://:5/d", None),
            ("/over\tthere", None),
            ("http://[", None),
        ] {
            assert_eq!(to(reference).as_deref(), expected, "{reference}");
        }
    }

    #[test]
    fn locations_of_servers_are_escaped() {
        let base = "https://host/a/".parse().unwrap();
        for (location, expected) in [
            (&b"  /b c\t"[..], Some("https://host/b%20c")),
            (
                "/\u{e4}?\u{20ac}".as_bytes(),
                Some("https://host/%C3%A4?%E2%82%AC"),
            ),
            (b"/caf\xe9", Some("https://host/caf%E9")),
            (
                b"/x|[]{}^`\"<>\\",
                Some("https://host/x%7C%5B%5D%7B%7D%5E%60%22%3C%3E%5C"),
            ),
            (b"/100%/%41%zz%", Some("https://host/100%25/%41%25zz%25")),
            (b"https://[::1]:5/[", Some("https://[::1]:5/%5B")),
            (b"//[::1]?[", Some("https://[::1]/?%5B")),
            (b"b//[c]", Some("https://host/a/b//%5Bc%5D")),
            (
                "//b\u{fc}cher.example:5/b\u{fc}".as_bytes(),
                Some("https://xn--bcher-kva.example:5/b%C3%BC"),
            ),
            (b"/a\x01b", None),
            (b"//ho st/", None),
        ] {
            let reference = url::escaped(location);
            let url = resolve(&base, &reference).map(|url| url.to_string());
            assert_eq!(url.as_deref(), expected, "{reference}");
        }
    }

    #[test]
    fn methods_and_secrets() {
        let mut ask = Ask::get(&"https://host/a".parse().unwrap());
        ask.fields.insert(AUTHORIZATION, "secret".parse().unwrap());
        ask.fields.insert(COOKIE, "secret".parse().unwrap());
        ask.fields.insert("x-api-key", "secret".parse().unwrap());
        ask.fields.insert(ACCEPT, "text/plain".parse().unwrap());
        let same = follow(&ask, StatusCode::FOUND, "/b").unwrap();
        assert_eq!(same.fields.len(), 4);
        let other = follow(&ask, StatusCode::FOUND, "https://other/b").unwrap();
        assert_eq!(other.fields.keys().collect::<Vec<_>>(), [ACCEPT]);
        for (method, status, then) in [
            (Method::GET, 301, Some(Method::GET)),
            (Method::HEAD, 303, Some(Method::HEAD)),
            (Method::POST, 301, Some(Method::GET)),
            (Method::PUT, 303, Some(Method::GET)),
            (Method::PUT, 302, Some(Method::PUT)),
            (Method::POST, 307, Some(Method::POST)),
            (Method::PUT, 308, Some(Method::PUT)),
            (Method::GET, 300, None),
            (Method::GET, 304, None),
        ] {
            ask.method = method;
            let status = StatusCode::from_u16(status).unwrap();
            let followed = follow(&ask, status, "/b");
            assert_eq!(followed.map(|ask| ask.method), then, "{status}");
        }
    }
}
