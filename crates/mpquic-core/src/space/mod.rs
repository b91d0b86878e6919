//! What a packet number space keeps of packets: received ones and their acknowledgements, sent ones
//! until their fate is known. Numbers, losses and timers are recovery's.

pub(crate) mod ack_policy;
pub(crate) mod lost;
pub(crate) mod received;
mod seen;
pub(crate) mod sent;

pub(crate) use ack_policy::{AckPolicy, AckState};
pub(crate) use lost::{LostPacket, LostPackets};
pub(crate) use received::Received;
pub(crate) use sent::{SendState, SentPacket, SentPackets};
