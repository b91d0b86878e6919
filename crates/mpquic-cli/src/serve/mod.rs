//! `mpquic serve`.

pub(crate) mod access_log;
pub(crate) mod args;
pub(crate) mod change;
pub(crate) mod client_limits;
pub(crate) mod drain;
#[cfg(all(test, target_os = "linux"))]
mod economy;
pub(crate) mod endpoints;
pub(crate) mod fleet;
pub(crate) mod flood;
pub(crate) mod hq;
pub(crate) mod http3;
pub(crate) mod http_service;
pub(crate) mod http_upload;
pub(crate) mod limit_args;
pub(crate) mod limits;
pub(crate) mod listening;
pub(crate) mod live_page;
pub(crate) mod metrics_server;
#[cfg(all(test, target_os = "linux"))]
mod model;
pub(crate) mod observer;
pub(crate) mod perf;
pub(crate) mod precondition;
pub(crate) mod presence;
pub(crate) mod receiving;
pub(crate) mod rest_of_body;
pub(crate) mod rights;
pub(crate) mod send_file;
pub(crate) mod succession;
pub(crate) mod tcp;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use mpquic_core::config::TransportOptions;
use mpquic_tokio::{Connection, Endpoint, ServerConfig, VarInt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::files::uploads::Uploads;
use crate::files::{Directory, Source};
use crate::options::drill::{self, Step};
use crate::options::identity::Identity;
use crate::options::trust::Fingerprint;
use crate::options::{Alpn, DATAGRAM_BUFFER, TlsArgs};
use crate::process::clock;
use crate::process::failure::Failure;
use crate::process::screen;
use crate::process::service_manager;
use crate::process::signals::Hangups;
use crate::report::live::{Direction, Live};
use crate::report::live_terminal::beside;
use crate::serve::args::Serve;
use crate::serve::drain::Draining;
use crate::serve::endpoints::Endpoints;
use crate::serve::fleet::Fleet;
use crate::serve::flood::Flood;
use crate::serve::limits::Limits;
use crate::serve::observer::{Observer, Text};
use crate::serve::rights::{Caller, Rights, Table};
use crate::serve::send_file::{QuicSession, Session};
use crate::serve::tcp::{TcpService, TlsConfig};

/// The code for clients with too many connections: H3_EXCESSIVE_LOAD.
const EXCESSIVE_LOAD: VarInt = VarInt::from_u32(0x107);

/// Interval of the search for unfinished files that have waited for too long.
const LOOK: Duration = Duration::from_secs(60);

/// Runs until interrupted, and then until open requests are answered.
pub(crate) async fn run(mut args: Serve) -> Result<(), Failure> {
    args.listening.workers = args.workers;
    args.listening.client_ca = args.client_ca.take();
    args.rights.has_certificates = args.listening.client_ca.is_some();
    let rights = Arc::new(Rights::new(Table::read(&args.rights, args.allow_put)?));
    let directory = Directory::new(&args.dir, args.dot_files)
        .map_err(|error| Failure::usage(format!("cannot serve {}: {error}", args.dir.display())))?
        .max_upload(args.allow_put.then_some(args.max_put_size << 20))
        .max_total(args.max_put_total.map(|total| total << 20))
        .quota(args.put_quota.map(|quota| quota << 20));
    let uploads = directory.uploads();
    if args.alt_svc.is_some() && !args.alpn.contains(&Alpn::H3) {
        let told = "--alt-svc announces HTTP/3, which --alpn leaves out: add h3 to it";
        return Err(Failure::usage(told));
    }
    let max_connections = args.limits.max_connections;
    let listening = &args.listening;
    let hangups = Hangups::new();
    let alpn = alpn(&args);
    let limits = limits::Shared::new(args.limits.limits());
    let watched = limits.clone();
    let figures = Arc::new(move || figures(&watched));
    let started = listening.start(&alpn, transport(&args)?, max_connections, Some(figures));
    let (server, draining) = started.await?;
    let tcp = tcp_listeners(&args, &server.listened)?;
    if let Some(fingerprint) = server.fingerprint {
        let port = server.port();
        let command = if args.perf {
            format!("Measure with:\n  mpquic perf --pin {fingerprint} HOST:{port}")
        } else {
            format!("Fetch with:\n  mpquic get --pin {fingerprint} https://HOST:{port}/FILE")
        };
        screen::say(format_args!("The certificate is self-signed. {command}"));
    }
    let service = Service {
        retry: listening.retry,
        drill: listening.connections.drill.steps.clone(),
        limits,
        rights,
        observer: server.observer.clone(),
        ..Service::new(Arc::new(directory))
    };
    if let Some(uploads) = uploads {
        tokio::spawn(tend(uploads));
    }
    let endpoints = server.endpoints.clone();
    let chosen = listening.connections.tls;
    let over_tcp = (server.identity).tls(chosen, &tcp::ALPN, listening.client_roots()?)?;
    let tls = watch::Sender::new(over_tcp);
    if !tcp.is_empty() {
        let announced = tcp::alternatives(&server.listened);
        let beside = service.over_tcp(tls.subscribe(), announced);
        tokio::spawn(beside.accept(tcp, draining.clone()));
    }
    let fleet = server.fleet.clone();
    let observer = server.observer.clone();
    let renewable = Renewable {
        endpoints: endpoints.clone(),
        tls,
        rights: service.rights.clone(),
        fleet,
    };
    let serving = async {
        tokio::select! {
            () = service.accept(&endpoints, draining) => Ok(()),
            never = reload(&args, &renewable, &observer, hangups) => match never {},
        }
    };
    let view = args.live.view(args.dir.display(), Direction::Both);
    let serving = async {
        // The end of the view ends the server.
        let shown = beside(view.map(Live::by_peer), || observer.connections(), serving);
        if let Err(failure) = shown.await {
            failure.report();
        }
    };
    service_manager::ready();
    server.run(serving, args.limits.drain_timeout(), None).await;
    Ok(())
}

/// Removes abandoned uploads: at the start the files of dead servers, and later files that have
/// waited for too long.
async fn tend(uploads: Arc<Uploads>) {
    let swept = uploads.clone();
    let swept = tokio::task::spawn_blocking(move || swept.sweep()).await;
    if let Ok(Err(error)) = swept {
        tracing::warn!(%error, "looking for unfinished files");
    }
    let mut looks = tokio::time::interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        looks.tick().await;
        let uploads = uploads.clone();
        let _ = tokio::task::spawn_blocking(move || uploads.expire(clock::now())).await;
    }
}

