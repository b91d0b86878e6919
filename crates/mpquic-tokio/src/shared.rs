//! [`Shared`]: one connection's state, and what every visitor does before leaving it.
//!
//! Whoever changes a connection, be it the task that read a datagram, an application call or the
//! timer, runs it to completion under one lock: events to the endpoint, events to the application,
//! datagrams to the sockets, timer.

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use mpquic_core::sched::LocalQueue;
use mpquic_core::{
    ConnectionError, ConnectionHandle, Dir, Event, PathEvent, PathId, StreamEvent, StreamId,
    Transmit, ZeroRtt,
};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tokio::sync::{Notify, broadcast};
use tokio::time::Sleep;

use crate::endpoint::EndpointShared;
use crate::path_plan::PathPlan;
use crate::socket::{Sent, Socket};

/// Trains of datagrams sent before others get a turn with the connection.
const MAX_TRAINS: usize = 16;
/// Trains kept for a socket whose buffer is full; more are dropped, as a full queue would.
const MAX_UNSENT: usize = 8;
/// Written bytes that are sent at once; less waits for the connection's task, which collects.
const SEND_AT_ONCE: usize = 16 << 10;
/// How long a path rests that the kernel found no way for.
const UNREACHABLE_REST: Duration = Duration::from_secs(1);
/// Path events kept for a slow listener.
const PATH_EVENTS: usize = 64;

thread_local! {
    /// Memory for the train being sent: connections that idle hold none.
    static TRAIN: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A connection, shared by its handles, its streams, its task and the tasks that read sockets.
pub(crate) struct Shared {
    pub(crate) handle: ConnectionHandle,
    pub(crate) endpoint: Arc<EndpointShared>,
    pub(crate) wake: Wake,
    state: Mutex<State>,
}

/// Who waits for what.
#[derive(Default)]
pub(crate) struct Wake {
    /// The connection as a whole, which changes rarely: its handshake, its paths, its end.
    pub(crate) connection: Notify,
    /// The peer opened a stream, by direction.
    pub(crate) opened: [Notify; 2],
    /// We may open a stream, by direction.
    pub(crate) available: [Notify; 2],
    pub(crate) datagram_received: Notify,
    pub(crate) datagrams_unblocked: Notify,
}

impl Wake {
    fn everyone(&self) {
        let Self {
            connection,
            opened,
            available,
            datagram_received,
            datagrams_unblocked,
        } = self;
        for notify in [connection, datagram_received, datagrams_unblocked] {
            notify.notify_waiters();
        }
        for notify in opened.iter().chain(available) {
            notify.notify_waiters();
        }
    }
}

/// Index of a direction in [`Wake`].
pub(crate) fn index(dir: Dir) -> usize {
    match dir {
        Dir::Bi => 0,
        Dir::Uni => 1,
    }
}

/// What the lock protects.
pub(crate) struct State {
    pub(crate) core: mpquic_core::Connection,
    /// Why the connection ended.
    pub(crate) error: Option<ConnectionError>,
    /// Set once the handshake is complete.
    pub(crate) connected: bool,
    pub(crate) readers: FxHashMap<StreamId, Waker>,
    pub(crate) writers: FxHashMap<StreamId, Waker>,
    /// Who waits for a stream to be stopped or acknowledged to its end.
    pub(crate) finishing: FxHashMap<StreamId, Waker>,
    /// Which paths to open, on a client.
    pub(crate) plan: Option<Box<PathPlan>>,
    path_events: Option<broadcast::Sender<PathEvent>>,
    pub(crate) timer: Timer,
    /// The connection's task.
    pub(crate) task: Option<Waker>,
    /// True while the task was woken and has not run.
    pub(crate) task_woken: bool,
    /// The task is to let others run once before it does.
    pub(crate) yields: bool,
    /// Bytes the application wrote since datagrams were last sent.
    written: usize,
    /// Datagrams one transmit may hold.
    pub(crate) max_datagrams: usize,
    pub(crate) unsent: VecDeque<Unsent>,
    /// Paths the kernel found no way for, and when to try them again.
    unreachable: Vec<(PathId, Instant)>,
    /// When the kernel was asked for what the scheduler knows of send queues.
    queues_told: Option<Instant>,
    /// Woken when the lock is released, so that nobody wakes up to wait for it.
    wakers: SmallVec<[Waker; 2]>,
}

/// Datagrams a socket had no room for.
pub(crate) struct Unsent {
    pub(crate) socket: Arc<Socket>,
    transmit: Transmit,
    contents: Vec<u8>,
}

/// The connection's timer. Moving it to a later time is left to its next expiry.
pub(crate) struct Timer {
    pub(crate) sleep: Pin<Box<Sleep>>,
    pub(crate) armed: Option<Instant>,
}

/// Exclusive access to a connection; wakes whoever has to be woken when dropped.
pub(crate) struct Locked<'a> {
    guard: Option<MutexGuard<'a, State>>,
    shared: &'a Shared,
}

