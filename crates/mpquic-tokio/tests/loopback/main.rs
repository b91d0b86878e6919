//! Whole connections over real sockets: two loopback addresses are two paths.

mod async_io_runtime;
mod attempts;
mod cancel;
mod connections;
mod data;
mod endpoints;
#[cfg(target_os = "linux")]
mod handover;
mod harness;
#[cfg(target_os = "linux")]
mod icmp;
mod memory;
mod panics;
mod paths;
mod polls;
mod quinn;
mod runtimes;
mod slow_tls;
mod sockets;
mod steering;
mod tls;
mod workers;
