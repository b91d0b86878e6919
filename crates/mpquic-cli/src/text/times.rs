//! Times of files as text. A file may have any time: archives, cameras and broken clocks produce
//! times before 1970, or after the year 9999.

use std::time::{Duration, SystemTime};

/// The end of the year 9999, in seconds since 1970.
const END: u64 = 253_402_300_800;

/// The time as an HTTP date (RFC 9110 section 5.6.7), in whole seconds; `None` for a time that HTTP
/// cannot express.
pub(crate) fn http_date(time: SystemTime) -> Option<String> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    (since.as_secs() < END).then(|| httpdate::fmt_http_date(time))
}

/// Seconds since 1970 with nine digits after the point, negative before 1970.
pub(crate) fn seconds(time: SystemTime) -> String {
    let (sign, since) = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => ("", since),
        Err(error) => ("-", error.duration()),
    };
    format!("{sign}{}.{:09}", since.as_secs(), since.subsec_nanos())
}

/// Parses the text of [`seconds`], also with fewer digits after the point.
pub(crate) fn of_seconds(text: &str) -> Option<SystemTime> {
    let (is_before, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !are_digits(whole) || !are_digits(part) || part.len() > 9 {
        return None;
    }
    let nanos: u32 = format!("{part:0<9}").parse().ok()?;
    let since = Duration::new(whole.parse().ok()?, nanos);
    if is_before {
        SystemTime::UNIX_EPOCH.checked_sub(since)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(since)
    }
}

/// True for equal times. A time in whole seconds may come from a file system without fractions.
pub(crate) fn are_equal(one: SystemTime, other: SystemTime) -> bool {
    let (one, other) = (seconds(one), seconds(other));
    let whole = |text: &str| text.split_once('.').map(|(whole, _)| whole.to_owned());
    let is_whole = one.ends_with(".000000000") || other.ends_with(".000000000");
    one == other || is_whole && whole(&one) == whole(&other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_http_has_no_words_for_are_left_out() {
        let at = |text| http_date(of_seconds(text).unwrap());
        let known = |text: &str| Some(text.to_owned());
        assert_eq!(at("784111777.9"), known("Sun, 06 Nov 1994 08:49:37 GMT"));
        assert_eq!(at("0"), known("Thu, 01 Jan 1970 00:00:00 GMT"));
        assert_eq!(
            at("253402300799.999999999"),
            known("Fri, 31 Dec 9999 23:59:59 GMT")
        );
        assert_eq!(at("253402300800"), None);
        assert_eq!(at("-0.5"), None);
    }

    #[test]
    fn times_survive_a_round_trip() {
        for text in [
            "0.000000000",
            "784111777.123456789",
            "-0.500000000",
            "-86400.000000001",
        ] {
            assert_eq!(seconds(of_seconds(text).unwrap()), text);
        }
        assert_eq!(of_seconds("1.5"), of_seconds("1.500"));
        for text in [
            "",
            "-",
            ".",
            "1.",
            ".1",
            "+1",
            "1.0000000001",
            "--1",
            "1e3",
            "18446744073709551615",
        ] {
            assert_eq!(of_seconds(text), None, "{text}");
        }
    }
}
