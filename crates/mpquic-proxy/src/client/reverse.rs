//! [`Reverse`]: a TCP port of the proxy that leads to a target near the client.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use mpquic_h3::h3::ext::Protocol;
use mpquic_h3::{TCP_ACCEPT, TCP_LISTEN};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::flows::{Accepted, Client, NoFlow, Session};
use crate::capsule::Capsules;
use crate::reverse::{Told, accept_path, listen_path};
use crate::shares::Holding;
use crate::strangers::{Heard, Strangers};
use crate::streams::{Incoming, Outgoing};
use crate::target::{Host, Target};

/// Refusals that may wait for the stream.
const MOST_REFUSALS: usize = 64;
/// Longest time to connect to the target.
const PATIENCE: Duration = Duration::from_secs(10);

/// A TCP port of the proxy that leads to a target near the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reverse {
    /// An address of the proxy; `None` for all its addresses.
    pub address: Option<IpAddr>,
    /// The port.
    pub port: u16,
    /// The target, which the client connects to.
    pub target: Target,
}

impl Client {
    /// Has the proxy listen on a TCP port, and carries each connection to the target, until the
    /// connection to the proxy ends or the proxy announces its end. Then the caller calls again:
    /// for a minute, the proxy keeps the port for this user. `opened` is called once the proxy
    /// listens. Carried connections go on after the end.
    ///
    /// # Errors
    ///
    /// Without a connection to the proxy, and if the proxy refuses: 403 if the port is not allowed,
    /// 409 if the port is in use.
    pub async fn reverse(&self, reverse: &Reverse, opened: impl FnOnce()) -> Result<(), NoFlow> {
        let session = self.session().await?;
        if !session.carries_udp().await {
            return Err(NoFlow::NoReverse);
        }
        let path = listen_path(reverse.address, reverse.port);
        let asked = self.ask_for(&session, TCP_LISTEN, path).await;
        let Accepted { stream, watch, .. } = match asked {
            // Other proxies do not know the protocol.
            Err(NoFlow::Refused(status)) if [400, 404, 405, 501].contains(&status.as_u16()) => {
                return Err(NoFlow::NoReverse);
            }
            asked => asked?,
        };
        opened();
        let (mut send, mut recv) = stream.split();
        let (refuse, mut refusals) = mpsc::channel(MOST_REFUSALS);
        let most = self.0.options.max_reverse as u64;
        let strangers = Strangers::new(most);
        let mut capsules = Capsules::of_reverse();
        loop {
            while let Ok(Some((kind, value))) = capsules.take() {
                let Some(Told::Waiting(number, from)) = Told::parse(kind, &value) else {
                    continue;
                };
                let Some(held) = strangers.try_take(from.ip(), most) else {
                    let _ = refuse.try_send(number);
                    continue;
                };
                let (client, session) = (self.clone(), session.clone());
                let (reverse, refuse) = (reverse.clone(), refuse.clone());
                tokio::spawn(async move {
                    let picking = client.pick(&session, &reverse, (number, from), &held);
                    let picked = tokio::select! {
                        picked = picking => picked,
                        // Meanwhile the server may have dropped the connection.
                        () = held.gives_way() => None,
                    };
                    if picked.is_none() {
                        let _ = refuse.try_send(number);
                    }
                });
            }
            tokio::select! {
                piece = recv.recv() => match piece {
                    Ok(Some(piece)) => capsules.push(piece),
                    Ok(None) | Err(_) => break,
                },
                Some(number) = refusals.recv() => {
                    if send.send(Told::Refused(number).to_capsule()).await.is_err() {
                        break;
                    }
                }
                () = self.is_left(&session) => break,
                _ = watch.stopped() => break,
            }
        }
        // The proxy closes the port, so that its successor may open the port.
        let _ = Outgoing::finish(&mut send).await;
        Ok(())
    }

    /// An extended CONNECT request of our own.
    async fn ask_for(
        &self,
        session: &Session,
        (field, value): (&'static str, &'static str),
        path: String,
    ) -> Result<Accepted, NoFlow> {
        let uri = http::Uri::builder()
            .scheme("https")
            .authority(self.0.options.authority.clone())
            .path_and_query(path);
        let mut request = self.request(uri, None)?;
        request.extensions_mut().insert(Protocol::CONNECT_UDP);
        let fields = request.headers_mut();
        fields.insert(field, HeaderValue::from_static(value));
        self.ask(session, request, Bytes::new()).await
    }

    /// Connects to the target, takes the connection from the proxy, and carries the data. `None`
    /// without a connection to the target.
    async fn pick(
        &self,
        session: &Session,
        reverse: &Reverse,
        (number, from): (u64, SocketAddr),
        held: &Holding,
    ) -> Option<()> {
        let target = &reverse.target;
        let connecting = async {
            match target.host() {
                Host::Address(ip) => TcpStream::connect((*ip, target.port())).await,
                Host::Name(name) => TcpStream::connect((&**name, target.port())).await,
            }
        };
        let tcp = match timeout(PATIENCE, connecting).await {
            Ok(Ok(tcp)) => tcp,
            Ok(Err(error)) => {
                tracing::info!("no TCP from {from} to {target}: {error}");
                return None;
            }
            Err(_) => {
                tracing::info!("no TCP from {from} to {target}: no answer");
                return None;
            }
        };
        match self.ask_for(session, TCP_ACCEPT, accept_path(number)).await {
            Ok(accepted) => {
                let flow = self.joined(target, accepted);
                held.measure(Arc::new(Heard {
                    flow: flow.flow().clone(),
                    bytes: |carried| &carried.from_stream,
                }));
                flow.join(tcp, Bytes::new()).await;
            }
            Err(error) => {
                tracing::debug!("TCP from {from} to {target}: {error}");
                let _ = tcp.set_zero_linger();
            }
        }
        Some(())
    }
}
