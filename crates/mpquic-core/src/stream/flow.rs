//! Credit (RFC 9000 section 4): the same code for the connection's bytes, a stream's bytes and the
//! number of streams.

use crate::wire::buf::VARINT_MAX;

/// The peer is told of a new limit when one part in this many of the window has become free.
const UPDATE_SHARE: u64 = 4;

/// Credit we give the peer.
#[derive(Debug, Clone)]
pub(crate) struct ReceiveCredit {
    /// The limit the peer knows.
    announced: u64,
    /// How much of it the peer has used.
    received: u64,
    /// Units read by the application or dropped by us.
    consumed: u64,
    /// Units that the peer may send beyond [`Self::consumed`].
    window: u64,
    /// The limit must be announced, however little it rose.
    due: bool,
    /// A BLOCKED frame of the peer names the announced limit.
    is_peer_blocked: bool,
    /// Value of `consumed` from which the limit is worth announcing. The value is stored, because
    /// every packet asks.
    announce_from: u64,
}

impl ReceiveCredit {
    /// Credit for `window` units, which the transport parameters announce.
    pub(crate) fn new(window: u64) -> Self {
        let window = window.min(VARINT_MAX);
        let mut credit = Self {
            announced: window,
            received: 0,
            consumed: 0,
            window,
            due: false,
            is_peer_blocked: false,
            announce_from: 0,
        };
        credit.plan_announcement();
        credit
    }

    /// Call when the window has changed, or the limit was announced.
    fn plan_announcement(&mut self) {
        let next = self.announced + (self.window / UPDATE_SHARE).max(1);
        // The largest limit cannot rise.
        self.announce_from = if next <= VARINT_MAX {
            next.saturating_sub(self.window)
        } else {
            u64::MAX
        };
    }

    /// How much the peer may still use.
    pub(crate) fn available(&self) -> u64 {
        self.announced - self.received
    }

    /// The limit the peer knows.
    #[cfg(test)]
    pub(crate) fn announced(&self) -> u64 {
        self.announced
    }

    /// How much the peer has used.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// The peer used `amount` of its credit; false for more than its credit.
    #[must_use]
    pub(crate) fn on_received(&mut self, amount: u64) -> bool {
        if amount > self.available() {
            return false;
        }
        self.received += amount;
        true
    }

    /// The application consumed `amount`.
    pub(crate) fn on_consumed(&mut self, amount: u64) {
        self.consumed += amount;
        debug_assert!(self.consumed <= self.received);
    }

    /// Received and not consumed.
    pub(crate) fn held(&self) -> u64 {
        self.received - self.consumed
    }

    /// Changes the window. A larger window is announced at once; after a smaller one, the limit
    /// stays until the application has consumed enough.
    pub(crate) fn set_window(&mut self, window: u64) {
        self.window = window.min(VARINT_MAX);
        self.due |= self.limit() > self.announced;
        self.plan_announcement();
    }

    /// Units that the peer may send beyond [`Self::consumed`].
    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    /// Widens the window; it never shrinks.
    pub(crate) fn grow(&mut self, window: u64) {
        let window = window.min(VARINT_MAX);
        if window > self.window {
            self.window = window;
            self.plan_announcement();
        }
    }

    /// True if the limit rose enough to be worth a frame, or the last frame was lost.
    #[inline]
    pub(crate) fn wants_update(&self) -> bool {
        self.due || self.consumed >= self.announce_from
    }

    /// True if the peer has no credit left, by our count or by its BLOCKED frame, and units are
    /// free again. Frames of units that the peer has used may still be on their way.
    #[inline]
    pub(crate) fn is_exhausted(&self) -> bool {
        (self.is_peer_blocked || self.available() == 0) && self.limit() > self.announced
    }

    /// The limit to write into a frame.
    pub(crate) fn limit(&self) -> u64 {
        (self.consumed.saturating_add(self.window))
            .clamp(self.announced, VARINT_MAX.max(self.announced))
    }

    /// A frame with our limit was written.
    pub(crate) fn on_announced(&mut self) {
        self.announced = self.limit();
        self.due = false;
        self.is_peer_blocked = false;
        self.plan_announcement();
    }

    /// A frame with our limit was lost.
    pub(crate) fn on_lost(&mut self) {
        self.due = true;
    }

    /// The peer says that the limit stops it: if the limit has risen since, the peer is told at
    /// once.
    pub(crate) fn on_peer_blocked(&mut self) {
        self.due |= self.limit() > self.announced;
        self.is_peer_blocked = true;
    }
}

/// Credit the peer gives us.
#[derive(Debug, Clone, Default)]
pub(crate) struct SendCredit {
    limit: u64,
    used: u64,
    /// The limit that stopped us, whether or not the peer was told yet.
    blocked_at: Option<u64>,
    /// The peer is to be told of it.
    wants_report: bool,
}

