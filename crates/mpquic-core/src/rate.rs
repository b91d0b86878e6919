//! [`TokenBucket`]: limits how often something may happen.

use std::time::{Duration, Instant};

/// Allows a number of events at once, and one more after each interval.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    capacity: u32,
    interval: Duration,
    tokens: u32,
    /// The time up to which tokens were added. `None` before the first use.
    filled: Option<Instant>,
}

impl TokenBucket {
    /// A full bucket of `capacity` tokens; one token comes each `interval`.
    pub(crate) const fn new(capacity: u32, interval: Duration) -> Self {
        Self {
            capacity,
            interval,
            tokens: capacity,
            filled: None,
        }
    }

    /// Takes a token; false for an empty bucket.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let filled = *self.filled.get_or_insert(now);
        let elapsed = now.saturating_duration_since(filled);
        let earned = elapsed.as_nanos() / self.interval.as_nanos();
        match u32::try_from(earned) {
            Ok(earned) if earned < self.capacity - self.tokens => {
                self.tokens += earned;
                self.filled = Some(filled + self.interval * earned);
            }
            _ => {
                self.tokens = self.capacity;
                self.filled = Some(now);
            }
        }
        let is_allowed = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "any point in time will do")]
    fn now() -> Instant {
        Instant::now()
    }

    #[test]
    fn a_burst_and_then_one_in_each_interval() {
        let start = now();
        let mut bucket = TokenBucket::new(64, Duration::from_millis(10));
        let mut taken = |milliseconds| {
            let now = start + Duration::from_millis(milliseconds);
            (0..1000).filter(|_| bucket.take(now)).count()
        };
        assert_eq!(taken(0), 64);
        assert_eq!(taken(9), 0);
        assert_eq!(taken(35), 3);
        // What is left of an interval counts towards the next token.
        assert_eq!(taken(39), 0);
        assert_eq!(taken(40), 1);
        assert_eq!(taken(3_600_000), 64);
        // A clock that goes back adds nothing.
        assert_eq!(taken(0), 0);
    }
}
