//! Content of the DATAGRAMs of a measurement. A client writes a number and the time into each
//! DATAGRAM. The server returns the DATAGRAM with the count of received DATAGRAMs and its own time.
//! Only differences of times count, so the clocks need not agree.

use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes of the four fields: number and time of the client, number and time of the server. Times
/// are microseconds, and each side chooses the zero of its clock.
pub(crate) const FIELDS: usize = 32;

/// The server's side, for one connection.
#[derive(Debug)]
pub(crate) struct Echo {
    start: Instant,
    count: u64,
}

impl Echo {
    pub(crate) fn new(start: Instant) -> Self {
        Self { start, count: 0 }
    }

    /// The answer, of equal length; `None` if the DATAGRAM is too short.
    pub(crate) fn answer(&mut self, datagram: &[u8], now: Instant) -> Option<Bytes> {
        let fields = datagram.get(..FIELDS / 2)?;
        let content = datagram.get(FIELDS..)?;
        self.count += 1;
        let mut answer = BytesMut::with_capacity(datagram.len());
        answer.put_slice(fields);
        answer.put_u64(self.count);
        answer.put_u64(micros(now, self.start));
        answer.put_slice(content);
        Some(answer.freeze())
    }
}

fn micros(now: Instant, start: Instant) -> u64 {
    let micros = now.saturating_duration_since(start).as_micros();
    u64::try_from(micros).unwrap_or(u64::MAX)
}

/// The client's side.
#[derive(Debug)]
pub(crate) struct Tally {
    start: Instant,
    pub(crate) sent: u64,
    /// Number of DATAGRAMs that the server received, as in the latest returned DATAGRAM.
    pub(crate) taken: u64,
    /// Returned DATAGRAMs.
    pub(crate) back: u64,
    pub(crate) there_jitter: Jitter,
    pub(crate) back_jitter: Jitter,
}

impl Tally {
    pub(crate) fn new(start: Instant) -> Self {
        Self {
            start,
            sent: 0,
            taken: 0,
            back: 0,
            there_jitter: Jitter::default(),
            back_jitter: Jitter::default(),
        }
    }

    /// The next DATAGRAM to send.
    pub(crate) fn next(&mut self, size: usize, now: Instant) -> Bytes {
        let mut datagram = BytesMut::zeroed(size.max(FIELDS));
        datagram[..8].copy_from_slice(&self.sent.to_be_bytes());
        datagram[8..16].copy_from_slice(&micros(now, self.start).to_be_bytes());
        self.sent += 1;
        datagram.freeze()
    }

    /// Counts a returned DATAGRAM, and returns its round trip; `None` for an invalid DATAGRAM.
    pub(crate) fn on_back(&mut self, datagram: &[u8], now: Instant) -> Option<Duration> {
        let (fields, _) = datagram.split_first_chunk::<FIELDS>()?;
        let field = |at: usize| {
            let bytes = fields.get(8 * at..8 * at + 8)?;
            Some(u64::from_be_bytes(bytes.try_into().ok()?))
        };
        let [number, sent, count, arrived] = [field(0)?, field(1)?, field(2)?, field(3)?];
        let now = micros(now, self.start);
        if number >= self.sent || count > self.sent || sent > now || self.back >= self.sent {
            return None;
        }
        self.back += 1;
        self.taken = self.taken.max(count);
        self.there_jitter.on_arrival(sent, arrived);
        self.back_jitter.on_arrival(arrived, now);
        Some(Duration::from_micros(now - sent))
    }

    /// The lost part on the way to the server, and on the way back; `None` before the first return.
    pub(crate) fn losses(&self) -> Option<(f64, f64)> {
        if self.back == 0 {
            return None;
        }
        // DATAGRAMs after the latest known one may be on their way, or lost in either direction.
        // All of them count as lost on the way to the server.
        let there = 1.0 - self.taken as f64 / self.sent as f64;
        let back = 1.0 - self.back as f64 / self.taken.max(self.back) as f64;
        Some((there, back))
    }
}

/// The variation of transit times (RFC 3550 section 6.4.1), in microseconds.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Jitter {
    /// Transit time of the DATAGRAM before, between clocks that need not agree.
    transit: Option<i128>,
    mean: f64,
}

impl Jitter {
    fn on_arrival(&mut self, sent: u64, arrived: u64) {
        let transit = i128::from(arrived) - i128::from(sent);
        if let Some(before) = self.transit.replace(transit) {
            let difference = transit.abs_diff(before) as f64;
            self.mean += (difference - self.mean) / 16.0;
        }
    }

