//! Properties of a [`Connection`], and the settings that an application can change during its use.

use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use mpquic_core::crypto::{ExportError, HandshakeData};
use mpquic_core::{
    AnnounceError, ConnectionStats, Dir, PathState, PathStats, ServerAddress, Side, VarInt,
    Version, ZeroRtt,
};
use rustls::pki_types::CertificateDer;

use crate::connection::Connection;
use crate::connection_state::LockedConnection;

/// Properties and settings.
impl Connection {
    /// True if both sides support multipath; known after the handshake.
    pub fn is_multipath(&self) -> bool {
        self.0.lock().core.is_multipath()
    }

    /// The version of QUIC in use.
    pub fn version(&self) -> Version {
        self.0.lock().core.version()
    }

    /// Counters of the connection as a whole.
    pub fn stats(&self) -> ConnectionStats {
        self.0.lock().core.stats()
    }

    /// Counters and measurements of every path: bytes, round trip, limits of congestion control.
    /// [`Self::ended_path_stats`] has those of discarded paths.
    pub fn path_stats(&self) -> Vec<PathStats> {
        let engine = self.0.lock();
        let paths = engine.core.paths();
        paths.filter_map(|id| engine.core.path_stats(id)).collect()
    }

    /// The last counters of discarded paths
    /// ([`PathEvent::Discarded`](crate::PathEvent::Discarded)), the path that was discarded first
    /// at the front. A connection keeps the last 32 of them.
    pub fn ended_path_stats(&self) -> Vec<PathStats> {
        self.0.lock().ended_paths.stats()
    }

    /// Asks the peer for an acknowledgement on each path that is open: sends a PING there.
    /// [`Path::ping`](crate::Path::ping) asks on one path.
    pub fn ping(&self) {
        let mut engine = self.0.lock();
        let paths: Vec<_> = engine.core.paths().collect();
        for id in paths {
            if let Ok(mut path) = engine.core.path_mut(id) {
                path.ping();
            }
        }
        engine.wake_task();
    }

    /// Time since the arrival of the peer's last packet on any path. [`Self::ping`] asks a silent
    /// peer for a packet.
    pub fn silent_for(&self) -> Duration {
        let engine = self.0.lock();
        let heard = self.0.began + engine.core.stats().last_received;
        engine.now().saturating_duration_since(heard)
    }

    /// The smallest smoothed RTT of the paths in use.
    pub fn rtt(&self) -> Option<Duration> {
        let stats = self.path_stats();
        let active = stats.iter().filter(|path| path.state == PathState::Active);
        active.map(|path| path.rtt).min()
    }

    /// The peer's address on the first path.
    pub fn remote_address(&self) -> Option<SocketAddr> {
        self.0.first_path().map(|tuple| tuple.remote)
    }

