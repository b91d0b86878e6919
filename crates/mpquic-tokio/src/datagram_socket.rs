//! [`DatagramSocket`]: what the driver asks of a socket that is not one of the kernel's.

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
/// batch of datagrams. Datagrams of up to 1200 bytes must pass whole (RFC 9000 section 14). Larger
/// ones are tried; a datagram that does not fit is lost or refused, never split.
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
    /// The address from which the socket sends. It must not change, because a path belongs to one
    /// address.
    ///
    /// # Errors
    ///
    /// If there is none: the endpoint does not take the socket then.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// Sends a batch, or drops the batch as a network may.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) without room: the driver tries again after
    /// [`Self::writable`]. [`NetworkUnreachable`](io::ErrorKind::NetworkUnreachable) and
    /// [`HostUnreachable`](io::ErrorKind::HostUnreachable) move the data to other paths at once.
    /// Any other error means that this batch is lost.
    fn try_send(&self, batch: &SentBatch<'_>) -> io::Result<()>;

    /// Waits until [`Self::try_send`] may succeed, after it had no room. Several tasks may wait at
    /// a time; wake all of them.
    fn writable(&self) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + '_>>;

    /// Waits until [`Self::try_receive`] may succeed. One task waits; it may be another task than
    /// at the last call.
    ///
    /// # Errors
    ///
    /// If the socket will never receive again: the endpoint stops reading it.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Receives a batch into each buffer, and describes each batch in `batches`. Both slices have
    /// the same length, at least one, and each buffer has room for the largest UDP datagram.
    /// Returns the number of filled buffers.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if nothing was received. Other errors are logged,
    /// and the driver calls again.
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

/// Datagrams to send to one address: one, or several in a row in `contents`.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct SentBatch<'a> {
    /// Where they go.
    pub destination: SocketAddr,
    /// The source address, if the socket is bound to all addresses.
    pub source: Option<IpAddr>,
    /// Their ECN codepoint.
    pub ecn: Option<EcnCodepoint>,
    /// Their bytes.
    pub contents: &'a [u8],
    /// Size of each datagram; the last one may be smaller. `None` for a single datagram. There are
    /// at most [`DatagramSocket::max_segments`].
    pub segment_size: Option<usize>,
}

/// The content of one receive buffer: one datagram, or several of one sender in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceivedBatch {
    /// Where they come from.
    pub source: SocketAddr,
    /// The destination address, if the socket is bound to all addresses and knows it.
    pub destination: Option<IpAddr>,
    /// The ECN codepoint of the datagrams, if the socket knows it.
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
