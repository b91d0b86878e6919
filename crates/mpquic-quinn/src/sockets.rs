//! Sockets of programs for mpquic, and tokio's sockets for programs.

use std::future::{Future, poll_fn};
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use mpquic_tokio::{DatagramSocket, EcnCodepoint, ReceivedBatch, SentBatch};
use quinn_udp::{RecvMeta, Transmit};

use crate::runtime::AsyncUdpSocket;

/// A program's socket for mpquic. mpquic waits for datagrams and takes them with two calls, quinn
/// with one.
#[derive(Debug)]
pub(crate) struct Adapted {
    socket: Arc<dyn AsyncUdpSocket>,
    arrival: Arc<Arrival>,
}

/// Whether datagrams may have arrived since the last look, and the task to tell.
#[derive(Debug)]
struct Arrival {
    possible: AtomicBool,
    waiting: Mutex<Option<Waker>>,
}

impl Wake for Arrival {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.possible.store(true, Ordering::SeqCst);
        let waiting = self
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }
}

impl Adapted {
    pub(crate) fn new(socket: Arc<dyn AsyncUdpSocket>) -> Self {
        Self {
            socket,
            arrival: Arc::new(Arrival {
                possible: AtomicBool::new(true),
                waiting: Mutex::new(None),
            }),
        }
    }
}

impl DatagramSocket for Adapted {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn try_send(&self, batch: &SentBatch<'_>) -> io::Result<()> {
        self.socket.try_send(&Transmit {
            destination: batch.destination,
            ecn: batch.ecn.map(to_udp),
            contents: batch.contents,
            segment_size: batch.segment_size,
            src_ip: batch.source,
        })
    }

    fn writable(&self) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + '_>> {
        Box::pin(writable(self.socket.clone()))
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut waiting = self
            .arrival
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Under the lock: a wake-up from now on finds the task.
        if self.arrival.possible.load(Ordering::SeqCst) {
            return Poll::Ready(Ok(()));
        }
        *waiting = Some(cx.waker().clone());
        Poll::Pending
    }

    fn try_receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        batches: &mut [ReceivedBatch],
    ) -> io::Result<usize> {
        // Before the look: an arrival after the look sets the flag again.
        self.arrival.possible.store(false, Ordering::SeqCst);
        let waker = Waker::from(self.arrival.clone());
        let mut metas = vec![RecvMeta::default(); buffers.len()];
        let mut cx = Context::from_waker(&waker);
        let Poll::Ready(received) = self.socket.poll_recv(&mut cx, buffers, &mut metas) else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        self.arrival.possible.store(true, Ordering::SeqCst);
        let count = received?;
        for (batch, meta) in batches.iter_mut().zip(&metas).take(count) {
            *batch = ReceivedBatch::new(meta.addr, meta.len);
            batch.destination = meta.dst_ip;
            batch.ecn = meta.ecn.map(from_udp);
            batch.segment_size = meta.stride;
        }
        Ok(count)
    }

    fn max_segments(&self) -> usize {
        self.socket.max_transmit_segments().max(1)
    }
}

/// Waits for room to send, with a poller of its own.
async fn writable(socket: Arc<dyn AsyncUdpSocket>) -> io::Result<()> {
    let mut poller = socket.create_io_poller();
    poll_fn(|cx| poller.as_mut().poll_writable(cx)).await
}

fn to_udp(ecn: EcnCodepoint) -> quinn_udp::EcnCodepoint {
    match ecn {
        EcnCodepoint::Ect0 => quinn_udp::EcnCodepoint::Ect0,
        EcnCodepoint::Ect1 => quinn_udp::EcnCodepoint::Ect1,
        EcnCodepoint::Ce => quinn_udp::EcnCodepoint::Ce,
    }
}

fn from_udp(ecn: quinn_udp::EcnCodepoint) -> EcnCodepoint {
    match ecn {
        quinn_udp::EcnCodepoint::Ect0 => EcnCodepoint::Ect0,
        quinn_udp::EcnCodepoint::Ect1 => EcnCodepoint::Ect1,
        quinn_udp::EcnCodepoint::Ce => EcnCodepoint::Ce,
    }
}

#[cfg(feature = "runtime-tokio")]
pub(crate) use of_tokio::TokioSocket;

#[cfg(feature = "runtime-tokio")]
mod of_tokio {
    use std::future::Future;
    use std::io::{self, IoSliceMut};
    use std::net::{SocketAddr, UdpSocket};
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, ready};

    use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
    use tokio::io::Interest;

    use crate::runtime::{AsyncUdpSocket, UdpPoller};

    /// A socket of tokio, for programs that wrap one.
    #[derive(Debug)]
    pub(crate) struct TokioSocket {
        io: tokio::net::UdpSocket,
        state: UdpSocketState,
    }

    impl TokioSocket {
        pub(crate) fn new(socket: UdpSocket) -> io::Result<Self> {
            socket.set_nonblocking(true)?;
            Ok(Self {
                state: UdpSocketState::new((&socket).into())?,
                io: tokio::net::UdpSocket::from_std(socket)?,
            })
        }
    }

    impl AsyncUdpSocket for TokioSocket {
        fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
            Box::pin(Poller {
                socket: self,
                waiting: None,
            })
        }

        fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
            let send = || self.state.send((&self.io).into(), transmit);
            self.io.try_io(Interest::WRITABLE, send)
        }

        fn poll_recv(
            &self,
            cx: &mut Context<'_>,
            bufs: &mut [IoSliceMut<'_>],
            meta: &mut [RecvMeta],
        ) -> Poll<io::Result<usize>> {
            loop {
                ready!(self.io.poll_recv_ready(cx))?;
                let receive = || self.state.recv((&self.io).into(), bufs, meta);
                match self.io.try_io(Interest::READABLE, receive) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    received => return Poll::Ready(received),
                }
            }
        }

        fn local_addr(&self) -> io::Result<SocketAddr> {
            self.io.local_addr()
        }

        fn max_transmit_segments(&self) -> usize {
            self.state.max_gso_segments()
        }

        fn max_receive_segments(&self) -> usize {
            self.state.gro_segments()
        }

        fn may_fragment(&self) -> bool {
            self.state.may_fragment()
        }
    }

    /// Waits for room to send.
    struct Poller {
        socket: Arc<TokioSocket>,
        waiting: Option<Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>>,
    }

    impl std::fmt::Debug for Poller {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.socket.fmt(f)
        }
    }

    impl UdpPoller for Poller {
        fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            let socket = self.socket.clone();
            let wait = || {
                let waiting = async move { socket.io.writable().await };
                Box::pin(waiting) as Pin<Box<dyn Future<Output = _> + Send + Sync>>
            };
            let waiting = self.waiting.get_or_insert_with(wait);
            let writable = ready!(waiting.as_mut().poll(cx));
            self.waiting = None;
            Poll::Ready(writable)
        }
    }
}
