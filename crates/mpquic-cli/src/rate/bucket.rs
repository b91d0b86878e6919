//! A token bucket.

use tokio::time::Instant;

/// Permits a number of events at once, and further events as time passes.
#[derive(Debug)]
pub(crate) struct Bucket {
    size: f64,
    per_second: f64,
    /// The tokens at the time `at`.
    tokens: f64,
    /// Time of the last update.
    at: Instant,
}

impl Bucket {
    /// A full bucket of this `size`, refilled with `per_second` tokens per second.
    pub(crate) fn new(size: u32, per_second: u32, now: Instant) -> Self {
        Self {
            size: size.into(),
            per_second: per_second.into(),
            tokens: size.into(),
            at: now,
        }
    }

    /// Takes a token; false if none is left.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let more = now.duration_since(self.at).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + more).min(self.size);
        self.at = now;
        let is_left = self.tokens >= 1.0;
        if is_left {
            self.tokens -= 1.0;
        }
        is_left
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn bucket_allows_a_burst_and_refills() {
        let start = Instant::now();
        let mut bucket = Bucket::new(100, 20, start);
        let mut count = |seconds: u64| {
            let now = start + Duration::from_secs(seconds);
            (0..1000).filter(|_| bucket.take(now)).count()
        };
        assert_eq!(count(0), 100);
        assert_eq!(count(1), 20);
        assert_eq!(count(2), 20);
        assert_eq!(count(1000), 100);
    }

    #[test]
    fn bucket_refills_token_by_token() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut bucket = Bucket::new(1, 2, start);
        let taken = [0, 0, 499, 500, 999, 1000, 5000, 5001].map(|millis| bucket.take(at(millis)));
        let expected = [true, false, false, true, false, true, true, false];
        assert_eq!(taken, expected);
    }
}
