//! [`Socket`]: one UDP socket, bound to one local address or interface.

use std::io::{self, IoSliceMut};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::{Arc, OnceLock};

use mpquic_core::{EcnCodepoint, FourTuple, Transmit};
use mpquic_paths::{Local, Origin};
use quinn_udp::RecvMeta;
use tokio::sync::Notify;
use tracing::{debug, trace};

use crate::addresses::canonical;
use crate::datagram_socket::DatagramSocket;
use crate::device::{bind_to_interface, system_source};
use crate::error_queue::Unreachable;
use crate::runtime::Runtime;
#[cfg(target_os = "linux")]
use crate::send_queues::has_listener;
use crate::socket_io::Io;
use crate::traffic::{Counter, TrafficMeter};
use crate::worker_socket::{Place, WorkerSocket};

/// A UDP socket with segmentation offload, ECN and packet information.
#[derive(Debug)]
pub(crate) struct Socket {
    io: Io,
    /// Its address and interface.
    place: Local,
    /// Paths from here carry data only while no others work. Set once the endpoint has the socket.
    is_backup: OnceLock<bool>,
    /// Counts bytes on the wire, if the application wants them counted. Set once the endpoint has
    /// the socket.
    counter: OnceLock<Arc<Counter>>,
    closed: Notify,
}

/// What became of datagrams handed to [`Socket::send`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The kernel took all datagrams, or dropped some as a network may.
    All,
    /// The socket's buffer is full; bytes from here on were not taken.
    Blocked {
        /// Offset of the first byte not taken.
        from: usize,
    },
    /// The kernel has no route to the peer from this socket now.
    Unreachable,
}

#[cfg(debug_assertions)]
thread_local! {
    static MAY_SEND: std::cell::Cell<bool> = const { std::cell::Cell::new(true) };
}

/// While a value of this type lives, its thread must not send: in builds with debug assertions,
/// [`Socket::send`] panics then.
pub(crate) struct NoSending(std::marker::PhantomData<*const ()>);

impl NoSending {
    pub(crate) fn new() -> Self {
        #[cfg(debug_assertions)]
        MAY_SEND.set(false);
        Self(std::marker::PhantomData)
    }
}

impl Drop for NoSending {
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        MAY_SEND.set(true);
    }
}

impl Socket {
    /// Binds to `local` and, where the system allows it, to a network interface, so that packets
    /// leave by that interface whatever the routing table says.
    pub(crate) fn bind(
        runtime: &dyn Runtime,
        local: SocketAddr,
        interface: Option<&str>,
        buffer_size: usize,
    ) -> io::Result<Self> {
        let socket = new_socket(local, buffer_size, &[])?;
        if let Some(name) = interface
            && let Err(error) = bind_to_interface(&socket, local, name)
        {
            // Older kernels of Linux require a privilege for this. Without it, only the address is
            // bound.
            debug!(name, %error, "cannot bind to the interface, only to its address");
        }
        socket.bind(&local.into())?;
        Self::from_std(runtime, socket.into(), interface)
    }

    /// Binds to an address beside `all` others, and lets further sockets of this process share it
    /// if that is asked for.
    pub(crate) fn bind_beside(
        runtime: &dyn Runtime,
        local: SocketAddr,
        all: &[SocketAddr],
        (buffer_size, is_shared): (usize, bool),
    ) -> io::Result<Self> {
        let socket = if is_shared {
            bind_shared(local, all, buffer_size)?
        } else {
            let socket = new_socket(local, buffer_size, all)?;
            bind_behind(&socket, local)?;
            socket.into()
        };
        Self::from_std(runtime, socket, None)
    }

