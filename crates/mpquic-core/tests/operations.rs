//! Random topologies and random operations of network, client and server: whatever happens, no
//! invariant breaks, every transfer completes once the network works again, and no state is left.
//!
//! The reference model is plain: bytes are a function of stream and offset, so that each must
//! arrive once and in its place, and the simulator watches the wire for nonces used twice, for
//! datagrams beyond the window or three times what came, and for statistics that do not add up.
//!
//! `OPERATIONS=100000` sets the number of sequences of each test, `SEED=n` lets others follow.

use std::time::Duration;

use mpquic_core::{
    ClosedPath, ConnectionError, Event, Fault, PathState, PathStatus, TransportErrorCode, VarInt,
};
use mpquic_sim::{AcceptPolicy, Backlog, Change, LinkConfig, Loss, Pair, Setup, Side, Topology};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{FileFailurePersistence, RngSeed, TestRunner};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const SIDES: [Side; 2] = [Side::Client, Side::Server];

/// What may happen to a link.
#[derive(Debug, Clone)]
enum Trouble {
    Outage(bool),
    Rate(f64),
    Delay(u32),
    Loss(f64),
    /// Only real cryptography notices; without it the MTU changes instead.
    Corrupt(f64),
    Mtu(usize),
    Rebind {
        other_ip: bool,
    },
}

/// What a side may do to a path.
#[derive(Debug, Clone)]
enum OnPath {
    Status(PathStatus),
    Ping,
    DownAndUp,
    /// Only one side does. If both did, each the path the other one keeps, and a NAT box forgot
    /// its bindings at that moment, neither could reach the other again.
    Close,
}

#[derive(Debug, Clone)]
enum Operation {
    Send(Side, u32),
    Datagram(Side, usize),
    Reset(Side, Index),
    Stop(Side, Index),
    Pause(Side),
    Resume(Side),
    UpdateKeys(Side),
    OpenPath(Index, PathStatus),
    Network(Index, Trouble),
    Path(Side, Index, OnPath),
}

