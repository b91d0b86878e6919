//! Stateless resets for packets of connections we know nothing of (RFC 9000 section 10.3).

use std::time::{Duration, Instant};

use rand::{Rng, RngExt};

/// Shortest datagram that could be a stateless reset.
pub(super) const MIN_RESET: usize = 21;
/// From this size on, a reset cannot be told from a packet with a connection ID of any length.
const UNREMARKABLE_RESET: usize = 42;
/// Larger ones would not look more like packets.
const MAX_RESET: usize = 128;
const TOKEN_LENGTH: usize = 16;

/// Resets are paid from a budget of this many, which refills one at a time.
const BUDGET: u32 = 64;
const REFILL_INTERVAL: Duration = Duration::from_millis(10);

/// Limits how many resets leave, as whoever spoofs addresses could ask for any number.
#[derive(Debug)]
pub(super) struct ResetLimiter {
    budget: u32,
    refilled: Option<Instant>,
}

impl ResetLimiter {
    pub(super) fn new() -> Self {
        Self {
            budget: BUDGET,
            refilled: None,
        }
    }

    /// True if a reset may be sent now; counts it.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let refilled = *self.refilled.get_or_insert(now);
        let periods =
            now.saturating_duration_since(refilled).as_nanos() / REFILL_INTERVAL.as_nanos();
        if let Ok(periods) = u32::try_from(periods)
            && periods < BUDGET
        {
            self.budget = (self.budget + periods).min(BUDGET);
            self.refilled = Some(refilled + REFILL_INTERVAL * periods);
        } else {
            self.budget = BUDGET;
            self.refilled = Some(now);
        }
        let allowed = self.budget > 0;
        self.budget = self.budget.saturating_sub(1);
        allowed
    }
}

/// Bytes of a reset in answer to a datagram: always less than that, so that two endpoints without
/// state do not answer each other for ever (RFC 9000 section 10.3.3). `None` if that leaves no
/// room.
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
    fn resets_are_smaller_than_what_they_answer() {
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

    #[expect(clippy::disallowed_methods, reason = "any point in time will do")]
    fn now() -> Instant {
        Instant::now()
    }

    #[test]
    fn budget_refills_with_time() {
        let start = now();
        let mut limiter = ResetLimiter::new();
        let count =
            |limiter: &mut ResetLimiter, now| (0..1000).filter(|_| limiter.take(now)).count();
        assert_eq!(count(&mut limiter, start), 64);
        assert_eq!(count(&mut limiter, start + Duration::from_millis(9)), 0);
        assert_eq!(count(&mut limiter, start + Duration::from_millis(35)), 3);
        assert_eq!(count(&mut limiter, start + Duration::from_millis(39)), 0);
        assert_eq!(count(&mut limiter, start + Duration::from_millis(40)), 1);
        assert_eq!(count(&mut limiter, start + Duration::from_secs(3600)), 64);
    }
}
