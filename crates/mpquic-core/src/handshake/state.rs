//! [`Handshake`]: its fields, and methods that read them.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use quinn_proto::ConnectionId;
use rustls::pki_types::CertificateDer;

use super::level::Level;
use super::parameters::FirstCids;
use super::server_frames::ServerFrames;
use super::setup::{ConnectionSetup, Role};
use super::version::Versions;
use super::zero_rtt_keys::ZeroRttKeys;
use crate::crypto::key_phase::OneRttKeys;
use crate::crypto::{ExportError, HandshakeData, Session};
use crate::event::ZeroRtt;
use crate::ids::{FourTuple, SpaceId};
use crate::outbox::Outbox;
use crate::protect::buffered::BufferedPackets;
use crate::protect::sealer::{Sealer, ZeroRttSealer};
use crate::qlog::{self, UnnumberedKind};
use crate::stream::crypto_stream::CryptoStream;
use crate::version::Version;
use crate::wire::transport_parameters::TransportParameters;

/// Estimates of the memory for TLS and the 1-RTT keys, in bytes: during the handshake and after it.
const TLS_HANDSHAKE: usize = 12 << 10;
const TLS: usize = 6 << 10;

/// Progress of the handshake that the rest of the connection has to act on.
pub(crate) enum Step {
    /// The destination connection ID of our packets from now on.
    PeerCid(ConnectionId),
    /// The client's address is proven.
    AddressValidated(FourTuple),
    /// Client: 0-RTT may be sent, within these limits of the earlier connection.
    ZeroRttOffered(Box<TransportParameters>),
    /// Client: the server rejected 0-RTT, so data sent as 0-RTT counts as never sent (RFC 9001
    /// section 4.6.2).
    ZeroRttRejected,
    /// Client: after a Retry, the server has kept nothing, and 0-RTT has to be sent again (RFC 9000
    /// section 17.2.5.3).
    Retried,
    /// Client: the server speaks none of our versions.
    VersionMismatch,
    /// The peer's parameters are known and valid.
    PeerParameters(Box<TransportParameters>),
    /// The handshake is complete (RFC 9001 section 4.1.1).
    Complete,
    /// The handshake is confirmed (RFC 9001 section 4.1.2).
    Confirmed,
    /// A level is discarded with its data in flight (RFC 9002 section 6.4).
    LevelDiscarded(Box<Level>),
}

/// The progress of the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Progress {
    Started,
    /// The peer's transport parameters are known and valid.
    ParametersKnown,
    /// RFC 9001 section 4.1.1.
    Complete,
    /// RFC 9001 section 4.1.2.
    Confirmed,
}