fn trouble() -> impl Strategy<Value = Trouble> {
    prop_oneof![
        2 => Just(Trouble::Outage(true)),
        6 => Just(Trouble::Outage(false)),
        1 => (0.5..100.0).prop_map(Trouble::Rate),
        1 => (1..200u32).prop_map(Trouble::Delay),
        1 => (0.0..0.1).prop_map(Trouble::Loss),
        1 => (0.0..0.05).prop_map(Trouble::Corrupt),
        1 => (1250..1500usize).prop_map(Trouble::Mtu),
        2 => any::<bool>().prop_map(|other_ip| Trouble::Rebind { other_ip }),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let side = || proptest::sample::select(&SIDES[..]);
    let status = || proptest::sample::select(&[PathStatus::Available, PathStatus::Backup][..]);
    let on_path = prop_oneof![
        status().prop_map(OnPath::Status),
        Just(OnPath::Ping),
        Just(OnPath::DownAndUp),
        Just(OnPath::Close),
    ];
    prop_oneof![
        4 => (side(), 0..22u32).prop_map(|(side, log)| Operation::Send(side, log)),
        1 => (side(), 1..1300usize).prop_map(|(side, size)| Operation::Datagram(side, size)),
        1 => (side(), any::<Index>()).prop_map(|(side, index)| Operation::Reset(side, index)),
        1 => (side(), any::<Index>()).prop_map(|(side, index)| Operation::Stop(side, index)),
        1 => side().prop_map(Operation::Pause),
        1 => side().prop_map(Operation::Resume),
        1 => side().prop_map(Operation::UpdateKeys),
        3 => (any::<Index>(), status())
            .prop_map(|(index, status)| Operation::OpenPath(index, status)),
        5 => (any::<Index>(), trouble())
            .prop_map(|(index, trouble)| Operation::Network(index, trouble)),
        6 => (side(), any::<Index>(), on_path)
            .prop_map(|(side, index, what)| Operation::Path(side, index, what)),
    ]
}

struct Run {
    random: Xoshiro256PlusPlus,
    pair: Pair,
    names: Vec<String>,
    tls: bool,
    /// Bytes read by both sides when last looked at.
    received: u64,
}

fn random_link(random: &mut Xoshiro256PlusPlus) -> LinkConfig {
    let rate = [0.5, 2.0, 10.0, 50.0, 200.0][random.random_range(0..5)];
    let delay = MS * random.random_range(1..150);
    let mut link = LinkConfig::new(rate, delay);
    link = match random.random_range(0..4) {
        0 => link.loss(random.random_range(0.0..0.08)),
        // Bursts are counted in packets: longer ones would hold up a quiet sender for minutes.
        1 => link.burst_loss(random.random_range(0.0..0.08), 2.0),
        _ => link,
    };
    if random.random_bool(0.3) {
        link = link.jitter(delay / 4);
        link.jitter_reorders = random.random_bool(0.5);
    }
    if random.random_bool(0.3) {
        link = link.reorder(0.03, delay / 2).duplicate(0.03);
    }
    if random.random_bool(0.2) {
        link = link.ecn(Backlog::time(5 * MS));
    }
    if random.random_bool(0.2) {
        link = link.mtu(random.random_range(1250..1500));
    }
    link
}

fn random_setup(random: &mut Xoshiro256PlusPlus, seed: u64, tls: bool) -> Setup {
    let schedulers = mpquic_sched::list();
    let controllers = mpquic_cc::list();
    let scheduler = schedulers[random.random_range(0..schedulers.len())].name;
    let controller = controllers[random.random_range(0..controllers.len())].name;
    let scheduler = mpquic_sched::by_name(scheduler).unwrap();
    let controller = mpquic_cc::by_name(controller).unwrap();
    let paths = random.random_range(2..6);
    let window = 1 << random.random_range(15..23);
    let mut setup = Setup::with_policies(scheduler, controller)
        .seed(seed)
        .transport(|transport| {
            transport.max_concurrent_paths = paths;
            transport.initial_stream_receive_window = window;
            transport.initial_receive_window = window;
            transport.max_idle_timeout = Some(60 * SECOND);
            // Only the client can repair a NAT binding, and only by sending.
            transport.keep_alive_interval = Some(5 * SECOND);
        });
    if random.random_bool(0.3) {
        setup.accept = AcceptPolicy::Retry;
    }
    if tls {
        setup = setup.tls();
    }
    setup
}

/// Completes a handshake. False if a burst of losses outlasts the idle timeout, as happens about
/// once in 10,000 times.
fn connect(pair: &mut Pair, first_path: &str) -> bool {
    pair.connect();
    let Err(error) = pair.run_until_confirmed(60 * SECOND) else {
        return true;
    };
    let lost = pair.counters(first_path).map(|link| link.dropped_loss);
    assert!(
        lost.into_iter().any(|lost| lost >= 8),
        "not connected: {error}; {:?}; lost: {lost:?}",
        pair.events(Side::Client)
    );
    false
}

impl Run {
    /// `None` if the network lost the handshake.
    fn new(seed: u64, tls: bool) -> Option<Self> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut topology = Topology::new();
        let mut names = Vec::new();
        for index in 0..random.random_range(1..5) {
            let name = format!("path {index}");
            let link = random_link(&mut random);
            topology = match random.random_range(0..3) {
                0 => topology.natted_path(&name, link),
                1 => topology.asymmetric_path(&name, link, random_link(&mut random)),
                _ => topology.path(&name, link),
            };
            names.push(name);
        }
        if random.random_bool(0.3) {
            topology = topology.single_server_address();
        }
        if random.random_bool(0.2) {
            let shared = random_link(&mut random).loss(random.random_range(0.0..0.04));
            topology = topology.shared_bottleneck(shared);
        }
        let setup = random_setup(&mut random, seed, tls);
        let mut pair = Pair::new(&topology, setup);
        connect(&mut pair, &names[0]).then_some(Self {
            random,
            pair,
            names,
            tls,
            received: 0,
        })
    }

    fn operate(&mut self, operation: &Operation) {
        let code = VarInt::from_u32(7);
        match operation {
            Operation::Send(side, log) => {
                let size = (1 << log) + u64::from(*log);
                self.pair.send(*side, size);
            }
            Operation::Datagram(side, size) => {
                let datagram = vec![1; *size].into();
                let _may_be_refused = self.pair.connection(*side).datagrams().send(datagram);
            }
            Operation::Reset(side, index) => {
                let streams = self.pair.hosted(*side).unwrap().application.outgoing();
                if let Some(id) = pick(streams.keys().copied(), index) {
                    let hosted = self.pair.hosted_mut(*side);
                    hosted.application.reset(&mut hosted.connection, id, code);
                }
            }
            Operation::Stop(side, index) => {
                let streams = self.pair.hosted(*side).unwrap().application.incoming();
                if let Some(id) = pick(streams.keys().copied(), index) {
                    let hosted = self.pair.hosted_mut(*side);
                    hosted.application.stop(&mut hosted.connection, id, code);
                }
            }
            Operation::Pause(side) => self.pair.hosted_mut(*side).application.pause(),
            Operation::Resume(side) => self.resume(*side),
            Operation::UpdateKeys(side) => {
                let now = self.pair.now();
                self.pair.connection(*side).initiate_key_update(now);
            }
            Operation::OpenPath(index, status) => {
                let name = index.get(&self.names);
                let _may_be_refused = self.pair.open_path(name, *status);
            }
            Operation::Network(index, trouble) => {
                self.disturb(index.index(self.names.len()), trouble)
            }
            Operation::Path(side, index, what) => self.operate_on_path(*side, index, what),
        }
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
                if path.nat.is_some() {
                    self.pair.rebind(&name, *other_ip);
                }
                return;
            }
        };
        self.pair.change(&name, change);
    }

    fn operate_on_path(&mut self, side: Side, index: &Index, what: &OnPath) {
        let now = self.pair.now();
        let connection = self.pair.connection(side);
        let Some(path) = pick(connection.paths(), index) else {
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
            OnPath::Close => connection
                .close_path(now, path, TransportErrorCode::NO_ERROR)
                .map_err(|_| ClosedPath),
        };
    }

    /// The connection may end if the last path goes; both sides may have closed one at a time.
    fn is_over(&self) -> bool {
        SIDES.into_iter().any(|side| {
            let lost = |event: &Event| matches!(event, Event::ConnectionLost { .. });
            self.pair.events(side).iter().any(lost)
        })
    }

    fn run(&mut self, operations: &[(Operation, u32)]) {
        for (operation, pause) in operations {
            self.operate(operation);
            self.pair.drive(MS * *pause);
            if self.is_over() {
                break;
            }
        }
        for name in self.names.clone() {
            self.pair.set_outage(&name, false);
            self.pair.change(&name, Change::Mtu(1500));
        }
        if !self.is_over() {
            SIDES.into_iter().for_each(|side| self.resume(side));
            self.finish();
        }
        for side in SIDES {
            let hosted = self.pair.hosted(side).unwrap();
            assert_eq!(hosted.application.corruption(), None, "{side:?}");
        }
        self.pair.run_until_drained(120 * SECOND);
        assert_eq!(self.pair.open_connections(Side::Client), 0);
    }

    fn received(&self) -> u64 {
        let hosted = SIDES.map(|side| self.pair.hosted(side).unwrap());
        hosted
            .map(|hosted| hosted.application.received())
            .iter()
            .sum()
    }

    fn finish(&mut self) {
        // Bad links may take long, but must not stand still.
        while self.pair.run_transfers(60 * SECOND).is_err() && !self.is_over() {
            let received = self.received();
            let before = std::mem::replace(&mut self.received, received);
            assert!(
                received > before,
                "stuck: client {}\nserver {}",
                self.pair.progress(Side::Client),
                self.pair.progress(Side::Server)
            );
        }
        if self.is_over() {
            return;
        }
        let side = SIDES[self.random.random_range(0..2)];
        let now = self.pair.now();
        let code = VarInt::from_u32(0);
        self.pair.connection(side).close(now, code, "".into());
    }

    /// The connection may end only because a side closed it, or its last path; the other side may
    /// then miss the news and time out or be reset.
    fn check_reasons(&self) {
        let reasons: Vec<_> = SIDES
            .into_iter()
            .filter_map(|side| {
                let events = self.pair.events(side).into_iter();
                events.rev().find_map(|event| match event {
                    Event::ConnectionLost { reason } => Some(reason),
                    _ => None,
                })
            })
            .collect();
        let consequence = |reason: &ConnectionError| {
            matches!(reason, ConnectionError::TimedOut | ConnectionError::Reset)
        };
        let consequences = reasons.iter().filter(|reason| consequence(reason)).count();
        assert!(consequences < 2 && !reasons.is_empty(), "{reasons:?}");
        for reason in reasons.into_iter().filter(|reason| !consequence(reason)) {
            let no_path = Fault::NoPathLeft;
            let expected = match &reason {
                ConnectionError::LocallyClosed | ConnectionError::ApplicationClosed(_) => true,
                ConnectionError::ConnectionClosed(close) => {
                    close.code == no_path.code() && close.reason == no_path.reason()
                }
                ConnectionError::TransportError(error) => error.fault == no_path,
                _ => false,
            };
            assert!(expected, "{reason}");
        }
    }
}

/// One of them, if there are any.
fn pick<T>(all: impl Iterator<Item = T>, index: &Index) -> Option<T> {
    let mut all: Vec<_> = all.collect();
    (!all.is_empty()).then(|| all.swap_remove(index.index(all.len())))
}

fn number(variable: &str, default: u32) -> u32 {
    let given = std::env::var(variable);
    given.map_or(default, |value| value.parse().unwrap())
}

fn sequences(tls: bool, cases: u32) {
    let config = ProptestConfig {
        cases: number("OPERATIONS", cases),
        rng_seed: RngSeed::Fixed(number("SEED", 0).into()),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "tests/operations.regressions",
        ))),
        ..ProptestConfig::default()
    };
    let operations = proptest::collection::vec((operation(), 0..400u32), 5..40);
    let result = TestRunner::new(config).run(&(any::<u64>(), operations), |(seed, operations)| {
        let Some(mut run) = Run::new(seed, tls) else {
            return Err(TestCaseError::reject("the network lost the handshake"));
        };
        run.run(&operations);
        run.check_reasons();
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn random_operations() {
    sequences(false, 300);
}

#[test]
fn random_operations_with_tls() {
    sequences(true, 100);
}
