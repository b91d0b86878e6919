//! Uploads that can be resumed (draft-ietf-httpbis-resumable-upload). The server names an upload in
//! an interim answer. Later, the client asks the server for the number of received bytes, and sends
//! the rest.

use std::time::{Duration, SystemTime};

use http::header::{CACHE_CONTROL, HeaderMap, HeaderName, LOCATION};
use http::{HeaderValue, Response, StatusCode, Uri, response};

use crate::files::unfinished::Token;
use crate::files::uploads::KEPT;
use crate::text::times;

/// The media type of the rest of a file.
pub(crate) const PARTIAL: &str = "application/partial-upload";
/// Smallest upload to resume. To send a smaller file again takes no longer than the question.
pub(crate) const FROM: u64 = 1 << 20;
/// The start of the query that names an upload.
const QUERY: &str = "upload=";
/// Upload Resumption Supported.
const SUPPORTED: u16 = 104;

const UPLOAD_COMPLETE: HeaderName = HeaderName::from_static("upload-complete");
/// The length of the whole file.
pub(crate) const UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");
const UPLOAD_LIMIT: HeaderName = HeaderName::from_static("upload-limit");
const UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");

/// Time since the first request of an upload, in seconds with up to nine digits after the point.
const UPLOAD_AGE: HeaderName = HeaderName::from_static("upload-age");

/// The request carries the whole file, or all of the rest.
const COMPLETE: HeaderValue = HeaderValue::from_static("?1");
const INCOMPLETE: HeaderValue = HeaderValue::from_static("?0");

/// A number of HTTP: digits only.
pub(crate) fn number(value: &HeaderValue) -> Option<u64> {
    let digits = value.to_str().ok()?;
    let are_digits = digits.bytes().all(|digit| digit.is_ascii_digit());
    are_digits.then(|| digits.parse().ok()).flatten()
}

/// The upload in a URL.
pub(crate) fn token_of(url: &Uri) -> Option<Token> {
    Token::parse(url.query()?.strip_prefix(QUERY)?)
}

/// True if the client can resume this upload, and the file is large enough.
pub(crate) fn is_wanted(fields: &HeaderMap, length: Option<u64>) -> bool {
    is_complete(fields) && length.is_some_and(|length| length >= FROM)
}

/// True if no further part follows this request.
pub(crate) fn is_complete(fields: &HeaderMap) -> bool {
    fields.contains_key(UPLOAD_COMPLETE) && !goes_on(fields)
}

/// True if a further part may follow this request: the field has another value than [`COMPLETE`].
pub(crate) fn goes_on(fields: &HeaderMap) -> bool {
    let mut values = fields.get_all(UPLOAD_COMPLETE).iter();
    values.any(|value| *value != COMPLETE)
}

/// True if the content may begin after the beginning of the file.
pub(crate) fn begins_later(fields: &HeaderMap) -> bool {
    fields.contains_key(UPLOAD_OFFSET) && offset_of(fields) != Some(0)
}

/// The offset of the content in the file, or the number of received bytes.
pub(crate) fn offset_of(fields: &HeaderMap) -> Option<u64> {
    number(fields.get(UPLOAD_OFFSET)?)
}

/// Adds the number of received bytes.
pub(crate) fn add_offset(response: response::Builder, offset: u64) -> response::Builder {
    response
        .header(UPLOAD_OFFSET, offset)
        .header(UPLOAD_COMPLETE, INCOMPLETE)
        .header(CACHE_CONTROL, "no-store")
}

/// The interim answer that names the upload of a file.
pub(crate) fn offer(path: &str, token: &Token) -> Option<Response<()>> {
    let status = StatusCode::from_u16(SUPPORTED).ok()?;
    let offer = Response::builder()
        .status(status)
        .header(LOCATION, format!("{path}?{QUERY}{}", token.as_str()))
        .header(UPLOAD_LIMIT, format!("max-age={}", KEPT.as_secs()));
    offer.body(()).ok()
}

/// Asks for an offer to resume.
pub(crate) fn want(fields: &mut HeaderMap) {
    fields.insert(UPLOAD_COMPLETE, COMPLETE);
}

/// Announces the rest of the file, from this offset.
pub(crate) fn go_on(fields: &mut HeaderMap, offset: u64) {
    want(fields);
    fields.insert(UPLOAD_OFFSET, offset.into());
    fields.insert(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static(PARTIAL),
    );
}

