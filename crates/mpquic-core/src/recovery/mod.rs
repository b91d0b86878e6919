//! Loss recovery of one path (RFC 9002): what was acknowledged, what is lost, when to probe.

pub(crate) mod delivery_rate;
pub(crate) mod ecn;
pub(crate) mod loss;
pub(crate) mod pacer;
pub(crate) mod pto;
pub(crate) mod rtt;
