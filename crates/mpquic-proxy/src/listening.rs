//! Sockets listening side by side.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, UdpSocket};

/// Connections that may wait to be accepted.
const WAITING: i32 = 1024;

/// Listens on TCP, beside listeners at `all` addresses: `[::]` includes all addresses of IPv4,
/// unless an address of IPv4 is among these with the same port. Must be called within a tokio
/// runtime.
///
/// # Errors
///
/// If the address cannot be bound.
pub fn listen_tcp(address: SocketAddr, all: &[SocketAddr]) -> io::Result<TcpListener> {
    let socket = bind(address, all, Type::STREAM, Protocol::TCP)?;
    socket.listen(WAITING)?;
    TcpListener::from_std(socket.into())
}

pub(crate) fn bind_udp(address: SocketAddr, all: &[SocketAddr]) -> io::Result<UdpSocket> {
    let socket = bind(address, all, Type::DGRAM, Protocol::UDP)?;
    UdpSocket::from_std(socket.into())
}

fn bind(
    address: SocketAddr,
    all: &[SocketAddr],
    kind: Type,
    protocol: Protocol,
) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    let is_of_v4 = |other: &SocketAddr| other.is_ipv4() && other.port() == address.port();
    if address == SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port())) {
        socket.set_only_v6(all.iter().any(is_of_v4))?;
    }
    // A server that restarts finds connections of the one before. (On Windows, two could listen.)
    #[cfg(unix)]
    if kind == Type::STREAM {
        socket.set_reuse_address(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn both_ip_versions_may_be_listened_on_in_full() -> io::Result<()> {
        let (any, one) = (Ipv4Addr::UNSPECIFIED, Ipv4Addr::LOCALHOST);
        for (v4, order) in [(any, [0, 1]), (any, [1, 0]), (one, [0, 1]), (one, [1, 0])] {
            let free = listen_tcp(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)), &[])?;
            let port = free.local_addr()?.port();
            drop(free);
            let all = [
                SocketAddr::from((v4, port)),
                SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
            ];
            let listeners = [
                listen_tcp(all[order[0]], &all)?,
                listen_tcp(all[order[1]], &all)?,
            ];
            let sockets = [
                bind_udp(all[order[0]], &all)?,
                bind_udp(all[order[1]], &all)?,
            ];
            for (listener, socket) in listeners.iter().zip(&sockets) {
                assert_eq!(listener.local_addr()?, socket.local_addr()?);
            }
        }
        // Alone, the socket serves both versions.
        let alone = bind_udp(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)), &[])?;
        let port = alone.local_addr()?.port();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0")?;
        sender.send_to(b"x", ("127.0.0.1", port))?;
        let (length, from) = alone.recv_from(&mut [0; 8]).await?;
        assert_eq!((length, from.port()), (1, sender.local_addr()?.port()));
        Ok(())
    }
}
