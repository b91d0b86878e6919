//! [`Host`]: an endpoint, its connections and the applications on them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use mpquic_core::config::{ClientConfig, EndpointConfig, ServerConfig};
use mpquic_core::{
    ConnectError, Connection, ConnectionHandle, DatagramEvent, Endpoint, Event, FourTuple,
    Incoming, RouteCounts, Transmit,
};

use mpquic_paths::{Event as PathManagerEvent, Local, Managed};

use crate::application::Application;
use crate::invariants::Invariants;
use crate::network::Network;
use crate::observer::Observer;
use crate::packet::Packet;
use crate::socket_buffer::SocketBuffer;

/// Most datagrams in a batch, as with segmentation offload.
const MAX_BATCH: usize = 64;
/// Size of the blocks for datagrams that leave, bytes.
const BLOCK: usize = 64 << 10;

/// The reaction of a server to connection attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AcceptPolicy {
    /// Accepts every attempt.
    #[default]
    Accept,
    /// Accepts attempts from proven addresses, answers other attempts with a Retry.
    Retry,
    /// Refuses every attempt.
    Refuse,
    /// Drops every attempt without an answer.
    Ignore,
}

/// The first action of a process that continues after a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnResume {
    /// The process reads the packets in its socket.
    Packets,
    /// The process serves overdue timers.
    Timers,
}

/// A connection on a host, with its application.
pub struct Hosted<A> {
    /// The connection. After a direct call on the connection, use [`Host::connection_mut`], so that
    /// the host notices the change.
    pub connection: Connection,
    /// The application on the connection.
    pub application: A,
    handle: ConnectionHandle,
    events: Vec<(Instant, Event)>,
    drained: bool,
    dirty: bool,
    /// The path manager, unless the application opens and closes paths.
    paths: Option<Managed>,
    /// The time of the requested wake-up. The wake-up is outdated if the connection's next timeout
    /// is later by now.
    wake: Option<Instant>,
    pub(crate) invariants: Invariants,
    observer: Observer,
}

impl<A: Application> Hosted<A> {
    /// Tells the path manager and the application of the connection's events.
    fn take_events(&mut self, now: Instant) {
        while let Some(event) = self.connection.poll() {
            if let Some(paths) = &mut self.paths {
                let told = match &event {
                    Event::Connected { .. } => Some(PathManagerEvent::Connected),
                    Event::Path(event) => Some(PathManagerEvent::Path(event)),
                    _ => None,
                };
                if let Some(told) = told {
                    paths.on_event(&told, &self.connection, now);
                }
            }
            self.application.on_event(now, &mut self.connection, &event);
            if !matches!(event, Event::Stream(_) | Event::DatagramReceived) {
                self.events.push((now, event));
            }
        }
    }

    fn manage_paths(&mut self, now: Instant) {
        if let Some(paths) = &mut self.paths {
            paths.run(&mut self.connection, now, |_| false);
        }
    }
}

impl<A> Hosted<A> {
    /// All events that the connection reported except stream activity, with their times.
    pub fn events(&self) -> &[(Instant, Event)] {
        &self.events
    }

    /// True once the endpoint has forgotten the connection.
    pub fn is_drained(&self) -> bool {
        self.drained
    }
}

/// A machine with one endpoint and any number of connections.
pub struct Host<A> {
    endpoint: Endpoint,
    accept: AcceptPolicy,
    make_application: Box<dyn FnMut() -> A>,
    /// All connections from the start on. The list never shrinks, so that an index stays valid.
    connections: Vec<Hosted<A>>,
    by_handle: BTreeMap<ConnectionHandle, usize>,
    dirty: Vec<usize>,
    wake_ups: Vec<(Instant, usize)>,
    transmit_buffer: Vec<u8>,
    block: BytesMut,
    up: bool,
    /// Packets that wait in the socket of the stopped process.
    stopped: Option<SocketBuffer>,
    /// The addresses of the host; `None` if the host has every address.
    locals: Option<Arc<[Local]>>,
    /// The lead of the host's clock over the network's clock.
    ahead: Duration,
    checks: bool,
    shows_queues: bool,
}

