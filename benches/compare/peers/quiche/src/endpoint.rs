//! Connections that share a socket.

use std::net::SocketAddr;
use std::time::Instant;

use compare_peer::event::{Application, Train, Udp};
use compare_peer::{Options, Result, Workload};
use quiche::{Config, Error};

use crate::link::Peer;
use crate::table::Table;

pub(crate) struct Endpoint {
    udp: Udp,
    table: Table,
    /// True if DATAGRAM frames are in use.
    datagrams: bool,
    http3: bool,
    train: Train,
}

impl Endpoint {
    /// A client of `server`; without `server`, a server.
    pub(crate) fn bind(
        config: Config,
        server: Option<SocketAddr>,
        workload: Workload,
        options: &Options,
    ) -> Result<Self> {
        let address = match server {
            Some(_) => options.client_socket(1),
            None => options.server_socket(),
        };
        let udp = Udp::bind(address, options)?;
        let resume = workload == Workload::Resumed;
        Ok(Self {
            table: Table::new(config, udp.address(), server, resume),
            udp,
            datagrams: workload == Workload::Datagrams,
            http3: options.http3,
            train: Train::new(options),
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.udp.address()
    }

    /// Runs until the application is done.
    pub(crate) fn run(&mut self, application: &mut dyn Application) -> Result<()> {
        loop {
            while application.connect() {
                self.table.connect()?;
            }
            let table = &mut self.table;
            self.udp
                .receive(|from, datagram| table.receive(from, datagram))?;
            self.table.expire(Instant::now());
            for key in self.table.take_touched() {
                self.look_after(key, application)?;
            }
            if application.is_done()? {
                return Ok(());
            }
            if !self.table.any_touched() {
                let deadlines = self.table.deadline().into_iter();
                let deadline = deadlines.chain(application.deadline()).min();
                self.udp.wait(deadline)?;
            }
        }
    }

    /// Tells the application about events of a connection, then lets the connection send.
    fn look_after(&mut self, key: u64, application: &mut dyn Application) -> Result<()> {
        let Some(peer) = self.table.peer(key) else {
            return Ok(());
        };
        if !peer.established && peer.connection.is_established() {
            peer.established = true;
            if self.http3 {
                peer.begin_http3()?;
            }
            application.established(key, peer)?;
        }
        if peer.established {
            while let Some(stream) = peer.readable()? {
                application.readable(key, peer, stream)?;
            }
            while let Some(stream) = peer.writable()? {
                application.writable(key, peer, stream)?;
            }
            if self.datagrams {
                application.datagrams(key, peer)?;
            }
        }
        let sent = send(&self.udp, &mut self.train, peer)?;
        // Another train may follow, or queues of DATAGRAM frames be filled again.
        let more = sent == Sent::Full || sent == Sent::All && self.datagrams;
        if peer.connection.is_closed() {
            application.closed(key);
            self.table.remove(key);
        } else {
            self.table.arm(key);
            if more {
                self.table.touch(key);
            }
        }
        Ok(())
    }
}

#[derive(PartialEq)]
enum Sent {
    Nothing,
    /// All packets of the connection.
    All,
    /// A train, and another may follow.
    Full,
}

/// Sends a train. If it ends with a datagram that is too long for it, sends another train.
fn send(udp: &Udp, train: &mut Train, peer: &mut Peer) -> Result<Sent> {
    let size = peer.connection.max_send_udp_payload_size();
    let (mut to, mut sent) = (None, Sent::Nothing);
    let mut waits = train.begin();
    loop {
        let mut full = true;
        while full && train.has_room(size) {
            full = train.write(size, |room| match peer.connection.send(room) {
                Ok((length, info)) => {
                    to = Some(info.to);
                    Ok(Some(length))
                }
                Err(Error::Done) => Ok(None),
                Err(error) => Err(error.into()),
            })?;
            waits |= full;
        }
        let Some(to) = to.filter(|_| waits) else {
            return Ok(sent);
        };
        while !udp.send(to, train)? {
            udp.wait_to_send()?;
        }
        waits = train.begin();
        sent = if full { Sent::Full } else { Sent::All };
        if !waits {
            return Ok(sent);
        }
    }
}
