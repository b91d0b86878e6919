//! [`KeyExchangeGroup`]: how the secrets of a connection were agreed on.

use std::fmt;

/// The group by which client and server agreed on the secrets of a connection, by its number in the
/// registry of TLS ("TLS Supported Groups").
///
/// ```
/// use mpquic_core::KeyExchangeGroup;
///
/// assert_eq!(KeyExchangeGroup::X25519MLKEM768.to_string(), "X25519MLKEM768");
/// assert!(KeyExchangeGroup::X25519MLKEM768.is_post_quantum());
/// assert_eq!(KeyExchangeGroup(0x1d).to_string(), "x25519");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyExchangeGroup(pub u16);

impl KeyExchangeGroup {
    /// The elliptic curve X25519 (RFC 7748).
    pub const X25519: Self = Self(0x1d);
    /// X25519 together with ML-KEM-768 (draft-ietf-tls-ecdhe-mlkem): an attacker would have to
    /// break both to read the connection.
    pub const X25519MLKEM768: Self = Self(0x11ec);

    /// True if the secrets depend on ML-KEM, so that a later quantum computer cannot decrypt a
    /// recorded connection.
    pub const fn is_post_quantum(self) -> bool {
        matches!(self.0, 0x200..=0x202 | 0x11eb..=0x11ed)
    }

    /// The IANA name of a group that this crate knows.
    const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0x17 => "secp256r1",
            0x18 => "secp384r1",
            0x19 => "secp521r1",
            0x1d => "x25519",
            0x1e => "x448",
            0x200 => "MLKEM512",
            0x201 => "MLKEM768",
            0x202 => "MLKEM1024",
            0x11eb => "SecP256r1MLKEM768",
            0x11ec => "X25519MLKEM768",
            0x11ed => "SecP384r1MLKEM1024",
            _ => return None,
        })
    }
}

/// The name in the registry, or the number in hexadecimal.
impl fmt::Display for KeyExchangeGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#06x}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_the_names_of_the_registry() {
        assert_eq!(KeyExchangeGroup(0x17).to_string(), "secp256r1");
        assert_eq!(KeyExchangeGroup(0x0a0a).to_string(), "0x0a0a");
        let hybrids = (0..=u16::MAX).map(KeyExchangeGroup);
        let hybrids: Vec<_> = hybrids.filter(|group| group.is_post_quantum()).collect();
        assert_eq!(hybrids.len(), 6);
        assert!(
            hybrids
                .iter()
                .all(|group| group.to_string().contains("MLKEM"))
        );
    }
}
