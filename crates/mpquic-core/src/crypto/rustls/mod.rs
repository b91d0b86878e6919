//! TLS 1.3 and packet protection by rustls, over ring or aws-lc-rs.
//!
//! [`QuicClientConfig`] and [`QuicServerConfig`] wrap any rustls configuration whose provider
//! implements the multipath nonce; their other constructors cover the usual cases. Those honour
//! `SSLKEYLOGFILE`.

mod authorities;
mod client;
mod client_hello;
mod completed_server;
mod exporter;
pub(super) mod key_derivation;
pub(super) mod keys;
mod next_secrets;
mod post_handshake_messages;
mod secret_log;
mod server;
mod session;
mod shared_tickets;
mod suites;
mod tickets;
mod verifier;
mod wall_clock;

pub use authorities::{ClientAuthorities, ServerAuthorities, roots_in_pem};
pub use client::QuicClientConfig;
pub use server::QuicServerConfig;
pub use shared_tickets::SharedTickets;
pub use suites::{KeyExchange, TlsConfigError, provider};
pub use verifier::{PinVerifier, RawKeyVerifier, certificate_fingerprint};
pub use wall_clock::WallClock;

#[cfg(test)]
mod tests;
