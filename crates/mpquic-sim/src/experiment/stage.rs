//! [`Stage`]: a scenario set up for one run: links, hosts, connections, and the clock.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mpquic_core::sched::SchedulerFactory;
use mpquic_core::{FourTuple, PathId, PathStats, Side, VarInt};
use mpquic_paths::{Managed, Start};

use super::informed::{Informed, Known};
use super::interfaces::Interfaces;
use super::plan::Plan;
use super::player::{Client, FurtherPaths, Player};
use crate::host::{Host, Hosted};
use crate::lab::{Lab, epoch};
use crate::link::LinkConfig;
use crate::network::{Hop, HostId, LinkId};
use crate::pair::{Crypto, Pair, Setup};
use crate::scenario::{
    Competitor, Contender, Handshake, LinkPair, Migration, Scenario, UsedPaths, Workload, take_over,
};
use crate::tls::SERVER_NAME;
use crate::topology::Topology;
use crate::traffic::{Arrivals, Traffic};

#[cfg(test)]
mod tests;

const CLIENT_PORT: u16 = 50_000;
const SERVER_PORT: u16 = 4433;
/// Most streams that a client may have open; pages have hundreds of objects.
const MAX_STREAMS: u64 = 1000;
/// UDP payload of an inner connection, bytes.
const INNER_MTU: u16 = 1200;
/// Keeps the seed of an inner connection apart from the seeds of competitors.
const INNER_SEED: u64 = 1 << 20;

/// A connection of a run, with both sides.
pub(super) struct Flow {
    client: HostId,
    server: HostId,
    setup: Setup,
    pub(super) upload: bool,
    /// Indices of the scenario's paths that the connection uses, the path of the handshake first.
    pub(super) paths: Vec<usize>,
    pub(super) start: Duration,
    stop: Option<Duration>,
    /// A change of address that is still to come.
    migration: Option<Migration>,
    /// Number of paths that the connection has from the start.
    starts_with: usize,
    /// The client sends requests before the handshake is complete.
    is_early: bool,
    /// The setup of the inner connection; `None` without an inner connection.
    inner: Option<Setup>,
    connected: bool,
    stopped: bool,
    /// The client's addresses on the paths that the connection has from the start.
    interfaces: Interfaces,
}

impl Flow {
    /// The side that sends the data.
    fn sender(&self) -> HostId {
        if self.upload {
            self.client
        } else {
            self.server
        }
    }

    fn receiver(&self) -> HostId {
        if self.upload {
            self.server
        } else {
            self.client
        }
    }
}

/// A scenario set up for one run. Flow 0 is the measured connection.
pub(super) struct Stage {
    lab: Lab<Player>,
    pub(super) flows: Vec<Flow>,
    /// The links of each path: from the client, and to the client.
    paths: Vec<[LinkId; 2]>,
    /// The shared links behind each path, in both directions.
    vias: Vec<Vec<[LinkId; 2]>>,
    /// Propagation delays of each path, including the shared links.
    one_way: Vec<[Duration; 2]>,
}

fn address(flow: usize, path: usize, host: u8) -> IpAddr {
    // Scenarios have at most 201 flows and eight paths.
    Ipv4Addr::new(10, flow as u8, path as u8, host).into()
}

/// The client's address on a path.
fn client_address(flow: usize, path: usize) -> SocketAddr {
    SocketAddr::new(address(flow, path, 1), CLIENT_PORT)
}

/// The server's address, which is the same on all paths.
fn server_address(flow: usize) -> SocketAddr {
    SocketAddr::new(address(flow, 0, 2), SERVER_PORT)
}

