//! The common part of all servers: addresses to listen on, identity, metrics, and the end of the
//! server.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use mpquic_core::config::{EndpointOptions, TransportOptions};
use mpquic_tokio::{Endpoint, InvalidOption, ServerAddress, ServerConfig, VarInt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::options::Connections;
use crate::options::hosts::parse_address;
use crate::options::identity::Identity;
use crate::options::trust::{Fingerprint, Roots, roots_in};
use crate::process::failure::{Cause, Failure};
use crate::process::screen;
use crate::process::signals::Signals;
use crate::process::state;
use crate::serve::access_log::{AccessLog, Format};
use crate::serve::drain::{CLOSE_TIME, Drain, Draining, ENDS, drain};
use crate::serve::endpoints::Endpoints;
use crate::serve::fleet::{self, Fleet};
use crate::serve::limits;
use crate::serve::live_page;
use crate::serve::metrics_server::{self, Tell, Told};
use crate::serve::observer::Observer;
use crate::serve::succession::{self, Succession, generation};

/// The port without --listen.
const DEFAULT_PORT: u16 = 4433;
/// Error text for an announced address that is not valid.
const ONE_ADDRESS: &str = "one address, not all of them";
/// The code with which the server closes connections at the end: H3_NO_ERROR.
const NO_ERROR: VarInt = VarInt::from_u32(0x100);

// (A doc comment here would replace the help text of the command.)
#[derive(Debug, Args)]
pub(crate) struct Listening {
    /// Address and port to listen on; repeat for several [default: [::]:4433, IPv4 included]. [::]
    /// includes IPv4 unless an IPv4 address with the same port is named as well
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_address)]
    pub(crate) listen: Vec<SocketAddr>,
    /// Certificate chain; SIGHUP reads it again [default: a self-signed certificate, made on the
    /// first run and kept]
    #[arg(long, value_name = "PEM", requires = "key")]
    cert: Option<PathBuf>,
    /// Private key of the certificate
    #[arg(long, value_name = "PEM", requires = "cert")]
    key: Option<PathBuf>,
    /// Open paths of each client at a time; 0 turns multipath off
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(0..=64))]
    pub(crate) max_paths: u32,
    /// Ask clients to move to this address of the server after the handshake, for example if many
    /// servers share the address of --listen; once for IPv4, once for IPv6
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_address)]
    preferred_address: Vec<SocketAddr>,
    /// Also listen on this address, and announce it to clients, which open further paths to it;
    /// repeat for several. Port 0 chooses a free port
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_address)]
    announce: Vec<SocketAddr>,
    /// File with this server's ID for connection IDs, for use behind a load balancer that speaks
    /// QUIC-LB. SIGHUP reads it again
    #[arg(long, value_name = "FILE")]
    quic_lb: Option<PathBuf>,
    /// Make every client prove its address with a Retry packet before other work; costs a round
    /// trip
    #[arg(long)]
    pub(crate) retry: bool,
    /// Directory for the self-signed certificate and its key, which clients can pin over restarts.
    /// With --cert, only clients of an earlier server use that key, to learn of a restart [default:
    /// $XDG_STATE_HOME/mpquic or ~/.local/state/mpquic]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Append a line for each request to this file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
    /// Format of the access log
    #[arg(long, value_name = "FORMAT", default_value = "common")]
    access_log_format: Format,
    /// Answer HTTP/1 over TCP on this address: /metrics has figures for Prometheus; /health says
    /// `ok`, or 503 while the server stops. There is no access control: use an address of your own
    /// network
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_address)]
    metrics: Option<SocketAddr>,
    /// With --metrics: /paths shows connections and paths live, with the networks of clients (/24
    /// and /48), not their addresses
    #[arg(long, requires = "metrics")]
    live_page: bool,
    #[command(flatten)]
    pub(crate) connections: Connections,
    /// File with the authority of client certificates, if clients need one.
    #[arg(skip)]
    pub(crate) client_ca: Option<PathBuf>,
    /// Number of threads with an endpoint of their own, if there are several.
    #[arg(skip)]
    pub(crate) workers: Option<u32>,
}

/// A listening server.
pub(crate) struct Server {
    pub(crate) endpoints: Endpoints,
    /// The addresses of --listen, with the chosen ports.
    pub(crate) listened: Vec<SocketAddr>,
    pub(crate) observer: Arc<Observer>,
    pub(crate) identity: Identity,
    /// The server's ID, if it is one of several.
    pub(crate) fleet: Option<Fleet>,
    /// Fingerprint of the certificate, if clients have to pin it.
    pub(crate) fingerprint: Option<Fingerprint>,
    signals: Signals,
    drain: Drain,
    metrics: Option<JoinHandle<()>>,
}

