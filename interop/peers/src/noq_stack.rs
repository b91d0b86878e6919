//! noq: QUIC with several paths.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use noq::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq::{FourTuple, PathError, PathEvent, PathId, PathStatus, TransportConfig};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_stream::Stream;

use crate::{Connection, Error, SendStream, Stack};

/// Local address of the second path; the kernel uses 127.0.0.1 for the first.
const SECOND_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// Most paths at a time, and highest path ID the statistics look at.
const MAX_PATHS: u32 = 8;
/// How long the peer may take to issue a connection ID for the second path.
const CONNECTION_ID_TIME: Duration = Duration::from_secs(5);

/// A noq endpoint.
pub struct Noq(noq::Endpoint);

/// How long a path may be silent before noq gives it up and sends again elsewhere what was lost on
/// it. Without this limit it waits until the whole connection times out.
const PATH_IDLE_TIME: Duration = Duration::from_secs(2);
/// How often noq has a path prove that it is alive.
const PATH_KEEP_ALIVE: Duration = Duration::from_millis(500);

fn transport() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_multipath_paths(MAX_PATHS)
        .default_path_max_idle_timeout(Some(PATH_IDLE_TIME))
        .default_path_keep_alive_interval(Some(PATH_KEEP_ALIVE));
    Arc::new(transport)
}

impl Stack for Noq {
    type Connection = NoqConnection;

    fn server(listen: SocketAddr, tls: rustls::ServerConfig) -> Result<Self, Error> {
        let crypto = QuicServerConfig::try_from(tls)?;
        let mut config = noq::ServerConfig::with_crypto(Arc::new(crypto));
        config.transport_config(transport());
        Ok(Self(noq::Endpoint::server(config, listen)?))
    }

    fn client(tls: rustls::ClientConfig) -> Result<Self, Error> {
        let crypto = QuicClientConfig::try_from(tls)?;
        let mut config = noq::ClientConfig::new(Arc::new(crypto));
        config.transport_config(transport());
        let endpoint = noq::Endpoint::client(([0, 0, 0, 0], 0).into())?;
        endpoint.set_default_client_config(config);
        Ok(Self(endpoint))
    }

    fn local_address(&self) -> Result<SocketAddr, Error> {
        Ok(self.0.local_addr()?)
    }

    async fn accept(&self, retry: bool) -> Result<Option<NoqConnection>, Error> {
        let incoming = self.0.accept().await.ok_or("the endpoint is closed")?;
        if retry && !incoming.remote_address_validated() {
            incoming.retry()?;
            return Ok(None);
        }
        // Answers 0-RTT requests at once, and misses no event.
        let Ok((connection, _)) = incoming.accept()?.into_0rtt() else {
            return Err("a server can always go on before the handshake is complete".into());
        };
        Ok(Some(NoqConnection::new(connection, None)))
    }

    async fn connect(&self, remote: SocketAddr, host: &str) -> Result<NoqConnection, Error> {
        Ok(match self.0.connect(remote, host)?.into_0rtt() {
            Ok((connection, accepted)) => NoqConnection::new(connection, Some(accepted)),
            Err(connecting) => NoqConnection::new(connecting.await?, None),
        })
    }

    async fn wait_idle(&self) {
        self.0.wait_idle().await;
    }
}

/// A noq connection.
#[derive(Clone)]
pub struct NoqConnection {
    connection: noq::Connection,
    /// What noq has to say about paths.
    events: Arc<Mutex<noq::PathEvents>>,
    /// `None` until it is known whether 0-RTT data was accepted.
    zero_rtt: watch::Receiver<Option<bool>>,
}

impl NoqConnection {
    fn new(connection: noq::Connection, accepted: Option<noq::ZeroRttAccepted>) -> Self {
        let (sender, zero_rtt) = watch::channel(None);
        tokio::spawn(async move {
            let accepted = match accepted {
                Some(accepted) => accepted.await,
                None => false,
            };
            sender.send_replace(Some(accepted));
        });
        let events = connection.path_events();
        Self {
            connection,
            events: Arc::new(Mutex::new(events)),
            zero_rtt,
        }
    }