impl Stage {
    /// Builds everything that a run of the scenario needs, before any packet is sent. Equal
    /// arguments give equal runs.
    pub(super) fn new(
        scenario: &Scenario,
        contender: &Contender,
        values: &[f64],
        seed: u64,
    ) -> Result<Self, String> {
        let mut stage = Self {
            lab: Lab::new(seed),
            flows: Vec::new(),
            paths: Vec::new(),
            vias: Vec::new(),
            one_way: Vec::new(),
        };
        stage.build_links(scenario, values, seed);
        stage.add_cross_traffic(scenario, values);
        let used = used_paths(scenario, contender.paths, values);
        let mut scheduler = self::scheduler(scenario, &contender.scheduler)?;
        if contender.know_rates || contender.know_rtts {
            let known = used
                .iter()
                .map(|path| known(scenario, *path, values, contender));
            scheduler = Informed::factory(scheduler, known.collect());
        }
        let mut main = setup(scenario, scheduler, &contender.controller)?;
        main.starts_everywhere = scenario.workload.starts_everywhere;
        let is_first = |contender: &Contender| contender.handshake == Handshake::Full;
        if !scenario.contenders.iter().all(is_first) {
            main.crypto = Crypto::tls();
        }
        if !is_first(contender) {
            connect_before(&main);
        }
        let inner = scenario.workload.inner.as_deref();
        let inner = inner.map(|controller| inner_setup(scenario, controller, seed));
        let flow = Flow {
            inner: inner.transpose()?,
            starts_with: used.len(),
            paths: used
                .into_iter()
                .chain(contender.migration.map(|migration| migration.to))
                .collect(),
            migration: contender.migration,
            is_early: contender.handshake == Handshake::Early,
            ..stage.new_flow(main.seed(seed))
        };
        stage.add_main(scenario, contender, values, flow);
        for (index, competitor) in scenario.competitors.iter().enumerate() {
            let scheduler = self::scheduler(scenario, &competitor.scheduler)?;
            let alike = || scenario.policies.single_path(&contender.controller);
            let controller = competitor.controller.as_deref().unwrap_or_else(alike);
            let setup = setup(scenario, scheduler, controller)?;
            stage.add_competitor(scenario, competitor, setup.seed(seed + 1 + index as u64));
        }
        for flow in 0..stage.flows.len() {
            stage.add_routes(flow);
        }
        Ok(stage)
    }

    /// Makes all links.
    fn build_links(&mut self, scenario: &Scenario, values: &[f64], seed: u64) {
        let distinct = |index: usize| seed.rotate_left(17) ^ ((index as u64 + 1) << 8);
        let shared: Vec<_> = scenario.links.iter().enumerate().collect();
        let shared: Vec<[LinkId; 2]> = shared
            .into_iter()
            .map(|(index, link)| {
                let links = link.links.links(values, distinct(1000 + index));
                links.map(|link| self.lab.network.add_link(link))
            })
            .collect();
        let paths = scenario.paths.iter().enumerate();
        let mut configs: Vec<_> = paths
            .map(|(index, path)| path.links.links(values, distinct(index)))
            .collect();
        let before = configs.clone();
        for swap in &scenario.swaps {
            let [a, b] = swap.paths;
            for direction in 0..2 {
                take_over(&mut configs[a][direction], &before[b][direction], swap.time);
                take_over(&mut configs[b][direction], &before[a][direction], swap.time);
            }
        }
        for config in configs {
            self.paths
                .push(config.map(|link| self.lab.network.add_link(link)));
        }
        let delay = |links: &LinkPair, direction: usize| links.one_way(values)[direction];
        for path in &scenario.paths {
            self.one_way.push([0, 1].map(|direction| {
                let via = path
                    .via
                    .iter()
                    .map(|link| delay(&scenario.links[*link].links, direction));
                delay(&path.links, direction) + via.sum::<Duration>()
            }));
        }
        let vias = scenario.paths.iter();
        let vias = vias.map(|path| path.via.iter().map(|link| shared[*link]).collect());
        self.vias = vias.collect();
    }

    fn add_cross_traffic(&mut self, scenario: &Scenario, values: &[f64]) {
        for cross in &scenario.cross_traffic {
            let link = self.paths[cross.path][usize::from(!cross.up)];
            let traffic = Traffic {
                rate: cross.rate.at(values) * 1e6,
                packet_bytes: cross.packet_bytes,
                arrivals: if cross.poisson {
                    Arrivals::Poisson
                } else {
                    Arrivals::Constant
                },
                ecn: cross.ecn,
                from: epoch() + cross.from,
                to: cross.to.map(|to| epoch() + to),
            };
            self.lab.network.add_traffic(traffic, &[link]);
        }
    }

