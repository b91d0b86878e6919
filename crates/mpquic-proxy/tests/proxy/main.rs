//! Proxies and their clients over real sockets: two loopback addresses are two paths.

mod bound;
mod early;
mod entrances;
mod going_away;
mod harness;
#[cfg(target_os = "linux")]
mod ip;
mod refusals;
mod reverse;
mod tcp;
mod udp;
