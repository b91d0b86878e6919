//! Where a redirection leads.

use http::Uri;
use http::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION};
use http::{Method, StatusCode};
use iri_string::types::{UriAbsoluteStr, UriReferenceStr};

use crate::protocol::Ask;

/// The request to send instead, after an answer with this status and Location; `None` if it cannot
/// be followed.
pub(crate) fn follow(ask: &Ask, status: StatusCode, location: &str) -> Option<Ask> {
    let method = match status {
        StatusCode::SEE_OTHER if ask.method != Method::HEAD => Method::GET,
        // RFC 9110 section 15.4: as everybody does.
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
        // What proves who we are to one server is not for another.
        for secret in [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION] {
            fields.remove(secret);
        }
    }
    Some(Ask {
        url,
        method,
        fields,
        have: ask.have.clone(),
    })
}

/// The URL that `reference` means in what came from `base`; `None` if it is not of this kind.
fn resolve(base: &Uri, reference: &str) -> Option<Uri> {
    let base = base.to_string();
    let base = UriAbsoluteStr::new(&base).ok()?;
    let resolved = UriReferenceStr::new(reference).ok()?.resolve_against(base);
    let resolved = resolved.to_string();
    // The part behind # is for whoever looks at the content.
    let resolved = resolved.split('#').next().unwrap_or_default();
    let url: Uri = resolved.parse().ok()?;
    let is_ours =
        url.scheme_str() == Some("https") && url.host().is_some_and(|host| !host.is_empty());
    is_ours.then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("/over\tthere", None),
            ("http://[", None),
        ] {
            assert_eq!(to(reference).as_deref(), expected, "{reference}");
        }
    }

    #[test]
    fn methods_and_secrets() {
        let mut ask = Ask::get(&"https://host/a".parse().unwrap());
        ask.fields.insert(AUTHORIZATION, "secret".parse().unwrap());
        ask.fields.insert(COOKIE, "secret".parse().unwrap());
        ask.fields.insert("x-y", "z".parse().unwrap());
        let same = follow(&ask, StatusCode::FOUND, "/b").unwrap();
        assert_eq!(same.fields.len(), 3);
        let other = follow(&ask, StatusCode::FOUND, "https://other/b").unwrap();
        assert_eq!(other.fields.len(), 1);
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
