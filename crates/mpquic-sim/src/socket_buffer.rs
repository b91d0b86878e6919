//! [`SocketBuffer`]: packets that arrive for a stopped process.

use std::collections::VecDeque;

use crate::packet::Packet;

/// Size of the buffer, bytes of payload: the default of a UDP socket in Linux.
const ROOM: usize = 212_992;

/// The receive buffer of a host's socket. Packets that do not fit are lost.
#[derive(Debug, Default)]
pub(crate) struct SocketBuffer {
    packets: VecDeque<Packet>,
    bytes: usize,
}

impl SocketBuffer {
    /// Takes a packet, if there is room.
    pub(crate) fn push(&mut self, packet: Packet) {
        if self.bytes + packet.data.len() <= ROOM {
            self.bytes += packet.data.len();
            self.packets.push_back(packet);
        }
    }
}

impl IntoIterator for SocketBuffer {
    type Item = Packet;
    type IntoIter = std::collections::vec_deque::IntoIter<Packet>;

    /// The packets, in the order of their arrival.
    fn into_iter(self) -> Self::IntoIter {
        self.packets.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;

    #[test]
    fn packets_that_fit_are_kept_in_order_of_arrival() {
        let address = "10.0.0.1:1".parse().unwrap();
        let packet = |bytes| Packet::new(address, address, None, BytesMut::zeroed(bytes));
        let mut buffer = SocketBuffer::default();
        for bytes in [200_000, 12_000, 993, 992, 1] {
            buffer.push(packet(bytes));
        }
        let taken: Vec<_> = buffer.into_iter().map(|packet| packet.data.len()).collect();
        assert_eq!(taken, [200_000, 12_000, 992]);
    }
}
