//! Tokens of many connections, used in any order. A client collects tokens while it has an address,
//! and loses the address. All its tokens together then send no more than one first window to the
//! new owner of the address (RFC 9000 section 21.3).

#![no_main]

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arbitrary::Arbitrary;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use mpquic_core::knowledge::{Entry, Key, Knowledge, Store};
use mpquic_core::{
    Connection, Dir, FourTuple, PathId, PathStatus, Side, StdSystemTime, TimeSource,
    TransportErrorCode, VarInt,
};
use mpquic_fuzz::table::{Options, SIDES, Table, address};

/// Most bytes that a server sends on an earlier proof of an address.
const FIRST_WINDOW: usize = 32 * 1500;
/// The index of the address that the client loses.
const LOST: u8 = 1;
/// Most steps of an input, so that the run ends in time.
const STEPS: usize = 60;

#[derive(Debug, Arbitrary)]
enum Step {
    Open(u8),
    OpenLost(u8),
    Close(u8),
    Reconnect { token: u8, index: u8 },
    Wait(u16),
}

#[derive(Debug, Arbitrary)]
struct Input {
    before: Vec<Step>,
    after: Vec<Step>,
}

/// The client's tokens, and the token for its next connection.
#[derive(Debug, Default)]
struct Tokens {
    given: Mutex<Vec<Bytes>>,
    next: Mutex<Option<Bytes>>,
}

impl Store for Tokens {
    fn load(&self, _: &Key) -> Option<Entry> {
        None
    }

    fn save(&self, key: Key, entry: Entry) {
        if matches!(key, Key::Token { .. }) {
            self.given.lock().expect("one thread").push(entry.value);
        }
    }

    fn take(&self, key: &Key) -> Option<Entry> {
        let is_token = matches!(key, Key::Token { .. });
        let mut next = self.next.lock().expect("one thread");
        let token = next.take_if(|_| is_token)?;
        Some(Entry::new(token, StdSystemTime.now()))
    }
}

/// The state of the network, and its counters.
#[derive(Default)]
struct Wire {
    has_lost: bool,
    /// True if the connection began after the loss of the address.
    is_later: bool,
    to_lost: usize,
    from_lost: usize,
}

fn lost() -> IpAddr {
    address(Side::Client, LOST).ip()
}

struct Client {
    table: Table,
    tokens: Arc<Tokens>,
    wire: Rc<RefCell<Wire>>,
}

impl Client {
    fn new() -> Self {
        let mut options = Options::default();
        options.client.max_concurrent_paths = 4;
        let tokens = Arc::new(Tokens::default());
        options.client.knowledge = Some(Knowledge::new(tokens.clone()));
        let mut table = Table::new(options);
        let wire = Rc::new(RefCell::new(Wire::default()));
        let seen = wire.clone();
        table.delivers = Box::new(move |datagram| {
            let mut wire = seen.borrow_mut();
            let is_to = datagram.destination.ip() == lost();
            if is_to && wire.is_later {
                wire.to_lost += datagram.data.len();
            }
            !wire.has_lost || !is_to && datagram.source.ip() != lost()
        });
        let mut client = Self {
            table,
            tokens,
            wire,
        };
        client.connect(0);
        client
    }

    fn connect(&mut self, index: u8) {
        self.table.connect(index);
        self.wait(100);
        // The server writes data that may leave on any path.
        if let Some(hosted) = self.table.server.connections.values_mut().last()
            && let Some(id) = hosted.connection.streams().open(Dir::Uni)
        {
            // The stream of an ended connection accepts no bytes.
            let _ = hosted.connection.send_stream(id).write(&[7; 200_000]);
        }
    }

    fn connection(&mut self) -> Option<&mut Connection> {
        let newest = self.table.client.connections.values_mut().last();
        newest.map(|hosted| &mut hosted.connection)
    }

    fn wait(&mut self, milliseconds: u16) {
        self.table.wait(Duration::from_millis(milliseconds.into()));
    }

    fn open(&mut self, local: SocketAddr, index: u8) {
        let now = self.table.now;
        let four_tuple = FourTuple::new(local, address(Side::Server, index));
        if let Some(connection) = self.connection() {
            // The path does not open if the peer's limit of paths is reached.
            let _ = connection.open_path(now, four_tuple, PathStatus::Available);
        }
    }

    /// Opens a path from the lost address: an attacker can still forge this source address.
    fn open_lost(&mut self, port: u8) {
        let local = SocketAddr::new(lost(), 5000 + u16::from(port % 4));
        self.open(local, LOST);
        if self.wire.borrow().has_lost {
            self.table.take(Side::Client);
            for datagram in std::mem::take(&mut self.table.in_flight) {
                let mut wire = self.wire.borrow_mut();
                if wire.is_later && datagram.source.ip() == lost() {
                    wire.from_lost += datagram.data.len();
                }
                drop(wire);
                self.table.give(datagram);
            }
        }
        self.wait(100);
    }

    fn close_path(&mut self, index: u8) {
        let now = self.table.now;
        if let Some(connection) = self.connection() {
            let paths: Vec<PathId> = connection.paths().collect();
            if let Some(path) = paths.get(usize::from(index) % paths.len().max(1)) {
                // The last path stays open.
                let _ = connection.close_path(now, *path, TransportErrorCode::NO_ERROR);
            }
        }
        self.wait(100);
    }

    fn reconnect(&mut self, token: u8, index: u8) {
        let now = self.table.now;
        for side in SIDES {
            for hosted in self.table.node(side).connections.values_mut() {
                let code = VarInt::from_u32(0);
                hosted.connection.close(now, code, Bytes::new());
            }
        }
        // The closed connections drain.
        self.wait(60_000);
        let given = self.tokens.given.lock().expect("one thread");
        let chosen = given.get(usize::from(token) % given.len().max(1)).cloned();
        drop(given);
        *self.tokens.next.lock().expect("one thread") = chosen;
        let mut wire = self.wire.borrow_mut();
        wire.is_later = wire.has_lost;
        drop(wire);
        self.connect(index);
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Open(index) => {
                let index = 2 + index % 10;
                self.open(address(Side::Client, index), index);
                self.wait(100);
            }
            Step::OpenLost(port) => self.open_lost(port),
            Step::Close(index) => self.close_path(index),
            Step::Reconnect { token, index } => {
                let index = index % 3;
                let index = if index == LOST { 3 } else { index };
                self.reconnect(token, index);
            }
            Step::Wait(milliseconds) => self.wait(milliseconds % 20_000),
        }
        let wire = self.wire.borrow();
        let most = 3 * wire.from_lost + FIRST_WINDOW;
        assert!(wire.to_lost <= most, "{} of {most}", wire.to_lost);
    }
}

fuzz_target!(|input: Input| {
    let mut client = Client::new();
    for step in input.before.into_iter().take(STEPS) {
        client.take(step);
    }
    client.wire.borrow_mut().has_lost = true;
    for step in input.after.into_iter().take(STEPS) {
        client.take(step);
    }
});
