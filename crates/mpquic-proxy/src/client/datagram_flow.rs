//! [`DatagramFlow`]: a flow of UDP payloads or IP packets through the proxy.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use mpquic_h3::h3::error::Code;
use mpquic_h3::h3::ext::Protocol;
use mpquic_tokio::SendDatagramError;
use tokio::time::{Instant, timeout};

use super::bound::{Binding, first_capsule};
use super::flows::{Accepted, Client, NoFlow, SETTINGS, Session, Shared};
use super::large::{Ending, Large};
use crate::arrivals::Arrivals;
use crate::bound::{self, Filtering};
use crate::capsule::{Capsules, udp_payload};
use crate::class::{Class, FlowKind};
use crate::copies::{Numbers, Purpose, UdpSender, numbered_payload};
use crate::datagrams::{Deliver, Registered};
use crate::flow_table::{Flow, OpenFlow};
use crate::giving_way::Use;
use crate::ip_scope::EVERYTHING;
use crate::relay::until_idle;
use crate::target::{DNS, Target};

/// Idle time of a DNS flow: no data follows an answer, and resolvers repeat a lost query sooner.
const DNS_IDLE: Duration = Duration::from_secs(10);
/// A UDP flow without an answer ends after this time, as in the NATs of Linux.
const UNANSWERED: Duration = Duration::from_secs(30);

impl Client {
    fn filtering(&self) -> Filtering {
        (self.0.options.udp_binding).unwrap_or(Filtering::EndpointIndependent)
    }

    /// Opens a flow of datagrams. `deliver` gets the payloads from the target.
    pub(super) async fn connect_datagrams(
        &self,
        wanted: &Wanted,
        deliver: Arc<dyn Deliver>,
    ) -> Result<DatagramFlow, NoFlow> {
        let session = self.session().await?;
        if !session.carries_udp().await {
            return Err(NoFlow::NoUdp);
        }
        let (path, target, marked) = match wanted {
            Wanted::Udp(target, marked) => (target.udp_path(), Some(target), *marked),
            Wanted::Bound(first, marked) => (bound::PATH.to_owned(), Some(first), *marked),
            Wanted::Ip => (EVERYTHING.to_owned(), None, None),
        };
        let uri = http::Uri::builder()
            .scheme("https")
            .authority(self.0.options.authority.clone())
            .path_and_query(path);
        let said = target.and_then(|target| self.said(target, marked));
        let mut request = self.request(uri, said)?;
        request.extensions_mut().insert(Protocol::CONNECT_UDP);
        let fields = request.headers_mut();
        // RFC 9297 section 3.4
        fields.insert("capsule-protocol", HeaderValue::from_static("?1"));
        wanted.put_fields(fields, self.filtering());
        let first = match wanted {
            Wanted::Bound(..) => first_capsule(),
            _ => Bytes::new(),
        };
        let asked = self.ask(&session, request, first).await;
        let accepted = match wanted {
            Wanted::Bound(..) => has_binding(asked, &session)?,
            _ => asked?,
        };
        let filtering = accepted.filtering;
        let Accepted { stream, watch, .. } = accepted;
        // A binding has many targets.
        let target = target.filter(|_| !matches!(wanted, Wanted::Bound(..)));
        let flow = self.0.flows.begin(wanted.kind(), target, None, said);
        let (large, waiting) = Large::new(self.0.large.clone());
        let large = Arc::new(large);
        let binding = matches!(wanted, Wanted::Bound(..)).then(|| {
            // The client filters where the proxy lets everybody in.
            let needed = match filtering {
                Filtering::AddressDependent => Filtering::EndpointIndependent,
                Filtering::EndpointIndependent => self.filtering(),
            };
            Binding::new(needed, large.clone())
        });
        let deliver = Arc::new(Counted {
            inner: deliver,
            flow: flow.clone(),
            arrivals: Arrivals::default(),
            binding,
        });
        let id = stream.id();
        let registered = session.demux.register(id, deliver.clone());
        let (send, recv) = stream.split();
        let capsules = match wanted {
            Wanted::Udp(..) => Capsules::default(),
            Wanted::Bound(..) => Capsules::of_bound(),
            Wanted::Ip => Capsules::of_ip(),
        };
        let mut ending = Ending::new((send, recv), watch, waiting, capsules);
        if let Wanted::Ip = wanted {
            // No packet can leave before the proxy has assigned an address.
            let assigned = timeout(SETTINGS, ending.assigned(&*deliver)).await;
            if !matches!(assigned, Ok(true)) {
                return Err(NoFlow::Broken);
            }
        }
        wanted.count(&self.0).fetch_add(1, Ordering::Relaxed);
        Ok(DatagramFlow {
            large,
            client: self.clone(),
            wanted: wanted.clone(),
            idle: target.map_or(self.0.options.udp_idle, |target| {
                idle(target, self.0.options.udp_idle)
            }),
            sender: UdpSender::new(&session.connection, id, flow.clone(), accepted.numbers),
            ending: Mutex::new(Some(ending)),
            flow,
            deliver,
            _registered: registered,
        })
    }
}