/// Metrics of requests, in the text format of Prometheus.
fn figures(limits: &limits::Shared) -> String {
    let mut text = Text::default();
    let help = "Memory of requests that are being answered, pages of directories among them.";
    let name = "mpquic_request_memory_bytes";
    text.figure(name, "gauge", help, limits.memory());
    text.0
}

fn alpn(args: &Serve) -> Vec<&'static [u8]> {
    if args.perf {
        vec![Alpn::Perf.bytes()]
    } else {
        args.alpn.iter().map(|alpn| alpn.bytes()).collect()
    }
}

/// Bytes that a connection keeps for a client before the client acknowledges any, so clients that
/// acknowledge nothing keep little memory.
const FIRST_SEND_WINDOW: u64 = 64 << 10;

/// Bytes that a client may send of a request before the server reads them.
const FIRST_STREAM_WINDOW: u64 = 128 << 10;

fn transport(args: &Serve) -> Result<TransportOptions, Failure> {
    let listening = &args.listening;
    let mut transport = listening.connections.transport(listening.max_paths)?;
    transport.initial_send_window = FIRST_SEND_WINDOW;
    // Uploads that wait for their turn leave the usual window to those that are read.
    transport.initial_stream_receive_window = FIRST_STREAM_WINDOW;
    transport.initial_receive_window += transport.max_concurrent_bidi_streams * FIRST_STREAM_WINDOW;
    if args.perf {
        transport.datagram_receive_buffer = Some(DATAGRAM_BUFFER);
    }
    Ok(transport)
}

/// The TCP listeners for files: none, one at a given address, or one at each address of the
/// endpoint.
fn tcp_listeners(args: &Serve, listened: &[SocketAddr]) -> Result<Vec<TcpListener>, Failure> {
    let addresses = match args.alt_svc {
        None => Vec::new(),
        Some(Some(address)) => vec![address],
        Some(None) => listened.to_vec(),
    };
    let mut listeners = Vec::new();
    for address in &addresses {
        let (listener, bound) = listening::bind(*address, &addresses, "--alt-svc")?;
        screen::print(format_args!("https on {bound}"));
        listeners.push(listener);
    }
    Ok(listeners)
}

