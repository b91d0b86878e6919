//! [`Hints`]: how much advice a peer may give.

use std::time::{Duration, Instant};

use crate::error::{Fault, TransportError};

/// Frames at once; an honest peer sends a few for each path.
const BURST: u32 = 1000;
/// Each such time allows one more.
const INTERVAL: Duration = Duration::from_millis(10);

/// Counts frames that cost their sender nothing and oblige us to little: PATHS_BLOCKED,
/// PATH_CIDS_BLOCKED, MAX_PATH_ID, path statuses and abandonments (RFC 9000 section 21.9, MP-175).
#[derive(Debug)]
pub(super) struct Hints {
    left: u32,
    counted_from: Instant,
}

impl Hints {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            left: BURST,
            counted_from: now,
        }
    }

    /// Such a frame arrived.
    pub(super) fn on_frame(&mut self, now: Instant) -> Result<(), TransportError> {
        let elapsed = now.saturating_duration_since(self.counted_from);
        let earned = u32::try_from(elapsed.as_nanos() / INTERVAL.as_nanos()).unwrap_or(u32::MAX);
        if earned >= BURST - self.left {
            self.left = BURST;
            self.counted_from = now;
        } else {
            self.left += earned;
            self.counted_from += INTERVAL * earned;
        }
        self.left = self.left.checked_sub(1).ok_or(Fault::TooMuchAdvice)?;
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
        let mut hints = Hints::new(start);
        let mut taken = |now| {
            (0..5000)
                .take_while(|_| hints.on_frame(now).is_ok())
                .count()
        };
        assert_eq!(taken(start), 1000);
        assert_eq!(taken(start + ms(9)), 0);
        assert_eq!(taken(start + ms(105)), 10);
        assert_eq!(taken(start + ms(110)), 1);
        assert_eq!(taken(start + ms(1_000_000)), 1000);
    }
}
