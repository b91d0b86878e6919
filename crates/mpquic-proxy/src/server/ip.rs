//! The server of CONNECT-IP (RFC 9484): sends packets of a client from this machine.
//!
//! ICMP echo messages leave through the system's ICMP sockets. These sockets need no device, routes
//! or address translation, and mostly no privilege. Every client gets the same address, because
//! only the client and the proxy see this address. The sequence number of a sent message identifies
//! the client of the answer.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mpquic_h3::DatagramSender;
use mpquic_h3::h3::error::Code;
use mpquic_tokio::{SendDatagramError, StreamWatch};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

use super::capsule_stream::receive;
use super::echo_filter::answers;
use crate::capsule::{Capsules, DATAGRAM, udp_capsule, udp_payload};
use crate::datagrams::Deliver;
use crate::flow_table::Flow;
use crate::ip::echo::{Echo, Kind};
use crate::ip::header::{hop_limit, is_for_one, layout};
use crate::ip_capsule::{Address, Told, parse};
use crate::ip_scope::IpScope;
use crate::relay::until_idle;
use crate::rules::Rules;
use crate::streams::{Incoming, Outgoing, end};

/// The addresses of every client. RFC 2544 reserves the first network for tests of devices; the
/// second has a random number, as RFC 4193 requires.
const ADDRESS_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 19, 0, 1));
const ADDRESS_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd6d, 0x7071, 0x7569, 0x63a5, 0, 0, 0, 1));
/// Most echo requests that wait for an answer. A further request replaces the oldest.
const WAITING: usize = 1024;
/// Most capsules that wait to be sent.
const CAPSULES: usize = 16;
/// Room for the longest packet of IPv4, and for the longest message of IPv6.
const BUFFER: usize = u16::MAX as usize;

thread_local! {
    /// Takes one answer at a time. A buffer of each flow would keep memory for an answer of any
    /// size.
    static ANSWER: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER]);
}

/// A sent echo request without an answer yet.
#[derive(Debug, Clone, Copy)]
struct Question {
    number: u16,
    target: IpAddr,
    identifier: u16,
    sequence: u16,
}

/// The echo requests that wait for answers.
#[derive(Debug, Default)]
struct Questions {
    next: u16,
    /// Each question at its number modulo the length.
    waiting: Vec<Option<Question>>,
    /// The current hop limit of the socket.
    hop_limit: u8,
}

impl Questions {
    /// Stores an echo request, and returns its number.
    fn begin(&mut self, target: IpAddr, echo: &Echo<'_>) -> u16 {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.waiting.resize(WAITING, None);
        self.waiting[usize::from(number) % WAITING] = Some(Question {
            number,
            target,
            identifier: echo.identifier,
            sequence: echo.sequence,
        });
        number
    }

    /// Removes the echo request of an answer.
    fn take(&mut self, number: u16, from: IpAddr) -> Option<Question> {
        let place = self.waiting.get_mut(usize::from(number) % WAITING)?;
        place.take_if(|question| question.number == number && question.target == from)
    }
}

/// A socket for ICMP of one IP version.
struct Way {
    socket: UdpSocket,
    /// On a raw socket, the identifier of our messages. On other sockets the system filters
    /// answers.
    identifier: Option<u16>,
    questions: Mutex<Questions>,
}

impl Way {
    /// Opens an unprivileged ICMP socket if the administrator allows one, otherwise a raw socket,
    /// which needs CAP_NET_RAW.
    fn open(is_v4: bool, identifier: u16) -> io::Result<Self> {
        let (domain, protocol) = if is_v4 {
            (Domain::IPV4, Protocol::ICMPV4)
        } else {
            (Domain::IPV6, Protocol::ICMPV6)
        };
        let (socket, identifier) = match Socket::new(domain, Type::DGRAM, Some(protocol)) {
            Ok(socket) => (socket, None),
            Err(_) => {
                let raw = Socket::new(domain, Type::RAW, Some(protocol))?;
                raw.attach_filter(&answers(is_v4, identifier))?;
                (raw, Some(identifier))
            }
        };
        socket.set_nonblocking(true)?;
        Ok(Self {
            // Sends and receives work like on a UDP socket.
            socket: UdpSocket::from_std(socket.into())?,
            identifier,
            questions: Mutex::default(),
        })
    }

