//! [`Variant`]: what may differ from the draft.

/// Bytes of a full datagram, with which RFC 9002 section 7.2 bounds the initial window.
const FULL_DATAGRAM: f64 = 1472.0;

/// What may differ from the draft.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Variant {
    /// Losses of a round trip slow the path down only if they are more than a link loses by itself; where no queue shows,
    /// more of them count as such.
    pub(super) looks_for_queues: bool,
    /// Datagrams of the initial window.
    initial_datagrams: f64,
    /// How much faster than delivered a path sends at the start.
    pub(super) startup_gain: f64,
    /// Bytes by which the window grows at the start for each byte that is acknowledged.
    pub(super) startup_growth: f64,
    /// Trains of packets find what the path has room for.
    pub(super) sends_trains: bool,
    /// The path is emptied to measure its round trip even before its rate is known.
    pub(super) probes_early: bool,
    /// A round trip within this factor of the shortest confirms it, and the path need not be emptied
    /// to measure it again. With 1 only shorter ones count.
    pub(super) rtt_confirmation: f64,
}

impl Variant {
    /// draft-ietf-ccwg-bbr-06. The gain doubles the rate in each round trip (`StartupPacingGain`).
    pub(crate) const DRAFT: Self = Self {
        looks_for_queues: false,
        initial_datagrams: 10.0,
        startup_gain: 2.77,
        startup_growth: 1.0,
        sends_trains: false,
        probes_early: true,
        rtt_confirmation: 1.0,
    };

    /// Quicker on long and lossy paths. It starts with more, spread over a fifth of a round trip. Then it goes on
    /// as fast as a window of two bandwidth-delay products allows, which is the draft's, so the queue
    /// at the end is no longer. A long path is not emptied while it starts, which would set it back by
    /// several round trips.
    pub(crate) const QUICK: Self = Self {
        looks_for_queues: true,
        initial_datagrams: 32.0,
        startup_gain: 4.94,
        startup_growth: 2.0,
        sends_trains: true,
        probes_early: false,
        rtt_confirmation: 1.02,
    };

    /// The initial window, bytes (RFC 9002 section 7.2 with another number of datagrams).
    pub(super) fn initial_window(&self, mtu: f64) -> f64 {
        let most = (self.initial_datagrams * FULL_DATAGRAM).max(2.0 * mtu);
        (self.initial_datagrams * mtu).min(most)
    }
}
