//! A UDP socket for payloads to and from many peers, joined to a request for bound UDP.

use std::cell::RefCell;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{BufMut, Bytes};
use http::HeaderValue;
use mpquic_h3::h3::error::Code;
use mpquic_tokio::{SendDatagramError, StreamWatch};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::ServerOptions;
use super::accounts::Newcomers;
use super::capsule_stream::{ToClient, receive};
use crate::arrivals::Arrivals;
use crate::bound::{Contexts, Filtering, MOST_HEADER, Malformed, Told, canonical, parse};
use crate::capsule::{Capsules, DATAGRAM, datagram_capsule};
use crate::copies::{Numbers, Purpose, UdpSender, numbered_payload};
use crate::datagrams::{Deliver, with_room};
use crate::flow_table::{Carried, Flow};
use crate::peers::Peers;
use crate::relay::until_idle;
use crate::streams::{Incoming, Outgoing, end};

/// Compressed contexts of a binding. Further ones are refused.
const MOST_CONTEXTS: usize = 64;
/// Answers to capsules that may wait for the stream.
const MOST_ANSWERS: usize = 64;
/// Datagrams that may wait for the first context: they may overtake the capsule of the context.
const MOST_EARLY: usize = 16;
/// The largest UDP payload.
const LARGEST: usize = 65_527;

thread_local! {
    /// Takes one payload at a time, behind room for a header.
    static PAYLOAD: RefCell<Vec<u8>> = RefCell::new(vec![0; MOST_HEADER + LARGEST]);
}

/// The socket of a binding.
pub(super) struct Bound {
    socket: UdpSocket,
    /// The socket is one of IPv6, which also carries IPv4.
    is_v6: bool,
    options: Arc<ServerOptions>,
    flow: Arc<Flow>,
    numbers: Numbers,
    newcomers: Newcomers,
    arrivals: Arrivals,
    /// Payloads that keep the binding open: all from the client, and those of peers at addresses to
    /// which the client has sent. Strangers keep no binding open.
    counting: Carried,
    state: Mutex<State>,
}

struct State {
    contexts: Contexts,
    peers: Peers,
    /// `None` once there was a context.
    early: Option<Vec<Vec<u8>>>,
}

/// A socket for peers of both versions of IP, or of IPv4 where the system has no IPv6.
fn socket() -> io::Result<(UdpSocket, bool)> {
    let bound = |domain, address: SocketAddr| {
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        if domain == Domain::IPV6 {
            socket.set_only_v6(false)?;
        }
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        Ok::<_, io::Error>(with_room(UdpSocket::from_std(socket.into())?))
    };
    match bound(Domain::IPV6, (Ipv6Addr::UNSPECIFIED, 0).into()) {
        Ok(socket) => Ok((socket, true)),
        Err(_) => Ok((
            bound(Domain::IPV4, (Ipv4Addr::UNSPECIFIED, 0).into())?,
            false,
        )),
    }
}

impl Deliver for Bound {
    /// Datagrams of bound UDP name their peers.
    fn deliver(&self, _: &[u8]) {}

    fn on_datagram(&self, datagram: &[u8]) -> bool {
        match numbered_payload(datagram) {
            Some((purpose, number, inner)) if self.numbers.takes(purpose) => {
                self.on_numbered((purpose, number), inner);
                true
            }
            _ => self.send(datagram),
        }
    }
}

impl Bound {
    /// Binds a port.
    ///
    /// # Errors
    ///
    /// If the system gives no socket.
    pub(super) async fn open(
        options: Arc<ServerOptions>,
        flow: Arc<Flow>,
        newcomers: Newcomers,
        (numbers, filtering): (Numbers, Filtering),
    ) -> io::Result<Arc<Self>> {
        let (socket, is_v6) = socket()?;
        // Otherwise the runtime would refuse the first payload.
        socket.writable().await?;
        Ok(Arc::new(Self {
            socket,
            is_v6,
            options,
            flow,
            numbers,
            newcomers,
            arrivals: Arrivals::default(),
            counting: Carried::default(),
            state: Mutex::new(State {
                contexts: Contexts::default(),
                peers: Peers::new(filtering),
                early: Some(Vec::new()),
            }),
        }))
    }