/// The parts of a server that change with the files of its options.
struct Renewable {
    endpoints: Endpoints,
    tls: watch::Sender<TlsConfig>,
    rights: Arc<Rights>,
    fleet: Option<Fleet>,
}

impl Renewable {
    /// Reads certificate, key and credentials again. Returns the name of the certificate.
    fn renew(&self, args: &Serve) -> Result<Fingerprint, Failure> {
        let listening = &args.listening;
        let table = Table::read_again(&args.rights)?;
        let identity = listening.identity()?;
        let most = args.limits.max_connections;
        let config = listening.config(&identity, &alpn(args), transport(args)?, most)?;
        let chosen = listening.connections.tls;
        let over_tcp = identity.tls(chosen, &tcp::ALPN, listening.client_roots()?)?;
        let replaced = self.endpoints.set_server_config(config);
        replaced.map_err(Failure::usage)?;
        self.tls.send_replace(over_tcp);
        self.rights.set(table);
        identity.fingerprint()
    }
}

/// The files that the server reads again.
fn read_again(has_credentials: bool) -> &'static str {
    if has_credentials {
        "credentials, and certificate"
    } else {
        "certificate"
    }
}

/// Reads the files again after each SIGHUP: certificate and key for new connections, credentials
/// for new requests. Faulty files change nothing.
async fn reload(
    args: &Serve,
    renewable: &Renewable,
    observer: &Observer,
    mut hangups: Hangups,
) -> Infallible {
    loop {
        hangups.next().await;
        observer.reopen_log();
        match renewable.renew(args) {
            Ok(fingerprint) => {
                let what = read_again(args.rights.credentials.is_some());
                tracing::info!("read again: {what} {fingerprint}");
            }
            Err(failure) => tracing::error!("nothing changes: {}", failure.message()),
        }
        let fleet = renewable.fleet.as_ref();
        match fleet.map(|fleet| fleet.reread(&renewable.endpoints)) {
            Some(Ok(())) => tracing::info!("clients get new connection IDs"),
            Some(Err(failure)) => tracing::error!("connection IDs stay: {}", failure.message()),
            None => {}
        }
    }
}

/// The parts of a server that all clients share.
pub(crate) struct Service {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) limits: Arc<limits::Shared>,
    /// True if clients must prove their address first.
    pub(crate) retry: bool,
    /// The steps of an interoperability test on every connection.
    pub(crate) drill: Vec<Step>,
    pub(crate) observer: Arc<Observer>,
    pub(crate) rights: Arc<Rights>,
}

impl Service {
    pub(crate) fn new(source: Arc<dyn Source>) -> Self {
        Self {
            source,
            limits: limits::Shared::new(Limits::default()),
            retry: false,
            drill: Vec::new(),
            observer: Observer::new(None),
            rights: Arc::new(Rights::open()),
        }
    }

    /// The same service for clients over TCP. Answers announce HTTP/3 by the field `announced`.
    fn over_tcp(&self, tls: watch::Receiver<TlsConfig>, announced: HeaderValue) -> Arc<TcpService> {
        Arc::new(TcpService {
            source: self.source.clone(),
            limits: self.limits.clone(),
            observer: self.observer.clone(),
            rights: self.rights.clone(),
            tls,
            announced,
        })
    }

    /// Serves every client on a task of its own until the endpoints are closed. Refuses new clients
    /// once the server ends.
    pub(crate) async fn accept(self, endpoints: &Endpoints, draining: Draining) {
        let retry = self.retry;
        let task = Arc::new(ClientTask {
            source: self.source,
            limits: self.limits,
            drill: self.drill,
            observer: self.observer,
            rights: self.rights,
        });
        let serve = move |address, connection, draining| {
            let task = task.clone();
            async move { task.run(address, connection, draining).await }
        };
        accept(endpoints, retry, serve, draining).await;
    }
}

