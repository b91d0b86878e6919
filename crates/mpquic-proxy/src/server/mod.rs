//! The server's side: answers CONNECT, CONNECT-UDP and CONNECT-IP requests.

mod accounts;
mod bound;
mod capsule_stream;
mod carrying;
#[cfg(target_os = "linux")]
mod echo_filter;
#[cfg(target_os = "linux")]
mod ip;
mod outwards;
mod refusal;
mod request_memory;
mod reverse;
mod udp;
mod windows;

use std::net::{IpAddr, SocketAddr};
#[cfg(target_os = "linux")]
use std::sync::atomic::AtomicU16;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::PROXY_AUTHORIZATION;
use http::{Method, Request, StatusCode};
use mpquic_h3::h3::error::Code;
use mpquic_h3::h3::ext::Protocol;
use mpquic_h3::h3::server::{self as h3_server, RequestResolver, RequestStream};
use mpquic_h3::{BidiStream, CONNECT_IP, Priority, TCP_ACCEPT, TCP_LISTEN};
use mpquic_tokio::{Connection, StreamId, StreamWatch, VarInt, certificate_fingerprint};
use tokio::time::{Instant, timeout};

use self::accounts::{Accounts, Counted, Turns};
pub use self::outwards::{Resolve, Resolving, SystemResolver};
use self::refusal::Refused;
use self::reverse::{Picked, Ports};
use self::windows::{Windowed, Windows};
use crate::bound::{self as bound_udp, Filtering};
use crate::class::{Class, ClassRule, FlowKind};
use crate::copies::Numbers;
use crate::credentials::Credentials;
use crate::datagrams::Demux;
use crate::flow_table::{Flow, FlowStats, FlowTable, OpenFlow, UserStats};
use crate::gate::{Gate, Known, NotLetIn};
use crate::ip_scope::{InvalidScope, IpScope};
use crate::reverse::{self as reverse_path, ReverseRule};
use crate::rules::Rules as TargetRules;
use crate::shares::{Pool, Taker};
use crate::target::{DNS, InvalidTarget, Target};
use crate::transport::{STREAMS_OF_STRANGERS, seek_large_packets};

/// Longest request fields, bytes.
pub const MAX_FIELDS: u32 = 16 << 10;
/// Longest time to receive a request's fields, or to send a refusal.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who may use a proxy.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Access {
    /// Users with one of these credentials.
    Users(Credentials),
    /// Clients with a certificate that TLS accepts, by the server's TLS configuration. Each
    /// certificate is a user, named `certificate-` and the first 8 digits of the certificate's
    /// SHA-256.
    Certificates,
    /// Anybody who reaches the proxy. Strangers can then hide behind the proxy's address.
    Anybody,
}

