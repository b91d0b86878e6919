//! [`Collapse`]: round trips that lose most of their bytes behind a full queue. The bandwidth that
//! such a path has shown before was that of a token bucket that is empty now, or of a link that has
//! become slower.

use super::losses::LossRound;

/// Least share of a round trip's bytes that is lost.
const SHARE: f64 = 0.5;
/// Least number of datagrams lost in the round trip.
const DATAGRAMS: f64 = 6.0;
/// Number of such round trips, one after the other. A short outage makes one.
const ROUNDS: u32 = 2;

/// Counts round trips in a row that lost most of their bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Collapse {
    rounds: u32,
}

impl Collapse {
    /// A round trip for counting losses has ended. True if enough of them lost most of their bytes.
    pub(super) fn on_round(&mut self, round: &LossRound, shows_queue: bool, mtu: f64) -> bool {
        let is_lost =
            round.lost >= DATAGRAMS * mtu && round.lost >= SHARE * (round.lost + round.acked);
        self.rounds = if is_lost && shows_queue {
            self.rounds + 1
        } else {
            0
        };
        self.rounds >= ROUNDS
    }
}
