//! [`Connecting`]: a connection during its handshake.

use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use mpquic_core::crypto::HandshakeData;
use mpquic_core::{ConnectionError, FourTuple, Side, ZeroRtt};

use crate::config::ClientConfig;
use crate::connection::Connection;
use crate::connection_ref::ConnectionRef;
use crate::connection_state::{ConnectionState, Engine, SharedEndpoint};
use crate::runtime::Timer;
use crate::start;

/// After this time without a datagram on any attempt, the next attempt starts beside the running
/// attempts. An attempt that the server has answered counts as silent only after its probe timeout,
/// if the probe timeout is longer.
const NEXT_ATTEMPT: Duration = Duration::from_millis(300);

/// A silent connection that the application already uses gives way to another attempt with success,
/// this long after the start at the earliest: the connection has sent probes twice by then.
const UNHEARD: Duration = Duration::from_secs(3);

/// A handshake in progress. Await the future for the [`Connection`]; drop the future to give up.
/// Cancel-safe: a caller can poll by reference and continue later. A connection that ended before
/// the `await` still comes back as a connection, so that the application can read received data.
#[must_use = "dropping it gives the connection up"]
#[derive(Debug)]
pub struct Connecting {
    /// In the order of their start.
    attempts: Vec<Attempt>,
    others: Option<Box<Others>>,
}

/// One handshake.
struct Attempt {
    connection: ConnectionRef,
    heard: Heard,
    established: Pin<Box<dyn Future<Output = Result<(), ConnectionError>> + Send + Sync>>,
}

/// The latest sign of life of the server.
#[derive(Debug, Default)]
struct Heard {
    /// The number of received datagrams at the last check.
    datagrams: u64,
    /// The time at which the number last grew.
    at: Option<Instant>,
}

/// The addresses that follow while the first attempt gets no answer.
struct Others {
    endpoint: Arc<SharedEndpoint>,
    config: ClientConfig,
    server_name: String,
    /// The server's addresses.
    remotes: Vec<SocketAddr>,
    tried: Vec<FourTuple>,
    next: Pin<Box<dyn Timer>>,
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.connection.fmt(f)
    }
}

impl fmt::Debug for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.remotes.fmt(f)
    }
}

impl Attempt {
    fn new(connection: ConnectionRef) -> Self {
        let shared = connection.clone();
        let established = Box::pin(async move {
            shared
                .until_told(&shared.notifications.connection, |engine| {
                    match &engine.error {
                        // The connection may have ended after the handshake; the application can
                        // still read data from before.
                        _ if engine.connected && engine.broken().is_none() => Some(Ok(())),
                        Some(error) => Some(Err(error.clone())),
                        None => None,
                    }
                })
                .await
        });
        Self {
            connection,
            heard: Heard::default(),
            established,
        }
    }

    /// The server's address.
    fn remote(&self) -> Option<SocketAddr> {
        self.connection.first_path().map(|tuple| tuple.remote)
    }
}

impl Heard {
    /// True if the server answered recently. Without a recent answer the link may be dead, and
    /// another address gets a try.
    fn is_recent(&mut self, engine: &Engine, now: Instant) -> bool {
        let received = engine.core.stats().datagrams_received;
        if received > self.datagrams {
            *self = Self {
                datagrams: received,
                at: Some(now),
            };
        }
        let paths = engine
            .core
            .paths()
            .filter_map(|id| engine.core.path_stats(id));
        let patience = paths.map(|path| path.probe_timeout.max(NEXT_ATTEMPT)).max();
        let patience = patience.unwrap_or(NEXT_ATTEMPT);
        self.at.is_some_and(|heard| now < heard + patience)
    }
}

impl Others {
    /// Starts the next attempt, unless every pair of addresses had a try. The local addresses are
    /// looked up again, for interfaces come and go.
    fn start(&mut self) -> Option<Attempt> {
        loop {
            let ways = start::ways(&self.endpoint, &self.config, &self.remotes);
            let four_tuple = ways.into_iter().find(|way| !self.tried.contains(way))?;
            self.tried.push(four_tuple);
            tracing::debug!(%four_tuple, "no answer, trying another way");
            let config = self.config.clone();
            if let Ok(connection) =
                start::connect(&self.endpoint, config, four_tuple, &self.server_name)
            {
                return Some(Attempt::new(connection));
            }
        }
    }
}