    /// Sends an echo request. A request without room in the socket is lost.
    fn send(&self, target: IpAddr, echo: &Echo<'_>, hop_limit: u8) -> bool {
        let mut questions = (self.questions.lock()).unwrap_or_else(PoisonError::into_inner);
        if questions.hop_limit != hop_limit {
            let socket = SockRef::from(&self.socket);
            let set = if target.is_ipv4() {
                socket.set_ttl_v4(hop_limit.into())
            } else {
                socket.set_unicast_hops_v6(hop_limit.into())
            };
            questions.hop_limit = set.map_or(0, |()| hop_limit);
        }
        let own = Echo {
            identifier: self.identifier.unwrap_or(0),
            sequence: questions.begin(target, echo),
            ..*echo
        };
        let message = own.to_message(target.is_ipv4());
        (self
            .socket
            .try_send_to(&message, SocketAddr::new(target, 0)))
        .is_ok()
    }

    /// Waits for an answer, and writes the answer as a packet for the client.
    async fn answer(&self, packet: &mut Vec<u8>, client: IpAddr) {
        loop {
            let read = self.socket.readable().await.and_then(|()| {
                ANSWER.with_borrow_mut(|buffer| {
                    let (length, from) = self.socket.try_recv_from(buffer)?;
                    Ok(self.on_heard(&buffer[..length], from.ip(), packet, client))
                })
            });
            match read {
                Ok(true) => return,
                Ok(false) => {}
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }

    /// Writes a received answer as a packet for the client. False for other messages.
    fn on_heard(&self, heard: &[u8], from: IpAddr, packet: &mut Vec<u8>, client: IpAddr) -> bool {
        let Some(echo) = reply(heard, client.is_ipv4(), self.identifier) else {
            return false;
        };
        let question = (self.questions.lock())
            .unwrap_or_else(PoisonError::into_inner)
            .take(echo.sequence, from);
        let Some(question) = question else {
            return false;
        };
        let answer = Echo {
            identifier: question.identifier,
            sequence: question.sequence,
            ..echo
        };
        packet.clear();
        // The context ID.
        packet.push(0);
        answer.put(packet, (from, client));
        true
    }
}

/// The answer in a received message; `None` for other messages. A raw socket also hears answers
/// with identifiers of other programs.
fn reply(heard: &[u8], is_v4: bool, own: Option<u16>) -> Option<Echo<'_>> {
    let echo = match is_v4 && own.is_some() {
        // A raw socket of IPv4 delivers the IP header, too, and also damaged messages.
        true => Echo::of_packet(heard, &layout(heard)?),
        false => Echo::of_message(heard, is_v4),
    };
    let is_ours = |identifier| own.is_none_or(|own| own == identifier);
    echo.filter(|echo| echo.kind == Kind::Reply && is_ours(echo.identifier))
}

/// The ICMP sockets of one request.
pub(super) struct Outside {
    v4: Option<Way>,
    v6: Option<Way>,
    scope: IpScope,
    rules: Rules,
    flow: Arc<Flow>,
    /// Number of packets lost here.
    dropped: Arc<AtomicU64>,
}

impl Deliver for Outside {
    fn deliver(&self, packet: &[u8]) {
        let bytes = packet.len() as u64;
        match self.leave(packet) {
            Some(true) => {
                (self.flow.carried.from_stream).fetch_add(bytes, Ordering::Relaxed);
            }
            Some(false) => drop(self.dropped.fetch_add(1, Ordering::Relaxed)),
            None => {}
        }
    }
}

impl Outside {
    /// Opens the sockets. Raw sockets need the identifier to find their own answers.
    ///
    /// # Errors
    ///
    /// If the system allows no ICMP socket.
    pub(super) fn open(
        scope: IpScope,
        rules: Rules,
        (flow, dropped): (Arc<Flow>, Arc<AtomicU64>),
        identifier: u16,
    ) -> io::Result<Arc<Self>> {
        let v4 = Way::open(true, identifier);
        let v6 = Way::open(false, identifier);
        let (v4, v6) = match (v4, v6) {
            (Err(error), Err(_)) => return Err(error),
            (v4, v6) => (v4.ok(), v6.ok()),
        };
        Ok(Arc::new(Self {
            v4,
            v6,
            scope,
            rules,
            flow,
            dropped,
        }))
    }

