//! Answers of a server to the tool's client. Parts of files agree with a naive reading of RFC 9110.
//! Redirections agree with a naive reading of RFC 3986, and never take secrets to another host.
//! Names in lists of directories stay in their directory, and messages stay short.

#![no_main]

use std::collections::HashSet;

use arbitrary::Arbitrary;
use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, COOKIE, DATE, ETAG, HeaderMap,
    HeaderName, LAST_MODIFIED, LOCATION, USER_AGENT,
};
use http::{HeaderValue, Method, StatusCode, Uri};
use libfuzzer_sys::fuzz_target;
use mpquic_core::PeerText;
use serde_json::{Value, json};

#[path = "../../crates/mpquic-cli/src/client"]
mod client {
    #[expect(dead_code, reason = "nobody is offered the rest of a file")]
    pub(crate) mod content;
    #[expect(dead_code, reason = "answers are read, not waited for")]
    pub(crate) mod protocol;
    pub(crate) mod redirect;
}
#[expect(dead_code, reason = "only what reads answers is called")]
#[path = "../../crates/mpquic-cli/src/files/mod.rs"]
mod files;
#[path = "../../crates/mpquic-cli/src/get"]
mod get {
    #[expect(dead_code, reason = "files are not written")]
    pub(crate) mod beside;
    pub(crate) mod listed_name;
    #[expect(dead_code, reason = "no part is made, so no note is written")]
    mod note_key;
    #[expect(dead_code, reason = "names of parts are recognised, no part is made")]
    pub(crate) mod part_name;
}
#[expect(dead_code, reason = "URLs are read, no option is")]
#[path = "../../crates/mpquic-cli/src/options/mod.rs"]
mod options;
#[expect(dead_code, reason = "files name it")]
#[path = "../../crates/mpquic-cli/src/process/mod.rs"]
mod process;
#[expect(dead_code, reason = "options name it")]
#[path = "../../crates/mpquic-cli/src/rate/mod.rs"]
mod rate;
#[expect(dead_code, reason = "files name it")]
#[path = "../../crates/mpquic-cli/src/text/mod.rs"]
mod text;

use client::content::content;
use client::protocol::{Ask, RequestError};
use client::redirect::follow;
use files::directory_page::{Kind, Listed};
use files::list_pages::Pages;
use files::list_query::after_of;
use files::resuming;
use get::listed_name::{LONGEST_NAME, is_part, taken};
use process::failure::Failure;
use text::percent::{encode_name, percent_decode};
use text::stamp::Stamp;
use text::url;

/// Longest message about an entry, in characters.
const LONGEST_MESSAGE: usize = 1000;

/// Locations that resolve in different ways.
const LOCATIONS: [&str; 24] = [
    "b",
    "/b",
    "../../b/./c/..",
    "?q",
    "#f",
    "//other/x",
    "//user@host/x",
    "https://host/b",
    "https://host:443/b",
    "https://HOST/b",
    "https://host:65536/b",
    "https://host:/b",
    "https://host:+443/b",
    "https://:5/b",
    "https://[::1]:4433/b",
    "https://[::1/b",
    "http://host/b",
    "https:b",
    "https:/b",
    "https:///b",
    "ftp:/.//host/",
    "mailto:user@host",
    "//b\u{fc}cher.example/",
    "a b|c%zz%",
];
const BASES: [&str; 5] = [
    "https://host/a/b?c",
    "https://host:4433/",
    "https://[::1]:4433/a//b/",
    "https://user:word@host/a",
    "https://host",
];
/// Names that lead out of a directory, and names of parts and notes of other files.
const NAMES: [&str; 20] = [
    "",
    ".",
    "..",
    "...",
    "/",
    "a/b",
    "../a",
    "/etc",
    "a\0",
    "a\n",
    "a\u{1b}[1m",
    ".hidden",
    "a",
    "a.part",
    "a.2.part",
    "a.part.json",
    "a.part.json.new",
    "a..part",
    "%2e%2e",
    "a\u{202e}b",
];
const KINDS: [&str; 5] = ["file", "directory", "more", "other", "pipe"];

