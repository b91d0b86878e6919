//! Network interfaces as sockets use them: by which one packets leave, and from which address.

use std::io;
use std::net::{IpAddr, SocketAddr};

/// Lets packets leave by an interface, whatever the routing table says.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn bind_to_interface(
    socket: &socket2::Socket,
    _: SocketAddr,
    name: &str,
) -> io::Result<()> {
    socket.bind_device(Some(name.as_bytes()))
}

/// Lets packets leave by an interface. Otherwise the routing table decides, whatever address the
/// socket has.
#[cfg(target_vendor = "apple")]
pub(crate) fn bind_to_interface(
    socket: &socket2::Socket,
    local: SocketAddr,
    name: &str,
) -> io::Result<()> {
    let index = std::num::NonZeroU32::new(nix::net::if_::if_nametoindex(name)?);
    match local {
        SocketAddr::V4(_) => socket.bind_device_by_index_v4(index),
        SocketAddr::V6(_) => socket.bind_device_by_index_v6(index),
    }
}

/// Windows sends by the interface that has the socket's address.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
pub(crate) fn bind_to_interface(_: &socket2::Socket, _: SocketAddr, _: &str) -> io::Result<()> {
    Ok(())
}

/// The source address that the system chooses for packets that leave by an interface for `remote`
/// (RFC 6724 and routes); `None` if there is no such interface or route. Nothing is sent.
pub(crate) fn system_source(interface: &str, remote: SocketAddr) -> Option<IpAddr> {
    let domain = socket2::Domain::for_address(remote);
    let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, Some(socket2::Protocol::UDP));
    let socket = socket.ok()?;
    bind_to_interface(&socket, remote, interface).ok()?;
    socket.connect(&remote.into()).ok()?;
    let local = socket.local_addr().ok()?.as_socket()?;
    Some(local.ip())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Otherwise the routing table decides by which interface packets leave.
    #[test]
    fn a_socket_is_bound_to_its_interface() -> io::Result<()> {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = std::net::UdpSocket::bind(local)?;
        let socket = socket2::SockRef::from(&socket);
        assert_eq!(socket.device()?, None);
        bind_to_interface(&socket, local, "lo")?;
        assert_eq!(socket.device()?.as_deref(), Some(&b"lo"[..]));
        Ok(())
    }

    #[test]
    fn the_system_names_its_source_address() {
        let remote = SocketAddr::from(([127, 0, 0, 9], 443));
        assert_eq!(system_source("lo", remote), Some([127, 0, 0, 1].into()));
        assert_eq!(system_source("no-such", remote), None);
    }
}