impl Deref for Locked<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        match &self.guard {
            Some(guard) => guard,
            None => unreachable!("the guard is only taken on drop"),
        }
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        match &mut self.guard {
            Some(guard) => guard,
            None => unreachable!("the guard is only taken on drop"),
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if self.wakers.is_empty() {
            return;
        }
        let wakers = mem::take(&mut self.wakers);
        self.guard = None;
        for waker in wakers {
            waker.wake();
        }
    }
}

impl Locked<'_> {
    /// Runs the connection: call after every change that may produce something.
    pub(crate) fn run(&mut self, now: Instant) {
        self.prepare(now);
        self.flush(now);
    }

    /// Runs the connection after datagrams arrived. If they complete the handshake, the application
    /// has its turn before anything leaves: what it says shares datagrams with the handshake's end.
    pub(crate) fn received(&mut self, now: Instant) {
        let was_connected = self.connected;
        self.prepare(now);
        if self.connected && !was_connected {
            self.arm();
            self.yields = true;
            self.wake_task();
        } else {
            self.flush(now);
        }
    }

    fn prepare(&mut self, now: Instant) {
        let shared = self.shared;
        self.retry_unreachable(now);
        self.tell_endpoint(shared);
        self.take_events(shared, now);
        self.tell_endpoint(shared);
    }

    fn flush(&mut self, now: Instant) {
        let shared = self.shared;
        self.written = 0;
        let more = self.transmit(shared, now);
        self.tell_endpoint(shared);
        self.take_events(shared, now);
        self.arm();
        if more {
            self.wake_task();
        }
    }

    /// The application wrote `bytes`: sends now if that fills datagrams, or soon otherwise.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.written += bytes;
        if self.written >= SEND_AT_ONCE {
            self.run(Instant::now());
        } else {
            self.wake_task();
        }
    }
}

impl Shared {
    /// Joins a new connection with its endpoint. The caller spawns its task and runs it.
    pub(crate) fn new(
        handle: ConnectionHandle,
        core: mpquic_core::Connection,
        endpoint: Arc<EndpointShared>,
        max_datagrams: usize,
        plan: Option<PathPlan>,
    ) -> Self {
        let sleep = Box::pin(tokio::time::sleep(std::time::Duration::ZERO));
        Self {
            handle,
            endpoint,
            wake: Wake::default(),
            state: Mutex::new(State {
                core,
                error: None,
                connected: false,
                readers: FxHashMap::default(),
                writers: FxHashMap::default(),
                finishing: FxHashMap::default(),
                plan: plan.map(Box::new),
                path_events: None,
                timer: Timer { sleep, armed: None },
                task: None,
                task_woken: false,
                yields: false,
                written: 0,
                max_datagrams,
                unsent: VecDeque::new(),
                unreachable: Vec::new(),
                queues_told: None,
                wakers: SmallVec::new(),
            }),
        }
    }

    /// Exclusive access. Held briefly: never across a wait.
    pub(crate) fn lock(&self) -> Locked<'_> {
        let guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Locked {
            guard: Some(guard),
            shared: self,
        }
    }

    /// Tries until `attempt` has a result, again whenever `notify` fires.
    pub(crate) async fn until<T>(
        &self,
        notify: &Notify,
        mut attempt: impl FnMut(&mut Locked<'_>) -> Option<T>,
    ) -> T {
        if let Some(result) = attempt(&mut self.lock()) {
            return result;
        }
        loop {
            let notified = notify.notified();
            tokio::pin!(notified);
            // Enabled before looking, so that nothing between looking and waiting is missed.
            notified.as_mut().enable();
            if let Some(result) = attempt(&mut self.lock()) {
                return result;
            }
            notified.await;
        }
    }

    /// Ends the connection from our side, as the application's `close` does.
    pub(crate) fn close(&self, error_code: mpquic_core::VarInt, reason: bytes::Bytes) {
        let mut state = self.lock();
        let now = Instant::now();
        if state.error.is_none() {
            state.core.close(now, error_code, reason);
            state.end(self, ConnectionError::LocallyClosed);
            state.run(now);
        }
    }
}

