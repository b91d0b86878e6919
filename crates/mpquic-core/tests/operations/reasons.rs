//! Why connections end, and why they may.

use mpquic_core::{ConnectionError, Event, Fault, PathId, PathState, TransportErrorCode, VarInt};
use mpquic_sim::{Pair, Side};

use super::operation::SIDES;

/// So many packets lost in a row hold up a side that has little to say for half a minute or more:
/// its probe timeout doubles with each.
const CUT_OFF: u64 = 7;

/// Past events that may end a connection, or keep a side from hearing of its end.
#[derive(Debug, Default)]
pub(super) struct Past {
    closed: Option<Closed>,
    /// A side has closed a path. After the other side closed the rest, no path is left (MP-128).
    is_path_left: bool,
    /// A NAT box forgot its bindings, the client has moved, or its address was never validated: the
    /// server cannot reach the client before the client's next packet.
    is_out_of_reach: bool,
}

#[derive(Debug, Clone, Copy)]
struct Closed {
    by: Side,
    code: u32,
    /// The other side's application can be told: it has all keys.
    is_confirmed: bool,
    /// Packets that were lost until then.
    lost: u64,
}

/// Why a side's connection was lost, if it was.
fn reason(pair: &Pair, side: Side) -> Option<ConnectionError> {
    let events = pair.events(side).into_iter();
    let mut reasons = events.filter_map(|event| match event {
        Event::ConnectionLost { reason } => Some(reason),
        _ => None,
    });
    let first = reasons.next();
    assert_eq!(reasons.next(), None, "{side:?} lost its connection twice");
    first
}

/// The side has not heard how the connection ended.
fn is_unheard(reason: &ConnectionError) -> bool {
    matches!(reason, ConnectionError::TimedOut | ConnectionError::Reset)
}

/// No path was left, by this side's own account or the other's.
fn is_without_path(reason: &ConnectionError) -> bool {
    let fault = Fault::NoPathLeft;
    match reason {
        ConnectionError::TransportError(error) => error.fault == fault,
        // The text is cut in packets with little room, as to an address without validation.
        ConnectionError::ConnectionClosed(close) => {
            close.code == fault.code() && fault.reason().as_bytes().starts_with(&close.reason)
        }
        _ => false,
    }
}

impl Past {
    /// The reason that applications give when they close.
    pub(super) const REASON: &str = "enough";

    pub(super) fn on_close(&mut self, by: Side, code: u32, pair: &Pair) {
        // A server may have used up the allowance of an address without validation (RFC 9000
        // section 8.1).
        let server = pair.hosted(Side::Server);
        let path = server.and_then(|server| server.connection.path_stats(PathId::ZERO));
        self.is_out_of_reach |= path.is_some_and(|path| path.state == PathState::Validating);
        let confirmed = |side| pair.has_event(side, &Event::HandshakeConfirmed);
        self.closed = Some(Closed {
            by,
            code,
            is_confirmed: confirmed(Side::Client) && confirmed(Side::Server),
            lost: pair.damaged(),
        });
    }

    pub(super) fn on_path_left(&mut self) {
        self.is_path_left = true;
    }

    pub(super) fn on_new_address(&mut self) {
        self.is_out_of_reach = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// The code of this side's close.
    pub(super) fn code_of(&self, side: Side) -> Option<u32> {
        let closed = self.closed.filter(|closed| closed.by == side)?;
        Some(closed.code)
    }

    /// Checks why both sides' connections ended.
    pub(super) fn check(&self, pair: &Pair) {
        match self.closed {
            Some(closed) => self.check_closed(pair, closed),
            None => self.check_lost(pair),
        }
    }

    /// The side that closed knows, and the other one hears code and reason unless packets are lost.
    fn check_closed(&self, pair: &Pair, closed: Closed) {
        let here = reason(pair, closed.by);
        assert!(here.is_none(), "{:?} closed: {here:?}", closed.by);
        if pair.hosted(!closed.by).is_none() {
            return;
        }
        let there = reason(pair, !closed.by).expect("the other side has lost its connection");
        let as_closed = match &there {
            ConnectionError::ApplicationClosed(close) => {
                // The text is cut in packets with little room, as to an address without validation.
                let whole = Self::REASON.as_bytes();
                let is_cut = self.is_out_of_reach && whole.starts_with(&close.reason);
                close.error_code == VarInt::from_u32(closed.code)
                    && (close.reason == whole || is_cut)
            }
            // RFC 9000 section 10.2.3: what the application says stays secret before that.
            ConnectionError::ConnectionClosed(close) => {
                !closed.is_confirmed
                    && close.code == TransportErrorCode::APPLICATION_ERROR
                    && close.reason.is_empty()
            }
            _ => false,
        };
        let may_miss = self.is_out_of_reach || pair.damaged() > closed.lost;
        let expected = as_closed
            || is_unheard(&there) && may_miss
            || is_without_path(&there) && self.is_path_left;
        assert!(expected, "{closed:?}, but the other side: {there:?}");
    }

    /// Nobody closed: both sides together have left the last path, or the network took so many
    /// packets in a row that a side was idle for too long.
    fn check_lost(&self, pair: &Pair) {
        let reasons = SIDES.map(|side| reason(pair, side));
        let is_idle = |reason: &Option<_>| *reason == Some(ConnectionError::TimedOut);
        if pair.longest_loss() >= CUT_OFF && reasons.iter().all(is_idle) {
            return;
        }
        assert!(self.is_path_left, "{reasons:?} without a reason");
        let without_path = reasons.iter().flatten().filter(|it| is_without_path(it));
        let noticed = without_path.count();
        let unheard = reasons.iter().flatten().filter(|it| is_unheard(it)).count();
        assert!(noticed >= 1 && noticed + unheard == 2, "{reasons:?}");
    }
}