    /// Paths that noq has reported as validated since the last call, and path 0, which the handshake
    /// validates.
    fn established(&self) -> BTreeSet<PathId> {
        let mut established = BTreeSet::from([PathId::ZERO]);
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(event)) = Pin::new(&mut *events).poll_next(&mut cx) {
            match event {
                Ok(PathEvent::Established { id, .. }) => {
                    established.insert(id);
                }
                Ok(PathEvent::Abandoned { id, reason, .. }) => {
                    eprintln!("path {id} abandoned: {reason:?}");
                }
                Ok(_) => {}
                Err(lagged) => eprintln!("path events: {lagged}"),
            }
        }
        established
    }

    fn path(&self, number: u32, established: &BTreeSet<PathId>) -> Option<Value> {
        let id = PathId::from(number);
        let stats = self.connection.path_stats(id)?;
        let path = self.connection.path(id);
        let network = path.as_ref().and_then(|path| path.network_path().ok());
        Some(json!({
            "id": number,
            "local": network.and_then(|network| network.local_ip()).map(|ip| ip.to_string()),
            "remote": network.map(|network| network.remote().to_string()),
            "status": path.and_then(|path| path.status().ok()).map(|status| format!("{status:?}")),
            "validated": established.contains(&id),
            "bytes_received": stats.udp_rx.bytes,
            "datagrams_received": stats.udp_rx.datagrams,
            "stream_frames_received": stats.frame_rx.stream,
            "acknowledgements_received": stats.frame_rx.path_acks,
            "bytes_sent": stats.udp_tx.bytes,
            "datagrams_sent": stats.udp_tx.datagrams,
            "stream_frames_sent": stats.frame_tx.stream,
            "acknowledgements_sent": stats.frame_tx.path_acks,
            "packets_lost": stats.lost_packets,
        }))
    }
}

impl Connection for NoqConnection {
    type Send = noq::SendStream;
    type Recv = noq::RecvStream;

    async fn open(&self) -> Result<(noq::SendStream, noq::RecvStream), Error> {
        Ok(self.connection.open_bi().await?)
    }

    async fn accept(&self) -> Result<(noq::SendStream, noq::RecvStream), Error> {
        Ok(self.connection.accept_bi().await?)
    }

    async fn open_second_path(&self) -> Result<(), Error> {
        self.connection.handshake_confirmed().await?;
        let remote = self
            .connection
            .path(PathId::ZERO)
            .ok_or("no path 0")?
            .remote_address()?;
        let tuple = FourTuple::new(remote, Some(SECOND_ADDRESS));
        let open = async {
            loop {
                match self
                    .connection
                    .open_path(tuple, PathStatus::Available)
                    .await
                {
                    // The peer's connection ID for the path is under way.
                    Err(PathError::RemoteCidsExhausted | PathError::MaxPathIdReached) => {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    Err(error) => return Err(Error::from(error)),
                    Ok(_) => return Ok(()),
                }
            }
        };
        tokio::time::timeout(CONNECTION_ID_TIME, open)
            .await
            .map_err(|_| "the second path could not be opened in time")?
    }

    async fn close_first_path(&self) -> Result<(), Error> {
        let answered = |path: noq::PathStats| path.frame_rx.path_response > 0;
        while !self
            .connection
            .path_stats(PathId::from(1u32))
            .is_some_and(answered)
        {
            if let Some(reason) = self.connection.close_reason() {
                return Err(reason.into());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let first = self.connection.path(PathId::ZERO).ok_or("no path 0")?;
        Ok(first.close()?)
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
        let established = self.established();
        (0..=MAX_PATHS)
            .filter_map(|id| self.path(id, &established))
            .collect()
    }
}

impl SendStream for noq::SendStream {
    fn reset(mut self, code: u32) {
        // A stream that is gone needs no reset.
        let _ = noq::SendStream::reset(&mut self, code.into());
    }
}
