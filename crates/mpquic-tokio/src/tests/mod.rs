//! The driver on a network in memory, in the runtime's paused time.

mod attempts;
mod calls;
mod choices;
mod early_ends;
mod failover;
mod faults;
mod full_sockets;
mod handles;
mod handshake_sweep;
mod icmp;
mod key_exchange;
mod limits;
#[cfg(feature = "metrics")]
mod metrics;
mod names;
mod panics;
mod plan;
#[cfg(target_os = "linux")]
mod queues;
mod reading;
mod recorded;
mod server_addresses;
mod spans;
mod stopped_streams;
mod timers;
mod unreachable;
mod zero_rtt;
