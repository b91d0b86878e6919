//! What a client asks the tool's server for: conditions and ranges against a naive reading of
//! RFC 9110, paths that must not lead out of the directory, pages that must not become scripts.

#![no_main]

use std::time::{Duration, SystemTime};

use arbitrary::Arbitrary;
use http::header::{
    HeaderMap, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, RANGE,
};
use http::{HeaderValue, Method};
use libfuzzer_sys::fuzz_target;

#[expect(dead_code, reason = "only what reads requests is called")]
#[path = "../../crates/mpquic-cli/src/files/mod.rs"]
mod files;
#[expect(dead_code, reason = "files name it")]
#[path = "../../crates/mpquic-cli/src/process/mod.rs"]
mod process;
#[expect(dead_code, reason = "files name it")]
#[path = "../../crates/mpquic-cli/src/text/mod.rs"]
mod text;

use files::attributes::Attributes;
use files::directory_page::{Form, Page};
use files::file_state::FileState;
use files::selection::{Selection, Version};
use files::{Entry, Listing, is_well_formed, path_of};
use text::percent::{percent_decode, percent_encode};

#[derive(Debug, Arbitrary)]
enum Field {
    Range(Option<u16>, Option<u16>),
    Numbers(u64, u64),
    Tag { name: u8, matches: bool, weak: bool },
    Date { name: u8, seconds: u32 },
    Any { name: u8, value: Vec<u8> },
}

#[derive(Debug, Arbitrary)]
struct Input {
    length: u64,
    modified: Option<(u32, u32)>,
    is_get: bool,
    fields: Vec<Field>,
    target: String,
    names: Vec<String>,
}

fuzz_target!(|input: Input| {
    check_selection(&input);
    check_target(&input.target);
    check_page(&input);
});

fn check_selection(input: &Input) {
    let length = if input.length < 1 << 40 {
        input.length % 100_000
    } else {
        input.length
    };
    let modified = input.modified.map(|(seconds, nanoseconds)| {
        let nanoseconds = nanoseconds % 1_000_000_000;
        SystemTime::UNIX_EPOCH + Duration::new(seconds.into(), nanoseconds)
    });
    let version = Version::new(&FileState {
        length,
        modified,
        inode: None,
    });
    assert_eq!(version.etag().is_some(), modified.is_some());
    let mut fields = HeaderMap::new();
    for field in input.fields.iter().take(10) {
        add(&mut fields, field, &version);
    }
    let method = if input.is_get {
        Method::GET
    } else {
        Method::HEAD
    };
    let selection = version.select(&method, &fields);
    let conditional = [
        IF_MATCH,
        IF_NONE_MATCH,
        IF_MODIFIED_SINCE,
        IF_UNMODIFIED_SINCE,
    ]
    .map(|name| fields.contains_key(name));
    match &selection {
        Selection::Whole => {}
        Selection::Part(range) => {
            assert!(
                range.start < range.end && range.end <= length,
                "{range:?} of {length}"
            );
        }
        Selection::Unsatisfiable => assert!(fields.contains_key(RANGE)),
        Selection::NotModified => assert!(conditional[1] || conditional[2]),
        Selection::PreconditionFailed => assert!(conditional[0] || conditional[3]),
    }
    if conditional == [false; 4] && !fields.contains_key(IF_RANGE) {
        assert_eq!(selection, naive_range(input.is_get, &fields, length));
    }
    // A client that has this version is told so.
    if let Some(etag) = version.etag() {
        let mut fields = HeaderMap::new();
        fields.insert(IF_NONE_MATCH, etag.clone());
        assert_eq!(version.select(&method, &fields), Selection::NotModified);
        fields.clear();
        fields.insert(IF_MATCH, etag);
        assert_eq!(version.select(&method, &fields), Selection::Whole);
    }
}

/// RFC 9110 section 14.1.2 for a single range, numbers of any length.
fn naive_range(is_get: bool, fields: &HeaderMap, length: u64) -> Selection {
    let mut all = fields.get_all(RANGE).iter();
    let (Some(field), None, true) = (all.next(), all.next(), is_get) else {
        return Selection::Whole;
    };
    let Some((unit, set)) = field.to_str().ok().and_then(|text| text.split_once('=')) else {
        return Selection::Whole;
    };
    if !unit.trim().eq_ignore_ascii_case("bytes") || set.contains(',') {
        return Selection::Whole;
    }
    let Some((first, last)) = set.trim().split_once('-') else {
        return Selection::Whole;
    };
    let number = |text: &str| match text.trim() {
        "" => Ok(None),
        text if text.bytes().any(|byte| !byte.is_ascii_digit()) => Err(()),
        text => {
            let digits = text.trim_start_matches('0');
            let digits = if digits.is_empty() { "0" } else { digits };
            Ok(Some(digits.parse().unwrap_or(u128::MAX / 2)))
        }
    };
    let length = u128::from(length);
    let range = match (number(first), number(last)) {
        (Ok(Some(first)), Ok(Some(last))) if first > last => return Selection::Whole,
        (Ok(Some(first)), Ok(last)) => {
            // Numbers beyond 64 bits are all the same to us.
            let last = last.map_or(length, |last| last + 1);
            first..last.min(length)
        }
        (Ok(None), Ok(Some(suffix))) => length.saturating_sub(suffix)..length,
        _ => return Selection::Whole,
    };
    if range.is_empty() {
        Selection::Unsatisfiable
    } else {
        Selection::Part(range.start as u64..range.end as u64)
    }
}