    /// In milliseconds.
    pub(crate) fn millis(&self) -> f64 {
        self.mean / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    #[test]
    fn losses_are_told_apart() {
        let start = crate::process::clock::now();
        let (mut tally, mut echo) = (Tally::new(start), Echo::new(start));
        for number in 0..100 {
            let sent = at(start, 10 * number);
            let datagram = tally.next(100, sent);
            assert_eq!(datagram.len(), 100);
            // Each tenth is lost on the way there, and half of the others on the way back.
            if number % 10 == 0 {
                continue;
            }
            let answer = echo.answer(&datagram, at(sent, 3)).unwrap();
            assert_eq!(answer.len(), 100);
            if number % 2 == 1 {
                let took = tally.on_back(&answer, at(sent, 7));
                assert_eq!(took, Some(Duration::from_millis(7)));
            }
        }
        let (there, back) = tally.losses().unwrap();
        assert!((there - 0.1).abs() < 1e-9, "{there}");
        assert!((back - 4.0 / 9.0).abs() < 1e-9, "{back}");
        assert_eq!(tally.there_jitter.millis(), 0.0);
    }

    #[test]
    fn jitter_is_a_mean_of_differences() {
        let mut jitter = Jitter::default();
        for number in 0..1000 {
            // Every other DATAGRAM takes 4 ms longer. The clocks differ widely.
            let sent = 20_000 * number;
            jitter.on_arrival(sent + (1 << 40), sent + 4000 * (number % 2));
        }
        assert!((jitter.millis() - 4.0).abs() < 0.01, "{jitter:?}");
    }

    #[test]
    fn invalid_datagrams_are_ignored() {
        let start = crate::process::clock::now();
        let (mut tally, mut echo) = (Tally::new(start), Echo::new(start));
        assert_eq!(tally.losses(), None);
        assert_eq!(echo.answer(&[0; FIELDS - 1], start), None);
        let datagram = tally.next(0, start);
        assert_eq!(datagram.len(), FIELDS);
        assert_eq!(tally.on_back(&datagram[1..], start), None);
        // An unsent number, a count above the sent ones, a future time.
        for (at, value) in [(0, 1), (16, 2), (8, u64::MAX)] {
            let mut wrong = datagram.to_vec();
            wrong[at..at + 8].copy_from_slice(&u64::to_be_bytes(value));
            assert_eq!(tally.on_back(&wrong, start), None, "{at}");
        }
        let answer = echo.answer(&datagram, start).unwrap();
        assert!(tally.on_back(&answer, start).is_some());
        assert_eq!(tally.on_back(&answer, start), None, "twice");
        assert_eq!(tally.losses(), Some((0.0, 0.0)));
    }

    #[test]
    fn returned_datagrams_show_number_and_jitter() {
        let start = crate::process::clock::now();
        let (mut tally, mut echo) = (Tally::new(start), Echo::new(start));
        // Milliseconds on the way there, and back.
        for (number, there, back) in [(0, 3, 5), (1, 7, 5), (2, 3, 13)] {
            let sent = at(start, 100 * number);
            let datagram = tally.next(FIELDS + 3, sent);
            assert_eq!(datagram[..8], number.to_be_bytes());
            assert_eq!(datagram[8..16], (100_000 * number).to_be_bytes());
            let answer = echo.answer(&datagram, at(sent, there)).unwrap();
            assert_eq!(answer[..16], datagram[..16]);
            assert_eq!(answer[16..24], (number + 1).to_be_bytes());
            let took = tally.on_back(&answer, at(sent, there + back));
            assert_eq!(took, Some(Duration::from_millis(there + back)));
        }
        // Differences of 4 and 4, and of 0 and 8, each of which counts a sixteenth.
        let there = 4.0 / 16.0 * (15.0 / 16.0) + 4.0 / 16.0;
        assert!((tally.there_jitter.millis() - there).abs() < 1e-9);
        assert!((tally.back_jitter.millis() - 0.5).abs() < 1e-9);
        assert_eq!((tally.sent, tally.taken, tally.back), (3, 3, 3));
        // A datagram is lost on the way back, and another on the way there.
        let datagram = tally.next(0, start);
        let _lost = echo.answer(&datagram, start).unwrap();
        tally.next(0, start);
        assert_eq!(tally.losses(), Some((0.4, 0.0)), "of what is lost last");
        let datagram = tally.next(0, start);
        let answer = echo.answer(&datagram, start).unwrap();
        tally.on_back(&answer, start).unwrap();
        let (there, back) = tally.losses().unwrap();
        assert!((there - 1.0 / 6.0).abs() < 1e-9 && (back - 0.2).abs() < 1e-9);
    }
}
