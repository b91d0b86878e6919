//! Probe timeouts (RFC 9002 section 6.2).

use std::time::{Duration, Instant};

use super::Recovery;
use crate::ids::SpaceId;
use crate::space::PacketNumberSpace;

/// What the connection knows when a path's recovery timer is set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeoutContext {
    /// The peer's `max_ack_delay`.
    pub(crate) peer_max_ack_delay: Duration,
    /// The handshake is confirmed; before, the application space has no probe timeout.
    pub(crate) handshake_confirmed: bool,
    /// See [`AckContext::peer_validated_address`](super::AckContext).
    pub(crate) peer_validated_address: bool,
    /// The anti-amplification limit forbids sending: no probe timeout (RFC 9002 section 6.2.2.1).
    pub(crate) amplification_limited: bool,
    /// Handshake keys are there: a client with nothing in flight probes with a Handshake packet.
    pub(crate) has_handshake_keys: bool,
}

/// What to do when a recovery timer fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeoutKind {
    /// Call [`Recovery::detect_lost`] for the space.
    Loss,
    /// Call [`Recovery::on_probe_timeout`] for the space, then send its `probes`.
    Probe,
}

/// The next recovery timeout of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecoveryTimeout {
    /// When.
    pub(crate) at: Instant,
    /// The space it concerns.
    pub(crate) space: SpaceId,
    /// What to do.
    pub(crate) kind: TimeoutKind,
}

impl Recovery {
    /// The probe timeout without backoff. `max_ack_delay` is the peer's, zero for Initial and
    /// Handshake packets.
    pub(crate) fn pto(&self, max_ack_delay: Duration) -> Duration {
        self.rtt.pto_base() + max_ack_delay
    }

    /// The earliest timeout of the path's spaces: a loss timer if there is one, else the probe
    /// timeout (RFC 9002 A.8). With nothing in flight there is one only for a client whose peer may
    /// be held by the anti-amplification limit.
    pub(crate) fn next_timeout<'a>(
        &self,
        _spaces: impl IntoIterator<Item = &'a PacketNumberSpace>,
        _cx: &TimeoutContext,
    ) -> Option<RecoveryTimeout> {
        todo!()
    }

    /// A probe timeout passed: backs off and asks for probes in `space`. Nothing is declared lost
    /// (MP-156).
    pub(crate) fn on_probe_timeout(&mut self, _space: &mut PacketNumberSpace, _now: Instant) {
        todo!()
    }
}
