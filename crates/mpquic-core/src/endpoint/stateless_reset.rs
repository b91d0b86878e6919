//! Stateless resets for packets of connections we know nothing of (RFC 9000 section 10.3).

use std::time::Duration;

use rand::{Rng, RngExt};

use crate::rate::TokenBucket;

/// Size of the shortest stateless reset, bytes.
pub(super) const MIN_RESET: usize = 21;
/// A reset of this size or more cannot be told from a packet with a connection ID of any length.
const UNREMARKABLE_RESET: usize = 42;
/// The largest reset, in bytes; larger resets do not resemble packets any better.
const MAX_RESET: usize = 128;
const TOKEN_LENGTH: usize = 16;

/// Resets in a burst; then one more is allowed per interval.
const BURST: u32 = 64;
const INTERVAL: Duration = Duration::from_millis(10);

/// Limits how many resets are sent, because an attacker with spoofed addresses could provoke any
/// number.
pub(super) const fn limit() -> TokenBucket {
    TokenBucket::new(BURST, INTERVAL)
}

/// The size of a reset in answer to a datagram of `trigger` bytes: always smaller, to keep two
/// endpoints without state from answering each other forever (RFC 9000 section 10.3.3). `None` if
/// the datagram is too small for an answer.
pub(super) fn reset_size(trigger: usize, rng: &mut impl Rng) -> Option<usize> {
    match trigger {
        0..=MIN_RESET => None,
        // RFC 9000 section 10.3
        22..=43 => Some(trigger - 1),
        _ => Some(rng.random_range(UNREMARKABLE_RESET..trigger.min(MAX_RESET))),
    }
}

/// Appends a reset that looks like a packet with a short header.
pub(super) fn write_reset(buf: &mut Vec<u8>, size: usize, token: [u8; 16], rng: &mut impl Rng) {
    let start = buf.len();
    buf.resize(start + size.saturating_sub(TOKEN_LENGTH), 0);
    rng.fill_bytes(&mut buf[start..]);
    if let Some(first) = buf.get_mut(start) {
        *first = *first & 0x3f | 0x40;
    }
    buf.extend_from_slice(&token);
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn resets_are_smaller_than_the_packets_they_answer() {
        let mut rng = StdRng::from_seed([1; 32]);
        assert!((0..=21).all(|trigger| reset_size(trigger, &mut rng).is_none()));
        for trigger in 22..2000 {
            let size = reset_size(trigger, &mut rng).unwrap();
            assert!((MIN_RESET..trigger).contains(&size), "{trigger}: {size}");
            let mut buf = Vec::new();
            write_reset(&mut buf, size, [7; 16], &mut rng);
            assert_eq!(buf.len(), size);
            assert_eq!(buf[0] & 0xc0, 0x40);
            assert!(buf.ends_with(&[7; 16]));
        }
    }
}
