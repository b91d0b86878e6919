//! Which part of a file an answer has.

use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, LOCATION};
use http::{HeaderMap, Method, StatusCode};

use crate::client::protocol::{Ask, RequestError};
use crate::text::stamp::Stamp;
use crate::text::url;

/// The part of a file in an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) start: u64,
    /// The end of the part and the length of the whole file, if announced.
    pub(crate) end: Option<u64>,
    pub(crate) length: Option<u64>,
}

/// Checks that the answer has the requested part.
pub(crate) fn content(
    ask: &Ask,
    status: StatusCode,
    fields: &HeaderMap,
) -> Result<Content, RequestError> {
    match status {
        StatusCode::OK | StatusCode::NON_AUTHORITATIVE_INFORMATION => {}
        // RFC 9110 sections 15.3.5 and 15.3.6: these answers have no content, which is complete.
        StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT => {
            return Ok(Content {
                start: 0,
                end: Some(0),
                length: Some(0),
            });
        }
        _ if status.is_success() && !matches!(ask.method, Method::GET | Method::HEAD) => {}
        StatusCode::NOT_FOUND => return Err(RequestError::NotFound),
        StatusCode::PARTIAL_CONTENT => return part(ask, fields),
        StatusCode::RANGE_NOT_SATISFIABLE => {
            let range = one_range(fields);
            let range = range.and_then(|range| range.split_once(" */"));
            let length = range.filter(|(unit, _)| unit.eq_ignore_ascii_case("bytes"));
            return Err(RequestError::PastEnd {
                length: length.and_then(|(_, length)| number(length)),
            });
        }
        _ if status.is_redirection() => {
            // A redirection without a Location is an ordinary answer.
            let location = fields.get(LOCATION).ok_or(RequestError::Status(status))?;
            return Err(RequestError::Redirected {
                status,
                location: url::escaped(location.as_bytes()),
            });
        }
        _ => return Err(RequestError::Status(status)),
    }
    let length = match ask.method {
        // A HEAD answer announces the length of a body without sending the body.
        Method::HEAD => None,
        _ => content_length(fields)?,
    };
    let whole = Content {
        start: 0,
        end: length,
        length,
    };
    match range(fields) {
        // RFC 9110 section 14.4: the field has no meaning in a multipart answer, and the body may
        // hold another part of the file.
        Some(range) if range.first != 0 || Some(range.end) != range.length => {
            Err(if ask.have.is_some() {
                RequestError::NotTheRest("a part of the file in place of the whole file")
            } else {
                RequestError::Malformed("a part of the file in place of the whole file")
            })
        }
        _ => Ok(whole),
    }
}

/// True if a later request, also of `--continue`, could get the rest of the file, by the fields of
/// an answer or by an error: only GET has ranges (RFC 9110 section 14.2), a server can announce no
/// ranges (section 14.3), and a missing file has no rest.
pub(crate) fn has_rest(ask: &Ask, answer: Result<&HeaderMap, &RequestError>) -> bool {
    let may_have = match answer {
        Ok(fields) => fields.get(ACCEPT_RANGES).is_none_or(|unit| unit != "none"),
        Err(error) => !matches!(error, RequestError::NotFound),
    };
    may_have && ask.method == Method::GET
}

/// A Content-Range.
struct Range {
    first: u64,
    end: u64,
    length: Option<u64>,
}

/// The Content-Range; of two, nobody knows which one is true.
fn one_range(fields: &HeaderMap) -> Option<&str> {
    let mut ranges = fields.get_all(CONTENT_RANGE).iter();
    let range = ranges.next().filter(|_| ranges.next().is_none());
    range?.to_str().ok()
}

fn range(fields: &HeaderMap) -> Option<Range> {
    let range = one_range(fields)?;
    let (unit, range) = range.trim().split_once(' ')?;
    let (range, length) = range.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let range = Range {
        first: number(first)?,
        end: number(last)?.checked_add(1)?,
        length: match length.trim() {
            "*" => None,
            length => Some(number(length)?),
        },
    };
    // RFC 9110 section 14.1: the case of units makes no difference.
    let is_right = unit.eq_ignore_ascii_case("bytes")
        && range.first < range.end
        && range.length.is_none_or(|length| range.end <= length);
    is_right.then_some(range)
}

