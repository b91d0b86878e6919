//! Probe timeouts (RFC 9002 section 6.2).

use std::time::{Duration, Instant};

use super::space::PacketNumberSpace;
use super::state::Recovery;
use crate::ids::SpaceId;
use crate::space::SentPacket;

/// The longest time between probes of a path without an alternative: a path that works again is
/// noticed within a minute (RFC 6298 section 2.5 allows the same limit for TCP).
pub(crate) const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// After this many probe timeouts in a row, a path counts as silent from the first of them on.
const SILENCE: u32 = 2;
/// After more probe timeouts in a row, only the newest [`KEPT_WHEN_SILENT`] packets are kept.
const PATIENCE: u32 = 16;
/// Number of ack-eliciting packets that a path keeps after [`PATIENCE`].
const KEPT_WHEN_SILENT: usize = 64;

/// The connection's state for setting a path's recovery timer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeoutContext {
    /// The peer's `max_ack_delay`.
    pub(crate) peer_max_ack_delay: Duration,
    /// True once the handshake is confirmed. Before, the application space has no probe timeout.
    pub(crate) handshake_confirmed: bool,
    /// See [`AckContext::peer_validated_address`](super::AckContext).
    pub(crate) peer_validated_address: bool,
    /// True while the anti-amplification limit forbids sending: then there is no probe timeout (RFC
    /// 9002 section 6.2.2.1).
    pub(crate) amplification_limited: bool,
    /// Longest probe timeout with backoff. A probe timeout that is longer without backoff stays.
    pub(crate) max_backoff: Duration,
    /// True if another path could carry the unacknowledged data of this path.
    pub(crate) has_alternative: bool,
    /// True if Handshake keys are available: then a client without packets in flight probes with a
    /// Handshake packet.
    pub(crate) has_handshake_keys: bool,
}

/// The kind of a recovery timer.
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
    /// The time of the timeout.
    pub(crate) at: Instant,
    /// The packet number space of the timeout.
    pub(crate) space: SpaceId,
    /// The kind of the timer.
    pub(crate) kind: TimeoutKind,
}

impl Recovery {
    /// The probe timeout without backoff. `max_ack_delay` is the peer's value, or zero for Initial
    /// and Handshake packets.
    pub(crate) fn pto(&self, max_ack_delay: Duration) -> Duration {
        let base = self.rtt.pto_base();
        // More than RFC 9002 section 6.2.1 asks for: acknowledgements that now take a shorter way
        // may go back to their own, longer path at any time.
        let longer = self
            .ack_path
            .least_rtt()
            .saturating_sub(self.rtt.smoothed());
        base + longer + max_ack_delay
    }

