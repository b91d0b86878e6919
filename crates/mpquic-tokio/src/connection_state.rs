//! [`ConnectionState`]: the state of one connection, and the consequences of each change.
//!
//! Received datagrams, calls of the application and the connection's timer change a connection.
//! Each change runs the connection to completion under one lock: passes events to the endpoint and
//! to the application, sends due packets, and sets the timer.
//!
//! A panic of this code ends one connection and spares the others: see
//! [`LockedConnection::contain`].

use std::any::Any;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mpquic_core::config::TransportConfig;
use mpquic_core::{
    ConnectionError, ConnectionHandle, Datagram, Event, PathEvent, StreamEvent, StreamId, VarInt,
    ZeroRtt,
};
use mpquic_paths::Event as PathManagerEvent;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tokio::sync::Notify;
use tracing::Span;

use crate::automatic_paths::AutomaticPaths;
use crate::closed_ports::ClosedPorts;
use crate::departures::Departures;
use crate::ended_paths::EndedPaths;
use crate::endpoint_state::EndpointState;
#[cfg(feature = "metrics")]
use crate::metrics::ConnectionTold;
use crate::notifications::{Awaited, Notifications, Pollers};
use crate::path_events::{Listeners, PathEvents};
use crate::path_spans::PathSpans;
use crate::polling::RoundTrip;
use crate::receive_buffers::{SlabId, SlabsSeen};
use crate::runtime;
use crate::sending::{Next, Sending};

/// From this number of written stream bytes on, the writing call sends the bytes. Fewer bytes wait
/// for the connection's task, which sends several small writes together. The limit keeps a peer
/// from waiting until every one of many tasks has written.
const SEND_AT_ONCE: usize = 16 << 10;
/// The limit like [`SEND_AT_ONCE`] for bytes in DATAGRAMs: the size of the longest train.
const SEND_DATAGRAMS_AT_ONCE: usize = 64 << 10;
/// Longest time for which a client holds its first flight back, so that 0-RTT data shares the
/// flight's datagrams. The flight leaves earlier if the application writes [`SEND_AT_ONCE`] bytes
/// or waits for the peer.
const FIRST_FLIGHT_WAITS: Duration = Duration::from_millis(20);
/// The state of an endpoint with its connections.
pub(crate) type SharedEndpoint = EndpointState<ConnectionState>;

/// A connection, shared by its handles, its streams, its task and the tasks that read sockets.
pub(crate) struct ConnectionState {
    pub(crate) handle: ConnectionHandle,
    pub(crate) endpoint: Arc<SharedEndpoint>,
    pub(crate) notifications: Notifications,
    /// When the connection was made.
    pub(crate) began: Instant,
    /// The span of log messages from running the connection.
    span: Span,
    engine: Mutex<Engine>,
}

/// A datagram or a reset that arrived at a socket for a connection.
pub(crate) enum Arrival {
    /// A datagram, and the slab of memory that holds the datagram.
    Datagram(Datagram, SlabId),
    /// A stateless reset.
    Reset,
}

/// The data behind the lock: the core's connection, the state of sending, the wakers of tasks, the
/// paths and the timer.
pub(crate) struct Engine {
    pub(crate) core: mpquic_core::Connection,
    pub(crate) sending: Sending,
    slabs_seen: SlabsSeen,
    round_trip: RoundTrip,
    /// Why the connection ended.
    pub(crate) error: Option<ConnectionError>,
    /// Set if the core must not run any more: code panicked while the connection ran, or the peer
    /// is unreachable.
    pub(crate) broken: bool,
    pub(crate) closed_ports: ClosedPorts,
    /// Set once the handshake is complete.
    pub(crate) connected: bool,
    /// Tasks that wait for data of a stream.
    pub(crate) readers: FxHashMap<StreamId, Waker>,
    /// Tasks that wait until a stream takes more data.
    pub(crate) writers: FxHashMap<StreamId, Waker>,
    /// Tasks that wait until a stream is stopped or wholly acknowledged.
    pub(crate) finishing: FxHashMap<StreamId, Waker>,
    /// Tasks that poll handles of the connection.
    pub(crate) pollers: Pollers,
    /// The paths that open on their own; `None` on a server, or if the application opens paths.
    pub(crate) paths: Option<Box<AutomaticPaths>>,
    /// Sockets that the endpoint has given up.
    pub(crate) departures: Departures,
    listeners: Listeners,
    path_spans: PathSpans,
    pub(crate) ended_paths: EndedPaths,
    #[cfg(feature = "metrics")]
    told: ConnectionTold,
    timer: Timer,
    /// The connection's task.
    task: Option<Waker>,
    /// True while the task was woken and has not run.
    task_woken: bool,
    /// The connection's task lets other tasks run once before its own turn.
    yields: bool,
    /// The time before which no packet leaves, so that the application's first data shares
    /// datagrams with the first flight.
    held_until: Option<Instant>,
    /// Bytes that the application has written after the latest sending.
    written: usize,
    /// The wakers for after the lock's release, so that no task wakes up only to wait for the lock.
    wakers: SmallVec<[Waker; 2]>,
}

