//! [`Tun`]: a network device whose TCP connections, UDP datagrams and other packets go through the
//! proxy.
//!
//! TCP ends in the kernel of this machine. A program's segment gets a new source, and our listener
//! as its destination, and goes back into the device. Segments of the listener take the reverse
//! way. So the kernel handles windows, acknowledgements and retransmissions. Segments of 64 KiB
//! pass whole, without a checksum computation, and the listener is an ordinary socket.
//! (Alternatives: `ipstack` announces windows of at most 64 KiB and queues packets without a limit;
//! `smoltcp` reserves both buffers of every socket in advance.)

mod cutting;
mod fragments;
mod outlet;
mod outside;
mod packet;
mod tcp_table;
mod too_big;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout_at};
use tun_rs::{AsyncDevice, DeviceBuilder};

use super::datagram_flow::Wanted;
use super::datagram_flows::{DatagramFlows, MOST};
use super::flows::{Client, NoFlow, TcpFlow};
use crate::bound::put_datagram;
use crate::class::Class;
use crate::datagrams::Deliver;
use crate::ip::header::TCP;
use crate::kernel_queue;
use crate::target::{DNS, Target};

use fragments::{Fragments, Taken};
use outlet::Outlet;
use outside::Outside;
use packet::{FRAME_HEADER, Packet, Transport, Unreachable, max_payload};
use tcp_table::{Ends, TcpTable, Verdict};
use too_big::TooBig;

/// The longest frame. A packet's length has 16 bits, and does not include the header of IPv6.
const MAX_FRAME: usize = FRAME_HEADER + 40 + u16::MAX as usize;
/// Longest wait of an application's connection for a connection to the proxy.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time for resets to reach the applications.
const LAST_WORDS: Duration = Duration::from_millis(50);
/// Interval of the search for ended flows.
const SWEEP: Duration = Duration::from_secs(5);

/// A TUN device of Linux. The device vanishes once this value and its [`Carrier`]s are dropped.
///
/// Opening the device needs the capability `CAP_NET_ADMIN`. The new device has neither addresses
/// nor routes: the caller adds them, with `ip address add`, `ip link set` and `ip route add`.
///
/// ```no_run
/// use mpquic_proxy::{Client, Tun};
///
/// # async fn example(client: Client) -> std::io::Result<()> {
/// let tun = Tun::open("mpquic0")?;
/// // ip address add 198.18.0.1/30 dev mpquic0; ip link set mpquic0 mtu 1500 up
/// let carrier = client.carry(&tun, &["198.18.0.1".parse().unwrap()]).await?;
/// // ip route add 203.0.113.0/24 dev mpquic0
/// Err(carrier.ended().await)
/// # }
/// ```
#[derive(Clone)]
pub struct Tun {
    device: Arc<AsyncDevice>,
}

impl std::fmt::Debug for Tun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tun").finish_non_exhaustive()
    }
}

impl Tun {
    /// Makes a device with this name of at most 15 bytes. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`PermissionDenied`](io::ErrorKind::PermissionDenied) without the capability,
    /// [`ResourceBusy`](io::ErrorKind::ResourceBusy) if another program has a device of this name,
    /// [`NotFound`](io::ErrorKind::NotFound) if the system has no TUN devices.
    pub fn open(name: &str) -> io::Result<Self> {
        let builder = DeviceBuilder::new().name(name);
        let builder = builder.with(|linux| {
            linux.offload(true);
        });
        // The caller brings the device up when it adds the addresses.
        let device = Arc::new(builder.enable(false).build_async()?);
        Ok(Self { device })
    }
}

/// Carries the traffic of a device. Dropping this resets all connections, and ends the traffic a
/// moment later.
#[derive(Debug)]
pub struct Carrier {
    accepting: JoinSet<()>,
    /// `None` after the end of the reading task.
    reading: Option<JoinHandle<io::Error>>,
}