#[derive(Debug, Arbitrary)]
enum Name {
    Listed(u8),
    Text(String),
    /// Percent-encoded, as in URLs.
    Encoded(Vec<u8>),
    Escapes(String),
    Long(u8, u16),
}

#[derive(Debug, Arbitrary)]
struct Item {
    name: Name,
    kind: u8,
    size: Option<u64>,
    mode: Option<u16>,
    modified: Option<(i64, u32)>,
}

#[derive(Debug, Arbitrary)]
enum Field {
    Range {
        unit: u8,
        first: i8,
        last: u16,
        length: Option<u16>,
    },
    Numbers(u64, u64, Option<u64>),
    Unsatisfied(Option<u16>),
    Length(u16),
    Tag {
        is_same: bool,
        is_weak: bool,
    },
    Changed(u32),
    Sent(u32),
    Any {
        name: u8,
        value: Vec<u8>,
    },
}

#[derive(Debug, Arbitrary)]
struct Answer {
    have: Option<u16>,
    is_dated: bool,
    method: u8,
    status: u16,
    fields: Vec<Field>,
}

#[derive(Debug, Arbitrary)]
enum Location {
    Known(u8),
    Joined(u8, String),
    Any(Vec<u8>),
}

#[derive(Debug, Arbitrary)]
struct Input {
    answer: Answer,
    base: u8,
    hops: Vec<(u8, Location)>,
    pages: Vec<Vec<Item>>,
    dot_files: bool,
    list: String,
}

fuzz_target!(|input: Input| {
    check_answer(&input.answer);
    check_redirections(&input);
    check_pages(&input);
    if let Ok(listed) = serde_json::from_str::<Vec<Listed>>(&input.list) {
        check_names(&listed, input.dot_files);
    }
});

/// Checks the place of an answer's bytes against a naive reading.
fn check_answer(answer: &Answer) {
    let mut ask = Ask::get(&"https://host/a".parse().unwrap());
    let methods = [Method::GET, Method::HEAD, Method::POST, Method::PUT];
    ask.method = methods[usize::from(answer.method) % methods.len()].clone();
    let stamp = if answer.is_dated {
        Stamp::LastModified(date(1000))
    } else {
        Stamp::Etag("\"same\"".to_owned())
    };
    // A client continues only a file of which it has at least one byte.
    let have = answer.have.map(|have| u64::from(have.max(1)));
    ask.have = have.map(|have| (have, stamp));
    let mut fields = HeaderMap::new();
    for field in answer.fields.iter().take(12) {
        add(&mut fields, field, have.unwrap_or(0));
    }
    const OFTEN: [u16; 8] = [200, 206, 416, 204, 203, 301, 307, 404];
    let status = match answer.status {
        often @ 0..100 => OFTEN[usize::from(often) % OFTEN.len()],
        other => 100 + other % 900,
    };
    let status = StatusCode::from_u16(status).unwrap();
    check_stamp(&fields);
    check_offer(&fields, status);
    let found = content(&ask, status, &fields);
    if let Err(error) = &found {
        let failure = Failure::from(error_of(error));
        assert!(failure.message().chars().all(PeerText::is_plain));
    }
    match (naive_part(&ask, status, &fields), found) {
        (Ok(expected), Ok(found)) => {
            assert_eq!(expected, (found.start, found.end, found.length));
            let (start, end) = (found.start, found.end.unwrap_or(u64::MAX));
            assert!(start <= end && found.length.is_none_or(|length| start <= length));
        }
        (Err(Refused::PastEnd(expected)), Err(RequestError::PastEnd { length })) => {
            assert_eq!(expected, length);
        }
        (Err(Refused::Redirected), Err(RequestError::Redirected { .. })) => {}
        (Err(Refused::Otherwise), Err(error)) => {
            let is_other = !matches!(
                error,
                RequestError::PastEnd { .. } | RequestError::Redirected { .. }
            );
            assert!(is_other, "{error}");
        }
        (expected, found) => panic!("{expected:?}, and not {found:?}"),
    }
}