    fn add_main(&mut self, scenario: &Scenario, contender: &Contender, values: &[f64], flow: Flow) {
        let workload = &scenario.workload;
        let mut plan = Plan::new(workload, values, flow.setup.seed);
        if !contender.priorities {
            plan.forget_priorities();
        }
        let flow = Flow {
            upload: workload.upload,
            start: workload.start,
            ..flow
        };
        self.add_flow(scenario, flow, plan, workload.wait_for_paths);
    }

    fn add_competitor(&mut self, scenario: &Scenario, competitor: &Competitor, setup: Setup) {
        let flow = Flow {
            upload: competitor.upload,
            paths: competitor.paths.clone(),
            starts_with: competitor.paths.len(),
            start: competitor.start,
            stop: competitor.stop,
            ..self.new_flow(setup)
        };
        self.add_flow(scenario, flow, Plan::competitor(competitor.rate), false);
    }

    /// A flow between the next two hosts.
    fn new_flow(&self, setup: Setup) -> Flow {
        let first = 2 * self.flows.len();
        Flow {
            client: HostId(first),
            server: HostId(first + 1),
            setup,
            upload: false,
            paths: Vec::new(),
            start: Duration::ZERO,
            stop: None,
            migration: None,
            starts_with: 0,
            is_early: false,
            inner: None,
            connected: false,
            stopped: false,
            interfaces: Interfaces::default(),
        }
    }

    fn add_flow(&mut self, scenario: &Scenario, mut flow: Flow, plan: Plan, wait_for_paths: bool) {
        let index = self.flows.len();
        let further = flow.paths.iter().take(flow.starts_with).skip(1);
        let paths = FurtherPaths::new(further.count());
        for path in flow.paths.iter().take(flow.starts_with) {
            let address = client_address(index, *path);
            flow.interfaces.add(address, &scenario.paths[*path]);
        }
        let inner = flow.inner.clone();
        let inside = inner.clone();
        let client = Client::new(plan, flow.upload, wait_for_paths, paths);
        if flow.starts_with == 1 {
            flow.setup = flow
                .setup
                .transport(|transport| transport.max_concurrent_paths = 0);
        }
        let seed = flow.setup.seed.wrapping_mul(2);
        let setup = &flow.setup;
        let mut client_host = Host::new(
            setup.endpoint_config(Side::Client),
            None,
            seed + 1,
            move || match &inner {
                Some(inner) => Player::client_of_tunnel(client.clone(), inner),
                None => Player::client(client.clone()),
            },
        );
        let mut server_host = Host::new(
            setup.endpoint_config(Side::Server),
            Some(setup.server_config()),
            seed + 2,
            move || match &inside {
                Some(inner) => Player::server_of_tunnel(inner),
                None => Player::default(),
            },
        );
        for host in [&mut client_host, &mut server_host] {
            host.set_checks(false);
            host.show_queues(scenario.transport.show_queues);
        }
        let added = [
            self.lab.add_host(client_host),
            self.lab.add_host(server_host),
        ];
        debug_assert_eq!(added, [flow.client, flow.server]);
        self.flows.push(flow);
    }

    /// The links of a path: from the client, and to the client.
    fn hops(&self, path: usize) -> [Vec<Hop>; 2] {
        let via = &self.vias[path];
        let shared = |direction: usize| via.iter().map(move |link| Hop::Link(link[direction]));
        let [up, down] = self.paths[path].map(Hop::Link);
        let up = std::iter::once(up).chain(shared(0)).collect();
        [up, shared(1).rev().chain([down]).collect()]
    }

