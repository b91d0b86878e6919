//! [`Packet`]: a packet on a link.

use std::net::SocketAddr;

use bytes::BytesMut;
use mpquic_core::EcnCodepoint;

/// One UDP datagram in its IP packet.
#[derive(Debug, Clone)]
pub struct Packet {
    /// Address of the sender; NAT boxes rewrite the address.
    pub source: SocketAddr,
    /// Address of the receiver; NAT boxes rewrite the address.
    pub destination: SocketAddr,
    /// ECN codepoint; links may turn ECT into CE.
    pub ecn: Option<EcnCodepoint>,
    /// The UDP payload.
    pub data: BytesMut,
    /// Index of the packet's route; set by the network.
    pub(crate) route: usize,
    /// Number of hops that the packet has taken.
    pub(crate) hop: usize,
}

impl Packet {
    /// A packet that has not left yet.
    pub fn new(
        source: SocketAddr,
        destination: SocketAddr,
        ecn: Option<EcnCodepoint>,
        data: BytesMut,
    ) -> Self {
        Self {
            source,
            destination,
            ecn,
            data,
            route: 0,
            hop: 0,
        }
    }

    /// Size of the IP packet, bytes: payload, 8 bytes of UDP and 20 or 40 bytes of IP. Rates,
    /// queues and MTUs count this size.
    pub fn wire_size(&self) -> usize {
        let header = if self.source.is_ipv4() { 28 } else { 48 };
        self.data.len() + header
    }

    /// Turns ECT(0) and ECT(1) into CE; false if the packet is not ECN-capable.
    pub(crate) fn mark_ce(&mut self) -> bool {
        if self.ecn.is_some() {
            self.ecn = Some(EcnCodepoint::Ce);
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(source: &str, ecn: Option<EcnCodepoint>) -> Packet {
        let address = source.parse().unwrap();
        Packet::new(address, address, ecn, BytesMut::zeroed(100))
    }

    #[test]
    fn wire_size_includes_headers() {
        assert_eq!(packet("10.0.0.1:1", None).wire_size(), 128);
        assert_eq!(packet("[fd00::1]:1", None).wire_size(), 148);
    }

    #[test]
    fn only_ecn_capable_packets_are_marked() {
        for ecn in [EcnCodepoint::Ect0, EcnCodepoint::Ect1, EcnCodepoint::Ce] {
            let mut packet = packet("10.0.0.1:1", Some(ecn));
            assert!(packet.mark_ce());
            assert_eq!(packet.ecn, Some(EcnCodepoint::Ce));
        }
        let mut packet = packet("10.0.0.1:1", None);
        assert!(!packet.mark_ce());
        assert_eq!(packet.ecn, None);
    }
}
