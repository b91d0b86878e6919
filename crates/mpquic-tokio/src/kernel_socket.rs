//! [`KernelSocket`]: a UDP socket as the kernel and the runtime show it. Tests put another one in its
//! place.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;

use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// A UDP socket of the kernel, registered with the runtime.
#[derive(Debug)]
pub(crate) struct KernelSocket {
    io: UdpSocket,
    state: UdpSocketState,
}

impl KernelSocket {
    /// Makes one of a socket that is bound already.
    pub(crate) fn new(socket: std::net::UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new((&socket).into())?;
        let io = UdpSocket::from_std(socket)?;
        Ok(Self { io, state })
    }

    /// The address it is bound to.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    /// Datagrams one call to the kernel may carry.
    pub(crate) fn max_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Waits for datagrams.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        self.io.readable().await
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
        self.io.try_io(Interest::READABLE, || {
            self.state.recv((&self.io).into(), buffers, meta)
        })
    }

    /// Hands datagrams to the kernel, whatever the runtime knows of the socket.
    pub(crate) fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.state.try_send((&self.io).into(), transmit)
    }

    /// Calls `send` if the runtime takes the socket for writable. If `send` would block, the runtime
    /// takes it so no longer, and [`Self::writable`] waits.
    pub(crate) fn if_writable(&self, send: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.io.try_io(Interest::WRITABLE, send)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};

    use super::*;

    fn socket(address: &str) -> KernelSocket {
        KernelSocket::new(std::net::UdpSocket::bind(address).unwrap()).unwrap()
    }

    /// RFC 9000 section 14: datagrams are not fragmented, and no ICMP message decides how large they
    /// are (section 14.2.1). So says the system of our sockets.
    #[tokio::test]
    async fn rfc_9000_14_datagrams_are_not_fragmented() {
        let v4 = socket("127.0.0.1:0");
        let asked = sockopt::ip_mtu_discover(&v4.io).unwrap();
        assert_eq!(asked, Ipv4PathMtuDiscovery::PROBE);
        // It needs no address of this machine.
        let v6 = socket("[::]:0");
        let asked = sockopt::ipv6_mtu_discover(&v6.io).unwrap();
        assert_eq!(asked, Ipv6PathMtuDiscovery::PROBE);
    }
}