impl<A: Application> Host<A> {
    /// A host. `make_application` is called for each connection.
    pub fn new(
        config: EndpointConfig,
        server: Option<ServerConfig>,
        seed: u64,
        make_application: impl FnMut() -> A + 'static,
    ) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        Self {
            endpoint: Endpoint::new(Arc::new(config), server.map(Arc::new), bytes),
            accept: AcceptPolicy::default(),
            make_application: Box::new(make_application),
            connections: Vec::new(),
            by_handle: BTreeMap::new(),
            dirty: Vec::new(),
            wake_ups: Vec::new(),
            transmit_buffer: Vec::new(),
            block: BytesMut::new(),
            up: true,
            stopped: None,
            locals: None,
            ahead: Duration::ZERO,
            checks: true,
            shows_queues: false,
        }
    }

    /// Sets the reaction to connection attempts.
    pub fn set_accept_policy(&mut self, accept: AcceptPolicy) {
        self.accept = accept;
    }

    /// Sets whether invariants are checked after each event; on by default.
    pub fn set_checks(&mut self, checks: bool) {
        self.checks = checks;
    }

    /// Sets whether connections learn the length of the queue on the first link of each path, in
    /// place of the queue of the host's own interface. Off by default.
    pub fn show_queues(&mut self, show: bool) {
        self.shows_queues = show;
    }

    /// Crashes the host: the host neither receives nor sends until [`Self::restart`].
    pub fn crash(&mut self) {
        self.up = false;
    }

    /// Restarts the host with a new endpoint, and without the connections of the old endpoint.
    pub fn restart(&mut self, endpoint: Endpoint) {
        self.endpoint = endpoint;
        self.by_handle.clear();
        for hosted in &mut self.connections {
            hosted.drained = true;
        }
        self.up = true;
    }

    /// Stops the process. Until the process resumes, arriving packets wait in its socket.
    pub fn stop(&mut self) {
        self.stopped.get_or_insert_default();
    }

    /// True while the process is stopped.
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Resumes a stopped process.
    pub(crate) fn resume(&mut self, now: Instant, first: OnResume, network: &mut Network) {
        let Some(waiting) = self.stopped.take() else {
            return;
        };
        for index in 0..self.connections.len() {
            mark(&mut self.connections, &mut self.dirty, index);
            if first == OnResume::Timers && !self.connections[index].drained {
                self.arm(index);
                self.wake(now, index);
            }
        }
        for packet in waiting {
            self.receive(now, packet, network);
        }
    }

    /// Moves the host's clock forward by `by`, so that all timers of the host end earlier by `by`.
    pub fn jump_clock(&mut self, by: Duration) {
        self.ahead += by;
        for index in 0..self.connections.len() {
            mark(&mut self.connections, &mut self.dirty, index);
        }
    }

    /// The time on the host's clock at a time of the network.
    pub fn time(&self, now: Instant) -> Instant {
        now + self.ahead
    }

    /// Drops all connections and applications, and returns the endpoint.
    pub fn into_endpoint(self) -> Endpoint {
        self.endpoint
    }

    /// Starts a connection and returns its index.
    ///
    /// # Errors
    ///
    /// The error of [`Endpoint::connect`].
    pub fn connect(
        &mut self,
        now: Instant,
        config: ClientConfig,
        four_tuple: FourTuple,
        server_name: &str,
    ) -> Result<usize, ConnectError> {
        let now = self.time(now);
        let (handle, connection) = self
            .endpoint
            .connect(now, config, four_tuple, server_name)?;
        Ok(self.insert(handle, connection, Observer::default()))
    }

    /// Lets a path manager decide on the paths of a connection that has just begun.
    pub fn manage_paths(&mut self, index: usize, manager: Managed) {
        self.connections[index].paths = Some(manager);
    }

    /// Gives the host the addresses `locals`, in place of earlier addresses. The host neither
    /// receives nor sends packets at other addresses, and path managers hear of the change.
    pub fn set_locals(&mut self, now: Instant, locals: Arc<[Local]>) {
        let now = self.time(now);
        for index in 0..self.connections.len() {
            let hosted = &mut self.connections[index];
            if let Some(paths) = &mut hosted.paths {
                paths.set_locals(locals.clone(), &hosted.connection, now);
                mark(&mut self.connections, &mut self.dirty, index);
            }
        }
        self.locals = Some(locals);
    }

    fn has_address(&self, address: SocketAddr) -> bool {
        let is_one = |locals: &Arc<[Local]>| locals.iter().any(|local| local.owns(address));
        self.locals.as_ref().is_none_or(is_one)
    }

    /// All connections ever made, by index.
    pub fn connections(&self) -> &[Hosted<A>] {
        &self.connections
    }

    /// A connection to call methods on. The next step of the host handles the effects.
    pub fn connection_mut(&mut self, index: usize) -> &mut Hosted<A> {
        mark(&mut self.connections, &mut self.dirty, index);
        &mut self.connections[index]
    }

    /// An application, for a reader of results. A call on the application must not change the
    /// connection.
    pub(crate) fn application_mut(&mut self, index: usize) -> &mut A {
        &mut self.connections[index].application
    }

    /// Counts of the endpoint's records of its connections.
    pub fn routes(&self) -> RouteCounts {
        self.endpoint.routes()
    }

    /// The endpoint.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    fn insert(
        &mut self,
        handle: ConnectionHandle,
        connection: Connection,
        observer: Observer,
    ) -> usize {
        let index = self.connections.len();
        self.connections.push(Hosted {
            connection,
            application: (self.make_application)(),
            handle,
            events: Vec::new(),
            drained: false,
            dirty: false,
            paths: None,
            wake: None,
            invariants: Invariants::default(),
            observer,
        });
        self.by_handle.insert(handle, index);
        mark(&mut self.connections, &mut self.dirty, index);
        index
    }

    /// Takes a packet from the network.
    pub(crate) fn receive(&mut self, now: Instant, packet: Packet, network: &mut Network) {
        if !self.up || !self.has_address(packet.destination) {
            return;
        }
        if let Some(waiting) = &mut self.stopped {
            return waiting.push(packet);
        }
        let now = self.time(now);
        let four_tuple = FourTuple::new(packet.destination, packet.source);
        let size = packet.data.len();
        let buffer = &mut self.transmit_buffer;
        let event = self
            .endpoint
            .handle_datagram(now, four_tuple, packet.ecn, packet.data, buffer);
        match event {
            Some(DatagramEvent::Connection(handle, datagram)) => {
                if let Some(index) = self.by_handle.get(&handle).copied() {
                    let hosted = &mut self.connections[index];
                    hosted.observer.on_received(four_tuple, size);
                    hosted.connection.handle_datagram(datagram);
                    mark(&mut self.connections, &mut self.dirty, index);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                let proven = incoming.remote_address_validated();
                let mut observer = Observer::of_server(four_tuple, size, proven);
                if self.checks {
                    let others = self.connections.iter().map(|hosted| &hosted.observer);
                    observer = observer.after(others);
                }
                self.decide(now, incoming, observer, network);
            }
            Some(DatagramEvent::Response(transmit)) => self.transmit(&transmit, network),
            Some(DatagramEvent::StatelessReset(handle)) => {
                if let Some(index) = self.by_handle.get(&handle).copied() {
                    let hosted = &mut self.connections[index];
                    hosted.connection.handle_stateless_reset(now);
                    mark(&mut self.connections, &mut self.dirty, index);
                }
            }
            Some(_) | None => {}
        }
    }

    fn decide(
        &mut self,
        now: Instant,
        incoming: Incoming,
        observer: Observer,
        network: &mut Network,
    ) {
        let buffer = &mut self.transmit_buffer;
        buffer.clear();
        let response = match self.accept {
            AcceptPolicy::Ignore => {
                self.endpoint.ignore(incoming);
                None
            }
            AcceptPolicy::Refuse => self.endpoint.refuse(incoming, buffer),
            AcceptPolicy::Retry if !incoming.remote_address_validated() => {
                self.endpoint.retry(now, incoming, buffer).ok()
            }
            AcceptPolicy::Accept | AcceptPolicy::Retry => {
                match self.endpoint.accept(now, incoming, buffer) {
                    Ok((handle, connection)) => {
                        self.insert(handle, connection, observer);
                        None
                    }
                    Err(error) => error.response,
                }
            }
        };
        if let Some(transmit) = response {
            self.transmit(&transmit, network);
        }
    }

    /// The wake-up that a connection waits for.
    pub(crate) fn wake_time(&self, index: usize) -> Option<Instant> {
        let hosted = &self.connections[index];
        hosted.wake.filter(|_| !hosted.drained)
    }

    /// Serves a connection with a due wake-up, unless the wake-up is outdated.
    pub(crate) fn wake(&mut self, now: Instant, index: usize) {
        let hosted = &mut self.connections[index];
        // The timeout has moved meanwhile, or an earlier call has served the wake-up.
        if hosted.wake.is_none_or(|wake| wake > now) {
            return;
        }
        hosted.wake = None;
        if !self.up || self.stopped.is_some() || hosted.drained {
            return;
        }
        let now = now + self.ahead;
        let is_due = |time: Option<Instant>| time.is_some_and(|time| time <= now);
        let timeout = is_due(hosted.connection.poll_timeout().map(|(time, _)| time));
        if timeout {
            hosted.invariants.on_timeout(now, &hosted.connection);
            hosted.connection.handle_timeout(now);
        }
        let application = is_due(hosted.application.next_timeout());
        if application {
            hosted.application.on_timeout(now, &mut hosted.connection);
        }
        let paths = hosted.paths.as_ref().and_then(Managed::next_timeout);
        if timeout || application || is_due(paths) {
            mark(&mut self.connections, &mut self.dirty, index);
        } else {
            self.arm(index);
        }
    }

    /// True if [`Self::service`] has work to do.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Serves all changed connections: events, datagrams, timers.
    pub(crate) fn service(&mut self, now: Instant, network: &mut Network) {
        while let Some(index) = self.dirty.pop() {
            self.connections[index].dirty = false;
            let runs = self.up && self.stopped.is_none();
            if runs && !self.connections[index].drained {
                self.service_connection(self.time(now), index, network);
            }
        }
    }

    fn service_connection(&mut self, now: Instant, index: usize, network: &mut Network) {
        self.poll_events(now, index);
        let mut buffer = std::mem::take(&mut self.transmit_buffer);
        loop {
            buffer.clear();
            let connection = &mut self.connections[index].connection;
            if self.shows_queues && connection.policies().needs_local_queues() {
                tell_queues(&mut self.connections[index].connection, network);
            }
            let hosted = &mut self.connections[index];
            if self.checks {
                hosted.observer.before_transmit(&hosted.connection);
            }
            let Some(transmit) = hosted.connection.poll_transmit(now, MAX_BATCH, &mut buffer)
            else {
                break;
            };
            if self.checks {
                hosted.invariants.on_transmit(&transmit, &buffer);
                let Hosted {
                    observer,
                    connection,
                    ..
                } = hosted;
                observer.on_transmit(&transmit, &buffer, connection);
            }
            self.send_batch(&transmit, &buffer, network);
        }
        self.transmit_buffer = buffer;
        // The sending itself may have produced events.
        self.poll_events(now, index);
        let hosted = &mut self.connections[index];
        if self.checks {
            hosted.invariants.check(now, &hosted.connection);
        }
        self.arm(index);
    }

    /// Requests a wake-up, if the requested wake-up comes too late.
    fn arm(&mut self, index: usize) {
        let hosted = &mut self.connections[index];
        let timeout = hosted.connection.poll_timeout().map(|(time, _)| time);
        let paths = hosted.paths.as_ref().and_then(Managed::next_timeout);
        let next = [timeout, hosted.application.next_timeout(), paths];
        let next = next.into_iter().flatten().min();
        // Converts the host's time to the network's time.
        if let Some(next) = next.and_then(|next| next.checked_sub(self.ahead))
            && hosted.wake.is_none_or(|wake| next < wake)
        {
            hosted.wake = Some(next);
            self.wake_ups.push((next, index));
        }
    }

    fn poll_events(&mut self, now: Instant, index: usize) {
        self.connections[index].take_events(now);
        self.connections[index].manage_paths(now);
        // The events of paths that the path manager closed.
        self.connections[index].take_events(now);
        let hosted = &mut self.connections[index];
        while let Some(event) = hosted.connection.poll_endpoint_event() {
            if event.is_drained() {
                hosted.drained = true;
                self.by_handle.remove(&hosted.handle);
            }
            self.endpoint.handle_event(hosted.handle, event);
        }
    }

    /// Wake-ups requested after the last call: the time and the connection.
    pub(crate) fn take_wake_ups(&mut self) -> std::vec::Drain<'_, (Instant, usize)> {
        self.wake_ups.drain(..)
    }

    /// Sends the datagrams that an endpoint wrote into the transmit buffer.
    fn transmit(&mut self, transmit: &Transmit, network: &mut Network) {
        let buffer = std::mem::take(&mut self.transmit_buffer);
        self.send_batch(transmit, &buffer, network);
        self.transmit_buffer = buffer;
    }

    fn send_batch(&mut self, transmit: &Transmit, buffer: &[u8], network: &mut Network) {
        let now = network.now();
        let FourTuple { local, remote } = transmit.four_tuple;
        if !self.has_address(local) {
            return;
        }
        let route = network.route(local, remote);
        let bytes = &buffer[..transmit.size];
        let segment = transmit.segment_size.unwrap_or(transmit.size).max(1);
        for datagram in bytes.chunks(segment) {
            if self.block.capacity() < datagram.len() {
                // Reuses the block after the drop of all its datagrams.
                self.block.reserve(BLOCK);
            }
            self.block.extend_from_slice(datagram);
            let packet = Packet::new(local, remote, transmit.ecn, self.block.split());
            network.send_on(now, route, packet);
        }
    }
}