/// Serves every client on a task of its own until the endpoints are closed. Refuses new clients
/// once the server ends.
pub(crate) async fn accept<F: Future<Output = String> + Send + 'static>(
    endpoints: &Endpoints,
    retry: bool,
    serve: impl Fn(SocketAddr, Connection, Draining) -> F + Clone + Send + 'static,
    draining: Draining,
) {
    let logs = Logs {
        retries: Flood::new("Retry packets sent"),
        failures: Flood::new("connections failed"),
    };
    let mut accepting = endpoints.spawn(|endpoint| {
        let (serve, logs, draining) = (serve.clone(), logs.clone(), draining.clone());
        accept_of(endpoint, retry, serve, logs, draining)
    });
    // This task serves no client itself, so the server's end need not wait for it.
    drop(draining);
    while accepting.join_next().await.is_some() {}
}

/// The log lines that clients can cause at any rate.
#[derive(Clone)]
struct Logs {
    retries: Arc<Flood>,
    failures: Arc<Flood>,
}

/// [`accept`] for one of the endpoints.
async fn accept_of<F: Future<Output = String> + Send + 'static>(
    endpoint: Endpoint,
    retry: bool,
    serve: impl Fn(SocketAddr, Connection, Draining) -> F + Clone + Send + 'static,
    logs: Logs,
    mut draining: Draining,
) {
    loop {
        let incoming = tokio::select! {
            incoming = endpoint.accept() => incoming,
            () = draining.begun() => break,
        };
        let Some(incoming) = incoming else {
            return;
        };
        if retry && !incoming.remote_address_validated() {
            if let Some(client) = incoming.remote_address() {
                logs.retries.log(format_args!("{client}: sent a Retry"));
            }
            // A Retry for a validated address fails, and this address is not validated.
            let _ = incoming.retry();
            continue;
        }
        let (serve, failures) = (serve.clone(), logs.failures.clone());
        let mut draining = draining.clone();
        tokio::spawn(async move {
            let Some(address) = incoming.remote_address() else {
                // The attempt ended before its turn.
                return;
            };
            let connected = tokio::select! {
                biased;
                connected = incoming.into_future() => connected.map_err(|error| error.to_string()),
                // The client sent no request yet, and may never answer.
                () = draining.begun() => Err("the server ends".to_owned()),
            };
            let connection = match connected {
                Ok(connection) => connection,
                Err(error) => {
                    failures.log(format_args!("{address}: no connection: {error}"));
                    return;
                }
            };
            let multipath = if connection.is_multipath() {
                "multipath"
            } else {
                "no multipath"
            };
            tracing::info!("{address}: connected, {multipath}");
            let reason = serve(address, connection, draining).await;
            tracing::info!("{address}: {reason}");
        });
    }
    // The server's end need not wait for refusals.
    drop(draining);
    while let Some(incoming) = endpoint.accept().await {
        incoming.refuse();
    }
}

/// Closes a new connection beyond the limit of its address, or beyond the limit of the server.
pub(crate) fn turn_away(connection: &Connection) -> String {
    connection.close(
        EXCESSIVE_LOAD,
        b"too many connections from your address, or in all",
    );
    "turned away, there are too many connections of its address, or in all".to_owned()
}

/// Closes a connection because other clients need its place more.
pub(crate) fn give_way(connection: &Connection) -> String {
    connection.close(EXCESSIVE_LOAD, b"others need the connection more");
    "ended, others need the connection more".to_owned()
}

/// The parts of a server that the tasks of all clients share.
struct ClientTask {
    source: Arc<dyn Source>,
    limits: Arc<limits::Shared>,
    drill: Vec<Step>,
    observer: Arc<Observer>,
    rights: Arc<Rights>,
}

