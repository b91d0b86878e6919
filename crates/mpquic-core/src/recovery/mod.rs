//! Loss recovery of one path (RFC 9002): what was acknowledged, what is lost, when to probe.

mod ack;
pub(crate) mod ack_frequency;
mod ack_path;
pub(crate) mod delivery_rate;
pub(crate) mod ecn;
pub(crate) mod loss;
mod loss_rate;
mod outcome;
pub(crate) mod pacer;
pub(crate) mod pto;
mod reordering;
pub(crate) mod rtt;
mod space;
mod state;

pub(crate) use outcome::{AckContext, AckOutcome};
pub(crate) use pto::{RecoveryTimeout, TimeoutContext, TimeoutKind};
pub(crate) use space::PacketNumberSpace;
pub(crate) use state::Recovery;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
