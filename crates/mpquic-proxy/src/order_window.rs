//! [`OrderWindow`]: UDP payloads of a flow in the order in which they were sent.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

/// The window before a late payload was seen.
const FIRST: Duration = Duration::from_millis(30);
/// The smallest window.
const LEAST: Duration = Duration::from_millis(5);
/// The largest window: a longer delay harms more than a changed order.
const MOST: Duration = Duration::from_millis(100);
/// The window follows the latest payload of this time and of the same time before.
const PERIOD: Duration = Duration::from_secs(2);
/// Most bytes that wait, with [`OVERHEAD`] for each payload.
const BYTES: usize = 1 << 20;
/// Memory of a waiting payload besides its bytes.
const OVERHEAD: usize = 128;

/// Holds payloads that have overtaken others, for a short time.
///
/// A tunnel or a QUIC connection inside a flow takes changed order for loss, and slows down. The
/// paths of a connection have different delays, so payloads that are spread over several paths
/// overtake each other all the time. A payload waits until the payloads before it have arrived, at
/// most for the window. The window is one and a half times the lateness of late payloads, so a flow
/// whose payloads arrive in order waits 5 ms for a lost payload.
#[derive(Debug)]
pub(crate) struct OrderWindow {
    /// The number of the payload to deliver next.
    next: u64,
    /// Payloads that have overtaken others, with their arrivals.
    waiting: BTreeMap<u64, (Bytes, Instant)>,
    /// Bytes of waiting payloads, with the overhead.
    bytes: usize,
    /// The time since when payloads below `next` are missing, for payloads that come after their
    /// window.
    skipped: Option<Skipped>,
    lateness: Lateness,
}

/// Missing payloads that were given up.
#[derive(Debug)]
struct Skipped {
    /// The smallest number.
    first: u64,
    /// When a later payload arrived.
    since: Instant,
}

/// The largest lateness of the current and of the last [`PERIOD`].
#[derive(Debug)]
struct Lateness {
    began: Instant,
    largest: [Duration; 2],
}

impl OrderWindow {
    /// A window of a new flow, whose first payload has the number 0.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            next: 0,
            waiting: BTreeMap::new(),
            bytes: 0,
            skipped: None,
            lateness: Lateness {
                began: now,
                largest: [FIRST * 2 / 3; 2],
            },
        }
    }

    /// A payload arrived. Calls `deliver` for each payload whose turn has come.
    pub(crate) fn on_payload(
        &mut self,
        (number, payload): (u64, &[u8]),
        now: Instant,
        deliver: impl FnMut(&[u8]),
    ) {
        let mut deliver = deliver;
        if number == self.next {
            if let Some((_, (_, arrival))) = self.waiting.first_key_value() {
                self.lateness.on_late(now - *arrival, now);
            }
            self.next += 1;
            deliver(payload);
            self.deliver_next(&mut deliver);
        } else if number < self.next {
            self.on_skipped(number, now);
            deliver(payload);
        } else {
            self.hold(number, payload, now);
        }
        while self.bytes > BYTES {
            self.skip(&mut deliver);
        }
        self.on_time(now, deliver);
    }

    /// When [`Self::on_time`] has something to deliver, unless missing payloads arrive before.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let (_, (_, arrival)) = self.waiting.first_key_value()?;
        Some(*arrival + self.lateness.window())
    }

    /// Calls `deliver` for each payload that has waited for the window, and for the payloads behind
    /// it.
    pub(crate) fn on_time(&mut self, now: Instant, mut deliver: impl FnMut(&[u8])) {
        self.lateness.on_time(now);
        while self.deadline().is_some_and(|deadline| deadline <= now) {
            self.skip(&mut deliver);
        }
    }

    fn hold(&mut self, number: u64, payload: &[u8], now: Instant) {
        let held = (Bytes::copy_from_slice(payload), now);
        let bytes = payload.len() + OVERHEAD;
        match self.waiting.insert(number, held) {
            None => self.bytes += bytes,
            Some((other, _)) => self.bytes = self.bytes + bytes - other.len() - OVERHEAD,
        }
    }

    /// Gives up the missing payloads before the first waiting payload.
    fn skip(&mut self, deliver: &mut impl FnMut(&[u8])) {
        if let Some((number, (_, arrival))) = self.waiting.first_key_value() {
            self.skipped = Some(Skipped {
                first: self.next,
                since: *arrival,
            });
            self.next = *number;
        }
        self.deliver_next(deliver);
    }

    /// Delivers waiting payloads up to the next missing one.
    fn deliver_next(&mut self, deliver: &mut impl FnMut(&[u8])) {
        while let Some((payload, _)) = self.waiting.remove(&self.next) {
            self.bytes -= payload.len() + OVERHEAD;
            self.next += 1;
            deliver(&payload);
        }
    }

    /// A payload that was given up arrived.
    fn on_skipped(&mut self, number: u64, now: Instant) {
        if let Some(skipped) = self.skipped.as_ref().filter(|it| it.first <= number) {
            self.lateness.on_late(now - skipped.since, now);
        }
    }
}

