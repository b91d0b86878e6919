//! [`Client`]: flows through a proxy, over a connection that may be lost and replaced.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::PROXY_AUTHORIZATION;
use http::uri::Authority;
use http::{HeaderValue, Request, StatusCode};
use mpquic_h3::h3::ConnectionState;
use mpquic_h3::h3::client::{self as h3_client, RequestStream, SendRequest};
use mpquic_h3::h3::error::{Code, ConnectionError, StreamError};
use mpquic_h3::{BidiStream, OpenStreams, Priority};
use mpquic_tokio::{Connection, StreamId, StreamWatch, VarInt};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::large::Pool;
use crate::bound::{self, Filtering};
use crate::class::{Class, ClassRule, FlowKind};
use crate::copies::Numbers;
use crate::credential::Credential;
use crate::datagrams::Demux;
use crate::flow_table::{Flow, FlowStats, FlowTable, OpenFlow};
use crate::kernel_queue::KernelQueue;
use crate::relay::{Passing, Unchanged, relay};
use crate::target::Target;
use crate::transport::seek_large_packets;

/// Longest fields of an answer, bytes.
const MAX_FIELDS: u32 = 16 << 10;
/// Most interim responses before the final response.
const MAX_INTERIM: usize = 16;
/// Longest wait for an answer of the proxy. By default, our proxy lets a flow wait up to 30 s for
/// its turn, and tries the target for 10 s.
const PATIENCE: Duration = Duration::from_secs(60);
/// After a proxy has announced its end, new flows wait this long for the next connection.
const SUCCESSION: Duration = Duration::from_secs(10);
/// Longest wait for the GOAWAY behind a rejected request.
const GOODBYE: Duration = Duration::from_secs(1);
/// Longest wait for the proxy's settings.
pub(super) const SETTINGS: Duration = Duration::from_secs(5);

/// How flows are opened and kept.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClientOptions {
    /// The proxy's host and port, as requests name it.
    pub authority: Authority,
    /// The credential for the proxy.
    pub credential: Option<Credential>,
    /// A TCP connection is closed after this idle time, or up to twice as long.
    pub tcp_idle: Duration,
    /// The same for UDP. Flows to the port of DNS close after at most ten seconds.
    pub udp_idle: Duration,
    /// Classes of flows to certain targets: the first matching rule counts, and the client tells
    /// the proxy the class. Without a matching rule, each side guesses the class.
    pub classes: Vec<ClassRule>,
    /// With a filtering, each UDP socket of a program has one port at the proxy for all targets
    /// (endpoint-independent mapping, RFC 4787), in SOCKS associations and devices. Otherwise, and
    /// at proxies that cannot, each target of the socket has a port of its own.
    pub udp_binding: Option<Filtering>,
    /// Open connections of strangers to one port of the proxy that leads to this client, 4096 by
    /// default. Beyond the limit, a new connection displaces a silent connection, or a connection
    /// of the address with most connections.
    pub max_reverse: usize,
}

impl ClientOptions {
    /// The defaults: half an hour for TCP, two minutes for UDP.
    pub fn new(authority: Authority) -> Self {
        Self {
            authority,
            credential: None,
            tcp_idle: Duration::from_secs(30 * 60),
            udp_idle: Duration::from_secs(2 * 60),
            classes: Vec::new(),
            udp_binding: None,
            max_reverse: 4096,
        }
    }
}

/// The reason why a target has no flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoFlow {
    /// No connection to the proxy at the moment, or a proxy about to end.
    #[error("no connection to the proxy")]
    Unconnected,
    /// The target refused the connection.
    #[error("the target refused the connection")]
    ConnectionRefused,
    /// The proxy refused, with this status.
    #[error("the proxy answered {0}")]
    Refused(StatusCode),
    /// The proxy does not carry UDP: it announces no extended CONNECT, or no datagrams.
    #[error("the proxy does not carry UDP")]
    NoUdp,
    /// The proxy has no ports for many targets of one program (connect-udp-bind).
    #[error("the proxy binds no UDP ports")]
    NoBinding,
    /// The proxy has no TCP ports that lead to clients.
    #[error("the proxy forwards no ports to clients")]
    NoReverse,
    /// The proxy took too long, or the connection ended meanwhile.
    #[error("the proxy did not answer")]
    Broken,
}

