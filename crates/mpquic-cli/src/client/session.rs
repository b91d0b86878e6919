//! A client's connections, one after the other, which resume each other's TLS sessions.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{FutureExt, Shared, join_all};
use http::Uri;
use http::uri::Authority;
use mpquic_core::config::TransportOptions;
use mpquic_sched::{SplitRatio, SplitWeights};
use mpquic_tokio::knowledge::Knowledge;
use mpquic_tokio::path_managers::{self, Costs, PathManagerFactory, Shares};
use mpquic_tokio::{
    ClientConfig, ConnectError, Connection, ConnectionError, Endpoint, EndpointBuilder, FileStore,
    PathId, Traffic, TrafficMeter, VarInt, ZeroRttAccepted, interface_addresses,
};
use tokio::sync::{Mutex, TryLockError};

use crate::client::backup;
use crate::client::interfaces::{Usable, has_other_way, no_route, unspecified, usable};
use crate::client::knock;
use crate::client::known_hosts::KnownHosts;
use crate::client::live::Live;
use crate::client::protocol::{advice, hint_of_port, refused_certificate};
use crate::client::reached::ReachedServers;
use crate::client::requests::Clients;
use crate::client::weight::{Weight, shares};
use crate::options::cost::{Cost, prices};
use crate::options::drill;
use crate::options::hosts::{self, Unusable};
use crate::options::identity::Identity;
use crate::options::origin::{self, Use, absent};
use crate::options::reach::Reach;
use crate::options::trust::{Trust, Verifier};
use crate::options::{Alpn, DATAGRAM_BUFFER, Local};
use crate::process::failure::{Cause, Failure};
use crate::process::{clock, screen, state};
use crate::rate::Rate;
use crate::rate::controller::limited;
use crate::rate::pace;

/// Port of `https` URLs that name none.
const DEFAULT_PORT: u16 = 443;
/// Paths opened unless --paths says otherwise.
const MAX_PATHS: u32 = 8;

/// The time for a lookup that may lead back to us.
const LOOKUP: Duration = Duration::from_secs(5);

/// The server's last packets arrive within a round trip after the close, plus this margin. The wait
/// should not be noticed.
const LATE: Duration = Duration::from_millis(10);
const NOTICED: Duration = Duration::from_millis(50);

/// A client that only waits for data probes the server at this interval. A restarted server answers
/// that it does not know the connection; without probes, the client would hear of it only by
/// chance.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// The purpose of the connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Purpose<'a> {
    /// URLs of the command line.
    pub(crate) urls: &'a [Uri],
    /// Application protocols, the preferred one first.
    pub(crate) alpn: &'a [Alpn],
    /// Send requests as 0-RTT data.
    pub(crate) early_data: bool,
    /// Print errors only.
    pub(crate) quiet: bool,
    /// Take DATAGRAMs.
    pub(crate) datagrams: bool,
    /// The rate of the files.
    pub(crate) rate: Option<Rate>,
    /// Where paths start that stand by.
    pub(crate) backup: &'a [Local],
    /// The shares of paths.
    pub(crate) weights: &'a [Weight],
    /// What paths cost.
    pub(crate) costs: &'a [Cost],
}

impl<'a> Purpose<'a> {
    /// For `mpquic paths`: no request is sent.
    pub(crate) fn look(server: &'a Uri, alpn: &'a [Alpn]) -> Self {
        Self {
            urls: std::slice::from_ref(server),
            alpn,
            early_data: false,
            quiet: true,
            datagrams: false,
            rate: None,
            backup: &[],
            weights: &[],
            costs: &[],
        }
    }
}

/// Makes connections when they are needed.
pub(crate) struct Sessions<'a> {
    reach: &'a Reach,
    purpose: Purpose<'a>,
    verifier: Arc<Verifier>,
    /// Set for `--first-use`.
    known_hosts: Option<KnownHosts>,
    /// Knowledge of earlier runs, and its place.
    kept: Option<Arc<FileStore>>,
    config: ClientConfig,
    /// The transport of `config`.
    transport: TransportOptions,
    /// Choices that the user changes at run time.
    live: Option<Arc<Live>>,
    /// The bytes of all connections.
    meter: TrafficMeter,
    /// The weights of the current paths.
    #[cfg(test)]
    weights: SplitWeights,
    current: Mutex<Option<Session>>,
    /// The endpoint of the last connection that ended well, and its server: the next connection may
    /// use its ports, which the server knows.
    idle: StdMutex<Option<(SocketAddr, Endpoint)>>,
    /// Connections that were made.
    made: AtomicU64,
    /// Servers to which a connection was made.
    pub(crate) reached: ReachedServers,
    /// The server's addresses, if packets without a source address of their own lead back to us.
    way_out: StdMutex<Option<Vec<SocketAddr>>>,
    /// The protocol of the last connection, which 0-RTT goes on with.
    protocol: StdMutex<Option<Vec<u8>>>,
}

