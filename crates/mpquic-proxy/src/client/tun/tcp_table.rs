//! [`TcpTable`]: the TCP connections through a TUN device. A port of its own stands for each
//! connection at our listener.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

use super::packet::Flags;

/// Most opening and open connections. A further connection gets no answer, and its application
/// tries again.
const MOST: usize = 4096;
/// The table keeps an ended connection as long as TCP may repeat the last segments (TIME-WAIT of
/// Linux).
const LINGER: Duration = Duration::from_secs(60);
/// Most ended connections in the table.
const MOST_ENDED: usize = 16384;
/// Longest time for an application's last step of the handshake.
const HANDSHAKE: Duration = Duration::from_secs(30);
/// Lower ports are not used, because filters treat ports of well-known services in special ways.
const FIRST_PORT: u16 = 1024;

/// The two ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Ends {
    pub(super) application: SocketAddr,
    pub(super) target: SocketAddr,
}

/// The treatment of an application's segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Passes to the listener, with this source port.
    Pass(u16),
    /// First needs a flow. The connection has this port.
    Open(u16),
    /// Is dropped.
    Drop,
    /// Belongs to no known connection.
    Unknown,
}

#[derive(Debug)]
enum State<F> {
    /// The proxy has a request for the flow.
    Opening,
    /// The flow waits for the handshake with the application, which began at this time.
    Ready(F, Instant),
    Open,
    Ended,
}

/// The connections; `F` is a flow of the proxy.
#[derive(Debug)]
pub(super) struct TcpTable<F> {
    /// A hash map, because no code depends on its order.
    ports: HashMap<Ends, u16>,
    connections: BTreeMap<u16, (Ends, State<F>)>,
    /// Ended connections in order, with their end times.
    ended: VecDeque<(u16, Instant)>,
    last_port: u16,
}

impl<F> Default for TcpTable<F> {
    fn default() -> Self {
        Self {
            ports: HashMap::new(),
            connections: BTreeMap::new(),
            ended: VecDeque::new(),
            last_port: FIRST_PORT,
        }
    }
}

impl<F> TcpTable<F> {
    /// A segment of an application.
    pub(super) fn on_segment(&mut self, ends: Ends, flags: Flags) -> Verdict {
        let Some(&port) = self.ports.get(&ends) else {
            return if flags.opens() {
                self.open(ends)
            } else {
                Verdict::Unknown
            };
        };
        match self.connections.get(&port).map(|(_, state)| state) {
            Some(State::Opening) => Verdict::Drop,
            // The application left before its connection was open.
            Some(State::Ready(..)) if flags.resets() => {
                self.forget(port);
                Verdict::Pass(port)
            }
            // A new connection with the addresses of an ended connection.
            Some(State::Ended) if flags.opens() => {
                self.forget(port);
                self.open(ends)
            }
            Some(_) => Verdict::Pass(port),
            None => Verdict::Unknown,
        }
    }

    /// The connection whose segments the listener sends to this port.
    pub(super) fn on_answer(&self, port: u16) -> Option<Ends> {
        self.connections.get(&port).map(|(ends, _)| *ends)
    }

    /// The port that stands for a connection.
    pub(super) fn port(&self, ends: &Ends) -> Option<u16> {
        self.ports.get(ends).copied()
    }

    fn open(&mut self, ends: Ends) -> Verdict {
        if self.connections.len() - self.ended.len() >= MOST {
            return Verdict::Drop;
        }
        let Some(port) = self.free_port() else {
            return Verdict::Drop;
        };
        self.ports.insert(ends, port);
        self.connections.insert(port, (ends, State::Opening));
        Verdict::Open(port)
    }

    /// The next unused port: there are many more ports than connections.
    fn free_port(&mut self) -> Option<u16> {
        for _ in 0..=u16::MAX {
            self.last_port = self.last_port.checked_add(1).unwrap_or(FIRST_PORT);
            if !self.connections.contains_key(&self.last_port) {
                return Some(self.last_port);
            }
        }
        None
    }

    /// The flow is open, so the handshake with the application may begin.
    pub(super) fn on_flow(&mut self, port: u16, flow: F, now: Instant) {
        if let Some((_, state @ State::Opening)) = self.connections.get_mut(&port) {
            *state = State::Ready(flow, now);
        }
    }

    /// The proxy opens no flow, so the connection is forgotten.
    pub(super) fn on_no_flow(&mut self, port: u16) {
        self.forget(port);
    }

    /// Returns the flow of a connection that the listener has accepted from this port.
    pub(super) fn on_accepted(&mut self, port: u16) -> Option<F> {
        let (_, state) = self.connections.get_mut(&port)?;
        match std::mem::replace(state, State::Open) {
            State::Ready(flow, _) => Some(flow),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Both sides have ended.
    pub(super) fn on_ended(&mut self, port: u16, now: Instant) {
        if let Some((_, state @ State::Open)) = self.connections.get_mut(&port) {
            *state = State::Ended;
            self.ended.push_back((port, now));
            if self.ended.len() > MOST_ENDED
                && let Some((oldest, _)) = self.ended.pop_front()
            {
                self.remove(oldest);
            }
        }
    }

    /// Forgets long ended connections, and connections whose application fell silent in the
    /// handshake. Returns the number of silent applications.
    pub(super) fn sweep(&mut self, now: Instant) -> usize {
        while let Some(&(port, at)) = self.ended.front()
            && now.duration_since(at) >= LINGER
        {
            self.ended.pop_front();
            self.remove(port);
        }
        let late: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, (_, state))| {
                matches!(state, State::Ready(_, at) if now.duration_since(*at) >= HANDSHAKE)
            })
            .map(|(port, _)| *port)
            .collect();
        for port in &late {
            self.remove(*port);
        }
        late.len()
    }

    fn forget(&mut self, port: u16) {
        self.ended.retain(|(ended, _)| *ended != port);
        self.remove(port);
    }

    fn remove(&mut self, port: u16) {
        if let Some((ends, _)) = self.connections.remove(&port) {
            self.ports.remove(&ends);
        }
    }
}

#[cfg(test)]
mod tests;
