//! Labs beyond a client and a server: several hosts, shared links, applications of one's own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpquic_core::config::{EndpointConfig, TransportConfig};
use mpquic_core::{Connection, ConnectionError, Event, FourTuple};
use mpquic_sim::{
    Application, Backlog, Hop, Host, HostId, Lab, LinkConfig, NullCrypto, OnResume, Pair, Setup,
    Side, Topology, Transfers,
};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn transport() -> Arc<TransportConfig> {
    let (scheduler, controller) = (mpquic_sched::default(), mpquic_cc::default());
    Arc::new(TransportConfig::new(scheduler, controller))
}

fn client<A: Application + Default + 'static>(seed: u64) -> Host<A> {
    Host::new(EndpointConfig::new([1; 32]), None, seed, A::default)
}

fn server<A: Application + Default + 'static>(seed: u64) -> Host<A> {
    let config = NullCrypto::new(b"lab").server(transport());
    Host::new(EndpointConfig::new([2; 32]), Some(config), seed, A::default)
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Clients with access links of their own behind one shared link to a server.
fn dumbbell<A: Application + Default + 'static>(
    clients: usize,
    shared: LinkConfig,
) -> (Lab<A>, HostId) {
    let mut lab = Lab::new(1);
    let ids: Vec<_> = (0..clients)
        .map(|index| lab.add_host(client(index as u64 + 10)))
        .collect();
    let server_id = lab.add_host(server(9));
    let up = lab.network.add_link(shared.clone());
    let down = lab.network.add_link(shared);
    let remote = address("10.9.0.1:4433");
    for (index, id) in ids.into_iter().enumerate() {
        let local = address(&format!("10.0.{index}.1:5000"));
        let access = LinkConfig::new(1000.0, MS * (1 + index as u32));
        let out = lab.network.add_link(access.clone());
        let back = lab.network.add_link(access);
        let hops = vec![Hop::Link(out), Hop::Link(up)];
        lab.network
            .add_route(local.ip(), remote.ip(), hops, server_id);
        let hops = vec![Hop::Link(down), Hop::Link(back)];
        lab.network.add_route(remote.ip(), local.ip(), hops, id);
        let config = NullCrypto::new(b"lab").client(transport());
        let now = lab.now();
        let four_tuple = FourTuple::new(local, remote);
        lab.host_mut(id)
            .connect(now, config, four_tuple, "server")
            .unwrap();
    }
    lab.drive(200 * MS);
    (lab, server_id)
}

#[test]
fn two_clients_share_a_bottleneck_fairly() {
    let (mut lab, server) = dumbbell::<Transfers>(2, LinkConfig::new(20.0, 10 * MS));
    let now = lab.now();
    for index in 0..2 {
        let hosted = lab.host_mut(server).connection_mut(index);
        hosted
            .application
            .send(now, &mut hosted.connection, 30_000_000);
    }
    lab.drive(15 * SECOND);
    let received = [HostId(0), HostId(1)].map(|host| {
        let hosted = &lab.host(host).connections()[0];
        assert_eq!(hosted.application.corruption(), None);
        hosted.application.received() as f64
    });
    let total = received[0] + received[1];
    assert!(total > 15.0 * 20e6 / 8.0 * 0.9, "{received:?}");
    let jain = total.powi(2) / (2.0 * (received[0].powi(2) + received[1].powi(2)));
    assert!(jain > 0.85, "{received:?}");
}

/// Sends a datagram with the time in it every 20 ms, and notes how long those of the peer took.
#[derive(Default)]
struct Voice {
    next: Option<Instant>,
    start: Option<Instant>,
    delays: Vec<Duration>,
}

const FRAME: Duration = Duration::from_millis(20);

impl Application for Voice {
    fn on_event(&mut self, now: Instant, connection: &mut Connection, event: &Event) {
        match event {
            Event::Connected { .. } => {
                self.next = Some(now);
                self.start = Some(now);
            }
            Event::DatagramReceived => {
                while let Some(datagram) = connection.datagrams().recv() {
                    let sent = u64::from_be_bytes(datagram[..8].try_into().unwrap());
                    let start = self.start.unwrap();
                    let sent = Duration::from_nanos(sent);
                    // The two clocks do not start at the same time.
                    self.delays.push(now - start + SECOND - sent);
                }
            }
            _ => {}
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.next
    }

    fn on_timeout(&mut self, now: Instant, connection: &mut Connection) {
        let since = (now - self.start.unwrap()).as_nanos() as u64;
        let mut datagram = vec![0; 160];
        datagram[..8].copy_from_slice(&since.to_be_bytes());
        connection.datagrams().send(datagram.into()).unwrap();
        self.next = Some(now + FRAME);
    }
}

#[test]
fn an_application_of_ones_own_keeps_time() {
    let shared = LinkConfig::new(1.0, 30 * MS).queue(Backlog::packets(20));
    let (mut lab, server) = dumbbell::<Voice>(1, shared);
    lab.drive(10 * SECOND);
    let voice = &lab.host(server).connections()[0].application;
    // Fifty datagrams a second, for ten seconds and what is left of the start.
    assert!((500..512).contains(&voice.delays.len()));
    // Probes of the MTU may be ahead of a datagram: 12 ms each at this rate.
    let (min, max) = (voice.delays.iter().min(), voice.delays.iter().max());
    assert!(*max.unwrap() - *min.unwrap() < 30 * MS, "{min:?} {max:?}");
}

fn pair() -> Pair {
    let topology = Topology::new().path("only", LinkConfig::new(10.0, 10 * MS));
    Pair::connected(&topology, Setup::new())
}

#[test]
fn a_stopped_process_reads_what_waited_for_it() {
    for first in [OnResume::Packets, OnResume::Timers] {
        let mut pair = pair();
        let received = |pair: &Pair| pair.hosted(Side::Server).unwrap().application.received();
        pair.stop(Side::Server);
        pair.send(Side::Client, 1000);
        pair.drive(5 * SECOND);
        assert_eq!(received(&pair), 0);
        pair.resume(Side::Server, first);
        pair.drive(Duration::ZERO);
        assert_eq!(received(&pair), 1000);
    }
}

/// Its connections are over by their own clock, which is asked first.
#[test]
fn a_process_that_was_stopped_for_too_long_may_see_its_timers_first() {
    for (first, is_lost) in [(OnResume::Packets, false), (OnResume::Timers, true)] {
        let mut pair = pair();
        pair.stop(Side::Server);
        pair.send(Side::Client, 1000);
        pair.drive(31 * SECOND);
        pair.resume(Side::Server, first);
        pair.drive(Duration::ZERO);
        let reason = ConnectionError::TimedOut;
        let lost = pair.has_event(Side::Server, &Event::ConnectionLost { reason });
        assert_eq!(lost, is_lost, "{first:?}");
    }
}

#[test]
fn a_clock_that_jumps_ends_timers_sooner() {
    let mut pair = pair();
    pair.jump_clock(Side::Client, 29 * SECOND);
    pair.drive(MS);
    let reason = ConnectionError::TimedOut;
    let lost = Event::ConnectionLost { reason };
    assert!(!pair.has_event(Side::Client, &lost));
    pair.jump_clock(Side::Client, 2 * SECOND);
    pair.drive(MS);
    assert!(pair.has_event(Side::Client, &lost));
    assert!(!pair.has_event(Side::Server, &lost));
    pair.run_until_drained(60 * SECOND);
    let endpoints = pair.into_endpoints();
    assert!(
        endpoints
            .iter()
            .all(|endpoint| endpoint.stats().memory == 0)
    );
}
