//! noq: QUIC with several paths.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use noq::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq::{FourTuple, PathError, PathEvent, PathId, PathStatus, TransportConfig};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_stream::{Stream, StreamExt};

use crate::{Connection, Error, SendStream, Server, Stack, Step, any_port};

/// Most paths at a time.
const MAX_PATHS: u32 = 4;
/// Highest path ID that the peer asks noq about.
const HIGHEST_ID: u32 = 32;
/// The longest wait for the other side's connection ID for a path.
const CONNECTION_ID_TIME: Duration = Duration::from_secs(5);

/// A noq endpoint.
pub struct Noq {
    endpoint: noq::Endpoint,
    retry: bool,
}

/// After this silence, noq gives a path up and sends its lost data again on other paths. Without
/// this limit, noq waits for the idle timeout of the connection.
const PATH_IDLE_TIME: Duration = Duration::from_secs(2);
/// Time between two packets with which noq checks that a path works.
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

    fn server(args: &Server, tls: rustls::ServerConfig) -> Result<Self, Error> {
        let crypto = QuicServerConfig::try_from(tls)?;
        let mut config = noq::ServerConfig::with_crypto(Arc::new(crypto));
        config.transport_config(transport());
        Ok(Self {
            endpoint: noq::Endpoint::server(config, args.listen)?,
            retry: args.retry,
        })
    }

    fn client(remote: SocketAddr, tls: rustls::ClientConfig) -> Result<Self, Error> {
        let crypto = QuicClientConfig::try_from(tls)?;
        let mut config = noq::ClientConfig::new(Arc::new(crypto));
        config.transport_config(transport());
        let endpoint = noq::Endpoint::client(any_port(remote))?;
        endpoint.set_default_client_config(config);
        Ok(Self {
            endpoint,
            retry: false,
        })
    }

    fn local_address(&self) -> Result<SocketAddr, Error> {
        Ok(self.endpoint.local_addr()?)
    }

    async fn accept(&self) -> Result<Option<NoqConnection>, Error> {
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
        Ok(Some(NoqConnection::new(&self.endpoint, connection, None)))
    }

    async fn connect(&self, remote: SocketAddr, host: &str) -> Result<NoqConnection, Error> {
        Ok(match self.endpoint.connect(remote, host)?.into_0rtt() {
            Ok((connection, accepted)) => {
                NoqConnection::new(&self.endpoint, connection, Some(accepted))
            }
            Err(connecting) => NoqConnection::new(&self.endpoint, connecting.await?, None),
        })
    }

    async fn wait_idle(&self) {
        self.endpoint.wait_idle().await;
    }
}

/// A noq connection.
#[derive(Clone)]
pub struct NoqConnection {
    endpoint: noq::Endpoint,
    connection: noq::Connection,
    /// noq's events of paths.
    events: Arc<Mutex<noq::PathEvents>>,
    /// True if the server accepted 0-RTT data; `None` before the answer.
    zero_rtt: watch::Receiver<Option<bool>>,
}

impl NoqConnection {
    fn new(
        endpoint: &noq::Endpoint,
        connection: noq::Connection,
        accepted: Option<noq::ZeroRttAccepted>,
    ) -> Self {
        let (sender, zero_rtt) = watch::channel(None);
        tokio::spawn(async move {
            let accepted = match accepted {
                Some(accepted) => accepted.await,
                None => false,
            };
            sender.send_replace(Some(accepted));
        });
        let events = connection.path_events();
        tokio::spawn(obey(connection.clone()));
        Self {
            endpoint: endpoint.clone(),
            connection,
            events: Arc::new(Mutex::new(events)),
            zero_rtt,
        }
    }

    /// Paths that noq has reported as validated since the last call, and path 0, which the
    /// handshake validates.
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

    fn open_one(&self, id: u32) -> Result<noq::Path, Error> {
        let path = self.connection.path(PathId::from(id));
        Ok(path.ok_or_else(|| format!("no path {id}"))?)
    }

    /// Waits for a validated path other than `than`; returns the newest such path.
    async fn another_path(&self, than: u32) -> Result<u32, Error> {
        let works = |id: u32| {
            let stats = self.connection.path_stats(PathId::from(id));
            let answered = stats.is_some_and(|path| path.frame_rx.path_response > 0);
            (id == 0 || answered) && self.connection.path(PathId::from(id)).is_some()
        };
        loop {
            if let Some(id) = (0..HIGHEST_ID).rev().find(|id| *id != than && works(*id)) {
                return Ok(id);
            }
            if let Some(reason) = self.connection.close_reason() {
                return Err(reason.into());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Opens a path as soon as the peer allows a further path.
    async fn open_path(&self, tuple: FourTuple) -> Result<(), Error> {
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
            .map_err(|_| "the path could not be opened in time")?
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

/// Sets the status of paths to the status that the peer asks for. noq itself only reports the
/// peer's status, and sends by its own status.
async fn obey(connection: noq::Connection) {
    let mut events = connection.path_events();
    // A weak handle does not keep the connection open.
    let connection = connection.weak_handle();
    while let Some(event) = events.next().await {
        let Ok(PathEvent::RemoteStatus { id, status, .. }) = event else {
            continue;
        };
        let path = connection
            .upgrade()
            .and_then(|connection| connection.path(id));
        if let Some(path) = path {
            // A path that has ended has no status.
            let _ = path.set_status(status);
        }
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

    async fn open_paths(&self, count: u8) -> Result<(), Error> {
        if count == 1 {
            return Ok(());
        }
        self.connection.handshake_confirmed().await?;
        let remote = self
            .connection
            .path(PathId::ZERO)
            .ok_or("no path 0")?
            .remote_address()?;
        for number in 2..=count {
            let local = IpAddr::from([127, 0, 0, number]);
            self.open_path(FourTuple::new(remote, Some(local))).await?;
        }
        Ok(())
    }

    async fn step(&self, step: Step) -> Result<(), Error> {
        match step {
            Step::UpdateKeys => self.connection.force_key_update(),
            // The socket is bound to no particular address: packets that still arrive for the old
            // address make noq send from that address again.
            Step::Move(_) => self.endpoint.rebind(UdpSocket::bind(("0.0.0.0", 0))?)?,
            Step::Close(id) => {
                self.another_path(id).await?;
                self.open_one(id)?.close()?;
            }
            Step::Renew => {
                let newest = self.another_path(0).await?;
                let path = self.open_one(newest)?;
                let tuple = path.network_path()?;
                path.close()?;
                self.open_path(tuple).await?;
            }
            Step::Backup(id) => {
                self.another_path(0).await?;
                self.open_one(id)?.set_status(PathStatus::Backup)?;
            }
            Step::Available(id) => {
                self.open_one(id)?.set_status(PathStatus::Available)?;
            }
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
        let established = self.established();
        (0..=HIGHEST_ID)
            .filter_map(|id| self.path(id, &established))
            .collect()
    }
}

impl SendStream for noq::SendStream {
    fn reset(mut self, code: u32) {
        // A stream that has ended needs no reset.
        let _ = noq::SendStream::reset(&mut self, code.into());
    }
}
