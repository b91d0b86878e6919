//! [`Phase`]: where a path is in its life, and how much faster or slower it sends there.

/// Empties the queue startup left (`DrainPacingGain`).
const DRAIN_GAIN: f64 = 0.5;
const DOWN_GAIN: f64 = 0.9;
const UP_GAIN: f64 = 1.25;
/// Windows, in bandwidth-delay products (`DefaultCwndGain`).
const WINDOW_GAIN: f64 = 2.0;
const UP_WINDOW_GAIN: f64 = 2.25;
/// In flight while the round-trip time is measured, in bandwidth-delay products
/// (`ProbeRTTCwndGain`).
pub(super) const PROBE_RTT_WINDOW_GAIN: f64 = 0.5;

/// Where the path is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Raises the rate until it no longer helps.
    Startup,
    /// Empties the queue that startup left.
    Drain,
    /// Sends slower than delivered.
    Down,
    /// Sends as fast as delivered.
    Cruise,
    /// Fills the path for a round trip.
    Refill,
    /// Sends faster than delivered, to see whether there is more.
    Up,
    /// Keeps little in flight, to measure the round-trip time without queues.
    ProbeRtt,
}

impl Phase {
    pub(super) fn is_probe_bandwidth(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// True if more is in flight than the model allows, so that losses are expected.
    pub(super) fn is_accelerating(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }

    pub(super) fn pacing_gain(self, startup_gain: f64) -> f64 {
        match self {
            Self::Startup => startup_gain,
            Self::Drain => DRAIN_GAIN,
            Self::Down => DOWN_GAIN,
            Self::Cruise | Self::Refill | Self::ProbeRtt => 1.0,
            Self::Up => UP_GAIN,
        }
    }

    pub(super) fn window_gain(self) -> f64 {
        match self {
            Self::Up => UP_WINDOW_GAIN,
            Self::ProbeRtt => PROBE_RTT_WINDOW_GAIN,
            _ => WINDOW_GAIN,
        }
    }
}
