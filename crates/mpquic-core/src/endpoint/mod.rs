//! The endpoint: routes datagrams to connections and starts new ones.

mod accept;
mod address_validation;
mod answer_log;
mod answers;
mod attempts;
mod compact_cids;
mod connect;
mod incoming;
mod initial;
mod pressure;
mod routes;
mod routing;
mod server;
mod stateless_reset;
mod stats;
mod unrouted;

pub use accept::{AcceptError, Accepted, Accepting};
pub use connect::ConnectError;
pub use incoming::Incoming;
pub use routes::{ConnectionHandle, RouteCounts};
pub use routing::{DatagramEvent, Endpoint};
pub use stats::EndpointStats;

#[cfg(test)]
mod tests;