    fn add_routes(&mut self, flow: usize) {
        let Flow { client, server, .. } = self.flows[flow];
        for path in 0..self.vias.len() {
            let (near, far) = (client_address(flow, path).ip(), server_address(flow).ip());
            let [up, down] = self.hops(path);
            self.lab.network.add_route(near, far, up, server);
            self.lab.network.add_route(far, near, down, client);
        }
    }

    /// Virtual time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.lab.elapsed()
    }

    pub(super) fn now(&self) -> Instant {
        epoch() + self.elapsed()
    }

    /// The instant a flow starts.
    pub(super) fn start_of(&self, flow: usize) -> Instant {
        epoch() + self.flows[flow].start
    }

    /// Lets time pass up to `end`. Starts and stops flows at their times.
    pub(super) fn run_until(&mut self, end: Duration) -> Result<(), String> {
        loop {
            let starts = self.flows.iter().filter(|flow| !flow.connected);
            let stops = self
                .flows
                .iter()
                .filter(|flow| flow.connected && !flow.stopped);
            let moves = self.flows.iter().filter_map(|flow| flow.migration);
            let changes = self
                .flows
                .iter()
                .filter_map(|flow| flow.interfaces.next_change());
            let next = starts
                .map(|flow| flow.start)
                .chain(stops.filter_map(|flow| flow.stop))
                .chain(moves.map(|migration| migration.at))
                .chain(changes)
                .min();
            let until = next.map_or(end, |next| next.min(end));
            self.lab.drive(until.saturating_sub(self.lab.elapsed()));
            if next.is_none_or(|next| next > end) {
                return Ok(());
            }
            for flow in 0..self.flows.len() {
                self.start_or_stop(flow)?;
                self.migrate(flow)?;
                self.change_interfaces(flow);
            }
        }
    }

    fn start_or_stop(&mut self, index: usize) -> Result<(), String> {
        let (now, elapsed) = (self.lab.now(), self.lab.elapsed());
        let flow = &mut self.flows[index];
        if !flow.connected && flow.start <= elapsed {
            flow.connected = true;
            let path = flow.paths.first().copied().unwrap_or(0);
            let host = self.lab.host_mut(flow.client);
            let mut config = flow.setup.client_config();
            let four_tuple = FourTuple::new(client_address(index, path), server_address(index));
            if flow.setup.starts_everywhere {
                let locals = flow.interfaces.locals(elapsed);
                let used = locals.iter().filter(|local| !local.is_backup());
                let pairs = used.map(|local| FourTuple::new(local.address(), four_tuple.remote));
                config.first_flight_from = pairs.filter(|pair| *pair != four_tuple).collect();
            }
            let connection = host
                .connect(now, config, four_tuple, SERVER_NAME)
                .map_err(|error| error.to_string())?;
            if flow.starts_with > 1 {
                let start = Start::new(four_tuple, flow.interfaces.locals(elapsed));
                let manager = Managed::new(&*mpquic_paths::default(), &start);
                host.manage_paths(connection, manager);
            }
            if flow.is_early {
                let Hosted {
                    connection,
                    application,
                    ..
                } = host.connection_mut(0);
                application.ask_early(now, connection);
            }
        }
        if flow.connected && !flow.stopped && flow.stop.is_some_and(|stop| stop <= elapsed) {
            flow.stopped = true;
            let host = self.lab.host_mut(flow.client);
            let hosted = host.connection_mut(0);
            hosted
                .connection
                .close(now, VarInt::from_u32(0), Bytes::new());
        }
        Ok(())
    }

    /// Gives the client of a flow the address that it should have by now.
    fn migrate(&mut self, index: usize) -> Result<(), String> {
        let (now, elapsed) = (self.lab.now(), self.lab.elapsed());
        let flow = &mut self.flows[index];
        let Some(Migration { to, .. }) = flow.migration.take_if(|one| one.at <= elapsed) else {
            return Ok(());
        };
        let local = client_address(index, to);
        let connection = &mut self.lab.host_mut(flow.client).connection_mut(0).connection;
        let path = connection.path_mut(PathId::ZERO);
        let mut path = path.map_err(|error| error.to_string())?;
        path.set_local_address(now, local)
            .map_err(|error| error.to_string())
    }

    /// Gives the client of a flow the addresses that it should have by now.
    fn change_interfaces(&mut self, index: usize) {
        let (now, elapsed) = (self.lab.now(), self.lab.elapsed());
        let flow = &mut self.flows[index];
        if let Some(locals) = flow.interfaces.take_change(elapsed) {
            self.lab.host_mut(flow.client).set_locals(now, locals);
        }
    }

    /// True if no further event will ever come.
    pub(super) fn is_over(&mut self) -> bool {
        let is_over = |flow: &Flow| flow.connected && flow.interfaces.next_change().is_none();
        self.lab.next_event().is_none() && self.flows.iter().all(is_over)
    }

    fn hosted(&self, host: HostId) -> Option<&Hosted<Player>> {
        self.lab.host(host).connections().first()
    }

    /// The application that does a flow's transfers on a side, once it has a connection.
    pub(super) fn player(&self, flow: usize, side: Side) -> Option<&Player> {
        let flow = &self.flows[flow];
        let host = if side.is_client() {
            flow.client
        } else {
            flow.server
        };
        self.hosted(host)?.application.measured()
    }

    /// The application that receives a flow's data.
    pub(super) fn receiver(&self, flow: usize) -> Option<&Player> {
        let hosted = self.hosted(self.flows[flow].receiver())?;
        hosted.application.measured()
    }

    /// Why the connection of the first flow ended, if it did.
    pub(super) fn lost(&self) -> Option<String> {
        let hosts = [self.flows[0].client, self.flows[0].server];
        let lost = |host| self.hosted(host)?.application.lost().cloned();
        hosts.into_iter().find_map(lost)
    }

    /// The statistics of a flow's sender and receiver, by index of the scenario's path.
    pub(super) fn path_stats(&self, flow: usize) -> BTreeMap<usize, [Option<PathStats>; 2]> {
        let mut by_path = BTreeMap::new();
        let hosts = [self.flows[flow].sender(), self.flows[flow].receiver()];
        for (side, host) in hosts.into_iter().enumerate() {
            let Some(hosted) = self.hosted(host) else {
                continue;
            };
            let connection = &hosted.connection;
            let ids: Vec<PathId> = connection.paths().collect();
            for stats in ids.iter().filter_map(|id| connection.path_stats(*id)) {
                // The client's address identifies the path, because the server's address stays the
                // same.
                let FourTuple { local, remote } = stats.four_tuple;
                let client = if host == self.flows[flow].client {
                    local
                } else {
                    remote
                };
                let IpAddr::V4(ip) = client.ip() else {
                    continue;
                };
                let path = usize::from(ip.octets()[2]);
                by_path.entry(path).or_insert([None, None])[side] = Some(stats);
            }
        }
        by_path
    }

    /// Bytes in the queues of a path's links, including shared links and packets of other flows, in
    /// the direction of the first flow's data.
    pub(super) fn queued(&mut self, path: usize) -> u64 {
        let now = self.now();
        let direction = usize::from(!self.flows[0].upload);
        let links = self.vias[path].iter().chain([&self.paths[path]]);
        let network = &mut self.lab.network;
        links
            .map(|link| network.queue_bytes(now, link[direction]))
            .sum()
    }

    /// The link of a path in the direction of a flow's data, and its propagation delay.
    pub(super) fn data_link(&self, flow: usize, path: usize) -> (&crate::link::Link, Duration) {
        let direction = usize::from(!self.flows[flow].upload);
        let link = self.lab.network.link(self.paths[path][direction]);
        (link, self.one_way[path][direction])
    }
}

