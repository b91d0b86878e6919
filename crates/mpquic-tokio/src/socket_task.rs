//! The task of a socket takes a batch of datagrams from the kernel, routes the datagrams, and runs
//! their connections.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use mpquic_core::{ConnectionHandle, DatagramEvent, EcnCodepoint, FourTuple, Transmit};
use smallvec::SmallVec;

use crate::connection_state::{Arrival, ConnectionState, SharedEndpoint, message_of};
use crate::endpoint_state::Registry;
use crate::error_queue::Unreachable;
use crate::polling::{Polling, Read};
use crate::receive_buffers::{DRAINS, ReceiveBuffers, SlabId};
use crate::runtime::Timer;
use crate::socket::{self, Socket};

/// After this number of failed calls in a row, the task rests. A row of failures has a cause
/// outside the network, for example a missing device, and without a rest the runtime would call
/// again at once. (Some systems turn each ICMP message into an error, and datagrams wait behind the
/// errors.)
const MAX_FAILURES: u32 = 100;
/// How long the task rests.
const PAUSE: Duration = Duration::from_millis(10);
/// Number of ICMP messages passed on in each interval. Each message causes a search of all
/// connections, and anybody can send ICMP messages.
const MAX_ERRORS: usize = 16;
const ERROR_INTERVAL: Duration = Duration::from_millis(10);
/// After this number of bytes or batches, applications read before the task receives further
/// datagrams: the data is still in the cache then, and limited buffers, such as the buffer of
/// DATAGRAMs, do not overflow.
const ENOUGH: usize = 1 << 16;
const MAX_BATCHES: usize = 4;
/// After this number of bytes or connections, or this time, connections answer even if the socket
/// has more datagrams. The time is far below the delay of acknowledgements that peers expect.
const MAX_UNANSWERED: usize = 1 << 17;
const MAX_UNANSWERED_CONNECTIONS: usize = 32;
const MAX_UNANSWERED_TIME: Duration = Duration::from_millis(1);

/// Reads a socket until the endpoint closes the socket.
pub(crate) async fn read_socket(endpoint: Arc<SharedEndpoint>, socket: Arc<Socket>) {
    let mut reader = Reader::new(&endpoint);
    let mut pause = Pause::default();
    let mut failures = 0;
    let closed = socket.closed();
    tokio::pin!(closed);
    loop {
        tokio::select! {
            biased;
            () = &mut closed => return reader.answer(),
            // Only a call without a datagram shows an empty socket.
            () = std::future::ready(()), if reader.is_unread || reader.unanswered.any() => {}
            () = pause.end(), if pause.is_on => {}
            result = socket.readable(), if !pause.is_on => if let Err(error) = result {
                tracing::warn!(%error, local = %socket.local(), "socket failed");
                return;
            },
        }
        // Connections contain their own panics. The catch here covers other code, such as the
        // application's generator of connection IDs: the task must keep reading the socket.
        let run = || {
            reader.take_errors(&socket);
            reader.run(&socket)
        };
        match catch_unwind(AssertUnwindSafe(run)) {
            // The runtime knows of the empty socket: `readable` lets other tasks run.
            Ok(Ok(Left::Nothing)) => {
                failures = 0;
                pause.set(&endpoint, &socket, reader.interval(&socket));
                tokio::task::coop::consume_budget().await;
                continue;
            }
            Ok(Ok(Left::Maybe)) => failures = 0,
            // An error, for example of ICMP, does not concern the next datagram.
            Ok(Err(error)) => {
                tracing::debug!(%error, local = %socket.local(), "receive");
                failures += 1;
            }
            Err(panic) => {
                let message = message_of(&*panic);
                tracing::error!(message, "panicked, datagrams are lost");
                let unanswered = std::mem::take(&mut reader.unanswered);
                reader = Reader::new(&endpoint);
                reader.unanswered = unanswered;
            }
        }
        tokio::task::yield_now().await;
        if failures >= MAX_FAILURES {
            failures = 0;
            tokio::select! {
                biased;
                () = &mut closed => return,
                () = endpoint.runtime.timer(endpoint.now() + PAUSE) => {}
            }
        }
    }
}

