//! `mpquic serve`.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mpquic_core::config::EndpointOptions;
use mpquic_tokio::{Endpoint, Incoming, InvalidOption, ServerConfig, VarInt};
use tokio::net::TcpListener;

use crate::access_log::{AccessLog, Format};
use crate::args::Serve;
use crate::delivery::Session;
use crate::drain::{CLOSE_TIME, Drain, Draining, ENDS, drain};
use crate::drill::{self, Step};
use crate::failure::{Cause, Failure};
use crate::files::{Directory, Source};
use crate::flood::Flood;
use crate::hq;
use crate::http_server;
use crate::identity::{self, Identity};
use crate::limits::{self, Limits};
use crate::metrics_server;
use crate::observer::Observer;
use crate::options::{Alpn, Cipher, DATAGRAM_BUFFER};
use crate::perf_server;
use crate::signals::Signals;
use crate::trust::Fingerprint;

/// Port used when none is named.
const DEFAULT_PORT: u16 = 4433;
/// The code they are told with: H3_NO_ERROR.
const NO_ERROR: VarInt = VarInt::from_u32(0x100);
/// The code for clients with too many connections: H3_EXCESSIVE_LOAD.
const EXCESSIVE_LOAD: VarInt = VarInt::from_u32(0x107);

/// Runs until interrupted, and then until open requests are answered.
pub(crate) async fn run(args: Serve) -> Result<(), Failure> {
    let directory = Directory::new(&args.dir, args.dot_files)
        .map_err(|error| Failure::usage(format!("cannot serve {}: {error}", args.dir.display())))?
        .max_upload(args.allow_put.then_some(args.max_put_size << 20));
    let alpn: Vec<_> = match args.perf {
        true => vec![Alpn::Perf.bytes()],
        false => args.alpn.iter().map(|alpn| alpn.bytes()).collect(),
    };
    let identity = match (&args.cert, &args.key) {
        (Some(cert), Some(key)) => Identity::read(cert, key)?,
        _ => own_identity(&args)?,
    };
    let fingerprint = match &args.cert {
        Some(_) => None,
        None => Some(identity.fingerprint()?),
    };
    let reset_key = reset_key(&identity, &args);
    let config = identity.config(args.connections.cipher, &alpn)?;
    let log = args.access_log.as_deref();
    let log = log
        .map(|path| open_log(path, args.access_log_format))
        .transpose()?;
    let observer = Observer::new(log);
    let mut transport = args.connections.transport(args.max_paths)?;
    if args.perf {
        transport.datagram_receive_buffer = Some(DATAGRAM_BUFFER);
    }
    let transport = transport.build().map_err(Failure::usage)?;
    let config = config
        .transport_config(transport)
        .max_connections(args.limits.max_connections as usize);
    let config = prefer(config, &args.preferred_address)?;
    let signals = Signals::new();
    let endpoint = listen(&args, config, reset_key)?;
    let metrics = metrics_listener(args.metrics).await?;
    for address in endpoint.local_addrs() {
        println!("listening on {address}");
    }
    let (drain, draining) = drain();
    let watched = metrics.map(|(listener, address)| {
        println!("metrics on http://{address}/metrics");
        let (observer, endpoint) = (observer.clone(), endpoint.clone());
        let metrics = Arc::new(move || observer.metrics(&endpoint));
        tokio::spawn(metrics_server::serve(listener, metrics, drain.watch()))
    });
    if let Some(fingerprint) = fingerprint {
        println!("certificate {fingerprint}");
        let port = endpoint
            .local_addr()
            .map_or(DEFAULT_PORT, |local| local.port());
        let command = match args.perf {
            true => format!("Measure with:\n  mpquic perf --pin {fingerprint} HOST:{port}"),
            false => {
                format!("Fetch with:\n  mpquic get --pin {fingerprint} https://HOST:{port}/FILE")
            }
        };
        eprintln!("The certificate is self-signed. {command}");
    }
    let service = Service {
        retry: args.retry,
        drill: args.connections.drill.steps.clone(),
        limits: args.limits.limits(),
        observer: observer.clone(),
        ..Service::new(Arc::new(directory))
    };
    let serving = service.accept(&endpoint, draining);
    until_drained(serving, drain, signals, args.limits.drain_timeout()).await;
    if let Some(watched) = watched {
        watched.abort();
    }
    endpoint.close(NO_ERROR, ENDS);
    let _ = tokio::time::timeout(CLOSE_TIME, endpoint.wait_idle()).await;
    observer.finish();
    Ok(())
}

