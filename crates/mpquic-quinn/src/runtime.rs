//! Async runtimes.

use std::fmt::Debug;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use mpquic_tokio as mp;
use quinn_udp::{RecvMeta, Transmit};

/// An async runtime: it runs tasks, tells the time, and waits for timers and sockets.
pub trait Runtime: Send + Sync + Debug + 'static {
    /// A timer that is ready at this time.
    fn new_timer(&self, i: Instant) -> Pin<Box<dyn AsyncTimer>>;

    /// Runs a task to its end, beside the caller.
    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>);

    /// Makes a socket of the runtime from a socket of the system.
    ///
    /// # Errors
    ///
    /// If the runtime cannot use the socket.
    fn wrap_udp_socket(&self, t: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>>;

    /// The current time.
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    /// mpquic's own driver for this runtime; none for runtimes of programs.
    #[doc(hidden)]
    fn built_in(&self) -> Option<Arc<dyn mp::Runtime>> {
        None
    }
}

/// A timer of a [`Runtime`].
pub trait AsyncTimer: Send + Debug + 'static {
    /// Sets another time.
    fn reset(self: Pin<&mut Self>, i: Instant);

    /// Waits for the time.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()>;
}

/// A socket of a [`Runtime`], or anything else that carries datagrams.
pub trait AsyncUdpSocket: Send + Sync + Debug + 'static {
    /// A waiter for room to send.
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>>;

    /// Sends datagrams.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) without room: the driver waits with
    /// [`Self::create_io_poller`]. After another error the datagrams are lost.
    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()>;

    /// Receives datagrams into the buffers, and returns how many buffers were filled.
    ///
    /// # Errors
    ///
    /// The driver logs the error and calls again.
    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>>;

    /// The address from which the socket sends.
    ///
    /// # Errors
    ///
    /// If the socket has no address.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// How many datagrams may leave with one call.
    fn max_transmit_segments(&self) -> usize {
        1
    }

    /// How many datagrams may arrive in one buffer.
    fn max_receive_segments(&self) -> usize {
        1
    }

    /// True if datagrams may be split on their way.
    fn may_fragment(&self) -> bool {
        true
    }
}

/// Waits for room to send in an [`AsyncUdpSocket`].
pub trait UdpPoller: Send + Sync + Debug + 'static {
    /// Waits for room.
    ///
    /// # Errors
    ///
    /// If the socket cannot be used any more.
    fn poll_writable(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}