/// A time in which arrivals at a socket wake no thread, because the socket is read at its end.
#[derive(Default)]
struct Pause {
    is_on: bool,
    timer: Option<Pin<Box<dyn Timer>>>,
}

impl Pause {
    /// Begins a pause of this time, or ends the pauses. A socket that cannot pause has none.
    fn set(&mut self, endpoint: &SharedEndpoint, socket: &Socket, interval: Option<Duration>) {
        // Each time, because a task that waited for room has ended the pause.
        self.is_on = interval.is_some() && socket.pause_reads();
        let Some(interval) = interval.filter(|_| self.is_on) else {
            return;
        };
        let at = endpoint.now() + interval;
        match &mut self.timer {
            Some(timer) => timer.as_mut().reset(at),
            None => self.timer = Some(endpoint.runtime.timer(at)),
        }
    }

    async fn end(&mut self) {
        if let Some(timer) = &mut self.timer {
            timer.await;
        }
    }
}

/// The rest of the work on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// The socket is empty.
    Nothing,
    /// The socket may hold more datagrams.
    Maybe,
}

/// Memory of one socket's task.
struct Reader<'a> {
    endpoint: &'a SharedEndpoint,
    buffers: ReceiveBuffers,
    /// The last value of [`ReceiveBuffers::allocated`].
    allocated: u64,
    /// The last value of [`ReceiveBuffers::held`].
    held: u64,
    /// The last call filled all buffers, so more datagrams may wait.
    is_unread: bool,
    /// ICMP messages left for this interval, and the start of the interval.
    errors_left: usize,
    errors_since: Option<Instant>,
    batch: Batch,
    unanswered: Unanswered,
    polling: Polling,
    /// Datagrams of this turn.
    read: Read,
    /// Bytes of the socket's buffer, once asked for.
    socket_buffer: Option<usize>,
}

/// Connections that received datagrams and have not sent an answer yet.
#[derive(Default)]
struct Unanswered {
    connections: Vec<Arc<ConnectionState>>,
    /// Bytes received after the last answers.
    bytes: usize,
    /// The times of the first and the last arrival after the last answers.
    since: Option<(Instant, Instant)>,
}

impl Unanswered {
    fn any(&self) -> bool {
        !self.connections.is_empty()
    }

    fn push(&mut self, connection: Arc<ConnectionState>) {
        let is_known = |known: &Arc<_>| Arc::ptr_eq(known, &connection);
        if !self.connections.iter().any(is_known) {
            self.connections.push(connection);
        }
    }

    fn on_received(&mut self, now: Instant, bytes: usize) {
        self.bytes += bytes;
        self.since = Some((self.since.map_or(now, |(first, _)| first), now));
    }

    /// True if answers must not wait any longer.
    fn is_enough(&self) -> bool {
        self.bytes >= MAX_UNANSWERED
            || self.connections.len() >= MAX_UNANSWERED_CONNECTIONS
            || self
                .since
                .is_some_and(|(first, last)| last >= first + MAX_UNANSWERED_TIME)
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.set_unread(false);
        self.endpoint.lock().set_receive_memory(self.held, 0);
    }
}

/// A batch of datagrams: runs of consecutive datagrams for the same connection, and answers to
/// datagrams without a connection.
#[derive(Default)]
struct Batch {
    runs: Vec<(ConnectionHandle, Arc<ConnectionState>, usize)>,
    routed: Vec<Arrival>,
    /// Answers to send, with their bytes.
    answers: Vec<(Transmit, Vec<u8>)>,
    /// Memory for the next answer.
    response: Vec<u8>,
    /// A client wants to connect.
    has_attempt: bool,
}

