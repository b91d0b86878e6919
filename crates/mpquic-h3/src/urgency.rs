//! [`Urgency`]: how urgent a client finds an answer.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The field that tells it.
const PRIORITY: HeaderName = HeaderName::from_static("priority");

/// How urgent a client finds an answer (RFC 9218 section 4.1): from 0, the most urgent, to 7; 3 unless said.
///
/// Whether an answer is of use in parts (`i`) is not looked at: those that are equally urgent take turns.
///
/// A server reads it from a request ([`Self::of_request`]); a client says it there:
///
/// ```
/// use http::Request;
/// use mpquic_h3::Urgency;
///
/// let urgency = Urgency::new(1).ok_or("from 0 to 7")?;
/// let request = Request::get("https://example/style.css").header("priority", urgency);
/// # assert_eq!(Urgency::of_request(request.headers_ref().ok_or("no fields")?), urgency);
/// # Ok::<_, &str>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Urgency(u8);

impl Urgency {
    const LEAST: u8 = 7;

    /// The values of the field, by urgency.
    const VALUES: [&str; 8] = ["u=0", "u=1", "u=2", "u=3", "u=4", "u=5", "u=6", "u=7"];

    /// This urgency; `None` if it is above 7.
    pub fn new(urgency: u8) -> Option<Self> {
        (urgency <= Self::LEAST).then_some(Self(urgency))
    }

    /// What the fields of a request say. What makes no sense is ignored (section 4).
    pub fn of_request(fields: &HeaderMap) -> Self {
        let values = fields.get_all(PRIORITY).iter();
        Self::of_values(values.filter_map(|value| value.to_str().ok()))
    }

    /// What a Priority Field Value says.
    pub(crate) fn of_value(value: &str) -> Self {
        Self::of_values([value].into_iter())
    }

    /// Of several, the last one counts (RFC 8941 section 3.2).
    fn of_values<'a>(values: impl DoubleEndedIterator<Item = &'a str>) -> Self {
        let members = values.flat_map(|value| value.split(','));
        let mut urgencies = members.filter_map(|member| member.trim().strip_prefix("u="));
        urgencies
            .next_back()
            .and_then(Self::parse)
            .unwrap_or_default()
    }

    fn parse(value: &str) -> Option<Self> {
        // Parameters mean nothing here.
        let value = value.split(';').next().unwrap_or_default();
        Self::new(value.trim().parse().ok()?)
    }

    /// The number, from 0 to 7.
    pub fn get(self) -> u8 {
        self.0
    }

    /// The priority of a stream with such an answer: that of others, unless the client says more.
    pub(crate) fn stream_priority(self) -> i32 {
        i32::from(Self::default().0) - i32::from(self.0)
    }
}

/// The value of the field `priority`.
impl From<Urgency> for HeaderValue {
    fn from(urgency: Urgency) -> Self {
        let value = Urgency::VALUES.get(usize::from(urgency.0));
        Self::from_static(value.copied().unwrap_or_default())
    }
}

/// That of an answer of which nothing is said: 3.
impl Default for Urgency {
    fn default() -> Self {
        Self(3)
    }
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
            Urgency::of_request(&fields.collect()).stream_priority()
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

    #[test]
    fn urgencies_are_written_as_they_are_read() {
        for number in 0..=7 {
            let urgency = Urgency::new(number).unwrap();
            let fields = HeaderMap::from_iter([(PRIORITY, urgency.into())]);
            assert_eq!(Urgency::of_request(&fields).get(), number);
        }
        assert_eq!(Urgency::new(8), None);
    }
}
