//! [`Connection`]: a handle to an established connection.

use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mpquic_tokio as mp;
use mpquic_tokio::PathState;
use quinn_proto::crypto::ExportKeyingMaterialError;
use quinn_proto::{ConnectionError, ConnectionStats, Side, VarInt};

use crate::congestion::{Controller, Snapshot};
use crate::convert::connection_error;
use crate::crypto::rustls::HandshakeData;
use crate::errors::{self, SendDatagramError};
use crate::futures::{AcceptBi, AcceptUni, OpenBi, OpenUni, ReadDatagram, SendDatagram};
use crate::stats;

/// The round trip of a connection without a measurement, as RFC 9002 section 6.2.2 assumes it.
const INITIAL_RTT: Duration = Duration::from_millis(333);

/// An established connection. A clone is another handle to the same connection.
///
/// The drop of the last handle, with all streams, closes the connection with the code 0.
#[derive(Debug, Clone)]
pub struct Connection {
    pub(crate) inner: mp::Connection,
    known: Arc<Mutex<Known>>,
}

/// The last answers of a connection, for questions after the end of its paths: quinn answers them
/// always.
#[derive(Debug, Clone, Copy)]
struct Known {
    remote: SocketAddr,
    rtt: Duration,
    min_rtt: Duration,
}

impl Connection {
    pub(crate) fn new(inner: mp::Connection, remote: SocketAddr) -> Self {
        let known = Known {
            remote,
            rtt: INITIAL_RTT,
            min_rtt: INITIAL_RTT,
        };
        Self {
            inner,
            known: Arc::new(Mutex::new(known)),
        }
    }

    /// The connection of mpquic below, which has more methods: paths, their events and their
    /// figures, the scheduler.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn example(connection: mpquic_quinn::Connection) {
    /// for path in connection.as_mpquic().path_stats() {
    ///     println!("path {}: {} bytes from {}", path.id, path.bytes_received, path.four_tuple.local);
    /// }
    /// # }
    /// ```
    pub fn as_mpquic(&self) -> &mp::Connection {
        &self.inner
    }

    /// Keeps a new answer, or returns the last one.
    fn answer<T: Copy>(&self, new: Option<T>, place: impl Fn(&mut Known) -> &mut T) -> T {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let place = place(&mut known);
        *place = new.unwrap_or(*place);
        *place
    }