impl Listening {
    /// Begins to listen, and prints the addresses. `figures` are added to the observer's metrics.
    pub(crate) async fn start(
        &self,
        alpn: &[&[u8]],
        transport: TransportOptions,
        max_connections: u32,
        figures: Option<Arc<dyn Fn() -> String + Send + Sync>>,
    ) -> Result<(Server, Draining), Failure> {
        let identity = self.identity()?;
        let fingerprint = match &self.cert {
            Some(_) => None,
            None => Some(identity.fingerprint()?),
        };
        let reset_key = self.reset_key(&identity, generation());
        let config = self.config(&identity, alpn, transport, max_connections)?;
        let log = self.access_log.as_deref();
        let log = log.map(|path| open_log(path, self.access_log_format));
        let observer = Observer::new(log.transpose()?);
        let signals = Signals::new();
        let fleet = self.quic_lb.as_deref().map(Fleet::read).transpose()?;
        let endpoints = self.endpoints(config, reset_key, fleet.as_ref()).await?;
        // TCP and `Alt-Svc` do not use announced addresses.
        let listened = endpoints.local_addrs();
        announce(&endpoints, &self.announce)?;
        let metrics = metrics_listener(self.metrics)?;
        for address in endpoints.local_addrs() {
            screen::print(format_args!("listening on {address}"));
        }
        let (drain, draining) = drain();
        let metrics = metrics.map(|(listener, address)| {
            screen::print(format_args!("metrics on http://{address}/metrics"));
            if self.live_page {
                screen::print(format_args!("paths on http://{address}/paths"));
            }
            let told = self.told(&observer, &endpoints, figures);
            tokio::spawn(metrics_server::serve(listener, told, drain.watch()))
        });
        if let Some(fingerprint) = fingerprint {
            screen::print(format_args!("certificate {fingerprint}"));
        }
        let server = Server {
            endpoints,
            listened,
            observer,
            identity,
            fleet,
            fingerprint,
            signals,
            drain,
            metrics,
        };
        Ok((server, draining))
    }

    /// Answers of the metrics server.
    fn told(
        &self,
        observer: &Arc<Observer>,
        endpoints: &Endpoints,
        figures: Option<Arc<dyn Fn() -> String + Send + Sync>>,
    ) -> Told {
        let watched = || (observer.clone(), endpoints.clone());
        let (of_metrics, of_paths) = (watched(), watched());
        Told {
            metrics: Box::new(move || {
                let more = figures.as_ref().map_or(String::new(), |figures| figures());
                of_metrics.0.metrics(&of_metrics.1) + &more
            }),
            paths: self
                .live_page
                .then(|| -> Tell { Box::new(move || live_page::json(&of_paths.0, &of_paths.1)) }),
        }
    }

