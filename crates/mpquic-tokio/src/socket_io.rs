//! [`Io`]: the kinds of sockets below the driver, with the same calls.

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

/// A socket that sends and receives datagrams.
#[derive(Debug)]
pub(crate) enum Io {
    /// A UDP socket of the kernel.
    Kernel(KernelSocket),
    /// A UDP socket that shares its address with the sockets of other workers.
    Worker(WorkerSocket),
    /// A socket that the application implements.
    Abstract(Arc<dyn DatagramSocket>),
    /// A socket that a test commands.
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

    /// Allows other sockets of the same user to be bound to this socket's address, or forbids it.
    /// Only kernel sockets of Linux can do this: on other systems, a connected socket does not send
    /// to the address that the caller names.
    #[cfg_attr(not(target_os = "linux"), expect(unused, reason = "it is for Linux"))]
    pub(crate) fn share(&self, is_shared: bool) -> io::Result<()> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Kernel(socket) => socket.share(is_shared),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Largest number of datagrams that one call of [`Self::send`] may carry.
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

    /// Stops the reports of [`Self::readable`] until its next call. Returns false if the socket
    /// cannot do this.
    pub(crate) fn pause_reads(&self) -> bool {
        match self {
            Self::Kernel(socket) => socket.pause_reads(),
            Self::Worker(socket) => socket.kernel.pause_reads(),
            _ => false,
        }
    }

    /// Bytes of the receive buffer of a socket of the kernel.
    pub(crate) fn receive_buffer(&self) -> usize {
        match self {
            Self::Kernel(socket) => socket.receive_buffer(),
            Self::Worker(socket) => socket.kernel.receive_buffer(),
            _ => 0,
        }
    }

    /// From now on, [`Self::take_errors`] reports ICMP messages, if the socket can read them.
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

    /// Sends the datagrams of one batch.
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

/// The batch `transmit` of `quinn_udp` as a batch for a [`DatagramSocket`].
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

/// Receives from a [`DatagramSocket`], and describes its batches as `quinn_udp` does.
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
