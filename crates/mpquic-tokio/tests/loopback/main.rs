//! Whole connections over real sockets: two loopback addresses are two paths.

mod attempts;
mod connections;
mod data;
mod endpoints;
mod harness;
mod memory;
mod panics;
mod paths;
mod polls;
mod slow_tls;
