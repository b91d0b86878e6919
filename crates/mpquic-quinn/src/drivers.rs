//! Runtimes of programs for mpquic, and tokio for programs.

use std::fmt::{self, Debug};
use std::future::Future;
use std::io;
use std::net::UdpSocket;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use mpquic_tokio as mp;

#[cfg(feature = "runtime-tokio")]
use crate::runtime::AsyncUdpSocket;
use crate::runtime::{AsyncTimer, Runtime};
use crate::sockets::Adapted;

/// The runtime in which the caller runs; `None` outside of a runtime.
pub fn default_runtime() -> Option<Arc<dyn Runtime>> {
    #[cfg(feature = "runtime-tokio")]
    if tokio::runtime::Handle::try_current().is_ok() {
        return Some(Arc::new(TokioRuntime));
    }
    None
}

/// mpquic's driver for a runtime.
pub(crate) fn driver_of(runtime: Arc<dyn Runtime>) -> Arc<dyn mp::Runtime> {
    let built_in = runtime.built_in();
    built_in.unwrap_or_else(|| Arc::new(OfProgram(runtime)))
}

/// A program's runtime.
#[derive(Debug)]
struct OfProgram(Arc<dyn Runtime>);

impl mp::Runtime for OfProgram {
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.0.spawn(task);
    }

    fn now(&self) -> Instant {
        self.0.now()
    }

    fn timer(&self, at: Instant) -> Pin<Box<dyn mp::Timer>> {
        Box::pin(Timer {
            inner: Mutex::new(self.0.new_timer(at)),
            waiting: None,
        })
    }

    fn socket(&self, socket: UdpSocket) -> io::Result<mp::RuntimeSocket> {
        let socket = self.0.wrap_udp_socket(socket)?;
        Ok(Arc::new(Adapted::new(socket)).into())
    }
}

/// A program's timer. The mutex is never contended: it makes the timer `Sync`.
struct Timer {
    inner: Mutex<Pin<Box<dyn AsyncTimer>>>,
    /// The task that polled the timer last, before its time.
    waiting: Option<Waker>,
}

impl Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let inner = this.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        let polled = inner.as_mut().poll(cx);
        this.waiting = polled.is_pending().then(|| cx.waker().clone());
        polled
    }
}

impl mp::Timer for Timer {
    fn reset(mut self: Pin<&mut Self>, at: Instant) {
        let this = &mut *self;
        let inner = this.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        inner.as_mut().reset(at);
        // A timer of a program wakes the task only after another poll.
        if let Some(waiting) = this.waiting.take() {
            waiting.wake();
        }
    }
}

/// The runtime tokio.
#[cfg(feature = "runtime-tokio")]
#[derive(Debug)]
pub struct TokioRuntime;

#[cfg(feature = "runtime-tokio")]
impl Runtime for TokioRuntime {
    fn new_timer(&self, i: Instant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(tokio::time::sleep_until(i.into()))
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        tokio::spawn(future);
    }

    fn wrap_udp_socket(&self, t: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        Ok(Arc::new(crate::sockets::TokioSocket::new(t)?))
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn built_in(&self) -> Option<Arc<dyn mp::Runtime>> {
        Some(Arc::new(mp::TokioRuntime))
    }
}

#[cfg(feature = "runtime-tokio")]
impl AsyncTimer for tokio::time::Sleep {
    fn reset(self: Pin<&mut Self>, i: Instant) {
        self.reset(i.into());
    }

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Future::poll(self, cx)
    }
}