/// A connection, with its server.
pub(crate) struct Session {
    /// Counts the connections, from 1.
    number: u64,
    endpoint: Endpoint,
    connection: Connection,
    authority: String,
    /// Resolves to true if the server accepted 0-RTT; `None` if 0-RTT was impossible.
    zero_rtt: Option<Shared<ZeroRttAccepted>>,
    clients: Arc<Clients>,
}

/// A connection as a request gets it.
pub(crate) struct Connected {
    /// Counts the connections, from 1.
    pub(crate) number: u64,
    pub(crate) connection: Connection,
    pub(crate) clients: Arc<Clients>,
    /// An earlier request has used this connection.
    pub(crate) is_old: bool,
    /// Set if requests may travel as 0-RTT; resolves to true if the server accepts it.
    pub(crate) zero_rtt: Option<Shared<ZeroRttAccepted>>,
}

impl Session {
    fn serves(&self, url: &Uri) -> bool {
        url.authority()
            .is_some_and(|authority| authority.as_str() == self.authority)
            && self.connection.close_reason().is_none()
    }

    /// Closes the connection.
    pub(crate) async fn close(self) {
        let code = self.clients.no_error();
        leave(&self.endpoint, &self.connection, code).await;
    }
}

/// Tells the user which interfaces and addresses of options are not there.
fn say_absent(args: &Reach, purpose: &Purpose<'_>, priced: &[Local]) -> Result<(), Failure> {
    let excluded = args.exclude.iter().cloned().map(Local::Interface);
    let excluded: Vec<_> = excluded.collect();
    let weighed = purpose.weights.iter().map(|weight| &weight.from);
    // Another option has words of its own for the same interface.
    let is_told = |origin: &&Local| purpose.backup.contains(origin) || priced.contains(origin);
    let started = args.local.iter().chain(weighed);
    let started = started.filter(|origin| !is_told(origin));
    let named = started.map(|origin| (origin, Use::Start));
    let named = named.chain(excluded.iter().map(|origin| (origin, Use::Exclude)));
    let named = named.chain(purpose.backup.iter().map(|origin| (origin, Use::Backup)));
    let named = named.chain(priced.iter().map(|origin| (origin, Use::Cost)));
    let named = named.filter(|(_, for_what)| for_what.spares() || !purpose.quiet);
    let named: Vec<_> = named.collect();
    if named.is_empty() {
        return Ok(());
    }
    for told in absent(named.into_iter(), &origin::listed()?) {
        screen::say(format_args!("mpquic: {told}"));
    }
    Ok(())
}

/// Decides which paths are used, as the options say. The scheduler follows `weights`.
fn path_manager(purpose: &Purpose<'_>, weights: &SplitWeights) -> Arc<dyn PathManagerFactory> {
    let mut manager = path_managers::default();
    let listed = interface_addresses().unwrap_or_default();
    if !purpose.costs.is_empty() {
        let wanted = purpose.rate.map(Rate::bytes_per_second);
        manager = Costs::factory(manager, prices(purpose.costs, &listed), wanted);
    }
    if !purpose.weights.is_empty() {
        let weights = weights.clone();
        let set = move |all: &[(PathId, f64)]| weights.set(all.iter().copied());
        manager = Shares::factory(manager, shares(purpose.weights, &listed), set);
    }
    manager
}

impl<'a> Sessions<'a> {
    /// Checks the options. An unusable option, such as a bad certificate, fails before any request.
    pub(crate) fn new(args: &'a Reach, purpose: Purpose<'a>) -> Result<Self, Failure> {
        Self::with(args, purpose, |_| {})
    }