impl SendCredit {
    /// How much we may still use.
    pub(crate) fn available(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    /// Sets a new limit; returns whether it rose. A smaller one is outdated and ignored.
    pub(crate) fn raise(&mut self, limit: u64) -> bool {
        let rises = limit > self.limit;
        if rises {
            self.limit = limit;
        }
        rises
    }

    /// Uses `amount`, which must be available.
    pub(crate) fn take(&mut self, amount: u64) {
        debug_assert!(amount <= self.available());
        self.used += amount;
    }

    /// We have something to send but no credit: the peer is told, once for each limit.
    pub(crate) fn on_blocked(&mut self) {
        if !self.is_blocked() {
            self.blocked_at = Some(self.limit);
            self.wants_report = true;
        }
    }

    /// True if the limit stopped us, and has not risen since.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked_at == Some(self.limit)
    }

    /// The limit to write into a BLOCKED frame, if one is due.
    pub(crate) fn report(&self) -> Option<u64> {
        (self.wants_report && self.available() == 0).then_some(self.limit)
    }

    /// A frame that reports the blocking limit was written.
    pub(crate) fn on_reported(&mut self) {
        self.wants_report = false;
    }

    /// A frame that reports the blocking limit was lost. It is sent again if the limit still blocks
    /// us (RFC 9000 section 13.3).
    pub(crate) fn on_report_lost(&mut self) {
        self.wants_report = self.is_blocked();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_cannot_use_more_than_was_announced() {
        let mut credit = ReceiveCredit::new(100);
        assert!(credit.on_received(60));
        assert!(!credit.on_received(41));
        assert!(credit.on_received(40));
        assert_eq!(credit.available(), 0);
        credit.on_consumed(100);
        // Not before the frame is written.
        assert!(!credit.on_received(1));
        credit.on_announced();
        assert!(credit.on_received(100));
    }

    #[test]
    fn updates_wait_for_a_quarter_of_the_window() {
        let mut credit = ReceiveCredit::new(100);
        assert!(credit.on_received(100));
        credit.on_consumed(24);
        assert!(!credit.wants_update());
        credit.on_consumed(1);
        assert!(credit.wants_update());
        assert_eq!(credit.limit(), 125);
        credit.on_announced();
        assert!(!credit.wants_update());
        credit.on_lost();
        assert!(credit.wants_update());
    }

    #[test]
    fn a_peer_without_credit_waits_for_one_unit_only() {
        let mut credit = ReceiveCredit::new(100);
        assert!(credit.on_received(99));
        credit.on_consumed(1);
        assert!(!credit.is_exhausted(), "one unit is left");
        assert!(credit.on_received(1));
        assert!(credit.is_exhausted());
        credit.on_announced();
        assert!(!credit.is_exhausted());
        assert!(credit.on_received(1));
        assert!(!credit.is_exhausted(), "nothing is free");
        credit.on_consumed(1);
        assert!(credit.is_exhausted() && !credit.wants_update());
        credit.on_announced();
        credit.on_peer_blocked();
        assert!(!credit.is_exhausted());
        credit.on_consumed(1);
        assert!(credit.is_exhausted(), "the peer has used more than we know");
    }

    #[test]
    fn a_window_of_one_is_renewed_each_time() {
        let mut credit = ReceiveCredit::new(1);
        assert!(!credit.wants_update());
        assert!(credit.on_received(1));
        credit.on_consumed(1);
        assert!(credit.wants_update());
    }

    #[test]
    fn windows_grow_and_never_shrink() {
        let mut credit = ReceiveCredit::new(100);
        credit.grow(400);
        assert!(credit.wants_update());
        credit.on_announced();
        assert_eq!(credit.announced(), 400);
        credit.grow(10);
        assert_eq!(credit.limit(), 400);
        credit.grow(u64::MAX);
        assert_eq!(credit.limit(), VARINT_MAX);
    }

    #[test]
    fn a_window_that_is_set_holds_back_or_lets_go() {
        let mut credit = ReceiveCredit::new(100);
        assert!(credit.on_received(50));
        credit.set_window(20);
        assert!(!credit.wants_update());
        assert_eq!((credit.limit(), credit.available()), (100, 50));
        credit.on_consumed(50);
        assert!(!credit.wants_update(), "70 is less than was promised");
        assert!(credit.on_received(50));
        credit.on_consumed(50);
        assert!(credit.wants_update());
        assert_eq!(credit.limit(), 120);
        credit.on_announced();
        credit.set_window(21);
        assert!(credit.wants_update(), "however little");
        assert_eq!(credit.limit(), 121);
    }

    #[test]
    fn each_limit_is_reported_once() {
        let mut credit = SendCredit::default();
        assert!(credit.raise(10));
        assert!(!credit.raise(5));
        credit.take(10);
        credit.on_blocked();
        assert_eq!(credit.report(), Some(10));
        credit.on_reported();
        credit.on_blocked();
        assert_eq!(credit.report(), None);
        credit.on_report_lost();
        assert_eq!(credit.report(), Some(10));
        assert!(credit.raise(20));
        assert_eq!(credit.report(), None);
        credit.on_reported();
        credit.on_report_lost();
        assert_eq!(credit.report(), None, "no longer blocked at that limit");
    }
}
