//! [`InvalidOption`]: why a configuration was refused.

use std::fmt::{Debug, Display};
use std::ops::RangeInclusive;

use thiserror::Error;

/// An option of a configuration has an impossible value.
///
/// No value is silently corrected: the error names the option, its value and the right values, as
/// in `initial_mtu is 900, but must be from 1200 to 65527`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{option} is {value}, but must be {expected}")]
pub struct InvalidOption {
    option: &'static str,
    value: String,
    expected: String,
}

impl InvalidOption {
    /// Reports that `option` is `value`, but must be `expected`, such as `from 1200 to 65527`.
    pub fn new(option: &'static str, value: impl Display, expected: impl Into<String>) -> Self {
        Self {
            option,
            value: value.to_string(),
            expected: expected.into(),
        }
    }

    /// The name of the option: that of its field.
    pub fn option(&self) -> &'static str {
        self.option
    }

    /// The value it has.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// The right values, to follow the words "must be".
    pub fn expected(&self) -> &str {
        &self.expected
    }

    /// An error if `value` is not within `allowed`.
    pub(crate) fn unless_within<T: PartialOrd + Debug>(
        option: &'static str,
        value: T,
        allowed: RangeInclusive<T>,
    ) -> Result<(), Self> {
        if allowed.contains(&value) {
            return Ok(());
        }
        let expected = format!("from {:?} to {:?}", allowed.start(), allowed.end());
        Err(Self::new(option, format_args!("{value:?}"), expected))
    }

    /// An error if `value` is below `least`.
    pub(crate) fn unless_at_least<T: PartialOrd + Debug>(
        option: &'static str,
        value: T,
        least: T,
    ) -> Result<(), Self> {
        if value >= least {
            return Ok(());
        }
        let expected = format!("at least {least:?}");
        Err(Self::new(option, format_args!("{value:?}"), expected))
    }
}