/// The connection's timer. A later deadline leaves the timer alone: the timer expires early once
/// and then takes the new deadline. An early expiry is cheaper than a reset for each packet.
struct Timer {
    sleep: Pin<Box<dyn runtime::Timer>>,
    armed: Option<Instant>,
}

/// The next step of the connection's task.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Lets other tasks run first: the application may want to write data.
    Yield,
    /// Waits: no work is due.
    Done,
    /// Ends, because the connection is drained.
    End,
}

impl ConnectionState {
    /// The state of a new connection of an endpoint. The caller spawns the connection's task and
    /// runs the connection.
    pub(crate) fn new(
        handle: ConnectionHandle,
        core: mpquic_core::Connection,
        endpoint: Arc<SharedEndpoint>,
        transport: &TransportConfig,
        paths: Option<AutomaticPaths>,
    ) -> Self {
        let began = endpoint.now();
        let sleep = endpoint.runtime.timer(began);
        Self {
            handle,
            endpoint,
            notifications: Notifications::default(),
            began,
            span: span(handle, &core),
            engine: Mutex::new(Engine {
                core,
                sending: Sending::new(transport),
                slabs_seen: SlabsSeen::default(),
                round_trip: RoundTrip::default(),
                error: None,
                broken: false,
                closed_ports: ClosedPorts::default(),
                connected: false,
                readers: FxHashMap::default(),
                writers: FxHashMap::default(),
                finishing: FxHashMap::default(),
                pollers: Pollers::default(),
                paths: paths.map(Box::new),
                departures: Departures::default(),
                listeners: Listeners::default(),
                path_spans: PathSpans::default(),
                ended_paths: EndedPaths::default(),
                #[cfg(feature = "metrics")]
                told: ConnectionTold::default(),
                timer: Timer { sleep, armed: None },
                task: None,
                task_woken: false,
                yields: false,
                held_until: None,
                written: 0,
                wakers: SmallVec::new(),
            }),
        }
    }