/// The key for stateless resets, if it can be that of the server which ran here before. One who
/// knows the connection IDs of a server could make another one with the same key tell the tokens of
/// its resets (RFC 9000 section 21.11): so each address has its own, an address that is not chosen
/// yet has none that lasts, and neither has a certificate, which other machines may have as well.
fn reset_key(identity: &Identity, args: &Serve) -> Option<[u8; 32]> {
    let is_elsewhere = args.cert.is_some();
    if is_elsewhere || args.listen.iter().any(|address| address.port() == 0) {
        return None;
    }
    Some(identity.derived_key(&format!("mpquic stateless resets {:?}", args.listen)))
}

/// Serves until a signal comes, then finishes what is open: all of it, or what the `limit` of time
/// or a second signal leaves.
async fn until_drained(
    serving: impl Future<Output = ()>,
    mut drain: Drain,
    mut signals: Signals,
    limit: Duration,
) {
    tokio::pin!(serving);
    tokio::select! {
        () = &mut serving => return,
        () = signals.next() => {}
    }
    drain.begin();
    tracing::info!(
        "ending: open requests get up to {} s; a second signal ends at once",
        limit.as_secs()
    );
    tokio::select! {
        () = &mut serving => {}
        () = drain.done() => tracing::info!("every request was answered"),
        () = tokio::time::sleep(limit) => tracing::warn!("what is still open is cut off"),
        () = signals.next() => tracing::warn!("told once more: what is still open is cut off"),
    }
}

/// The identity of earlier servers of this user, or a new one.
fn own_identity(args: &Serve) -> Result<Identity, Failure> {
    let Some(directory) = args.state.clone().or_else(identity::state_directory) else {
        return Identity::make(&args.listen);
    };
    match Identity::kept(&directory, &args.listen) {
        Ok((identity, is_new)) => {
            if is_new {
                tracing::info!(
                    "the certificate and its key are kept in {}",
                    directory.display()
                );
            }
            Ok(identity)
        }
        // Nobody asked for it.
        Err(failure) if args.state.is_none() && failure.cause() == Some(Cause::File) => {
            tracing::warn!(
                "{}; clients have to pin another one next time",
                failure.message()
            );
            Identity::make(&args.listen)
        }
        Err(failure) => Err(failure),
    }
}

fn open_log(path: &Path, format: Format) -> Result<AccessLog, Failure> {
    AccessLog::open(path, format).map_err(|error| {
        Cause::File.failed(format_args!("cannot write {}: {error}", path.display()))
    })
}

/// Where figures are asked for.
async fn metrics_listener(
    address: Option<SocketAddr>,
) -> Result<Option<(TcpListener, SocketAddr)>, Failure> {
    let Some(address) = address else {
        return Ok(None);
    };
    let cannot_listen =
        |error| Failure::other(format!("cannot listen on {address} for --metrics: {error}"));
    let listener = TcpListener::bind(address).await.map_err(cannot_listen)?;
    let bound = listener.local_addr().map_err(cannot_listen)?;
    Ok(Some((listener, bound)))
}

/// Adds the addresses that clients are asked to move to.
fn prefer(config: ServerConfig, addresses: &[SocketAddr]) -> Result<ServerConfig, Failure> {
    let (mut v4, mut v6) = (None, None);
    for address in addresses {
        if address.ip().is_unspecified() {
            let expected = "one address, not all of them";
            let error = InvalidOption::new("--preferred-address", address, expected);
            return Err(Failure::usage(error));
        }
        let earlier = match address {
            SocketAddr::V4(address) => v4.replace(*address).is_some(),
            SocketAddr::V6(address) => v6.replace(*address).is_some(),
        };
        if earlier {
            let message = format!("--preferred-address {address}: one of its family is enough");
            return Err(Failure::usage(message));
        }
    }
    Ok(config.preferred_address_v4(v4).preferred_address_v6(v6))
}

/// How clients are served.
pub(crate) struct Service {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) limits: Limits,
    /// Clients have to prove their address first.
    pub(crate) retry: bool,
    /// The steps to take on every connection.
    pub(crate) drill: Vec<Step>,
    pub(crate) observer: Arc<Observer>,
}

impl Service {
    pub(crate) fn new(source: Arc<dyn Source>) -> Self {
        Self {
            source,
            limits: Limits::default(),
            retry: false,
            drill: Vec::new(),
            observer: Observer::new(None),
        }
    }

