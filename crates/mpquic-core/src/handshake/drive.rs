//! Advances the handshake: passes bytes to and from TLS, and notes the steps that follow.

use bytes::Bytes;

use super::level::Level;
use super::setup::Role;
use super::state::{Handshake, Progress, Step};
use crate::crypto::key_phase::OneRttKeys;
use crate::error::{Fault, TransportError};
use crate::event::{Event, RouteChange};
use crate::ids::{PathId, SpaceId};
use crate::outbox::Outbox;
use crate::qlog;
use crate::random::SeededRandom;
use crate::stream::crypto_stream::CryptoStream;
use crate::wire::frame::PacketType;
use crate::wire::header::{Header, ProtectedPacket};

impl Handshake {
    /// Logs what is known from the start, and makes a client's first flight.
    pub(crate) fn start(&mut self, outbox: &mut Outbox) -> Result<(), TransportError> {
        let is_client = matches!(self.role, Role::Client(_));
        if is_client {
            self.log_local_parameters(outbox);
        }
        outbox.log.handshake_keys(PacketType::Initial);
        if is_client {
            self.offer_zero_rtt(outbox);
            self.drive(outbox)?;
        }
        Ok(())
    }

    /// Passes bytes between TLS and the CRYPTO streams until nothing changes. [`Self::next_step`]
    /// then returns the new steps, even after an error.
    pub(crate) fn drive(&mut self, outbox: &mut Outbox) -> Result<(), TransportError> {
        self.read_first_flight(outbox)?;
        if self.first_flight.is_some() {
            return Ok(());
        }
        self.exchange(outbox)?;
        self.accept_zero_rtt(outbox);
        self.report_data(outbox);
        self.take_peer_parameters(outbox)?;
        if !self.is_complete() && !self.session.is_handshaking() {
            self.on_complete(outbox)?;
        }
        Ok(())
    }

    /// Handles a Retry or Version Negotiation packet. False if it has to be dropped.
    pub(crate) fn on_unnumbered(
        &mut self,
        packet: &ProtectedPacket,
        random: &mut SeededRandom,
        outbox: &mut Outbox,
    ) -> Result<bool, TransportError> {
        match packet.header {
            Header::Retry { .. } => Ok(self.on_retry(packet, outbox)),
            Header::VersionNegotiation { .. }
            | Header::Initial { .. }
            | Header::ZeroRtt { .. }
            | Header::Handshake { .. }
            | Header::Short { .. } => {
                let acted_on = self.on_version_negotiation(packet, random, outbox)?;
                if acted_on {
                    self.drive(outbox)?;
                }
                Ok(acted_on)
            }
        }
    }

    fn exchange(&mut self, outbox: &mut Outbox) -> Result<(), TransportError> {
        for space in [
            SpaceId::Initial,
            SpaceId::Handshake,
            SpaceId::Data(PathId::ZERO),
        ] {
            while let Some(data) = self.crypto_mut(space).and_then(CryptoStream::read) {
                self.session.read_handshake(&data)?;
                // After each piece, because TLS may then write or give keys that the next piece
                // needs.
                self.write_handshake(outbox)?;
            }
        }
        self.write_handshake(outbox)
    }

    fn write_handshake(&mut self, outbox: &mut Outbox) -> Result<(), TransportError> {
        let version = self.versions.current();
        loop {
            let mut bytes = Vec::new();
            let keys = self.session.write_handshake(&mut bytes);
            let done = keys.is_none() && bytes.is_empty();
            if !bytes.is_empty() {
                let space = self.writing_level();
                if let Some(crypto) = self.crypto_mut(space) {
                    crypto.write(Bytes::from(bytes));
                }
            }
            match keys {
                Some(keys) if self.handshake.is_none() => {
                    self.check_consumed(SpaceId::Initial)?;
                    let level = Level::new(SpaceId::Handshake, version, keys);
                    self.handshake = Some(Box::new(level));
                    outbox.log.handshake_keys(PacketType::Handshake);
                }
                Some(keys) => {
                    self.one_rtt = Some(OneRttKeys::new(keys));
                    outbox.log.handshake_keys(PacketType::OneRtt);
                }
                None => {}
            }
            if done {
                return Ok(());
            }
        }
    }

    /// TLS continues with the next level, so all bytes of this level must have been read (RFC 9001
    /// section 4.1.3).
    fn check_consumed(&mut self, space: SpaceId) -> Result<(), TransportError> {
        match self.crypto_mut(space) {
            Some(crypto) if crypto.unread() > 0 => Err(Fault::CryptoLeftOver.into()),
            _ => Ok(()),
        }
    }

    fn report_data(&mut self, outbox: &mut Outbox) {
        if !self.data_reported
            && let Some(data) = self.session.handshake_data()
        {
            self.data_reported = true;
            if let Some(protocol) = &data.protocol {
                outbox.log.event(|| qlog::Event::ProtocolChosen(protocol));
            }
            if let Some(group) = data.key_exchange {
                outbox.log.event(|| qlog::Event::KeyExchangeChosen(group));
            }
            outbox.stats.key_exchange = data.key_exchange;
            outbox.event(Event::HandshakeDataReady);
        }
    }

    fn on_complete(&mut self, outbox: &mut Outbox) -> Result<(), TransportError> {
        if self.progress < Progress::ParametersKnown {
            return Err(Fault::ParametersMissing.into());
        }
        self.check_consumed(SpaceId::Handshake)?;
        self.progress = Progress::Complete;
        self.local_parameters = None;
        self.steps.push_back(Step::Complete);
        if matches!(self.role, Role::Server(_)) {
            outbox.endpoint_event(RouteChange::HandshakeComplete);
            // RFC 9001 section 4.1.2: complete means confirmed on a server.
            self.server_frames.announce_done();
            self.confirm(outbox);
            if let Some(smaller) = self.session.finish_handshake() {
                self.session = smaller;
                self.is_tls_over = true;
            }
        }
        Ok(())
    }

    /// HANDSHAKE_DONE.
    pub(crate) fn on_handshake_done(&mut self, outbox: &mut Outbox) -> Result<(), TransportError> {
        if matches!(self.role, Role::Server(_)) {
            // RFC 9000 section 19.20
            return Err(Fault::HandshakeDoneFromClient.into());
        }
        self.confirm(outbox);
        Ok(())
    }

    /// An acknowledgement for a path was accepted. RFC 9001 section 4.1.2: that of a 1-RTT packet
    /// confirms the handshake for a client, and paths other than path 0 have no other packets.
    /// HANDSHAKE_DONE may be lost with the first link.
    #[inline]
    pub(crate) fn on_path_acked(&mut self, path: PathId, outbox: &mut Outbox) {
        let confirms = self.progress == Progress::Complete && path != PathId::ZERO;
        if confirms && matches!(self.role, Role::Client(_)) {
            self.confirm(outbox);
        }
    }

    fn confirm(&mut self, outbox: &mut Outbox) {
        if !self.is_confirmed() {
            self.progress = Progress::Confirmed;
            // RFC 9001 section 4.9.2
            self.discard_level(SpaceId::Handshake, outbox);
            self.discard_level(SpaceId::Initial, outbox);
            self.steps.push_back(Step::Confirmed);
        }
    }
}