/// Counters of a client, and its open flows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientStats {
    /// Open TCP flows.
    pub open_tcp: u64,
    /// Open UDP flows.
    pub open_udp: u64,
    /// Open flows of IP packets.
    pub open_ip: u64,
    /// UDP payloads and IP packets that were lost because they found no room.
    pub dropped_payloads: u64,
    /// UDP flows that ended to make room for new flows.
    pub displaced_udp: u64,
}

/// Opens flows through a proxy. Clones are handles to the same client.
#[derive(Clone)]
pub struct Client(pub(super) Arc<Shared>);

pub(super) struct Shared {
    pub(super) options: ClientOptions,
    authorization: Option<HeaderValue>,
    /// `None` without a connection.
    session: watch::Sender<Option<Session>>,
    /// New flows wait for a connection until then.
    patient_until: Mutex<Option<Instant>>,
    pub(super) flows: Arc<FlowTable>,
    open_tcp: AtomicU64,
    pub(super) open_udp: AtomicU64,
    pub(super) open_ip: AtomicU64,
    pub(super) dropped_payloads: AtomicU64,
    displaced_udp: AtomicU64,
    /// The last flow was refused for its credential.
    is_unknown: AtomicBool,
    /// Payloads of all flows that wait for their streams.
    pub(super) large: Arc<Pool>,
}

/// HTTP/3 over one connection.
#[derive(Clone)]
pub(super) struct Session {
    pub(super) connection: Connection,
    requests: SendRequest<OpenStreams, Bytes>,
    pub(super) demux: Arc<Demux>,
    /// True once the proxy has announced UDP.
    carries_udp: watch::Receiver<bool>,
    /// The proxy has refused a binding, and would refuse further ones.
    pub(super) no_binding: Arc<Once>,
}

impl Session {
    /// Waits for the proxy to say whether it carries UDP.
    pub(super) async fn carries_udp(&self) -> bool {
        let mut carries_udp = self.carries_udp.clone();
        let announced = timeout(SETTINGS, carries_udp.wait_for(|carries| *carries)).await;
        matches!(announced, Ok(Ok(_)))
    }
}

type Stream = RequestStream<BidiStream<Bytes>, Bytes>;

/// A request that the proxy accepted.
pub(super) struct Accepted {
    pub(super) stream: Stream,
    pub(super) watch: StreamWatch,
    /// The proxy drops the second copy of a payload, so payloads may be sent twice.
    pub(super) numbers: Numbers,
    /// The peers that the proxy lets in to a binding.
    pub(super) filtering: Filtering,
    /// The flow is a binding.
    pub(super) is_bound: bool,
}

impl Client {
    /// A client without a connection.
    pub fn new(options: ClientOptions) -> Self {
        let authorization = options.credential.as_ref().map(Credential::to_field);
        Self(Arc::new(Shared {
            options,
            authorization,
            session: watch::Sender::new(None),
            patient_until: Mutex::default(),
            flows: Arc::default(),
            open_tcp: AtomicU64::new(0),
            open_udp: AtomicU64::new(0),
            open_ip: AtomicU64::new(0),
            dropped_payloads: AtomicU64::new(0),
            displaced_udp: AtomicU64::new(0),
            is_unknown: AtomicBool::new(false),
            large: Arc::default(),
        }))
    }

    /// The connection for a new flow. A proxy that announced its end probably has a successor soon.
    pub(super) async fn session(&self) -> Result<Session, NoFlow> {
        let patience = *self.patient_until();
        if let Some(until) = patience {
            let _ = timeout_at(until, self.connected()).await;
        }
        self.0.session.borrow().clone().ok_or(NoFlow::Unconnected)
    }

