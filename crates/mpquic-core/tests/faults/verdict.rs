//! Why connections ended, and whether they may have.

use std::time::{Duration, Instant};

use mpquic_core::{ConnectionError, Event, Fault, FrameCounts, TransportErrorCode, VarInt};
use mpquic_sim::{Hosted, Pair, Side};

use super::plan::{Ending, Plan};

const SIDES: [Side; 2] = [Side::Client, Side::Server];
/// The reason that applications give when they close.
pub(super) const REASON: &str = "enough";
/// How long after the end of all faults packets may still be late, and paths take to be used again.
const AFTERMATH: Duration = Duration::from_secs(20);

/// What a side has heard of the other one.
#[derive(Debug, Clone)]
struct Heard {
    frames: FrameCounts,
    /// When its last packet was received, by the side's own clock.
    last: Instant,
}

/// What happened that may end a connection.
pub(super) struct Verdict {
    started: [Instant; 2],
    heard: [Heard; 2],
    /// The shorter timeout, as connected sides agree.
    idle_timeout: Duration,
    handshake: [Duration; 2],
    closed_by: Option<Side>,
    /// At the close, each side knew of the other side's keys.
    was_confirmed: bool,
    is_path_closed: bool,
    /// The client has another address, or the server sees another one.
    is_moved: bool,
    is_restarted: bool,
    healed: Option<Instant>,
    is_complete: bool,
}

impl Verdict {
    pub(super) fn new(pair: &Pair, plan: &Plan) -> Self {
        let sides = [&plan.drawn.setup.client, &plan.drawn.setup.server];
        let timeouts = sides.iter().filter_map(|side| side.max_idle_timeout);
        let heard = |side| Heard {
            frames: FrameCounts::default(),
            last: pair.time(side),
        };
        Self {
            started: SIDES.map(|side| pair.time(side)),
            heard: SIDES.map(heard),
            idle_timeout: timeouts.min().expect("one has a timeout"),
            handshake: sides.map(|side| side.max_handshake_duration),
            closed_by: None,
            was_confirmed: false,
            is_path_closed: false,
            is_moved: false,
            is_restarted: plan.ending == Ending::Restart,
            healed: None,
            is_complete: false,
        }
    }

    /// Notes whether packets were received since the last time.
    pub(super) fn listen(&mut self, pair: &Pair) {
        for side in SIDES {
            let Some(hosted) = pair.hosted(side) else {
                continue;
            };
            let frames = hosted.connection.stats().frames_received;
            let heard = &mut self.heard[side as usize];
            if heard.frames != frames {
                heard.frames = frames;
                heard.last = pair.time(side);
            }
        }
    }

    pub(super) fn on_path_closed(&mut self) {
        self.is_path_closed = true;
    }

    pub(super) fn on_new_address(&mut self) {
        self.is_moved = true;
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(super) fn on_healed(&mut self, pair: &Pair) {
        self.healed = Some(pair.now());
    }

    pub(super) fn since_healed(&self, pair: &Pair) -> Duration {
        self.healed
            .map_or(Duration::ZERO, |healed| pair.now() - healed)
    }

    pub(super) fn on_complete(&mut self) {
        self.is_complete = true;
    }

    pub(super) fn on_close(&mut self, by: Side, pair: &Pair) {
        let confirmed = |side| pair.has_event(side, &Event::HandshakeConfirmed);
        self.closed_by = Some(by);
        self.was_confirmed = SIDES.into_iter().all(confirmed);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed_by.is_some()
    }

    /// Checks why the connections of those who live ended.
    pub(super) fn check(&self, pair: &Pair, is_dead: [bool; 2]) {
        for side in SIDES {
            if is_dead[side as usize] || pair.hosted(side).is_none() {
                continue;
            }
            let reason = reason(pair, side);
            if self.closed_by == Some(side) {
                assert!(reason.is_none(), "{side:?} closed: {reason:?}");
                continue;
            }
            let (time, reason) = reason.unwrap_or_else(|| panic!("{side:?} has no reason"));
            let expected = self.is_expected(pair, side, time, &reason);
            assert!(expected, "{side:?}: {reason:?}");
        }
    }

    fn is_expected(
        &self,
        pair: &Pair,
        side: Side,
        time: Instant,
        reason: &ConnectionError,
    ) -> bool {
        let is_closed = self.closed_by == Some(!side);
        match reason {
            ConnectionError::ApplicationClosed(close) => {
                let code = VarInt::from_u32(0);
                is_closed && close.error_code == code && close.reason == REASON.as_bytes()
            }
            ConnectionError::ConnectionClosed(close) => {
                let fault = Fault::NoPathLeft;
                let without_path = close.code == fault.code() && close.reason == fault.reason();
                // RFC 9000 section 10.2.3: what the application says stays secret before.
                let secret = close.code == TransportErrorCode::APPLICATION_ERROR;
                without_path && self.may_lack_paths(time)
                    || secret && is_closed && !self.was_confirmed
            }
            ConnectionError::TransportError(error) => {
                error.fault == Fault::NoPathLeft && self.may_lack_paths(time)
            }
            ConnectionError::TimedOut => self.is_silence(pair, side, time),
            ConnectionError::HandshakeTimedOut => {
                let limit = self.handshake[side as usize];
                time.duration_since(self.started[side as usize]) >= limit
            }
            // The other side has forgotten the connection, or never knew it.
            ConnectionError::Reset => self.is_restarted || is_drained(pair, !side),
            _ => false,
        }
    }

    /// The last path may be given up after the others were closed, or for a client that is heard
    /// from a new address, but does not answer there.
    fn may_lack_paths(&self, time: Instant) -> bool {
        let is_old = self.healed.is_none_or(|healed| time < healed + AFTERMATH);
        self.is_path_closed || self.is_moved && is_old
    }

    /// No packet arrived for the idle timeout; in a healthy network, no packet was due.
    fn is_silence(&self, pair: &Pair, side: Side, time: Instant) -> bool {
        let last = self.heard[side as usize].last;
        let is_long = time.duration_since(last) >= self.idle_timeout;
        let Some(healed) = self.healed else {
            return is_long;
        };
        // A side that has heard a packet since has no reason to give up.
        let ahead = pair.time(side) - pair.now();
        let is_old = last < healed + ahead + AFTERMATH;
        is_long && (is_old || self.is_complete || is_drained(pair, !side))
    }
}

fn is_drained(pair: &Pair, side: Side) -> bool {
    pair.hosted(side).is_some_and(Hosted::is_drained)
}

/// Cause and time of the loss of a side's connection.
fn reason(pair: &Pair, side: Side) -> Option<(Instant, ConnectionError)> {
    let events = pair.hosted(side).map(Hosted::events);
    let mut reasons = events.unwrap_or_default().iter();
    let mut reasons = reasons.by_ref().filter_map(|(time, event)| match event {
        Event::ConnectionLost { reason } => Some((*time, reason.clone())),
        _ => None,
    });
    let first = reasons.next();
    assert_eq!(reasons.next(), None, "{side:?} lost its connection twice");
    first
}
