//! 0-RTT: what a client that resumes a session sends before the handshake is complete (RFC 9001
//! section 4.6). It shares the packet number space of 1-RTT on path 0.

use std::time::{Duration, Instant};

use super::setup::Role;
use super::state::{Handshake, Step};
use super::zero_rtt_keys::ZeroRttKeys;
use crate::error::{Fault, TransportError};
use crate::event::ZeroRtt;
use crate::outbox::Outbox;
use crate::qlog;
use crate::wire::frame::PacketType;
use crate::wire::transport_parameters::TransportParameters;

/// A server keeps 0-RTT keys this many probe timeouts after the handshake (RFC 9001 section 4.9.3).
const KEEP_TIMEOUTS: u32 = 3;

impl Handshake {
    /// The state of 0-RTT.
    pub(crate) fn zero_rtt_state(&self) -> ZeroRtt {
        self.zero_rtt_state
    }

    /// Client: lets data be sent under the limits of the connection that is resumed.
    pub(super) fn offer_zero_rtt(&mut self, outbox: &mut Outbox) {
        let Some((header, packet)) = self.session.zero_rtt_keys() else {
            return;
        };
        let Ok(Some(remembered)) = self.session.transport_parameters() else {
            return;
        };
        outbox
            .log
            .event(|| qlog::Event::ParametersRestored(&remembered));
        outbox.log.handshake_keys(PacketType::ZeroRtt);
        self.zero_rtt_state = ZeroRtt::Offered;
        self.steps
            .push_back(Step::ZeroRttOffered(Box::new(remembered.clone())));
        self.zero_rtt = Some(Box::new(ZeroRttKeys {
            header,
            packet,
            remembered: Some(remembered),
            discard_at: None,
        }));
    }

    /// Client: the handshake shows whether the server accepted 0-RTT. The server's parameters
    /// `peer` are not applied yet.
    pub(super) fn resolve_zero_rtt(
        &mut self,
        peer: &TransportParameters,
        outbox: &mut Outbox,
    ) -> Result<(), TransportError> {
        if matches!(self.role, Role::Server(_)) {
            return Ok(());
        }
        let keys = self.take_zero_rtt(outbox);
        let Some(remembered) = keys.and_then(|keys| keys.remembered) else {
            return Ok(());
        };
        if self.session.zero_rtt_accepted() == Some(true) {
            self.zero_rtt_state = ZeroRtt::Accepted;
            return check_limits(&remembered, peer);
        }
        self.reject_zero_rtt();
        Ok(())
    }

    /// RFC 9001 section 4.6.2: forgets all 0-RTT data, except that packet numbers are not used
    /// twice.
    fn reject_zero_rtt(&mut self) {
        self.zero_rtt_state = ZeroRtt::Rejected;
        self.steps.push_back(Step::ZeroRttRejected);
    }

    /// Client: the connection starts over in another version, in which the session cannot be
    /// resumed.
    pub(super) fn abandon_zero_rtt(&mut self, outbox: &mut Outbox) {
        if self.take_zero_rtt(outbox).is_some() {
            self.reject_zero_rtt();
        }
    }

    /// Server: installs the keys once TLS has read the ClientHello and accepted 0-RTT.
    pub(super) fn accept_zero_rtt(&mut self, outbox: &mut Outbox) {
        if matches!(self.role, Role::Client(_))
            || self.zero_rtt.is_some()
            || self.one_rtt.is_none()
            || self.is_complete()
        {
            return;
        }
        if let Some((header, packet)) = self.session.zero_rtt_keys() {
            outbox.log.handshake_keys(PacketType::ZeroRtt);
            self.zero_rtt_state = ZeroRtt::Accepted;
            self.zero_rtt = Some(Box::new(ZeroRttKeys {
                header,
                packet,
                remembered: None,
                discard_at: None,
            }));
        }
    }

    /// Server: after the handshake, the client sends no more 0-RTT.
    pub(crate) fn retire_zero_rtt(&mut self, now: Instant, largest_pto: Duration) {
        if let (Role::Server(_), Some(keys)) = (&self.role, &mut self.zero_rtt) {
            keys.discard_at = Some(now + KEEP_TIMEOUTS * largest_pto);
        }
    }

    pub(super) fn take_zero_rtt(&mut self, outbox: &mut Outbox) -> Option<Box<ZeroRttKeys>> {
        let keys = self.zero_rtt.take()?;
        outbox.log.keys_discarded(PacketType::ZeroRtt);
        Some(keys)
    }
}

/// A server that accepts 0-RTT must not reduce the limits that the client relied on (RFC 9000
/// section 7.4.1, RFC 9221 section 3).
fn check_limits(
    remembered: &TransportParameters,
    peer: &TransportParameters,
) -> Result<(), TransportError> {
    let limits = remembered.zero_rtt_limits().into_iter();
    let reduced = limits
        .zip(peer.zero_rtt_limits())
        .any(|(before, after)| after < before);
    if reduced {
        return Err(Fault::ZeroRttLimitsReduced.into());
    }
    Ok(())
}
