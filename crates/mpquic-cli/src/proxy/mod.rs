//! `mpquic proxy`.

pub(crate) mod args;
pub(crate) mod client;
mod keeping;
mod liveness;
pub(crate) mod server;
pub(crate) mod status;
#[cfg(target_os = "linux")]
pub(crate) mod tun;
pub(crate) mod users;
