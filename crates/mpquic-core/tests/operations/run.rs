//! A run: a connection on which operations happen.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use mpquic_core::{ClosedPath, Dir, Event, PathId, PathState, TransportErrorCode, VarInt};
use mpquic_sim::record::Hash;
use mpquic_sim::{Change, Loss, Pair, Side};
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;

use super::operation::{Limit, OnPath, OnStream, Operation, SIDES, Share, Trouble, size};
use super::reasons::Past;
use super::setup::{Drawn, Sides, draw};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// How long nothing may arrive once the network works again: an outage may have doubled the probe
/// timeout to nearly its own length.
const STANDSTILL: Duration = Duration::from_secs(30);
/// How long the end of a connection may take, which is unknown to a side that missed the news: two
/// idle timeouts.
const END: Duration = Duration::from_secs(260);

pub(super) struct Run {
    random: Xoshiro256PlusPlus,
    pub(super) pair: Pair,
    names: Vec<String>,
    single_server_address: bool,
    tls: bool,
    pub(super) past: Past,
    /// The next port that the client moves to.
    port: u16,
    /// Bytes read by both sides when last looked at.
    received: u64,
    /// Both sides' reports so far, for a record.
    pub(super) record: Option<Hash>,
}

/// Completes a handshake. False if a burst of losses outlasts the idle timeout, as happens about
/// once in 10,000 times.
fn connect(pair: &mut Pair, first_path: &str) -> bool {
    let Err(error) = pair.run_until_confirmed(60 * SECOND) else {
        return true;
    };
    let lost = pair.counters(first_path);
    let lost = lost.map(|link| link.dropped_loss + link.dropped_outage);
    // In whichever direction: each may cost a probe timeout, which doubles.
    assert!(
        lost.iter().sum::<u64>() >= 8,
        "not connected: {error}; {:?}; lost: {lost:?}",
        pair.events(Side::Client)
    );
    false
}

impl Run {
    /// `None` if the network lost the handshake.
    pub(super) fn new(seed: u64, tls: bool, sides: Sides) -> Option<Self> {
        let drawn = draw(seed, tls, sides);
        Self::of(drawn, tls, sides, |_| {})
    }

    /// Begins with this done to the pair.
    pub(super) fn of(
        drawn: Drawn,
        tls: bool,
        sides: Sides,
        prepare: impl FnOnce(&mut Pair),
    ) -> Option<Self> {
        let Drawn {
            mut random,
            topology,
            names,
            single_server_address,
            setup,
        } = drawn;
        let mut pair = Pair::new(&topology, setup);
        prepare(&mut pair);
        pair.connect();
        let early = sides == Sides::Apart && random.random_bool(0.2);
        if !early && !connect(&mut pair, &names[0]) {
            return None;
        }
        Some(Self {
            random,
            pair,
            names,
            single_server_address,
            tls,
            past: Past::default(),
            port: 51_000,
            received: 0,
            record: None,
        })
    }

    fn operate(&mut self, operation: &Operation) {
        match operation {
            Operation::Send(side, log) => {
                self.pair.send(*side, size(*log));
            }
            Operation::Ask(side, log, answer) => {
                self.pair.ask(*side, size(*log), size(*answer));
            }
            Operation::Datagram(side, size) => {
                let hosted = self.pair.hosted_mut(*side);
                let application = &mut hosted.application;
                let _may_be_refused = application.send_datagram(&mut hosted.connection, *size);
            }
            Operation::Stream(side, share, what) => self.operate_on_stream(*side, *share, what),
            Operation::Pause(side) => self.pair.hosted_mut(*side).application.pause(),
            Operation::Resume(side) => self.resume(*side),
            Operation::ReadUnordered(side) => {
                self.pair.hosted_mut(*side).application.read_unordered();
            }
            Operation::UpdateKeys(side) => {
                let now = self.pair.now();
                self.pair.connection(*side).initiate_key_update(now);
            }
            Operation::ReplaceConnectionIds(side) => {
                self.pair.connection(*side).replace_connection_ids();
            }
            Operation::Limit(side, limit) => self.set_limit(*side, limit),
            Operation::OpenPath(share, status) => {
                let name = &self.names[share.of(self.names.len())];
                let opened = self.pair.open_path(name, *status);
                let is_multipath = SIDES.map(|side| self.pair.connection(side).is_multipath());
                assert!(opened.is_err() || is_multipath == [true; 2], "{opened:?}");
            }
            Operation::Network(share, trouble) => {
                self.disturb(share.of(self.names.len()), trouble);
            }
            Operation::Path(side, share, what) => self.operate_on_path(*side, *share, what),
            Operation::Close(side, code) => self.close(*side, *code),
        }
    }