    /// Certificate and key of --cert and --key, or the server's own.
    pub(crate) fn identity(&self) -> Result<Identity, Failure> {
        match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Identity::read(("--cert", cert), ("--key", key)),
            _ => self.own_identity(),
        }
    }

    /// The authorities of the certificates that clients need, if they need one.
    pub(crate) fn client_roots(&self) -> Result<Option<Roots>, Failure> {
        let path = self.client_ca.as_deref();
        path.map(|path| roots_in("--client-ca", path)).transpose()
    }

    /// The server configuration with this identity.
    pub(crate) fn config(
        &self,
        identity: &Identity,
        alpn: &[&[u8]],
        transport: TransportOptions,
        max_connections: u32,
    ) -> Result<ServerConfig, Failure> {
        let transport = transport.build().map_err(Failure::usage)?;
        let clients = self.client_roots()?;
        let tickets = self
            .quic_lb
            .is_some()
            .then(|| identity.tickets(clients.as_ref()));
        // Each endpoint counts its own connections.
        let most = max_connections / self.workers.unwrap_or(1);
        if most == 0 {
            let expected = "at least as many as --workers, which divide them";
            let error = InvalidOption::new("--max-connections", max_connections, expected);
            return Err(Failure::usage(error));
        }
        let config = identity
            .config(self.connections.tls, alpn, clients, tickets)?
            .transport_config(transport)
            .max_connections(limits::admitted(most) as usize);
        let retry_tokens = self.quic_lb.as_deref().map(fleet::retry_tokens);
        let config = match retry_tokens.transpose()?.flatten() {
            Some(tokens) => config.retry_tokens(tokens),
            None => config,
        };
        prefer(config, &self.preferred_address)
    }

    /// The key for stateless resets, if it can be the key of an earlier server here. Somebody who
    /// knows a server's connection IDs could make another server with the same key reveal the
    /// tokens of its resets (RFC 9000 section 21.11). So each address has its own key. An address
    /// that is not chosen yet has no lasting key. With --cert, the key comes from the certificate
    /// in --state, because other machines may have the certificate of --cert as well. A successor
    /// has another key, because it must not reset connections of its predecessor.
    fn reset_key(&self, identity: &Identity, generation: u64) -> Option<[u8; 32]> {
        let own = match (&self.cert, &self.state) {
            (None, _) => None,
            (Some(_), None) => return None,
            (Some(_), Some(directory)) => match Identity::kept(directory, &self.listen) {
                Ok((own, _)) => Some(own),
                Err(failure) => {
                    tracing::warn!("{}; clients learn of a restart late", failure.message());
                    return None;
                }
            },
        };
        let identity = own.as_ref().unwrap_or(identity);
        if self.listen.iter().any(|address| address.port() == 0) {
            return None;
        }
        let mut purpose = format!("mpquic stateless resets {:?}", self.listen);
        if generation > 0 {
            purpose += &format!(", process {generation}");
        }
        Some(identity.derived_key(&purpose))
    }

    /// The identity of earlier servers of this user, or a new one.
    fn own_identity(&self) -> Result<Identity, Failure> {
        let Some(directory) = self.state.clone().or_else(state::state_directory) else {
            return Identity::make(&self.listen);
        };
        match Identity::kept(&directory, &self.listen) {
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
            Err(failure) if self.state.is_none() && failure.cause() == Some(Cause::File) => {
                tracing::warn!(
                    "{}; clients have to pin another one next time",
                    failure.message()
                );
                Identity::make(&self.listen)
            }
            Err(failure) => Err(failure),
        }
    }

    async fn endpoints(
        &self,
        config: ServerConfig,
        reset_key: Option<[u8; 32]>,
        fleet: Option<&Fleet>,
    ) -> Result<Endpoints, Failure> {
        let options = reset_key.map(|key| EndpointOptions::new(key).build());
        let options = options.transpose().map_err(Failure::usage)?;
        let builder = |addresses: &[SocketAddr]| {
            let mut builder = Endpoint::builder();
            if let Some(options) = &options {
                builder = builder.endpoint_config(options.clone());
            }
            if let Some(fleet) = fleet {
                builder = builder.connection_ids(fleet.connection_ids());
            }
            let builder = builder
                .supported_versions(self.connections.versions.list())
                .server(config.clone());
            let addresses = addresses.iter();
            addresses.fold(builder, |builder, address| builder.bind(*address))
        };
        let cannot_listen = |error| {
            let addresses = match self.listen.as_slice() {
                [] => format!("port {DEFAULT_PORT}"),
                addresses => addresses
                    .iter()
                    .map(SocketAddr::to_string)
                    .collect::<Vec<_>>()
                    .join(", "),
            };
            Failure::other(format!(
                "cannot listen on {addresses}: {error}; try another --listen"
            ))
        };
        let Some(count) = self.workers else {
            let endpoint = self.bind(|addresses| builder(addresses).build());
            return Ok(Endpoints::one(endpoint.map_err(cannot_listen)?));
        };
        let workers = self.bind(|addresses| builder(addresses).workers(count as usize));
        let endpoints = Endpoints::of_workers(workers.map_err(cannot_listen)?).await;
        endpoints.map_err(cannot_listen)
    }

    fn bind<T>(&self, bind: impl Fn(&[SocketAddr]) -> io::Result<T>) -> io::Result<T> {
        if !self.listen.is_empty() {
            return bind(&self.listen);
        }
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, DEFAULT_PORT));
        let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, DEFAULT_PORT));
        // For systems without IPv6.
        bind(&[any]).or_else(|_| bind(&[v4]))
    }
}

impl Server {
    /// The port to announce to clients.
    pub(crate) fn port(&self) -> u16 {
        self.listened.first().map_or(DEFAULT_PORT, SocketAddr::port)
    }