    /// The same, with an adapted transport.
    pub(crate) fn with(
        args: &'a Reach,
        purpose: Purpose<'a>,
        adapt: impl FnOnce(&mut TransportOptions),
    ) -> Result<Self, Failure> {
        backup::check(args, "--backup", purpose.backup)?;
        let priced: Vec<_> = purpose.costs.iter().map(|cost| cost.from.clone()).collect();
        backup::check(args, "--cost", &priced)?;
        say_absent(args, &purpose, &priced)?;
        let provider = args.connections.tls.provider();
        let trust = args.trust.trust();
        let verifier = Verifier::new(&trust, provider)?;
        let known_hosts = match trust {
            Trust::FirstUse => Some(KnownHosts::new(args.known_hosts.as_deref())?),
            _ => None,
        };
        let mut transport = (args.connections).transport(args.paths.unwrap_or(MAX_PATHS))?;
        if purpose.datagrams {
            transport.datagram_receive_buffer = Some(DATAGRAM_BUFFER);
        }
        if let Some(rate) = purpose.rate {
            hold_to(&mut transport, rate);
        }
        let weights = SplitWeights::default();
        if !purpose.weights.is_empty() {
            transport.scheduler = SplitRatio::factory(&weights);
        }
        transport.keep_alive_interval = Some(KEEP_ALIVE);
        transport.max_handshake_duration = Duration::from_secs(args.connect_timeout);
        let kept =
            state::state_directory().map(|path| Arc::new(FileStore::new(path.join("known"))));
        if let Some(kept) = &kept {
            transport.knowledge = Some(Knowledge::new(kept.clone()));
        }
        adapt(&mut transport);
        let options = transport.clone();
        let transport = transport.build().map_err(Failure::usage)?;
        let alpn: Vec<_> = purpose.alpn.iter().map(|alpn| alpn.bytes()).collect();
        let shown = Identity::shown_by(args)?;
        let config = ClientConfig::new(Arc::new(verifier.tls_as(shown, &alpn)?))
            .transport_config(transport)
            .use_alternative_addresses(true)
            .path_manager(path_manager(&purpose, &weights));
        Ok(Self {
            reach: args,
            purpose,
            verifier,
            known_hosts,
            kept,
            config,
            transport: options,
            live: None,
            meter: TrafficMeter::default(),
            #[cfg(test)]
            weights,
            current: Mutex::new(None),
            idle: StdMutex::default(),
            made: AtomicU64::new(0),
            reached: ReachedServers::default(),
            way_out: StdMutex::default(),
            protocol: StdMutex::default(),
        })
    }

    /// Lets connections follow these choices, in the place of those for costs, backups and weights.
    pub(crate) fn that_follow(mut self, live: &Arc<Live>) -> Self {
        self.config = self.config.path_manager(live.path_manager());
        self.live = Some(live.clone());
        self.meter = live.meter().clone();
        self
    }

    /// The configuration of the next connection.
    fn config(&self) -> Result<ClientConfig, Failure> {
        let live = self.live.as_ref();
        match live.and_then(|live| live.transport(&self.transport)) {
            None => Ok(self.config.clone()),
            Some(changed) => {
                let changed = changed.build().map_err(Failure::other)?;
                Ok(self.config.clone().transport_config(changed))
            }
        }
    }

    /// For tests: keeps nothing for later runs.
    #[cfg(test)]
    pub(crate) fn that_forget(mut self) -> Self {
        self.kept = None;
        self
    }

    /// Connects to these addresses of the server from now on, from interfaces' addresses alone:
    /// lookups of names, and sockets with no address, may lead back to us.
    #[cfg(target_os = "linux")]
    pub(crate) fn become_way_out(&self, addresses: Vec<SocketAddr>) {
        *self.way_out() = Some(addresses);
    }

    fn way_out(&self) -> MutexGuard<'_, Option<Vec<SocketAddr>>> {
        self.way_out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks the name of a URL's server up again, if it is one of [`Self::become_way_out`] and did
    /// not answer: it may have moved. The lookup may lead back to us, so it has little time, and
    /// without an answer the addresses stay.
    pub(crate) async fn look_up_again(&self, url: &Uri) {
        let Ok(authority) = authority(url) else {
            return;
        };
        if self.way_out().is_none() || !self.named_addresses(authority).is_empty() {
            return;
        }
        let found = resolve(host(authority), port(authority));
        if let Ok(Ok(found)) = tokio::time::timeout(LOOKUP, found).await {
            *self.way_out() = Some(found);
        }
    }

