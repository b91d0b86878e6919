//! [`AckPath`]: the path on which acknowledgements come back.

use std::time::Duration;

use crate::ids::PathId;

/// The path on which acknowledgements of one path come, which the peer chooses. It decides what a
/// round trip is (RFC 10069 section 5.4).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AckPath {
    last: Option<PathId>,
    is_other: bool,
    /// The carrier of acknowledgements changed since the last RTT sample.
    changed: bool,
    /// The smoothed RTT when they last came on their own path and left it.
    own_rtt: Option<Duration>,
}

impl AckPath {
    /// An acknowledgement came on `path`; `smoothed` is the RTT so far.
    pub(super) fn on_ack(&mut self, path: PathId, is_own: bool, smoothed: Duration) {
        let Some(before) = self.last.replace(path) else {
            self.is_other = !is_own;
            return;
        };
        if before == path {
            return;
        }
        self.changed = true;
        if !is_own && !self.is_other {
            self.own_rtt = Some(smoothed);
        }
        self.is_other = !is_own;
    }

    /// True, once, for the first RTT sample since the path changed: the smallest RTT no longer
    /// applies (MP-154).
    pub(super) fn take_change(&mut self) -> bool {
        if !self.is_other {
            self.own_rtt = None;
        }
        std::mem::take(&mut self.changed)
    }

    /// The path of incoming acknowledgements, other than their own.
    pub(super) fn carrier(&self) -> Option<PathId> {
        self.last.filter(|_| self.is_other)
    }

    /// The least RTT to wait for: acknowledgements may return to their own path at any time, for
    /// instance after a failure of the other path. A longer round trip is no sign of loss then.
    pub(super) fn least_rtt(&self) -> Duration {
        self.own_rtt.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::testing::ms;

    const OWN: PathId = PathId(1);
    const OTHER: PathId = PathId(2);

    #[test]
    fn a_change_is_reported_once_and_the_long_way_is_remembered_until_it_is_measured_again() {
        let mut path = AckPath::default();
        path.on_ack(OWN, true, ms(600));
        assert!(!path.take_change());
        assert_eq!((path.carrier(), path.least_rtt()), (None, ms(0)));
        path.on_ack(OTHER, false, ms(600));
        assert!(path.take_change());
        path.on_ack(OTHER, false, ms(325));
        assert!(!path.take_change());
        assert_eq!((path.carrier(), path.least_rtt()), (Some(OTHER), ms(600)));
        // A third path carries them, and then their own again.
        path.on_ack(PathId(3), false, ms(325));
        assert_eq!((path.take_change(), path.least_rtt()), (true, ms(600)));
        path.on_ack(OWN, true, ms(325));
        assert_eq!(path.least_rtt(), ms(600));
        assert!(path.take_change());
        assert_eq!((path.carrier(), path.least_rtt()), (None, ms(0)));
    }
}
