//! [`Pipe`]: two connections that pass each other datagrams in memory, without links, queues or
//! losses. So a measurement shows the cost of the protocol.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use mpquic_core::config::{ClientConfig, EndpointConfig, ServerConfig, TransportOptions};
use mpquic_core::{
    Connection, ConnectionHandle, Datagram, DatagramEvent, Dir, Endpoint, Event, FourTuple,
    PathStatus, StreamEvent, StreamId, Transmit,
};
use mpquic_sim::{NullCrypto, Tls};

/// One way through the pipe.
const DELAY: Duration = Duration::from_micros(50);
/// Bytes written at a time.
const PIECE: usize = 1 << 16;
/// The content of all streams.
static CONTENT: [u8; PIECE] = [0x5a; PIECE];
/// Memory received datagrams are cut from.
const SLAB: usize = 1 << 19;
/// Datagrams in a train, as a driver asks for.
const TRAIN: usize = 44;

/// Whether packets are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crypto {
    /// AES-128-GCM.
    Tls,
    /// No encryption: the cost of the other parts.
    Null,
}

/// A server that sends a stream to a client.
#[derive(Debug)]
pub struct Pipe {
    now: Instant,
    client: End,
    server: End,
    stream: StreamId,
    piece: Bytes,
    received: u64,
    /// Lost datagrams of each thousand.
    lost: u64,
    /// Datagrams of each thousand that arrive after the rest of their train.
    late: u64,
    random: u64,
}

#[derive(Debug)]
struct End {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    events: Vec<Event>,
    memory: Memory,
}

/// Memory for datagrams under way: a driver has one for all its connections.
#[derive(Debug, Default)]
struct Memory {
    train: Vec<u8>,
    slabs: VecDeque<BytesMut>,
    response: Vec<u8>,
}

/// Memory of both sides for datagrams under way, which pipes can share.
#[derive(Debug, Default)]
pub struct SharedMemory {
    client: Memory,
    server: Memory,
}

impl Pipe {
    /// Connects, opens `paths` paths and a stream.
    ///
    /// # Panics
    /// If the connection, a path or the stream does not open.
    pub fn new(crypto: Crypto, paths: u8, transport: TransportOptions) -> Self {
        let (client, server) = configs(crypto, transport);
        let endpoint = |server, seed| {
            let config = EndpointConfig::new([seed; 32]);
            Endpoint::new(Arc::new(config), server, [seed; 32])
        };
        let mut pipe = Self {
            now: crate::now(),
            client: End::new(endpoint(None, 1)),
            server: End::new(endpoint(Some(Arc::new(server)), 2)),
            stream: StreamId::new(mpquic_core::Side::Server, Dir::Uni, 0),
            piece: Bytes::from_static(&CONTENT),
            received: 0,
            lost: 0,
            late: 0,
            random: 1,
        };
        let connection =
            pipe.client
                .endpoint
                .connect(pipe.now, client, path(0), mpquic_sim::tls::SERVER_NAME);
        pipe.client.connection = Some(connection.expect("the configuration is valid"));
        pipe.settle();
        for index in 1..paths {
            let client = pipe.client.connection();
            client
                .open_path(pipe.now, path(index), PathStatus::Available)
                .expect("the handshake is confirmed");
            pipe.settle();
        }
        assert_eq!(pipe.client.connection().paths().count(), paths.into());
        let stream = pipe.server.connection().streams().open(Dir::Uni);
        pipe.stream = stream.expect("the client allows streams");
        pipe
    }

    /// Exchanges the pipe's memory for datagrams with this memory.
    pub fn swap_memory(&mut self, memory: &mut SharedMemory) {
        std::mem::swap(&mut self.client.memory, &mut memory.client);
        std::mem::swap(&mut self.server.memory, &mut memory.server);
    }

    /// From now on, loses this number of each thousand datagrams from the server.
    pub fn lose(&mut self, of_thousand: u64) {
        self.lost = of_thousand;
    }

    /// From now on, this number of each thousand datagrams from the server arrives after the rest
    /// of its train.
    pub fn reorder(&mut self, of_thousand: u64) {
        self.late = of_thousand;
    }

    /// Moves `bytes` over each of `count` new streams, all at a time.
    ///
    /// # Panics
    /// If the transfer stands still, for example because limits of streams or windows are too low.
    pub fn streams(&mut self, count: usize, bytes: usize) {
        let payload = self.piece.slice(..bytes);
        for _ in 0..count {
            let id = self.server.connection().streams().open(Dir::Uni);
            let id = id.expect("the client allows as many");
            self.server.say(id, &payload);
        }
        let mut left = (count * bytes) as u64;
        while left > 0 {
            let moved = self.round();
            let before = left;
            while let Some(id) = self.client.connection().streams().accept(Dir::Uni) {
                left -= self.client.read(id);
            }
            for index in 0..self.client.events.len() {
                if let Event::Stream(StreamEvent::Readable { id }) = self.client.events[index] {
                    left -= self.client.read(id);
                }
            }
            assert!(
                moved || left < before || self.skip_ahead(),
                "the pipe is stuck"
            );
        }
    }