    /// A connection to a URL's server: the open connection to this server, or a new
    /// connection.
    pub(crate) async fn connection(&self, url: &Uri) -> Result<Connected, Failure> {
        let mut current = self.current.lock().await;
        if let Some(session) = current.as_ref().filter(|session| session.serves(url)) {
            return Ok(Connected {
                number: session.number,
                connection: session.connection.clone(),
                clients: session.clients.clone(),
                is_old: true,
                // Once the answer to 0-RTT is known, the handshake is over, and nothing travels as
                // 0-RTT any more.
                zero_rtt: session
                    .zero_rtt
                    .clone()
                    .filter(|zero_rtt| zero_rtt.peek().is_none()),
            });
        }
        let session = current.insert(self.connect(url).await?);
        Ok(Connected {
            number: session.number,
            connection: session.connection.clone(),
            clients: session.clients.clone(),
            is_old: false,
            zero_rtt: session.zero_rtt.clone(),
        })
    }

    /// The last connection, unless one is being made.
    pub(crate) fn open(&self) -> Option<Connection> {
        self.current().ok()?.map(|(_, connection)| connection)
    }

    /// The last connection with a unique number. An error while one is being made or closed.
    pub(crate) fn current(&self) -> Result<Option<(u64, Connection)>, TryLockError> {
        let current = self.current.try_lock()?;
        let session = current.as_ref();
        Ok(session.map(|session| (session.number, session.connection.clone())))
    }

    /// The same, for the live view.
    pub(crate) fn shown(&self) -> Vec<(u64, Connection)> {
        self.open()
            .map(|connection| (0, connection))
            .into_iter()
            .collect()
    }

    /// The bytes of all connections so far, for each link.
    pub(crate) fn traffic(&self) -> Vec<Traffic> {
        self.meter.traffic()
    }

    /// Drops the last connection, which is useless.
    pub(crate) async fn give_up(&self) {
        let mut current = self.current.lock().await;
        // Others may be fine: a request may fail alone.
        let is_over = |session: &Session| {
            session.connection.close_reason().is_some() || Arc::strong_count(&session.clients) == 1
        };
        if current.as_ref().is_some_and(is_over)
            && let Some(session) = current.take()
        {
            session
                .connection
                .close(session.clients.no_error(), b"given up");
        }
    }

    /// Takes the last connection, open while the value lives. The next request gets a new one.
    pub(crate) async fn set_aside(&self) -> Option<Session> {
        self.current.lock().await.take()
    }

    /// A new connection to a URL's server, beside the last one.
    pub(crate) async fn another(&self, url: &Uri) -> Result<Session, Failure> {
        self.connect(url).await
    }

    /// Makes this the last connection, which requests get.
    pub(crate) async fn replace(&self, session: Session) {
        *self.current.lock().await = Some(session);
    }

    /// Closes the last connection.
    pub(crate) async fn close(&self) {
        if let Some(session) = self.current.lock().await.take() {
            let data = session.connection.handshake_data();
            *self.protocol.lock().unwrap_or_else(PoisonError::into_inner) =
                data.and_then(|data| data.protocol);
            let to = session.connection.remote_address();
            let idle = to.map(|to| (to, session.endpoint.clone()));
            session.close().await;
            if self.reach.connections.drill.steps.is_empty() {
                *self.idle() = idle;
            }
            if let Some(Err(error)) = self.kept.as_ref().map(|kept| kept.flush()) {
                tracing::warn!(%error, "nothing is kept for the next run");
            }
        }
    }

    async fn connect(&self, url: &Uri) -> Result<Session, Failure> {
        let authority = authority(url)?;
        let missed = |failure: &Failure| self.reached.miss(authority, failure, clock::now());
        let addresses = self.addresses(url).await.inspect_err(missed)?;
        let idle = self.idle().take();
        let endpoint = match idle.filter(|(to, _)| addresses.contains(to)) {
            Some((_, endpoint)) => endpoint,
            None => self.endpoint(&self.reach.local, &addresses)?,
        };
        let connected = self.connect_to(endpoint, &addresses, authority).await;
        let connected = connected.inspect_err(missed)?;
        let (endpoint, connection, zero_rtt) = connected;
        self.reached.note(authority);
        if zero_rtt.is_none() {
            self.warn_if_single_path(&connection);
        }
        let steps = self.reach.connections.drill.steps.clone();
        drill::start(&connection, Some(&endpoint), steps);
        let zero_rtt = zero_rtt.map(FutureExt::shared);
        let mut clients = Clients::new(connection.clone());
        if let Some(accepted) = &zero_rtt {
            let protocol = self.protocol.lock();
            let protocol = protocol.unwrap_or_else(PoisonError::into_inner);
            clients = clients.with_zero_rtt(protocol.clone(), accepted.clone());
        }
        Ok(Session {
            number: self.made.fetch_add(1, Ordering::Relaxed) + 1,
            endpoint,
            connection,
            authority: authority.to_string(),
            zero_rtt,
            clients: Arc::new(clients),
        })
    }