    fn close(&mut self, side: Side, code: u32) {
        self.past.on_close(side, code, &self.pair);
        let now = self.pair.now();
        let connection = self.pair.connection(side);
        connection.close(now, VarInt::from_u32(code), Past::REASON.into());
        assert!(connection.is_closed());
    }

    fn resume(&mut self, side: Side) {
        let now = self.pair.now();
        let hosted = self.pair.hosted_mut(side);
        hosted.application.resume(now, &mut hosted.connection);
    }

    fn disturb(&mut self, link: usize, trouble: &Trouble) {
        let name = self.names[link].clone();
        let change = match trouble {
            Trouble::Outage(outage) => return self.pair.set_outage(&name, *outage),
            Trouble::Rate(rate) => Change::Rate(*rate),
            Trouble::Delay(delay) => Change::Delay(MS * *delay),
            Trouble::Loss(rate) => Change::Loss(Loss::bernoulli(*rate)),
            Trouble::Corrupt(rate) if self.tls => Change::Corrupt(*rate),
            Trouble::Corrupt(rate) => Change::Mtu(1250 + (rate * 4000.0) as usize),
            Trouble::Mtu(mtu) => Change::Mtu(*mtu),
            Trouble::Rebind { other_ip } => {
                let path = &self.pair.links()[self.pair.index_of(&name)];
                // A server follows a client only once the handshake is confirmed (RFC 9000 section
                // 9): before, it could not reach it any more.
                let confirmed = self
                    .pair
                    .has_event(Side::Client, &Event::HandshakeConfirmed);
                if path.nat.is_some() && confirmed {
                    self.past.on_new_address();
                    self.pair.rebind(&name, *other_ip);
                }
                return;
            }
        };
        self.pair.change(&name, change);
    }

    fn set_limit(&mut self, side: Side, limit: &Limit) {
        let connection = self.pair.connection(side);
        match limit {
            Limit::SendWindow(log) => connection.streams().set_send_window(size(*log)),
            Limit::ReceiveWindow(log) => connection.streams().set_max_receive_window(size(*log)),
            Limit::UniStreams(count) => connection.streams().set_max_concurrent(Dir::Uni, *count),
            Limit::BidiStreams(count) => connection.streams().set_max_concurrent(Dir::Bi, *count),
        }
    }

    fn operate_on_stream(&mut self, side: Side, share: Share, what: &OnStream) {
        let hosted = self.pair.hosted_mut(side);
        let (application, connection) = (&mut hosted.application, &mut hosted.connection);
        let outgoing = pick(application.outgoing().keys().copied(), share);
        let incoming = pick(application.incoming().keys().copied(), share);
        match (what, outgoing, incoming) {
            (OnStream::Reset(code), Some(id), _) => {
                application.reset(connection, id, VarInt::from_u32(*code));
            }
            (OnStream::ResetAtHalf(code), Some(id), _) => {
                application.reset_at_half(connection, id, VarInt::from_u32(*code));
            }
            (OnStream::Stop(code), _, Some(id)) => {
                application.stop(connection, id, VarInt::from_u32(*code));
            }
            (OnStream::Priority(priority), Some(id), _) => {
                let _may_be_closed = connection.send_stream(id).set_priority(*priority);
            }
            (OnStream::Incremental(is_incremental), Some(id), _) => {
                let mut stream = connection.send_stream(id);
                let _may_be_closed = stream.set_incremental(*is_incremental);
            }
            (OnStream::Redundant(is_redundant), Some(id), _) => {
                let mut stream = connection.send_stream(id);
                let _may_be_closed = stream.set_redundant(*is_redundant);
            }
            (OnStream::Bind(share), Some(id), _) => {
                let path = pick(connection.paths(), *share);
                let _may_be_closed = connection.send_stream(id).set_path(path);
            }
            (OnStream::Unbind, Some(id), _) => {
                let _may_be_closed = connection.send_stream(id).set_path(None);
            }
            (OnStream::Expect(bytes), Some(id), _) => {
                let _may_be_closed = connection.send_stream(id).set_expected_size(*bytes);
            }
            _ => {}
        }
    }

