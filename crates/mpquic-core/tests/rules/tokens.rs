//! Tokens of many connections: with tokens collected at an address, a client directs no more than a
//! first window there once somebody else has the address (RFC 9000 sections 8.1.3 and 21.3).

use std::net::{IpAddr, SocketAddr};

use mpquic_core::knowledge::{Entry, Key, Store};
use mpquic_core::{PathEvent, PathId, Side, TransportErrorCode};
use proptest::collection::vec;
use proptest::prelude::*;

use super::harness::{MS, Net, Options, Sent, address};

/// What an earlier proof is good for at most.
const FIRST_WINDOW: usize = 32 * 1500;
/// The index of the address that the client loses.
const LOST: u8 = 1;

fn lost() -> IpAddr {
    address(Side::Client, LOST).ip()
}

/// The lost address, with one of several ports.
fn lost_port(port: u16) -> SocketAddr {
    SocketAddr::new(lost(), 5000 + port)
}

/// A client that collects tokens, and counts the bytes it directs to its lost address.
struct Collector {
    net: Net,
    tokens: Vec<(Key, Entry)>,
    paths: Vec<PathId>,
    has_lost: bool,
    /// The connection is from the time after that.
    is_later: bool,
    /// Bytes to and from the lost address, on connections that began after the loss.
    to_lost: usize,
    from_lost: usize,
}

impl Collector {
    fn new() -> Self {
        let mut options = Options::default();
        options.client.max_concurrent_paths = 4;
        Self {
            net: Net::connected(options),
            tokens: Vec::new(),
            paths: Vec::new(),
            has_lost: false,
            is_later: false,
            to_lost: 0,
            from_lost: 0,
        }
    }

    /// Somebody else has the address from now on; what the client sends still seems to come from
    /// there.
    fn lose(&mut self) {
        self.has_lost = true;
        self.net.delivers = |sent| ![sent.source.ip(), sent.destination.ip()].contains(&lost());
    }

    fn wait(&mut self, milliseconds: u32) {
        let log = self.net.wait(MS * milliseconds);
        self.count(&log);
        let new = self.net.tokens.take_all();
        self.tokens.extend(new);
    }

    fn count(&mut self, log: &[Sent]) {
        if self.is_later {
            let to = log.iter().filter(|sent| sent.destination.ip() == lost());
            self.to_lost += to.map(|sent| sent.data.len()).sum::<usize>();
        }
    }

    fn open(&mut self, index: u8) {
        self.paths.extend(self.net.open_path(index));
        self.wait(100);
    }

    /// Opens a path from the lost address. A client without the address sends the necessary packets
    /// only.
    fn open_lost(&mut self, port: u16) {
        let opened = self.net.open_path_from(lost_port(port), LOST);
        self.paths.extend(opened);
        if self.has_lost {
            let opening = self.net.take(Side::Client);
            let of_path = opening.iter().filter(|sent| sent.source.ip() == lost());
            let bytes: usize = of_path.map(|sent| sent.data.len()).sum();
            self.from_lost += if self.is_later { bytes } else { 0 };
            self.net.give_all(opening);
        }
        self.wait(100);
    }

    fn close(&mut self, index: usize) {
        if !self.paths.is_empty() {
            let path = self.paths.remove(index % self.paths.len());
            let now = self.net.now;
            let code = TransportErrorCode::NO_ERROR;
            // The last one stays.
            if self.net.client().close_path(now, path, code).is_err() {
                self.paths.push(path);
            }
            self.wait(100);
        }
    }

    /// Ends the connection, and begins another one from an address that the client has, with this
    /// token.
    fn reconnect(&mut self, token: usize, index: u8) {
        self.net.close(Side::Client);
        self.wait(10);
        self.paths = vec![PathId::ZERO];
        self.net.tokens.take_all();
        if !self.tokens.is_empty() {
            let (key, entry) = self.tokens[token % self.tokens.len()].clone();
            self.net.tokens.save(key, entry);
        }
        self.is_later = self.has_lost;
        self.net.connect_from(index);
        self.wait(100);
        self.net.write(Side::Server, 200_000);
    }

    fn check(&self) {
        let most = 3 * self.from_lost + FIRST_WINDOW;
        assert!(self.to_lost <= most, "{} of {most}", self.to_lost);
    }
}

/// Each further validated address brings another token, and each token names all addresses.
#[test]
fn mp_075_many_tokens_of_a_connection_vouch_once() {
    let mut client = Collector::new();
    client.open_lost(0);
    for index in 2..22 {
        client.open(index);
        client.close(1);
    }
    let count = client.tokens.len();
    assert!(count > 20, "{count}");
    client.lose();
    for token in 0..count {
        client.reconnect(token, 0);
        client.open_lost(0);
    }
    assert!(client.to_lost > FIRST_WINDOW / 2, "{}", client.to_lost);
    client.check();
}

/// Each port is proven on its own, and all ports are one machine's.
#[test]
fn mp_075_the_ports_of_an_address_vouch_once_together() {
    let mut client = Collector::new();
    for port in 0..20 {
        client.open_lost(port);
        client.close(0);
    }
    client.lose();
    for token in 0..client.tokens.len() {
        for port in 0..2 {
            client.reconnect(token, 0);
            client.open_lost(token as u16 + port);
        }
    }
    client.check();
}

/// A client that still receives there is vouched for on each connection.
#[test]
fn mp_075_a_new_proof_vouches_anew() {
    let mut client = Collector::new();
    client.open_lost(0);
    for _ in 0..5 {
        client.reconnect(client.tokens.len() - 1, 0);
        assert_eq!(client.net.validated, Some(true));
        let opened = client.net.open_path_from(lost_port(0), LOST).unwrap();
        let opening = client.net.take(Side::Client);
        client.net.give_all(opening);
        let established = PathEvent::Established(opened);
        assert!(client.net.has_path_event(Side::Server, &established));
        client.wait(200);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Open(u8),
    OpenLost(u16),
    Close(usize),
    Reconnect { token: usize, index: u8 },
    Wait(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (2u8..12).prop_map(Step::Open),
        4 => (0u16..4).prop_map(Step::OpenLost),
        2 => any::<usize>().prop_map(Step::Close),
        3 => (any::<usize>(), prop_oneof![Just(0u8), 2u8..5])
            .prop_map(|(token, index)| Step::Reconnect { token, index }),
        1 => (0u32..20_000).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn mp_075_with_any_tokens_a_lost_address_gets_one_first_window(
        before in vec(step(), 1..30),
        after in vec(step(), 1..30),
    ) {
        let mut client = Collector::new();
        let steps = before.into_iter().map(Some);
        for step in steps.chain([None]).chain(after.into_iter().map(Some)) {
            match step {
                Some(Step::Open(index)) => client.open(index),
                Some(Step::OpenLost(port)) => client.open_lost(port),
                Some(Step::Close(index)) => client.close(index),
                Some(Step::Reconnect { token, index }) => client.reconnect(token, index),
                Some(Step::Wait(milliseconds)) => client.wait(milliseconds),
                None => client.lose(),
            }
            client.check();
        }
    }
}