    /// Binds to the local address of a path beside the sockets of the same address, and gets
    /// datagrams of the path's peer only.
    pub(crate) fn connected(
        runtime: &dyn Runtime,
        path: FourTuple,
        buffer_size: usize,
    ) -> io::Result<Self> {
        let socket = new_socket(path.local, buffer_size, &[])?;
        #[cfg(unix)]
        socket.set_reuse_port(true)?;
        socket.bind(&path.local.into())?;
        socket.connect(&path.remote.into())?;
        Self::from_std(runtime, socket.into(), None)
    }

    /// See [`Io::share`].
    pub(crate) fn share(&self, is_shared: bool) -> io::Result<()> {
        self.io.share(is_shared)
    }

    /// Wraps a socket whose address is shared with those of other workers.
    pub(crate) fn of_worker(socket: std::net::UdpSocket, place: Place) -> io::Result<Self> {
        let is_v6_only = is_v6_only(&socket);
        let socket = WorkerSocket::new(socket, place)?;
        Ok(Self::new(Io::Worker(socket), None)?.of_v6_only(is_v6_only))
    }

    /// Wraps a socket that the application has bound.
    pub(crate) fn adopt(
        runtime: &dyn Runtime,
        socket: std::net::UdpSocket,
        buffer_size: usize,
    ) -> io::Result<Self> {
        set_buffers(&socket2::SockRef::from(&socket), buffer_size);
        Self::from_std(runtime, socket, None)
    }

    /// Wraps a bound socket.
    fn from_std(
        runtime: &dyn Runtime,
        socket: std::net::UdpSocket,
        interface: Option<&str>,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let is_v6_only = is_v6_only(&socket);
        let io = runtime.socket(socket)?.0;
        Ok(Self::new(io, interface)?.of_v6_only(is_v6_only))
    }

    /// Makes one of what the application has in the place of a socket.
    pub(crate) fn of(socket: Arc<dyn DatagramSocket>) -> io::Result<Self> {
        Self::new(Io::Abstract(socket), None)
    }

    fn new(io: Io, interface: Option<&str>) -> io::Result<Self> {
        let place = Local::new(io.local_addr()?);
        Ok(Self {
            place: match interface {
                Some(name) => place.on(name).asking(system_source),
                None => place,
            },
            io,
            is_backup: OnceLock::new(),
            counter: OnceLock::new(),
            closed: Notify::new(),
        })
    }

    /// Notes whether the socket is bound to IPv6 addresses only.
    fn of_v6_only(mut self, is_v6_only: bool) -> Self {
        if is_v6_only {
            self.place = self.place.v6_only();
        }
        self
    }

    /// Makes one of a socket in memory.
    #[cfg(test)]
    pub(crate) fn simulated(port: &Arc<crate::testing::Port>) -> Self {
        Self::new(Io::Simulated(port.clone()), None).expect("it has an address")
    }

    /// The address to which the socket is bound.
    pub(crate) fn local(&self) -> SocketAddr {
        self.place.address()
    }

    /// The interface to which the socket is bound.
    pub(crate) fn interface(&self) -> Option<&str> {
        self.place.interface()
    }

    /// Says whether paths from here stand by. Only the first word counts.
    pub(crate) fn set_backup(&self, is_backup: bool) {
        let _ = self.is_backup.set(is_backup);
    }

    /// True if paths from here carry data only while no others work.
    pub(crate) fn is_backup(&self) -> bool {
        self.is_backup.get().copied().unwrap_or(false)
    }

    /// Counts bytes on the wire from now on. Only the first counter counts.
    pub(crate) fn count(&self, meter: &TrafficMeter) {
        let at = match self.interface() {
            Some(name) => Origin::Interface(name.to_owned()),
            None => Origin::Address(self.local().ip()),
        };
        let _ = self.counter.set(meter.counter(&at));
    }

    /// Datagrams one call to the kernel may carry.
    pub(crate) fn max_segments(&self) -> usize {
        self.io.max_segments()
    }

    /// What path managers know of it.
    pub(crate) fn place(&self) -> Local {
        if self.is_backup() {
            self.place.clone().backup()
        } else {
            self.place.clone()
        }
    }

