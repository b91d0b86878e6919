//! [`ReceiveWindow`]: how large receive windows should be (decision D11).

use std::time::{Duration, Instant};

/// Round trips below this are measured over this long, so that a measurement has some packets in it.
const MIN_INTERVAL: Duration = Duration::from_millis(2);

/// Measures how fast stream bytes arrive on all paths together.
///
/// A window of twice the bytes that arrive in the slowest path's round trip keeps all paths busy
/// while the application's credit travels back. While the window is the bottleneck, each round
/// trip doubles it.
#[derive(Debug)]
pub(super) struct ReceiveWindow {
    start: Instant,
    bytes: u64,
    target: u64,
}

impl ReceiveWindow {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            start: now,
            bytes: 0,
            target: 0,
        }
    }

    /// Stream bytes arrived; returns a new target in bytes when it has grown.
    pub(super) fn on_received(
        &mut self,
        bytes: u64,
        now: Instant,
        largest_rtt: impl FnOnce() -> Duration,
    ) -> Option<u64> {
        self.bytes += bytes;
        let elapsed = now.saturating_duration_since(self.start);
        if elapsed < MIN_INTERVAL {
            return None;
        }
        let round_trip = largest_rtt();
        if elapsed < round_trip {
            return None;
        }
        let interval = round_trip.max(Duration::from_micros(500)).as_secs_f64();
        let rate = self.bytes as f64 / elapsed.as_secs_f64();
        self.start = now;
        self.bytes = 0;
        let target = (2.0 * rate * interval) as u64;
        (target > self.target).then(|| {
            self.target = target;
            target
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_twice_what_arrives_in_a_round_trip_and_never_shrinks() {
        let start = epoch();
        let mut window = ReceiveWindow::new(start);
        let rtt = || Duration::from_millis(100);
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(window.on_received(500_000, at(50), rtt), None);
        assert_eq!(window.on_received(500_000, at(100), rtt), Some(2_000_000));
        assert_eq!(window.on_received(100, at(200), rtt), None);
        assert_eq!(window.on_received(4_000_000, at(300), rtt), Some(8_000_000));
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "tests need some instant to start from"
    )]
    fn epoch() -> Instant {
        Instant::now()
    }
}