/// A copy of the error, for its message.
fn error_of(error: &RequestError) -> RequestError {
    match error {
        RequestError::Redirected { status, location } => RequestError::Redirected {
            status: *status,
            location: location.clone(),
        },
        _ => RequestError::Http(error.to_string()),
    }
}

#[derive(Debug)]
enum Refused {
    PastEnd(Option<u64>),
    Redirected,
    Otherwise,
}

type Part = (u64, Option<u64>, Option<u64>);

/// The kind of an answer and the range of its bytes, by RFC 9110 sections 14.4 and 15.3.
fn naive_part(ask: &Ask, status: StatusCode, fields: &HeaderMap) -> Result<Part, Refused> {
    let range = single(fields, CONTENT_RANGE);
    let is_get = matches!(ask.method, Method::GET | Method::HEAD);
    match status.as_u16() {
        204 | 205 => return Ok((0, Some(0), Some(0))),
        206 if is_get => {
            let (have, stamp) = ask.have.as_ref().ok_or(Refused::Otherwise)?;
            let (first, last, length) = range.and_then(naive_range).ok_or(Refused::Otherwise)?;
            // Without a strong validator, the version of the part is unknown.
            if first != *have || Stamp::of(fields).as_ref() != Some(stamp) {
                return Err(Refused::Otherwise);
            }
            return Ok((first, Some(last + 1), length));
        }
        200 | 203 => {}
        201 | 202 | 206..300 if !is_get => {}
        416 => {
            let range = range.and_then(|range| range.split_once(" */"));
            let range = range.filter(|(unit, _)| unit.eq_ignore_ascii_case("bytes"));
            return Err(Refused::PastEnd(
                range.and_then(|(_, length)| naive_number(length)),
            ));
        }
        300..400 if fields.contains_key(LOCATION) => return Err(Refused::Redirected),
        _ => return Err(Refused::Otherwise),
    }
    // A part of the file under the status of the whole file.
    if let Some((first, last, length)) = range.and_then(naive_range)
        && (first != 0 || length != Some(last + 1))
    {
        return Err(Refused::Otherwise);
    }
    if ask.method == Method::HEAD {
        return Ok((0, None, None));
    }
    if !fields.contains_key(CONTENT_LENGTH) {
        return Ok((0, None, None));
    }
    let length = single(fields, CONTENT_LENGTH).and_then(naive_number);
    let length = length.ok_or(Refused::Otherwise)?;
    Ok((0, Some(length), Some(length)))
}