    /// Serves until a signal arrives, then finishes open requests, until `limit` or a second signal
    /// ends them. With a `succession`, another process can have the addresses meanwhile, and the
    /// server starts one itself when it is asked to.
    pub(crate) async fn run(
        mut self,
        serving: impl Future<Output = ()>,
        limit: Duration,
        succession: Option<Succession<'_>>,
    ) {
        tokio::pin!(serving);
        if let Some(limit) = self.until_end(serving.as_mut(), limit, succession).await {
            self.drain(serving, limit).await;
        }
        self.stop_metrics().await;
        let closed = self.endpoints.close(NO_ERROR, ENDS);
        let _ = tokio::time::timeout(CLOSE_TIME, closed).await;
        self.observer.finish();
    }

    /// Serves until a signal asks for the end. Returns the time for open requests; `None` if
    /// `serving` is over.
    async fn until_end(
        &mut self,
        mut serving: Pin<&mut impl Future<Output = ()>>,
        limit: Duration,
        succession: Option<Succession<'_>>,
    ) -> Option<Duration> {
        let Some(mut succession) = succession else {
            return tokio::select! {
                () = &mut serving => None,
                () = self.signals.next() => Some(limit),
            };
        };
        loop {
            tokio::select! {
                () = &mut serving => return None,
                () = self.signals.next() => {
                    // Without a successor the addresses are free for whoever starts one.
                    if let Err(error) = self.endpoints.release_addresses() {
                        tracing::debug!(%error, "the addresses stay");
                    }
                    return Some(limit);
                }
                () = succession.upgrades.next() => {}
            }
            match (succession.check)() {
                Err(failure) => tracing::error!("no successor: {}", failure.message()),
                Ok(()) => match self.endpoints.release_addresses() {
                    Err(error) => tracing::error!("no successor: {error}"),
                    Ok(()) => {
                        self.stop_metrics().await;
                        drop(succession.beside.take());
                        match succession::start() {
                            Ok(child) => tracing::info!("process {} takes over", child.id()),
                            Err(error) => tracing::error!("cannot start a successor: {error}"),
                        }
                        return Some(succession.limit);
                    }
                },
            }
        }
    }

    async fn stop_metrics(&mut self) {
        if let Some(metrics) = self.metrics.take() {
            metrics.abort();
            let _ = metrics.await;
        }
    }

    /// Finishes open requests, until `limit` or a second signal ends them.
    async fn drain(&mut self, serving: Pin<&mut impl Future<Output = ()>>, limit: Duration) {
        self.drain.begin();
        tracing::info!(
            "stopping: open requests get up to {} s; a second signal stops at once",
            limit.as_secs()
        );
        tokio::select! {
            () = serving => {}
            () = self.drain.done() => tracing::info!("every request was answered"),
            () = tokio::time::sleep(limit) => tracing::warn!("open requests are cut off"),
            () = self.signals.next() => tracing::warn!("second signal: open requests are cut off"),
        }
    }
}

fn open_log(path: &Path, format: Format) -> Result<AccessLog, Failure> {
    AccessLog::open(path, format).map_err(|error| {
        Cause::File.failed(format_args!("cannot write {}: {error}", path.display()))
    })
}

/// The address of --metrics.
fn metrics_listener(
    address: Option<SocketAddr>,
) -> Result<Option<(TcpListener, SocketAddr)>, Failure> {
    match address {
        Some(address) => bind(address, &[], "--metrics").map(Some),
        None => Ok(None),
    }
}

/// Binds a TCP listener for an option of the command line.
pub(crate) fn bind(
    address: SocketAddr,
    all: &[SocketAddr],
    option: &str,
) -> Result<(TcpListener, SocketAddr), Failure> {
    let cannot_listen =
        |error| Failure::other(format!("cannot listen on {address} for {option}: {error}"));
    let listener = mpquic_proxy::listen_tcp(address, all).map_err(cannot_listen)?;
    let bound = listener.local_addr().map_err(cannot_listen)?;
    Ok((listener, bound))
}

