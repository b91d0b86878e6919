//! The connection of each datagram, and the times at which connections need attention.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Instant;

use compare_peer::{Result, tls};
use quiche::{Config, ConnectionId, Header, RecvInfo, Type};
use rustc_hash::FxHashMap;

use crate::link::Peer;

/// Length of our connection IDs.
const ID_LENGTH: usize = 8;

pub(crate) struct Table {
    config: Config,
    local: SocketAddr,
    /// The address to which clients connect; `None` for a server.
    server: Option<SocketAddr>,
    resume: bool,
    /// The last session that a server gave.
    session: Option<Vec<u8>>,
    peers: FxHashMap<u64, Peer>,
    routes: FxHashMap<ConnectionId<'static>, u64>,
    next: u64,
    touched: Vec<u64>,
    /// Connections by the time of their next timer; some times are earlier than necessary.
    timers: BTreeSet<(Instant, u64)>,
}

impl Table {
    pub(crate) fn new(
        config: Config,
        local: SocketAddr,
        server: Option<SocketAddr>,
        resume: bool,
    ) -> Self {
        Self {
            config,
            local,
            server,
            resume,
            session: None,
            peers: FxHashMap::default(),
            routes: FxHashMap::default(),
            next: 0,
            touched: Vec::new(),
            timers: BTreeSet::new(),
        }
    }

    pub(crate) fn peer(&mut self, key: u64) -> Option<&mut Peer> {
        let peer = self.peers.get_mut(&key)?;
        peer.touched = false;
        Some(peer)
    }

    pub(crate) fn connect(&mut self) -> Result<()> {
        let server = self.server.ok_or("not a client")?;
        let id = self.new_id();
        let config = &mut self.config;
        let name = Some(tls::SERVER_NAME);
        let mut connection =
            quiche::connect_with_buffer_factory(name, &id, self.local, server, config)?;
        if let Some(session) = &self.session {
            connection.set_session(session)?;
        }
        self.insert(Peer::new(connection, vec![id]));
        Ok(())
    }

    /// An ID for a connection. It may be easy to guess, because no attacker takes part.
    fn new_id(&mut self) -> ConnectionId<'static> {
        self.next += 1;
        let number = self.next.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bytes: [u8; ID_LENGTH] = number.to_be_bytes();
        ConnectionId::from_vec(bytes.to_vec())
    }

    fn insert(&mut self, peer: Peer) -> u64 {
        let key = self.next;
        for id in &peer.ids {
            self.routes.insert(id.clone(), key);
        }
        self.peers.insert(key, peer);
        self.touch(key);
        key
    }

    /// Passes a datagram to its connection; an Initial packet to a server makes a new connection.
    pub(crate) fn receive(&mut self, from: SocketAddr, datagram: &mut [u8]) -> Result<()> {
        let header = Header::from_slice(datagram, ID_LENGTH)?;
        let key = match self.routes.get(&header.dcid) {
            Some(key) => *key,
            None if self.server.is_none() && header.ty == Type::Initial => {
                let id = self.new_id();
                let (local, config) = (self.local, &mut self.config);
                let connection = quiche::accept_with_buf_factory(&id, None, local, from, config)?;
                self.insert(Peer::new(connection, vec![id, header.dcid]))
            }
            None => return Ok(()),
        };
        self.touch(key);
        if let Some(peer) = self.peers.get_mut(&key) {
            let info = RecvInfo {
                from,
                to: self.local,
            };
            // A datagram for no connection changes nothing.
            let _ = peer.connection.recv(datagram, info);
        }
        Ok(())
    }

    pub(crate) fn touch(&mut self, key: u64) {
        if let Some(peer) = self.peers.get_mut(&key)
            && !peer.touched
        {
            peer.touched = true;
            self.touched.push(key);
        }
    }

    pub(crate) fn any_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    pub(crate) fn take_touched(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.touched)
    }

    pub(crate) fn remove(&mut self, key: u64) {
        if let Some(peer) = self.peers.remove(&key) {
            for id in &peer.ids {
                self.routes.remove(id);
            }
            if let Some(armed) = peer.armed {
                self.timers.remove(&(armed, key));
            }
        }
    }

    /// Notes the time of a connection's next timer, and keeps its session, if any.
    pub(crate) fn arm(&mut self, key: u64) {
        let Some(peer) = self.peers.get_mut(&key) else {
            return;
        };
        if self.resume
            && self.server.is_some()
            && let Some(session) = peer.connection.session()
        {
            self.session = Some(session.to_vec());
        }
        let Some(at) = peer.connection.timeout_instant() else {
            return;
        };
        // A time that is too early is corrected when it expires.
        if peer.armed.is_none_or(|armed| at < armed) {
            if let Some(armed) = peer.armed {
                self.timers.remove(&(armed, key));
            }
            peer.armed = Some(at);
            self.timers.insert((at, key));
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Runs the timers that have expired.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some((at, key)) = self.timers.first().copied()
            && at <= now
        {
            self.timers.remove(&(at, key));
            if let Some(peer) = self.peers.get_mut(&key) {
                peer.armed = None;
                if peer
                    .connection
                    .timeout_instant()
                    .is_some_and(|at| at <= now)
                {
                    peer.connection.on_timeout();
                    self.touch(key);
                } else {
                    self.arm(key);
                }
            }
        }
    }
}
