//! [`Runtime`]: the driver's demands on an async runtime. [`TokioRuntime`] meets the demands with
//! tokio.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::UdpSocket;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use crate::datagram_socket::DatagramSocket;
use crate::kernel_socket::KernelSocket;
use crate::socket_io::Io;

/// An async runtime: it runs tasks, tells the time, and waits for timers and sockets.
///
/// Endpoints run on [`TokioRuntime`] unless
/// [`EndpointBuilder::runtime`](crate::EndpointBuilder::runtime) sets another runtime. On another
/// runtime, no call needs tokio. Only [`EndpointBuilder::workers`](crate::EndpointBuilder::workers)
/// and [`Endpoint::connect_to`](crate::Endpoint::connect_to) fail, with an error. Three things are
/// slower. The driver checks network interfaces once a second, because the system reports no
/// changes. No ICMP message ends a connection attempt early. And the [`DatagramSocket`] of
/// [`Self::socket`] decides how many datagrams pass with a call.
///
/// # Examples
///
/// A runtime of the crates `async-io` and `async-executor`. Its sockets carry one datagram per
/// call; with the crate `quinn-udp` they can carry many.
///
#[doc = concat!("```\n", include_str!("../tests/loopback/async_io_runtime.rs"))]
///
/// # fn main() -> io::Result<()> {
/// // There is no tokio here.
/// let executor = Arc::new(Executor::new());
/// async_io::block_on(executor.run(async {
///     let local = SocketAddr::from(([127, 0, 0, 1], 0));
///     let runtime = Arc::new(AsyncIo(executor.clone()));
///     let endpoint = mpquic_tokio::Endpoint::builder().runtime(runtime).bind(local).build()?;
///     assert_eq!(endpoint.local_addr()?.ip(), local.ip());
///     Ok(())
/// }))
/// # }
/// ```
pub trait Runtime: fmt::Debug + Send + Sync + 'static {
    /// Runs a task to its end, in parallel with the caller. The driver spawns a task for each
    /// socket, a task for each connection, and a task that follows network interfaces.
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>);

    /// The current time, which never goes back. All deadlines that the application gives to the
    /// driver use this clock. The driver reads the clock at least once for each batch of datagrams
    /// and each call of the application that may send, so the call should be cheap.
    fn now(&self) -> Instant;

    /// A timer that is ready at a time of [`Self::now`]'s clock; the time may have passed.
    fn timer(&self, at: Instant) -> Pin<Box<dyn Timer>>;

    /// Makes the driver's socket from a non-blocking socket. The driver
    /// ([`EndpointBuilder::bind`](crate::EndpointBuilder::bind)) or the application
    /// ([`EndpointBuilder::socket`](crate::EndpointBuilder::socket)) has bound the socket.
    ///
    /// By default, the call fails: the application then gives the endpoint only sockets for
    /// [`EndpointBuilder::abstract_socket`](crate::EndpointBuilder::abstract_socket), which need no
    /// such call.
    ///
    /// # Errors
    ///
    /// If the runtime cannot use the socket; the driver's call then fails with the same error.
    fn socket(&self, socket: UdpSocket) -> io::Result<RuntimeSocket> {
        drop(socket);
        let message = "this runtime has no sockets: give the endpoint abstract ones";
        Err(io::Error::new(io::ErrorKind::Unsupported, message))
    }
}

/// A timer of a [`Runtime`]: a future that is ready at its time. After the time, the driver polls
/// the timer only after [`Self::reset`].
pub trait Timer: Future<Output = ()> + fmt::Debug + Send + Sync {
    /// Sets another time, sooner or later. While the timer is not ready, the new time wakes the
    /// task that polled the timer last, without a further poll.
    fn reset(self: Pin<&mut Self>, at: Instant);
}

/// A socket that a [`Runtime`] has made: from an [`Arc`] of a [`DatagramSocket`], or by
/// [`TokioRuntime`].
#[derive(Debug)]
pub struct RuntimeSocket(pub(crate) Io);

impl<S: DatagramSocket> From<Arc<S>> for RuntimeSocket {
    fn from(socket: Arc<S>) -> Self {
        Self(Io::Abstract(socket))
    }
}

/// The runtime tokio. Calls that spawn, bind or connect must happen within the runtime. The runtime
/// needs I/O and time (`enable_all`). The time is tokio's, which tests can pause.
///
/// # Examples
///
/// The default runtime of endpoints:
///
/// ```
/// use std::sync::Arc;
///
/// use mpquic_tokio::{Endpoint, TokioRuntime};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let local = "127.0.0.1:0".parse()?;
/// let endpoint = Endpoint::builder().runtime(Arc::new(TokioRuntime)).bind(local).build()?;
/// # drop(endpoint);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct TokioRuntime;

impl Runtime for TokioRuntime {
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        tokio::spawn(task);
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn timer(&self, at: Instant) -> Pin<Box<dyn Timer>> {
        Box::pin(tokio::time::sleep_until(at.into()))
    }

    fn socket(&self, socket: UdpSocket) -> io::Result<RuntimeSocket> {
        Ok(RuntimeSocket(Io::Kernel(KernelSocket::new(socket)?)))
    }
}

impl Timer for tokio::time::Sleep {
    fn reset(self: Pin<&mut Self>, at: Instant) {
        tokio::time::Sleep::reset(self, at.into());
    }
}