    fn idle(&self) -> MutexGuard<'_, Option<(SocketAddr, Endpoint)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The addresses of a URL's server.
    pub(crate) async fn addresses(&self, url: &Uri) -> Result<Vec<SocketAddr>, Failure> {
        if let Some(addresses) = &*self.way_out() {
            return Ok(addresses.clone());
        }
        let authority = authority(url)?;
        match self.named_addresses(authority) {
            [] => resolve(host(authority), port(authority)).await,
            named => Ok(named.to_vec()),
        }
    }

    /// Those of --server-addr are for the servers of the command line, not for where they send us.
    fn named_addresses(&self, authority: &Authority) -> &[SocketAddr] {
        let is_asked_for = |asked: &Uri| asked.authority() == Some(authority);
        if self.purpose.urls.iter().any(is_asked_for) {
            &self.reach.server_addr
        } else {
            &[]
        }
    }

    /// Whether a failure is that the last server's certificate is not valid at this time of day.
    pub(crate) fn depends_on_time(&self, failure: &Failure) -> bool {
        failure.cause() == Some(Cause::Trust) && self.verifier.depends_on_time()
    }

    /// A connection of its own to one address of a URL's server, from one local address or
    /// interface, or from where the system likes.
    pub(crate) async fn connect_from(
        &self,
        url: &Uri,
        local: Option<&Local>,
        address: SocketAddr,
    ) -> Result<(Endpoint, Connection), Failure> {
        let addresses = [address];
        let endpoint = self.endpoint(local.map_or(&[], std::slice::from_ref), &addresses)?;
        let authority = authority(url)?;
        let connected = self.connect_to(endpoint, &addresses, authority).await?;
        let (endpoint, connection, _) = connected;
        Ok((endpoint, connection))
    }

    /// Connects to whichever of these addresses answers first.
    async fn connect_to(
        &self,
        endpoint: Endpoint,
        addresses: &[SocketAddr],
        authority: &Authority,
    ) -> Result<(Endpoint, Connection, Option<ZeroRttAccepted>), Failure> {
        let server = self.recall(authority)?;
        let listed = listed(addresses);
        let hint = hint_of_port(authority);
        let cannot_connect = |error: &dyn Display| {
            Cause::Connect.failed(format_args!("cannot connect to {listed}: {error}{hint}"))
        };
        let seconds = self.reach.connect_timeout;
        let limit = Duration::from_secs(seconds);
        let bound = tokio::time::timeout(limit, has_socket(&endpoint)).await;
        bound.map_err(|_| {
            let whose = if self.reach.local.is_empty() { "an interface" } else { "--local" };
            let none = format!(
                "no address of {whose} has been there for {seconds} s; --connect-timeout waits longer, and `mpquic paths` lists the addresses"
            );
            cannot_connect(&none)
        })?;
        let named = self.named_addresses(authority).to_vec();
        let config = self.config()?.server_addresses(named);
        let name = hosts::certified_name(authority.host());
        let has_closed = self.live.as_ref().is_some_and(|live| live.has_closed());
        let mut connecting = endpoint
            .connect_any(config, addresses, &name)
            .map_err(|error| match error {
                ConnectError::NoSocket(_) if has_closed => cannot_connect(
                    &"the other interfaces are paused or have used up their quota: \
                      `mpquic proxy ctl show` lists them",
                ),
                error => cannot_connect(&error),
            })?;
        if self.purpose.early_data {
            connecting = match connecting.into_0rtt() {
                Ok((connection, accepted)) => return Ok((endpoint, connection, Some(accepted))),
                Err(connecting) => connecting,
            };
        }
        let closed = addresses
            .iter()
            .map(|address| knock::until_closed(*address));
        let is_way_out = self.way_out().is_some();
        let connected = tokio::select! {
            connected = tokio::time::timeout(limit, connecting) => connected,
            // Unless all are closed, one may answer.
            _ = join_all(closed), if !is_way_out => {
                return Err(cannot_connect(&ConnectionError::PortUnreachable));
            }
        };
        match connected {
            Ok(Ok(connection)) => {
                self.remember(&server)?;
                Ok((endpoint, connection, None))
            }
            Err(_) | Ok(Err(ConnectionError::HandshakeTimedOut)) => {
                let no_route = || no_route(&endpoint, addresses).filter(|_| !is_way_out);
                let advice = no_route().unwrap_or_else(|| {
                    "is a QUIC server there, and does a firewall let UDP through?".to_owned()
                });
                let told = format!("no answer from {listed} for {seconds} s; {advice}");
                Err(Cause::Connect.failed(told))
            }
            Ok(Err(error)) => Err(match self.verifier.refusal() {
                Some(refusal) => Cause::Trust.failed(refusal).and(self.renewal()),
                None => refused_certificate(&error).unwrap_or_else(|| {
                    cannot_connect(&error).and(advice(&error, self.purpose.alpn))
                }),
            }),
        }
    }