impl Lateness {
    fn on_late(&mut self, lateness: Duration, now: Instant) {
        self.on_time(now);
        self.largest[0] = self.largest[0].max(lateness);
    }

    fn on_time(&mut self, now: Instant) {
        if now.saturating_duration_since(self.began) >= PERIOD {
            self.began = now;
            self.largest = [Duration::ZERO, self.largest[0]];
        }
    }

    fn window(&self) -> Duration {
        let largest = self.largest[0].max(self.largest[1]);
        (largest * 3 / 2).clamp(LEAST, MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A window and the numbers that it has delivered.
    struct Watched {
        window: OrderWindow,
        now: Instant,
        delivered: Vec<u8>,
    }

    impl Watched {
        fn new() -> Self {
            let now = Instant::now();
            Self {
                window: OrderWindow::new(now),
                now,
                delivered: Vec::new(),
            }
        }

        /// A payload with this number arrives after this time.
        fn arrives(&mut self, number: u8, after: Duration) -> &[u8] {
            self.passes(after);
            let deliver = |payload: &[u8]| self.delivered.push(payload[0]);
            let payload = (u64::from(number), &[number; 100][..]);
            self.window.on_payload(payload, self.now, deliver);
            &self.delivered
        }

        /// Time passes, and the deadlines in it.
        fn passes(&mut self, time: Duration) -> &[u8] {
            let end = self.now + time;
            while let Some(deadline) = self.window.deadline().filter(|at| *at <= end) {
                let deliver = |payload: &[u8]| self.delivered.push(payload[0]);
                self.window.on_time(deadline, deliver);
            }
            self.now = end;
            &self.delivered
        }
    }

    #[test]
    fn payloads_wait_for_those_before_them() {
        let mut watched = Watched::new();
        assert_eq!(watched.arrives(0, MS), [0]);
        assert_eq!(watched.arrives(2, MS), [0]);
        assert_eq!(watched.arrives(3, MS), [0]);
        assert_eq!(watched.arrives(1, 10 * MS), [0, 1, 2, 3]);
        assert_eq!(watched.window.deadline(), None);
        assert_eq!(watched.window.bytes, 0);
    }

    #[test]
    fn a_lost_payload_is_given_up_after_the_window() {
        let mut watched = Watched::new();
        watched.arrives(1, MS);
        watched.arrives(2, 10 * MS);
        watched.arrives(4, 10 * MS);
        assert!(watched.passes(9 * MS).is_empty());
        // 30 ms after the first waiting payload, and after the payload behind the next gap.
        assert_eq!(watched.passes(MS), [1, 2]);
        assert_eq!(watched.passes(20 * MS), [1, 2, 4]);
        // Late payloads are not lost.
        assert_eq!(watched.arrives(3, MS), [1, 2, 4, 3]);
    }

    #[test]
    fn the_window_follows_the_lateness() {
        let mut watched = Watched::new();
        let window = |watched: &Watched| watched.window.lateness.window();
        assert_eq!(window(&watched), FIRST);
        watched.arrives(1, MS);
        watched.arrives(0, 40 * MS);
        assert_eq!(window(&watched), 60 * MS, "it came after the window");
        watched.arrives(3, MS);
        watched.arrives(2, 50 * MS);
        assert_eq!(window(&watched), 75 * MS, "it came within the window");
        watched.arrives(5, MS);
        watched.arrives(4, PERIOD);
        assert_eq!(window(&watched), MOST);
        for number in 6..12 {
            watched.arrives(number, PERIOD / 2);
        }
        assert_eq!(window(&watched), LEAST);
    }

    #[test]
    fn a_peer_has_bounded_memory() {
        let mut window = OrderWindow::new(Instant::now());
        let (now, mut count) = (Instant::now(), 0);
        for number in 1..=5000 {
            let payload = (number * 7, &[0; 1200][..]);
            window.on_payload(payload, now, |_| count += 1);
            assert!(window.bytes <= BYTES);
        }
        assert!(window.waiting.len() < 1000 && count == 5000 - window.waiting.len());
        // The same number again, and numbers at the end.
        for number in [7 * 5000, (1 << 62) - 1, (1 << 62) - 2, (1 << 62) - 1] {
            window.on_payload((number, &[1; 9]), now, |_| count += 1);
        }
        window.on_time(now + MOST, |_| count += 1);
        assert_eq!((window.bytes, window.waiting.len()), (0, 0));
    }
}