/// How a proxy serves.
#[non_exhaustive]
pub struct ServerOptions {
    /// The permitted users.
    pub access: Access,
    /// The permitted targets of flows.
    pub rules: TargetRules,
    /// Open TCP flows of one user (of one network, where anybody may use the proxy), and as many
    /// UDP flows. At the limit, a new UDP flow replaces a UDP flow without an answer, the longest
    /// idle first, or else a UDP flow that was idle for two seconds. Without such a flow, the proxy
    /// refuses the new flow. A user has at most four CONNECT-IP flows.
    pub max_flows: usize,
    /// Open flows of all users. Each flow has a socket, and so a file descriptor. A user leaves at
    /// least its own number of flows for others, and UDP flows of one user take a quarter at most.
    /// The user with most flows gives way to users with fewer.
    pub all_flows: usize,
    /// UDP ports for flows of all users. Each UDP flow takes a port. A user leaves at least its own
    /// number of ports for other users. UDP flows of one user take a quarter of the ports at most,
    /// without the DNS flows. By default the number has no limit: choose less than the system's
    /// number of ephemeral ports, because name lookups need ports as well.
    pub udp_ports: usize,
    /// Memory that one user can make the proxy hold with data of flows that nobody reads or
    /// acknowledges, in bytes; 512 MiB by default. Each connection of the user gets a third of the
    /// free part for windows of at most 64 MiB each; without a free part, windows of 1 MiB. This
    /// needs [`adapt_server`](crate::adapt_server).
    pub user_memory: u64,
    /// The same for all users together; 4 GiB by default. A user leaves at least its own number of
    /// bytes for other users.
    pub all_memory: u64,
    /// New UDP flows of one user in a second, and as many other flows and DNS flows. Further flows
    /// wait for their turn, 30 seconds at most.
    pub flows_per_second: u32,
    /// Longest time for the lookup of a name and the connection to the target together.
    pub connect_timeout: Duration,
    /// A TCP connection closes after this time without a byte, or up to twice this time.
    pub tcp_idle: Duration,
    /// The same for UDP. RFC 4787 section 4.3 asks for two minutes.
    pub udp_idle: Duration,
    /// Whether a client may have one UDP port for all targets of a program
    /// (draft-ietf-masque-connect-udp-listen). The rules count for each peer, and new peers count
    /// as new flows.
    pub udp_bindings: bool,
    /// The users who may have TCP ports of this machine that lead to their clients. Nobody by
    /// default. A user has at most 16 ports. Connections to the ports count apart from the user's
    /// own flows, up to half of `max_flows` and a quarter of `all_flows`.
    pub reverse: Vec<ReverseRule>,
    /// The classes of flows to certain targets: the first rule for a target counts. For other
    /// targets the client tells the class (RFC 9218), or the proxy guesses the class.
    pub classes: Vec<ClassRule>,
    /// Looks up names.
    pub resolver: Arc<dyn Resolve>,
    /// Learns of every finished request.
    pub observer: Option<Arc<dyn Observe>>,
}

impl ServerOptions {
    /// The defaults, with users or without.
    pub fn new(access: Access) -> Self {
        Self {
            access,
            rules: TargetRules::default(),
            max_flows: 16_384,
            all_flows: usize::MAX,
            udp_ports: usize::MAX,
            user_memory: 512 << 20,
            all_memory: 4 << 30,
            flows_per_second: 512,
            connect_timeout: Duration::from_secs(10),
            tcp_idle: Duration::from_secs(30 * 60),
            udp_idle: Duration::from_secs(2 * 60),
            udp_bindings: true,
            reverse: Vec::new(),
            classes: Vec::new(),
            resolver: Arc::new(SystemResolver),
            observer: None,
        }
    }
}

/// A request that is over.
#[derive(Debug)]
#[non_exhaustive]
pub struct Over<'a> {
    /// `CONNECT`, `CONNECT-UDP`, `CONNECT-IP`, `TCP-LISTEN` and `TCP-ACCEPT` (a port that leads to
    /// a client, and a connection to such a port), or another method.
    pub method: &'a str,
    /// The target of the flow, `*` for many targets; the address of a port that leads to a client,
    /// and the source of a connection to such a port; the path of a CONNECT-IP request; the URI of
    /// an invalid request.
    pub target: &'a str,
    /// The client's address, without port.
    pub client: IpAddr,
    /// The name of the user, if the proxy recognised a user.
    pub user: Option<&'a str>,
    /// The status of the answer.
    pub status: StatusCode,
    /// Payload bytes to the client.
    pub sent: u64,
    /// Payload bytes from the client.
    pub received: u64,
    /// Time from the request to its end: for a flow, the life of the flow.
    pub duration: Duration,
}

/// Learns of the finished requests of a proxy.
pub trait Observe: Send + Sync {
    /// A request is over: it was refused, or its flow has ended.
    fn on_over(&self, over: &Over<'_>);
}

/// Counters of a proxy, and its open flows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Open TCP connections to targets.
    pub open_tcp: u64,
    /// Open UDP sockets to targets.
    pub open_udp: u64,
    /// Open flows of IP packets.
    pub open_ip: u64,
    /// Payload bytes to targets.
    pub to_targets: u64,
    /// Payload bytes from targets.
    pub from_targets: u64,
    /// Lost payloads: UDP payloads and IP packets from targets that were too large for the paths or
    /// found no room, and IP packets to targets that failed to leave or were too long for their
    /// answers.
    pub dropped_payloads: u64,
    /// UDP flows that ended to make room for new ones of their users.
    pub displaced_udp: u64,
    /// Bytes for open requests, including open flows.
    pub request_memory: u64,
    /// Bytes that full windows of all connections of known users would take.
    pub window_memory: u64,
}