impl Connecting {
    pub(crate) fn new(connection: ConnectionRef) -> Self {
        Self {
            attempts: vec![Attempt::new(connection)],
            others: None,
        }
    }

    /// Tries these further addresses of the server while the `first` attempt is silent.
    pub(crate) fn or_else(
        mut self,
        endpoint: &Arc<SharedEndpoint>,
        config: ClientConfig,
        (first, remotes): (FourTuple, Vec<SocketAddr>),
        server_name: &str,
    ) -> Self {
        if config.automatic_paths {
            self.others = Some(Box::new(Others {
                endpoint: endpoint.clone(),
                config,
                server_name: server_name.to_owned(),
                remotes,
                tried: vec![first],
                next: endpoint.runtime.timer(endpoint.now() + NEXT_ATTEMPT),
            }));
        }
        self
    }

    /// Returns the connection before the handshake is complete, if possible.
    ///
    /// On a client, the call needs an earlier connection to the same server with the same
    /// [`ClientConfig`]. Data then leaves as 0-RTT, which an attacker can replay: send only data
    /// that may safely arrive twice. If the server rejects 0-RTT, streams opened before the
    /// rejection fail with `ZeroRttRejected`. The first flight waits until the application waits
    /// for the peer, 20 ms at most, so that early data leaves in the same datagrams.
    ///
    /// Meanwhile the client tries other ways to the server, as an awaited `Connecting` does. From
    /// the third second on, if the server is silent here and another way leads to the server, the
    /// connection ends with [`ConnectionError::HandshakeTimedOut`]. The next connection with the
    /// same configuration begins on that way.
    ///
    /// On a server, the call always succeeds; received data may be 0-RTT.
    ///
    /// # Errors
    ///
    /// Returns the unchanged `Connecting` if there is no such earlier connection.
    pub fn into_0rtt(mut self) -> Result<(Connection, ZeroRttAccepted), Self> {
        let possible = self.attempts.first().is_some_and(|attempt| {
            let engine = attempt.connection.lock();
            engine.core.side() == Side::Server || engine.core.zero_rtt() != ZeroRtt::NotOffered
        });
        if !possible {
            return Err(self);
        }
        let attempt = self.attempts.swap_remove(0);
        let connection = Connection::new(attempt.connection.clone());
        if let Some(others) = &self.others {
            let runtime = others.endpoint.runtime.clone();
            runtime.spawn(Box::pin(Rivals {
                began: others.endpoint.now(),
                first: attempt.connection.downgrade(),
                heard: Heard::default(),
                connecting: self,
                through: None,
            }));
        }
        Ok((connection, ZeroRttAccepted(attempt)))
    }

    /// Waits for the application protocol (ALPN) and the server name of the first attempt.
    /// Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the attempt failed before.
    pub async fn handshake_data(&mut self) -> Result<HandshakeData, ConnectionError> {
        let Some(attempt) = self.attempts.first() else {
            return Err(ConnectionError::LocallyClosed);
        };
        let shared = &attempt.connection;
        shared
            .until(&shared.notifications.connection, |engine| {
                if let Some(error) = engine.broken() {
                    return Some(Err(error));
                }
                let data = engine.core.handshake_data().map(Ok);
                data.or_else(|| engine.error.clone().map(Err))
            })
            .await
    }

