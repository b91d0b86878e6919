//! The handshake: TLS and its two packet number spaces, keys, versions, tokens, 0-RTT and the checks
//! of transport parameters.
//!
//! [`Handshake`] speaks to TLS and keeps what it makes. What the rest of a connection has to do
//! about it comes out as [`Step`]s.

mod level;

mod open;
mod parameters;
mod retry;
mod send;
pub(crate) mod setup;
mod version;
mod zero_rtt;

use bytes::Bytes;
use quinn_proto::ConnectionId;
use rustls::pki_types::CertificateDer;

pub(crate) use level::Level;
pub(crate) use parameters::local_parameters;
pub(crate) use send::NOT_ONE_RTT;
pub(crate) use version::Versions;

use crate::crypto::key_phase::OneRttKeys;
use crate::crypto::{ExportError, HandshakeData, Session};
use crate::error::{Fault, TransportError};
use crate::event::{EarlyData, Event};
use crate::ids::{PathId, SpaceId};
use crate::outbox::Outbox;
use crate::protect::buffered::BufferedPackets;
use crate::qlog;
use crate::recorder::packet_type;
use crate::stream::crypto_stream::CryptoStream;
use crate::wire::frame::PacketType;
use crate::wire::transport_parameters::TransportParameters;
use parameters::FirstCids;
use setup::{ConnectionSetup, Role};
use zero_rtt::ZeroRttKeys;

/// Bytes of CRYPTO data buffered out of order at least (RFC 9000 section 7.5).
const MIN_CRYPTO_BUFFER: usize = 4096;

/// Something the handshake achieved, for the rest of the connection to act on.
pub(crate) enum Step {
    /// The peer is reached with this connection ID from now on.
    PeerCid(ConnectionId),
    /// The client's address is proven.
    AddressValidated,
    /// Client: 0-RTT may be sent under these limits of the earlier connection.
    ZeroRttOffered(Box<TransportParameters>),
    /// Client: 0-RTT never happened (RFC 9001 section 4.6.2).
    ZeroRttRejected,
    /// Client: the server kept nothing of what was sent, and 0-RTT is to be sent again (RFC 9000
    /// section 17.2.5.3).
    Retried,
    /// Client: the server speaks none of our versions.
    VersionMismatch,
    /// The peer's parameters hold.
    PeerParameters(Box<TransportParameters>),
    /// TLS is done (RFC 9001 section 4.1.1).
    Complete,
    /// So it is at the peer (RFC 9001 section 4.1.2).
    Confirmed,
    /// A level is over, and what it had in flight with it (RFC 9002 section 6.4).
    LevelDiscarded(Box<Level>),
}

/// The state of the handshake, and what outlives it: TLS and the 1-RTT keys.
pub(crate) struct Handshake {
    role: Role,
    session: Box<dyn Session>,
    versions: Versions,
    /// Server: CRYPTO bytes that came before the version is chosen and the session started.
    first_flight: Option<Vec<u8>>,
    initial: Option<Box<Level>>,
    handshake: Option<Box<Level>>,
    one_rtt: Option<OneRttKeys>,
    /// CRYPTO of the 1-RTT level: session tickets. `None` once a server's have arrived.
    crypto: Option<Box<CryptoStream>>,
    /// Bytes of CRYPTO data buffered out of order.
    crypto_buffer: usize,
    /// 1-RTT packets that cannot be handled yet.
    buffered: BufferedPackets,
    zero_rtt: Option<Box<ZeroRttKeys>>,
    zero_rtt_state: EarlyData,
    /// What we announce; `None` once the handshake is complete.
    local_parameters: Option<Box<TransportParameters>>,
    announces_multipath: bool,
    takes_reset_stream_at: bool,
    cids: FirstCids,
    /// Token for our Initial packets.
    token: Bytes,
    /// A NEW_TOKEN frame with this token is to be sent.
    new_token: Option<Bytes>,
    complete: bool,
    confirmed: bool,
    /// HANDSHAKE_DONE is to be sent.
    done_pending: bool,
    data_reported: bool,
    parameters_known: bool,
    is_tls_over: bool,
    /// What was achieved and not acted on yet.
    steps: Vec<Step>,
}

impl Handshake {
    pub(crate) fn new(setup: ConnectionSetup) -> Self {
        let (token, peer, first_flight) = match &setup.role {
            Role::Client(client) => (client.token.clone(), None, None),
            Role::Server(_) => (Bytes::new(), Some(setup.peer_cid), Some(Vec::new())),
        };
        let version = setup.versions.current();
        let initial = Level::new(SpaceId::Initial, version, setup.initial_keys);
        Self {
            role: setup.role,
            session: setup.session,
            versions: setup.versions,
            first_flight,
            initial: Some(Box::new(initial)),
            handshake: None,
            one_rtt: None,
            crypto: Some(Box::default()),
            crypto_buffer: setup.transport.crypto_buffer.max(MIN_CRYPTO_BUFFER),
            buffered: BufferedPackets::default(),
            zero_rtt: None,
            zero_rtt_state: EarlyData::NotOffered,
            announces_multipath: setup.local_parameters.initial_max_path_id.is_some(),
            takes_reset_stream_at: setup.local_parameters.reset_stream_at,
            local_parameters: Some(Box::new(setup.local_parameters)),
            cids: FirstCids {
                local: setup.local_cid,
                initial: setup.initial_dcid,
                original: setup.initial_dcid,
                retry: None,
                peer,
            },
            token,
            new_token: None,
            complete: false,
            confirmed: false,
            done_pending: false,
            data_reported: false,
            parameters_known: false,
            is_tls_over: false,
            steps: Vec::new(),
        }
    }

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

