//! IP packets on their way between two devices.

use crate::link::Packet;

/// One IP packet.
pub(crate) struct IpPacket {
    pub(crate) data: Vec<u8>,
}

impl Packet for IpPacket {
    fn len(&self) -> usize {
        self.data.len()
    }

    fn mark_ce(&mut self) -> bool {
        mark_ce(&mut self.data)
    }

    fn duplicate(&self) -> Self {
        IpPacket {
            data: self.data.clone(),
        }
    }
}

/// Sets CE on an ECN-capable IPv4 or IPv6 packet, keeping the IPv4 header checksum right. Returns
/// whether the packet is ECN-capable.
fn mark_ce(packet: &mut [u8]) -> bool {
    match packet.first().map(|b| b >> 4) {
        Some(4) if packet.len() >= 20 => {
            if packet[1] & 3 == 0 {
                return false;
            }
            let old = u16::from_be_bytes([packet[0], packet[1]]);
            packet[1] |= 3;
            let new = u16::from_be_bytes([packet[0], packet[1]]);
            // RFC 1624: HC' = ~(~HC + ~m + m')
            let checksum = u16::from_be_bytes([packet[10], packet[11]]);
            let mut sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
            while sum >> 16 != 0 {
                sum = (sum & 0xFFFF) + (sum >> 16);
            }
            packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
            true
        }
        Some(6) if packet.len() >= 40 => {
            if packet[1] & 0x30 == 0 {
                return false;
            }
            packet[1] |= 0x30;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::mark_ce;

    fn checksum(header: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in header.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], pair[1]]));
        }
        while sum >> 16 != 0 {
            sum = (sum & 0xFFFF) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn a_marked_ipv4_packet_keeps_a_right_checksum() {
        for tos in 0..=255u8 {
            let mut header = [
                0x45, tos, 1, 2, 3, 4, 5, 6, 64, 17, 0, 0, 10, 100, 0, 1, 10, 100, 0, 2,
            ];
            let sum = checksum(&header).to_be_bytes();
            header[10..12].copy_from_slice(&sum);
            assert_eq!(mark_ce(&mut header), tos & 3 != 0);
            assert_eq!(checksum(&header), 0);
            assert_eq!(header[1], if tos & 3 == 0 { tos } else { tos | 3 });
        }
    }

    #[test]
    fn only_an_ecn_capable_ipv6_packet_is_marked() {
        let mut packet = [0u8; 40];
        packet[0] = 0x60;
        assert!(!mark_ce(&mut packet));
        packet[1] = 0x20;
        assert!(mark_ce(&mut packet));
        assert_eq!(packet[1], 0x30);
    }
}