/// A proxy, for any number of connections. Clones are handles to the same one.
#[derive(Clone)]
pub struct Server(Arc<Shared>);

struct Shared {
    options: RwLock<Arc<ServerOptions>>,
    accounts: Arc<Accounts>,
    ports: Arc<Ports>,
    memory: Pool,
    windows: Windows,
    gate: Gate,
    flows: Arc<FlowTable>,
    open_tcp: AtomicU64,
    open_udp: AtomicU64,
    open_ip: AtomicU64,
    /// The identifier of the next ICMP socket, which tells its answers from answers for other
    /// sockets.
    #[cfg(target_os = "linux")]
    next_identifier: AtomicU16,
    /// The log has said once that the system allows no ICMP sockets.
    #[cfg(target_os = "linux")]
    no_icmp: std::sync::Once,
    dropped_payloads: Arc<AtomicU64>,
    displaced_udp: AtomicU64,
}

impl Server {
    /// A proxy.
    pub fn new(options: ServerOptions) -> Self {
        let accounts = Accounts::new(options.all_flows);
        accounts.set_udp_ports(options.udp_ports);
        let all_memory = options.all_memory;
        Self(Arc::new(Shared {
            options: RwLock::new(Arc::new(options)),
            accounts,
            ports: Arc::default(),
            memory: request_memory::pool(),
            windows: Windows::new(all_memory),
            gate: Gate::default(),
            flows: Arc::default(),
            open_tcp: AtomicU64::new(0),
            open_udp: AtomicU64::new(0),
            open_ip: AtomicU64::new(0),
            #[cfg(target_os = "linux")]
            next_identifier: AtomicU16::new(std::process::id() as u16),
            #[cfg(target_os = "linux")]
            no_icmp: std::sync::Once::new(),
            dropped_payloads: Arc::default(),
            displaced_udp: AtomicU64::new(0),
        }))
    }

    /// The open flows, and flows on their way to a target.
    pub fn flows(&self) -> Vec<FlowStats> {
        self.0.flows.stats()
    }

    /// The users with a flow now or before, with their bytes.
    pub fn users(&self) -> Vec<UserStats> {
        self.0.flows.users()
    }

    /// Replaces the options for later requests. Open flows keep their options.
    pub fn set_options(&self, options: ServerOptions) {
        self.0.accounts.set_flows(options.all_flows);
        self.0.accounts.set_udp_ports(options.udp_ports);
        self.0.windows.set_total(options.all_memory);
        let mut current = (self.0.options.write()).unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(options);
    }

    /// The settings of HTTP/3 for a proxy: extended CONNECT (RFC 9220) and datagrams (RFC 9297).
    /// The connection must accept DATAGRAM frames, too, as by default.
    pub fn http() -> h3_server::Builder {
        let mut builder = h3_server::builder();
        builder
            .max_field_section_size(MAX_FIELDS.into())
            .enable_extended_connect(true)
            .enable_datagram(true)
            // After CONNECT, only DATA frames may follow (RFC 9114 section 4.4).
            .send_grease(false);
        builder
    }

    /// Serves a connection. The caller passes the connection here and to `h3`, and passes each
    /// request of `h3` to [`ServerConnection::answer`]. Call this once for each connection, within
    /// a tokio runtime.
    pub fn connection(&self, connection: &Connection) -> ServerConnection {
        seek_large_packets(connection);
        let demux = Arc::new(Demux::default());
        let (reading, datagrams) = (demux.clone(), connection.clone());
        // The task ends with the connection.
        tokio::spawn(async move { reading.run(&datagrams).await });
        let client = connection.remote_address();
        let requests = ServerConnection {
            shared: self.0.clone(),
            connection: connection.clone(),
            client: client.map_or(IpAddr::from([0; 4]), |client| client.ip().to_canonical()),
            demux,
            known: Arc::default(),
            windowed: Arc::default(),
        };
        let options = self.0.options();
        match options.access {
            Access::Users(_) => {}
            // TLS has accepted the client's certificate, or the proxy is open to anybody.
            Access::Certificates | Access::Anybody => {
                requests
                    .known
                    .set(None, requests.certificate().ok().as_deref());
                requests.let_in(&options);
            }
        }
        requests
    }