    /// Moves `count` DATAGRAM payloads of `size` bytes from the server's application to the
    /// client's.
    ///
    /// # Panics
    /// If a DATAGRAM is lost.
    pub fn datagrams(&mut self, count: u64, size: usize) {
        let (mut left, mut received) = (count, 0);
        let payload = self.piece.slice(..size);
        while received < count {
            while left > 0
                && self
                    .server
                    .connection()
                    .datagrams()
                    .send(payload.clone())
                    .is_ok()
            {
                left -= 1;
            }
            let moved = self.round();
            let before = received;
            while self.client.connection().datagrams().recv().is_some() {
                received += 1;
            }
            assert!(
                moved || received > before || self.skip_ahead(),
                "the pipe is stuck"
            );
        }
    }

    /// The client asks `count` times, on a stream each, and the server answers; `size` bytes both
    /// ways, `concurrency` at a time.
    ///
    /// # Panics
    /// If nothing moves any more.
    pub fn requests(&mut self, count: u64, size: usize, concurrency: u64) {
        let (mut asked, mut answered) = (0, 0);
        let payload = self.piece.slice(..size);
        let mut open = Vec::new();
        while answered < count {
            while asked < count.min(answered + concurrency) {
                let Some(id) = self.client.connection().streams().open(Dir::Bi) else {
                    break;
                };
                self.client.say(id, &payload);
                open.push(id);
                asked += 1;
            }
            let moved = self.round();
            while let Some(id) = self.server.connection().streams().accept(Dir::Bi) {
                self.server.read(id);
                self.server.say(id, &payload);
            }
            let before = answered;
            open.retain(|id| {
                let over = self.client.read(*id) > 0;
                answered += u64::from(over);
                !over
            });
            assert!(
                moved || answered > before || self.skip_ahead(),
                "the pipe is stuck"
            );
        }
    }

    /// Moves `bytes` from the server's application to the client's.
    ///
    /// # Panics
    /// If nothing moves any more.
    pub fn transfer(&mut self, bytes: u64) {
        let target = self.received + bytes;
        let mut left = bytes;
        while self.received < target {
            let mut stream = self.server.connection().send_stream(self.stream);
            while left > 0 {
                let piece = left.min(PIECE as u64) as usize;
                match stream.write_chunks(&mut [self.piece.slice(..piece)]) {
                    Ok(written) => left -= written.bytes as u64,
                    Err(_) => break,
                }
            }
            let before = self.received;
            let moved = self.round();
            assert!(
                moved || self.received > before || self.skip_ahead(),
                "the pipe is stuck"
            );
        }
    }

    /// Passes datagrams until neither side has a datagram to send.
    fn settle(&mut self) {
        while self.round() {}
    }

    /// Passes a train from the server, and the client's answers; false if neither side had a
    /// datagram to send.
    fn round(&mut self) -> bool {
        let mut trouble = Trouble {
            lost: self.lost,
            late: self.late,
            random: &mut self.random,
        };
        let down = (self.server).send(self.now, &mut self.client, 1, Some(&mut trouble));
        self.now += DELAY;
        self.client.run();
        self.received += self.client.read(self.stream);
        let up = (self.client).send(self.now, &mut self.server, usize::MAX, None);
        self.now += DELAY;
        self.server.run();
        down || up
    }

    /// Lets the next timer fire.
    fn skip_ahead(&mut self) -> bool {
        let ends = [&mut self.client, &mut self.server];
        let timeouts = ends.map(|end| end.connection().poll_timeout().map(|(at, _)| at));
        let Some(at) = timeouts.into_iter().flatten().min() else {
            return false;
        };
        self.now = self.now.max(at);
        for end in [&mut self.client, &mut self.server] {
            end.connection().handle_timeout(self.now);
        }
        true
    }
}

