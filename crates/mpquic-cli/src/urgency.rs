//! How urgent a client finds an answer (RFC 9218).

use http::{HeaderMap, HeaderName};

/// The field that tells it.
const PRIORITY: HeaderName = HeaderName::from_static("priority");
/// RFC 9218 section 4.1: from 0, the most urgent, to 7.
const DEFAULT: i32 = 3;
const LEAST: i32 = 7;

/// The priority of the stream with the answer: that of others, unless the client says more. Answers
/// that are equally urgent take turns, whether or not they are said to be incremental.
pub(crate) fn stream_priority(fields: &HeaderMap) -> i32 {
    DEFAULT - urgency(fields).unwrap_or(DEFAULT)
}

/// Section 4: what makes no sense is ignored. Of several, the last one counts (RFC 8941 section 3.2).
fn urgency(fields: &HeaderMap) -> Option<i32> {
    let values = fields.get_all(PRIORITY).iter();
    let values = values.filter_map(|value| value.to_str().ok());
    let members = values.flat_map(|value| value.split(','));
    let urgencies = members.filter_map(|member| member.trim().strip_prefix("u="));
    // Parameters mean nothing here.
    let mut urgencies = urgencies.map(|value| value.split(';').next().unwrap_or_default());
    let urgency = urgencies.next_back()?.trim().parse().ok()?;
    (0..=LEAST).contains(&urgency).then_some(urgency)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgencies_are_read() {
        let priority = |values: &[&str]| {
            let fields = values
                .iter()
                .map(|value| (PRIORITY, value.parse().unwrap()));
            stream_priority(&fields.collect())
        };
        assert_eq!(priority(&[]), 0);
        for (value, expected) in [
            ("u=0", 3),
            ("u=3", 0),
            ("u=7, i", -4),
            ("i, u=5", -2),
            ("i;a=1, u=1;b=2", 2),
            ("u=1, u=2", 1),
            ("i", 0),
            ("u=8", 0),
            ("u=-1", 0),
            ("u=1.5", 0),
            ("u", 0),
            ("U=1", 0),
            ("", 0),
        ] {
            assert_eq!(priority(&[value]), expected, "{value}");
        }
        assert_eq!(priority(&["u=1", "u=2, i"]), 1);
    }
}
