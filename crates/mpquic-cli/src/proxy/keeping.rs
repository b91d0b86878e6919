//! Keeps a connection to the proxy: makes the first one, and another one after a loss, before the
//! end of a proxy that says that it ends, and in the place of one that the proxy may have
//! forgotten.

use std::convert::Infallible;
#[cfg(target_os = "linux")]
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use mpquic_proxy::Client;
use mpquic_tokio::{Connection, ConnectionError};

use crate::client::retry::Retry;
use crate::client::session::{Session, Sessions};
use crate::process::clock;
use crate::process::failure::{Cause, Failure};
use crate::proxy::args::ProxyClient;
use crate::proxy::liveness::{NO_ERROR, forget, until_closed, until_heard, until_silent};

/// The time between two lookups of the name of a proxy that is connected.
const LOOK_UP: Duration = Duration::from_secs(300);
/// It is tried for ever to get a connection back.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);
/// In this time after a loss, pauses between attempts are short: programs wait, and the proxy may
/// just restart.
const FRESH: Duration = Duration::from_secs(60);
/// The longest pause in that time.
const SHORT: Duration = Duration::from_secs(1);
/// After this time with packets that have no answer, the proxy may have forgotten the connection,
/// and is asked by another one.
const PATIENCE: Duration = Duration::from_secs(3);
/// The time in which a connection that works after all shows it.
const PROOF: Duration = Duration::from_secs(3);

/// Why nothing is reached; each reason is told once.
#[derive(Default)]
struct Waiting {
    told: String,
}

impl Waiting {
    fn tell(&mut self, failure: &Failure) {
        let reason = failure.message();
        if self.told != reason {
            tracing::warn!("{reason}; trying again");
            self.told = reason.to_owned();
        }
    }
}

/// The proxy's addresses, once its name has some: at boot there may be no network yet, nor the link
/// of the proxy.
#[cfg(target_os = "linux")]
pub(super) async fn addresses(
    args: &ProxyClient,
    sessions: &Sessions<'_>,
) -> Result<Vec<SocketAddr>, Failure> {
    let began = clock::now();
    let (mut retry, mut waiting) = (Retry::new(FOR_EVER, began), Waiting::default());
    loop {
        match sessions.addresses(&args.url).await {
            Err(failure) if failure.cause() == Some(Cause::Name) => {
                waiting.tell(&failure);
                pause(&mut retry, began).await;
            }
            found => return found,
        }
    }
}

/// Waits before the next try, where something was reached last at `advanced`.
async fn pause(retry: &mut Retry, advanced: std::time::Instant) {
    let now = clock::now();
    let pause = retry
        .next(advanced, now)
        .map_or(FOR_EVER, |(pause, _)| pause);
    let is_fresh = now.saturating_duration_since(advanced) < FRESH;
    tokio::time::sleep(if is_fresh { pause.min(SHORT) } else { pause }).await;
}

/// Looks the proxy's name up again: the proxy may have moved. A kill switch would let nothing
/// through to another address.
async fn look_up_again(sessions: &Sessions<'_>, args: &ProxyClient) {
    #[cfg(target_os = "linux")]
    if args.tun.kill_switch.is_some() {
        return;
    }
    sessions.look_up_again(&args.url).await;
}

/// Finds out where the proxy moves to while lookups lead through it.
async fn look_up_now_and_then(sessions: &Sessions<'_>, args: &ProxyClient) -> Infallible {
    loop {
        tokio::time::sleep(LOOK_UP).await;
        look_up_again(sessions, args).await;
    }
}

/// The flows of one connection, until it ends. Resolves to the reason.
type Carrying<'a> = Pin<Box<dyn Future<Output = String> + 'a>>;

/// Why a connection gets no new flows.
enum Past {
    /// It is lost.
    Lost(String),
    /// The proxy is about to end. Open flows go on.
    Leaving,
    /// The proxy did not answer on it, and answered on this one.
    Replaced(Box<Session>),
}