/// The value of a field that occurs once.
fn single(fields: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = fields.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

fn naive_number(text: &str) -> Option<u64> {
    let text = text.trim_matches([' ', '\t']);
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// The first byte, the last byte and the length of the whole file.
fn naive_range(text: &str) -> Option<(u64, u64, Option<u64>)> {
    let (unit, rest) = text.trim().split_once(' ')?;
    let (range, length) = rest.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last) = (naive_number(first)?, naive_number(last)?);
    let length = match length.trim() {
        "*" => None,
        length => Some(naive_number(length)?),
    };
    let is_right = unit.eq_ignore_ascii_case("bytes")
        && first <= last
        && last < u64::MAX
        && length.is_none_or(|length| last < length);
    is_right.then_some((first, last, length))
}

fn date(seconds: u32) -> String {
    let at = std::time::Duration::from_secs(seconds.into());
    httpdate::fmt_http_date(std::time::SystemTime::UNIX_EPOCH + at)
}

fn add(fields: &mut HeaderMap, field: &Field, have: u64) {
    const UNITS: [&str; 4] = ["bytes", "Bytes", "bytes ", "lines"];
    const NAMES: [HeaderName; 6] = [
        CONTENT_RANGE,
        CONTENT_LENGTH,
        ETAG,
        LAST_MODIFIED,
        DATE,
        LOCATION,
    ];
    let or_star = |length: Option<u64>| length.map_or("*".to_owned(), |length| length.to_string());
    let (name, value) = match field {
        Field::Range {
            unit,
            first,
            last,
            length,
        } => {
            // Mostly the requested range.
            let first = have.saturating_add_signed((*first / 32).into());
            let last = first.saturating_add((*last).into()).saturating_sub(1);
            let length = length.map(|length| last.saturating_add(length.into()));
            let unit = UNITS[usize::from(*unit / 64)];
            (
                CONTENT_RANGE,
                format!("{unit} {first}-{last}/{}", or_star(length)).into_bytes(),
            )
        }
        Field::Numbers(first, last, length) => {
            let value = format!("bytes {first}-{last}/{}", or_star(*length));
            (CONTENT_RANGE, value.into_bytes())
        }
        Field::Unsatisfied(length) => {
            let value = format!("bytes */{}", or_star(length.map(u64::from)));
            (CONTENT_RANGE, value.into_bytes())
        }
        Field::Length(length) => (CONTENT_LENGTH, length.to_string().into_bytes()),
        Field::Tag { is_same, is_weak } => {
            let tag = if *is_same { "\"same\"" } else { "\"other\"" };
            let weak = if *is_weak { "W/" } else { "" };
            (ETAG, format!("{weak}{tag}").into_bytes())
        }
        Field::Changed(seconds) => (LAST_MODIFIED, date(*seconds).into_bytes()),
        Field::Sent(seconds) => (DATE, date(*seconds).into_bytes()),
        Field::Any { name, value } => (
            NAMES[usize::from(*name) % NAMES.len()].clone(),
            value.clone(),
        ),
    };
    if let Ok(value) = HeaderValue::from_bytes(&value) {
        fields.append(name, value);
    }
}

/// Only a strong validator identifies a version (RFC 9110 section 8.8), and requests can name it.
fn check_stamp(fields: &HeaderMap) {
    let text = |name| fields.get(name).and_then(|value| value.to_str().ok());
    let stamp = Stamp::of(fields);
    match &stamp {
        Some(Stamp::Etag(tag)) => assert!(tag.starts_with('"') && text(ETAG) == Some(tag)),
        Some(Stamp::LastModified(changed)) => {
            assert_eq!(text(LAST_MODIFIED), Some(&**changed));
            let [changed, sent] =
                [changed, text(DATE).unwrap()].map(|date| httpdate::parse_http_date(date).unwrap());
            assert!(changed < sent);
        }
        None => assert!(!text(ETAG).is_some_and(|tag| tag.starts_with('"'))),
    }
    if let Some(stamp) = stamp {
        assert!(stamp.value().is_some());
    }
}

/// An interrupted upload continues at the same server only.
fn check_offer(fields: &HeaderMap, status: StatusCode) {
    for url in BASES {
        let url: Uri = url.parse().unwrap();
        let mut offer = http::Response::new(());
        *offer.status_mut() = status;
        *offer.headers_mut() = fields.clone();
        if let Some(upload) = resuming::offered(&url, &offer) {
            assert_eq!(status.as_u16(), 104);
            assert_eq!(
                (upload.scheme(), upload.authority()),
                (url.scheme(), url.authority())
            );
        }
    }
}

fn check_redirections(input: &Input) {
    let base = BASES[usize::from(input.base) % BASES.len()];
    let mut ask = Ask::get(&base.parse().unwrap());
    ask.have = Some((5, Stamp::Etag("\"same\"".to_owned())));
    for (name, value) in [
        (AUTHORIZATION, "secret"),
        (COOKIE, "secret"),
        (HeaderName::from_static("x-key"), "secret"),
        (ACCEPT, "text/plain"),
        (USER_AGENT, "somebody"),
    ] {
        ask.fields.insert(name, HeaderValue::from_static(value));
    }
    let mut has_left = false;
    for (kind, location) in input.hops.iter().take(8) {
        const STATUSES: [u16; 8] = [301, 302, 303, 307, 308, 300, 304, 305];
        const METHODS: [Method; 4] = [Method::GET, Method::HEAD, Method::POST, Method::PUT];
        let status = StatusCode::from_u16(STATUSES[usize::from(*kind % 8)]).unwrap();
        ask.method = METHODS[usize::from(*kind / 8 % 4)].clone();
        let location = match location {
            Location::Known(index) => LOCATIONS[usize::from(*index) % LOCATIONS.len()].to_owned(),
            Location::Joined(index, more) => {
                LOCATIONS[usize::from(*index) % LOCATIONS.len()].to_owned() + more
            }
            Location::Any(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        };
        let location = url::escaped(location.as_bytes());
        let Some(next) = follow(&ask, status, &location) else {
            continue;
        };
        check_hop(&ask, status, &location, &next);
        has_left |= next.url.authority() != ask.url.authority();
        assert!(!has_left || !next.fields.values().any(|value| value == "secret"));
        ask = next;
    }
}

fn check_hop(ask: &Ask, status: StatusCode, location: &str, next: &Ask) {
    let told = next.url.to_string();
    // The rules for a URL from the user hold: https, a host and a valid port.
    assert_eq!(options::parse_url(&told).as_ref(), Ok(&next.url));
    assert!(!told.contains('#'));
    let naive = naive_resolve(&ask.url.to_string(), location);
    let naive = options::parse_url(&naive);
    assert_eq!(naive.as_ref(), Ok(&next.url), "{location}");
    if next.url.authority() == ask.url.authority() {
        assert_eq!(next.fields, ask.fields)
    } else {
        let names = next.fields.keys().collect::<HashSet<_>>();
        assert!(names.is_subset(&HashSet::from([&ACCEPT, &USER_AGENT])));
    }
    assert_eq!(next.have, ask.have);
    let method = match (status.as_u16(), &ask.method) {
        (303, method) if *method != Method::HEAD => Method::GET,
        (301 | 302, &Method::POST) => Method::GET,
        (301 | 302 | 303 | 307 | 308, method) => method.clone(),
        (status, _) => panic!("{status} leads nowhere"),
    };
    assert_eq!(next.method, method);
}

/// The parts of a reference, as RFC 3986 appendix B finds them: scheme, authority, path and query.
fn parts(text: &str) -> (Option<&str>, Option<&str>, &str, Option<&str>) {
    let text = text.split('#').next().unwrap_or_default();
    let (text, query) = match text.split_once('?') {
        Some((text, query)) => (text, Some(query)),
        None => (text, None),
    };
    let (scheme, text) = match text.split_once(':') {
        Some((scheme, rest)) if !scheme.is_empty() && !scheme.contains('/') => (Some(scheme), rest),
        _ => (None, text),
    };
    match text.strip_prefix("//") {
        Some(text) => {
            let end = text.find('/').unwrap_or(text.len());
            (scheme, Some(&text[..end]), &text[end..], query)
        }
        None => (scheme, None, text, query),
    }
}

/// RFC 3986 section 5.2, without the fragment.
fn naive_resolve(base: &str, reference: &str) -> String {
    let (base_scheme, base_authority, base_path, base_query) = parts(base);
    let (scheme, authority, path, query) = parts(reference);
    let is_alone = path.is_empty() && scheme.is_none() && authority.is_none();
    let merged = match (scheme, authority) {
        (None, None) if path.is_empty() => base_path.to_owned(),
        (None, None) if !path.starts_with('/') => {
            let end = base_path.rfind('/').map_or(0, |slash| slash + 1);
            let before = if base_path.is_empty() {
                "/"
            } else {
                &base_path[..end]
            };
            without_dots(&format!("{before}{path}"))
        }
        _ => without_dots(path),
    };
    let query = if is_alone {
        query.or(base_query)
    } else {
        query
    };
    let authority = match scheme {
        Some(_) => authority,
        None => authority.or(base_authority),
    };
    let scheme = scheme.or(base_scheme).unwrap_or_default();
    let authority = authority.map_or(String::new(), |authority| format!("//{authority}"));
    let query = query.map_or(String::new(), |query| format!("?{query}"));
    format!("{scheme}:{authority}{merged}{query}")
}

/// RFC 3986 section 5.2.4, with section 6.2.2.2: `%2E` is a dot.
fn without_dots(path: &str) -> String {
    let mut out: Vec<&str> = Vec::new();
    let count = path.split('/').count();
    for (index, segment) in path.split('/').enumerate() {
        let is_last = index + 1 == count;
        let decoded = segment.to_ascii_lowercase().replace("%2e", ".");
        match segment {
            _ if decoded == "." || decoded == ".." => {
                // The first segment is empty: it stands before the first slash.
                if decoded == ".." && out.len() > 1 {
                    out.pop();
                }
                if is_last {
                    out.push("");
                }
            }
            segment => out.push(segment),
        }
    }
    out.join("/")
}

/// The JSON of an entry.
fn written(item: &Item) -> Value {
    let mut entry = json!({
        "type": KINDS[usize::from(item.kind) % KINDS.len()],
        "size": item.size,
        "mode": item.mode.map(|mode| format!("{mode:o}")),
        "modified": item.modified.map(|(seconds, nanos)| format!("{seconds}.{nanos}")),
    });
    match &item.name {
        Name::Listed(index) => entry["name"] = NAMES[usize::from(*index) % NAMES.len()].into(),
        Name::Text(text) => entry["name"] = text.as_str().into(),
        Name::Encoded(bytes) => {
            entry["name"] = String::from_utf8_lossy(bytes).into();
            entry["encoded"] = text::percent::percent_encode(bytes).into();
        }
        Name::Escapes(text) => {
            entry["name"] = "".into();
            entry["encoded"] = text.as_str().into();
        }
        Name::Long(byte, length) => {
            let length = usize::from(*length) % 2000;
            entry["name"] = char::from(*byte).to_string().repeat(length).into();
        }
    }
    entry
}

fn check_pages(input: &Input) {
    let mut pages = Pages::new("https://host/d/?q".parse().unwrap());
    let mut after: Option<Vec<u8>> = None;
    for page in input.pages.iter().take(8) {
        let text = Value::Array(page.iter().take(16).map(written).collect()).to_string();
        let mut listed: Vec<Listed> = serde_json::from_str(&text).expect("a list");
        let before = listed.clone();
        let turned = pages.turn(&mut listed);
        // The last entry may name the beginning of the next page.
        let next = before
            .last()
            .filter(|last| last.kind == Kind::More && !last.name.is_empty());
        let is_end = next.is_some();
        let next = next.and_then(|last| bytes_of(last));
        assert_eq!(listed, before[..before.len() - usize::from(is_end)]);
        let entries = listed.iter().filter(|entry| entry.kind != Kind::More);
        let mut names = entries.filter_map(bytes_of).chain(next.clone());
        let is_in_order = names.all(|name| after.as_ref().is_none_or(|after| *after < name));
        assert_eq!(turned.is_ok(), is_in_order);
        check_names(&listed, input.dot_files);
        let Ok(is_more) = turned else {
            return;
        };
        assert_eq!(is_more, next.is_some());
        let url = pages.url();
        assert_eq!((url.host(), url.path()), (Some("host"), "/d/"));
        // A server reads the name that the client means.
        let target = url.path_and_query().unwrap().as_str();
        let asked = after_of(target).map(|name| name.as_encoded_bytes().to_vec());
        // No file has a NUL in its name.
        let named = next.clone().filter(|name| !name.contains(&0));
        assert!(target.starts_with("/d/?q") && asked == named);
        if !is_more {
            return;
        }
        after = next;
    }
}

/// The name of an entry.
fn bytes_of(entry: &Listed) -> Option<Vec<u8>> {
    match &entry.encoded {
        Some(encoded) => percent_decode(encoded),
        None => Some(entry.name.clone().into_bytes()),
    }
}

fn check_names(listed: &[Listed], dot_files: bool) {
    let mut names = HashSet::new();
    for entry in listed {
        let before = names.clone();
        let (name, is_directory) = match taken(entry, dot_files, &mut names) {
            Ok(taken) => taken,
            Err(failure) => {
                let message = failure.message();
                assert!(message.chars().all(PeerText::is_plain));
                assert!(message.chars().count() <= LONGEST_MESSAGE, "{message}");
                assert_eq!(names, before);
                assert!(!is_fine(entry, dot_files, &before), "{message}");
                continue;
            }
        };
        assert_eq!(entry.kind == Kind::Directory, is_directory);
        assert!(matches!(entry.kind, Kind::File | Kind::Directory));
        let bytes = name.as_encoded_bytes().to_vec();
        assert_eq!(Some(&bytes), bytes_of(entry).as_ref());
        assert!(!before.contains(&bytes) && names.contains(&bytes));
        let path = std::path::Path::new("/here").join(&name);
        assert_eq!(path.parent(), Some("/here".as_ref()));
        assert_eq!(path.file_name(), Some(&*name));
        assert!(bytes.len() <= LONGEST_NAME && !bytes.iter().any(|byte| b"/\0".contains(byte)));
        assert!(dot_files || bytes[0] != b'.');
        // The name as a segment of a URL.
        let segment = encode_name(&name);
        assert!(!segment.contains('/') && percent_decode(&segment) == Some(bytes));
        let attributes = entry.attributes();
        assert!(attributes.mode.is_none_or(|mode| mode & !0o777 == 0));
    }
    check_parts(&names);
}

/// An ordinary name has to be taken.
fn is_fine(entry: &Listed, dot_files: bool, before: &HashSet<Vec<u8>>) -> bool {
    let is_listed = matches!(entry.kind, Kind::File | Kind::Directory);
    let Some(name) = bytes_of(entry).and_then(|name| String::from_utf8(name).ok()) else {
        return false;
    };
    let is_odd = |c: char| matches!(c, '/' | '\0');
    is_listed
        && (1..=LONGEST_NAME).contains(&name.len())
        && name != "."
        && name != ".."
        && !name.contains(is_odd)
        && (dot_files || !name.starts_with('.'))
        && !before.contains(name.as_bytes())
}

/// No accepted name is the name of another file's part, or of the note beside the part.
fn check_parts(names: &HashSet<Vec<u8>>) {
    for name in names {
        let found = is_part(str_of(name), names);
        let expected = names.iter().any(|whole| {
            let Some(rest) = name.strip_prefix(&whole[..]) else {
                return false;
            };
            let rest = rest.strip_suffix(b".new").unwrap_or(rest);
            let is_new = rest.len() + whole.len() < name.len();
            let part = rest.strip_suffix(b".json");
            let part = match (part, is_new) {
                (Some(part), _) => part,
                (None, false) => rest,
                (None, true) => return false,
            };
            let Some(number) = part.strip_suffix(b".part") else {
                return false;
            };
            let digits = number.strip_prefix(b".");
            number.is_empty() || digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_digit))
        });
        assert_eq!(found, expected, "{:?}", String::from_utf8_lossy(name));
    }
}

fn str_of(name: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name)
}
