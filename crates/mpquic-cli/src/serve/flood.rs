//! [`Flood`]: a kind of log line that clients can cause at any rate.

use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Time between two lines of one kind.
const PAUSE: Duration = Duration::from_secs(1);

/// Logs at most one line of its kind per second, and counts the other lines.
#[derive(Debug)]
pub(crate) struct Flood {
    /// The words after the number of suppressed lines.
    what: &'static str,
    tally: Mutex<Tally>,
}

impl Flood {
    pub(crate) fn new(what: &'static str) -> Arc<Self> {
        let tally = Mutex::default();
        Arc::new(Self { what, tally })
    }

    /// Logs a line now, or counts the line. Must be called within a tokio runtime.
    pub(crate) fn log(self: &Arc<Self>, line: impl Display) {
        let step = self.with(|tally| tally.on_line(Instant::now()));
        match step {
            Step::Log => tracing::info!("{line}"),
            Step::Count => {}
            Step::CountUntil(at) => {
                let flood = self.clone();
                tokio::spawn(async move {
                    tokio::time::sleep_until(at).await;
                    let more = flood.with(|tally| tally.take(Instant::now()));
                    tracing::info!("{more} more {}", flood.what);
                });
            }
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Tally) -> T) -> T {
        let tally = self.tally.lock();
        change(&mut tally.unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Debug, Default)]
struct Tally {
    /// No line before this time.
    next: Option<Instant>,
    /// Suppressed lines.
    more: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Log,
    /// The line is suppressed. A task that logs the number already waits.
    Count,
    /// The line is suppressed. The number must be logged at this time.
    CountUntil(Instant),
}

impl Tally {
    fn on_line(&mut self, now: Instant) -> Step {
        match self.next {
            Some(next) if self.more > 0 || now < next => {
                self.more += 1;
                match self.more {
                    1 => Step::CountUntil(next),
                    _ => Step::Count,
                }
            }
            _ => {
                self.next = Some(now + PAUSE);
                Step::Log
            }
        }
    }

    /// Number of suppressed lines.
    fn take(&mut self, now: Instant) -> u64 {
        self.next = Some(now + PAUSE);
        std::mem::take(&mut self.more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_and_the_number_of_the_others() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut tally = Tally::default();
        assert_eq!(tally.on_line(at(0)), Step::Log);
        assert_eq!(tally.on_line(at(1)), Step::CountUntil(at(1000)));
        for millis in 2..1500 {
            assert_eq!(tally.on_line(at(millis)), Step::Count);
        }
        assert_eq!(tally.take(at(1500)), 1499);
        assert_eq!(tally.on_line(at(2000)), Step::CountUntil(at(2500)));
        assert_eq!(tally.take(at(2500)), 1);
        assert_eq!(tally.on_line(at(3499)), Step::CountUntil(at(3500)));
        assert_eq!(tally.take(at(3500)), 1);
        assert_eq!(tally.on_line(at(4500)), Step::Log);
        assert_eq!(tally.on_line(at(9000)), Step::Log);
    }

    /// A line does not overtake the number of earlier lines.
    #[test]
    fn a_line_that_comes_before_a_late_number_is_counted() {
        let start = Instant::now();
        let mut tally = Tally::default();
        assert_eq!(tally.on_line(start), Step::Log);
        assert_eq!(tally.on_line(start), Step::CountUntil(start + PAUSE));
        assert_eq!(tally.on_line(start + 2 * PAUSE), Step::Count);
        assert_eq!(tally.take(start + 2 * PAUSE), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn suppressed_lines_are_counted_after_a_second() {
        let flood = Flood::new("lines");
        let more = |flood: &Flood| flood.with(|tally| tally.more);
        for counted in [0, 1, 2] {
            flood.log("line");
            assert_eq!(more(&flood), counted);
        }
        tokio::time::sleep(PAUSE - Duration::from_millis(1)).await;
        assert_eq!(more(&flood), 2);
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert_eq!(more(&flood), 0);
        flood.log("line");
        assert_eq!(more(&flood), 1, "their number was a line, too");
    }
}