    fn ways(&self) -> [(IpAddr, Option<&Way>); 2] {
        [
            (ADDRESS_V4, self.v4.as_ref()),
            (ADDRESS_V6, self.v6.as_ref()),
        ]
    }

    /// Sends a packet if the rules permit. `None` for a forbidden packet, and false for a packet
    /// that failed to leave.
    fn leave(&self, packet: &[u8]) -> Option<bool> {
        let ip = layout(packet)?;
        let way = |(address, way)| (address == ip.source).then_some(way);
        // RFC 9484 section 4.7.1: packets from other addresses are forbidden.
        let way = self.ways().into_iter().find_map(way)??;
        let target = ip.destination;
        let may_leave = is_for_one(target)
            && self.scope.allows(target)
            && self.rules.allow(&SocketAddr::new(target, 0));
        let echo = Echo::of_packet(packet, &ip).filter(|echo| echo.kind == Kind::Request)?;
        // RFC 9484 section 4.9: the proxy forwards packets like a router, one hop less.
        let hops = hop_limit(packet).filter(|hops| *hops > 1)?;
        may_leave.then(|| way.send(target, &echo, hops - 1))
    }

    /// The first capsules for a client: its addresses and routes.
    fn told(&self) -> [Told; 2] {
        let there = |(address, way): (IpAddr, Option<&Way>)| way.map(|_| address);
        let addresses: Vec<_> = self.ways().into_iter().filter_map(there).collect();
        let routes = addresses.iter().map(|address| address.is_ipv4());
        let routes = routes.filter_map(|is_v4| self.scope.route(is_v4)).collect();
        let assigned = addresses.into_iter().map(|address| own(0, address));
        [Told::Assigned(assigned.collect()), Told::Routes(routes)]
    }

    /// Answers a request for addresses with the existing addresses, and declines further addresses.
    fn assigned(&self, requested: &[Address]) -> Told {
        let mut left: Vec<_> = (self.ways().into_iter())
            .filter_map(|(address, way)| way.map(|_| address))
            .collect();
        let mut assigned = Vec::new();
        for asked in requested {
            let is_v4 = asked.address.is_ipv4();
            let fitting = left.iter().position(|address| address.is_ipv4() == is_v4);
            let address = match fitting {
                Some(place) => left.remove(place),
                // RFC 9484 section 4.7.2: an unspecified address declines a request.
                None if is_v4 => Ipv4Addr::UNSPECIFIED.into(),
                None => Ipv6Addr::UNSPECIFIED.into(),
            };
            assigned.push(own(asked.request, address));
        }
        // The message repeats earlier addresses, because a missing address counts as withdrawn.
        assigned.extend(left.into_iter().map(|address| own(0, address)));
        Told::Assigned(assigned)
    }

    /// Carries packets both ways until the client ends the request, or until the idle timeout.
    pub(super) async fn run(
        &self,
        sender: &DatagramSender,
        (mut send, mut recv): (impl Outgoing, impl Incoming),
        watch: &StreamWatch,
        idle: Duration,
    ) {
        let (told, mut to_tell) = mpsc::channel::<Bytes>(CAPSULES);
        for first in self.told() {
            // The new channel has room for both capsules.
            let _ = told.try_send(first.to_capsule());
        }
        let telling = async {
            while let Some(capsule) = to_tell.recv().await {
                (send.send(capsule).await).map_err(|_| Code::H3_CONNECT_ERROR)?;
            }
            Ok(())
        };
        let ended = tokio::select! {
            ended = telling => ended,
            ended = self.read_outside(ADDRESS_V4, self.v4.as_ref(), sender, &told) => ended,
            ended = self.read_outside(ADDRESS_V6, self.v6.as_ref(), sender, &told) => ended,
            ended = self.read_client(&mut recv, &told) => ended,
            _ = watch.stopped() => Ok(()),
            () = until_idle(idle, &self.flow.carried) => Ok(()),
        };
        end(ended, send, recv).await;
    }

