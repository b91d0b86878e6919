//! [`Phase`]: the phases of a path, with their gains.

/// Pacing gain while the queue of startup drains (`DrainPacingGain`).
const DRAIN_GAIN: f64 = 0.5;
/// Pacing gain in [`Phase::Down`].
const DOWN_GAIN: f64 = 0.9;
/// Pacing gain in [`Phase::Up`].
const UP_GAIN: f64 = 1.25;
/// Window in most phases, in bandwidth-delay products (`DefaultCwndGain`).
const WINDOW_GAIN: f64 = 2.0;
/// Window in [`Phase::Up`], in bandwidth-delay products.
const UP_WINDOW_GAIN: f64 = 2.25;
/// Window while the minimum RTT is measured, in bandwidth-delay products (`ProbeRTTCwndGain`).
pub(super) const PROBE_RTT_WINDOW_GAIN: f64 = 0.5;

/// The phase of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Raises the rate until the delivery rate stops growing.
    Startup,
    /// Empties the queue that startup left.
    Drain,
    /// Sends slower than the path delivers.
    Down,
    /// Sends as fast as the path delivers.
    Cruise,
    /// Fills the path for a round trip.
    Refill,
    /// Sends faster than the path delivers, to find more bandwidth.
    Up,
    /// Keeps few bytes in flight, to measure the RTT without queues.
    ProbeRtt,
}

impl Phase {
    pub(super) fn is_probe_bandwidth(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// True if the phase sends more than the model allows, so that losses are expected.
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