    /// Exclusive access for the tasks that run the connection. Hold the lock briefly, and never
    /// across an `await`.
    pub(crate) fn lock(&self) -> LockedConnection<'_> {
        let guard = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        LockedConnection {
            guard: Some(guard),
            connection: self,
            is_call: false,
            was_panicking: thread::panicking(),
        }
    }

    /// Exclusive access for a call of the application. If the call leaves control frames of streams
    /// for the peer, the connection's task runs soon.
    pub(crate) fn lock_for_call(&self) -> LockedConnection<'_> {
        let mut locked = self.lock();
        locked.is_call = true;
        locked
    }

    /// Calls `attempt` now and after each notification of `notify`, until `attempt` has a result.
    /// If the first attempt has none, the application waits for the peer, and a held first flight
    /// leaves.
    pub(crate) async fn until<T>(
        &self,
        notify: &Notify,
        mut attempt: impl FnMut(&mut LockedConnection<'_>) -> Option<T>,
    ) -> T {
        {
            let mut engine = self.lock_for_call();
            if let Some(result) = attempt(&mut engine) {
                return result;
            }
            engine.on_waits();
        }
        self.again(notify, attempt).await
    }

    /// Like [`Self::until`], but keeps a held first flight back: callers may still write before the
    /// handshake ends.
    pub(crate) async fn until_told<T>(
        &self,
        notify: &Notify,
        mut attempt: impl FnMut(&mut LockedConnection<'_>) -> Option<T>,
    ) -> T {
        if let Some(result) = attempt(&mut self.lock_for_call()) {
            return result;
        }
        self.again(notify, attempt).await
    }

    async fn again<T>(
        &self,
        notify: &Notify,
        mut attempt: impl FnMut(&mut LockedConnection<'_>) -> Option<T>,
    ) -> T {
        loop {
            // Is made before the attempt, so that no notification between the attempt and the wait
            // is lost.
            let notified = notify.notified();
            if let Some(result) = attempt(&mut self.lock_for_call()) {
                return result;
            }
            notified.await;
        }
    }

    /// Ends the connection from our side, as the application's `close` does.
    pub(crate) fn close(&self, error_code: VarInt, reason: Bytes) {
        let mut engine = self.lock();
        let now = self.endpoint.now();
        if engine.error.is_none() {
            engine.contain(|engine| {
                engine.note_ways(now);
                engine.core.close(now, error_code, reason);
            });
            engine.end(&self.notifications, ConnectionError::LocallyClosed);
            engine.run(now);
        }
    }

    /// Ends a client's connection to a silent server, with the error that the handshake took too
    /// long.
    pub(crate) fn give_up(&self) {
        let mut engine = self.lock();
        if engine.error.is_none() {
            engine.broken = true;
            engine.end(&self.notifications, ConnectionError::HandshakeTimedOut);
            engine.wake_task(); // The task ends.
        }
    }

    /// Gives the peer new connection IDs, and asks the peer to retire the old ones.
    pub(crate) fn replace_connection_ids(&self) {
        let replace = |engine: &mut LockedConnection<'_>| {
            engine.core.replace_connection_ids();
            engine.wake_task();
        };
        self.lock().contain(replace);
    }
}

/// The span of a connection: `connection` at the level of debug messages.
fn span(handle: ConnectionHandle, core: &mpquic_core::Connection) -> Span {
    tracing::debug_span!("connection", id = handle.0, side = ?core.side())
}

/// Exclusive access to a connection. The drop wakes the tasks of changed streams and events.
pub(crate) struct LockedConnection<'a> {
    guard: Option<MutexGuard<'a, Engine>>,
    pub(crate) connection: &'a ConnectionState,
    /// Set for a call of the application: no other code sends the result of the call.
    is_call: bool,
    /// The thread was unwinding before it took the lock, from a panic of other code.
    was_panicking: bool,
}

impl Deref for LockedConnection<'_> {
    type Target = Engine;
    fn deref(&self) -> &Engine {
        match &self.guard {
            Some(guard) => guard,
            None => unreachable!("the guard is only taken on drop"),
        }
    }
}

impl DerefMut for LockedConnection<'_> {
    fn deref_mut(&mut self) -> &mut Engine {
        match &mut self.guard {
            Some(guard) => guard,
            None => unreachable!("the guard is only taken on drop"),
        }
    }
}