    /// Serves every client on a task of its own until the endpoint is closed; refuses them once the
    /// end begins.
    pub(crate) async fn accept(self, endpoint: &Endpoint, mut draining: Draining) {
        let task = Arc::new(ClientTask {
            source: self.source,
            limits: limits::Shared::new(self.limits),
            drill: self.drill,
            observer: self.observer,
            failures: Flood::new("connections failed"),
        });
        let retries = Flood::new("Retry packets sent");
        loop {
            let incoming = tokio::select! {
                incoming = endpoint.accept() => incoming,
                () = draining.begun() => break,
            };
            let Some(incoming) = incoming else {
                return;
            };
            if self.retry && !incoming.remote_address_validated() {
                if let Some(client) = incoming.remote_address() {
                    retries.log(format_args!("{client}: sent a Retry"));
                }
                // Fails for validated addresses only.
                let _ = incoming.retry();
                continue;
            }
            let (task, draining) = (task.clone(), draining.clone());
            tokio::spawn(async move { task.run(incoming, draining).await });
        }
        // Refusing is no reason to wait.
        drop(draining);
        while let Some(incoming) = endpoint.accept().await {
            incoming.refuse();
        }
    }
}

/// What the tasks of all clients share.
struct ClientTask {
    source: Arc<dyn Source>,
    limits: Arc<limits::Shared>,
    drill: Vec<Step>,
    observer: Arc<Observer>,
    failures: Arc<Flood>,
}

impl ClientTask {
    async fn run(&self, incoming: Incoming, draining: Draining) {
        let Some(address) = incoming.remote_address() else {
            // Forgotten before its turn came.
            return;
        };
        let client = address.to_string();
        let connection = match incoming.await {
            Ok(connection) => connection,
            Err(error) => {
                let failures = &self.failures;
                failures.log(format_args!("{client}: no connection: {error}"));
                return;
            }
        };
        drill::start(&connection, None, self.drill.clone());
        let multipath = if connection.is_multipath() {
            "multipath"
        } else {
            "no multipath"
        };
        tracing::info!("{client}: connected, {multipath}");
        let Some(limits) = limits::Client::new(self.limits.clone(), address.ip()) else {
            tracing::info!("{client}: turned away, its address has too many connections");
            connection.close(EXCESSIVE_LOAD, b"too many connections from your address");
            return;
        };
        let _observed = self.observer.on_connection(&connection);
        let protocol = connection.handshake_data().and_then(|data| data.protocol);
        let session = Session {
            connection,
            source: self.source.clone(),
            limits,
            too_many_cancelled: EXCESSIVE_LOAD,
            observer: self.observer.clone(),
            client: address.ip(),
        };
        let is = |alpn: Alpn| protocol.as_deref() == Some(alpn.bytes());
        let reason = if is(Alpn::H3) {
            http_server::serve(session, draining).await
        } else if is(Alpn::Perf) {
            perf_server::serve(session, draining).await
        } else {
            // TLS lets no client in that speaks none of our protocols.
            hq::serve(session, draining).await.to_string()
        };
        tracing::info!("{client}: {reason}");
    }
}

fn listen(
    args: &Serve,
    config: ServerConfig,
    reset_key: Option<[u8; 32]>,
) -> Result<Endpoint, Failure> {
    let options = reset_key.map(|key| EndpointOptions::new(key).build());
    let options = options.transpose().map_err(Failure::usage)?;
    let addresses = &args.listen;
    let bind = |addresses: &[SocketAddr]| {
        let builder = Endpoint::builder();
        let builder = match &options {
            Some(options) => builder.endpoint_config(options.clone()),
            None => builder,
        };
        let builder = builder
            .supported_versions(args.connections.versions.list())
            .server(config.clone());
        let builder = addresses
            .iter()
            .fold(builder, |builder, address| builder.bind(*address));
        builder.build()
    };
    let endpoint = if addresses.is_empty() {
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, DEFAULT_PORT));
        let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, DEFAULT_PORT));
        // For systems without IPv6.
        bind(&[any]).or_else(|_| bind(&[v4]))
    } else {
        bind(addresses)
    };
    endpoint
        .map_err(|error| Failure::other(format!("cannot listen: {error}; try another --listen")))
}

/// A configuration with a new self-signed certificate for the addresses listened on.
pub(crate) fn self_signed(
    addresses: &[SocketAddr],
    cipher: Option<Cipher>,
    alpn: &[&[u8]],
) -> Result<(ServerConfig, Fingerprint), Failure> {
    let identity = Identity::make(addresses)?;
    let fingerprint = identity.fingerprint()?;
    Ok((identity.config(cipher, alpn)?, fingerprint))
}
