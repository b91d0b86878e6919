//! The cost of the hybrid key exchange: handshakes in memory, with the hybrid and the classical one
//! in turns.
//!
//! ```text
//! cargo run --release -p mpquic-benches --example key_exchange -- [ROUNDS] [HANDSHAKES]
//! ```
//!
//! A client and a server of the core run on one thread, without sockets. The certificate has an
//! Ed25519 key, and no session is resumed. Prints the processor time of each side for a handshake,
//! and the bytes that each side sends until both have confirmed the handshake. A figure is the
//! median of the rounds; a ratio is the median of the ratios of single rounds.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use cpu_time::ThreadTime;
use mpquic_benches::now;
use mpquic_benches::process::Failure;
use mpquic_core::config::{EndpointConfig, TransportConfig};
use mpquic_core::crypto::rustls::KeyExchange;
use mpquic_core::{
    Connection, ConnectionHandle, DatagramEvent, Endpoint, EndpointEvent, FourTuple,
};
use mpquic_sim::Tls;

const ALPN: &[u8] = b"bench";

/// One side, with its processor time and sent bytes.
struct Peer {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    four_tuple: FourTuple,
    cpu: Duration,
    datagrams: u64,
    bytes: u64,
    buf: Vec<u8>,
}

impl Peer {
    fn new(endpoint: Endpoint, local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            endpoint,
            connection: None,
            four_tuple: FourTuple::new(local, remote),
            cpu: Duration::ZERO,
            datagrams: 0,
            bytes: 0,
            buf: Vec::new(),
        }
    }

    /// Takes the datagrams of the other side, and returns the datagrams of this side.
    fn turn(&mut self, now: Instant, received: Vec<BytesMut>) -> Result<Vec<BytesMut>, Failure> {
        let began = ThreadTime::now();
        for data in received {
            self.take(now, data)?;
        }
        let mut sent = Vec::new();
        if let Some((handle, connection)) = &mut self.connection {
            while let Some(event) = connection.poll_endpoint_event() {
                self.endpoint.handle_event(*handle, event);
            }
            while connection.poll().is_some() {}
            self.buf.clear();
            while let Some(transmit) = connection.poll_transmit(now, 10, &mut self.buf) {
                let segment = transmit.segment_size.unwrap_or(transmit.size);
                sent.extend(self.buf.chunks(segment).map(BytesMut::from));
                self.buf.clear();
            }
        }
        self.cpu += began.elapsed();
        self.datagrams += sent.len() as u64;
        self.bytes += sent.iter().map(|data| data.len() as u64).sum::<u64>();
        Ok(sent)
    }

    fn take(&mut self, now: Instant, data: BytesMut) -> Result<(), Failure> {
        let tuple = self.four_tuple;
        let event = (self.endpoint).handle_datagram(now, tuple, None, data, &mut self.buf);
        match (event, &mut self.connection) {
            (Some(DatagramEvent::NewConnection(incoming)), None) => {
                let accepted = self.endpoint.accept(now, incoming, &mut self.buf);
                self.connection = Some(accepted.map_err(|error| error.cause)?);
            }
            (Some(DatagramEvent::Connection(_, datagram)), Some((_, connection))) => {
                connection.handle_datagram(datagram);
            }
            (None, _) => {}
            (event, _) => return Err(format!("unexpected: {event:?}").into()),
        }
        Ok(())
    }

    fn is_confirmed(&self) -> bool {
        let connection = self.connection.as_ref();
        connection.is_some_and(|(_, connection)| connection.is_handshake_confirmed())
    }

    /// Drops the connection.
    fn forget(&mut self) {
        if let Some((handle, _)) = self.connection.take() {
            self.endpoint.handle_event(handle, EndpointEvent::drained());
        }
    }
}

/// A client and a server for many handshakes.
struct Bench {
    key_exchange: KeyExchange,
    transport: Arc<TransportConfig>,
    client: Peer,
    server: Peer,
}

impl Bench {
    fn new(key_exchange: KeyExchange) -> Result<Self, Failure> {
        let tls = Tls::new(ALPN).key_exchange(key_exchange)?;
        let transport = TransportConfig::new(mpquic_sched::default(), mpquic_cc::default());
        let transport = Arc::new(transport);
        let config = |key| Arc::new(EndpointConfig::new([key; 32]));
        let server = Some(Arc::new(tls.server(transport.clone())));
        let addresses: [SocketAddr; 2] =
            [([192, 0, 2, 1], 5000).into(), ([192, 0, 2, 2], 443).into()];
        let [at_client, at_server] = addresses;
        Ok(Self {
            key_exchange,
            transport,
            client: Peer::new(
                Endpoint::new(config(1), None, [1; 32]),
                at_client,
                at_server,
            ),
            server: Peer::new(
                Endpoint::new(config(2), server, [2; 32]),
                at_server,
                at_client,
            ),
        })
    }

    fn handshake(&mut self) -> Result<(), Failure> {
        let now = now();
        // A new configuration has no tickets of earlier connections.
        let fresh = Tls::new(ALPN).key_exchange(self.key_exchange)?;
        let config = fresh.client(self.transport.clone());
        let began = ThreadTime::now();
        let connected =
            (self.client.endpoint).connect(now, config, self.client.four_tuple, "server.test");
        self.client.connection = Some(connected?);
        self.client.cpu += began.elapsed();
        let mut to_client = Vec::new();
        while !self.client.is_confirmed() || !self.server.is_confirmed() {
            let to_server = self.client.turn(now, to_client)?;
            to_client = self.server.turn(now, to_server)?;
        }
        self.client.forget();
        self.server.forget();
        Ok(())
    }
}

/// Microseconds of client and server for a handshake, and the bytes and datagrams that each sends.
fn round(key_exchange: KeyExchange, count: u32) -> Result<[f64; 6], Failure> {
    let mut bench = Bench::new(key_exchange)?;
    for _ in 0..count {
        bench.handshake()?;
    }
    let each = |total: f64| total / f64::from(count);
    let [client, server] = [&bench.client, &bench.server].map(|peer| {
        [
            each(peer.cpu.as_secs_f64() * 1e6),
            each(peer.datagrams as f64),
            each(peer.bytes as f64),
        ]
    });
    Ok([
        client[0], server[0], client[1], server[1], client[2], server[2],
    ])
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    let mut number = |otherwise| {
        words
            .next()
            .map_or(Ok(otherwise), |word| word.parse::<u32>())
    };
    let (rounds, count) = (number(15)?, number(400)?);
    let mut measured = Vec::new();
    for _ in 0..rounds {
        let classical = round(KeyExchange::Classical, count)?;
        measured.push([classical, round(KeyExchange::Hybrid, count)?]);
    }
    let figures = [
        "client, us",
        "server, us",
        "client, datagrams",
        "server, datagrams",
        "client, bytes",
        "server, bytes",
    ];
    println!(
        "{:18} {:>10} {:>10} {:>7}",
        "a handshake", "classical", "hybrid", "ratio"
    );
    for (index, name) in figures.into_iter().enumerate() {
        let of = |which: usize| median(measured.iter().map(|round| round[which][index]).collect());
        let ratios = measured
            .iter()
            .map(|round| round[1][index] / round[0][index]);
        println!(
            "{name:18} {:>10.1} {:>10.1} {:>7.2}",
            of(0),
            of(1),
            median(ratios.collect())
        );
    }
    Ok(())
}