impl Drop for LockedConnection<'_> {
    fn drop(&mut self) {
        if thread::panicking() && !self.was_panicking {
            self.on_panic("in a call of the application");
        }
        if self.is_call && !self.task_woken && self.error.is_none() {
            self.wake_for_control();
        }
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

impl LockedConnection<'_> {
    /// The time now.
    pub(crate) fn now(&self) -> Instant {
        self.connection.endpoint.now()
    }

    /// Runs a new client connection for the first time. A first flight with an offer of 0-RTT
    /// leaves after the application's turn: see [`Self::on_waits`].
    pub(crate) fn begin(&mut self, now: Instant) {
        if self.core.zero_rtt() == ZeroRtt::Offered {
            self.held_until = Some(now + FIRST_FLIGHT_WAITS);
        }
        self.run(now);
    }

    /// The application waits for the peer, so the application has written all its early data.
    pub(crate) fn on_waits(&mut self) {
        if self.held_until.take().is_some() {
            self.run(self.now());
        }
    }

    /// The application waits for the end of the handshake. A held first flight leaves if the
    /// application has written data. Without data the flight stays held, because some applications
    /// wait before their first write.
    pub(crate) fn on_waits_for_handshake(&mut self) {
        if self.written > 0 {
            self.on_waits();
        }
    }

    /// Runs the connection. Must be called after every change that may produce packets or events.
    pub(crate) fn run(&mut self, now: Instant) {
        self.contain(|engine| {
            engine.prepare(now);
            engine.flush(now);
        });
    }

    /// Handles received datagrams. Returns true if the caller has to call [`Self::answer`] soon.
    pub(crate) fn receive(&mut self, now: Instant, arrived: impl Iterator<Item = Arrival>) -> bool {
        let answers = self.contain(|locked| {
            let engine = &mut **locked;
            for arrival in arrived {
                match arrival {
                    Arrival::Datagram(datagram, slab) => {
                        engine.slabs_seen.on_received(slab);
                        engine.core.handle_datagram(datagram);
                    }
                    Arrival::Reset => engine.core.handle_stateless_reset(now),
                }
            }
            if engine.slabs_seen.take_copies_due() {
                engine.core.streams().detach_waiting();
                engine.core.datagrams().detach_waiting();
            }
            locked.received(now)
        });
        answers.unwrap_or(false)
    }

    /// The shortest round trip of the paths, measured now and then; `None` during the handshake.
    pub(crate) fn shortest_round_trip(&mut self, now: Instant) -> Option<Duration> {
        let engine = &mut **self;
        (engine.connected && !engine.broken).then(|| engine.round_trip.get(now, &engine.core))
    }

    /// Sends due packets after received datagrams, unless the application runs first: the datagrams
    /// completed the handshake, and the application may have data for the same packets.
    pub(crate) fn answer(&mut self, now: Instant) {
        if !self.yields {
            self.contain(|engine| engine.flush(now));
        }
    }

    /// Runs code of the core that may panic. A panic ends this connection and spares the others; a
    /// broken connection returns `None`.
    pub(crate) fn contain<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.broken {
            return None;
        }
        let _entered = self.connection.span.enter();
        // The core never runs again after a panic, so a broken state does not matter.
        match catch_unwind(AssertUnwindSafe(|| run(self))) {
            Ok(result) => Some(result),
            Err(panic) => {
                self.on_panic(message_of(&*panic));
                None
            }
        }
    }

    /// Ends the connection without a packet to the peer: after a panic half-way, the core might
    /// repeat a packet number. The peer's next packet gets a stateless reset.
    #[cold]
    fn on_panic(&mut self, message: &str) {
        let connection = self.connection;
        if mem::replace(&mut self.broken, true) {
            return;
        }
        tracing::error!(
            connection = connection.handle.0,
            message,
            "panicked, closed"
        );
        self.end(&connection.notifications, ConnectionError::Panicked);
        self.wake_task(); // The task ends.
        connection
            .endpoint
            .lock()
            .on_panic(connection.handle, connection);
    }

    /// Announces the endpoint's current addresses.
    pub(crate) fn announce_addresses(&mut self) {
        let connection = self.connection;
        self.contain(|engine| {
            let announced = connection.endpoint.lock().announced.clone();
            // Fails for connections of a client, and for ended connections.
            let _ = engine.core.announce_addresses(&announced);
            engine.wake_task();
        });
    }

    /// Passes on the events of arrived datagrams. Returns false if the datagrams completed the
    /// handshake: then the application runs before the next packet leaves, so that its first data
    /// shares datagrams with the end of the handshake.
    fn received(&mut self, now: Instant) -> bool {
        let was_connected = self.connected;
        self.prepare(now);
        let completed = self.connected && !was_connected;
        if completed {
            self.arm();
            self.yields = true;
            self.wake_task();
        }
        !completed
    }

    /// The application wrote `bytes` to a stream: sends at once if the written bytes fill
    /// datagrams, or soon otherwise.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.send_from(SEND_AT_ONCE, bytes);
    }

    /// The application wrote a DATAGRAM of `bytes`: sends at once if the written bytes fill a
    /// train, or soon otherwise.
    pub(crate) fn wrote_datagram(&mut self, bytes: usize) {
        self.send_from(SEND_DATAGRAMS_AT_ONCE, bytes);
    }

    fn send_from(&mut self, enough: usize, bytes: usize) {
        self.written += bytes;
        if self.written >= enough {
            self.held_until = None;
            self.run(self.now());
        } else {
            self.wake_task();
        }
    }

    /// A turn of the connection's task. Runs the connection if `is_due`, after an expired timer, or
    /// for a woken task.
    pub(crate) fn take_turn(&mut self, cx: &mut Context<'_>, is_due: bool) -> Turn {
        let turn = self.contain(|engine| engine.turn(cx, is_due));
        turn.unwrap_or(Turn::End)
    }

    fn turn(&mut self, cx: &mut Context<'_>, is_due: bool) -> Turn {
        let task = self.task.as_ref();
        if !task.is_some_and(|task| task.will_wake(cx.waker())) {
            self.task = Some(cx.waker().clone());
        }
        if mem::take(&mut self.yields) {
            return Turn::Yield;
        }
        let mut is_due = mem::take(&mut self.task_woken) || is_due;
        loop {
            let timer = &mut self.timer;
            if timer.armed.is_some()
                && let Poll::Ready(()) = timer.sleep.as_mut().poll(cx)
            {
                timer.armed = None;
                is_due = true;
            }
            if !is_due {
                break;
            }
            is_due = false;
            let now = self.now();
            if self.deadline().is_some_and(|deadline| deadline <= now) {
                self.core.handle_timeout(now);
            }
            self.prepare(now);
            self.flush(now);
        }
        if self.core.is_drained() {
            Turn::End
        } else {
            Turn::Done
        }
    }

    /// Passes the core's events to the application and the endpoint.
    fn prepare(&mut self, now: Instant) {
        let connection = self.connection;
        let engine = &mut **self;
        engine.sending.retry_unreachable(&mut engine.core, now);
        engine.take_events(&connection.notifications, now);
        engine.tell_endpoint(connection);
    }

    /// Sends due packets, unless the first flight is held, and sets the timer.
    fn flush(&mut self, now: Instant) {
        if self.held_until.is_some_and(|until| now < until) {
            return self.arm();
        }
        let connection = self.connection;
        let engine = &mut **self;
        engine.held_until = None;
        engine.written = 0;
        let sockets = &connection.endpoint.sockets;
        let managed = engine.paths.as_ref().map(|paths| &paths.managed);
        let from = (sockets, managed);
        let next = engine.sending.transmit(&mut engine.core, from, now);
        engine.tell_endpoint(connection);
        engine.take_events(&connection.notifications, now);
        engine.arm();
        if next == Next::More {
            engine.wake_task();
        }
    }
}

