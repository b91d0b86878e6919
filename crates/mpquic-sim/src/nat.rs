//! [`Nat`]: an address translator whose bindings tests can drop.

use std::net::{IpAddr, SocketAddr};

/// Translates inside addresses to ports of one outside IP.
///
/// Bindings do not depend on the destination and never expire. [`Self::rebind`] drops all bindings,
/// as a reboot or an idle timeout does.
#[derive(Debug, Clone)]
pub struct Nat {
    outside: IpAddr,
    next_port: u16,
    /// Inside and outside addresses of a few bindings.
    bindings: Vec<(SocketAddr, SocketAddr)>,
}

impl Nat {
    pub(crate) fn new(outside: IpAddr) -> Self {
        Self {
            outside,
            next_port: 40_000,
            bindings: Vec::new(),
        }
    }

    /// Forgets all bindings: the next outgoing packet gets a new port, and packets to old ports are
    /// lost.
    pub fn rebind(&mut self) {
        self.bindings.clear();
    }

    /// Forgets all bindings and changes to another outside IP, which must have routes.
    pub fn rebind_to(&mut self, outside: IpAddr) {
        self.outside = outside;
        self.rebind();
    }

    /// The outside address of an inside address, if a binding exists.
    pub fn outside_of(&self, inside: SocketAddr) -> Option<SocketAddr> {
        let mut bindings = self.bindings.iter();
        let binding = bindings.find(|(bound, _)| *bound == inside);
        binding.map(|(_, outside)| *outside)
    }

    pub(crate) fn outbound(&mut self, inside: SocketAddr) -> SocketAddr {
        if let Some(outside) = self.outside_of(inside) {
            return outside;
        }
        let outside = SocketAddr::new(self.outside, self.next_port);
        self.next_port = self.next_port.checked_add(1).unwrap_or(1024);
        self.bindings.push((inside, outside));
        outside
    }

    pub(crate) fn inbound(&self, outside: SocketAddr) -> Option<SocketAddr> {
        let mut bindings = self.bindings.iter();
        let binding = bindings.find(|(_, bound)| *bound == outside);
        binding.map(|(inside, _)| *inside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_are_stable_until_rebinding() {
        let inside: SocketAddr = "10.0.0.1:5000".parse().unwrap();
        let other: SocketAddr = "10.0.0.1:5001".parse().unwrap();
        let mut nat = Nat::new("192.0.2.1".parse().unwrap());
        let first = nat.outbound(inside);
        assert_eq!(nat.outbound(inside), first);
        assert_ne!(nat.outbound(other), first);
        assert_eq!(nat.inbound(first), Some(inside));
        nat.rebind();
        assert_eq!(nat.inbound(first), None);
        let second = nat.outbound(inside);
        assert_eq!(second.ip(), first.ip());
        assert_ne!(second.port(), first.port());
        nat.rebind_to("192.0.2.2".parse().unwrap());
        assert_eq!(nat.outside_of(inside), None);
        assert_eq!(nat.outbound(inside).ip().to_string(), "192.0.2.2");
    }

    #[test]
    fn ports_are_assigned_in_ascending_order() {
        let mut nat = Nat::new("192.0.2.1".parse().unwrap());
        let mut port = |inside: u16| {
            nat.outbound(SocketAddr::from(([10, 0, 0, 1], inside)))
                .port()
        };
        assert_eq!((port(1), port(2), port(1)), (40_000, 40_001, 40_000));
        nat.next_port = u16::MAX;
        let mut port = |inside: u16| {
            nat.outbound(SocketAddr::from(([10, 0, 0, 1], inside)))
                .port()
        };
        assert_eq!((port(3), port(4), port(5)), (65_535, 1024, 1025));
    }
}