    /// Sockets for these local addresses, or for every interface.
    fn endpoint(&self, locals: &[Local], servers: &[SocketAddr]) -> Result<Endpoint, Failure> {
        let args = self.reach;
        let unusable = |error: &dyn Display| {
            Cause::Connect.failed(format_args!("cannot use the local addresses: {error}"))
        };
        // Until the need is known, costly paths stand by.
        let costs = self.purpose.costs.iter().filter(|cost| cost.cost > 0);
        let costs = costs.map(|cost| cost.from.clone());
        let backups: Vec<_> = self.purpose.backup.iter().cloned().chain(costs).collect();
        let start = || {
            let builder = Endpoint::builder();
            let builder = builder.supported_versions(args.connections.versions.list());
            match &self.live {
                Some(live) => live.adapt(builder),
                None => {
                    let builder = builder.traffic_meter(&self.meter);
                    backup::stand_by(builder, &backups, locals)
                }
            }
        };
        let mut builder = start();
        for local in locals {
            builder = match local {
                Local::Address(ip) if is_ours(*ip) => builder.bind(SocketAddr::new(*ip, 0)),
                Local::Address(ip) => builder.bind_awaited(*ip, None),
                Local::OnLink(ip, link) => builder.bind_awaited((*ip).into(), Some(link)),
                Local::Interface(name) => {
                    let on_link = servers.iter().any(is_on_link);
                    let at = on_link.then(|| hosts::link_local_addresses(name));
                    let at = at.into_iter().flatten();
                    at.fold(builder.bind_interface(name), EndpointBuilder::bind)
                }
            };
        }
        if locals.is_empty() && !servers.iter().any(is_up_to_the_system) {
            let excluded = args.exclude.iter();
            let all = excluded.fold(start().all_interfaces(), |all, name| {
                all.exclude_interface(name)
            });
            match usable(&args.exclude) {
                Usable::Some => return all.build().map_err(|error| unusable(&error)),
                Usable::Excluded => {
                    let none =
                        "no network interface has a usable address, apart from those of --exclude";
                    return Err(unusable(&none));
                }
                // The system may send from an address of no interface, or by a tunnel.
                Usable::None
                    if args.exclude.is_empty()
                        && self.way_out().is_none()
                        && has_other_way(servers) => {}
                // The interfaces are down now: a laptop that wakes, a train in a tunnel.
                Usable::None => return all.build().map_err(|error| unusable(&error)),
            }
        }
        if locals.is_empty()
            && let Some(any) = unspecified(servers)
        {
            builder = builder.bind(SocketAddr::new(any, 0));
        }
        builder.build().map_err(|error| unusable(&error))
    }

    /// Tells the verifier what is known of a server, by the name that is returned.
    fn recall(&self, authority: &Authority) -> Result<String, Failure> {
        let server = format!("{}:{}", authority.host(), port(authority));
        if let Some(known) = &self.known_hosts {
            self.verifier.expect(known.find(&server)?);
        }
        Ok(server)
    }