impl Engine {
    /// Tells the recorder of metrics about changed counters, with `samples` also about the present
    /// state of paths.
    #[cfg(feature = "metrics")]
    pub(crate) fn tell_metrics(&mut self, samples: bool) {
        self.told.tell(&self.core, samples);
    }

    /// A subscription to path events, from now on.
    pub(crate) fn subscribe(&mut self) -> PathEvents {
        self.listeners.subscribe()
    }

    /// Makes the connection's task run soon if streams have control frames for the peer: credit,
    /// resets, stops.
    fn wake_for_control(&mut self) {
        if self.core.streams().wants_control() {
            self.wake_task();
        }
    }

    /// Makes the connection's task run soon.
    pub(crate) fn wake_task(&mut self) {
        if !mem::replace(&mut self.task_woken, true)
            && let Some(task) = &self.task
        {
            self.wakers.push(task.clone());
        }
    }

    /// When the connection has to run next.
    fn deadline(&self) -> Option<Instant> {
        let core = self.core.poll_timeout().map(|(at, _)| at);
        let paths = self.paths.as_deref();
        let paths = paths.and_then(|paths| paths.managed.next_timeout());
        let sending = self.sending.next_timeout();
        let all = core.into_iter().chain(paths).chain(sending);
        all.chain(self.held_until).min()
    }

    /// Sets the timer for the next deadline, if the deadline is earlier than the timer.
    fn arm(&mut self) {
        let Some(deadline) = self.deadline() else {
            return;
        };
        if self.timer.armed.is_none_or(|armed| deadline < armed) {
            self.timer.armed = Some(deadline);
            self.timer.sleep.as_mut().reset(deadline);
        }
    }

    fn tell_endpoint(&mut self, connection: &ConnectionState) {
        let Some(first) = self.core.poll_endpoint_event() else {
            return;
        };
        // Every task that needs both locks takes the connection's lock first, then the endpoint's.
        let mut registry = connection.endpoint.lock();
        let mut next = Some(first);
        while let Some(event) = next {
            registry.handle_event(connection.handle, event);
            next = self.core.poll_endpoint_event();
        }
    }

    fn take_events(&mut self, notifications: &Notifications, now: Instant) {
        while let Some(event) = self.core.poll() {
            match event {
                Event::HandshakeDataReady => notifications.connection.notify_waiters(),
                Event::Connected { .. } => {
                    self.connected = true;
                    notifications.connection.notify_waiters();
                    self.tell_path_manager(&PathManagerEvent::Connected, now);
                    if self.core.zero_rtt() == ZeroRtt::Rejected {
                        self.wake_streams();
                    }
                }
                Event::HandshakeConfirmed => notifications.connection.notify_waiters(),
                Event::ConnectionLost { reason } => {
                    self.note_ways(now);
                    self.end(notifications, reason);
                }
                Event::Stream(event) => self.on_stream_event(notifications, event),
                Event::DatagramReceived => {
                    notifications.datagram_received.notify_waiters();
                    self.wake_pollers(Awaited::DatagramReceived);
                }
                Event::DatagramsUnblocked => notifications.datagrams_unblocked.notify_waiters(),
                Event::Path(event) => self.on_path_event(notifications, event, now),
                _ => {}
            }
        }
        self.manage_paths(now);
    }