impl End {
    fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            connection: None,
            events: Vec::new(),
            memory: Memory::default(),
        }
    }

    fn connection(&mut self) -> &mut Connection {
        let (_, connection) = self.connection.as_mut().expect("connected");
        connection
    }

    /// Sends up to `trains` trains to `peer`; false if there was nothing to send.
    fn send(
        &mut self,
        now: Instant,
        peer: &mut Self,
        trains: usize,
        mut trouble: Option<&mut Trouble<'_>>,
    ) -> bool {
        let Some((_, connection)) = &mut self.connection else {
            return false;
        };
        let mut any = false;
        for _ in 0..trains {
            self.memory.train.clear();
            let Some(transmit) = sending(connection, now, &mut self.memory.train) else {
                break;
            };
            any = true;
            let FourTuple { local, remote } = transmit.four_tuple;
            let segment = transmit.segment_size.unwrap_or(transmit.size);
            peer.receive(
                now + DELAY,
                FourTuple::new(remote, local),
                self.memory.train.chunks(segment.max(1)),
                trouble.as_deref_mut(),
            );
        }
        any
    }

    /// Receives a train, and copies it into reused memory, as a driver does with datagrams of a
    /// socket.
    fn receive<'a>(
        &mut self,
        now: Instant,
        four_tuple: FourTuple,
        train: impl Iterator<Item = &'a [u8]>,
        mut trouble: Option<&mut Trouble<'_>>,
    ) {
        let mut late = None;
        for datagram in train {
            let is_lost = trouble.as_mut().is_some_and(|it| it.takes());
            let is_late = trouble.as_mut().is_some_and(|it| it.delays());
            if is_late && !is_lost && late.is_none() {
                late = Some(datagram);
            } else if !is_lost {
                self.take(now, four_tuple, datagram);
            }
        }
        if let Some(datagram) = late {
            self.take(now, four_tuple, datagram);
        }
    }

    fn take(&mut self, now: Instant, four_tuple: FourTuple, datagram: &[u8]) {
        let mut slab = self.slab(datagram.len());
        slab.extend_from_slice(datagram);
        let data = slab.split();
        self.memory.slabs.push_front(slab);
        let response = &mut self.memory.response;
        let event = self
            .endpoint
            .handle_datagram(now, four_tuple, None, data, response);
        match event {
            Some(DatagramEvent::Connection(_, datagram)) => {
                receiving(self.connection(), datagram);
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                let accepted = self.endpoint.accept(now, incoming, response);
                self.connection = accepted.ok();
            }
            _ => {}
        }
    }

    /// Memory for `length` bytes: the newest slab with room, else the oldest if it is free again.
    fn slab(&mut self, length: usize) -> BytesMut {
        if let Some(slab) = self.memory.slabs.pop_front() {
            if slab.capacity() >= length {
                return slab;
            }
            self.memory.slabs.push_back(slab);
        }
        for _ in 0..self.memory.slabs.len() {
            let Some(mut slab) = self.memory.slabs.pop_front() else {
                break;
            };
            if slab.try_reclaim(SLAB) {
                return slab;
            }
            self.memory.slabs.push_back(slab);
        }
        BytesMut::with_capacity(SLAB)
    }

    /// Takes the connection's events.
    fn run(&mut self) {
        let Some((handle, connection)) = &mut self.connection else {
            return;
        };
        while let Some(event) = connection.poll_endpoint_event() {
            self.endpoint.handle_event(*handle, event);
        }
        self.events.clear();
        while let Some(event) = connection.poll() {
            self.events.push(event);
        }
    }

    /// Writes all of a stream.
    fn say(&mut self, id: StreamId, what: &Bytes) {
        let mut stream = self.connection().send_stream(id);
        let written = stream.write_chunks(&mut [what.clone()]);
        let all = written.is_ok_and(|written| written.bytes == what.len());
        assert!(all && stream.finish().is_ok(), "the window is small");
    }

    /// Reads all received bytes of a stream; returns their number.
    fn read(&mut self, stream: StreamId) -> u64 {
        let mut bytes = 0;
        let mut stream = self.connection().recv_stream(stream);
        while let Ok(Some(chunk)) = stream.read_chunk(usize::MAX, true) {
            bytes += chunk.bytes.len() as u64;
        }
        bytes
    }
}

/// Which datagrams are lost or late: the same ones in every run.
struct Trouble<'a> {
    lost: u64,
    late: u64,
    random: &'a mut u64,
}

impl Trouble<'_> {
    fn takes(&mut self) -> bool {
        self.draw() < self.lost
    }

    fn delays(&mut self) -> bool {
        self.draw() < self.late
    }

    fn draw(&mut self) -> u64 {
        let factor = 6_364_136_223_846_793_005;
        *self.random = self.random.wrapping_mul(factor).wrapping_add(1);
        (*self.random >> 33) % 1000
    }
}

/// Sends. A function of its own shows in profiles, and its instructions can be counted.
#[inline(never)]
pub(crate) fn sending(
    connection: &mut Connection,
    now: Instant,
    train: &mut Vec<u8>,
) -> Option<Transmit> {
    connection.poll_transmit(now, TRAIN, train)
}

/// Receives; a function of its own, as [`sending`].
#[inline(never)]
pub(crate) fn receiving(connection: &mut Connection, datagram: Datagram) {
    connection.handle_datagram(datagram);
}

fn configs(crypto: Crypto, transport: TransportOptions) -> (ClientConfig, ServerConfig) {
    let transport = Arc::new(transport.build().expect("valid options"));
    match crypto {
        Crypto::Tls => {
            let tls = Tls::new(b"bench");
            (tls.client(transport.clone()), tls.server(transport))
        }
        Crypto::Null => {
            let null = NullCrypto::new(b"bench");
            (
                null.clone().client(transport.clone()),
                null.server(transport),
            )
        }
    }
}

/// The client's four-tuple of a path.
fn path(index: u8) -> FourTuple {
    let address = |host, port| SocketAddr::new(Ipv4Addr::new(10, 0, index, host).into(), port);
    FourTuple::new(address(1, 50_000), address(2, 443))
}