    /// The counters, and the numbers of open flows.
    pub fn stats(&self) -> ServerStats {
        let shared = &self.0;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let users = shared.flows.users();
        ServerStats {
            open_tcp: count(&shared.open_tcp),
            open_udp: count(&shared.open_udp),
            open_ip: count(&shared.open_ip),
            to_targets: users.iter().map(|user| user.received).sum(),
            from_targets: users.iter().map(|user| user.sent).sum(),
            dropped_payloads: count(&shared.dropped_payloads),
            displaced_udp: count(&shared.displaced_udp),
            request_memory: shared.memory.used(),
            window_memory: shared.windows.memory(),
        }
    }
}

impl Shared {
    fn options(&self) -> Arc<ServerOptions> {
        let options = self.options.read();
        options.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Counts a flow as open until this value is dropped.
struct Open<'a>(&'a AtomicU64);

impl<'a> Open<'a> {
    fn new(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The requests of one connection. Clones are handles to the same connection.
#[derive(Clone)]
pub struct ServerConnection {
    shared: Arc<Shared>,
    connection: Connection,
    client: IpAddr,
    demux: Arc<Demux>,
    known: Arc<Known>,
    windowed: Arc<Windowed>,
}

type Stream = RequestStream<BidiStream<Bytes>, Bytes>;

/// The kind of a request's flow, and its target.
enum Wanted {
    Tcp(Target),
    Udp(Target),
    /// UDP to and from many peers, by one port.
    Bound,
    Ip(IpScope),
    /// A TCP port of this machine that leads to the client.
    Listen(SocketAddr),
    /// The connection with this number to such a port.
    Accept(u64),
}

impl Wanted {
    fn turns(&self) -> Turns {
        match self {
            Self::Udp(target) if target.port() != DNS => Turns::Udp,
            Self::Bound => Turns::Udp,
            _ => Turns::Other,
        }
    }
}

/// A request with permission for a flow. The flow counts as open until this value is dropped.
struct Admitted {
    wanted: Wanted,
    open: Counted,
    /// The connection of [`Wanted::Accept`], until the flow begins.
    picked: Mutex<Option<Picked>>,
    taker: Taker,
}

impl Admitted {
    /// The source of a connection to a port that leads to the client.
    fn source(&self) -> Option<SocketAddr> {
        let picked = self.picked.lock().unwrap_or_else(PoisonError::into_inner);
        picked.as_ref().map(|picked| picked.from)
    }
}

/// A request that is being answered.
struct Call<'a> {
    connection: &'a ServerConnection,
    options: Arc<ServerOptions>,
    watch: StreamWatch,
    /// The client drops the second copy of a payload, so payloads may be sent twice.
    numbers: Numbers,
    /// The peers that may send to a binding.
    filtering: Filtering,
}

impl ServerConnection {
    /// Answers a request, and carries its flow to the end. Run this on a task of its own.
    ///
    /// A 0-RTT request waits for the end of the handshake: an attacker can replay a recorded
    /// request (RFC 8470 section 4), but cannot complete a handshake.
    ///
    /// The server resets a request whose memory goes to other clients.
    pub async fn answer(&self, request: RequestResolver<mpquic_h3::Connection, Bytes>) {
        let taker = Taker::new(self.known.user().as_deref(), self.client);
        let Some(memory) = self.shared.memory.try_take(&taker, request_memory::REQUEST) else {
            return;
        };
        tokio::select! {
            () = Box::pin(self.answer_with_memory(request)) => {}
            () = memory.gives_way() => {}
        }
    }