    /// Moves paths off the sockets that the endpoint has given up, as far as possible, and gives
    /// the path manager its turn.
    pub(crate) fn manage_paths(&mut self, now: Instant) {
        let managed = self.paths.as_mut().map(|paths| &mut paths.managed);
        if !self.departures.is_empty() {
            self.departures.follow(&mut self.core, managed, now);
        } else if let Some(managed) = managed {
            managed.run(&mut self.core, now, |_| false);
        }
    }

    /// Tells the path manager of an event.
    pub(crate) fn tell_path_manager(&mut self, event: &PathManagerEvent<'_>, now: Instant) {
        if let Some(paths) = &mut self.paths {
            paths.managed.on_event(event, &self.core, now);
        }
    }

    /// Saves the paths' round-trip times for later connections.
    fn note_ways(&self, now: Instant) {
        if let Some(paths) = &self.paths {
            paths.on_end(&self.core, now);
        }
    }

    fn on_stream_event(&mut self, notifications: &Notifications, event: StreamEvent) {
        let woken = match event {
            StreamEvent::Opened { dir } => {
                notifications.opened(dir).notify_waiters();
                self.wake_pollers(Awaited::Opened(dir));
                None
            }
            StreamEvent::Available { dir } => {
                notifications.available(dir).notify_waiters();
                self.wake_pollers(Awaited::Available(dir));
                None
            }
            StreamEvent::Readable { id } => self.readers.remove(&id),
            StreamEvent::Writable { id } => self.writers.remove(&id),
            StreamEvent::Finished { id } | StreamEvent::ResetReceived { id } => {
                self.finishing.remove(&id)
            }
            StreamEvent::Stopped { id, .. } | StreamEvent::Expired { id } => {
                self.wakers.extend(self.finishing.remove(&id));
                self.writers.remove(&id)
            }
            _ => None,
        };
        self.wakers.extend(woken);
    }

    fn on_path_event(&mut self, notifications: &Notifications, event: PathEvent, now: Instant) {
        self.path_spans.show(&event, &self.core);
        self.ended_paths.on_event(&event);
        #[cfg(feature = "metrics")]
        if let PathEvent::Discarded(last) = &event {
            self.told.discarded(last);
        }
        self.tell_path_manager(&PathManagerEvent::Path(&event), now);
        self.wakers.extend(self.listeners.tell(&event));
        notifications.connection.notify_waiters();
    }

    /// Stores the reason of the connection's end, and wakes every task that waits for the
    /// connection.
    pub(crate) fn end(&mut self, notifications: &Notifications, reason: ConnectionError) {
        if self.error.is_some() {
            return;
        }
        tracing::debug!(%reason, "connection ended");
        self.error = Some(reason);
        self.held_until = None;
        self.paths = None;
        self.wakers.extend(self.listeners.end());
        self.wake_streams();
        self.wakers.extend(self.pollers.take_all());
        notifications.notify_everyone();
    }

    fn wake_pollers(&mut self, awaited: Awaited) {
        self.wakers.extend(self.pollers.take(awaited));
    }

    fn wake_streams(&mut self) {
        for waiting in [&mut self.readers, &mut self.writers, &mut self.finishing] {
            self.wakers.extend(mem::take(waiting).into_values());
        }
    }

    /// The error of a broken connection, whose core must not run any more; `None` for other
    /// connections.
    pub(crate) fn broken(&self) -> Option<ConnectionError> {
        let error = || self.error.clone().unwrap_or(ConnectionError::Panicked);
        self.broken.then(error)
    }

    /// True if the server rejected 0-RTT and the flag marks a stream opened as 0-RTT.
    pub(crate) fn is_rejected(&self, as_zero_rtt: bool) -> bool {
        as_zero_rtt && self.core.zero_rtt() == ZeroRtt::Rejected
    }
}

/// The message of a panic.
pub(crate) fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message")
}