    fn operate_on_path(&mut self, side: Side, share: Share, what: &OnPath) {
        let now = self.pair.now();
        let connection = self.pair.connection(side);
        let Some(path) = pick(connection.paths(), share) else {
            return;
        };
        let stats = connection
            .paths()
            .filter_map(|path| connection.path_stats(path));
        let open = stats.filter(|stats| stats.state != PathState::Abandoned);
        let last = open.count() == 1;
        let _may_be_closed = match what {
            OnPath::Status(status) => connection
                .path_mut(path)
                .map(|mut path| path.set_status(*status)),
            OnPath::Ping => connection.path_mut(path).map(|mut path| path.ping()),
            OnPath::DownAndUp => {
                let down = connection.set_path_usable(now, path, false);
                self.pair.drive(50 * MS);
                let now = self.pair.now();
                let _may_be_closed = self.pair.connection(side).set_path_usable(now, path, true);
                down
            }
            OnPath::Close if last => Ok(()),
            OnPath::Close => {
                let closed = connection.close_path(now, path, TransportErrorCode::NO_ERROR);
                if closed.is_ok() {
                    self.past.on_path_left();
                }
                closed.map_err(|_| ClosedPath)
            }
            OnPath::Move(share) => {
                self.move_path(side, path, *share);
                Ok(())
            }
        };
    }

    fn move_path(&mut self, side: Side, path: PathId, share: Share) {
        let now = self.pair.now();
        let Some(stats) = self.pair.connection(side).path_stats(path) else {
            return;
        };
        // From elsewhere, only the address of all paths can be reached.
        let ip = if self.single_server_address {
            self.pair.links()[share.of(self.names.len())].client
        } else {
            stats.four_tuple.local.ip()
        };
        self.port += 1;
        let local = SocketAddr::new(ip, self.port);
        if let Ok(mut path) = self.pair.connection(side).path_mut(path) {
            let moved = path.set_local_address(now, local);
            assert!(side == Side::Client || moved.is_err(), "a server moved");
            if moved.is_ok() {
                self.past.on_new_address();
            }
        }
    }

    /// A side has closed the connection, or lost it.
    fn is_over(&self) -> bool {
        let lost = |event: &Event| matches!(event, Event::ConnectionLost { .. });
        let mut events = SIDES.into_iter().flat_map(|side| self.pair.events(side));
        self.past.is_closed() || events.any(|event| lost(&event))
    }

    /// False if the network lost the handshake.
    pub(super) fn run(&mut self, operations: &[(Operation, u32)]) -> bool {
        for (operation, pause) in operations {
            // The server's connection does not exist before the first packet has arrived.
            if self.pair.hosted(Side::Server).is_some() {
                self.operate(operation);
            }
            self.pair.drive(MS * *pause);
            self.note();
            if self.is_over() {
                break;
            }
        }
        for name in self.names.clone() {
            self.pair.set_outage(&name, false);
            self.pair.change(&name, Change::Mtu(1500));
        }
        if !self.past.is_closed() && !connect(&mut self.pair, &self.names[0]) {
            return false;
        }
        if !self.is_over() {
            SIDES.into_iter().for_each(|side| self.resume(side));
            self.finish();
        }
        self.close_again();
        self.pair.run_until_drained(END);
        self.past.check(&self.pair);
        true
    }

    /// A client that heard no packet from the connection closed by the server is accepted once
    /// more.
    fn close_again(&mut self) {
        let Some(code) = self.past.code_of(Side::Server) else {
            return;
        };
        let is_anew = |pair: &mut Pair| !pair.connection(Side::Server).is_closed();
        if self.pair.run_until(END, is_anew).is_ok() {
            self.close(Side::Server, code);
        }
    }

    /// Adds both sides' reports to the record.
    fn note(&mut self) {
        let Some(mut hash) = self.record else {
            return;
        };
        for side in SIDES {
            if self.pair.hosted(side).is_none() {
                continue;
            }
            let connection = self.pair.connection(side);
            let mut text = format!("{:?}", connection.stats());
            for path in connection.paths() {
                let _never_fails = write!(text, "{:?}", connection.path_stats(path));
            }
            hash.add_bytes(text.as_bytes());
        }
        self.record = Some(hash);
    }

