//! [`Network`]: carries datagrams between sockets in memory. [`Port`] is such a socket: the driver
//! uses the socket, and the test controls the socket.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mpquic_sim::record::Hash;
use quinn_udp::{RecvMeta, Transmit};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::errors::Errors;
use crate::datagram_socket::DatagramSocket as _;
use crate::error_queue::Unreachable;
use crate::kernel_socket::send_twice;
use crate::memory_network::{MAX_SEGMENTS, MemoryNetwork, MemorySocket};
use crate::socket_io;

/// How long a datagram travels.
pub(crate) const DELAY: Duration = Duration::from_millis(10);
/// The error number for datagrams that are too large.
const EMSGSIZE: i32 = 90;

/// Carries datagrams in order, each in [`DELAY`]. A datagram is lost only at a test's request.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    memory: MemoryNetwork,
    /// The record of all calls, in a recorded network.
    record: Arc<Mutex<Option<(Instant, Hash)>>>,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            memory: MemoryNetwork::new(DELAY),
            record: Arc::default(),
        }
    }
}

impl Network {
    /// A network that records all calls of its sockets.
    pub(crate) fn recorded() -> Self {
        let network = Self::default();
        *locked(&network.record) = Some((Instant::now(), Hash::default()));
        network
    }

    /// Adds `what` to the record, with the time.
    pub(crate) fn note(&self, what: &[&[u8]]) {
        if let Some((since, hash)) = &mut *locked(&self.record) {
            hash.add(since.elapsed().as_nanos() as u64);
            what.iter().for_each(|part| hash.add_bytes(part));
        }
    }

    /// The hash of all recorded calls.
    pub(crate) fn record(&self) -> u64 {
        locked(&self.record).map_or(0, |(_, hash)| hash.value())
    }

    /// Binds a socket; from now on, an earlier port with the same address receives no datagram.
    pub(crate) fn bind(&self, local: SocketAddr) -> Arc<Port> {
        Arc::new(Port {
            local,
            socket: self.memory.bind_instead(local),
            network: self.clone(),
            state: Mutex::new(State {
                max_segments: MAX_SEGMENTS,
                max_size: usize::MAX,
                room: usize::MAX,
                known_writable: true,
                ..State::default()
            }),
            failure: Notify::new(),
            room: Notify::new(),
        })
    }
}

/// A socket in memory that a test controls.
#[derive(Debug)]
pub(crate) struct Port {
    local: SocketAddr,
    socket: Arc<MemorySocket>,
    network: Network,
    state: Mutex<State>,
    /// The next read has to fail.
    failure: Notify,
    /// There is room to send.
    room: Notify,
}

#[derive(Debug, Default)]
struct State {
    max_segments: usize,
    /// Larger datagrams are refused.
    max_size: usize,
    /// The errors of the next calls that read.
    read_errors: VecDeque<io::ErrorKind>,
    /// ICMP messages, if the driver has enabled them.
    unreachable: Vec<Unreachable>,
    watches_errors: bool,
    /// Number of sending calls that succeed before the buffer is full.
    room: usize,
    /// Counts down the calls that find the buffer full; the buffer empties right after the call
    /// that counts to zero.
    found_full: usize,
    /// Number of waits for room so far, and the wait that empties the buffer at once.
    awaited: usize,
    empties_when_awaited: Option<usize>,
    /// Calls with more than one datagram fail, and lower the limit to a single datagram.
    refuses_trains: bool,
    /// The error of every sending call.
    send_error: Option<io::ErrorKind>,
    /// Random errors of sending and of receiving calls.
    errors: [Option<Errors>; 2],
    /// The runtime takes the socket for writable.
    known_writable: bool,
    /// Number of reports of room to the runtime.
    told: u64,
    calls: Vec<Call>,
}

impl State {
    /// The runtime learns of room.
    fn tell(&mut self) {
        self.known_writable = true;
        self.told += 1;
    }

    /// A task waits for room. Returns true if the buffer is empty from now on.
    fn is_empty_now_awaited(&mut self) -> bool {
        self.awaited += 1;
        assert!(self.awaited < 1000, "awaited again and again");
        self.empties_when_awaited == Some(self.awaited)
    }
}

/// A successful sending call.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) at: Instant,
    pub(crate) to: SocketAddr,
    /// The datagrams of the call.
    pub(crate) datagrams: Vec<Vec<u8>>,
}

/// Controls for tests.
impl Port {
    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    /// Limits a sending call to `count` datagrams.
    pub(crate) fn set_max_segments(&self, count: usize) {
        self.lock().max_segments = count;
    }

    /// The buffer has room for this number of sending calls, and is full after the last.
    pub(crate) fn fill_after(&self, calls: usize) {
        self.lock().room = calls;
    }

    /// The buffer has room again, for ever, and the runtime learns of the room.
    pub(crate) fn empty(&self) {
        let mut state = self.lock();
        state.room = usize::MAX;
        state.tell();
        drop(state);
        self.room.notify_waiters();
    }

    /// The buffer has room again, but the runtime never learns of the room.
    pub(crate) fn empty_in_silence(&self) {
        self.lock().room = usize::MAX;
    }

    /// The next `times` sending calls find the buffer full. The last of these calls reports a full
    /// buffer too late: the buffer has room already, and the runtime knows of the room.
    pub(crate) fn empty_when_found_full(&self, times: usize) {
        self.lock().found_full = times;
    }