/// The accepted request for a binding.
///
/// # Errors
///
/// [`NoFlow::NoBinding`] at a proxy without bindings, and the errors of all requests.
fn has_binding(asked: Result<Accepted, NoFlow>, session: &Session) -> Result<Accepted, NoFlow> {
    let has_none = match &asked {
        Ok(accepted) => !accepted.is_bound,
        // The path means nothing to the proxy, or `*` is no host.
        Err(NoFlow::Refused(status)) => [
            StatusCode::BAD_REQUEST,
            StatusCode::NOT_FOUND,
            StatusCode::METHOD_NOT_ALLOWED,
            StatusCode::NOT_IMPLEMENTED,
            StatusCode::BAD_GATEWAY,
            StatusCode::GATEWAY_TIMEOUT,
        ]
        .contains(status),
        Err(_) => false,
    };
    if !has_none {
        return asked;
    }
    session.no_binding.call_once(|| {
        tracing::warn!(
            "the proxy gives no endpoint-independent mapping of UDP: each target of a program gets a port of its \
             own there"
        );
    });
    Err(NoFlow::NoBinding)
}

/// The kind of a datagram flow, and its target.
#[derive(Debug, Clone)]
pub(super) enum Wanted {
    /// UDP payloads to this target, with their class from the application's packets.
    Udp(Target, Option<Class>),
    /// UDP payloads to and from many peers, by one port of the proxy. The first peer, and the class
    /// from the application's packets, tell the class of the flow.
    Bound(Target, Option<Class>),
    /// IP packets, to and from anywhere.
    #[cfg_attr(
        not(all(feature = "tun", target_os = "linux")),
        expect(dead_code, reason = "only devices have them")
    )]
    Ip,
}

impl Wanted {
    fn kind(&self) -> FlowKind {
        match self {
            Self::Udp(..) | Self::Bound(..) => FlowKind::Udp,
            Self::Ip => FlowKind::Ip,
        }
    }

    /// Adds the extensions of a request.
    fn put_fields(&self, fields: &mut HeaderMap, filtering: Filtering) {
        match self {
            Self::Udp(..) => Numbers::ALL.offer(fields),
            Self::Bound(..) => {
                Numbers::ALL.offer(fields);
                bound::offer(fields);
                filtering.offer(fields);
            }
            Self::Ip => {
                let (field, value) = mpquic_h3::CONNECT_IP;
                fields.insert(field, HeaderValue::from_static(value));
            }
        }
    }

    /// The number of open flows of this kind.
    fn count<'a>(&self, shared: &'a Shared) -> &'a AtomicU64 {
        match self {
            Self::Udp(..) | Self::Bound(..) => &shared.open_udp,
            Self::Ip => &shared.open_ip,
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(target, _) => write!(f, "UDP to {target}"),
            Self::Bound(first, _) => write!(f, "port for UDP to {first} and other targets"),
            Self::Ip => f.write_str("ping"),
        }
    }
}

/// Counts delivered payloads.
struct Counted {
    inner: Arc<dyn Deliver>,
    flow: Arc<Flow>,
    arrivals: Arrivals,
    /// The contexts of a binding.
    binding: Option<Binding>,
}

impl Counted {
    fn count(&self, payload: &[u8]) {
        self.flow.on_used(Instant::now());
        let bytes = payload.len() as u64;
        (self.flow.carried.from_stream).fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes a datagram of a binding. False for a datagram of an unknown context.
    fn take_bound(&self, binding: &Binding, datagram: &[u8]) -> bool {
        let Some((peer, payload)) = binding.read(datagram) else {
            return false;
        };
        self.count(payload);
        self.inner.deliver_from(peer, payload);
        true
    }
}

impl Deliver for Counted {
    /// Takes a payload; on a binding, a datagram whose number was removed.
    fn deliver(&self, payload: &[u8]) {
        if let Some(binding) = &self.binding {
            self.take_bound(binding, payload);
            return;
        }
        self.count(payload);
        self.inner.deliver(payload);
    }

    fn deliver_numbered(&self, purpose: Purpose, number: u64, payload: &[u8]) {
        let deliver = |payload: &[u8]| self.deliver(payload);
        (self.arrivals).on_payload((purpose, number), payload, deliver);
    }