    async fn read_outside(
        &self,
        client: IpAddr,
        way: Option<&Way>,
        sender: &DatagramSender,
        told: &mpsc::Sender<Bytes>,
    ) -> Result<(), Code> {
        let Some(way) = way else {
            return std::future::pending().await;
        };
        loop {
            // Most answers are short, so no flow keeps the memory of a long one.
            let mut packet = Vec::new();
            way.answer(&mut packet, client).await;
            let sent = match sender.send(&packet) {
                // The packet is too large for a datagram, or the client accepts no datagrams. The
                // stream carries packets of any size.
                Err(SendDatagramError::TooLarge | SendDatagramError::UnsupportedByPeer) => {
                    told.try_send(udp_capsule(&packet[1..])).is_ok()
                }
                Err(SendDatagramError::ConnectionLost(_)) => return Err(Code::H3_CONNECT_ERROR),
                sent => sent.is_ok(),
            };
            if sent {
                let bytes = packet.len() as u64 - 1;
                (self.flow.carried.to_stream).fetch_add(bytes, Ordering::Relaxed);
            } else {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Reads capsules until the client ends its side.
    async fn read_client(
        &self,
        recv: &mut impl Incoming,
        told: &mpsc::Sender<Bytes>,
    ) -> Result<(), Code> {
        let mut capsules = Capsules::of_ip();
        while receive(recv, &mut capsules).await? {
            loop {
                let taken = capsules.take().map_err(|_| Code::H3_EXCESSIVE_LOAD)?;
                let Some((kind, value)) = taken else {
                    break;
                };
                if kind == DATAGRAM {
                    if let Some(packet) = udp_payload(&value) {
                        self.deliver(packet);
                    }
                    continue;
                }
                match parse(kind, &value) {
                    Ok(Some(Told::Requested(requested))) => {
                        let answer = self.assigned(&requested).to_capsule();
                        let sent = told.send(answer).await;
                        sent.map_err(|_| Code::H3_CONNECT_ERROR)?;
                    }
                    // The proxy sends nothing to networks behind a client, so a client's routes
                    // have no effect.
                    Ok(_) => {}
                    Err(error) => {
                        tracing::debug!(%error, "a capsule of CONNECT-IP");
                        return Err(Code::H3_MESSAGE_ERROR);
                    }
                }
            }
        }
        Ok(())
    }
}

/// A single assigned address.
fn own(request: u64, address: IpAddr) -> Address {
    Address {
        request,
        address,
        length: if address.is_ipv4() { 32 } else { 128 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_raw_sockets_are_checked() {
        let echo = |kind| Echo {
            kind,
            identifier: 7,
            sequence: 1,
            data: b"data",
        };
        let mut heard = Vec::new();
        let ends = (Ipv4Addr::LOCALHOST.into(), ADDRESS_V4);
        echo(Kind::Reply).put(&mut heard, ends);
        assert_eq!(reply(&heard, true, Some(7)), Some(echo(Kind::Reply)));
        assert_eq!(reply(&heard, true, Some(8)), None, "another's");
        *heard.last_mut().unwrap() ^= 1;
        assert_eq!(reply(&heard, true, Some(7)), None, "damaged");
        heard.clear();
        echo(Kind::Request).put(&mut heard, ends);
        assert_eq!(reply(&heard, true, Some(7)), None, "a question");
        // On other sockets the system filters.
        let message = echo(Kind::Reply).to_message(true);
        assert_eq!(reply(&message, true, None), Some(echo(Kind::Reply)));
    }

    #[test]
    fn answers_are_those_of_questions() {
        let mut questions = Questions::default();
        let target = |number: usize| IpAddr::from(Ipv4Addr::from_bits(number as u32));
        let echo = |identifier| Echo {
            kind: Kind::Request,
            identifier,
            sequence: 1,
            data: b"",
        };
        // Two requests of different programs with equal sequence numbers.
        let first = questions.begin(target(1), &echo(7));
        let second = questions.begin(target(1), &echo(8));
        assert_eq!(questions.take(second, target(1)).unwrap().identifier, 8);
        assert!(questions.take(second, target(1)).is_none(), "once");
        assert!(questions.take(first, target(2)).is_none(), "from elsewhere");
        assert_eq!(questions.take(first, target(1)).unwrap().identifier, 7);
        // The oldest requests are forgotten, also after the wrap of the numbers.
        let begun: Vec<_> = (0..70_000)
            .map(|number| (questions.begin(target(number), &echo(9)), target(number)))
            .collect();
        assert_eq!(questions.waiting.len(), WAITING);
        let (forgotten, kept) = begun.split_at(begun.len() - WAITING);
        let (number, target) = forgotten[forgotten.len() - 1];
        assert!(questions.take(number, target).is_none());
        for (number, target) in kept {
            assert!(questions.take(*number, *target).is_some());
        }
    }
}
