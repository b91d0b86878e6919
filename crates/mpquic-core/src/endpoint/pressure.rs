//! [`Pressure`]: whether clients come faster than they can be served.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use quinn_proto::ConnectionId;

use crate::config::ServerConfig;

/// Handshakes that complete are counted for this long.
const PERIOD: Duration = Duration::from_secs(1);

/// Clients that are remembered as answered: far more than send their first datagrams between those of one.
const MOST_ANSWERED: usize = 64;

/// Clients that were asked for a proof of their address last, or refused, by the connection ID of their first packets.
/// A ClientHello may take several datagrams, and there may be room again after the first one was answered: a
/// connection for the second one would wait in vain, as its client goes by that answer.
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

/// What clients have to do to be let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Demand {
    /// Nothing.
    Nothing,
    /// Prove their addresses.
    Proof,
    /// Come again later: they get no answer.
    Patience,
}

/// Watches how many handshakes complete, and how far the driver lags behind.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    /// For how long the oldest attempt has waited to be taken.
    pub(super) lag: Duration,
    /// When the present period began, and how many handshakes were complete then.
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
        // As a rule, a handshake takes two seconds at most: with more half-open connections than
        // handshakes complete in that time, some handshakes will never complete.
        let usual = recent
            .saturating_mul(2)
            .saturating_add(config.retry_min_half_open as u64);
        let come_faster = half_open as u64 >= usual || self.lag >= config.retry_attempt_lag;
        match half_open >= config.retry_threshold || (are_many && come_faster) {
            true => Demand::Proof,
            false => Demand::Nothing,
        }
    }

    /// The larger number of completed handshakes, of this period and the one before.
    fn recent(&mut self, now: Instant, completed: u64) -> u64 {
        let (start, at_start) = *self.period.get_or_insert((now, completed));
        let elapsed = now.saturating_duration_since(start);
        if elapsed >= PERIOD {
            self.before = match elapsed < 2 * PERIOD {
                true => completed - at_start,
                false => 0,
            };
            self.period = Some((now, completed));
            return self.before;
        }
        self.before.max(completed - at_start)
    }
}
