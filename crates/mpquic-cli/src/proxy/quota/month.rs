//! Months of quotas, and doubts about the clock.
//!
//! A month begins at 00:00 UTC on the day of the month that the quota names. Routers without a
//! clock of their own start in 1970, or at the time of their last file, until they have asked a
//! time server. So the rule is:
//!
//! 1. The clock is believed if it says a time after the start of 2026, and after the start of the
//!    month that is being counted.
//! 2. A clock that is believed and has reached the end of the month begins a new month, with the
//!    count 0.
//! 3. A clock that is not believed changes nothing, and the count goes on. After 31 days of running
//!    time without a believed clock a new month begins, so that no quota is closed for ever.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The start of 2026, in seconds since 1970: this program did not exist before.
const EARLIEST: u64 = 1_767_225_600;
/// The end of the year 9999. No later month is read from a file.
const LATEST: u64 = 253_402_300_800;
/// Seconds of a day.
const DAY: u64 = 86_400;
/// The running time of a month without a believed clock.
const LONGEST: Duration = Duration::from_secs(31 * DAY);

/// The count of an interface in a month.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Month {
    /// Bytes, sent and received.
    pub(crate) used: u64,
    /// The end of the month, in seconds since 1970; `None` until the clock was believed once.
    pub(crate) until: Option<u64>,
    /// The day on which months begin.
    pub(crate) reset: u8,
    /// Running time without a believed clock in this month, in seconds.
    #[serde(default)]
    pub(crate) doubted: u64,
}

impl Month {
    /// A month that begins now.
    pub(crate) fn new(reset: u8) -> Self {
        Self {
            reset,
            ..Self::default()
        }
    }

    /// True for values that this program writes.
    pub(crate) fn is_sound(&self) -> bool {
        let is_day = (1..=28).contains(&self.reset);
        is_day
            && self
                .until
                .is_none_or(|until| (EARLIEST..LATEST).contains(&until))
    }

    /// Whether the clock is believed. `now` is in seconds since 1970.
    fn believes(&self, now: u64) -> bool {
        let is_late = |until| now >= month_before(until);
        (EARLIEST..LATEST).contains(&now) && self.until.is_none_or(is_late)
    }

    /// True if [`Self::follow`] would change more than the time of doubt.
    pub(crate) fn is_due(&self, now: u64, reset: u8, ran: Duration) -> bool {
        let mut later = *self;
        later.follow(now, reset, ran);
        (later.used, later.until, later.reset) != (self.used, self.until, self.reset)
    }

    /// Takes note of the clock, `ran` after the last call. Returns true if a new month begins.
    pub(crate) fn follow(&mut self, now: u64, reset: u8, ran: Duration) -> bool {
        let is_over = if self.believes(now) {
            self.doubted = 0;
            self.until.is_some_and(|until| now >= until)
        } else {
            self.doubted = self.doubted.saturating_add(ran.as_secs());
            self.doubted >= LONGEST.as_secs()
        };
        if is_over {
            *self = Self::new(reset);
        }
        if self.reset != reset {
            // The count stays: how much of it belongs to the other month is not known.
            (self.reset, self.until) = (reset, None);
        }
        if self.until.is_none() && self.believes(now) {
            self.until = Some(month_after(now, reset));
        }
        is_over
    }
}

/// Year, month and day of a number of days since 1970 (the civil calendar).
fn date(days: u64) -> (u64, u64, u64) {
    // Years begin in March here, so that a leap day is the last day of a year.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = match month {
        0..=9 => (month + 3, 0),
        _ => (month - 9, 1),
    };
    (era * 400 + year + later, month, of_month)
}

/// Days from 1970 to a date.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = match month {
        0..=2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let (era, year) = (year / 400, year % 400);
    let of_year = (153 * month + 2) / 5 + day - 1;
    (era * 146_097 + year * 365 + year / 4 - year / 100 + of_year).saturating_sub(719_468)
}

/// The next time at which a month begins.
fn month_after(now: u64, reset: u8) -> u64 {
    let (year, month, day) = date(now / DAY);
    let reset = u64::from(reset);
    let (year, month) = match (day < reset, month) {
        (true, _) => (year, month),
        (false, 12) => (year + 1, 1),
        (false, _) => (year, month + 1),
    };
    days(year, month, reset) * DAY
}

/// The start of the month that ends then.
fn month_before(until: u64) -> u64 {
    let (year, month, day) = date(until / DAY);
    let (year, month) = match month {
        1 => (year - 1, 12),
        _ => (year, month - 1),
    };
    days(year, month, day) * DAY
}

