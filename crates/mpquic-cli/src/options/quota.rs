//! Bytes a month on an interface: `--quota`.

use std::fmt;

use crate::options::{Local, parse_local};

/// The error for other texts.
pub(crate) const EXPECTED: &str = "expected IFACE=SIZE[,reset=DAY], with SIZE in bytes a month, such as 500M, 20G or \
                                   1.5T (1M to 1000T), and DAY of the month from 1 to 28";
/// Least and largest quota, in bytes.
const LEAST: u64 = 1_000_000;
const MOST: u64 = 1_000_000_000_000_000;
/// The last day that every month has.
const LAST_DAY: u8 = 28;

/// The bytes that may travel over an interface in a month.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Quota {
    /// An interface, or a pattern for interfaces that have this quota each.
    pub(crate) from: Local,
    /// `None` for no limit.
    pub(crate) bytes: Option<u64>,
    /// The day on which a month begins.
    pub(crate) reset: u8,
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(bytes) = self.bytes else {
            return write!(f, "{}=none", self.from);
        };
        let size = match bytes {
            ..1_000_000_000 => format!("{}M", bytes as f64 / 1e6),
            _ => format!("{}G", bytes as f64 / 1e9),
        };
        write!(f, "{}={size}", self.from)?;
        match self.reset {
            1 => Ok(()),
            day => write!(f, ",reset={day}"),
        }
    }
}

/// A value of `--quota`.
pub(crate) fn parse_quota(text: &str) -> Result<Quota, String> {
    let (from, rest) = match text.split_once(",reset=") {
        Some((quota, day)) => (quota, Some(day)),
        None => (text, None),
    };
    let (from, size) = from.rsplit_once('=').ok_or(EXPECTED)?;
    let reset = match rest {
        Some(day) => day.parse().ok().filter(|day| (1..=LAST_DAY).contains(day)),
        None => Some(1),
    };
    Ok(Quota {
        bytes: Some(parse_size(size).ok_or(EXPECTED)?),
        reset: reset.ok_or(EXPECTED)?,
        from: parse_from(from)?,
    })
}

/// The same at run time, where `IFACE=none` ends a quota.
pub(crate) fn parse_quota_or_none(text: &str) -> Result<Quota, String> {
    match text.strip_suffix("=none") {
        Some(from) => Ok(Quota {
            from: parse_from(from)?,
            bytes: None,
            reset: 1,
        }),
        None => parse_quota(text).map_err(|told| {
            if told == EXPECTED {
                format!("{told}; or IFACE=none")
            } else {
                told
            }
        }),
    }
}

/// Counts belong to interfaces: an address may change with every connection of a modem.
fn parse_from(text: &str) -> Result<Local, String> {
    match parse_local(text)? {
        Local::Interface(name) => Ok(Local::Interface(name)),
        Local::Address(_) | Local::OnLink(..) => Err(format!(
            "a quota is for an interface, not for an address; {EXPECTED}"
        )),
    }
}

/// Bytes with a unit of powers of 1000, as providers count.
fn parse_size(text: &str) -> Option<u64> {
    let text = text.strip_suffix('B').unwrap_or(text);
    let scale = match text.chars().next_back()? {
        'M' => 1e6,
        'G' => 1e9,
        'T' => 1e12,
        _ => return None,
    };
    let number = text.get(..text.len() - 1)?;
    if !number
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.')
    {
        return None;
    }
    let bytes = (number.parse::<f64>().ok()? * scale).round() as u64;
    (LEAST..=MOST).contains(&bytes).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_read() {
        let of = |text: &str| parse_quota(text).map(|quota| quota.to_string());
        for (text, expected) in [
            ("wwan0=20G", "wwan0=20G"),
            ("wwan*=1.5TB", "wwan*=1500G"),
            ("wwan0=1.234567891G,reset=1", "wwan0=1.234567891G"),
            ("wwan0=500M,reset=15", "wwan0=500M,reset=15"),
            ("wwan0=1M,reset=28", "wwan0=1M,reset=28"),
        ] {
            assert_eq!(of(text).as_deref(), Ok(expected));
        }
        for wrong in [
            "",
            "wwan0",
            "wwan0=",
            "wwan0=20",
            "wwan0=20K",
            "wwan0=0.5M",
            "wwan0=1001T",
            "wwan0=-5G",
            "wwan0=1e3G",
            "wwan0=20G,reset=0",
            "wwan0=20G,reset=29",
            "wwan0=20G,reset=",
            "wwan0=20G,15",
            "wwan0=reset=15",
            "wwan0=none",
        ] {
            assert_eq!(of(wrong).unwrap_err(), EXPECTED, "{wrong}");
        }
        let told = of("127.0.0.1=20G").unwrap_err();
        assert!(told.starts_with("a quota is for an interface"), "{told}");
        assert!(of("a b=20G").unwrap_err().starts_with("neither an address"));
    }

    #[test]
    fn a_quota_may_end_at_run_time() {
        let of = |text: &str| parse_quota_or_none(text).map(|quota| quota.to_string());
        assert_eq!(of("wwan0=none").as_deref(), Ok("wwan0=none"));
        assert_eq!(of("wwan0=20G").as_deref(), Ok("wwan0=20G"));
        assert!(
            of("wwan0=nothing")
                .unwrap_err()
                .ends_with("; or IFACE=none")
        );
    }
}
