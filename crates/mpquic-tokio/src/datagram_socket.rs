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
/// [`EndpointBuilder::abstract_socket`](crate::EndpointBuilder::abstract_socket) and
/// [`Endpoint::add_abstract_socket`](crate::Endpoint::add_abstract_socket) take one. It is called
/// once for a batch of datagrams, both ways. Datagrams of up to 1200 bytes must pass whole (RFC 9000
/// section 14); larger ones are tried, and those that do not fit are lost or refused, never cut in
/// pieces.
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
    /// The address that it sends from. It must not change; a path belongs to one address.
    ///
    /// # Errors
    ///
    /// If there is none: the endpoint does not take the socket then.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// Sends a batch, or drops it as a network may.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room now: it is tried again after
    /// [`Self::writable`]. [`NetworkUnreachable`](io::ErrorKind::NetworkUnreachable) and
    /// [`HostUnreachable`](io::ErrorKind::HostUnreachable) move the data to other paths at once. All
    /// other errors mean that this batch is lost.
    fn try_send(&self, batch: &SentBatch<'_>) -> io::Result<()>;

    /// Waits until [`Self::try_send`] may succeed, after it had no room. Several tasks may wait at a
    /// time, and all of them have to be woken.
    fn writable(&self) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + '_>>;

    /// Waits until [`Self::try_receive`] may succeed. One task waits, and it may be another one than
    /// before.
    ///
    /// # Errors
    ///
    /// If nothing will ever be received again: the endpoint does not read the socket any more.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Takes what was received, a batch into each buffer, and describes each in `batches`. Both have
    /// the same length, which is at least one, and each buffer has room for the largest datagram
    /// that UDP carries. Returns how many it filled.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if there is nothing. Other errors are logged, and it
    /// is called again.
    fn try_receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        batches: &mut [ReceivedBatch],
    ) -> io::Result<usize>;

    /// The most datagrams that one call of [`Self::try_send`] takes; 1 by default.
    fn max_segments(&self) -> usize {
        1
    }
}

/// Datagrams to send to one address: one, or several that follow each other in `contents`.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct SentBatch<'a> {
    /// Where they go.
    pub destination: SocketAddr,
    /// The address they come from, if the socket is bound to none.
    pub source: Option<IpAddr>,
    /// Their ECN codepoint.
    pub ecn: Option<EcnCodepoint>,
    /// Their bytes.
    pub contents: &'a [u8],
    /// The size of each but the last, which may be smaller; `None` if there is one. There are at
    /// most [`DatagramSocket::max_segments`] of them.
    pub segment_size: Option<usize>,
}

/// What was received into one buffer: one datagram, or several of one sender that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceivedBatch {
    /// Where they come from.
    pub source: SocketAddr,
    /// The address they were sent to, if the socket is bound to none and knows it.
    pub destination: Option<IpAddr>,
    /// Their ECN codepoint, if the socket knows it.
    pub ecn: Option<EcnCodepoint>,
    /// Bytes of the buffer that were filled.
    pub length: usize,
    /// The size of each datagram but the last, which may be smaller.
    pub segment_size: usize,
}

impl ReceivedBatch {
    /// One datagram of so many bytes.
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
