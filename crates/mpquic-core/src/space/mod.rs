//! [`PacketNumberSpace`]: numbers, what was received, what was sent. One per path, plus Initial
//! and Handshake.

pub(crate) mod ack_policy;
pub(crate) mod received;
pub(crate) mod sent;