fn tell_queues(connection: &mut Connection, network: &mut Network) {
    let now = network.now();
    let paths: Vec<_> = connection.paths().collect();
    for path in paths {
        let Some(stats) = connection.path_stats(path) else {
            continue;
        };
        let FourTuple { local, remote } = stats.four_tuple;
        let queue = network.local_queue(now, local, remote);
        // A closed path sends no more packets and needs no queue.
        if let Ok(mut path) = connection.path_mut(path) {
            path.set_local_queue(queue);
        }
    }
}

fn mark<A>(connections: &mut [Hosted<A>], dirty: &mut Vec<usize>, index: usize) {
    if !connections[index].dirty {
        connections[index].dirty = true;
        dirty.push(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::link::LinkConfig;
    use crate::pair::{Pair, Setup, Side};
    use crate::topology::Topology;

    const MS: Duration = Duration::from_millis(1);
    const SECOND: Duration = Duration::from_secs(1);

    fn pair() -> Pair {
        let link = LinkConfig::new(8.0, 10 * MS);
        Pair::connected(&Topology::new().path("a", link), Setup::new())
    }

    #[test]
    fn crashed_host_neither_receives_nor_sends() {
        let mut pair = pair();
        let server = pair.host_id(Side::Server);
        pair.host_mut(server).crash();
        let sent = pair.counters("a")[1].packets_in;
        let now = pair.now();
        // The server sends neither for a timer nor for its application.
        let hosted = pair.hosted_mut(Side::Server);
        hosted.application.send(now, &mut hosted.connection, 5000);
        pair.send(Side::Client, 5000);
        pair.drive(2 * SECOND);
        assert_eq!(pair.counters("a")[1].packets_in, sent);
        assert_eq!(pair.hosted(Side::Server).unwrap().application.received(), 0);
    }

    #[test]
    fn resumed_host_serves_timers_or_packets_first_as_told() {
        // The client's probe timeout passes while the client is stopped, and the answer arrives
        // meanwhile.
        let lost = |first| {
            let mut pair = pair();
            pair.send(Side::Client, 20_000);
            pair.drive(5 * MS);
            pair.stop(Side::Client);
            pair.stop(Side::Client);
            pair.drive(SECOND);
            let before = pair.client().path_stats(mpquic_core::PathId::ZERO).unwrap();
            assert_eq!(before.probe_timeouts, 0, "it does nothing");
            pair.resume(Side::Client, first);
            pair.resume(Side::Client, first);
            let stats = pair.client().path_stats(mpquic_core::PathId::ZERO).unwrap();
            pair.run_transfers(SECOND).unwrap();
            stats.probe_timeouts
        };
        assert_eq!(lost(OnResume::Packets), 0);
        assert_eq!(lost(OnResume::Timers), 1);
    }

    #[test]
    fn clock_that_jumps_forward_ends_timers_earlier() {
        let idle_for = |by: Duration| {
            let mut pair = pair();
            let start = pair.now();
            pair.jump_clock(Side::Client, by);
            pair.jump_clock(Side::Client, by);
            let host = pair.host_id(Side::Client);
            assert_eq!(pair.host(host).time(start), start + 2 * by);
            let lost = |pair: &mut Pair| {
                let events = pair.events(Side::Client);
                events
                    .iter()
                    .any(|event| matches!(event, Event::ConnectionLost { .. }))
            };
            pair.run_until(100 * SECOND, lost).unwrap();
            pair.now() - start
        };
        assert_eq!(idle_for(Duration::ZERO), idle_for(5 * SECOND) + 10 * SECOND);
    }

    #[test]
    fn events_are_kept_except_those_of_streams_and_datagrams() {
        let mut pair = pair();
        pair.transfer(Side::Client, 5000, SECOND);
        let hosted = pair.hosted_mut(Side::Server);
        hosted
            .application
            .send_datagram(&mut hosted.connection, 100)
            .unwrap();
        pair.drive(SECOND);
        for side in [Side::Client, Side::Server] {
            let events = pair.hosted(side).unwrap().events();
            assert!(!events.is_empty() && events.is_sorted_by_key(|(at, _)| *at));
            let kept = |event: &Event| !matches!(event, Event::Stream(_) | Event::DatagramReceived);
            assert!(events.iter().all(|(_, event)| kept(event)));
        }
    }

    #[test]
    fn invariants_are_checked_only_if_checks_are_on() {
        let link = LinkConfig::new(8.0, 10 * MS);
        let topology = Topology::new().path("a", link);
        for checks in [true, false] {
            let mut setup = Setup::new();
            setup.checks = checks;
            let mut pair = Pair::connected(&topology, setup);
            pair.transfer(Side::Client, 50_000, SECOND);
            pair.set_outage("a", true);
            pair.send(Side::Client, 1000);
            pair.drive(SECOND);
            for side in [Side::Client, Side::Server] {
                let hosted = pair.hosted(side).unwrap();
                let watched = format!("{:?} {:?}", hosted.observer, hosted.invariants);
                for nothing in ["tags: {}", "before: {}", "steps: 0,", "bytes_sent: 0,"] {
                    assert_eq!(watched.contains(nothing), !checks, "{nothing}: {watched}");
                }
            }
            // Timeouts and received packets are always watched.
            let client = pair.hosted(Side::Client).unwrap();
            let invariants = format!("{:?}", client.invariants);
            assert!(!invariants.contains("last_timeout: None"), "{invariants}");
            let server = format!("{:?}", pair.hosted(Side::Server).unwrap().observer);
            assert!(server.contains("limited: true") && !server.contains("received: 0"));
        }
    }
}
