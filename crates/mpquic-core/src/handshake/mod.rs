//! The handshake: TLS and its two packet number spaces, keys, versions, tokens, 0-RTT and the
//! checks of transport parameters.
//!
//! [`Handshake`] talks to TLS and keeps its keys. Tasks for the rest of a connection are returned
//! as [`Step`]s.

mod crypto;
mod drive;
mod level;
mod negotiation;
mod open;
mod packets;
mod parameters;
mod peer_parameters;
mod retry;
mod send;
mod server_frames;
pub(crate) mod setup;
mod state;
mod version;
mod zero_rtt;
mod zero_rtt_keys;

pub(crate) use level::Level;
pub(crate) use packets::LevelPacket;
pub(crate) use parameters::local_parameters;
pub(crate) use state::{Handshake, Step};
pub(crate) use version::Versions;
