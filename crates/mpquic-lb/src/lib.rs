//! Connection IDs that tell a load balancer which server they lead to: QUIC-LB
//! (draft-ietf-quic-load-balancers-21).
//!
//! The paths of a multipath connection come from different client addresses, so a load balancer
//! that looks at addresses spreads one connection over several servers. With this crate, the
//! connection IDs of all paths contain the server's ID, optionally encrypted.
//!
//! - [`Config`] has the values shared by servers and load balancers: lengths, key, rotation.
//! - [`Server`] makes the connection IDs of one server, for [`EndpointOptions::connection_ids`].
//! - [`Balancer`] decides which server a datagram goes to. It does no I/O; the example `balancer`
//!   gives it sockets.
//!
//! `docs/fleets.md` shows how they work together.
//!
//! Section numbers are those of the draft.
//!
//! [`EndpointOptions::connection_ids`]: mpquic_core::config::EndpointOptions::connection_ids

#[cfg(doctest)]
#[doc = include_str!("../../../docs/fleets.md")]
struct Fleets;

mod balancer;
mod cipher;
mod config;
mod server;

pub use balancer::{Balancer, Counts, Routed};
pub use config::{Config, ConfigError, ServerId};
pub use server::Server;
