//! Topologies and configurations, drawn from a seed.

use std::time::Duration;

use mpquic_core::config::{AckFrequencyOptions, TransportOptions};
use mpquic_sim::{AcceptPolicy, Backlog, LinkConfig, Setup, Topology};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, RngExt, SeedableRng};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// How the configurations of the two sides are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sides {
    /// One for both, with few differences from the defaults.
    Alike,
    /// One for each.
    Apart,
}

/// Network and configurations of a run.
pub(crate) struct Drawn {
    pub(crate) random: Xoshiro256PlusPlus,
    pub(crate) topology: Topology,
    pub(crate) names: Vec<String>,
    pub(crate) single_server_address: bool,
    pub(crate) setup: Setup,
}

pub(crate) fn one_of<T: Copy>(random: &mut impl Rng, all: &[T]) -> T {
    all[random.random_range(0..all.len())]
}

fn random_link(random: &mut Xoshiro256PlusPlus) -> LinkConfig {
    let rate = one_of(random, &[0.5, 2.0, 10.0, 50.0, 200.0]);
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
            // Networks may lose nearly a whole handshake, which goes on after their recovery.
            transport.max_handshake_duration = 600 * SECOND;
            // Only the client can repair a NAT binding, and only by sending.
            transport.keep_alive_interval = Some(5 * SECOND);
        });
    if random.random_bool(0.3) {
        setup.accept = AcceptPolicy::Retry;
    }
    setup
}

/// Draws what has no effect on whether the connection lives.
fn vary(random: &mut Xoshiro256PlusPlus, transport: &mut TransportOptions) {
    let schedulers = mpquic_sched::list();
    let scheduler = schedulers[random.random_range(0..schedulers.len())].name;
    transport.scheduler = mpquic_sched::by_name(scheduler).unwrap();
    let controllers = mpquic_cc::list();
    let controller = controllers[random.random_range(0..controllers.len())].name;
    transport.controller = mpquic_cc::by_name(controller).unwrap();
    transport.max_concurrent_paths = match random.random_range(0..20) {
        0 => 0,
        _ => random.random_range(1..6),
    };
    transport.active_connection_id_limit = random.random_range(2..6);
    transport.max_concurrent_uni_streams = one_of(random, &[1, 2, 10, 100]);
    transport.max_concurrent_bidi_streams = one_of(random, &[1, 2, 10, 100]);
    transport.initial_stream_receive_window = 1 << random.random_range(12..23);
    transport.initial_receive_window = 1 << random.random_range(12..23);
    transport.send_window = 1 << random.random_range(12..25);
    transport.max_mtu = one_of(random, &[1200, 1300, 1452]);
    transport.max_ack_delay = MS * one_of(random, &[1, 25, 100]);
    transport.ack_eliciting_threshold = one_of(random, &[1, 2, 10]);
    if random.random_bool(0.2) {
        transport.min_ack_delay = None;
    }
    if random.random_bool(0.4) {
        let mut asked = AckFrequencyOptions::default();
        asked.ack_eliciting_threshold = one_of(random, &[1, 5, 20]);
        asked.max_ack_delay = one_of(random, &[None, Some(5 * MS), Some(50 * MS)]);
        asked.reordering_threshold = one_of(random, &[None, Some(0), Some(1), Some(5)]);
        transport.ack_frequency = Some(asked);
    } else if random.random_bool(0.5) {
        transport.ack_frequency = None;
    }
    transport.packet_threshold = one_of(random, &[3, 3, 10]);
    transport.ecn = random.random_bool(0.8);
    transport.pacing = random.random_bool(0.8);
    transport.spin_bit = random.random_bool(0.3);
    transport.reset_stream_at = random.random_bool(0.8);
    transport.datagram_receive_buffer = one_of(random, &[None, Some(1500), Some(1 << 20)]);
    transport.datagram_send_buffer = one_of(random, &[1500, 1 << 20]);
    transport.max_transmit_segments = one_of(random, &[1, 2, 64]);
}

/// Draws idle timeouts and keep-alives with which no sequence of operations is so long, and no
/// outage, that the connection may time out.
fn vary_timeouts(random: &mut Xoshiro256PlusPlus, setup: &mut Setup, is_natted: bool) {
    let timeouts = [None, Some(60 * SECOND), Some(120 * SECOND)];
    setup.client.max_idle_timeout = one_of(random, &timeouts);
    setup.server.max_idle_timeout = one_of(random, &timeouts);
    // A side that misses the news of the end learns of it only by that.
    if setup.client.max_idle_timeout.is_none() && setup.server.max_idle_timeout.is_none() {
        setup.server.max_idle_timeout = Some(60 * SECOND);
    }
    let intervals = [None, Some(2 * SECOND), Some(5 * SECOND)];
    setup.server.keep_alive_interval = one_of(random, &intervals);
    // Only the client can repair a NAT binding, and only by sending.
    let first = usize::from(is_natted);
    setup.client.keep_alive_interval = one_of(random, &intervals[first..]);
}

/// Draws everything from a seed.
pub(crate) fn draw(seed: u64, tls: bool, sides: Sides) -> Drawn {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut topology = Topology::new();
    let mut names = Vec::new();
    let mut is_natted = false;
    for index in 0..random.random_range(1..5) {
        let name = format!("path {index}");
        let link = random_link(&mut random);
        topology = match random.random_range(0..3) {
            0 => {
                is_natted = true;
                topology.natted_path(&name, link)
            }
            1 => topology.asymmetric_path(&name, link, random_link(&mut random)),
            _ => topology.path(&name, link),
        };
        names.push(name);
    }
    let single_server_address = random.random_bool(0.3);
    if single_server_address {
        topology = topology.single_server_address();
    }
    if random.random_bool(0.2) {
        let shared = random_link(&mut random).loss(random.random_range(0.0..0.04));
        topology = topology.shared_bottleneck(shared);
    }
    let mut setup = random_setup(&mut random, seed);
    if sides == Sides::Apart {
        vary(&mut random, &mut setup.client);
        vary(&mut random, &mut setup.server);
        vary_timeouts(&mut random, &mut setup, is_natted);
    }
    if tls {
        setup = setup.tls();
    }
    Drawn {
        random,
        topology,
        names,
        single_server_address,
        setup,
    }
}
