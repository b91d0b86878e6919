//! [`Video`]: a player that fetches segments and adapts their quality to the throughput.

use std::time::{Duration, Instant};

/// How far ahead of the playing position segments are fetched.
const MAX_AHEAD: Duration = Duration::from_secs(30);
/// Share of the measured throughput that is expected to last.
const TRUST: f64 = 0.9;
/// Number of segments over which the throughput is averaged.
const MEMORY: usize = 3;

/// A video player: its position, and its requests.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Video {
    /// Bit rates, bit/s, rising.
    rates: Vec<f64>,
    segment: Duration,
    segments: usize,
    /// Bit rate of each requested segment, bit/s.
    chosen: Vec<f64>,
    asked: Option<Instant>,
    arrived: usize,
    throughputs: Vec<f64>,
    /// When playing stalls unless another segment arrives.
    plays_until: Option<Instant>,
    stalled: Duration,
}

impl Video {
    /// A player for bit rates in Mbit/s.
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

    /// When to request the next segment; `None` while a segment is being fetched, or after the
    /// last.
    pub(super) fn next_request(&self) -> Option<Instant> {
        if self.asked.is_some() || self.chosen.len() == self.segments {
            return None;
        }
        let ahead = MAX_AHEAD.max(self.segment);
        // The client requests the first segments at once, so any time in the past is right.
        self.plays_until
            .map(|until| until.checked_sub(ahead).unwrap_or(until))
    }

    /// Requests the next segment. Returns its size in bytes.
    pub(super) fn request(&mut self, now: Instant) -> u64 {
        let expected = self.throughputs.iter().rev().take(MEMORY);
        let count = expected.len() as f64;
        // The harmonic mean gives slow segments more weight.
        let expected = TRUST * count / expected.map(|rate| 1.0 / rate).sum::<f64>();
        let affordable = self.rates.iter().rev().find(|rate| **rate <= expected);
        let rate = *affordable.unwrap_or(&self.rates[0]);
        self.chosen.push(rate);
        self.asked = Some(now);
        (rate * self.segment.as_secs_f64() / 8.0) as u64
    }

    /// The requested segment has arrived.
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

    /// Mean bit rate of the segments that arrived, Mbit/s.
    pub(super) fn mean_rate(&self) -> f64 {
        let arrived = &self.chosen[..self.arrived];
        arrived.iter().sum::<f64>() / arrived.len().max(1) as f64 / 1e6
    }

    /// Total time for which playing was stalled.
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
        // The measured throughput is 4 Mbit/s; 90 % of 4 Mbit/s are too little for a rate of 4
        // Mbit/s.
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

    fn video(seconds: u32) -> Video {
        Video::new(vec![1.0, 2.0, 4.0], 4 * SECOND, seconds * SECOND)
    }

    #[test]
    fn a_video_has_as_many_segments_as_it_needs() {
        assert_eq!(
            [1, 4, 5, 8].map(|seconds| video(seconds).segments),
            [1, 1, 2, 2]
        );
        assert_eq!(video(0).segments, 1);
        assert_eq!(video(4).rates, [1e6, 2e6, 4e6]);
        assert_eq!(video(4).mean_rate(), 0.0);
    }

    #[test]
    fn no_more_than_thirty_seconds_are_fetched_ahead() {
        let start = crate::lab::epoch();
        let mut video = video(400);
        for _ in 0..9 {
            video.request(start);
            video.on_segment(start);
        }
        // The video plays for 36 s from here. The next segment is requested when 30 s are left.
        assert_eq!(video.next_request(), Some(start + 6 * SECOND));
        video.request(start + 6 * SECOND);
        assert_eq!(video.next_request(), None, "one is under way");
        // Of longer segments, one is fetched ahead.
        let mut long = Video::new(vec![1.0], 50 * SECOND, 200 * SECOND);
        for _ in 0..2 {
            long.request(start);
            long.on_segment(start);
        }
        assert_eq!(long.next_request(), Some(start + 50 * SECOND));
        for _ in 0..2 {
            long.request(start);
            long.on_segment(start);
        }
        assert!(long.is_done() && long.next_request().is_none());
    }

    #[test]
    fn throughput_is_averaged_over_the_last_three_segments() {
        let mut now = crate::lab::epoch();
        let mut video = video(400);
        let mut fetch = |video: &mut Video, millis: u64| {
            let bytes = video.request(now);
            now += Duration::from_millis(millis);
            video.on_segment(now);
            bytes
        };
        // 4 Mbit in 1 s.
        assert_eq!(fetch(&mut video, 1000), 500_000);
        // 8 Mbit in 0.5 s.
        assert_eq!(fetch(&mut video, 500), 1_000_000);
        // 0.9 times the harmonic mean of 4 and 16 is 5.76. The segment of 16 Mbit takes 40 s.
        assert_eq!(fetch(&mut video, 40_000), 2_000_000);
        // With 4, 16 and 0.4, the result is below 1.
        assert_eq!(fetch(&mut video, 1), 500_000);
        // With 16, 0.4 and 4000, it is 1.05.
        assert_eq!(fetch(&mut video, 1), 500_000);
        assert_eq!(fetch(&mut video, 1), 500_000);
        // The slow segment is forgotten.
        assert_eq!(fetch(&mut video, 1), 2_000_000);
    }
}