    async fn answer_with_memory(&self, request: RequestResolver<mpquic_h3::Connection, Bytes>) {
        let began = Instant::now();
        let Ok(Ok((request, stream))) = timeout(PATIENCE, request.resolve_request()).await else {
            // Dropping the stream resets it. h3 has told the client the error.
            return;
        };
        let handshake = timeout(PATIENCE, self.connection.handshake_confirmed());
        if !matches!(handshake.await, Ok(Ok(()))) {
            return;
        }
        let options = self.shared.options();
        let id = VarInt::from_u64(stream.send_id().into_inner()).unwrap_or(VarInt::MAX);
        let call = Call {
            connection: self,
            options: options.clone(),
            watch: self.connection.watch_stream(StreamId::from(id)),
            numbers: Numbers::offered(request.headers()),
            filtering: Filtering::offered(request.headers()),
        };
        // The flows of the connection do not delay answers.
        let _ = call.watch.set_priority(Class::REQUEST);
        let method = match request.extensions().get::<Protocol>() {
            Some(_) if special(&request) == Some(CONNECT_IP.1) => "CONNECT-IP",
            Some(_) if special(&request) == Some(TCP_LISTEN.1) => "TCP-LISTEN",
            Some(_) if special(&request) == Some(TCP_ACCEPT.1) => "TCP-ACCEPT",
            Some(protocol) if *protocol == Protocol::CONNECT_UDP => "CONNECT-UDP",
            _ => request.method().as_str(),
        };
        let user = self.user(&options, &request);
        let name = user.as_ref().ok().and_then(Option::as_deref);
        let wanted = wanted(&request, options.udp_bindings);
        let target = match &wanted {
            Ok(Wanted::Tcp(target) | Wanted::Udp(target)) => target.to_string(),
            Ok(Wanted::Bound) => "*".to_owned(),
            Ok(Wanted::Listen(at)) => at.to_string(),
            Ok(Wanted::Ip(_) | Wanted::Accept(_)) => request.uri().path().to_owned(),
            Err(_) => request.uri().to_string(),
        };
        let admitted = self.admit(&options, &user, wanted);
        let source = admitted.as_ref().ok().and_then(Admitted::source);
        let target = source.map_or(target, |source| source.to_string());
        let (status, sent, received) = match admitted {
            Ok(admitted) => call.carry(admitted, stream, &request, name).await,
            Err(refused) => (call.refuse(refused, stream).await, 0, 0),
        };
        if let Some(observer) = &options.observer {
            observer.on_over(&Over {
                method,
                target: &target,
                client: self.client,
                user: name,
                status,
                sent,
                received,
                duration: began.elapsed(),
            });
        }
    }

    /// Adds a flow to the table.
    fn begin(
        &self,
        options: &ServerOptions,
        request: &Request<()>,
        wanted: &Wanted,
        user: Option<&str>,
    ) -> OpenFlow {
        let (kind, target) = match wanted {
            Wanted::Tcp(target) => (FlowKind::Tcp, Some(target)),
            Wanted::Udp(target) => (FlowKind::Udp, Some(target)),
            Wanted::Bound => (FlowKind::Udp, None),
            Wanted::Listen(_) | Wanted::Accept(_) => (FlowKind::Tcp, None),
            Wanted::Ip(_) => (FlowKind::Ip, None),
        };
        let mut rules = options.classes.iter();
        let told = || Class::from_priority(Priority::of_request(request.headers()));
        let said = target.and_then(|target| rules.find_map(|rule| rule.class_of(target)));
        let said = said.or_else(told);
        self.shared.flows.begin(kind, target, user, said)
    }

    /// The user name of a client with a certificate.
    fn certificate(&self) -> Result<String, Refused> {
        let chain = self.connection.peer_certificates().unwrap_or_default();
        let own = chain.first().ok_or(Refused::CREDENTIALS)?;
        let digits = certificate_fingerprint(own);
        let digits = digits.iter().take(4).map(|byte| format!("{byte:02x}"));
        Ok(format!("certificate-{}", digits.collect::<String>()))
    }