    /// Moves bytes between TLS and the CRYPTO streams until nothing changes. What that achieves is
    /// in [`Self::take_steps`], also if it fails in the end.
    pub(crate) fn drive(&mut self, outbox: &mut Outbox) -> Result<(), TransportError> {
        self.read_first_flight(outbox)?;
        if self.first_flight.is_some() {
            return Ok(());
        }
        self.exchange(outbox)?;
        self.accept_zero_rtt(outbox);
        self.report_data(outbox);
        self.take_peer_parameters(outbox)?;
        if !self.complete && !self.session.is_handshaking() {
            self.on_complete(outbox)?;
        }
        Ok(())
    }

    /// What was achieved since the last call, in order.
    pub(crate) fn take_steps(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.steps)
    }

    fn exchange(&mut self, outbox: &mut Outbox) -> Result<(), TransportError> {
        for space in [
            SpaceId::Initial,
            SpaceId::Handshake,
            SpaceId::Data(PathId::ZERO),
        ] {
            while let Some(data) = self.crypto_mut(space).and_then(CryptoStream::read) {
                self.session.read_handshake(&data)?;
                // Each piece may unlock keys that the next one needs.
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

    /// TLS moves on to the next level: it must have read all of this one (RFC 9001 section 4.1.3).
    fn check_consumed(&mut self, space: SpaceId) -> Result<(), TransportError> {
        match self.crypto_mut(space) {
            Some(crypto) if crypto.unread() > 0 => Err(TransportError::new(Fault::CryptoLeftOver)),
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
            outbox.event(Event::HandshakeDataReady);
        }
    }

    fn on_complete(&mut self, outbox: &mut Outbox) -> Result<(), TransportError> {
        if !self.parameters_known {
            return Err(Fault::ParametersMissing.into());
        }
        self.check_consumed(SpaceId::Handshake)?;
        self.complete = true;
        self.local_parameters = None;
        self.steps.push(Step::Complete);
        if matches!(self.role, Role::Server(_)) {
            // RFC 9001 section 4.1.2: complete means confirmed on a server.
            self.done_pending = true;
            self.confirm(outbox);
            if let Some(settled) = self.session.settle() {
                self.session = settled;
                self.is_tls_over = true;
            }
        }
        Ok(())
    }

    /// A HANDSHAKE_DONE frame arrived.
    pub(crate) fn on_handshake_done(&mut self, outbox: &mut Outbox) -> Result<(), TransportError> {
        if matches!(self.role, Role::Server(_)) {
            // RFC 9000 section 19.20
            return Err(TransportError::new(Fault::HandshakeDoneFromClient));
        }
        self.confirm(outbox);
        Ok(())
    }

    fn confirm(&mut self, outbox: &mut Outbox) {
        if !self.confirmed {
            self.confirmed = true;
            // RFC 9001 section 4.9.2
            self.discard_level(SpaceId::Handshake, outbox);
            self.discard_level(SpaceId::Initial, outbox);
            self.steps.push(Step::Confirmed);
        }
    }

    /// Drops a level with its keys.
    pub(crate) fn discard_level(&mut self, space: SpaceId, outbox: &mut Outbox) {
        let level = match space {
            SpaceId::Initial => self.initial.take(),
            SpaceId::Handshake => self.handshake.take(),
            SpaceId::Data(_) => None,
        };
        if let Some(level) = level {
            outbox.log.keys_discarded(packet_type(space));
            self.steps.push(Step::LevelDiscarded(level));
        }
    }

    /// True once TLS is done (RFC 9001 section 4.1.1).
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// True once TLS is done at the peer, too (RFC 9001 section 4.1.2).
    pub(crate) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// ALPN and server name, once known.
    pub(crate) fn data(&self) -> Option<HandshakeData> {
        self.session.handshake_data()
    }

    /// The peer's certificates, once the handshake is complete.
    pub(crate) fn peer_certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        self.session.peer_certificates()
    }

    /// Fills `output` with keying material (RFC 8446 section 7.5).
    pub(crate) fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportError> {
        if !self.complete {
            return Err(ExportError::HandshakeIncomplete);
        }
        self.session.export_keying_material(output, label, context)
    }

    /// Gives back memory kept for reuse.
    pub(crate) fn trim(&mut self) {
        self.buffered.trim();
    }
}
