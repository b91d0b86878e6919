//! How a connection begins.

use rand::RngExt;

use super::Connection;
use super::idle::IdleTimer;
use crate::congestion::Controller as _;
use crate::connection_state::State;
use crate::guarded::GuardedController;
use crate::handshake::Handshake;
use crate::handshake::setup::{ConnectionSetup, Role};
use crate::ids::PathId;
use crate::outbox::Outbox;
#[cfg(feature = "testing")]
use crate::packet::injected::Injected;
use crate::path::first_flight::FirstFlight;
use crate::path::life::FirstPath;
use crate::path::server_addresses::ServerAddresses;
use crate::path::set::Paths;
use crate::path::shared::{Peer, Shared};
use crate::qlog::{self, ConnectionStart};
use crate::random::SeededRandom;
use crate::recorder::Recorder;
use crate::recovery::ack_frequency::AckFrequencies;
use crate::sched::SchedulerEvent;
use crate::scheduling::host::SchedulerHost;
use crate::stream::datagrams::DatagramQueues;
use crate::stream::set::StreamSet;
use crate::wire::transport_parameters::TransportParameters;

/// The paths of a new connection: path 0, with the connection IDs of the handshake.
fn first_path(setup: &ConnectionSetup, random: &mut SeededRandom) -> Paths {
    let config = &setup.transport;
    let side = setup.role.side();
    let first = FirstPath {
        now: setup.now,
        four_tuple: setup.four_tuple,
        validated: setup.role.is_address_validated(),
        spins: config.spin_bit && random.random_ratio(15, 16),
        local_cid: setup.local_cid,
        peer_cid: setup.peer_cid,
    };
    let shared = Shared {
        side,
        config: config.clone(),
        cids: setup.endpoint.connection_ids.source(random.bytes()),
        reset_key: setup.reset_key.clone(),
        random: SeededRandom::new(random.bytes()),
        cid_limit: setup.local_parameters.active_connection_id_limit,
        first_flight: match &setup.role {
            Role::Client(client) => FirstFlight::new(client.first_flight_from.clone()),
            Role::Server(_) => FirstFlight::default(),
        },
        handshake_address: setup.four_tuple.remote,
        handshake_complete: false,
        handshake_confirmed: false,
        handshake_path: PathId::ZERO,
        allows_migration: match &setup.role {
            Role::Client(_) => true,
            Role::Server(server) => server.config.migration,
        },
        uses_preferred_address: match &setup.role {
            Role::Client(client) => client.use_preferred_address,
            Role::Server(_) => false,
        },
        preferred: setup
            .local_parameters
            .preferred_address
            .clone()
            .map(Box::new),
        peer: Peer::from(&TransportParameters::default()),
        greases_quic_bit: setup.endpoint.grease_quic_bit,
        ack_frequencies: AckFrequencies::new(config, &setup.local_parameters),
        server_addresses: ServerAddresses::new(setup.local_parameters.alternative_address),
        address_validated: false,
        proven: setup.role.proven(),
    };
    Paths::begin(shared, &first)
}

impl Connection {
    /// Logs what is known from the start, and makes a client's first flight.
    pub(crate) fn new(setup: ConnectionSetup) -> Self {
        let mut random = SeededRandom::new(setup.seed);
        let now = setup.now;
        let config = setup.transport.clone();
        let side = setup.role.side();
        let paths = first_path(&setup, &mut random);
        let started = qlog::Event::ConnectionStarted {
            four_tuple: setup.four_tuple,
            local_cid: setup.local_cid,
            peer_cid: setup.peer_cid,
        };
        let mut controller = GuardedController::new(&config);
        controller.on_path_opened(PathId::ZERO, now, config.initial_mtu);
        let scheduling = SchedulerHost::new(&config, random.random());
        let original = setup.local_parameters.original_destination_connection_id;
        let start = ConnectionStart {
            now,
            side,
            original_dcid: original.unwrap_or(setup.initial_dcid),
        };
        let log = Recorder::start(&config, &start);
        let outbox = Outbox::new(controller, scheduling.needs, log);
        let mut connection = Self {
            side,
            endpoint_config: setup.endpoint.clone(),
            paths,
            streams: StreamSet::new(side, &config, now).part_of(setup.memory.clone()),
            datagrams: DatagramQueues::new(&config),
            scheduling,
            outbox,
            state: State::Open,
            idle: IdleTimer::new(config.max_idle_timeout, now),
            outcome: None,
            #[cfg(feature = "testing")]
            injected: Injected::default(),
            handshake: Handshake::new(setup),
            config,
            random,
        };
        connection
            .outbox
            .scheduler_event(SchedulerEvent::PathAdded(PathId::ZERO));
        connection.outbox.log.event(|| started);
        connection.paths.report(&mut connection.outbox);
        connection.paths.resume_first(now, &mut connection.outbox);
        let started = connection.handshake.start(&mut connection.outbox);
        connection.follow_handshake_steps(now);
        connection.close_on_error(now, started);
        connection
    }
}