impl Carrier {
    /// Waits until the device fails, for example because it was deleted, and returns the error.
    pub async fn ended(mut self) -> io::Error {
        let ended = match &mut self.reading {
            Some(reading) => reading.await,
            None => return io::ErrorKind::BrokenPipe.into(),
        };
        self.reading = None;
        ended.unwrap_or_else(io::Error::other)
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.accepting.abort_all();
        let Some(reading) = self.reading.take() else {
            return;
        };
        // The resets still travel to the applications.
        match Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(async move {
                    tokio::time::sleep(LAST_WORDS).await;
                    reading.abort();
                });
            }
            Err(_) => reading.abort(),
        }
    }
}

/// The listener for TCP of one IP version.
#[derive(Debug, Clone, Copy)]
struct Side {
    listener: SocketAddr,
    /// The source address of redirected segments, as the listener sees them.
    peer: IpAddr,
}

/// The next address.
fn next(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits().wrapping_add(1)).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits().wrapping_add(1)).into(),
    }
}

impl Client {
    /// Carries packets routed to a device: TCP by CONNECT, UDP by CONNECT-UDP, and all other
    /// packets by CONNECT-IP. Of ICMP, only the echo requests of `ping` are carried. Packets
    /// without a single destination are dropped. Fragments are put together, and answers larger
    /// than the networks behind this router arrive in fragments.
    ///
    /// The device must be up and have these addresses, at most one of each IP version. The next
    /// address after each must be in its network and unused. Packets from other source addresses
    /// belong to machines behind this router, and are carried likewise.
    ///
    /// # Errors
    ///
    /// If the addresses are not the device's.
    pub async fn carry(&self, tun: &Tun, addresses: &[IpAddr]) -> io::Result<Carrier> {
        let mut sides = Vec::new();
        let mut listeners = Vec::new();
        for address in addresses {
            let listener = TcpListener::bind((*address, 0)).await?;
            kernel_queue::prepare(&listener);
            sides.push(Side {
                listener: listener.local_addr()?,
                peer: next(*address),
            });
            listeners.push(listener);
        }
        let shared = Arc::new(Shared {
            client: self.clone(),
            outlet: Arc::new(Outlet::new(tun.device.clone())),
            sides,
            tcp: Mutex::default(),
        });
        let mut accepting = JoinSet::new();
        for listener in listeners {
            accepting.spawn(accept(shared.clone(), listener));
        }
        let reading = Some(tokio::spawn(read(shared)));
        Ok(Carrier { accepting, reading })
    }
}

struct Shared {
    client: Client,
    outlet: Arc<Outlet>,
    sides: Vec<Side>,
    tcp: Mutex<TcpTable<TcpFlow>>,
}

impl Shared {
    fn tcp(&self) -> MutexGuard<'_, TcpTable<TcpFlow>> {
        self.tcp.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, frame: &[u8]) {
        self.outlet.write(frame);
    }

    fn side(&self, is_v4: bool) -> Option<Side> {
        (self.sides.iter().copied()).find(|side| side.listener.is_ipv4() == is_v4)
    }

    /// Writes a segment of an application to the listener.
    fn pass(&self, packet: &Packet, frame: &mut [u8], port: u16) {
        if let Some(side) = self.side(packet.source.is_ipv4()) {
            packet.redirect(frame, SocketAddr::new(side.peer, port), side.listener);
            self.write(frame);
        }
    }
}

/// The flows of packets that come out of the device.
struct Ways {
    udp: Arc<DatagramFlows<(SocketAddr, SocketAddr)>>,
    /// The sockets of programs that have one port at the proxy.
    bound: Arc<DatagramFlows<SocketAddr>>,
    /// A datagram for `bound`.
    datagram: Vec<u8>,
    outside: Outside,
    opening: JoinSet<()>,
}

