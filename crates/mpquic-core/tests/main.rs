//! The tests of the core through its public interface, one program: it links once.

mod choices;
mod close;
mod codec;
mod configuration;
mod conformance;
mod ecn;
mod endpoint;
mod faults;
mod handshake;
mod hostile;
mod hostile_policies;
mod layering;
mod liveness;
mod loss;
mod migration;
mod operations;
mod paths;
mod rules;
mod scheduler_events;
mod streams;