/// "2026-12-01"
pub(crate) fn written(time: u64) -> String {
    let (year, month, day) = date(time / DAY);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(year: u64, month: u64, day: u64) -> u64 {
        days(year, month, day) * DAY
    }

    fn month(used: u64, now: u64) -> Month {
        let mut month = Month::new(1);
        month.follow(now, 1, SECOND);
        month.used = used;
        month
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(at(1970, 1, 1), 0);
        assert_eq!(at(2026, 1, 1), EARLIEST);
        assert_eq!(at(10_000, 1, 1), LATEST);
        assert_eq!(at(2000, 3, 1) - at(2000, 2, 28), 2 * DAY);
        assert_eq!(at(2100, 3, 1) - at(2100, 2, 28), DAY);
        for days in (0..LATEST / DAY).step_by(13) {
            let (year, month, day) = date(days);
            assert_eq!(super::days(year, month, day), days);
        }
        assert_eq!(written(at(2026, 12, 1) + DAY - 1), "2026-12-01");
    }

    #[test]
    fn months_begin_on_the_day_of_the_quota() {
        for (now, reset, after) in [
            (at(2026, 11, 14), 15, at(2026, 11, 15)),
            (at(2026, 11, 15) - 1, 15, at(2026, 11, 15)),
            (at(2026, 11, 15), 15, at(2026, 12, 15)),
            (at(2026, 12, 31), 1, at(2027, 1, 1)),
            (at(2028, 2, 28), 28, at(2028, 3, 28)),
            (at(2027, 1, 31), 28, at(2027, 2, 28)),
        ] {
            assert_eq!(month_after(now, reset), after);
        }
        assert_eq!(month_before(at(2027, 1, 15)), at(2026, 12, 15));
        assert_eq!(month_before(at(2027, 3, 28)), at(2027, 2, 28));
    }

    #[test]
    fn a_month_ends_with_the_clock() {
        let mut month = month(7, at(2026, 11, 20));
        assert_eq!(month.until, Some(at(2026, 12, 1)));
        assert!(!month.follow(at(2026, 12, 1) - 1, 1, SECOND));
        assert_eq!(month.used, 7);
        assert!(month.is_due(at(2026, 12, 1), 1, SECOND));
        assert!(month.follow(at(2026, 12, 1), 1, SECOND));
        assert_eq!((month.used, month.until), (0, Some(at(2027, 1, 1))));
        // After months without power.
        month.used = 7;
        assert!(month.follow(at(2027, 6, 10), 1, SECOND));
        assert_eq!((month.used, month.until), (0, Some(at(2027, 7, 1))));
    }

    /// A router without a clock: each start is in 1970, or at the time of the last file.
    #[test]
    fn a_clock_that_starts_anew_keeps_the_count() {
        let mut month = month(7, at(2026, 11, 20));
        for early in [0, 5, at(2025, 12, 31), at(2026, 10, 31)] {
            assert!(!month.is_due(early, 1, 60 * SECOND), "{early}");
            assert!(!month.follow(early, 1, 60 * SECOND));
            assert_eq!((month.used, month.until), (7, Some(at(2026, 12, 1))));
            // The time server has answered.
            assert!(!month.follow(at(2026, 11, 20), 1, SECOND));
            assert_eq!((month.used, month.doubted), (7, 0));
        }
        // Within the month, a clock may go back.
        assert!(!month.follow(at(2026, 11, 2), 1, SECOND));
        assert_eq!(month.used, 7);
    }

    #[test]
    fn a_first_start_in_1970_counts_from_then_on() {
        let mut month = Month::new(15);
        assert!(!month.follow(10, 15, SECOND));
        month.used = 7;
        assert_eq!(month.until, None);
        assert!(!month.follow(at(2026, 11, 20), 15, SECOND));
        assert_eq!((month.used, month.until), (7, Some(at(2026, 12, 15))));
    }

    /// The clock is never set, or has been in a far future once.
    #[test]
    fn no_clock_closes_an_interface_for_ever() {
        let hour = 3600 * SECOND;
        let mut unset = Month::new(1);
        let mut after_future = month(7, at(2099, 5, 5));
        assert_eq!(after_future.until, Some(at(2099, 6, 1)));
        for (month, now, until) in [
            (&mut unset, 100, None),
            (&mut after_future, at(2026, 11, 20), Some(at(2026, 12, 1))),
        ] {
            month.used = 7;
            let mut hours = 0;
            while !month.follow(now, 1, hour) {
                hours += 1;
                assert!(hours < 31 * 24, "{month:?}");
            }
            assert_eq!(hours, 31 * 24 - 1);
            assert_eq!((month.used, month.until, month.doubted), (0, until, 0));
        }
    }

    #[test]
    fn another_day_keeps_the_count() {
        let mut month = month(7, at(2026, 11, 20));
        assert!(month.is_due(at(2026, 11, 20), 15, SECOND));
        assert!(!month.follow(at(2026, 11, 20), 15, SECOND));
        assert_eq!((month.used, month.until), (7, Some(at(2026, 12, 15))));
        assert_eq!(month.reset, 15);
    }

    #[test]
    fn unsound_months_are_told_apart() {
        let sound = month(7, at(2026, 11, 20));
        assert!(sound.is_sound() && Month::new(28).is_sound());
        for until in [0, 5, LATEST, u64::MAX] {
            let until = Some(until);
            assert!(!Month { until, ..sound }.is_sound());
        }
        assert!(!Month::new(0).is_sound() && !Month::new(29).is_sound());
    }
}