/// Reads the device until it fails.
async fn read(shared: Arc<Shared>) -> io::Error {
    let mut ways = Ways {
        udp: DatagramFlows::new(shared.client.clone(), MOST),
        bound: DatagramFlows::new(shared.client.clone(), MOST),
        datagram: Vec::new(),
        outside: Outside::new(shared.client.clone(), shared.outlet.clone()),
        opening: JoinSet::new(),
    };
    let mut fragments = Fragments::default();
    let mut buffer = vec![0; MAX_FRAME];
    let mut sweep = tokio::time::interval(SWEEP);
    loop {
        let length = tokio::select! {
            length = shared.outlet.recv(&mut buffer) => match length {
                Ok(length) => length,
                Err(error) => return error,
            },
            _ = sweep.tick() => {
                let silent = shared.tcp().sweep(Instant::now());
                if silent > 0 {
                    tracing::warn!(
                        "{silent} programs asked for a connection and did not take it: does a \
                         firewall drop what comes in over the device?"
                    );
                }
                continue;
            }
        };
        let frame = &mut buffer[..length];
        match fragments.take(frame, Instant::now()) {
            Taken::NoFragment => on_packet(&shared, &mut ways, frame),
            Taken::Part => {}
            Taken::Whole(mut whole) => on_packet(&shared, &mut ways, &mut whole),
        }
    }
}

/// Carries a whole packet of a program, or of a neighbour.
fn on_packet(shared: &Arc<Shared>, ways: &mut Ways, frame: &mut [u8]) {
    let Some(packet) = Packet::parse(frame) else {
        match TooBig::parse(frame) {
            Some(too_big) => on_too_big(shared, &too_big),
            None => ways.outside.on_frame(frame),
        }
        return;
    };
    match packet.transport {
        Transport::Tcp(_) => on_segment(shared, &mut ways.opening, &packet, frame),
        Transport::Udp => on_datagrams(shared, ways, &packet, frame),
    }
}

/// A packet that we wrote does not fit a network behind this router. The kernel learns of its
/// segments; the next answers of other kinds are cut.
fn on_too_big(shared: &Shared, too_big: &TooBig<'_>) {
    let ends = &too_big.ends;
    if too_big.protocol == TCP {
        let port = shared.tcp().port(ends);
        if let (Some(port), Some(side)) = (port, shared.side(ends.target.is_ipv4())) {
            let peer = SocketAddr::new(side.peer, port);
            shared
                .outlet
                .write(&too_big.redirected(side.listener, peer));
        }
    } else if let IpAddr::V6(neighbour) = ends.application.ip() {
        let now = Instant::now();
        (shared.outlet.narrow).on_report(neighbour, too_big.mtu, now);
    }
}

fn on_segment(shared: &Arc<Shared>, opening: &mut JoinSet<()>, packet: &Packet, frame: &mut [u8]) {
    let Transport::Tcp(flags) = packet.transport else {
        return;
    };
    let from_listener = (shared.sides.iter())
        .any(|side| side.listener == packet.source && side.peer == packet.destination.ip());
    if from_listener {
        let ends = shared.tcp().on_answer(packet.destination.port());
        if let Some(ends) = ends {
            packet.redirect(frame, ends.target, ends.application);
            shared.write(frame);
        }
        return;
    }
    let ends = Ends {
        application: packet.source,
        target: packet.destination,
    };
    let verdict = shared.tcp().on_segment(ends, flags);
    match verdict {
        Verdict::Pass(port) => shared.pass(packet, frame, port),
        Verdict::Open(port) => {
            while opening.try_join_next().is_some() {}
            opening.spawn(open(shared.clone(), *packet, frame.to_vec(), port));
        }
        Verdict::Drop => {}
        Verdict::Unknown => {
            if let Some(reset) = packet.reset(frame) {
                shared.write(&reset);
            }
        }
    }
}

/// Opens a flow for an application's connection before the handshake with the application. So a
/// refused connection looks to the application like a refusal of the target itself.
async fn open(shared: Arc<Shared>, packet: Packet, mut frame: Vec<u8>, port: u16) {
    let target = Target::from(packet.destination);
    let marked = Class::from_dscp(packet.dscp(&frame));
    // A short time without the proxy looks like a network's delay.
    let latest = Instant::now() + PATIENCE;
    let flow = loop {
        let connected = timeout_at(latest, shared.client.connected()).await;
        match shared.client.connect_marked(&target, marked).await {
            Err(NoFlow::Unconnected) if connected.is_ok() => {}
            done => break done,
        }
    };
    match flow {
        Ok(flow) => {
            shared.tcp().on_flow(port, flow, Instant::now());
            shared.pass(&packet, &mut frame, port);
        }
        Err(reason) => {
            // Programs of a whole machine fail too often for a line at the default level.
            tracing::debug!("no TCP to {target}: {reason}");
            shared.tcp().on_no_flow(port);
            let answer = match refusal(reason) {
                None => packet.reset(&frame),
                Some(why) => Some(packet.unreachable(&frame, why)),
            };
            if let Some(answer) = answer {
                shared.write(&answer);
            }
        }
    }
}

