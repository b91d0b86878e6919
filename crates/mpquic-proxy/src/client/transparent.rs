//! Sockets for connections that the system diverts (TPROXY).

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;

/// Listens for connections to any address.
///
/// # Errors
///
/// Without the capability `CAP_NET_ADMIN`. Also for an unspecified address, since connections to
/// the listener's own address would be indistinguishable from diverted connections.
#[cfg(target_os = "linux")]
pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    use socket2::{Domain, Protocol, Socket, Type};

    /// Connections that may wait to be accepted.
    const WAITING: i32 = 1024;

    if address.ip().is_unspecified() {
        let why = "diverted connections need an address of one interface, such as 127.0.0.1";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    match address {
        SocketAddr::V4(_) => socket.set_ip_transparent_v4(true)?,
        SocketAddr::V6(_) => socket.set_ip_transparent_v6(true)?,
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(WAITING)?;
    TcpListener::from_std(socket.into())
}

/// Other systems divert connections in other ways.
#[cfg(not(target_os = "linux"))]
pub(super) fn listen(_: SocketAddr) -> io::Result<TcpListener> {
    let why = "connections are diverted on Linux only";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}