    /// The buffer becomes empty as soon as a task has waited for room this number of times.
    pub(crate) fn empty_when_awaited(&self, times: usize) {
        let mut state = self.lock();
        state.empties_when_awaited = Some(state.awaited + times);
    }

    /// The runtime hears of room, even with a full buffer.
    pub(crate) fn wake(&self) {
        self.lock().tell();
        self.room.notify_waiters();
    }

    /// Number of calls that still find the buffer full before the buffer empties.
    pub(crate) fn times_left(&self) -> usize {
        self.lock().found_full
    }

    /// Segmentation offload does not work, and the next train finds out.
    pub(crate) fn refuse_trains(&self) {
        self.lock().refuses_trains = true;
    }

    /// Sending calls fail with this error; `None` ends the failures.
    pub(crate) fn fail_to_send(&self, error: Option<io::ErrorKind>) {
        self.lock().send_error = error;
    }

    /// Sending and receiving calls fail at random with these errors.
    pub(crate) fn fail_at_random(&self, sending: Option<Errors>, reading: Option<Errors>) {
        self.lock().errors = [sending, reading];
    }

    /// Refuses larger datagrams (EMSGSIZE), as if `size` was the link's MTU.
    pub(crate) fn set_max_size(&self, size: usize) {
        self.lock().max_size = size;
    }

    /// The next `count` receiving calls fail with this error.
    pub(crate) fn fail_to_read(&self, count: usize, error: io::ErrorKind) {
        let mut state = self.lock();
        state.read_errors.extend(std::iter::repeat_n(error, count));
        drop(state);
        self.failure.notify_one();
    }

    /// ICMP messages arrive.
    pub(crate) fn tell_unreachable(&self, messages: &[Unreachable]) {
        self.lock().unreachable.extend_from_slice(messages);
        self.failure.notify_one();
    }

    /// Number of receiving calls that will still fail.
    pub(crate) fn failures_left(&self) -> usize {
        self.lock().read_errors.len()
    }

    /// All datagrams of the socket are lost, in both directions.
    pub(crate) fn silence(&self, is_silent: bool) {
        self.socket.cut_off(is_silent);
    }

    /// The successful sending calls after the last look.
    pub(crate) fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.lock().calls)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

/// The driver's demands on a socket, and the runtime's view of the socket.
impl Port {
    pub(crate) fn max_segments(&self) -> usize {
        self.lock().max_segments
    }

    pub(crate) fn watch_errors(&self) {
        self.lock().watches_errors = true;
    }

    pub(crate) fn take_errors(&self, take: impl FnMut(Unreachable)) {
        let mut state = self.lock();
        if state.watches_errors {
            state.unreachable.drain(..).for_each(take);
        }
    }

    pub(crate) async fn readable(&self) -> io::Result<()> {
        let failure = self.failure.notified();
        tokio::pin!(failure);
        failure.as_mut().enable();
        if !self.lock().read_errors.is_empty() {
            return Ok(());
        }
        tokio::select! {
            biased;
            () = failure => Ok(()),
            result = poll_fn(|cx| self.socket.poll_readable(cx)) => result,
        }
    }

    pub(crate) fn receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> io::Result<usize> {
        let mut state = self.lock();
        self.network.note(&[&buffers.len().to_le_bytes()]);
        if let Some(error) = state.read_errors.pop_front() {
            return Err(error.into());
        }
        if let Some(error) = state.errors[1].as_mut().and_then(Errors::draw) {
            return Err(error);
        }
        socket_io::receive(&*self.socket, buffers, meta)
    }

    pub(crate) async fn writable(&self) {
        if self.lock().is_empty_now_awaited() {
            self.empty();
        }
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            if self.lock().known_writable {
                return;
            }
            room.await;
        }
    }

    pub(crate) fn send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        send_twice(|| self.try_send(transmit), |send| self.if_writable(send))
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let segment = transmit.segment_size.unwrap_or(transmit.contents.len());
        let mut state = self.lock();
        if let Some(error) = state.send_error {
            return Err(error.into());
        }
        if let Some(error) = state.errors[0].as_mut().and_then(Errors::draw) {
            return Err(error);
        }
        if segment.min(transmit.contents.len()) > state.max_size {
            return Err(io::Error::from_raw_os_error(EMSGSIZE));
        }
        if state.room == 0 {
            let empties = state.found_full == 1;
            state.found_full = state.found_full.saturating_sub(1);
            drop(state);
            if empties {
                self.empty();
            }
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if state.room != usize::MAX {
            state.room -= 1;
        }
        assert!(transmit.contents.len() <= segment * state.max_segments);
        if state.refuses_trains && transmit.contents.len() > segment {
            state.max_segments = 1;
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let at = Instant::now();
        let addresses = format!("{} {} {:?}", self.local, transmit.destination, transmit.ecn);
        let size = segment.to_le_bytes();
        self.network
            .note(&[addresses.as_bytes(), &size, transmit.contents]);
        let datagrams = transmit.contents.chunks(segment);
        state.calls.push(Call {
            at,
            to: transmit.destination,
            datagrams: datagrams.map(<[u8]>::to_vec).collect(),
        });
        drop(state);
        self.socket.try_send(&socket_io::batch(transmit))
    }

    fn if_writable(&self, send: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let state = self.lock();
        let (is_known, told) = (state.known_writable, state.told);
        drop(state);
        if !is_known {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let result = send();
        if let Err(error) = &result
            && error.kind() == io::ErrorKind::WouldBlock
        {
            // News of room during the call count: the runtime's state stays.
            let mut state = self.lock();
            state.known_writable = state.told != told;
        }
        result
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
