//! [`IcmpListeners`]: the connections that hear of ICMP messages.

use std::net::SocketAddr;

use mpquic_core::ConnectionHandle;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The connections of an endpoint that hear of ICMP messages. A client's few connections all hear
/// of each message. Among a server's many connections, only those with a doubt about their peer do:
/// a flood of messages costs one look-up for each message.
#[derive(Debug, Default)]
pub(crate) struct IcmpListeners {
    all: bool,
    by_remote: FxHashMap<SocketAddr, SmallVec<[ConnectionHandle; 1]>>,
}

impl IcmpListeners {
    /// All connections hear of messages from now on.
    pub(crate) fn add_all(&mut self) {
        self.all = true;
    }

    /// A connection hears of messages about datagrams to this address.
    pub(crate) fn add(&mut self, remote: SocketAddr, connection: ConnectionHandle) {
        self.by_remote.entry(remote).or_default().push(connection);
    }

    /// Undoes one [`Self::add`].
    pub(crate) fn remove(&mut self, remote: SocketAddr, connection: ConnectionHandle) {
        let Some(listeners) = self.by_remote.get_mut(&remote) else {
            return;
        };
        if let Some(index) = listeners.iter().position(|other| *other == connection) {
            listeners.swap_remove(index);
        }
        if listeners.is_empty() {
            self.by_remote.remove(&remote);
        }
    }

    /// The connections that hear of a message about a datagram to this address; `None` for all.
    pub(crate) fn of(&self, remote: SocketAddr) -> Option<&[ConnectionHandle]> {
        let listeners = self.by_remote.get(&remote).map(SmallVec::as_slice);
        (!self.all).then_some(listeners.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_finds_the_connections_of_its_address() {
        let [one, other] = [1, 2].map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
        let [first, second] = [1, 2].map(ConnectionHandle);
        let mut listeners = IcmpListeners::default();
        listeners.add(one, first);
        listeners.add(one, second);
        listeners.add(one, second);
        assert_eq!(listeners.of(one), Some(&[first, second, second][..]));
        assert_eq!(listeners.of(other), Some(&[][..]));
        for connection in [second, first, second, second] {
            listeners.remove(one, connection);
        }
        listeners.remove(other, first);
        assert_eq!(listeners.of(one), Some(&[][..]));
        assert!(listeners.by_remote.is_empty());
        listeners.add_all();
        assert_eq!(listeners.of(other), None);
    }
}
