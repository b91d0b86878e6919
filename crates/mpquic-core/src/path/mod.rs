//! Paths: validation, connection IDs, MTU, status, and the IDs themselves.

pub(crate) mod amplification;
pub(crate) mod ids;
pub(crate) mod mtu;
pub(crate) mod status;
pub(crate) mod validation;
