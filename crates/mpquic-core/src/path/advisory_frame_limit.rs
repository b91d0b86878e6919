//! [`AdvisoryFrameLimit`]: the number of frames with mere advice that a peer may send.

use std::time::{Duration, Instant};

use crate::error::{Fault, TransportError};
use crate::rate::TokenBucket;

/// How many such frames may come at once; an honest peer sends a few for each path.
const BURST: u32 = 1000;
/// Time until one more frame is allowed.
const INTERVAL: Duration = Duration::from_millis(10);

/// Rate limit for advisory frames: PATHS_BLOCKED, PATH_CIDS_BLOCKED, MAX_PATH_ID, path statuses and
/// abandonments. A peer could send these without cost to itself (RFC 9000 section 21.9, MP-175).
#[derive(Debug)]
pub(super) struct AdvisoryFrameLimit(TokenBucket);

impl AdvisoryFrameLimit {
    pub(super) fn new() -> Self {
        Self(TokenBucket::new(BURST, INTERVAL))
    }

    /// Counts an advisory frame.
    pub(super) fn on_frame(&mut self, now: Instant) -> Result<(), TransportError> {
        if !self.0.take(now) {
            return Err(Fault::TooMuchAdvice.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::testing::{ms, start};

    #[test]
    fn mp_175_a_burst_and_a_hundred_each_second() {
        let start = start();
        let mut limit = AdvisoryFrameLimit::new();
        let mut taken = |now| {
            (0..5000)
                .take_while(|_| limit.on_frame(now).is_ok())
                .count()
        };
        assert_eq!(taken(start), 1000);
        assert_eq!(taken(start + ms(9)), 0);
        assert_eq!(taken(start + ms(105)), 10);
        assert_eq!(taken(start + ms(110)), 1);
        assert_eq!(taken(start + ms(1_000_000)), 1000);
    }
}
