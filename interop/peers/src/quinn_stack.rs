//! quinn: QUIC with a single path.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{Connection, Error, SendStream, Server, Stack, Step, any_port};

/// A quinn endpoint.
pub struct Quinn {
    endpoint: quinn::Endpoint,
    retry: bool,
}

impl Stack for Quinn {
    type Connection = QuinnConnection;

    fn server(args: &Server, tls: rustls::ServerConfig) -> Result<Self, Error> {
        let crypto = QuicServerConfig::try_from(tls)?;
        let config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
        Ok(Self {
            endpoint: quinn::Endpoint::server(config, args.listen)?,
            retry: args.retry,
        })
    }

    fn client(remote: SocketAddr, tls: rustls::ClientConfig) -> Result<Self, Error> {
        let crypto = QuicClientConfig::try_from(tls)?;
        let mut endpoint = quinn::Endpoint::client(any_port(remote))?;
        endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(crypto)));
        Ok(Self {
            endpoint,
            retry: false,
        })
    }

    fn local_address(&self) -> Result<SocketAddr, Error> {
        Ok(self.endpoint.local_addr()?)
    }

    async fn accept(&self) -> Result<Option<QuinnConnection>, Error> {
        let incoming = self
            .endpoint
            .accept()
            .await
            .ok_or("the endpoint is closed")?;
        if self.retry && !incoming.remote_address_validated() {
            incoming.retry()?;
            return Ok(None);
        }
        // An accepted connection answers 0-RTT requests at once, and no event is missed.
        let connecting = match incoming.accept() {
            Ok(connecting) => connecting,
            Err(error) => {
                // The first packet was damaged on its way; the client repeats the packet.
                eprintln!("no connection: {error}");
                return Ok(None);
            }
        };
        let Ok((connection, _)) = connecting.into_0rtt() else {
            return Err("a server can always go on before the handshake is complete".into());
        };
        Ok(Some(QuinnConnection::new(&self.endpoint, connection, None)))
    }

    async fn connect(&self, remote: SocketAddr, host: &str) -> Result<QuinnConnection, Error> {
        Ok(match self.endpoint.connect(remote, host)?.into_0rtt() {
            Ok((connection, accepted)) => {
                QuinnConnection::new(&self.endpoint, connection, Some(accepted))
            }
            Err(connecting) => QuinnConnection::new(&self.endpoint, connecting.await?, None),
        })
    }

    async fn wait_idle(&self) {
        self.endpoint.wait_idle().await;
    }
}

/// A quinn connection.
#[derive(Clone)]
pub struct QuinnConnection {
    endpoint: quinn::Endpoint,
    connection: quinn::Connection,
    /// True if the server accepted 0-RTT data; `None` before the answer.
    zero_rtt: watch::Receiver<Option<bool>>,
}

impl QuinnConnection {
    fn new(
        endpoint: &quinn::Endpoint,
        connection: quinn::Connection,
        accepted: Option<quinn::ZeroRttAccepted>,
    ) -> Self {
        let (sender, zero_rtt) = watch::channel(None);
        tokio::spawn(async move {
            let accepted = match accepted {
                Some(accepted) => accepted.await,
                None => false,
            };
            sender.send_replace(Some(accepted));
        });
        Self {
            endpoint: endpoint.clone(),
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

    async fn step(&self, step: Step) -> Result<(), Error> {
        match step {
            Step::UpdateKeys => self.connection.force_key_update(),
            Step::Move(ip) => self.endpoint.rebind(UdpSocket::bind((ip, 0))?)?,
            step => return Err(format!("quinn has a single path: {step:?}").into()),
        }
        Ok(())
    }

    fn bytes(&self) -> Option<u64> {
        let stats = self.connection.stats();
        let is_open = self.connection.close_reason().is_none();
        is_open.then_some(stats.udp_rx.bytes + stats.udp_tx.bytes)
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
        // A stream that has ended needs no reset.
        let _ = quinn::SendStream::reset(&mut self, code.into());
    }
}
