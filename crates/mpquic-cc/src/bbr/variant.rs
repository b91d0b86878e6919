//! [`Variant`]: deviations from the draft.

/// Size of a full datagram, bytes; RFC 9002 section 7.2 bounds the initial window with it.
const FULL_DATAGRAM: f64 = 1472.0;

/// Deviations from the draft.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Variant {
    /// Losses slow the path down only if they exceed the losses of the link itself. While no queue
    /// is visible, a larger share of losses is tolerated.
    pub(super) looks_for_queues: bool,
    /// Initial window, datagrams.
    initial_datagrams: f64,
    /// Pacing gain in startup, relative to the delivery rate.
    pub(super) startup_gain: f64,
    /// Growth of the window in startup, in bytes per acknowledged byte.
    pub(super) startup_growth: f64,
    /// Trains of packets find the capacity of the path.
    pub(super) sends_trains: bool,
    /// The path is emptied to measure its minimum RTT even in startup.
    pub(super) probes_early: bool,
    /// An RTT within this factor of the minimum confirms the minimum, and the path need not be
    /// emptied to measure it again. With 1, only shorter RTTs count.
    pub(super) rtt_confirmation: f64,
}

impl Variant {
    /// draft-ietf-ccwg-bbr-06. The startup gain doubles the rate in each round trip
    /// (`StartupPacingGain`).
    pub(crate) const DRAFT: Self = Self {
        looks_for_queues: false,
        initial_datagrams: 10.0,
        startup_gain: 2.77,
        startup_growth: 1.0,
        sends_trains: false,
        probes_early: true,
        rtt_confirmation: 1.0,
    };

    /// Quicker on long and lossy paths. The initial window is larger, and spread over a fifth of a
    /// round trip. After that, the rate grows as fast as a window of two bandwidth-delay products
    /// allows. The draft has the same window, so the queue at the end of startup is no longer. A
    /// long path is not emptied during startup, which would cost several round trips.
    pub(crate) const QUICK: Self = Self {
        looks_for_queues: true,
        initial_datagrams: 32.0,
        startup_gain: 4.94,
        startup_growth: 2.0,
        sends_trains: true,
        probes_early: false,
        rtt_confirmation: 1.02,
    };

    /// Initial window, bytes (RFC 9002 section 7.2 with another number of datagrams).
    pub(super) fn initial_window(&self, mtu: f64) -> f64 {
        let most = (self.initial_datagrams * FULL_DATAGRAM).max(2.0 * mtu);
        (self.initial_datagrams * mtu).min(most)
    }
}