impl ClientTask {
    async fn run(&self, address: SocketAddr, connection: Connection, draining: Draining) -> String {
        drill::start(&connection, None, self.drill.clone());
        let Some(limits) = limits::Client::new(self.limits.clone(), address.ip()) else {
            return turn_away(&connection);
        };
        let _observed = self.observer.on_connection(&connection);
        let held = connection.clone();
        let protocol = connection.handshake_data().and_then(|data| data.protocol);
        let gives_way = limits.gives_way();
        let certificates = connection.peer_certificates().unwrap_or_default();
        let certificate = certificates.first().map(Fingerprint::of);
        let session = Session {
            source: self.source.clone(),
            limits,
            observer: self.observer.clone(),
            client: address.ip(),
            rights: self.rights.clone(),
            caller: Caller::of_certificate(certificate),
        };
        let session = QuicSession {
            session,
            connection,
        };
        let is = |alpn: Alpn| protocol.as_deref() == Some(alpn.bytes());
        let serving = async {
            if is(Alpn::H3) {
                http3::serve(session, draining).await
            } else if is(Alpn::Perf) {
                perf::serve(session, draining).await
            } else {
                // TLS refuses clients without one of our protocols.
                hq::serve(session, draining).await.to_string()
            }
        };
        tokio::select! {
            reason = serving => reason,
            () = gives_way => give_way(&held),
        }
    }
}

