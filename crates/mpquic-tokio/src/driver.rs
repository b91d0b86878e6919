//! The tasks: one per socket, which runs connections to completion, and one per connection for
//! its timer, for collected writes and for sockets that were full.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::BytesMut;
use mpquic_core::{ConnectionHandle, Datagram, DatagramEvent, Transmit};
use quinn_udp::RecvMeta;

use crate::endpoint::{EndpointShared, EndpointState};
use crate::shared::Shared;
use crate::slab::Lanes;
use crate::socket::{self, Socket};

/// Reads a socket until it or the endpoint is closed.
pub(crate) async fn read_socket(endpoint: Arc<EndpointShared>, socket: Arc<Socket>) {
    let mut reader = Reader::new();
    let closed = socket.closed();
    tokio::pin!(closed);
    loop {
        tokio::select! {
            biased;
            () = &mut closed => return,
            result = socket.readable() => if let Err(error) = result {
                tracing::warn!(%error, local = %socket.local(), "socket failed");
                return;
            },
        }
        match reader.run(&endpoint, &socket) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // ICMP errors and such: nothing that concerns the next datagram.
            Err(error) => tracing::debug!(%error, local = %socket.local(), "receive"),
        }
        // Applications read a batch before the next one: it is in the cache still, and what is
        // bounded in bytes, as DATAGRAMs are, does not overflow.
        tokio::task::yield_now().await;
    }
}

/// Buffers of one socket's task.
struct Reader {
    lanes: Lanes,
    batch: Batch,
}

/// What a batch of datagrams came to: runs of consecutive ones for the same connection, and answers
/// to those of no connection.
#[derive(Default)]
struct Batch {
    runs: Vec<(ConnectionHandle, Arc<Shared>, usize)>,
    routed: Vec<Routed>,
    /// Each with its bytes.
    answers: Vec<(Transmit, Vec<u8>)>,
    /// Memory for the next answer.
    response: Vec<u8>,
}

enum Routed {
    Datagram(Datagram),
    Reset,
}

impl Reader {
    fn new() -> Self {
        Self {
            lanes: Lanes::new(),
            batch: Batch::default(),
        }
    }

    /// Takes one batch from the socket and runs the connections it is for.
    fn run(&mut self, endpoint: &EndpointShared, socket: &Socket) -> io::Result<()> {
        let batch = &mut self.batch;
        // Locked for routing alone, and not before something was received.
        let mut routing = None;
        let mut now = None;
        self.lanes.fill(
            |buffers, meta| socket.receive(buffers, meta),
            |meta, message| {
                let now = *now.get_or_insert_with(Instant::now);
                let state = routing.get_or_insert_with(|| endpoint.lock());
                batch.route(state, endpoint, socket, (now, meta, message));
            },
        )?;
        drop(routing);
        for (transmit, answer) in batch.answers.drain(..) {
            // A full send buffer may cost the answer: whoever wants it asks again.
            socket.send(&transmit, &answer);
        }
        let Some(now) = now else { return Ok(()) };
        let mut routed = batch.routed.drain(..);
        for (_, connection, count) in batch.runs.drain(..) {
            let mut state = connection.lock();
            for item in routed.by_ref().take(count) {
                match item {
                    Routed::Datagram(datagram) => state.core.handle_datagram(datagram),
                    Routed::Reset => state.core.handle_stateless_reset(now),
                }
            }
            state.received(now);
        }
        Ok(())
    }
}

impl Batch {
    fn route(
        &mut self,
        state: &mut EndpointState,
        endpoint: &EndpointShared,
        socket: &Socket,
        (now, meta, mut message): (Instant, &RecvMeta, BytesMut),
    ) {
        let four_tuple = socket.four_tuple(meta);
        let ecn = socket::ecn(meta);
        while !message.is_empty() {
            let stride = meta.stride.clamp(1, message.len());
            let data = message.split_to(stride);
            let event = state
                .core
                .handle_datagram(now, four_tuple, ecn, data, &mut self.response);
            match event {
                None => {}
                Some(DatagramEvent::Connection(handle, datagram)) => {
                    self.push(state, handle, Routed::Datagram(datagram));
                }
                Some(DatagramEvent::StatelessReset(handle)) => {
                    self.push(state, handle, Routed::Reset);
                }
                Some(DatagramEvent::NewConnection(incoming)) => {
                    match state.on_incoming(incoming, &mut self.response) {
                        Some(transmit) => self.answer(transmit),
                        None => endpoint.incoming.notify_one(),
                    }
                }
                Some(DatagramEvent::Response(transmit)) => self.answer(transmit),
            }
        }
    }

    /// Keeps an answer until the endpoint is unlocked.
    fn answer(&mut self, transmit: Transmit) {
        let answer = std::mem::take(&mut self.response);
        self.answers.push((transmit, answer));
    }

    fn push(&mut self, state: &EndpointState, handle: ConnectionHandle, item: Routed) {
        match self.runs.last_mut() {
            Some((last, _, count)) if *last == handle => *count += 1,
            _ => match state.connection(handle) {
                Some(connection) => self.runs.push((handle, connection, 1)),
                None => return,
            },
        }
        self.routed.push(item);
    }
}

/// The task of one connection; ends when the connection is drained.
pub(crate) struct ConnectionTask {
    shared: Arc<Shared>,
    /// Waits for room in sockets that were full.
    writable: Vec<(SocketAddr, Writable)>,
}

/// How a turn of the task ends, unless it waits.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    /// Others first: the application has something to say, perhaps.
    Yield,
    /// The connection is drained.
    End,
}

type Writable = Pin<Box<dyn Future<Output = ()> + Send>>;

impl ConnectionTask {
    /// The task for a connection.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            writable: Vec::new(),
        }
    }

    /// Runs until the connection is drained.
    pub(crate) async fn run(mut self) {
        while poll_fn(|cx| self.poll(cx)).await == Turn::Yield {
            tokio::task::yield_now().await;
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Turn> {
        let shared = &self.shared;
        let mut state = shared.lock();
        if !state
            .task
            .as_ref()
            .is_some_and(|task| task.will_wake(cx.waker()))
        {
            state.task = Some(cx.waker().clone());
        }
        if std::mem::take(&mut state.yields) {
            return Poll::Ready(Turn::Yield);
        }
        let before = self.writable.len();
        self.writable
            .retain_mut(|(_, writable)| writable.as_mut().poll(cx).is_pending());
        let mut due = std::mem::take(&mut state.task_woken) || before != self.writable.len();
        loop {
            if state.timer.armed.is_some() && state.timer.sleep.as_mut().poll(cx).is_ready() {
                state.timer.armed = None;
                due = true;
            }
            if !due {
                break;
            }
            due = false;
            let now = Instant::now();
            if state.deadline().is_some_and(|deadline| deadline <= now) {
                state.core.handle_timeout(now);
            }
            state.run(now);
        }
        if state.core.is_drained() {
            return Poll::Ready(Turn::End);
        }
        for unsent in &state.unsent {
            let local = unsent.socket.local();
            if self.writable.iter().any(|(of, _)| *of == local) {
                continue;
            }
            let socket = unsent.socket.clone();
            let mut writable: Writable = Box::pin(async move {
                // An error shows again, and is handled, when the datagrams are sent.
                let _ = socket.writable().await;
            });
            if writable.as_mut().poll(cx).is_ready() {
                cx.waker().wake_by_ref();
                continue;
            }
            self.writable.push((local, writable));
        }
        Poll::Pending
    }
}

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        // Without its task (the runtime ends) the connection must not keep the endpoint alive.
        self.shared.endpoint.lock().forget(&self.shared);
    }
}
