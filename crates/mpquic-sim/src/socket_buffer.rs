//! [`SocketBuffer`]: what arrives for a process that is stopped.

use std::collections::VecDeque;

use crate::packet::Packet;

/// Bytes of payload it takes, as much as a UDP socket of Linux does by default.
const ROOM: usize = 212_992;

/// The receive buffer of a host's socket. What does not fit is lost.
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

    /// The packets, in the order in which they arrived.
    fn into_iter(self) -> Self::IntoIter {
        self.packets.into_iter()
    }
}
