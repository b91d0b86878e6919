//! The part of a file for a request: conditions and ranges (RFC 9110 sections 13 and 14).

use std::ops::Range;
use std::time::{Duration, SystemTime};

use http::header::{
    HeaderMap, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, RANGE,
};
use http::{HeaderValue, Method};

use crate::files::file_state::FileState;
use crate::text::times;

/// A version of a file: values that differ between versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    length: u64,
    modified: Option<SystemTime>,
    /// A strong entity tag, with its quotes.
    etag: Option<String>,
}

/// The kind of answer, with its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selection {
    /// 200
    Whole,
    /// 206
    Part(Range<u64>),
    /// 304
    NotModified,
    /// 412
    PreconditionFailed,
    /// 416
    Unsatisfiable,
}

impl Version {
    pub(crate) fn new(state: &FileState) -> Self {
        let tag = || format!("\"{}\"", state.tag());
        Self {
            length: state.length,
            modified: state.modified,
            etag: state.modified.is_some().then(tag),
        }
    }

    pub(crate) fn etag(&self) -> Option<HeaderValue> {
        self.etag.as_ref()?.parse().ok()
    }

    pub(crate) fn last_modified(&self) -> Option<HeaderValue> {
        times::http_date(self.modified?)?.parse().ok()
    }

    /// True if [`Version::select`] may give something else than the whole for a request without a
    /// range.
    pub(crate) fn is_conditional(fields: &HeaderMap) -> bool {
        let conditions = [
            IF_MATCH,
            IF_NONE_MATCH,
            IF_MODIFIED_SINCE,
            IF_UNMODIFIED_SINCE,
        ];
        conditions.iter().any(|name| fields.contains_key(name))
    }

    /// True for `If-None-Match: *`: the request may create a file, and replaces no file.
    pub(crate) fn is_for_new(fields: &HeaderMap) -> bool {
        let lists = fields.get_all(IF_NONE_MATCH).iter();
        let lists = lists.filter_map(|list| list.to_str().ok());
        lists
            .flat_map(|list| list.split(','))
            .any(|tag| tag.trim() == "*")
    }

    /// The part of this version for a request with these fields.
    pub(crate) fn select(&self, method: &Method, fields: &HeaderMap) -> Selection {
        // RFC 9110 section 13.2.2 has the order.
        if fields.contains_key(IF_MATCH) {
            if !self.is_listed(fields, &IF_MATCH, false) {
                return Selection::PreconditionFailed;
            }
        } else if self.is_newer_than(fields, &IF_UNMODIFIED_SINCE) == Some(true) {
            return Selection::PreconditionFailed;
        }
        if fields.contains_key(IF_NONE_MATCH) {
            if self.is_listed(fields, &IF_NONE_MATCH, true) {
                return Selection::NotModified;
            }
        } else if self.is_newer_than(fields, &IF_MODIFIED_SINCE) == Some(false) {
            return Selection::NotModified;
        }
        // RFC 9110 section 14.2: only a GET request can have a range.
        if *method != Method::GET || !self.is_in_range_of(fields) {
            return Selection::Whole;
        }
        let mut ranges = fields.get_all(RANGE).iter();
        match (ranges.next().map(HeaderValue::to_str), ranges.next()) {
            (Some(Ok(range)), None) => self.range(range),
            _ => Selection::Whole,
        }
    }

    /// True if a list of entity tags contains the tag of this version. A weak tag names the same
    /// content, but not the same bytes.
    fn is_listed(&self, fields: &HeaderMap, name: &HeaderName, weak_counts: bool) -> bool {
        let lists = fields.get_all(name).iter();
        let lists = lists.filter_map(|list| list.to_str().ok());
        // The tag of a version has no comma.
        lists
            .flat_map(|list| list.split(','))
            .map(str::trim)
            .any(|tag| {
                let strong = if weak_counts {
                    tag.strip_prefix("W/").unwrap_or(tag)
                } else {
                    tag
                };
                tag == "*" || Some(strong) == self.etag.as_deref()
            })
    }

