//! Stamps: values from which a client knows that a file is unchanged.

use std::time::Duration;

use http::HeaderValue;
use http::header::{DATE, ETAG, HeaderMap, LAST_MODIFIED};
use serde::{Deserialize, Serialize};

/// The version of a file, as a server names it. Equal stamps mean equal bytes (RFC 9110 section
/// 8.8.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stamp {
    /// A strong entity tag, with its quotes.
    Etag(String),
    /// The time of the last change, at least a second before the server sent the file.
    LastModified(String),
}

impl Stamp {
    /// The stamp in the fields of an answer.
    pub(crate) fn of(fields: &HeaderMap) -> Option<Self> {
        let text = |name| fields.get(name)?.to_str().ok();
        // A weak tag starts with W/.
        if let Some(tag) = text(ETAG).filter(|tag| tag.starts_with('"')) {
            return Some(Self::Etag(tag.to_owned()));
        }
        // RFC 9110 section 8.8.2.2: the file could change again within the same second.
        let date = |text| httpdate::parse_http_date(text).ok();
        let changed = text(LAST_MODIFIED)?;
        let sent = date(text(DATE)?)?;
        let age = sent.duration_since(date(changed)?).ok()?;
        (age >= Duration::from_secs(1)).then(|| Self::LastModified(changed.to_owned()))
    }

    /// The value for the field If-Range.
    pub(crate) fn value(&self) -> Option<HeaderValue> {
        let (Self::Etag(text) | Self::LastModified(text)) = self;
        HeaderValue::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_strong_versions_are_accepted() {
        let stamp = |fields: &[(http::HeaderName, &'static str)]| {
            let fields = fields.iter().cloned();
            let fields = fields.map(|(name, value)| (name, HeaderValue::from_static(value)));
            Stamp::of(&fields.collect())
        };
        let (noon, later) = (
            "Sun, 06 Nov 1994 12:00:00 GMT",
            "Sun, 06 Nov 1994 12:00:01 GMT",
        );
        let tag = Some(Stamp::Etag("\"a\"".to_owned()));
        assert_eq!(stamp(&[(ETAG, "\"a\""), (LAST_MODIFIED, noon)]), tag);
        assert_eq!(stamp(&[(ETAG, "W/\"a\"")]), None);
        assert_eq!(stamp(&[]), None);
        let time = Some(Stamp::LastModified(noon.to_owned()));
        assert_eq!(stamp(&[(LAST_MODIFIED, noon), (DATE, later)]), time);
        for sent in [noon, "yesterday"] {
            assert_eq!(stamp(&[(LAST_MODIFIED, noon), (DATE, sent)]), None);
        }
        assert_eq!(stamp(&[(LAST_MODIFIED, noon)]), None);
        let weak = [(ETAG, "W/\"a\""), (LAST_MODIFIED, noon), (DATE, later)];
        assert_eq!(stamp(&weak), time);
    }
}