    /// The value of the field `proxy-public-address`, where this address of the proxy is known.
    pub(super) fn public_address(&self, own: Option<std::net::IpAddr>) -> Option<HeaderValue> {
        let own = own?.to_canonical();
        let port = self.socket.local_addr().ok()?.port();
        HeaderValue::try_from(format!("\"{}\"", SocketAddr::new(own, port))).ok()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_numbered(&self, number: (Purpose, u64), inner: &[u8]) {
        (self.arrivals).on_payload(number, inner, |inner| {
            self.send(inner);
        });
    }

    /// Sends the payload of a datagram to its peer. False for a datagram of an unknown context.
    fn send(&self, datagram: &[u8]) -> bool {
        let now = Instant::now();
        let mut state = self.lock();
        let Some((peer, payload)) = state.contexts.read(datagram) else {
            return match &mut state.early {
                Some(early) if early.len() < MOST_EARLY && datagram.len() <= 2048 => {
                    early.push(datagram.to_vec());
                    true
                }
                _ => false,
            };
        };
        // The rules of the operator count for each peer as they do for a flow's only target.
        if peer.port() == 0 || !self.options.rules.allow(&peer) {
            return true;
        }
        let per_second = self.options.flows_per_second;
        if !state.peers.knows(&peer) && !self.newcomers.may_begin(per_second) {
            return true;
        }
        state.peers.on_sent(peer, now);
        drop(state);
        // A payload is lost without room in the socket, and without a way to the peer.
        if self.socket.try_send_to(payload, self.reached(peer)).is_ok() {
            let bytes = payload.len() as u64;
            (self.flow.carried.from_stream).fetch_add(bytes, Ordering::Relaxed);
            (self.counting.from_stream).fetch_add(1 + bytes, Ordering::Relaxed);
        }
        true
    }

    /// The address of a peer as the socket knows addresses.
    fn reached(&self, peer: SocketAddr) -> SocketAddr {
        match peer {
            SocketAddr::V4(v4) if self.is_v6 => {
                SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
            }
            peer => peer,
        }
    }

    /// Writes a header before a payload of this length from a peer, which stands behind room for
    /// the header, and returns the header's length. `None` for a payload that must not come in.
    fn framed(&self, from: SocketAddr, length: usize, buffer: &mut [u8]) -> Option<usize> {
        let from = canonical(from);
        if !self.options.rules.allow(&from) {
            return None;
        }
        let state = self.lock();
        if !state.peers.let_in(from.ip()) {
            return None;
        }
        let mut header = [0; MOST_HEADER];
        let mut room = &mut header[..];
        if !state.contexts.put_header(&mut room, from) {
            return None;
        }
        let used = MOST_HEADER - room.remaining_mut();
        if state.peers.has_asked(from.ip()) {
            (self.counting.to_stream).fetch_add(1 + length as u64, Ordering::Relaxed);
        }
        buffer[MOST_HEADER - used..MOST_HEADER].copy_from_slice(&header[..used]);
        Some(used)
    }

    /// Carries payloads both ways until the client ends the request, or until the idle timeout.
    pub(super) async fn run(
        &self,
        sender: &UdpSender,
        (mut send, mut recv): (impl Outgoing, impl Incoming),
        watch: &StreamWatch,
        dropped: &AtomicU64,
    ) {
        let (answer, mut answers) = mpsc::channel(MOST_ANSWERS);
        let idle = self.options.udp_idle;
        let ended = tokio::select! {
            ended = self.read_peers(sender, (&mut send, watch), &mut answers, dropped) => ended,
            ended = self.read_client(&mut recv, &answer) => ended,
            _ = watch.stopped() => Ok(()),
            () = self.arrivals.run(|inner| { self.send(inner); }) => Ok(()),
            () = until_idle(idle, &self.counting) => Ok(()),
            () = self.forget_peers(idle) => Ok(()),
        };
        end(ended, send, recv).await;
    }

    /// Forgets peers to which the client has sent nothing for the idle time. Never ends.
    async fn forget_peers(&self, idle: Duration) {
        loop {
            tokio::time::sleep(idle).await;
            self.lock().peers.forget(idle, Instant::now());
        }
    }

    async fn read_peers(
        &self,
        sender: &UdpSender,
        (send, watch): (&mut impl Outgoing, &StreamWatch),
        answers: &mut mpsc::Receiver<Bytes>,
        dropped: &AtomicU64,
    ) -> Result<(), Code> {
        let mut to_client = ToClient::new((send, watch), &self.flow, dropped);
        let takes_datagrams = sender.max_size().is_some();
        loop {
            let readable = tokio::select! {
                readable = self.socket.readable() => readable,
                Some(answer) = answers.recv() => {
                    to_client.answer(answer).await?;
                    continue;
                }
            };
            let from_peer = readable.and_then(|()| {
                PAYLOAD.with_borrow_mut(|buffer| {
                    let (count, from) = self.socket.try_recv_from(&mut buffer[MOST_HEADER..])?;
                    let Some(header) = self.framed(from, count, buffer) else {
                        return Ok(None);
                    };
                    let datagram = &buffer[MOST_HEADER - header..MOST_HEADER + count];
                    let sent = if takes_datagrams {
                        sender.send_bound(datagram)
                    } else {
                        Err(SendDatagramError::TooLarge)
                    };
                    // RFC 9297 section 3.5
                    let is_large = matches!(sent, Err(SendDatagramError::TooLarge));
                    let capsule = is_large.then(|| datagram_capsule(datagram));
                    Ok(Some((count, sent, capsule)))
                })
            });
            let Ok(from_peer) = from_peer else {
                // The socket was not readable after all, or an ICMP message reports an earlier
                // payload.
                tokio::task::yield_now().await;
                continue;
            };
            let Some((count, sent, capsule)) = from_peer else {
                continue;
            };
            to_client.pass(count, sent, capsule).await?;
        }
    }

    /// Reads capsules until the client ends its side.
    async fn read_client(
        &self,
        recv: &mut impl Incoming,
        answers: &mpsc::Sender<Bytes>,
    ) -> Result<(), Code> {
        let mut capsules = Capsules::of_bound();
        while receive(recv, &mut capsules).await? {
            while let Some((kind, value)) = (capsules.take()).map_err(|_| Code::H3_MESSAGE_ERROR)? {
                if kind == DATAGRAM {
                    self.on_datagram(&value);
                    continue;
                }
                let told = parse(kind, &value).map_err(|_| Code::H3_MESSAGE_ERROR)?;
                let answer = told.map(|told| self.on_told(told)).transpose();
                let answer = answer.map_err(|Malformed| Code::H3_MESSAGE_ERROR)?;
                if let Some(answer) = answer.flatten() {
                    // The client sends capsules and reads no answers.
                    let queued = answers.try_send(answer.to_capsule());
                    queued.map_err(|_| Code::H3_EXCESSIVE_LOAD)?;
                }
            }
        }
        Ok(())
    }

    /// A capsule of the client; returns the answer.
    fn on_told(&self, told: Told) -> Result<Option<Told>, Malformed> {
        let mut state = self.lock();
        let (context, peer) = match told {
            Told::Assign(context, peer) => (context, peer),
            Told::Close(context) => {
                state.contexts.remove(context);
                return Ok(None);
            }
            // This side assigns no contexts.
            Told::Ack(_) => return Err(Malformed),
        };
        // Clients have even numbers (RFC 9298 section 4), and some of them may belong to numbered
        // payloads.
        let is_taken = (self.numbers.takes(Purpose::Copies) || self.numbers.takes(Purpose::Order))
            && context <= 4;
        if !context.is_multiple_of(2) || is_taken {
            return Err(Malformed);
        }
        if state.contexts.has(context) {
            return Err(Malformed);
        }
        if let Some(peer) = peer {
            let is_refused = !self.options.rules.allow(&peer)
                || peer.is_ipv6() && !self.is_v6
                || state.contexts.of_peer(&peer).is_none() && state.contexts.len() >= MOST_CONTEXTS;
            if is_refused {
                return Ok(Some(Told::Close(context)));
            }
        }
        state.contexts.insert(context, peer)?;
        let early = state.early.take();
        drop(state);
        for datagram in early.into_iter().flatten() {
            self.send(&datagram);
        }
        Ok(Some(Told::Ack(context)))
    }
}

#[cfg(test)]
mod tests {
    use mpquic_h3::h3::error::StreamError;