    /// Opens a stream in one direction; waits while the peer's limit of streams is reached.
    pub fn open_uni(&self) -> OpenUni<'_> {
        OpenUni::new(&self.inner)
    }

    /// Opens a stream in both directions; waits while the peer's limit of streams is reached. The
    /// peer learns of the stream from its first data.
    pub fn open_bi(&self) -> OpenBi<'_> {
        OpenBi::new(&self.inner)
    }

    /// Waits for the next stream in one direction that the peer opens.
    pub fn accept_uni(&self) -> AcceptUni<'_> {
        AcceptUni::new(&self.inner)
    }

    /// Waits for the next stream in both directions that the peer opens.
    pub fn accept_bi(&self) -> AcceptBi<'_> {
        AcceptBi::new(&self.inner)
    }

    /// Waits for the next DATAGRAM.
    pub fn read_datagram(&self) -> ReadDatagram<'_> {
        ReadDatagram::new(&self.inner)
    }

    /// Waits for the end of the connection, and returns the reason.
    pub async fn closed(&self) -> ConnectionError {
        connection_error(self.inner.closed().await)
    }

    /// The reason of the end; `None` while the connection is open.
    pub fn close_reason(&self) -> Option<ConnectionError> {
        self.inner.close_reason().map(connection_error)
    }

    /// Closes the connection at once: all waiting calls fail with
    /// [`ConnectionError::LocallyClosed`], and unsent data is dropped. The peer's application gets
    /// the code and the reason.
    pub fn close(&self, error_code: VarInt, reason: &[u8]) {
        self.inner.close(error_code, reason);
    }

    /// Queues a DATAGRAM. While the send buffer is full, the new DATAGRAM is dropped without an
    /// error.
    ///
    /// # Errors
    ///
    /// If the DATAGRAM can never be sent.
    pub fn send_datagram(&self, data: Bytes) -> Result<(), SendDatagramError> {
        match self.inner.send_datagram(data) {
            Ok(()) => Ok(()),
            Err(error) => errors::send_datagram(error).map_or(Ok(()), Err),
        }
    }

    /// Queues a DATAGRAM; waits while the send buffer is full.
    pub fn send_datagram_wait(&self, data: Bytes) -> SendDatagram<'_> {
        SendDatagram::new(&self.inner, data)
    }

    /// The size of the largest DATAGRAM that fits a packet; `None` if the peer accepts no DATAGRAM
    /// frames.
    pub fn max_datagram_size(&self) -> Option<usize> {
        self.inner.max_datagram_size()
    }

    /// Free bytes in the send buffer of DATAGRAMs.
    pub fn datagram_send_buffer_space(&self) -> usize {
        self.inner.datagram_send_buffer_space()
    }

    /// The side of this endpoint.
    pub fn side(&self) -> Side {
        self.inner.side()
    }

    /// The peer's address on the first path; after the end of the connection, the last known
    /// address.
    pub fn remote_address(&self) -> SocketAddr {
        self.answer(self.inner.remote_address(), |known| &mut known.remote)
    }

    /// This side's IP address on the first path, if the system reports the address.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.inner.local_ip()
    }

    /// The smallest round trip of all paths at present.
    pub fn rtt(&self) -> Duration {
        self.answer(self.inner.rtt(), |known| &mut known.rtt)
    }

    /// The smallest round trip that any open path has had.
    pub fn min_rtt(&self) -> Duration {
        let paths = self.inner.path_stats();
        let measured = paths.iter().filter(|path| path.packets_received > 0);
        let min_rtt = measured.map(|path| path.min_rtt).min();
        self.answer(min_rtt, |known| &mut known.min_rtt)
    }

    /// Figures of the connection. `path` joins all paths: windows and counters are sums, `rtt` and
    /// `min_rtt` are the smallest, and `current_mtu` is that of the largest packets.
    pub fn stats(&self) -> ConnectionStats {
        stats::connection(&self.inner, (self.rtt(), self.min_rtt()))
    }

    /// The state of congestion control at present: the sums of all open paths.
    pub fn congestion_state(&self) -> Box<dyn Controller> {
        let paths = self.inner.path_stats();
        let open = paths
            .iter()
            .filter(|path| path.state != PathState::Abandoned);
        Box::new(Snapshot::of(open))
    }

    /// The application protocol and the server name, as a [`HandshakeData`] in a box; `None` before
    /// they are known.
    pub fn handshake_data(&self) -> Option<Box<dyn Any>> {
        let data = self.inner.handshake_data()?;
        Some(handshake_data(data))
    }

    /// The peer's certificates, as a `Vec<CertificateDer>` in a box; `None` without certificates.
    pub fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.inner.peer_identity()
    }

    /// A number that no other open connection of the process has.
    pub fn stable_id(&self) -> usize {
        self.inner.stable_id()
    }

    /// Changes the keys, for tests.
    pub fn force_key_update(&self) {
        self.inner.force_key_update();
    }

    /// Fills `output` with bytes that only both ends of the connection can compute (RFC 5705).
    ///
    /// # Errors
    ///
    /// Before the handshake is complete, and if `output` is too long.
    pub fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        let exported = self.inner.export_keying_material(output, label, context);
        exported.map_err(|_| ExportKeyingMaterialError)
    }

    /// Sets how many streams in one direction the peer may have open.
    pub fn set_max_concurrent_uni_streams(&self, count: VarInt) {
        self.inner.set_max_concurrent_uni_streams(count);
    }

    /// Sets how many unacknowledged bytes the streams may hold together.
    pub fn set_send_window(&self, send_window: u64) {
        self.inner.set_send_window(send_window);
    }

    /// Sets how many unread bytes the peer may send on all streams together.
    pub fn set_receive_window(&self, receive_window: VarInt) {
        self.inner.set_receive_window(receive_window);
    }

    /// Sets how many streams in both directions the peer may have open.
    pub fn set_max_concurrent_bi_streams(&self, count: VarInt) {
        self.inner.set_max_concurrent_bi_streams(count);
    }
}

/// The data of a handshake in quinn's type, which programs downcast to.
pub(crate) fn handshake_data(data: mp::HandshakeData) -> Box<dyn Any> {
    Box::new(HandshakeData {
        protocol: data.protocol,
        server_name: data.server_name,
    })
}