    /// Its address and interface.
    pub(crate) fn at(&self) -> &Local {
        &self.place
    }

    /// See [`Local::reaches`].
    pub(crate) fn reaches(&self, remote: SocketAddr) -> bool {
        self.place.reaches(remote)
    }

    /// See [`Local::towards`].
    pub(crate) fn local_towards(&self, remote: SocketAddr) -> SocketAddr {
        self.place.towards(remote)
    }

    /// See [`Local::owns`].
    pub(crate) fn owns(&self, local: SocketAddr) -> bool {
        self.place.owns(local)
    }

    /// Ends the task that reads the socket.
    pub(crate) fn close(&self) {
        self.closed.notify_one();
    }

    /// Resolves once after [`Self::close`].
    pub(crate) async fn closed(&self) {
        self.closed.notified().await;
    }

    /// Waits for datagrams.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        self.io.readable().await
    }

    /// See [`Io::pause_reads`].
    pub(crate) fn pause_reads(&self) -> bool {
        self.io.pause_reads()
    }

    /// See [`Io::receive_buffer`].
    pub(crate) fn receive_buffer(&self) -> usize {
        self.io.receive_buffer()
    }

    /// From now on, [`Self::take_errors`] tells of ICMP messages about what was sent, where the
    /// system shows them.
    pub(crate) fn watch_errors(&self) {
        self.io.watch_errors();
    }

    /// Takes the ICMP messages since the last call. Call it before each [`Self::readable`].
    pub(crate) fn take_errors(&self, take: impl FnMut(Unreachable)) {
        self.io.take_errors(take);
    }

    /// Waits for room in the send buffer.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.io.writable().await
    }

    /// Fills buffers with received datagrams and returns how many were filled.
    pub(crate) fn receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> io::Result<usize> {
        let filled = self.io.receive(buffers, meta)?;
        if let Some(counter) = self.counter.get() {
            for meta in meta.iter().take(filled) {
                counter.on_received(meta.addr, meta.len, meta.stride);
            }
        }
        Ok(filled)
    }

    /// The addresses between which a received datagram travelled. IPv4 addresses that a dual-stack
    /// socket shows as IPv6 ones are turned into IPv4.
    pub(crate) fn four_tuple(&self, meta: &RecvMeta) -> FourTuple {
        let remote = canonical(meta.addr);
        let local = match meta.dst_ip {
            Some(ip) if self.local().ip().is_unspecified() => {
                SocketAddr::new(ip.to_canonical(), self.local().port())
            }
            _ => self.local_towards(remote),
        };
        FourTuple::new(local, remote)
    }

    /// Sends the datagrams of a transmit in as few calls as the kernel allows. Only a full send
    /// buffer stops it; other errors do not, because UDP may lose datagrams and QUIC repairs
    /// losses.
    pub(crate) fn send(&self, transmit: &Transmit, contents: &[u8]) -> Sent {
        #[cfg(debug_assertions)]
        assert!(MAY_SEND.get(), "sends with the endpoint locked");
        let segment = transmit.segment_size.unwrap_or(contents.len()).max(1);
        let mut from = 0;
        while from < contents.len() {
            let train = segment.saturating_mul(self.max_segments().max(1));
            let end = contents.len().min(from.saturating_add(train));
            let part = contents.get(from..end).unwrap_or_default();
            match self.send_part(transmit, part, segment) {
                Ok(()) => from = end,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Sent::Blocked { from };
                }
                // The kernel or driver refused the train: `max_segments` is 1 from now on.
                Err(error) if part.len() > segment && self.max_segments() == 1 => {
                    debug!(%error, "segmentation offload does not work, sending one by one");
                }
                Err(error) if is_unreachable(&error) => {
                    debug!(%error, local = %self.local(), remote = %transmit.four_tuple.remote, "unreachable");
                    return Sent::Unreachable;
                }
                // The datagram is too large for the link (an MTU probe), or the error will pass.
                Err(error) => {
                    trace!(%error, local = %self.local(), "datagram not sent");
                    from = end;
                }
            }
        }
        Sent::All
    }

    fn send_part(&self, transmit: &Transmit, contents: &[u8], segment: usize) -> io::Result<()> {
        let source = transmit.four_tuple.local.ip();
        let wildcard = self.local().ip().is_unspecified();
        let transmit = quinn_udp::Transmit {
            destination: self.destination(transmit.four_tuple.remote),
            ecn: transmit
                .ecn
                .and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
            contents,
            segment_size: (contents.len() > segment).then_some(segment),
            src_ip: (wildcard && !source.is_unspecified()).then_some(source),
        };
        self.io.send(&transmit)?;
        if let Some(counter) = self.counter.get() {
            counter.on_sent(transmit.destination, contents.len(), segment);
        }
        Ok(())
    }

    fn destination(&self, remote: SocketAddr) -> SocketAddr {
        match (self.local(), remote) {
            (SocketAddr::V6(_), SocketAddr::V4(v4)) => {
                let ip: Ipv6Addr = v4.ip().to_ipv6_mapped();
                SocketAddrV6::new(ip, v4.port(), 0, 0).into()
            }
            _ => remote,
        }
    }
}