    /// The user of a request; `None` on a proxy for anybody.
    fn user(
        &self,
        options: &ServerOptions,
        request: &Request<()>,
    ) -> Result<Option<String>, Refused> {
        let credentials = match &options.access {
            Access::Users(credentials) => credentials,
            Access::Certificates => return self.certificate().map(Some),
            Access::Anybody => return Ok(None),
        };
        let Some(shown) = request.headers().get(PROXY_AUTHORIZATION) else {
            // A request without a credential is no guess, so no wait follows.
            return Err(Refused::CREDENTIALS);
        };
        let was_known = self.known.is_right(shown);
        let gate = &self.shared.gate;
        let user = gate.user(credentials, self.client, shown, &self.known);
        let user = user.map_err(|refusal| match refusal {
            NotLetIn::Wrong => Refused::CREDENTIALS,
            NotLetIn::Wait(wait) => Refused::too_many(wait.as_secs() + 1),
        })?;
        if !was_known {
            self.let_in(options);
        }
        Ok(Some(user))
    }

    /// Raises the stream limit for a known user: one stream for each permitted flow, one for each
    /// connection to ports of the user, and some for requests that end in a refusal.
    fn let_in(&self, options: &ServerOptions) {
        let flows = u32::try_from(options.max_flows).unwrap_or(u32::MAX);
        let of_strangers = if options.reverse.is_empty() {
            0
        } else {
            flows / 2
        };
        let streams = flows.saturating_mul(2).saturating_add(of_strangers);
        let streams = VarInt::from(streams.saturating_add(STREAMS_OF_STRANGERS));
        self.connection.set_max_concurrent_bi_streams(streams);
    }

    /// Checks the user, the target and the number of open flows before any work for the request.
    fn admit(
        &self,
        options: &ServerOptions,
        user: &Result<Option<String>, Refused>,
        wanted: Result<Wanted, Refused>,
    ) -> Result<Admitted, Refused> {
        let user = user.as_ref().map_err(|refused| *refused)?;
        let wanted = wanted?;
        let kind = match wanted {
            Wanted::Tcp(_) | Wanted::Listen(_) | Wanted::Accept(_) => FlowKind::Tcp,
            Wanted::Udp(_) | Wanted::Bound => FlowKind::Udp,
            Wanted::Ip(_) => FlowKind::Ip,
        };
        let taker = Taker::new(user.as_deref(), self.client);
        let mut taken = None;
        match &wanted {
            Wanted::Listen(at) => {
                let mut rules = options.reverse.iter();
                if !rules.any(|rule| rule.allows(user.as_deref(), at.port())) {
                    return Err(Refused::PORT);
                }
            }
            Wanted::Accept(number) => {
                let found = self.shared.ports.pick(*number, &taker);
                taken = Some(found.ok_or(Refused::NOT_FOUND)?);
            }
            _ => {}
        }
        let (windows, memory) = (&self.shared.windows, options.user_memory);
        windows.widen(&self.windowed, &self.connection, (&taker, memory));
        let kind = (kind, wanted.turns());
        let (picked, open) = match taken {
            // The connection counts since its arrival.
            Some((picked, open)) => (Some(picked), Some(open)),
            None => {
                let accounts = &self.shared.accounts;
                (None, accounts.begin(&taker, kind, options.max_flows))
            }
        };
        Ok(Admitted {
            open: open.ok_or(Refused::too_many(1))?,
            wanted,
            picked: Mutex::new(picked),
            taker,
        })
    }
}

/// The protocol of an extended CONNECT request that `h3` does not know.
fn special(request: &Request<()>) -> Option<&str> {
    request.extensions().get::<Protocol>()?;
    let (field, _) = mpquic_h3::CONNECT_IP;
    request.headers().get(field)?.to_str().ok()
}

/// What a request wants. `bindings` tells whether the proxy has bound UDP.
fn wanted(request: &Request<()>, bindings: bool) -> Result<Wanted, Refused> {
    if request.method() != Method::CONNECT {
        return Err(Refused::METHOD);
    }
    let uri = request.uri();
    match request.extensions().get::<Protocol>() {
        Some(_) if special(request) == Some(TCP_LISTEN.1) => {
            let at = reverse_path::from_listen_path(uri.path());
            at.map(Wanted::Listen).ok_or(Refused::BAD_REQUEST)
        }
        Some(_) if special(request) == Some(TCP_ACCEPT.1) => {
            let number = reverse_path::from_accept_path(uri.path());
            number.map(Wanted::Accept).ok_or(Refused::BAD_REQUEST)
        }
        Some(_) if special(request) == Some(CONNECT_IP.1) => match IpScope::from_path(uri.path()) {
            Ok(scope) => Ok(Wanted::Ip(scope)),
            Err(InvalidScope::Path) => Err(Refused::NOT_FOUND),
            Err(InvalidScope::Variable) => Err(Refused::BAD_REQUEST),
            Err(InvalidScope::Name) => Err(Refused::PROTOCOL),
        },
        Some(protocol) if *protocol == Protocol::CONNECT_UDP => {
            if bound_udp::is_without_target(uri.path()) && bound_udp::is_offered(request.headers())
            {
                return if bindings {
                    Ok(Wanted::Bound)
                } else {
                    Err(Refused::PROTOCOL)
                };
            }
            match Target::from_udp_path(uri.path()) {
                Ok(target) => Ok(Wanted::Udp(target)),
                Err(InvalidTarget::Path) => Err(Refused::NOT_FOUND),
                Err(_) => Err(Refused::BAD_REQUEST),
            }
        }
        Some(_) => Err(Refused::PROTOCOL),
        // RFC 9114 section 4.4: a CONNECT request with a scheme or a path is malformed.
        None if uri.scheme().is_some() || uri.path_and_query().is_some() => {
            Err(Refused::BAD_REQUEST)
        }
        None => {
            let authority = uri.authority().map_or("", |authority| authority.as_str());
            let target = authority.parse().map_err(|_| Refused::BAD_REQUEST)?;
            Ok(Wanted::Tcp(target))
        }
    }
}

impl Call<'_> {
    /// Waits for the flow's turn, and carries the flow to its end. Returns the status, the payload
    /// bytes to the client, and the payload bytes from the client.
    async fn carry(
        &self,
        admitted: Admitted,
        stream: Stream,
        request: &Request<()>,
        user: Option<&str>,
    ) -> (StatusCode, u64, u64) {
        let options = &*self.options;
        let has_come = tokio::select! {
            has_come = admitted.open.turn(options.flows_per_second) => has_come,
            // The client has cancelled the request.
            _ = self.watch.stopped() => return (StatusCode::OK, 0, 0),
        };
        if !has_come {
            return (self.refuse(Refused::too_many(1), stream).await, 0, 0);
        }
        let flow = self
            .connection
            .begin(options, request, &admitted.wanted, user);
        let status = tokio::select! {
            status = self.serve(&admitted, stream, &flow) => status,
            () = admitted.open.gives_way(flow.clone()) => {
                if flow.kind() == FlowKind::Udp {
                    (self.connection.shared.displaced_udp).fetch_add(1, Ordering::Relaxed);
                }
                StatusCode::OK
            }
        };
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (sent, received) = (&flow.carried.to_stream, &flow.carried.from_stream);
        (status, count(sent), count(received))
    }

