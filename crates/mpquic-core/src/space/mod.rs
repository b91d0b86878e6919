//! The packets of a packet number space: received packets and their acknowledgements, and sent
//! packets until their fate is known. Packet numbers, losses and timers are part of recovery.

pub(crate) mod ack_policy;
pub(crate) mod lost;
pub(crate) mod received;
mod seen;
pub(crate) mod sent;

pub(crate) use ack_policy::{AckPolicy, AckState};
pub(crate) use lost::{LostPacket, LostPackets};
pub(crate) use received::Received;
pub(crate) use sent::{SendState, SentPacket, SentPackets};
