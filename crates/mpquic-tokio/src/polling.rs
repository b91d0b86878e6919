//! [`Polling`]: a socket with much traffic is read at intervals, not at each datagram.
//!
//! At the rates of real links, each datagram would wake a thread: the wake-up costs more than the
//! datagram. An interval is a small part of the round trip, so neither acknowledgements nor data
//! come noticeably later. Acknowledgements measure the round trip of the last datagram of a batch,
//! which has waited least.

use std::time::{Duration, Instant};

use mpquic_core::{Connection, PathState};

/// The possible intervals; tokio's timers end on whole milliseconds.
const INTERVALS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(2)];
/// An interval is at most this part of the shortest round trip of the connections.
const PARTS_OF_ROUND_TRIP: u32 = 8;
/// The fewest datagrams that an interval should bring.
const LEAST: u32 = 3;
/// Datagrams count from this mean size on. Smaller ones are mostly acknowledgements, which the
/// sender's round trips, and so its rate, depend on.
const LEAST_SIZE: usize = 500;
/// The time over which traffic is measured.
const WINDOW: Duration = Duration::from_millis(16);
/// Of the socket's buffer, an interval may fill at most this part. The kernel counts a datagram
/// with about twice its size, and a timer may fire late.
const PARTS_OF_BUFFER: usize = 8;

/// How long the round trip of a connection is not measured again.
const KEPT: Duration = Duration::from_millis(100);

/// Datagrams that a turn of the socket's task has read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Read {
    pub(crate) datagrams: usize,
    pub(crate) bytes: usize,
}

/// The shortest round trip of a connection's active paths.
#[derive(Debug, Default)]
pub(crate) struct RoundTrip {
    shortest: Duration,
    measured: Option<Instant>,
}

impl RoundTrip {
    /// The round trip, at most [`KEPT`] old.
    pub(crate) fn get(&mut self, now: Instant, connection: &Connection) -> Duration {
        let is_old = |at| now.saturating_duration_since(at) >= KEPT;
        if self.measured.is_none_or(is_old) {
            let stats = (connection.paths()).filter_map(|path| connection.path_stats(path));
            let active = stats.filter(|stats| stats.state == PathState::Active);
            let round_trips = active.map(|stats| stats.min_rtt);
            self.shortest = round_trips.min().unwrap_or_default();
            self.measured = Some(now);
        }
        self.shortest
    }
}

/// The traffic of a socket, and the interval at which it suffices to read the socket.
#[derive(Debug, Default)]
pub(crate) struct Polling {
    since: Option<Instant>,
    read: Read,
    /// The shortest round trip of connections that received datagrams in this window.
    round_trip: Option<Duration>,
    interval: Option<Duration>,
}

impl Polling {
    /// A connection with this shortest round trip received datagrams. Without a known round trip,
    /// each datagram counts.
    pub(crate) fn on_connection(&mut self, round_trip: Option<Duration>) {
        let round_trip = round_trip.unwrap_or_default();
        let shortest = self
            .round_trip
            .map_or(round_trip, |known| known.min(round_trip));
        self.round_trip = Some(shortest);
        if self
            .interval
            .is_some_and(|interval| !suits(interval, shortest))
        {
            self.interval = None;
        }
    }

    /// Datagrams were read from a socket with a buffer of `buffer` bytes. Returns how long the
    /// next reading may wait; `None` for the next datagram.
    pub(crate) fn on_read(&mut self, now: Instant, read: Read, buffer: usize) -> Option<Duration> {
        self.read.datagrams += read.datagrams;
        self.read.bytes += read.bytes;
        let since = *self.since.get_or_insert(now);
        let elapsed = now.saturating_duration_since(since);
        if elapsed >= WINDOW {
            self.interval = self.choose(elapsed, buffer);
            self.read = Read::default();
            self.round_trip = None;
            self.since = Some(now);
        }
        self.interval
    }

