//! [`Version`]: the versions of QUIC spoken here, and how one is chosen (RFC 9368).

use std::fmt;
use std::str::FromStr;

/// A version of QUIC.
///
/// The versions are equal for an application, and both work with multiple paths; they differ in
/// keys and in the numbers of packet types. A connection can switch from one to the other while it
/// starts (RFC 9369 section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Version {
    /// Version 1 (RFC 9000).
    #[default]
    V1,
    /// Version 2 (RFC 9369).
    V2,
}

impl Version {
    /// All of them, the oldest first.
    pub const ALL: [Self; 2] = [Self::V1, Self::V2];

    /// The version with this number on the wire.
    pub const fn from_u32(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::V1),
            0x6b33_43cf => Some(Self::V2),
            _ => None,
        }
    }

    /// The number on the wire.
    pub const fn to_u32(self) -> u32 {
        match self {
            Self::V1 => 1,
            Self::V2 => 0x6b33_43cf,
        }
    }

    /// The first of `preferred` that is in `offered`.
    pub(crate) fn select(preferred: &[Self], offered: &[u32]) -> Option<Self> {
        let is_offered = |version: &&Self| offered.contains(&version.to_u32());
        preferred.iter().find(is_offered).copied()
    }

    /// A reserved number that will never be a version (RFC 9000 section 15), chosen by the random
    /// `seed`.
    pub(crate) const fn reserved(seed: u32) -> u32 {
        seed & 0xf0f0_f0f0 | 0x0a0a_0a0a
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        })
    }
}

/// No version has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no QUIC version `{0}`; there are v1 and v2")]
pub struct UnknownVersion(String);

impl FromStr for Version {
    type Err = UnknownVersion;

    fn from_str(name: &str) -> Result<Self, UnknownVersion> {
        let named = |version: &Self| version.to_string() == name;
        let unknown = || UnknownVersion(name.to_owned());
        Self::ALL.into_iter().find(named).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_back() {
        for version in Version::ALL {
            assert_eq!(Version::from_u32(version.to_u32()), Some(version));
            assert_eq!(version.to_string().parse(), Ok(version));
        }
        assert_eq!(Version::from_u32(0), None);
        let unknown = "2".parse::<Version>().unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "no QUIC version `2`; there are v1 and v2"
        );
    }

    #[test]
    fn our_order_decides() {
        let both = [1, 0x1a2a_3a4a, 0x6b33_43cf];
        for order in [[Version::V1, Version::V2], [Version::V2, Version::V1]] {
            assert_eq!(Version::select(&order, &both), Some(order[0]));
        }
        assert_eq!(
            Version::select(&Version::ALL, &both[1..]),
            Some(Version::V2)
        );
        assert_eq!(Version::select(&Version::ALL, &[7]), None);
    }

    #[test]
    fn rfc_9000_15_reserved_versions_have_their_pattern() {
        for seed in [0, 0xffff_ffff, 0x1234_5678] {
            assert_eq!(Version::reserved(seed) & 0x0f0f_0f0f, 0x0a0a_0a0a);
        }
    }
}