    /// The next timeout of the path's spaces: the earliest loss timer, or the earliest probe
    /// timeout if no space has a loss timer (RFC 9002 A.8). Without ack-eliciting packets in
    /// flight, only a client has a timeout, because the anti-amplification limit may stop its
    /// server.
    pub(crate) fn next_timeout<'a, I>(
        &self,
        spaces: I,
        cx: &TimeoutContext,
    ) -> Option<RecoveryTimeout>
    where
        I: IntoIterator<Item = &'a PacketNumberSpace>,
        I::IntoIter: Clone,
    {
        let spaces = spaces.into_iter();
        let loss = spaces.clone().filter_map(|space| {
            Some(RecoveryTimeout {
                at: space.loss_time?,
                space: space.id(),
                kind: TimeoutKind::Loss,
            })
        });
        if let Some(timeout) = loss.min_by_key(|timeout| timeout.at) {
            return Some(timeout);
        }
        // RFC 9002 section 6.2.2.1
        if cx.amplification_limited {
            return None;
        }
        spaces
            .filter_map(|space| self.probe_timeout(space, cx))
            .min_by_key(|timeout| timeout.at)
            .or_else(|| self.deadlock_timeout(cx))
    }

    /// The probe timeout for unacknowledged ack-eliciting packets of `space`.
    fn probe_timeout(
        &self,
        space: &PacketNumberSpace,
        cx: &TimeoutContext,
    ) -> Option<RecoveryTimeout> {
        if space.sent.ack_eliciting() == 0 {
            return None;
        }
        let max_ack_delay = match space.id() {
            SpaceId::Initial | SpaceId::Handshake => Duration::ZERO,
            // RFC 9002 section 6.2.1: no probe timeout before the handshake is confirmed
            SpaceId::Data(_) if cx.handshake_confirmed => cx.peer_max_ack_delay,
            SpaceId::Data(_) => return None,
        };
        // The last probe timeout counts as a packet, in case its probe could not be sent.
        let since = space.last_ack_eliciting_sent.max(self.last_probe_timeout)?;
        let timeout = self.backed_off(self.pto(max_ack_delay), cx.max_backoff);
        // RFC 9002 section 6.2.1 restarts the timer with every packet sent, so a sender of a slow
        // stream would notice a dead path only at the end of its window. Restarts are therefore
        // limited. If another path can carry the data, the timer expires one timeout after the peer
        // began to owe an acknowledgement. Otherwise the timer expires at the latest two timeouts
        // after packets began to wait.
        let latest = if cx.has_alternative {
            space.owed_since.max(self.last_probe_timeout)? + timeout
        } else {
            space.waiting_since.max(self.last_probe_timeout)? + 2 * timeout
        };
        Some(RecoveryTimeout {
            at: (since + timeout).min(latest),
            space: space.id(),
            kind: TimeoutKind::Probe,
        })
    }

    /// The time at which a client must send a packet, because its server may wait forever at the
    /// anti-amplification limit (RFC 9002 section 6.2.2.1).
    fn deadlock_timeout(&self, cx: &TimeoutContext) -> Option<RecoveryTimeout> {
        if cx.peer_validated_address {
            return None;
        }
        Some(RecoveryTimeout {
            at: self.last_activity + self.backed_off(self.pto(Duration::ZERO), cx.max_backoff),
            space: if cx.has_handshake_keys {
                SpaceId::Handshake
            } else {
                SpaceId::Initial
            },
            kind: TimeoutKind::Probe,
        })
    }

    fn backed_off(&self, pto: Duration, limit: Duration) -> Duration {
        let factor = 1u32.checked_shl(self.pto_count).unwrap_or(u32::MAX);
        // A PTO without backoff above the limit stays as it is.
        pto.saturating_mul(factor).min(limit.max(pto))
    }

    /// A probe timeout passed: backs off and asks for probes in `space`. No packet is declared lost
    /// (MP-156).
    pub(crate) fn on_probe_timeout(&mut self, space: &mut PacketNumberSpace, now: Instant) {
        self.pto_count = self.pto_count.saturating_add(1);
        if self.pto_count == SILENCE && self.silent_since.is_none() {
            self.silent_since = self.last_probe_timeout;
        }
        self.last_probe_timeout = Some(now);
        self.last_activity = now;
        self.ecn.on_probe_timeout(self.pto_count);
        // RFC 9002 section 6.2.4: one or two probes, but not more than unacknowledged packets
        space.probes = space.sent.ack_eliciting().clamp(1, 2) as u8;
    }

    /// After many probe timeouts in a row, removes all but the newest packets of the path, so that
    /// unanswered probes and PINGs do not accumulate. Callers must send the content of the removed
    /// packets again. Later acknowledgements of these packets are ignored.
    pub(crate) fn forget_unanswered(
        &mut self,
        space: &mut PacketNumberSpace,
    ) -> impl Iterator<Item = SentPacket> {
        let is_silent = self.pto_count > PATIENCE;
        std::iter::from_fn(move || {
            if !is_silent || space.sent.ack_eliciting() <= KEPT_WHEN_SILENT {
                return None;
            }
            space.sent.pop_resolved();
            let (_, packet) = space.sent.pop_front()?;
            self.bytes_in_flight -= u64::from(packet.bytes) * u64::from(packet.in_flight);
            Some(packet)
        })
    }
}

#[cfg(test)]
mod tests;