    /// The shortest interval that brings enough datagrams.
    fn choose(&self, elapsed: Duration, buffer: usize) -> Option<Duration> {
        let Read { datagrams, bytes } = self.read;
        let round_trip = self.round_trip?;
        if datagrams == 0 || bytes < LEAST_SIZE * datagrams {
            return None;
        }
        let each = elapsed / u32::try_from(datagrams).ok()?;
        let brings_enough = |interval: &&Duration| LEAST * each <= **interval;
        let interval = *INTERVALS.iter().find(brings_enough)?;
        let intervals = elapsed.as_nanos() / interval.as_nanos();
        let of_interval = bytes / usize::try_from(intervals).ok()?.max(1);
        let fits = of_interval <= buffer / PARTS_OF_BUFFER;
        (fits && suits(interval, round_trip)).then_some(interval)
    }
}

fn suits(interval: Duration, round_trip: Duration) -> bool {
    PARTS_OF_ROUND_TRIP * interval <= round_trip
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Runtime, TokioRuntime};

    const MS: Duration = Duration::from_millis(1);
    const BUFFER: usize = 1 << 19;

    /// The interval after a second with a datagram of `size` bytes in each `each`.
    fn interval(each: Duration, size: usize, round_trip: Option<Duration>) -> Option<Duration> {
        let start = TokioRuntime.now();
        let mut polling = Polling::default();
        let read = Read {
            datagrams: 1,
            bytes: size,
        };
        let mut interval = None;
        for count in 0..(Duration::from_secs(1).as_nanos() / each.as_nanos()) as u32 {
            polling.on_connection(round_trip);
            interval = polling.on_read(start + count * each, read, BUFFER);
        }
        interval
    }

    #[test]
    fn interval_brings_three_datagrams_or_there_is_none() {
        let micros = Duration::from_micros;
        for (each, expected) in [
            (20, Some(MS)),
            (330, Some(MS)),
            (340, Some(2 * MS)),
            (660, Some(2 * MS)),
            (680, None),
        ] {
            let found = interval(micros(each), 1200, Some(100 * MS));
            assert_eq!(found, expected, "{each} µs");
        }
    }

    #[test]
    fn interval_is_at_most_an_eighth_of_the_shortest_round_trip() {
        let (quick, slow) = (Duration::from_micros(100), Duration::from_micros(500));
        assert_eq!(interval(quick, 1200, Some(8 * MS)), Some(MS));
        assert_eq!(interval(quick, 1200, Some(7 * MS)), None);
        assert_eq!(interval(slow, 1200, Some(16 * MS)), Some(2 * MS));
        assert_eq!(interval(slow, 1200, Some(15 * MS)), None);
        assert_eq!(interval(quick, 1200, None), None);
    }

    #[test]
    fn acknowledgements_are_read_at_once() {
        let each = Duration::from_micros(100);
        assert_eq!(interval(each, 499, Some(100 * MS)), None);
        assert_eq!(interval(each, 500, Some(100 * MS)), Some(MS));
    }

    #[test]
    fn an_interval_fills_an_eighth_of_the_buffer_at_most() {
        let each = Duration::from_micros(10);
        // A hundred datagrams come in a millisecond.
        assert_eq!(interval(each, 600, Some(100 * MS)), Some(MS));
        assert_eq!(interval(each, 700, Some(100 * MS)), None);
    }

    /// A connection over a short way ends the intervals at once, and silence ends them in time.
    #[test]
    fn a_short_round_trip_or_less_traffic_ends_the_intervals() {
        let start = TokioRuntime.now();
        let read = Read {
            datagrams: 5,
            bytes: 6000,
        };
        let begin = || {
            let mut polling = Polling::default();
            for count in 0..=16 {
                polling.on_connection(Some(100 * MS));
                polling.on_read(start + count * MS, read, BUFFER);
            }
            polling
        };
        let mut polling = begin();
        let at = |millis: u32| start + millis * MS;
        assert_eq!(polling.on_read(at(17), Read::default(), BUFFER), Some(MS));
        polling.on_connection(Some(MS));
        assert_eq!(polling.on_read(at(18), read, BUFFER), None);
        let mut polling = begin();
        for millis in 17..32 {
            assert_eq!(
                polling.on_read(at(millis), Read::default(), BUFFER),
                Some(MS)
            );
        }
        assert_eq!(polling.on_read(at(32), Read::default(), BUFFER), None);
    }
}
