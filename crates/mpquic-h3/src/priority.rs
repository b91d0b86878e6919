//! [`Priority`]: how urgent a client finds an answer, and whether parts of it are of use.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The field with the priority.
const PRIORITY: HeaderName = HeaderName::from_static("priority");

/// Urgency of an answer for its client, from 0, the most urgent, to 7 (RFC 9218 section 4.1), and
/// whether the answer is incremental, of use in parts (section 4.2). The default is 3 and not
/// incremental.
///
/// Of equally urgent answers, incremental ones take turns; the others leave one after the other, in
/// the order of their requests.
///
/// A server reads the priority from a request ([`Self::of_request`]); a client writes it there:
///
/// ```
/// use http::Request;
/// use mpquic_h3::Priority;
///
/// let priority = Priority::new(1).ok_or("from 0 to 7")?.with_incremental();
/// let request = Request::get("https://example/photo.jpeg").header("priority", priority);
/// let fields = request.headers_ref().ok_or("no fields")?;
/// assert_eq!(fields["priority"], "u=1, i");
/// assert_eq!(Priority::of_request(fields), priority);
/// # Ok::<_, &str>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    urgency: u8,
    is_incremental: bool,
}

impl Priority {
    const LEAST_URGENT: u8 = 7;

    /// The values of the field, by urgency: of use as a whole, and in parts.
    const VALUES: [[&str; 2]; 8] = [
        ["u=0", "u=0, i"],
        ["u=1", "u=1, i"],
        ["u=2", "u=2, i"],
        ["u=3", "u=3, i"],
        ["u=4", "u=4, i"],
        ["u=5", "u=5, i"],
        ["u=6", "u=6, i"],
        ["u=7", "u=7, i"],
    ];

    /// A non-incremental priority with this urgency; `None` above 7.
    pub fn new(urgency: u8) -> Option<Self> {
        (urgency <= Self::LEAST_URGENT).then_some(Self {
            urgency,
            is_incremental: false,
        })
    }

    /// Makes the priority incremental: parts of the answer are of use.
    #[must_use]
    pub fn with_incremental(self) -> Self {
        Self {
            is_incremental: true,
            ..self
        }
    }

    /// The priority in the fields of a request. Invalid values are ignored (section 4).
    pub fn of_request(fields: &HeaderMap) -> Self {
        let values = fields.get_all(PRIORITY).iter();
        Self::of_values(values.filter_map(|value| value.to_str().ok()))
    }

    /// Reads a Priority Field Value.
    pub(crate) fn of_value(value: &str) -> Self {
        Self::of_values([value].into_iter())
    }

    fn of_values<'a>(values: impl Iterator<Item = &'a str>) -> Self {
        let mut priority = Self::default();
        for member in values.flat_map(|value| value.split(',')) {
            // Parameters mean nothing here.
            let member = member.split(';').next().unwrap_or_default().trim();
            // Of several, the last one counts (RFC 8941 section 3.2).
            match member.split_once('=').unwrap_or((member, "?1")) {
                ("u", value) => priority.urgency = urgency(value),
                ("i", value) => priority.is_incremental = value == "?1",
                _ => {}
            }
        }
        priority
    }

    /// How urgent: 0 to 7.
    pub fn urgency(self) -> u8 {
        self.urgency
    }

    /// Whether parts are of use.
    pub fn incremental(self) -> bool {
        self.is_incremental
    }

    /// The priority of a stream with this answer: 112, 48, 16, 0, -8, -12, -14 and -15 for the
    /// urgencies 0 to 7. An answer of the default urgency has the priority of a new stream.
    /// Schedulers that share paths by weight add 16: each urgency weighs twice as much as the next.
    pub(crate) fn of_stream(self) -> i32 {
        let weight = |urgency: u8| 1 << Self::LEAST_URGENT.saturating_sub(urgency);
        weight(self.urgency) - weight(Self::default().urgency)
    }
}

fn urgency(value: &str) -> u8 {
    // Rust's numbers may have a plus sign, numbers of RFC 8941 (section 3.3.1) may not.
    let number = value.parse().ok().filter(|_| !value.starts_with('+'));
    let possible = number.filter(|&number| number <= Priority::LEAST_URGENT);
    possible.unwrap_or(Priority::default().urgency)
}

/// The value of the field `priority`.
impl From<Priority> for HeaderValue {
    fn from(priority: Priority) -> Self {
        let values = Priority::VALUES.get(usize::from(priority.urgency));
        let value = values.map(|of| of[usize::from(priority.is_incremental)]);
        Self::from_static(value.unwrap_or_default())
    }
}

/// The default of RFC 9218: urgency 3, not incremental.
impl Default for Priority {
    fn default() -> Self {
        Self {
            urgency: 3,
            is_incremental: false,
        }
    }
}

#[cfg(test)]
mod splits;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[&str]) -> (i32, bool) {
        let fields = values
            .iter()
            .map(|value| (PRIORITY, value.parse().unwrap()));
        let priority = Priority::of_request(&fields.collect());
        (priority.of_stream(), priority.incremental())
    }

    // RFC 9218 sections 4.1 and 4.2
    #[test]
    fn priorities_are_read() {
        assert_eq!(read(&[]), (0, false));
        for (value, expected) in [
            ("u=0", (112, false)),
            ("u=3", (0, false)),
            ("u=7, i", (-15, true)),
            ("i, u=5", (-12, true)),
            ("i;a=1, u=1;b=2", (48, true)),
            ("u=1, u=2", (16, false)),
            ("i", (0, true)),
            ("i=?1", (0, true)),
            ("i=?0", (0, false)),
            ("i, i=?0", (0, false)),
            ("i=1", (0, false)),
            ("I", (0, false)),
            ("u=8", (0, false)),
            ("u=-1", (0, false)),
            ("u=1.5", (0, false)),
            ("u=+1", (0, false)),
            ("u=01", (48, false)),
            ("u", (0, false)),
            ("U=1", (0, false)),
            ("", (0, false)),
        ] {
            assert_eq!(read(&[value]), expected, "{value}");
        }
        assert_eq!(read(&["u=1", "u=2, i"]), (16, true));
    }

    #[test]
    fn priorities_are_written_as_they_are_read() {
        for number in 0..=7 {
            let whole = Priority::new(number).unwrap();
            for priority in [whole, whole.with_incremental()] {
                let fields = HeaderMap::from_iter([(PRIORITY, priority.into())]);
                assert_eq!(Priority::of_request(&fields), priority);
                assert_eq!(priority.urgency(), number);
            }
        }
        assert_eq!(Priority::new(8), None);
    }
}