/// Listens on the announced addresses, unless a socket for all addresses has their port, and
/// announces them to clients.
fn announce(endpoints: &Endpoints, addresses: &[SocketAddr]) -> Result<(), Failure> {
    let Some(endpoint) = endpoints.only() else {
        return Ok(());
    };
    let mut announced = Vec::new();
    for &address in addresses {
        if address.ip().is_unspecified() {
            let error = InvalidOption::new("--announce", address, ONE_ADDRESS);
            return Err(Failure::usage(error));
        }
        let mut locals = endpoint.local_addrs();
        locals.retain(|local| local.port() == address.port());
        // [::] beside an address of IPv4 has those of IPv6 only.
        let is_dual = !locals.iter().any(SocketAddr::is_ipv4);
        let is_listened_on = |local: &SocketAddr| {
            let is_alike = local.is_ipv4() == address.is_ipv4();
            let is_any = local.ip().is_unspecified() && (is_alike || local.is_ipv6() && is_dual);
            is_any || local.ip() == address.ip()
        };
        let local = if locals.iter().any(is_listened_on) {
            address
        } else {
            endpoint.add_local(address).map_err(|error| {
                Failure::other(format!(
                    "cannot listen on {address} for --announce: {error}"
                ))
            })?
        };
        announced.push(ServerAddress::new(local));
    }
    let refused = endpoint.announce_addresses(&announced);
    refused.map_err(|error| Failure::usage(format!("--announce: {error}")))
}