    fn patient_until(&self) -> MutexGuard<'_, Option<Instant>> {
        (self.0.patient_until.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a connection that can carry flows.
    pub async fn connected(&self) {
        let mut session = self.0.session.subscribe();
        // This client owns the sender, so the channel stays open.
        let _ = session.wait_for(Option::is_some).await;
    }

    /// Waits until there is no connection that can carry new flows: none yet, the last one ended,
    /// or its proxy announced its end.
    pub async fn left(&self) {
        let mut session = self.0.session.subscribe();
        // This client owns the sender, so the channel stays open.
        let _ = session.wait_for(Option::is_none).await;
    }

    /// Waits until this connection gets no new flows.
    pub(super) async fn is_left(&self, session: &Session) {
        let mut current = self.0.session.subscribe();
        let is_left = |current: &Option<Session>| match current {
            Some(current) => !Arc::ptr_eq(&current.demux, &session.demux),
            None => true,
        };
        let _ = current.wait_for(is_left).await;
    }

    /// Counts of finished work, and of open flows.
    pub fn stats(&self) -> ClientStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ClientStats {
            open_tcp: count(&self.0.open_tcp),
            open_udp: count(&self.0.open_udp),
            open_ip: count(&self.0.open_ip),
            dropped_payloads: count(&self.0.dropped_payloads),
            displaced_udp: count(&self.0.displaced_udp),
        }
    }

    /// The open flows.
    pub fn flows(&self) -> Vec<FlowStats> {
        self.0.flows.stats()
    }

    /// True if UDP sockets of programs should have one port at the proxy for all targets.
    pub(super) fn binds(&self) -> bool {
        let session = self.0.session.borrow();
        let can = |session: &Session| !session.no_binding.is_completed();
        self.0.options.udp_binding.is_some() && session.as_ref().is_none_or(can)
    }

