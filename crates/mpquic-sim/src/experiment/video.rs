//! [`Video`]: a player that fetches segments and adapts their quality to the throughput.

use std::time::{Duration, Instant};

/// How far ahead of the playing position segments are fetched.
const MAX_AHEAD: Duration = Duration::from_secs(30);
/// Share of the measured throughput that is trusted to last.
const TRUST: f64 = 0.9;
/// Segments the throughput is averaged over.
const MEMORY: usize = 3;

/// A video player: its position, and what it asks for next.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Video {
    /// Bit/s, rising.
    rates: Vec<f64>,
    segment: Duration,
    segments: usize,
    /// Bit rate of each segment asked for.
    chosen: Vec<f64>,
    asked: Option<Instant>,
    arrived: usize,
    throughputs: Vec<f64>,
    /// When playing stalls unless another segment arrives.
    plays_until: Option<Instant>,
    stalled: Duration,
}

impl Video {
    /// Bit rates in Mbit/s.
    pub(super) fn new(rates: Vec<f64>, segment: Duration, duration: Duration) -> Self {
        let segments = (duration.as_secs_f64() / segment.as_secs_f64()).ceil();
        Self {
            rates: rates.into_iter().map(|rate| rate * 1e6).collect(),
            segment,
            segments: (segments as usize).max(1),
            chosen: Vec::new(),
            asked: None,
            arrived: 0,
            throughputs: Vec::new(),
            plays_until: None,
            stalled: Duration::ZERO,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.arrived == self.segments
    }

    /// When to ask for the next segment; `None` while one is under way, or after the last.
    pub(super) fn next_request(&self) -> Option<Instant> {
        if self.asked.is_some() || self.chosen.len() == self.segments {
            return None;
        }
        let ahead = MAX_AHEAD.max(self.segment);
        // The first segment is asked for at once, so any time in the past will do.
        self.plays_until
            .map(|until| until.checked_sub(ahead).unwrap_or(until))
    }

    /// Asks for the next segment: its size in bytes.
    pub(super) fn request(&mut self, now: Instant) -> u64 {
        let expected = self.throughputs.iter().rev().take(MEMORY);
        let count = expected.len() as f64;
        // The harmonic mean: slow segments count for more.
        let expected = TRUST * count / expected.map(|rate| 1.0 / rate).sum::<f64>();
        let affordable = self.rates.iter().rev().find(|rate| **rate <= expected);
        let rate = *affordable.unwrap_or(&self.rates[0]);
        self.chosen.push(rate);
        self.asked = Some(now);
        (rate * self.segment.as_secs_f64() / 8.0) as u64
    }

    /// The segment that was asked for has arrived.
    pub(super) fn on_segment(&mut self, now: Instant) {
        let (Some(asked), Some(rate)) = (self.asked.take(), self.chosen.last()) else {
            return;
        };
        self.arrived += 1;
        let bits = rate * self.segment.as_secs_f64();
        self.throughputs
            .push(bits / (now - asked).as_secs_f64().max(1e-6));
        let plays_until = self.plays_until.unwrap_or(now);
        self.stalled += now.saturating_duration_since(plays_until);
        self.plays_until = Some(plays_until.max(now) + self.segment);
    }

    /// The mean bit rate of the segments that arrived, Mbit/s.
    pub(super) fn mean_rate(&self) -> f64 {
        let arrived = &self.chosen[..self.arrived];
        arrived.iter().sum::<f64>() / arrived.len().max(1) as f64 / 1e6
    }

    /// How long playing was stalled.
    pub(super) fn stalled(&self) -> Duration {
        self.stalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn quality_follows_the_throughput_and_waiting_counts_as_stall() {
        let mut now = crate::lab::epoch();
        let mut video = Video::new(vec![1.0, 2.0, 4.0], 4 * SECOND, 16 * SECOND);
        assert_eq!(video.next_request(), None, "the first is asked for at once");
        assert_eq!(video.request(now), 500_000);
        now += SECOND;
        video.on_segment(now);
        // 4 Mbit/s were measured; 4 is a little too much.
        assert!(video.next_request().is_some_and(|time| time <= now));
        assert_eq!(video.request(now), 1_000_000);
        now += 6 * SECOND;
        video.on_segment(now);
        assert_eq!(video.stalled(), 2 * SECOND);
        assert_eq!(video.request(now), 500_000, "the mean is below 2 Mbit/s");
        video.on_segment(now + SECOND);
        video.request(now + SECOND);
        video.on_segment(now + 2 * SECOND);
        assert!(video.is_done());
        assert_eq!(video.stalled(), 2 * SECOND);
        assert_eq!(video.mean_rate(), 1.5);
    }
}
