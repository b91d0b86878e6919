//! [`PacketBuilder`]: header, room for frames, seal.
