//! Random topologies and random operations of network, client and server: whatever happens, no
//! invariant breaks, every transfer completes once the network works again, and no state is left.

use std::time::Duration;

use mpquic_core::{
    ConnectionError, Event, PathId, PathState, PathStatus, TransportErrorCode, VarInt,
};
use mpquic_sim::{
    AcceptPolicy, Backlog, Change, Crypto, LinkConfig, Loss, Pair, Setup, Side, Topology,
};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const SIDES: [Side; 2] = [Side::Client, Side::Server];

struct Run {
    random: Xoshiro256PlusPlus,
    pair: Pair,
    names: Vec<String>,
    /// The side that abandons paths. If both did, each the path the other one keeps, and a NAT box
    /// forgot its bindings at that moment, neither could reach the other again.
    closer: Side,
    tls: bool,
    /// Bytes read by both sides when last looked at.
    received: u64,
    log: Vec<String>,
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

fn random_setup(random: &mut Xoshiro256PlusPlus, seed: u64) -> Setup {
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
    if random.random_bool(0.25) {
        setup = setup.tls();
    }
    setup
}

impl Run {
    fn new(seed: u64) -> Self {
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
            topology = topology.shared_bottleneck(random_link(&mut random));
        }
        let setup = random_setup(&mut random, seed);
        let tls = matches!(setup.crypto, Crypto::Tls(_));
        let pair = Pair::connected(&topology, setup);
        let closer = SIDES[random.random_range(0..2)];
        Self {
            random,
            pair,
            names,
            closer,
            tls,
            received: 0,
            log: Vec::new(),
        }
    }

    fn side(&mut self) -> Side {
        SIDES[self.random.random_range(0..2)]
    }

    /// A path that a side knows.
    fn path(&mut self, side: Side) -> Option<PathId> {
        let paths: Vec<_> = self.pair.connection(side).paths().collect();
        let index = self.random.random_range(0..paths.len().max(1));
        paths.get(index).copied()
    }

    fn operate(&mut self) {
        let side = self.side();
        let name = self.names[self.random.random_range(0..self.names.len())].clone();
        let operation = self.random.random_range(0..20);
        let elapsed = self.pair.elapsed();
        self.log
            .push(format!("{elapsed:?} operation {operation} {side:?} {name}"));
        match operation {
            0..=3 => {
                let size = 1 << self.random.random_range(0..22);
                self.pair.send(side, size);
            }
            4..=6 => {
                let status = [PathStatus::Available, PathStatus::Backup];
                let status = status[self.random.random_range(0..2)];
                let _may_be_refused = self.pair.open_path(&name, status);
            }
            7 => self.operate_on_network(&name),
            8 => self.pair.set_outage(&name, true),
            9..=11 => self.pair.set_outage(&name, false),
            12 => {
                let now = self.pair.now();
                self.pair.connection(side).initiate_key_update(now);
            }
            13 => {
                let size = self.random.random_range(1..1300);
                let datagram = vec![1; size].into();
                let _may_be_refused = self.pair.connection(side).send_datagram(datagram);
            }
            _ => self.operate_on_path(side, operation),
        }
    }

    fn operate_on_network(&mut self, name: &str) {
        let change = match self.random.random_range(0..5) {
            0 => Change::Rate(self.random.random_range(0.5..100.0)),
            1 => Change::Delay(MS * self.random.random_range(1..200)),
            2 => Change::Loss(Loss::bernoulli(self.random.random_range(0.0..0.1))),
            // Only real cryptography notices.
            3 if self.tls => Change::Corrupt(self.random.random_range(0.0..0.05)),
            3 => Change::Mtu(self.random.random_range(1250..1500)),
            _ => {
                let path = &self.pair.links()[self.pair.index_of(name)];
                if path.nat.is_some() {
                    let other_ip = self.random.random_bool(0.3);
                    self.pair.rebind(name, other_ip);
                }
                return;
            }
        };
        self.pair.change(name, change);
    }

    fn operate_on_path(&mut self, side: Side, operation: u32) {
        let Some(path) = self.path(side) else { return };
        let now = self.pair.now();
        let connection = self.pair.connection(side);
        let stats = connection
            .paths()
            .filter_map(|path| connection.path_stats(path));
        let open = stats.filter(|stats| stats.state != PathState::Abandoned);
        let last = open.count() == 1;
        let _may_be_closed = match operation {
            14 | 15 => {
                let status = [PathStatus::Available, PathStatus::Backup][path.0 as usize % 2];
                connection.set_path_status(path, status)
            }
            16 => connection.ping_path(path),
            17 => {
                let down = connection.set_path_usable(now, path, false);
                self.pair.drive(50 * MS);
                let now = self.pair.now();
                let _may_be_closed = self.pair.connection(side).set_path_usable(now, path, true);
                down
            }
            _ if last || side != self.closer => Ok(()),
            _ => connection.close_path(now, path, TransportErrorCode::NO_ERROR),
        };
    }

    /// The connection may end if the last path goes; both sides may have closed one at a time.
    fn is_over(&self) -> bool {
        SIDES.into_iter().any(|side| {
            let lost = |event: &Event| matches!(event, Event::ConnectionLost { .. });
            self.pair.events(side).iter().any(lost)
        })
    }

    fn run(&mut self) {
        for _ in 0..self.random.random_range(5..40) {
            self.operate();
            let pause = MS * self.random.random_range(0..400);
            self.pair.drive(pause);
            if self.is_over() {
                break;
            }
        }
        for name in self.names.clone() {
            self.pair.set_outage(&name, false);
            self.pair.change(&name, Change::Mtu(1500));
        }
        if !self.is_over() {
            self.finish();
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
        let side = self.side();
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
            let no_path = TransportErrorCode::NO_VIABLE_PATH;
            let expected = match &reason {
                ConnectionError::LocallyClosed | ConnectionError::ApplicationClosed(_) => true,
                ConnectionError::ConnectionClosed(close) => close.code == no_path,
                ConnectionError::TransportError(error) => error.code == no_path,
                _ => false,
            };
            assert!(expected, "{reason}");
        }
    }
}

fn run(seed: u64) {
    let mut run = Run::new(seed);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        run.run();
        run.check_reasons();
    }));
    if let Err(error) = result {
        eprintln!("seed {seed}:\n{}", run.log.join("\n"));
        for side in SIDES {
            for (time, event) in run.pair.hosted(side).unwrap().events() {
                let ago = run.pair.now() - *time;
                eprintln!("{side:?} {:?} {event:?}", run.pair.elapsed() - ago);
            }
        }
        std::panic::resume_unwind(error);
    }
}

/// Runs every second seed, or the one in the environment variable SEED alone.
fn run_seeds(first: u64) {
    match std::env::var("SEED") {
        Ok(seed) => run(seed.parse().unwrap()),
        Err(_) => (first..400).step_by(2).for_each(run),
    }
}

#[test]
fn random_operations_first_half() {
    run_seeds(0);
}

#[test]
fn random_operations_second_half() {
    run_seeds(1);
}
