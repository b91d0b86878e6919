//! A client's first flight, which leaves from several addresses: path 0 begins where the server
//! answers first.

use std::net::SocketAddr;

use crate::config::ClientConfig;
use crate::ids::FourTuple;

/// Copies of a client's first flight, until the server answers.
///
/// A copy is the same datagram: the server knows its packets by their connection ID and packet
/// number, and drops the later ones. Until a packet of the server arrives, the connection has no
/// address that it could migrate from (RFC 9000 section 9).
#[derive(Debug, Default)]
pub(crate) struct FirstFlight {
    /// The address pairs that get copies.
    others: Vec<FourTuple>,
    /// The last datagram of path 0.
    datagram: Vec<u8>,
    /// The number of address pairs, from the end of the list, which lack a copy of the datagram.
    missing: usize,
}

impl FirstFlight {
    /// A first flight that leaves from these addresses too.
    pub(crate) fn new(mut others: Vec<FourTuple>) -> Self {
        others.truncate(ClientConfig::MAX_FIRST_FLIGHT);
        Self {
            others,
            ..Self::default()
        }
    }

    /// True for a server address that gets copies.
    pub(super) fn goes_to(&self, remote: SocketAddr) -> bool {
        self.others.iter().any(|other| other.remote == remote)
    }

    /// A datagram with Initial packets leaves on path 0.
    pub(crate) fn on_sent(&mut self, datagram: &[u8]) {
        if !self.others.is_empty() {
            self.datagram.clear();
            self.datagram.extend_from_slice(datagram);
            self.missing = self.others.len();
        }
    }

    /// Writes the next copy of the last datagram into `buf`. Returns the copy's addresses.
    #[inline]
    pub(crate) fn next_copy(&mut self, buf: &mut Vec<u8>) -> Option<FourTuple> {
        // Each datagram of a connection asks, and nearly none is a copy.
        if self.missing == 0 {
            return None;
        }
        self.copy(buf)
    }

    #[cold]
    fn copy(&mut self, buf: &mut Vec<u8>) -> Option<FourTuple> {
        let at = self.others.len().checked_sub(self.missing)?;
        let four_tuple = *self.others.get(at)?;
        self.missing -= 1;
        buf.extend_from_slice(&self.datagram);
        Some(four_tuple)
    }

    /// Ends the copies. Returns the address pairs that got them.
    pub(crate) fn end(&mut self) -> Vec<FourTuple> {
        std::mem::take(self).others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn four_tuple(port: u16) -> FourTuple {
        let address = |port| std::net::SocketAddr::from(([192, 0, 2, 1], port));
        FourTuple::new(address(port), address(443))
    }

    fn copies(flight: &mut FirstFlight) -> Vec<(FourTuple, Vec<u8>)> {
        let next = || {
            let mut buf = Vec::new();
            let to = flight.next_copy(&mut buf)?;
            Some((to, buf))
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn each_datagram_goes_to_each_address_once_until_the_end() {
        let mut flight = FirstFlight::new(vec![four_tuple(1), four_tuple(2)]);
        assert_eq!(copies(&mut flight), []);
        for datagram in [b"one".to_vec(), b"two".to_vec()] {
            flight.on_sent(&datagram);
            let expected = [(four_tuple(1), datagram.clone()), (four_tuple(2), datagram)];
            assert_eq!(copies(&mut flight), expected);
        }
        flight.on_sent(b"three");
        flight.end();
        assert_eq!(copies(&mut flight), []);
        flight.on_sent(b"four");
        assert_eq!(copies(&mut flight), []);
    }
}
