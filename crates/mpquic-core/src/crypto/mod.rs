//! TLS and packet protection, as the core needs them.
//!
//! [`rustls`] implements these traits; the simulator has a null implementation. The traits do not
//! refer to connections, so implementations can be tested alone.
//!
//! # Stability
//!
//! Applications need [`rustls`], [`ExportError`], [`HandshakeData`] and the tokens of Retry packets
//! ([`RetryTokens`]). The traits and types for other TLS implementations ([`Session`],
//! [`HeaderKey`], [`PacketKey`], [`Keys`], [`FirstFlight`] and the traits that make them) follow
//! the needs of the core and may change in every release: semantic versioning does not cover them.

#[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
compile_error!("enable the feature `ring` or `aws-lc-rs`");

mod awaiting_version;
mod config;
pub(crate) mod key_phase;
mod keys;
mod retry_tokens;
pub mod rustls;
mod session;
pub(crate) mod tokens;

pub(crate) use awaiting_version::AwaitingVersion;
pub use config::{ClientCrypto, FirstFlight, InitialCrypto, InvalidServerName, ServerCrypto};
pub use keys::{CryptoError, HeaderKey, KeyPair, Keys, PacketKey};
pub(crate) use retry_tokens::{Opened, is_of_retry};
pub use retry_tokens::{RetryTokenKey, RetryTokens, ScreenedDatagram};
pub use session::{ExportError, HandshakeData, Session};

#[cfg(test)]
pub(crate) mod tests;