    /// Counts a UDP flow that ended to make room for a new flow. The log reports the first such
    /// flow.
    pub(super) fn on_displaced(&self, most: usize) {
        if self.0.displaced_udp.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(
                "{most} UDP flows are open, as many as may be: from now on, each new one ends the one that \
                 has waited longest for an answer, of the program or machine that has most of them"
            );
        }
    }

    /// Opens flows over this connection to the proxy until the connection ends, and returns the
    /// reason of the end. The connection must have negotiated `h3`, and no other code may speak
    /// HTTP/3 over it. After the proxy announces its end, the connection gets no new flows. Open
    /// flows go on, and new flows may use another connection.
    ///
    /// # Errors
    ///
    /// If HTTP/3 cannot begin.
    pub async fn run(&self, connection: Connection) -> Result<ConnectionError, ConnectionError> {
        seek_large_packets(&connection);
        let quic = mpquic_h3::Connection::new(connection.clone())
            .max_frame_size(MAX_FIELDS)
            .request_priority(Class::REQUEST);
        let mut builder = h3_client::builder();
        builder
            .max_field_section_size(MAX_FIELDS.into())
            .enable_extended_connect(true)
            .enable_datagram(true)
            .send_grease(false);
        let (mut driver, requests) = builder.build(quic).await?;
        let (announce, carries_udp) = watch::channel(false);
        let demux = Arc::new(Demux::default());
        let settings = requests.clone();
        self.0.session.send_replace(Some(Session {
            connection: connection.clone(),
            requests,
            demux: demux.clone(),
            carries_udp,
            no_binding: Arc::new(Once::new()),
        }));
        // The driver reads the settings of the proxy, and its GOAWAY: then the proxy accepts no
        // more flows (RFC 9114 section 5.2), and open flows continue.
        let driving = std::future::poll_fn(|cx| {
            let step = driver.poll_close(cx);
            let known = settings.settings();
            let carries_udp = known.enable_extended_connect() && known.enable_datagram();
            announce.send_if_modified(|old| carries_udp && !std::mem::replace(old, true));
            if settings.is_closing() {
                self.leave_orderly(&demux);
            }
            step
        });
        let error = tokio::select! {
            error = driving => error,
            _ = demux.run(&connection) => driver.wait_idle().await,
        };
        self.leave(&demux);
        Ok(error)
    }

    /// As [`Self::leave`], after the proxy has announced its end.
    fn leave_orderly(&self, demux: &Arc<Demux>) {
        let is_left = |session: &Session| Arc::ptr_eq(&session.demux, demux);
        if self.0.session.borrow().as_ref().is_some_and(is_left) {
            // The time comes first, for new flows look at it first.
            *self.patient_until() = Some(Instant::now() + SUCCESSION);
            self.leave(demux);
        }
    }

    /// Opens no further flows over the connection of this demultiplexer.
    fn leave(&self, demux: &Arc<Demux>) {
        let is_left = |session: &Session| Arc::ptr_eq(&session.demux, demux);
        self.0.session.send_if_modified(|session| {
            let is_left = session.as_ref().is_some_and(is_left);
            if is_left {
                *session = None;
            }
            is_left
        });
    }

    /// Asks the proxy for a flow. `first` leaves right behind the request.
    pub(super) async fn ask(
        &self,
        session: &Session,
        request: Request<()>,
        first: Bytes,
    ) -> Result<Accepted, NoFlow> {
        let asking = async {
            let mut requests = session.requests.clone();
            let mut stream = requests.send_request(request).await?;
            let id = VarInt::from_u64(stream.id().into_inner()).unwrap_or(VarInt::MAX);
            let watch = session.connection.watch_stream(StreamId::from(id));
            if !first.is_empty() {
                // After a refusal the answer says why.
                let _ = stream.send_data(first).await;
            }
            for _ in 0..MAX_INTERIM {
                let response = stream.recv_response().await?;
                if !response.status().is_informational() {
                    let accepted = Accepted {
                        stream,
                        watch,
                        numbers: Numbers::offered(response.headers()),
                        filtering: Filtering::offered(response.headers()),
                        is_bound: bound::is_offered(response.headers()),
                    };
                    return Ok::<_, StreamError>(Ok((response, accepted)));
                }
            }
            Ok(Err(NoFlow::Broken))
        };
        let asked = timeout(PATIENCE, asking).await;
        let (response, mut accepted) = match asked.map_err(|_| NoFlow::Broken)? {
            Ok(answered) => answered?,
            Err(error) => return Err(self.unasked(session, &error).await),
        };
        self.on_answer(response.status());
        if response.status().is_success() {
            return Ok(accepted);
        }
        accepted.stream.stop_sending(Code::H3_NO_ERROR);
        let _ = accepted.stream.finish().await;
        let reason = response.headers().get("proxy-status");
        let reason = reason.and_then(|reason| reason.to_str().ok());
        // RFC 9209 section 2.3.7
        if reason.is_some_and(|reason| reason.contains("error=connection_refused")) {
            Err(NoFlow::ConnectionRefused)
        } else {
            Err(NoFlow::Refused(response.status()))
        }
    }

    /// The log says once that the proxy does not know the user, and again only after a flow was
    /// accepted.
    fn on_answer(&self, status: StatusCode) {
        let is_unknown = status == StatusCode::PROXY_AUTHENTICATION_REQUIRED;
        let was_unknown = &self.0.is_unknown;
        if status.is_success() {
            was_unknown.store(false, Ordering::Relaxed);
        } else if is_unknown && !was_unknown.swap(true, Ordering::Relaxed) {
            let sent = match self.0.authorization {
                Some(_) => "does not accept the name and password of this client",
                None => "wants a name and a password, and this client has none",
            };
            tracing::warn!("no flows: the proxy {sent} (407); check --credentials at both ends");
        }
    }

    /// The reason for a request without an answer. After GOAWAY, the proxy has done nothing for a
    /// rejected request, so another connection may open the flow. The rejection may arrive before
    /// the GOAWAY, which is on another stream.
    async fn unasked(&self, session: &Session, error: &StreamError) -> NoFlow {
        let is_rejected = match error {
            StreamError::RemoteClosing => true,
            StreamError::RemoteTerminate { code, .. } => *code == Code::H3_REQUEST_REJECTED,
            _ => false,
        };
        if !is_rejected {
            return NoFlow::Broken;
        }
        if session.requests.is_closing() {
            self.leave_orderly(&session.demux);
        }
        match timeout(GOODBYE, self.is_left(session)).await {
            Ok(_) => NoFlow::Unconnected,
            Err(_) => NoFlow::Broken,
        }
    }

    /// The class of flows to a target: by a rule, or else by the mark on the application's packets.
    pub(super) fn said(&self, target: &Target, marked: Option<Class>) -> Option<Class> {
        let classes = self.0.options.classes.iter();
        (classes.filter_map(|rule| rule.class_of(target)).next()).or(marked)
    }

    pub(super) fn request(
        &self,
        uri: http::uri::Builder,
        said: Option<Class>,
    ) -> Result<Request<()>, NoFlow> {
        // Every target consists of characters that URIs allow.
        let uri = uri
            .build()
            .map_err(|_| NoFlow::Refused(StatusCode::BAD_REQUEST))?;
        let mut request = Request::new(());
        *request.method_mut() = http::Method::CONNECT;
        *request.uri_mut() = uri;
        if let Some(value) = &self.0.authorization {
            (request.headers_mut()).insert(PROXY_AUTHORIZATION, value.clone());
        }
        if let Some(class) = said {
            // RFC 9218 section 4.1. The incremental flag lets flows of equal urgency share the
            // connection.
            let priority = Priority::new(class.urgency()).unwrap_or_default();
            let field = priority.with_incremental().into();
            request.headers_mut().insert("priority", field);
        }
        Ok(request)
    }

    /// Opens a TCP connection from the proxy to a target.
    ///
    /// # Errors
    ///
    /// Without a connection to the proxy, after a refusal, and without an answer.
    pub async fn connect(&self, target: &Target) -> Result<TcpFlow, NoFlow> {
        self.connect_marked(target, None).await
    }

    /// Like [`Self::connect`], with the class from the application's packets.
    pub(super) async fn connect_marked(
        &self,
        target: &Target,
        marked: Option<Class>,
    ) -> Result<TcpFlow, NoFlow> {
        let said = self.said(target, marked);
        let accepted = loop {
            let session = self.session().await?;
            let uri = http::Uri::builder().authority(target.to_string());
            match self
                .ask(&session, self.request(uri, said)?, Bytes::new())
                .await
            {
                // The proxy announced its end before it took the request: the next connection may
                // carry the flow.
                Err(NoFlow::Unconnected) => {}
                accepted => break accepted?,
            }
        };
        Ok(self.tcp_flow(target, said, accepted))
    }

    /// A flow between the proxy and a target near this client.
    pub(super) fn joined(&self, target: &Target, accepted: Accepted) -> TcpFlow {
        self.tcp_flow(target, self.said(target, None), accepted)
    }

    fn tcp_flow(&self, target: &Target, said: Option<Class>, accepted: Accepted) -> TcpFlow {
        self.0.open_tcp.fetch_add(1, Ordering::Relaxed);
        TcpFlow {
            flow: self.0.flows.begin(FlowKind::Tcp, Some(target), None, said),
            client: self.clone(),
            accepted: Some(accepted),
        }
    }
}