/// The ICMP message for a missing flow; `None` for a TCP reset.
fn refusal(reason: NoFlow) -> Option<Unreachable> {
    match reason {
        NoFlow::ConnectionRefused => None,
        NoFlow::Unconnected
        | NoFlow::Broken
        | NoFlow::NoUdp
        | NoFlow::NoBinding
        | NoFlow::NoReverse => Some(Unreachable::Network),
        NoFlow::Refused(StatusCode::FORBIDDEN) => Some(Unreachable::Prohibited),
        NoFlow::Refused(_) => Some(Unreachable::Host),
    }
}

/// Joins the listener's accepted connections to their flows.
async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    let mut open = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = open.join_next() => continue,
        };
        let Ok((tcp, from)) = accepted else {
            // Out of descriptors, for example: a descriptor becomes free soon.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let is_ours = shared.sides.iter().any(|side| side.peer == from.ip());
        let flow = is_ours.then(|| shared.tcp().on_accepted(from.port()));
        match flow.flatten() {
            Some(flow) => {
                open.spawn(join(shared.clone(), flow, tcp, from.port()));
            }
            // The connection did not come through the device.
            None => {
                let _ = tcp.set_zero_linger();
            }
        }
    }
}

async fn join(shared: Arc<Shared>, flow: TcpFlow, tcp: TcpStream, port: u16) {
    flow.join(tcp, Bytes::new()).await;
    shared.tcp().on_ended(port, Instant::now());
}

/// Answers of one target, for one application.
struct Answers {
    outlet: Arc<Outlet>,
    ends: Ends,
}

impl Deliver for Answers {
    fn deliver(&self, payload: &[u8]) {
        if payload.len() > max_payload(self.ends.target) {
            return;
        }
        self.outlet.write_of_any_size(|frame| {
            packet::put_datagram(frame, self.ends.target, self.ends.application, payload);
        });
    }
}

/// Answers of many peers, for one application.
struct AnswersOfPeers {
    outlet: Arc<Outlet>,
    application: SocketAddr,
}

impl Deliver for AnswersOfPeers {
    /// Payloads of a binding have a peer.
    fn deliver(&self, _: &[u8]) {}

    fn deliver_from(&self, peer: SocketAddr, payload: &[u8]) {
        // A binding reaches both versions of IP, and the application's socket knows one.
        if peer.is_ipv4() != self.application.is_ipv4() || payload.len() > max_payload(peer) {
            return;
        }
        self.outlet.write_of_any_size(|frame| {
            packet::put_datagram(frame, peer, self.application, payload);
        });
    }
}

fn on_datagrams(shared: &Shared, ways: &mut Ways, packet: &Packet, frame: &mut [u8]) {
    let ends = Ends {
        application: packet.source,
        target: packet.destination,
    };
    let marked = Class::from_dscp(packet.dscp(frame));
    let outlet = || shared.outlet.clone();
    // Questions to DNS have flows of their own, which end after ten seconds.
    if ends.target.port() != DNS && shared.client.binds() {
        let Ways {
            bound, datagram, ..
        } = ways;
        packet.payloads(frame, |payload| {
            put_datagram(datagram, ends.target, payload.get(1..).unwrap_or_default());
            bound.send(&ends.application, datagram, || {
                let answers = AnswersOfPeers {
                    outlet: outlet(),
                    application: ends.application,
                };
                (Wanted::Bound(ends.target.into(), marked), Arc::new(answers))
            });
        });
        return;
    }
    // The byte before each payload is the context ID, 0.
    packet.payloads(frame, |payload| {
        (ways.udp).send(&(ends.application, ends.target), payload, || {
            let answers = Answers {
                outlet: outlet(),
                ends,
            };
            (Wanted::Udp(ends.target.into(), marked), Arc::new(answers))
        });
    });
}
