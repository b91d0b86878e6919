//! `mpquic proxy`.

pub(crate) mod args;
mod change;
pub(crate) mod client;
mod control;
pub(crate) mod ctl;
mod keeping;
mod liveness;
#[cfg(not(unix))]
mod no_socket;
mod quota;
mod reverse;
pub(crate) mod server;
mod settings;
#[cfg(unix)]
mod socket;
#[cfg(not(unix))]
use no_socket as socket;
pub(crate) mod status;
pub(crate) mod status_command;
#[cfg(target_os = "linux")]
pub(crate) mod tun;
pub(crate) mod users;
