//! quinn: QUIC with a single path.

use std::net::SocketAddr;
use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{Connection, Error, SendStream, Stack};

/// A quinn endpoint.
pub struct Quinn(quinn::Endpoint);

impl Stack for Quinn {
    type Connection = QuinnConnection;

    fn server(listen: SocketAddr, tls: rustls::ServerConfig) -> Result<Self, Error> {
        let crypto = QuicServerConfig::try_from(tls)?;
        let config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
        Ok(Self(quinn::Endpoint::server(config, listen)?))
    }

    fn client(tls: rustls::ClientConfig) -> Result<Self, Error> {
        let crypto = QuicClientConfig::try_from(tls)?;
        let mut endpoint = quinn::Endpoint::client(([0, 0, 0, 0], 0).into())?;
        endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(crypto)));
        Ok(Self(endpoint))
    }

    fn local_address(&self) -> Result<SocketAddr, Error> {
        Ok(self.0.local_addr()?)
    }

    async fn accept(&self, retry: bool) -> Result<Option<QuinnConnection>, Error> {
        let incoming = self.0.accept().await.ok_or("the endpoint is closed")?;
        if retry && !incoming.remote_address_validated() {
            incoming.retry()?;
            return Ok(None);
        }
        // Answers 0-RTT requests at once, and misses no event.
        let Ok((connection, _)) = incoming.accept()?.into_0rtt() else {
            return Err("a server can always go on before the handshake is complete".into());
        };
        Ok(Some(QuinnConnection::new(connection, None)))
    }

    async fn connect(&self, remote: SocketAddr, host: &str) -> Result<QuinnConnection, Error> {
        Ok(match self.0.connect(remote, host)?.into_0rtt() {
            Ok((connection, accepted)) => QuinnConnection::new(connection, Some(accepted)),
            Err(connecting) => QuinnConnection::new(connecting.await?, None),
        })
    }

    async fn wait_idle(&self) {
        self.0.wait_idle().await;
    }
}

/// A quinn connection.
#[derive(Clone)]
pub struct QuinnConnection {
    connection: quinn::Connection,
    /// `None` until it is known whether 0-RTT data was accepted.
    zero_rtt: watch::Receiver<Option<bool>>,
}

impl QuinnConnection {
    fn new(connection: quinn::Connection, accepted: Option<quinn::ZeroRttAccepted>) -> Self {
        let (sender, zero_rtt) = watch::channel(None);
        tokio::spawn(async move {
            let accepted = match accepted {
                Some(accepted) => accepted.await,
                None => false,
            };
            sender.send_replace(Some(accepted));
        });
        Self {
            connection,
            zero_rtt,
        }
    }
}

impl Connection for QuinnConnection {
    type Send = quinn::SendStream;
    type Recv = quinn::RecvStream;

    async fn open(&self) -> Result<(quinn::SendStream, quinn::RecvStream), Error> {
        Ok(self.connection.open_bi().await?)
    }

    async fn accept(&self) -> Result<(quinn::SendStream, quinn::RecvStream), Error> {
        Ok(self.connection.accept_bi().await?)
    }

    async fn open_second_path(&self) -> Result<(), Error> {
        Err("quinn has a single path".into())
    }

    async fn close_first_path(&self) -> Result<(), Error> {
        Err("quinn has a single path".into())
    }

    async fn zero_rtt_accepted(&self) -> bool {
        let mut zero_rtt = self.zero_rtt.clone();
        let accepted = zero_rtt.wait_for(Option::is_some).await;
        accepted.is_ok_and(|accepted| *accepted == Some(true))
    }

    fn close(&self) {
        self.connection.close(0u32.into(), b"done");
    }

    fn paths(&self) -> Vec<Value> {
        let stats = self.connection.stats();
        vec![json!({
            "id": 0,
            "remote": self.connection.remote_address().to_string(),
            "validated": true,
            "bytes_received": stats.udp_rx.bytes,
            "datagrams_received": stats.udp_rx.datagrams,
            "stream_frames_received": stats.frame_rx.stream,
            "bytes_sent": stats.udp_tx.bytes,
            "datagrams_sent": stats.udp_tx.datagrams,
            "stream_frames_sent": stats.frame_tx.stream,
            "packets_lost": stats.path.lost_packets,
        })]
    }
}

impl SendStream for quinn::SendStream {
    fn reset(mut self, code: u32) {
        // A stream that is gone needs no reset.
        let _ = quinn::SendStream::reset(&mut self, code.into());
    }
}
