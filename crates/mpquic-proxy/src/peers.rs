//! [`Peers`]: the peers to which a flow of bound UDP has sent, and which peers may send back.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::time::Instant;

use crate::bound::Filtering;

/// Peers that a binding remembers. A further peer displaces the one to which nothing was sent for
/// longest.
const MOST_PEERS: usize = 1024;

/// A peer to which a binding has sent.
#[derive(Debug, Clone, Copy)]
struct Peer {
    last: Instant,
    sent: u32,
}

/// The peers to which a binding has sent, at most 1024.
#[derive(Debug)]
pub(crate) struct Peers {
    filtering: Filtering,
    known: BTreeMap<SocketAddr, Peer>,
}

impl Peers {
    pub(crate) fn new(filtering: Filtering) -> Self {
        Self {
            filtering,
            known: BTreeMap::new(),
        }
    }

    pub(crate) fn knows(&self, peer: &SocketAddr) -> bool {
        self.known.contains_key(peer)
    }

    /// Counts a payload to a peer, and returns the number of payloads to this peer.
    pub(crate) fn on_sent(&mut self, peer: SocketAddr, now: Instant) -> u32 {
        if !self.knows(&peer) && self.known.len() >= MOST_PEERS {
            let oldest = self.known.iter().min_by_key(|(_, known)| known.last);
            if let Some(oldest) = oldest.map(|(oldest, _)| *oldest) {
                self.known.remove(&oldest);
            }
        }
        let known = self.known.entry(peer);
        let known = known.or_insert(Peer { last: now, sent: 0 });
        known.last = now;
        known.sent = known.sent.saturating_add(1);
        known.sent
    }

    /// True if the binding has sent to this address.
    pub(crate) fn has_asked(&self, ip: IpAddr) -> bool {
        let ports = SocketAddr::new(ip, 0)..=SocketAddr::new(ip, u16::MAX);
        self.known.range(ports).next().is_some()
    }

    /// True if a payload from this address may come in.
    pub(crate) fn let_in(&self, ip: IpAddr) -> bool {
        self.filtering == Filtering::EndpointIndependent || self.has_asked(ip)
    }

    /// Forgets peers to which nothing was sent for this time.
    pub(crate) fn forget(&mut self, idle: Duration, now: Instant) {
        (self.known).retain(|_, known| now.saturating_duration_since(known.last) < idle);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn peer(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_binding_remembers_bounded_peers() {
        let mut peers = Peers::new(Filtering::AddressDependent);
        let numbered = |n: u32| SocketAddr::from((Ipv4Addr::from(0x0a00_0000 + n), 9));
        for n in 0..MOST_PEERS as u32 + 10 {
            tokio::time::advance(Duration::from_millis(1)).await;
            assert_eq!(peers.on_sent(numbered(n), Instant::now()), 1);
            assert_eq!(peers.on_sent(numbered(0), Instant::now()), n + 2);
        }
        assert_eq!(peers.known.len(), MOST_PEERS);
        assert!(peers.let_in(numbered(0).ip()) && !peers.let_in(numbered(1).ip()));
        tokio::time::advance(Duration::from_secs(120)).await;
        peers.on_sent(numbered(1), Instant::now());
        peers.forget(Duration::from_secs(120), Instant::now());
        assert_eq!(peers.known.len(), 1);
    }

    #[test]
    fn filtering_is_by_address_or_not_at_all() {
        let now = Instant::now();
        for filtering in [Filtering::AddressDependent, Filtering::EndpointIndependent] {
            let mut peers = Peers::new(filtering);
            peers.on_sent(peer("192.0.2.1:7"), now);
            peers.on_sent(peer("[2001:db8::1]:7"), now);
            let let_in = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::"];
            let let_in = let_in.map(|ip| peers.let_in(ip.parse().unwrap()));
            let all = filtering == Filtering::EndpointIndependent;
            assert_eq!(let_in, [true, all, true, all]);
        }
    }
}