    fn received(&self) -> u64 {
        let hosted = SIDES.map(|side| self.pair.hosted(side).unwrap());
        hosted
            .map(|hosted| hosted.application.received())
            .iter()
            .sum()
    }

    fn end_losses(&mut self) {
        for name in self.names.clone() {
            self.pair.change(&name, Change::Loss(Loss::None));
            self.pair.change(&name, Change::Corrupt(0.0));
        }
    }

    /// Packets of the network in each direction so far, all paths together.
    fn carried(&self) -> [Carried; 2] {
        let mut carried = [Carried::default(); 2];
        for name in &self.names {
            for (sum, link) in carried.iter_mut().zip(self.pair.counters(name)) {
                sum.taken += link.packets_in;
                sum.intact += link.packets_out - link.corrupted;
            }
        }
        carried
    }

    fn finish(&mut self) {
        // Bad links may take long, but must not stand still. Bursts of losses are counted in
        // packets and hold up a sender that is nearly silent, sometimes for half a minute: they end
        // then.
        let mut carried = self.carried();
        while self.pair.run_transfers(STANDSTILL).is_err() && !self.is_over() {
            let received = self.received();
            let before = std::mem::replace(&mut self.received, received);
            let earlier = std::mem::replace(&mut carried, self.carried());
            let cut_off = (0..2).any(|way| carried[way].is_cut_off_since(&earlier[way]));
            let progress = received > before || cut_off;
            assert!(progress, "stuck: {}", self.progress());
            if cut_off {
                self.end_losses();
            }
        }
        let all_acknowledged = |pair: &mut Pair| {
            SIDES.into_iter().all(|side| {
                let streams = pair.hosted(side).unwrap().application.outgoing();
                let mut whole = streams.values().filter(|stream| stream.is_whole());
                whole.all(|stream| stream.finished.is_some())
            })
        };
        let acknowledged = self.pair.run_until(STANDSTILL, all_acknowledged);
        if self.is_over() {
            return;
        }
        assert!(acknowledged.is_ok(), "unacknowledged: {}", self.progress());
        self.note();
        SIDES.into_iter().for_each(|side| self.check_routes(side));
        let side = SIDES[self.random.random_range(0..2)];
        self.close(side, 0);
    }

    /// An endpoint routes as many connection IDs, and knows as many tokens, as its paths need: two
    /// for each open, future or dying path.
    fn check_routes(&mut self, side: Side) {
        let setup = self.pair.setup_mut();
        let allowed = [&setup.client, &setup.server].map(|side| side.max_concurrent_paths);
        let allowed = allowed.into_iter().max().unwrap_or(0).max(1) as usize;
        let most = |pair: &mut Pair| 2 * (allowed + pair.connection(side).paths().count());
        // Replaced IDs count until the peer has retired them.
        let retired = |pair: &mut Pair| pair.routes(side).connection_ids <= most(pair);
        let _checked_below = self.pair.run_until(STANDSTILL, retired);
        let (routes, most) = (self.pair.routes(side), most(&mut self.pair));
        assert_eq!(routes.connections, 1);
        assert!((1..=most).contains(&routes.connection_ids), "{routes:?}");
        assert!(routes.retired_connection_ids <= 32, "{routes:?}");
        assert!(routes.reset_tokens <= most, "{routes:?}");
        assert!(routes.initial_connection_ids <= 1, "{routes:?}");
    }

    fn progress(&self) -> String {
        let [client, server] = SIDES.map(|side| self.pair.progress(side));
        format!("client {client}\nserver {server}")
    }
}

/// Packets sent in one direction of the network, and packets delivered unchanged.
#[derive(Debug, Clone, Copy, Default)]
struct Carried {
    taken: u64,
    intact: u64,
}

impl Carried {
    /// True if packets were sent, and none arrived.
    fn is_cut_off_since(&self, earlier: &Self) -> bool {
        self.taken > earlier.taken && self.intact == earlier.intact
    }
}

/// An item by share, from a list that is not empty.
fn pick<T>(all: impl Iterator<Item = T>, share: Share) -> Option<T> {
    let mut all: Vec<_> = all.collect();
    (!all.is_empty()).then(|| all.swap_remove(share.of(all.len())))
}
