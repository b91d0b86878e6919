//! [`EndpointState`]: the state that the handles and the tasks of an endpoint share.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use mpquic_core::{ConnectionHandle, EndpointEvent, Incoming, ServerAddress, Transmit, VarInt};
use tokio::sync::Notify;

use crate::config::ClientConfig;
use crate::icmp_listeners::IcmpListeners;
#[cfg(feature = "metrics")]
use crate::metrics::EndpointTold;
use crate::runtime::Runtime;
use crate::socket::NoSending;
use crate::sockets::Sockets;

/// While sockets have more to read than a batch, an attempt waits for this number of batches: 128
/// messages of connections are read before a TLS handshake begins.
const BATCHES_BEFORE_ATTEMPT: u32 = 16;

/// The state that the handles and tasks of an endpoint share. `C` is the state of a connection: a
/// parameter, because the connection's type names `EndpointState`.
pub(crate) struct EndpointState<C> {
    registry: Mutex<Registry<C>>,
    /// Runs the endpoint's tasks, and tells the time.
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) sockets: Sockets,
    /// Bytes allocated to receive into, so far.
    pub(crate) receive_memory: AtomicU64,
    /// Notified of an attempt for [`Registry::next_attempt`], or of the end of attempts.
    pub(crate) attempts: Notify,
    /// Notified when no connection is left.
    pub(crate) idle: Notify,
    /// Notified after the end of the last handle and the last connection.
    #[cfg(feature = "interfaces")]
    pub(crate) over: Notify,
    #[cfg(feature = "metrics")]
    pub(crate) told: Mutex<EndpointTold>,
}

impl<C> EndpointState<C> {
    pub(crate) fn new(
        core: mpquic_core::Endpoint,
        default_client: Option<ClientConfig>,
        socket_buffer: usize,
        runtime: Arc<dyn Runtime>,
    ) -> Self {
        Self {
            registry: Mutex::new(Registry {
                core,
                connections: Vec::new(),
                open: 0,
                starting: 0,
                attempts: VecDeque::new(),
                unread: 0,
                batches: 0,
                default_client,
                closed: None,
                handles_gone: false,
                became_idle: false,
                panicked: 0,
                receive_memory: 0,
                announced: Arc::new([]),
                icmp_listeners: IcmpListeners::default(),
            }),
            sockets: Sockets::new(runtime.clone(), socket_buffer),
            runtime,
            receive_memory: AtomicU64::new(0),
            attempts: Notify::new(),
            idle: Notify::new(),
            #[cfg(feature = "interfaces")]
            over: Notify::new(),
            #[cfg(feature = "metrics")]
            told: Mutex::default(),
        }
    }

    /// The time now.
    pub(crate) fn now(&self) -> Instant {
        self.runtime.now()
    }

    /// Exclusive access. Every task needs the lock to route datagrams, so hold the lock briefly: no
    /// cryptography of connections, and no call to the kernel. To lock both, lock the connection
    /// first.
    pub(crate) fn lock(&self) -> LockedRegistry<'_, C> {
        LockedRegistry {
            guard: self.registry.lock().unwrap_or_else(PoisonError::into_inner),
            endpoint: self,
            _no_sending: NoSending::new(),
        }
    }

    /// Sends a datagram that belongs to no connection.
    pub(crate) fn respond(&self, transmit: &Transmit, contents: &[u8]) {
        if let Some(socket) = self.sockets.owner(transmit.four_tuple.local) {
            socket.send(transmit, contents.get(..transmit.size).unwrap_or(contents));
        }
    }

    /// The last handle was dropped: sockets and tasks end with the last connection.
    pub(crate) fn on_handles_gone(&self) {
        let mut registry = self.lock();
        registry.handles_gone = true;
        for (_, incoming) in std::mem::take(&mut registry.attempts) {
            registry.core.ignore(incoming);
        }
        registry.became_idle = registry.is_idle();
    }
}

impl<C> fmt::Debug for EndpointState<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("local_addrs", &self.sockets.addresses())
            .finish_non_exhaustive()
    }
}

/// The data behind the endpoint's lock: its connections, and the attempts to connect.
pub(crate) struct Registry<C> {
    pub(crate) core: mpquic_core::Endpoint,
    /// Indexed by handle.
    connections: Vec<Option<Arc<C>>>,
    open: usize,
    /// Connections that start and are not in `connections` yet.
    starting: usize,
    /// Connection attempts that wait for the application, and the times of their arrival.
    attempts: VecDeque<(Instant, Incoming)>,
    /// Number of sockets that may have more to read at once.
    unread: usize,
    /// Batches read after the last attempt was taken.
    batches: u32,
    pub(crate) default_client: Option<ClientConfig>,
    /// Set once the application closed the endpoint.
    closed: Option<(VarInt, Bytes)>,
    handles_gone: bool,
    /// Set if [`EndpointState::idle`] has to be notified.
    became_idle: bool,
    /// Number of connections that panics have ended.
    panicked: u64,
    /// Bytes of memory that sockets hold to receive into.
    receive_memory: u64,
    /// The further addresses that the endpoint's connections announce.
    pub(crate) announced: Arc<[ServerAddress]>,
    pub(crate) icmp_listeners: IcmpListeners,
}