/// Datagrams that arrived together, all of one size; the last may be shorter.
struct Message {
    now: Instant,
    four_tuple: FourTuple,
    ecn: Option<EcnCodepoint>,
    datagram_size: usize,
    data: BytesMut,
    slab: SlabId,
}

impl<'a> Reader<'a> {
    fn new(endpoint: &'a SharedEndpoint) -> Self {
        Self {
            endpoint,
            buffers: ReceiveBuffers::default(),
            allocated: 0,
            held: 0,
            is_unread: false,
            errors_left: 0,
            errors_since: None,
            batch: Batch::default(),
            unanswered: Unanswered::default(),
            polling: Polling::default(),
            read: Read::default(),
            socket_buffer: None,
        }
    }

    /// How long the next reading of an empty socket may wait; `None` for the next datagram.
    fn interval(&mut self, socket: &Socket) -> Option<Duration> {
        let buffer = *self
            .socket_buffer
            .get_or_insert_with(|| socket.receive_buffer());
        let read = std::mem::take(&mut self.read);
        self.polling.on_read(self.endpoint.now(), read, buffer)
    }

    /// Passes ICMP messages on to the connections that sent the quoted datagrams.
    fn take_errors(&mut self, socket: &Socket) {
        let mut errors: SmallVec<[Unreachable; MAX_ERRORS]> = SmallVec::new();
        socket.take_errors(|error| {
            if errors.len() < MAX_ERRORS {
                errors.push(error);
            }
        });
        if errors.is_empty() {
            return;
        }
        let now = self.endpoint.now();
        if self
            .errors_since
            .is_none_or(|since| now >= since + ERROR_INTERVAL)
        {
            self.errors_since = Some(now);
            self.errors_left = MAX_ERRORS;
        }
        for error in errors.iter().take(self.errors_left) {
            let connections = self.endpoint.lock().that_hear_of(error.remote);
            for connection in &connections {
                connection.lock().on_unreachable(socket, error, now);
            }
        }
        self.errors_left = self.errors_left.saturating_sub(errors.len());
    }

    /// Notes whether datagrams wait. Attempts get their turn once the socket is empty, or after
    /// enough batches.
    fn set_unread(&mut self, is_unread: bool) {
        let was_unread = std::mem::replace(&mut self.is_unread, is_unread);
        if !was_unread && !is_unread {
            return;
        }
        let mut registry = self.endpoint.lock();
        registry.on_batch(was_unread, is_unread);
        if registry.has_attempts() && registry.is_turn_of_attempts() {
            self.endpoint.attempts.notify_one();
        }
    }

