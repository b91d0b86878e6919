//! Sockets for the stacks that are given theirs.

use std::net::{SocketAddr, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};

use crate::{Options, Result};

/// A UDP socket with the buffers asked for, if any are.
pub fn socket(address: SocketAddr, options: &Options) -> Result<UdpSocket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    if !options.defaults {
        socket.set_recv_buffer_size(options.buffer_bytes())?;
        socket.set_send_buffer_size(options.buffer_bytes())?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}