fn scheduler(scenario: &Scenario, name: &str) -> Result<Arc<dyn SchedulerFactory>, String> {
    let scheduler = scenario.policies.scheduler(name);
    scheduler.map_err(|error| error.to_string())
}

fn setup(
    scenario: &Scenario,
    scheduler: Arc<dyn SchedulerFactory>,
    controller: &str,
) -> Result<Setup, String> {
    let controller = scenario.policies.controller(controller);
    let controller = controller.map_err(|error| error.to_string())?;
    let transport = &scenario.transport;
    let setup = Setup::with_policies(scheduler, controller);
    Ok(setup.transport(|config| {
        config.initial_mtu = transport.mtu;
        config.max_mtu = transport.max_mtu;
        config.max_ack_delay = transport.max_ack_delay;
        config.min_ack_delay = config
            .min_ack_delay
            .map(|delay| delay.min(transport.max_ack_delay));
        config.ack_eliciting_threshold = transport.ack_every;
        config.packet_threshold = transport.packet_threshold;
        config.time_threshold = transport.time_threshold;
        config.pacing = transport.pacing;
        config.ack_on_fastest_path = transport.ack_on_fastest_path;
        config.contain_panics = false;
        config.max_concurrent_bidi_streams = MAX_STREAMS;
        config.max_concurrent_uni_streams = MAX_STREAMS;
        if let Some(window) = transport.receive_window {
            config.initial_stream_receive_window = window;
            config.initial_receive_window = window;
            config.max_receive_window = window;
        }
        if let Some(send_buffer) = transport.send_buffer {
            config.send_window = send_buffer;
        }
    }))
}