/// Binds to an address, beside `all` others, that other sockets of this process share.
pub(crate) fn bind_shared(
    local: SocketAddr,
    all: &[SocketAddr],
    buffer_size: usize,
) -> io::Result<std::net::UdpSocket> {
    let socket = new_socket(local, buffer_size, all)?;
    #[cfg(unix)]
    socket.set_reuse_port(true)?;
    socket.bind(&local.into())?;
    Ok(socket.into())
}

/// Binds to an address that connected sockets of a predecessor may still have, but no other
/// listener. While the socket is open, no further listener gets the address.
fn bind_behind(socket: &socket2::Socket, local: SocketAddr) -> io::Result<()> {
    let bound = socket.bind(&local.into());
    #[cfg(target_os = "linux")]
    if let Err(error) = &bound
        && error.kind() == io::ErrorKind::AddrInUse
        && !has_listener(local)
    {
        socket.set_reuse_port(true)?;
        socket.bind(&local.into())?;
        return socket.set_reuse_port(false);
    }
    bound
}

/// A socket for `local`. For all addresses, it has both IP versions, unless `all` addresses to bind
/// include one of IPv4 with the same port: the two sockets would be in each other's way.
fn new_socket(
    local: SocketAddr,
    buffer_size: usize,
    all: &[SocketAddr],
) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(local),
        socket2::Type::DGRAM,
        Some(socket2::Protocol::UDP),
    )?;
    if local.is_ipv6() {
        let is_of_v4 = |other: &SocketAddr| other.is_ipv4() && other.port() == local.port();
        let is_dual = local.ip().is_unspecified() && !all.iter().any(is_of_v4);
        socket.set_only_v6(!is_dual)?;
    }
    set_buffers(&socket, buffer_size);
    Ok(socket)
}

/// Whether a socket for all addresses has those of IPv6 only.
fn is_v6_only(socket: &std::net::UdpSocket) -> bool {
    let is_v6 = socket.local_addr().is_ok_and(|local| local.is_ipv6());
    is_v6 && socket2::SockRef::from(socket).only_v6().unwrap_or(false)
}

fn set_buffers(socket: &socket2::Socket, size: usize) {
    // The kernel may silently grant less. A small buffer is no reason to fail.
    let _ = socket.set_recv_buffer_size(size);
    let _ = socket.set_send_buffer_size(size);
}

/// The ECN codepoint in the core's terms.
pub(crate) fn ecn(meta: &RecvMeta) -> Option<EcnCodepoint> {
    meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8))
}

