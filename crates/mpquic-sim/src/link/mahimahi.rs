//! Traces in the format of Mahimahi's `mm-link`. Each line is the time in milliseconds at which the
//! link can carry a packet.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use super::RateTrace;

/// Size of the IP packet that a line stands for, bytes.
const PACKET: f64 = 1500.0;
/// Rate of intervals without a packet in the trace, Mbit/s. A link must never stand still.
const STANDSTILL: f64 = 0.01;
/// Most intervals in a trace.
const MOST: u64 = 1_000_000;

/// A mistake in a trace.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MahimahiError {
    /// A line is not a number of milliseconds.
    #[error("line {0} is not a time in milliseconds, as 1250")]
    NotATime(usize),
    /// A line is earlier than the one before.
    #[error("line {0} is earlier than the line before")]
    Earlier(usize),
    /// The trace has no time after 0. The last line is the length of the trace.
    #[error("there is no time after 0: the last one is how long the trace is")]
    Empty,
    /// The trace has too many intervals.
    #[error("it has more than 1000000 intervals: choose longer ones")]
    TooLong,
}

impl RateTrace {
    /// Converts a trace of Mahimahi to rates in intervals of length `every`, in whole milliseconds,
    /// at least 1 ms. The rate of an interval without a packet is 0.01 Mbit/s.
    ///
    /// ```
    /// use mpquic_sim::RateTrace;
    /// use std::time::Duration;
    /// // Two packets of 1500 bytes in the first 2 ms, one in the second.
    /// let trace = RateTrace::mahimahi("1\n1\n4\n", Duration::from_millis(2))?;
    /// assert_eq!(*trace.mbit, [12.0, 6.0]);
    /// # Ok::<(), mpquic_sim::MahimahiError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`MahimahiError`] describes the mistake in the text.
    pub fn mahimahi(text: &str, every: Duration) -> Result<Self, MahimahiError> {
        let every = u64::try_from(every.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut packets: Vec<u64> = Vec::new();
        let mut last = 0;
        for (index, line) in text.lines().enumerate() {
            let line_number = index + 1;
            let time: u64 = match line.trim() {
                "" => continue,
                time => time
                    .parse()
                    .map_err(|_| MahimahiError::NotATime(line_number))?,
            };
            if time < last {
                return Err(MahimahiError::Earlier(line_number));
            }
            last = time;
            // A packet at the end of an interval belongs to that interval.
            let interval = time.saturating_sub(1) / every;
            if interval >= MOST {
                return Err(MahimahiError::TooLong);
            }
            let interval = interval as usize;
            if packets.len() <= interval {
                packets.resize(interval + 1, 0);
            }
            packets[interval] += 1;
        }
        if last == 0 {
            return Err(MahimahiError::Empty);
        }
        // Leaves out an incomplete interval at the end, unless the trace has no other interval,
        // because each rate lasts for a whole interval.
        let milliseconds = match packets.len() {
            1 => last,
            _ => every,
        };
        if packets.len() > 1 && !last.is_multiple_of(every) {
            packets.pop();
        }
        let rate = |packets: u64| {
            (packets as f64 * PACKET * 8.0 / 1e3 / milliseconds as f64).max(STANDSTILL)
        };
        let mbit: Arc<[f64]> = packets.into_iter().map(rate).collect();
        Ok(Self {
            every: Duration::from_millis(every),
            mbit,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, every_ms: u64) -> Result<Vec<f64>, MahimahiError> {
        let trace = RateTrace::mahimahi(text, Duration::from_millis(every_ms))?;
        Ok(trace.mbit.to_vec())
    }

    #[test]
    fn packets_become_rates() {
        // A packet in each millisecond is 12 Mbit/s. Then come 5 ms without a packet, then a packet
        // in every other millisecond.
        let times: Vec<_> = (1..=10).chain((15..=20).step_by(2)).collect();
        let text: String = times.iter().map(|time| format!("{time}\n")).collect();
        assert_eq!(read(&text, 5).unwrap(), [12.0, 12.0, 2.4]);
        assert_eq!(read("0\n0\n10\n", 5).unwrap(), [4.8, 2.4]);
        assert_eq!(read("1\n3\n", 5).unwrap(), [8.0]);
        assert_eq!(read("1\n\n 20 \r\n", 5).unwrap(), [2.4, 0.01, 0.01, 2.4]);
    }

    #[test]
    fn error_names_the_line_of_the_mistake() {
        for (text, error) in [
            ("", MahimahiError::Empty),
            ("0\n", MahimahiError::Empty),
            ("1\nx\n", MahimahiError::NotATime(2)),
            ("-1\n", MahimahiError::NotATime(1)),
            ("5\n4\n", MahimahiError::Earlier(2)),
            ("1\n18446744073709551615\n", MahimahiError::TooLong),
        ] {
            assert_eq!(read(text, 1), Err(error), "{text:?}");
        }
    }

    #[test]
    fn a_million_intervals_are_the_most() {
        let most = read("1000000\n", 1).unwrap();
        assert_eq!(
            (most.len(), most[0], most[999_999]),
            (1_000_000, 0.01, 12.0)
        );
        assert_eq!(read("1000001\n", 1), Err(MahimahiError::TooLong));
        // With longer intervals, there are fewer of them.
        assert_eq!(read("1000001\n", 2).unwrap().len(), 500_000);
        // The shortest interval is a millisecond.
        let trace = RateTrace::mahimahi("1\n2\n", Duration::ZERO).unwrap();
        assert_eq!(
            (trace.every, trace.mbit.len()),
            (Duration::from_millis(1), 2)
        );
    }
}