impl State {
    /// Listens to path events from now on.
    pub(crate) fn subscribe(&mut self) -> broadcast::Receiver<PathEvent> {
        if self.error.is_some() {
            return broadcast::channel(1).1;
        }
        self.path_events
            .get_or_insert_with(|| broadcast::channel(PATH_EVENTS).0)
            .subscribe()
    }

    /// Lets the connection's task run soon.
    pub(crate) fn wake_task(&mut self) {
        if !mem::replace(&mut self.task_woken, true)
            && let Some(task) = &self.task
        {
            self.wakers.push(task.clone());
        }
    }

    /// The time at which the connection wants to be run.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let core = self.core.poll_timeout().map(|(at, _)| at);
        let plan = self.plan.as_deref().and_then(PathPlan::next_timeout);
        let unreachable = self.unreachable.iter().map(|(_, until)| *until);
        core.into_iter().chain(plan).chain(unreachable).min()
    }

    fn arm(&mut self) {
        let Some(deadline) = self.deadline() else {
            return;
        };
        if self.timer.armed.is_none_or(|armed| deadline < armed) {
            self.timer.armed = Some(deadline);
            self.timer.sleep.as_mut().reset(deadline.into());
        }
    }

    fn tell_endpoint(&mut self, shared: &Shared) {
        let Some(first) = self.core.poll_endpoint_event() else {
            return;
        };
        // Locks nest in this order only: connection, then endpoint.
        let mut endpoint = shared.endpoint.lock();
        let mut next = Some(first);
        while let Some(event) = next {
            endpoint.handle_event(shared.handle, event);
            next = self.core.poll_endpoint_event();
        }
    }

    fn take_events(&mut self, shared: &Shared, now: Instant) {
        let wake = &shared.wake;
        while let Some(event) = self.core.poll() {
            match event {
                Event::HandshakeDataReady => wake.connection.notify_waiters(),
                Event::Connected { .. } => {
                    self.connected = true;
                    wake.connection.notify_waiters();
                    if self.core.zero_rtt() == ZeroRtt::Rejected {
                        self.wake_streams();
                    }
                }
                Event::HandshakeConfirmed => {
                    if let Some(plan) = &mut self.plan {
                        plan.on_confirmed(&mut self.core);
                    }
                }
                Event::ConnectionLost { reason } => self.end(shared, reason),
                Event::Stream(event) => self.on_stream_event(wake, event),
                Event::DatagramReceived => wake.datagram_received.notify_waiters(),
                Event::DatagramsUnblocked => wake.datagrams_unblocked.notify_waiters(),
                Event::Path(event) => self.on_path_event(wake, event, now),
            }
        }
        if let Some(plan) = &mut self.plan {
            plan.open(&mut self.core, now);
        }
    }

    fn on_stream_event(&mut self, wake: &Wake, event: StreamEvent) {
        let woken = match event {
            StreamEvent::Opened { dir } => {
                wake.opened[index(dir)].notify_waiters();
                None
            }
            StreamEvent::Available { dir } => {
                wake.available[index(dir)].notify_waiters();
                None
            }
            StreamEvent::Readable { id } => self.readers.remove(&id),
            StreamEvent::Writable { id } => self.writers.remove(&id),
            StreamEvent::Finished { id } => self.finishing.remove(&id),
            StreamEvent::Stopped { id, .. } => {
                self.wakers.extend(self.finishing.remove(&id));
                self.writers.remove(&id)
            }
        };
        self.wakers.extend(woken);
    }

    fn on_path_event(&mut self, wake: &Wake, event: PathEvent, now: Instant) {
        tracing::debug!(?event, "path");
        if let Some(plan) = &mut self.plan {
            plan.on_event(&event, now);
        }
        if let Some(listeners) = &self.path_events {
            // An error means that nobody listens any more.
            let _ = listeners.send(event);
        }
        wake.connection.notify_waiters();
    }

    /// Tells everyone that the connection is over.
    fn end(&mut self, shared: &Shared, reason: ConnectionError) {
        if self.error.is_some() {
            return;
        }
        tracing::debug!(%reason, "connection ended");
        self.error = Some(reason);
        self.plan = None;
        self.path_events = None;
        self.wake_streams();
        shared.wake.everyone();
    }

    fn wake_streams(&mut self) {
        for waiting in [&mut self.readers, &mut self.writers, &mut self.finishing] {
            self.wakers.extend(mem::take(waiting).into_values());
        }
    }

    /// True if a stream with this flag was opened as 0-RTT in vain.
    pub(crate) fn is_rejected(&self, early: bool) -> bool {
        early && self.core.zero_rtt() == ZeroRtt::Rejected
    }

    /// Sends what is due; true if more is due than fits one turn.
    fn transmit(&mut self, shared: &Shared, now: Instant) -> bool {
        self.resume();
        if self.core.needs_local_queues() {
            self.tell_queues(shared, now);
        }
        let mut train = TRAIN.take();
        let mut more = true;
        for _ in 0..MAX_TRAINS {
            train.clear();
            let max = self.max_datagrams;
            let Some(transmit) = self.core.poll_transmit(now, max, &mut train) else {
                more = false;
                break;
            };
            let Some(socket) = shared.endpoint.socket(transmit.four_tuple.local) else {
                continue; // Its interface is gone; the path plan hears of it on its own.
            };
            self.send(socket, transmit, &train, now);
        }
        TRAIN.set(train);
        more
    }

    /// Sends a train behind what its socket had no room for.
    fn send(&mut self, socket: Arc<Socket>, transmit: Transmit, train: &[u8], now: Instant) {
        let contents = train.get(..transmit.size).unwrap_or(train);
        if self
            .unsent
            .iter()
            .any(|unsent| Arc::ptr_eq(&unsent.socket, &socket))
        {
            return self.keep(socket, transmit, contents);
        }
        match socket.send(&transmit, contents) {
            Sent::All => {}
            Sent::Blocked { from } => {
                let rest = contents.get(from..).unwrap_or_default();
                self.keep(socket, transmit, rest);
            }
            Sent::Unreachable => self.on_unreachable(transmit.path, now),
        }
    }

    /// Tells the scheduler what waits behind each path's socket, if there is news.
    fn tell_queues(&mut self, shared: &Shared, now: Instant) {
        let mut queues = shared.endpoint.send_queues();
        let asked = queues.refresh(now);
        if asked.is_none() || asked == self.queues_told {
            return;
        }
        self.queues_told = asked;
        let paths: SmallVec<[PathId; 8]> = self.core.paths().collect();
        for path in paths {
            let Some(stats) = self.core.path_stats(path) else {
                continue;
            };
            let Some(socket) = shared.endpoint.socket(stats.four_tuple.local) else {
                continue;
            };
            let unsent = self.unsent.iter();
            let unsent = unsent.filter(|unsent| Arc::ptr_eq(&unsent.socket, &socket));
            let unsent: usize = unsent.map(|unsent| unsent.contents.len()).sum();
            let bytes = queues.bytes(socket.local()) + unsent as u64;
            let queue = LocalQueue::new(bytes, None);
            tracing::trace!(path = path.0, bytes = queue.bytes, "local queue");
            // A path that was closed sends nothing more.
            let _ = self.core.set_local_queue(path, Some(queue));
        }
    }

    /// The kernel has no way for a path: its data moves to other paths at once instead of after a
    /// probe timeout.
    fn on_unreachable(&mut self, path: Option<PathId>, now: Instant) {
        let Some(path) = path.filter(|path| self.unreachable.iter().all(|(id, _)| id != path))
        else {
            return;
        };
        if self.core.set_path_usable(now, path, false).is_ok() {
            self.unreachable.push((path, now + UNREACHABLE_REST));
        }
    }

    fn retry_unreachable(&mut self, now: Instant) {
        let core = &mut self.core;
        self.unreachable.retain(|(path, until)| {
            let due = *until <= now;
            if due {
                // Fails only if the path was abandoned meanwhile.
                let _ = core.set_path_usable(now, *path, true);
            }
            !due
        });
    }

    fn keep(&mut self, socket: Arc<Socket>, transmit: Transmit, contents: &[u8]) {
        let same = |unsent: &&Unsent| Arc::ptr_eq(&unsent.socket, &socket);
        if self.unsent.iter().filter(same).count() >= MAX_UNSENT {
            return;
        }
        self.unsent.push_back(Unsent {
            socket,
            transmit,
            contents: contents.to_vec(),
        });
        // The task waits for room in the socket.
        self.wake_task();
    }

    /// Sends what sockets had no room for, in order.
    fn resume(&mut self) {
        let mut blocked: SmallVec<[Arc<Socket>; 2]> = SmallVec::new();
        for _ in 0..self.unsent.len() {
            let Some(mut unsent) = self.unsent.pop_front() else {
                break;
            };
            if blocked
                .iter()
                .any(|socket| Arc::ptr_eq(socket, &unsent.socket))
            {
                self.unsent.push_back(unsent);
                continue;
            }
            if let Sent::Blocked { from } = unsent.socket.send(&unsent.transmit, &unsent.contents) {
                unsent.contents.drain(..from);
                blocked.push(unsent.socket.clone());
                self.unsent.push_back(unsent);
            }
        }
    }
}