    async fn serve(&self, admitted: &Admitted, stream: Stream, flow: &Arc<Flow>) -> StatusCode {
        let names = outwards::Names {
            resolver: self.options.resolver.clone(),
            flow: &admitted.open,
            deadline: Instant::now() + self.options.connect_timeout,
        };
        let served = match &admitted.wanted {
            Wanted::Tcp(target) => self.tcp((target, &names), stream, flow).await,
            Wanted::Udp(target) => self.udp((target, &names), stream, flow).await,
            Wanted::Bound => self.bound(&admitted.open, stream, flow).await,
            Wanted::Listen(at) => self.listen(*at, &admitted.taker, stream).await,
            Wanted::Accept(_) => self.accept(&admitted.picked, stream, flow).await,
            Wanted::Ip(scope) => self.ip(*scope, stream, flow).await,
        };
        match served {
            Ok(()) => StatusCode::OK,
            Err((refused, stream)) => self.refuse(refused, stream).await,
        }
    }

    /// Sends a refusal.
    async fn refuse(&self, refused: Refused, mut stream: Stream) -> StatusCode {
        let answer = async {
            stream.send_response(refused.response()).await?;
            stream.finish().await
        };
        let _ = timeout(PATIENCE, answer).await;
        stream.stop_sending(Code::H3_NO_ERROR);
        refused.status
    }
}