    /// Compares with a date in whole seconds; `None` if either time is unknown.
    fn is_newer_than(&self, fields: &HeaderMap, name: &HeaderName) -> Option<bool> {
        let date = httpdate::parse_http_date(fields.get(name)?.to_str().ok()?).ok()?;
        Some(whole_seconds(self.modified?)? > whole_seconds(date)?)
    }

    /// False if `If-Range` names another version.
    fn is_in_range_of(&self, fields: &HeaderMap) -> bool {
        let Some(named) = fields.get(IF_RANGE) else {
            return true;
        };
        let (Ok(named), Some(etag)) = (named.to_str(), &self.etag) else {
            return false;
        };
        // A date cannot tell two versions of one second apart, and RFC 9110 section 13.1.5 permits
        // the whole file instead.
        named.trim() == etag
    }

    fn range(&self, field: &str) -> Selection {
        let Some((unit, ranges)) = field.split_once('=') else {
            return Selection::Whole;
        };
        // RFC 9110 section 14.2 permits the whole file instead of several ranges.
        if !unit.trim().eq_ignore_ascii_case("bytes") || ranges.contains(',') {
            return Selection::Whole;
        }
        let Some((first, last)) = ranges.trim().split_once('-') else {
            return Selection::Whole;
        };
        let number = |digits: &str| {
            let digits = digits.trim();
            let is_number =
                !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
            // A number too large for the type lies beyond the end anyway.
            is_number.then(|| digits.parse().unwrap_or(u64::MAX))
        };
        let range = match (first.trim(), last.trim()) {
            ("", suffix) => match number(suffix) {
                Some(length) => self.length.saturating_sub(length)..self.length,
                None => return Selection::Whole,
            },
            (first, "") => match number(first) {
                Some(first) => first..self.length,
                None => return Selection::Whole,
            },
            (first, last) => match (number(first), number(last)) {
                (Some(first), Some(last)) if first <= last => {
                    first..self.length.min(last.saturating_add(1))
                }
                _ => return Selection::Whole,
            },
        };
        if range.is_empty() {
            Selection::Unsatisfiable
        } else {
            Selection::Part(range)
        }
    }
}