impl<C> Registry<C> {
    pub(crate) fn insert(&mut self, handle: ConnectionHandle, connection: Arc<C>) {
        let index = handle.0;
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, || None);
        }
        if let Some(slot) = self.connections.get_mut(index) {
            *slot = Some(connection);
            self.open += 1;
        }
    }

    /// The connection with this handle.
    pub(crate) fn connection(&self, handle: ConnectionHandle) -> Option<&Arc<C>> {
        self.connections.get(handle.0)?.as_ref()
    }

    /// All connections.
    pub(crate) fn connections(&self) -> Vec<Arc<C>> {
        self.connections.iter().flatten().cloned().collect()
    }

    /// The connections that hear of an ICMP message about a datagram to this address.
    pub(crate) fn that_hear_of(&self, remote: SocketAddr) -> Vec<Arc<C>> {
        let known = |handle: &ConnectionHandle| self.connection(*handle).cloned();
        match self.icmp_listeners.of(remote) {
            Some(listeners) => listeners.iter().filter_map(known).collect(),
            None => self.connections(),
        }
    }

    /// Number of connections that have not ended yet.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Handles a message of a connection to its endpoint.
    pub(crate) fn handle_event(&mut self, handle: ConnectionHandle, event: EndpointEvent) {
        if event.is_drained() {
            self.remove(handle);
        }
        self.core.handle_event(handle, event);
    }

    /// Drops a connection without a task.
    pub(crate) fn forget(&mut self, handle: ConnectionHandle, connection: &C) {
        let known = self.connection(handle);
        if known.is_some_and(|known| std::ptr::eq(&**known, connection)) {
            self.handle_event(handle, EndpointEvent::drained());
        }
    }

    /// Drops a connection after a panic in its code.
    pub(crate) fn on_panic(&mut self, handle: ConnectionHandle, connection: &C) {
        self.panicked += 1;
        self.forget(handle, connection);
    }

    /// An attempt panicked while a task accepted the attempt. The core's endpoint forgets the
    /// attempt on its own.
    pub(crate) fn on_panicked_start(&mut self) {
        self.panicked += 1;
    }

    /// Number of connections that panics have ended.
    pub(crate) fn panicked(&self) -> u64 {
        self.panicked
    }

    /// A socket holds `held` bytes of memory to receive into, instead of the `before` bytes of its
    /// last report.
    pub(crate) fn set_receive_memory(&mut self, before: u64, held: u64) {
        self.receive_memory = self.receive_memory - before + held;
        self.core.set_buffer_memory(self.receive_memory);
    }

    /// Bytes of memory that sockets hold to receive into.
    pub(crate) fn receive_memory(&self) -> u64 {
        self.receive_memory
    }

    fn remove(&mut self, handle: ConnectionHandle) {
        if let Some(slot) = self.connections.get_mut(handle.0)
            && slot.take().is_some()
        {
            self.open -= 1;
            self.became_idle = self.is_idle();
        }
    }

    /// A connection starts: the endpoint is not idle before [`Self::end_start`].
    pub(crate) fn begin_start(&mut self) {
        self.starting += 1;
    }

    /// Ends the start that [`Self::begin_start`] began: the connection is in the list now, or the
    /// start failed.
    pub(crate) fn end_start(&mut self) {
        self.starting -= 1;
        self.became_idle = self.is_idle();
    }

    /// True if there is no connection.
    pub(crate) fn is_idle(&self) -> bool {
        self.open == 0 && self.starting == 0
    }

    /// Accepts no further attempts, and refuses waiting attempts: returns the answers to send.
    pub(crate) fn close(&mut self, error_code: VarInt, reason: Bytes) -> Vec<(Transmit, Vec<u8>)> {
        self.closed = Some((error_code, reason));
        self.core.set_server_config(None);
        let waiting = std::iter::from_fn(|| self.next_attempt()).collect::<Vec<_>>();
        let refuse = |incoming| {
            let mut response = Vec::new();
            let transmit = self.core.refuse(incoming, &mut response)?;
            Some((transmit, response))
        };
        waiting.into_iter().filter_map(refuse).collect()
    }

    /// Code and reason of the application's close of the endpoint.
    pub(crate) fn closed(&self) -> Option<&(VarInt, Bytes)> {
        self.closed.as_ref()
    }

    /// Keeps an attempt for the application. Without an application to take the attempt, refuses
    /// the attempt, and `response` holds the answer.
    pub(crate) fn on_attempt(
        &mut self,
        now: Instant,
        incoming: Incoming,
        response: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if self.closed.is_some() || self.handles_gone {
            return self.core.refuse(incoming, response);
        }
        self.drop_forgotten();
        self.attempts.push_back((now, incoming));
        None
    }

    /// Before datagrams are routed: tells the core how long attempts wait.
    pub(crate) fn tell_lag(&mut self, now: Instant) {
        let oldest = self.attempts.front();
        let lag = oldest.map(|(since, _)| now.saturating_duration_since(*since));
        self.core.set_lag(lag.unwrap_or_default());
    }

    /// A socket has read a batch. `was_unread` and `is_unread` say whether more datagrams waited
    /// before the batch, and wait after the batch.
    pub(crate) fn on_batch(&mut self, was_unread: bool, is_unread: bool) {
        self.unread = self.unread + usize::from(is_unread) - usize::from(was_unread);
        self.batches = self.batches.saturating_add(1);
    }

    /// True if an attempt may be accepted now; datagrams of connections come first.
    pub(crate) fn is_turn_of_attempts(&self) -> bool {
        self.unread == 0 || self.batches >= BATCHES_BEFORE_ATTEMPT
    }

    /// Takes the oldest attempt whose client still waits.
    pub(crate) fn next_attempt(&mut self) -> Option<Incoming> {
        self.drop_forgotten();
        self.batches = 0;
        self.attempts.pop_front().map(|(_, incoming)| incoming)
    }

    /// Drops attempts that the core has forgotten, so that the queue keeps to the core's limit.
    fn drop_forgotten(&mut self) {
        // The core forgets the oldest attempts first.
        while let Some((_, oldest)) = self.attempts.front()
            && !self.core.is_waiting(oldest)
        {
            self.attempts.pop_front();
        }
    }

    /// True if attempts wait.
    pub(crate) fn has_attempts(&self) -> bool {
        !self.attempts.is_empty()
    }
}