/// Says that an earlier request for the same upload began this long ago. `mpquic serve` then
/// replaces no newer file: the earlier request may have stored the file, and its answer may be
/// lost.
pub(crate) fn repeat(fields: &mut HeaderMap, age: Duration) {
    let age = SystemTime::UNIX_EPOCH.checked_add(age).map(times::seconds);
    if let Some(Ok(age)) = age.map(TryInto::try_into) {
        fields.insert(UPLOAD_AGE, age);
    }
}

/// Time since the first request of a repeated upload. Invalid values are ignored.
pub(crate) fn age_of(fields: &HeaderMap) -> Option<Duration> {
    let since = times::of_seconds(fields.get(UPLOAD_AGE)?.to_str().ok()?)?;
    since.duration_since(SystemTime::UNIX_EPOCH).ok()
}

/// The URL of the upload in an interim answer, if the URL is on the same server.
pub(crate) fn offered(url: &Uri, offer: &Response<()>) -> Option<Uri> {
    if offer.status().as_u16() != SUPPORTED {
        return None;
    }
    let location: Uri = offer.headers().get(LOCATION)?.to_str().ok()?.parse().ok()?;
    let is_here = match location.authority() {
        Some(authority) => Some(authority) == url.authority() && location.scheme() == url.scheme(),
        None => location.path().starts_with('/'),
    };
    let mut parts = url.clone().into_parts();
    parts.path_and_query = location.path_and_query().cloned();
    is_here.then(|| Uri::from_parts(parts).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_understood_if_it_leads_to_the_same_server() {
        let url: Uri = "https://host:1/a%20b/c".parse().unwrap();
        let token = Token::new().unwrap();
        let offer = offer(url.path(), &token).unwrap();
        let there = offered(&url, &offer).unwrap();
        assert_eq!(token_of(&there), Some(token));
        assert_eq!(
            (there.path(), there.authority()),
            (url.path(), url.authority())
        );
        let at = |status: u16, location: &str| {
            let answer = Response::builder()
                .status(status)
                .header(LOCATION, location);
            let there = offered(&url, &answer.body(()).unwrap());
            there.map(|there| there.to_string())
        };
        assert_eq!(
            at(104, "https://host:1/x").as_deref(),
            Some("https://host:1/x")
        );
        for (status, location) in [
            (103, "/x"),
            (104, "https://host:2/x"),
            (104, "http://host:1/x"),
            (104, "x"),
            (104, ""),
        ] {
            assert_eq!(at(status, location), None, "{location}");
        }
    }

    #[test]
    fn the_age_of_an_upload_is_a_time_in_seconds() {
        let mut fields = HeaderMap::new();
        assert_eq!(age_of(&fields), None);
        let age = Duration::from_millis(61_234);
        repeat(&mut fields, age);
        assert_eq!(fields[UPLOAD_AGE], "61.234000000");
        assert_eq!(age_of(&fields), Some(age));
        for text in ["", "-1", "x", "1e3"] {
            fields.insert(UPLOAD_AGE, text.parse().unwrap());
            assert_eq!(age_of(&fields), None, "{text}");
        }
    }

    #[test]
    fn numbers_are_digits() {
        let number = |text: &str| number(&text.parse().unwrap());
        assert_eq!(
            (number("0"), number("18446744073709551615")),
            (Some(0), Some(u64::MAX))
        );
        for text in ["", "+5", "-5", "5 ", "0x5", "18446744073709551616"] {
            assert_eq!(number(text), None, "{text}");
        }
    }

    #[test]
    fn large_files_are_resumed_if_the_client_knows_how() {
        let mut fields = HeaderMap::new();
        assert!(!is_wanted(&fields, Some(FROM)));
        want(&mut fields);
        assert!(is_wanted(&fields, Some(FROM)));
        assert!(!is_wanted(&fields, Some(FROM - 1)) && !is_wanted(&fields, None));
        go_on(&mut fields, 7);
        assert_eq!((offset_of(&fields), is_complete(&fields)), (Some(7), true));
        assert!(begins_later(&fields) && !goes_on(&fields));
        fields.insert(UPLOAD_OFFSET, 0.into());
        fields.append(UPLOAD_COMPLETE, INCOMPLETE);
        assert!(!begins_later(&fields) && goes_on(&fields) && !is_complete(&fields));
    }
}
