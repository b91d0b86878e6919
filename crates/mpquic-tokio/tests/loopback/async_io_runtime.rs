// The documentation of `Runtime` shows this file as its example.

use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use async_executor::Executor;
use async_io::Async;
use mpquic_tokio::{DatagramSocket, ReceivedBatch, Runtime, RuntimeSocket, SentBatch, Timer};

/// The crates `async-executor` and `async-io`.
#[derive(Debug)]
pub(crate) struct AsyncIo(pub(crate) Arc<Executor<'static>>);

impl Runtime for AsyncIo {
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.0.spawn(task).detach();
    }

    fn now(&self) -> Instant {
        #[allow(
            clippy::disallowed_methods,
            reason = "this is where the time comes from"
        )]
        Instant::now()
    }

    fn timer(&self, at: Instant) -> Pin<Box<dyn Timer>> {
        Box::pin(AsyncIoTimer(async_io::Timer::at(at)))
    }

    fn socket(&self, socket: UdpSocket) -> io::Result<RuntimeSocket> {
        Ok(Arc::new(AsyncIoSocket(Async::new(socket)?)).into())
    }
}

#[derive(Debug)]
struct AsyncIoTimer(async_io::Timer);

impl Future for AsyncIoTimer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx).map(|_| ())
    }
}

impl Timer for AsyncIoTimer {
    fn reset(mut self: Pin<&mut Self>, at: Instant) {
        self.0.set_at(at);
    }
}

#[derive(Debug)]
struct AsyncIoSocket(Async<UdpSocket>);

impl DatagramSocket for AsyncIoSocket {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get_ref().local_addr()
    }

    fn try_send(&self, batch: &SentBatch<'_>) -> io::Result<()> {
        let socket = self.0.get_ref();
        socket
            .send_to(batch.contents, batch.destination)
            .map(|_| ())
    }

    fn writable(&self) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + '_>> {
        Box::pin(self.0.writable())
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_readable(cx)
    }

    fn try_receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        batches: &mut [ReceivedBatch],
    ) -> io::Result<usize> {
        let (length, source) = self.0.get_ref().recv_from(&mut buffers[0])?;
        batches[0] = ReceivedBatch::new(source, length);
        Ok(1)
    }
}