    /// Our IP address in the first attempt; `None` if the socket is bound to all addresses and the
    /// system does not report the destination of datagrams.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.attempts.first()?.connection.local_ip()
    }

    /// The peer's address in the first attempt.
    pub fn remote_address(&self) -> Option<SocketAddr> {
        self.attempts.first()?.remote()
    }

    /// Polls all attempts. An error is final unless another attempt may still succeed.
    fn poll_attempts(&mut self, cx: &mut Context<'_>) -> Poll<Result<Connection, ConnectionError>> {
        let mut index = 0;
        while let Some(attempt) = self.attempts.get_mut(index) {
            match attempt.established.as_mut().poll(cx) {
                Poll::Pending => {
                    attempt.connection.lock().on_waits();
                    index += 1;
                }
                Poll::Ready(Ok(())) => {
                    let attempt = self.attempts.swap_remove(index);
                    self.attempts.clear();
                    return Poll::Ready(Ok(Connection::new(attempt.connection)));
                }
                Poll::Ready(Err(error)) => {
                    let failed = self.attempts.remove(index).remote();
                    let may_go_on = match error {
                        ConnectionError::TimedOut | ConnectionError::HandshakeTimedOut => true,
                        // No socket listens at this address, on any path.
                        ConnectionError::PortUnreachable => {
                            self.attempts.retain(|attempt| attempt.remote() != failed);
                            if let Some(others) = &mut self.others {
                                let remotes = &mut others.remotes;
                                remotes.retain(|remote| Some(*remote) != failed);
                            }
                            true
                        }
                        _ => false,
                    };
                    index = 0;
                    if may_go_on {
                        self.attempts
                            .extend(self.others.as_mut().and_then(|others| others.start()));
                    }
                    if !may_go_on || self.attempts.is_empty() {
                        self.attempts.clear();
                        return Poll::Ready(Err(error));
                    }
                }
            }
        }
        Poll::Pending
    }
}

impl Future for Connecting {
    type Output = Result<Connection, ConnectionError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            if let Poll::Ready(result) = this.poll_attempts(cx) {
                this.others = None;
                return Poll::Ready(result);
            }
            let Some(others) = &mut this.others else {
                return Poll::Pending;
            };
            if others.next.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let now = others.endpoint.now();
            others.next.as_mut().reset(now + NEXT_ATTEMPT);
            let mut answered = false;
            for attempt in &mut this.attempts {
                answered |= attempt.heard.is_recent(&attempt.connection.lock(), now);
            }
            // A failed attempt starts its successor in `poll_attempts`, without the timer.
            if !answered {
                this.attempts.extend(others.start());
            }
        }
    }
}

/// The attempts beside a connection that the application uses already. No attempt can take the
/// place of the connection, for the application's streams belong to the keys of the connection. An
/// attempt with success shows that the connection waits at a dead address.
struct Rivals {
    began: Instant,
    first: Weak<ConnectionState>,
    heard: Heard,
    connecting: Connecting,
    /// The attempt whose handshake is complete.
    through: Option<Connection>,
}

impl Future for Rivals {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            let Some(first) = this.first.upgrade() else {
                return Poll::Ready(());
            };
            if this.through.is_none() {
                match this.connecting.poll_attempts(cx) {
                    Poll::Ready(Ok(connection)) => this.through = Some(connection),
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                    Poll::Pending => {}
                }
            }
            let Some(others) = &mut this.connecting.others else {
                return Poll::Ready(());
            };
            let now = others.endpoint.now();
            let engine = first.lock();
            if engine.connected || engine.error.is_some() {
                return Poll::Ready(());
            }
            let is_heard = this.heard.is_recent(&engine, now);
            drop(engine);
            if !is_heard && this.through.is_some() && now >= this.began + UNHEARD {
                first.give_up();
                return Poll::Ready(());
            }
            if others.next.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            others.next.as_mut().reset(now + NEXT_ATTEMPT);
            let attempts = &mut this.connecting.attempts;
            let is_answered = attempts.iter_mut().any(|attempt| {
                let engine = attempt.connection.lock();
                attempt.heard.is_recent(&engine, now)
            });
            if !is_heard && !is_answered && this.through.is_none() {
                attempts.extend(others.start());
            }
        }
    }
}

/// Resolves when the handshake is complete or has failed: true if the server accepted 0-RTT.
#[derive(Debug)]
pub struct ZeroRttAccepted(Attempt);

impl Future for ZeroRttAccepted {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let established = self.0.established.as_mut().poll(cx);
        let mut engine = self.0.connection.lock();
        if established.is_pending() {
            engine.on_waits_for_handshake();
        }
        established.map(|result| result.is_ok() && engine.core.zero_rtt() == ZeroRtt::Accepted)
    }
}
