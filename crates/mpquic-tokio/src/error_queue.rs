//! The error queue of a socket: ICMP messages about sent datagrams. Only Linux fills the queue; on
//! other systems the queue stays empty.

use std::net::SocketAddr;

/// Bytes of the quoted datagram that are read from an ICMP message, more than a header.
const QUOTED: usize = 64;

/// An ICMP message says that a datagram did not arrive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unreachable {
    /// The destination of the datagram.
    pub(crate) remote: SocketAddr,
    /// True if the machine has no socket at the port; otherwise the path to the machine fails.
    pub(crate) is_port: bool,
    quoted: [u8; QUOTED],
    length: usize,
}

impl Unreachable {
    /// A message about a datagram to `remote`. `datagram` holds the first bytes of the datagram.
    #[cfg(any(test, target_os = "linux"))]
    pub(crate) fn new(remote: SocketAddr, is_port: bool, datagram: &[u8]) -> Self {
        let mut quoted = [0; QUOTED];
        let length = datagram.len().min(QUOTED);
        quoted[..length].copy_from_slice(&datagram[..length]);
        Self {
            remote,
            is_port,
            quoted,
            length,
        }
    }

    /// The first bytes of the datagram, as far as the message quotes the datagram. A forger who has
    /// not seen the datagram does not know the bytes.
    pub(crate) fn quoted(&self) -> &[u8] {
        self.quoted.get(..self.length).unwrap_or_default()
    }
}

#[cfg(target_os = "linux")]
pub(crate) use linux::{enable, next};

#[cfg(target_os = "linux")]
mod linux {
    use std::io::{self, IoSliceMut};
    use std::net::{SocketAddrV4, SocketAddrV6};
    use std::os::fd::AsRawFd;

    use nix::sys::socket::sockopt::{Ipv4RecvErr, Ipv6RecvErr};
    use nix::sys::socket::{
        ControlMessageOwned, MsgFlags, SockaddrLike as _, SockaddrStorage, recvmsg, setsockopt,
    };
    use std::net::UdpSocket;

    use super::{QUOTED, SocketAddr, Unreachable};

    /// `SO_EE_ORIGIN_ICMP`, `SO_EE_ORIGIN_ICMP6`.
    const FROM_ICMP: [u8; 2] = [2, 3];
    /// Type and code of "port unreachable" (RFC 792, RFC 4443 section 3.1), by origin.
    const PORT_UNREACHABLE: [(u8, u8); 2] = [(3, 3), (1, 4)];
    /// Room for the control messages of one error.
    const CONTROL: usize = 512;

    /// Makes the kernel queue errors. The kernel also returns each error once as the result of a
    /// send or receive.
    pub(crate) fn enable(socket: &UdpSocket) -> io::Result<()> {
        // A socket for both IP versions needs both options.
        if socket.local_addr()?.is_ipv6() {
            setsockopt(socket, Ipv6RecvErr, &true)?;
            let _ = setsockopt(socket, Ipv4RecvErr, &true);
            return Ok(());
        }
        Ok(setsockopt(socket, Ipv4RecvErr, &true)?)
    }

    /// The next error about a datagram that did not arrive.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if the queue is empty.
    pub(crate) fn next(socket: &UdpSocket) -> io::Result<Option<Unreachable>> {
        let mut quoted = [0; QUOTED];
        let mut control = vec![0; CONTROL];
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let mut buffers = [IoSliceMut::new(&mut quoted)];
        let fd = socket.as_raw_fd();
        let message = recvmsg::<SockaddrStorage>(fd, &mut buffers, Some(&mut control), flags)?;
        let (length, remote) = (message.bytes, message.address.as_ref().and_then(address));
        let mut error = None;
        for control in message.cmsgs()? {
            if let ControlMessageOwned::Ipv4RecvErr(found, _)
            | ControlMessageOwned::Ipv6RecvErr(found, _) = control
            {
                error = Some((found.ee_origin, (found.ee_type, found.ee_code)));
            }
        }
        let (Some(remote), Some((origin, kind))) = (remote, error) else {
            return Ok(None);
        };
        let Some(version) = FROM_ICMP.iter().position(|from| *from == origin) else {
            return Ok(None);
        };
        let is_port = PORT_UNREACHABLE.get(version) == Some(&kind);
        let quoted = quoted.get(..length).unwrap_or_default();
        Ok(Some(Unreachable::new(remote, is_port, quoted)))
    }

    fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
        match storage.family()? {
            nix::sys::socket::AddressFamily::Inet => {
                Some(SocketAddrV4::from(*storage.as_sockaddr_in()?).into())
            }
            nix::sys::socket::AddressFamily::Inet6 => {
                let v6 = SocketAddrV6::from(*storage.as_sockaddr_in6()?);
                Some(SocketAddr::new(v6.ip().to_canonical(), v6.port()))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_64_bytes_of_a_datagram_are_kept() {
        let remote = SocketAddr::from(([127, 0, 0, 1], 1));
        let datagram: Vec<u8> = (0..100).collect();
        for (length, kept) in [(0, 0), (1, 1), (63, 63), (64, 64), (65, 64), (100, 64)] {
            let message = Unreachable::new(remote, true, &datagram[..length]);
            assert_eq!(message.quoted(), &datagram[..kept]);
        }
    }
}