/// The state of the handshake. TLS and the 1-RTT keys stay here after it, too.
pub(crate) struct Handshake {
    pub(super) role: Role,
    pub(super) session: Box<dyn Session>,
    pub(super) versions: Versions,
    /// Server: CRYPTO bytes received before the version is chosen and the session started.
    pub(super) first_flight: Option<Vec<u8>>,
    pub(super) initial: Option<Box<Level>>,
    pub(super) handshake: Option<Box<Level>>,
    pub(super) one_rtt: Option<OneRttKeys>,
    /// CRYPTO of the 1-RTT level, for session tickets. `None` on a server once the client has
    /// acknowledged its tickets.
    pub(super) crypto: Option<Box<CryptoStream>>,
    /// Bytes of CRYPTO data buffered out of order.
    pub(super) crypto_buffer: usize,
    /// 1-RTT packets that cannot be processed yet.
    pub(super) buffered: BufferedPackets,
    pub(super) zero_rtt: Option<Box<ZeroRttKeys>>,
    pub(super) zero_rtt_state: ZeroRtt,
    /// The parameters that we announce; `None` once the handshake is complete.
    pub(super) local_parameters: Option<Box<TransportParameters>>,
    pub(super) announces_multipath: bool,
    pub(super) cids: FirstCids,
    /// Token for our Initial packets.
    pub(super) token: Bytes,
    /// HANDSHAKE_DONE and NEW_TOKEN, which only a server sends.
    pub(super) server_frames: ServerFrames,
    /// The time at which an incomplete handshake ends the connection.
    deadline: Instant,
    pub(super) progress: Progress,
    /// The application was told that [`HandshakeData`] is known.
    pub(super) data_reported: bool,
    /// Server: TLS will send no further CRYPTO bytes.
    pub(super) is_tls_over: bool,
    /// Steps that were not acted on yet.
    pub(super) steps: VecDeque<Step>,
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
            crypto_buffer: setup.transport.crypto_buffer,
            buffered: BufferedPackets::default(),
            zero_rtt: None,
            zero_rtt_state: ZeroRtt::NotOffered,
            announces_multipath: setup.local_parameters.initial_max_path_id.is_some(),
            local_parameters: Some(Box::new(setup.local_parameters)),
            cids: FirstCids {
                local: setup.local_cid,
                initial: setup.initial_dcid,
                original: setup.initial_dcid,
                retry: None,
                peer,
            },
            token,
            server_frames: ServerFrames::default(),
            deadline: setup.now + setup.transport.max_handshake_duration,
            progress: Progress::Started,
            data_reported: false,
            is_tls_over: false,
            steps: VecDeque::new(),
        }
    }

    /// Lends the keys for the next packet of the application's packet number space.
    #[inline]
    pub(crate) fn sealer(&mut self) -> Option<Sealer<'_>> {
        if let Some(keys) = &mut self.one_rtt {
            return Some(Sealer::OneRtt(keys));
        }
        let keys = self.zero_rtt.as_ref()?;
        keys.remembered.as_ref()?;
        Some(Sealer::ZeroRtt(ZeroRttSealer {
            header: &*keys.header,
            packet: &*keys.packet,
            version: self.versions.original(),
            scid: self.cids.local,
        }))
    }

    /// Takes out the oldest step that was not acted on yet.
    pub(crate) fn next_step(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    /// True once the handshake is complete (RFC 9001 section 4.1.1).
    pub(crate) fn is_complete(&self) -> bool {
        self.progress >= Progress::Complete
    }

    /// True once the handshake is confirmed (RFC 9001 section 4.1.2).
    pub(crate) fn is_confirmed(&self) -> bool {
        self.progress == Progress::Confirmed
    }

    /// The time at which an incomplete handshake ends the connection; `None` once the handshake is
    /// complete. No packet moves this time.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        (!self.is_complete()).then_some(self.deadline)
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
        if !self.is_complete() {
            return Err(ExportError::HandshakeIncomplete);
        }
        self.session.export_keying_material(output, label, context)
    }

    /// Frees memory that is kept for reuse.
    pub(crate) fn trim(&mut self) {
        self.buffered.trim();
        if let Some(crypto) = &mut self.crypto {
            crypto.trim();
        }
        self.steps.shrink_to_fit();
    }

    /// Bytes of memory besides the struct itself.
    pub(crate) fn memory(&self) -> u64 {
        let levels = self.initial.iter().chain(&self.handshake);
        let levels: usize = levels.map(|level| level.memory()).sum();
        let crypto = self.crypto.as_ref().map_or(0, |crypto| crypto.memory());
        let first_flight = self.first_flight.as_ref().map_or(0, Vec::capacity);
        let parameters = usize::from(self.local_parameters.is_some());
        let rest = first_flight
            + self.buffered.memory()
            + parameters * size_of::<TransportParameters>()
            + self.steps.capacity() * size_of::<Step>()
            + if self.is_complete() {
                TLS
            } else {
                TLS_HANDSHAKE
            };
        crypto + (levels + rest) as u64
    }

    /// The version in use. A client knows it once the handshake is complete.
    pub(crate) fn version(&self) -> Version {
        self.versions.current()
    }

    /// Logs a Retry or Version Negotiation packet that the client acts on.
    pub(super) fn log_unnumbered(
        &self,
        source: &ConnectionId,
        size: usize,
        kind: UnnumberedKind<'_>,
        outbox: &mut Outbox,
    ) {
        let packet = qlog::Unnumbered {
            destination: &self.cids.local,
            source,
            original_dcid: &self.cids.original,
            size,
            kind,
        };
        outbox
            .log
            .event(|| qlog::Event::UnnumberedReceived(&packet));
    }
}