/// Keeps a connection to the proxy, until the proxy is not the right one, and shows it. Calls back
/// for each new connection.
pub(super) async fn keep(
    args: &ProxyClient,
    sessions: &Sessions<'_>,
    client: &Client,
    current: &Mutex<Option<Connection>>,
    mut connected_again: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let show = |shown| *current.lock().unwrap_or_else(PoisonError::into_inner) = shown;
    let mut retry = Retry::new(FOR_EVER, clock::now());
    let mut waiting = Waiting::default();
    let mut advanced = clock::now();
    let mut leaving = FuturesUnordered::new();
    loop {
        let connected = tokio::select! {
            connected = sessions.connection(&args.url) => connected,
            never = see_off(&mut leaving) => match never {},
        };
        match connected {
            Ok(connected) => {
                let connection = connected.connection;
                show(Some(connection.clone()));
                tracing::info!("connected to {}", args.url);
                connected_again()?;
                let mut carrying: Carrying<'_> = Box::pin(carry(client, connection.clone()));
                let past = tokio::select! {
                    past = until_past(args, sessions, client, &connection, &mut carrying) => past,
                    never = see_off(&mut leaving) => match never {},
                };
                advanced = clock::now();
                waiting = Waiting::default();
                match past {
                    Past::Lost(reason) => {
                        show(None);
                        sessions.give_up().await;
                        tracing::warn!(
                            "the connection to the proxy is lost: {reason}; trying again"
                        );
                    }
                    Past::Leaving => {
                        tracing::warn!(
                            "the proxy is about to end: its open flows go on, and new ones wait for the next connection"
                        );
                        let session = sessions.set_aside().await;
                        leaving.push(async move {
                            let reason = carrying.await;
                            drop(session);
                            reason
                        });
                        continue;
                    }
                    Past::Replaced(session) => {
                        tracing::warn!(
                            "the proxy no longer answers on the connection, but does on another one: flows of the first are over"
                        );
                        connection.close(NO_ERROR, b"replaced");
                        carrying.await;
                        sessions.replace(*session).await;
                        continue;
                    }
                }
            }
            // The clock may be set, or the certificate renewed.
            Err(failure) if sessions.depends_on_time(&failure) => waiting.tell(&failure),
            // A retry would fail as well.
            Err(failure) if is_final(&failure) => return Err(failure),
            Err(failure) => {
                waiting.tell(&failure);
                look_up_again(sessions, args).await;
            }
        }
        tokio::select! {
            () = pause(&mut retry, advanced) => {}
            never = see_off(&mut leaving) => match never {},
        }
    }
}

/// True if no later attempt can succeed.
fn is_final(failure: &Failure) -> bool {
    matches!(failure.cause(), None | Some(Cause::Trust | Cause::File))
}

/// Carries flows over a connection until it ends.
async fn carry(client: &Client, connection: Connection) -> String {
    let ended = client.run(connection.clone()).await;
    match (connection.close_reason(), ended) {
        (Some(reason), _) => reason.to_string(),
        (None, Ok(error) | Err(error)) => mpquic_h3::describe_connection_error(&error),
    }
}

/// Lets the flows of connections go on whose proxies end.
async fn see_off(leaving: &mut FuturesUnordered<impl Future<Output = String>>) -> Infallible {
    loop {
        match leaving.next().await {
            Some(reason) => {
                tracing::info!("the last flows of an earlier connection are over: {reason}")
            }
            None => std::future::pending().await,
        }
    }
}

/// Waits until a connection can have no new flows.
async fn until_past(
    args: &ProxyClient,
    sessions: &Sessions<'_>,
    client: &Client,
    connection: &Connection,
    carrying: &mut Carrying<'_>,
) -> Past {
    let left = async {
        client.connected().await;
        client.left().await;
    };
    let closed = || {
        forget(connection);
        Past::Lost("no program listens on the proxy's port any more".to_owned())
    };
    tokio::select! {
        biased;
        reason = carrying => Past::Lost(reason),
        () = left => match connection.close_reason() {
            Some(reason) => Past::Lost(reason.to_string()),
            None => Past::Leaving,
        },
        () = until_closed(connection) => closed(),
        session = replacement(args, sessions, connection) => match session {
            Some(session) => Past::Replaced(Box::new(session)),
            None => closed(),
        },
        never = look_up_now_and_then(sessions, args) => match never {},
    }
}

/// A new connection to the proxy, once the proxy answers on it and not on the old one: it has
/// forgotten the old one, or moved. While nothing reaches the proxy, the old connection and its
/// flows stay. `None` once the system of the proxy answers that no program listens on the port:
/// systems limit such answers, and the packets of the old connection ask for most of them.
async fn replacement(
    args: &ProxyClient,
    sessions: &Sessions<'_>,
    connection: &Connection,
) -> Option<Session> {
    loop {
        until_silent(connection, PATIENCE).await;
        tracing::info!("the proxy is silent; trying whether it answers on another connection");
        tokio::select! {
            () = until_heard(connection) => {}
            session = attempt(args, sessions) => {
                connection.ping();
                if tokio::time::timeout(PROOF, until_heard(connection)).await.is_err() {
                    return session;
                }
                if let Some(session) = session {
                    session.close().await;
                }
            }
        }
    }
}

/// True if the proxy's system has answered that no program listens on the port.
fn nobody_listens(failure: &Failure) -> bool {
    let told = ConnectionError::PortUnreachable.to_string();
    failure.message().contains(&told)
}

/// A second connection to the proxy, tried until there is one. `None` if no program listens on the
/// port.
async fn attempt(args: &ProxyClient, sessions: &Sessions<'_>) -> Option<Session> {
    let began = clock::now();
    let (mut retry, mut waiting) = (Retry::new(FOR_EVER, began), Waiting::default());
    loop {
        look_up_again(sessions, args).await;
        match sessions.another(&args.url).await {
            Ok(session) => return Some(session),
            Err(failure) if nobody_listens(&failure) => return None,
            Err(failure) => waiting.tell(&failure),
        }
        pause(&mut retry, began).await;
    }
}
