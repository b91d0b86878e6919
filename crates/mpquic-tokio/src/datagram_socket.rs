//! [`DatagramSocket`]: the driver's demands on a socket from outside the kernel.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use mpquic_core::EcnCodepoint;

/// Carries datagrams in the place of a UDP socket: over a relay, a tunnel, a network stack in user
/// space, or a `MemoryNetwork` (feature `memory-network`).
///
/// Passed to [`EndpointBuilder::abstract_socket`](crate::EndpointBuilder::abstract_socket) and
/// [`Endpoint::add_abstract_socket`](crate::Endpoint::add_abstract_socket). Each call handles a
/// batch of datagrams. Datagrams of up to 1200 bytes must pass whole (RFC 9000 section 14). The
/// driver tries larger datagrams; a datagram beyond the size of the link is lost or refused, never
/// split.
///
/// # Examples
///
/// A socket of the kernel, one datagram per call:
///
/// ```
/// use std::future::Future;
/// use std::io::{self, IoSliceMut};
/// use std::net::SocketAddr;
/// use std::pin::Pin;
/// use std::sync::Arc;
/// use std::task::{Context, Poll};
///
/// use mpquic_tokio::{DatagramSocket, Endpoint, ReceivedBatch, SentBatch};
/// use tokio::net::UdpSocket;
///
/// #[derive(Debug)]
/// struct Plain(UdpSocket);
///
/// impl DatagramSocket for Plain {
///     fn local_addr(&self) -> io::Result<SocketAddr> {
///         self.0.local_addr()
///     }
///
///     fn try_send(&self, batch: &SentBatch<'_>) -> io::Result<()> {
///         self.0.try_send_to(batch.contents, batch.destination).map(|_| ())
///     }
///
///     fn writable(&self) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + '_>> {
///         Box::pin(self.0.writable())
///     }
///
///     fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
///         self.0.poll_recv_ready(cx)
///     }
///
///     fn try_receive(
///         &self,
///         buffers: &mut [IoSliceMut<'_>],
///         batches: &mut [ReceivedBatch],
///     ) -> io::Result<usize> {
///         let (length, source) = self.0.try_recv_from(&mut buffers[0])?;
///         batches[0] = ReceivedBatch::new(source, length);
///         Ok(1)
///     }
/// }
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let socket = Plain(UdpSocket::bind("127.0.0.1:0").await?);
/// let address = socket.local_addr()?;
/// let endpoint = Endpoint::builder().abstract_socket(Arc::new(socket)).build()?;
/// assert_eq!(endpoint.local_addr()?, address);
/// # Ok(())
/// # }
/// ```
pub trait DatagramSocket: fmt::Debug + Send + Sync + 'static {
    /// The address from which the socket sends. The address must not change, because a path belongs
    /// to one address.
    ///
    /// # Errors
    ///
    /// If the socket has no address: the endpoint then refuses the socket.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// Sends a batch, or drops the batch as a network may.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) without room: the driver tries again after
    /// [`Self::writable`]. [`NetworkUnreachable`](io::ErrorKind::NetworkUnreachable) and
    /// [`HostUnreachable`](io::ErrorKind::HostUnreachable) move the data to other paths at once.
    /// Any other error means the loss of this batch.
    fn try_send(&self, batch: &SentBatch<'_>) -> io::Result<()>;

    /// Waits until [`Self::try_send`] may succeed after a lack of room. Several tasks may wait at
    /// the same time; wake every task.
    fn writable(&self) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + '_>>;

    /// Waits until [`Self::try_receive`] may succeed. Only one task waits, but not always the task
    /// of the last call.
    ///
    /// # Errors
    ///
    /// If the socket will never receive again: the endpoint then stops reading the socket.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Receives a batch into each buffer, and describes each batch in `batches`. Both slices have
    /// the same length, at least one, and each buffer has room for the largest UDP datagram.
    /// Returns the number of filled buffers.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if no datagram waits. The driver logs other errors
    /// and calls again.
    fn try_receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        batches: &mut [ReceivedBatch],
    ) -> io::Result<usize>;

    /// The largest number of datagrams for one call of [`Self::try_send`]; 1 by default.
    fn max_segments(&self) -> usize {
        1
    }
}

/// Datagrams to send to one address: a single datagram, or several in a row in `contents`.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct SentBatch<'a> {
    /// The address that the datagrams go to.
    pub destination: SocketAddr,
    /// The source address, if the socket is bound to all addresses.
    pub source: Option<IpAddr>,
    /// The ECN codepoint of the datagrams.
    pub ecn: Option<EcnCodepoint>,
    /// The bytes of the datagrams.
    pub contents: &'a [u8],
    /// Size of each datagram; the last one may be smaller. `None` for a single datagram. A batch
    /// holds at most [`DatagramSocket::max_segments`] datagrams.
    pub segment_size: Option<usize>,
}

/// The content of a receive buffer: a single datagram, or several of one sender in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceivedBatch {
    /// The address of the sender.
    pub source: SocketAddr,
    /// The destination address, if the socket is bound to all addresses and knows the destination.
    pub destination: Option<IpAddr>,
    /// The ECN codepoint of the datagrams, if the socket knows the codepoint.
    pub ecn: Option<EcnCodepoint>,
    /// Bytes of the buffer that were filled.
    pub length: usize,
    /// Size of each datagram; the last one may be smaller.
    pub segment_size: usize,
}

impl ReceivedBatch {
    /// A single datagram of `length` bytes.
    pub fn new(source: SocketAddr, length: usize) -> Self {
        Self {
            source,
            destination: None,
            ecn: None,
            length,
            segment_size: length,
        }
    }
}