/// A number of digits only.
fn number(text: &str) -> Option<u64> {
    let text = text.trim_matches([' ', '\t']);
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// Checks start and version of the part. The part may be shorter than requested. A part without a
/// strong validator cannot be combined with other parts (RFC 9110 section 15.3.7.3).
fn part(ask: &Ask, fields: &HeaderMap) -> Result<Content, RequestError> {
    let Some((have, stamp)) = &ask.have else {
        return Err(RequestError::Malformed(
            "a part of the file that was not requested",
        ));
    };
    let Some(range) = range(fields).filter(|range| range.first == *have) else {
        let told = "another part of the file than requested";
        return Err(RequestError::NotTheRest(told));
    };
    match Stamp::of(fields) {
        Some(now) if now == *stamp => {}
        Some(_) => {
            let told = "a part of another version of the file";
            return Err(RequestError::NotTheRest(told));
        }
        None => {
            let told = "a part of the file without a strong ETag or an older Last-Modified";
            return Err(RequestError::NotTheRest(told));
        }
    }
    Ok(Content {
        start: range.first,
        end: Some(range.end),
        length: range.length,
    })
}

fn content_length(fields: &HeaderMap) -> Result<Option<u64>, RequestError> {
    let mut lengths = fields.get_all(CONTENT_LENGTH).iter();
    let (Some(length), None) = (lengths.next(), lengths.next()) else {
        return if fields.contains_key(CONTENT_LENGTH) {
            Err(RequestError::Malformed("two lengths"))
        } else {
            Ok(None)
        };
    };
    match length.to_str().ok().and_then(number) {
        Some(length) => Ok(Some(length)),
        None => Err(RequestError::Malformed("length")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_files_are_taken() {
        let check = |status: u16, fields: &[(&'static str, &'static str)]| {
            let fields = fields.iter().map(|(name, value)| {
                let name: http::HeaderName = name.parse().unwrap();
                (name, value.parse().unwrap())
            });
            let status = StatusCode::from_u16(status).unwrap();
            let ask = Ask::get(&"https://host/file".parse().unwrap());
            content(&ask, status, &fields.collect()).map(|content| content.length)
        };
        assert!(matches!(check(200, &[]), Ok(None)));
        assert!(matches!(check(203, &[]), Ok(None)));
        for none in [204, 205] {
            assert!(matches!(check(none, &[]), Ok(Some(0))));
        }
        let length = |digits| check(200, &[("content-length", digits)]);
        assert!(matches!(length("0"), Ok(Some(0))));
        assert!(matches!(length("18446744073709551615"), Ok(Some(u64::MAX))));
        for wrong in ["", "-1", "+5", "1 1", "x", "1, 1", "18446744073709551616"] {
            assert!(matches!(length(wrong), Err(RequestError::Malformed(_))));
        }
        let twice = [("content-length", "1"), ("content-length", "1")];
        assert!(matches!(
            check(200, &twice),
            Err(RequestError::Malformed(_))
        ));
        for (status, told) in [
            (404, "not found on the server"),
            (403, "the server answered 403 Forbidden"),
            (500, "the server answered 500 Internal Server Error"),
            (302, "the server answered 302 Found"),
            (202, "the server answered 202 Accepted"),
            (
                206,
                "the server's answer is not valid: a part of the file that was not requested",
            ),
        ] {
            assert_eq!(check(status, &[]).unwrap_err().to_string(), told);
        }
        let moved = check(301, &[("location", "/elsewhere")]).unwrap_err();
        let told = "the server redirects to /elsewhere (301 Moved Permanently)";
        assert_eq!(moved.to_string(), told);
    }

    #[test]
    fn the_rest_is_asked_for_only_with_get_and_where_there_is_one() {
        for (method, unit, expected) in [
            (Method::GET, None, true),
            (Method::GET, Some("bytes"), true),
            (Method::GET, Some("none"), false),
            (Method::POST, None, false),
            (Method::POST, Some("bytes"), false),
        ] {
            let ask = Ask {
                method,
                ..Ask::get(&"https://host/file".parse().unwrap())
            };
            let mut fields = HeaderMap::new();
            if let Some(unit) = unit {
                fields.insert(ACCEPT_RANGES, unit.parse().unwrap());
            }
            assert_eq!(has_rest(&ask, Ok(&fields)), expected, "{ask:?} {unit:?}");
            let is_get = ask.method == Method::GET;
            assert!(!has_rest(&ask, Err(&RequestError::NotFound)));
            assert_eq!(has_rest(&ask, Err(&RequestError::Gone)), is_get);
        }
    }

    #[test]
    fn only_the_part_that_was_asked_for_is_taken() {
        let mut ask = Ask::get(&"https://host/file".parse().unwrap());
        ask.have = Some((100, Stamp::Etag("\"1\"".to_owned())));
        let answer = |range: &str, tag: &str| {
            let fields = [(CONTENT_RANGE, range), (http::header::ETAG, tag)];
            let fields = fields.map(|(name, value)| (name, value.parse().unwrap()));
            content(
                &ask,
                StatusCode::PARTIAL_CONTENT,
                &fields.into_iter().collect(),
            )
        };
        for (range, end, length) in [
            ("bytes 100-199/200", 200, Some(200)),
            ("Bytes 100-199/200", 200, Some(200)),
            ("bytes 100-199/*", 200, None),
            ("bytes 100-100/101", 101, Some(101)),
            // RFC 9110 section 15.3.7: a server may send less than requested.
            ("bytes 100-149/200", 150, Some(200)),
        ] {
            let content = answer(range, "\"1\"").unwrap();
            let expected = Content {
                start: 100,
                end: Some(end),
                length,
            };
            assert_eq!(content, expected, "{range}");
        }
        for range in [
            "bytes 99-199/200",
            "bytes 101-199/200",
            "bytes 100-200/200",
            "bytes 100-99/100",
            "bytes +100-199/200",
            "bytes 100-18446744073709551615/200",
            "bytes */200",
            "lines 100-199/200",
            "",
        ] {
            let refused = answer(range, "\"1\"").unwrap_err().to_string();
            assert!(refused.contains("another part"), "{range}: {refused}");
        }
        let twice = ["bytes 100-199/200", "bytes 0-99/200"];
        let twice = twice.map(|range| (CONTENT_RANGE, range.parse().unwrap()));
        let twice: HeaderMap = twice.into_iter().collect();
        for (status, told) in [(206, "another part"), (416, "416")] {
            let status = StatusCode::from_u16(status).unwrap();
            let refused = content(&ask, status, &twice).unwrap_err().to_string();
            assert!(refused.contains(told), "{refused}");
        }
        let refused = answer("bytes 100-199/200", "\"2\"").unwrap_err();
        assert!(refused.to_string().contains("another version"), "{refused}");
        for unnamed in ["W/\"1\"", "1", ""] {
            let refused = answer("bytes 100-199/200", unnamed).unwrap_err();
            assert!(
                refused.to_string().contains("without a strong ETag"),
                "{refused}"
            );
        }
        // An answer with the whole file is valid, but an answer with a part under status 200 is
        // not.
        for have in [ask.have.clone(), None] {
            ask.have = have;
            for (range, is_whole) in [
                (None, true),
                (Some("bytes 0-199/200"), true),
                (Some("bytes 100-199/200"), false),
                (Some("bytes 0-99/200"), false),
            ] {
                let range = range.map(|range| (CONTENT_RANGE, range.parse().unwrap()));
                let answer = content(&ask, StatusCode::OK, &range.into_iter().collect());
                match answer {
                    Ok(whole) => assert_eq!((is_whole, whole.start), (true, 0)),
                    Err(RequestError::NotTheRest(_)) => assert!(!is_whole && ask.have.is_some()),
                    Err(RequestError::Malformed(_)) => assert!(!is_whole && ask.have.is_none()),
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }
}