    fn on_datagram(&self, datagram: &[u8]) -> bool {
        match (&self.binding, numbered_payload(datagram)) {
            // The client's own contexts never have the numbers of numbered payloads.
            (_, Some((purpose, number, payload))) => {
                self.deliver_numbered(purpose, number, payload);
                true
            }
            (Some(binding), None) => self.take_bound(binding, datagram),
            (None, None) => {
                let payload = udp_payload(datagram);
                payload.map(|payload| self.deliver(payload)).is_some()
            }
        }
    }

    fn on_capsule(&self, kind: u64, value: &[u8]) -> Result<(), Code> {
        match &self.binding {
            Some(binding) => binding.on_capsule(kind, value),
            None => Ok(()),
        }
    }

    fn prepare<'a>(&self, payload: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        self.inner.prepare(payload)
    }

    fn on_assigned(&self, addresses: &[IpAddr]) {
        self.inner.on_assigned(addresses);
    }
}

/// Longest idle time of a flow to this target.
fn idle(target: &Target, udp_idle: Duration) -> Duration {
    match target.port() {
        DNS => udp_idle.min(DNS_IDLE),
        _ => udp_idle,
    }
}

/// A flow of datagrams.
pub(super) struct DatagramFlow {
    client: Client,
    wanted: Wanted,
    /// The flow ends after this idle time.
    idle: Duration,
    sender: UdpSender,
    large: Arc<Large>,
    ending: Mutex<Option<Ending>>,
    flow: OpenFlow,
    deliver: Arc<Counted>,
    _registered: Registered,
}

impl Drop for DatagramFlow {
    fn drop(&mut self) {
        let open = self.wanted.count(&self.client.0);
        open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DatagramFlow {
    /// Sends a payload, which stands after a zero byte. A payload without room is lost, as in UDP.
    pub(super) fn send(&self, payload: &[u8]) {
        if let Some(binding) = &self.deliver.binding {
            return self.send_bound(binding, payload);
        }
        let Some(payload) = self.deliver.prepare(payload) else {
            return;
        };
        let bytes = payload.len().saturating_sub(1) as u64;
        (self.flow.carried.to_stream).fetch_add(bytes, Ordering::Relaxed);
        let sent = match self.sender.send(&payload) {
            // RFC 9297 section 3.5
            Err(SendDatagramError::TooLarge) => {
                let most = || self.sender.most_waiting();
                (self.large).push(payload.get(1..).unwrap_or_default(), most)
            }
            sent => sent.is_ok(),
        };
        if !sent {
            (self.client.0.dropped_payloads).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends a datagram of the uncompressed context.
    fn send_bound(&self, binding: &Binding, datagram: &[u8]) {
        let Some(datagram) = binding.compressed(datagram) else {
            return;
        };
        let bytes = datagram.len() as u64;
        (self.flow.carried.to_stream).fetch_add(bytes, Ordering::Relaxed);
        let sent = match self.sender.send_bound(&datagram) {
            // RFC 9297 section 3.5
            Err(SendDatagramError::TooLarge) => {
                let most = || self.sender.most_waiting();
                self.large.push_bound(&datagram, most)
            }
            sent => sent.is_ok(),
        };
        if !sent {
            (self.client.0.dropped_payloads).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The use of the flow so far.
    pub(super) fn used(&self) -> Use {
        self.flow.used(&self.flow.carried.from_stream)
    }

    async fn until_idle(&self) {
        let carried = &self.flow.carried;
        if self.deliver.binding.is_some() {
            // RFC 4787 section 4.3: a mapping lives for two minutes at least, whoever answers.
            return until_idle(self.idle, carried).await;
        }
        until_idle(self.idle.min(UNANSWERED), carried).await;
        if self.used().is_answered {
            until_idle(self.idle, carried).await;
        }
    }

    /// Waits until the proxy ends the flow, or until the idle timeout. Meanwhile, payloads in
    /// capsules are delivered. Call this once.
    pub(super) async fn ended(&self) {
        let ending = (self.ending.lock().unwrap_or_else(PoisonError::into_inner)).take();
        let Some(mut ending) = ending else {
            return;
        };
        let watch = ending.watch().clone();
        tokio::select! {
            () = ending.run(&*self.deliver, &self.flow) => {}
            _ = watch.stopped() => {}
            () = self.until_idle() => {}
            () = self.deliver.arrivals.run(|payload| self.deliver.deliver(payload)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_do_not_keep_flows_open() {
        let idle = |target: &str, seconds| {
            let idle = idle(&target.parse().unwrap(), Duration::from_secs(seconds));
            idle.as_secs()
        };
        assert_eq!(idle("192.0.2.1:443", 120), 120);
        assert_eq!(idle("192.0.2.1:53", 120), 10);
        assert_eq!(idle("192.0.2.1:53", 3), 3);
    }
}