fn is_unreachable(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::AddrNotAvailable
            | io::ErrorKind::NotFound
    ) || error.raw_os_error() == Some(NO_SUCH_DEVICE)
}

/// ENODEV, which has no `ErrorKind`.
const NO_SUCH_DEVICE: i32 = 19;

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::runtime::TokioRuntime;

    fn transmit(from: &Socket, to: &Socket, size: usize, segment: Option<usize>) -> Transmit {
        Transmit {
            path: None,
            four_tuple: FourTuple::new(from.local(), to.local()),
            ecn: Some(EcnCodepoint::Ect0),
            size,
            segment_size: segment,
        }
    }

    async fn receive(socket: &Socket) -> (Vec<u8>, RecvMeta) {
        let mut data = vec![0; 1 << 16];
        let mut meta = [RecvMeta::default()];
        loop {
            socket.readable().await.unwrap();
            match socket.receive(&mut [IoSliceMut::new(&mut data)], &mut meta) {
                Ok(_) => break,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        data.truncate(meta[0].len);
        (data, meta[0])
    }

    #[tokio::test]
    async fn trains_arrive_whole_with_ecn_and_addresses() {
        let a = Socket::bind(&TokioRuntime, "127.0.0.2:0".parse().unwrap(), None, 1 << 20);
        let a = a.expect("a machine with 127.0.0.2, which CONTRIBUTING.md says how to add");
        let b = Socket::bind(&TokioRuntime, "0.0.0.0:0".parse().unwrap(), None, 1 << 20).unwrap();
        let target = SocketAddr::new([127, 0, 0, 1].into(), b.local().port());
        let contents: Vec<u8> = (0..5000u32).map(|i| i as u8).collect();
        let mut transmit = transmit(&a, &b, contents.len(), Some(1200));
        transmit.four_tuple.remote = target;
        assert_eq!(a.send(&transmit, &contents), Sent::All);
        let mut all = Vec::new();
        while all.len() < contents.len() {
            let (data, meta) = receive(&b).await;
            assert_eq!(ecn(&meta), Some(EcnCodepoint::Ect0));
            let tuple = b.four_tuple(&meta);
            assert_eq!(tuple, FourTuple::new(target, a.local()));
            all.extend(data);
        }
        assert_eq!(all, contents);
    }

    #[tokio::test]
    async fn a_counted_socket_tells_its_bytes_on_the_wire() {
        let bind =
            || Socket::bind(&TokioRuntime, "127.0.0.1:0".parse().unwrap(), None, 1 << 20).unwrap();
        let (a, b) = (bind(), bind());
        let meter = TrafficMeter::default();
        assert_eq!(a.send(&transmit(&a, &b, 100, None), &[7; 100]), Sent::All);
        receive(&b).await;
        a.count(&meter);
        assert_eq!(
            a.send(&transmit(&a, &b, 2500, Some(1200)), &[7; 2500]),
            Sent::All
        );
        let mut bytes = 0;
        while bytes < 2500 {
            bytes += receive(&b).await.0.len();
        }
        assert_eq!(b.send(&transmit(&b, &a, 10, None), &[7; 10]), Sent::All);
        receive(&a).await;
        let traffic = meter.traffic();
        let [counted] = &traffic[..] else {
            panic!("{traffic:?}");
        };
        assert_eq!(counted.at, Origin::Address([127, 0, 0, 1].into()));
        assert_eq!((counted.sent, counted.received), (2500 + 3 * 28, 38));
    }

    #[tokio::test]
    async fn a_dual_stack_socket_speaks_ipv4() {
        let a = Socket::bind(&TokioRuntime, "[::]:0".parse().unwrap(), None, 1 << 20);
        let a = a.expect("a machine with IPv6");
        let b = Socket::bind(&TokioRuntime, "127.0.0.1:0".parse().unwrap(), None, 1 << 20).unwrap();
        let mut out = transmit(&a, &b, 3, None);
        out.four_tuple.local = a.local_towards(b.local());
        assert_eq!(a.send(&out, b"abc"), Sent::All);
        let (_, meta) = receive(&b).await;
        let mut back = transmit(&b, &a, 3, None);
        back.four_tuple.remote = b.four_tuple(&meta).remote;
        assert_eq!(b.send(&back, b"def"), Sent::All);
        let (data, meta) = receive(&a).await;
        assert_eq!(data, b"def");
        let tuple = a.four_tuple(&meta);
        assert_eq!(tuple.remote, b.local());
        assert!(tuple.local.is_ipv4() && a.owns(tuple.local));
    }

    /// All addresses of both IP versions can be bound: each version has its own socket.
    #[tokio::test]
    async fn all_addresses_of_both_versions_may_be_bound() -> io::Result<()> {
        let ips = ["0.0.0.0", "127.0.0.1", "::"];
        let [any_v4, one_v4, v6] = ips.map(|ip| ip.parse::<IpAddr>().expect("it is one"));
        for (v4, is_v4_first, is_shared) in [
            (any_v4, true, false),
            (any_v4, false, false),
            (any_v4, true, true),
            (one_v4, true, false),
            (one_v4, false, false),
            (one_v4, false, true),
        ] {
            let free = Socket::bind(&TokioRuntime, SocketAddr::new(v4, 0), None, 1 << 16)?;
            let port = free.local().port();
            drop(free);
            let mut all = [SocketAddr::new(v4, port), SocketAddr::new(v6, port)];
            if !is_v4_first {
                all.reverse();
            }
            let bind =
                |local| Socket::bind_beside(&TokioRuntime, local, &all, (1 << 16, is_shared));
            let bound = [bind(all[0])?, bind(all[1])?];
            for remote in ["127.0.0.1:5", "[2001:db8::1]:5"] {
                let remote: SocketAddr = remote.parse().expect("it is one");
                let local = SocketAddr::new(remote.ip(), port);
                let carries = |socket: &&Socket| socket.reaches(remote) && socket.owns(local);
                let carrying: Vec<_> = bound.iter().filter(carries).collect();
                let [socket] = carrying[..] else {
                    panic!("{remote}: {carrying:?}");
                };
                assert_eq!(socket.local().is_ipv4(), remote.is_ipv4());
            }
        }
        Ok(())
    }

    #[test]
    fn unreachable_is_told_apart_from_passing_faults() {
        assert!(is_unreachable(&io::Error::from_raw_os_error(19)));
        assert!(is_unreachable(&io::ErrorKind::NetworkUnreachable.into()));
        assert!(!is_unreachable(&io::ErrorKind::ConnectionRefused.into()));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_runtime_gets_sockets_that_do_not_block_with_buffers_as_asked() -> io::Result<()> {
        const SMALL_BUFFER: usize = 20_000;
        let looking = crate::testing::Hooked {
            on_socket: |socket| {
                let options = socket2::SockRef::from(socket);
                assert!(options.nonblocking()?);
                // Linux reports twice the requested size, because it needs memory of its own.
                assert_eq!(options.recv_buffer_size()?, 2 * SMALL_BUFFER);
                assert_eq!(options.send_buffer_size()?, 2 * SMALL_BUFFER);
                if socket.local_addr()?.is_ipv6() {
                    let is_any = socket.local_addr()?.ip().is_unspecified();
                    assert_eq!(options.only_v6()?, !is_any);
                }
                Ok(())
            },
            ..crate::testing::Hooked::default()
        };
        for address in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"] {
            let address = address.parse().expect("it is one");
            let socket = Socket::bind(&looking, address, None, SMALL_BUFFER)?;
            assert!(socket.max_segments() >= 1);
        }
        let bound = std::net::UdpSocket::bind("127.0.0.1:0")?;
        Socket::adopt(&looking, bound, SMALL_BUFFER)?;
        Ok(())
    }
}