    /// Remembers a server that was met for the first time. Fails if a simultaneous first contact
    /// met another certificate.
    fn remember(&self, server: &str) -> Result<(), Failure> {
        let (Some(known), Some(met)) = (&self.known_hosts, self.verifier.met()) else {
            return Ok(());
        };
        known.remember(server, met, self.purpose.quiet)
    }

    /// Advice for a server that has another certificate than at the first contact.
    fn renewal(&self) -> Option<String> {
        self.known_hosts.as_ref().map(KnownHosts::renewal)
    }

    fn warn_if_single_path(&self, connection: &Connection) {
        if !connection.is_multipath() && self.reach.paths != Some(1) && !self.purpose.quiet {
            screen::say("mpquic: the server does not support multipath; going on with one path");
        }
    }
}

/// Closes a connection, and for a short time answers packets that the server sent before it learned
/// of the end. The server need not learn of it, so nobody waits here for three probe timeouts.
pub(crate) async fn leave(endpoint: &Endpoint, connection: &Connection, code: VarInt) {
    let rtt = connection.rtt().unwrap_or_default();
    connection.close(code, b"done");
    let late = (rtt + LATE).min(NOTICED);
    let _ = tokio::time::timeout(late, endpoint.wait_idle()).await;
}

/// Lets neither side be far ahead of a rate: what is read or written at that rate would otherwise
/// fill windows and buffers at the rate of the paths.
fn hold_to(transport: &mut TransportOptions, rate: Rate) {
    let window = pace::window(rate, Duration::ZERO);
    transport.initial_stream_receive_window = window;
    transport.initial_receive_window = window;
    transport.max_receive_window = window;
    transport.send_window = rate.bytes_in(1000).clamp(window, transport.send_window);
    // For headers, losses, and what an outage held up.
    let wire = rate.bytes_per_second() * 5 / 4;
    transport.controller = limited(transport.controller.clone(), wire);
}

/// Sockets come with the addresses of interfaces.
async fn has_socket(endpoint: &Endpoint) {
    while endpoint.local_addrs().is_empty() {
        tokio::time::sleep(NOTICED).await;
    }
}

fn authority(url: &Uri) -> Result<&Authority, Failure> {
    let authority = url.authority();
    authority.ok_or_else(|| Failure::usage("the URL names no host"))
}

fn host(authority: &Authority) -> &str {
    let host = authority.host();
    host.trim_start_matches('[').trim_end_matches(']')
}

fn port(authority: &Authority) -> u16 {
    authority.port_u16().unwrap_or(DEFAULT_PORT)
}

async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, Failure> {
    let literal = hosts::literal(host).map_err(|error| match error {
        Unusable::NoLink(_) => Cause::Name.failed(error),
        Unusable::Wrong(_) => Failure::usage(error),
    })?;
    if let Some(literal) = literal {
        return Ok(vec![literal.with_port(port)]);
    }
    let addresses = tokio::net::lookup_host((host, port)).await;
    let addresses = addresses.map_err(|error| {
        Cause::Name.failed(format_args!("cannot find the address of {host}: {error}"))
    })?;
    let addresses: Vec<_> = addresses.collect();
    if addresses.is_empty() {
        Err(Cause::Name.failed(format_args!("{host} has no address")))
    } else {
        Ok(addresses)
    }
}

/// For messages.
fn listed(addresses: &[SocketAddr]) -> String {
    let addresses: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
    addresses.join(", ")
}

/// A socket bound to an address of a network interface cannot reach a server on the same machine,
/// nor one of which only the link is known.
fn is_up_to_the_system(server: &SocketAddr) -> bool {
    is_on_link(server) || is_here(server)
}

/// The name of a server's link, for a server with a link-local address.
pub(crate) fn link_of(server: &SocketAddr) -> Option<String> {
    match server {
        SocketAddr::V6(v6) if is_on_link(server) => hosts::link_name(v6.scope_id()),
        _ => None,
    }
}

/// The address is good on one link only.
pub(crate) fn is_on_link(server: &SocketAddr) -> bool {
    match server {
        SocketAddr::V4(_) => false,
        SocketAddr::V6(server) => server.ip().is_unicast_link_local(),
    }
}

/// True for servers on this machine.
pub(crate) fn is_here(server: &SocketAddr) -> bool {
    // With its link: without it, no socket takes a link-local address.
    let mut any_port = *server;
    any_port.set_port(0);
    UdpSocket::bind(any_port).is_ok()
}

/// True for addresses of this machine.
fn is_ours(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests;
