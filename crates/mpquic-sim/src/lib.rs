//! mpquic-sim: a laboratory for multipath QUIC.
//!
//! The protocol core does no I/O and reads no clock. So the code of real machines runs here
//! unchanged, in virtual time, on links with any rate, delay, loss and schedule. A minute of
//! transfer takes seconds, and equal seeds give equal packets.
//!
//! ```
//! use mpquic_sim::{LinkConfig, Pair, Setup, Side, Topology};
//! use std::time::Duration;
//! # fn run() {
//! let ms = Duration::from_millis;
//! let topology = Topology::new()
//!     .path("wifi", LinkConfig::new(40.0, ms(8)))
//!     .path("lte", LinkConfig::new(20.0, ms(30)).loss(0.001));
//! let mut pair = Pair::connected(&topology, Setup::new());
//! pair.open_all_paths();
//! let took = pair.transfer(Side::Server, 10_000_000, Duration::from_secs(10));
//! println!("10 MB in {took:?} of virtual time");
//! # }
//! ```
//!
//! From the bottom up: a [`Link`] is one direction of a path. A [`Network`] joins links, NAT boxes
//! and addresses by routes. A [`Host`] has an endpoint, and connections with an [`Application`] on
//! each. A [`Lab`] puts hosts on a network and moves the clock. A [`Pair`] is a lab with a client
//! and a server on the paths of a [`Topology`].

mod agreement;
mod application;
mod arrived;
pub mod experiment;
mod host;
mod invariants;
mod lab;
mod learnt;
pub mod link;
mod nat;
mod network;
pub mod null_crypto;
mod observer;
mod packet;
mod pair;
mod pattern;
mod policies;
mod random;
pub mod record;
pub mod scenario;
mod socket_buffer;
pub mod tls;
mod topology;
mod traffic;
mod transfers;

pub use application::Application;
pub use host::{AcceptPolicy, Host, Hosted, OnResume};
pub use lab::{Lab, TimedOut};
pub use link::{
    Backlog, Change, Discipline, Jitter, Link, LinkConfig, LinkCounters, Loss, MahimahiError,
    RateTrace, Variation,
};
pub use nat::Nat;
pub use network::{Hop, HostId, LinkId, NatId, Network};
pub use null_crypto::NullCrypto;
pub use packet::Packet;
pub use pair::{Crypto, Pair, Setup, Side};
pub use policies::{Policies, UnknownPolicy};
pub use random::SplitMix64;
pub use tls::Tls;
pub use topology::{PathLinks, Topology};
pub use traffic::{Arrivals, Traffic};
pub use transfers::{Incoming, Outgoing, Reset, Transfers};
