//! Bytes at a rate, spread over time.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::rate::Rate;

/// After a pause, the bytes of this time may move at once.
const BURST: Duration = Duration::from_millis(100);
/// Duration of a piece. Shorter pieces are smoother, but timers are no finer than a millisecond.
const PIECE_MS: u64 = 10;
/// Smallest piece in bytes. Smaller pieces would cost too much work.
const LEAST_PIECE: usize = 1200;

/// The time at which all bytes counted so far are due at the rate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meter(Instant);

impl Meter {
    pub(crate) fn new(now: Instant) -> Self {
        Self(now)
    }

    /// Counts bytes, and returns the time when they may move.
    pub(crate) fn add(&mut self, bytes: usize, rate: Rate, now: Instant) -> Instant {
        let time = bytes as f64 / rate.bytes_per_second() as f64;
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        self.0 = self.0.max(earliest) + Duration::from_secs_f64(time);
        self.0
    }
}

/// Most bytes to move at a time, for an even flow.
pub(crate) fn piece(rate: Rate) -> usize {
    let bytes = usize::try_from(rate.bytes_in(PIECE_MS)).unwrap_or(usize::MAX);
    bytes.max(LEAST_PIECE)
}

/// The least receive window, and the largest, bytes.
const WINDOWS: (u64, u64) = (16 << 10, 64 << 20);

/// The receive window for a rate. A much larger window would let the sender choose its own rate.
/// Credit takes a round trip to reach the sender, and each update covers a quarter of the window.
pub(crate) fn window(rate: Rate, round_trip: Duration) -> u64 {
    let milliseconds = 2 * round_trip + BURST;
    let milliseconds = u64::try_from(milliseconds.as_millis()).unwrap_or(u64::MAX);
    rate.bytes_in(milliseconds).clamp(WINDOWS.0, WINDOWS.1)
}

/// A rate shared by all users of this value.
#[derive(Debug)]
pub(crate) struct Pace {
    rate: Rate,
    meter: Mutex<Meter>,
}

impl Pace {
    pub(crate) fn new(rate: Rate) -> Self {
        Self {
            rate,
            meter: Mutex::new(Meter::new(Instant::now())),
        }
    }

    /// The receive window for this rate, as in [`window`].
    pub(crate) fn window(&self, round_trip: Duration) -> u64 {
        window(self.rate, round_trip)
    }

    /// Largest number of bytes to move at a time.
    pub(crate) fn piece(&self) -> usize {
        piece(self.rate)
    }

    /// Waits until these bytes may move.
    pub(crate) async fn wait(&self, bytes: usize) {
        let due = {
            let mut meter = self.meter.lock().unwrap_or_else(PoisonError::into_inner);
            meter.add(bytes, self.rate, Instant::now())
        };
        tokio::time::sleep_until(due).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_hold_what_is_under_way() {
        let window = |milliseconds| window(Rate::mbit(8), Duration::from_millis(milliseconds));
        assert_eq!(window(0), 100_000);
        assert_eq!(window(300), 700_000);
        assert_eq!(window(1 << 40), 64 << 20);
        let least: Rate = "10k".parse().unwrap();
        assert_eq!(super::window(least, Duration::ZERO), 16 << 10);
        let pace = Pace::new(Rate::mbit(8));
        assert_eq!(pace.window(Duration::from_millis(300)), 700_000);
        assert_eq!((piece(least), piece(Rate::mbit(80))), (1200, 100_000));
    }

    /// No tenth of a second carries more than twice its share, and over time the rate is reached.
    #[tokio::test(start_paused = true)]
    async fn the_flow_is_even() {
        let rate = Rate::mbit(8);
        let pace = Pace::new(rate);
        assert_eq!(pace.piece(), 10_000);
        let start = Instant::now();
        let mut in_tenth = [0; 100];
        while start.elapsed() < Duration::from_secs(10) {
            pace.wait(pace.piece()).await;
            let tenth = start.elapsed().as_millis() as usize / 100;
            if let Some(moved) = in_tenth.get_mut(tenth) {
                *moved += pace.piece();
            }
        }
        assert!(
            in_tenth.iter().all(|moved| *moved <= 200_000),
            "{in_tenth:?}"
        );
        let later = &in_tenth[1..];
        assert!(later.iter().all(|moved| (90_000..=110_000).contains(moved)));
        // After a pause, only a part of the missed bytes may follow at once.
        tokio::time::advance(Duration::from_secs(60)).await;
        let start = Instant::now();
        for _ in 0..100 {
            pace.wait(pace.piece()).await;
        }
        assert_eq!(start.elapsed().as_millis(), 900);
    }

    /// Bytes take their time at the rate. An unused tenth of a second before also counts.
    #[test]
    fn a_meter_tells_when_bytes_may_move() {
        let start = Instant::now() + Duration::from_secs(1);
        let at = |millis| start + Duration::from_millis(millis);
        let mut meter = Meter::new(start);
        let rate = Rate::mbit(8);
        assert_eq!(meter.add(50_000, rate, start), at(50));
        assert_eq!(meter.add(100_000, rate, start), at(150));
        assert_eq!(meter.add(1000, rate, at(200)), at(151));
        assert_eq!(meter.add(1000, rate, at(1000)), at(901));
    }
}
