//! [`Tunnel`]: an inner connection, whose packets are DATAGRAMs of an outer connection.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use mpquic_core::{Connection, FourTuple, Side};

use crate::application::Application;
use crate::host::Host;
use crate::link::{Backlog, LinkConfig};
use crate::network::{Hop, HostId, Network};
use crate::packet::Packet;
use crate::pair::Setup;
use crate::tls::SERVER_NAME;

/// Address of the client inside of the tunnel.
const CLIENT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 1);
/// Address of the server inside of the tunnel.
const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), 2);

/// A side of an inner connection. The tunnel drops packets that the outer connection does not take,
/// as a full network interface does.
pub(super) struct Tunnel<A> {
    setup: Setup,
    side: Side,
    host: Host<A>,
    /// Packets of the host wait here for the outer connection.
    network: Network,
}

impl<A: Application> Tunnel<A> {
    /// The client's side. `application` makes the inner application.
    pub(super) fn client(setup: Setup, application: impl FnMut() -> A + 'static) -> Self {
        let config = setup.endpoint_config(Side::Client);
        let host = Host::new(config, None, setup.seed.wrapping_mul(2), application);
        Self::new(setup, Side::Client, host)
    }

    /// The server's side. `application` makes the inner application.
    pub(super) fn server(setup: Setup, application: impl FnMut() -> A + 'static) -> Self {
        let config = setup.endpoint_config(Side::Server);
        let server = Some(setup.server_config());
        let seed = setup.seed.wrapping_mul(2) + 1;
        let host = Host::new(config, server, seed, application);
        Self::new(setup, Side::Server, host)
    }

    fn new(setup: Setup, side: Side, mut host: Host<A>) -> Self {
        host.set_checks(false);
        let mut network = Network::new(setup.seed, crate::lab::epoch());
        let direct = LinkConfig::new(f64::INFINITY, Duration::ZERO).queue(Backlog::UNLIMITED);
        let link = network.add_link(direct);
        let (near, far) = match side {
            Side::Client => (CLIENT, SERVER),
            Side::Server => (SERVER, CLIENT),
        };
        network.add_route(near.ip(), far.ip(), vec![Hop::Link(link)], HostId(0));
        Self {
            setup,
            side,
            host,
            network,
        }
    }

    /// The inner application, once there is a connection.
    pub(super) fn application(&self) -> Option<&A> {
        let hosted = self.host.connections().first();
        hosted.map(|hosted| &hosted.application)
    }

    /// Connects through the tunnel.
    pub(super) fn connect(&mut self, now: Instant, outer: &mut Connection) -> Result<(), String> {
        self.network.set_now(now);
        let config = self.setup.client_config();
        let connected =
            (self.host).connect(now, config, FourTuple::new(CLIENT, SERVER), SERVER_NAME);
        connected.map_err(|error| error.to_string())?;
        self.serve(now, outer);
        Ok(())
    }

    /// Passes arrived DATAGRAMs to the inner host as packets.
    pub(super) fn receive(&mut self, now: Instant, outer: &mut Connection) {
        self.network.set_now(now);
        let (source, destination) = match self.side {
            Side::Client => (SERVER, CLIENT),
            Side::Server => (CLIENT, SERVER),
        };
        while let Some(data) = outer.datagrams().recv() {
            let packet = Packet::new(source, destination, None, BytesMut::from(&data[..]));
            self.host.receive(now, packet, &mut self.network);
        }
        self.serve(now, outer);
    }

    /// When [`Self::on_timeout`] should be called.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let connected = !self.host.connections().is_empty();
        connected.then(|| self.host.wake_time(0)).flatten()
    }

    /// The time of [`Self::next_timeout`] has come.
    pub(super) fn on_timeout(&mut self, now: Instant, outer: &mut Connection) {
        self.network.set_now(now);
        if self.next_timeout().is_some_and(|time| time <= now) {
            self.host.wake(now, 0);
            self.serve(now, outer);
        }
    }

    /// Passes the host's packets to the outer connection.
    fn serve(&mut self, now: Instant, outer: &mut Connection) {
        self.host.service(now, &mut self.network);
        // The wake-up of the only connection is read from [`Host::wake_time`] instead.
        self.host.take_wake_ups();
        while let Some((_, packet)) = self.network.poll(now) {
            // A packet without room in the outer connection is lost.
            let _ = outer.datagrams().send(packet.data.freeze());
        }
    }
}

impl<A> fmt::Debug for Tunnel<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").finish_non_exhaustive()
    }
}
