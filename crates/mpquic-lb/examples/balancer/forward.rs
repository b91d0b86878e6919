//! [`Forwarder`]: sockets for a [`Balancer`].

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use mpquic_core::FourTuple;
use mpquic_core::crypto::{RetryTokens, ScreenedDatagram};
use mpquic_lb::Balancer;
use tokio::net::UdpSocket;
use tokio::time::timeout;

/// A client's address of which nothing was heard for so long is forgotten. Idle connections last 30
/// seconds by default.
const IDLE: Duration = Duration::from_secs(60);
/// The most addresses of clients at a time: each has a socket.
const MAX_CLIENTS: usize = 10_000;
/// Larger than any datagram.
const BUFFER: usize = 1 << 16;

/// Stands between clients and servers: what clients send to its address goes to the servers that
/// its balancer says, and what these answer goes back. Servers see an address of the forwarder,
/// another one for each address of a client. Clones are the same forwarder.
#[derive(Clone)]
pub(crate) struct Forwarder(Arc<Inner>);

struct Inner {
    front: UdpSocket,
    address: SocketAddr,
    state: Mutex<State>,
}

struct State {
    balancer: Balancer,
    /// With these, clients have to prove their address before a server hears of them.
    retry_tokens: Option<RetryTokens>,
    /// Retry packets sent.
    retries: u64,
    /// Which of our addresses each server sees.
    sources: HashMap<SocketAddr, IpAddr>,
    /// The socket towards the servers for each address of a client.
    clients: HashMap<SocketAddr, Arc<UdpSocket>>,
}

impl Forwarder {
    pub(crate) async fn bind(address: SocketAddr, balancer: Balancer) -> io::Result<Self> {
        let front = UdpSocket::bind(address).await?;
        let address = front.local_addr()?;
        let state = Mutex::new(State {
            balancer,
            retry_tokens: None,
            retries: 0,
            sources: HashMap::new(),
            clients: HashMap::new(),
        });
        Ok(Self(Arc::new(Inner {
            front,
            address,
            state,
        })))
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.0.address
    }

    /// What the balancer does or has done.
    pub(crate) fn with_balancer<T>(&self, look: impl FnOnce(&mut Balancer) -> T) -> T {
        look(&mut self.state().balancer)
    }

    /// From now on, clients have to prove their address with these tokens, or need not.
    pub(crate) fn set_retry_tokens(&self, tokens: Option<RetryTokens>) {
        self.state().retry_tokens = tokens;
    }

    /// How many clients were asked to prove their address.
    pub(crate) fn retries(&self) -> u64 {
        self.state().retries
    }

    /// Forwards until it is dropped.
    pub(crate) async fn run(&self) {
        let mut datagram = vec![0; BUFFER];
        loop {
            // An error belongs to a datagram sent before; the next one may go well.
            let Ok((length, client)) = self.0.front.recv_from(&mut datagram).await else {
                continue;
            };
            let datagram = &datagram[..length];
            let tuple = FourTuple::new(self.0.address, client);
            #[expect(clippy::disallowed_methods, reason = "a program reads the clock")]
            let now = Instant::now();
            let routed = self.with_balancer(|it| it.route(now, tuple, datagram));
            let Some(routed) = routed else {
                continue;
            };
            let server = routed.server;
            let Some(socket) = self.socket_of(client, server).await else {
                continue;
            };
            // As any network may, it loses what cannot be sent.
            let _ = match self.screen(datagram, &socket, server) {
                Ok(ScreenedDatagram::Forward(datagram)) => socket.send_to(datagram, server).await,
                Ok(ScreenedDatagram::Retry(retry)) => self.0.front.send_to(&retry, client).await,
                // As servers give such IDs, it has most likely answered this client, and may judge
                // it.
                Ok(ScreenedDatagram::Drop) if routed.by_connection_id => {
                    socket.send_to(datagram, server).await
                }
                Ok(ScreenedDatagram::Drop) | Err(_) => continue,
            };
        }
    }

    /// Decides whether a server gets a client's datagram, by what is sent to servers from this
    /// socket, which is that of no other client.
    fn screen<'a>(
        &self,
        datagram: &'a [u8],
        socket: &UdpSocket,
        server: SocketAddr,
    ) -> io::Result<ScreenedDatagram<'a>> {
        let mut state = self.state();
        let State {
            retry_tokens: Some(tokens),
            sources,
            retries,
            ..
        } = &mut *state
        else {
            return Ok(ScreenedDatagram::Forward(datagram));
        };
        let source = match sources.entry(server) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(unknown) => *unknown.insert(source_towards(server)?),
        };
        // The server takes this address for the client's, so the token has to be for it.
        let seen = SocketAddr::new(source, socket.local_addr()?.port());
        #[expect(clippy::disallowed_methods, reason = "a program reads the clock")]
        let now = SystemTime::now();
        let screened = tokens.screen(datagram, seen, now, rand::random());
        if let ScreenedDatagram::Retry(_) = screened {
            *retries += 1;
        }
        Ok(screened)
    }

    /// The socket towards servers for a client's address, unless there are too many.
    async fn socket_of(&self, client: SocketAddr, server: SocketAddr) -> Option<Arc<UdpSocket>> {
        if let Some(socket) = self.state().clients.get(&client) {
            return Some(socket.clone());
        }
        if self.state().clients.len() >= MAX_CLIENTS {
            return None;
        }
        let socket = Arc::new(UdpSocket::bind((any(server), 0)).await.ok()?);
        self.state().clients.insert(client, socket.clone());
        tokio::spawn(self.clone().send_back(client, socket.clone()));
        Some(socket)
    }

    /// Sends what servers answer to the client, until they are silent.
    async fn send_back(self, client: SocketAddr, socket: Arc<UdpSocket>) {
        let mut datagram = vec![0; BUFFER];
        while let Ok(received) = timeout(IDLE, socket.recv_from(&mut datagram)).await {
            let Ok((length, from)) = received else {
                continue;
            };
            // Anybody can send to the socket.
            if self.with_balancer(|it| it.has_server(from)) {
                let _ = self.0.front.send_to(&datagram[..length], client).await;
            }
        }
        self.state().clients.remove(&client);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All addresses of the family of this one.
fn any(address: SocketAddr) -> IpAddr {
    match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// The address from which the system sends to a server.
fn source_towards(server: SocketAddr) -> io::Result<IpAddr> {
    let socket = std::net::UdpSocket::bind((any(server), 0))?;
    socket.connect(server)?;
    Ok(socket.local_addr()?.ip())
}
