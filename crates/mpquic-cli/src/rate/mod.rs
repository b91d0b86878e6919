//! Rates with units, in the spelling of users.

pub(crate) mod bucket;
pub(crate) mod controller;
pub(crate) mod pace;

use std::str::FromStr;

/// Least and largest rate, bits per second.
const LEAST: u64 = 10_000;
const MOST: u64 = 1_000_000_000_000;
/// The error for other texts.
const EXPECTED: &str =
    "expected bits per second with a unit, such as 800k, 20M or 1.5G (10k to 1000G)";

/// A rate, written with its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    bits_per_second: u64,
}

impl Rate {
    pub(crate) fn bytes_per_second(self) -> u64 {
        self.bits_per_second / 8
    }

    /// The bytes of this number of milliseconds.
    pub(crate) fn bytes_in(self, milliseconds: u64) -> u64 {
        self.bytes_per_second().saturating_mul(milliseconds) / 1000
    }

    /// A rate in Mbit/s, for constants of this program.
    #[cfg(test)]
    pub(crate) fn mbit(mbit: u64) -> Self {
        Self {
            bits_per_second: mbit * 1_000_000,
        }
    }
}

impl FromStr for Rate {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let unit_at = text.find(|c| !is_number(c)).ok_or(EXPECTED)?;
        let (number, unit) = text.split_at(unit_at);
        let number: f64 = number.parse().map_err(|_| EXPECTED)?;
        let unit = unit.trim_start();
        let scale = match unit.trim_end_matches("/s").trim_end_matches("bit") {
            "k" | "K" => 1e3,
            "M" => 1e6,
            "G" => 1e9,
            _ => return Err(EXPECTED),
        };
        let bits_per_second = (number * scale).round() as u64;
        if (LEAST..=MOST).contains(&bits_per_second) {
            Ok(Self { bits_per_second })
        } else {
            Err(EXPECTED)
        }
    }
}

/// A rate, or no limit, written as 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit(pub(crate) Option<Rate>);

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "0" => Ok(Self(None)),
            _ => match text.parse() {
                Ok(rate) => Ok(Self(Some(rate))),
                Err(expected) => Err(format!("{expected}, or 0")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_units() {
        for (text, bits) in [
            ("800k", 800_000),
            ("10K", 10_000),
            ("20M", 20_000_000),
            ("2.5 Mbit/s", 2_500_000),
            ("1.5Gbit", 1_500_000_000),
            ("1000G", 1_000_000_000_000),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate.bits_per_second, bits, "{text}");
        }
        assert_eq!(Rate::mbit(8).bytes_in(10), 10_000);
        for wrong in [
            "", "5", "0", "20MB", "20MB/s", "20m", "M", "-1M", "1e3M", "1..5M", "1001G", "9k",
            "20MM", "20M 5", "nanM",
        ] {
            assert_eq!(wrong.parse::<Rate>(), Err(EXPECTED), "{wrong}");
        }
        let least: Rate = "10k".parse().unwrap();
        assert_eq!(
            (least.bytes_per_second(), least.bytes_in(1000)),
            (1250, 1250)
        );
        assert_eq!("0".parse(), Ok(Limit(None)));
        assert_eq!("8M".parse(), Ok(Limit(Some(Rate::mbit(8)))));
        let refused = "00".parse::<Limit>().unwrap_err();
        assert!(refused.ends_with(", or 0"), "{refused}");
    }
}
