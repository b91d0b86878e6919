//! Doubts whether the proxy still knows a connection, or whether a client still exists, and answers
//! to them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mpquic_proxy::shares::Activity;
use mpquic_tokio::{Connection, PathState, VarInt};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::client::knock;

/// The code for a connection that ends without an error: H3_NO_ERROR.
pub(super) const NO_ERROR: VarInt = VarInt::from_u32(0x100);
/// The time between two looks at a connection.
const LOOK: Duration = Duration::from_millis(500);

/// A client that was silent for longer is asked for a packet. Its keep-alives come every five
/// seconds.
const QUIET: Duration = Duration::from_secs(7);
/// The longest pause between questions to a silent client.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// How long a peer has left packets without an answer, by looks at the counters of datagrams.
#[derive(Debug, Default)]
struct Silence {
    received: u64,
    /// Datagrams sent up to the first look without a new datagram from the peer. The last
    /// acknowledgements are among them, and wait for no answer.
    sent: Option<u64>,
    /// The first look after a datagram that waits for an answer.
    since: Option<Instant>,
}

impl Silence {
    /// The time that datagrams have waited for an answer; `None` if none waits.
    fn look(&mut self, now: Instant, received: u64, sent: u64) -> Option<Duration> {
        if received != self.received {
            *self = Self {
                received,
                ..Self::default()
            };
            return None;
        }
        let answered = *self.sent.get_or_insert(sent);
        if sent > answered {
            self.since.get_or_insert(now);
        }
        self.since.map(|since| now.saturating_duration_since(since))
    }
}

/// Waits until the proxy has left packets without an answer for `patience`, on all paths.
pub(super) async fn until_silent(connection: &Connection, patience: Duration) {
    let mut looks = looks();
    let mut silence = Silence::default();
    loop {
        let now = looks.tick().await;
        let stats = connection.stats();
        let waits = silence.look(now, stats.datagrams_received, stats.datagrams_sent);
        match waits {
            Some(waits) if waits >= patience => return,
            // Earlier datagrams may have been tests of paths that never worked.
            Some(_) => connection.ping(),
            None => {}
        }
    }
}

/// Waits for a datagram of the proxy.
pub(super) async fn until_heard(connection: &Connection) {
    let heard = || connection.stats().datagrams_received;
    let (before, mut looks) = (heard(), looks());
    while heard() == before {
        looks.tick().await;
    }
}

/// Waits until packets have no answer, and the proxy's system reports that no program listens on
/// the proxy's port.
pub(super) async fn until_closed(connection: &Connection) {
    loop {
        until_silent(connection, LOOK).await;
        let paths = connection.path_stats().into_iter();
        let open = paths.filter(|path| path.state != PathState::Validating);
        let ways = open.map(|path| (path.four_tuple.local.ip(), path.four_tuple.remote));
        let ways: Vec<_> = ways.collect();
        let knocks = ways.iter().map(|(from, to)| {
            let from = SocketAddr::new(*from, 0);
            knock::is_closed_from(from, *to)
        });
        let heard = connection.stats().datagrams_received;
        let answers = join_all(knocks).await;
        // A proxy that answers is there.
        if answers.contains(&true) && heard == connection.stats().datagrams_received {
            return;
        }
    }
}

/// Waits until a client is silent and its system reports on all paths that the program is gone.
/// While a client is silent, its flows do not count as use of its connection: the connection gives
/// way to a new one at a limit.
pub(super) async fn until_client_gone(connection: &Connection, activity: &Arc<Activity>) {
    loop {
        let silent = connection.silent_for();
        if silent < QUIET {
            sleep(QUIET - silent).await;
            continue;
        }
        let (_suspended, ports) = (activity.suspend(), connection.watch_ports());
        let mut pause = LOOK;
        while connection.silent_for() >= QUIET {
            connection.ping();
            sleep(pause).await;
            if ports.are_closed() {
                return;
            }
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }
}

/// Ends the connection to a peer whose program is gone.
pub(super) fn forget(connection: &Connection) {
    connection.close(NO_ERROR, b"nobody listens");
}

fn looks() -> tokio::time::Interval {
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last acknowledgement leaves after the last datagram of the peer, and has no answer.
    #[test]
    fn silence_begins_with_a_datagram_that_waits_for_an_answer() {
        let start = Instant::now();
        let mut silence = Silence::default();
        let mut look = |seconds, received, sent| {
            let now = start + Duration::from_secs(seconds);
            let waits = silence.look(now, received, sent);
            waits.map(|waits| waits.as_secs())
        };
        assert_eq!(look(0, 5, 7), None);
        assert_eq!(look(1, 5, 8), None, "an acknowledgement");
        assert_eq!(look(9, 5, 8), None, "nobody speaks");
        assert_eq!(look(10, 5, 9), Some(0));
        assert_eq!(look(12, 5, 9), Some(2));
        assert_eq!(look(13, 5, 12), Some(3));
        assert_eq!(look(14, 6, 12), None);
        assert_eq!(look(15, 6, 12), None);
        assert_eq!(look(16, 6, 13), Some(0));
    }
}
