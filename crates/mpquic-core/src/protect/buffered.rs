//! [`BufferedPackets`]: packets that arrived too early. RFC 9001 section 5.7 allows to buffer them.

use crate::packet::arrival::Arrival;
use crate::wire::header::{Header, ProtectedPacket};

/// The most packets kept.
const MAX_PACKETS: usize = 16;
/// Most bytes of packets kept: a little above [`MAX_PACKETS`] packets of 1500 bytes. Anybody can
/// fill the buffer, because packets without keys may be forged.
const MAX_BYTES: usize = 32 << 10;

/// 1-RTT packets that came before the handshake was complete, or that open a path before we have a
/// connection ID to answer with; and 0-RTT packets that came before all of the ClientHello.
#[derive(Debug, Default)]
pub(crate) struct BufferedPackets(Vec<(Arrival, ProtectedPacket)>);

impl BufferedPackets {
    /// Keeps a packet; false if there is no room.
    pub(crate) fn push(&mut self, arrival: &Arrival, packet: &ProtectedPacket) -> bool {
        let kept: usize = self.0.iter().map(|(_, packet)| packet.data.len()).sum();
        let has_room = self.0.len() < MAX_PACKETS && kept + packet.data.len() <= MAX_BYTES;
        if has_room {
            self.0.push((*arrival, packet.clone()));
        }
        has_room
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        let data = self.0.iter().map(|(_, packet)| packet.data.capacity());
        self.0.capacity() * size_of::<(Arrival, ProtectedPacket)>() + data.sum::<usize>()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first packet that `is_ready`.
    pub(crate) fn take(
        &mut self,
        is_ready: impl Fn(&Arrival, &Header) -> bool,
    ) -> Option<(Arrival, ProtectedPacket)> {
        let ready =
            |(arrival, packet): &(Arrival, ProtectedPacket)| is_ready(arrival, &packet.header);
        let index = self.0.iter().position(ready)?;
        Some(self.0.remove(index))
    }

    /// Frees memory that is kept for reuse.
    pub(crate) fn trim(&mut self) {
        self.0.shrink_to_fit();
    }
}
