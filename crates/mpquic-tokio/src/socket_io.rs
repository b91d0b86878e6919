//! [`Io`]: the carrier of a socket's datagrams.

use std::future::poll_fn;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;

use mpquic_core::EcnCodepoint;
use quinn_udp::{RecvMeta, Transmit};
use smallvec::SmallVec;

use crate::datagram_socket::{DatagramSocket, ReceivedBatch, SentBatch};
use crate::error_queue::Unreachable;
use crate::kernel_socket::KernelSocket;
#[cfg(test)]
use crate::testing::Port;
use crate::worker_socket::WorkerSocket;

/// A socket of the kernel, or of the application's making.
#[derive(Debug)]
pub(crate) enum Io {
    Kernel(KernelSocket),
    Worker(WorkerSocket),
    Abstract(Arc<dyn DatagramSocket>),
    /// Commanded by a test.
    #[cfg(test)]
    Simulated(Arc<Port>),
}

impl Io {
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Kernel(socket) => socket.local_addr(),
            Self::Worker(socket) => socket.kernel.local_addr(),
            Self::Abstract(socket) => socket.local_addr(),
            #[cfg(test)]
            Self::Simulated(port) => Ok(port.local()),
        }
    }

    /// Lets other sockets of the same user be bound to the address, or no longer. Only Linux sends
    /// a datagram over a connected socket to the address that the caller names, so the others do
    /// without.
    #[cfg_attr(not(target_os = "linux"), expect(unused, reason = "it is for Linux"))]
    pub(crate) fn share(&self, is_shared: bool) -> io::Result<()> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Kernel(socket) => socket.share(is_shared),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Number of datagrams that one call may carry.
    pub(crate) fn max_segments(&self) -> usize {
        match self {
            Self::Kernel(socket) => socket.max_segments(),
            Self::Worker(socket) => socket.kernel.max_segments(),
            Self::Abstract(socket) => socket.max_segments().max(1),
            #[cfg(test)]
            Self::Simulated(port) => port.max_segments(),
        }
    }

    /// Waits for datagrams.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Kernel(socket) => socket.readable().await,
            Self::Worker(socket) => socket.readable().await,
            Self::Abstract(socket) => poll_fn(|cx| socket.poll_readable(cx)).await,
            #[cfg(test)]
            Self::Simulated(port) => port.readable().await,
        }
    }

    /// From now on, [`Self::take_errors`] reports ICMP messages.
    pub(crate) fn watch_errors(&self) {
        match self {
            Self::Kernel(socket) => socket.watch_errors(),
            #[cfg(test)]
            Self::Simulated(port) => port.watch_errors(),
            _ => {}
        }
    }

    /// Takes the ICMP messages that arrived after the last call.
    pub(crate) fn take_errors(&self, take: impl FnMut(Unreachable)) {
        match self {
            Self::Kernel(socket) => socket.take_errors(take),
            #[cfg(test)]
            Self::Simulated(port) => port.take_errors(take),
            _ => {}
        }
    }

    /// Waits for room in the send buffer.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Kernel(socket) => socket.writable().await,
            Self::Worker(socket) => socket.kernel.writable().await,
            Self::Abstract(socket) => socket.writable().await,
            #[cfg(test)]
            Self::Simulated(port) => {
                port.writable().await;
                Ok(())
            }
        }
    }

    /// Fills buffers with received datagrams and returns the number of filled buffers.
    pub(crate) fn receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> io::Result<usize> {
        match self {
            Self::Kernel(socket) => socket.receive(buffers, meta),
            Self::Worker(socket) => socket.receive(buffers, meta),
            Self::Abstract(socket) => receive(&**socket, buffers, meta),
            #[cfg(test)]
            Self::Simulated(port) => port.receive(buffers, meta),
        }
    }

    /// Sends datagrams.
    pub(crate) fn send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        match self {
            Self::Kernel(socket) => socket.send(transmit),
            Self::Worker(socket) => socket.kernel.send(transmit),
            Self::Abstract(socket) => socket.try_send(&batch(transmit)),
            #[cfg(test)]
            Self::Simulated(port) => port.send(transmit),
        }
    }
}

/// The datagrams of `transmit` in the terms of a [`DatagramSocket`].
pub(crate) fn batch<'a>(transmit: &Transmit<'a>) -> SentBatch<'a> {
    SentBatch {
        destination: transmit.destination,
        source: transmit.src_ip,
        ecn: transmit
            .ecn
            .and_then(|ecn| EcnCodepoint::from_bits(ecn as u8)),
        contents: transmit.contents,
        segment_size: transmit.segment_size,
    }
}

/// Receives from a socket that describes its batches in other terms.
pub(crate) fn receive(
    socket: &dyn DatagramSocket,
    buffers: &mut [IoSliceMut<'_>],
    meta: &mut [RecvMeta],
) -> io::Result<usize> {
    let nothing = ReceivedBatch::new(SocketAddr::from(([0; 4], 0)), 0);
    let count = buffers.len().min(meta.len());
    let mut batches: SmallVec<[ReceivedBatch; 32]> = smallvec::smallvec![nothing; count];
    let filled = socket.try_receive(&mut buffers[..count], &mut batches)?;
    for ((batch, meta), buffer) in batches.iter().zip(meta).zip(buffers).take(filled) {
        let length = batch.length.min(buffer.len());
        *meta = RecvMeta::default();
        meta.addr = batch.source;
        meta.dst_ip = batch.destination;
        meta.len = length;
        meta.stride = batch.segment_size.clamp(1, length.max(1));
        meta.ecn = batch
            .ecn
            .and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8));
    }
    Ok(filled.min(count))
}
