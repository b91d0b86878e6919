//! [`KernelSocket`]: a UDP socket of the kernel, registered with tokio.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::sync::OnceLock;

use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use tokio::io::Interest;

#[cfg(target_os = "linux")]
use crate::error_queue;
use crate::error_queue::Unreachable;
use crate::receive_buffers::DRAINS;
use crate::registered_socket::RegisteredSocket;

/// The most errors that one call of [`KernelSocket::take_errors`] takes.
#[cfg(target_os = "linux")]
const MAX_ERRORS: usize = 64;

/// A UDP socket of the kernel, registered with tokio.
#[derive(Debug)]
pub(crate) struct KernelSocket {
    io: RegisteredSocket,
    /// The socket's options and abilities, such as segmentation offload.
    state: UdpSocketState,
    /// Set once the kernel queues ICMP messages for the socket.
    watches_errors: OnceLock<()>,
}

impl KernelSocket {
    /// Wraps a bound socket.
    pub(crate) fn new(socket: std::net::UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new((&socket).into())?;
        let io = RegisteredSocket::new(socket)?;
        Ok(Self {
            io,
            state,
            watches_errors: OnceLock::new(),
        })
    }

    /// The address to which the socket is bound.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.get().local_addr()
    }

    /// Allows other sockets of the same user to be bound to this socket's address, or forbids it.
    #[cfg(target_os = "linux")]
    pub(crate) fn share(&self, is_shared: bool) -> io::Result<()> {
        socket2::SockRef::from(self.io.get()).set_reuse_port(is_shared)
    }

    /// Largest number of datagrams that a single call to the kernel may carry.
    pub(crate) fn max_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Waits for datagrams, and for ICMP errors after [`Self::watch_errors`].
    pub(crate) async fn readable(&self) -> io::Result<()> {
        self.io.readable().await
    }

    /// See [`RegisteredSocket::pause`].
    pub(crate) fn pause_reads(&self) -> bool {
        self.io.pause()
    }

    /// Bytes of the receive buffer, as the kernel counts them.
    pub(crate) fn receive_buffer(&self) -> usize {
        let socket = socket2::SockRef::from(self.io.get());
        socket.recv_buffer_size().unwrap_or(0)
    }

    /// From now on, [`Self::take_errors`] reports ICMP messages. Only Linux reports them.
    pub(crate) fn watch_errors(&self) {
        #[cfg(target_os = "linux")]
        match error_queue::enable(self.io.get()) {
            Ok(()) => {
                let _ = self.watches_errors.set(());
            }
            Err(error) => tracing::debug!(%error, "no ICMP errors"),
        }
    }

    /// Takes up to [`MAX_ERRORS`] of the ICMP messages that arrived after the last call.
    #[cfg_attr(not(target_os = "linux"), expect(unused, reason = "there are none"))]
    pub(crate) fn take_errors(&self, mut take: impl FnMut(Unreachable)) {
        #[cfg(target_os = "linux")]
        // `WouldBlock` tells tokio that the queue is empty, and `readable` waits for the next
        // error. With errors left, `readable` returns at once.
        let _ = self.io.try_io(Interest::ERROR, || {
            for _ in 0..MAX_ERRORS {
                match error_queue::next(self.io.get()) {
                    Ok(error) => error.into_iter().for_each(&mut take),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                    Err(error) => tracing::debug!(%error, "error queue"),
                }
            }
            Ok(())
        });
    }

    /// Waits for room in the send buffer.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.io.writable().await
    }

    /// Fills buffers with received datagrams and returns the number of filled buffers. If a buffer
    /// stays empty on Linux, no datagram is left, and [`Self::readable`] waits for the next
    /// datagram, without another call to the kernel.
    pub(crate) fn receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> io::Result<usize> {
        let lanes = buffers.len();
        let mut last = None;
        let received = self.io.try_io(Interest::READABLE, || {
            let count = self.state.recv(self.io.get().into(), buffers, meta)?;
            if DRAINS && count < lanes {
                // `WouldBlock` tells tokio that the socket is empty, unless a datagram arrived
                // after the call began.
                last = Some(count);
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(count)
        });
        last.map_or(received, Ok)
    }

    /// Hands datagrams to the kernel.
    pub(crate) fn send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let send = || {
            let result = self.state.try_send(self.io.get().into(), transmit);
            match &result {
                // The error may be about an earlier datagram to any peer. The kernel returns each
                // error once, so the second attempt is about this datagram.
                Err(error)
                    if self.watches_errors.get().is_some()
                        && error.kind() != io::ErrorKind::WouldBlock =>
                {
                    self.state.try_send(self.io.get().into(), transmit)
                }
                _ => result,
            }
        };
        send_twice(send, |send| self.io.try_io(Interest::WRITABLE, send))
    }
}

/// Sends without asking tokio first, because tokio does not know yet that a new socket is writable.
/// If the call would block, it is repeated through tokio (`if_writable`), so that `writable` waits
/// for room. The repetition also notices room that appeared after the first call.
pub(crate) fn send_twice<S: Fn() -> io::Result<()>>(
    send: S,
    if_writable: impl FnOnce(&S) -> io::Result<()>,
) -> io::Result<()> {
    match send() {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => if_writable(&send),
        result => result,
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};

    use super::*;

    fn socket(address: &str) -> KernelSocket {
        KernelSocket::new(std::net::UdpSocket::bind(address).unwrap()).unwrap()
    }

    /// RFC 9000 section 14: no router fragments our datagrams, and no ICMP message decides their
    /// size (section 14.2.1). The test reads both settings from the system.
    #[tokio::test]
    async fn rfc_9000_14_datagrams_are_not_fragmented() {
        let v4 = socket("127.0.0.1:0");
        let asked = sockopt::ip_mtu_discover(v4.io.get()).unwrap();
        assert_eq!(asked, Ipv4PathMtuDiscovery::PROBE);
        // A socket on `[::]` works on machines without an IPv6 address.
        let v6 = socket("[::]:0");
        let asked = sockopt::ipv6_mtu_discover(v6.io.get()).unwrap();
        assert_eq!(asked, Ipv6PathMtuDiscovery::PROBE);
    }

    /// After a call that leaves buffers empty, the socket waits for the next datagram, and misses
    /// no datagram.
    #[tokio::test]
    async fn a_call_that_leaves_buffers_empty_has_emptied_the_socket() {
        let receiver = socket("127.0.0.1:0");
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = receiver.local_addr().unwrap();
        for round in 0..100 {
            for _ in 0..1 + round % 3 {
                sender.send_to(b"datagram", to).unwrap();
            }
            let mut received = 0;
            while received < 1 + round % 3 {
                receiver.readable().await.unwrap();
                let mut memory = [[0; 16]; 4];
                let mut buffers = memory.each_mut().map(|lane| IoSliceMut::new(lane));
                let mut meta = [RecvMeta::default(); 4];
                received += receiver.receive(&mut buffers, &mut meta).unwrap_or(0);
            }
            assert_eq!(received, 1 + round % 3);
            let soon = std::time::Duration::ZERO;
            let ready = tokio::time::timeout(soon, receiver.readable()).await;
            assert!(ready.is_err(), "nothing is left in round {round}");
        }
    }
}
