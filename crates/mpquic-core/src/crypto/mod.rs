//! What the core needs from TLS and packet protection.
//!
//! [`rustls`] implements these traits; the simulator has a null implementation. The traits know
//! nothing of connections, so implementations can be tested alone.

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
pub use retry_tokens::{RetryTokenKey, RetryTokens, Screened};
pub use session::{ExportError, HandshakeData, Session};

#[cfg(test)]
pub(crate) mod tests;
