//! [`Io`]: what stands in the place of a socket of the kernel.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;

use quinn_udp::{RecvMeta, Transmit};

use super::network::Port;
use crate::kernel_socket::KernelSocket;

/// A socket of the kernel, or one in memory.
#[derive(Debug)]
pub(crate) enum Io {
    Kernel(KernelSocket),
    Simulated(Arc<Port>),
}

impl Io {
    pub(crate) fn new(socket: std::net::UdpSocket) -> io::Result<Self> {
        KernelSocket::new(socket).map(Self::Kernel)
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Kernel(socket) => socket.local_addr(),
            Self::Simulated(port) => Ok(port.local()),
        }
    }

    pub(crate) fn max_segments(&self) -> usize {
        match self {
            Self::Kernel(socket) => socket.max_segments(),
            Self::Simulated(port) => port.max_segments(),
        }
    }

    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Kernel(socket) => socket.readable().await,
            Self::Simulated(port) => {
                port.readable().await;
                Ok(())
            }
        }
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Kernel(socket) => socket.writable().await,
            Self::Simulated(port) => {
                port.writable().await;
                Ok(())
            }
        }
    }

    pub(crate) fn receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> io::Result<usize> {
        match self {
            Self::Kernel(socket) => socket.receive(buffers, meta),
            Self::Simulated(port) => port.receive(buffers, meta),
        }
    }

    pub(crate) fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        match self {
            Self::Kernel(socket) => socket.try_send(transmit),
            Self::Simulated(port) => port.try_send(transmit),
        }
    }

    pub(crate) fn if_writable(&self, send: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        match self {
            Self::Kernel(socket) => socket.if_writable(send),
            Self::Simulated(port) => port.if_writable(send),
        }
    }
}