fn whole_seconds(time: SystemTime) -> Option<u64> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.as_ref().map(Duration::as_secs).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of 1000 bytes, changed at half a second after Sun, 06 Nov 1994 08:49:37 GMT.
    fn version() -> Version {
        let since = Duration::from_millis(784_111_777_500);
        known(1000, Some(SystemTime::UNIX_EPOCH + since))
    }

    fn known(length: u64, modified: Option<SystemTime>) -> Version {
        Version::new(&FileState {
            length,
            modified,
            inode: None,
        })
    }

    const THEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";

    fn select(fields: &[(HeaderName, &str)]) -> Selection {
        let fields = fields
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()));
        version().select(&Method::GET, &fields.collect())
    }

    #[test]
    fn ranges() {
        for (range, expected) in [
            ("bytes=0-0", 0..1),
            ("bytes=0-499", 0..500),
            ("bytes=500-", 500..1000),
            ("bytes=999-", 999..1000),
            ("bytes=-1", 999..1000),
            ("bytes=-5000", 0..1000),
            ("bytes=900-5000", 900..1000),
            ("Bytes = 1 - 2", 1..3),
            ("bytes=3-99999999999999999999", 3..1000),
        ] {
            assert_eq!(
                select(&[(RANGE, range)]),
                Selection::Part(expected),
                "{range}"
            );
        }
        for range in [
            "bytes=1000-",
            "bytes=1000-1001",
            "bytes=-0",
            "bytes=18446744073709551616-",
        ] {
            assert_eq!(
                select(&[(RANGE, range)]),
                Selection::Unsatisfiable,
                "{range}"
            );
        }
        // Unknown forms are ignored.
        for range in [
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=5-4",
            "bytes=a-b",
            "bytes=+1-2",
            "bytes=0-1,3-4",
            "lines=1-2",
            "1-2",
            "bytes=--1",
        ] {
            assert_eq!(select(&[(RANGE, range)]), Selection::Whole, "{range}");
        }
        let twice = [(RANGE, "bytes=0-1"), (RANGE, "bytes=2-3")];
        assert_eq!(select(&twice), Selection::Whole);
        let fields = HeaderMap::from_iter([(RANGE, "bytes=0-1".parse().unwrap())]);
        assert_eq!(version().select(&Method::HEAD, &fields), Selection::Whole);
        let empty = known(0, None).select(&Method::GET, &fields);
        assert_eq!(empty, Selection::Unsatisfiable);
    }

    #[test]
    fn a_range_of_another_version_is_not_sent() {
        let etag = version().etag.unwrap();
        let range = (RANGE, "bytes=0-1");
        let part = Selection::Part(0..2);
        assert_eq!(select(&[range.clone(), (IF_RANGE, &etag)]), part);
        for other in ["\"0-0\"", &format!("W/{etag}"), THEN, "nonsense"] {
            let selected = select(&[range.clone(), (IF_RANGE, other)]);
            assert_eq!(selected, Selection::Whole, "{other}");
        }
    }

    #[test]
    fn unchanged_file_is_not_sent_again() {
        let etag = version().etag.unwrap();
        let weak = format!("\"x\", W/{etag}");
        for fields in [
            &[(IF_NONE_MATCH, etag.as_str())][..],
            &[(IF_NONE_MATCH, &weak)],
            &[(IF_NONE_MATCH, "*")],
            &[(IF_MODIFIED_SINCE, THEN)],
            &[(IF_NONE_MATCH, &etag), (IF_MODIFIED_SINCE, BEFORE)],
            &[(IF_NONE_MATCH, &etag), (RANGE, "bytes=0-1")],
        ] {
            assert_eq!(select(fields), Selection::NotModified, "{fields:?}");
        }
        for fields in [
            &[(IF_NONE_MATCH, "\"x\"")][..],
            &[(IF_MODIFIED_SINCE, BEFORE)],
            &[(IF_MODIFIED_SINCE, "nonsense")],
            &[(IF_NONE_MATCH, "\"x\""), (IF_MODIFIED_SINCE, THEN)],
        ] {
            assert_eq!(select(fields), Selection::Whole, "{fields:?}");
        }
    }

    #[test]
    fn conditions_of_the_client_are_met_or_told() {
        let etag = version().etag.unwrap();
        let weak = format!("W/{etag}");
        for fields in [
            (IF_MATCH, "\"x\""),
            (IF_MATCH, &weak),
            (IF_UNMODIFIED_SINCE, BEFORE),
        ] {
            let selected = select(std::slice::from_ref(&fields));
            assert_eq!(selected, Selection::PreconditionFailed, "{fields:?}");
        }
        for fields in [
            (IF_MATCH, etag.as_str()),
            (IF_MATCH, "*"),
            (IF_UNMODIFIED_SINCE, THEN),
        ] {
            assert_eq!(select(std::slice::from_ref(&fields)), Selection::Whole);
        }
    }

    #[test]
    fn equal_files_have_equal_tags() {
        let at = |nanos| Some(SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos));
        let tag = |length, modified| known(length, modified).etag;
        assert_eq!(tag(1, at(5)), tag(1, at(5)));
        assert_ne!(tag(1, at(5)), tag(2, at(5)));
        assert_ne!(tag(1, at(5)), tag(1, at(6)));
        assert_eq!(tag(1, None), None);
        assert_eq!(version().last_modified().unwrap(), THEN);
    }

    #[test]
    fn versions_without_a_time_have_no_tag() {
        let timed = version();
        assert!(timed.etag().is_some() && timed.last_modified().is_some());
        let unknown = known(10, None);
        assert_eq!((unknown.etag(), unknown.last_modified()), (None, None));
        // A range of another version cannot apply.
        let fields = [(RANGE, "bytes=1-2"), (IF_RANGE, "\"x\"")];
        let fields = fields.map(|(name, value)| (name, value.parse().unwrap()));
        let fields = HeaderMap::from_iter(fields);
        assert!(matches!(
            unknown.select(&Method::GET, &fields),
            Selection::Whole
        ));
    }
}
