//! `mpquic serve`.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mpquic_core::crypto::rustls::QuicServerConfig;
use mpquic_tokio::{Endpoint, Incoming, InvalidOption, ServerConfig, VarInt};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::args::Serve;
use crate::drain::{CLOSE_TIME, Draining, ENDS, drain};
use crate::drill::{self, Step};
use crate::failure::Failure;
use crate::files::{Directory, Source};
use crate::flood::Flood;
use crate::hq;
use crate::http_server;
use crate::limits::{self, Limits};
use crate::options::{Alpn, Cipher, Versions};
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
    let alpn: Vec<_> = args.alpn.iter().map(|alpn| alpn.bytes()).collect();
    let (config, fingerprint) = match (&args.cert, &args.key) {
        (Some(cert), Some(key)) => (
            Identity::read(cert, key)?.config(args.connections.cipher, &alpn)?,
            None,
        ),
        _ => {
            let (config, fingerprint) = self_signed(&args.listen, args.connections.cipher, &alpn)?;
            (config, Some(fingerprint))
        }
    };
    let transport = args.connections.transport(args.max_paths)?;
    let transport = transport.build().map_err(Failure::usage)?;
    let config = config
        .transport_config(transport)
        .max_connections(args.limits.max_connections as usize);
    let config = prefer(config, &args.preferred_address)?;
    let signals = Signals::new();
    let endpoint = listen(&args.listen, config, &args.connections.versions)?;
    for address in endpoint.local_addrs() {
        println!("listening on {address}");
    }
    if let Some(fingerprint) = fingerprint {
        println!("certificate {fingerprint}");
        let port = endpoint
            .local_addr()
            .map_or(DEFAULT_PORT, |local| local.port());
        eprintln!(
            "The certificate is self-signed. Fetch with:\n  \
             mpquic get --pin {fingerprint} https://HOST:{port}/FILE"
        );
    }
    let service = Service {
        retry: args.retry,
        drill: args.connections.drill.steps.clone(),
        limits: args.limits.limits(),
        ..Service::new(Arc::new(directory))
    };
    until_drained(service, &endpoint, signals, args.limits.drain_timeout()).await;
    endpoint.close(NO_ERROR, ENDS);
    let _ = tokio::time::timeout(CLOSE_TIME, endpoint.wait_idle()).await;
    Ok(())
}

/// Serves until a signal comes, then finishes what is open: all of it, or what the `limit` of time
/// or a second signal leaves.
async fn until_drained(
    service: Service,
    endpoint: &Endpoint,
    mut signals: Signals,
    limit: Duration,
) {
    let (mut drain, draining) = drain();
    let serving = service.accept(endpoint, draining);
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
}

impl Service {
    pub(crate) fn new(source: Arc<dyn Source>) -> Self {
        Self {
            source,
            limits: Limits::default(),
            retry: false,
            drill: Vec::new(),
        }
    }

    /// Serves every client on a task of its own until the endpoint is closed; refuses them once the
    /// end begins.
    pub(crate) async fn accept(self, endpoint: &Endpoint, mut draining: Draining) {
        let task = Arc::new(ClientTask {
            source: self.source,
            limits: limits::Shared::new(self.limits),
            drill: self.drill,
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
        let source = self.source.clone();
        let Some(limits) = limits::Client::new(self.limits.clone(), address.ip()) else {
            tracing::info!("{client}: turned away, its address has too many connections");
            connection.close(EXCESSIVE_LOAD, b"too many connections from your address");
            return;
        };
        let protocol = connection.handshake_data().and_then(|data| data.protocol);
        if protocol.as_deref() == Some(Alpn::H3.bytes()) {
            let reason = http_server::serve(connection, source, limits, draining).await;
            tracing::info!("{client}: {reason}");
        } else {
            // TLS lets no client in that speaks none of our protocols.
            let reason = hq::serve(connection, source, limits, draining).await;
            tracing::info!("{client}: {reason}");
        }
    }
}

fn listen(
    addresses: &[SocketAddr],
    config: ServerConfig,
    versions: &Versions,
) -> Result<Endpoint, Failure> {
    let bind = |addresses: &[SocketAddr]| {
        let builder = Endpoint::builder()
            .supported_versions(versions.list())
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

/// The server's certificate and key.
struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    fn read(chain: &Path, key: &Path) -> Result<Self, Failure> {
        let unusable = |path: &Path, error: pem::Error| {
            Failure::usage(format!("cannot use {}: {error}", path.display()))
        };
        let certificates = CertificateDer::pem_file_iter(chain)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| unusable(chain, error))?;
        if certificates.is_empty() {
            return Err(unusable(chain, pem::Error::NoItemsFound));
        }
        Ok(Self {
            chain: certificates,
            key: PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, error))?,
        })
    }

    /// Makes a self-signed certificate for these addresses.
    fn make(addresses: &[SocketAddr]) -> Result<Self, Failure> {
        let mut names = vec!["localhost".to_owned()];
        names.extend(addresses.iter().map(|address| address.ip().to_string()));
        let made = rcgen::generate_simple_self_signed(names).map_err(Failure::other)?;
        Ok(Self {
            chain: vec![made.cert.der().clone()],
            key: PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into(),
        })
    }

    fn config(self, cipher: Option<Cipher>, alpn: &[&[u8]]) -> Result<ServerConfig, Failure> {
        let provider = Arc::new(Cipher::provider(cipher));
        let crypto = QuicServerConfig::with_provider(provider, self.chain, self.key, alpn)
            .map_err(|error| Failure::usage(format!("cannot use the certificate: {error}")))?;
        ServerConfig::new(Arc::new(crypto)).map_err(Failure::other)
    }
}

/// A configuration with a new self-signed certificate for the addresses listened on.
pub(crate) fn self_signed(
    addresses: &[SocketAddr],
    cipher: Option<Cipher>,
    alpn: &[&[u8]],
) -> Result<(ServerConfig, Fingerprint), Failure> {
    let identity = Identity::make(addresses)?;
    let fingerprint = identity.chain.first().map(Fingerprint::of);
    let fingerprint = fingerprint.ok_or_else(|| Failure::other("no certificate"))?;
    Ok((identity.config(cipher, alpn)?, fingerprint))
}
