//! [`Pressure`]: decides whether new clients must prove their address, or wait.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use quinn_proto::ConnectionId;

use crate::config::ServerConfig;

/// Completed handshakes are counted over periods of this length.
const PERIOD: Duration = Duration::from_secs(1);

/// The most clients in [`Answered`]. Between two datagrams of one client's ClientHello, fewer other
/// clients arrive.
const MOST_ANSWERED: usize = 64;

/// The last clients that got a Retry or a refusal, by the destination connection ID of their first
/// packets. A ClientHello may take several datagrams. If the first datagram was answered this way,
/// a connection for the second datagram would wait in vain: the client follows the answer.
#[derive(Debug, Default)]
pub(super) struct Answered(VecDeque<(ConnectionId, Answer)>);

/// The answer that a client got instead of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Retry,
    Refusal,
}

impl Answered {
    /// Remembers the answer to a client. False if the client's last answer was the same.
    pub(super) fn insert(&mut self, dcid: ConnectionId, answer: Answer) -> bool {
        match self.0.iter_mut().find(|(known, _)| *known == dcid) {
            Some((_, last)) => std::mem::replace(last, answer) != answer,
            None => {
                self.0.truncate(MOST_ANSWERED - 1);
                self.0.push_front((dcid, answer));
                true
            }
        }
    }

    pub(super) fn contains(&self, dcid: &ConnectionId) -> bool {
        self.0.iter().any(|(known, _)| known == dcid)
    }
}

/// The condition for accepting a new client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Demand {
    /// No condition.
    Nothing,
    /// Prove their addresses.
    Proof,
    /// Try again later: the client gets no answer.
    Patience,
}

/// Watches the rate of completed handshakes and the driver's lag.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    /// Time for which the oldest attempt has waited to be accepted.
    pub(super) lag: Duration,
    /// The start of the current period, and the number of handshakes completed before it.
    period: Option<(Instant, u64)>,
    /// Handshakes that completed in the period before.
    before: u64,
}

impl Pressure {
    /// The demand on new clients with `half_open` half-open connections, after `completed`
    /// handshakes in all.
    pub(super) fn demand(
        &mut self,
        now: Instant,
        config: &ServerConfig,
        half_open: usize,
        completed: u64,
    ) -> Demand {
        let recent = self.recent(now, completed);
        let are_many = half_open >= config.retry_min_half_open;
        if are_many && self.lag >= config.max_attempt_lag {
            return Demand::Patience;
        }
        // As a rule, a handshake takes two seconds at most. If more connections are half-open than
        // handshakes complete in two seconds, some of these handshakes will never complete.
        let usual = recent
            .saturating_mul(2)
            .saturating_add(config.retry_min_half_open as u64);
        let come_faster = half_open as u64 >= usual || self.lag >= config.retry_attempt_lag;
        if half_open >= config.retry_threshold || (are_many && come_faster) {
            Demand::Proof
        } else {
            Demand::Nothing
        }
    }

    /// The larger number of completed handshakes, of this period and the one before.
    fn recent(&mut self, now: Instant, completed: u64) -> u64 {
        let (start, at_start) = *self.period.get_or_insert((now, completed));
        let elapsed = now.saturating_duration_since(start);
        if elapsed >= PERIOD {
            self.before = if elapsed < 2 * PERIOD {
                completed - at_start
            } else {
                0
            };
            self.period = Some((now, completed));
            return self.before;
        }
        self.before.max(completed - at_start)
    }
}