fn add(fields: &mut HeaderMap, field: &Field, version: &Version) {
    const NAMES: [HeaderName; 6] = [
        RANGE,
        IF_MATCH,
        IF_NONE_MATCH,
        IF_MODIFIED_SINCE,
        IF_UNMODIFIED_SINCE,
        IF_RANGE,
    ];
    let named = |name: u8| NAMES[usize::from(name) % NAMES.len()].clone();
    let (name, value) = match field {
        Field::Range(first, last) => {
            let write = |number: &Option<u16>| number.map_or(String::new(), |n| n.to_string());
            (
                RANGE,
                format!("bytes={}-{}", write(first), write(last)).into_bytes(),
            )
        }
        Field::Numbers(first, last) => (RANGE, format!("bytes = {first} - {last}").into_bytes()),
        Field::Tag {
            name,
            matches,
            weak,
        } => {
            let tag = version.etag().filter(|_| *matches);
            let tag = tag.map_or(b"\"other\"".to_vec(), |tag| tag.as_bytes().to_vec());
            let weak = if *weak { &b"W/"[..] } else { b"" };
            (named(*name), [weak, &tag].concat())
        }
        Field::Date { name, seconds } => {
            let date = SystemTime::UNIX_EPOCH + Duration::from_secs((*seconds).into());
            (named(*name), httpdate::fmt_http_date(date).into_bytes())
        }
        Field::Any { name, value } => (named(*name), value.clone()),
    };
    if let Ok(value) = HeaderValue::from_bytes(&value) {
        fields.append(name, value);
    }
}

fn check_target(target: &str) {
    let path = path_of(target);
    assert!(target.starts_with(path) && !path.contains(['?', '#']));
    assert_eq!(path_of(path), path);
    if is_well_formed(path) {
        assert!(path.starts_with('/'));
    }
    // Names survive being part of a URL.
    let encoded = percent_encode(target);
    assert!(
        encoded
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte))
    );
    let expected = (!target.contains('\0')).then(|| target.as_bytes().to_vec());
    assert_eq!(percent_decode(&encoded), expected);
    if let Some(decoded) = percent_decode(target) {
        assert!(!decoded.contains(&0));
        assert_eq!(percent_decode(&percent_encode(&decoded)), Some(decoded));
    }
}

/// All pieces of a page.
fn whole(target: &str, listing: &Listing) -> String {
    let mut page = Page::new(Form::Html, target, listing.clone());
    let length = page.length();
    let pieces = std::iter::repeat_with(|| page.piece(1));
    let whole: String = pieces.take_while(|piece| !piece.is_empty()).collect();
    assert_eq!(whole.len() as u64, length);
    whole
}

/// Names of files are text, whatever is in them.
fn check_page(input: &Input) {
    let entries = input.names.iter().take(8).map(|name| Entry {
        name: name.clone().into(),
        length: (name.len() % 2 == 0).then_some(input.length),
        attributes: Attributes::default(),
    });
    let listing = Listing {
        entries: entries.collect(),
        others: Vec::new(),
        more_after: None,
    };
    let page = whole(&input.target, &listing);
    let empty = Listing {
        entries: Vec::new(),
        others: Vec::new(),
        more_after: None,
    };
    let plain = whole("/", &empty);
    let tags = |page: &str, tag: &str| page.matches(tag).count();
    for tag in ["<style", "<script", "<img", "<title", "<h1", "<body", "<!"] {
        assert_eq!(tags(&page, tag), tags(&plain, tag), "{tag}");
    }
    assert_eq!(
        tags(&page, "<li><a "),
        listing.entries.len() + usize::from(page.contains("../\"><span class=\"name dir\">..<"))
    );
    // Each attribute that is opened is closed.
    for line in page.lines() {
        assert_eq!(line.matches('"').count() % 2, 0, "{line}");
        assert_eq!(
            line.matches('<').count(),
            line.matches('>').count(),
            "{line}"
        );
    }
}
