//! [`Session`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mpquic_tokio::{Connection, ConnectionStats, PathState, PathStats};
use web_transport_trait::Stats;

use crate::{Error, RecvStream, SendStream};

/// A connection as a WebTransport session. Clones share the session, which ends when the last clone
/// and the last other handle of the connection are dropped.
#[derive(Debug, Clone)]
pub struct Session {
    connection: Connection,
    protocol: Option<Arc<str>>,
}

impl Session {
    /// The session of a connection. Its protocol is known after the handshake.
    pub fn new(connection: Connection) -> Self {
        let protocol = connection.handshake_data().and_then(|data| data.protocol);
        let protocol = protocol.and_then(|name| String::from_utf8(name).ok());
        Self {
            connection,
            protocol: protocol.map(Arc::from),
        }
    }

    /// The connection, with its paths.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}

impl web_transport_trait::Session for Session {
    type SendStream = SendStream;
    type RecvStream = RecvStream;
    type Error = Error;

    async fn accept_uni(&self) -> Result<RecvStream, Error> {
        Ok(RecvStream::new(self.connection.accept_uni().await?))
    }

    async fn accept_bi(&self) -> Result<(SendStream, RecvStream), Error> {
        let (send, recv) = self.connection.accept_bi().await?;
        Ok((SendStream::new(send), RecvStream::new(recv)))
    }

    async fn open_bi(&self) -> Result<(SendStream, RecvStream), Error> {
        let (send, recv) = self.connection.open_bi().await?;
        Ok((SendStream::new(send), RecvStream::new(recv)))
    }

    async fn open_uni(&self) -> Result<SendStream, Error> {
        Ok(SendStream::new(self.connection.open_uni().await?))
    }

    fn send_datagram(&self, payload: Bytes) -> Result<(), Error> {
        Ok(self.connection.send_datagram(payload)?)
    }

    async fn recv_datagram(&self) -> Result<Bytes, Error> {
        Ok(self.connection.read_datagram().await?)
    }

    fn max_datagram_size(&self) -> usize {
        self.connection.max_datagram_size().unwrap_or(0)
    }

    fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    fn close(&self, code: u32, reason: &str) {
        self.connection.close(code.into(), reason.as_bytes());
    }

    async fn closed(&self) -> Error {
        self.connection.closed().await.into()
    }

    fn stats(&self) -> impl Stats {
        Sums {
            connection: self.connection.stats(),
            paths: self.connection.path_stats(),
        }
    }
}

/// Statistics of the connection and of its paths.
struct Sums {
    connection: ConnectionStats,
    paths: Vec<PathStats>,
}

impl Sums {
    fn active(&self) -> impl Iterator<Item = &PathStats> {
        let is_active = |path: &&PathStats| path.state == PathState::Active;
        self.paths.iter().filter(is_active)
    }
}

impl Stats for Sums {
    fn bytes_sent(&self) -> Option<u64> {
        Some(self.connection.bytes_sent)
    }

    fn bytes_received(&self) -> Option<u64> {
        Some(self.connection.bytes_received)
    }

    fn packets_sent(&self) -> Option<u64> {
        Some(self.connection.datagrams_sent)
    }

    fn packets_received(&self) -> Option<u64> {
        Some(self.connection.datagrams_received)
    }

    /// The smallest RTT of all active paths.
    fn rtt(&self) -> Option<Duration> {
        self.active().map(|path| path.rtt).min()
    }

    /// The sum of the pacing rates of all active paths, bits per second. A path without a pacing
    /// rate counts with one window per round trip.
    fn estimated_send_rate(&self) -> Option<u64> {
        let rate = |path: &PathStats| {
            let in_a_round_trip = path.window as f64 / path.rtt.as_secs_f64();
            path.pacing_rate.unwrap_or(in_a_round_trip as u64)
        };
        let bytes: u64 = self.active().map(rate).fold(0, u64::saturating_add);
        (bytes > 0).then(|| bytes.saturating_mul(8))
    }
}