    /// Reads the socket until the socket is empty or enough has arrived, and gives the datagrams to
    /// their connections. The connections answer at the end, so that a single acknowledgement
    /// covers many packets. Fails if the socket cannot be read.
    fn run(&mut self, socket: &Socket) -> io::Result<Left> {
        let mut received = 0;
        let mut left = Left::Maybe;
        for _ in 0..MAX_BATCHES {
            let lanes = self.buffers.lanes();
            match self.receive(socket) {
                Ok((messages, bytes)) => {
                    received += bytes;
                    self.set_unread(messages == lanes);
                    if DRAINS && messages < lanes {
                        left = Left::Nothing;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    left = Left::Nothing;
                    self.set_unread(false);
                }
                Err(error) if received == 0 => {
                    self.answer();
                    return Err(error);
                }
                Err(error) => {
                    tracing::debug!(%error, local = %socket.local(), "receive");
                    break;
                }
            }
            if left == Left::Nothing || received >= ENOUGH {
                break;
            }
        }
        if left == Left::Nothing || self.unanswered.is_enough() {
            self.answer();
        }
        Ok(left)
    }

    /// Lets the connections with received datagrams send due packets.
    fn answer(&mut self) {
        let unanswered = &mut self.unanswered;
        unanswered.bytes = 0;
        unanswered.since = None;
        if unanswered.any() {
            let now = self.endpoint.now();
            for connection in unanswered.connections.drain(..) {
                connection.lock().answer(now);
            }
        }
    }

    /// Takes a batch from the socket and gives the datagrams to their connections. Returns the
    /// number of messages and bytes.
    fn receive(&mut self, socket: &Socket) -> io::Result<(usize, usize)> {
        let endpoint = self.endpoint;
        let batch = &mut self.batch;
        let (mut bytes, mut datagrams) = (0, 0);
        // Locked only for routing, and only after the first datagram.
        let mut registry = None;
        let mut now = None;
        let count = self.buffers.fill(
            |buffers, meta| socket.receive(buffers, meta),
            |meta, data, slab| {
                bytes += data.len();
                datagrams += data.len().div_ceil(meta.stride.max(1));
                let message = Message {
                    now: *now.get_or_insert_with(|| endpoint.now()),
                    four_tuple: socket.four_tuple(meta),
                    ecn: socket::ecn(meta),
                    datagram_size: meta.stride,
                    data,
                    slab,
                };
                let registry = registry.get_or_insert_with(|| {
                    let mut registry = endpoint.lock();
                    registry.tell_lag(message.now);
                    registry
                });
                batch.route(registry, message);
            },
        )?;
        drop(registry);
        let allocated = self.buffers.allocated();
        let grown = allocated - std::mem::replace(&mut self.allocated, allocated);
        if grown > 0 {
            let total = &endpoint.receive_memory;
            total.fetch_add(grown, Ordering::Relaxed);
        }
        let held = self.buffers.held();
        if held != self.held {
            endpoint.lock().set_receive_memory(self.held, held);
            self.held = held;
        }
        if std::mem::take(&mut batch.has_attempt) {
            endpoint.attempts.notify_one();
        }
        for (transmit, answer) in batch.answers.drain(..) {
            // A full send buffer drops the answer: the peer asks again.
            socket.send(&transmit, &answer);
        }
        let Some(now) = now else {
            return Ok((count, bytes));
        };
        let mut routed = batch.routed.drain(..);
        for (_, connection, count) in batch.runs.drain(..) {
            let mut items = routed.by_ref().take(count);
            let mut locked = connection.lock();
            let answers = locked.receive(now, items.by_ref());
            self.polling.on_connection(locked.shortest_round_trip(now));
            drop(locked);
            // A connection leaves some datagrams here after a panic.
            items.for_each(drop);
            if answers {
                self.unanswered.push(connection);
            }
        }
        self.read.datagrams += datagrams;
        self.read.bytes += bytes;
        if self.unanswered.any() {
            self.unanswered.on_received(now, bytes);
        }
        Ok((count, bytes))
    }
}

impl Batch {
    fn route(&mut self, registry: &mut Registry<ConnectionState>, mut message: Message) {
        let Message {
            now,
            four_tuple,
            ecn,
            slab,
            ..
        } = message;
        while !message.data.is_empty() {
            let size = message.datagram_size.clamp(1, message.data.len());
            let data = message.data.split_to(size);
            let core = &mut registry.core;
            let event = core.handle_datagram(now, four_tuple, ecn, data, &mut self.response);
            match event {
                Some(DatagramEvent::Connection(handle, datagram)) => {
                    self.push(registry, handle, Arrival::Datagram(datagram, slab));
                }
                Some(DatagramEvent::StatelessReset(handle)) => {
                    self.push(registry, handle, Arrival::Reset);
                }
                Some(DatagramEvent::NewConnection(incoming)) => {
                    match registry.on_attempt(now, incoming, &mut self.response) {
                        Some(transmit) => self.answer(transmit),
                        None => self.has_attempt = true,
                    }
                }
                Some(DatagramEvent::Response(transmit)) => self.answer(transmit),
                Some(_) | None => {}
            }
        }
    }