/// Exclusive access to an endpoint's connections. The drop notifies the tasks that wait for the end
/// of the last connection.
pub(crate) struct LockedRegistry<'a, C> {
    guard: MutexGuard<'a, Registry<C>>,
    endpoint: &'a EndpointState<C>,
    _no_sending: NoSending,
}

impl<C> Deref for LockedRegistry<'_, C> {
    type Target = Registry<C>;
    fn deref(&self) -> &Registry<C> {
        &self.guard
    }
}

impl<C> DerefMut for LockedRegistry<'_, C> {
    fn deref_mut(&mut self) -> &mut Registry<C> {
        &mut self.guard
    }
}

impl<C> Drop for LockedRegistry<'_, C> {
    fn drop(&mut self) {
        if std::mem::take(&mut self.guard.became_idle) {
            self.endpoint.idle.notify_waiters();
            if self.guard.handles_gone {
                #[cfg(feature = "interfaces")]
                self.endpoint.over.notify_one();
                self.endpoint.sockets.remove(|_| true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use bytes::BytesMut;
    use mpquic_core::config::EndpointConfig;
    use mpquic_core::{DatagramEvent, FourTuple};

    use super::*;
    use crate::config::ServerConfig;
    use crate::runtime::TokioRuntime;

    type TestResult = Result<(), Box<dyn std::error::Error>>;

    /// The first datagram of a new client each time.
    fn first_datagram(
        client: &mut mpquic_core::Endpoint,
        now: std::time::Instant,
    ) -> Option<BytesMut> {
        let config = ClientConfig::dangerous_insecure(&[b"test"]).ok()?;
        let four_tuple = FourTuple::new(address(1), address(2));
        let connected = client.connect(now, config.core, four_tuple, "localhost");
        let (_, mut connection) = connected.ok()?;
        let mut datagram = Vec::new();
        connection.poll_transmit(now, 1, &mut datagram)?;
        Some(BytesMut::from(&datagram[..]))
    }

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn endpoint(
        server: Option<Arc<mpquic_core::config::ServerConfig>>,
        key: u8,
    ) -> mpquic_core::Endpoint {
        let config = EndpointConfig::new([key; 32]);
        mpquic_core::Endpoint::new(Arc::new(config), server, [key; 32])
    }

    /// The state of an endpoint without connections.
    fn state(core: mpquic_core::Endpoint) -> EndpointState<()> {
        EndpointState::new(core, None, 0, Arc::new(TokioRuntime))
    }

    /// Sockets with endless datagrams do not keep attempts out for ever.
    #[test]
    fn attempts_have_a_turn_after_sixteen_batches() -> TestResult {
        let state = state(endpoint(None, 1));
        let mut registry = state.lock();
        assert!(registry.is_turn_of_attempts());
        registry.on_batch(false, true);
        for batches in 1..=20 {
            assert_eq!(registry.is_turn_of_attempts(), batches >= 16, "{batches}");
            registry.on_batch(true, true);
        }
        registry.next_attempt();
        for batches in 0..=16 {
            assert_eq!(registry.is_turn_of_attempts(), batches == 16, "{batches}");
            registry.on_batch(true, true);
        }
        registry.next_attempt();
        registry.on_batch(true, false);
        assert!(registry.is_turn_of_attempts(), "nothing is left to read");
        Ok(())
    }

    /// The task of a drained connection may end after the next connection has got its handle.
    #[test]
    fn late_end_of_a_task_leaves_the_next_connection_alone() {
        let state = state(endpoint(None, 1));
        let mut registry = state.lock();
        let handle = ConnectionHandle(0);
        let [drained, next] = [(), ()].map(Arc::new);
        registry.insert(handle, drained.clone());
        registry.handle_event(handle, EndpointEvent::drained());
        registry.insert(handle, next.clone());
        registry.forget(handle, &drained);
        assert_eq!(registry.open(), 1);
        registry.forget(handle, &next);
        assert_eq!(registry.open(), 0);
    }

    /// While the application takes no attempt for minutes, old attempts make room for new attempts.
    #[test]
    fn attempts_nobody_takes_are_bounded() -> TestResult {
        const MOST: usize = 5;
        let (config, _) = ServerConfig::self_signed(&["localhost"], &[b"test"])?;
        let server = config.max_incoming(MOST).checked()?;
        let mut client = endpoint(None, 1);
        let state = state(endpoint(Some(server), 2));
        let mut registry = state.lock();
        let mut response = Vec::new();
        let mut now = TokioRuntime.now();
        let mut arrived = 0;
        let four_tuple = FourTuple::new(address(2), address(1));
        for second in 0..240 {
            let data = first_datagram(&mut client, now).ok_or("no datagram")?;
            let event = registry
                .core
                .handle_datagram(now, four_tuple, None, data, &mut response);
            if let Some(DatagramEvent::NewConnection(incoming)) = event {
                assert!(registry.on_attempt(now, incoming, &mut response).is_none());
                arrived += 1;
            }
            assert!(registry.attempts.len() <= MOST, "after {second} s");
            now += Duration::from_secs(1);
        }
        assert!(arrived > 5 * MOST, "{arrived} came");
        // The clients of the remaining attempts may still wait.
        assert!(registry.next_attempt().is_some());
        assert_eq!(registry.attempts.len(), MOST - 1);
        // After a while the core forgets the remaining attempts too; the core notices with the next
        // client, even if the client's datagram is dropped.
        now += Duration::from_secs(300);
        let mut stray = first_datagram(&mut client, now).ok_or("no datagram")?;
        stray.truncate(100);
        let core = &mut registry.core;
        let event = core.handle_datagram(now, four_tuple, None, stray, &mut response);
        assert!(event.is_none());
        assert!(registry.next_attempt().is_none());
        Ok(())
    }

    /// The core learns from the wait of the oldest attempt how far the driver lags behind.
    #[test]
    fn the_core_is_told_how_long_the_oldest_attempt_waits() -> TestResult {
        let lag = Duration::from_millis(500);
        let (config, _) = ServerConfig::self_signed(&["localhost"], &[b"test"])?;
        // The server asks clients for proofs only from the third attempt on.
        let server = config
            .max_attempt_lag(lag)
            .retry_attempt_lag(lag)
            .retry_min_half_open(2)
            .checked()?;
        let mut client = endpoint(None, 1);
        let state = state(endpoint(Some(server), 2));
        let mut registry = state.lock();
        let mut response = Vec::new();
        let start = TokioRuntime.now();
        let four_tuple = FourTuple::new(address(2), address(1));
        let mut arrive = |registry: &mut super::LockedRegistry<'_, ()>, now| {
            registry.tell_lag(now);
            let data = first_datagram(&mut client, now)?;
            let core = &mut registry.core;
            let event = core.handle_datagram(now, four_tuple, None, data, &mut response);
            if let Some(DatagramEvent::NewConnection(incoming)) = event {
                registry.on_attempt(now, incoming, &mut response);
            }
            Some(registry.core.stats().dropped_at_max_attempt_lag)
        };
        let tick = Duration::from_millis(1);
        // The third attempt comes after nearly `lag`, and is asked for a proof; the fourth attempt
        // is too late.
        for (at, dropped) in [(Duration::ZERO, 0), (tick, 0), (lag - tick, 0), (lag, 1)] {
            assert_eq!(arrive(&mut registry, start + at), Some(dropped), "{at:?}");
        }
        // The second attempt has waited for less than `lag`.
        drop(registry.next_attempt());
        assert_eq!(arrive(&mut registry, start + lag), Some(1));
        Ok(())
    }
}