    /// Our address on the first path.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.0.first_path().map(|tuple| tuple.local)
    }

    /// Our IP address on the first path; `None` if the socket is bound to all addresses and the
    /// system does not report the destination of datagrams.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.0.local_ip()
    }

    /// Whether data left as 0-RTT before the end of the handshake, and whether the server accepted
    /// the data.
    pub fn zero_rtt(&self) -> ZeroRtt {
        self.0.lock().core.zero_rtt()
    }

    /// Application protocol (ALPN) and server name; `None` until TLS has negotiated them.
    pub fn handshake_data(&self) -> Option<HandshakeData> {
        self.0.lock().core.handshake_data()
    }

    /// The peer's identity: with the built-in TLS, a `Vec<CertificateDer>` like the result of
    /// [`Self::peer_certificates`]. The return type follows `quinn`. `None` before the peer is
    /// authenticated.
    pub fn peer_identity(&self) -> Option<Box<dyn Any>> {
        let certificates = self.peer_certificates()?;
        Some(Box::new(certificates))
    }

    /// The peer's certificates, its own first; `None` until the peer is authenticated.
    pub fn peer_certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        self.0.lock().core.peer_certificates()
    }

    /// Fills `output` with keying material that only the two sides of this connection can make:
    /// equal on both sides for equal `label` and `context` (RFC 5705, RFC 8446 section 7.5). Labels
    /// are registered with IANA, or begin with `EXPERIMENTAL`.
    ///
    /// # Errors
    ///
    /// [`ExportError::HandshakeIncomplete`] on a 0-RTT connection before its handshake is complete.
    /// Other errors mean a length of `label` or `output` that TLS refuses; `output` may have
    /// changed.
    pub fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportError> {
        let core = &self.0.lock().core;
        core.export_keying_material(output, label, context)
    }

    /// Whether we are client or server.
    pub fn side(&self) -> Side {
        self.0.lock().core.side()
    }

    /// Changes how many bidirectional streams the peer may have open at the same time. A lower
    /// count takes back no stream that the peer was already allowed to open.
    pub fn set_max_concurrent_bi_streams(&self, count: VarInt) {
        self.set_max_concurrent_streams(Dir::Bi, count);
    }

    /// The same for unidirectional streams.
    pub fn set_max_concurrent_uni_streams(&self, count: VarInt) {
        self.set_max_concurrent_streams(Dir::Uni, count);
    }

    fn set_max_concurrent_streams(&self, dir: Dir, count: VarInt) {
        let set = |engine: &mut LockedConnection<'_>| {
            let mut streams = engine.core.streams();
            streams.set_max_concurrent(dir, count.into_inner());
            engine.wake_task(); // MAX_STREAMS may be due.
        };
        self.0.lock().contain(set);
    }

    /// Changes how large receive windows may become, in bytes; replaces
    /// [`TransportOptions::max_receive_window`](crate::TransportOptions::max_receive_window).
    /// Windows grow no further than the paths need, except for a connection's window that began at
    /// its limit: this window follows the limit at once. A lower limit takes back no credit that
    /// the peer already has.
    pub fn set_receive_window(&self, bytes: VarInt) {
        let set = |engine: &mut LockedConnection<'_>| {
            let mut streams = engine.core.streams();
            streams.set_max_receive_window(bytes.into_inner());
            engine.wake_task(); // MAX_DATA may be due.
        };
        self.0.lock().contain(set);
    }

    /// Changes how many unacknowledged and unsent bytes the connection buffers before writes wait;
    /// replaces [`TransportOptions::send_window`](crate::TransportOptions::send_window).
    pub fn set_send_window(&self, bytes: u64) {
        let set = |engine: &mut LockedConnection<'_>| {
            engine.core.streams().set_send_window(bytes);
            engine.wake_task(); // Writers may be waiting.
        };
        self.0.lock().contain(set);
    }

    /// Starts a key update (RFC 9001 section 6). Returns false if TLS allows no update yet.
    pub fn force_key_update(&self) -> bool {
        let start = |engine: &mut LockedConnection<'_>| {
            engine.wake_task();
            let now = engine.now();
            engine.core.initiate_key_update(now)
        };
        self.0.lock().contain(start).unwrap_or(false)
    }

    /// Makes new connection IDs for all paths and asks the peer to retire the old connection IDs
    /// (RFC 9000 section 5.1.2): for example after a change of the key that encrypts connection
    /// IDs.
    pub fn replace_connection_ids(&self) {
        self.0.replace_connection_ids();
    }

    /// Server: announces further addresses to this client alone. The next call of
    /// [`Endpoint::announce_addresses`](crate::Endpoint::announce_addresses), which explains such
    /// addresses, replaces the announcement.
    ///
    /// # Errors
    ///
    /// Errors of `Endpoint::announce_addresses`, [`AnnounceError::ClientSide`] on a client, and
    /// [`AnnounceError::Closed`] after the end of the connection.
    pub fn announce_addresses(&self, addresses: &[ServerAddress]) -> Result<(), AnnounceError> {
        let announce = |engine: &mut LockedConnection<'_>| {
            engine.wake_task();
            engine.core.announce_addresses(addresses)
        };
        let announced = self.0.lock().contain(announce);
        announced.unwrap_or(Err(AnnounceError::Closed))
    }

    /// Identifies the connection within its endpoint; equal for all clones of the handle. A later
    /// connection may get the number of an ended connection.
    pub fn stable_id(&self) -> usize {
        self.0.handle.0
    }
}