/// A TCP connection from the proxy to a target. Dropping this resets the connection.
pub struct TcpFlow {
    client: Client,
    flow: OpenFlow,
    /// `None` once the flow is joined.
    accepted: Option<Accepted>,
}

impl Drop for TcpFlow {
    fn drop(&mut self) {
        self.client.0.open_tcp.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TcpFlow {
    /// The flow in the table.
    pub(super) fn flow(&self) -> &Arc<Flow> {
        &self.flow
    }

    /// Joins the flow to a local TCP connection until both sides have ended. `begun` has bytes
    /// already read from the local connection. Each side learns of the other side's end or reset.
    pub async fn join(self, tcp: TcpStream, begun: Bytes) {
        self.join_by(tcp, begun, &Unchanged).await;
    }

    /// Like [`Self::join`]. `passing` may change all bytes except `begun`.
    pub(super) async fn join_by(mut self, tcp: TcpStream, begun: Bytes, passing: &impl Passing) {
        let Some(Accepted { stream, watch, .. }) = self.accepted.take() else {
            return;
        };
        let (mut send, recv) = stream.split();
        if !begun.is_empty() && send.send_data(begun).await.is_err() {
            let _ = tcp.set_zero_linger();
            return;
        }
        let idle = self.client.0.options.tcp_idle;
        let passing = (&**self.flow, passing);
        let tcp = (tcp, Some(KernelQueue::new(Instant::now())));
        let ended = relay(tcp, (send, recv), &watch, idle, passing).await;
        tracing::debug!(?ended, "a TCP flow is over");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rule is the user's own word, and a mark is a guess of a program.
    #[test]
    fn a_rule_for_a_target_overrides_the_mark_on_packets() {
        let mut options = ClientOptions::new("192.0.2.1:443".parse().unwrap());
        options.classes = vec!["bulk=10.0.0.0/8".parse().unwrap()];
        let client = Client::new(options);
        let (named, other) = (
            "10.0.0.1:80".parse().unwrap(),
            "192.0.2.2:80".parse().unwrap(),
        );
        for marked in [None, Some(Class::RealTime), Some(Class::Interactive)] {
            assert_eq!(client.said(&named, marked), Some(Class::Bulk));
            assert_eq!(client.said(&other, marked), marked);
        }
    }
}