/// Gives the client a session ticket of the server, but no other knowledge.
fn connect_before(setup: &Setup) {
    let setup = setup.clone().transport(|transport| {
        transport.knowledge = None;
    });
    let link = LinkConfig::new(100.0, Duration::from_millis(1));
    let mut pair = Pair::connected(&Topology::new().path("before", link), setup);
    pair.drive(Duration::from_secs(1));
}

/// The setup of an inner connection, which runs over a single path.
fn inner_setup(scenario: &Scenario, controller: &str, seed: u64) -> Result<Setup, String> {
    let setup = setup(scenario, mpquic_sched::default(), controller)?;
    let setup = setup.transport(|config| {
        config.initial_mtu = INNER_MTU;
        config.max_mtu = INNER_MTU;
        config.max_concurrent_paths = 0;
    });
    Ok(setup.seed(seed.wrapping_add(INNER_SEED)))
}

/// The rate of a path in the direction of the data, bit/s.
fn rate(scenario: &Scenario, path: usize, values: &[f64]) -> f64 {
    let links = scenario.paths[path].links.links(values, 0);
    let direction = usize::from(!scenario.workload.upload);
    links[direction].rate.unwrap_or(f64::INFINITY)
}

/// What the scheduler of a contender knows about a path beforehand.
fn known(scenario: &Scenario, path: usize, values: &[f64], contender: &Contender) -> Known {
    let one_way = || scenario.paths[path].links.one_way(values);
    Known {
        rate: contender
            .know_rates
            .then(|| (rate(scenario, path, values) / 8.0) as u64),
        round_trip: contender.know_rtts.then(|| one_way().iter().sum()),
    }
}

/// The paths of a contender, the path of the handshake first.
fn used_paths(scenario: &Scenario, used: UsedPaths, values: &[f64]) -> Vec<usize> {
    let Workload {
        paths,
        handshake_path,
        ..
    } = &scenario.workload;
    let delay = |path: &usize| {
        scenario.paths[*path]
            .links
            .one_way(values)
            .iter()
            .sum::<Duration>()
    };
    match used {
        UsedPaths::All => {
            let mut paths = paths.clone();
            let first = handshake_path.at(values) as usize;
            if first < paths.len() {
                paths[..=first].rotate_right(1);
            }
            paths
        }
        UsedPaths::Only(path) => vec![path],
        UsedPaths::LowestDelay => paths
            .iter()
            .copied()
            .min_by_key(delay)
            .into_iter()
            .collect(),
        UsedPaths::HighestRate => {
            let rate = |path: &usize| rate(scenario, *path, values);
            let best = paths
                .iter()
                .copied()
                .max_by(|a, b| rate(a).total_cmp(&rate(b)));
            best.into_iter().collect()
        }
    }
}