    /// Keeps an answer until the endpoint is unlocked.
    fn answer(&mut self, transmit: Transmit) {
        let answer = std::mem::take(&mut self.response);
        self.answers.push((transmit, answer));
    }

    fn push(
        &mut self,
        registry: &Registry<ConnectionState>,
        handle: ConnectionHandle,
        item: Arrival,
    ) {
        match self.runs.last_mut() {
            Some((last, _, count)) if *last == handle => *count += 1,
            _ => match registry.connection(handle) {
                Some(connection) => self.runs.push((handle, connection.clone(), 1)),
                None => return,
            },
        }
        self.routed.push(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Runtime, TokioRuntime};

    #[tokio::test(start_paused = true)]
    async fn answers_wait_for_32_connections_each_counted_once() -> crate::testing::TestResult {
        let network = crate::testing::Network::recorded();
        let pair = crate::testing::Pair::recorded(&network, 1)?;
        let mut unanswered = Unanswered::default();
        let mut handles = Vec::new();
        for count in 1..=32 {
            handles.push(pair.connect().await?);
            for connection in pair.client.state.lock().connections() {
                unanswered.push(connection);
            }
            assert_eq!(unanswered.connections.len(), count);
            assert_eq!(unanswered.is_enough(), count == 32, "{count}");
        }
        Ok(())
    }

    /// A socket closed with datagrams left to read does not keep attempts out.
    #[tokio::test]
    async fn a_reader_that_ends_leaves_the_turn_to_attempts() -> crate::testing::TestResult {
        let network = crate::testing::Network::recorded();
        let pair = crate::testing::Pair::recorded(&network, 1)?;
        let endpoint = &pair.server.state;
        let mut reader = Reader::new(endpoint);
        reader.set_unread(true);
        assert!(!endpoint.lock().is_turn_of_attempts());
        drop(reader);
        assert!(endpoint.lock().is_turn_of_attempts());
        Ok(())
    }

    #[test]
    fn answers_wait_for_bytes_or_time_and_no_longer() {
        let start = TokioRuntime.now();
        let mut unanswered = Unanswered::default();
        unanswered.on_received(start, MAX_UNANSWERED - 1);
        assert!(!unanswered.is_enough());
        unanswered.on_received(start, 1);
        assert!(unanswered.is_enough());
        let mut unanswered = Unanswered::default();
        for (micros, is_enough) in [(0, false), (500, false), (999, false), (1000, true)] {
            unanswered.on_received(start + Duration::from_micros(micros), 1);
            assert_eq!(unanswered.is_enough(), is_enough, "{micros} µs");
        }
    }

    /// In a pause, the kernel wakes nobody; the reading at its end finds the datagrams. A socket in
    /// memory cannot pause.
    #[tokio::test]
    async fn a_pause_lasts_its_interval_if_the_socket_can_pause() -> crate::testing::TestResult {
        let network = crate::testing::Network::recorded();
        let pair = crate::testing::Pair::recorded(&network, 1)?;
        let endpoint = &pair.client.state;
        let local = "127.0.0.1:0".parse()?;
        let socket = Socket::bind(&TokioRuntime, local, None, 1 << 16)?;
        assert!(socket.receive_buffer() >= 1 << 16);
        let interval = Duration::from_millis(2);
        let mut pause = Pause::default();
        for _ in 0..2 {
            pause.set(endpoint, &socket, Some(interval));
            let began = TokioRuntime.now();
            assert!(pause.is_on);
            pause.end().await;
            assert!(TokioRuntime.now() >= began + interval);
        }
        pause.set(endpoint, &socket, None);
        assert!(!pause.is_on);
        let simulated = Socket::simulated(&network.bind("192.0.2.9:1".parse()?));
        pause.set(endpoint, &simulated, Some(interval));
        assert!(!pause.is_on);
        assert_eq!(simulated.receive_buffer(), 0);
        Ok(())
    }
}