    use super::*;
    use crate::bound::put_datagram;
    use crate::class::FlowKind;
    use crate::flow_table::FlowTable;
    use crate::server::Access;
    use crate::server::accounts::{Accounts, Turns};
    use crate::shares::Taker;

    async fn bound(change: impl FnOnce(&mut ServerOptions)) -> Arc<Bound> {
        let mut options = ServerOptions::new(Access::Anybody);
        options.rules.allow.push("127.0.0.0/8".parse().unwrap());
        options.rules.deny.push("127.0.0.9/32".parse().unwrap());
        change(&mut options);
        let accounts = Accounts::new(1000);
        let kind = (FlowKind::Udp, Turns::Udp);
        let open = accounts
            .begin(&Taker::User("a".into()), kind, 1000)
            .unwrap();
        let table = Arc::new(FlowTable::default());
        let flow = table.begin(FlowKind::Udp, None, None, None).clone();
        let how = (Numbers::ALL, Filtering::EndpointIndependent);
        Bound::open(Arc::new(options), flow, open.newcomers(), how)
            .await
            .unwrap()
    }

    fn peer(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn sent(bound: &Bound, peer: SocketAddr) -> u64 {
        let bytes = &bound.flow.carried.from_stream;
        let before = bytes.load(Ordering::Relaxed);
        let mut datagram = Vec::new();
        put_datagram(&mut datagram, peer, b"payload");
        bound.on_datagram(&datagram);
        bytes.load(Ordering::Relaxed) - before
    }

    #[tokio::test]
    async fn contexts_of_a_binding_are_bounded() {
        let bound = bound(|_| {}).await;
        let assign = |number: u64| {
            let peer = peer(number as u16);
            bound.on_told(Told::Assign(2 * number, Some(peer))).unwrap()
        };
        for number in 10..10 + MOST_CONTEXTS as u64 {
            assert_eq!(assign(number), Some(Told::Ack(2 * number)));
        }
        assert_eq!(assign(200), Some(Told::Close(400)));
        assert_eq!(bound.on_told(Told::Close(20)), Ok(None));
        assert_eq!(assign(200), Some(Told::Ack(400)));
        assert_eq!(bound.lock().contexts.len(), MOST_CONTEXTS);
        // Twice the same peer or context, a number of the proxy, a number of copies, and an answer
        // to nothing.
        for wrong in [
            Told::Assign(800, Some(peer(200))),
            Told::Assign(400, Some(peer(201))),
            Told::Assign(801, Some(peer(201))),
            Told::Assign(4, Some(peer(201))),
            Told::Ack(400),
        ] {
            assert_eq!(bound.on_told(wrong), Err(Malformed), "{wrong:?}");
        }
    }

    #[tokio::test]
    async fn rules_are_for_each_peer() {
        let bound = bound(|_| {}).await;
        let allowed = UdpSocket::bind(peer(0)).await.unwrap();
        let (allowed, denied) = (
            allowed.local_addr().unwrap(),
            "127.0.0.9:7".parse().unwrap(),
        );
        assert_eq!(bound.on_told(Told::Assign(6, None)), Ok(Some(Told::Ack(6))));
        assert_eq!((sent(&bound, allowed), sent(&bound, denied)), (7, 0));
        assert_eq!(sent(&bound, "[::ffff:127.0.0.9]:7".parse().unwrap()), 0);
        assert_eq!(sent(&bound, peer(0)), 0);
        let assigned = bound.on_told(Told::Assign(8, Some(denied)));
        assert_eq!(assigned, Ok(Some(Told::Close(8))));
        let mut buffer = vec![0; MOST_HEADER + 9];
        assert!(bound.framed(allowed, 9, &mut buffer).is_some());
        assert!(bound.framed(denied, 9, &mut buffer).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn new_peers_are_counted_like_new_flows() {
        let bound = bound(|options| options.flows_per_second = 3).await;
        bound.on_told(Told::Assign(6, None)).unwrap();
        let reached = |from: u16| (from..from + 5).filter(|port| sent(&bound, peer(*port)) > 0);
        assert_eq!(reached(1000).collect::<Vec<_>>(), [1000, 1001, 1002]);
        // Known peers go on.
        assert_eq!(sent(&bound, peer(1000)), 7);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(reached(1003).count(), 3);
    }

    /// Datagrams may overtake the capsule of their context.
    #[tokio::test]
    async fn early_datagrams_wait_and_are_bounded() {
        let bound = bound(|_| {}).await;
        for _ in 0..MOST_EARLY + 5 {
            assert_eq!(sent(&bound, peer(1000)), 0);
        }
        let bytes = || bound.flow.carried.from_stream.load(Ordering::Relaxed);
        bound.on_told(Told::Assign(6, None)).unwrap();
        assert_eq!(bytes(), 7 * MOST_EARLY as u64);
        assert!(!bound.on_datagram(b"\x0aother"));
    }

    /// Pieces of a stream that ends behind them.
    struct Pieces(std::vec::IntoIter<Bytes>);

    impl Incoming for Pieces {
        async fn recv(&mut self) -> Result<Option<Bytes>, StreamError> {
            Ok(self.0.next())
        }

        fn stop(&mut self, _: Code) {}
    }

    #[tokio::test]
    async fn a_client_that_reads_no_answers_is_cut() {
        let read = async |count: usize| {
            let bound = bound(|_| {}).await;
            let open = Told::Assign(8, Some(peer(1000))).to_capsule();
            let close = Told::Close(8).to_capsule();
            let both = [open, close].into_iter().cycle();
            let mut pieces = Pieces(both.take(2 * count).collect::<Vec<_>>().into_iter());
            let (answer, _answers) = mpsc::channel(MOST_ANSWERS);
            bound.read_client(&mut pieces, &answer).await
        };
        assert_eq!(read(MOST_ANSWERS).await, Ok(()));
        assert_eq!(read(MOST_ANSWERS + 1).await, Err(Code::H3_EXCESSIVE_LOAD));
    }

    /// An idle binding ends although strangers send to it.
    #[tokio::test]
    async fn strangers_keep_no_binding_open() {
        let bound = bound(|_| {}).await;
        bound.on_told(Told::Assign(6, None)).unwrap();
        let mut buffer = vec![0; MOST_HEADER + 9];
        assert!(bound.framed(peer(1), 9, &mut buffer).is_some());
        assert_eq!(bound.counting.total(), 0);
        sent(&bound, peer(2));
        let asked = bound.counting.total();
        assert!(asked > 0);
        assert!(bound.framed(peer(1), 9, &mut buffer).is_some());
        assert!(bound.counting.total() > asked);
    }
}