/// Adds the preferred addresses of --preferred-address.
fn prefer(config: ServerConfig, addresses: &[SocketAddr]) -> Result<ServerConfig, Failure> {
    let (mut v4, mut v6) = (None, None);
    for address in addresses {
        if address.ip().is_unspecified() {
            let error = InvalidOption::new("--preferred-address", address, ONE_ADDRESS);
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use clap::Parser;

    use super::*;
    use crate::serve;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        listening: Listening,
    }

    fn listening(arguments: &[&str]) -> Listening {
        let arguments = ["serve"].iter().chain(arguments);
        Line::try_parse_from(arguments).unwrap().listening
    }

    /// After a restart on the same address, and nowhere else.
    #[test]
    fn resets_have_a_key_that_lasts_where_address_and_certificate_do() {
        let identity = Identity::make(&[]).unwrap();
        let key = |arguments: &[&str]| listening(arguments).reset_key(&identity, 0);
        let one = key(&["--listen", "127.0.0.1:1"]);
        assert!(one.is_some());
        assert_eq!(key(&["--listen", "127.0.0.1:1"]), one);
        assert!(key(&[]).is_some_and(|key| Some(key) != one), "the default");
        let both = ["--listen", "127.0.0.1:1", "--listen", "127.0.0.1:2"];
        assert!(key(&both).is_some_and(|key| Some(key) != one));
        for changes in [
            &["--listen", "127.0.0.1:0"][..],
            &["--listen", "127.0.0.1:1", "--listen", "127.0.0.1:0"],
            // Other machines may have the certificate as well.
            &["--listen", "127.0.0.1:1", "--cert", "c", "--key", "k"],
        ] {
            assert_eq!(key(changes), None, "{changes:?}");
        }
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().to_str().unwrap();
        let kept = [
            "--listen",
            "127.0.0.1:1",
            "--cert",
            "c",
            "--key",
            "k",
            "--state",
            state,
        ];
        let of_state = key(&kept);
        assert!(of_state.is_some() && of_state != one && of_state == key(&kept));
        let other = Identity::make(&[]).unwrap();
        let of_other = listening(&["--listen", "127.0.0.1:1"]).reset_key(&other, 0);
        assert!(of_other.is_some() && of_other != one);
        let next = listening(&["--listen", "127.0.0.1:1"]).reset_key(&identity, 1);
        assert!(next.is_some() && next != one);
    }

    #[test]
    fn without_an_address_all_are_listened_on() {
        let tried = |arguments: &[&str], has_v6: bool| {
            let tried = RefCell::new(Vec::new());
            let bound = listening(arguments).bind(|addresses| {
                let texts = addresses.iter().map(SocketAddr::to_string);
                tried.borrow_mut().push(texts.collect::<Vec<_>>());
                if has_v6 || addresses.iter().all(SocketAddr::is_ipv4) {
                    Ok(())
                } else {
                    Err(io::ErrorKind::Unsupported.into())
                }
            });
            (tried.into_inner(), bound.is_ok())
        };
        let address = |text: &str| vec![text.to_owned()];
        assert_eq!(tried(&[], true), (vec![address("[::]:4433")], true));
        let both = vec![address("[::]:4433"), address("0.0.0.0:4433")];
        assert_eq!(tried(&[], false), (both, true));
        let named = &["--listen", "[::1]:7"];
        assert_eq!(tried(named, true), (vec![address("[::1]:7")], true));
        assert_eq!(tried(named, false), (vec![address("[::1]:7")], false));
    }

    #[test]
    fn links_of_addresses_are_named_as_elsewhere() {
        let interfaces = if_addrs::get_if_addrs().unwrap();
        let loopback = interfaces.iter().find(|one| one.is_loopback()).unwrap();
        let (name, number) = (&loopback.name, loopback.index.unwrap());
        let expected = vec![
            format!("[fe80::1%{number}]:7")
                .parse::<SocketAddr>()
                .unwrap(),
        ];
        for at in [
            format!("[fe80::1%{name}]:7"),
            format!("[fe80::1%25{name}]:7"),
            format!("[fe80::1%{number}]:7"),
        ] {
            assert_eq!(listening(&["--listen", &at]).listen, expected, "{at}");
            assert_eq!(listening(&["--announce", &at]).announce, expected, "{at}");
        }
        let wrong = Line::try_parse_from(["serve", "--listen", "[fe80::1]:7"]);
        let told = wrong.unwrap_err().to_string();
        assert!(told.contains("name its link"), "{told}");
    }

    /// Users of `--state` hear of a directory that cannot keep state.
    #[test]
    fn an_identity_is_kept_where_the_user_says() {
        let directory = tempfile::tempdir().unwrap();
        let kept = |path: &Path| listening(&["--state", path.to_str().unwrap()]).identity();
        let (first, again) = (kept(directory.path()), kept(directory.path()));
        let fingerprint = |kept: Result<Identity, Failure>| kept.unwrap().fingerprint().unwrap();
        assert_eq!(fingerprint(first), fingerprint(again));
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let failure = kept(&file).err().unwrap();
        assert_eq!(failure.cause(), Some(Cause::File));
        assert!(failure.message().starts_with("cannot keep "), "{failure:?}");
    }

    /// Each worker counts its own connections.
    #[test]
    fn workers_divide_the_connections() {
        let identity = Identity::make(&[]).unwrap();
        let config = |workers, most| {
            let listening = Listening {
                workers,
                ..listening(&[])
            };
            let transport = mpquic_tokio::default_transport();
            let config = listening.config(&identity, &[b"h3"], transport, most);
            config.map_err(|failure| failure.message().to_owned())
        };
        assert!(config(None, 1).is_ok() && config(Some(3), 3).is_ok());
        let told =
            "--max-connections is 2, but must be at least as many as --workers, which divide them";
        assert_eq!(config(Some(3), 2).err().as_deref(), Some(told));
    }

    /// The addresses to announce for this one, by a server that listens on `listen`.
    async fn announced(listen: &str, address: impl Fn(u16) -> String) -> Vec<SocketAddr> {
        let any: SocketAddr = listen.parse().unwrap();
        let (config, _) = serve::self_signed(&[any], &[b"h3"]).unwrap();
        let server = Endpoint::builder().bind(any).server(config);
        let endpoint = server.build().unwrap();
        let port = endpoint.local_addrs()[0].port();
        let address = address(port).parse().unwrap();
        announce(&Endpoints::one(endpoint.clone()), &[address]).unwrap();
        endpoint.local_addrs()
    }

    #[tokio::test]
    async fn announced_address_of_a_listening_socket_needs_no_socket() {
        let same = |port| format!("127.0.0.1:{port}");
        let other = |_| "127.0.0.1:0".to_owned();
        // The same port of another address is another address.
        let beside = |port| format!("127.0.0.2:{port}");
        assert_eq!(announced("127.0.0.1:0", beside).await.len(), 2);
        assert_eq!(announced("127.0.0.1:0", same).await.len(), 1);
        assert_eq!(announced("0.0.0.0:0", same).await.len(), 1);
        for listen in ["127.0.0.1:0", "0.0.0.0:0"] {
            let addresses = announced(listen, other).await;
            assert_eq!(addresses.len(), 2);
            assert!(addresses[1].ip().is_loopback(), "{addresses:?}");
        }
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let (config, _) = serve::self_signed(&[any], &[b"h3"]).unwrap();
        let server = Endpoint::builder().bind(any).server(config.clone());
        let endpoints = Endpoints::one(server.build().unwrap());
        let unusable = "0.0.0.0:5".parse().unwrap();
        assert!(announce(&endpoints, &[unusable]).is_err());
        assert!(prefer(config.clone(), &[unusable]).is_err());
        let addresses = ["192.0.2.1:5", "[2001:db8::1]:5", "192.0.2.2:5"];
        let addresses = addresses.map(|address| address.parse().unwrap());
        assert!(prefer(config.clone(), &addresses[..2]).is_ok());
        let twice = prefer(config, &addresses).err().unwrap();
        let told = "--preferred-address 192.0.2.2:5: one of its family is enough";
        assert_eq!(twice.message(), told);
    }
}
