//! The driver on a network in memory, in the runtime's paused time.

mod attempts;
mod failover;
mod faults;
mod full_sockets;
mod limits;
mod panics;
mod plan;
mod reading;
mod timers;
mod unreachable;
mod zero_rtt;