/// A configuration with a new self-signed certificate for the addresses listened on.
pub(crate) fn self_signed(
    addresses: &[SocketAddr],
    alpn: &[&[u8]],
) -> Result<(ServerConfig, Fingerprint), Failure> {
    let identity = Identity::make(addresses)?;
    let fingerprint = identity.fingerprint()?;
    let config = identity.config(TlsArgs::default(), alpn, None, None)?;
    Ok((config, fingerprint))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use mpquic_tokio::ConnectionError;

    use super::*;
    use crate::client::session::{Purpose, Sessions};
    use crate::process::screen::tests::Heard;
    use crate::serve::client_limits::AddressLimits;
    use crate::testing::{Anything, Served, logged_by, reach, soon};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        serve: Serve,
    }

    fn arguments(options: &[&str]) -> Serve {
        let line = ["x"].iter().chain(options);
        Line::try_parse_from(line).unwrap().serve
    }

    #[test]
    fn clients_that_acknowledge_nothing_keep_little_data() {
        let transport = transport(&arguments(&[])).unwrap();
        assert_eq!(transport.initial_send_window, 64 << 10);
    }

    #[test]
    fn the_log_names_only_files_that_are_read_again() {
        assert_eq!(read_again(false), "certificate");
        assert_eq!(read_again(true), "credentials, and certificate");
    }

    #[test]
    fn measurements_have_a_protocol_and_datagrams_of_their_own() {
        for (options, protocols, datagrams) in [
            (
                &["--max-paths", "3"][..],
                &[&b"h3"[..], b"hq-interop"][..],
                None,
            ),
            (&["--alpn", "hq-interop"], &[b"hq-interop"], None),
            (&["--perf"], &[b"perf"], Some(1 << 20)),
        ] {
            let args = arguments(options);
            assert_eq!(alpn(&args), protocols);
            let transport = transport(&args).unwrap();
            assert_eq!(transport.datagram_receive_buffer, datagrams);
            let paths = transport.max_concurrent_paths;
            assert_eq!(paths == 3, options.contains(&"3"), "{paths}");
        }
    }

    /// The tool opens no listener, one, or one for each address of the endpoint, and prints each
    /// address.
    #[tokio::test]
    async fn files_are_served_over_tcp_where_that_was_asked_for() {
        let heard = Heard::begin();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listened = [any, SocketAddr::from(([127, 0, 0, 2], 0))];
        for (options, count) in [
            (&[][..], 0),
            (&["--alt-svc=127.0.0.3:0"], 1),
            (&["--alt-svc"], 2),
        ] {
            let opened = tcp_listeners(&arguments(options), &listened).unwrap();
            assert_eq!(opened.len(), count);
            let at = opened.iter().map(|listener| listener.local_addr().unwrap());
            let told: String = at.map(|at| format!("https on {at}\n")).collect();
            assert_eq!(heard.take(), [&*told, ""]);
        }
    }

    #[tokio::test]
    async fn impossible_options_are_refused_before_the_server_starts() {
        let failure = run(arguments(&["/missing/directory"])).await.unwrap_err();
        let told = "cannot serve /missing/directory: ";
        assert!(failure.message().starts_with(told), "{}", failure.message());
        let other = arguments(&["--alt-svc", "--alpn", "hq-interop"]);
        let failure = run(other).await.unwrap_err();
        let told = "--alt-svc announces HTTP/3, which --alpn leaves out: add h3 to it";
        assert_eq!((failure.code(), failure.message()), (2, told));
    }

    fn service() -> Service {
        Service::new(Arc::new(Anything::new(1)))
    }

    fn close_of(error: ConnectionError) -> (VarInt, Vec<u8>) {
        match error {
            ConnectionError::ApplicationClosed(close) => (close.error_code, close.reason.to_vec()),
            other => panic!("{other}"),
        }
    }

    #[tokio::test]
    async fn an_address_with_too_many_connections_is_turned_away() {
        let limits = Limits {
            address: AddressLimits {
                connections: Some(1),
                ..AddressLimits::default()
            },
            ..Limits::default()
        };
        let service = Service {
            limits: limits::Shared::new(limits),
            ..service()
        };
        let served = Served::of(service, Alpn::H3);
        let first = served.connect(1 << 16).await;
        let second = served.connect(1 << 16).await;
        let told = b"too many connections from your address, or in all".to_vec();
        assert_eq!(
            close_of(soon(second.closed()).await),
            (EXCESSIVE_LOAD, told)
        );
        assert_eq!(first.close_reason(), None);
    }

    #[tokio::test]
    async fn addresses_are_proven_where_that_is_asked_for() {
        for retry in [false, true] {
            let service = Service { retry, ..service() };
            let served = Served::of(service, Alpn::H3);
            let connection = served.connect(1 << 16).await;
            let retries: u64 = served.endpoints.stats().iter().map(|it| it.retries).sum();
            assert_eq!(retries, u64::from(retry));
            drop(connection);
        }
    }

    #[test]
    fn retries_and_failed_handshakes_are_logged() {
        let log = logged_by(async {
            let service = Service {
                retry: true,
                ..service()
            };
            let mut served = Served::of(service, Alpn::H3);
            let stranger = Fingerprint([7; 32]).to_string();
            let (url, reach) = (served.url("/"), reach(&["--pin", &stranger]));
            let look = Purpose::look(&url, &[Alpn::H3]);
            let sessions = Sessions::new(&reach, look).unwrap().that_forget();
            assert!(sessions.connection(&url).await.is_err());
            // The end of the server waits for the line about this attempt.
            served.drain.begin();
            served.drain.done().await;
        });
        for told in [": sent a Retry", ": no connection: "] {
            assert!(log.contains(told), "{log}");
        }
    }

    /// The client's first datagrams arrive, and none of the answers to them.
    #[tokio::test]
    async fn half_open_handshake_holds_no_end() {
        let mut transport = mpquic_tokio::default_transport();
        transport.max_handshake_duration = Duration::from_secs(3600);
        let mut served = Served::over(service(), Alpn::H3, transport);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let relay = tokio::net::UdpSocket::bind(any).await.unwrap();
        let to_server = tokio::net::UdpSocket::bind(any).await.unwrap();
        to_server.connect(served.address).await.unwrap();
        let mut datagram = [0; 2000];
        let begun = async {
            loop {
                let mut answer = [0; 2000];
                tokio::select! {
                    sent = relay.recv(&mut datagram) => {
                        let sent = &datagram[..sent.unwrap()];
                        to_server.send(sent).await.unwrap();
                    }
                    answered = to_server.recv(&mut answer) => drop(answered.unwrap()),
                }
                if served.endpoints.stats()[0].accepted_handshakes > 0 {
                    break;
                }
            }
        };
        let address = relay.local_addr().unwrap();
        tokio::select! {
            connected = served.connect_to(address, 1000) => panic!("{connected:?}"),
            () = soon(begun) => {}
        }
        served.drain.begin();
        soon(served.drain.done()).await;
    }

    #[tokio::test]
    async fn a_server_that_ends_refuses_who_comes_late() {
        let mut served = Served::of(service(), Alpn::H3);
        served.drain.begin();
        // A task that serves no client does not delay the end.
        soon(served.drain.done()).await;
        let late = soon(served.try_connect(1 << 16)).await.unwrap_err();
        assert!(
            matches!(late, ConnectionError::ConnectionClosed(_)),
            "{late}"
        );
        let stats = served.endpoints.stats();
        assert_eq!(stats.iter().map(|it| it.refused_handshakes).sum::<u64>(), 1);
    }
}
